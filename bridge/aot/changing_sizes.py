"""Code for sizes that change: which variants of a function serve all their values.

The general variant has symbols, of 2 or more, in the place of all sizes. Sizes of 0 and 1, which mean other programs,
and those for which the general one's guards do not hold get variants of their own, until all values that are tried have
one, or the program refuses them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence

from ...compiler.client.platforms import native
from ...compiler.errors import BudgetError, CompilerError, ShapeError, UnsupportedError
from ...compiler.ir.module import Module
from ...compiler.ir.sized_module import SizedModule, SizeVariant
from ...compiler.options import DEFAULT_OPTIONS
from ...runtime.code.symbolic_sizes import MAX_SIZE, SymbolicSizes
from ...runtime.llvm.target import Target
from ...runtime.size_bounds import bounds
from ...runtime.sizes import AnySize, Assumptions, Valuation, guard_text, tracing
from .writers.model import ChangingSize

Values = Mapping[str, int]
Build = Callable[[Mapping[str, AnySize]], Module]
"""A function's module, from what its sizes are."""

_TYPICAL = (
    (37, 41, 43, 47, 53, 59, 61, 67),  # which are hardly numbers of the program, too
    (64, 96, 160, 224, 288, 352, 416, 480),  # for programs that halve sizes
    (192, 544, 608, 672, 736, 800, 864, 928),
)
_TRIED = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    65,
    100,
    127,
    128,
    129,
    224,
    256,
    257,
    1000,
)
_LARGE = (70_000, 10_000_000)
_MOST_POINTS = 600
_SERVED_POINTS = 3  # by code that is general
_MOST_VARIANTS = 16
_ATTEMPTS = 2  # for values in which the same sizes are 0 or 1


@dataclasses.dataclass(frozen=True, eq=False)
class SizedFunction:
    """A function's sizes that change, and how its module is made."""

    title: str
    sizes: Sequence[ChangingSize]
    build: Build

    def variants(self, places: Values, target: Target) -> SizedModule:
        """Its code. `places`: the numbers of the sizes in the caller's list.

        Raises: ShapeError, UnsupportedError  the function takes no changing sizes.
        """
        general = self._general(target)
        variants, refused = [general], dict[str, int]()
        not_served: Values = {}
        for values in _points(self.sizes, _typical_of(general)):
            if len(variants) < _MOST_VARIANTS and not any(v.serves(values) for v in variants):
                self._add(variants, refused, values, target)
            if not not_served and not any(v.serves(values) for v in variants):
                not_served = values
        return SizedModule(dict(places), _most(self.sizes, variants, target), variants, not_served)

    def _general(self, target: Target) -> SizeVariant:
        errors: list[Exception] = []
        for attempt, typical in enumerate(_TYPICAL):
            values = {
                s.name: _hint(s, typical[k % len(typical)], attempt + k) for k, s in enumerate(self.sizes)
            }
            try:
                variant = self._variant({}, values, target)
            except BudgetError:
                raise
            except CompilerError as error:
                errors.append(error)
                continue
            points = [p for p in _points(self.sizes, values) if min(p.values()) >= 2]
            if sum(map(variant.serves, points)) >= min(_SERVED_POINTS, len(points)):
                return variant
            fixed = _fixed(variant.symbolic.assumptions)
            errors.append(UnsupportedError(f"an op's code is for {' and '.join(fixed)} alone"))
        names = ", ".join(f"{s.name} ({s.place})" for s in self.sizes)
        kind = ShapeError if isinstance(errors[0], ShapeError) else UnsupportedError
        hint = ""
        if len(self.sizes) > 1:
            a, b = self.sizes[:2]
            hint = (
                f"\nIf two of the sizes are always the same, give both one name, as ?n: {a.place}, {b.place}."
            )
        raise kind(f"{self.title}: no code for changing sizes {names}: {errors[0]}{hint}") from errors[0]

    def _variant(self, numbers: Values, typical: Values, target: Target) -> SizeVariant:
        """The variant in which some sizes are numbers and the others symbols with these typical values."""
        assumptions = Assumptions()
        symbols = {
            name: assumptions.symbol(name, hint) for name, hint in typical.items() if name not in numbers
        }
        with tracing():
            module = self.build({**symbols, **numbers})
        results = [leaf.dims for leaf in module.entry.root.shape.leaves()]
        if 0 in numbers.values() and all(0 in dims for dims in results):
            return SizeVariant(numbers, SymbolicSizes((), tuple(results), 0, (), assumptions), None)
        symbolic = native().symbolic_sizes_of(module, DEFAULT_OPTIONS, target)
        return SizeVariant(numbers, symbolic, module)

    def _add(
        self, variants: list[SizeVariant], refused: dict[str, int], values: Values, target: Target
    ) -> None:
        """Adds a variant that serves values, if there is one."""
        numbers = {name: value for name, value in values.items() if value < 2}
        pattern = repr(numbers)
        if refused.get(pattern, 0) >= _ATTEMPTS:
            return
        try:
            variant = self._variant(numbers, values, target)
        except BudgetError:
            raise
        except CompilerError:
            refused[pattern] = refused.get(pattern, 0) + 1
            return
        is_useful = variant.serves(values) and not _is_for_one_value(variant)
        if is_useful and _has_results_of(variants[0], variant, values):
            variants.append(variant)
        refused[pattern] = refused.get(pattern, 0) + 1


def _has_results_of(general: SizeVariant, variant: SizeVariant, values: Values) -> bool:
    """Whether two variants' results have the same dims for these sizes. Where values decide how many rows a result has,
    the general variant may have room for more."""
    value_of = Valuation(values)
    sized = general.module.sized_results if general.module else ()
    if len(general.symbolic.results) != len(variant.symbolic.results):
        return False
    for number, dims in enumerate(zip(general.symbolic.results, variant.symbolic.results)):
        general_dims, variant_dims = ([value_of(size) for size in each] for each in dims)
        if number in sized and general_dims[0] >= variant_dims[0]:
            general_dims[0] = variant_dims[0]
        if general_dims != variant_dims:
            return False
    return True


def _hint(size: ChangingSize, typical: int, below: int) -> int:
    """A typical value; one near the bound where that is lower."""
    if size.most is None or typical <= size.most:
        return typical
    return max(2, size.most - below)


def _typical_of(variant: SizeVariant) -> dict[str, int]:
    symbols = variant.symbolic.assumptions.symbols
    return {name: size.hint for name, size in symbols.items()}


def _is_for_one_value(variant: SizeVariant) -> bool:
    """Whether a guard leaves a size one value."""
    return any(
        relation == "==" and outcome and not any(atom.operator for atom in size.atoms())
        for (relation, size), outcome in variant.symbolic.assumptions.guards.items()
    )


def _fixed(assumptions: Assumptions) -> list[str]:
    """The guards, for people, that leave sizes few values."""
    return [
        f"{guard_text(relation, size, outcome)} ({assumptions.reasons.get((relation, size), 'the program')})"
        for (relation, size), outcome in assumptions.guards.items()
        if relation == "==" and outcome
    ]


def _points(sizes: Sequence[ChangingSize], typical: Values) -> list[dict[str, int]]:
    """Values that are to be served; all there are where these are few."""
    counts = [None if s.most is None else s.most + 1 for s in sizes]
    if None not in counts and math.prod(c for c in counts if c) <= _MOST_POINTS:
        each = [range(s.most + 1) for s in sizes if s.most is not None]
        rows = list(itertools.product(*each))
    else:
        choices = [[v for v in _of_size(s, typical[s.name]) if s.most is None or v <= s.most] for s in sizes]
        few = [[v for v in (typical[s.name], 1, 0) if s.most is None or v <= s.most] for s in sizes]
        rng = random.Random(0)
        rows = list(itertools.islice(itertools.product(*few), _MOST_POINTS))
        rows += [tuple(rng.choice(values) for values in choices) for _ in range(_MOST_POINTS)]
        rows += [
            tuple(v if k == axis else typical[s.name] for k, s in enumerate(sizes))
            for axis, values in enumerate(choices)
            for v in values
        ]
    rows.sort(key=lambda row: sum(v < 2 for v in row))
    return [dict(zip((s.name for s in sizes), row, strict=True)) for row in dict.fromkeys(rows)]


def _of_size(size: ChangingSize, typical: int) -> list[int]:
    ends = list(_LARGE) if size.most is None else [size.most, max(size.most - 1, 0)]
    return [*_TRIED, typical, *ends]


def _most(sizes: Sequence[ChangingSize], variants: Sequence[SizeVariant], target: Target) -> dict[str, int]:
    """The bounds of sizes; without one, a number with which all computed sizes fit into the target's integers."""
    limit = min(MAX_SIZE, 1 << (8 * target.pointer_bytes - 2))
    most = {s.name: s.most if s.most is not None else limit for s in sizes}
    while max(_largest(v, most) for v in variants) >= limit:
        if not any(s.most is None and most[s.name] > 1 for s in sizes):
            raise UnsupportedError("the sizes' bounds need more memory than the target has")
        most |= {s.name: most[s.name] // 2 for s in sizes if s.most is None}
    return most


def _largest(variant: SizeVariant, most: Values) -> int:
    """The largest number that code for sizes computes, or its memory takes."""
    symbolic, intervals = variant.symbolic, {name: (0, number) for name, number in most.items()}
    arrays = [16 * math.prod(dims) for dims in (*symbolic.parameters, *symbolic.results)]
    guards = [size for _, size, _ in variant.guards(most)]
    numbers = (*symbolic.table, *guards, *arrays, variant.temp_bytes)
    return max((abs(end) for size in numbers for end in bounds(size, intervals)), default=0)
