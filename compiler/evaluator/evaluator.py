"""The evaluator: runs computations with the ops' NumPy references. Slow and readable; it is what the IR means."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..ir.module import Computation, Instruction, Value, array_of
from ..ir.shape import Shape
from ..limits import DEFAULT_LIMITS
from ..ops import Call, Constant, Copy, Fusion, GetTupleElement, Parameter, Tuple


def evaluate_computation(computation: Computation, *arguments: Value) -> Value:
    """The value of a computation on arguments that fit its parameters."""
    values: dict[Instruction, Value] = {}
    for instruction in computation.instructions:
        op = instruction.op
        if isinstance(op, Parameter):
            values[instruction] = arguments[op.number]
            continue
        values[instruction] = evaluate_instruction(instruction, [values[o] for o in instruction.operands])
    return values[computation.root]


def evaluate_instruction(instruction: Instruction, operands: Sequence[Value]) -> Value:
    """The value of an instruction (no parameter) for these values of its operands."""
    op, shape = instruction.op, instruction.shape
    if not shape.tuple_shapes:
        DEFAULT_LIMITS.check("evaluated_bytes", shape.bytes, f"bytes of {shape}")
        if (window := getattr(op, "window", None)) is not None:
            positions = math.prod(window.padded((1,) * window.rank)) + math.prod(window.size)
            DEFAULT_LIMITS.check(
                "evaluated_bytes", positions, f"places that the window of {op.opcode} covers"
            )
    if (
        _is_empty(shape) and not instruction.has_side_effect
    ):  # NumPy may take memory for a large dim beside a 0
        return _zeros(shape)
    if next(op.called(), None) is not None:
        value = op.reference(*operands, call=apply_computation)
    else:
        value = op.reference(*operands)
    return value if isinstance(value, tuple) else np.asarray(value)


def _is_empty(shape: Shape) -> bool:
    """Whether there are no elements in a value."""
    return all(leaf.is_array and not leaf.elements for leaf in shape.leaves())


def _zeros(shape: Shape) -> Value:
    if shape.is_tuple:
        return tuple(map(_zeros, shape.tuple_shapes))
    return np.zeros(shape.dims, shape.element_type.dtype)


def apply_computation(computation: Computation, *arguments: Value) -> Value:
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
        return _broadcast(evaluate_computation(computation, *arguments), dims)
    leaves = list(root.leaves())
    results = [np.empty(dims, leaf.element_type.dtype) for leaf in leaves]
    for index in np.ndindex(*dims):
        value = evaluate_computation(computation, *(array_of(a)[index] for a in arguments))
        for result, part in zip(results, value if root.is_tuple else (value,)):
            result[index] = part
    return tuple(results) if root.is_tuple else results[0]


def _is_elementwise(computation: Computation) -> bool:
    """Whether its evaluation on arrays instead of scalars is elementwise."""
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


def _broadcast(value: Value, dims: tuple[int, ...]) -> Value:
    if isinstance(value, tuple):
        return tuple(_broadcast(v, dims) for v in value)
    return np.broadcast_to(value, dims)
