"""A tile of C in registers, and the rank-1 update of it: what every microkernel's inner loop consists of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....runtime.llvm.addressing import Ptr
from ....runtime.llvm.ir_builder import Function
from ....runtime.llvm.vector_value import VectorValue
from .compute_types import Compute


class RegisterTile:
    """`rows` rows of `width` vectors of C. Its values are listed row by row."""

    def __init__(self, f: Function, compute: Compute, rows: int, width: int) -> None:
        self.f, self.compute, self.rows, self.width = f, compute, rows, width

    def zeros(self) -> list[VectorValue]:
        """Sums of nothing."""
        return [self.f.zero(self.compute.vector)] * (self.rows * self.width)

    def addresses(self, rows: Sequence[Ptr]) -> list[Ptr]:
        """Where the vectors of the tile lie, from the addresses of its rows."""
        return [row + j * self.compute.vector_bytes for row in rows for j in range(self.width)]

    def load(self, addresses: Sequence[Ptr]) -> list[VectorValue]:
        """The tile from memory."""
        return [p.load(self.compute.vector) for p in addresses]

    def plus_old(
        self, accumulates: VectorValue | None, sums: list[VectorValue], addresses: Sequence[Ptr]
    ) -> list[VectorValue]:
        """The sums, to which the tile from memory is added where the condition holds; None: it never does.

        A block is summed on its own: what rounding loses grows with the length of a block, not with that of the whole
        sum.
        """
        if accumulates is None:
            return sums
        with self.f.if_(accumulates) as end:
            end.tile = add(sums, self.load(addresses))
        with end.else_():
            end.tile = sums
        tile: list[VectorValue] = end.tile
        return tile

    def store(self, tile: Sequence[VectorValue], addresses: Sequence[Ptr]) -> None:
        """The tile to memory."""
        for value, p in zip(tile, addresses, strict=True):
            p.store(value)

    def rank_1_update(
        self, tile: Sequence[VectorValue], a: Callable[[int], Ptr], b: Ptr, offset: int = 0
    ) -> list[VectorValue]:
        """tile[r, :] + A[r] * B[:]: `a` gives the address of A's element for a row; B's vectors are `offset` bytes
        after `b`."""
        compute, width = self.compute, self.width
        row_of_b = [(b + (offset + j * compute.vector_bytes)).load(compute.vector) for j in range(width)]
        updated = []
        for r in range(self.rows):
            x = compute.broadcast(a(r).load(compute.type))
            updated += [compute.multiply_add(x, row_of_b[j], tile[r * width + j]) for j in range(width)]
        return updated


def add(a: Sequence[VectorValue], b: Sequence[VectorValue]) -> list[VectorValue]:
    """The sums of two tiles."""
    return [x + y for x, y in zip(a, b, strict=True)]
