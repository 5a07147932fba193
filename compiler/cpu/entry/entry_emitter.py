"""Writes the entry function that runs thunks: `i32 entry(run_context, args, results, temp)`.

The buffers' addresses are computed once per call into a table at the head of the temp arena, from a constant table of
(base, offset); every kernel is then called with a pointer into that table.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ....runtime.devices.host_callbacks import NO_HOST
from ....runtime.llvm.ir_builder import (
    DRIVER_ATTRIBUTES,
    Function,
    Index,
    Int,
    ModuleText,
    Ptr,
    Value,
    VectorValue,
)
from ....runtime.llvm.types import parameters
from ....runtime.run_context import OFFSETS, RECORD_END, RECORD_START
from ....runtime.sizes import Size, ceiling, larger
from ...errors import InternalError
from ...ir.module import Instruction
from ...object_options import LAYER_MARK
from ..codegen.parallel_for import KERNEL_PARAMETERS, run_tasks
from ..codegen.run_time_sizes import largest_size
from ..schedule.buffer import ALIGN_BYTES, Buffer
from ..schedule.buffer_assignment import BufferAssignment
from ..schedule.thunks import (
    ChainThunk,
    CheckThunk,
    ConditionalThunk,
    CopyThunk,
    HostCallbackThunk,
    KernelThunk,
    ParallelThunk,
    PrepackThunk,
    Thunk,
    ThunkProgram,
    ThunkSequence,
    WhileThunk,
)

ENTRY_PARAMETERS = parameters("ptr context, ptr args, ptr results, ptr temp")
_MARK = hashlib.blake2b(b"room for the constants of an object").digest()  # where they are placed
_MARK_BYTES = len(_MARK)


class _AddressTable:
    """Rows of (base, offset), one for each buffer of a thunk. Bases are temporary memory, constants, arguments, results
    and packed arguments, in this order."""

    def __init__(self, program: ThunkProgram, assignment: BufferAssignment) -> None:
        self.assignment = assignment
        self.rows: list[tuple[int, int]] = []
        self._first_base = {
            "argument": 2,
            "result": 2 + len(program.arguments),
            "packed": 2 + len(program.arguments) + len(program.results),
        }
        self._rows_of: dict[Buffer, int] = {}

    def add(self, buffers: Sequence[Buffer]) -> int:
        """Adds rows for the buffers; returns the number of the first."""
        self.rows.extend(map(self._row, buffers))
        return len(self.rows) - len(buffers)

    def _row(self, buffer: Buffer) -> tuple[int, int]:
        if buffer.space == "temporary":
            return 0, self.assignment.offsets[buffer]
        if buffer.space == "constant":
            return 1, buffer.offset
        return self._first_base[buffer.space] + buffer.index, 0

    def row_of(self, buffer: Buffer) -> int:
        """The row of a single buffer."""
        if buffer not in self._rows_of:
            self._rows_of[buffer] = self.add([buffer])
        return self._rows_of[buffer]


def emit_entry(
    text: ModuleText,
    name: str,
    program: ThunkProgram,
    assignment: BufferAssignment,
    embed_constants: bool = False,
    has_recorder: bool = False,
    linkage: str = "",
    layers: Mapping[Instruction, int] | None = None,
) -> int:
    """Writes the entry function `name` of a program; returns the bytes of temporary memory that it takes: those of the
    assignment, then the address table.

    With `embed_constants` the object is to have the constants (`add_constants`); else the run context has their
    address. With `has_recorder` the run context's recorder is told of kernels, numbered in the order of
    `launched_kernels`. `layers`: numbers of instructions that stand before the calls of their
    kernels.
    """
    is_embedded = embed_constants and bool(program.constants)
    thunks = program.entry.thunks
    return _emit(text, name, program, thunks, assignment, is_embedded, has_recorder, linkage, layers or {})


def emit_prepacking(text: ModuleText, name: str, program: ThunkProgram) -> int:
    """Writes the function `name` that fills the packed arguments, those that there is memory for; returns the bytes of
    temporary memory that it takes."""
    without_results = dataclasses.replace(program, results=())
    return _emit(text, name, without_results, program.prepacking, BufferAssignment({}, {}, 0), False, False)


def _emit(
    text: ModuleText,
    name: str,
    program: ThunkProgram,
    thunks: Sequence[Thunk],
    assignment: BufferAssignment,
    is_embedded: bool,
    has_recorder: bool,
    linkage: str = "",
    layers: Mapping[Instruction, int] = MappingProxyType({}),
) -> int:
    """Writes a function that runs thunks; returns the bytes of temporary memory that it takes."""
    table = _AddressTable(program, assignment)
    f = Function(text, name, ENTRY_PARAMETERS, "i32", DRIVER_ATTRIBUTES, linkage=linkage)
    offset = ceiling(assignment.temp_bytes, ALIGN_BYTES) * ALIGN_BYTES
    writer = _Writer(text, name, f, table, offset, has_recorder, layers)
    body: list[str] = []
    with f.redirected(body):
        f.start_block("steps")
        writer.start_recording()
        writer.thunks(thunks)
        f.ret(f.constant("i32", 0))
    f.block = "entry"
    if table.rows:
        bases = _fill_bases(f, program, is_embedded, text.target.pointer_bytes if text.target else 8)
        _fill_rows(text, f, name, table, bases, offset)
    f.do("br label %steps")
    f.lines.extend(body)
    text.add(name, f.text())
    return offset + 8 * len(table.rows)


class _Writer:
    def __init__(
        self,
        text: ModuleText,
        name: str,
        f: Function,
        table: _AddressTable,
        table_offset: int,
        has_recorder: bool,
        layers: Mapping[Instruction, int],
    ) -> None:
        self.layers = layers
        self.text, self.name, self.f, self.table = text, name, f, table
        self.table_offset = table_offset
        self.has_recorder = has_recorder
        self.last: Ptr | None = None  # what the recorder left in the function that is written
        self.kernels = self.parallel_thunks = 0  # written so far

    def rows(self, first: int) -> Ptr:
        """Address of a row of the address table."""
        return self.f.pointer("temp") + (self.table_offset + 8 * first)

    def address(self, buffer: Buffer) -> Ptr:
        """A buffer's address."""
        if buffer.space == "temporary":
            return self.f.pointer("temp") + self.table.assignment.offsets[buffer]
        return self.rows(self.table.row_of(buffer)).load_ptr()

    def context(self, field: str) -> Ptr:
        """Address of a field of the run context."""
        return self.f.pointer("context") + OFFSETS[field]

    def holds(self, pred: Buffer) -> VectorValue:
        """Whether a pred holds."""
        return self.address(pred).load("i8").compare("icmp ne", 0)

    def thunks(self, thunks: Sequence[Thunk]) -> None:
        for thunk in thunks:
            match thunk:
                case KernelThunk():
                    self.kernel(thunk)
                case ChainThunk():
                    self.chain(thunk)
                case HostCallbackThunk():
                    self.host_callback(thunk)
                case CheckThunk():
                    self.check(thunk)
                case PrepackThunk():
                    self.prepack(thunk)
                case CopyThunk():
                    self.copy(thunk)
                case WhileThunk():
                    self.while_loop(thunk)
                case ConditionalThunk():
                    self.conditional(thunk)
                case ParallelThunk():
                    self.parallel(thunk)

    def copy(self, thunk: CopyThunk) -> None:
        f, source, target = self.f, self.address(thunk.source), self.address(thunk.target)
        if thunk.source.allocation is thunk.target.allocation:
            with f.if_(source.differs(target)):
                f.call("memcpy", "ptr", [target, source, thunk.source.bytes])
        else:
            f.call("memcpy", "ptr", [target, source, thunk.source.bytes])

    def kernel(self, thunk: KernelThunk) -> None:
        f, info = self.f, thunk.kernel
        buffers = self.rows(self.table.add(thunk.buffers))
        number, self.kernels = self.kernels, self.kernels + max(1, len(thunk.parts))
        if (layer := self.layers.get(thunk.instruction)) is not None:
            f.do(f"{LAYER_MARK}{layer}")
        tasks: Index = info.tasks
        if thunk.live is not None and info.in_order is not None:
            elements, group = info.in_order
            # At least one: a gather reads the first row whatever its index is.
            count = largest_size(f, map(self.address, thunk.live.counts), 1)
            needed = (count * thunk.live.elements + (elements - 1)) // elements * group
            tasks = needed.minimum(info.tasks)
        launched = larger(1, info.grain) if info.parallel else tasks
        if thunk.parts and self.last is not None:
            self.timed_chain(thunk, number, lambda: run_tasks(f, info.symbol, buffers, tasks, launched))
        else:
            run_tasks(f, info.symbol, buffers, tasks, launched)
            self.record(number)

    def chain(self, thunk: ChainThunk) -> None:
        first = self.kernels
        with self.f.if_(self.f.i64(thunk.are_run).compare("icmp ne", 0)) as choice:
            self.kernel(thunk.chain)
        with choice.else_():
            self.kernels = first
            self.thunks(thunk.parts)

    def prepack(self, thunk: PrepackThunk) -> None:
        with self.f.if_(self.address(thunk.kernel.buffers[-1]).is_not_null()):
            self.kernel(thunk.kernel)

    def host_callback(self, thunk: HostCallbackThunk) -> None:
        """Calls the process; returns from the entry when that fails."""
        f = self.f
        buffers = self.rows(self.table.add(thunk.buffers))
        host = self.context("feeds").load_ptr()
        self.return_if(host.is_null(), f.constant("i32", NO_HOST))
        callback = host.load_ptr()
        if not thunk.callback.attributes.get("is_c"):
            status = self.call_host(callback, thunk.number, buffers)
            self.return_if(status.compare("icmp ne", 0), status)
            return
        failed = self.call_c(thunk, host, buffers)
        if failed is not None:
            with f.if_(failed):
                f.ret(self.call_host(callback, thunk.number, buffers))

    def call_host(self, callback: Ptr, number: int, buffers: Ptr) -> VectorValue:
        """Calls the host; returns the status."""
        return VectorValue.of(self.f, self.f.call(callback, "i32", [number, buffers]))

    def check(self, thunk: CheckThunk) -> None:
        """Returns from the entry with a message, as much of it as there is room for, if the pred holds."""
        with self.f.if_(self.holds(thunk.failed)):
            return_with_message(self.f, thunk.message, thunk.status)

    def return_if(self, condition: VectorValue, status: Value) -> None:
        with self.f.if_(condition):
            self.f.ret(status)

    def call_c(self, thunk: HostCallbackThunk, host: Ptr, buffers: Ptr) -> VectorValue | None:
        """Calls the C function of a custom call; returns whether its status says that it failed, None where it has
        none."""
        f, attributes = self.f, thunk.callback.attributes
        functions, status = ((host + 8 * k).load_ptr() for k in (1, 2))
        function = (functions + 8 * thunk.number).load_ptr()
        out = buffers + 8 * len(thunk.callback.inputs)
        arguments: list[Value | int] = [out if attributes["is_tuple"] else out.load_ptr(), buffers]
        if attributes["api_version"] == "API_VERSION_STATUS_RETURNING_UNIFIED":
            opaque = attributes["opaque"].encode("latin-1")
            name = self.text.add_global(f"tfb.opaque.{thunk.number}", _bytes_global(opaque))
            arguments += [f.symbol(name), len(opaque)]
        has_status = attributes["api_version"] != "API_VERSION_ORIGINAL"
        if has_status:
            arguments.append(status)
        f.call(function, "void", arguments)
        return status.load("i32").compare("icmp ne", 0) if has_status else None

    def start_recording(self) -> None:
        """Tells the recorder, if there is one, that the kernels of the function that is written begin."""
        if self.has_recorder:
            self.last = self.f.stack_slot("[2 x i64]", 8)
            (self.last + RECORD_END).store(self.f.i64(0))
            self.record(RECORD_START)

    def record(self, number: int) -> None:
        """Tells the recorder, if there is one, that a kernel has ended."""
        if self.last is not None:
            _define_for_recorder(self.text, "tfb.record", "ptr context, i64 kernel, ptr last", _record)
            self.f.call(self.f.symbol("tfb.record"), "void", [self.f["context"], number, self.last])

    def timed_chain(self, thunk: KernelThunk, number: int, run: Callable[[], None]) -> None:
        """Runs a chain, and tells the recorder, if there is one, of its kernels, from that number on."""
        assert self.last is not None
        start, end = (
            "ptr context, ptr times, i64 bytes",
            "ptr context, i64 kernel, i64 count, ptr times, ptr last",
        )
        _define_for_recorder(self.text, "tfb.start_chain", start, _clear_ticks)
        _define_for_recorder(self.text, "tfb.record_chain", end, _record_shares)
        f, times, count = self.f, self.address(thunk.buffers[-1]), len(thunk.parts)
        f.call(f.symbol("tfb.start_chain"), "void", [f["context"], times, 8 * count])
        run()
        f.call(f.symbol("tfb.record_chain"), "void", [f["context"], number, count, times, self.last])

    def while_loop(self, thunk: WhileThunk) -> None:
        f = self.f
        self.thunks(thunk.preheader)
        head, body, end = f.fresh("while"), f.fresh("body"), f.fresh("done")
        f.do(f"br label %{head}")
        f.start_block(head)
        self.thunks(thunk.condition.thunks)
        f.do(f"br {self.holds(thunk.test)}, label %{body}, label %{end}")
        f.start_block(body)
        self.thunks(thunk.body.thunks)
        f.do(f"br label %{head}")
        f.start_block(end)

    def conditional(self, thunk: ConditionalThunk) -> None:
        if thunk.by_index:
            self.switch(self.address(thunk.selector).load("i32"), thunk.branches)
            return
        then, otherwise = thunk.branches
        with self.f.if_(self.holds(thunk.selector)) as branch:
            self.thunks(then.thunks)
        with branch.else_():
            self.thunks(otherwise.thunks)

    def switch(self, selector: Value, branches: Sequence[ThunkSequence]) -> None:
        """Runs the branch of that number, the last one when it is out of range."""
        f = self.f
        labels = [f.fresh("case") for _ in branches]
        end = f.fresh("end")
        arms = " ".join(f"{selector.type} {k}, label %{label}" for k, label in enumerate(labels[:-1]))
        f.do(f"switch {selector}, label %{labels[-1]} [ {arms} ]")
        for label, branch in zip(labels, branches):
            f.start_block(label)
            self.thunks(branch.thunks)
            f.do(f"br label %{end}")
        f.start_block(end)

    def parallel(self, thunk: ParallelThunk) -> None:
        """Writes a kernel whose tasks are the branches, and its launch. Its buffers are the temporary memory."""
        outer, last, name = self.f, self.last, f"{self.name}.concurrent.{self.parallel_thunks}"
        self.parallel_thunks += 1
        # A kernel's parameters, but the buffers are called as in the entry.
        parameters = [(type_, {"buffers": "temp"}.get(n, n)) for type_, n in KERNEL_PARAMETERS]
        f = self.f = Function(self.text, name, parameters, attributes=DRIVER_ATTRIBUTES)
        self.start_recording()
        with f.loop(f.integer("low"), f.integer("high"), 1) as loop:
            self.switch(loop.index, thunk.branches)
        f.ret()
        self.text.add(name, f.text())
        self.f, self.last = outer, last
        run_tasks(outer, name, outer.pointer("temp"), len(thunk.branches), 1)


def _define_for_recorder(
    text: ModuleText, name: str, signature: str, write: Callable[[Function, Ptr], object]
) -> None:
    """Defines a function that does nothing where there is no recorder, so that the entry has no branch for it."""
    if text.has(name):
        return
    f = Function(text, name, parameters(signature), attributes=DRIVER_ATTRIBUTES)
    recorder = (f.pointer("context") + OFFSETS["recorder"]).load_ptr()
    with f.if_(recorder.is_not_null(), rare=True):
        write(f, recorder)
    f.ret()
    text.add(name, f.text())


def _record(f: Function, recorder: Ptr) -> None:
    """`tfb.record` tells the recorder of a kernel."""
    f.call(recorder.load_ptr(), "void", [recorder, f["kernel"], f["last"]])


def _clear_ticks(f: Function, _: Ptr) -> None:
    """`tfb.start_chain` clears the ticks of a chain's kernels."""
    f.call("memset", "void", [f["times"], f.constant("i8", 0), f["bytes"]])


_FRACTION_BITS = 12  # of the share of a chain's time


def _record_shares(f: Function, recorder: Ptr) -> None:
    """`tfb.record_chain` tells the recorder of the kernels of a chain, as if one had run after the other: the time
    since the last kernel ended is divided as the ticks of all threads are."""
    last, times = f.pointers("last", "times")
    first, count = f.integers("kernel", "count")
    start, record = last.load_int(), recorder.load_ptr()
    f.call(record, "void", [recorder, f.constant("i64", RECORD_START), last])
    passed, total = last.load_int() - start, f.stack_slot("i64", 8)
    last.store(start)
    total.store(f.i64(1))
    with f.loop(f.i64(0), count) as part:
        total.store(total.load_int() + times.at(part.index, "i64").load_int())
    factor = (passed << _FRACTION_BITS) // total.load_int()
    with f.loop(f.i64(0), count) as part:
        share = (times.at(part.index, "i64").load_int() * factor) >> _FRACTION_BITS
        (last + RECORD_END).store(last.load_int() + share)
        f.call(record, "void", [recorder, first + part.index, last])
    (last + RECORD_END).store(f.i64(0))


def _fill_bases(f: Function, program: ThunkProgram, is_embedded: bool, pointer_bytes: int) -> Ptr:
    """Writes the code at the entry's head that collects the bases of the address table; returns their address."""
    count = 2 + len(program.arguments) + len(program.results) + len(program.packed)
    context = f.pointer("context")
    bases = f.stack_slot(f"[{count} x i64]")
    bases.store(f.pointer("temp"))
    constants = f.symbol("tfb.constants") if is_embedded else (context + OFFSETS["constants"]).load_ptr()
    (bases + 8).store(constants)
    pointer_arrays = [
        (f.pointer("args"), len(program.arguments), 2),
        (f.pointer("results"), len(program.results), 2 + len(program.arguments)),
    ]
    if program.packed:
        packed = (context + OFFSETS["packed"]).load_ptr()
        pointer_arrays.append((packed, len(program.packed), count - len(program.packed)))
    for source, length, first in pointer_arrays:
        # A loop: LLVM takes a tenth of a second for the loads and stores of a few hundred variables in one block.
        with f.loop(0, length, 1) as loop:
            pointer = (source + loop.index * pointer_bytes).load("ptr", pointer_bytes)
            bases.at(loop.index + first, "i64").store(pointer, 8)
    return bases


def _fill_rows(
    text: ModuleText, f: Function, name: str, table: _AddressTable, bases: Ptr, offset: int
) -> None:
    """Writes the code at the entry's head that computes the addresses of all rows."""
    numbers = [(base, 0 if isinstance(at, Size) else at) for base, at in table.rows]
    is_narrow = max(map(max, numbers)) < 1 << 31
    word, word_bytes = ("i32", 4) if is_narrow else ("i64", 8)
    rows = ", ".join(f"{{{word}, {word}}} {{{word} {base}, {word} {at}}}" for base, at in numbers)
    count = len(table.rows)
    text.add_global(f"tfb.rows.{name}", f"internal constant [{count} x {{{word}, {word}}}] [{rows}]")
    target = f.pointer("temp") + offset
    with f.loop(0, count, 1) as loop:
        row = f.symbol(f"tfb.rows.{name}").at(loop.index, f"{{{word}, {word}}}")
        place, distance = (Int.zero_extended(field.load(word)) for field in (row, row + word_bytes))
        base = bases.at(place, "ptr").load_ptr()
        address = base + distance
        target.at(loop.index, "ptr").store(address)
    for number, (_, row_offset) in enumerate(table.rows):
        if isinstance(row_offset, Size):
            row = target.at(number, "ptr")
            row.store(row.load_ptr() + row_offset)


def return_with_message(f: Function, message: bytes, status: int) -> None:
    """Writes code that returns from an entry with a message, as much of it as there is room for."""
    text = f.symbol(f.module.add_global(f"tfb.message.{len(f.module.globals)}", _bytes_global(message)))
    context = f.pointer("context")
    room = (context + OFFSETS["error_message"]).load_ptr()
    last = (context + OFFSETS["error_capacity"]).load("i64") - 1
    with f.if_(room.is_not_null() & (last >= 0)):
        size = Int.of(f, (last < len(message)).choose(last, len(message)))
        f.call("memcpy", "ptr", [room, text, size])
        (room + size).store(f.constant("i8", 0))
    f.ret(f.constant("i32", status))


def _bytes_global(data: bytes) -> str:
    text = "".join(f"\\{byte:02X}" for byte in (*data, 0))
    return f'internal constant [{len(data) + 1} x i8] c"{text}"'


def _room_for(constants: bytes) -> str:
    """A global of the constants' size that starts with a mark; LLVM must not take its contents for granted.

    Text with every byte of a large network spelled out takes LLVM seven times as long as room for it.
    """
    rest = max(0, len(constants) - _MARK_BYTES)
    mark = "".join(f"\\{byte:02X}" for byte in _MARK)
    return (
        f"internal externally_initialized constant {{[{_MARK_BYTES} x i8], [{rest} x i8]}} "
        f'{{[{_MARK_BYTES} x i8] c"{mark}", [{rest} x i8] zeroinitializer}}, align {ALIGN_BYTES}'
    )


DECLARED_CONSTANTS = "@tfb.constants = external constant i8\n"
"""What a text needs that is read before `add_constants`."""


def add_constants(text: ModuleText, constants: bytes) -> None:
    """Writes room for the constants of all entries of an object, which `place_constants` fills."""
    text.add_global("tfb.constants", _room_for(constants))


def place_constants(object_bytes: bytes, constants: bytes) -> bytes:
    """The object of an entry with embedded constants, with the constants in their room.

    Raises: InternalError  the object has no such room, or more than one.
    """
    if (rooms := object_bytes.count(_MARK)) != 1:
        raise InternalError(f"the object has {rooms} rooms for its constants, 1 is expected")
    at = object_bytes.index(_MARK)
    room = max(len(constants), _MARK_BYTES)
    return b"".join((object_bytes[:at], constants.ljust(room, b"\0"), object_bytes[at + room :]))
