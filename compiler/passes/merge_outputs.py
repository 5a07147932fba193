"""Which fusions become one with several outputs: those that read the same large arrays, or one another's.

Part of the decision of `fuse`. Two groups merge when their outputs have the same dims, they loop in the same
way, and neither needs the other except directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from ..ir import Computation, Instruction, topological
from ..ops import CustomCall, Reduce

PLAIN = ("loop",)
_MOST_PARAMETERS = 48
_MOST_OUTPUTS = 16
_SMALLEST_SHARED_BYTES = 16
_SMALL = 1 << 12  # elements


def merge_outputs(
    computation: Computation, groups: Mapping[Instruction, Sequence[Instruction]], apart: Set[Instruction]
) -> list[list[Instruction]]:
    """Lists of roots, each in the computation's order, of which one fusion is to be made; none of a root that is to be
    computed `apart` and what reads it."""
    return _Merging(computation, groups, apart).run()


class _Node:
    """A fusion, or an instruction by itself, while groups are merged."""

    def __init__(self, roots: list[Instruction], members: set[Instruction], inputs: set[Instruction]) -> None:
        self.roots, self.members, self.inputs = roots, members, inputs


class _Merging:
    def __init__(self, computation: Computation, groups: Mapping[Instruction, Sequence[Instruction]],
                 apart: Set[Instruction]) -> None:
        self.apart = apart
        self.order = {i: k for k, i in enumerate(computation.instructions)}
        self.node: dict[Instruction, _Node] = {}
        for i in computation.instructions:
            members = set(groups[i]) if i in groups else {i}
            self.node[i] = _Node([i], members, {o for m in members for o in m.operands if o not in members})
        self.groups = groups
        # What a check needs is not made together with what comes after the check.
        checks = [i for i in computation.instructions if isinstance(i.op, CustomCall) and i.op.is_check]
        self.early = set(topological(checks)) if checks else set()
        self.readers: dict[Instruction, list[Instruction]] = {}
        for root in groups:
            for o in self.node[root].inputs:
                self.readers.setdefault(o, []).append(root)

    def run(self) -> list[list[Instruction]]:
        for value in sorted(self.readers, key=self.order.__getitem__):
            if not value.shape.is_array or value.shape.bytes < _SMALLEST_SHARED_BYTES:
                continue
            candidates = [r for r in self.readers[value] if r in self.groups]
            if value in self.groups:
                candidates = [value, *candidates]
            for k, second in enumerate(candidates):
                for first in candidates[:k]:
                    a, b = self.node[first], self.node[second]
                    if a is not b and self._may_merge(a, b):
                        self._merge(a, b)
                        break
        merged = {id(n): n for n in self.node.values() if len(n.roots) > 1}
        return [sorted(n.roots, key=self.order.__getitem__) for n in merged.values()]

    def _merge(self, a: _Node, b: _Node) -> None:
        a.roots += b.roots
        a.members |= b.members
        a.inputs = (a.inputs | b.inputs) - a.members
        for root in b.roots:
            self.node[root] = a

    def _may_merge(self, a: _Node, b: _Node) -> bool:
        first, second = a.roots[0], b.roots[0]
        if first.shape.is_tuple or second.shape.is_tuple or first.shape.dims != second.shape.dims:
            return False
        if len(a.roots) + len(b.roots) > _MOST_OUTPUTS or len(a.inputs | b.inputs) > _MOST_PARAMETERS:
            return False
        if any(r in self.apart and r in inputs for roots, inputs in ((a.roots, b.inputs), (b.roots, a.inputs))
               for r in roots):
            return False
        if (first in self.early) != (second in self.early):
            return False
        kinds = loop_kind(a.members), loop_kind(b.members)
        if None in kinds:
            return False
        if kinds[0] != kinds[1]:
            direct = any(r in y.inputs for x, y in ((a, b), (b, a)) for r in x.roots)
            if PLAIN not in kinds or not (direct or first.shape.elements <= _SMALL):
                return False
        for x, y in ((a, b), (b, a)):
            shared = [r for r in x.roots if r in y.inputs]
            if shared and not all(reads_same_index(r, y.members) for r in shared):
                return False
            if self._reaches(x, y):
                return False
        return True

    def _reaches(self, source: _Node, target: _Node) -> bool:
        """Whether the target needs the source through something else than either of them."""
        earliest = min(self.order[r] for r in source.roots)
        seen: set[int] = {id(source), id(target)}
        stack = [o for o in target.inputs if o not in source.members]
        while stack:
            instruction = stack.pop()
            node = self.node[instruction]
            if node is source:
                return True
            if id(node) in seen or max(self.order[r] for r in node.roots) < earliest:
                continue
            seen.add(id(node))
            stack.extend(node.inputs)
        return False


def loop_kind(members: set[Instruction]) -> tuple[object, ...] | None:
    """What must be equal for two groups to share loops: nothing for plain loops, the extents for reductions;
    None for those that merge with no other."""
    found: set[tuple[object, ...]] = set()
    for m in members:
        if isinstance(m.op, Reduce):
            found.add((m.operands[0].shape.dims, m.op.dimensions))
        elif m.opcode in (
            "dot",
            "convolution",
            "reduce-window",
            "concatenate",
            "transpose",
            "reverse",
            "gather",
        ):
            return None
    if not found:
        return PLAIN
    return found.pop() if len(found) == 1 else None


def reads_same_index(value: Instruction, members: set[Instruction]) -> bool:
    """Whether the members need a value only at the index of their own results (or not at all)."""
    reached = {value}
    changed = True
    while changed:
        changed = False
        for m in members:
            if m in reached or not any(o in reached for o in m.operands):
                continue
            if not m.op.is_elementwise or m.shape.dims != value.shape.dims:
                return False
            reached.add(m)
            changed = True
    return True
