"""Depthwise convolution, forward and for the gradient of its filter: vectors of features, sums in registers.

One feature of the output depends on one of the input: no matrix product, but every feature is contiguous with its
neighbours in input, kernel and output. A tile is some output positions along the last axis by one vector; what two of
them see alike is loaded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .convolution_gemm import KERNEL_PARAMETERS, Phase, axes_of, microseconds_of, phases_of
from .convolution_problem import Axis, ConvolutionProblem
from .element_types import memory_type
from .gemm_elements import (
    COMPUTE_TYPES,
    SIZES,
    compute_of,
    lanes_of,
    load_as,
    load_masked,
    multiply_add,
    sources,
    store_masked,
    zero,
)
from .kernel_plan import KernelPlan
from .llvm_text import Function, ModuleText, Value, i64, vector_type
from .target import Target

TASK_US, PARALLEL_US = 20.0, 30.0
LONGEST_UNROLLED = 8  # window elements along the last axis
WIDEST_TILE = 8
CACHE_LINE = 64


def emit_depthwise(module: ModuleText, target: Target, problem: ConvolutionProblem, moved: int,
                   epilogue: str | None) -> KernelPlan | None:
    """Writes the kernel; None where the convolution is not depthwise with contiguous features.

    The view of the epilogue is [1, positions, features].
    """
    compute = compute_of(problem.input_type, problem.result_type)
    axes = axes_of(problem)
    if problem.inputs != 1:  # what is summed besides the window is one more axis of the window
        axes = (Axis(problem.inputs, problem.inputs, 1, 1, 0, 1, 1, problem.input_feature, problem.kernel_input, 0), *axes)
    phases = phases_of(axes, problem.kernel_offset)
    if compute is None or problem.groups == 1 or problem.outputs != 1 or problem.kernel_type is not problem.input_type \
            or problem.input_type not in sources(compute) \
            or (problem.input_group, problem.kernel_group, problem.output_group) != (1, 1, 1) \
            or any(a.base_dilation > 1 for p in phases for a in p.axes):
        return None
    masked = problem.groups < lanes_of(target, compute)
    if masked and problem.input_type.item_bytes != SIZES[COMPUTE_TYPES[compute]]:
        return None
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    writer = _Depthwise(f, target, problem, compute, masked)
    positions = math.prod(a.output for a in axes)
    # A task is one line of positions; with phases, which lie between each other, a whole image.
    unit = axes[-1].output
    if len(phases) > 1:
        unit = positions // axes[0].output if axes[0].is_plain and len(axes) > 1 else positions
    if problem.inputs == 0 or not positions:
        return None

    def task(t: Value, _: list[Value]) -> None:
        if len(phases) == 1:
            writer.line(phases[0], t)
        else:
            for phase in phases:
                lines = math.prod(a.output for a in phase.axes[:-1]) // (positions // unit)
                if phase.positions:
                    f.loop(f.mul(t, lines), f.mul(f.add(t, 1), lines), 1, lambda r, _, p=phase: writer.line(p, r))
        if epilogue:
            low = f.mul(t, unit)
            f.call(epilogue, "void", [f["ctx"], f["buffers"], i64(0), i64(low), i64(f.add(low, unit)), i64(0),
                                      i64(problem.groups)])

    f.loop(f["lo"], f["hi"], 1, task)
    f.ret()
    tasks = positions // unit
    microseconds = max(3 * microseconds_of(problem, target), moved / 1e4)
    grain = max(1, min(tasks, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))))
    parallel = tasks > 1 and target.threads > 1 and microseconds >= PARALLEL_US
    return KernelPlan(module.define("depthwise", f), tasks, grain, parallel, 0, problem.flops, moved)


class _Depthwise:
    """Writes the code of one line of output positions."""

    def __init__(self, f: Function, target: Target, problem: ConvolutionProblem, compute: str, masked: bool) -> None:
        self.f, self.target, self.problem = f, target, problem
        self.type, self.storage = COMPUTE_TYPES[compute], memory_type(problem.input_type)
        self.lanes, self.masked = lanes_of(target, compute), masked
        self.vector = vector_type(self.type, self.lanes)
        # Cache lines of features one after the other, each along the whole line; all at once where the image must be
        # streamed from farther than L2.
        image = math.prod(a.input for a in problem.axes) * problem.groups * problem.input_type.item_bytes
        self.block = max(CACHE_LINE // SIZES[self.type], self.lanes) if image <= target.l2_bytes else problem.groups
        self.source, self.kernel, self.made = (f.load("ptr", f.offset(f["buffers"], j, "ptr"), 8) for j in range(3))

    def _load(self, base: Value, at: Value | int) -> Value:
        place = self.f.offset(base, at, self.storage)
        if self.masked:
            return load_masked(self.f, self.type, self.lanes, place, i64(self.problem.groups))
        return load_as(self.f, self.problem.input_type, self.type, place, self.lanes)

    def _store(self, value: Value, at: Value | int) -> None:
        place = self.f.offset(self.made, at, self.type)
        if self.masked:
            store_masked(self.f, value, self.type, self.lanes, place, i64(self.problem.groups))
        else:
            self.f.store(value, place, SIZES[self.type])

    def line(self, phase: Phase, number: Value) -> None:
        """All positions along the last axis, for one position of the others, and all features."""
        f, outer, x = self.f, phase.axes[:-1], phase.axes[-1]
        source: Value | int = 0
        made: Value | int = phase.offset
        left: Value | int = number
        ranges: list[tuple[Axis, Value | int, Value | int]] = []
        for j in range(len(outer) - 1, -1, -1):
            a = outer[j]
            place = f.remainder(left, a.output) if j else left
            left = f.divide(left, a.output)
            made = f.add(made, f.mul(place, a.output_stride))
            first = f.sub(f.mul(place, a.stride), a.pad)
            source = f.add(source, f.mul(first, a.input_stride))
            if a.window != 1 or a.has_border:
                ranges.insert(0, (a, *self._seen(a, first)))
        if x.window > LONGEST_UNROLLED and x.output <= WIDEST_TILE:
            self.low, self.high = 0, self.problem.groups
            self._wide(x, ranges, source, phase.kernel_offset, made)
            return

        def block(low: Value, _: list[Value]) -> None:
            self.low, self.high = low, f.minimum(f.add(low, self.block), self.problem.groups)
            self._tiles(x, ranges, source, phase.kernel_offset, made)

        f.loop(0, self.problem.groups, self.block, block)

    def _features(self, body: Callable[[Value | int], None]) -> None:
        """A loop over a block's vectors of features; the very last one overlaps the one before it rather than being
        narrower."""
        f, last = self.f, max(0, self.problem.groups - self.lanes)
        f.loop(self.low, self.high, self.lanes, lambda c, _: body(f.minimum(c, last) if last % self.lanes else c))

    def _seen(self, a: Axis, first: Value | int) -> tuple[Value | int, Value | int]:
        """The window elements [low, high) of a position that lie inside; `first` is where element 0 lies."""
        f, d = self.f, a.window_dilation
        low = f.divide(f.intrinsic("smax", "i64", [i64(f.add(f.sub(0, first), d - 1)), i64(0)]), d)
        reach = f.intrinsic("smax", "i64", [i64(f.add(f.sub(a.input, first), d - 1)), i64(0)])
        return low, f.minimum(a.window, f.divide(reach, d))

    def _window(self, ranges: Sequence[tuple[Axis, Value | int, Value | int]], source: Value | int,
                kernel: Value | int, acc: list[Value],
                body: Callable[[Value | int, Value | int, list[Value]], list[Value]]) -> list[Value]:
        """Loops over what is seen along the outer axes; `body` takes offsets of input and kernel."""
        if not ranges:
            return body(source, kernel, acc)
        a, low, high = ranges[0]
        return self.f.loop(low, high, 1, lambda k, inner: self._window(
            ranges[1:], self.f.add(source, self.f.mul(k, a.window_dilation * a.input_stride)),
            self.f.add(kernel, self.f.mul(k, a.kernel_stride)), inner, body), acc)

    def _tiles(self, x: Axis, ranges: Sequence[tuple[Axis, Value | int, Value | int]], source: Value | int,
               kernel: Value | int, made: Value | int) -> None:
        f = self.f
        reach = (x.window - 1) * x.window_dilation
        # Positions [low, high) see no border; those before and behind are few, or taken one by one.
        low = min(x.output, max(0, -(-x.pad // x.stride)))
        high = max(low, min(x.output, (x.input - 1 + x.pad - reach) // x.stride + 1))
        width = max(2, min(WIDEST_TILE, self.target.registers - x.window - 1))
        unrolled = x.window <= LONGEST_UNROLLED and low <= width and x.output - high <= width

        def single(o: Value, _: list[Value]) -> None:
            first = f.sub(f.mul(o, x.stride), x.pad)
            seen, at = (x, *self._seen(x, first)), f.add(source, f.mul(first, x.input_stride))

            def features(c: Value | int) -> None:
                acc = self._window([*ranges, seen], f.add(at, c), f.add(kernel, c), [zero(self.vector)],
                                   self._product)
                self._store(acc[0], f.add(f.add(made, c), f.mul(o, x.output_stride)))

            self._features(features)

        def tile(start: Value | int, count: int) -> None:
            at = f.add(source, f.mul(f.sub(f.mul(start, x.stride), x.pad), x.input_stride))
            to = f.add(made, f.mul(start, x.output_stride))

            def features(c: Value | int) -> None:
                acc = self._window(
                    ranges, f.add(at, c), f.add(kernel, c), [zero(self.vector)] * count,
                    lambda s, k, acc: self._unrolled(x, start if isinstance(start, int) else None, s, k, acc))
                for j, value in enumerate(acc):
                    self._store(value, f.add(f.add(to, c), j * x.output_stride))

            self._features(features)

        if not unrolled:
            f.loop(0, low, 1, single)
            if x.window > LONGEST_UNROLLED:
                f.loop(low, x.output, 1, single)
                return
        begin = low if not unrolled else width if low else 0
        whole = begin + max(0, high - begin) // width * width
        if unrolled and begin:
            tile(0, min(width, x.output))
        f.loop(begin, whole, width, lambda o, _: tile(o, width))
        end = x.output if unrolled else high
        for start in range(max(whole, begin), end, width):
            tile(start, min(width, end - start))
        f.loop(end, x.output, 1, single)

    def _product(self, source: Value | int, kernel: Value | int, acc: list[Value]) -> list[Value]:
        a, b = self._load(self.source, source), self._load(self.kernel, kernel)
        return [multiply_add(self.f, a, b, acc[0], self.target)]

    def _unrolled(self, x: Axis, start: int | None, source: Value | int, kernel: Value | int,
                  acc: list[Value]) -> list[Value]:
        """All window elements along the last axis for a tile; where `start` is known, those inside the input."""
        f, acc = self.f, list(acc)
        weights = [self._load(self.kernel, f.add(kernel, k * x.kernel_stride)) for k in range(x.window)]
        pairs: dict[int, list[tuple[int, int]]] = {}
        for o in range(len(acc)):
            for k in range(x.window):
                seen = o * x.stride + k * x.window_dilation
                if start is None or 0 <= start * x.stride - x.pad + seen < x.input:
                    pairs.setdefault(seen, []).append((o, k))
        for seen, uses in sorted(pairs.items()):
            value = self._load(self.source, f.add(source, seen * x.input_stride))
            for o, k in uses:
                acc[o] = multiply_add(f, value, weights[k], acc[o], self.target)
        return acc

    # -- large windows, few positions: the gradient of a filter

    def _wide(self, x: Axis, ranges: Sequence[tuple[Axis, Value | int, Value | int]], source: Value | int,
              kernel: Value | int, made: Value | int) -> None:
        """All positions along the last axis in one tile; the sums stay in memory from line to line of the window, so
        that input is read in the order in which it lies."""
        f = self.f
        source = f.sub(source, x.pad * x.input_stride)

        def places(c: Value | int) -> list[Value]:
            return [f.offset(self.made, f.add(f.add(made, c), o * x.output_stride), self.type)
                    for o in range(x.output)]

        def whole(c: Value | int) -> None:
            acc = self._window(ranges, f.add(source, c), f.add(kernel, c), [zero(self.vector)] * x.output,
                               lambda s, k, acc: self._along(x, s, k, acc))
            for o, value in enumerate(acc):
                self._store(value, f.add(f.add(made, c), o * x.output_stride))

        if self.problem.groups % self.lanes:  # the last vector overlaps: nothing may be summed twice
            self._features(whole)
            return

        def clear(c: Value | int) -> None:
            for place in places(c):
                f.store(zero(self.vector), place, SIZES[self.type])

        def line(s: Value | int, k: Value | int, _: list[Value]) -> list[Value]:
            def features(c: Value | int) -> None:
                old = [f.load(self.vector, place, SIZES[self.type]) for place in places(c)]
                acc = self._along(x, f.add(s, c), f.add(k, c), old)
                for value, place in zip(acc, places(c)):
                    f.store(value, place, SIZES[self.type])

            self._features(features)
            return []

        self._features(clear)
        self._window(ranges, source, kernel, [], line)

    def _along(self, x: Axis, source: Value | int, kernel: Value | int, acc: list[Value]) -> list[Value]:
        """Adds one line of the window to the sums of all positions; offsets are those of position 0, element 0."""
        f, count, d = self.f, len(acc), x.window_dilation
        first = [o * x.stride - x.pad for o in range(count)]
        # Elements [low, high) are inside for all positions.
        low = min(x.window, max(max(0, -(at // d)) for at in first))
        high = max(low, min(min(x.window, -(-(x.input - at) // d)) for at in first))
        sets = 1 if count > 4 else 2  # enough chains of additions to hide their latency

        def steps(width: int) -> Callable[[Value, list[Value]], list[Value]]:
            def body(k: Value, sums: list[Value]) -> list[Value]:
                sums, seen = list(sums), {}
                at = f.add(source, f.mul(k, d * x.input_stride))
                for u in range(width):
                    weight = self._load(self.kernel, f.add(kernel, f.mul(f.add(k, u), x.kernel_stride)))
                    for o in range(count):
                        place = o * x.stride + u * d
                        if place not in seen:
                            seen[place] = self._load(self.source, f.add(at, place * x.input_stride))
                        to = u % sets * count + o
                        sums[to] = multiply_add(f, seen[place], weight, sums[to], self.target)
                return sums
            return body

        main = low + (high - low) // 4 * 4
        sums = f.loop(low, main, 4, steps(4), [*acc, *[zero(self.vector)] * (count * (sets - 1))])
        sums = f.loop(main, high, 1, steps(1), sums)
        add = "add" if self.type.startswith("i") else "fadd"
        acc = [f.binary(add, sums[o], sums[o + count]) for o in range(count)] if sets > 1 else sums
        for o in range(count):
            inside = range(max(0, -(first[o] // d)), min(x.window, -(-(x.input - first[o]) // d)))
            for k in (*range(inside.start, min(low, inside.stop)), *range(max(high, inside.start), inside.stop)):
                acc[o] = multiply_add(
                    f, self._load(self.source, f.add(source, (o * x.stride + k * d) * x.input_stride)),
                    self._load(self.kernel, f.add(kernel, k * x.kernel_stride)), acc[o], self.target)
        return acc
