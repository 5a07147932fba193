"""Loop nests whose values are placed by construction in the outermost loop they depend on.

Every open loop is a scope. A value's depth is that of the deepest loop variable it depends on, and its text
is written at the end of what that scope has so far, so it stands before the loop that is being built inside:
nothing has to be hoisted, and the memo of a scope makes everything computed there once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ....runtime.llvm.ir_builder import Function, Value, i64, split_vector, vector_type
from .affine import Affine, Atom, Division


class Scope:
    """The body of a loop: its text so far, the block that text ends in, values of atoms."""

    __slots__ = ("atoms", "block", "depth", "is_closed", "lanes", "lines", "vector")

    def __init__(self, depth: int, block: str) -> None:
        self.depth, self.block = depth, block
        self.lines: list[str] = []
        self.atoms: dict[Atom, Value] = {}
        self.is_closed = False
        self.vector: Atom | None = None
        self.lanes = 1


class _At:
    """Text of a function goes to a scope while this is entered. A class: kernels enter thousands."""

    __slots__ = ("block", "f", "lines", "scope")

    def __init__(self, f: Function, scope: Scope) -> None:
        self.f, self.scope = f, scope

    def __enter__(self) -> Function:
        f, scope = self.f, self.scope
        self.lines, self.block = f.lines, f.block
        f.lines, f.block = scope.lines, scope.block
        return f

    def __exit__(self, *error: object) -> None:
        f = self.f
        self.scope.block = f.block
        f.lines, f.block = self.lines, self.block


class LoopNest:
    """The open loops of a function, outermost first. Depth 0 is the function's own body."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.chain = [Scope(0, f.block)]
        self.memo: dict[Hashable, list[tuple[Scope, Any]]] = {}  # by key what is kept, each in a scope
        self.division = Division()

    @property
    def depth(self) -> int:
        """Depth of the innermost open loop."""
        return len(self.chain) - 1

    @property
    def vector(self) -> tuple[Atom, int] | None:
        """The vectorised loop variable among the open loops, and its lanes."""
        for scope in reversed(self.chain):
            if scope.vector is not None:
                return scope.vector, scope.lanes
        return None

    def finish(self) -> None:
        """Ends the function's body: writes what depth 0 has."""
        self.f.lines.extend(self.chain[0].lines)
        self.f.block = self.chain[0].block

    def at(self, depth: int) -> _At:
        """Within, text goes to the scope of that depth."""
        return _At(self.f, self.chain[depth])

    def loop(
        self,
        depth: int,
        low: Value | int,
        high: Value | int,
        step: int,
        atom: Atom | None,
        body: Callable[[Value, list[Value]], Sequence[Value] | None],
        carried: Sequence[Value] = (),
        lanes: int = 1,
        guard: bool = True,
    ) -> list[Value]:
        """A loop inside the scope of `depth`; `atom` is its variable, the vectorised one when lanes is not 1.

        Loops open deeper than `depth` are closed for the time being: the loop is written before them.
        """
        f, open_loops = self.f, self.chain
        self.chain = open_loops[: depth + 1]
        parent = self.chain[-1]
        lines, block = f.lines, f.block
        text: list[str] = []
        label = f.fresh("nest")
        f.lines = text
        f.start_block(label)

        def run(variable: Value, values: list[Value]) -> Sequence[Value]:
            scope = Scope(depth + 1, f.block)
            if atom is not None:
                scope.atoms[atom] = variable
                if lanes > 1:
                    scope.vector, scope.lanes = atom, lanes
            self.chain.append(scope)
            results = list(body(variable, values) or [])
            self.chain.pop().is_closed = True
            text.extend(scope.lines)
            f.block = scope.block
            return results

        results = f.loop(low, high, step, run, carried, guard)
        parent.lines.append(f"  br label %{label}")
        parent.lines.extend(text)
        parent.block = f.block
        f.lines, f.block = lines, block
        self.chain = open_loops
        return results

    def bind(self, atom: Atom, value: Value, depth: int) -> None:
        """Gives an atom its value, known from that depth on."""
        self.chain[depth].atoms[atom] = value

    # -- memo
    def recall(self, key: Hashable) -> Any:
        """What was kept under the key in an open scope, or None."""
        kept = self.memo.get(key)
        if kept is None:
            return None
        chain, deepest, value = self.chain, -1, None
        for scope, found in kept:
            depth = scope.depth
            if deepest <= depth < len(chain) and chain[depth] is scope:
                deepest, value = depth, found
        return value

    def keep(self, key: Hashable, depth: int, value: Any) -> Any:
        """Keeps a value for as long as the scope of that depth is open; returns it."""
        kept = self.memo.setdefault(key, [])
        while kept and kept[-1][0].is_closed:
            kept.pop()
        kept.append((self.chain[depth], value))
        return value

    # -- values of indices
    def atom(self, atom: Atom) -> tuple[Value, int]:
        """(value, depth) of an atom; a quotient is computed when first asked for."""
        for scope in self.chain:
            if atom in scope.atoms:
                return scope.atoms[atom], scope.depth
        assert atom.quotient is not None, f"{atom} belongs to no open loop"
        numerator, divisor = atom.quotient
        value, depth = self.vectored(numerator) if self.varies(numerator) else self.scalar(numerator)
        with self.at(depth) as f:
            kind = "udiv" if numerator.low >= 0 else "sdiv"
            splat = f.splat(i64(divisor), self.lanes_of(value))
            self.bind(atom, f.binary(kind, value, splat), depth)
        return self.chain[depth].atoms[atom], depth

    def knows(self, atom: Atom) -> bool:
        """Whether an atom has a value in the open loops."""
        return any(atom in s.atoms for s in self.chain) or (
            atom.quotient is not None and all(self.knows(a) for a, _ in atom.quotient[0].terms)
        )

    @staticmethod
    def lanes_of(value: Value) -> int:
        """Lanes of a value."""
        return split_vector(value.type)[1]

    def varies(self, index: Affine) -> bool:
        """Whether an index differs between the lanes of the vectorised loop."""
        vector = self.vector
        return any(
            (vector is not None and a is vector[0]) or self.lanes_of(self.atom(a)[0]) > 1
            for a, _ in index.terms
        )

    def vector_parts(self, index: Affine) -> tuple[int, list[tuple[Value, int, int]], Affine]:
        """(coefficient of the vectorised variable, [(lane values, their depth, coefficient)], the rest: lane
        0)."""
        vector = self.vector
        stride = index.coefficient(vector[0]) if vector else 0
        others, kept = [], []
        for a, c in index.terms:
            value, depth = self.atom(a)
            if self.lanes_of(value) > 1:
                others.append((value, depth, c))
            else:
                kept.append((a, c))
        return stride, others, Affine(index.constant, tuple(kept), index.low, index.high)

    def scalar(self, index: Affine) -> tuple[Value, int]:
        """(value, depth) of an index, lane 0 of the vectorised variable; partial sums stand as far out as
        they can."""
        value, depth = self._sum(index)
        if index.constant == 0 and value is not None:
            return value, depth
        key = ("scalar", index)
        found = self.recall(key)
        if found is None:
            if value is None:
                return i64(index.constant), 0
            with self.at(depth) as f:
                found = self.keep(key, depth, (f.binary("add nsw", value, i64(index.constant)), depth))
        return found

    def _sum(self, index: Affine) -> tuple[Value | None, int]:
        """Sum of the terms without the constant."""
        groups: dict[int, list[tuple[Atom, int]]] = {}
        for a, c in index.terms:
            groups.setdefault(self.atom(a)[1], []).append((a, c))
        total: Value | None = None
        done: tuple[tuple[Atom, int], ...] = ()
        depth = 0
        for depth in sorted(groups):
            for a, c in groups[depth]:
                done = (*done, (a, c))
                found = self.recall(("sum", done))
                if found is None:
                    with self.at(depth) as f:
                        term = f.mul(self.atom(a)[0], c)
                        found = self.keep(
                            ("sum", done), depth, i64(term if total is None else f.add(total, term))
                        )
                total = found
        return total, depth

    def vectored(self, index: Affine, type_: str = "i64") -> tuple[Value, int]:
        """(lanes, depth) of an index that varies between lanes; `type_` i32 only where its bounds fit."""
        key = ("vectored", index, type_)
        found = self.recall(key)
        if found is not None:
            return found
        vector = self.vector
        assert vector is not None
        stride, others, rest = self.vector_parts(index)
        base, depth = self.scalar(rest)
        depth = max([depth, *(d for _, d, _ in others)])
        lanes = vector[1]
        wide = vector_type(type_, lanes)
        with self.at(depth) as f:
            total = f.splat(f.cast("trunc", base, "i32") if type_ == "i32" else base, lanes)
            if stride:
                steps = ", ".join(f"{type_} {k * stride}" for k in range(lanes))
                total = f.binary("add", total, Value(wide, f"<{steps}>"))
            for value, _, c in others:
                part = f.cast("trunc", value, wide) if type_ == "i32" else value
                total = f.binary("add", total, f.binary("mul", part, f.splat(Value(type_, str(c)), lanes)))
        return self.keep(key, depth, (total, depth))

    def pointer(self, base: Value, type_: str, index: Affine) -> tuple[Value, int]:
        """(address, depth) of element `index` of `type_` after `base`: the address is advanced in each loop
        by what depends on that loop alone, and the constant comes last, so that it goes into the
        instruction."""
        groups: dict[int, list[tuple[Atom, int]]] = {}
        for a, c in index.terms:
            groups.setdefault(self.atom(a)[1], []).append((a, c))
        pointer, depth = base, 0
        done: tuple[tuple[Atom, int], ...] = ()
        for depth in sorted(groups):
            part = tuple(groups[depth])
            done = (*done, *part)
            key = ("pointer", base.text, type_, done)
            found = self.recall(key)
            if found is None:
                total, _ = self._sum(Affine(0, part, 0, 0))
                assert total is not None
                with self.at(depth) as f:
                    found = self.keep(key, depth, f.offset(pointer, total, type_))
            pointer = found
        if index.constant:
            moved = ("pointer", base.text, type_, done, index.constant)
            found = self.recall(moved)
            if found is None:
                with self.at(depth) as f:
                    found = self.keep(moved, depth, f.offset(pointer, index.constant, type_))
            pointer = found
        return pointer, depth

    def moved(self, base: Value, place: int) -> Value:
        """The address so many bytes after one that is known at depth 0."""
        key = ("moved", base.text, place)
        found = self.recall(key)
        if found is None:
            with self.at(0) as f:
                found = self.keep(key, 0, f.offset(base, place))
        return found
