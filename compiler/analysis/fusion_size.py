"""How much code a fusion takes: each member once for every index at which its consumers in the fusion read it.

    s = f32[8] reduce(x)  b = f32[8,9] broadcast(s)  r = f32[8,9] divide(x, b)

x is computed at the index of r, and at those that s runs over: two indices. Members that read one another at several
indices each multiply, and a fusion of a few dozen of them may take gigabytes of code. LLVM's time grows with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..ir.module import Instruction
from ..ops import BitcastConvert, Copy, Gather, GetTupleElement, Map, Reduce, ReduceWindow

MAX_INSTRUCTIONS = 500
MAX_INDICES = 48  # at which one member is computed
MAX_CODE = 3000  # members, each counted once for every index
MAX_NESTED = 6  # reductions, each needing the result of the one before: loops in loops
MAX_MOVES = 24  # instructions that change the index, one after the other: quotients in quotients
_UNROLLED = 9  # elements, up to which a reduction is no loop
_SAME_INDEX = (BitcastConvert, Copy, GetTupleElement, Map)
_ROOT: frozenset[int] = frozenset({0})


class _Place(NamedTuple):
    """Where a member is in a fusion: the indices at which it is computed, how many reductions need one another from it
    to the root, and how often the index has changed there."""

    indices: frozenset[int]
    level: int
    moves: int


class FusionSize:
    """The size of a fusion while members are added, consumers first. `code`: members times indices. `nested`: the most
    reductions that each need the one before."""

    __slots__ = ("_candidate", "_numbers", "_places", "code", "nested")

    def __init__(self) -> None:
        self.code = self.nested = 0
        self._places: dict[Instruction, _Place] = {}
        self._candidate: tuple[Instruction, _Place] | None = None  # of the last `has_room`
        self._numbers: dict[
            tuple[Instruction, int, int, int], int
        ] = {}  # an index at which a user reads an operand

    def has_room(self, instruction: Instruction, users: Iterable[Instruction]) -> bool:
        """Whether an instruction may be added."""
        place = self._place(instruction, users)
        self._candidate = instruction, place
        return (
            len(self._places) < MAX_INSTRUCTIONS
            and len(place.indices) <= MAX_INDICES
            and self.code + len(place.indices) <= MAX_CODE
            and place.level <= MAX_NESTED
            and place.moves <= MAX_MOVES
        )

    def add(self, instruction: Instruction, users: Iterable[Instruction]) -> None:
        """Takes an instruction in."""
        if self._candidate is not None and self._candidate[0] is instruction:
            place = self._candidate[1]
        else:
            place = self._place(instruction, users)
        self._candidate = None
        self._places[instruction] = place
        self.code += len(place.indices)
        self.nested = max(self.nested, place.level)

    def _place(self, instruction: Instruction, users: Iterable[Instruction]) -> _Place:
        level = moves = 0
        indices: frozenset[int] | None = None
        for user in users:
            place = self._places.get(user)
            if place is None:  # not in the fusion
                continue
            keeps_index = user.op.is_elementwise or isinstance(user.op, _SAME_INDEX)
            read = place.indices if keeps_index else self._read(user, instruction)
            indices = read if indices is None or indices is read else indices | read
            level = max(level, place.level)
            moves = max(moves, place.moves + (not keeps_index))
        level += isinstance(instruction.op, (Reduce, ReduceWindow))
        if indices is None or instruction.shape.is_scalar:
            return _Place(_ROOT, level, 0)
        return _Place(indices, level, moves)

    def _read(self, user: Instruction, operand: Instruction) -> frozenset[int]:
        """The indices at which a member that moves its index reads an operand."""
        at = self._places[user].indices
        indices = set[int]()
        for number, source in enumerate(user.operands):
            if source is operand:
                for copy in range(_reads(user, number)):
                    indices.update(
                        self._numbers.setdefault((user, number, copy, k), len(self._numbers) + 1) for k in at
                    )
        return frozenset(indices)


def _reads(user: Instruction, number: int) -> int:
    """How often the code for one element reads an operand."""
    op = user.op
    if isinstance(op, Gather) and number == 1:
        return max(1, len(op.start_index_map))
    if isinstance(op, Reduce):
        count = math.prod(user.operands[0].shape.dims[axis] for axis in op.dimensions)
    elif isinstance(op, ReduceWindow):
        count = math.prod(op.window.size)
    else:
        return 1
    return count if 0 < count <= _UNROLLED else 1


def have_room(sizes: Sequence[tuple[int, int, int]]) -> bool:
    """Whether fusions of these (instructions, code, nested reductions) may be one."""
    instructions, code, nested = map(sum, zip(*sizes))
    return instructions <= MAX_INSTRUCTIONS and code <= MAX_CODE and nested <= MAX_NESTED
