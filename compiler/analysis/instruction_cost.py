"""Rough costs of elementwise operations, for decisions: what may be computed twice, what is worth a
thread."""

from __future__ import annotations

from ..ir.element_types import COMPLEXES
from ..ir.module import Instruction

# Cycles for one full vector register of f32 results, where it is not 1.
CYCLES = {
    "divide": 5,
    "sqrt": 6,
    "rsqrt": 8,
    "cbrt": 40,
    "exponential": 10,
    "exponential-minus-one": 16,
    "log": 14,
    "log-plus-one": 18,
    "logistic": 16,
    "tanh": 14,
    "tan": 40,
    "sine": 20,
    "cosine": 20,
    "erf": 14,
    "erfc": 24,
    "power": 40,
    "remainder": 20,
    "atan2": 40,
    "popcnt": 4,
    "count-leading-zeros": 6,
    "gather": 12,
    "convert": 2,
}
EXPENSIVE_CYCLES = 5


def cycles(instruction: Instruction) -> int:
    """Cycles for one vector register of the instruction's results."""
    return CYCLES.get(instruction.opcode, 1) * (4 if instruction.shape.element_type in COMPLEXES else 1)


def is_expensive(instruction: Instruction) -> bool:
    """Dearer than storing the result and loading it again."""
    return cycles(instruction) >= EXPENSIVE_CYCLES
