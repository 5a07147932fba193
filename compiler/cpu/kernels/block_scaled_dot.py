"""The kernel of block-scaled-dot: weights of four bits become floats in registers, and are read once for each tile.

    for each tile of rows and of columns:
        sums = 0
        for each block of rows of weights:
            for k in the block:
                sums += values[:, k] * ((weights[k, :] - zero) * scale)
        result = sums

A vector of bytes is two vectors of weights, of the even and of the odd columns; so are sums, scales and zeros, until
they are stored. In a tile of few rows products of a block are summed without the scale, by which the sum is multiplied.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import vector_type
from ...ir.module import Instruction
from ...ops import BlockScaledDot
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS

_FEW_ROWS = 2  # of a tile: sums of a block have registers of their own
_TASK_FLOPS = 1 << 18
_ROW_TILES = 16  # of a task
_TABLE = "<" + ", ".join(f"float {q if q < 8 else q - 16}.0" for q in range(16)) + ">"
Vectors = list[VectorValue]


@dataclasses.dataclass(frozen=True)
class _Tile:
    """Rows and columns whose sums are in registers at a time: of `pairs` vectors of bytes, `lanes` each. `is_half`: of
    the last byte's first column alone."""

    rows: int
    lanes: int
    pairs: int
    is_half: bool = False

    @property
    def bytes(self) -> int:
        """Of a row of weights."""
        return self.lanes * self.pairs

    @property
    def vectors(self) -> int:
        """Of floats, for a row."""
        return 1 if self.is_half else 2 * self.pairs


def emit_block_scaled_dot(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelInfo:
    """Writes the kernel. A task is a block of rows and of columns."""
    return _Kernel(module, target, instruction).emit()


class _Kernel:
    """The kernel under construction. `table` is where the floats of the sixteen integers are looked up, if they are."""

    def __init__(self, module: ModuleText, target: Target, instruction: Instruction) -> None:
        assert isinstance(instruction.op, BlockScaledDot)
        self.module, self.target, self.op = module, target, instruction.op
        shapes = [o.shape for o in instruction.operands]
        (self.m, self.k), (self.blocks, self.n) = shapes[0].dims, shapes[2].dims
        self.row_bytes = shapes[1].dims[1]
        self.flops = self.op.flops(instruction)
        self.bytes = sum(s.bytes for s in (*shapes, instruction.shape))
        self.lanes = target.lanes(32)
        self.rows, self.pairs = self._tile_of(self.m)
        self.operands = len(shapes)

    def _tile_of(self, rows: int) -> tuple[int, int]:
        """Rows of a tile, and its vectors of bytes: as many as there are registers for."""
        registers = self.target.registers - 2
        if self.target.is_small or self.lanes == 1:
            return 1, 1
        if rows <= _FEW_ROWS:
            rows = max(1, rows)
            return rows, 1 << (max(1, (registers - 4) // (4 * rows)).bit_length() - 1)
        own = 8 if self.op.has_zeros else 6  # weights, scales, zeros, a value
        return max(1, min(rows, (registers - own) // 2)), 1

    def emit(self) -> KernelInfo:
        """Tasks count columns first."""
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        task_bytes, task_rows = self.lanes * self.pairs, self.rows * _ROW_TILES
        whole = self.n // 2 // task_bytes
        columns = whole + (self.n > 2 * whole * task_bytes)
        tasks = columns * -(-self.m // task_rows)
        if tasks:
            self._load_operands()
            with f.loop(f.integer("low"), f.integer("high")) as task:
                row = task.index // columns * task_rows
                high, at = (row + task_rows).minimum(self.m), task.index % columns * task_bytes
                with f.if_((task.index % columns).differs(whole)) as is_whole:
                    self._rows(row, high, at, _Tile(self.rows, self.lanes, self.pairs))
                with is_whole.else_():
                    self._last_columns(row, high, whole * task_bytes)
        f.ret()
        each = max(1, self.flops // max(1, tasks))
        return KernelInfo(
            self.module.define("block_scaled_dot", f),
            tasks,
            max(1, min(tasks, _TASK_FLOPS // each)),
            tasks > 1 and self.target.threads > 1 and self.flops > 2 * _TASK_FLOPS,
            flops=self.flops,
            bytes=self.bytes,
        )

    def _load_operands(self) -> None:
        """The addresses of the operands and the result."""
        f = self.f
        pointers = [f.pointer("buffers").at(j, "ptr").load_ptr() for j in range(self.operands + 1)]
        self.values, self.weights, self.scales, *others, self.result = pointers
        self.zeros = others[0] if self.op.has_zeros else None
        self.numbers = others[-1] if not self.op.block_size else None
        self.table = None
        if self.target.is_x86 and self.lanes == 16:
            self.table = VectorValue("<16 x float>", _TABLE, f)

    def _last_columns(self, row: Int, high: Int, at: int) -> None:
        """The columns from a byte on: tiles of ever fewer bytes, and the half byte of an odd number."""
        missing, lanes = self.n // 2 - at, self.lanes
        while missing:
            pairs = min(self.pairs, missing // lanes)
            if pairs:
                self._rows(row, high, self.f.i64(at), _Tile(self.rows, lanes, pairs))
                at, missing = at + lanes * pairs, missing - lanes * pairs
            else:
                lanes //= 2
        if self.n % 2:
            self._rows(row, high, self.f.i64(at), _Tile(self.rows, 1, 1, is_half=True))

    def _rows(self, low: Int, high: Int, at: Int, tile: _Tile) -> None:
        """The rows of a task: whole tiles, then those of what is left, which only the last task has."""
        f, left = self.f, self.m % tile.rows
        whole = low + (high - low) // tile.rows * tile.rows
        with f.loop(low, whole, tile.rows) as row:
            self._write_tile(row.index, at, tile)
        if left:
            with f.if_(whole < high):
                self._write_tile(whole, at, dataclasses.replace(tile, rows=left))

    def _write_tile(self, row: Int, at: Int, tile: _Tile) -> None:
        f = self.f
        sums = [f.zero(vector_type("float", tile.lanes))] * (tile.rows * tile.vectors)
        if self.numbers is None:
            sums = self._sum_equal_blocks(row, at, tile, sums)
        else:
            sums = self._sum_runs(row, at, tile, sums)
        for r in range(tile.rows):
            to = self.result.at((row + r) * self.n + at * 2, "float")
            self._store(to, sums[r * tile.vectors : (r + 1) * tile.vectors], tile)

    def _sum_equal_blocks(self, row: Int, at: Int, tile: _Tile, sums: Vectors) -> Vectors:
        """Blocks of the same number of rows, the last of which may have fewer."""
        f, size = self.f, self.op.block_size
        with f.loop(0, -(-self.k // size), sums=sums) as block:
            low = block.index * size
            high = (low + size).minimum(self.k)
            block.sums = self._sum_block(block.index, low, high, (row, at), tile, block.sums)
        result: Vectors = block.sums
        return result

    def _sum_runs(self, row: Int, at: Int, tile: _Tile, sums: Vectors) -> Vectors:
        """Rows of one block after the other, as the numbers of their blocks say."""
        f, numbers = self.f, self.numbers
        assert numbers is not None

        def number(k: Int) -> VectorValue:
            return numbers.at(k, "i32").load("i32")

        with f.repeat(low=f.i64(0), sums=sums) as run:
            run.while_(run.low < self.k)
            first = number(run.low)
            with f.repeat(high=run.low + 1) as end:
                end.while_(end.high < self.k)
                end.while_(number(end.high).equals(first))
                end.high = end.high + 1
            block = Int.of(f, first.cast("sext", "i64")).maximum(0).minimum(self.blocks - 1)
            run.sums = self._sum_block(block, run.low, end.high, (row, at), tile, run.sums)
            run.low = end.high
        result: Vectors = run.sums
        return result

    def _sum_block(
        self, block: Int, low: Int, high: Int, place: tuple[Int, Int], tile: _Tile, sums: Vectors
    ) -> Vectors:
        """Sums and the products of rows of one block; `place` is the tile's first row and byte."""
        f, (row, at) = self.f, place
        column = block * self.n + at * 2
        scales = self._columns(self.scales.at(column, "float"), "float", tile)
        zeros = self._columns(self.zeros.at(column), "i8", tile) if self.zeros else None
        of_block = tile.rows <= _FEW_ROWS
        start = [s.number(0.0) for s in sums] if of_block else sums
        weights = self.weights + low * self.row_bytes + at
        values = [self.values.at((row + r) * self.k, "float") for r in range(tile.rows)]
        with f.loop(low, high, sums=start, weights=weights) as step:
            numbers = self._weights(step.weights, tile)
            if zeros is not None:
                numbers = [q - zero for q, zero in zip(numbers, zeros)]
            if not of_block:
                numbers = [q * scale for q, scale in zip(numbers, scales)]
            total: Vectors = []
            for r, pointer in enumerate(values):
                value = pointer.at(step.index, "float").load("float").splat(tile.lanes)
                old = step.sums[r * tile.vectors : (r + 1) * tile.vectors]
                total += [value.fma(q, s) for q, s in zip(numbers, old)]
            step.sums, step.weights = total, step.weights + self.row_bytes
        if not of_block:
            result: Vectors = step.sums
            return result
        return [b.fma(scale, s) for b, scale, s in zip(step.sums, scales * tile.rows, sums)]

    def _weights(self, source: Ptr, tile: _Tile) -> Vectors:
        """The integers of a row as floats: for each vector of bytes those of even and of odd columns."""
        numbers: Vectors = []
        for pair in range(tile.pairs):
            both = (source + pair * tile.lanes).load(vector_type("i8", tile.lanes), 1)
            if self.table is not None and tile.lanes == 16:
                both = both.cast("zext", "i32")
                numbers += [self._looked_up(both), self._looked_up(both.shift_right(4))]
                continue
            both = both.cast("sext", "i32")
            numbers += [q.cast("sitofp", "float") for q in ((both << 28) >> 28, both >> 4)]
        return numbers[: tile.vectors]

    def _looked_up(self, numbers: VectorValue) -> VectorValue:
        """The floats of the integers in the low four bits."""
        table = self.table
        assert table is not None
        return table.write(
            self.f.call_text("llvm.x86.avx512.permvar.sf.512", table.type, [table, numbers]), table.type
        )

    def _columns(self, source: Ptr, type_: str, tile: _Tile) -> Vectors:
        """A number for each column: for each vector of bytes the even and the odd ones."""
        lanes, found = tile.lanes, []
        for place in range(0, tile.vectors, 2):
            first = source.at(place * lanes, type_)
            if tile.is_half or lanes == 1:
                found += [first.at(j, type_).load(type_) for j in range(1 if tile.is_half else 2)]
                continue
            both = first.load(vector_type(type_, 2 * lanes), math.gcd(4, 1 if type_ == "i8" else 4))
            found += [both.shuffle(range(j, 2 * lanes, 2)) for j in range(2)]
        if type_ == "float":
            return found
        return [q.cast("sext", "i32").cast("sitofp", "float") for q in found]

    def _store(self, to: Ptr, sums: Sequence[VectorValue], tile: _Tile) -> None:
        """The sums of a row, even and odd columns together again."""
        lanes = tile.lanes
        for place in range(0, tile.vectors, 2):
            if tile.is_half or lanes == 1:
                for j in range(tile.vectors - place if tile.is_half else 2):
                    to.at(place + j, "float").store(sums[place + j])
                continue
            order = [j // 2 + lanes * (j % 2) for j in range(2 * lanes)]
            to.at(place * lanes, "float").store(sums[place].shuffle(order, sums[place + 1]), 4)
