"""Depthwise convolution, forward and for the gradient of its filter: vectors of features, sums in registers.

A feature of the output depends on one of the input: no matrix product, but every feature is contiguous with its
neighbours in input, kernel and output. A tile is some output positions along the last axis by one vector; what two of
them see alike is loaded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64, vector_type
from ....runtime.llvm.target import Target
from ..codegen.kernel_info import KernelPlan
from ..codegen.memory_types import memory_type
from ..gemm.compute_types import (
    CACHE_LINE,
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
from .implicit_gemm import KERNEL_PARAMETERS, Phase, axes_of, microseconds_of, phases_of
from .problem import Axis, ConvolutionProblem

TASK_US, PARALLEL_US = 20.0, 30.0
LONGEST_UNROLLED = 8  # window elements along the last axis
WIDEST_TILE = 8


def emit_depthwise(
    module: ModuleText, target: Target, problem: ConvolutionProblem, moved: int, epilogue: str | None
) -> KernelPlan | None:
    """Writes the kernel; None where the convolution is not depthwise with contiguous features.

    The view of the epilogue is [1, positions, features].
    """
    compute = compute_of(problem.input_type, problem.result_type)
    axes = axes_of(problem)
    if problem.inputs != 1:  # what is summed besides the window is one more axis of the window
        summed = Axis(
            problem.inputs, problem.inputs, 1, 1, 0, 1, 1, problem.input_feature, problem.kernel_input, 0
        )
        axes = (summed, *axes)
    phases = phases_of(axes, problem.kernel_offset)
    if (
        compute is None
        or problem.groups == 1
        or problem.kernel_type is not problem.input_type
        or problem.input_type not in sources(compute)
        or problem.input_group != 1
        or (problem.kernel_group, problem.output_group) != (problem.outputs, problem.outputs)
        or (problem.outputs > 1 and problem.kernel_output != 1)
        or any(a.base_dilation > 1 for p in phases for a in p.axes)
    ):
        return None
    lanes = lanes_of(target, compute)
    if lanes % problem.outputs and problem.outputs % lanes:
        return None
    masked = problem.groups * problem.outputs < lanes
    if masked and problem.input_type.item_bytes != SIZES[COMPUTE_TYPES[compute]]:
        return None
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    writer = _Depthwise(f, target, problem, compute, masked)
    positions = math.prod(a.output for a in axes)
    # A task is one line of positions; with phases, which lie between each other, a whole image; where positions are
    # few, a share of the features.
    unit = axes[-1].output
    if len(phases) > 1:
        unit = positions // axes[0].output if axes[0].is_plain and len(axes) > 1 else positions
    if problem.inputs == 0 or not positions:
        return None
    microseconds = max(3 * microseconds_of(problem, target), moved / 1e4)
    by_features = (
        axes[-1].window > LONGEST_UNROLLED
        and axes[-1].output <= WIDEST_TILE
        and len(phases) == 1
        and writer.features % writer.lanes == 0
    )
    tasks, share = positions // unit, writer.features
    if by_features:
        line = max(CACHE_LINE // SIZES[writer.type], writer.lanes)
        wanted = max(1, min(2 * target.threads, int(microseconds / TASK_US))) if target.threads > 1 else 1
        share = -(-writer.features // (line * wanted)) * line
        tasks = -(-writer.features // share)

    def task(t: Value, _: list[Value]) -> None:
        if by_features:
            first = f.mul(t, share)
            last = f.minimum(f.add(first, share), writer.features)
            writer.gradient(phases[0], first, last)
            if epilogue:
                f.call(epilogue, "void", [f["ctx"], f["buffers"], *map(i64, (0, 0, positions, first, last))])
            return
        if len(phases) == 1:
            writer.line(phases[0], t, [])
        else:
            for phase in phases:
                lines = math.prod(a.output for a in phase.axes[:-1]) // (positions // unit)
                if phase.positions:
                    f.loop(
                        f.mul(t, lines), f.mul(f.add(t, 1), lines), 1, functools.partial(writer.line, phase)
                    )
        if epilogue:
            low = f.mul(t, unit)
            f.call(
                epilogue,
                "void",
                [
                    f["ctx"],
                    f["buffers"],
                    i64(0),
                    i64(low),
                    i64(f.add(low, unit)),
                    i64(0),
                    i64(writer.features),
                ],
            )

    f.loop(f["lo"], f["hi"], 1, task)
    f.ret()
    grain = max(1, min(tasks, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))))
    parallel = tasks > 1 and target.threads > 1 and microseconds >= PARALLEL_US
    return KernelPlan(module.define("depthwise", f), tasks, grain, parallel, 0, problem.flops, moved)


class _Depthwise:
    """Writes the code of one line of output positions."""

    def __init__(
        self, f: Function, target: Target, problem: ConvolutionProblem, compute: str, masked: bool
    ) -> None:
        self.f, self.target, self.problem = f, target, problem
        self.type, self.storage = COMPUTE_TYPES[compute], memory_type(problem.input_type)
        self.lanes, self.masked = lanes_of(target, compute), masked
        self.features = problem.groups * problem.outputs
        self.vector = vector_type(self.type, self.lanes)
        # Cache lines of features one after the other, each along the whole line; all at once where the image must be
        # streamed from farther than L2.
        image = math.prod(a.input for a in problem.axes) * problem.groups * problem.input_type.item_bytes
        self.low: Value | int = 0
        self.high: Value | int = self.features
        self.block = (
            max(CACHE_LINE // SIZES[self.type], self.lanes) if image <= target.l2_bytes else self.features
        )
        self.source, self.kernel, self.made = (
            f.load("ptr", f.offset(f["buffers"], j, "ptr"), 8) for j in range(3)
        )

    def _load(self, base: Value, at: Value | int, lanes: int, count: int) -> Value:
        place = self.f.offset(base, at, self.storage)
        if self.masked:
            return load_masked(self.f, self.type, lanes, place, i64(count))
        return load_as(self.f, self.problem.input_type, self.type, place, lanes)

    def _weight(self, at: Value | int) -> Value:
        return self._load(self.kernel, at, self.lanes, self.features)

    def _input(self, at: Value | int) -> Value:
        """The input of a vector of output features, of which `outputs` neighbours have one in common."""
        f, lanes, times = self.f, self.lanes, self.problem.outputs
        few = self._load(self.source, at, max(1, lanes // times), self.problem.groups)
        if times == 1 or lanes <= times:
            return few if times == 1 else f.splat(few, lanes)
        order = ", ".join(f"i32 {lane // times}" for lane in range(lanes))
        return f.op(self.vector, f"shufflevector {few}, {few.type} poison, <{lanes} x i32> <{order}>")

    def _seen_by(self, c: Value | int) -> Value | int:
        """The input feature of an output feature."""
        return self.f.divide(c, self.problem.outputs)

    def _store(self, value: Value, at: Value | int) -> None:
        place = self.f.offset(self.made, at, self.type)
        if self.masked:
            store_masked(self.f, value, self.type, self.lanes, place, i64(self.features))
        else:
            self.f.store(value, place, SIZES[self.type])

    def line(self, phase: Phase, number: Value, _: list[Value]) -> None:
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
            self.low, self.high = 0, self.features
            self._wide(x, ranges, source, phase.kernel_offset, made)
            return

        def block(low: Value, _: list[Value]) -> None:
            self.low, self.high = low, f.minimum(f.add(low, self.block), self.features)
            self._tiles(x, ranges, source, phase.kernel_offset, made)

        f.loop(0, self.features, self.block, block)

    def _features(self, body: Callable[[Value | int], None]) -> None:
        """A loop over a block's vectors of features; the very last one overlaps the one before it rather than being
        narrower."""
        f, last = self.f, max(0, self.features - self.lanes)
        f.loop(
            self.low, self.high, self.lanes, lambda c, _: body(f.minimum(c, last) if last % self.lanes else c)
        )

    def _seen(self, a: Axis, first: Value | int) -> tuple[Value | int, Value | int]:
        """The window elements [low, high) of a position that lie inside; `first` is where element 0 lies."""
        f, d = self.f, a.window_dilation
        low = f.divide(f.intrinsic("smax", "i64", [i64(f.add(f.sub(0, first), d - 1)), i64(0)]), d)
        reach = f.intrinsic("smax", "i64", [i64(f.add(f.sub(a.input, first), d - 1)), i64(0)])
        return low, f.minimum(a.window, f.divide(reach, d))

    def _window(
        self,
        ranges: Sequence[tuple[Axis, Value | int, Value | int]],
        source: Value | int,
        kernel: Value | int,
        acc: list[Value],
        body: Callable[[Value | int, Value | int, list[Value]], list[Value]],
    ) -> list[Value]:
        """Loops over what is seen along the outer axes; `body` takes offsets of input and kernel."""
        if not ranges:
            return body(source, kernel, acc)
        a, low, high = ranges[0]
        return self.f.loop(
            low,
            high,
            1,
            lambda k, inner: self._window(
                ranges[1:],
                self.f.add(source, self.f.mul(k, a.window_dilation * a.input_stride)),
                self.f.add(kernel, self.f.mul(k, a.kernel_stride)),
                inner,
                body,
            ),
            acc,
        )

    def _tiles(
        self,
        x: Axis,
        ranges: Sequence[tuple[Axis, Value | int, Value | int]],
        source: Value | int,
        kernel: Value | int,
        made: Value | int,
    ) -> None:
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
                acc = self._window(
                    [*ranges, seen],
                    f.add(at, self._seen_by(c)),
                    f.add(kernel, c),
                    [zero(self.vector)],
                    self._product,
                )
                self._store(acc[0], f.add(f.add(made, c), f.mul(o, x.output_stride)))

            self._features(features)

        def tile(start: Value | int, count: int) -> None:
            at = f.add(source, f.mul(f.sub(f.mul(start, x.stride), x.pad), x.input_stride))
            to = f.add(made, f.mul(start, x.output_stride))

            def features(c: Value | int) -> None:
                acc = self._window(
                    ranges,
                    f.add(at, self._seen_by(c)),
                    f.add(kernel, c),
                    [zero(self.vector)] * count,
                    lambda s, k, acc: self._unrolled(x, start if isinstance(start, int) else None, s, k, acc),
                )
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
        a, b = self._input(source), self._weight(kernel)
        return [multiply_add(self.f, a, b, acc[0], self.target)]

    def _unrolled(
        self, x: Axis, start: int | None, source: Value | int, kernel: Value | int, acc: list[Value]
    ) -> list[Value]:
        """All window elements along the last axis for a tile; where `start` is known, those inside the input."""
        f, acc = self.f, list(acc)
        weights = [self._weight(f.add(kernel, k * x.kernel_stride)) for k in range(x.window)]
        pairs: dict[int, list[tuple[int, int]]] = {}
        for o in range(len(acc)):
            for k in range(x.window):
                seen = o * x.stride + k * x.window_dilation
                if start is None or 0 <= start * x.stride - x.pad + seen < x.input:
                    pairs.setdefault(seen, []).append((o, k))
        for seen, uses in sorted(pairs.items()):
            value = self._input(f.add(source, seen * x.input_stride))
            for o, k in uses:
                acc[o] = multiply_add(f, value, weights[k], acc[o], self.target)
        return acc

    # -- large windows, few positions: the gradient of a filter

    def _wide(
        self,
        x: Axis,
        ranges: Sequence[tuple[Axis, Value | int, Value | int]],
        source: Value | int,
        kernel: Value | int,
        made: Value | int,
    ) -> None:
        """All positions along the last axis in one tile."""
        f = self.f
        source = f.sub(source, x.pad * x.input_stride)

        def features(c: Value | int) -> None:
            acc = self._window(
                ranges,
                f.add(source, self._seen_by(c)),
                f.add(kernel, c),
                [zero(self.vector)] * x.output,
                lambda s, k, acc: self._along(x, s, k, acc),
            )
            for o, value in enumerate(acc):
                self._store(value, f.add(f.add(made, c), o * x.output_stride))

        self._features(features)

    def gradient(self, phase: Phase, low: Value | int, high: Value | int) -> None:
        """All positions, for a range of features that is a multiple of a vector: sums stay in memory from line to line
        of the window, so that input and kernel are read once, in the order in which they lie."""
        f, outer, x = self.f, phase.axes[:-1], phase.axes[-1]
        self.low, self.high = low, high
        lines = math.prod(a.output for a in outer)

        def split(number: Value | int, sizes: Sequence[int]) -> list[Value | int]:
            places: list[Value | int] = []
            for size in reversed(sizes):
                places.insert(0, f.remainder(number, size))
                number = f.divide(number, size)
            return places

        def sums(line: list[Value | int], c: Value | int) -> list[Value]:
            at: Value | int = f.add(phase.offset, c)
            for a, o in zip(outer, line):
                at = f.add(at, f.mul(o, a.output_stride))
            return [f.offset(self.made, f.add(at, o * x.output_stride), self.type) for o in range(x.output)]

        def clear(number: Value, _: list[Value]) -> None:
            line = split(number, [a.output for a in outer])

            def features(c: Value | int) -> None:
                for place in sums(line, c):
                    f.store(zero(self.vector), place, SIZES[self.type])

            self._features(features)

        def run(number: Value, _: list[Value]) -> None:
            window = split(number, [a.window for a in outer])
            kernel: Value | int = phase.kernel_offset
            for a, k in zip(outer, window):
                kernel = f.add(kernel, f.mul(k, a.kernel_stride))

            def position(number: Value, _: list[Value]) -> None:
                line = split(number, [a.output for a in outer])
                source: Value | int = -x.pad * x.input_stride
                inside = None
                for a, o, k in zip(outer, line, window):
                    seen = f.sub(f.add(f.mul(o, a.stride), f.mul(k, a.window_dilation)), a.pad)
                    source = f.add(source, f.mul(seen, a.input_stride))
                    if a.has_border:
                        valid = f.compare("icmp ult", i64(seen), i64(a.input))
                        inside = f.binary("and", inside, valid) if inside else valid

                def features(c: Value | int) -> None:
                    places = sums(line, c)
                    acc = self._along(
                        x,
                        f.add(source, self._seen_by(c)),
                        f.add(kernel, c),
                        [f.load(self.vector, place, SIZES[self.type]) for place in places],
                    )
                    for value, place in zip(acc, places):
                        f.store(value, place, SIZES[self.type])

                if inside:
                    f.branch(inside, lambda: self._features(features))
                else:
                    self._features(features)

            f.loop(0, lines, 1, position)

        f.loop(0, lines, 1, clear)
        f.loop(0, math.prod(a.window for a in outer), 1, run)

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
                sums = list(sums)
                seen: dict[int, Value] = {}
                at = f.add(source, f.mul(k, d * x.input_stride))
                for u in range(width):
                    weight = self._weight(f.add(kernel, f.mul(f.add(k, u), x.kernel_stride)))
                    for o in range(count):
                        place = o * x.stride + u * d
                        if place not in seen:
                            seen[place] = self._input(f.add(at, place * x.input_stride))
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
            for k in (
                *range(inside.start, min(low, inside.stop)),
                *range(max(high, inside.start), inside.stop),
            ):
                acc[o] = multiply_add(
                    f,
                    self._input(f.add(source, (o * x.stride + k * d) * x.input_stride)),
                    self._weight(f.add(kernel, k * x.kernel_stride)),
                    acc[o],
                    self.target,
                )
        return acc
