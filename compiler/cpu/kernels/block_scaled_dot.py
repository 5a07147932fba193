"""The kernel of block-scaled-dot: weights of four bits become floats in registers.

    for each tile of columns, and of rows:
        sums = 0
        for each chunk of weights, of one block:
            for k in the chunk:
                sums += values[:, k] * ((weights[k, :] - zero) * scale)
        result = sums

A product of few rows takes as long as it takes to read the weights; it reads chunk by chunk, in the order of memory:

    result = 0
    for each chunk of weights, of one block:
        for each tile of columns, and of rows:
            sums = 0
            for k in the chunk:
                sums += values[:, k] * (weights[k, :] - zero)
            result += sums * scale

A vector of bytes is two vectors of weights, of the even and of the odd columns; so are sums, scales and zeros, until
the sums are stored.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import vector_type
from ...ir.module import Instruction
from ...ops import BlockScaledDot
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS

_FEW_ROWS = 2  # of a tile: sums of a block have registers of their own
_CHUNK_ROWS = 64  # of weights
_TASK_FLOPS = 1 << 18
_ROWS_OF_A_TASK = 192
_TASKS_OF_A_THREAD = 4
_FLOAT_BYTES = 4
_CACHE_LINE = 64  # bytes
_ODD = 16.0
_TABLE = "<" + ", ".join(f"float {q if q < 8 else q - 16}.0" for q in range(16)) + ">"
Vectors = list[VectorValue]
_Chunk = tuple[Int, Int, Int]  # its block, its first row of weights, the one behind its last


@dataclasses.dataclass(frozen=True)
class _Tile:
    """Rows and columns whose sums are in registers at a time: of `pairs` vectors of bytes, `lanes` each. `is_half`: of
    the last byte's first column alone. `sums_are_scaled`: of a chunk, not its weights: of few rows."""

    rows: int
    lanes: int
    pairs: int
    is_half: bool = False
    sums_are_scaled: bool = False

    @property
    def bytes(self) -> int:
        """Of a row of weights."""
        return self.lanes * self.pairs

    @property
    def vectors(self) -> int:
        """Of floats, for a row."""
        return 1 if self.is_half else 2 * self.pairs


_Step = Callable[[_Chunk, Vectors], Vectors]
_WriteColumns = Callable[[Int, Int, _Tile], None]


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
        """Rows of a tile, and its vectors of bytes: as many as there are registers for, at most a cache line."""
        registers = self.target.registers - 2
        if self.target.is_small or self.lanes == 1:
            return 1, 1
        if rows <= _FEW_ROWS:
            rows = max(1, rows)
            pairs = max(1, (registers - 4) // (2 * rows))
            return rows, min(1 << (pairs.bit_length() - 1), max(1, _CACHE_LINE // self.lanes))
        own = 8 if self.op.has_zeros else 6  # weights, scales, zeros, a value
        return max(1, min(rows, (registers - own) // 2)), 1

    def emit(self) -> KernelInfo:
        """Tasks count columns first. The last columns, which are no whole tile, are the last such task's."""
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        tile = _Tile(self.rows, self.lanes, self.pairs, sums_are_scaled=self.rows <= _FEW_ROWS)
        whole, threads = self.n // 2 // tile.bytes * tile.bytes, self.target.threads
        shares = 1 if threads == 1 else _TASKS_OF_A_THREAD * threads
        task_bytes = max(1, -(-whole // tile.bytes // shares)) * tile.bytes
        task_rows = max(self.rows, _ROWS_OF_A_TASK // self.rows * self.rows)
        columns = max(1, -(-whole // task_bytes))
        tasks = columns * -(-self.m // task_rows) if self.n else 0
        if tasks:
            self._load_operands()
            with f.loop(f.integer("low"), f.integer("high")) as task:
                number = task.index % columns
                row, low = task.index // columns * task_rows, number * task_bytes
                self._write_task(row, (row + task_rows).minimum(self.m), low, task_bytes, whole, tile)
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

    def _write_task(self, row: Int, end_row: Int, low: Int, task_bytes: int, whole: int, tile: _Tile) -> None:
        """Rows from `row` on and columns from the byte `low` on."""
        f = self.f
        high = (low + task_bytes).minimum(whole)
        is_last = high.equals(whole)

        def each_column(write: _WriteColumns) -> None:
            with f.loop(low, high, tile.bytes) as at:
                self._each_row(row, end_row, at.index, tile, write)
            if self.n > 2 * whole:
                with f.if_(is_last):
                    self._each_last_column(row, end_row, whole, write)

        if not tile.sums_are_scaled:
            each_column(self._write_tile)
            return
        end_column = is_last.choose(f.i64(self.n), high * 2)
        with f.loop(row, end_row) as r:
            first = self.result.at(r.index * self.n + low * 2, "float")
            f.call("memset", "ptr", [first, f.constant("i32", 0), (end_column - low * 2) * _FLOAT_BYTES])

        def add_chunk(chunk: _Chunk, nothing: Vectors) -> Vectors:
            each_column(lambda row, at, tile: self._add_to_tile(row, at, tile, chunk))
            return nothing

        self._each_chunk(add_chunk, [])

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

    def _each_chunk(self, step: _Step, sums: Vectors) -> Vectors:
        """What follows from sums by one step after the other, each for some rows of weights of one block."""
        return self._each_chunk_of_blocks(step, sums) if self.op.block_size else self._each_run(step, sums)

    def _each_chunk_of_blocks(self, step: _Step, sums: Vectors) -> Vectors:
        """Blocks of the same number of rows, the last of which may have fewer."""
        f, size = self.f, self.op.block_size
        with f.loop(0, -(-self.k // size), sums=sums) as block:
            low = block.index * size
            high = (low + size).minimum(self.k)
            with f.loop(low, high, _CHUNK_ROWS, sums=block.sums) as chunk:
                end = (chunk.index + _CHUNK_ROWS).minimum(high)
                chunk.sums = step((block.index, chunk.index, end), chunk.sums)
            block.sums = chunk.sums
        result: Vectors = block.sums
        return result

    def _each_run(self, step: _Step, sums: Vectors) -> Vectors:
        """Rows of one block after the other, as the numbers of their blocks say."""
        f, numbers = self.f, self.numbers
        assert numbers is not None

        def number(k: Int) -> VectorValue:
            return numbers.at(k, "i32").load("i32")

        with f.repeat(low=f.i64(0), sums=sums) as run:
            run.while_(run.low < self.k)
            first, most = number(run.low), (run.low + _CHUNK_ROWS).minimum(self.k)
            with f.repeat(high=run.low + 1) as end:
                end.while_(end.high < most)
                end.while_(number(end.high).equals(first))
                end.high = end.high + 1
            block = Int.of(f, first.cast("sext", "i64")).maximum(0).minimum(self.blocks - 1)
            run.sums = step((block, run.low, end.high), run.sums)
            run.low = end.high
        result: Vectors = run.sums
        return result

    def _each_last_column(self, row: Int, end_row: Int, at: int, write: _WriteColumns) -> None:
        """The columns from a byte on: tiles of ever fewer bytes, and the half byte of an odd number."""
        missing, lanes = self.n // 2 - at, self.lanes
        while missing:
            pairs = min(self.pairs, missing // lanes)
            if pairs:
                self._each_row(row, end_row, self.f.i64(at), _Tile(self.rows, lanes, pairs), write)
                at, missing = at + lanes * pairs, missing - lanes * pairs
            else:
                lanes //= 2
        if self.n % 2:
            self._each_row(row, end_row, self.f.i64(at), _Tile(self.rows, 1, 1, is_half=True), write)

    def _each_row(self, low: Int, high: Int, at: Int, tile: _Tile, write: _WriteColumns) -> None:
        """The rows of a task: whole tiles, then those of what is left, which only the last task has."""
        f, left = self.f, self.m % tile.rows
        whole = low + (high - low) // tile.rows * tile.rows
        with f.loop(low, whole, tile.rows) as row:
            write(row.index, at, tile)
        if left:
            with f.if_(whole < high):
                write(whole, at, dataclasses.replace(tile, rows=left))

    def _write_tile(self, row: Int, at: Int, tile: _Tile) -> None:
        """The products with all weights."""
        zeros = [self.f.zero(vector_type("float", tile.lanes))] * (tile.rows * tile.vectors)

        def add_chunk(chunk: _Chunk, sums: Vectors) -> Vectors:
            return self._sum(row, at, tile, chunk, sums, self._scales(at, tile, chunk))

        self._store_rows(row, at, tile, self._each_chunk(add_chunk, zeros))

    def _add_to_tile(self, row: Int, at: Int, tile: _Tile, chunk: _Chunk) -> None:
        """Adds the products with a chunk of weights."""
        zeros = [self.f.zero(vector_type("float", tile.lanes))] * (tile.rows * tile.vectors)
        scales = self._scales(at, tile, chunk) * tile.rows
        old = [v for result in self._results(row, at, tile) for v in self._columns(result, "float", tile)]
        sums = self._sum(row, at, tile, chunk, zeros, None)
        self._store_rows(row, at, tile, [s.fma(scale, v) for s, scale, v in zip(sums, scales, old)])

    def _scales(self, at: Int, tile: _Tile, chunk: _Chunk) -> Vectors:
        """The scales of a tile's columns, those of odd ones divided by _ODD."""
        scales = self._columns(self.scales.at(chunk[0] * self.n + at * 2, "float"), "float", tile)
        return [s * (1 / _ODD) if number % 2 else s for number, s in enumerate(scales)]

    def _sum(
        self, row: Int, at: Int, tile: _Tile, chunk: _Chunk, sums: Vectors, scales: Vectors | None
    ) -> Vectors:
        """Sums, and the products with a chunk of weights, times their scales."""
        f, (block, low, high) = self.f, chunk
        zeros = None
        if self.zeros is not None:
            zeros = self._columns(self.zeros.at(block * self.n + at * 2), "i8", tile)
            zeros = [z * _ODD if number % 2 else z for number, z in enumerate(zeros)]
        values = [self.values.at((row + r) * self.k, "float") for r in range(tile.rows)]
        with f.loop(low, high, sums=sums, weights=self.weights + low * self.row_bytes + at) as step:
            numbers = self._weights(step.weights, tile)
            if scales is None:  # few products hide little
                (step.weights + tile.bytes).prefetch()
            if zeros is not None:
                numbers = [q - zero for q, zero in zip(numbers, zeros)]
            if scales is not None:
                numbers = [q * scale for q, scale in zip(numbers, scales)]
            total: Vectors = []
            for r, pointer in enumerate(values):
                value = pointer.at(step.index, "float").load("float").splat(tile.lanes)
                before = step.sums[r * tile.vectors : (r + 1) * tile.vectors]
                total += [value.fma(q, s) for q, s in zip(numbers, before)]
            step.sums, step.weights = total, step.weights + self.row_bytes
        result: Vectors = step.sums
        return result

    def _results(self, row: Int, at: Int, tile: _Tile) -> list[Ptr]:
        """Where the rows of a tile are."""
        return [self.result.at((row + r) * self.n + at * 2, "float") for r in range(tile.rows)]

    def _store_rows(self, row: Int, at: Int, tile: _Tile, sums: Vectors) -> None:
        for r, result in enumerate(self._results(row, at, tile)):
            self._store(result, sums[r * tile.vectors : (r + 1) * tile.vectors], tile)

    def _weights(self, source: Ptr, tile: _Tile) -> Vectors:
        """The integers of a row as floats: for each vector of bytes those of even columns, and those of odd ones times
        _ODD, which are the bytes without their low halves."""
        numbers: Vectors = []
        for pair in range(tile.pairs):
            both = (source + pair * tile.lanes).load(vector_type("i8", tile.lanes), 1)
            both = both.cast("sext", "i32")
            is_looked_up = self.table is not None and tile.lanes == 16
            low = self._looked_up(both) if is_looked_up else ((both << 28) >> 28).cast("sitofp", "float")
            numbers += [low, (both & -16).cast("sitofp", "float")]
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
