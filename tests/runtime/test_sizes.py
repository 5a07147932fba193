"""Sizes known at run time compute and compare as the ints that they stand for, for all values of their symbols."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfbridge.runtime.sizes import (
    AnySize,
    Assumptions,
    Size,
    Valuation,
    are_equal,
    ceiling,
    compiled,
    decoded,
    encoded,
    estimate,
    evaluate,
    heuristic,
    maximum,
    minimum,
    tracing,
)

LOWS = {"n": 2, "m": 2, "b": 1, "z": 0}
BINARY = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


def symbols() -> tuple[Assumptions, dict[str, Size]]:
    assumptions = Assumptions()
    hints = {"n": 37, "m": 6, "b": 8, "z": 5}
    return assumptions, {name: assumptions.symbol(name, hints[name], low) for name, low in LOWS.items()}


leaves = st.one_of(st.sampled_from(list(LOWS)), st.integers(-9, 9), st.sampled_from([16, 64, 100]))
expressions = st.recursive(
    leaves,
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "max", "min", "ceil"]), inner, inner),
    max_leaves=6,
)
values = st.fixed_dictionaries({n: st.integers(low, 40) | st.sampled_from([low]) for n, low in LOWS.items()})
FUNCTIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": lambda a, b: maximum([a, b]),
    "min": lambda a, b: minimum([a, b]),
    "ceil": ceiling,
}


def computed(expression: object, names: dict) -> AnySize:
    """An expression of symbols' names and numbers, computed on ints or on sizes."""
    if isinstance(expression, str):
        return names[expression]
    if isinstance(expression, int):
        return expression
    name, a, b = expression
    return FUNCTIONS[name](computed(a, names), computed(b, names))


def sizes_of(*texts: object) -> tuple[Assumptions, list[AnySize]]:
    """Sizes of expressions, of which none divides by 0 at the hints."""
    assumptions, names = symbols()
    try:
        return assumptions, [computed(text, names) for text in texts]
    except ZeroDivisionError:
        return assumptions, []


def numbers_of(value: dict, *texts: object) -> list[int]:
    """Their values; none where one divides by 0."""
    try:
        return [computed(text, value) for text in texts]
    except ZeroDivisionError:
        return []


@given(expressions, values)
def test_arithmetic_is_that_of_ints(expression, value):
    assumptions, sizes = sizes_of(expression)
    numbers = numbers_of(value, expression)
    if sizes and numbers:
        assert evaluate(sizes[0], value) == numbers[0]
    if sizes and not numbers:  # a divisor that may be 0 is under a guard, or gone
        assert not assumptions.hold(value) or evaluate(sizes[0], value) is not None


@given(st.lists(expressions, max_size=4), values)
def test_compiled(several, value):
    _, names = symbols()
    try:
        sizes = [computed(expression, names) for expression in several]
    except ZeroDivisionError:
        return
    function = compiled(sizes, list(LOWS))
    try:
        wanted = list(map(Valuation(value), sizes))
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            function(*value.values())
        return
    assert function(*(value[name] for name in LOWS)) == wanted


def test_compiled_takes_symbols_of_any_name():
    n = Assumptions().symbol("x) or exit(", 8)
    assert compiled([n * n + 1, 3], ["x) or exit("])(5) == [26, 3]


@given(expressions, values)
def test_bounds_hold(expression, value):
    _, sizes = sizes_of(expression)
    numbers = numbers_of(value, expression)
    if sizes and numbers and isinstance(size := sizes[0], Size):
        low, high = size.lower(), size.upper()
        assert low is None or low <= numbers[0]
        assert high is None or numbers[0] <= high


@given(expressions, expressions, st.sampled_from(COMPARISONS), values)
def test_answers_hold_where_guards_do(a, b, compare, value):
    assumptions, sizes = sizes_of(a, b)
    numbers = numbers_of(value, a, b)
    if not sizes or not numbers:
        return
    with tracing():
        answer = compare(*sizes)
    if assumptions.hold(value) and (
        compare not in (operator.eq, operator.ne) or answer is (compare is operator.eq)
    ):
        assert answer is compare(*numbers)  # unequal sizes may happen to be equal
    assert compare(*sizes) is answer  # the question is decided from now on
    assert assumptions.hold({name: estimate(size) for name, size in assumptions.symbols.items()})


@given(expressions, expressions, values)
def test_equal_outside_tracing_is_equal_for_all_values(a, b, value):
    assumptions, sizes = sizes_of(a, b)
    numbers = numbers_of(value, a, b)
    guards = dict(assumptions.guards)
    if sizes and numbers and sizes[0] == sizes[1]:
        assert numbers[0] == numbers[1]
    assert assumptions.guards == guards


@given(expressions, values)
def test_encoded_and_decoded(expression, value):
    assumptions, sizes = sizes_of(expression)
    if not sizes:
        return
    data = json.loads(json.dumps(encoded(sizes[0])))
    assert decoded(data, assumptions) == sizes[0]
    fresh = Assumptions()
    again = decoded(data, fresh)
    assert str(again) == str(sizes[0]) and estimate(again) == estimate(sizes[0])
    if numbers := numbers_of(value, expression):
        assert evaluate(again, value) == numbers[0]


def named() -> tuple[Assumptions, Size, Size]:
    assumptions = Assumptions()
    return assumptions, assumptions.symbol("n", 37), assumptions.symbol("m", 41)


def test_a_size_without_symbols_is_an_int():
    _, n, m = named()
    for size in (n - n, 0 * n, n // n, n % n, (n + 1) * (n - 1) - n * n, n * m // m - n):
        assert type(size) is int


@pytest.mark.parametrize(
    "question",
    [
        lambda n, m: n >= 2 and n > 1 and n != 1 and n != 0 and not n < 2 and n,
        lambda n, m: (n * m) // m == n and (n * m) % n == 0,
        lambda n, m: (2 * n + 6) // 8 == ((n + 1) // 2 + 1) // 2 == (n + 3) // 4,
        lambda n, m: 0 <= n % 8 < 8 and 0 <= n % m < m,
        lambda n, m: n // 8 * 8 <= n <= ceiling(n, 8) * 8 < n + 8 and ceiling(n, 8) >= 1,
        lambda n, m: n // 8 * 8 + n % 8 == n and n // m * m + n % m == n,
        lambda n, m: maximum([n, m]) >= n and maximum([n, m]) >= 2 and maximum([n + 1, n, 2]) == n + 1,
        lambda n, m: minimum([n, m]) <= m and minimum([n, 64]) <= 64 and minimum([n, n + m]) == n,
        lambda n, m: minimum([n, 3]) < n + 1 and minimum([n - 2, 3]) >= 0,
        lambda n, m: n * m >= n + m and n * m + 1 > 4 and -n < 0 and abs(-n) == n,
        lambda n, m: (1 - n) // 1 == 1 - n and n // -1 == -n and (n * m - 1) // n == m - 1,
        lambda n, m: max(n, 2) is n and min(1, n) == 1 and sorted([n + 1, 0, n]) == [0, n, n + 1],
        lambda n, m: sum([n, m, 1]) == n + m + 1 and math.prod([n, m, 2]) == 2 * m * n and n**2 == n * n,
    ],
)
def test_questions_that_bounds_decide(question):
    assumptions, n, m = named()
    assert question(n, m)
    assert not assumptions.guards


def test_guards():
    assumptions, n, m = named()
    assert n < 64 and not n >= 64
    assert n < m and max(n, m) is m
    assert assumptions.hold({"n": 63, "m": 64}) and not assumptions.hold({"n": 64, "m": 65})
    assert assumptions.first_failure({"n": 5, "m": 5}) == "n < m"
    assert assumptions.first_failure({"n": 1, "m": 5}) == "n >= 2"
    assert "n < 64  (test_sizes.py:" in str(assumptions)


def test_equal_is_a_guard_while_tracing_only():
    assumptions, n, m = named()
    assert n != m and n != 37 and not assumptions.guards
    with tracing():
        with heuristic():
            assert n != 37
        assert n != m and n == 37
    assert n == 37  # known now
    assert len(assumptions.guards) == 1
    assert not assumptions.hold({"n": 38, "m": 41})


def test_equal_where_both_answers_matter():
    assumptions, n, m = named()
    assert not are_equal(n, m) and are_equal(n + m, m + n) and not are_equal(n, n + 1)
    assert assumptions.first_failure({"n": 5, "m": 5}) in ("n != m", "m != n")


def test_values_that_are_sizes():
    _, n, m = named()
    _, other, _ = named()
    size = (n + 3) // 4 * m + maximum([n, m])
    assert evaluate(size, {"n": 4 * other, "m": 8}) == 8 * other + maximum([4 * other, 8])


def test_a_plain_int_is_a_pin():
    assumptions, n, _ = named()
    assert list(range(n - 35)) == [0, 1]
    assert assumptions.hold({"n": 37, "m": 2}) and not assumptions.hold({"n": 36, "m": 2})


def test_heuristics_make_no_guard():
    assumptions, n, m = named()

    @heuristic()
    def chosen() -> list[object]:
        return [n < m, n < 64, int(n), len(range(m)), n / 2, max(n, m), n * 0.5, n + 0.5, 0.5 - n, n < 0.5]

    assert chosen() == [True, True, 37, 41, 18.5, m, 18.5, 37.5, -36.5, False]
    assert not assumptions.guards
    assert estimate(n * m) == 37 * 41 and estimate(3) == 3


def test_a_divisor_that_may_be_zero():
    assumptions, n, m = named()
    size = n // (m - 2)
    assert evaluate(size, {"n": 9, "m": 4}) == 4
    assert not assumptions.hold({"n": 9, "m": 2})
    for zero in (0, n - n):
        with pytest.raises(ZeroDivisionError):
            n // zero
        with pytest.raises(ZeroDivisionError):
            n % zero


def test_numpy_numbers():
    _, n, _ = named()
    assert n + np.int64(1) == n + 1 and np.int64(2) * n == 2 * n and np.int32(4) - n == 4 - n
    assert n // np.int64(2) == n // 2 and n != np.int64(1)


def test_symbols_of_two_compilations_are_different():
    _, n, _ = named()
    _, other, _ = named()
    assert {n: 1}.get(other) is None and str(n) == str(other)


def test_dict_keys():
    _, n, m = named()
    table = {(n, 2): 1, n + m: 2, n - 1: 3, n - 2: 4}
    assert table[n, 2] == 1 and table[m + n] == 2 and table[n - 1] == 3 and table[n - 2] == 4
    assert (n, 3) not in table and m not in table


@pytest.mark.parametrize(
    ("hint", "remainder", "expected"),
    [
        (12, lambda n, m: n % 4, "4*n_4"),
        (12, lambda n, m: (6 * n) % 4, "2*n_2"),
        (12, lambda n, m: (5 * n) % 4, "4*n_4"),
        (13, lambda n, m: (3 * n + 5) % 4, "4*n_4+1"),
        (12, lambda n, m: n % m, "m*n_m"),
        (12, lambda n, m: (4 * n) % m, "m*n_m"),
        (11, lambda n, m: (n + 2 * m + 1) % m, "m*n_m-1"),
        (5, lambda n, m: (4 * n) % 10, "5"),
        (4, lambda n, m: n % 4, "4"),
    ],
)
def test_a_size_that_is_a_multiple(
    hint: int, remainder: Callable[[Size, Size], AnySize], expected: str
) -> None:
    """Where a remainder must be zero, a symbol is a multiple of a new one, so that it is."""
    assumptions = Assumptions()
    n, m = assumptions.symbol("n", hint), assumptions.symbol("m", 3)
    with tracing():
        assert remainder(n, m) == 0
    values = assumptions.equated()
    assert {name: str(size) for name, size in values.items()} == {"n": expected}
    (size,) = values.values()
    assert estimate(size) == hint
    assert remainder(size, m) == 0 if isinstance(size, int) else not remainder(size, m)


def test_equal_products_fix_no_common_factor() -> None:
    assumptions = Assumptions()
    n, m = assumptions.symbol("n", 5), assumptions.symbol("m", 32)
    with tracing():
        assert 4 * n * m == 128 * n
    assert assumptions.equated() == {"m": 32}
