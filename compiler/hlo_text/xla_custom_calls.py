"""Custom calls of XLA's and JAX's own libraries for CPUs, read as the operations that they are: text lowered for a CPU
runs without those libraries.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ...runtime.devices import custom_calls
from ..builder.computation_builder import ComputationBuilder, Operand
from ..errors import ShapeError, UnsupportedError
from ..ir.element_types import ElementType
from ..ir.module import Computation
from ..ir.shape import Shape
from ..ops import CustomCall
from ..ops.op import require
from . import lapack, lapack_similar

Write: TypeAlias = Callable[[ComputationBuilder, Sequence[Operand], Mapping[str, str], Shape], Operand | None]
"""Writes a call with a builder, given its operands, the fields of its backend_config, and the shape of its result; None
where it is not known what these fields ask for."""
_FIELD = re.compile(r"(\w+)\s*=\s*(-?\d{1,9})\b", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of a library: how it is written, the number of its operands (0: any), the numbers of results that it
    may have (none: any; None: one that is in no tuple), the fewest axes of an operand, and whether it takes, and gives,
    a tuple as well as an array."""

    write: Write
    operands: int
    results: tuple[int | None, ...]
    rank: int = 2
    takes_tuples: bool = False


_LAPACK = re.compile(r"lapack_([sdcz])(\w+)_ffi")
_S32 = ElementType.S32


def library_call(op: CustomCall, operands: Sequence[Shape]) -> Computation | None:
    """The computation that a call of a known library is; None for other targets, and for those that somebody has
    registered.

    Raises: ShapeError  library_c1: the number of operands, or of results, is not the library's; library_c2: an operand
        is no batch of matrices; library_c3: the result has another shape than the one declared; those of the operations
        that the call is written with.
    """
    name = op.custom_call_target
    function = _function(name)
    if function is None or custom_calls.find(name) is not None:
        return None
    results = len(op.shape.tuple_shapes) if op.shape.is_tuple else None
    if (
        function.takes_tuples
        and len(operands) == 1
        and operands[0].is_tuple
        and op.shape.compatible(operands[0])
    ):
        return _copied(name, operands[0])
    require(
        (not function.operands or len(operands) == function.operands)
        and (not function.results or results in function.results),
        f"{name}: {len(operands)} operands and {results or 'one'} results, {function.operands} and one of "
        f"{function.results} wanted (None: no tuple)",
        "library_c1",
    )
    require(
        all(s.is_array and s.rank >= function.rank for s in operands),
        f"{name}: operands are {', '.join(map(str, operands))}, arrays of {function.rank} axes or more are wanted",
        "library_c2",
    )
    b = ComputationBuilder(name)
    b.die_immediately_on_error = True
    parameters = [b.parameter(k, s.without_layout()) for k, s in enumerate(operands)]
    fields = {
        key: chr(int(value)) if 32 < int(value) < 127 else value
        for key, value in _FIELD.findall(op.backend_config)
    }
    fields["backend_config"] = op.backend_config
    try:
        result = function.write(b, parameters, fields, op.shape)
    except ShapeError as error:  # behind the first line: where the builder was called
        raise ShapeError(f"{name}: {str(error).splitlines()[0]}") from None
    if result is None:
        return None
    shape = b.get_shape(result)
    require(
        shape.compatible(op.shape), f"{name}: result is declared as {op.shape}, it is {shape}", "library_c3"
    )
    return b.build(result)


def is_of_library(name: str) -> bool:
    """Whether a custom-call target is one that `library_call` knows."""
    return _function(name) is not None


def _function(name: str) -> Function | None:
    match = _LAPACK.fullmatch(name)
    return LIBRARY.get(match[2] if match else name)


def _copied(name: str, shape: Shape) -> Computation:
    b = ComputationBuilder(name)
    return b.build(b.copy(b.parameter(0, shape.without_layout())))


def _pad_to_static(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """PadToStatic: an array with all that its sizes leave out, and the sizes of its axes."""
    own = b.get_shape(operands[0])
    whole = operands[0]
    for axis in own.dynamic:
        whole = b.set_dimension_size(whole, b.constant(own.dims[axis], _S32), axis)
    return b.tuple([whole, *(b.get_dimension_size(operands[0], axis) for axis in range(own.rank))])


def _slice_to_dynamic(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """SliceToDynamic: an array with sizes of its axes."""
    require(
        shape.is_array and len(operands) == shape.rank + 1,
        f"SliceToDynamic: {len(operands)} operands for {shape}, the array and a size for each axis are wanted",
        "library_c1",
    )
    result = operands[0]
    for axis in shape.dynamic:
        result = b.set_dimension_size(result, operands[axis + 1], axis)
    return result


def _eigh(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand | None:
    """XLA's Eigh, of `lower,sort,iterations,tolerance`: eigenvectors, eigenvalues in ascending order."""
    is_lower = fields["backend_config"].strip('"')[:1]
    if is_lower not in ("0", "1"):
        return None
    vectors, values = lapack.eigenvectors_and_values(b, operands[0], is_lower == "1")
    return b.tuple([vectors, values])


def _allocated(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """AllocateBuffer, CreateBuffer: an array whose elements are not said, here zeros."""
    return b.zeros(shape.without_layout())


def _top_k(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """XLA's TopK."""
    require(shape.tuple_shapes[0].rank > 0, f"TopK: result is {shape}, arrays are wanted", "library_c3")
    return b.top_k(
        operands[0], shape.tuple_shapes[0].dims[-1], fields.get("largest", "1") not in ("0", "false")
    )


def _unchanged(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """Where an array is to be: on which devices, in which memory, in which order of axes. Here that is one place."""
    own = b.get_shape(operands[0])
    if own.dims != shape.dims:
        raise UnsupportedError(
            f"{b.name}: {own} becomes {shape}; a program that is not yet divided among devices is compiled for one"
        )
    return b.copy(operands[0])


_ANNOTATIONS = (
    "AssumeGatherIndicesInBound",
    "LayoutConstraint",
    "MoveToDevice",
    "MoveToHost",
    "Pin",
    "PinToDevice",
    "PinToDeviceSram",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "Sharding",
    "Unpin",
    "annotate_device_placement",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
)
"""Targets that say where an array is to be."""

LIBRARY: dict[str, Function] = {
    **dict.fromkeys(_ANNOTATIONS, Function(_unchanged, 1, (None,), 0, takes_tuples=True)),
    "AllocateBuffer": Function(_allocated, 0, (None,), 0),
    "CreateBuffer": Function(_allocated, 0, (None,), 0),
    "Eigh": Function(_eigh, 1, (2,)),
    "LuDecomposition": Function(lapack.lu_decomposition, 1, (3,)),
    "PadToStatic": Function(_pad_to_static, 1, (), 0),
    "ProductOfElementaryHouseholderReflectors": Function(lapack.orgqr, 2, (None,), 1),
    "Qr": Function(lapack.geqrf, 1, (2,)),
    "SliceToDynamic": Function(_slice_to_dynamic, 0, (None,), 0),
    "TopK": Function(_top_k, 1, (2,), 1),
    "gees": Function(lapack.gees, 1, (5, 6)),
    "geev": Function(lapack.geev, 1, (4, 5)),
    "gehrd": Function(lapack_similar.gehrd, 1, (3,)),
    "geqrf": Function(lapack.geqrf, 1, (2, 3)),
    "gesdd": Function(lapack.gesdd, 1, (5,)),
    "gesvd": Function(lapack.gesdd, 1, (5,)),
    "getrf": Function(lapack.getrf, 1, (3,)),
    "gtsv": Function(lapack.gtsv, 4, (5,), 1),
    "heevd": Function(lapack.syevd, 1, (3,)),
    "hetrd": Function(lapack_similar.sytrd, 1, (5,)),
    "orgqr": Function(lapack.orgqr, 2, (None,), 1),
    "potrf": Function(lapack.potrf, 1, (2,)),
    "syevd": Function(lapack.syevd, 1, (3,)),
    "sytrd": Function(lapack_similar.sytrd, 1, (5,)),
    "trsm": Function(lapack.trsm, 2, (None,)),
    "ungqr": Function(lapack.orgqr, 2, (None,), 1),
}
"""By target, or the part of it behind the type letter for LAPACK, what it computes."""
