"""Floats of a graph that are made of sizes known at run time only, as n / 2: the quotients that they stand for.

Arithmetic on floats rounds. What is computed here is exact where the type of floats has all integers up to the sum of
numerator and divisor; a guard says so. One division may round: floor and ceiling of its result are right still, because
a quotient of such numbers differs from an integer by more than half of what it is rounded to.
"""

from __future__ import annotations

import dataclasses
import fractions
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compiler.ir.element_types import ElementType, float_info
from ...compiler.ir.module import Instruction
from ...compiler.ops import Opcode, is_op
from ...runtime.sizes import AnySize, Size, as_size, is_multiple, surely_less

_MAX_DENOMINATOR = 1 << 10  # of constants: others would leave no room for sizes


@dataclasses.dataclass(frozen=True)
class Quotient:
    """A size over a positive number. `is_rounded`: a float holds the number next to it."""

    size: AnySize
    divisor: int
    is_rounded: bool = False

    @classmethod
    def of(cls, value: Any) -> Quotient | None:
        """A size, a number or a quotient as a quotient; None for numbers that leave sizes no room."""
        if isinstance(value, Quotient):
            return value
        if isinstance(value, Size | int | np.integer):
            return cls(as_size(value), 1)
        number = float(value)
        if not np.isfinite(number):
            return None
        exact = fractions.Fraction(number)
        return cls(exact.numerator, exact.denominator) if exact.denominator <= _MAX_DENOMINATOR else None

    def floor(self) -> AnySize:
        """The largest integer that is not above it."""
        return self.size // self.divisor

    def ceiling(self) -> AnySize:
        """The smallest integer that is not below it."""
        return -(-self.size // self.divisor)

    def fits(self, type_: ElementType) -> bool:
        """Whether a type of floats has all integers up to the sum of numerator and divisor."""
        most = 2 ** float_info(type_.dtype).nmant
        return self.divisor <= most and bool(-most <= self.size) and bool(self.size <= most)


def converted(value: Any, type_: ElementType) -> Quotient | AnySize | None:
    """A size or a quotient as an element of another type; None where that is not known."""
    quotient = Quotient.of(value)
    if quotient is None:
        return None
    if not type_.is_integer:
        return quotient if type_.is_float and not quotient.is_rounded and quotient.fits(type_) else None
    return quotient.floor() if quotient.size >= 0 else quotient.ceiling()


def combined(instruction: Instruction, operands: Sequence[object]) -> Quotient | None:
    """An element of an elementwise op on floats; None where it is not known."""
    quotients = [Quotient.of(o) for o in operands]
    function = next((f for opcode, f in _FUNCTIONS.items() if is_op(instruction, opcode)), None)
    if function is None or any(q is None for q in quotients):
        return None
    result = function(*quotients)
    return result if result is not None and result.fits(instruction.shape.element_type) else None


def compared(relation: Callable[[AnySize, AnySize], bool], a: object, b: object) -> bool | None:
    """Whether a relation holds between two floats; None where that is not known."""
    left, right = Quotient.of(a), Quotient.of(b)
    if left is None or right is None or left.is_rounded or right.is_rounded:
        return None
    return relation(left.size * right.divisor, right.size * left.divisor)


def divided(a: Quotient, b: Quotient) -> Quotient | None:
    """a / b, rounded where b is no power of two; None where b is no positive number."""
    if a.is_rounded or b.is_rounded:
        return None
    if isinstance(b.size, Size):  # whose quotient is known where nothing remains
        size, divisor = a.size * b.divisor, a.divisor * b.size
        is_whole = surely_less(0, divisor) and is_multiple(size, divisor)
        return Quotient(size // divisor, 1) if is_whole else None
    if b.size <= 0:
        return None
    is_rounded = bool(b.size & (b.size - 1))
    return Quotient(a.size * b.divisor, a.divisor * b.size, is_rounded)


def steps_between(ends: Sequence[Quotient | None], type_: ElementType) -> AnySize | None:
    """How many steps of the third number lead from the first to the second or beyond; None where arithmetic on numbers
    of the type may round that."""
    start, limit, delta = ends
    if start is None or limit is None or delta is None or (distance := difference(limit, start)) is None:
        return None
    if delta.size < 0:
        distance, delta = _negative(distance), _negative(delta)
    steps = divided(distance, delta)
    if steps is None or not (type_.is_integer or distance.fits(type_) and steps.fits(type_)):
        return None
    return steps.ceiling()


def _sum(a: Quotient, b: Quotient) -> Quotient | None:
    if a.is_rounded or b.is_rounded:
        return None
    divisor = max(a.divisor, b.divisor)  # powers of two
    return Quotient(a.size * (divisor // a.divisor) + b.size * (divisor // b.divisor), divisor)


def _product(a: Quotient, b: Quotient) -> Quotient | None:
    return None if a.is_rounded or b.is_rounded else Quotient(a.size * b.size, a.divisor * b.divisor)


def _negative(a: Quotient) -> Quotient:
    return dataclasses.replace(a, size=-a.size)


def difference(a: Quotient, b: Quotient) -> Quotient | None:
    """a - b; None where one is rounded."""
    return _sum(a, _negative(b))


_FUNCTIONS: dict[Opcode, Callable[..., Quotient | None]] = {
    Opcode.ADD: _sum,
    Opcode.SUBTRACT: difference,
    Opcode.MULTIPLY: _product,
    Opcode.DIVIDE: divided,
    Opcode.NEGATE: _negative,
    Opcode.ABS: lambda a: a if a.size >= 0 else _negative(a),
    Opcode.FLOOR: lambda a: Quotient(a.floor(), 1),
    Opcode.CEIL: lambda a: Quotient(a.ceiling(), 1),
}
