"""Merges fusions that read the same large arrays, or one another's outputs, into one with several outputs.

Part of the decision of `fuse`. Two groups merge when their outputs have the same dims, they loop in the same
way, and neither needs the other except directly.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from .. import budget
from ..analysis.fusion_size import have_room
from ..ir.module import Computation, Instruction, topological
from ..ops import Concatenate, CustomCall, Gather, Reduce, ReduceWindow, Reverse, Transpose

PLAIN = ("loop",)
_LOOPS_OF_THEIR_OWN = (Concatenate, Gather, ReduceWindow, Reverse, Transpose)
_MAX_PARAMETERS = 48
_MAX_OUTPUTS = 16
_SMALLEST_SHARED_BYTES = 16
_SMALL = 1 << 12  # elements
_MAX_TRIED = 16  # candidates for each node and value
_MAX_STEPS = 10_000  # of a search for a path between nodes
_STEPS_PER_INSTRUCTION = 64  # of all searches; when they are used up, a path is assumed


def multi_output_fusion(
    computation: Computation,
    groups: Mapping[Instruction, Sequence[Instruction]],
    stored: Set[Instruction],
    sizes: Mapping[Instruction, tuple[int, int, int]],
) -> list[list[Instruction]]:
    """Lists of roots, in the computation's order, whose groups become one fusion. A root in `stored` is not merged
    with its readers. `sizes` of the groups, as `have_room` takes them."""
    return _Merging(computation, groups, stored, sizes).run()


class _Node:
    """A fusion, or another instruction, while groups are merged.

    kind: as `loop_kind`, None also for other instructions. position: in a topological order of the nodes.
    """

    __slots__ = ("inputs", "kind", "members", "position", "roots", "size")

    def __init__(
        self,
        root: Instruction,
        members: Collection[Instruction],
        position: int,
        is_group: bool,
        size: tuple[int, int, int],
    ) -> None:
        self.roots, self.members, self.position = [root], set(members), position
        self.inputs = {o for m in members for o in m.operands if o not in self.members}
        self.kind = loop_kind(self.members) if is_group else None
        self.size = size


class _Merging:
    def __init__(
        self,
        computation: Computation,
        groups: Mapping[Instruction, Sequence[Instruction]],
        stored: Set[Instruction],
        sizes: Mapping[Instruction, tuple[int, int, int]],
    ) -> None:
        self.groups, self.stored = groups, stored
        self.order = {i: k for k, i in enumerate(computation.instructions)}
        self.node = {
            i: _Node(i, groups.get(i, (i,)), k, i in groups, sizes.get(i, (1, 1, 0)))
            for i, k in self.order.items()
        }
        self.readers: dict[Instruction, list[Instruction]] = {i: [] for i in self.node}
        for i, node in self.node.items():
            for o in node.inputs:
                self.readers[o].append(i)
        # The operands of a check are not merged with instructions after the check.
        checks = [i for i in computation.instructions if isinstance(i.op, CustomCall) and i.op.is_check]
        self.early = set(topological(checks)) if checks else set()
        self.steps_left = _STEPS_PER_INSTRUCTION * (len(self.order) + _MAX_STEPS)

    def run(self) -> list[list[Instruction]]:
        for value, readers in self.readers.items():
            candidates = [i for i in (value, *readers) if i in self.groups]
            if len(candidates) > 1 and value.shape.is_array and value.shape.bytes >= _SMALLEST_SHARED_BYTES:
                budget.check("pass fuse")
                self._merge_among(candidates)
        merged = {id(n): n for n in self.node.values() if len(n.roots) > 1}
        return [sorted(n.roots, key=self.order.__getitem__) for n in merged.values()]

    def _merge_among(self, candidates: list[Instruction]) -> None:
        """Merges each candidate's node with the first before it that it may merge with, of the last few that have
        its dims and room for more."""
        before: dict[tuple[int, ...], dict[_Node, None]] = {}
        for candidate in candidates:
            node = self.node[candidate]
            if node.kind is None or not candidate.shape.is_array:
                continue
            nodes = before.setdefault(candidate.shape.dims, {})
            last = list(itertools.islice(reversed(nodes), _MAX_TRIED))
            first = next((n for n in reversed(last) if n is not node and self._merge(n, node)), None)
            if first is None:
                first = node
            else:
                nodes.pop(node, None)
            if len(first.roots) < _MAX_OUTPUTS:
                nodes.setdefault(first)
            else:
                nodes.pop(first, None)

    def _merge(self, a: _Node, b: _Node) -> bool:
        """Makes the two nodes one, the first, if they may be."""
        if not self._may_merge(a, b):
            return False
        lower, upper = (a, b) if a.position < b.position else (b, a)
        after = self._between(lower, upper, is_after=True)
        before = None if after is None else self._between(lower, upper, is_after=False)
        if after is None or before is None:
            return False
        moved = [*sorted(before, key=_position), a, *sorted(after, key=_position)]
        positions = sorted([b.position, *(n.position for n in moved)])
        del positions[len(before)]
        for node, position in zip(moved, positions):
            node.position = position
        a.roots += b.roots
        a.members |= b.members
        a.inputs = (a.inputs | b.inputs) - a.members
        a.kind = b.kind if a.kind == PLAIN else a.kind
        a.size = (a.size[0] + b.size[0], a.size[1] + b.size[1], a.size[2] + b.size[2])
        for root in b.roots:
            self.node[root] = a
        return True

    def _may_merge(self, a: _Node, b: _Node) -> bool:
        """Whether the two can be one loop nest."""
        first, second = a.roots[0], b.roots[0]
        if len(a.roots) + len(b.roots) > _MAX_OUTPUTS or not have_room((a.size, b.size)):
            return False
        if len(a.inputs | b.inputs) > _MAX_PARAMETERS:
            return False
        if any(
            r in self.stored and r in inputs
            for roots, inputs in ((a.roots, b.inputs), (b.roots, a.inputs))
            for r in roots
        ):
            return False
        if (first in self.early) != (second in self.early):
            return False
        if a.kind is None or b.kind is None:
            return False
        if a.kind != b.kind:
            direct = any(r in y.inputs for x, y in ((a, b), (b, a)) for r in x.roots)
            if PLAIN not in (a.kind, b.kind) or not (direct or first.shape.elements <= _SMALL):
                return False
        return all(
            reads_same_index(r, sorted(y.members, key=self.order.__getitem__))
            for x, y in ((a, b), (b, a))
            for r in x.roots
            if r in y.inputs
        )

    def _between(self, lower: _Node, upper: _Node, is_after: bool) -> set[_Node] | None:
        """The nodes with positions between the two that need the lower one, or those that the upper one needs.

        None when the upper one needs the lower one through them, or when the search is too long: then the two are not
        merged. Only nodes between can be on a way from one to the other, since the order holds.
        """
        start, end = (lower, upper) if is_after else (upper, lower)
        between: set[_Node] = set()
        stack = [start]
        limit = min(_MAX_STEPS, self.steps_left)
        steps = 0
        while stack:
            node = stack.pop()
            edges = [r for root in node.roots for r in self.readers[root]] if is_after else node.inputs
            steps += len(edges)
            if steps > limit:
                self.steps_left -= steps
                return None
            for instruction in edges:
                following = self.node[instruction]
                if following is end and node is not start:
                    self.steps_left -= steps
                    return None
                if lower.position < following.position < upper.position and following not in between:
                    between.add(following)
                    stack.append(following)
        self.steps_left -= steps
        return between


_position = operator.attrgetter("position")


def loop_kind(members: set[Instruction]) -> tuple[object, ...] | None:
    """Equal for groups that can share loops: PLAIN, or the dims and axes of the reduction; None for groups that do not
    merge."""
    kinds: set[tuple[object, ...]] = set()
    for m in members:
        if isinstance(m.op, Reduce):
            kinds.add((m.operands[0].shape.dims, m.op.dimensions))
        elif m.op.is_contraction or isinstance(m.op, _LOOPS_OF_THEIR_OWN):
            return None
    if not kinds:
        return PLAIN
    return kinds.pop() if len(kinds) == 1 else None


def reads_same_index(value: Instruction, members: Iterable[Instruction]) -> bool:
    """Whether the members, operands first, need a value only at the index of their own results (or not at all)."""
    reached = {value}
    for m in members:
        if any(o in reached for o in m.operands):
            if not m.op.is_elementwise or m.shape.dims != value.shape.dims:
                return False
            reached.add(m)
    return True
