"""The kernel of select-and-scatter: the way back of a pooling.

A window lies along some axes; along the others (its size 1, nothing padded) it stands still. Tasks run over
these free axes, and vectors along the last axis where it is free (the channels of an image): all lanes look
at one window, keep the number of the element that they selected, and then combine the source into the
elements of that number.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64, split_vector, vector_type
from ....runtime.llvm.target import Target
from ...ir.module import Instruction
from ...ops import SelectAndScatter
from ...options import Options
from ..codegen.kernel_info import KernelPlan
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
from ..codegen.scalar_computation import apply_scalars

_UNROLLED = 16  # windows of at most this many elements that never leave the array are written without loops
_PARALLEL_ELEMENTS = 1 << 14
_FEWEST_TASKS = 8

Offset = Value | int


def emit_select_and_scatter(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelPlan:
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
        return self.base_dilation == 1 and self.low <= 0 and last - self.low < self.dim

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

    def emit(self) -> KernelPlan:
        f = self.f = Function(
            self.module,
            "SELF",
            (("ptr", "context"), ("ptr", "buffers"), ("i64", "low"), ("i64", "high"), ("i64", "thread")),
        )
        outer = math.prod(a.dim for a in self.free)
        blocks = self._divide(outer)
        tasks = outer * blocks if self.array.elements else 0
        if tasks:
            self.operand_at, self.source_at, init, self.result_at = (
                f.load("ptr", f.offset(f["buffers"], 8 * k), 8) for k in range(4)
            )
            self.init = load(f, self.t, init, 1)
            f.loop(f["low"], f["high"], 1, lambda task, _: self._task(task, blocks))
        f.ret()
        work = self.array.elements + self.source.elements * self.count
        return KernelPlan(
            self.module.define("select_and_scatter", f),
            tasks,
            max(1, tasks * _PARALLEL_ELEMENTS // max(1, 2 * work)),
            tasks > 1 and work > _PARALLEL_ELEMENTS,
            flops=work,
            bytes=2 * self.array.bytes + self.source.bytes,
        )

    def _divide(self, outer: int) -> int:
        """Blocks of the vectorised axis per place on the free axes; sets the block's size."""
        self.block = self.along.dim if self.along else 1
        if self.along and 0 < outer < _FEWEST_TASKS:
            whole = -(-self.along.dim // self.lanes)
            self.block = -(-whole * outer // _FEWEST_TASKS) * self.lanes
        return -(-self.along.dim // self.block) if self.along and self.along.dim else 1

    def _task(self, task: Value, blocks: int) -> None:
        """All windows at one place on the free axes, for one block of the vectorised axis."""
        f = self.f
        first = f.mul(f.remainder(task, blocks), self.block)
        rest: Offset = f.divide(task, blocks)
        operand: Offset = 0
        source: Offset = 0
        for axis in reversed(self.free):
            index = f.remainder(rest, axis.dim)
            rest = f.divide(rest, axis.dim)
            operand = f.add(operand, f.mul(index, axis.array_stride))
            source = f.add(source, f.mul(index, axis.source_stride))
        if not (self.is_direct and all(a.is_covered for a in self.window)):
            self._fill(operand, first)

        def position(n: int, starts: list[Offset], at: Offset) -> None:
            if n == len(self.window):
                self._along(
                    first,
                    lambda c, lanes, mask: self._window(starts, f.add(operand, c), f.add(at, c), lanes, mask),
                )
                return
            axis = self.window[n]
            f.loop(
                0,
                axis.positions,
                1,
                lambda p, _: position(
                    n + 1,
                    [*starts, f.sub(f.mul(p, axis.stride), axis.low)],
                    f.add(at, f.mul(p, axis.source_stride)),
                ),
            )

        position(0, [], source)

    def _along(self, first: Offset, body: Callable[[Offset, int, Value | None], None]) -> None:
        """body(offset, lanes, mask) for the block of the vectorised axis that begins at `first`."""
        f = self.f
        if self.along is None:
            body(0, 1, None)
            return
        dim, lanes = self.along.dim, self.lanes
        full = dim // lanes * lanes
        f.loop(first, f.minimum(f.add(first, self.block), full), lanes, lambda c, _: body(c, lanes, None))
        if full == dim:
            return

        def tail() -> None:
            if self.t.bits >= 32 and dim - full > 1:
                kept = ", ".join(f"i1 {'true' if k < dim - full else 'false'}" for k in range(lanes))
                body(full, lanes, Value(f"<{lanes} x i1>", f"<{kept}>"))
            else:
                f.loop(full, dim, 1, lambda c, _: body(c, 1, None))

        if self.block < dim:
            f.branch(f.compare("icmp sge", i64(f.add(first, self.block)), i64(dim)), tail)
        else:
            tail()

    def _fill(self, operand: Offset, first: Offset) -> None:
        """The initial value everywhere."""
        f = self.f

        def level(n: int, at: Offset) -> None:
            if n == len(self.window):
                self._along(
                    first,
                    lambda c, lanes, mask: self._store(splat(f, self.init, lanes), f.add(at, c), lanes, mask),
                )
                return
            axis = self.window[n]
            f.loop(0, axis.dim, 1, lambda i, _: level(n + 1, f.add(at, f.mul(i, axis.array_stride))))

        level(0, operand)

    def _window(
        self, starts: Sequence[Offset], operand: Offset, source: Offset, lanes: int, mask: Value | None
    ) -> None:
        """One window: selects an element per lane, then combines the source into the selected ones."""
        f = self.f
        number_type = vector_type(f"i{self.number_bits}", lanes)

        def look(at: Offset, number: Offset, carried: list[Value]) -> list[Value]:
            seen = self._load(self.operand_at, at, lanes, mask)
            if isinstance(number, int) and number == 0 and self.is_unrolled:
                return [*parts(seen), constant(number_type, 0)]
            best = self._element(carried[:-1])
            keeps = single(apply_scalars(f, self.op.select, [best, seen], lanes)[0])
            if not self.is_unrolled:
                keeps = f.binary("and", keeps, f.compare("icmp sge", carried[-1], constant(number_type, 0)))
            new = self._number(number, lanes)
            return [*parts(select_element(f, keeps, best, seen)), f.select(keeps, carried[-1], new)]

        *_, chosen = self._walk(
            starts, operand, look, [*parts(constant_element(self.t, 0, lanes)), constant(number_type, -1)]
        )
        update = self._load(self.source_at, source, lanes, mask)
        init = splat(f, self.init, lanes)
        fresh = apply_scalars(f, self.op.scatter, [init, update], lanes)[0] if self.is_direct else init

        def combine(at: Offset, number: Offset, _: list[Value]) -> list[Value]:
            is_chosen = f.compare("icmp eq", chosen, self._number(number, lanes))
            if self.is_direct:
                self._store(select_element(f, is_chosen, fresh, init), at, lanes, mask)
                return []

            def add() -> None:
                old = self._load(self.result_at, at, lanes, mask)
                new = apply_scalars(f, self.op.scatter, [old, update], lanes)[0]
                self._store(select_element(f, is_chosen, new, old) if lanes > 1 else new, at, lanes, mask)

            if lanes > 1:
                add()
            else:
                f.branch(is_chosen, add)
            return []

        self._walk(starts, operand, combine, [])

    def _walk(
        self,
        starts: Sequence[Offset],
        operand: Offset,
        body: Callable[[Offset, Offset, list[Value]], list[Value]],
        carried: list[Value],
    ) -> list[Value]:
        """carried = body(offset in the array, number, carried) for a window's elements in the array."""
        f = self.f

        def level(n: int, at: Offset, number: Offset, carried: list[Value]) -> list[Value]:
            if n == len(self.window):
                return body(at, number, carried)
            axis = self.window[n]

            def element(k: Offset, carried: list[Value]) -> list[Value]:
                position = f.add(starts[n], f.mul(k, axis.dilation))
                following = f.add(f.mul(number, axis.size), k)

                def inside() -> list[Value]:
                    index = f.divide(position, axis.base_dilation)
                    return level(n + 1, f.add(at, f.mul(index, axis.array_stride)), following, carried)

                if axis.base_dilation == 1:
                    return inside()
                is_element = f.compare("icmp eq", i64(f.remainder(position, axis.base_dilation)), i64(0))
                return f.branch(is_element, inside, lambda: carried)

            if self.is_unrolled:
                return functools.reduce(lambda held, k: element(k, held), range(axis.size), carried)
            return f.loop(*self._range(axis, starts[n]), 1, element, carried)

        return level(0, operand, 0, carried)

    def _range(self, axis: _Axis, start: Offset) -> tuple[Offset, Offset]:
        """Which elements of a window that begins at `start` of the dilated base are in the array."""
        if axis.is_inside:
            return 0, axis.size
        f, last = self.f, (axis.dim - 1) * axis.base_dilation
        before = f.intrinsic("smax", "i64", [i64(f.sub(0, start)), i64(0)])
        room = f.intrinsic("smax", "i64", [i64(f.sub(last + axis.dilation, start)), i64(0)])
        low = f.divide(f.add(before, axis.dilation - 1), axis.dilation)
        return low, f.minimum(f.divide(room, axis.dilation), axis.size)

    # -- elements
    def _element(self, values: Sequence[Value]) -> Element:
        return (values[0], values[1]) if len(values) == 2 else values[0]

    def _number(self, number: Offset, lanes: int) -> Value:
        name = f"i{self.number_bits}"
        if isinstance(number, int):
            return constant(vector_type(name, lanes), number)
        one = number if self.number_bits == 64 else self.f.cast("trunc", number, name)
        return self.f.splat(one, lanes)

    def _pointer(self, base: Value, at: Offset) -> Value:
        return self.f.offset(base, self.f.mul(at, 2 if self.t.is_complex else 1), memory_type(self.t))

    def _load(self, base: Value, at: Offset, lanes: int, mask: Value | None) -> Element:
        return load(self.f, self.t, self._pointer(base, at), lanes, mask=mask)

    def _store(self, value: Element, at: Offset, lanes: int, mask: Value | None) -> None:
        store(self.f, self.t, value, self._pointer(self.result_at, at), lanes, mask=mask)
