"""The evaluator: runs the IR with the ops' NumPy references. Slow and readable; it is what the IR means.

It computes in the floating-point mode of compiled code: denormals are zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...runtime.code import float_mode
from ..errors import ShapeError
from ..ir.module import Computation, Instruction, Module
from ..ir.shape import TOKEN, Shape
from ..limits import DEFAULT_LIMITS
from ..ops import Call, Constant, Copy, Fusion, GetTupleElement, Parameter, Tuple
from ..options import DEFAULT_OPTIONS
from ..passes.lower_dynamic_boundary import Exposed, expose_sizes, fits


def evaluate(program: Module | Computation, arguments: Sequence[Any]) -> Any:
    """The value of a module's entry, or of a computation: an array, or a tuple (nested) of arrays.

    Raises: ShapeError  arguments of other number, element type or dims than the parameters; UnsupportedError
    an op has no reference.
    """
    exposed = expose_sizes(program if isinstance(program, Module) else Module(program.name, program))
    if exposed is not None:
        return _evaluate_exposed(exposed, program, arguments)
    computation = program.entry if isinstance(program, Module) else program
    shapes = computation.parameter_shapes
    if len(arguments) != len(shapes):
        raise ShapeError(f"{computation.name}: {len(arguments)} arguments given, {len(shapes)} wanted")
    checked = [
        _checked(computation.name, number, a, s) for number, (a, s) in enumerate(zip(arguments, shapes))
    ]
    with float_mode.of_runs():
        return evaluate_computation(computation, *checked)


def _evaluate_exposed(exposed: Exposed, program: Module | Computation, arguments: Sequence[Any]) -> Any:
    """The value of a program with sizes known at run time only: arrays of their real sizes."""
    from ..passes.pad_dynamic_dimensions import resolve_dynamic_sizes

    computation = program.entry if isinstance(program, Module) else program
    leaves = [leaf for shape in computation.parameter_shapes for leaf in shape.leaves()]
    given = [np.asarray(a) for argument in arguments for a in flattened(argument)]
    if len(given) != len(leaves) or not all(map(fits, given, leaves)):
        raise ShapeError(
            f"{computation.name}: arguments are {', '.join(f'{a.dtype}{list(a.shape)}' for a in given)}, "
            f"{', '.join(map(str, leaves))} are wanted"
        )
    rest = iter(exposed.arguments(given, leaves))
    module = resolve_dynamic_sizes(exposed.module, DEFAULT_OPTIONS)
    value = evaluate(module, [nested(shape, rest) for shape in module.entry.parameter_shapes])
    return nested(computation.root.shape, iter(exposed.results(list(flattened(value)))))


def nested(shape: Shape, leaves: Iterator[Any]) -> Any:
    """The next leaves as a value of this shape."""
    if shape == TOKEN:
        return ()
    return tuple(nested(s, leaves) for s in shape.tuple_shapes) if shape.is_tuple else next(leaves)


def flattened(value: Any) -> Iterator[Any]:
    """The leaves of a value."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from flattened(part)
    else:
        yield value


def evaluate_computation(computation: Computation, *arguments: Any) -> Any:
    """The value of a computation on arguments that fit its parameters."""
    values: dict[Any, Any] = {}
    for instruction in computation.instructions:
        op = instruction.op
        if isinstance(op, Parameter):
            values[instruction] = arguments[op.number]
            continue
        values[instruction] = evaluate_instruction(instruction, [values[o] for o in instruction.operands])
    return values[computation.root]


def evaluate_instruction(instruction: Instruction, operands: Sequence[Any]) -> Any:
    """The value of an instruction (no parameter) for these values of its operands."""
    op, shape = instruction.op, instruction.shape
    if not shape.tuple_shapes:
        DEFAULT_LIMITS.check("evaluated_bytes", shape.bytes, f"bytes of {shape}")
        if (window := getattr(op, "window", None)) is not None:
            places = math.prod(window.padded((1,) * window.rank)) + math.prod(window.size)
            DEFAULT_LIMITS.check("evaluated_bytes", places, f"places that the window of {op.opcode} covers")
    if next(op.called(), None) is not None:
        value = op.reference(*operands, call=apply_computation)
    else:
        value = op.reference(*operands)
    return value if isinstance(value, tuple) else np.asarray(value)


def apply_computation(computation: Computation, *arguments: Any) -> Any:
    """The value of a computation; where its parameters are scalars and the arguments arrays, of it on their
    elements."""
    dims = next(
        (
            a.shape
            for a, s in zip(arguments, computation.parameter_shapes)
            if s.is_scalar and not isinstance(a, tuple) and a.shape
        ),
        (),
    )
    if not dims:
        return evaluate_computation(computation, *arguments)
    root = computation.root.shape
    if _is_elementwise(computation):
        return _spread(evaluate_computation(computation, *arguments), dims)
    leaves = list(root.leaves())
    results = [np.empty(dims, leaf.element_type.dtype) for leaf in leaves]
    for index in np.ndindex(*dims):
        value = evaluate_computation(computation, *(a[index] for a in arguments))
        for result, part in zip(results, value if root.is_tuple else (value,)):
            result[index] = part
    return tuple(results) if root.is_tuple else results[0]


def _is_elementwise(computation: Computation) -> bool:
    """Whether evaluating it with arrays in the place of its scalars does the same to every element."""
    for instruction in computation.instructions:
        op = instruction.op
        if isinstance(op, (Call, Fusion)):
            if not all(_is_elementwise(c) for c in op.called()):
                return False
        elif not (op.is_elementwise or isinstance(op, (Parameter, Constant, Tuple, GetTupleElement, Copy))):
            return False
        if not all(s.is_scalar for s in instruction.shape.leaves()):
            return False
    return True


def _spread(value: Any, dims: tuple[int, ...]) -> Any:
    if isinstance(value, tuple):
        return tuple(_spread(v, dims) for v in value)
    return np.broadcast_to(value, dims)


def _checked(name: str, number: int, argument: Any, shape: Shape) -> Any:
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
