"""Rewrite rules, and questions about constants that rules ask."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from ...ir.literal import Literal
from ...ir.module import Instruction, make
from ...ir.shape import Shape
from ...ops import Broadcast, Constant, Op, Opcode, Reshape

Rewrite = Callable[[Instruction], Instruction | None]


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rewrite rule: `apply` returns the replacement of an instruction with one of these opcodes, or None.

    `fast_math` rules may change values beyond rounding of one operation; they run only with numerics="fast".
    """

    name: str
    opcodes: tuple[str, ...]
    apply: Rewrite
    fast_math: bool = False


def rule(*ops: Opcode | type[Op], fast_math: bool = False) -> Callable[[Rewrite], Rule]:
    """Makes a rule named like the function, for instructions with these ops."""
    opcodes = tuple(op.value if isinstance(op, Opcode) else op.opcode for op in ops)
    return lambda apply: Rule(apply.__name__, opcodes, apply, fast_math)


def collect(values: Iterable[object]) -> tuple[Rule, ...]:
    """The rules among a module's values, in the order of their definition."""
    return tuple(v for v in values if isinstance(v, Rule))


def splat(instruction: Instruction) -> np.ndarray | None:
    """The scalar (of rank 0) that every element is, if the instruction says so: a scalar constant, or one
    broadcast."""
    source = instruction.operands[0] if isinstance(instruction.op, Broadcast) else instruction
    if isinstance(source.op, Constant) and source.shape.is_scalar:
        return source.op.literal.array
    return None


def is_splat(instruction: Instruction, value: float) -> bool:
    """Whether every element is this number, with the sign of a zero."""
    scalar = splat(instruction)
    if scalar is None or scalar.dtype.kind == "c" and scalar.imag != 0:
        return False
    number = float(scalar.real)
    return number == value and np.signbit(number) == np.signbit(value)


def full(shape: Shape, value: object) -> Instruction:
    """An array of one value: a scalar constant, broadcast."""
    scalar = make(Constant(Literal(value, shape.element_type)))
    return make(Broadcast(shape.dims, ()), scalar) if shape.dims else scalar


def reshaped(instruction: Instruction, dims: tuple[int, ...]) -> Instruction:
    """The instruction with other dims; itself where it has them."""
    return instruction if instruction.shape.dims == dims else make(Reshape(dims), instruction)


def is_inexact(instruction: Instruction) -> bool:
    """A float or complex array: arithmetic rounds, and there are NaN and -0.0."""
    return instruction.shape.element_type.is_float or instruction.shape.element_type.is_complex
