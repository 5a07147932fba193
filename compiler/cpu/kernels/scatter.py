"""The kernel of scatter: combines updates into the arrays' own buffers, which it shares with the results.

Updates of one element must not run at the same time: tasks are positions along batching axes, positions along all axes
of the indices when these are unique, and else blocks of the columns of a window, for which every task walks all
indices. Elements are not divided among tasks: the task of an index cannot be foreseen, and an update costs less.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import Function, Index, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ....runtime.sizes import estimate, is_symbolic, larger, smaller, surely_less
from ...ir.module import Instruction
from ...ops import Scatter
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import Element, load, memory_type, register_type, single, store
from ..codegen.parallel_for import KERNEL_PARAMETERS
from ..codegen.scalar_computation import apply_scalars

_PARALLEL_BYTES = 1 << 17
_LINE_BYTES = 64
_UNROLL = 4
_PREFETCH_DISTANCE = 8  # updates; memory takes about as long as so many updates of a line
_PREFETCH_BYTES = 512  # of a row

Offsets = list[Int]  # in the indices, the updates and the arrays, in elements


def emit_scatter(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelInfo:
    """Writes the kernel.

    Raises: UnsupportedError  the update computation has no code for these elements.
    """
    return _Kernel(module, target, instruction).emit()


@dataclasses.dataclass(frozen=True)
class _Axis:
    """An axis of the updates: its dim and strides (elements) in the indices, the updates and the arrays."""

    dim: int
    index_stride: int
    update_stride: int
    array_stride: int

    @property
    def strides(self) -> tuple[int, int, int]:
        """The strides."""
        return self.index_stride, self.update_stride, self.array_stride


def _collapsed(axes: Sequence[_Axis]) -> list[_Axis]:
    """Neighbours that one counter can walk as one axis; axes of dim 1 left out."""
    result: list[_Axis] = []
    for axis in axes:
        if axis.dim == 1:
            continue
        before = result[-1] if result else None
        if before and all(b == a * axis.dim for a, b in zip(axis.strides, before.strides)):
            result[-1] = dataclasses.replace(axis, dim=before.dim * axis.dim)
        else:
            result.append(axis)
    return result


class _Kernel:
    def __init__(self, module: ModuleText, target: Target, instruction: Instruction) -> None:
        op = instruction.op
        assert isinstance(op, Scatter)
        self.op, self.module, self.target = op, module, target
        shapes = [o.shape for o in instruction.operands]
        self.count = len(shapes) // 2
        self.array, self.indices, self.update = shapes[0], shapes[self.count], shapes[-1]
        self.updates = shapes[self.count + 1 :]
        self.types = [s.element_type for s in self.updates]
        self.vector_stride = (*self.indices.strides, 1)[op.index_vector_dim]
        self.ordered, self.tasks_along = self._batch_axes()
        self.window = self._window_axes()
        last = self.window[-1] if self.window else None
        bits = max(
            64 if r == "double" else 32 if r == "float" else int(r[1:])
            for r in (register_type(t, 1) for t in self.types)
        )
        along = last is not None and last.update_stride == last.array_stride == 1
        self.lanes = target.lanes(max(8, bits)) if along else 1

    def _batch_axes(self) -> tuple[list[_Axis], list[_Axis]]:
        """(axes that are walked in order, axes whose positions are tasks)."""
        op, window = self.op, self.op.update_window_dims
        index_axes = [a for a in range(self.indices.rank) if a != op.index_vector_dim]
        update_axes = [a for a in range(self.update.rank) if a not in window]
        batching = dict(zip(op.scatter_indices_batching_dims, op.input_batching_dims))
        ordered: list[_Axis] = []
        free: list[_Axis] = []
        for index_axis, update_axis in zip(index_axes, update_axes, strict=True):
            array_axis = batching.get(index_axis)
            array_stride = 0 if array_axis is None else self.array.strides[array_axis]
            axis = _Axis(
                self.update.dims[update_axis],
                self.indices.strides[index_axis],
                self.update.strides[update_axis],
                array_stride,
            )
            is_free = array_axis is not None or (op.unique_indices and not self._overlaps())
            (free if is_free else ordered).append(axis)
        return _collapsed(ordered), _collapsed(free)

    def _window_sizes(self) -> dict[int, int]:
        """For each axis of the array that the window has, the axis of the updates."""
        inserted = (*self.op.inserted_window_dims, *self.op.input_batching_dims)
        window = [a for a in range(self.array.rank) if a not in inserted]
        return dict(zip(window, self.op.update_window_dims, strict=True))

    def _overlaps(self) -> bool:
        """Whether windows with different starts can have elements in common."""
        return any(
            axis in self.op.scatter_dims_to_operand_dims and self.update.dims[u] > 1
            for axis, u in self._window_sizes().items()
        )

    def _window_axes(self) -> list[_Axis]:
        return _collapsed(
            [
                _Axis(self.update.dims[u], 0, self.update.strides[u], self.array.strides[axis])
                for axis, u in self._window_sizes().items()
            ]
        )

    def emit(self) -> KernelInfo:
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        moved = estimate(sum(3 * u.bytes for u in self.updates))
        outer = math.prod(a.dim for a in self.tasks_along)
        self.block = self.window[-1].dim if self.window else 1
        blocks = self._blocks(outer, moved)
        tasks = outer * blocks if self.update.elements else 0
        if tasks:
            addresses = [(f.pointer("buffers") + 8 * k).load_ptr() for k in range(1 + 2 * self.count)]
            self.indices_buffer = addresses[0]
            self.update_buffers, self.array_buffers = (
                addresses[1 : 1 + self.count],
                addresses[1 + self.count :],
            )
            with f.loop(f.integer("low"), f.integer("high")) as task:
                self._task(task.index, blocks)
        f.ret()
        grain = max(1, estimate(tasks) * _PARALLEL_BYTES // max(1, 2 * moved))
        return KernelInfo(
            self.module.define("scatter", f),
            tasks,
            grain,
            (is_symbolic([tasks]) or tasks > 1) and moved > _PARALLEL_BYTES,
            flops=self.update.elements,
            bytes=moved,
            must_alias=tuple((k, k) for k in range(self.count)),
        )

    def _blocks(self, outer: int, moved: int) -> int:
        """Blocks of columns of the window, per task along the axes; sets their size."""
        last = self.window[-1] if self.window else None
        if last is None or self.lanes == 1 or outer > 1 or moved < _PARALLEL_BYTES:
            return 1
        lines = last.dim * min(t.item_bytes for t in self.types) // _LINE_BYTES
        shares = larger(1, smaller(self.target.threads, lines))
        self.block = -(-last.dim // shares // self.lanes) * self.lanes
        return -(-last.dim // self.block)

    def _task(self, task: Int, blocks: int) -> None:
        """All updates at one position along the task axes, or their columns of one block."""
        column = task % blocks * self.block
        rest = task // blocks
        offsets = [self.f.i64(0)] * 3
        for k, axis in reversed(list(enumerate(self.tasks_along))):
            index = rest % axis.dim if k else rest
            rest = rest // axis.dim
            offsets = _moved(offsets, index, axis)
        self._updates(self.ordered, offsets, column)

    def _updates(self, axes: Sequence[_Axis], offsets: Offsets, column: Int) -> None:
        """All updates along these axes, in order; the array of a later one is prefetched."""
        if not axes:
            self._update(offsets, column)
            return
        axis, *inner = axes
        with self.f.loop(0, axis.dim) as update:
            if not inner:
                later = (update.index + _PREFETCH_DISTANCE).minimum(axis.dim - 1)
                self._prefetch(_moved(offsets, later, axis), column)
            self._updates(inner, _moved(offsets, update.index, axis), column)

    def _prefetch(self, offsets: Offsets, column: Int) -> None:
        """Prefetches the part of a window's first row that the task will write, which lies anywhere; an address outside
        of the array does no harm."""
        if estimate(self.array.bytes) <= _PARALLEL_BYTES:
            return
        index_offset, _, array_offset = offsets
        for number, axis in enumerate(self.op.scatter_dims_to_operand_dims):
            start = self._start(index_offset + number * self.vector_stride)
            array_offset += start * self.array.strides[axis]
        array_offset += column
        last = self.window[-1] if self.lanes > 1 else None
        for k, (t, base) in enumerate(zip(self.types, self.array_buffers)):
            columns = min(estimate(last.dim), estimate(self.block)) if last else 0
            row = min(columns * t.item_bytes or 1, _PREFETCH_BYTES)
            for line in range(0, row, _LINE_BYTES):
                (self._pointer(k, base, array_offset) + line).prefetch(writes=True)

    def _update(self, offsets: Offsets, column: Int) -> None:
        """One window of updates, or the task's columns of it; none where it is not wholly inside the array."""
        index_offset, update_offset, array_offset = offsets
        sizes = self._window_sizes()
        valid: VectorValue | None = None
        for number, axis in enumerate(self.op.scatter_dims_to_operand_dims):
            start, dim = self._start(index_offset + number * self.vector_stride), self.array.dims[axis]
            size = self.update.dims[sizes[axis]] if axis in sizes else 1
            condition = start.compare("icmp ult", dim - size + 1)
            valid = valid & condition if valid else condition
            array_offset += start * self.array.strides[axis]
        with self.f.if_(valid) if valid else contextlib.nullcontext():
            self._rows(self.window, column, update_offset, array_offset)

    def _rows(
        self,
        axes: Sequence[_Axis],
        column: Int,
        update_offset: Int,
        array_offset: Int,
    ) -> None:
        """The elements of a window along these axes."""
        if not axes:
            self._combine(update_offset, array_offset, 1)
            return
        axis, *inner = axes
        if inner:
            with self.f.loop(0, axis.dim) as row:
                update = update_offset + row.index * axis.update_stride
                self._rows(inner, column, update, array_offset + row.index * axis.array_stride)
            return
        low: Index = 0
        high: Index = axis.dim
        if not surely_less(axis.dim, self.block + 1):
            low, high = column, (column + self.block).minimum(axis.dim)

        def elements(k: Int, lanes: int) -> None:
            update = update_offset + k * axis.update_stride
            self._combine(update, array_offset + k * axis.array_stride, lanes)

        self._row(low, high, elements)

    def _row(self, low: Index, high: Index, body: Callable[[Int, int], None]) -> None:
        """body(k, lanes) for low <= k < high: several vectors at a time, then one, then parts of one where the count of
        the remaining ones is a number, then single elements."""
        start, halves = low, range(0)
        if isinstance(high, int):
            halves = range(1, self.lanes.bit_length() - 1)
        shapes = ((self.lanes, _UNROLL), (self.lanes, 1), *((self.lanes >> k, 1) for k in halves), (1, 1))
        for width, count in dict.fromkeys(shapes):
            step = width * count
            if isinstance(start, int) and isinstance(high, int):
                end: Index = start + (high - start) // step * step
            elif step == 1:
                end = high
            else:
                end = start + (self.f.i64(high) - start & -step)
            with self.f.loop(start, end, step) as vectors:
                for u in range(count):
                    body(vectors.index + u * width, width)
            start = end

    def _combine(self, update_offset: Int, array_offset: Int, lanes: int) -> None:
        """The computation on elements of all arrays and their updates."""
        f = self.f
        pointers = [self._pointer(k, base, array_offset) for k, base in enumerate(self.array_buffers)]
        old = [load(f, t, p, lanes) for t, p in zip(self.types, pointers)]
        update = [
            load(f, t, self._pointer(k, base, update_offset), lanes)
            for k, (t, base) in enumerate(zip(self.types, self.update_buffers))
        ]
        results: list[Element] = apply_scalars(f, self.op.to_apply, [*old, *update], lanes)
        for t, result, pointer in zip(self.types, results, pointers):
            store(f, t, result, pointer, lanes)

    def _pointer(self, number: int, base: Ptr, offset: Int) -> Ptr:
        t = self.types[number]
        return base.at(offset * (2 if t.is_complex else 1), memory_type(t))

    # -- indices
    def _start(self, offset: Int) -> Int:
        """An index as i64; u64 ones beyond s64 are negative."""
        f, t = self.f, self.indices.element_type
        address = self.indices_buffer.at(offset, memory_type(t))
        number = single(load(f, t, address, 1))
        return Int.of(f, number.cast("zext" if t.is_unsigned else "sext", "i64"))


def _moved(offsets: Offsets, index: Int, axis: _Axis) -> Offsets:
    return [offset + index * stride for offset, stride in zip(offsets, axis.strides)]
