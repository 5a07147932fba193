"""Writes the entry function of a schedule: `i32 entry(run_context, args, results, temp)`.

The buffers' addresses are computed once per call into a table at the head of the temp arena, from a constant table of
(base, offset); every launch is then a call with a pointer into that table.
"""

from __future__ import annotations

import dataclasses
import hashlib

from ....runtime.devices.host_callbacks import NO_HOST
from ....runtime.llvm.ir_builder import GLUE, Function, ModuleText, Value, constant, i64
from ....runtime.run_context import OFFSETS
from ...errors import InternalError
from ..codegen.parallel_for import KERNEL_PARAMETERS, run_tasks
from .thunks import Branch, Buffer, CallOut, Check, Concurrent, Copy, Launch, Loop, Prepare, Schedule, Step

ENTRY_PARAMETERS = (("ptr", "context"), ("ptr", "args"), ("ptr", "results"), ("ptr", "temp"))
_ALIGN = 64
_MARK_BYTES = 64


@dataclasses.dataclass
class _Table:
    """The address table: rows of (base, offset), one per buffer of a launch; bases: temp, constants, args, results,
    packed arguments."""

    arguments: int
    results: int
    rows: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    single: dict[Buffer, int] = dataclasses.field(default_factory=dict)

    def add(self, buffers: list[Buffer]) -> int:
        """Adds rows for the buffers; returns the number of the first."""
        self.rows.extend(map(self.row, buffers))
        return len(self.rows) - len(buffers)

    def row(self, buffer: Buffer) -> tuple[int, int]:
        if buffer.space == "temporary":
            return 0, buffer.offset
        if buffer.space == "constant":
            return 1, buffer.offset
        before = {"argument": 0, "result": self.arguments, "packed": self.arguments + self.results}
        return 2 + before[buffer.space] + buffer.index, 0

    def one(self, buffer: Buffer) -> int:
        """The row of a single buffer."""
        if buffer not in self.single:
            self.single[buffer] = self.add([buffer])
        return self.single[buffer]


def emit_entry(
    text: ModuleText, name: str, schedule: Schedule, embed_constants: bool = False, profile: bool = False
) -> None:
    """Writes the entry function `name` and what it needs; grows `schedule.temp_bytes` by the address table.

    With `embed_constants` there is room for the constants in the object, which `place_constants` fills; else the run
    context has their address. With `profile` each launch adds its calls and cycles to the run context's counters,
    numbered in the order of `launches()`.
    """
    table = _Table(len(schedule.arguments), len(schedule.results))
    f = Function(text, name, ENTRY_PARAMETERS, "i32", GLUE, linkage="")
    writer = _Writer(text, name, f, table, schedule.temp_bytes, profile)
    body: list[str] = []
    with f.redirected(body):
        f.start_block("steps")
        writer.steps(schedule.steps)
        f.ret(constant("i32", 0))
    f.block = "entry"
    _fill_table(text, f, name, table, schedule, embed_constants)
    f.do("br label %steps")
    f.lines.extend(body)
    text.add(name, f.text())


def emit_preparation(text: ModuleText, name: str, schedule: Schedule) -> None:
    """Writes the entry that fills the packed buffers of a schedule, those that there is memory for."""
    preparation = dataclasses.replace(
        schedule,
        steps=list(schedule.preparation),
        results=[],
        temporaries=[],
        constants=b"",
        sites=[],
        temp_bytes=0,
    )
    emit_entry(text, name, preparation)
    schedule.temp_bytes = max(schedule.temp_bytes, preparation.temp_bytes)


class _Writer:
    def __init__(
        self, text: ModuleText, name: str, f: Function, table: _Table, table_offset: int, profile: bool
    ) -> None:
        self.text, self.name, self.f, self.table, self.profile = text, name, f, table, profile
        self.concurrents = 0
        self.table_offset = -(-table_offset // _ALIGN) * _ALIGN
        self.launched = 0
        self.messages = 0

    def rows(self, first: int) -> Value:
        """Address of a row of the address table."""
        return self.f.offset(self.f["temp"], self.table_offset + 8 * first)

    def address(self, buffer: Buffer) -> Value:
        """A buffer's address."""
        if buffer.space == "temporary":
            return self.f.offset(self.f["temp"], buffer.offset)
        return self.f.load("ptr", self.rows(self.table.one(buffer)), 8)

    def steps(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case Launch():
                    self.launch(step)
                case CallOut():
                    self.call_out(step)
                case Check():
                    self.check(step)
                case Prepare():
                    self.prepare(step)
                case Copy():
                    self.copy(step)
                case Loop():
                    self.loop(step)
                case Branch():
                    self.branch(step)
                case Concurrent():
                    self.concurrent(step)

    def copy(self, step: Copy) -> None:
        f, source, target = self.f, self.address(step.source), self.address(step.target)

        def run() -> None:
            f.call("memcpy", "ptr", [target, source, i64(step.source.bytes)])

        if step.source.home is step.target.home:
            f.branch(f.compare("icmp ne", source, target), run)
        else:
            run()

    def launch(self, step: Launch) -> None:
        f, plan = self.f, step.plan
        buffers = self.rows(self.table.add(step.buffers))
        number, self.launched = self.launched, self.launched + 1
        start = f.call("llvm.readcyclecounter", "i64", []) if self.profile else None
        if plan.parallel and plan.tasks > plan.grain:
            run_tasks(f, plan.symbol, buffers, plan.tasks, max(1, plan.grain))
        else:
            f.do(f"call void @{plan.symbol}(ptr %context, {buffers}, i64 0, i64 {plan.tasks}, i64 0)")
        if start is not None:
            self.count(number, start)

    def prepare(self, step: Prepare) -> None:
        address = self.address(step.launch.buffers[-1])
        self.f.branch(
            self.f.compare("icmp ne", address, Value("ptr", "null")), lambda: self.launch(step.launch)
        )

    def call_out(self, step: CallOut) -> None:
        """Calls the process; returns from the entry when that fails."""
        f = self.f
        buffers = self.rows(self.table.add(step.buffers))
        host = f.load("ptr", f.offset(f["context"], OFFSETS["feeds"]), 8)
        self.leave_if(f.compare("icmp eq", host, Value("ptr", "null")), constant("i32", NO_HOST))
        callback = f.load("ptr", host, 8)
        failed = constant("i1", True)
        if step.site.attributes.get("is_c"):
            failed = self.call_c(step, host, buffers)
        text = f"call i32 {callback.text}(i64 {step.number}, {buffers})"
        if failed.text == "true":
            status = f.op("i32", text)
            self.leave_if(f.compare("icmp ne", status, constant("i32", 0)), status)
        else:
            f.branch(failed, lambda: self.leave_if(constant("i1", True), f.op("i32", text)))

    def check(self, step: Check) -> None:
        """Returns from the entry with a message, as much of it as there is room for, when something does not hold."""
        f = self.f
        leave, stay = f.fresh("failed"), f.fresh("holds")
        failed = f.compare("icmp ne", f.load("i8", self.address(step.failed)), constant("i8", 0))
        f.do(f"br {failed}, label %{leave}, label %{stay}")
        f.start_block(leave)
        name = self.text.add_global(f"tfb.message.{self.messages}", _bytes_global(step.message))
        self.messages += 1
        room = f.load("ptr", f.offset(f["context"], OFFSETS["error_message"]), 8)
        last = f.binary("sub", f.load("i64", f.offset(f["context"], OFFSETS["error_capacity"]), 8), i64(1))

        def tell() -> None:
            length = i64(len(step.message))
            size = f.select(f.compare("icmp slt", last, length), last, length)
            f.call("memcpy", "ptr", [room, Value("ptr", f"@{name}"), size])
            f.store(constant("i8", 0), f.offset(room, size))

        f.branch(
            f.binary(
                "and", f.compare("icmp ne", room, Value("ptr", "null")), f.compare("icmp sge", last, i64(0))
            ),
            tell,
        )
        f.ret(constant("i32", step.status))
        f.start_block(stay)

    def leave_if(self, condition: Value, status: Value) -> None:
        f = self.f
        leave, stay = f.fresh("leave"), f.fresh("stay")
        f.do(f"br {condition}, label %{leave}, label %{stay}")
        f.start_block(leave)
        f.ret(status)
        f.start_block(stay)

    def call_c(self, step: CallOut, host: Value, buffers: Value) -> Value:
        """Calls the C function of a custom call; returns whether its status says that it failed."""
        f, given = self.f, step.site.attributes
        functions, status = (f.load("ptr", f.offset(host, 8 * k), 8) for k in (1, 2))
        function = f.load("ptr", f.offset(functions, 8 * step.number), 8)
        out = f.offset(buffers, 8 * len(step.site.inputs))
        arguments = [out if given["is_tuple"] else f.load("ptr", out, 8), buffers]
        if given["api_version"] == "API_VERSION_STATUS_RETURNING_UNIFIED":
            opaque = given["opaque"].encode("latin-1")
            name = self.text.add_global(f"tfb.opaque.{step.number}", _bytes_global(opaque))
            arguments += [Value("ptr", f"@{name}"), i64(len(opaque))]
        if given["api_version"] != "API_VERSION_ORIGINAL":
            arguments.append(status)
        f.do(f"call void {function.text}({', '.join(map(str, arguments))})")
        if given["api_version"] == "API_VERSION_ORIGINAL":
            return constant("i1", False)
        return f.compare("icmp ne", f.load("i32", status, 4), constant("i32", 0))

    def count(self, number: int, start: Value) -> None:
        """Adds one call and the cycles since `start` to the counters of launch `number`, if there are counters."""
        f = self.f
        cycles = f.binary("sub", f.call("llvm.readcyclecounter", "i64", []), start)
        counters = f.load("ptr", f.offset(f["context"], OFFSETS["profile"]), 8)

        def add() -> None:
            for k, amount in enumerate((i64(1), cycles)):
                slot = f.offset(counters, 16 * number + 8 * k)
                f.store(f.binary("add", f.load("i64", slot, 8), amount), slot, 8)

        f.branch(f.compare("icmp ne", counters, Value("ptr", "null")), add)

    def loop(self, step: Loop) -> None:
        f = self.f
        head, body, end = f.fresh("while"), f.fresh("body"), f.fresh("done")
        f.do(f"br label %{head}")
        f.start_block(head)
        self.steps(step.condition)
        test = f.compare("icmp ne", f.load("i8", self.address(step.test)), constant("i8", 0))
        f.do(f"br {test}, label %{body}, label %{end}")
        f.start_block(body)
        self.steps(step.body)
        f.do(f"br label %{head}")
        f.start_block(end)

    def branch(self, step: Branch) -> None:
        f = self.f
        labels = [f.fresh("case") for _ in step.branches]
        end = f.fresh("end")
        selector = self.address(step.selector)
        if step.by_index:
            arms = " ".join(f"i32 {k}, label %{label}" for k, label in enumerate(labels[:-1]))
            f.do(f"switch {f.load('i32', selector, 4)}, label %{labels[-1]} [ {arms} ]")
        else:
            test = f.compare("icmp ne", f.load("i8", selector), constant("i8", 0))
            f.do(f"br {test}, label %{labels[0]}, label %{labels[1]}")
        for label, steps in zip(labels, step.branches):
            f.start_block(label)
            self.steps(steps)
            f.do(f"br label %{end}")
        f.start_block(end)

    def concurrent(self, step: Concurrent) -> None:
        """Writes a kernel whose tasks are the branches, and its launch. Its buffers are the temporary memory."""
        outer, name = self.f, f"{self.name}.concurrent.{self.concurrents}"
        self.concurrents += 1
        # Like other code that calls kernels, but under the name of what the steps address.
        renamed = [(type_, {"buffers": "temp"}.get(n, n)) for type_, n in KERNEL_PARAMETERS]
        f = self.f = Function(self.text, name, renamed, attributes=GLUE)

        def run(number: Value, _: list[Value]) -> None:
            labels = [f.fresh("case") for _ in step.branches]
            end = f.fresh("end")
            arms = " ".join(f"i64 {k}, label %{label}" for k, label in enumerate(labels[:-1]))
            f.do(f"switch {number}, label %{labels[-1]} [ {arms} ]")
            for label, steps in zip(labels, step.branches):
                f.start_block(label)
                self.steps(steps)
                f.do(f"br label %{end}")
            f.start_block(end)

        f.loop(f["low"], f["high"], 1, run)
        f.ret()
        self.text.add(name, f.text())
        self.f = outer
        run_tasks(outer, name, outer["temp"], len(step.branches), 1)


def _fill_table(
    text: ModuleText, f: Function, name: str, table: _Table, schedule: Schedule, embed_constants: bool
) -> None:
    """Writes the code at the entry's head that computes the addresses of all rows."""
    offset = -(-schedule.temp_bytes // _ALIGN) * _ALIGN
    schedule.temp_bytes = offset + 8 * len(table.rows)
    embedded = embed_constants and bool(schedule.constants)
    if embedded:
        text.add_global("tfb.constants", _room_for(schedule.constants))
    if not table.rows:
        return
    bases = 2 + len(schedule.arguments) + len(schedule.results) + len(schedule.packed)
    base_table = f.stack_slot(f"[{bases} x i64]")
    f.store(f["temp"], base_table, 8)
    if embedded:
        constants = Value("ptr", "@tfb.constants")
    else:
        constants = f.load("ptr", f.offset(f["context"], OFFSETS["constants"]), 8)
    f.store(constants, f.offset(base_table, 8), 8)
    pointer_bytes = text.target.pointer_bytes if text.target else 8
    given_tables = [
        (f["args"], len(schedule.arguments), 2),
        (f["results"], len(schedule.results), 2 + len(schedule.arguments)),
    ]
    if schedule.packed:
        packed = f.load("ptr", f.offset(f["context"], OFFSETS["packed"]), 8)
        given_tables.append((packed, len(schedule.packed), bases - len(schedule.packed)))
    for source, count, at in given_tables:

        def given(k: Value, carried: list[Value], source: Value = source, at: int = at) -> None:
            pointer = f.load("ptr", f.offset(source, f.mul(k, pointer_bytes)), pointer_bytes)
            f.store(pointer, f.offset(base_table, f.add(k, at), "i64"), 8)

        # A loop: LLVM takes a tenth of a second for the loads and stores of a few hundred variables in one block.
        f.loop(0, count, 1, given)
    rows = ", ".join(f"{{i64, i64}} {{i64 {base}, i64 {offset}}}" for base, offset in table.rows)
    count = len(table.rows)
    text.add_global(f"tfb.rows.{name}", f"internal constant [{count} x {{i64, i64}}] [{rows}]")
    target = f.offset(f["temp"], offset)

    def fill(i: Value, _: list[Value]) -> None:
        row = f.offset(Value("ptr", f"@tfb.rows.{name}"), i, "{i64, i64}")
        base = f.load("ptr", f.offset(base_table, f.load("i64", row, 8), "ptr"), 8)
        f.store(f.offset(base, f.load("i64", f.offset(row, 8), 8)), f.offset(target, i, "ptr"), 8)

    f.loop(0, count, 1, fill)


def _bytes_global(data: bytes) -> str:
    text = "".join(f"\\{byte:02X}" for byte in (*data, 0))
    return f'internal constant [{len(data) + 1} x i8] c"{text}"'


def _mark(constants: bytes) -> bytes:
    return hashlib.blake2b(constants, digest_size=_MARK_BYTES).digest()


def _room_for(constants: bytes) -> str:
    """A global of the constants' size that starts with their mark; LLVM must not take its contents for granted.

    Text with every byte of a large network spelled out takes LLVM seven times as long as room for it.
    """
    rest = max(0, len(constants) - _MARK_BYTES)
    mark = "".join(f"\\{byte:02X}" for byte in _mark(constants))
    return (
        f"internal externally_initialized constant {{[{_MARK_BYTES} x i8], [{rest} x i8]}} "
        f'{{[{_MARK_BYTES} x i8] c"{mark}", [{rest} x i8] zeroinitializer}}, align {_ALIGN}'
    )


def place_constants(object_bytes: bytes, constants: bytes) -> bytes:
    """The object of an entry with embedded constants, with the constants in their room.

    Raises: InternalError  the object has no such room, or more than one.
    """
    mark = _mark(constants)
    if object_bytes.count(mark) != 1:
        raise InternalError(f"the object has {object_bytes.count(mark)} places for its constants, wanted 1")
    at = object_bytes.index(mark)
    room = max(len(constants), _MARK_BYTES)
    return b"".join((object_bytes[:at], constants.ljust(room, b"\0"), object_bytes[at + room :]))
