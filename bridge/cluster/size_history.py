"""Which sizes of a cluster's calls are others from call to call: those dims of arguments, and integers that decide
shapes, that get symbols."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable

from .code_key import Key, Place, holds_sizes, integers

_MAX_KINDS = 64  # of calls, that differ in more than sizes
_Class = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class _Calls:
    """What calls had that differ in sizes alone. sizes: of the last one. varying: where another call had another size.
    classes: places with the same one had the same size in every call."""

    sizes: dict[Place, int]
    varying: frozenset[Place]
    classes: dict[Place, int]

    def with_call(self, sizes: dict[Place, int]) -> _Calls:
        """What these calls and another one had."""
        varying = self.varying.union(place for place, size in sizes.items() if size != self.sizes[place])
        numbers: dict[_Class, int] = {}
        classes = {
            place: numbers.setdefault((self.classes[place], size), len(numbers))
            for place, size in sizes.items()
        }
        return _Calls(sizes, varying, classes)


class SizeHistory:
    """The sizes of a cluster's calls so far. What is kept does not grow with the number of calls."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, _Calls] = {}

    def note(self, key: Key) -> None:
        """Adds a call."""
        kind, calls = self._with(key)
        self._calls.pop(kind, None)
        while len(self._calls) >= _MAX_KINDS:
            self._calls.pop(next(iter(self._calls)))
        self._calls[kind] = calls

    def symbols(self, key: Key, unknown: Collection[Place] = ()) -> dict[Place, str]:
        """Names of symbols by place: of sizes that are others than in earlier calls of the same ranks and constants,
        and of those `unknown` to the graph.

        Sizes that vary, and are equal in every call, have one name. A size of 0 or 1 has none: other code serves it.
        """
        _, calls = self._with(key)
        names: dict[Hashable, str] = {}
        return {
            place: names.setdefault(
                calls.classes[place] if place in calls.varying else place, f"s{len(names)}"
            )
            for place, size in calls.sizes.items()
            if size > 1 and (place in calls.varying or place in unknown)
        }

    def _with(self, key: Key) -> tuple[Hashable, _Calls]:
        """The kind of a call, and what calls of this kind had, with it."""
        kind, sizes = _kind_and_sizes(key)
        earlier = self._calls.get(kind)
        if earlier is None:
            return kind, _Calls(sizes, frozenset(), dict.fromkeys(sizes, 0)).with_call(sizes)
        return kind, earlier.with_call(sizes)


def _kind_and_sizes(key: Key) -> tuple[Hashable, dict[Place, int]]:
    """What two calls must have in common to differ in sizes alone, and what may be sizes: dims, and of constants the
    elements. An integer below 2 among these is no size."""
    shapes, constants = key
    numbers = {at for at, _ in constants}
    sizes = {(k, a): dim for k, s in enumerate(shapes) if k not in numbers for a, dim in enumerate(s.dims)}
    kind: list[Hashable] = [
        (s.element_type, s.dims if k in numbers else s.rank) for k, s in enumerate(shapes)
    ]
    for at, value in constants:
        if holds_sizes(shapes[at]):
            elements = integers(shapes[at], value)
            sizes.update(((at, ~n), element) for n, element in enumerate(elements))
            kind.append(tuple(min(element, 2) for element in elements))
        else:
            kind.append(value)
    return tuple(kind), sizes
