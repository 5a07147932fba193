"""Convolution with fewer output features than a vector has lanes: images of one or three colours, masks, heat maps.

Columns of a matrix product that are output features would leave most lanes idle. Here they are window elements and
output features together: one product gives what every input position adds to every output position that sees it. An
output position then sums what its window elements added. Holes (input that is dilated for a backward pass or an
upsampling convolution) cost nothing, and no product is made twice.
"""

from __future__ import annotations

import dataclasses
import math

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64, vector_type
from ....runtime.llvm.target import Target
from ..codegen.kernel_info import KernelPlan
from ..gemm.compute_types import COMPUTE_TYPES, SIZES, compute_of, lanes_of, zero
from ..gemm.emit import GemmProblem, emit_gemm
from .implicit_gemm import KERNEL_PARAMETERS, axes_of, microseconds_of
from .problem import Axis, ConvolutionProblem

TASK_US, PARALLEL_US = 20.0, 30.0
FEWEST_INPUTS = 8  # below this many features the sums cost as much as the products
MOST_PHASES, LONGEST_WINDOW = 4, 16  # along the last axis, whose window elements are unrolled
GAIN = 1.3  # of products over the other form, that pays for the sums
_TRIVIAL = Axis(1, 1, 1, 1, 0, 1, 1, 0, 0, 0)


def emit_few_outputs(
    module: ModuleText, target: Target, problem: ConvolutionProblem, moved: int, epilogue: str | None
) -> KernelPlan | None:
    """Writes the kernel; None where another form is better. The view of the epilogue is [1, positions, features]."""
    axes = _axes(problem, target)
    if axes is None:
        return None
    writer = _FewOutputs(module, target, problem, *axes, epilogue)
    writer.kernel()
    microseconds = microseconds_of(problem, target)
    tasks = writer.tasks
    grain = max(1, min(tasks, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))))
    parallel = tasks > 1 and target.threads > 1 and microseconds >= PARALLEL_US
    return KernelPlan(
        module.define("convolution", writer.f),
        tasks,
        grain,
        parallel,
        writer.scratch_bytes,
        problem.flops,
        moved,
    )


def _axes(problem: ConvolutionProblem, target: Target) -> tuple[tuple[Axis, ...], Axis, Axis] | None:
    """(plain axes, line axis, axis along a line), where this form computes the convolution and is the better one."""
    compute = compute_of(problem.input_type, problem.result_type)
    if (
        compute not in ("f32", "f64")
        or problem.input_type is not problem.result_type
        or problem.kernel_type is not problem.input_type
        or problem.groups > 1
        or (problem.input_feature, problem.output_feature) != (1, 1)
        or problem.inputs < FEWEST_INPUTS
        or problem.batch * problem.positions == 0
    ):
        return None
    lanes = lanes_of(target, compute)
    axes = axes_of(problem)
    x, rest = axes[-1], axes[:-1]
    y = rest[-1] if rest and not rest[-1].is_plain else _TRIVIAL
    planes = rest if y is _TRIVIAL else rest[:-1]
    if (
        problem.outputs > max(1, lanes // 2)
        or any(a.stride != 1 for a in axes)
        or not all(a.is_plain for a in planes)
        or not 1 <= x.window <= LONGEST_WINDOW
        or y.window < 1
        or x.base_dilation > MOST_PHASES
        or min(x.input, y.input) < 1
    ):
        return None
    taps = x.window * y.window
    columns = -(-taps * problem.outputs // lanes) * lanes
    others = x.output * y.output * (taps / (x.base_dilation * y.base_dilation)) * lanes
    return (planes, y, x) if others > GAIN * x.input * y.input * columns else None


class _FewOutputs:
    """Writes the kernel. A task is some lines of one plane; what lines of input add is kept in a ring of `ring` lines,
    as positions of `row` elements: window elements, slowest first, then features."""

    def __init__(
        self,
        module: ModuleText,
        target: Target,
        problem: ConvolutionProblem,
        planes: tuple[Axis, ...],
        y: Axis,
        x: Axis,
        epilogue: str | None,
    ) -> None:
        self.f = f = Function(module, "SELF", KERNEL_PARAMETERS)
        self.problem, self.planes, self.y, self.x, self.epilogue = problem, planes, y, x, epilogue
        compute = compute_of(problem.input_type, problem.result_type) or ""
        self.type = COMPUTE_TYPES[compute]
        self.size = size = SIZES[self.type]
        self.lanes = 1 << (problem.outputs - 1).bit_length()
        self.columns = y.window * x.window * problem.outputs
        self.row = -(-(self.columns + self.lanes) // 16) * 16
        self.ring = (y.window - 1) * y.window_dilation // y.base_dilation + 1
        serial = dataclasses.replace(target, threads=1)
        self.product = emit_gemm(
            module,
            serial,
            GemmProblem(
                problem.input_type,
                problem.result_type,
                (),
                x.input,
                self.columns,
                problem.inputs,
                (x.input_stride, 1),
                (self.columns, 1),
                (self.row, 1),
            ),
        )
        self.images = math.prod(a.output for a in planes)
        # Every task computes again what the lines above its first one added.
        microseconds = microseconds_of(problem, target)
        wanted = max(1, min(4 * target.threads, int(microseconds / TASK_US))) if target.threads > 1 else 1
        shares = max(1, min(-(-wanted // self.images), y.output // max(1, 4 * self.ring)))
        self.lines = -(-y.output // shares)
        self.shares = -(-y.output // self.lines)
        self.tasks = self.images * self.shares
        starts, at = [], 0
        for bytes_ in (
            problem.inputs * self.columns * size,
            self.ring * x.input * self.row * size,
            8 * y.window,
            self.product.scratch_bytes,
        ):
            starts.append(at)
            at += -(-bytes_ // 64) * 64 + 64
        self.scratch_bytes = at
        self.source, self.weights, self.made = (
            f.load("ptr", f.offset(f["buffers"], j, "ptr"), 8) for j in range(3)
        )
        own = f.offset(f.load("ptr", f.offset(f["buffers"], 3, "ptr"), 8), f.mul(f["tid"], at))
        self.packed, self.added, self.table, scratch = (f.offset(own, s) for s in starts)
        self.operands = f.stack_slot("[4 x i64]", 8)
        f.store(self.packed, f.offset(self.operands, 1, "ptr"), 8)
        f.store(scratch, f.offset(self.operands, 3, "ptr"), 8)

    def kernel(self) -> None:
        """The whole kernel: the weights as a matrix, then the tasks."""
        f = self.f
        self._pack()
        f.loop(f["lo"], f["hi"], 1, self._task)
        f.ret()

    def _pack(self) -> None:
        """Copies the weights to rows, one for each input feature, of window elements and output features."""
        f, problem = self.f, self.problem

        def element(c: Value, ky: Value, kx: Value, o: Value) -> None:
            at = f.add(
                f.add(f.mul(c, problem.kernel_input), f.mul(o, problem.kernel_output)),
                f.add(f.mul(ky, self.y.kernel_stride), f.mul(kx, self.x.kernel_stride)),
            )
            value = f.load(
                self.type, f.offset(self.weights, f.add(at, problem.kernel_offset), self.type), self.size
            )
            tap = f.add(f.mul(ky, self.x.window), kx)
            to = f.add(f.mul(c, self.columns), f.add(f.mul(tap, problem.outputs), o))
            f.store(value, f.offset(self.packed, to, self.type), self.size)

        f.loop(
            0,
            self.y.window,
            1,
            lambda ky, _: (
                f.loop(
                    0,
                    self.x.window,
                    1,
                    lambda kx, _: (
                        f.loop(
                            0,
                            problem.inputs,
                            1,
                            lambda c, _: f.loop(0, problem.outputs, 1, lambda o, _: element(c, ky, kx, o)),
                        )
                        and None
                    ),
                )
                and None
            ),
        )

    def _task(self, t: Value, _: list[Value]) -> None:
        """Some lines of a plane, first to last; an input line is multiplied when the first of them sees it."""
        f, y = self.f, self.y
        first = f.mul(f.remainder(t, self.shares), self.lines)
        last = f.minimum(f.add(first, self.lines), y.output)
        plane = f.divide(t, self.shares)
        source: Value | int = 0
        made: Value | int = 0
        left: Value | int = plane
        for j in range(len(self.planes) - 1, -1, -1):
            a = self.planes[j]
            place = f.remainder(left, a.output) if j else left
            left = f.divide(left, a.output)
            source, made = (
                f.add(source, f.mul(place, a.input_stride)),
                f.add(made, f.mul(place, a.output_stride)),
            )

        def line(p: Value, carried: list[Value]) -> list[Value]:
            low, high = self._seen(p)
            start = f.intrinsic("smax", "i64", [i64(low), carried[0]])
            f.loop(start, high, 1, lambda i, _: self._multiply(i, source))
            count = self._taps(p)
            self._sum(count, f.add(made, f.mul(p, y.output_stride)))
            if self.epilogue:
                row = f.mul(f.add(f.mul(plane, y.output), p), self.x.output)
                f.call(
                    self.epilogue,
                    "void",
                    [
                        f["ctx"],
                        f["buffers"],
                        *map(i64, (0, row, f.add(row, self.x.output), 0, self.problem.outputs)),
                    ],
                )
            return [f.intrinsic("smax", "i64", [carried[0], i64(high)])]

        f.loop(first, last, 1, line, [i64(0)])

    def _seen(self, p: Value) -> tuple[Value | int, Value | int]:
        """The input lines [low, high) that output line p may see."""
        f, y = self.f, self.y
        d, at = y.base_dilation, f.sub(p, y.pad)
        low = f.divide(f.intrinsic("smax", "i64", [i64(f.add(at, d - 1)), i64(0)]), d)
        end = f.add(at, (y.window - 1) * y.window_dilation + d)
        return low, f.minimum(f.divide(f.intrinsic("smax", "i64", [i64(end), i64(0)]), d), y.input)

    def _multiply(self, i: Value, source: Value | int) -> None:
        """What input line i adds."""
        f = self.f
        at = f.offset(self.source, f.add(source, f.mul(i, self.y.input_stride)), self.type)
        f.store(at, self.operands, 8)
        f.store(self._line_of(i), f.offset(self.operands, 2, "ptr"), 8)
        f.do(
            f"call void @{self.product.symbol}({f['ctx']}, {self.operands}, i64 0, i64 {self.product.tasks}, i64 0)"
        )

    def _line_of(self, i: Value) -> Value:
        f = self.f
        return f.offset(self.added, f.mul(f.remainder(i, self.ring), self.x.input * self.row), self.type)

    def _taps(self, p: Value) -> Value:
        """Writes where the elements of the window along the line axis that output line p has inside added to it;
        returns their number."""
        f, y = self.f, self.y

        def tap(k: Value, carried: list[Value]) -> list[Value]:
            at = f.sub(f.add(p, f.mul(k, y.window_dilation)), y.pad)
            # Negative places stay negative, and are outside, when they are read as whole numbers of steps.
            line = at if y.base_dilation == 1 else f.binary("sdiv", i64(at), i64(y.base_dilation))
            inside = f.compare("icmp ult", i64(at), i64((y.input - 1) * y.base_dilation + 1))
            if y.base_dilation > 1:
                whole = f.compare("icmp eq", i64(f.mul(line, y.base_dilation)), i64(at))
                inside = f.binary("and", inside, whole)
            safe = f.select(inside, i64(line), i64(0))
            to = f.offset(self._line_of(safe), f.mul(k, self.x.window * self.problem.outputs), self.type)
            f.store(to, f.offset(self.table, carried[0], "ptr"), 8)
            return [f.binary("add", carried[0], f.cast("zext", inside, "i64"))]

        return f.loop(0, y.window, 1, tap, [i64(0)])[0]

    def _sum(self, count: Value, made: Value | int) -> None:
        """One line of output: every position sums what was added to it, window element by window element."""
        f, x = self.f, self.x
        d = x.base_dilation
        for phase in range(min(d, x.output)):
            # Position q * d + phase sees input q + shift through window element k, for these (k, shift).
            seen = [
                (k, (phase + k * x.window_dilation - x.pad) // d)
                for k in range(x.window)
                if (phase + k * x.window_dilation - x.pad) % d == 0
            ]
            positions = -(-(x.output - phase) // d)
            low = min(positions, max([0, *(-s for _, s in seen)]))
            high = max(low, min([positions, *(x.input - s for _, s in seen)]))

            def positions_of(
                first: int, last: int, checked: bool, seen: list[tuple[int, int]] = seen, phase: int = phase
            ) -> None:
                def position(q: Value, _: list[Value]) -> None:
                    total = self._position(q, count, seen, checked)
                    to = f.add(made, f.mul(f.add(f.mul(q, d), phase), x.output_stride))
                    self._store(total, f.offset(self.made, to, self.type))

                f.loop(first, last, 1, position)

            positions_of(0, low, True)
            positions_of(low, high, False)
            positions_of(high, positions, True)

    def _position(self, q: Value, count: Value, seen: list[tuple[int, int]], checked: bool) -> Value:
        f, x = self.f, self.x
        vector = vector_type(self.type, self.lanes)
        places = []
        for k, shift in seen:
            at = f.add(q, shift)
            inside = f.compare("icmp ult", i64(at), i64(x.input)) if checked else None
            at = f.select(inside, i64(at), i64(0)) if inside else at
            places.append((f.add(f.mul(at, self.row), k * self.problem.outputs), inside))

        def tap(j: Value, carried: list[Value]) -> list[Value]:
            line, total = f.load("ptr", f.offset(self.table, j, "ptr"), 8), carried[0]
            for at, inside in places:
                value = f.load(vector, f.offset(line, at, self.type), self.size)
                if inside:
                    value = f.select(inside, value, zero(vector))
                total = f.binary("fadd", total, value)
            return [total]

        return f.loop(0, count, 1, tap, [zero(vector)])[0]

    def _store(self, value: Value, to: Value) -> None:
        """Stores the features of one position: halves of the vector while they are whole."""
        f, at, left = self.f, 0, self.problem.outputs
        while left:
            part = 1 << (left.bit_length() - 1)
            lanes = ", ".join(f"i32 {at + j}" for j in range(part))
            piece = (
                f.extract(value, at)
                if part == 1
                else value
                if part == self.lanes
                else f.op(
                    vector_type(self.type, part),
                    f"shufflevector {value}, {value.type} poison, <{part} x i32> <{lanes}>",
                )
            )
            f.store(piece, f.offset(to, at, self.type), self.size)
            at, left = at + part, left - part
