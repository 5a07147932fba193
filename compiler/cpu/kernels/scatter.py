"""The kernel of scatter: combines updates into the arrays' own buffers, which it shares with the results.

Updates for one place must not run at the same time: tasks are positions along batching axes, positions along
all axes of the indices when these are unique, and else blocks of the columns of a window, for which every task walks
all indices. Places are not divided among tasks: whose an index is cannot be foreseen, and an update costs less.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64
from ....runtime.llvm.target import Target
from ...ir.module import Instruction
from ...ops import Scatter
from ...options import Options
from ..codegen.kernel_info import KernelPlan
from ..codegen.memory_types import Element, load, memory_type, register_type, single, store
from ..codegen.scalar_computation import apply_scalars

_PARALLEL_BYTES = 1 << 17
_LINE_BYTES = 64
_UNROLL = 4
_PREFETCH_AHEAD = 8  # places; memory takes about as long as so many updates of a line
_PREFETCH_BYTES = 512  # of a row

Offset = Value | int


def emit_scatter(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelPlan:
    """Writes the kernel.

    Raises: UnsupportedError  the update computation has no code for these elements.
    """
    return _Kernel(module, target, instruction).emit()


@dataclasses.dataclass(frozen=True)
class _Axis:
    """An axis of the updates: its dim and strides (elements) in the indices, the updates and the arrays.

    `scattered` is the number of the array's axis when the window's start along it is data.
    """

    dim: int
    index_stride: int
    update_stride: int
    array_stride: int
    scattered: int | None = None

    @property
    def strides(self) -> tuple[int, int, int]:
        """The strides."""
        return self.index_stride, self.update_stride, self.array_stride


def _collapsed(axes: Sequence[_Axis]) -> list[_Axis]:
    """Neighbours that one counter can walk made one axis; axes of dim 1 left out."""
    result: list[_Axis] = []
    for axis in axes:
        if axis.dim == 1 and axis.scattered is None:
            continue
        before = result[-1] if result else None
        if (
            before
            and before.scattered is axis.scattered is None
            and all(b == a * axis.dim for a, b in zip(axis.strides, before.strides))
        ):
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
        self.places, self.tasks_along = self._batch_axes()
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
        kept = [a for a in range(self.array.rank) if a not in inserted]
        return dict(zip(kept, self.op.update_window_dims, strict=True))

    def _overlaps(self) -> bool:
        """Whether windows with different starts can have places in common."""
        return any(
            axis in self.op.scatter_dims_to_operand_dims and self.update.dims[u] > 1
            for axis, u in self._window_sizes().items()
        )

    def _window_axes(self) -> list[_Axis]:
        axes = []
        for axis, u in self._window_sizes().items():
            size = self.update.dims[u]
            is_data = axis in self.op.scatter_dims_to_operand_dims and size != 1
            axes.append(
                _Axis(size, 0, self.update.strides[u], self.array.strides[axis], axis if is_data else None)
            )
        return _collapsed(axes)

    def emit(self) -> KernelPlan:
        f = self.f = Function(
            self.module,
            "SELF",
            (("ptr", "context"), ("ptr", "buffers"), ("i64", "low"), ("i64", "high"), ("i64", "thread")),
        )
        moved = sum(3 * u.bytes for u in self.updates)
        outer = math.prod(a.dim for a in self.tasks_along)
        self.block = self.window[-1].dim if self.window else 1
        blocks = self._blocks(outer, moved)
        tasks = outer * blocks if self.update.elements else 0
        if tasks:
            addresses = [f.load("ptr", f.offset(f["buffers"], 8 * k), 8) for k in range(1 + 2 * self.count)]
            self.indices_at = addresses[0]
            self.updates_at, self.arrays_at = addresses[1 : 1 + self.count], addresses[1 + self.count :]
            f.loop(f["low"], f["high"], 1, lambda task, _: self._task(task, blocks))
        f.ret()
        grain = max(1, tasks * _PARALLEL_BYTES // max(1, 2 * moved))
        return KernelPlan(
            self.module.define("scatter", f),
            tasks,
            grain,
            tasks > 1 and moved > _PARALLEL_BYTES,
            flops=self.update.elements,
            bytes=moved,
            initial=tuple((k, k) for k in range(self.count)),
        )

    def _blocks(self, outer: int, moved: int) -> int:
        """Blocks of columns of the window, per task along the axes; sets their size."""
        last = self.window[-1] if self.window else None
        if (
            last is None
            or last.scattered is not None
            or self.lanes == 1
            or outer > 1
            or moved < _PARALLEL_BYTES
        ):
            return 1
        lines = last.dim * min(t.item_bytes for t in self.types) // _LINE_BYTES
        pieces = max(1, min(self.target.threads, lines))
        self.block = -(-last.dim // pieces // self.lanes) * self.lanes
        return -(-last.dim // self.block)

    def _task(self, task: Value, blocks: int) -> None:
        f = self.f
        column = f.mul(f.remainder(task, blocks), self.block)
        rest: Offset = f.divide(task, blocks)
        at: list[Offset] = [0, 0, 0]
        for k, axis in reversed(list(enumerate(self.tasks_along))):
            here = f.remainder(rest, axis.dim) if k else rest
            rest = f.divide(rest, axis.dim)
            at = self._moved(at, here, axis)

        def place(n: int, at: list[Offset]) -> None:
            if n == len(self.places):
                self._update(at, column)
                return
            axis = self.places[n]

            def step(k: Value, _: list[Value]) -> None:
                if n == len(self.places) - 1:
                    ahead = self._moved(at, f.minimum(f.add(k, _PREFETCH_AHEAD), axis.dim - 1), axis)
                    self._prefetch(ahead, column)
                place(n + 1, self._moved(at, k, axis))

            f.loop(0, axis.dim, 1, step)

        place(0, at)

    def _prefetch(self, at: list[Offset], column: Offset) -> None:
        """Asks for what the task will write of a window's first row, which lies anywhere; an address outside of the
        array does no harm."""
        f = self.f
        if any(axis.scattered is not None for axis in self.window) or self.array.bytes <= _PARALLEL_BYTES:
            return
        index_at, _, array_at = at
        for number, axis in enumerate(self.op.scatter_dims_to_operand_dims):
            start = self._start(f.add(index_at, number * self.vector_stride))
            array_at = f.add(array_at, f.mul(start, self.array.strides[axis]))
        array_at = f.add(array_at, column)
        last = self.window[-1] if self.lanes > 1 else None
        for k, (t, base) in enumerate(zip(self.types, self.arrays_at)):
            row = min(min(last.dim, self.block) * t.item_bytes if last else 1, _PREFETCH_BYTES)
            for line in range(0, row, _LINE_BYTES):
                f.prefetch(f.offset(self._pointer(k, base, array_at), line), writes=True)

    def _moved(self, at: list[Offset], index: Offset, axis: _Axis) -> list[Offset]:
        return [self.f.add(a, self.f.mul(index, s)) for a, s in zip(at, axis.strides)]

    def _update(self, at: list[Offset], column: Offset) -> None:
        """One window of updates, or the task's columns of it."""
        f = self.f
        index_at, update_at, array_at = at
        sizes = self._window_sizes()
        valid: list[Value] = []
        ranges: dict[int, tuple[Offset, Offset]] = {}
        for number, axis in enumerate(self.op.scatter_dims_to_operand_dims):
            start, dim = self._start(f.add(index_at, number * self.vector_stride)), self.array.dims[axis]
            size = self.update.dims[sizes[axis]] if axis in sizes else 1
            if size == 1:
                valid.append(f.compare("icmp ult", start, i64(dim)))
            else:
                start = self._clamped(start, size, dim)
                low = f.intrinsic("smax", "i64", [i64(f.sub(0, start)), i64(0)])
                ranges[axis] = (low, f.minimum(f.sub(dim, start), size))
            array_at = f.add(array_at, f.mul(start, self.array.strides[axis]))

        def rows(n: int, update_at: Offset, array_at: Offset) -> None:
            if n == len(self.window):
                self._combine(update_at, array_at, 1)
                return
            axis = self.window[n]

            def moved(k: Offset) -> tuple[Offset, Offset]:
                return (
                    f.add(update_at, f.mul(k, axis.update_stride)),
                    f.add(array_at, f.mul(k, axis.array_stride)),
                )

            low, high = ranges[axis.scattered] if axis.scattered is not None else (0, axis.dim)
            if n == len(self.window) - 1:
                if self.block < axis.dim:
                    low, high = column, f.minimum(f.add(column, self.block), axis.dim)
                self._row(low, high, lambda k, lanes: self._combine(*moved(k), lanes))
            else:
                f.loop(low, high, 1, lambda k, _: rows(n + 1, *moved(k)))

        if not valid:
            rows(0, update_at, array_at)
            return
        all_valid = valid[0]
        for other in valid[1:]:
            all_valid = f.binary("and", all_valid, other)
        f.branch(all_valid, lambda: rows(0, update_at, array_at))

    def _row(self, low: Offset, high: Offset, body: Callable[[Offset, int], None]) -> None:
        """body(k, lanes) for low <= k < high: several vectors at a time, then one, then parts of one where it is known
        how many are left, then single elements."""
        f = self.f

        def steps(width: int, count: int) -> Callable[[Value, list[Value]], None]:
            def run(k: Value, _: list[Value]) -> None:
                for u in range(count):
                    body(f.add(k, u * width), width)

            return run

        done = low
        halves = (
            [self.lanes >> k for k in range(1, self.lanes.bit_length() - 1)] if isinstance(high, int) else []
        )
        for width, count in dict.fromkeys(
            ((self.lanes, _UNROLL), (self.lanes, 1), *((w, 1) for w in halves), (1, 1))
        ):
            step = width * count
            if isinstance(done, int) and isinstance(high, int):
                end: Offset = done + (high - done) // step * step
            elif step == 1:
                end = high
            else:
                end = f.add(done, f.binary("and", i64(f.sub(high, done)), i64(-step)))
            f.loop(done, end, step, steps(width, count))
            done = end

    def _combine(self, update_at: Offset, array_at: Offset, lanes: int) -> None:
        """The computation on elements of all arrays and their updates."""
        f = self.f
        pointers = [self._pointer(k, base, array_at) for k, base in enumerate(self.arrays_at)]
        old = [load(f, t, p, lanes) for t, p in zip(self.types, pointers)]
        update = [
            load(f, t, self._pointer(k, base, update_at), lanes)
            for k, (t, base) in enumerate(zip(self.types, self.updates_at))
        ]
        results: list[Element] = apply_scalars(f, self.op.to_apply, [*old, *update], lanes)
        for t, result, pointer in zip(self.types, results, pointers):
            store(f, t, result, pointer, lanes)

    def _pointer(self, number: int, base: Value, at: Offset) -> Value:
        t = self.types[number]
        return self.f.offset(base, self.f.mul(at, 2 if t.is_complex else 1), memory_type(t))

    # -- indices
    def _start(self, at: Offset) -> Value:
        """An index as i64; u64 ones beyond s64 are negative."""
        f, t = self.f, self.indices.element_type
        number = single(load(f, t, f.offset(self.indices_at, at, memory_type(t)), 1))
        return f.cast("zext" if t.is_unsigned else "sext", number, "i64")

    def _clamped(self, start: Value, size: int, dim: int) -> Value:
        """A start at which as much of the window lies in the array, and that is safe to calculate with."""
        f = self.f
        if self.indices.element_type.is_unsigned:
            return f.intrinsic("umin", "i64", [start, i64(dim)])
        least = f.intrinsic("smax", "i64", [start, constant("i64", -size)])
        return f.intrinsic("smin", "i64", [least, i64(dim)])
