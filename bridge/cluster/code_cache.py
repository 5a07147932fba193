"""The code of one cluster, by shapes of its arguments and values of its compile-time constants."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

from ...compiler.ir.shape import Shape
from ...runtime.code.executable import Executable
from ...runtime.sizes import AnySize
from ...runtime.threads import forking
from .code_key import Key, Place, integers
from .size_history import SizeHistory

K = TypeVar("K")
V = TypeVar("V")
MAX_KEYS = 512  # of one cluster, for which code or the reason for none is kept
_MAX_CONSTANTS = 32  # values of constants for one set of shapes: compiling costs more than it saves
_MAX_DATA_CONSTANTS = 4  # where they depend on the elements of data, which differ in every call
MAX_VARIANTS = 8  # of code for symbolic sizes, with the same constants
_MAX_ALL_VARIANTS = 64
_MAX_NOTES = 32  # about code that was compiled in the background
_CAPACITY_STEP, _MAX_CAPACITY_FACTOR = 4, 4**6


def listed(shapes: Sequence[Shape]) -> str:
    """Shapes for a message."""
    return ", ".join(map(str, shapes)) or "no arguments"


def bounded(table: dict[K, V], max_entries: int) -> dict[K, V]:
    """The dict, with room for one more entry: the oldest entries are removed."""
    while len(table) >= max_entries:
        table.pop(next(iter(table)), None)
    return table


@dataclasses.dataclass(frozen=True)
class Variant:
    """Code for symbolic sizes. constants: those of the keys that it serves, as bytes, or as numbers and symbols."""

    code: Executable
    constants: Mapping[int, bytes | tuple[AnySize, ...]]

    def accepts(self, key: Key) -> bool:
        """Whether a key has the constants in which no symbols stand."""
        return all(
            self.constants[at] == value for at, value in key[1] if isinstance(self.constants[at], bytes)
        )

    def bound(self, key: Key) -> Executable | str:
        """The code for a key; the reason why it does not serve it."""
        if not self.accepts(key):
            return "constants are others"
        numbers = [
            (sizes, integers(key[0][at], value))
            for at, value in key[1]
            if not isinstance(sizes := self.constants[at], bytes)
        ]
        return self.code.bound([shape.dims for shape in key[0]], numbers)


@dataclasses.dataclass
class CodeCache:
    """Executables by key, and why there is none for other keys, but where code for symbolic sizes serves them.

    not_specialized: the reason for keys that are not compiled for because there is code for many constants already.
    capacity_factors: how much larger than at first the capacities of lists of unknown length are.
    generation: counts executables that were replaced or dropped.
    publications: counts entries of launches that got their code in the background.
    seen: keys that TensorFlow serves. sizes: of all keys so far.
    waiting: why keys are to be compiled in the background. background: the same of those that were, with what differs
        from other keys, and what it took.
    is_varying: whether keys were not specialized.
    over_budget: the error of the first compilation if it exceeded its budget; then there are no others.
    variants: code for symbolic sizes. without_variant: why there was none for sets of varying sizes, at each attempt:
        other values may be more typical.
    last_bound: the last key that got code for symbolic sizes, and this code.
    lock: held while an entry is added.
    """

    executables: dict[Key, Executable] = dataclasses.field(default_factory=dict)
    failures: dict[Key, str] = dataclasses.field(default_factory=dict)
    not_specialized: dict[Key, str] = dataclasses.field(default_factory=dict)
    capacity_factors: dict[Key, int] = dataclasses.field(default_factory=dict)
    generation: int = 0
    publications: int = 0
    seen: dict[Key, None] = dataclasses.field(default_factory=dict)
    sizes: SizeHistory = dataclasses.field(default_factory=SizeHistory)
    waiting: dict[Key, str] = dataclasses.field(default_factory=dict)
    background: dict[Key, str] = dataclasses.field(default_factory=dict)
    is_varying: bool = False
    over_budget: str = ""
    variants: list[Variant] = dataclasses.field(default_factory=list)
    without_variant: dict[tuple[Place, ...], list[str]] = dataclasses.field(default_factory=dict)
    last_bound: tuple[Key | None, Executable | None] = None, None
    lock: forking.Lock = dataclasses.field(default_factory=forking.long_lock)

    @property
    def has_any(self) -> bool:
        """Whether there is code for some key."""
        return bool(self.executables or self.variants)

    def add_variant(self, variant: Variant) -> None:
        """Keeps code for symbolic sizes."""
        del self.variants[: len(self.variants) + 1 - _MAX_ALL_VARIANTS]
        self.variants.append(variant)

    def note_call(self, key: Key) -> None:
        """Keeps a key that TensorFlow serves."""
        bounded(self.seen, MAX_KEYS)[key] = None
        self.sizes.note(key)

    def add_executable(self, key: Key, executable: Executable) -> None:
        """Keeps the code of a key."""
        bounded(self.executables, MAX_KEYS)[key] = executable
        self.sizes.note(key)

    def reason(self, key: Key) -> str:
        """Why there is no code for a key; empty when there is, or none was requested."""
        return self.failures.get(key, "") or self.not_specialized.get(key, "")

    def forget(self, key: Key) -> None:
        """Frees what is cached for a key."""
        self.generation += self.executables.pop(key, None) is not None  # code for symbolic sizes stays
        self.failures.pop(key, None)
        self.not_specialized.pop(key, None)
        self.seen.pop(key, None)

    def latest(self) -> Executable | None:
        """Some code that there is: for symbolic sizes, if there is such code."""
        if self.variants:
            return self.variants[-1].code
        return next((e for e in reversed(list(self.executables.values())) if e is not None), None)

    def enlarge(self, key: Key) -> None:
        """Drops the executable of a key. The next one has larger capacities of lists."""
        with self.lock:
            self.capacity_factors[key] = self.capacity_factors.get(key, 1) * _CAPACITY_STEP
            self.executables.pop(key, None)
            self.generation += 1

    def capacity_factor(self, key: Key) -> int:
        """The capacity factor of a key; 0: it is larger than any that code is compiled for."""
        factor = self.capacity_factors.get(key, 1)
        return factor if factor <= _MAX_CAPACITY_FACTOR else 0

    def constants_exceeded(self, key: Key, has_data_constants: bool) -> int:
        """The limit of values of constants, if calls with these shapes had that many others; else 0."""
        if not key[1]:
            return 0
        limit = _MAX_DATA_CONSTANTS if has_data_constants else _MAX_CONSTANTS
        others = {*self.executables, *self.seen} - {key}
        return limit if sum(k[0] == key[0] for k in others) >= limit else 0

    def note_background(self, key: Key, names: Sequence[str], cpu_seconds: float) -> None:
        """Keeps why a key was compiled in the background, and what that took."""
        parts = [
            self.difference(key, names),
            self.waiting.pop(key, ""),
            f"compiled in {cpu_seconds:.3f} CPU s",
        ]
        bounded(self.background, _MAX_NOTES)[key] = "; ".join(filter(None, parts))

    def difference(self, key: Key, names: Sequence[str]) -> str:
        """How a key differs from the most similar one with code. `names` of the launch arguments."""

        def changes(other: Key) -> list[str]:
            shapes = [
                f"{name} was {before}, is {after}{_changed_axes(before, after)}"
                for name, before, after in zip(names, other[0], key[0])
                if before != after
            ]
            return shapes + [
                f"the value of {names[at]} changed, which decides shapes or axes"
                for (at, before), (_, after) in zip(other[1], key[1])
                if before != after
            ]

        fewest: list[str] = min(map(changes, tuple(self.executables)), key=len, default=[])
        return "; ".join(fewest)


def _changed_axes(before: Shape, after: Shape) -> str:
    """Which axes have other dims, of shapes of the same rank."""
    axes = [axis for axis, (a, b) in enumerate(zip(before.dims, after.dims)) if a != b]
    if len(before.dims) != len(after.dims) or not axes:
        return ""
    return (
        f" (axis {', '.join(map(str, axes))})" if len(axes) == 1 else f" (axes {', '.join(map(str, axes))})"
    )
