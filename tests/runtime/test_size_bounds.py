"""Bounds of sizes: never too tight, and as tight as products of quotients with their divisors allow."""

from __future__ import annotations

import itertools

import pytest
from tfbridge.runtime.size_bounds import bounds
from tfbridge.runtime.sizes import Assumptions, Size, ceiling, evaluate, maximum, minimum

_SYMBOLS = Assumptions()
N, M = _SYMBOLS.symbol("n", 30), _SYMBOLS.symbol("m", 7)
PARTS = maximum([1, 170 // N])
SIZES = {
    "rounded": N // 8 * 8,
    "quotient_times_divisor": 100 // N * N,
    "parts": PARTS * N,
    "parts_of_a_product": PARTS * N * N * 12 + 5,
    "parts_rounded": ceiling(PARTS * N * 4, 64) * 64,
    "of_both": maximum([M, 50 // N]) * N * M,
    "negative_dividend": (N - 300) // M * M,
    "minimum": minimum([1, M // 6]) * N - PARTS * M,
    "quotient_by_a_sum": 500 // (N + M) * N,
}


@pytest.mark.parametrize("name", SIZES)
def test_all_values_are_between_the_bounds(name: str) -> None:
    low, high = bounds(SIZES[name], {"n": (2, 60), "m": (2, 9)})
    values = [
        evaluate(SIZES[name], {"n": n, "m": m}) for n, m in itertools.product(range(2, 61), range(2, 10))
    ]
    assert low <= min(values) and max(values) <= high


def test_a_quotient_times_its_divisor_is_about_the_dividend() -> None:
    assert bounds(PARTS * N, {"n": (0, 128)})[1] == 170
    symbols = {"n": (2, 128)}
    assert bounds(100 // N * N, symbols) == (100 - 127, 100)
    assert bounds(PARTS * N, symbols)[1] == 170
    assert bounds(PARTS * N * N, symbols)[1] == 170 * 128
    assert isinstance(PARTS, Size)
