"""Kernels of fused computations: loops over the outputs' axes, every element evaluated from the parameters.

The outermost loops are the task dimension when the work is worth several threads. The innermost loop is
vectorised unless the outputs are row reductions, whose own loops are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64
from ....runtime.llvm.target import Target
from ...analysis.instruction_cost import is_expensive
from ...ir.element_types import ElementType
from ...ir.module import Computation, Instruction
from ...ir.shape import Shape
from ...ops import ROWS, Parameter
from ...options import Options
from ..codegen.kernel_info import KernelPlan
from ..codegen.memory_types import memory_type
from ..codegen.memory_types import store as store_element
from .access_analysis import Loops, Probe, choose_loops, seams, split_points
from .affine import Affine, Atom
from .element_emitter import Elements, Index, Item, KeptRow, is_bitcast, sum_products
from .loop_nest import LoopNest
from .reduce_emitter import Reducer, reduced_dims

KERNEL_PARAMETERS = (("ptr", "run_context"), ("ptr", "buffers"), ("i64", "lo"), ("i64", "hi"), ("i64", "tid"))
PARALLEL_NS = 25_000
_GRAIN_NS = 12_000
_MOST_TASKS = 128
_ROW_BYTES = 128 << 10
_REPEATED_ELEMENTS = 64
_SHORT_CHOICE = 512  # elements of a row from which on a choice is made along it: combining lanes costs
_LINE_BYTES = 64
_LEAST_STREAMED_BYTES = 24 << 20
_FEW_SEAMS = 4  # operands of concatenations of which one is chosen for each element
_LONG_CHAIN = 50  # cycles of functions of functions, whose latencies add up to more than two registers hide
_MOST_TWINS = 8  # arrays read and written along the innermost loop


Visit = Callable[[list[Affine], int, Sequence[int]], None]  # (variables, lanes, offsets of the last variable)


def emit_fused(module: ModuleText, target: Target, computation: Computation, options: Options) -> KernelPlan:
    """Writes the kernel of a fused computation: parameters in, the root (or, of a tuple, its parts) out.

    Raises: UnsupportedError  an op in it has no code for its elements.
    """
    from .bitcast_convert import emit_reinterpret
    from .column_reduction import ColumnKernel, is_column_reduction
    from .scan import ScanKernel, cumulative_axis  # they extend this file's class
    from .tiled_transpose import TileKernel, transposed_loop

    if computation.root.opcode == "bitcast-convert" and not is_bitcast(computation.root):
        return emit_reinterpret(module, computation)
    roots = computation.root.operands if computation.root.opcode == "tuple" else (computation.root,)
    kernel = FusionKernel(module, target, computation, list(roots))
    if math.prod(kernel.dims) == 0:
        f = Function(module, "SELF", KERNEL_PARAMETERS)
        f.ret()
        return KernelPlan(module.define("fusion", f), 0)
    cumulative = cumulative_axis(computation.root)
    if cumulative is not None:
        return ScanKernel(kernel, *cumulative).emit()
    kernel.settle(choose_loops(kernel.dims, kernel.walk))
    kernel.move_seams_inwards()
    across = transposed_loop(kernel)
    if across is not None and len(kernel.probe.seams) <= _FEW_SEAMS:
        kernel = TileKernel(kernel, across)
    elif is_column_reduction(kernel):
        kernel = ColumnKernel(kernel)
    return kernel.emit()


@dataclasses.dataclass
class Output:
    """A leaf of the outputs: the instruction, which of its results, its shape, its buffer's number and
    address."""

    instruction: Instruction
    result: int
    shape: Shape
    buffer: int
    pointer: Value = Value("ptr", "null")


class FusionKernel:
    """The code of one fused computation: `emit` decides on loops and tasks; `level` and below write loops."""

    parallel_ns = PARALLEL_NS

    def __init__(
        self, module: ModuleText, target: Target, computation: Computation, roots: list[Instruction]
    ) -> None:
        self.module, self.target, self.computation, self.roots = module, target, computation, roots
        self.outputs: list[Output] = []
        for root in roots:
            for k, shape in enumerate(root.shape.leaves()):
                number = len(computation.parameters) + len(self.outputs)
                self.outputs.append(Output(root, k, shape, number))
        self.dims = self.outputs[0].shape.dims
        self.lanes = vector_lanes(computation, target)
        self.task_loops, self.block, self.tasks = 0, 0, 1
        self.cut_loops = 0  # innermost of the loops around the vectorised one
        self.kept: dict[Instruction, KeptRow] = {}
        self.scratch_bytes = 0
        self.scratch = Value("ptr", "null")  # the thread's own
        self.streams = False  # stores go past the caches

    # -- decisions
    def emit(self) -> KernelPlan:
        """Divides the work into tasks and writes the code; `settle` comes first."""
        elements = math.prod(self.dims)
        total = sum(o.shape.bytes for o in self.outputs) + sum(
            min(p.shape.bytes, elements * count * p.shape.element_type.item_bytes)
            for p, count in self.probe.reads.items()
        )
        nanoseconds = max(elements * self.probe.cost / self.lanes / 3.0, total / 20.0)
        self.divide(nanoseconds)
        self.keep_rows()
        symbol = self._streamed() if self._outgrows_cache() else self._write()
        parallel = self.tasks > 1
        grain = max(1, math.ceil(self.tasks * _GRAIN_NS / max(nanoseconds, 1.0))) if parallel else 1
        return KernelPlan(
            symbol,
            self.tasks,
            grain,
            parallel,
            self.scratch_bytes,
            elements * max(1, self.probe.cost),
            total,
            in_place=self.in_place(),
        )

    def settle(self, loops: Loops) -> Probe:
        """Takes these loops; returns what is read in them."""
        self.loops = loops
        atoms, probe = loops.atoms(), Probe()
        self.walk(probe, loops.index([Affine.of(a) for a in atoms], probe.division))
        self.probe, self.probe_atoms = probe, atoms
        self.vectorised = self._is_vectorised()
        return probe

    def move_seams_inwards(self) -> None:
        """Puts loops that are cut at the seams of concatenations inside the others, which can become tasks."""
        count = len(self.loops.extents)
        is_cut = [bool(seams(self.probe, a)) for a in self.probe_atoms]
        outer = range(count - self.vectorised)
        order = [*sorted(outer, key=lambda k: is_cut[k]), *range(len(outer), count)]
        self.cut_loops = sum(is_cut[k] for k in outer)
        if order != list(range(count)):
            place = {loop: k for k, loop in enumerate(order)}
            digits = tuple(tuple((place[d[0]], *d[1:]) for d in axis) for axis in self.loops.digits)
            self.settle(Loops(tuple(self.loops.extents[k] for k in order), digits))
            self.vectorised &= order[-1] == count - 1  # elements of another loop are not neighbours in memory

    def walk(self, probe: Probe, index: Index) -> None:
        for output in self.outputs:
            probe.visit(output.instruction, index)
            probe.numbers.append(sum_products(index, output.shape.strides))

    def _is_vectorised(self) -> bool:
        """Whether the innermost loop is: not where reductions below walk memory better."""
        if not self.loops.extents:
            return False
        v = self.probe_atoms[-1]
        inner = [(i, index) for i, index in self.probe.reductions if any(x.coefficient(v) for x in index)]
        if not inner or any(Reducer.of(i).start is None for i, _ in inner):
            return True
        if self.loops.extents[-1] < self.lanes:
            return False
        if any(not Reducer.of(i).kind and math.prod(reduced_dims(i)) < _SHORT_CHOICE for i, _ in inner):
            return True
        own = set(self.probe_atoms)
        walked = [x.address for x in self.probe.loads if not own.issuperset(a for a, _ in x.address.terms)]
        along = sum(address.coefficient(v) in (0, 1) for address in walked)
        return along * 2 >= len(walked)

    def divide(self, nanoseconds: float) -> None:
        """Chooses the loops that become tasks (a prefix), and blocks of the vectorised loop when there are
        too few.

        A reduction must not be repeated by every task: tasks are made of loops that all reductions' results
        run over.
        """
        if nanoseconds < self.parallel_ns or not self.loops.extents:
            return
        outer = self.loops.extents[: len(self.loops.extents) - self.vectorised - self.cut_loops]
        for k, extent in enumerate(outer):
            if self.tasks >= _MOST_TASKS or not self._all_reduce_over(k):
                break
            self.tasks *= extent
            self.task_loops += 1
        last = len(self.loops.extents) - 1
        if (
            self.vectorised
            and self.task_loops == len(outer)
            and self.tasks < _MOST_TASKS // 2
            and self._all_reduce_over(last)
        ):
            pieces = _MOST_TASKS // self.tasks
            step = 16 * self.lanes
            block = max(step, math.ceil(self.loops.extents[last] / pieces / step) * step)
            if block < self.loops.extents[last]:
                self.block = block
                self.tasks *= math.ceil(self.loops.extents[last] / block)

    def _all_reduce_over(self, loop: int) -> bool:
        return all(
            any(x.coefficient(self.probe_atoms[loop]) or self.probe_atoms[loop] in x.atoms() for x in index)
            for i, index in self.probe.reductions
            if math.prod(reduced_dims(i)) > _REPEATED_ELEMENTS
        )

    def _outgrows_cache(self) -> bool:
        """Whether the outputs are not found in cache by whoever reads them next."""
        return (
            self.target.architecture == "x86_64"
            and self.vectorised
            and not self.probe.conditions
            and sum(o.shape.bytes for o in self.outputs) >= _LEAST_STREAMED_BYTES
        )

    # -- code
    def _streamed(self) -> str:
        """A kernel that stores past the caches where outputs are aligned, which spares reading them first."""
        plain = self._write()
        self.streams = True
        past = self._write()
        self.streams = False
        if past == plain:
            return plain
        f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        bits = i64(0)
        for output in self.outputs:
            at = f.load("i64", f.offset(f["buffers"], output.buffer, "ptr"), 8)
            bits = f.binary("or", bits, at)
        arguments = ", ".join(str(f[name]) for _, name in KERNEL_PARAMETERS)
        is_aligned = f.compare("icmp eq", f.binary("and", bits, i64(_LINE_BYTES - 1)), i64(0))
        f.branch(
            is_aligned,
            lambda: f.do(f"call void @{past}({arguments})"),
            lambda: f.do(f"call void @{plain}({arguments})"),
        )
        f.ret()
        return self.module.define("fusion", f)

    def _write(self) -> str:
        f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        nest = self.start(f, range(len(self.computation.parameters)))
        if self.tasks > 1:
            task = Atom("task", 0, self.tasks - 1)
            nest.loop(0, f["lo"], f["hi"], 1, task, lambda *_: self.task(Affine.of(task)))
        else:
            self.task(Affine.number(0))
        nest.finish()
        if self.streams:
            f.call("llvm.x86.sse.sfence", "void", [])
        f.ret()
        return self.module.define("fusion", f)

    def start(self, f: Function, parameter_buffers: Sequence[int]) -> LoopNest:
        """Opens the function's body: loads the addresses of the buffers."""
        self.nest = LoopNest(f)
        with self.nest.at(0):
            pointers = [f.load("ptr", f.offset(f["buffers"], k, "ptr"), 8) for k in parameter_buffers]
            for output in self.outputs:
                output.pointer = f.load("ptr", f.offset(f["buffers"], output.buffer, "ptr"), 8)
            if self.scratch_bytes:
                scratch = f.load("ptr", f.offset(f["buffers"], len(pointers) + len(self.outputs), "ptr"), 8)
                self.scratch = f.offset(scratch, f.mul(f["tid"], self.scratch_bytes))
                for row in self.kept.values():
                    row.pointer = f.offset(self.scratch, row.offset)
        self.elements = Elements(self.nest, self.computation, pointers, self.kept)
        if self.probe.seams:  # an operand's reductions are wanted without the other operands'
            self.elements.siblings = {}
        return self.nest

    def task(self, task: Affine) -> None:
        """The code of one task."""
        variables: list[Affine] = []
        division = self.nest.division
        blocks = math.ceil(self.loops.extents[-1] / self.block) if self.block else 1
        outer = division.divide(task, blocks)
        step = math.prod(self.loops.extents[: self.task_loops])
        for extent in self.loops.extents[: self.task_loops]:
            step //= extent
            digit = division.divide(outer, step)
            variables.append(division.remainder(digit, extent) if len(variables) else digit)
        self.level(variables, division.remainder(task, blocks))

    def keep_rows(self) -> None:
        """Decides which values that are dear and read by several row loops are kept in scratch memory."""
        row: Instruction | None = None
        for instruction, index in self.probe.reductions:
            if any(x.terms for x in index) or self.tasks == 1:
                row = row or instruction
        if (
            row is None
            or row.opcode != "reduce"
            or not all(
                i.opcode == "reduce"
                and i.op.dimensions == row.op.dimensions  # type: ignore[attr-defined]
                and i.operands[0].shape.dims == row.operands[0].shape.dims
                for i, _ in self.probe.reductions
            )
        ):
            return
        axes = row.op.dimensions  # type: ignore[attr-defined]
        dims = row.operands[0].shape.dims
        strides = tuple(
            math.prod([dims[b] for b in axes if b > a]) if a in axes else 0 for a in range(len(dims))
        )
        counts = self.probe.counts()
        for instruction, count in counts.items():
            if count == 1 or not is_expensive(instruction) or instruction.shape.dims != dims:
                continue
            # What is made of it alone, and read as often, spares making that again too.
            while (
                len(users := self.computation.users[instruction]) == 1
                and users[0].opcode in ROWS
                and users[0].shape == instruction.shape
                and counts.get(users[0]) == count
            ):
                instruction = users[0]
            size = math.prod(reduced_dims(row)) * instruction.shape.element_type.item_bytes
            if size <= _ROW_BYTES and instruction not in self.kept:
                self.kept[instruction] = KeptRow(strides, self.scratch_bytes)
                self.scratch_bytes += (size + 63) // 64 * 64

    def level(self, variables: list[Affine], block: Affine) -> None:
        depth, k = self.nest.depth, len(variables)
        if k == len(self.loops.extents):
            self.store(variables, 1, [0])
            return
        extent = self.loops.extents[k]
        if k == len(self.loops.extents) - 1 and self.vectorised:
            self._vector_loop(depth, variables, block)
            return
        starts = [0, *seams(self.probe, self.probe_atoms[k]), extent]
        for start, end in zip(starts, starts[1:]):
            self._plain_loop(depth, variables, start, end, block)

    def _plain_loop(self, depth: int, variables: list[Affine], start: int, end: int, block: Affine) -> None:
        """The next loop, over [start, end)."""
        if end == start + 1:
            self.level([*variables, Affine.number(start)], block)
            return
        atom = Atom(f"i{len(variables)}", start, end - 1)
        self.nest.loop(
            depth, start, end, 1, atom, lambda *_: self.level([*variables, Affine.of(atom)], block)
        )

    def _copies(self) -> tuple[int, int]:
        """(registers that one value of the innermost loop takes, copies of the loop's body): both hide
        latencies and the loop's own cost.

        Twin registers put every instruction beside its twin, and constants are loaded once for both; but more
        values than registers would be alive where many are. Copies of the body follow one another.
        """
        v, cost = self.probe_atoms[-1], self.probe.cost
        deep = [i for i, index in self.probe.reductions if any(x.coefficient(v) for x in index)]
        if deep:
            return 1, 8 if len(deep) == 1 else 4
        copies = 4 if cost <= 6 or cost >= _LONG_CHAIN and self.target.vector_bytes == 64 else 2
        inside = sum(bool(x.address.coefficient(v)) for x in self.probe.loads) + len(self.outputs)
        bits = self.target.vector_bytes * 8 // self.lanes
        if inside <= _MOST_TWINS and self.probe.is_even(v, bits):
            return copies, 1
        return 1, copies if cost <= 20 else 1

    def _reduce_outside(self, variables: list[Affine]) -> None:
        """Reductions that the innermost loop needs whole, in order: what they keep of the row is then
        there."""
        known = dict(zip(self.probe_atoms, variables))
        found = [
            (i, index)
            for i, index in self.probe.reductions
            if all(a in known for x in index for a in x.atoms())
        ]
        order = {i: k for k, i in enumerate(self.computation.instructions)}
        for instruction, index in sorted(found, key=lambda r: order[r[0]]):
            self.elements.results(instruction, tuple(x.replaced(known) for x in index), True)

    def _vector_loop(self, depth: int, variables: list[Affine], block: Affine) -> None:
        if self.kept:
            self._reduce_outside(variables)
        extent = self.loops.extents[-1]
        if self.block:
            low, at = self.nest.scalar(block * self.block)
            with self.nest.at(max(at, depth)) as f:
                end = f.minimum(f.add(low, self.block), extent)
            self._block_pieces(depth, variables, low, i64(end))
            return
        starts = [0, *split_points(self.probe, self.probe_atoms[-1]), extent]
        for start, stop in zip(starts, starts[1:]):
            self.pieces(depth, variables, start, stop, start, stop)

    def _block_pieces(self, depth: int, variables: list[Affine], low: Value, high: Value) -> None:
        """The vectorised loop over a block, cut at seams."""
        extent = self.loops.extents[-1]
        starts = [0, *seams(self.probe, self.probe_atoms[-1]), extent]
        if len(starts) == 2:
            self.pieces(depth, variables, low, high, 0, extent, self.block)
            return
        for start, stop in zip(starts, starts[1:]):
            with self.nest.at(depth) as f:
                first = f.maximum(low, start)
                last = f.maximum(f.minimum(high, stop), first)
            self.pieces(depth, variables, first, last, start, stop)

    def pieces(
        self,
        depth: int,
        variables: list[Affine],
        low: Value | int,
        high: Value | int,
        least: int,
        most: int,
        block: int = 0,
        visit: Visit | None = None,
    ) -> None:
        """The vectorised loop over [low, high), which lies in [least, most): unrolled, plain, and what is
        left in a vector of just so many lanes. With `block`, low is a multiple of it and high the next, or
        `most`. `visit` is told variables, lanes and offsets, as `store` is by default."""
        visit = visit or self.store
        if isinstance(low, int) and high == low + 1:
            visit([*variables, Affine.number(low)], 1, [0])
            return
        registers, unroll = self._copies()
        while registers * unroll > 1 and most - least < registers * unroll * self.lanes:
            registers, unroll = max(registers // 2, 1), max(unroll // 2, 1)
        wide = self.lanes * registers
        is_known = isinstance(low, int) and isinstance(high, int) or bool(block)
        rest = (most - least) % self.lanes if is_known else 1
        for width, many in dict.fromkeys([(wide, unroll), (self.lanes, 1), (max(rest, 1), 1)]):
            step = width * many
            if isinstance(low, int) and isinstance(high, int):
                end: Value | int = low + (high - low) // step * step
                if end == low:
                    continue
            elif width < self.lanes or (block and most % step == 0):
                end = high
            else:
                with self.nest.at(depth) as f:
                    length = f.sub(high, low)
                    end = f.add(low, f.binary("and", i64(length), i64(-step)))
            atom = Atom("v", least, max(most - 1, least + 1))

            def body(
                _: Value, __: list[Value], atom: Atom = atom, width: int = width, many: int = many
            ) -> None:
                visit([*variables, Affine.of(atom)], width, [u * width for u in range(many)])

            self.nest.loop(depth, low, end, step, atom, body, (), width)
            if end is high:
                return
            low = end

    def store(self, variables: list[Affine], lanes: int, offsets: Sequence[int]) -> None:
        """Evaluates all outputs at the variables (the last one moved by each offset), then stores them."""
        indices = []
        for offset in offsets:
            moved = [*variables[:-1], variables[-1] + Affine.number(offset)] if variables else []
            indices.append(self.loops.index(moved, self.nest.division))
        if len(indices) > 1:
            self._reduce_ahead(indices)
        found: list[tuple[Output, Index, Item]] = []
        for index in indices:
            for output in self.outputs:
                found.append((output, index, self._value(output, index)))
        for output, index, item in found:
            self.put(output, index, item, lanes)

    def put(self, output: Output, index: Index, item: Item, lanes: int) -> None:
        """Stores an element (or lanes of them) of an output, in the innermost loop."""
        t = output.shape.element_type
        wide = self.elements.widen(item, lanes)
        address = sum_products(index, output.shape.strides) * (2 if t.is_complex else 1)
        pointer, _ = self.nest.pointer(output.pointer, memory_type(t), address)
        size, register = lanes * t.item_bytes, self.target.vector_bytes
        past = (
            self.streams
            and lanes % self.lanes == 0
            and size % 16 == 0
            and _is_multiple(address, self.nest.vector, t.item_bytes, min(size, register))
        )
        with self.nest.at(self.nest.depth) as f:
            store_element(
                f,
                t,
                wide.element,
                pointer,
                lanes,
                nontemporal=past,
                align=min(size, register) if past else None,
            )

    def _value(self, output: Output, index: Index) -> Item:
        if output.instruction.shape.is_tuple:
            return self.elements.results(output.instruction, index, True)[output.result]
        return self.elements.value(output.instruction, index)

    def _reduce_ahead(self, indices: list[Index]) -> None:
        """Reductions of columns: all of the unrolled body's at once, so that one pass walks whole cache
        lines."""
        if not self.probe.reductions:
            return
        probes = [Probe() for _ in indices]
        for probe, index in zip(probes, indices):
            probe.division = self.nest.division
            self.walk(probe, index)
        for together in zip(*(p.reductions for p in reversed(probes))):
            together = together[::-1]
            instruction, index = together[0]
            if (
                not all(self.nest.knows(a) for x in index for a, _ in x.terms)
                or not any(self.nest.varies(x) for x in index)
                or self.nest.recall(("results", instruction, index, True))
            ):
                continue
            group = self.elements.siblings.get(instruction, [instruction])
            self.elements.reduce(group, [index for _, index in together])

    def in_place(self) -> frozenset[tuple[int, int]]:
        """(output, parameter) pairs that may share memory: the parameter is read at the output's index
        only."""
        pairs = set()
        index = self.loops.index([Affine.of(a) for a in self.probe_atoms], self.probe.division)
        for k, output in enumerate(self.outputs):
            address = sum_products(index, output.shape.strides)
            for p in self.computation.parameters:
                reads = [x for x in self.probe.loads if x.source is p]
                if (
                    p.shape.bytes == output.shape.bytes
                    and p.shape.elements == output.shape.elements
                    and reads
                    and all(x.address == address for x in reads)
                ):
                    assert isinstance(p.op, Parameter)
                    pairs.add((k, p.op.number))
        return frozenset(pairs)


def _is_multiple(address: Affine, vector: tuple[Atom, int] | None, item_bytes: int, unit: int) -> bool:
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
        if t.real is ElementType.F64:
            bits = max(bits, 64)
        elif t.is_float or t.is_complex or t.bits >= 32:
            bits = max(bits, 32)
        elif t is not ElementType.PRED:
            bits = max(bits, t.bits)
    types = {i.shape.element_type for i in computation.instructions if i.shape.is_array}
    if bits == 32 and types <= {ElementType.S64, ElementType.U64, ElementType.PRED}:
        bits = 64
    return target.lanes(bits)
