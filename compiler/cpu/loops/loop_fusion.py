"""Kernels of fused computations: loops over the outputs' axes, every element evaluated from the parameters.

The outermost loops are the task dimension when the work is worth several threads. The innermost loop is
vectorised unless the outputs are row reductions, whose own loops are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, Value
from ....runtime.llvm.ir_builder import Index as LoopBound
from ....runtime.llvm.target import Target
from ....runtime.sizes import ceiling, estimate, is_multiple, is_symbolic, larger
from ...analysis.element_reuse import rows_to_join
from ...analysis.instruction_cost import is_expensive
from ...ir.element_types import ElementType
from ...ir.module import Computation, Instruction
from ...ir.shape import Shape
from ...ops import Elementwise, Parameter, Reduce
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import memory_type
from ..codegen.memory_types import store as store_element
from ..codegen.parallel_for import KERNEL_PARAMETERS, grain_of_work
from .access_analysis import AccessAnalysis, Loops, boundaries, is_in_range, split_points
from .affine import Affine, Symbol, lane_offsets, linear_address
from .element_emitter import SHORT_ROW, CachedRow, Elements, Item
from .indexing import Index, reduced_dims
from .loop_nest import LoopNest
from .reduce_emitter import reduce_together
from .reducer import Reducer

PARALLEL_NS = 25_000
_GRAIN_NS = 12_000
_MAX_TASKS = 128
_TASKS_A_THREAD = 4  # from which on rows that are cut where conditions become certain stay whole
_ROW_BYTES = 128 << 10
_REPEATED_ELEMENTS = 64
_SHORT_CHOICE = (
    512  # elements of a row from which on a choice among them is vectorised: combining lanes costs
)
_LINE_BYTES = 64
_MIN_NONTEMPORAL_BYTES = 24 << 20
_LONG_CHAIN = 50  # cycles of functions of functions, whose latencies add up to more than two registers hide
_JOINED_VECTORS = 4  # of short rows, where fewer rows make whole vectors
_MAX_INTERLEAVED_ARRAYS = 8  # arrays read and written along the innermost loop


Visit = Callable[[list[Affine], int, Sequence[int]], None]  # (variables, lanes, offsets of the last variable)


@dataclasses.dataclass
class Output:
    """A leaf of the outputs: the instruction, which of its results, its shape, its buffer's number and
    address."""

    instruction: Instruction
    result: int
    shape: Shape
    buffer: int
    pointer: Ptr = Ptr("ptr", "null")


class FusionKernel:
    """The code of one fused computation: `emit` decides on loops and tasks; `level` and below write loops."""

    parallel_ns = PARALLEL_NS

    def __init__(
        self,
        module: ModuleText,
        target: Target,
        computation: Computation,
        roots: list[Instruction],
        slices: int = 0,
    ) -> None:
        self.slices = slices  # as Slices.parts
        self.module, self.target, self.computation, self.roots = module, target, computation, roots
        self.outputs: list[Output] = []
        for root in roots:
            for k, shape in enumerate(root.shape.leaves()):
                number = len(computation.parameters) + len(self.outputs)
                self.outputs.append(Output(root, k, shape, number))
        self.dims = self.outputs[0].shape.dims
        self.lanes = vector_lanes(computation, target)
        self.task_loops, self.block, self.tasks = 0, 0, 1
        self.inner_tasks = 1  # those at one position of all loops that tasks are made of but the last
        self.joined_vectors = 0  # those of the innermost loop, where it is one step over several rows
        self.split_loops = 0  # innermost of the loops around the vectorised one
        self.cached_rows: dict[Instruction, CachedRow] = {}
        self.scratch_bytes = 0
        self.scratch = Ptr("ptr", "null")  # the thread's own
        self.nontemporal = False  # whether stores are non-temporal
        self.is_in_order = True  # whether loops, as tasks, run over the outputs as they lie in memory

    # -- decisions
    def emit(self) -> KernelInfo:
        """Divides the work into tasks and writes the code; `set_loops` comes first."""
        elements = estimate(math.prod(self.dims))
        total = sum(estimate(o.shape.bytes) for o in self.outputs) + sum(
            min(estimate(p.shape.bytes), elements * count * p.shape.element_type.item_bytes)
            for p, count in self.accesses.reads.items()
        )
        nanoseconds = max(elements * self.accesses.cost / self.lanes / 3.0, total / 20.0)
        self.divide(nanoseconds)
        self.cache_rows()
        symbol = self._with_nontemporal_stores() if self._outgrows_cache() else self._write()
        parallel = self.is_parallel
        grain = self._grain(max(nanoseconds, 1.0)) if parallel else 1
        return KernelInfo(
            symbol,
            self.tasks,
            grain,
            parallel,
            self.scratch_bytes,
            elements * max(1, self.accesses.cost),
            total,
            may_alias=self.may_alias(),
            in_order=self._elements_of_tasks() if parallel else None,
        )

    def _elements_of_tasks(self) -> tuple[int, int] | None:
        """As `KernelInfo.in_order`."""
        counts = self.loops.trip_counts
        if not self.is_in_order or self.block and self.task_loops < len(counts) - 1:
            return None
        if self.block and self.task_loops:
            return counts[-1], self.inner_tasks
        return self.block or math.prod(counts[self.task_loops :]), 1

    def _grain(self, nanoseconds: float) -> int:
        """Tasks that are worth a thread; where sizes are known at run time only, it follows the bytes of the arrays."""
        arrays = [o.shape.bytes for o in self.outputs] + [p.shape.bytes for p in self.accesses.reads]
        moved: int = sum(b for b in arrays if is_symbolic([b]))
        if not is_symbolic([moved]):
            return max(1, math.ceil(self.tasks * _GRAIN_NS / nanoseconds))
        a_nanosecond = estimate(moved) / nanoseconds
        share, least = int(_GRAIN_NS * a_nanosecond), int(self.parallel_ns * a_nanosecond)
        return grain_of_work(self.tasks, moved, max(1, share), least)

    @property
    def is_parallel(self) -> bool:
        """Whether there are several tasks, or so many as is known at run time only."""
        return is_symbolic([self.tasks]) or self.tasks > 1

    def set_loops(self, loops: Loops) -> AccessAnalysis:
        """Takes these loops; returns the accesses in them."""
        self.loops = loops
        symbols, accesses = loops.symbols(), AccessAnalysis()
        self.walk(accesses, loops.index([Affine.of(a) for a in symbols], accesses.division))
        self.accesses, self.loop_symbols = accesses, symbols
        self.vectorised = self._is_vectorised()
        return accesses

    def sink_split_loops(self) -> None:
        """Moves loops that are split at the boundaries of concatenations inside the others, which can become tasks."""
        count = len(self.loops.trip_counts)
        is_split = [bool(boundaries(self.accesses, a)) for a in self.loop_symbols]
        outer = range(count - self.vectorised)
        order = [*sorted(outer, key=lambda k: is_split[k]), *range(len(outer), count)]
        self.split_loops = sum(is_split[k] for k in outer)
        if order != list(range(count)):
            self.is_in_order = False
            place = {loop: k for k, loop in enumerate(order)}
            delinearized = tuple(
                tuple((place[d[0]], *d[1:]) for d in axis) for axis in self.loops.delinearized
            )
            self.set_loops(Loops(tuple(self.loops.trip_counts[k] for k in order), delinearized))
            self.vectorised &= order[-1] == count - 1  # elements of another loop are not neighbours in memory

    def join_short_rows(self) -> None:
        """Lets the innermost loop, where its row is no whole vectors, run over some rows together: what is read in
        order is read in whole vectors; elements of each row, or each position in a row, are shuffled."""
        loops, accesses = self.loops, self.accesses
        row = loops.trip_counts[-1] if len(loops.trip_counts) > 1 else 0
        least = 0 if is_symbolic([row]) else rows_to_join(row, self.lanes)
        if not least or accesses.conditions or accesses.reads_indices or not self._is_dense():
            return
        if not (self._reduces_little() if accesses.reductions else self.vectorised):
            return
        for rows in (4 * least, 2 * least, least):
            if rows > least and rows * row > _JOINED_VECTORS * self.lanes:
                continue
            if not is_multiple(loops.trip_counts[-2], rows) or not self._keeps_slices(rows):
                continue
            self.set_loops(loops.with_rows_joined(rows))
            if self.vectorised and all(self._is_near(x.address) for x in self.accesses.loads):
                self.joined_vectors = rows * row // self.lanes
                return
        self.set_loops(loops)

    def _keeps_slices(self, rows: int) -> bool:
        """Whether no step over so many rows is in two of the slices that the kernel is asked for."""
        steps = math.prod(self.loops.trip_counts[:-1]) // rows
        return not self.slices or is_symbolic([steps, self.slices]) or steps % self.slices == 0

    def _is_dense(self) -> bool:
        """Whether the loops, one after the other, run over the outputs as they lie in memory."""
        rows = tuple(math.prod(self.dims[k + 1 :]) for k in range(len(self.dims)))
        return self.is_in_order and all(
            (o.shape.dims, o.shape.strides) == (self.dims, rows) for o in self.outputs
        )

    def _is_near(self, address: Affine) -> bool:
        """Whether what the innermost loop reads at an address lies within twice as many elements as it has."""
        inner = self.loop_symbols[-1]
        lanes = lane_offsets(address, inner)
        return lanes is not None and max(lanes[1]) - min(lanes[1]) < 2 * (inner.high + 1)

    def _reduces_little(self) -> bool:
        """Whether reductions are of a few cheap values each: the innermost loop may repeat them for each element."""
        sizes = [math.prod(reduced_dims(i)) for i, _ in self.accesses.reductions]
        is_short = not is_symbolic(sizes) and max(sizes) <= SHORT_ROW
        return is_short and not any(map(is_expensive, self.accesses.counts()))

    def walk(self, accesses: AccessAnalysis, index: Index) -> None:
        for output in self.outputs:
            accesses.visit(output.instruction, index)
            accesses.numbers.append(linear_address(index, output.shape.strides))

    def _is_vectorised(self) -> bool:
        """Whether the innermost loop is: not where reductions below walk memory better."""
        if not self.loops.trip_counts:
            return False
        v = self.loop_symbols[-1]
        inner = [(i, index) for i, index in self.accesses.reductions if any(x.coefficient(v) for x in index)]
        if not inner or any(Reducer.of(i).start is None for i, _ in inner):
            return True
        if estimate(self.loops.trip_counts[-1]) < self.lanes:
            return False
        if any(
            not Reducer.of(i).kind and estimate(math.prod(reduced_dims(i))) < _SHORT_CHOICE for i, _ in inner
        ):
            return True
        own = set(self.loop_symbols)
        walked = [x.address for x in self.accesses.loads if not own.issuperset(a for a, _ in x.address.terms)]
        sizes = [math.prod(reduced_dims(i)) for i, _ in inner]
        longest = 1 if is_symbolic(sizes) or max(sizes) > SHORT_ROW else SHORT_ROW
        along = sum(
            address.coefficient(v) in range(longest + 1) and not self.accesses.jumps(address, v)
            for address in walked
        )
        return along * 2 >= len(walked)

    def divide(self, nanoseconds: float) -> None:
        """Chooses the loops that become tasks (a prefix), and blocks of the vectorised loop when there are
        too few.

        A reduction must not be repeated by every task: tasks are made of loops that all reductions' results
        run over.
        """
        if self._divide_in_slices():
            return
        is_short = nanoseconds < self.parallel_ns and not is_symbolic(self.loops.trip_counts)
        if is_short or not self.loops.trip_counts:
            return
        outer = self.loops.trip_counts[: len(self.loops.trip_counts) - self.vectorised - self.split_loops]
        for k, trip_count in enumerate(outer):
            if estimate(self.tasks) >= _MAX_TASKS or not self._all_reduce_over(k):
                break
            self.tasks *= trip_count
            self.task_loops, self.inner_tasks = self.task_loops + 1, trip_count
        last = len(self.loops.trip_counts) - 1
        if (
            self.vectorised
            and self.task_loops == len(outer)
            and estimate(self.tasks) < self._fewest_tasks()
            and self._all_reduce_over(last)
        ):
            trip_count, step = self.loops.trip_counts[last], 16 * self.lanes
            blocks = _MAX_TASKS // estimate(self.tasks)
            if is_symbolic([trip_count]):  # as large as other kernels' tasks, whatever the size is
                blocks = max(1, min(blocks, int(nanoseconds / _GRAIN_NS)))
            block = max(step, math.ceil(estimate(trip_count) / blocks / step) * step)
            if is_symbolic([trip_count]) or block < trip_count:
                self.block, self.inner_tasks = block, ceiling(trip_count, block)
                self.tasks *= self.inner_tasks

    def _divide_in_slices(self) -> bool:
        """Makes tasks of the loops over the slices that the kernel is asked for, where these are known."""
        counts = self.loops.trip_counts
        outer = len(counts) - self.vectorised - self.split_loops
        if not self.slices or is_symbolic([self.slices, *counts]):
            return False
        tasks = 1
        for k in range(outer + 1):
            if tasks % self.slices == 0:
                self.tasks, self.task_loops, self.inner_tasks = tasks, k, counts[k - 1]
                return True
            if k == outer or not self._all_reduce_over(k):
                break
            tasks *= counts[k]
        return False

    def _fewest_tasks(self) -> int:
        """Tasks from which on the last loop is not cut into blocks: these would have to check conditions that become
        certain where it is cut as a whole."""
        counts, last = self.loops.trip_counts, self.loop_symbols[-1]
        cuts = () if is_symbolic(counts) else split_points(self.accesses, last)
        return min(_MAX_TASKS // 2, _TASKS_A_THREAD * self.target.threads) if cuts else _MAX_TASKS // 2

    def _all_reduce_over(self, loop: int) -> bool:
        return all(
            any(
                x.coefficient(self.loop_symbols[loop]) or self.loop_symbols[loop] in x.symbols()
                for x in index
            )
            for i, index in self.accesses.reductions
            if is_symbolic(dims := reduced_dims(i)) or math.prod(dims) > _REPEATED_ELEMENTS
        )

    def _outgrows_cache(self) -> bool:
        """Whether the outputs are not found in cache by whoever reads them next."""
        return (
            self.target.architecture == "x86_64"
            and not self.slices
            and self.vectorised
            and not self.accesses.conditions
            and sum(estimate(o.shape.bytes) for o in self.outputs) >= _MIN_NONTEMPORAL_BYTES
        )

    # -- code
    def _with_nontemporal_stores(self) -> str:
        """A kernel with non-temporal stores where outputs are aligned: the memory is not read before it is written."""
        plain = self._write()
        self.nontemporal = True
        nontemporal = self._write()
        self.nontemporal = False
        if nontemporal == plain:
            return plain
        f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        buffers, bits = f.pointer("buffers"), f.zero("i64")
        for output in self.outputs:
            bits |= buffers.at(output.buffer, "ptr").load("i64")
        arguments = [f[name] for _, name in KERNEL_PARAMETERS]
        with f.if_((bits & (_LINE_BYTES - 1)).equals(0)) as is_aligned:
            f.call(f.symbol(nontemporal), "void", arguments)
        with is_aligned.else_():
            f.call(f.symbol(plain), "void", arguments)
        f.ret()
        return self.module.define("fusion", f)

    def _write(self) -> str:
        f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        nest = self.start(f, range(len(self.computation.parameters)))
        if self.is_parallel:
            self._write_tasks(f, nest)
        else:
            self.task(Affine.number(0))
        nest.finish()
        if self.nontemporal:
            f.call("llvm.x86.sse.sfence", "void", [])
        f.ret()
        return self.module.define("fusion", f)

    def _write_tasks(self, f: Function, nest: LoopNest) -> None:
        """The loop over tasks: two, of which one is the last loop that tasks are made of, where its size is known at
        run time only, so that no task divides by it."""
        low, high = f.integers("low", "high")
        inner = self.inner_tasks
        if not is_symbolic([inner]) or inner == self.tasks:
            task = Symbol("task", 0, self.tasks - 1)
            nest.loop(0, low, high, 1, task, lambda *_: self.task(Affine.of(task)))
            return
        outer_symbol, inner_symbol = (
            Symbol("outer", 0, self.tasks // inner - 1),
            Symbol("inner", 0, inner - 1),
        )
        with nest.at(0):
            first, last = low // inner, (high + (inner - 1)) // inner

        def body(outer: Int, _: list[Value]) -> None:
            with nest.at(nest.depth):
                start = outer * inner
                begin, end = low.maximum(start) - start, (high - start).minimum(inner)
            task = Affine.of(outer_symbol) * inner + Affine.of(inner_symbol)
            nest.loop(nest.depth, begin, end, 1, inner_symbol, lambda *_: self.task(task))

        nest.loop(0, first, last, 1, outer_symbol, body)

    def start(self, f: Function, parameter_buffers: Sequence[int]) -> LoopNest:
        """Opens the function's body: loads the addresses of the buffers."""
        self.nest = LoopNest(f)
        with self.nest.at(0):
            buffers = f.pointer("buffers")
            pointers = [buffers.at(k, "ptr").load_ptr() for k in parameter_buffers]
            for output in self.outputs:
                output.pointer = buffers.at(output.buffer, "ptr").load_ptr()
            if self.scratch_bytes:
                scratch = buffers.at(len(pointers) + len(self.outputs), "ptr").load_ptr()
                self.scratch = scratch + f.integer("thread") * self.scratch_bytes
                for row in self.cached_rows.values():
                    row.pointer = self.scratch + row.offset
        self.elements = Elements(self.nest, self.computation, pointers, reduce_together, self.cached_rows)
        if self.accesses.boundaries:  # reductions of one operand are evaluated without those of the others
            self.elements.siblings = {}
        return self.nest

    def task(self, task: Affine) -> None:
        """The code of one task."""
        variables: list[Affine] = []
        division = self.nest.division
        blocks = ceiling(self.loops.trip_counts[-1], self.block) if self.block else 1
        outer = division.divide(task, blocks)
        step = math.prod(self.loops.trip_counts[: self.task_loops])
        for trip_count in self.loops.trip_counts[: self.task_loops]:
            step //= trip_count
            coordinate = division.divide(outer, step)
            variables.append(division.remainder(coordinate, trip_count) if len(variables) else coordinate)
        self.level(variables, division.remainder(task, blocks))

    def cache_rows(self) -> None:
        """Decides which expensive values that several row loops read are cached in scratch memory."""
        row: Instruction | None = None
        for instruction, index in self.accesses.reductions:
            if any(x.terms for x in index) or not self.is_parallel:
                row = row or instruction
        if (
            row is None
            or not isinstance(row.op, Reduce)
            or not all(
                isinstance(i.op, Reduce)
                and i.op.dimensions == row.op.dimensions
                and i.operands[0].shape.dims == row.operands[0].shape.dims
                for i, _ in self.accesses.reductions
            )
        ):
            return
        axes = row.op.dimensions
        dims = row.operands[0].shape.dims
        strides = tuple(
            math.prod([dims[b] for b in axes if b > a]) if a in axes else 0 for a in range(len(dims))
        )
        counts = self.accesses.counts()
        for instruction, count in counts.items():
            if count == 1 or not is_expensive(instruction) or instruction.shape.dims != dims:
                continue
            # A value that is computed from it alone and read as often is cached in its place.
            while (
                len(users := self.computation.users[instruction]) == 1
                and isinstance(users[0].op, Elementwise)
                and users[0].shape == instruction.shape
                and counts.get(users[0]) == count
            ):
                instruction = users[0]
            size = math.prod(reduced_dims(row)) * instruction.shape.element_type.item_bytes
            if estimate(size) <= _ROW_BYTES and instruction not in self.cached_rows:
                self.cached_rows[instruction] = CachedRow(strides, self.scratch_bytes)
                self.scratch_bytes += (size + 63) // 64 * 64

    def level(self, variables: list[Affine], block: Affine) -> None:
        depth, k = self.nest.depth, len(variables)
        if k == len(self.loops.trip_counts):
            self.store(variables, 1, [0])
            return
        trip_count = self.loops.trip_counts[k]
        if k == len(self.loops.trip_counts) - 1 and self.vectorised:
            self._vector_loop(depth, variables, block)
            return
        starts = [0, *boundaries(self.accesses, self.loop_symbols[k]), trip_count]
        for start, end in zip(starts, starts[1:]):
            self._plain_loop(depth, variables, start, end, block)

    def _plain_loop(self, depth: int, variables: list[Affine], start: int, end: int, block: Affine) -> None:
        """The next loop, over [start, end)."""
        if end == start + 1:
            self.level([*variables, Affine.number(start)], block)
            return
        symbol = Symbol(f"i{len(variables)}", start, end - 1)
        self.nest.loop(
            depth, start, end, 1, symbol, lambda *_: self.level([*variables, Affine.of(symbol)], block)
        )

    def _interleave_counts(self) -> tuple[int, int]:
        """(registers that one value of the innermost loop takes, unrolled copies of the loop's body).

        Both hide latencies and the loop's own cost. Several registers interleave the instructions, and constants are
        loaded once for all; but more values are alive at once. Copies of the body follow one another.
        """
        if self.joined_vectors:
            return 1, self.joined_vectors
        if self.target.is_small:
            return 1, 1
        v, cost = self.loop_symbols[-1], self.accesses.cost
        deep = [i for i, index in self.accesses.reductions if any(x.coefficient(v) for x in index)]
        if deep:
            is_strided = any(x.address.coefficient(v) in range(2, SHORT_ROW + 1) for x in self.accesses.loads)
            return 1, 1 if is_strided else 8 if len(deep) == 1 else 4
        interleave = 4 if cost <= 6 or cost >= _LONG_CHAIN and self.target.vector_bytes == 64 else 2
        inside = sum(bool(x.address.coefficient(v)) for x in self.accesses.loads) + len(self.outputs)
        bits = self.target.vector_bytes * 8 // self.lanes
        if inside <= _MAX_INTERLEAVED_ARRAYS and self.accesses.is_even(v, bits):
            return interleave, 1
        return 1, interleave if cost <= 20 else 1

    def _reduce_outside(self, variables: list[Affine]) -> None:
        """Reductions over the whole row that the innermost loop reads, in order: they fill the cached rows."""
        inner = Affine.of(self.loop_symbols[-1])
        accesses = self._accesses_at(self.loops.index([*variables, inner], self.nest.division))
        order = {i: k for k, i in enumerate(self.computation.instructions)}
        for instruction, index in sorted(accesses.reductions, key=lambda r: order[r[0]]):
            known = all(self.nest.knows(a) for x in index for a, _ in x.terms)
            if known and is_in_range(instruction, index):
                self.elements.results(instruction, index, True)

    def _accesses_at(self, index: Index) -> AccessAnalysis:
        """The accesses at an index of the outputs that is made of symbols of the nest."""
        accesses = AccessAnalysis()
        accesses.division = self.nest.division
        self.walk(accesses, index)
        return accesses

    def _vector_loop(self, depth: int, variables: list[Affine], block: Affine) -> None:
        if self.cached_rows:
            self._reduce_outside(variables)
        trip_count = self.loops.trip_counts[-1]
        if self.block:
            low, at = self.nest.scalar(block * self.block)
            with self.nest.at(max(at, depth)):
                end = (low + self.block).minimum(trip_count)
            self._strip_mined_block(depth, variables, low, end)
            return
        starts = [0, *split_points(self.accesses, self.loop_symbols[-1]), trip_count]
        for start, stop in zip(starts, starts[1:]):
            self.strip_mined_loops(depth, variables, start, stop, start, stop)

    def _strip_mined_block(self, depth: int, variables: list[Affine], low: Int, high: Int) -> None:
        """The vectorised loop over a block, split at boundaries of concatenations."""
        trip_count = self.loops.trip_counts[-1]
        starts = [0, *boundaries(self.accesses, self.loop_symbols[-1]), trip_count]
        if len(starts) == 2:
            self.strip_mined_loops(depth, variables, low, high, 0, trip_count, self.block)
            return
        for start, stop in zip(starts, starts[1:]):
            with self.nest.at(depth):
                first = low.maximum(start)
                last = high.minimum(stop).maximum(first)
            self.strip_mined_loops(depth, variables, first, last, start, stop)

    def strip_mined_loops(
        self,
        depth: int,
        variables: list[Affine],
        low: LoopBound,
        high: LoopBound,
        lower: int,
        upper: int,
        block: int = 0,
        visit: Visit | None = None,
    ) -> None:
        """The vectorised loop over [low, high), which lies in [lower, upper), strip-mined.

        The main loop has interleaved vectors, the next one single vectors; the rest is one shorter vector.

        With `block`, low is a multiple of it, and high the next multiple or `upper`. `visit` gets variables, lanes and
        offsets; the default stores the outputs.
        """
        visit = visit or self.store
        if isinstance(low, int) and high == low + 1:
            visit([*variables, Affine.number(low)], 1, [0])
            return
        registers, unroll = self._interleave_counts()
        while registers * unroll > 1 and estimate(upper - lower) < registers * unroll * self.lanes:
            registers, unroll = max(registers // 2, 1), max(unroll // 2, 1)
        main_width = self.lanes * registers
        has_constant_rest = isinstance(low, int) and isinstance(high, int) or bool(block)
        if is_symbolic([upper - lower]):
            rests = [1 << k for k in reversed(range((self.lanes - 1).bit_length()))] or [1]
        else:
            rests = [max((upper - lower) % self.lanes if has_constant_rest else 1, 1)]
        passes = [(main_width, unroll), (self.lanes, 1), *((rest, 1) for rest in rests)]
        for width, many in dict.fromkeys(passes):
            step = width * many
            if isinstance(low, int) and isinstance(high, int):
                end: LoopBound = low + (high - low) // step * step
                if end == low:
                    continue
            elif width == rests[-1] and width < self.lanes or block and not upper % step:
                end = high
            else:
                with self.nest.at(depth) as f:
                    end = low + (f.i64(high) - low).round_down(step)
            # Of the first vector's lanes: those behind it are inside too. A symbol would need one more guard for that.
            behind = 0 if is_symbolic([upper - lower]) else step - width
            symbol = Symbol("v", lower, larger(upper - 1 - behind, lower + 1))

            def body(
                _: Int, __: list[Value], symbol: Symbol = symbol, width: int = width, many: int = many
            ) -> None:
                visit([*variables, Affine.of(symbol)], width, [u * width for u in range(many)])

            self.nest.loop(depth, low, end, step, symbol, body, (), width)
            if end is high:
                return
            low = end

    def store(self, variables: list[Affine], lanes: int, offsets: Sequence[int]) -> None:
        """Evaluates all outputs at the variables (the last one moved by each offset), then stores them."""
        places = [
            [*variables[:-1], variables[-1] + Affine.number(offset)] if variables else []
            for offset in offsets
        ]
        indices = [self.loops.index(place, self.nest.division) for place in places]
        if len(indices) > 1:
            self._reduce_ahead(indices)
        stores: list[tuple[Output, Affine, Item]] = []
        for place, index in zip(places, indices):
            for output in self.outputs:
                # Of rows that are joined the index is no sum of the variables any more.
                joined = self.loops.joined_rows > 1
                address = self.loops.number(place) if joined else linear_address(index, output.shape.strides)
                stores.append((output, address, self._value(output, index)))
        for output, address, item in stores:
            self.put(output, address, item, lanes)

    def put(self, output: Output, address: Affine, item: Item, lanes: int) -> None:
        """Stores an element (or lanes of them) of an output from the element `address` on, in the innermost loop."""
        t = output.shape.element_type
        widened = self.elements.widen(item, lanes)
        address = address * (2 if t.is_complex else 1)
        pointer, _ = self.nest.pointer(output.pointer, memory_type(t), address)
        size, register = lanes * t.item_bytes, self.target.vector_bytes
        is_nontemporal = (
            self.nontemporal
            and lanes % self.lanes == 0
            and size % 16 == 0
            and _is_multiple(address, self.nest.vector, t.item_bytes, min(size, register))
        )
        with self.nest.at(self.nest.depth) as f:
            store_element(
                f,
                t,
                widened.element,
                pointer,
                lanes,
                nontemporal=is_nontemporal,
                align=min(size, register) if is_nontemporal else None,
            )

    def _value(self, output: Output, index: Index) -> Item:
        if output.instruction.shape.is_tuple:
            return self.elements.results(output.instruction, index, True)[output.result]
        return self.elements.value(output.instruction, index)

    def _reduce_ahead(self, indices: list[Index]) -> None:
        """Reductions of columns: all of the unrolled body's at once, so that one pass walks whole cache
        lines."""
        if not self.accesses.reductions:
            return
        analyses = [self._accesses_at(index) for index in indices]
        for together in zip(*(p.reductions for p in reversed(analyses))):
            together = together[::-1]
            instruction, index = together[0]
            if (
                not all(self.nest.knows(a) for x in index for a, _ in x.terms)
                or not any(self.nest.varies(x) for x in index)
                or not all(is_in_range(*r) for r in together)
                or self.nest.lookup(self.elements.reduced, (instruction, index, True)) is not None
            ):
                continue
            group = self.elements.siblings.get(instruction, [instruction])
            self.elements.reduce(group, [index for _, index in together])

    def may_alias(self) -> frozenset[tuple[int, int]]:
        """(output, parameter) pairs that may share memory: the parameter is read at the output's index, or a row of it
        by reductions that are made before the row of the output is stored."""
        pairs = set()
        index = self.loops.index([Affine.of(a) for a in self.loop_symbols], self.accesses.division)
        for k, output in enumerate(self.outputs):
            address = linear_address(index, output.shape.strides)
            for p in self.computation.parameters:
                reads = [x for x in self.accesses.loads if x.source is p]
                if (
                    p.shape.bytes == output.shape.bytes
                    and p.shape.elements == output.shape.elements
                    and reads
                    and all(x.address == address or self._reads_row_before(x.address, address) for x in reads)
                ):
                    assert isinstance(p.op, Parameter)
                    pairs.add((k, p.op.number))
        return frozenset(pairs)

    def _reads_row_before(self, address: Affine, output: Affine) -> bool:
        """Whether an address runs over the row that the innermost loop stores, for a reduction before that loop."""
        reduced = [(a, c) for a, c in address.terms if a in self.accesses.reduced]
        is_divided = self.block or self.task_loops == len(self.loop_symbols)
        if len(reduced) != 1 or is_divided or not self.is_in_order:
            return False
        (symbol, factor), inner = reduced[0], self.loop_symbols[-1]
        return (
            (factor, symbol.low, symbol.high) == (output.coefficient(inner), inner.low, inner.high)
            and address.constant == output.constant
            and set(address.terms) - {reduced[0]} == {t for t in output.terms if t[0] is not inner}
            and not any(inner in x.symbols() for _, index in self.accesses.reductions for x in index)
        )


def _is_multiple(address: Affine, vector: tuple[Symbol, int] | None, item_bytes: int, unit: int) -> bool:
    """Whether an address is a multiple of so many bytes where the vectorised variable is."""
    return (
        vector is not None
        and address.constant * item_bytes % unit == 0
        and all((a is vector[0] and c == 1) or c * item_bytes % unit == 0 for a, c in address.terms)
    )


def vector_lanes(computation: Computation, target: Target) -> int:
    """Lanes of the vectorised loop: a full register of the widest type that the computation mainly works
    in."""
    bits = 8
    for instruction in computation.instructions:
        if not instruction.shape.is_array or (instruction.shape.is_scalar and computation.root.shape.rank):
            continue
        t = instruction.shape.element_type
        if t.real.accumulator is ElementType.F64:
            bits = max(bits, 64)
        elif t.is_float or t.is_complex or t.bits >= 32:
            bits = max(bits, 32)
        elif t is not ElementType.PRED:
            bits = max(bits, t.bits)
    types = {i.shape.element_type for i in computation.instructions if i.shape.is_array}
    if bits == 32 and types <= {ElementType.S64, ElementType.U64, ElementType.PRED}:
        bits = 64
    return target.lanes(bits)
