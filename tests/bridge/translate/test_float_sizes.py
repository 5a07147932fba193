"""Sizes in floats: what is known of them is what arithmetic on the floats gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tfbridge.bridge.translate.float_sizes import Quotient, combined, compared, converted, steps_between
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ir.module import make
from tfbridge.compiler.ir.shape import Shape
from tfbridge.compiler.ops import Opcode, Parameter, elementwise
from tfbridge.runtime.sizes import AnySize

TYPES = (ElementType.F16, ElementType.BF16, ElementType.F32, ElementType.F64)
NUMBERS = (0.5, 1.0, 2.0, 3.0, 0.25, 7.0, 10.0, 49.0, -1.5, 1e-3, 0.1, np.inf)
FUNCTIONS = {
    Opcode.ADD: np.add,
    Opcode.SUBTRACT: np.subtract,
    Opcode.MULTIPLY: np.multiply,
    Opcode.DIVIDE: np.divide,
    Opcode.NEGATE: np.negative,
    Opcode.ABS: np.abs,
    Opcode.FLOOR: np.floor,
    Opcode.CEIL: np.ceil,
}


def apply(opcode: Opcode, type_: ElementType, *values: object) -> Quotient | None:
    operands = [make(Parameter(k, Shape(type_))) for k in range(len(values))]
    return combined(elementwise(opcode, *operands), values)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_arithmetic_gives_what_floats_give(type_: ElementType) -> None:
    random, known = np.random.default_rng(7), 0
    scalar = type_.dtype.type
    for _ in range(3000):
        n = int(random.integers(0, int(random.choice([9, 100, 3000, 2**25]))))
        quotient: Quotient | AnySize | None = converted(n, type_)
        with np.errstate(over="ignore"):
            value = scalar(n)
        for _ in range(4):
            if quotient is None:
                break
            known += 1
            assert isinstance(quotient, Quotient)
            exact = scalar(quotient.size) / scalar(quotient.divisor)
            assert exact == value and quotient.floor() == math.floor(value)
            assert quotient.ceiling() == math.ceil(value) and converted(quotient, ElementType.S32) == int(
                value
            )
            number = scalar(random.choice(NUMBERS))
            assert compared(lambda a, b: a < b, quotient, number) in (bool(value < number), None)
            opcode = list(FUNCTIONS)[random.integers(len(FUNCTIONS))]
            more = (number,) if FUNCTIONS[opcode].nin == 2 else ()
            with np.errstate(all="ignore"):
                quotient, value = (
                    apply(opcode, type_, quotient, *more),
                    scalar(FUNCTIONS[opcode](value, *more)),
                )
    assert known > 3000


@pytest.mark.parametrize("type_", [ElementType.F32, ElementType.F64, ElementType.S32], ids=str)
def test_steps_are_those_of_a_range(type_: ElementType) -> None:
    random, known = np.random.default_rng(8), 0
    for _ in range(3000):
        start, limit = (int(v) for v in random.integers(-1000, 1000, 2))
        delta = type_.dtype.type(
            random.choice((1, 2, 3, 7) if type_.is_integer else (1, 2, 0.5, 0.1, 3, 0.75))
        )
        delta = delta if start <= limit else -delta
        steps = steps_between([Quotient.of(v) for v in (start, limit, delta)], type_)
        if steps is not None:
            known += 1
            assert steps == math.ceil(type_.dtype.type(limit - start) / delta)
    assert known > 2000


def test_numbers_that_floats_round_are_not_known() -> None:
    assert converted(2**24 + 1, ElementType.F32) is None
    assert apply(Opcode.MULTIPLY, ElementType.F32, Quotient(2**20, 1), 64.0) is None
    third = apply(Opcode.DIVIDE, ElementType.F32, Quotient(10, 1), 3.0)
    assert third == Quotient(10, 3, is_rounded=True)
    assert apply(Opcode.MULTIPLY, ElementType.F32, third, 3.0) is None
    assert converted(third, ElementType.F64) is None
