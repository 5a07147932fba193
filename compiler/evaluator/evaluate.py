"""The value of a program, whose sizes may be known at run time only.

It is computed in the floating-point mode of compiled code: denormals are zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...runtime.code import float_mode
from ..errors import ShapeError
from ..ir.module import Computation, Module, Value
from ..ir.shape import TOKEN, Shape
from ..ir.specialization import is_symbolic, specialized, symbol_values
from ..ir.verifier import verify
from ..options import DEFAULT_OPTIONS
from ..passes.lower_dynamic_boundary import LoweredBoundary, fits, lower_dynamic_boundary
from ..passes.pad_dynamic_dimensions import pad_dynamic_dimensions
from .evaluator import evaluate_computation


def evaluate(program: Module | Computation, arguments: Sequence[object]) -> Value:
    """The value of a module's entry, or of a computation: an array, or a tuple (nested) of arrays.

    Every op is computed with NumPy, as its documentation says: slow, and what compiled code is compared with.

    >>> import numpy as np
    >>> from tfbridge.compiler import evaluate, parse_hlo
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[n] parameter(0)\\n  ROOT y = f32[n] add(x, x)\\n}"
    >>> evaluate(parse_hlo(text), [np.float32([1, 2, 3])])
    array([2., 4., 6.], dtype=float32)

    Shapes: the dims of the arguments are the values of the symbols in sizes.
    Raises: ShapeError  arguments of other number, element type or dims than the parameters, or sizes for which the
        program is ill-formed. UnsupportedError  an op has no reference.
    """
    program = _bound(program, arguments)
    lowered = lower_dynamic_boundary(
        program if isinstance(program, Module) else Module(program.name, program)
    )
    if lowered is not None:
        return _evaluate_lowered(lowered, program, arguments)
    computation = program.entry if isinstance(program, Module) else program
    shapes = computation.parameter_shapes
    if len(arguments) != len(shapes):
        raise ShapeError(f"{computation.name}: {len(arguments)} arguments given, {len(shapes)} wanted")
    checked = [
        _checked(computation.name, number, a, s) for number, (a, s) in enumerate(zip(arguments, shapes))
    ]
    with float_mode.of_runs():
        return evaluate_computation(computation, *checked)


def _bound(program: Module | Computation, arguments: Sequence[object]) -> Module | Computation:
    """The program with the sizes that arguments give its symbols."""
    module = program if isinstance(program, Module) else Module(program.name, program)
    if not is_symbolic(module):
        return program
    arrays = [np.asarray(a) for argument in arguments for a in flattened(argument)]
    leaves = [leaf for shape in module.entry.parameter_shapes for leaf in shape.leaves() if leaf.is_array]
    if len(arrays) != len(leaves):
        raise ShapeError(f"{module.entry.name}: {len(arrays)} arguments given, {len(leaves)} wanted")
    values = symbol_values(module, [a.shape for a in arrays])
    if isinstance(values, str):
        raise ShapeError(f"{module.entry.name}: {values}")
    return verify(specialized(module, values))


def _evaluate_lowered(
    lowered: LoweredBoundary, program: Module | Computation, arguments: Sequence[object]
) -> Value:
    """The value of a program with sizes known at run time only: arrays of their real sizes."""
    computation = program.entry if isinstance(program, Module) else program
    leaves = [leaf for shape in computation.parameter_shapes for leaf in shape.leaves()]
    arrays = [np.asarray(a) for argument in arguments for a in flattened(argument)]
    if len(arrays) != len(leaves) or not all(map(fits, arrays, leaves)):
        raise ShapeError(
            f"{computation.name}: arguments are {', '.join(f'{a.dtype}{list(a.shape)}' for a in arrays)}, "
            f"{', '.join(map(str, leaves))} are wanted"
        )
    rest = iter(lowered.arguments(arrays, leaves))
    module = pad_dynamic_dimensions(lowered.module, DEFAULT_OPTIONS)
    value = evaluate(module, [nested(shape, rest) for shape in module.entry.parameter_shapes])
    return nested(
        computation.root.shape, iter(lowered.results([np.asarray(leaf) for leaf in flattened(value)]))
    )


def nested(shape: Shape, leaves: Iterator[np.ndarray]) -> Value:
    """The next leaves as a value of this shape."""
    if shape == TOKEN:
        return ()
    return tuple(nested(s, leaves) for s in shape.tuple_shapes) if shape.is_tuple else next(leaves)


def flattened(value: object) -> Iterator[object]:
    """The leaves of a value."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from flattened(part)
    else:
        yield value


def _checked(name: str, number: int, argument: object, shape: Shape) -> Value:
    if shape == TOKEN:
        return ()
    if shape.is_tuple:
        if not isinstance(argument, (tuple, list)) or len(argument) != len(shape.tuple_shapes):
            raise ShapeError(f"{name}: argument {number} is no tuple for {shape}")
        return tuple(_checked(name, number, a, s) for a, s in zip(argument, shape.tuple_shapes))
    array = np.asarray(argument)
    if array.dtype != shape.element_type.dtype or array.shape != shape.dims:
        raise ShapeError(f"{name}: argument {number} is {array.dtype}{list(array.shape)}, {shape} is wanted")
    return array
