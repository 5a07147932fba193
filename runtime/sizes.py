"""Sizes that are known at run time only: polynomials of symbols, with the assumptions that a compilation makes of them.

A `Size` stands wherever the compiler has a dim, a stride or a number of bytes as an int: it adds, multiplies, divides
and compares as one. What follows from the bounds of its symbols holds for all their values. Where a question has no
such answer, the symbol's hint, a typical value, decides, and the answer becomes a guard: code is right for the values
for which all its guards hold. Whatever needs a plain int of a Size gets its hint, under the guard that the size is that
number. So code for sizes is never wrong; a guard too many makes it serve fewer of them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, SupportsInt, TypeAlias, cast

if TYPE_CHECKING:
    _Number = int
else:
    _Number = object
AnySize: TypeAlias = int
"""An int, or a `Size`, which is none but passes for one: annotations say int."""
_Monomial: TypeAlias = "tuple[Atom, ...]"


class Atom:
    """A factor of a term: a symbol, or an operation on sizes that no polynomial is.

    Assumptions have one object for each. key: its text. low: its lower bound, if known. hint: a typical value.
    """

    __slots__ = ("assumptions", "hint", "key", "low", "operands", "operator")

    def __init__(
        self,
        key: str,
        hint: int,
        low: int | None,
        assumptions: Assumptions,
        operator: str = "",
        operands: tuple[AnySize, ...] = (),
    ) -> None:
        self.key, self.hint, self.low, self.assumptions = key, hint, low, assumptions
        self.operator, self.operands = operator, operands

    def __lt__(self, other: Atom) -> bool:
        return self.key < other.key

    def __repr__(self) -> str:
        return self.key


class Assumptions:
    """The symbols of a compilation, and the guards that it has made so far.

    guards: (relation, size) with their outcome. `<`: size < 0; `==`: size == 0. reasons: the place in the compiler
    that asked first. lows: of sizes that were asked for it, by their terms, `Size.lower`.
    """

    def __init__(self) -> None:
        self.symbols: dict[str, Size] = {}
        self.operations: dict[tuple[str, AnySize, AnySize], Size] = {}
        self.guards: dict[tuple[str, Size], bool] = {}
        self.reasons: dict[tuple[str, Size], str] = {}
        self.lows: dict[tuple[tuple[_Monomial, int], ...], int | None] = {}

    def symbol(self, name: str, hint: int, low: int = 2) -> Size:
        """The symbol of a name; one that is new is at least `low`."""
        if name not in self.symbols:
            self.symbols[name] = Size((((Atom(name, max(hint, low), low, self),), 1),))
        return self.symbols[name]

    def decide(self, relation: str, size: Size) -> bool:
        """The outcome of a relation that symbols' bounds do not decide, by hints; it becomes a guard."""
        if (outcome := self.guards.get((relation, size))) is not None:
            return outcome
        if relation == "==" and (_mode.is_heuristic or not _mode.is_tracing or size.hint != 0):
            return False
        return size.hint < 0 if _mode.is_heuristic else self.guarded(relation, size)

    def guarded(self, relation: str, size: Size) -> bool:
        """The outcome of a relation by hints, under the guard that it is the same for other values."""
        outcome = self.guards.get((relation, size))
        if outcome is None:
            outcome = size.hint < 0 if relation == "<" else size.hint == 0
            self.guard(relation, size, outcome)
        return outcome

    def guard(self, relation: str, size: Size, outcome: bool) -> None:
        """Assumes that a relation has this outcome."""
        self.guards[relation, size] = outcome
        self.reasons.setdefault((relation, size), _caller())

    def equated(self) -> dict[str, AnySize]:
        """What symbols must be where guards say that sizes are equal: for a compilation with these in their places."""
        values: dict[str, AnySize] = {}
        for (relation, size), outcome in self.guards.items():
            if relation == "==" and outcome:
                values.update(_solved(size, values))
        return values

    def specialize(self, size: Size) -> int:
        """The hint of a size, under the guard that it is the size."""
        if not _mode.is_heuristic:
            self.guard("==", _positive(cast(Size, size - size.hint)), True)
        return size.hint

    def conditions(self) -> list[str]:
        """What values of the symbols must be, for people."""
        lowest = [f"{name} >= {a.low}" for name, size in self.symbols.items() for a in size.atoms()]
        return lowest + [guard_text(*guard, outcome) for guard, outcome in self.guards.items()]

    def to_json(self) -> dict[str, object]:
        """As lists and numbers."""
        return {
            "symbols": [
                [name, atom.low, atom.hint] for name, size in self.symbols.items() for atom in size.atoms()
            ],
            "guards": [
                [relation, encoded(size), outcome] for (relation, size), outcome in self.guards.items()
            ],
        }

    @staticmethod
    def of_json(data: Any) -> Assumptions:
        """What `to_json` made."""
        assumptions = Assumptions()
        for name, low, hint in data["symbols"]:
            assumptions.symbol(name, hint, low)
        for relation, size, outcome in data["guards"]:
            assumptions.guards[relation, cast(Size, decoded(size, assumptions))] = outcome
        return assumptions

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Assumptions.of_json, (self.to_json(),)

    def hold(self, values: Mapping[str, int]) -> bool:
        """Whether values of all symbols are such as the code assumes."""
        return self.first_failure(values) is None

    def first_failure(self, values: Mapping[str, int]) -> str | None:
        """The first assumption that values of the symbols break; None: all hold."""
        for name, size in self.symbols.items():
            (atom,) = size.atoms()
            if values[name] < (atom.low or 0):
                return f"{name} >= {atom.low}"
        value_of = Valuation(values)
        for (relation, size), outcome in self.guards.items():
            try:
                value = value_of(size)
            except ZeroDivisionError:
                value = None
            if value is None or (value < 0 if relation == "<" else value == 0) != outcome:
                return guard_text(relation, size, outcome)
        return None

    def __str__(self) -> str:
        return "\n".join(
            f"{guard_text(relation, size, outcome)}  ({self.reasons.get((relation, size), '')})"
            for (relation, size), outcome in self.guards.items()
        )


def _solved(size: Size, known: Mapping[str, AnySize]) -> dict[str, AnySize]:
    """A symbol by the others, or by a new one, for a size that is zero; else every symbol by its hint."""
    size = _without_factors(size)
    symbols = [a for a in size.atoms() if not a.operator and a.key not in known]
    for symbol in symbols:
        if (linear := _linear(size, symbol, known)) and linear[0] in (1, -1):
            return {symbol.key: -linear[0] * linear[1]}
    return _multiple(size, known) or {symbol.key: symbol.hint for symbol in symbols}


def _without_factors(size: Size) -> Size:
    """A size that is zero where the given one is: without a number, and atoms above zero, that divide all terms."""
    common = math.gcd(*(c for _, c in size.terms))
    terms = [(monomial, c // common) for monomial, c in size.terms]
    for atom in size.terms[-1][0]:
        shorter = [(_without(m, (atom,)), c) for m, c in terms]
        if (
            atom.low is not None
            and atom.low > 0
            and len(terms) > 1
            and all(m is not None for m, _ in shorter)
        ):
            terms = [(m, c) for m, c in shorter if m is not None]
    return cast(Size, _make(terms))


def _linear(size: Size, symbol: Atom, known: Mapping[str, AnySize]) -> tuple[int, AnySize] | None:
    """(factor, rest) with size = factor * symbol + rest; None where it has no such form."""
    ((monomial, factor), *more) = [(m, c) for m, c in size.terms if symbol in m]
    rest = _make([(m, c) for m, c in size.terms if symbol not in m])
    return None if more or monomial != (symbol,) or not _are_open(rest, known) else (factor, rest)


def _multiple(size: Size, known: Mapping[str, AnySize]) -> dict[str, AnySize]:
    """A symbol by a new one, so that a division leaves no remainder, for a size that is the remainder and is zero."""
    common = math.gcd(*(c for _, c in size.terms))
    for quotient in size.atoms():
        if quotient.operator != "//":
            continue
        a, b = quotient.operands
        remains = a - b * Size((((quotient,), 1),))
        is_remainder = _positive(cast(Size, common * remains)).terms == size.terms
        if not is_remainder or not isinstance(a, Size) or not _never_negative(b - 1):
            continue
        for symbol in a.atoms():
            if not symbol.operator and symbol.key not in known and (linear := _linear(a, symbol, known)):
                factor, rest = linear
                if isinstance(b, int) and isinstance(rest, int):
                    step: AnySize = b // math.gcd(b, factor)
                    least: AnySize = symbol.hint % step
                elif (factor == 1 or rest == 0) and _are_open(b, known):
                    step, least = b, -rest
                else:
                    continue
                times, more = divmod(symbol.hint - estimate(least), estimate(step))
                if times >= 2 and not more:
                    name = f"{symbol.key}_{step}"
                    new = Size((((Atom(name, times, 2, symbol.assumptions),), 1),))
                    return {symbol.key: step * new + least}
    return {}


def _are_open(size: AnySize, known: Mapping[str, AnySize]) -> bool:
    """Whether it is a number, or a polynomial of symbols that are not among the known ones."""
    return isinstance(size, int) or all(not a.operator and a.key not in known for a in size.atoms())


def guard_text(relation: str, size: Size, outcome: bool) -> str:
    """A guard, for people: `2*n < m`."""
    names = {("<", True): "<", ("<", False): ">=", ("==", True): "==", ("==", False): "!="}
    positive = [(m, c) for m, c in size.terms if c > 0]
    negative = [(m, -c) for m, c in size.terms if c < 0]
    return f"{_make(positive)} {names[relation, outcome]} {_make(negative)}"


class _Mode(threading.local):
    is_heuristic = is_tracing = False


_mode = _Mode()


class tracing(contextlib.ContextDecorator):
    """Within, sizes that are equal where symbols have their hints are equal, under a guard: for checks of a program.

    Elsewhere sizes that are not equal for all values are unequal. That needs no guard: code for sizes that differ is
    right for those that happen to be equal. `are_equal` is for questions where both answers matter.
    """

    def __enter__(self) -> None:
        self._before, _mode.is_tracing = _mode.is_tracing, True

    def __exit__(self, *error: object) -> None:
        _mode.is_tracing = self._before

    def _recreate_cm(self) -> tracing:
        return tracing()


class heuristic(contextlib.ContextDecorator):
    """Within, and in functions that it decorates, questions decide about speed alone: undecided ones make no guard.

    Sizes that are not equal for all values are unequal; the smaller of two is the one with the smaller hint.
    """

    def __enter__(self) -> None:
        self._before, _mode.is_heuristic = _mode.is_heuristic, True

    def __exit__(self, *error: object) -> None:
        _mode.is_heuristic = self._before

    def _recreate_cm(self) -> heuristic:
        return heuristic()


_HERE = str(Path(__file__))


def _caller() -> str:
    """File and line of the code that asks about a size."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == _HERE:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


class Size(_Number):
    """A sum of products of atoms; never changed. `terms` are sorted: (atoms of the product, coefficient)."""

    __slots__ = ("_hash", "_hint", "terms")

    def __init__(self, terms: tuple[tuple[_Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash: int | None = None
        self._hint: int | None = None

    @property
    def hint(self) -> int:
        """Its value where the symbols have their hints."""
        if self._hint is None:
            self._hint = sum(c * math.prod(a.hint for a in m) for m, c in self.terms)
        return self._hint

    @property
    def assumptions(self) -> Assumptions:
        """Those of its symbols."""
        return self.atoms()[0].assumptions

    def atoms(self) -> list[Atom]:
        """The atoms of all terms, each once."""
        return list(dict.fromkeys(atom for monomial, _ in self.terms for atom in monomial))

    # -- arithmetic
    def __add__(self, other: object) -> AnySize:
        if isinstance(other, Size):
            return _make((*self.terms, *other.terms))
        if isinstance(other, int):
            return self._plus(other) if other else self
        return _estimate(self.hint + other) if isinstance(other, float) else NotImplemented

    __radd__ = __add__

    def _plus(self, number: int) -> Size:
        terms, constant = self.terms, _constant(self)
        total = constant + int(number)
        rest = terms[:-1] if constant else terms
        return Size((*rest, ((), total)) if total else rest)

    def __neg__(self) -> Size:
        return Size(tuple([(m, -c) for m, c in self.terms]))

    def __pos__(self) -> Size:
        return self

    def __sub__(self, other: object) -> AnySize:
        if isinstance(other, Size):
            return _make([*self.terms, *[(m, -c) for m, c in other.terms]]) if other is not self else 0
        if isinstance(other, int):
            return self._plus(-other) if other else self
        return _estimate(self.hint - other) if isinstance(other, float) else NotImplemented

    def __rsub__(self, other: object) -> AnySize:
        if not isinstance(other, int):
            return _estimate(other - self.hint) if isinstance(other, float) else NotImplemented
        return -self + other

    def __mul__(self, other: object) -> AnySize:
        if isinstance(other, Size):
            return _make([(_product(m, n), c * d) for m, c in self.terms for n, d in other.terms])
        if isinstance(other, int):
            if other == 1:
                return self
            return Size(tuple([(m, c * other) for m, c in self.terms])) if other else 0
        return _estimate(self.hint * other) if isinstance(other, float) else NotImplemented

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> AnySize:  # type: ignore[override]  # numbers of factors only
        return math.prod([self] * exponent)

    def __floordiv__(self, other: object) -> AnySize:
        if not isinstance(other, (Size, int)):
            return NotImplemented
        return divide(self, other)

    def __rfloordiv__(self, other: object) -> AnySize:
        if not isinstance(other, int):
            return NotImplemented
        return divide(other, self)

    def __mod__(self, other: object) -> AnySize:
        if not isinstance(other, (Size, int)):
            return NotImplemented
        return remainder(self, other)

    def __rmod__(self, other: object) -> AnySize:
        if not isinstance(other, int):
            return NotImplemented
        return remainder(other, self)

    def __divmod__(self, other: object) -> tuple[AnySize, AnySize]:
        return self // other, self % other

    def __abs__(self) -> Size:
        return -self if self < 0 else self

    # -- comparisons
    def __eq__(self, other: object) -> bool:
        if isinstance(other, Size):
            if self.terms == other.terms:
                return True
        elif not isinstance(other, int):
            return NotImplemented
        difference = self - other
        if isinstance(difference, int):
            return difference == 0
        if (low := difference.lower()) is not None and low > 0:
            return False
        if (high := difference.upper()) is not None and high < 0:
            return False
        return self.assumptions.decide("==", _positive(difference))

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __lt__(self, other: AnySize | float) -> bool:
        return self.hint < other if isinstance(other, float) else _is_negative(self - other)

    def __le__(self, other: AnySize | float) -> bool:
        return self.hint <= other if isinstance(other, float) else _is_negative(self - other - 1)

    def __gt__(self, other: AnySize | float) -> bool:
        return self.hint > other if isinstance(other, float) else _is_negative(other - self)

    def __ge__(self, other: AnySize | float) -> bool:
        return self.hint >= other if isinstance(other, float) else _is_negative(other - self - 1)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.terms)
        return self._hash

    def lower(self) -> int | None:
        """A number that it is never below; None: none is known."""
        known = self.terms[0][0][0].assumptions.lows
        if self.terms not in known:
            known[self.terms] = self._found_lower()
        return known[self.terms]

    def _found_lower(self) -> int | None:
        low = _lower_of_terms(self.terms)
        operations = [a for m, _ in self.terms for a in m if a.operator]
        if operations and len(set(operations)) <= _MAX_OPERATIONS:
            other = self._lower_without(max(operations, key=lambda a: len(a.key)))
            return other if low is None else low if other is None else max(low, other)
        return low

    def _lower_without(self, atom: Atom) -> int | None:
        """A number that it is never below, by what an operation means."""
        factors = [(_without(m, (atom,)), c) for m, c in self.terms]
        factor = _make((m, c) for m, c in factors if m is not None)
        others = _make(t for t, (m, _) in zip(self.terms, factors) if m is None)
        if isinstance(factor, Size) and atom in factor.atoms():
            return None
        is_positive = _never_negative(factor)
        if not is_positive and not _never_negative(-factor):
            return None
        a, b = atom.operands
        if atom.operator == "max":
            lows = [low for o in (a, b) if (low := _lower(others + factor * o)) is not None]
            return max(lows, default=None) if is_positive else min(lows) if len(lows) == 2 else None
        divisor = _lower(b)  # times `atom`, it is a - b + 1 to a
        if divisor is None or divisor < 1:
            return None
        low = _lower(others * b + factor * (a - b + 1 if is_positive else a))
        if low is None or isinstance(b, int) or low < 0:
            return None if low is None else -(-low // divisor)
        return min(low, 1)

    def upper(self) -> int | None:
        """A number that it is never above; None: none is known."""
        low = (-self).lower()
        return None if low is None else -low

    # -- as a number: the size is assumed to be its hint
    def __index__(self) -> int:
        return self.assumptions.specialize(self)

    __int__ = __index__

    def __float__(self) -> float:
        return float(int(self))

    def __bool__(self) -> bool:
        return self != 0

    def __truediv__(self, other: AnySize | float) -> float:
        return float(self) / float(other)

    def __rtruediv__(self, other: AnySize | float) -> float:
        return float(other) / float(self)

    def __round__(self, digits: SupportsIndex = 0) -> int:
        return int(self)

    def __str__(self) -> str:
        parts: list[str] = []
        for monomial, c in self.terms:
            factors = [*([str(abs(c))] if abs(c) != 1 or not monomial else []), *(a.key for a in monomial)]
            sign = "-" if c < 0 else "+" if parts else ""
            parts.append(sign + "*".join(factors))
        return "".join(parts)

    __repr__ = __str__

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return decoded, (encoded(self), self.assumptions)

    def __format__(self, spec: str) -> str:
        """With the width and the side of a number's format."""
        return format(str(self), spec.rstrip("d,"))


def _terms(size: AnySize) -> Sequence[tuple[_Monomial, int]]:
    if isinstance(size, Size):
        return size.terms
    return (((), int(size)),) if size else ()


def _lower(size: AnySize) -> int | None:
    return size if isinstance(size, int) else size.lower()


def _lower_of_terms(terms: Sequence[tuple[_Monomial, int]]) -> int | None:
    """A number that the sum is never below, by the bounds of its atoms; None: none is known.

    Every atom is its lower bound and something that is not negative: the constant, where no other term of the
    expanded sum is negative.
    """
    if terms[0][0] and terms[0][1] < 0:  # no other term has more factors, so that this one stays
        return None
    if (low := _lower_of_positive_terms(terms)) is not None:
        return low
    total: dict[_Monomial, int] = {}
    for monomial, coefficient in terms:
        expanded: dict[_Monomial, int] = {(): coefficient}
        for atom in monomial:
            if atom.low is None:
                return None
            product: dict[_Monomial, int] = {}
            for rest, c in expanded.items():
                key = (*rest, atom)  # which are in order, as those of the term
                product[key] = product.get(key, 0) + c
                product[rest] = product.get(rest, 0) + c * atom.low
            expanded = product
        for rest, c in expanded.items():
            total[rest] = total.get(rest, 0) + c
    constant = total.pop((), 0)
    return constant if all(c >= 0 for c in total.values()) else None


def _lower_of_positive_terms(terms: Sequence[tuple[_Monomial, int]]) -> int | None:
    """The sum of terms of atoms that are at their lower bounds; None where it says nothing of other values."""
    constant = 0
    for monomial, c in terms:
        if monomial and c < 0:
            return None
        for atom in monomial:
            if atom.low is None or atom.low < 0 and len(monomial) > 1:
                return None
            c *= atom.low
        constant += c
    return constant


def _order(term: tuple[_Monomial, int]) -> tuple[int, list[str]]:
    """Terms of more factors come first, the constant last."""
    return -len(term[0]), [atom.key for atom in term[0]]


def _estimate(value: float) -> AnySize:
    """The result of arithmetic with a float, an estimate of time or memory: a float."""
    return cast("int", value)


def _make(terms: Iterable[tuple[_Monomial, int]]) -> AnySize:
    """The sum; an int where no symbol is left."""
    total: dict[_Monomial, int] = {}
    for monomial, c in terms:
        total[monomial] = total.get(monomial, 0) + c
    nonzero = [t for t in total.items() if t[1]]
    if not nonzero:
        return 0
    if len(nonzero) > 1:
        nonzero.sort(key=_order)
    elif not nonzero[0][0]:
        return nonzero[0][1]
    return Size(tuple(nonzero))


def _product(one: _Monomial, other: _Monomial) -> _Monomial:
    """The atoms of both, in order."""
    return tuple(sorted((*one, *other))) if one and other else one or other


def _positive(size: Size) -> Size:
    """The size or its negative, the same for both: for questions whether it is zero."""
    return size if size.terms[0][1] > 0 else -size


def _is_negative(size: AnySize) -> bool:
    if isinstance(size, int):
        return size < 0
    if (low := size.lower()) is not None and low >= 0:
        return False
    if (high := size.upper()) is not None and high < 0:
        return True
    return size.assumptions.decide("<", size)


def _assumptions(*sizes: AnySize) -> Assumptions:
    return next(s.assumptions for s in sizes if isinstance(s, Size))


# -- operations
_MAX_OPERATIONS = 6


def _long_division(a: AnySize, b: AnySize) -> tuple[AnySize, AnySize]:
    """(quotient, rest) with a = quotient * b + rest, as polynomials."""
    quotient: AnySize = 0
    rest: list[tuple[_Monomial, int]] = []
    (lead, factor), left = _terms(b)[0], a
    while left_terms := _terms(left):
        monomial, c = left_terms[0]
        divided = _without(monomial, lead)
        times = abs(c) // abs(factor) * (1 if (c > 0) == (factor > 0) else -1)
        if divided is None or not times:
            rest.append((monomial, c))
            left = _make(left_terms[1:])
            continue
        step = _make([(divided, times)])
        quotient = quotient + step
        left = left - step * b
    return quotient, _make(rest)


def _without(monomial: _Monomial, factors: _Monomial) -> _Monomial | None:
    """The monomial divided by another; None where that does not go."""
    left = list(monomial)
    for atom in factors:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def divide(a: AnySize, b: AnySize) -> AnySize:
    """a // b, rounded down."""
    if isinstance(b, int):
        return a // b if isinstance(a, int) else _divide_by_number(a, b)
    whole, rest = _long_division(a, b)
    if rest == 0:
        return whole
    if (low := b.lower()) is not None and low > 0:
        if _never_negative(rest) and _never_negative(b - rest - 1):
            return whole
        if _terms(rest)[0][1] < 0:  # rounded up, of the other sign
            return whole - divide(b - 1 - rest, b)
    return whole + _operation("//", rest, b)


def _divide_by_number(a: Size, b: int) -> AnySize:
    """a // b in the one form that equal quotients have: (n+3)//4 for (2*n+6)//8 and for ((n+1)//2+1)//2."""
    if b == 0:
        raise ZeroDivisionError(f"({a}) // 0")
    if b < 0:
        return _divide_by_number(-a, -b)
    quotients = [(m, c // b if c > 0 or not m else -(-c // b)) for m, c in a.terms]
    rest = _make((m, c - q * b) for (m, c), (_, q) in zip(a.terms, quotients))
    whole = _make(quotients)
    if isinstance(rest, int):  # less than b
        return whole
    if rest.terms[0][1] < 0:  # rounded up, of the other sign
        return whole - _divide_by_number(b - 1 - rest, b)
    common = math.gcd(b, *(c for m, c in rest.terms if m))
    if common > 1:
        b, rest = b // common, _make((m, c // common) for m, c in rest.terms)
    monomial, factor = rest.terms[0]
    if len(rest.terms) <= 2 and factor == 1 and len(monomial) == 1 and monomial[0].operator == "//":
        dividend, divisor = monomial[0].operands
        if isinstance(divisor, int) and isinstance(rest - Size(rest.terms[:1]), int):
            return whole + divide(dividend + divisor * _constant(rest), divisor * b)
    return whole + _operation("//", rest, b)


def _constant(size: AnySize) -> int:
    """The term without a symbol."""
    if isinstance(size, int):
        return size
    monomial, c = size.terms[-1]
    return 0 if monomial else c


def remainder(a: AnySize, b: AnySize) -> AnySize:
    """a % b, of the sign of b."""
    return a - divide(a, b) * b


def is_multiple(a: AnySize, b: AnySize) -> bool:
    """Whether a % b is 0 whatever the values of symbols are; without a guard."""
    rest = remainder(a, b)
    return isinstance(rest, int) and rest == 0


def _never_negative(size: AnySize) -> bool:
    low = _lower(size)
    return low is not None and low >= 0


def larger(a: AnySize, b: AnySize) -> AnySize:
    """The larger one, without a guard."""
    if isinstance(a, int) and isinstance(b, int):
        return a if a > b else b
    return maximum((a, b))


def smaller(a: AnySize, b: AnySize) -> AnySize:
    """The smaller one, without a guard."""
    if isinstance(a, int) and isinstance(b, int):
        return a if a < b else b
    return minimum((a, b))


def maximum(sizes: Iterable[AnySize]) -> AnySize:
    """The largest, without a guard."""
    listed = list(dict.fromkeys(sizes))
    largest: list[AnySize] = []
    for size in listed:
        if any(_never_negative(other - size) for other in largest):
            continue
        largest = [other for other in largest if not _never_negative(size - other)]
        largest.append(size)
    return functools.reduce(lambda a, b: _operation("max", a, b), largest)


def minimum(sizes: Iterable[AnySize]) -> AnySize:
    """The smallest, without a guard."""
    return -maximum(-size for size in sizes)


def ceiling(a: AnySize, b: AnySize) -> AnySize:
    """a / b, rounded up."""
    return -(-a // b)


_OPERATORS: dict[str, Callable[[AnySize, AnySize], AnySize]] = {
    "//": divide,
    "max": lambda a, b: maximum([a, b]),
}


def _operation(operator: str, a: AnySize, b: AnySize) -> Size:
    """The size that is an operation on two; a divisor that may be 0 is not, under a guard."""
    assumptions = _assumptions(a, b)
    key = operator, a, b
    size = assumptions.operations.get(key)
    if size is None:
        hint = estimate(_OPERATORS[operator](estimate(a), estimate(b)))
        texts = [s if isinstance(s, int) and s >= 0 or _is_atom(s) else f"({s})" for s in (a, b)]
        text = f"max({a},{b})" if operator == "max" else f"({texts[0]}//{texts[1]})"
        if (
            operator == "//"
            and isinstance(b, Size)
            and not _never_negative(b - 1)
            and not _never_negative(-b - 1)
        ):
            assumptions.guard("==", _positive(b), False)
        low = _lower_of_operation(operator, a, b)
        size = Size((((Atom(text, hint, low, assumptions, operator, (a, b)),), 1),))
        assumptions.operations[key] = size
    return size


def _is_atom(size: AnySize) -> bool:
    return (
        isinstance(size, Size)
        and len(size.terms) == 1
        and size.terms[0][1] == 1
        and len(size.terms[0][0]) == 1
    )


def _lower_of_operation(operator: str, a: AnySize, b: AnySize) -> int | None:
    low_a, low_b = _lower(a), _lower(b)
    if operator == "max":
        return max([low for low in (low_a, low_b) if low is not None], default=None)
    if low_a is None or low_b is None or low_b < 1:
        return None
    if isinstance(b, int):
        return low_a // b
    return low_a // low_b if low_a < 0 else int(_never_negative(a - b))


# -- values


def estimate(size: AnySize) -> int:
    """A typical value, for a choice that decides about speed alone: no guard."""
    return size.hint if isinstance(size, Size) else size


def evaluate(size: AnySize, values: Mapping[str, AnySize]) -> AnySize:
    """Its value for values of the symbols, which may be sizes themselves."""
    if isinstance(size, int):
        return size
    return sum(c * math.prod(_atom_value(a, values) for a in m) for m, c in size.terms)


def _atom_value(atom: Atom, values: Mapping[str, AnySize]) -> AnySize:
    if not atom.operator:
        return values[atom.key]
    a, b = (evaluate(o, values) for o in atom.operands)
    return _OPERATORS[atom.operator](a, b)


class Valuation:
    """The values of sizes where symbols have these values: a function that computes each operation once."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = values
        self._atoms: dict[Atom, int] = {}

    def __call__(self, size: AnySize) -> int:
        """Raises: ZeroDivisionError  a divisor is 0."""
        if not isinstance(size, Size):
            return size
        total = 0
        for monomial, product in size.terms:
            for atom in monomial:
                value = self._atoms.get(atom)
                product *= self._value(atom) if value is None else value
            total += product
        return total

    def _value(self, atom: Atom) -> int:
        if atom.operator:
            value = _INT_OPERATORS[atom.operator](*map(self, atom.operands))
        else:
            value = self._values[atom.key]
        self._atoms[atom] = value
        return value


def compiled(sizes: Sequence[AnySize], symbols: Sequence[str]) -> Callable[..., list[int]]:
    """A function from the values of symbols, in their order, to those of sizes: what `Valuation` gives, much faster.

    The function raises ZeroDivisionError where a divisor is 0.
    """
    names: dict[Atom, str] = {}
    lines: list[str] = []

    def text(size: AnySize) -> str:
        if not isinstance(size, Size):
            return str(int(size))
        terms = ("*".join((str(int(c)), *(name(a) for a in monomial))) for monomial, c in size.terms)
        return "+".join(terms) or "0"

    def name(atom: Atom) -> str:
        if atom not in names:
            if atom.operator:
                a, b = map(text, atom.operands)
                value = f"max({a},{b})" if atom.operator == "max" else f"({a})//({b})"
            else:
                value = f"v{symbols.index(atom.key)}"  # a symbol's own name may be any text
            lines.append(f" t{len(names)}={value}")
            names[atom] = f"t{len(names)}"
        return names[atom]

    results = ",".join(map(text, sizes))
    parameters = ",".join(f"v{k}" for k in range(len(symbols)))
    body = "\n".join([f"def function({parameters}):", *lines, f" return [{results}]"])
    scope: dict[str, Any] = {}
    exec(body, scope)
    function: Callable[..., list[int]] = scope["function"]
    return function


_INT_OPERATORS: dict[str, Callable[[int, int], int]] = {"//": lambda a, b: a // b, "max": max}


def surely_less(a: AnySize, b: AnySize) -> bool:
    """Whether a < b for all values of the symbols."""
    return a < b if isinstance(a, int) and isinstance(b, int) else _never_negative(b - a - 1)


def as_size(number: SupportsInt) -> AnySize:
    """A number of NumPy or Python as an int; a size as it is."""
    return number if isinstance(number, Size) else int(number)


def are_equal(a: AnySize, b: AnySize) -> bool:
    """Whether two sizes are equal, under a guard where that is not the same for all values."""
    difference: AnySize = a - b
    if isinstance(difference, int):
        return difference == 0
    if not _never_negative(difference - 1) and not _never_negative(-difference - 1):
        return difference.assumptions.guarded("==", _positive(difference))
    return False


def factors_of(size: AnySize) -> list[AnySize]:
    """The factors of a product of symbols, operations and a number, without the number; none of other sizes."""
    if isinstance(size, int) or len(size.terms) != 1:
        return []
    return [Size((((atom,), 1),)) for atom in size.terms[0][0]]


def symbols_of(sizes: Iterable[AnySize]) -> list[Atom]:
    """The symbols in sizes, each once."""
    symbols: dict[Atom, None] = {}
    stack = [size for size in sizes if isinstance(size, Size)][::-1]
    while stack:
        for atom in stack.pop().atoms():
            if atom.operator:
                stack += [o for o in atom.operands if isinstance(o, Size)]
            else:
                symbols[atom] = None
    return list(symbols)


def is_symbolic(sizes: Iterable[AnySize]) -> bool:
    """Whether one of the sizes is known at run time only."""
    return any(isinstance(size, Size) for size in sizes)


def encoded(size: AnySize) -> object:
    """As lists, for JSON: a number, or the terms; an atom is [name, low, hint] or [operator, operand, operand]."""
    if isinstance(size, int):
        return size
    return [[c, *map(_encoded_atom, m)] for m, c in size.terms]


def _encoded_atom(atom: Atom) -> list[object]:
    if atom.operator:
        return [atom.operator, *map(encoded, atom.operands)]
    return [atom.key, atom.low, atom.hint]


def decoded(data: Any, assumptions: Assumptions | None = None) -> AnySize:
    """What `encoded` made."""
    if isinstance(data, int):
        return data
    where = Assumptions() if assumptions is None else assumptions
    total: AnySize = 0
    for c, *factors in data:
        term: AnySize = c
        for name, *rest in factors:
            if name in _OPERATORS:
                a, b = (decoded(r, where) for r in rest)
                term = term * _operation(name, a, b)
            else:
                low, hint = rest
                term = term * where.symbol(name, hint, low)
        total = total + term
    return total
