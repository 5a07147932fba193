"""Convolution whose batch is contiguous in memory: the gradient of a kernel, as frameworks write it.

The input's features take the batch's place and the positions of the incoming gradient are the window: large windows,
few positions. For every position it is a matrix product, input features by output features, that sums over images and
window elements. Input elements are read where they lie, features side by side; border elements are left out of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64
from ....runtime.llvm.target import Target
from ..codegen.kernel_info import KernelPlan
from ..gemm.compute_types import COMPUTE_TYPES, SIZES, compute_of, if_, lanes_of
from ..gemm.microkernel import constant_table, sweep_table, tile_heights, vector_counts
from ..gemm.packing import use_panels, use_rows
from .implicit_gemm import KERNEL_PARAMETERS, microseconds_of
from .microkernel import declare_gradient, gradient_sweep_name, rows_of, write_gradient, write_gradient_sweep
from .problem import Axis, ConvolutionProblem

TASK_US, PARALLEL_US = 20.0, 30.0
FEW_ROWS = 16  # positions along the last axis are taken together where input features are fewer
MOST_ROWS = 192
FAR_BYTES, FEW_PANELS = 1024, 4
DEPTH = 256  # steps summed at a time: a panel of B that stays in L1


def emit_gradient(
    module: ModuleText, target: Target, problem: ConvolutionProblem, moved: int, epilogue: str | None
) -> KernelPlan | None:
    """Writes the kernel; None where the form is another. The view of the epilogue is [1, positions, features]."""
    compute = compute_of(problem.input_type, problem.result_type)
    axes = sorted(
        (a for a in problem.axes if a.window * a.output * a.input != 1 or a.has_border),
        key=lambda a: -a.output_stride,
    )
    if (
        compute is None
        or problem.input_type is not problem.kernel_type
        or problem.input_batch != 1
        or problem.input_type.item_bytes != SIZES[COMPUTE_TYPES[compute]]
        or problem.input_feature == 1
        or problem.output_feature != 1
        or not axes
        or any(a.base_dilation > 1 for a in axes)
        or axes[-1].output_stride < problem.output_batch
    ):
        return None
    lanes = lanes_of(target, compute)
    vectors = min(
        vector_counts(compute),
        key=lambda v: -(-problem.outputs // (v * lanes)) * v * lanes / {1: 0.85, 2: 1.0, 3: 0.95}[v],
    )
    writer = _Gradient(module, target, problem, tuple(axes), compute, vectors, epilogue)
    if module.embed_libraries:
        write_gradient(module, target, compute, vectors, "internal")
        for _, mr in writer.sweeps:
            write_gradient_sweep(module, target, compute, vectors, mr, "internal")
    else:
        declare_gradient(module, compute, vectors, writer.sweeps)
    f = writer.f
    f.loop(f["lo"], f["hi"], 1, writer.task)
    f.ret()
    tasks, microseconds = writer.tasks, microseconds_of(problem, target)
    grain = max(1, min(tasks, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))))
    parallel = tasks > 1 and target.threads > 1 and microseconds >= PARALLEL_US
    return KernelPlan(
        module.define("convolution", f), tasks, grain, parallel, writer.scratch_bytes, problem.flops, moved
    )


class _Gradient:
    """Writes the body of one task: a range of rows and one of columns, for `inner` places (positions of all axes but
    the last): all of them, so that B is packed once, or one where there are too few tasks otherwise."""

    def __init__(
        self,
        module: ModuleText,
        target: Target,
        problem: ConvolutionProblem,
        axes: tuple[Axis, ...],
        compute: str,
        vectors: int,
        epilogue: str | None,
    ) -> None:
        self.f = f = Function(module, "SELF", KERNEL_PARAMETERS)
        self.module, self.target, self.problem, self.epilogue = module, target, problem, epilogue
        self.outer, self.x = axes[:-1], axes[-1]
        self.compute, self.vectors = compute, vectors
        self.type = COMPUTE_TYPES[compute]
        self.size, self.nr = SIZES[self.type], vectors * lanes_of(target, compute)
        # One run: the window elements along the last axis, of one image and one element of the other axes.
        self.runs = problem.inputs * math.prod(a.window for a in self.outer)
        self.block = max(1, min(self.runs, DEPTH // max(self.x.window, 1)))
        parts = -(-problem.batch // MOST_ROWS)
        mr = rows_of(target, compute, vectors)
        self.rows = -(-problem.batch // (parts * mr)) * mr if parts > 1 else problem.batch
        self.row_tasks = -(-problem.batch // self.rows)
        self.places = math.prod(a.output for a in self.outer)
        others = self.row_tasks * problem.groups
        self.inner = self.places if others * -(-problem.outputs // self.nr) >= target.threads else 1
        others *= self.places // self.inner
        self.cols = self._columns(others, target.threads)
        self.col_tasks = -(-problem.outputs // self.cols)
        self.tasks = others * self.col_tasks
        # The window elements that every position along the last axis has inside.
        seen = [self._seen(o) for o in range(self.x.output)]
        self.common = max(s[0] for s in seen), min(s[1] for s in seen)
        self.together = (
            problem.batch < FEW_ROWS
            and self.x.output > 1
            and self.common[0] < self.common[1]
            and self.x.stride * self.x.input_stride == problem.batch
            and self.x.output_stride == problem.batch * problem.output_batch
        )
        together = (self.x.output * problem.batch,) if self.together else ()
        heights = tile_heights((min(self.rows, problem.batch), problem.batch % self.rows, *together), mr)
        self.sweeps = {
            (vectors, height): gradient_sweep_name(compute, vectors, height) for height in sorted(heights)
        }
        self.table = constant_table(
            module, "gradient_sweeps", (), sweep_table(target, vectors, mr, self.sweeps)
        )
        # Rows that lie a multiple of a page or so apart displace each other in the cache: where there is one position,
        # they are copied together first.
        self.step = self.x.window_dilation * self.x.input_stride * self.size
        self.copies = (
            self.places == self.x.output == 1 and self.step >= FAR_BYTES and self.cols >= FEW_PANELS * self.nr
        )
        self.line = -(-self.rows * self.size // 64) * 64
        panel = self.block * self.x.window * self.nr * self.size
        table = self.inner * self.block * 8
        sizes = (
            panel,
            table,
            table,
            self.inner * 8,
            self.inner * self.x.output * self.rows * self.nr * self.size,
            self.block * self.x.window * self.line if self.copies else 0,
        )
        starts, at = [], 0
        for bytes_ in sizes:
            starts.append(at)
            at += -(-bytes_ // 64) * 64 + 64
        self.scratch_bytes = at
        self.source, self.kernel, self.made = (
            f.load("ptr", f.offset(f["buffers"], j, "ptr"), 8) for j in range(3)
        )
        own = f.offset(f.load("ptr", f.offset(f["buffers"], 3, "ptr"), 8), f.mul(f["tid"], at))
        self.packed, self.a_table, self.b_table, self.counts, self.tile, self.copy = (
            f.offset(own, s) for s in starts
        )

    def _columns(self, others: int, threads: int) -> int:
        """Columns of a task, where the others are given: panels that keep the busiest thread busy least."""
        panels = -(-self.problem.outputs // self.nr)
        splits = range(1, min(panels, 4 * threads) + 1) if threads > 1 else (1,)
        widths = {-(-panels // split) for split in splits}
        return self.nr * min(widths, key=lambda w: (-(-others * -(-panels // w) // threads) * (w + 0.3), -w))

    def _seen(self, o: int) -> tuple[int, int]:
        """The window elements [low, high) along the last axis that position o has inside."""
        x, first = self.x, o * self.x.stride - self.x.pad
        low = min(x.window, max(0, -(first // x.window_dilation)))
        return low, max(low, min(x.window, -(-(x.input - first) // x.window_dilation)))

    def task(self, t: Value, _: list[Value]) -> None:
        """Sums all runs, block by block, into the columns, panel by panel."""
        f, problem = self.f, self.problem
        col = f.mul(f.remainder(t, self.col_tasks), self.cols)
        left = f.divide(t, self.col_tasks)
        row = f.mul(f.remainder(left, self.row_tasks), self.rows)
        left = f.divide(left, self.row_tasks)
        outer_places = self.places // self.inner
        self.place, group = f.remainder(left, outer_places), f.divide(left, outer_places)
        cols = f.minimum(self.cols, f.sub(problem.outputs, col))
        rows = f.minimum(self.rows, f.sub(problem.batch, row))
        source: Value | int = f.add(f.mul(group, problem.input_group), row)
        column = f.add(f.mul(group, problem.output_group), col)
        kernel = f.add(
            problem.kernel_offset,
            f.add(f.mul(group, problem.kernel_group), f.mul(col, problem.kernel_output)),
        )
        self.c = f.offset(self.made, f.add(column, f.mul(row, problem.output_batch)), self.type)
        self.row_count = rows

        def block(start: Value, _: list[Value]) -> None:
            runs = f.minimum(self.block, f.sub(self.runs, start))
            first = f.compare("icmp eq", start, i64(0))
            self._each_place(lambda p: self._tables(start, runs, p, source))

            def panel(j: Value, _: list[Value]) -> None:
                width = f.minimum(self.nr, f.sub(cols, j))
                self._pack(start, runs, f.add(kernel, f.mul(j, problem.kernel_output)), width)
                whole = f.compare("icmp eq", i64(width), i64(self.nr))
                self._each_place(lambda p: self._positions(p, j, whole, first))

            f.loop(0, cols, self.nr, panel)

        # A sum over nothing is one block of no runs: zeros.
        f.loop(0, max(self.runs, 1), self.block, block)
        tail = i64(f.remainder(cols, self.nr))

        def copy(p: Value | int) -> None:
            c, tile = self._made(p)

            def position(o: Value, _: list[Value]) -> None:
                to = f.offset(c, f.add(f.mul(o, self.x.output_stride), f.sub(cols, tail)), self.type)
                from_ = f.offset(tile, f.mul(o, self.rows * self.nr * self.size))
                f.call(
                    use_rows(self.module, self.target, problem.input_type, self.compute),
                    "void",
                    [
                        from_,
                        to,
                        i64(rows),
                        tail,
                        i64(self.nr * self.size),
                        i64(self.size),
                        i64(problem.output_batch * self.size),
                        tail,
                    ],
                )

            f.loop(0, self.x.output, 1, position)

        if problem.outputs % self.nr:
            if_(f, f.compare("icmp ne", tail, i64(0)), lambda: self._each_place(copy))
        if self.epilogue:

            def finish(p: Value | int) -> None:
                def position(o: Value, _: list[Value]) -> None:
                    number = f.add(f.mul(f.add(self.place, p), self.x.output), o)
                    low = f.add(f.mul(number, problem.batch), row)
                    f.call(
                        str(self.epilogue),
                        "void",
                        [
                            f["ctx"],
                            f["buffers"],
                            i64(0),
                            i64(low),
                            i64(f.add(low, rows)),
                            i64(column),
                            i64(f.add(column, cols)),
                        ],
                    )

                f.loop(0, self.x.output, 1, position)

            self._each_place(finish)

    def _each_place(self, body: Callable[[Value | int], None]) -> None:
        """A loop over the numbers of a task's places."""
        self.f.loop(0, self.inner, 1, lambda p, _: body(p))

    def _along(self, p: Value | int) -> tuple[list[Value | int], Value | int]:
        """(first input position along the outer axes, offset in the output in elements) of a task's place."""
        f = self.f
        firsts: list[Value | int] = []
        made: Value | int = 0
        rest: Value | int = f.add(self.place, p)
        for j in range(len(self.outer) - 1, -1, -1):
            a = self.outer[j]
            o = f.remainder(rest, a.output) if j else rest
            rest = f.divide(rest, a.output)
            firsts.insert(0, f.sub(f.mul(o, a.stride), a.pad))
            made = f.add(made, f.mul(o, a.output_stride))
        return firsts, made

    def _made(self, p: Value | int) -> tuple[Value, Value]:
        """Where a task's place has its results: in the output, and in the tile for a narrow last panel."""
        f = self.f
        tile = f.mul(p, self.x.output * self.rows * self.nr * self.size)
        return f.offset(self.c, self._along(p)[1], self.type), f.offset(self.tile, tile)

    def _indices(self, run: Value | int) -> tuple[Value | int, list[Value | int]]:
        """(image, window elements of the outer axes) of a run."""
        f = self.f
        window: list[Value | int] = []
        for a in reversed(self.outer):
            window.insert(0, f.remainder(run, a.window))
            run = f.divide(run, a.window)
        return run, window

    def _tables(self, start: Value, runs: Value | int, p: Value | int, source: Value | int) -> None:
        """Writes where the runs lie that are inside the input, in A and in the packed B, and their number."""
        f, problem = self.f, self.problem
        firsts, _ = self._along(p)
        a_table, b_table = (f.offset(t, f.mul(p, self.block), "ptr") for t in (self.a_table, self.b_table))

        def run(r: Value, carried: list[Value]) -> list[Value]:
            image, window = self._indices(f.add(start, r))
            at, valid = f.add(source, f.mul(image, problem.input_feature)), None
            for a, first, k in zip(self.outer, firsts, window):
                seen = f.add(first, f.mul(k, a.window_dilation))
                at = f.add(at, f.mul(seen, a.input_stride))
                if a.has_border:
                    inside = f.compare("icmp ult", i64(seen), i64(a.input))
                    valid = f.binary("and", valid, inside) if valid else inside
            origin = f.offset(self.source, at, self.type)
            if self.copies:
                origin = self._copied(origin, carried[0], valid)
            f.store(origin, f.offset(a_table, carried[0], "ptr"), 8)
            f.store(
                f.offset(self.packed, f.mul(r, self.x.window * self.nr), self.type),
                f.offset(b_table, carried[0], "ptr"),
                8,
            )
            return [f.binary("add", carried[0], f.cast("zext", valid, "i64") if valid else i64(1))]

        f.store(f.loop(0, runs, 1, run, [i64(0)])[0], f.offset(self.counts, p, "i64"), 8)

    def _copied(self, origin: Value, number: Value, valid: Value | None) -> Value:
        """Copies the steps of a run that are inside; returns where its first step would lie."""
        f, x = self.f, self.x
        low, high = self._seen(0)
        place = f.offset(self.copy, f.mul(number, x.window * self.line))

        def run() -> None:
            f.call(
                use_rows(self.module, self.target, self.problem.input_type, self.compute),
                "void",
                [
                    f.offset(origin, (low * x.window_dilation - x.pad) * x.input_stride, self.type),
                    f.offset(place, low * self.line),
                    i64(high - low),
                    i64(self.row_count),
                    i64(self.step),
                    i64(self.size),
                    i64(self.line),
                    i64(self.row_count),
                ],
            )

        if_(f, valid or Value("i1", "true"), run)
        return place

    def _pack(self, start: Value, runs: Value | int, kernel: Value | int, width: Value | int) -> None:
        """Packs a panel of B: all runs of the block, those outside the input too."""
        f, problem, x = self.f, self.problem, self.x
        name = use_panels(
            self.module, self.target, problem.input_type, self.compute, self.vectors, problem.kernel_output
        )

        def run(r: Value, _: list[Value]) -> None:
            image, window = self._indices(f.add(start, r))
            at = f.add(kernel, f.mul(image, problem.kernel_input))
            for a, k in zip(self.outer, window):
                at = f.add(at, f.mul(k, a.kernel_stride))
            f.call(
                name,
                "void",
                [
                    f.offset(self.kernel, at, self.type),
                    f.offset(self.packed, f.mul(r, x.window * self.nr), self.type),
                    i64(x.window),
                    i64(width),
                    i64(x.kernel_stride * self.size),
                    i64(problem.kernel_output * self.size),
                ],
            )

        f.loop(0, runs, 1, run)

    def _positions(self, p: Value | int, column: Value, whole: Value, first: Value) -> None:
        """One panel of columns of all positions along the last axis."""
        f, problem, x = self.f, self.problem, self.x
        made, tiles = self._made(p)
        runs = f.load("i64", f.offset(self.counts, p, "i64"), 8)
        a_table, b_table = (f.offset(t, f.mul(p, self.block), "ptr") for t in (self.a_table, self.b_table))
        ldc = f.select(whole, i64(problem.output_batch * self.size), i64(self.nr * self.size))
        step = self.line if self.copies else self.step
        fresh = f.cast("zext", f.binary("xor", first, Value("i1", "true")), "i64")

        def sweep(o: int, low: int, high: int, rows: Value | int, accumulate: Value) -> None:
            shift = ((o * x.stride - x.pad) + low * x.window_dilation) * x.input_stride * self.size
            shift = low * self.line if self.copies else shift
            direct = f.offset(made, f.add(column, o * x.output_stride), self.type)
            tile = f.offset(tiles, o * self.rows * self.nr * self.size)
            c = f.select(whole, direct, tile)
            f.call(
                f"tfb_convt_{self.compute}_{self.vectors}",
                "void",
                [
                    a_table,
                    i64(shift),
                    b_table,
                    i64(low * self.nr * self.size),
                    c,
                    ldc,
                    runs,
                    i64(high - low),
                    i64(step),
                    accumulate,
                    i64(rows),
                    Value("ptr", f"@{self.table}"),
                ],
            )

        low, high = self.common if self.together else (0, 0)
        if self.together:
            sweep(0, low, high, x.output * problem.batch, fresh)
        for o in range(x.output):
            all_ = self._seen(o)
            if not self.together:
                sweep(o, *all_, self.row_count, fresh)
                continue
            for part in ((all_[0], low), (high, all_[1])):
                if part[0] < part[1]:
                    sweep(o, *part, self.row_count, i64(1))
