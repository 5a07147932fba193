"""Integers of a graph that are made of sizes known at run time only: arrays of objects, some of them `Size`s."""

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
from ...runtime.sizes import AnySize, Size, are_equal, is_symbolic, maximum, minimum, tracing

_MOVES = (Broadcast, Concatenate, Copy, Pad, Reshape, Reverse, SizeConstant, Slice, Transpose)
_INDEXED = {DynamicSlice: 1, DynamicUpdateSlice: 2, Gather: 1}  # the first operand that is an index


def evaluate_sizes(instruction: Instruction, operands: Sequence[Any]) -> np.ndarray | None:
    """The value of an instruction one of whose operands has sizes; None where it is no array of sizes."""
    value = _evaluated(instruction, operands)
    if value is not None and holds_sizes(value) and not is_symbolic(value.flat):
        return value.astype(instruction.shape.element_type.dtype)
    return value


def _evaluated(instruction: Instruction, operands: Sequence[Any]) -> np.ndarray | None:
    op = instruction.op
    with tracing():
        if isinstance(op, Convert):
            return operands[0] if op.element_type.is_integer else None
        if isinstance(op, _MOVES):
            return np.asarray(op.reference(*operands))
        if (first := _INDEXED.get(type(op))) is not None:
            return None if any(map(holds_sizes, operands[first:])) else np.asarray(op.reference(*operands))
        if isinstance(op, Compare):
            return _each(_COMPARISONS[op.direction], operands, bool)
        if isinstance(op, Reduce) and len(operands) == 2:
            combine = _REDUCERS.get(reducer_kind(op.to_apply) or "")
            return None if combine is None else _reduced(op, combine, *operands)
        if isinstance(op, Elementwise):
            if is_op(instruction, Opcode.SELECT):
                return np.where(*operands) if operands[0].dtype != object else None
            for opcode, function in _FUNCTIONS.items():
                if is_op(instruction, opcode):
                    return _each(function, operands)
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


def _plain(value: Any) -> AnySize:
    return value if isinstance(value, Size) else int(value)


def _reduced(
    op: Reduce, combine: Callable[[Any, Any], Any], array: np.ndarray, start: np.ndarray
) -> np.ndarray:
    kept = [axis for axis in range(array.ndim) if axis not in op.dimensions]
    rows = array.transpose([*kept, *op.dimensions]).reshape([*(array.shape[a] for a in kept), -1])
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
