"""Loop nests whose values are placed by construction in the outermost loop they depend on.

Every open loop is a scope. A value's depth is that of the deepest loop variable it depends on, and its text
is written at the end of what that scope has so far, so it stands before the loop that is being built inside:
nothing has to be hoisted, and the memo of a scope makes everything computed there once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from ....runtime.llvm.ir_builder import (
    Function,
    Index,
    Int,
    Ptr,
    Value,
    VectorValue,
    split_vector,
    vector_type,
)
from ....runtime.sizes import Size, surely_less
from .affine import Affine, Division, Symbol


class Scope:
    """The body of a loop: its text so far, the block that text ends in, values of symbols."""

    __slots__ = ("symbols", "block", "depth", "is_closed", "lanes", "lines", "vector")

    def __init__(self, depth: int, block: str) -> None:
        self.depth, self.block = depth, block
        self.lines: list[str] = []
        self.symbols: dict[Symbol, Int | VectorValue] = {}
        self.is_closed = False
        self.vector: Symbol | None = None
        self.lanes = 1


_V = TypeVar("_V")
Memo: TypeAlias = dict[Hashable, list[tuple[Scope, _V]]]
"""By key the values, each with the scope in which it is known."""


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
        self.sums: Memo[Int] = {}
        self.scalars: Memo[tuple[Int, int]] = {}
        self.vectors: Memo[tuple[VectorValue, int]] = {}
        self.pointers: Memo[Ptr] = {}
        self.division = Division()

    @property
    def depth(self) -> int:
        """Depth of the innermost open loop."""
        return len(self.chain) - 1

    @property
    def vector(self) -> tuple[Symbol, int] | None:
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
        low: Index,
        high: Index,
        step: int,
        symbol: Symbol | None,
        body: Callable[[Int, list[Value]], Sequence[Value] | None],
        carried: Sequence[Value] = (),
        lanes: int = 1,
        guard: bool = True,
    ) -> list[Value]:
        """A loop inside the scope of `depth`; `symbol` is its variable, the vectorised one when lanes is not 1.

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

        if isinstance(low, int) and isinstance(high, int) and low >= high:
            results = list(carried)
        else:
            with f.loop(low, high, step, guard=guard, values=carried) as loop:
                scope = Scope(depth + 1, f.block)
                if symbol is not None:
                    scope.symbols[symbol] = loop.index
                    if lanes > 1:
                        scope.vector, scope.lanes = symbol, lanes
                self.chain.append(scope)
                loop.values = list(body(loop.index, loop.values) or [])
                self.chain.pop().is_closed = True
                text.extend(scope.lines)
                f.block = scope.block
            results = loop.values
        parent.lines.append(f"  br label %{label}")
        parent.lines.extend(text)
        parent.block = f.block
        f.lines, f.block = lines, block
        self.chain = open_loops
        return results

    def bind(self, symbol: Symbol, value: Int | VectorValue, depth: int) -> None:
        """Gives a symbol its value, known from that depth on."""
        self.chain[depth].symbols[symbol] = value

    # -- memo
    def lookup(self, memo: Memo[_V], key: Hashable) -> _V | None:
        """The value that was memoized under the key in an open scope, or None."""
        entries = memo.get(key)
        if entries is None:
            return None
        chain, deepest = self.chain, -1
        value: _V | None = None
        for scope, entry in entries:
            depth = scope.depth
            if deepest <= depth < len(chain) and chain[depth] is scope:
                deepest, value = depth, entry
        return value

    def memoize(self, memo: Memo[_V], key: Hashable, depth: int, value: _V) -> _V:
        """Remembers a value as long as the scope of that depth is open; returns it."""
        entries = memo.setdefault(key, [])
        while entries and entries[-1][0].is_closed:
            entries.pop()
        entries.append((self.chain[depth], value))
        return value

    # -- values of indices
    def symbol(self, symbol: Symbol) -> tuple[Int | VectorValue, int]:
        """(value, depth) of a symbol; a quotient is computed at its first use."""
        for scope in self.chain:
            if symbol in scope.symbols:
                return scope.symbols[symbol], scope.depth
        assert symbol.quotient is not None, f"{symbol} belongs to no open loop"
        numerator, divisor = symbol.quotient
        kind = "udiv" if surely_less(-1, numerator.low) else "sdiv"
        quotient: Int | VectorValue
        if self.varies(numerator):
            vector, depth = self.vectored(numerator)
            with self.at(depth):
                quotient = vector.operation(kind, divisor)
        else:
            value, depth = self.scalar(numerator)
            with self.at(depth):
                quotient = value // divisor if kind == "udiv" else value.signed_quotient(divisor)
        self.bind(symbol, quotient, depth)
        return quotient, depth

    def knows(self, symbol: Symbol) -> bool:
        """Whether a symbol has a value in the open loops."""
        return any(symbol in s.symbols for s in self.chain) or (
            symbol.quotient is not None and all(self.knows(a) for a, _ in symbol.quotient[0].terms)
        )

    @staticmethod
    def lanes_of(value: Value) -> int:
        """Lanes of a value."""
        return split_vector(value.type)[1]

    def varies(self, index: Affine) -> bool:
        """Whether an index differs between the lanes of the vectorised loop."""
        vector = self.vector
        return any(
            (vector is not None and a is vector[0]) or isinstance(self.symbol(a)[0], VectorValue)
            for a, _ in index.terms
        )

    def vector_parts(self, index: Affine) -> tuple[int, list[tuple[VectorValue, int, int]], Affine]:
        """(coefficient of the vectorised variable, [(lane values, their depth, coefficient)], the rest: lane
        0)."""
        vector = self.vector
        stride = index.coefficient(vector[0]) if vector else 0
        others, uniform = [], []
        for a, c in index.terms:
            value, depth = self.symbol(a)
            if isinstance(value, VectorValue):
                others.append((value, depth, c))
            else:
                uniform.append((a, c))
        return stride, others, Affine(index.constant, tuple(uniform), index.low, index.high)

    def scalar(self, index: Affine) -> tuple[Int, int]:
        """(value, depth) of an index, lane 0 of the vectorised variable; partial sums stand as far out as
        they can."""
        value, depth = self._sum(index)
        if index.constant == 0 and value is not None:
            return value, depth
        cached = self.lookup(self.scalars, index)
        if cached is None:
            if value is None:
                return self.f.i64(index.constant), 0
            with self.at(depth):
                cached = self.memoize(self.scalars, index, depth, (value + index.constant, depth))
        return cached

    def _sum(self, index: Affine) -> tuple[Int | None, int]:
        """Sum of the terms without the constant."""
        groups: dict[int, list[tuple[Symbol, int]]] = {}
        for a, c in index.terms:
            groups.setdefault(self.symbol(a)[1], []).append((a, c))
        total: Int | None = None
        done: tuple[tuple[Symbol, int], ...] = ()
        depth = 0
        for depth in sorted(groups):
            total = self._plus(total, done, groups[depth], depth)
            done = (*done, *groups[depth])
        return total, depth

    def _plus(
        self,
        total: Int | None,
        done: tuple[tuple[Symbol, int], ...],
        terms: Iterable[tuple[Symbol, int]],
        depth: int,
    ) -> Int | None:
        """`total`, the sum of the terms `done`, plus terms that are known from one depth on."""
        for a, c in terms:
            done = (*done, (a, c))
            cached = self.lookup(self.sums, done)
            if cached is None:
                value = self.symbol(a)[0]
                assert isinstance(value, Int)
                with self.at(depth):
                    term = value if c == 1 else value * c
                    cached = self.memoize(self.sums, done, depth, term if total is None else total + term)
            total = cached
        return total

    def vectored(self, index: Affine, type_: str = "i64") -> tuple[VectorValue, int]:
        """(lanes, depth) of an index that varies between lanes; `type_` i32 only where its bounds fit."""
        key = (index, type_)
        cached = self.lookup(self.vectors, key)
        if cached is not None:
            return cached
        vector = self.vector
        assert vector is not None
        stride, others, rest = self.vector_parts(index)
        base, depth = self.scalar(rest)
        depth = max([depth, *(d for _, d, _ in others)])
        lanes = vector[1]
        lanes_type = vector_type(type_, lanes)
        with self.at(depth) as f:
            total = (base.truncate("i32") if type_ == "i32" else VectorValue.of(f, base)).splat(lanes)
            if isinstance(stride, Size):
                listed = ", ".join(f"{type_} {k}" for k in range(lanes))
                total += VectorValue(lanes_type, f"<{listed}>", f) * stride
            elif stride:
                steps = ", ".join(f"{type_} {k * stride}" for k in range(lanes))
                total += Value(lanes_type, f"<{steps}>")
            for value, _, c in others:
                part = value.cast("trunc", "i32") if type_ == "i32" else value
                total += part * c
        return self.memoize(self.vectors, key, depth, (total, depth))

    def pointer(self, base: Ptr, type_: str, index: Affine) -> tuple[Ptr, int]:
        """(address, depth) of element `index` of `type_` after `base`: the address is advanced in each loop
        by what depends on that loop alone, and the constant comes last, so that it goes into the
        instruction."""
        groups: dict[int, list[tuple[Symbol, int]]] = {}
        for a, c in index.terms:
            groups.setdefault(self.symbol(a)[1], []).append((a, c))
        pointer, depth = base, 0
        done: tuple[tuple[Symbol, int], ...] = ()
        for depth in sorted(groups):
            part = tuple(groups[depth])
            done = (*done, *part)
            key = ("pointer", base.text, type_, done)
            cached = self.lookup(self.pointers, key)
            if cached is None:
                total = self._plus(None, (), part, depth)
                assert total is not None
                with self.at(depth):
                    cached = self.memoize(self.pointers, key, depth, pointer.at(total, type_))
            pointer = cached
        if index.constant:
            moved = ("pointer", base.text, type_, done, index.constant)
            cached = self.lookup(self.pointers, moved)
            if cached is None:
                with self.at(depth):
                    cached = self.memoize(self.pointers, moved, depth, pointer.at(index.constant, type_))
            pointer = cached
        return pointer, depth

    def moved(self, base: Ptr, offset: int) -> Ptr:
        """The address so many bytes after one that is known at depth 0."""
        key = ("moved", base.text, offset)
        cached = self.lookup(self.pointers, key)
        if cached is None:
            with self.at(0):
                cached = self.memoize(self.pointers, key, 0, base + offset)
        return cached
