"""Turns a module into a schedule: kernel launches, copies, loops and branches in order, with every value in a buffer.

Values are flattened to leaves (arrays). Tuples, get-tuple-element and reshapes move nothing: their leaves are those of
their operands. A value is written straight to where it is wanted (a result, the state of a loop) when nothing that
still has to be read lies there; what a kernel updates in place is copied first only when somebody else needs it.
A result that may be made in the memory of an argument (`input_output_alias` of the module) is written there when that
argument is read no more; the caller may as well give it memory of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ....runtime.code.artifact import Packed, Site
from ....runtime.llvm.ir_builder import ModuleText
from ....runtime.llvm.target import Target
from ....runtime.run_context import ASSUMPTION_FAILED, OUTGROWN
from ... import budget
from ...errors import UnsupportedError
from ...ir.literal import Literal
from ...ir.module import Computation, Instruction, Module, make, topological
from ...ir.module_attributes import aliases
from ...ir.shape import Shape
from ...ops import Constant, CustomCall, Fusion, GetTupleElement
from ...ops import Copy as CopyOp
from ...ops.custom_call import CHECKS
from ...options import Options
from ...progress import ordered
from ..codegen.kernel_info import KernelPlan
from ..kernel_emitters import emit_kernel, updated_operands
from .host_callbacks import SILENT, SITES, site_of

if TYPE_CHECKING:
    from .prepacking import Packing


@dataclasses.dataclass(eq=False)
class Buffer:
    """A region of memory: an argument, a result, temporary memory, or a constant.

    `index` is the number of the argument or result. `offset` (bytes) is set for constants at once and for temporaries
    by the memory plan, from their first and last position in the schedule. A result may be given the memory of the
    argument `may_be`: to write it overwrites that argument. Packed buffers are arguments in the layout that a kernel
    wants, filled by the schedule's preparation.
    """

    space: str  # argument | result | temporary | constant | packed
    bytes: int
    index: int = 0
    offset: int = 0
    first: int = -1
    last: int = -1
    may_be: Buffer | None = None
    branches: tuple[tuple[int, int], ...] = ()  # of concurrent steps that it is made in: (position, number)

    @property
    def home(self) -> Buffer:
        """Equal for buffers that may be the same memory."""
        return self.may_be or self

    def __repr__(self) -> str:
        place = self.index if self.space in ("argument", "result", "packed") else f"+{self.offset}"
        return f"{self.space}[{place}]:{self.bytes}"


@dataclasses.dataclass
class Launch:
    """Runs a kernel on buffers."""

    plan: KernelPlan
    buffers: list[Buffer]
    instruction: Instruction


@dataclasses.dataclass
class Copy:
    """Copies a whole buffer."""

    source: Buffer
    target: Buffer


@dataclasses.dataclass
class Prepare:
    """Runs a launch where there is memory for its last buffer."""

    launch: Launch


@dataclasses.dataclass
class CallOut:
    """Calls the process at site `number`; what is wrong there ends the run."""

    site: Site
    number: int
    buffers: list[Buffer]


@dataclasses.dataclass
class Check:
    """Ends the run with a status and a message where the pred in `failed` holds."""

    failed: Buffer
    status: int
    message: bytes


@dataclasses.dataclass
class Loop:
    """Runs `condition`, and while the pred in `test` holds, `body` and `condition` again."""

    condition: list[Step]
    test: Buffer
    body: list[Step]


@dataclasses.dataclass
class Branch:
    """Runs one of the branches: by pred (true first) or by an s32 (the last one when out of range)."""

    selector: Buffer
    by_index: bool
    branches: list[list[Step]]


@dataclasses.dataclass
class Concurrent:
    """Runs all branches, several at the same time where there are threads."""

    branches: list[list[Step]]


Step = Launch | Copy | CallOut | Check | Loop | Branch | Concurrent | Prepare


@dataclasses.dataclass
class Schedule:
    """A module's steps, its buffers, the constants' bytes, and what the module takes and returns. `preparation` fills
    the packed buffers, one by a step."""

    steps: list[Step]
    arguments: list[Shape]
    results: list[Shape]
    temporaries: list[Buffer]
    constants: bytes
    sites: list[Site] = dataclasses.field(default_factory=list)
    temp_bytes: int = 0
    preparation: list[Prepare] = dataclasses.field(default_factory=list)
    packed: list[Packed] = dataclasses.field(default_factory=list)
    may_leave: bool = False


Origin = tuple[Instruction, int]  # a leaf of the value that an instruction makes

INPUT_OUTPUT_ALIAS = "input_output_alias"
RESULT_SIZES = (
    "result_sizes"  # numbers of the results whose first dims' sizes, s32, are the last results: "{0, 2}"
)
KEPT_PARAMETERS = (
    "kept_parameters"  # numbers of the parameters that have the same value in most calls: "{0, 3}"
)
_ALIASES = frozenset({"tuple", "get-tuple-element", "reshape", "opt-barrier"})
_ALIGN = 64


def schedule_module(
    module: Module,
    text: ModuleText,
    target: Target,
    options: Options,
    finished: Callable[[str], None] = lambda symbol: None,
) -> Schedule:
    """The schedule of a module whose loop-like instructions are all in fusions; kernels are written to `text`.

    `finished` is told the symbol of each kernel that is written.
    Raises: UnsupportedError  an op without CPU code.
    """
    return _Lowering(text, target, options, finished).module(module)


def _origins(computation: Computation) -> dict[Instruction, list[Origin]]:
    """For every instruction, where its leaves are really made."""
    found: dict[Instruction, list[Origin]] = {}
    starts: dict[Instruction, list[int]] = {}  # by tuple, where the leaves of its parts begin, and the end
    for instruction in computation.instructions:
        if instruction.opcode == "get-tuple-element":
            source, number = instruction.operands[0], cast(GetTupleElement, instruction.op).index
            if source not in starts:
                counts = (sum(1 for _ in part.leaves()) for part in source.shape.tuple_shapes)
                starts[source] = list(itertools.accumulate(counts, initial=0))
            found[instruction] = found[source][starts[source][number] : starts[source][number + 1]]
        elif instruction.opcode in _ALIASES:
            found[instruction] = [o for operand in instruction.operands for o in found[operand]]
        elif instruction.opcode == "add-dependency":
            found[instruction] = found[instruction.operands[0]]
        elif instruction.opcode == "send":
            data = found[instruction.operands[0]]
            found[instruction] = [*data, (instruction, len(data)), (instruction, len(data) + 1)]
        else:
            found[instruction] = [(instruction, k) for k, _ in enumerate(instruction.shape.leaves())]
            if instruction.opcode == "while":
                for k in _invariant(instruction.op.body):  # type: ignore[attr-defined]
                    found[instruction][k] = found[instruction.operands[0]][k]
    return found


def _invariant(body: Computation) -> list[int]:
    """Numbers of the leaves of a loop's state that its body hands on unchanged."""
    origins = _origins(body)
    state = origins[body.parameters[0]]
    return [k for k, origin in enumerate(origins[body.root]) if origin == state[k]]


@dataclasses.dataclass
class _Frame:
    """A computation while it is lowered."""

    order: list[Instruction]
    origins: dict[Instruction, list[Origin]]
    last_read: dict[Origin, int]
    wanted: dict[Origin, Buffer]
    placed: dict[Origin, Buffer]
    occupants: dict[Buffer, list[Origin]]  # whose values lie in a buffer, by its home
    users: Mapping[Instruction, Sequence[Instruction]]

    def leaves(self, instruction: Instruction) -> list[Buffer]:
        return [self.placed[o] for o in self.origins[instruction]]


@dataclasses.dataclass
class _Before:
    """What is done before a loop, at `position`, with the buffers that it does not change."""

    position: int
    unchanged: set[Buffer]
    steps: list[Step] = dataclasses.field(default_factory=list)
    packed: dict[Hashable, Buffer] = dataclasses.field(default_factory=dict)


class _Lowering:
    def __init__(
        self, text: ModuleText, target: Target, options: Options, finished: Callable[[str], None]
    ) -> None:
        self.text, self.target, self.options, self.finished = text, target, options, finished
        self.position = 0
        self.temporaries: list[Buffer] = []
        self.constants = bytearray()
        self.constant_offsets: dict[Literal, int] = {}
        self.loops: list[tuple[int, set[Buffer]]] = []  # (first position, buffers from outside used within)
        self.before: list[_Before] = []  # of the loops around
        self.branches: tuple[tuple[int, int], ...] = ()  # of the concurrent steps around: (position, number)
        self.plans: dict[tuple[Instruction, bool, int], KernelPlan] = {}
        self.packings: dict[tuple[Instruction, int], Packing | None] = {}
        self.sites: list[Site] = []
        self.may_leave = False
        self.kept: set[Buffer] = set()
        self.packed: dict[Hashable, Buffer] = {}
        self.preparation: list[Prepare] = []
        self.packed_arguments: list[Packed] = []

    def module(self, module: Module) -> Schedule:
        entry = module.entry
        arguments = [leaf for p in entry.parameters for leaf in p.shape.leaves()]
        results = list(entry.root.shape.leaves())
        sources = [
            Buffer("argument", s.bytes, k) if s.is_array else self.temporary(0)
            for s, k in zip(arguments, _array_numbers(arguments))
        ]
        if len(entry.parameters) == len(sources):
            self.kept = {
                sources[k]
                for k in map(int, _NUMBER.findall(module.attributes.get(KEPT_PARAMETERS, "")))
                if k < len(sources) and sources[k].space == "argument"
            }
        shared = input_output_aliases(module)
        targets = [
            Buffer("result", s.bytes, number, may_be=sources[shared[k]] if k in shared else None)
            if s.is_array
            else None
            for k, (s, number) in enumerate(zip(results, _array_numbers(results)))
        ]
        steps = self.computation(entry, sources, targets)
        arguments, results = ([s for s in side if s.is_array] for side in (arguments, results))
        return Schedule(
            steps,
            arguments,
            results,
            self.temporaries,
            bytes(self.constants),
            self.sites,
            preparation=self.preparation,
            packed=self.packed_arguments,
            may_leave=self.may_leave,
        )

    # -- buffers
    def temporary(self, size: int) -> Buffer:
        buffer = Buffer("temporary", size, first=self.position, last=self.position, branches=self.branches)
        self.temporaries.append(buffer)
        return buffer

    def constant(self, literal: Literal) -> Buffer:
        offset = self.constant_offsets.get(literal)
        data = literal.array.tobytes()
        if offset is None:
            self.constants.extend(bytes(-len(self.constants) % _ALIGN))
            offset = self.constant_offsets[literal] = len(self.constants)
            self.constants.extend(data)
        return Buffer("constant", len(data), offset=offset)

    def touch(self, *buffers: Buffer) -> None:
        """The buffers are used at the current position."""
        for buffer in buffers:
            if buffer.space != "temporary":
                continue
            buffer.last = max(buffer.last, self.position)
            for start, outside in self.loops:
                if buffer.first < start:
                    outside.add(buffer)

    def advance(self) -> None:
        self.position += 1

    # -- computations
    def computation(
        self, computation: Computation, arguments: Sequence[Buffer], targets: Sequence[Buffer | None]
    ) -> list[Step]:
        """Steps that compute the root's leaves into `targets` (None: not needed), from `arguments`."""
        origins = _origins(computation)
        root = origins[computation.root]
        placed = dict(zip((o for p in computation.parameters for o in origins[p]), arguments, strict=True))
        occupants: dict[Buffer, list[Origin]] = {}
        for origin, buffer in placed.items():
            occupants.setdefault(buffer.home, []).append(origin)
        replaced = [
            (new, old)
            for new, target in zip(root, targets, strict=True)
            if target is not None
            for old in occupants.get(target.home, ())
            if old != new
        ]
        order = _ordered(computation, origins, replaced)
        frame = _Frame(
            order, origins, _last_reads(order, origins, root), {}, placed, occupants, computation.users
        )
        self._wish(frame, root, targets, _before_checks(computation))
        steps: list[Step] = []
        for at, instruction in enumerate(order):
            if instruction.opcode not in _ALIASES and instruction.opcode not in (
                "parameter",
                "add-dependency",
            ):
                self._lower(frame, at, instruction, steps)
        moves = [
            (frame.placed[o], t)
            for o, t in zip(root, targets, strict=True)
            if t is not None and frame.placed[o] is not t
        ]
        self._move(moves, steps)
        return steps

    def _wish(
        self,
        frame: _Frame,
        root: list[Origin],
        targets: Sequence[Buffer | None],
        early: Collection[Instruction],
    ) -> None:
        """Notes which value should be made where, walking from the root through loops and in-place updates.

        `early` values are made before a check: a run that it ends leaves the arguments as they were.
        """

        def wish(origin: Origin, target: Buffer) -> None:
            if origin[0].opcode not in ("parameter", "constant") and not (
                target.may_be and origin[0] in early
            ):
                frame.wanted.setdefault(origin, target)

        for origin, target in zip(root, targets, strict=True):
            if target is not None:
                wish(origin, target)
        at = {instruction: k for k, instruction in enumerate(frame.order)}
        for instruction in reversed(frame.order):
            if instruction.opcode == "while":
                pairs = list(enumerate(frame.origins[instruction.operands[0]]))
            else:
                pairs = [
                    (k, frame.origins[instruction.operands[n]][0]) for k, n in updated_operands(instruction)
                ]
            for k, source in pairs:
                target = frame.wanted.get((instruction, k))
                if (
                    target is not None
                    and frame.last_read.get(source) == at[instruction]
                    and target.space == "result"
                ):
                    wish(source, target)

    def _lower(self, frame: _Frame, at: int, instruction: Instruction, steps: list[Step]) -> None:
        budget.check(f"code of {instruction.opcode}")
        if instruction.opcode == "constant":
            if self._is_only_packed(frame, instruction):
                return
            for k, literal in enumerate(_parts(instruction.op.literal)):  # type: ignore[attr-defined]
                frame.placed[instruction, k] = self.constant(literal)
        elif instruction.opcode == "while":
            self._loop(frame, at, instruction, steps)
        elif instruction.opcode == "conditional":
            self._branch(frame, at, instruction, steps)
        elif instruction.opcode == "concurrent":
            self._concurrent(frame, at, instruction, steps)
        elif isinstance(instruction.op, CustomCall) and instruction.op.is_check:
            self._check(frame, instruction, instruction.op, steps)
        elif instruction.opcode in SITES:
            self._call_out(frame, at, instruction, steps)
        elif instruction.opcode in SILENT:
            frame.placed[instruction, 0] = self.temporary(0)
        else:
            self._launch(frame, at, instruction, steps)

    def _free(self, frame: _Frame, at: int, target: Buffer, shared_with: Iterable[Origin] = ()) -> bool:
        """Whether `target` may be overwritten by the instruction at `at`: what lies there is read no more, or is one
        of the values that the instruction may share its output with."""
        last_reads = (
            (there, frame.last_read.get(there, -1)) for there in frame.occupants.get(target.home, ())
        )
        return all(last < at or (last == at and there in shared_with) for there, last in last_reads)

    def _output(
        self, frame: _Frame, at: int, origin: Origin, size: int, shareable: Sequence[Origin]
    ) -> Buffer:
        """The buffer for a value that is made now; `shareable` values may be overwritten by it as they are read."""
        target = frame.wanted.get(origin)
        if target is not None and self._free(frame, at, target, shareable):
            frame.occupants[target.home] = [origin]
            return target
        for other in shareable:
            buffer = frame.placed[other]
            if (
                buffer.space == "temporary"
                and buffer.bytes == size
                and other[0].opcode != "parameter"
                and frame.last_read.get(other) == at
                and frame.occupants.get(buffer, [other]) == [other]
            ):
                frame.occupants[buffer] = [origin]
                return buffer
        return self.temporary(size)

    def _packing(self, instruction: Instruction) -> Packing | None:
        """How the right operand of the instruction's product, if it has one, is packed."""
        key = instruction, self.target.threads
        if key not in self.packings:
            op = instruction.op
            within = op.computation.instructions if isinstance(op, Fusion) else (instruction,)
            self.packings[key] = None
            if any(i.opcode in ("dot", "convolution") for i in within):
                from .prepacking import packing_of

                self.packings[key] = packing_of(instruction, self.target)
        return self.packings[key]

    def _is_only_packed(self, frame: _Frame, constant: Instruction) -> bool:
        """Whether all that read a constant read it packed."""
        users = frame.users.get(constant, ())
        if constant.shape.is_tuple or frame.last_read.get((constant, 0), -1) >= len(frame.order):
            return False
        return bool(users) and all(
            (packing := self._packing(user)) is not None
            and user.operands.count(constant) == 1
            and user.operands[packing.number] is constant
            for user in users
        )

    def _packed(self, frame: _Frame, instruction: Instruction) -> tuple[int, Buffer] | None:
        """(number, buffer) of an operand that is packed beforehand: a constant, or what the loop does not change."""
        packing = self._packing(instruction)
        if packing is None:
            return None
        from .prepacking import packed_literal, pays_for_memory

        operand = instruction.operands[packing.number]
        (origin,) = frame.origins[operand]
        if isinstance(origin[0].op, Constant):
            return packing.number, self.constant(
                packed_literal(list(_parts(origin[0].op.literal))[origin[1]], packing)
            )
        source = frame.placed[origin]
        if source in self.kept and (
            (source, packing.key) in self.packed
            or pays_for_memory(packing, sum(b.bytes for b in self.packed.values()))
        ):
            return packing.number, self._prepared(source, operand, packing)
        outermost = len(self.before)
        while outermost and source in self.before[outermost - 1].unchanged:
            outermost -= 1
        if outermost == len(self.before):
            return None
        before = self.before[outermost]
        buffer = before.packed.get((source, packing.key))
        if buffer is None:
            buffer = before.packed[source, packing.key] = self.temporary(packing.bytes)
            buffer.first = before.position
            before.steps.append(self._pack(source, buffer, operand, packing))
        return packing.number, buffer

    def _prepared(self, source: Buffer, operand: Instruction, packing: Packing) -> Buffer:
        """The buffer of an argument that is packed before the entry is called."""
        buffer = self.packed.get((source, packing.key))
        if buffer is None:
            buffer = Buffer("packed", packing.bytes, index=len(self.packed))
            self.packed[source, packing.key] = buffer
            self.preparation.append(Prepare(self._pack(source, buffer, operand, packing)))
            self.packed_arguments.append(Packed(source.index, packing.bytes, repr(packing.key)))
        return buffer

    def _pack(self, source: Buffer, buffer: Buffer, operand: Instruction, packing: Packing) -> Launch:
        from .prepacking import emit_packing

        plan = emit_packing(self.text, self.target, packing)
        self.finished(plan.symbol)
        return Launch(plan, [source, buffer], make(CopyOp(), operand, name=f"{operand.name}.packed"))

    def _launch(self, frame: _Frame, at: int, instruction: Instruction, steps: list[Step]) -> None:
        packed = self._packed(frame, instruction)
        key = instruction, packed is not None, self.target.threads
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = emit_kernel(
                self.text, self.target, instruction, self.options, packed is not None
            )
            self.finished(plan.symbol)
        operands = [o for operand in instruction.operands for o in frame.origins[operand]]
        initial = dict(plan.initial)
        outputs = []
        for k, shape in enumerate(instruction.shape.leaves()):
            if k in initial:
                shareable = [operands[initial[k]]] if operands.count(operands[initial[k]]) == 1 else []
            else:
                shareable = [
                    operands[n]
                    for o, n in sorted(plan.in_place)
                    if o == k
                    and operands.count(operands[n]) == 1
                    and frame.placed[operands[n]] not in outputs
                ]
            buffer = self._output(frame, at, (instruction, k), shape.bytes, shareable)
            frame.placed[instruction, k] = buffer
            outputs.append(buffer)
            if k in initial and frame.placed[operands[initial[k]]] is not buffer:
                self._copy(frame.placed[operands[initial[k]]], buffer, steps)
        inputs = [
            packed[1] if packed is not None and n == packed[0] else frame.placed[o]
            for n, o in enumerate(operands)
            if n not in initial.values()
        ]
        scratch = (
            [self.temporary(plan.scratch_bytes * max(1, self.target.threads))] if plan.scratch_bytes else []
        )
        shared = [self.temporary(plan.shared_bytes)] if plan.shared_bytes else []
        buffers = [*inputs, *outputs, *scratch, *shared, *map(self.constant, plan.tables)]
        self.touch(*buffers)
        if plan.tasks:
            steps.append(Launch(plan, buffers, instruction))
        self.advance()

    def _call_out(self, frame: _Frame, at: int, instruction: Instruction, steps: list[Step]) -> None:
        outputs = []
        for origin, shape in zip(frame.origins[instruction], instruction.shape.leaves(), strict=True):
            if origin[0] is instruction:
                frame.placed[origin] = self._output(frame, at, origin, shape.bytes, ())
                outputs.append((shape, frame.placed[origin]))
        site = site_of(instruction)
        inputs = [
            (shape, buffer)
            for operand in _operands_read(instruction)
            for shape, buffer in zip(operand.shape.leaves(), frame.leaves(operand), strict=True)
        ]
        buffers = [
            buffer for shape, buffer in (*inputs, *outputs) if shape.is_array or site.attributes.get("is_c")
        ]
        self.touch(*(buffer for _, buffer in (*inputs, *outputs)))
        steps.append(CallOut(site, len(self.sites), buffers))
        self.sites.append(site)
        self.advance()

    def _check(self, frame: _Frame, instruction: Instruction, op: CustomCall, steps: list[Step]) -> None:
        (failed,) = frame.leaves(instruction.operands[0])
        self.touch(failed)
        status = CHECKS[op.custom_call_target]
        self.may_leave |= status in (ASSUMPTION_FAILED, OUTGROWN)
        steps.append(Check(failed, status, op.opaque))
        self.advance()

    def _copy(self, source: Buffer, target: Buffer, steps: list[Step]) -> None:
        if source.bytes:
            self.touch(source, target)
            steps.append(Copy(source, target))
            self.advance()

    def _move(self, moves: list[tuple[Buffer, Buffer]], steps: list[Step]) -> None:
        """Copies all at once: a target that another move still reads waits; a cycle goes through a temporary."""
        readers = Counter(source.home for source, _ in moves)
        sources = dict(enumerate(source for source, _ in moves))  # of those that are not queued
        into: dict[Buffer, list[int]] = {}
        for k, (_, target) in enumerate(moves):
            into.setdefault(target.home, []).append(k)
        queue: deque[tuple[Buffer, Buffer]] = deque()

        def queue_free(numbers: Iterable[int]) -> None:
            for k in numbers:
                target = moves[k][1]
                if k in sources and readers[target.home] <= (sources[k].home is target.home):
                    queue.append((sources.pop(k), target))

        queue_free(range(len(moves)))
        while queue or sources:
            if queue:
                source, target = queue.popleft()
                self._copy(source, target, steps)
            else:
                k = next(iter(sources))
                source = sources.pop(k)
                sources[k] = self.temporary(source.bytes)  # behind the others
                readers[sources[k].home] += 1
                self._copy(source, sources[k], steps)
            readers[source.home] -= 1
            queue_free(into.get(source.home, ()))

    def _loop(self, frame: _Frame, at: int, instruction: Instruction, steps: list[Step]) -> None:
        state: list[Buffer] = []
        moves = []
        entering = frame.origins[instruction.operands[0]]
        counts = Counter(entering)
        leaving = frame.origins[instruction]
        for k, (shape, origin) in enumerate(zip(instruction.shape.leaves(), entering, strict=True)):
            if leaving[k] == origin:
                state.append(frame.placed[origin])
                continue
            shareable = [origin] if counts[origin] == 1 and origin[0].opcode != "constant" else []
            buffer = self._output(frame, at, (instruction, k), shape.bytes, shareable)
            frame.placed[instruction, k] = buffer
            state.append(buffer)
            if frame.placed[origin] is not buffer:
                moves.append((frame.placed[origin], buffer))
        self.touch(*state)
        self._move(moves, steps)
        self.before.append(
            _Before(self.position, {s for k, s in enumerate(state) if leaving[k] == entering[k]})
        )
        self.advance()
        start = self.position
        self.loops.append((start, set()))
        op = instruction.op
        test = self.temporary(1)
        condition = self.computation(op.condition, state, [test])  # type: ignore[attr-defined]
        self.touch(test, *state)
        self.advance()
        body = self.computation(op.body, state, state)  # type: ignore[attr-defined]
        self.touch(*state)
        self.advance()
        _, outside = self.loops.pop()
        for buffer in outside:
            self.touch(buffer)
        test.last = self.position
        steps.extend(self.before.pop().steps)
        steps.append(Loop(condition, test, body))
        self.advance()

    def _branch(self, frame: _Frame, at: int, instruction: Instruction, steps: list[Step]) -> None:
        outputs = []
        passed = list(
            dict.fromkeys(
                o
                for operand in instruction.operands[1:]
                for o in frame.origins[operand]
                if o[0].opcode != "constant"
            )
        )
        for k, shape in enumerate(instruction.shape.leaves()):
            buffer = self._output(frame, at, (instruction, k), shape.bytes, passed)
            frame.placed[instruction, k] = buffer
            outputs.append(buffer)
        op = instruction.op
        selector = frame.leaves(instruction.operands[0])[0]
        self.touch(selector, *outputs)
        self.advance()
        branches = []
        for branch, operand in zip(op.branches, instruction.operands[1:], strict=True):  # type: ignore[attr-defined]
            branches.append(self.computation(branch, frame.leaves(operand), outputs))
            self.touch(*frame.leaves(operand), *outputs)
            self.advance()
        steps.append(Branch(selector, op.by_index, branches))  # type: ignore[attr-defined]
        self.advance()

    def _concurrent(self, frame: _Frame, at: int, instruction: Instruction, steps: list[Step]) -> None:
        """Branches are lowered one after another; the memory that each makes for itself is no other one's."""
        if instruction.has_side_effect:
            raise UnsupportedError("concurrent: what has side effects does not run beside other code")
        outputs = []
        for k, shape in enumerate(instruction.shape.leaves()):
            buffer = frame.placed[instruction, k] = self._output(frame, at, (instruction, k), shape.bytes, ())
            outputs.append(buffer)
        operands = [buffer for operand in instruction.operands for buffer in frame.leaves(operand)]
        self.touch(*operands, *outputs)
        self.advance()
        start, around, target = self.position, self.branches, self.target
        self.target = dataclasses.replace(target, threads=1)
        made: list[list[Step]] = []
        left = iter(outputs)
        branches = instruction.op.branches  # type: ignore[attr-defined]
        for number, (branch, operand) in enumerate(zip(branches, instruction.operands, strict=True)):
            self.branches = (*around, (start, number))
            own = [next(left) for _ in branch.root.shape.leaves()]
            made.append(self.computation(branch, frame.leaves(operand), own))
            self.advance()
        self.branches, self.target = around, target
        self.touch(*operands, *outputs)
        steps.append(Concurrent(made))
        self.advance()


def _operands_read(instruction: Instruction) -> Sequence[Instruction]:
    """The operands whose values a site gets."""
    return {"send": instruction.operands[:1], "recv-done": ()}.get(instruction.opcode, instruction.operands)


def _array_numbers(shapes: Sequence[Shape]) -> list[int]:
    """The number of each among the arrays; tokens are none."""
    return list(itertools.accumulate((int(s.is_array) for s in shapes[:-1]), initial=0)) if shapes else []


def _parts(literal: Literal) -> Iterable[Literal]:
    """The literals of a tuple's leaves."""
    if literal.shape.is_tuple:
        for part in literal.parts:
            yield from _parts(part)
    else:
        yield literal


def _reads(instruction: Instruction, origins: dict[Instruction, list[Origin]]) -> Iterable[Origin]:
    if instruction.opcode not in _ALIASES:
        for operand in instruction.operands:
            yield from origins[operand]


def _before_checks(computation: Computation) -> Collection[Instruction]:
    """What is made before a check, or has one within itself."""
    checks = [i for i in computation.effects() if _has_checks(i)]
    return set(topological(checks)) if checks else ()


def _has_checks(instruction: Instruction) -> bool:
    return (
        isinstance(instruction.op, CustomCall)
        and instruction.op.is_check
        or any(i.has_side_effect and _has_checks(i) for c in instruction.op.called() for i in c.instructions)
    )


def _last_reads(
    order: list[Instruction], origins: dict[Instruction, list[Origin]], root: list[Origin]
) -> dict[Origin, int]:
    """The position of the last instruction that reads a leaf; leaves of the root are read at the end."""
    last: dict[Origin, int] = {}
    for at, instruction in enumerate(order):
        for origin in _reads(instruction, origins):
            last[origin] = at
    for origin in root:
        last[origin] = len(order)
    return last


def _ordered(
    computation: Computation,
    origins: dict[Instruction, list[Origin]],
    replaced: Iterable[tuple[Origin, Origin]],
) -> list[Instruction]:
    """The instructions, those that overwrite a value after the other readers of that value where it can be.

    In-place updates overwrite their operand; `replaced` pairs a new value with one of a parameter that lies where the
    new one is wanted, as in a loop's body.
    """
    readers: dict[Origin, list[Instruction]] = {}
    for instruction in computation.instructions:
        for origin in _reads(instruction, origins):
            readers.setdefault(origin, []).append(instruction)
    overwrites: list[tuple[Instruction, Origin]] = []
    for instruction in computation.instructions:
        for _, n in updated_operands(instruction):
            overwrites.append((instruction, origins[instruction.operands[n]][0]))
    overwrites += [(new[0], old) for new, old in replaced if new[0].opcode not in ("parameter", "constant")]
    effects = computation.effects()
    after = _put_off(
        computation,
        [
            *((later, earlier) for earlier, later in itertools.pairwise(effects)),
            *(
                (writer, reader)
                for writer, origin in overwrites
                for reader in readers.get(origin, ())
                if reader is not writer
            ),
        ],
    )
    if not after:
        return list(computation.instructions)

    return ordered(computation.instructions, lambda i: (*i.operands, *after.get(i, ())), "schedule")


def _put_off(
    computation: Computation, wanted: Iterable[tuple[Instruction, Instruction]]
) -> dict[Instruction, list[Instruction]]:
    """Of the wishes (writer, reader) those that can be granted together, as the readers that a writer waits for."""
    place = {instruction: k for k, instruction in enumerate(computation.instructions)}
    needed: dict[Instruction, int] = {}  # a bit for each instruction that one needs, itself included
    users: dict[Instruction, list[Instruction]] = {i: [] for i in place}
    after: dict[Instruction, list[Instruction]] = {}
    for writer, reader in wanted:
        if not needed:
            for instruction, k in place.items():
                needed[instruction] = 1 << k
                for operand in instruction.operands:
                    needed[instruction] |= needed[operand]
                    users[operand].append(instruction)
        if needed[reader] >> place[writer] & 1:
            continue
        after.setdefault(writer, []).append(reader)
        users[reader].append(writer)
        rising = [writer]
        while rising:
            instruction = rising.pop()
            if needed[instruction] | needed[reader] != needed[instruction]:
                needed[instruction] |= needed[reader]
                rising.extend(users[instruction])
    return after


_NUMBER = re.compile(r"\d+")


def input_output_aliases(module: Module) -> dict[int, int]:
    """By number of a result, the argument in whose memory it may be made; from the module's attribute.

    Only arrays by themselves count, with equal shapes, each argument once.
    """
    found: dict[int, int] = {}
    parameters, root = module.entry.parameters, module.entry.root.shape
    if (
        any(p.shape.is_tuple for p in parameters)
        or root.is_tuple
        and any(s.is_tuple for s in root.tuple_shapes)
    ):
        return found
    results = list(root.leaves())
    for place, j, inside in aliases(module.attributes.get(INPUT_OUTPUT_ALIAS, "{}")):
        k = place[0] if place else 0
        if len(place) > 1 or inside or k >= len(results) or j >= len(parameters):
            continue
        if results[k] == parameters[j].shape and j not in found.values():
            found.setdefault(k, j)
    return found


def sized_results(module: Module) -> tuple[int, ...]:
    """Numbers of the results that have a size among the last results; from the module's attribute."""
    return tuple(map(int, _NUMBER.findall(module.attributes.get(RESULT_SIZES, ""))))


def plan_memory(schedule: Schedule) -> None:
    """Gives every temporary an offset in one arena: buffers that live at the same time never overlap.

    Largest first, each at the lowest offset where it fits. Units: bytes.
    """
    placed: list[Buffer] = []
    for buffer in sorted(schedule.temporaries, key=lambda b: (-b.bytes, b.first)):
        offset = 0
        rivals = [
            p
            for p in placed
            if p.bytes
            and (p.first <= buffer.last and buffer.first <= p.last or buffer.branches and _apart(p, buffer))
        ]
        for rival in sorted(rivals, key=lambda p: p.offset):
            if offset + buffer.bytes <= rival.offset:
                break
            offset = max(offset, -(-(rival.offset + rival.bytes) // _ALIGN) * _ALIGN)
        buffer.offset = offset
        placed.append(buffer)
        schedule.temp_bytes = max(schedule.temp_bytes, offset + buffer.bytes)


def _apart(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers are of different branches of one concurrent step."""
    return any(
        position == other and number != another
        for position, number in a.branches
        for other, another in b.branches
    )


def launches(steps: Iterable[Step]) -> Iterable[Launch]:
    """All launches, those in loops and branches once."""
    for step in steps:
        if isinstance(step, Launch):
            yield step
        elif isinstance(step, Loop):
            yield from launches(step.condition)
            yield from launches(step.body)
        elif isinstance(step, (Branch, Concurrent)):
            for branch in step.branches:
                yield from launches(branch)


__all__ = [
    "INPUT_OUTPUT_ALIAS",
    "KEPT_PARAMETERS",
    "Branch",
    "Buffer",
    "CallOut",
    "Check",
    "Concurrent",
    "Copy",
    "Launch",
    "Loop",
    "Prepare",
    "Schedule",
    "Step",
    "UnsupportedError",
    "input_output_aliases",
    "launches",
    "plan_memory",
    "schedule_module",
]
