"""The kernel of select-and-scatter: the way back of a pooling.

A window has several elements along some axes; along the others (size 1, no padding) it has one. Tasks run over
these free axes, and vectors along the last axis where it is free (the channels of an image): all lanes look
at one window, keep the number of the element that they selected, and then combine the source into the
elements of that number.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import (
    Function,
    Index,
    Int,
    ModuleText,
    Ptr,
    Value,
    VectorValue,
    split_vector,
    vector_type,
)
from ....runtime.llvm.target import Target
from ....runtime.sizes import ceiling, estimate, is_symbolic, surely_less
from ...ir.module import Instruction
from ...ops import SelectAndScatter
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import (
    Element,
    constant_element,
    load,
    memory_type,
    parts,
    register_type,
    select_element,
    single,
    splat,
    store,
)
from ..codegen.parallel_for import KERNEL_PARAMETERS, grain_of_work
from ..codegen.scalar_computation import apply_scalars

_UNROLLED = 16  # windows of at most this many elements that never leave the array are written without loops
_PARALLEL_ELEMENTS = 1 << 14
_MIN_TASKS = 8


def emit_select_and_scatter(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelInfo:
    """Writes the kernel.

    Raises: UnsupportedError  `select` or `scatter` has no code for these elements.
    """
    return _Kernel(module, target, instruction).emit()


@dataclasses.dataclass(frozen=True)
class _Axis:
    """An axis of the array: the window's entries along it, and the strides (elements) in array and source."""

    dim: int
    size: int
    stride: int
    low: int
    base_dilation: int
    dilation: int
    positions: int
    array_stride: int
    source_stride: int

    @property
    def is_free(self) -> bool:
        """The window has size 1 there, at the element of its own position."""
        return (
            self.size == self.stride == self.base_dilation == 1
            and self.low == 0
            and self.positions == self.dim
        )

    @property
    def is_inside(self) -> bool:
        """No position of the window sees padding."""
        last = (self.positions - 1) * self.stride + (self.size - 1) * self.dilation
        return self.base_dilation == 1 and surely_less(self.low, 1) and surely_less(last - self.low, self.dim)

    @property
    def is_disjoint(self) -> bool:
        """Windows at different positions have no element in common, and none is seen twice."""
        return self.is_inside and self.dilation == 1 and self.stride >= self.size

    @property
    def is_covered(self) -> bool:
        """Every element is seen by a window."""
        return (
            self.is_inside
            and self.stride == self.size
            and self.low == 0
            and self.positions * self.size == self.dim
        )


class _Kernel:
    def __init__(self, module: ModuleText, target: Target, instruction: Instruction) -> None:
        assert isinstance(instruction.op, SelectAndScatter)
        self.op, self.module = instruction.op, module
        array, source, _ = (o.shape for o in instruction.operands)
        self.t, self.array, self.source = array.element_type, array, source
        w = self.op.window
        axes = [
            _Axis(*entries)
            for entries in zip(
                array.dims,
                w.size,
                w.stride,
                w.pad_low,
                w.base_dilation,
                w.window_dilation,
                source.dims,
                array.strides,
                source.strides,
            )
        ]
        self.along = axes.pop() if axes and axes[-1].is_free and axes[-1].dim > 1 else None
        self.free = [a for a in axes if a.is_free]
        self.window = [a for a in axes if not a.is_free]
        bits = max(
            8,
            int(
                {"float": "i32", "double": "i64"}.get(
                    split_vector(register_type(self.t, 1))[0], register_type(self.t, 1)
                )[1:]
            ),
        )
        self.lanes = 1 if self.along is None else max(1, target.lanes(bits))
        self.count = math.prod(a.size for a in self.window)
        self.number_bits = bits if self.count < 1 << (bits - 1) else 32
        self.is_unrolled = self.count <= _UNROLLED and all(a.is_inside for a in self.window)
        self.is_direct = all(a.is_disjoint for a in self.window)

    def emit(self) -> KernelInfo:
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        outer = math.prod(a.dim for a in self.free)
        blocks = self._divide(outer)
        tasks = outer * blocks if self.array.elements else 0
        if tasks:
            self.operand, self.source_buffer, init, self.result = (
                (f.pointer("buffers") + 8 * k).load_ptr() for k in range(4)
            )
            self.init = load(f, self.t, init, 1)
            with f.loop(f.integer("low"), f.integer("high")) as task:
                self._task(task.index, blocks)
        f.ret()
        work = self.array.elements + self.source.elements * self.count
        if is_symbolic([work]):
            parallel, grain = True, grain_of_work(tasks, 2 * work, _PARALLEL_ELEMENTS, 2 * _PARALLEL_ELEMENTS)
        else:
            parallel = tasks > 1 and work > _PARALLEL_ELEMENTS
            grain = max(1, tasks * _PARALLEL_ELEMENTS // max(1, 2 * work))
        return KernelInfo(
            self.module.define("select_and_scatter", f),
            tasks,
            grain,
            parallel,
            flops=estimate(work),
            bytes=2 * self.array.bytes + self.source.bytes,
        )

    def _divide(self, outer: int) -> int:
        """Blocks of the vectorised axis per position on the free axes; sets the block's size."""
        self.block = self.along.dim if self.along else 1
        if self.along and 0 < estimate(outer) < _MIN_TASKS:
            whole = ceiling(self.along.dim, self.lanes)
            self.block = ceiling(whole * outer, _MIN_TASKS) * self.lanes
        return -(-self.along.dim // self.block) if self.along and self.along.dim else 1

    def _task(self, task: Int, blocks: int) -> None:
        """All windows at one position on the free axes, for one block of the vectorised axis."""
        first = task % blocks * self.block
        rest = task // blocks
        operand = source = self.f.i64(0)
        for axis in reversed(self.free):
            index = rest % axis.dim
            rest = rest // axis.dim
            operand += index * axis.array_stride
            source += index * axis.source_stride
        if not (self.is_direct and all(a.is_covered for a in self.window)):
            self._fill(self.window, operand, first)
        self._positions(first, operand, source, [])

    def _positions(self, first: Int, operand: Int, source: Int, starts: list[Int]) -> None:
        """All windows that start at `starts` along the first axes."""
        if len(starts) == len(self.window):
            self._along(
                first, lambda c, lanes, mask: self._window(starts, operand + c, source + c, lanes, mask)
            )
            return
        axis = self.window[len(starts)]
        with self.f.loop(0, axis.positions) as position:
            start = position.index * axis.stride - axis.low
            self._positions(first, operand, source + position.index * axis.source_stride, [*starts, start])

    def _along(self, first: Int, body: Callable[[Int, int, VectorValue | None], None]) -> None:
        """body(offset, lanes, mask) for the block of the vectorised axis that begins at `first`."""
        f = self.f
        if self.along is None:
            body(f.i64(0), 1, None)
            return
        dim, lanes = self.along.dim, self.lanes
        full = dim // lanes * lanes
        with f.loop(first, (first + self.block).minimum(full), lanes) as vector:
            body(vector.index, lanes, None)
        if full == dim:
            return
        with f.if_(first + self.block >= dim) if self.block < dim else contextlib.nullcontext():
            if self.t.bits >= 32 and dim - full > 1:
                listed = ", ".join(f"i1 {'true' if k < dim - full else 'false'}" for k in range(lanes))
                body(f.i64(full), lanes, VectorValue(f"<{lanes} x i1>", f"<{listed}>", f))
            else:
                with f.loop(full, dim) as element:
                    body(element.index, 1, None)

    def _fill(self, axes: Sequence[_Axis], offset: Int, first: Int) -> None:
        """The initial value everywhere along these axes."""
        f = self.f
        if not axes:
            self._along(
                first, lambda c, lanes, mask: self._store(splat(f, self.init, lanes), offset + c, lanes, mask)
            )
            return
        with f.loop(0, axes[0].dim) as index:
            self._fill(axes[1:], offset + index.index * axes[0].array_stride, first)

    def _window(
        self, starts: Sequence[Int], operand: Int, source: Int, lanes: int, mask: VectorValue | None
    ) -> None:
        """One window: selects an element per lane, then combines the source into the selected ones."""
        number_type = vector_type(f"i{self.number_bits}", lanes)
        initial = parts(constant_element(self.t, 0, lanes))

        def select(offset: Int, number: Index, carried: list[Value]) -> list[Value]:
            return self._select(self._load(self.operand, offset, lanes, mask), number, lanes, carried)

        *_, selected = self._walk(starts, operand, select, [*initial, self.f.constant(number_type, -1)])
        update = self._load(self.source_buffer, source, lanes, mask)
        init = splat(self.f, self.init, lanes)
        fresh = apply_scalars(self.f, self.op.scatter, [init, update], lanes)[0] if self.is_direct else init

        def combine(offset: Int, number: Index, _: list[Value]) -> list[Value]:
            is_selected = VectorValue.of(self.f, selected).equals(self._number(number, lanes))
            if self.is_direct:
                self._store(select_element(self.f, is_selected, fresh, init), offset, lanes, mask)
            else:
                self._combine(is_selected, update, offset, lanes, mask)
            return []

        self._walk(starts, operand, combine, [])

    def _select(self, value: Element, number: Index, lanes: int, carried: list[Value]) -> list[Value]:
        """The selected element and its number, of the one so far (-1 if there is none) and of another one."""
        f = self.f
        number_type = vector_type(f"i{self.number_bits}", lanes)
        if isinstance(number, int) and number == 0 and self.is_unrolled:
            return [*parts(value), f.constant(number_type, 0)]
        best = self._element(carried[:-1])
        keeps = VectorValue.of(f, single(apply_scalars(f, self.op.select, [best, value], lanes)[0]))
        best_number = VectorValue.of(f, carried[-1])
        if not self.is_unrolled:
            keeps = keeps & (best_number >= 0)
        new = self._number(number, lanes)
        return [*parts(select_element(f, keeps, best, value)), keeps.choose(best_number, new)]

    def _combine(
        self, is_selected: VectorValue, update: Element, offset: Int, lanes: int, mask: VectorValue | None
    ) -> None:
        """Combines the update into the element of the result, where it is the selected one."""
        f = self.f
        with f.if_(is_selected) if lanes == 1 else contextlib.nullcontext():
            old = self._load(self.result, offset, lanes, mask)
            new = apply_scalars(f, self.op.scatter, [old, update], lanes)[0]
            self._store(select_element(f, is_selected, new, old) if lanes > 1 else new, offset, lanes, mask)

    def _walk(
        self,
        starts: Sequence[Int],
        operand: Int,
        body: Callable[[Int, Index, list[Value]], list[Value]],
        carried: list[Value],
    ) -> list[Value]:
        """carried = body(offset in the array, number, carried) for a window's elements in the array."""
        f = self.f

        def along(n: int, offset: Int, number: Index, carried: list[Value]) -> list[Value]:
            if n == len(self.window):
                return body(offset, number, carried)
            axis = self.window[n]
            if self.is_unrolled:
                for k in range(axis.size):
                    carried = element(n, k, offset, number, carried)
                return carried
            with f.loop(*self._range(axis, starts[n]), values=carried) as window:
                window.values = element(n, window.index, offset, number, window.values)
            values: list[Value] = window.values
            return values

        def element(n: int, k: Index, offset: Int, number: Index, carried: list[Value]) -> list[Value]:
            axis = self.window[n]
            position = starts[n] + k * axis.dilation
            following = number * axis.size + k
            if axis.base_dilation == 1:
                return along(n + 1, offset + position * axis.array_stride, following, carried)
            is_element = (position % axis.base_dilation).equals(0)
            with f.if_(is_element) as branch:
                index = position // axis.base_dilation
                branch.values = along(n + 1, offset + index * axis.array_stride, following, carried)
            with branch.else_():
                branch.values = carried
            values: list[Value] = branch.values
            return values

        return along(0, operand, 0, carried)

    def _range(self, axis: _Axis, start: Int) -> tuple[Index, Index]:
        """The elements of a window that begins at `start` of the dilated base that are in the array."""
        if axis.is_inside:
            return 0, axis.size
        last = (axis.dim - 1) * axis.base_dilation
        before = (0 - start).maximum(0)
        room = (last + axis.dilation - start).maximum(0)
        low = (before + (axis.dilation - 1)) // axis.dilation
        return low, (room // axis.dilation).minimum(axis.size)

    # -- elements
    def _element(self, values: Sequence[Value]) -> Element:
        return (values[0], values[1]) if len(values) == 2 else values[0]

    def _number(self, number: Index, lanes: int) -> VectorValue:
        name = f"i{self.number_bits}"
        if isinstance(number, int):
            return self.f.constant(vector_type(name, lanes), number)
        bits = VectorValue.of(self.f, number) if self.number_bits == 64 else number.truncate(name)
        return bits.splat(lanes)

    def _pointer(self, base: Ptr, offset: Int) -> Ptr:
        return base.at(offset * (2 if self.t.is_complex else 1), memory_type(self.t))

    def _load(self, base: Ptr, offset: Int, lanes: int, mask: VectorValue | None) -> Element:
        return load(self.f, self.t, self._pointer(base, offset), lanes, mask=mask)

    def _store(self, value: Element, offset: Int, lanes: int, mask: VectorValue | None) -> None:
        store(self.f, self.t, value, self._pointer(self.result, offset), lanes, mask=mask)
