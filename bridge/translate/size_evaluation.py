"""Numbers of a graph that are made of sizes known at run time only: arrays of objects, some of them `Size`s, or
`Quotient`s where the numbers are floats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compiler.ir.module import Instruction
from ...compiler.ops import (
    Broadcast,
    Compare,
    Concatenate,
    Convert,
    Copy,
    DynamicSlice,
    DynamicUpdateSlice,
    Elementwise,
    Gather,
    Opcode,
    Pad,
    Reduce,
    Reshape,
    Reverse,
    SizeConstant,
    Slice,
    Transpose,
    is_op,
    reducer_kind,
)
from ...runtime.sizes import AnySize, Size, are_equal, maximum, minimum, tracing
from .float_sizes import Quotient, combined, compared, converted

_MOVES = (Broadcast, Concatenate, Copy, Pad, Reshape, Reverse, SizeConstant, Slice, Transpose)
_INDEXED = {DynamicSlice: 1, DynamicUpdateSlice: 2, Gather: 1}  # the first operand that is an index


def evaluate_sizes(instruction: Instruction, operands: Sequence[Any]) -> np.ndarray | None:
    """The value of an instruction one of whose operands has sizes; None where it is no array of sizes."""
    value = _evaluated(instruction, operands)
    if value is not None and holds_sizes(value) and not any(map(_is_symbolic, value.flat)):
        return value.astype(instruction.shape.element_type.dtype)
    return value


def _is_symbolic(element: object) -> bool:
    return isinstance(element.size if isinstance(element, Quotient) else element, Size)


def _evaluated(instruction: Instruction, operands: Sequence[np.ndarray]) -> np.ndarray | None:
    op = instruction.op
    with tracing():
        if isinstance(op, Convert):
            if op.element_type.is_integer and instruction.operands[0].shape.element_type.is_integer:
                return operands[0]
            return _each(lambda value: converted(value, op.element_type), operands)
        if isinstance(op, _MOVES):
            return np.asarray(op.reference(*operands))
        if (first := _INDEXED.get(type(op))) is not None:
            return None if any(map(holds_sizes, operands[first:])) else np.asarray(op.reference(*operands))
        if is_op(instruction, Opcode.SELECT):
            return np.where(*operands) if operands[0].dtype != object else None
        if any(o.shape.element_type.is_float for o in instruction.operands):
            return _of_floats(instruction, operands)
        if isinstance(op, Compare):
            return _each(_COMPARISONS[op.direction], operands, bool)
        if isinstance(op, Reduce) and len(operands) == 2:
            combine = _REDUCERS.get(reducer_kind(op.to_apply) or "")
            return None if combine is None else _reduced(op, combine, *operands)
        if isinstance(op, Elementwise):
            for opcode, function in _FUNCTIONS.items():
                if is_op(instruction, opcode):
                    return _each(function, operands)
    return None


def _of_floats(instruction: Instruction, operands: Sequence[np.ndarray]) -> np.ndarray | None:
    op = instruction.op
    if isinstance(op, Compare):
        return _each(lambda a, b: compared(_COMPARISONS[op.direction], a, b), operands, bool)
    if isinstance(op, Elementwise):
        return _each(lambda *values: combined(instruction, values), operands)
    return None


def holds_sizes(value: object) -> bool:
    """Whether a value is an array of objects."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def _each(
    function: Callable[..., Any], operands: Sequence[np.ndarray], dtype: type = object
) -> np.ndarray | None:
    """The function of the operands' elements; None where it has no value."""
    result: np.ndarray = np.empty(operands[0].shape, dtype)
    for index in np.ndindex(*result.shape):
        value = function(*(_plain(o[index]) for o in operands))
        if value is None:
            return None
        result[index] = value
    return result


def _plain(value: Any) -> Any:
    """An element: a size, a quotient, or a number of Python."""
    return value if isinstance(value, Size | Quotient | float | np.floating) else int(value)


def _reduced(
    op: Reduce, combine: Callable[[Any, Any], Any], array: np.ndarray, start: np.ndarray
) -> np.ndarray:
    axes = [axis for axis in range(array.ndim) if axis not in op.dimensions]
    rows = array.transpose([*axes, *op.dimensions]).reshape([*(array.shape[a] for a in axes), -1])
    result: np.ndarray = np.empty(rows.shape[:-1], object)
    for index in np.ndindex(*result.shape):
        result[index] = functools.reduce(combine, map(_plain, rows[index]), _plain(start[()]))
    return result


def _quotient(a: AnySize, b: AnySize) -> AnySize | None:
    """a / b, rounded towards zero; None where b is not positive."""
    if b <= 0:
        return None
    return a // b if a >= 0 else -(-a // b)


def _remainder(a: AnySize, b: AnySize) -> AnySize | None:
    """What `_quotient` leaves, with the sign of a."""
    if b <= 0:
        return None
    return a % b if a >= 0 else -(-a % b)


_COMPARISONS: dict[str, Callable[[AnySize, AnySize], bool]] = {
    "EQ": are_equal,
    "NE": lambda a, b: not are_equal(a, b),
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}
_FUNCTIONS: dict[Opcode, Callable[..., AnySize | None]] = {
    Opcode.ADD: lambda a, b: a + b,
    Opcode.SUBTRACT: lambda a, b: a - b,
    Opcode.MULTIPLY: lambda a, b: a * b,
    Opcode.DIVIDE: _quotient,
    Opcode.REMAINDER: _remainder,
    Opcode.MAXIMUM: lambda a, b: maximum([a, b]),
    Opcode.MINIMUM: lambda a, b: minimum([a, b]),
    Opcode.NEGATE: lambda a: -a,
    Opcode.ABS: abs,
}
_REDUCERS: dict[str, Callable[[AnySize, AnySize], AnySize]] = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "maximum": lambda a, b: maximum([a, b]),
    "minimum": lambda a, b: minimum([a, b]),
}
