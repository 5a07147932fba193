"""What is told of a compiled model: its functions, their arrays, its memory."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ....runtime.code.artifact import BufferSpec, KernelRecord, Temporary
from ....runtime.sizes import AnySize, Valuation
from .names import check

ALIGN = 64
PLACES_OF_CONSTANTS = ("object", "file", "source")
Results = Callable[[Sequence[np.ndarray], int], list[np.ndarray]]
"""The results for arguments, of the last of a number of runs that begin with the present state."""


def aligned(size: int) -> int:
    """Bytes of an array in a model's memory, with those behind it."""
    return -(-size // ALIGN) * ALIGN


@dataclasses.dataclass(frozen=True)
class ChangingSize:
    """A size that is known at run time only. `most`: its bound; None: it has none. `place`: where it stands first."""

    name: str
    most: int | None
    place: str


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of a model that change, none by default, and what runs with them take.

    most: their largest values, also of sizes without a given bound. temp_bytes: the temporary memory of all code for
    them. refused: for people, which values runs are refused with. examples: by function, values that it takes.
    """

    listed: Sequence[ChangingSize] = ()
    most: Mapping[str, int] = dataclasses.field(default_factory=dict)
    temp_bytes: Sequence[AnySize] = ()
    refused: Sequence[str] = ()
    examples: Mapping[str, Sequence[Mapping[str, int]]] = dataclasses.field(default_factory=dict)

    @property
    def are_bounded(self) -> bool:
        """Whether the memory of a model is known now."""
        return all(size.most is not None for size in self.listed)


@dataclasses.dataclass(frozen=True)
class StateArray:
    """An array of a model's state: the variable's name, its type and dims."""

    name: str
    spec: BufferSpec


@dataclasses.dataclass(frozen=True)
class Entry:
    """A function of a model; `name` is empty for the only one.

    The state's arrays are further arguments and results: `state_arguments` and `state_results` are their numbers there,
    behind the others, and in the state. Where sizes change, the arrays are the largest there are, and `argument_sizes`
    and `result_sizes` their dims. `sized_results`: the results in which values of arguments decide how many
    rows there are, up to the first dim; the last results are these numbers. `kernels`, `temporaries`: as of Artifact,
    of the first level and of typical sizes. `ranges`: the bounds of arguments, by number, that are rounded to 8 bits.
    `argument_steps`, `result_steps`: (scale, zero point), by number, of arrays of integers that stand for numbers.
    """

    name: str
    symbol: str
    arguments: Sequence[BufferSpec]
    argument_names: Sequence[str]
    results: Sequence[BufferSpec]
    result_names: Sequence[str]
    state_arguments: Sequence[tuple[int, int]] = ()
    state_results: Sequence[tuple[int, int]] = ()
    argument_sizes: Sequence[Sequence[AnySize]] = ()
    result_sizes: Sequence[Sequence[AnySize]] = ()
    sized_results: Sequence[int] = ()
    kernels: Sequence[KernelRecord] = ()
    temporaries: Sequence[Temporary] = ()
    ranges: Mapping[int, tuple[float, float]] = dataclasses.field(default_factory=dict)
    argument_steps: Mapping[int, tuple[float, int]] = dataclasses.field(default_factory=dict)
    result_steps: Mapping[int, tuple[float, int]] = dataclasses.field(default_factory=dict)

    @property
    def run_name(self) -> str:
        """What runs it is called, behind the model's name."""
        return f"run_{self.name}" if self.name else "run"

    def rows_of(self, result: int) -> int | None:
        """The number of the result that has how many rows of a result there are; None: it always has all."""
        if result not in self.sized_results:
            return None
        return len(self.results) - len(self.sized_results) + list(self.sized_results).index(result)

    def sizes(self, kind: str, number: int) -> Sequence[AnySize]:
        """The dims of an array of `args` or `results`."""
        specs, sizes = (
            (self.arguments, self.argument_sizes) if kind == "args" else (self.results, self.result_sizes)
        )
        return sizes[number] if sizes else specs[number].dims

    def step(self, word: str, number: int) -> tuple[float, int] | None:
        """(scale, zero point) of an `arg` or `result` of integers that stand for numbers."""
        return (self.argument_steps if word == "arg" else self.result_steps).get(number)

    def member(self, kind: str) -> str:
        """The model's member with the addresses of its `args` or `results`."""
        return f"{self.name}_{kind}" if self.name else kind


@dataclasses.dataclass(frozen=True)
class Reference:
    """TensorFlow's results of each function, and how far those of code may be from them, in parts of a number of 1 or
    more; None: rounding alone."""

    functions: Sequence[Results]
    tolerance: float | None


@dataclasses.dataclass(frozen=True)
class Model:
    """What a header tells. `constants_bytes` are those that do not lie in the object, but in a file or, with
    `constants_in_source`, in C source.

    `digest`: of all that is compiled; names of functions end in it, and the file of constants has it at its end.
    `states`: the arrays that outlive a run; `reset_symbol`: the function that gives them their first values. `sizes`:
    those that change; where some have no bound, `temp_bytes` is that of the functions without changing sizes.
    `library`: the file of a library, empty for an object. `levels`: those of processors that there is code for, where
    there are several. `stack_bytes`: the most that a run takes of the stack, functions of the C library not counted.
    `layers`: the lines of the file that debug lines are of; empty: there are none.
    Raises: ValueError  the name or the class cannot be chosen (see `names`).
    """

    name: str
    cpp_class: str
    target: str
    version: str
    entries: Sequence[Entry]
    temp_bytes: int
    constants_bytes: int
    threads: int
    pointer_bytes: int
    digest: str
    states: Sequence[StateArray] = ()
    reset_symbol: str = ""
    sizes: Sizes = dataclasses.field(default_factory=Sizes)
    library: str = ""
    levels: Sequence[str] = ()
    constants_in_source: bool = False
    stack_bytes: int = 0
    layers: Sequence[str] = ()

    def __post_init__(self) -> None:
        check(self.name, self.cpp_class)

    @property
    def file(self) -> str:
        """The name of the object's or the library's file."""
        return self.library or f"{self.name}.o"

    @property
    def constants_file(self) -> str:
        """The name of the file of constants that programs map or read; empty: there is none."""
        return f"{self.name}.bin" if self.constants_bytes and not self.constants_in_source else ""

    @property
    def source_file(self) -> str:
        """The name of the C source of the constants; empty: there is none."""
        return f"{self.name}_weights.c" if self.constants_in_source else ""

    @property
    def source_symbol(self) -> str:
        """The array in that source."""
        return f"{self.name}_weights_{self.digest}"

    @property
    def symbols(self) -> list[str]:
        """What the object exports."""
        return [*(entry.symbol for entry in self.entries), *filter(None, [self.reset_symbol])]

    def call(self, entry: Entry) -> str:
        """What the names of a function begin with in C."""
        return f"{self.name}_{entry.name}" if entry.name else self.name

    @property
    def _arrays(self) -> list[BufferSpec]:
        specs = [spec for entry in self.entries for spec in (*entry.arguments, *entry.results)]
        return [*specs, *(state.spec for state in self.states)]

    @property
    def offsets(self) -> list[int]:
        """Where arguments and results, function by function, the arrays of the state and then the temporary memory lie
        in a model's memory."""
        return [0, *itertools.accumulate(aligned(spec.bytes) for spec in self._arrays)]

    @property
    def memory_bytes(self) -> int:
        """Bytes of a model's memory at any alignment."""
        return self.offsets[-1] + aligned(self.temp_bytes) + ALIGN

    @property
    def example_most(self) -> dict[str, int]:
        """The bounds of sizes, as large as in the examples where there are none."""
        values = [example for examples in self.sizes.examples.values() for example in examples]
        return {
            s.name: max((v.get(s.name, 0) for v in values), default=0) if s.most is None else s.most
            for s in self.sizes.listed
        }

    @property
    def example_bytes(self) -> int:
        """Bytes of a model's memory for runs with the examples' sizes."""
        if self.sizes.are_bounded:
            return self.memory_bytes
        value_of = Valuation(self.example_most)
        arrays = [aligned(s.spec.bytes) for s in self.states]
        for entry in self.entries:
            for kind, specs in (("args", entry.arguments), ("results", entry.results)):
                for k, spec in enumerate(specs):
                    elements = math.prod(map(value_of, entry.sizes(kind, k)))
                    arrays.append(aligned(elements * np.dtype(spec.dtype).itemsize))
        return sum(arrays) + aligned(max(self.temp_bytes, *map(value_of, self.sizes.temp_bytes))) + ALIGN

    @property
    def state_offsets(self) -> list[int]:
        """Where the arrays of the state lie in its memory, and its bytes."""
        first = len(self._arrays) - len(self.states)
        return [offset - self.offsets[first] for offset in self.offsets[first:]]
