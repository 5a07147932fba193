"""Indices as affine expressions: a constant plus multiples of symbols, with known bounds.

A symbol is a loop variable, an index read from data, or a quotient that did not simplify. Because every access
is affine in the loop variables, it is known whether a vector load is contiguous, uniform or strided, and a
reshape's divisions vanish where the loops follow its axes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping

from ....runtime.sizes import is_symbolic, larger, smaller, surely_less

_serial = itertools.count()
_NO_LOW, _NO_HIGH = -(1 << 62), 1 << 62  # bounds that are none


class Symbol:
    """An unknown of an affine expression, between `low` and `high` (inclusive).

    `quotient` is (numerator, divisor) of a symbol that is numerator // divisor. Compared by identity; `serial`
    orders symbols by age.
    """

    __slots__ = ("high", "low", "name", "quotient", "serial")

    def __init__(self, name: str, low: int, high: int, quotient: tuple[Affine, int] | None = None) -> None:
        self.name, self.low, self.high, self.quotient = name, low, high, quotient
        self.serial = next(_serial)

    def __repr__(self) -> str:
        return self.name


class Affine:
    """constant + sum of coefficient * symbol, between `low` and `high` (inclusive); never changed.

    The bounds may be tighter than the terms' own (a remainder's are). Equality is that of constant and terms.
    """

    __slots__ = ("_hash", "constant", "high", "low", "terms")

    def __init__(self, constant: int, terms: tuple[tuple[Symbol, int], ...], low: int, high: int) -> None:
        self.constant, self.terms, self.low, self.high = constant, terms, low, high
        self._hash: int | None = None

    @staticmethod
    @functools.lru_cache(4096)
    def number(value: int) -> Affine:
        """A constant."""
        return Affine(value, (), value, value)

    @staticmethod
    def of(symbol: Symbol) -> Affine:
        """A symbol itself; a constant where it has one value only."""
        if symbol.low == symbol.high:
            return Affine.number(symbol.low)
        return Affine(0, ((symbol, 1),), symbol.low, symbol.high)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and self.constant == other.constant and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.constant, self.terms))
        return self._hash

    @property
    def is_constant(self) -> bool:
        """No symbol in it."""
        return not self.terms

    def coefficient(self, symbol: Symbol) -> int:
        """The factor of a symbol."""
        for a, c in self.terms:
            if a is symbol:
                return c
        return 0

    def symbols(self) -> tuple[Symbol, ...]:
        """All symbols, those inside quotients too."""
        symbols: dict[Symbol, None] = {}
        for symbol, _ in self.terms:
            symbols[symbol] = None
            if symbol.quotient:
                symbols.update(dict.fromkeys(symbol.quotient[0].symbols()))
        return tuple(symbols)

    def replaced(self, values: Mapping[Symbol, Affine]) -> Affine:
        """The expression with symbols, none of them in quotients, replaced."""
        total = Affine.number(self.constant)
        for symbol, c in self.terms:
            total = total + values.get(symbol, Affine.of(symbol)) * c
        return total

    def __add__(self, other: Affine) -> Affine:
        if not other.terms:
            if not other.constant:
                return self
            return Affine(
                self.constant + other.constant,
                self.terms,
                self.low + other.constant,
                self.high + other.constant,
            )
        if not self.terms:
            return other + self
        factors = dict(self.terms)
        for symbol, c in other.terms:
            factors[symbol] = factors.get(symbol, 0) + c
        return _simplified(
            self.constant + other.constant, factors, self.low + other.low, self.high + other.high
        )

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        low, high = self.low * factor, self.high * factor
        if factor < 0:
            low, high = high, low
        return Affine(self.constant * factor, tuple([(a, c * factor) for a, c in self.terms]), low, high)

    def __sub__(self, other: Affine) -> Affine:
        if not other.terms:
            return self + Affine.number(-other.constant) if other.constant else self
        return self + other * -1

    def __repr__(self) -> str:
        listed = [f"{c}*{a}" for a, c in self.terms]
        return " + ".join([*listed, str(self.constant)]) + f" in {self.low}..{self.high}"


def _age(term: tuple[Symbol, int]) -> int:
    return term[0].serial


def _simplified(constant: int, factors: dict[Symbol, int], low: int, high: int) -> Affine:
    terms = [t for t in factors.items() if t[1]]
    if len(terms) > 1:
        terms.sort(key=_age)
    own_low = own_high = constant
    for symbol, c in terms:
        ends = c * symbol.low, c * symbol.high
        if isinstance(c, int):
            own_low += ends[c < 0]
            own_high += ends[c >= 0]
        else:  # a size whose sign need not be known
            own_low += smaller(*ends)
            own_high += larger(*ends)
    if low is _NO_LOW and high is _NO_HIGH:
        return Affine(constant, tuple(terms), own_low, own_high)
    return Affine(constant, tuple(terms), larger(low, own_low), smaller(high, own_high))


ZERO = Affine.number(0)


def linear_address(index: Iterable[Affine], strides: Iterable[int]) -> Affine:
    """The number of the element at an index, in memory with these strides."""
    constant = 0
    scaled: list[Affine] = []
    for a, stride in zip(index, strides, strict=True):
        if a.terms:
            scaled.append(a * stride)
        elif a.constant:
            constant += a.constant * stride
    if len(scaled) < 2:
        return (scaled[0] if scaled else ZERO) + Affine.number(constant)
    low = high = constant
    terms: dict[Symbol, int] = {}
    for a in scaled:
        constant += a.constant
        low += a.low
        high += a.high
        for symbol, c in a.terms:
            terms[symbol] = terms.get(symbol, 0) + c
    return _simplified(constant, terms, low, high)


def surely_ordered(a: Affine, b: Affine) -> bool | None:
    """Whether a < b; None where their bounds do not tell."""
    if surely_less(a.high, b.low):
        return True
    if surely_less(b.high - 1, a.low):
        return False
    if not b.terms:  # the bounds of a - b say no more
        return None
    d = a - b
    is_less = surely_less(d.high, 0)
    return is_less if is_less or surely_less(-1, d.low) else None


class Division:
    """Floor division of affine expressions by constants; makes each quotient symbol once.

    `on_quotient(numerator, divisor)` is called for divisions with a remainder.
    """

    def __init__(self, on_quotient: Callable[[Affine, int], None] | None = None) -> None:
        self.quotients: dict[tuple[Affine, int], Symbol] = {}
        self.on_quotient = on_quotient

    def divide(self, a: Affine, divisor: int) -> Affine:
        """a // divisor, exact wherever a >= 0."""
        if divisor == 1:
            return a
        whole, rest = _split(a, divisor)
        if surely_less(-1, rest.low) and surely_less(rest.high, divisor):
            return whole
        if rest.is_constant:
            return whole + Affine.number(rest.constant // divisor)
        if (
            rest.constant == 0
            and len(rest.terms) == 1
            and rest.terms[0][1] == 1
            and rest.terms[0][0].quotient
        ):
            numerator, inner = rest.terms[0][0].quotient
            return whole + self.divide(numerator, inner * divisor)
        key = (rest, divisor)
        symbol = self.quotients.get(key)
        if symbol is None:
            if self.on_quotient:
                self.on_quotient(rest, divisor)
            symbol = Symbol(f"({rest})/{divisor}", rest.low // divisor, rest.high // divisor, key)
            self.quotients[key] = symbol
        return whole + Affine.of(symbol)

    def remainder(self, a: Affine, divisor: int) -> Affine:
        """a % divisor, exact wherever a >= 0."""
        if divisor == 1:
            return ZERO
        _, rest = _split(a, divisor)
        if surely_less(-1, rest.low) and surely_less(rest.high, divisor):
            return rest
        result = rest - self.divide(rest, divisor) * divisor
        return (
            Affine(result.constant, result.terms, larger(result.low, 0), smaller(result.high, divisor - 1))
            if result.terms
            else result
        )


class AffineIndexer:
    """The index arithmetic of an Indexer whose indices are affine expressions."""

    def __init__(self, division: Division) -> None:
        self.division = division

    def index(self, value: int) -> Affine:
        return Affine.number(value)

    def add(self, a: Affine, b: Affine) -> Affine:
        return a + b

    def multiply(self, a: Affine, factor: int) -> Affine:
        return a * factor

    def divide(self, a: Affine, divisor: int) -> Affine:
        return self.division.divide(a, divisor)

    def remainder(self, a: Affine, divisor: int) -> Affine:
        return self.division.remainder(a, divisor)


def _split(a: Affine, divisor: int) -> tuple[Affine, Affine]:
    """(whole, rest) with a = whole * divisor + rest, where whole takes all terms that divide evenly."""
    even = tuple((t, c // divisor) for t, c in a.terms if c % divisor == 0)
    if not even:
        shift = a.constant // divisor if a.is_constant else 0
        return Affine.number(shift), a + Affine.number(-shift * divisor)
    whole = _simplified(0, dict(even), _NO_LOW, _NO_HIGH)
    rest = a - whole * divisor
    rest = _simplified(rest.constant, dict(rest.terms), _NO_LOW, _NO_HIGH)
    if surely_less(divisor - 1, rest.low) or surely_less(rest.low, 0):
        shift = rest.low // divisor
        whole, rest = whole + Affine.number(shift), rest + Affine.number(-shift * divisor)
    return whole, rest


def lane_offsets(a: Affine, symbol: Symbol) -> tuple[Affine, list[int]] | None:
    """(rest, offsets): `a` is rest + offsets[k] where the symbol has its k-th value. None where `a` depends on it in
    another way, or the number of its values is known at run time only."""
    if is_symbolic((symbol.low, symbol.high)):
        return None
    values = range(symbol.low, symbol.high + 1)
    rest, offsets = Affine.number(a.constant), [0] * len(values)
    for term, c in a.terms:
        if term is symbol:
            offsets = [offset + c * value for offset, value in zip(offsets, values)]
        elif term.quotient is None or symbol not in term.quotient[0].symbols():
            rest = rest + Affine.of(term) * c
        elif term.quotient[0].terms == ((symbol, factor := term.quotient[0].coefficient(symbol)),):
            numerator, divisor = term.quotient
            offsets = [
                offset + (numerator.constant + factor * value) // divisor * c
                for offset, value in zip(offsets, values)
            ]
        else:
            return None
    return rest, offsets


def true_range(a: Affine, symbol: Symbol) -> tuple[int, int, int, int] | None:
    """For the condition a < 0: (always_low, always_high, never_low, never_high), half-open ranges of `symbol`'s
    values in which it holds, or fails, whatever the other symbols are. None where the condition does not depend
    on the symbol."""
    c = a.coefficient(symbol)
    if c == 0 or any(q.quotient and symbol in q.quotient[0].symbols() for q, _ in a.terms):
        return None
    rest = _simplified(a.constant, {t: k for t, k in a.terms if t is not symbol}, _NO_LOW, _NO_HIGH)
    end = symbol.high + 1
    if c > 0:
        return (
            symbol.low,
            smaller(end, larger(symbol.low, -(rest.high // c))),
            smaller(end, larger(symbol.low, -(rest.low // c))),
            end,
        )
    # c < 0: holds from some value on.
    return (
        smaller(end, larger(symbol.low, rest.high // -c + 1)),
        end,
        symbol.low,
        smaller(end, larger(symbol.low, rest.low // -c + 1)),
    )
