"""The arrays of a model as headers and bindings name them: arguments, results, and what outlives a run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ....runtime.code.artifact import BufferSpec
from ....runtime.sizes import AnySize, is_symbolic
from .model import Entry, Model, aligned
from .names import MAX_LENGTH, identifier


@dataclasses.dataclass(frozen=True)
class Array:
    """An array of a function, or of the state, where `entry` is None.

    word: `arg`, `result` or `state`. number: its place among those. name: TensorFlow's, which may be any text or empty.
    called: what is made of that for identifiers; empty where nothing is, or several would be called so. sizes: the
    dims, in which those that change are expressions; `spec` has the largest. offset: where it lies in a model's memory,
    where all sizes have bounds; of the state, in its memory. rows: the number of the result that has how many rows of
    it are set. range: the bounds of the numbers that 8 bits stand for, of an argument that a quantised model rounds so.
    step: (scale, zero point) of integers that stand for numbers.

    Units: offset is bytes.
    """

    entry: Entry | None
    word: str
    number: int
    name: str
    called: str
    spec: BufferSpec
    sizes: Sequence[AnySize]
    offset: int
    rows: int | None = None
    range: tuple[float, float] | None = None
    step: tuple[float, int] | None = None

    @property
    def prefix(self) -> str:
        """What its names begin with: that of its function, where there are several."""
        return f"{self.entry.name}_" if self.entry is not None and self.entry.name else ""

    @property
    def which(self) -> str:
        """Its name by number: `arg0`, `decode_result1`."""
        return f"{self.prefix}{self.word}{self.number}"

    @property
    def own(self) -> str:
        """Its name by TensorFlow's: `arg_images`; empty where there is none."""
        return f"{self.prefix}{self.word}_{self.called}" if self.called else ""

    @property
    def is_changing(self) -> bool:
        """Whether dims are known at run time only."""
        return is_symbolic(self.sizes)

    @property
    def elements(self) -> int:
        """Elements, of the largest."""
        return math.prod(self.spec.dims)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.spec.dtype).itemsize

    @property
    def shape(self) -> str:
        """Type and dims, for people."""
        return f"{self.spec.dtype}[{', '.join(map(str, self.sizes))}]"


def arrays_of(model: Model, entry: Entry | None) -> list[Array]:
    """The arguments and results of a function; of None, the state's arrays."""
    if entry is None:
        specs = [state.spec for state in model.states]
        names = [state.name for state in model.states]
        return list(_of_kind(None, "state", specs, names, [spec.dims for spec in specs], 0))
    first = next(offset for each, offset in _first_offsets(model) if each is entry)
    arguments = list(
        _of_kind(
            entry,
            "arg",
            entry.arguments,
            entry.argument_names,
            [entry.sizes("args", k) for k in range(len(entry.arguments))],
            first,
        )
    )
    behind = first + sum(aligned(spec.bytes) for spec in entry.arguments)
    results = _of_kind(
        entry,
        "result",
        entry.results,
        entry.result_names,
        [entry.sizes("results", k) for k in range(len(entry.results))],
        behind,
    )
    return [*arguments, *results]


def all_arrays(model: Model) -> Iterator[Array]:
    """Those of all functions, then those of the state."""
    for entry in (*model.entries, None):
        yield from arrays_of(model, entry)


def _first_offsets(model: Model) -> Iterator[tuple[Entry, int]]:
    at = 0
    for entry in model.entries:
        yield entry, at
        at += sum(aligned(spec.bytes) for spec in (*entry.arguments, *entry.results))


def _of_kind(
    entry: Entry | None,
    word: str,
    specs: Sequence[BufferSpec],
    names: Sequence[str],
    sizes: Sequence[Sequence[AnySize]],
    offset: int,
) -> Iterator[Array]:
    called = [identifier(name) if len(name) <= MAX_LENGTH else "" for name in names]
    for number, (spec, name, own, dims) in enumerate(zip(specs, names, called, sizes, strict=True)):
        is_unique = called.count(own) == 1
        rows = entry.rows_of(number) if entry is not None and word == "result" else None
        bounds = entry.ranges.get(number) if entry is not None and word == "arg" else None
        step = None if entry is None else entry.step(word, number)
        called_so = own if is_unique else ""
        yield Array(entry, word, number, name, called_so, spec, dims, offset, rows, bounds, step)
        offset += aligned(spec.bytes)
