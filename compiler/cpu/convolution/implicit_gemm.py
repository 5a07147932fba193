"""Convolution as a matrix product: rows are output positions, columns output features, the sum runs over the window
elements and input features.

The rows of A are never copied together: tables of pointers say where the input features lie that a position sees
(convolution/microkernel.py). The pointers lead into the input itself, or into staged input: a copy of the part that
some output positions see, converted, with padding and holes as zeros. Input that is dilated for a backward pass is
split into phases, convolutions without holes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from functools import partial

from ....runtime.llvm.ir_builder import Function, Index, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ....runtime.sizes import ceiling, is_symbolic, larger, smaller
from ...analysis.convolution_problem import Axis, ConvolutionProblem, Phase, window_of
from ..codegen.kernel_info import NO_SLICES, KernelInfo, Slices
from ..codegen.parallel_for import KERNEL_PARAMETERS
from ..codegen.result_window import move_window, window_rows
from ..gemm.compute_types import COMPUTE_TYPES, SIZES, STORED, lanes_of
from ..gemm.driver import constant_table, parameter_table
from ..gemm.microkernel import Microkernels, microkernel_table
from ..gemm.packing import use_panels
from ..gemm.uses import embed
from .blocking import (
    Blocking,
    depth_block,
    parts_of_phase,
    plan_blocking,
    serial_microseconds,
    tile_sizes,
)
from .kernel import (
    both,
    buffer,
    call_epilogue,
    copy_rows,
    has_dense_rows,
    input_position,
    kernel_plan,
    may_have_window,
    positions_along,
    scratch_of_thread,
)
from .microkernel import (
    P,
    convolution_name,
    convolution_sweep_name,
    declare_convolution,
    rows_of,
    write_convolution,
    write_convolution_sweep,
)


def emit_convolution_gemm(
    module: ModuleText,
    target: Target,
    problem: ConvolutionProblem,
    bytes_: int,
    epilogue: str | None,
    b_packed: bool = False,
    keeps_result: bool = True,
    slices: Slices = NO_SLICES,
) -> KernelInfo | None:
    """Writes the kernel; None for an order of the output's axes or for types that no kernel computes. A result that is
    not kept is in a window of the scratch.

    With `b_packed` the buffer of the weights has the layout of packed_kernel.
    The view of the epilogue is [1, positions, features], or [batch, features, positions] where the output lies so.
    """
    row_bytes = problem.groups * problem.out_channels * problem.result_type.item_bytes
    has_window = not keeps_result and may_have_window(problem)
    most_rows = window_rows(target, row_bytes) if has_window else 0
    blocking = plan_blocking(problem, target, b_packed, most_rows, slices)
    if blocking is None:
        return None
    window_bytes = blocking.block_rows * row_bytes if has_window else 0
    compute, vectors = blocking.compute, blocking.vectors
    sweeps = {
        (width, mr): convolution_sweep_name(compute, vectors, width, mr)
        for width, mr in tile_sizes(blocking, target)
    }
    if not module.embed_libraries:
        declare_convolution(module, target, compute, vectors, sweeps)
    kernel = _ImplicitGemm(module, target, blocking, epilogue, sweeps, window_bytes)
    with kernel.f.loop(kernel.f.integer("low"), kernel.f.integer("high")) as task:
        kernel.task(task.index)
    kernel.f.ret()
    microseconds = serial_microseconds(problem, target)
    scratch_bytes = blocking.scratch_bytes + window_bytes
    plan = kernel_plan(
        kernel.f, "convolution", target, problem, kernel.tasks, microseconds, bytes_, scratch_bytes
    )
    is_in_order = problem.groups == 1 and has_dense_rows(problem)
    row_tasks = (blocking.rows_in_chain, kernel.col_tasks) if is_in_order else None
    return dataclasses.replace(plan, has_window=has_window, row_tasks=row_tasks)


class _ImplicitGemm:
    """Writes the body of one task: a range of positions and of a group's output features."""

    def __init__(
        self,
        module: ModuleText,
        target: Target,
        blocking: Blocking,
        epilogue: str | None,
        sweeps: Microkernels,
        window_bytes: int,
    ) -> None:
        self.f = f = Function(module, "SELF", KERNEL_PARAMETERS)
        self.module, self.target, self.epilogue = module, target, epilogue
        self.blocking, self.problem = blocking, blocking.problem
        compute, vectors = blocking.compute, blocking.vectors
        self.sweeps = sweeps
        self.table_of_sweeps = microkernel_table(target, vectors, rows_of(target, compute, vectors), sweeps)
        self.type = COMPUTE_TYPES[compute]
        self.size, self.input_size = SIZES[self.type], self.problem.input_type.item_bytes
        self.kernel_size = self.problem.kernel_type.item_bytes
        self.positions = self.problem.batch * self.problem.positions
        self.row_tasks = ceiling(self.positions, blocking.task_rows)
        self.col_tasks = -(-self.problem.out_channels // blocking.task_cols)
        self.tasks = self.row_tasks * self.col_tasks * self.problem.groups
        self.input, self.weights, self.output = (buffer(f, j) for j in range(3))
        scratch = scratch_of_thread(f, blocking.scratch_bytes + window_bytes)
        self.window = scratch + blocking.scratch_bytes if window_bytes else None
        self.scratch = {name: scratch + start for name, start in blocking.scratch_offsets.items()}
        if not blocking.stages_input:
            self._clear(self.scratch["zeros"], blocking.k * self.size)

    def _clear(self, address: Ptr, count: Index) -> None:
        self.f.call("memset", "void", [address, self.f.constant("i8", 0), count])

    # -- tasks and blocks

    def task(self, t: Int) -> None:
        """One range of positions and of a group's output features, for every phase."""
        f, blocking, problem = self.f, self.blocking, self.problem
        col = t % self.col_tasks * blocking.task_cols
        low = t // self.col_tasks % self.row_tasks * blocking.task_rows
        group = t // (self.col_tasks * self.row_tasks)
        self.cols = f.i64(blocking.task_cols).minimum(problem.out_channels - col)
        high = (low + blocking.task_rows).minimum(self.positions)
        self.group_input = self.input + group * (problem.input_group * self.input_size)
        self.task_weights = self._task_weights(group, col)
        self.column = group * problem.out_channels + col
        self.task_output = self.output.at(self.column * problem.output_feature, self.type)
        if len(blocking.phases) == 1:
            self._phase(blocking.phases[0], low, high)
            return
        # A range of whole images: every phase has its own count of positions in it.
        images = self.positions // blocking.row_unit
        for phase in blocking.phases:
            share = phase.positions // images
            self._phase(phase, low // blocking.row_unit * share, high // blocking.row_unit * share)
        self._finish(low, high)

    def _task_weights(self, group: Int, col: Int) -> Ptr:
        """The address of the weights of a task; weights that are packed beforehand are the packed B."""
        blocking, problem = self.blocking, self.problem
        if blocking.panel_bytes:
            columns = blocking.vectors * lanes_of(self.target, blocking.compute)
            panel = group * -(-problem.out_channels // columns) + col // columns
            self.scratch["packed B"] = self.weights + panel * blocking.panel_bytes
            return self.scratch["packed B"]
        first = group * problem.kernel_group + col * problem.kernel_output
        return self.weights + first * self.kernel_size

    def _finish(self, low: Int, high: Int) -> None:
        """Calls the epilogue for positions low to high."""
        if self.epilogue is None:
            return
        f, column = self.f, self.column
        if not self.blocking.transposes_output:
            call_epilogue(f, self.epilogue, 0, (low, high), (column, column + self.cols))
            return
        first = low % self.problem.positions
        image = low // self.problem.positions
        features = column, column + self.cols
        call_epilogue(f, self.epilogue, image, features, (first, first + (high - low)))

    def _phase(self, phase: Phase, low: Int, high: Int) -> None:
        """Computes positions low to high of a phase, block by block."""
        if not phase.positions:
            return
        tables = self._parameter_tables(phase)
        if self.blocking.stages_input:
            self._staged_blocks(phase, tables, low, high)
            return
        f, rows = self.f, self.blocking.block_rows
        with f.loop(low, high, rows) as block:
            count = f.i64(rows).minimum(high - block.index)
            self._block(phase, tables, low, block.index, count, self.group_input, f.i64(0))

    def _staged_blocks(self, phase: Phase, tables: tuple[Ptr, Ptr], low: Int, high: Int) -> None:
        """For some positions along the split axis at a time: stages the input that they see and computes them."""
        f, blocking = self.f, self.blocking
        inner, height = larger(blocking.split_rows(phase), 1), blocking.split_height(phase)
        size = larger(phase.axes[blocking.split_axis].output, 1)
        first, end = low // inner, high // inner
        with f.loop(first // size, (end + (size - 1)) // size) as outer:
            before = outer.index * size
            start = (first - before).maximum(0)
            stop = f.i64(size).minimum(end - before)
            with f.loop(start, stop, height) as block:
                s = block.index
                count = f.i64(height).minimum(stop - s)
                self._stage(phase, outer.index, s, count)
                row, rows = (before + s) * inner, count * inner
                self._block(phase, tables, low, row, rows, self.scratch["staged input"], s)

    def _block(
        self,
        phase: Phase,
        tables: tuple[Ptr, Ptr],
        first_row: Int,
        row: Int,
        rows: Int,
        base: Ptr,
        start: Int,
    ) -> None:
        """Computes `rows` positions from `row`. `base` is the input of position `start` along the split axis."""
        f, blocking, problem = self.f, self.blocking, self.problem
        if self.window is not None:
            features = problem.groups * problem.out_channels
            output = move_window(f, self.window, row * (features * self.size))
            self.task_output = output.at(self.column * problem.output_feature, self.type)
        self._pointer_tables(phase, row, rows, base, start)
        packs, pack = f.i64(0), f.null
        if not blocking.panel_bytes:
            packs = Int.zero_extended(row.equals(first_row))
            pack = f.symbol(
                use_panels(
                    self.module,
                    self.target,
                    problem.kernel_type,
                    blocking.compute,
                    blocking.vectors,
                    problem.kernel_output,
                )
            )
        arguments = [
            self.scratch["rows of A"],
            self.scratch["rows of C"],
            self.task_weights,
            self.scratch["packed B"],
            self.scratch["tail"],
            *tables,
            pack,
            packs,
            rows,
            self.cols,
        ]
        f.call(convolution_name(blocking.compute, blocking.vectors), "void", arguments)
        if blocking.transposes_output:
            self._transpose_tile(phase, row, rows)
        end = row + rows
        if len(blocking.phases) == 1:
            self._finish(row, end)

    def _transpose_tile(self, phase: Phase, row: Int, rows: Int) -> None:
        """Copies the tile of C, [positions, features], to the output, [features, positions]."""
        f, blocking = self.f, self.blocking
        copy_rows(
            f,
            self.target,
            (STORED[blocking.compute], blocking.compute),
            self.scratch["tile of C"],
            self.task_output.at(self._positions(phase, row)[1], self.type),
            (self.cols, rows),
            (self.size, blocking.task_cols * self.size),
            self.problem.output_feature * self.size,
        )

    def _parameter_tables(self, phase: Phase) -> tuple[Ptr, Ptr]:
        """The addresses of the parameter array and of the table of byte offsets of the kernel's window elements."""
        blocking, problem = self.blocking, self.problem
        tap_axes = blocking.tap_axes(phase)
        taps, merged = window_of(tap_axes), window_of(phase.axes[len(tap_axes) :])
        k = problem.in_channels * merged
        panel_row_bytes = blocking.vectors * lanes_of(self.target, blocking.compute) * self.size
        tap_block, k_block = depth_block(taps, k, merged, panel_row_bytes, self.target)
        values = {
            P.TAPS: taps,
            P.K: k,
            P.TAP_BLOCK: tap_block,
            P.K_BLOCK: k_block,
            P.MERGED: max(merged, 1),
            P.B_K: problem.kernel_input * self.kernel_size,
            P.B_COL: problem.kernel_output * self.kernel_size,
            P.TABLE: blocking.block_rows * 8,
            P.TAIL_TILE: -(-blocking.block_rows * 8 // 64) * 64,
            P.REUSES_B: int(blocking.reuses_b),
            P.PANEL: blocking.panel_bytes,
        }
        elements = itertools.product(*(range(a.window) for a in phase.axes))
        offsets = [
            phase.kernel_offset + sum(k * a.kernel_stride for k, a in zip(element, phase.axes))
            for element in elements
        ]
        if self.module.embed_libraries:
            self._embed(values)
        listed = [values[slot] for slot in P]
        parameters = parameter_table(self.f, "conv_parameters", listed, self.table_of_sweeps)
        taps_table = constant_table(self.module, "conv_taps", [o * self.kernel_size for o in offsets] or [0])
        return parameters, self.f.symbol(taps_table)

    def _embed(self, parameters: dict[P, int]) -> None:
        """Writes the functions that a phase with these parameters calls."""
        compute, vectors = self.blocking.compute, self.blocking.vectors
        used = parts_of_phase(self.blocking, self.target, parameters), parameters
        common = self.module, self.target, compute, vectors
        block = partial(write_convolution, *common, "internal")
        embed(self.module, convolution_name(compute, vectors), *used, block)
        for (width, mr), name in self.sweeps.items():
            sweep = partial(write_convolution_sweep, *common, width, mr, "internal")
            embed(self.module, name, *used, sweep)

    def _positions(self, phase: Phase, row: Int) -> tuple[list[Int], Int]:
        """(position along every axis, offset in the output in elements) of a position's number."""
        positions = [self.f.i64(0)] * len(phase.axes)
        for j, _, position in positions_along(row, phase.axes):
            positions[j] = position
        return positions, self._output_offset(phase, positions)

    def _output_offset(self, phase: Phase, positions: list[Int]) -> Int:
        """The offset in the output, in elements, of a position along every axis."""
        output = self.f.i64(phase.output_offset)
        for axis, position in zip(reversed(phase.axes), reversed(positions)):
            output += position * axis.output_stride
        return output

    def _next_position(self, phase: Phase, positions: list[Int]) -> list[Int]:
        """The position along every axis of the position after this one."""
        following, carry = list(positions), self.f.i64(1)
        for j in reversed(range(len(positions))):
            following[j] = positions[j] + carry
            if j:
                wraps = following[j].equals(phase.axes[j].output)
                following[j], carry = wraps.choose(self.f.i64(0), following[j]), Int.zero_extended(wraps)
        return following

    # -- tables of pointers

    def _pointer_tables(self, phase: Phase, row: Int, rows: Int, base: Ptr, start: Int) -> None:
        """Writes the addresses of every tap of positions row, row + 1, ..., and of their results."""
        f = self.f
        has_taps = self.problem.in_channels and window_of(self.blocking.tap_axes(phase))

        is_known = not is_symbolic(a.output for a in phase.axes)
        first = [] if is_known else self._positions(phase, row)[0]
        with f.loop(0, rows, positions=first) as position:
            r = position.index
            if is_known:
                positions, output = self._positions(phase, row + r)
            else:  # without divisions by numbers that are known at run time only
                positions, output = position.positions, self._output_offset(phase, position.positions)
                position.positions = self._next_position(phase, positions)
            if self.blocking.transposes_output:
                result = self.scratch["tile of C"].at(r * self.blocking.task_cols, self.type)
            else:
                result = self.task_output.at(output, self.type)
            self.scratch["rows of C"].at(r, "ptr").store(result)
            if has_taps:
                self._tap_pointers(phase, r, positions, base, start)

    def _tap_pointers(self, phase: Phase, r: Int, positions: list[Int], base: Ptr, start: Int) -> None:
        """Writes the addresses of the taps of position r of a block. The table of A has a line for each tap."""
        f, blocking = self.f, self.blocking
        staged = blocking.stages_input
        tap_axes = blocking.tap_axes(phase)
        strides = blocking.staged_strides(phase) if staged else [a.input_stride for a in phase.axes]
        offset, firsts = f.i64(0), list[Int]()
        for j, a in enumerate(phase.axes):
            o = positions[j] - start if staged and j == blocking.split_axis else positions[j]
            firsts.append(o * a.stride - (0 if staged else a.pad))
            offset += firsts[j] * strides[j]

        def taps_along(j: int, offset: Int, valid: VectorValue | None, entry: Ptr) -> None:
            if j == len(tap_axes):
                pointer = base.at(offset, self.type)
                entry.store(valid.choose(pointer, self.scratch["zeros"]) if valid else pointer)
                return
            a = tap_axes[j]
            lines = window_of(tap_axes[j + 1 :]) * blocking.block_rows

            def element(k: Int) -> None:
                inside = None
                if a.has_border and not staged:
                    seen = firsts[j] + k * a.window_dilation
                    inside = seen.compare("icmp ult", a.input)
                tap_valid = both(valid, inside)
                at = offset + k * (a.window_dilation * strides[j])
                taps_along(j + 1, at, tap_valid, entry.at(k * lines, "ptr"))

            if a.window == 1:
                element(f.i64(0))
            else:
                with f.loop(0, a.window) as window:
                    element(window.index)

        taps_along(0, offset, None, self.scratch["rows of A"].at(r, "ptr"))

    # -- staged input

    def _stage(self, phase: Phase, outer: Int, start: Int, count: Int) -> None:
        """Copies the input that `count` positions from `start` along the split axis see, with zeros between."""
        f, problem, axes = self.f, self.problem, phase.axes
        if not problem.in_channels or not window_of(axes):
            return
        split = self.blocking.split_axis
        strides, a = self.blocking.staged_strides(phase), axes[split]
        lines = (count - 1) * a.stride + a.dilated_window
        if any(b.has_border for b in axes[split:]):
            self._clear(self.scratch["staged input"], lines * (strides[split] * self.size))
        image, rest = f.i64(0), outer
        for j in reversed(range(split)):
            position = rest % axes[j].output if j else rest
            image += position * axes[j].input_stride
            rest = rest // axes[j].output
        with f.loop(0, lines) as line:
            y = line.index
            seen, is_inside = self._seen(a, y - a.pad + start * a.stride)
            with f.if_(is_inside) if is_inside else contextlib.nullcontext():
                source = image + seen * a.input_stride
                self._stage_line(phase, strides, split + 1, source, y * strides[split])

    def _seen(self, a: Axis, dilated: Int) -> tuple[Int, VectorValue | None]:
        """(input position, whether it is inside) of a position in the padded and dilated input."""
        seen, is_whole = input_position(a, dilated)
        return seen, both(is_whole, seen.compare("icmp ult", a.input) if a.has_border else None)

    def _stage_line(self, phase: Phase, strides: list[int], j: int, source: Int, staged: Int) -> None:
        """Copies the input along axes j, j + 1, ..., from and to these offsets in elements."""
        f, axes = self.f, phase.axes
        if j >= len(axes) - 1:
            self._stage_rows(axes[j] if j < len(axes) else None, strides, source, staged)
            return
        a = axes[j]
        low, high = _staged_range(a)

        with f.loop(low, high) as position:
            i = position.index
            origin = source + i * a.input_stride
            output = staged + (i * a.base_dilation + a.pad) * strides[j]
            self._stage_line(phase, strides, j + 1, origin, output)

    def _stage_rows(self, axis: Axis | None, strides: list[int], source: Int, staged: Int) -> None:
        """Copies the input features of all positions along the last axis, or of one position if there is no axis."""
        f, problem = self.f, self.problem
        low, high = _staged_range(axis) if axis else (0, 1)
        rows, width = larger(0, high - low), problem.in_channels
        row_stride = axis.input_stride if axis else 0
        staged_row = axis.base_dilation * strides[-1] if axis else width
        first = (low * axis.base_dilation + axis.pad) * strides[-1] if axis else 0
        output = self.scratch["staged input"] + (staged + first) * self.size
        origin = self.group_input + (source + low * row_stride) * self.input_size
        if axis and (row_stride, problem.input_feature) == (width, 1) and axis.base_dilation == 1:
            rows, width = 1, rows * width
        copy_rows(
            f,
            self.target,
            (problem.input_type, self.blocking.compute),
            origin,
            output,
            (rows, width),
            (row_stride * self.input_size, problem.input_feature * self.input_size),
            staged_row * self.size,
        )


def _staged_range(axis: Axis) -> tuple[int, int]:
    """The input positions [low, high) that some output position sees."""
    d = axis.base_dilation
    return larger(0, -(axis.pad // d)), smaller(axis.input, -(-(axis.extent(axis.output) - axis.pad) // d))
