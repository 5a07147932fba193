"""What products use of the functions that compute them: exported objects have no code that none of them runs."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ....runtime.llvm.ir_builder import ModuleText


class Part(enum.Enum):
    """A part of a driver or of a microkernel that some products do not run."""

    PACK_A = enum.auto()
    PACK_B = enum.auto()
    DEPTH_BLOCKS = enum.auto()  # sums in several blocks
    ROW_BLOCKS = enum.auto()  # several in a task
    COLUMN_BLOCKS = enum.auto()
    TAIL = enum.auto()  # a last panel that is narrow
    TWO_HEIGHTS = enum.auto()  # of tiles in a block
    LAST_STEPS = enum.auto()  # of sums that are no multiple of the unrolled steps


@dataclasses.dataclass(frozen=True)
class Uses:
    """What some products use; by default all that there is. parameters: slots of the parameter array that hold the same
    number for all of them."""

    parts: frozenset[Part] = frozenset(Part)
    parameters: Mapping[int, int] = dataclasses.field(default_factory=dict)


ALL = Uses()


def embed(
    module: ModuleText,
    name: str,
    parts: frozenset[Part],
    parameters: Mapping[Any, object],
    write: Callable[[Uses], None],
) -> None:
    """Writes a function into a module that embeds libraries, at its end: `write` gets what all products use that this
    is called for. `parameters`: of this one."""

    def write_all(uses: Collection[tuple[frozenset[Part], set[tuple[int, int]]]]) -> None:
        parts = frozenset[Part]().union(*(parts for parts, _ in uses))
        write(Uses(parts, dict(set.intersection(*(known for _, known in uses)))))

    known = {(int(slot), value) for slot, value in parameters.items() if isinstance(value, int)}
    module.write_later(name, (parts, known), write_all)
