"""The launch op's kernel as LLVM IR: finds the entry for the shapes and runs it, Python only on a miss.

Three C structs are shared with Python (`Launch`, `Entry`, `Output`). A launch is what TensorFlow calls a
kernel's state; it owns a hash table of entries, one for each key met. A key is, for every input in order, one
word rank, one word per dim and, for inputs keyed by value, one word byte size and the bytes, zero-padded.
Entries are published and taken out by atomic stores, so lookups need no lock; launch/entry_table.py says when the
memory of one that was taken out may be freed.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Callable
from types import ModuleType

from ...runtime import run_context as context
from ...runtime.code import linker, support_library
from ...runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64
from ...runtime.memory import result_pool, temp_arena
from ...runtime.threads import interrupts
from ..tf_internals import symbols as private

BUCKETS = 64
ERROR_CAPACITY = 512
LEFT_RUNS = 8
ALLOCATE, ALIAS, FORWARD, LATER, SIZED = 0, 1, 2, 3, 4  # Output.mode
_KEY_ON_STACK_BYTES = 16 << 10
NO_LAUNCH = 1  # what stands for a launch that cannot be made
_MOST_CALLS = 1000  # of a Python function that is interrupted
_HASH_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
_NO_MEMORY = "no memory for a result"
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _ABORTED, _LAST_CODE = 3, 8, 10, 16


class Output(ctypes.Structure):
    """How one output gets its memory. `source` is the input that ALIAS and FORWARD name.

    LATER: memory that becomes the output when the code has run, for the run may be left and another make the output.
    SIZED: as much of the memory becomes the output as the code says: its size number `source` is the first axis's.
    """

    _fields_ = [
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("source", ctypes.c_int32),
        ("mode", ctypes.c_int32),
    ]


class Entry(ctypes.Structure):
    """What runs for one key. `code` null: TensorFlow runs the original nodes. Every call copies `context`.

    After `trial` runs (0: never) the code is taken out, so that the next call asks whether it is to stay. It is taken
    out for good when its assumption failed in LEFT_RUNS runs (`left`) and in most of them all. Run `settles` (0: none)
    is told to launch/weight_pages.py. The code reads
    `packed_count` of the inputs, `packed_inputs`, packed: see launch/prepacked_weights.py. Behind the results it gives
    `sizes` s32 scalars, for outputs that are SIZED. `outgrown`: a run was left because a bound in the code was too
    small.
    """

    _fields_ = [
        ("next", ctypes.c_void_p),
        ("hash", ctypes.c_uint64),
        ("key_bytes", ctypes.c_int64),
        ("key", ctypes.c_void_p),
        ("code", ctypes.c_void_p),
        ("temp_bytes", ctypes.c_int64),
        ("outputs", ctypes.c_void_p),
        ("runs", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("trial", ctypes.c_int64),
        ("settles", ctypes.c_int64),
        ("left", ctypes.c_int64),
        ("packed_count", ctypes.c_int64),
        ("packed_inputs", ctypes.c_void_p),
        ("packed_lock", ctypes.c_int64),
        ("packed", ctypes.c_void_p),
        ("sizes", ctypes.c_int64),
        ("outgrown", ctypes.c_int64),
        ("context", context.RunContext),
    ]


class Launch(ctypes.Structure):
    """A kernel's state: cluster and types of one launch. `keyed`, a byte per input: the key has its value.

    Among the inputs are `variables` variables, of which `updates` get new values, which follow the outputs among an
    entry's results. `kinds`, a byte per input: resource_variables' READ or UPDATED, or 0; `types`, per input: DataType
    of the value; `targets`, per update: its input.

    `kernels` of TensorFlow have this state; when the last one is deleted, the word at `gone` rises. Calls that are on
    their way are counted in one of two words, `active`; new ones in that of the lowest bit of `turn`.
    `spare` is an entry without code.
    """

    _fields_ = [
        ("last", ctypes.c_void_p),
        ("number", ctypes.c_int64),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        ("keyed", ctypes.c_void_p),
        ("variables", ctypes.c_int64),
        ("updates", ctypes.c_int64),
        ("kinds", ctypes.c_void_p),
        ("types", ctypes.c_void_p),
        ("targets", ctypes.c_void_p),
        ("kernels", ctypes.c_int64),
        ("gone", ctypes.c_void_p),
        ("turn", ctypes.c_int64),
        ("active", ctypes.c_int64 * 2),
        ("spare", ctypes.c_void_p),
        ("buckets", ctypes.c_void_p * BUCKETS),
    ]


# What native code calls in Python; the last argument is the address of the result.
CREATE = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)
MISS = ctypes.CFUNCTYPE(
    None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p
)
FALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * 6)
_PUBLISH = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_COUNT = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


@dataclasses.dataclass(frozen=True)
class Native:
    """The kernel in memory: addresses of functions, `publish(slot, entry)`, a store that other threads see in order,
    and `count(slot, amount)`, which adds to a word and returns its new value."""

    create: int
    compute: int
    delete: int
    run_entry: int
    publish: Callable[[int, int], None]
    count: Callable[[int, int], int]


def load(create: int, miss: int, fallback: int) -> Native:
    """Compiles the kernel.

    `i32 run_entry(entry, code, args, results, message, tensors)` runs an entry's code on data pointers and gives its
    status; `message` has room for ERROR_CAPACITY bytes. `tensors` of the inputs, null where variables are none.

    create(kernel construction) -> launch, miss(launch number, key, key bytes, hash) -> entry and fallback(launch
    number, tensors, variables, new, reason, status) -> not null are addresses of C functions, with the address of the
    result as last argument. fallback puts the op's outputs and the tensors for updated variables into `new`; the tensor
    of a variable without a value is null. `reason`: the text that tells which assumption of compiled code failed, empty
    where none did, null where no code ran.
    """
    with_variables = launch_variables().available()
    text, tensorflow = _module(with_variables)
    imports = {symbol: private.address(symbol) for symbol in tensorflow}
    imports |= {"tfbridge_new_launch": create, "tfbridge_miss": miss, "tfbridge_fallback": fallback}
    imports |= launch_variables().imports() if with_variables else {}
    imports |= block_functions() | launch_packed().imports() | launch_memory().imports()
    imports |= {
        name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
        for name in (
            "PyGILState_Ensure",
            "PyGILState_Release",
            "PyThreadState_SetAsyncExc",
            "PyThread_get_thread_ident",
        )
    }
    imports |= {"tfbridge_waiting": ctypes.addressof(interrupts.word)}
    imports |= {"tfbridge_run": support_library.addresses()["run"]}
    exports = tuple(
        f"tfbridge_{name}" for name in ("create", "compute", "delete", "run_entry", "publish", "count")
    )
    found = linker.load_text(text, exports + launch_packed().EXPORTS, imports).keep().addresses
    create, compute, delete, run_entry, publish, count = (found[name] for name in exports)
    launch_packed().connect(*(found[name] for name in launch_packed().EXPORTS))
    return Native(create, compute, delete, run_entry, _PUBLISH(publish), _COUNT(count))


def prefetch() -> None:
    """Starts to compile the kernel in the background, the one that most TensorFlows need."""
    support_library.prefetch()
    linker.prepare_text(_module(True)[0])


def launch_packed() -> ModuleType:
    """The module for packed inputs, which needs this one."""
    from . import prepacked_weights as launch_packed

    return launch_packed


def launch_variables() -> ModuleType:
    """The module for variables, which needs this one."""
    from . import resource_variables as launch_variables

    return launch_variables


def launch_memory() -> ModuleType:
    """The module for large inputs, which needs this one."""
    from . import weight_pages as launch_memory

    return launch_memory


@functools.cache
def _module(with_variables: bool) -> tuple[str, tuple[str, ...]]:
    """(the module's text, the TensorFlow symbols that it calls)."""
    module = ModuleText()
    if with_variables:
        launch_variables().write(module)
    _write_find(module)
    write_new_tensor(module)
    _write_acquire_outputs(module)
    _write_first_of(module)
    launch_packed().write(module)
    _write_run_entry(module)
    _write_launch(module, with_variables)
    _write_raise_waiting(module)
    _write_compute(module, with_variables)
    _write_small(module)
    text = module.text()
    return text, tuple(symbol for symbol in module.declarations if symbol.startswith("TF_"))


def _field(f: Function, struct: type[ctypes.Structure], pointer: Value, name: str) -> Value:
    """Address of a struct's field."""
    return f.offset(pointer, getattr(struct, name).offset)


def _read(
    f: Function, struct: type[ctypes.Structure], pointer: Value, name: str, type_: str = "i64"
) -> Value:
    """A struct's field."""
    return f.load(type_, _field(f, struct, pointer, name), 4 if type_ == "i32" else 8)


def _each(f: Function, count: Value, body: Callable[[Value], object]) -> None:
    """for number in range(count): body(number)."""

    def run(number: Value, _: list[Value]) -> None:
        body(number)

    f.loop(0, count, 1, run)


def _when(
    f: Function, condition: Value, then: Callable[[], object], otherwise: Callable[[], object] = lambda: None
) -> None:
    """if condition: then() else: otherwise(); neither gives a value."""

    def silent(write: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            write()

        return run

    f.branch(condition, silent(then), silent(otherwise))


def _delete_tensors(f: Function, count: Value, tensors: Value) -> None:
    _each(
        f,
        count,
        lambda number: f.call(
            "TF_DeleteTensor", "void", [f.load("ptr", f.offset(tensors, number, "ptr"), 8)]
        ),
    )


_NULL = Value("ptr", "null")


def _i32(number: int) -> Value:
    return Value("i32", str(number))


def _array(f: Function, type_: str, count: Value) -> Value:
    return f.op("ptr", f"alloca {type_}, {count}, align 16")


def _has_failed(f: Function, status: Value) -> Value:
    return f.compare("icmp ne", f.call("TF_GetCode", "i32", [status]), _i32(0))


def _write_find(module: ModuleText) -> None:
    """find(launch, key, bytes, hash) -> entry or null: the last hit first, then the hash table."""
    key = [("ptr", "key"), ("i64", "bytes"), ("i64", "hash")]
    f = Function(module, "matches", [("ptr", "chosen"), *key], "i1")
    same_hash = f.compare("icmp eq", _read(f, Entry, f["chosen"], "hash"), f["hash"])
    same_size = f.compare("icmp eq", _read(f, Entry, f["chosen"], "key_bytes"), f["bytes"])

    def compare_keys() -> list[Value]:
        known = _read(f, Entry, f["chosen"], "key", "ptr")
        different = f.call("memcmp", "i32", [known, f["key"], f["bytes"]])
        return [f.compare("icmp eq", different, _i32(0))]

    f.ret(f.branch(f.binary("and", same_hash, same_size), compare_keys, lambda: [constant("i1", False)])[0])
    module.add("matches", f.text())

    f = Function(module, "find", [("ptr", "launch"), *key], "ptr")
    wanted = [f["key"], f["bytes"], f["hash"]]
    last = f.op("ptr", f"load atomic ptr, {_field(f, Launch, f['launch'], 'last')} acquire, align 8")
    is_set = f.compare("icmp ne", last, _NULL)
    hit = f.branch(
        is_set, lambda: [f.call("matches", "i1", [last, *wanted])], lambda: [constant("i1", False)]
    )[0]
    f.do(f"br {hit}, label %done, label %search")
    f.start_block("search")
    bucket = f.binary("and", f["hash"], i64(BUCKETS - 1))
    slot = f.offset(_field(f, Launch, f["launch"], "buckets"), bucket, "ptr")
    first = f.op("ptr", f"load atomic ptr, {slot} acquire, align 8")
    f.do("br label %next")
    f.start_block("next")
    f.do(f"%entry_at = phi ptr [{first.text}, %search], [%following, %skip]")
    at = Value("ptr", "%entry_at")
    f.do(f"br {f.compare('icmp eq', at, _NULL)}, label %missing, label %test")
    f.start_block("test")
    f.do(f"br {f.call('matches', 'i1', [at, *wanted])}, label %found, label %skip")
    f.start_block("skip")
    f.do(f"%following = load atomic ptr, {_field(f, Entry, at, 'next')} acquire, align 8")
    f.do("br label %next")
    f.start_block("found")
    f.do(f"store atomic {at}, {_field(f, Launch, f['launch'], 'last')} release, align 8")
    f.ret(at)
    f.start_block("missing")
    f.ret(_NULL)
    f.start_block("done")
    f.ret(last)
    module.add("find", f.text())


def block_functions() -> dict[str, int]:
    """Addresses of what `new_tensor` calls besides TensorFlow."""
    known = support_library.addresses()
    return {"tfb_block_take": known["block_take"], "tfb_block_put": known["block_put"]}


def write_new_tensor(module: ModuleText) -> None:
    """new_tensor(output) -> a tensor for an output, large ones in a block that is used again; null: no memory."""
    f = Function(module, "new_tensor", [("ptr", "output")], "ptr")
    parts = [
        _read(f, Output, f["output"], name, type_)
        for name, type_ in (("dtype", "i32"), ("dims", "ptr"), ("rank", "i32"), ("bytes", "i64"))
    ]
    *head, size = parts

    def large() -> list[Value]:
        memory = f.call("tfb_block_take", "ptr", [size])

        def make() -> list[Value]:
            module.declare("tfb_block_put", "void", ["ptr", "i64", "ptr"])
            put = Value("ptr", "@tfb_block_put")
            return [f.call("TF_NewTensor", "ptr", [*head, memory, size, put, _NULL])]

        return [f.branch(f.compare("icmp ne", memory, _NULL), make, lambda: [_NULL])[0]]

    f.ret(
        f.branch(
            f.compare("icmp uge", size, i64(result_pool.SMALLEST)),
            large,
            lambda: [f.call("TF_AllocateTensor", "ptr", parts)],
        )[0]
    )
    module.add("new_tensor", f.text())


def _write_acquire_outputs(module: ModuleText) -> None:
    """acquire_outputs(context, chosen, outputs, results, pending, status): allocates or forwards what is no alias.

    A slot stays null where TensorFlow has no memory; the status says so. `pending` gets the tensors of outputs that are
    set later, else null.
    """
    f = Function(
        module,
        "acquire_outputs",
        [
            ("ptr", "context"),
            ("ptr", "chosen"),
            ("i64", "outputs"),
            ("ptr", "results"),
            ("ptr", "pending"),
            ("ptr", "status"),
        ],
    )
    forwarded, candidate = f.stack_slot("i32", 4), f.stack_slot("i32", 4)
    table = _read(f, Entry, f["chosen"], "outputs", "ptr")
    no_memory = _no_memory(module)

    def acquire(number: Value) -> None:
        output = f.offset(table, f.binary("mul", number, i64(ctypes.sizeof(Output))))
        index = f.cast("trunc", number, "i32")
        dims, rank = _read(f, Output, output, "dims", "ptr"), _read(f, Output, output, "rank", "i32")
        mode = _read(f, Output, output, "mode", "i32")

        def allocate() -> list[Value]:
            size = _read(f, Output, output, "bytes")

            def small() -> list[Value]:
                return [
                    f.call(
                        "TF_AllocateOutput",
                        "ptr",
                        [
                            f["context"],
                            index,
                            _read(f, Output, output, "dtype", "i32"),
                            dims,
                            rank,
                            size,
                            f["status"],
                        ],
                    )
                ]

            is_later = f.compare("icmp sge", mode, _i32(LATER))
            is_large = f.compare("icmp uge", size, i64(result_pool.SMALLEST))
            return f.branch(f.binary("or", is_large, is_later), lambda: own(is_later), small)

        def own(is_later: Value) -> list[Value]:
            tensor = f.call("new_tensor", "ptr", [output])

            def keep() -> None:
                f.store(tensor, f.offset(f["pending"], number, "ptr"), 8)

            def hand_over() -> None:
                _when(
                    f,
                    is_later,
                    keep,
                    lambda: f.call("TF_SetOutput", "void", [f["context"], index, tensor, f["status"]]),
                )

            _when(
                f,
                f.compare("icmp ne", tensor, _NULL),
                hand_over,
                lambda: f.call("TF_SetStatus", "void", [f["status"], _i32(_RESOURCE_EXHAUSTED), no_memory]),
            )
            return [tensor]

        def forward() -> list[Value]:
            f.store(_read(f, Output, output, "source", "i32"), candidate, 4)
            return [
                f.call(
                    "TF_ForwardInputOrAllocateOutput",
                    "ptr",
                    [f["context"], candidate, _i32(1), index, dims, rank, forwarded, f["status"]],
                )
            ]

        def fill() -> None:
            is_forward = f.compare("icmp eq", mode, _i32(FORWARD))
            tensor = f.branch(is_forward, forward, allocate)[0]

            def take_data() -> list[Value]:
                data = f.call("TF_TensorData", "ptr", [tensor])
                _when(
                    f,
                    f.compare("icmp slt", mode, _i32(LATER)),  # the kernel context holds the memory
                    lambda: f.call("TF_DeleteTensor", "void", [tensor]),
                )
                return [data]

            data = f.branch(f.compare("icmp ne", tensor, _NULL), take_data, lambda: [_NULL])[0]
            f.store(data, f.offset(f["results"], number, "ptr"), 8)

        f.store(_NULL, f.offset(f["pending"], number, "ptr"), 8)
        _when(f, f.compare("icmp ne", mode, _i32(ALIAS)), fill)

    _each(f, f["outputs"], acquire)
    f.ret()
    module.add("acquire_outputs", f.text())


def _no_memory(module: ModuleText) -> Value:
    return Value("ptr", "@" + module.add_global("no_memory", _text_global(_NO_MEMORY)))


def _text_global(text: str) -> str:
    return f'private constant [{len(text) + 1} x i8] c"{text}\\00"'


def _write_first_of(module: ModuleText) -> None:
    """first_of(output, tensor, sizes, status) -> a tensor of the first rows of a SIZED output's memory; null where
    there is no memory for it, and the status says so."""
    f = Function(
        module, "first_of", [("ptr", name) for name in ("output", "tensor", "sizes", "status")], "ptr"
    )
    rank = f.cast("sext", _read(f, Output, f["output"], "rank", "i32"), "i64")
    dims, bound = _array(f, "i64", rank), _read(f, Output, f["output"], "dims", "ptr")
    _each(
        f,
        rank,
        lambda axis: f.store(f.load("i64", f.offset(bound, axis, "i64"), 8), f.offset(dims, axis, "i64"), 8),
    )
    which = f.cast("sext", _read(f, Output, f["output"], "source", "i32"), "i64")
    size = f.cast("sext", f.load("i32", f.offset(f["sizes"], which, "i32"), 4), "i64")
    rows = f.intrinsic("umax", "i64", [f.load("i64", dims, 8), i64(1)])
    f.store(size, dims, 8)
    whole = _read(f, Output, f["output"], "bytes")
    bytes_ = f.binary("mul", f.binary("udiv", whole, rows), size)
    wanted = f.stack_slot(f"[{ctypes.sizeof(Output)} x i8]", 8)
    for name in ("dtype", "rank"):
        f.store(_read(f, Output, f["output"], name, "i32"), _field(f, Output, wanted, name), 4)
    f.store(dims, _field(f, Output, wanted, "dims"), 8)
    f.store(bytes_, _field(f, Output, wanted, "bytes"), 8)
    made = f.call("new_tensor", "ptr", [wanted])

    def copy() -> None:
        f.call("memcpy", "ptr", [*(f.call("TF_TensorData", "ptr", [t]) for t in (made, f["tensor"])), bytes_])

    _when(
        f,
        f.compare("icmp ne", made, _NULL),
        copy,
        lambda: f.call("TF_SetStatus", "void", [f["status"], _i32(_RESOURCE_EXHAUSTED), _no_memory(module)]),
    )
    f.ret(made)
    module.add("first_of", f.text())


def _write_run_entry(module: ModuleText) -> None:
    """run_entry(chosen, code, args, results, message, tensors) -> status of the code, which `chosen` may have lost by
    now."""
    parameters = [("ptr", name) for name in ("chosen", "code", "args", "results", "message", "tensors")]
    f = Function(module, "tfbridge_run_entry", parameters, "i32", linkage="")
    run_context = f.stack_slot(f"[{context.CONTEXT_BYTES} x i8]")
    rng_state = f.stack_slot("[2 x i64]")
    module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
    runs = f.op("i64", f"atomicrmw add {_field(f, Entry, f['chosen'], 'runs')}, i64 1 monotonic")
    f.do(
        f"call void @llvm.memcpy.p0.p0.i64({run_context}, {_field(f, Entry, f['chosen'], 'context')}, "
        f"i64 {context.CONTEXT_BYTES}, i1 false)"
    )
    f.store(constant("i8", 0), f["message"])
    f.store(f["message"], f.offset(run_context, context.OFFSETS["error_message"]), 8)
    f.store(i64(ERROR_CAPACITY), f.offset(run_context, context.OFFSETS["error_capacity"]), 8)
    code_at = _field(f, Entry, f["chosen"], "code")
    number = f.binary("add", runs, i64(1))
    is_due = f.compare("icmp eq", number, _read(f, Entry, f["chosen"], "trial"))
    _when(f, is_due, lambda: f.do(f"store atomic ptr null, {code_at} monotonic, align 8"))
    settles = f.compare("icmp eq", number, _read(f, Entry, f["chosen"], "settles"))
    _when(f, settles, lambda: f.call("tfbridge_settled", "void", [f["chosen"], f["args"]]))
    # Every run starts elsewhere in the random stream, whatever word of the state counts.
    seed = _read(f, Entry, f["chosen"], "seed")
    stepped = f.binary("xor", seed, f.binary("mul", runs, i64(_HASH_FACTOR)))
    f.store(stepped, rng_state, 8)
    f.store(seed, f.offset(rng_state, 8), 8)
    f.store(rng_state, f.offset(run_context, context.OFFSETS["rng_state"]), 8)

    def run() -> list[Value]:
        return [
            f.call(
                "tfbridge_run",
                "i32",
                [f["code"], run_context, f["args"], f["results"], _read(f, Entry, f["chosen"], "temp_bytes")],
            )
        ]

    def run_on(packed: Value) -> list[Value]:
        addresses = f.load("ptr", f.offset(packed, launch_packed().PackedSet.addresses.offset), 8)
        f.store(addresses, f.offset(run_context, context.OFFSETS["packed"]), 8)
        status = run()
        launch_packed().release(f, packed)
        return status

    def run_packed() -> list[Value]:
        packed = launch_packed().use(f, f["tensors"])
        return f.branch(
            f.compare("icmp ne", packed, _NULL),
            lambda: run_on(packed),
            lambda: [_i32(temp_arena.OUT_OF_MEMORY)],
        )

    has_packed = f.compare("icmp ne", _read(f, Entry, f["chosen"], "packed_count"), i64(0))
    ended = f.branch(has_packed, run_packed, run)[0]
    _when(f, f.compare("icmp eq", ended, _i32(context.ASSUMPTION_FAILED)), lambda: _note_left(f, f["chosen"]))
    f.ret(ended)
    module.add("tfbridge_run_entry", f.text())


def _write_launch(module: ModuleText, with_variables: bool) -> None:
    """launch(context, launch, chosen, code, tensors, variables, args, results, message, status) -> whether the run was
    left; the message, with room for ERROR_CAPACITY bytes, then says which assumption of the code failed, if one did.

    Makes outputs and runs; when the run was left, no output is set. Deletes the tensors, not those of variables, as
    soon as their data pointers suffice, so that inputs can be forwarded. Variables that are updated are locked.
    """
    parameters = (
        "context",
        "launch",
        "chosen",
        "code",
        "tensors",
        "variables",
        "args",
        "results",
        "message",
        "status",
    )
    f = Function(module, "launch", [("ptr", name) for name in parameters], "i1")
    inputs, outputs = _read(f, Launch, f["launch"], "inputs"), _read(f, Launch, f["launch"], "outputs")
    table = _read(f, Entry, f["chosen"], "outputs", "ptr")

    def alias(number: Value) -> None:
        output = f.offset(table, f.binary("mul", number, i64(ctypes.sizeof(Output))))

        def pass_on() -> None:
            source = f.cast("sext", _read(f, Output, output, "source", "i32"), "i64")
            tensor = f.load("ptr", f.offset(f["tensors"], source, "ptr"), 8)
            index = f.cast("trunc", number, "i32")
            f.call("TF_SetOutput", "void", [f["context"], index, tensor, f["status"]])
            data = f.load("ptr", f.offset(f["args"], source, "ptr"), 8)
            f.store(data, f.offset(f["results"], number, "ptr"), 8)

        _when(f, f.compare("icmp eq", _read(f, Output, output, "mode", "i32"), _i32(ALIAS)), pass_on)

    _each(f, outputs, alias)
    variables, updates = _read(f, Launch, f["launch"], "variables"), _read(f, Launch, f["launch"], "updates")
    _when(
        f,
        f.compare("icmp eq", variables, i64(0)),
        lambda: _delete_tensors(f, inputs, f["tensors"]),
        lambda: _delete_plain(f, f["launch"], inputs, f["tensors"]),
    )
    pending = _array(f, "ptr", outputs)
    f.call(
        "acquire_outputs", "void", [f["context"], f["chosen"], outputs, f["results"], pending, f["status"]]
    )
    fresh = _array(f, "ptr", updates)
    if with_variables:
        f.call(
            "acquire_updates",
            "void",
            [f[n] for n in ("launch", "chosen", "variables", "args", "results")] + [fresh, f["status"]],
        )

    count = _read(f, Entry, f["chosen"], "sizes")
    sizes, slots = _array(f, "i32", count), f.offset(f["results"], f.binary("add", outputs, updates), "ptr")
    _each(f, count, lambda k: f.store(f.offset(sizes, k, "i32"), f.offset(slots, k, "ptr"), 8))

    def run() -> list[Value]:
        code = f.call(
            "tfbridge_run_entry",
            "i32",
            [f["chosen"], f["code"], f["args"], f["results"], f["message"], f["tensors"]],
        )
        is_outgrown = f.compare("icmp eq", code, _i32(context.OUTGROWN))
        is_left = f.binary("or", is_outgrown, f.compare("icmp eq", code, _i32(context.ASSUMPTION_FAILED)))

        def outgrow() -> None:
            f.store(i64(1), _field(f, Entry, f["chosen"], "outgrown"), 8)
            f.store(constant("i8", 0), f["message"])  # the next run has larger bounds

        _when(f, is_outgrown, outgrow)

        def report() -> None:
            is_code = f.compare("icmp ult", f.binary("sub", code, _i32(2)), _i32(_LAST_CODE - 1))
            status_code = f.select(is_code, code, _i32(_INVALID_ARGUMENT))
            no_memory = f.compare("icmp eq", code, _i32(temp_arena.OUT_OF_MEMORY))
            f.call(
                "TF_SetStatus",
                "void",
                [f["status"], f.select(no_memory, _i32(_RESOURCE_EXHAUSTED), status_code), f["message"]],
            )

        _when(f, f.binary("or", is_left, f.compare("icmp eq", code, _i32(0))), lambda: None, report)
        return [is_left]

    is_left = f.branch(_has_failed(f, f["status"]), lambda: [constant("i1", False)], run)[0]
    done = f.binary("xor", f.binary("or", _has_failed(f, f["status"]), is_left), constant("i1", True))
    if with_variables:
        f.call("finish_updates", "void", [f["launch"], f["variables"], fresh, done])
    _each(f, outputs, lambda number: _finish_output(f, number, table, pending, sizes, done))
    f.ret(is_left)
    module.add("launch", f.text())


def _note_left(f: Function, chosen: Value) -> None:
    """Counts a run that was left; takes out code that is left again and again."""
    before = f.op("i64", f"atomicrmw add {_field(f, Entry, chosen, 'left')}, i64 1 monotonic")
    left = f.binary("add", before, i64(1))
    many = f.compare("icmp uge", left, i64(LEFT_RUNS))
    most = f.compare("icmp ugt", f.binary("shl", left, i64(1)), _read(f, Entry, chosen, "runs"))
    _when(
        f,
        f.binary("and", many, most),
        lambda: f.do(f"store atomic ptr null, {_field(f, Entry, chosen, 'code')} monotonic, align 8"),
    )


def _finish_output(
    f: Function, number: Value, table: Value, pending: Value, sizes: Value, done: Value
) -> None:
    """Sets an output that was to be set later, if all is done."""
    tensor = f.load("ptr", f.offset(pending, number, "ptr"), 8)
    output = f.offset(table, f.binary("mul", number, i64(ctypes.sizeof(Output))))

    def set_output(made: Value) -> None:
        f.call("TF_SetOutput", "void", [f["context"], f.cast("trunc", number, "i32"), made, f["status"]])

    def give_first() -> None:
        first = f.call("first_of", "ptr", [output, tensor, sizes, f["status"]])

        def hand_over() -> None:
            set_output(first)
            f.call("TF_DeleteTensor", "void", [first])

        _when(f, f.compare("icmp ne", first, _NULL), hand_over)

    def give() -> None:
        is_sized = f.compare("icmp eq", _read(f, Output, output, "mode", "i32"), _i32(SIZED))
        _when(f, is_sized, give_first, lambda: set_output(tensor))

    def finish() -> None:
        _when(f, done, give)
        f.call("TF_DeleteTensor", "void", [tensor])

    _when(f, f.compare("icmp ne", tensor, _NULL), finish)


def _delete_plain(f: Function, launch: Value, count: Value, tensors: Value) -> None:
    """Deletes the tensors of inputs that are no variables; nulls take their place."""
    kinds = _read(f, Launch, launch, "kinds", "ptr")

    def delete(number: Value) -> None:
        slot = f.offset(tensors, number, "ptr")

        def one() -> None:
            f.call("TF_DeleteTensor", "void", [f.load("ptr", slot, 8)])
            f.store(_NULL, slot, 8)

        _when(f, f.compare("icmp eq", f.load("i8", f.offset(kinds, number)), constant("i8", 0)), one)

    _each(f, count, delete)


def _give(f: Function, number: Value, new: Value, done: Value, status: Value) -> None:
    """Makes a tensor that TensorFlow's nodes have made an output, if all is done; deletes it."""
    tensor = f.load("ptr", f.offset(new, number, "ptr"), 8)

    def one() -> None:
        _when(
            f,
            done,
            lambda: f.call(
                "TF_SetOutput", "void", [f["context"], f.cast("trunc", number, "i32"), tensor, status]
            ),
        )
        f.call("TF_DeleteTensor", "void", [tensor])

    _when(f, f.compare("icmp ne", tensor, _NULL), one)


def call_python(f: Function, name: str, arguments: list[Value], most_calls: int = _MOST_CALLS) -> Value:
    """Calls a Python function until its result is not null, or `most_calls` times.

    The result is null where an asynchronous exception, such as Ctrl-C, left the function before its first line.
    """
    again, done = f.fresh("again"), f.fresh("done")
    count, result = f.stack_slot("i64"), f.stack_slot("ptr")
    f.store(i64(0), count, 8)
    f.store(_NULL, result, 8)
    f.do(f"br label %{again}")
    f.start_block(again)
    f.call(name, "void", [*arguments, result])
    value, calls = f.load("ptr", result, 8), f.load("i64", count, 8)
    f.store(f.binary("add", calls, i64(1)), count, 8)
    may_call = f.compare("icmp ult", calls, i64(most_calls - 1))
    is_interrupted = f.binary("and", f.compare("icmp eq", value, _NULL), may_call)
    f.do(f"br {is_interrupted}, label %{again}, label %{done}")
    f.start_block(done)
    return value


def _entry_of_miss(f: Function, key: list[Value]) -> Value:
    """The entry for a new key; one without code where an interrupt left none."""
    entry = call_python(f, "tfbridge_miss", key)
    return f.select(f.compare("icmp ne", entry, _NULL), entry, _read(f, Launch, f["launch"], "spare", "ptr"))


def _original(f: Function, tensors: Value, variables: Value, reason: Value, status: Value) -> Value:
    """Has TensorFlow run the original nodes: the tensors of outputs and updates, null where there is none.

    `reason`: the text that tells which assumption of compiled code failed; null where no code ran.
    """
    count = f.binary(
        "add", _read(f, Launch, f["launch"], "outputs"), _read(f, Launch, f["launch"], "updates")
    )
    new = _array(f, "ptr", count)
    _each(f, count, lambda k: f.store(_NULL, f.offset(new, k, "ptr"), 8))
    # Until Python says otherwise.
    text = f.module.add_global("interrupted", _text_global("interrupted"))
    f.call("TF_SetStatus", "void", [status, _i32(_ABORTED), Value("ptr", f"@{text}")])
    number = _read(f, Launch, f["launch"], "number")
    call_python(f, "tfbridge_fallback", [number, tensors, variables, new, reason, status])
    return new


def _write_gather(f: Function, status: Value, count: Value, tensors: Value, variables: Value) -> None:
    """Takes the tensors of all variables. Where one has no value, TensorFlow's nodes run, and the function ends."""
    is_complete = f.call("gather_variables", "i1", [f["context"], f["launch"], tensors, variables])
    f.do(f"br {is_complete}, label %complete, label %incomplete")
    f.start_block("incomplete")
    kinds, outputs = _read(f, Launch, f["launch"], "kinds", "ptr"), _read(f, Launch, f["launch"], "outputs")

    def take(number: Value) -> None:
        is_plain = f.compare("icmp eq", f.load("i8", f.offset(kinds, number)), constant("i8", 0))
        _when(
            f,
            is_plain,
            lambda: f.call(
                "TF_GetInput",
                "void",
                [f["context"], f.cast("trunc", number, "i32"), f.offset(tensors, number, "ptr"), status],
            ),
        )

    _each(f, count, take)
    new = _original(f, tensors, variables, _NULL, status)
    good = f.binary("xor", _has_failed(f, status), constant("i1", True))
    _when(
        f,
        good,
        lambda: f.call("assign_updates", "void", [f["launch"], variables, f.offset(new, outputs, "ptr")]),
    )
    _each(f, outputs, lambda k: _give(f, k, new, good, status))
    _when(
        f,
        _has_failed(f, status),
        lambda: f.call("TF_OpKernelContext_Failure", "void", [f["context"], status]),
    )
    _delete_plain(f, f["launch"], count, tensors)
    f.call("release_variables", "void", [f["launch"], tensors, variables])
    f.call("TF_DeleteStatus", "void", [status])
    f.ret()
    f.start_block("complete")


def _write_compute(module: ModuleText, with_variables: bool) -> None:
    """compute(launch, kernel context): what TensorFlow calls.

    compute_by(launch, kernel context, reason): the same; with a reason, which is not null, TensorFlow runs the original
    nodes.
    """
    f = Function(module, "compute_by", [("ptr", "launch"), ("ptr", "context"), ("ptr", "reason")])
    message = f.stack_slot(f"[{ERROR_CAPACITY} x i8]")
    status = f.call("TF_NewStatus", "ptr", [])
    inputs, outputs = _read(f, Launch, f["launch"], "inputs"), _read(f, Launch, f["launch"], "outputs")
    tensors, args = _array(f, "ptr", inputs), _array(f, "ptr", inputs)
    results = _array(
        f,
        "ptr",
        f.binary(
            "add",
            f.binary("add", outputs, outputs),  # and their sizes
            _read(f, Launch, f["launch"], "updates"),
        ),
    )
    keyed, kinds = (
        _read(f, Launch, f["launch"], "keyed", "ptr"),
        _read(f, Launch, f["launch"], "kinds", "ptr"),
    )
    updates = _read(f, Launch, f["launch"], "updates")
    has_variables = f.compare("icmp ne", _read(f, Launch, f["launch"], "variables"), i64(0))
    variables = order = _NULL
    if with_variables:
        variables, order = _array(f, "ptr", inputs), _array(f, "i64", inputs)
        f.do(f"br {has_variables}, label %gather, label %complete")
        f.start_block("gather")
        _write_gather(f, status, inputs, tensors, variables)

    def is_keyed(number: Value) -> Value:
        return f.compare("icmp ne", f.load("i8", f.offset(keyed, number)), constant("i8", 0))

    def padded_bytes(tensor: Value) -> Value:
        size = f.call("TF_TensorByteSize", "i64", [tensor])
        return f.binary("and", f.binary("add", size, i64(7)), i64(-8))

    def take(number: Value, size: list[Value]) -> list[Value]:
        slot = f.offset(tensors, number, "ptr")
        is_plain = f.compare("icmp eq", f.load("i8", f.offset(kinds, number)), constant("i8", 0))
        _when(
            f,
            is_plain,
            lambda: f.call(
                "TF_GetInput", "void", [f["context"], f.cast("trunc", number, "i32"), slot, status]
            ),
        )
        tensor = f.load("ptr", slot, 8)
        f.store(f.call("TF_TensorData", "ptr", [tensor]), f.offset(args, number, "ptr"), 8)
        rank = f.cast("sext", f.call("TF_NumDims", "i32", [tensor]), "i64")
        by_shape = f.binary("add", size[0], f.binary("shl", f.binary("add", rank, i64(1)), i64(3)))
        by_value = f.branch(
            is_keyed(number), lambda: [f.binary("add", padded_bytes(tensor), i64(8))], lambda: [i64(0)]
        )[0]
        return [f.binary("add", by_shape, by_value)]

    size = f.loop(0, inputs, 1, take, [i64(0)])[0]
    on_stack = f.compare("icmp ule", size, i64(_KEY_ON_STACK_BYTES))
    key = f.branch(on_stack, lambda: [_array(f, "i8", size)], lambda: [f.call("malloc", "ptr", [size])])[0]

    def write(number: Value, at: list[Value]) -> list[Value]:
        tensor = f.load("ptr", f.offset(tensors, number, "ptr"), 8)
        rank = f.cast("sext", f.call("TF_NumDims", "i32", [tensor]), "i64")
        f.store(rank, at[0], 8)
        dims = f.offset(at[0], 8)

        def write_dim(axis: Value) -> None:
            dim = f.call("TF_Dim", "i64", [tensor, f.cast("trunc", axis, "i32")])
            f.store(dim, f.offset(dims, axis, "i64"), 8)

        _each(f, rank, write_dim)
        end = f.offset(dims, rank, "i64")

        def write_value() -> list[Value]:
            # The last word is cleared first, so that the padding is zero; an empty value has no last word.
            words = padded_bytes(tensor)
            f.store(f.call("TF_TensorByteSize", "i64", [tensor]), end, 8)
            value = f.offset(end, 8)

            def copy() -> None:
                f.store(i64(0), f.offset(end, words), 8)
                data = f.load("ptr", f.offset(args, number, "ptr"), 8)
                f.call("memcpy", "ptr", [value, data, f.load("i64", end, 8)])

            _when(f, f.compare("icmp ne", words, i64(0)), copy)
            return [f.offset(value, words)]

        return f.branch(is_keyed(number), write_value, lambda: [end])

    f.loop(0, inputs, 1, write, [key])

    def mix(word: Value, state: list[Value]) -> list[Value]:
        mixed = f.binary("xor", state[0], f.load("i64", f.offset(key, word, "i64"), 8))
        turned = f.intrinsic("fshl", "i64", [mixed, mixed, i64(29)])
        return [f.binary("mul", turned, i64(_HASH_FACTOR))]

    mixed = f.loop(0, f.binary("lshr", size, i64(3)), 1, mix, [i64(1)])[0]
    hash_ = f.binary("lshr", mixed, i64(1 + 7))
    number = _read(f, Launch, f["launch"], "number")
    found = f.call("find", "ptr", [f["launch"], key, size, hash_])
    entry = f.branch(
        f.compare("icmp ne", found, _NULL),
        lambda: [found],
        lambda: [_entry_of_miss(f, [number, key, size, hash_])],
    )[0]

    has_updates = f.compare("icmp ne", updates, i64(0))

    def run() -> list[Value]:
        return [
            f.call(
                "launch",
                "i1",
                [f["context"], f["launch"], entry, code, tensors, variables, args, results, message, status],
            )
        ]

    def hold() -> list[Value]:
        f.call("lock_updates", "void", [f["launch"], order])
        return [f.call("retake_updates", "i1", [f["launch"], tensors, variables, args])]

    def launch() -> list[Value]:
        if not with_variables:
            return [constant("i1", False), *run()]
        same = f.branch(has_updates, hold, lambda: [constant("i1", True)])[0]

        def drop() -> list[Value]:
            _delete_plain(f, f["launch"], inputs, tensors)
            return [constant("i1", False)]

        is_left = f.branch(same, run, drop)[0]
        _when(f, has_updates, lambda: f.call("unlock_updates", "void", [f["launch"], order]))
        return [f.binary("xor", same, constant("i1", True)), is_left]

    def exchange(new: Value, good: Value) -> list[Value]:
        """Gives variables their new tensors; false, and nothing done, when one was updated since they were read."""

        def one_by_one() -> list[Value]:
            f.call("assign_updates", "void", [f["launch"], variables, new])
            return [constant("i1", True)]

        def together() -> list[Value]:
            f.call("lock_updates", "void", [f["launch"], order])
            same = f.call("unchanged_updates", "i1", [f["launch"], tensors, variables])
            f.call("finish_updates", "void", [f["launch"], variables, new, f.binary("and", same, good)])
            f.call("unlock_updates", "void", [f["launch"], order])
            return [f.binary("or", same, f.binary("xor", good, constant("i1", True)))]

        return f.branch(is_twice, one_by_one, together)

    def fall_back() -> list[Value]:
        f.do(f"atomicrmw add {_field(f, Entry, entry, 'runs')}, i64 1 monotonic")
        new = _original(f, tensors, variables, f["reason"], status)
        good = f.binary("xor", _has_failed(f, status), constant("i1", True))
        same = constant("i1", True)
        if with_variables:
            same = f.branch(
                has_updates, lambda: exchange(f.offset(new, outputs, "ptr"), good), lambda: [same]
            )[0]
        _each(f, outputs, lambda k: _give(f, k, new, f.binary("and", good, same), status))
        _when(
            f,
            has_variables,
            lambda: _delete_plain(f, f["launch"], inputs, tensors),
            lambda: _delete_tensors(f, inputs, tensors),
        )
        return [f.binary("xor", same, constant("i1", True)), constant("i1", False)]

    code = f.op("ptr", f"load atomic ptr, {_field(f, Entry, entry, 'code')} monotonic, align 8")
    if with_variables:
        is_twice = f.branch(
            has_updates,
            lambda: [f.call("sort_variables", "i1", [f["launch"], variables, order])],
            lambda: [constant("i1", False)],
        )[0]
        code = f.select(is_twice, _NULL, code)
    code = f.select(f.compare("icmp ne", f["reason"], _NULL), _NULL, code)
    again, is_left = f.branch(f.compare("icmp ne", code, _NULL), launch, fall_back)
    f.branch(
        _has_failed(f, status),
        lambda: [f.call("TF_OpKernelContext_Failure", "void", [f["context"], status])][:0],
    )
    f.branch(on_stack, lambda: None, lambda: [f.call("free", "void", [key])][:0])
    if with_variables:
        _when(
            f, has_variables, lambda: f.call("release_variables", "void", [f["launch"], tensors, variables])
        )
    f.call("TF_DeleteStatus", "void", [status])
    # A variable got other dims, or another value, between the look at it and its lock.
    _when(
        f,
        f.binary("or", again, is_left),
        lambda: f.call("compute_by", "void", [f["launch"], f["context"], f.select(is_left, message, _NULL)]),
    )
    f.ret()
    module.add("compute_by", f.text())
    f = Function(module, "tfbridge_compute", [("ptr", "launch"), ("ptr", "context")], linkage="")
    turn = f.op("i64", f"load atomic i64, {_field(f, Launch, f['launch'], 'turn')} monotonic, align 8")
    active = f.offset(_field(f, Launch, f["launch"], "active"), f.binary("and", turn, i64(1)), "i64")
    f.op("i64", f"atomicrmw add {active}, i64 1 seq_cst")
    f.do("fence seq_cst")
    f.call("compute_by", "void", [f["launch"], f["context"], _NULL])
    f.op("i64", f"atomicrmw sub {active}, i64 1 seq_cst")
    module.add_global("tfbridge_waiting", "external global [2 x i64]")
    waiting = Value("ptr", "@tfbridge_waiting")
    thread = f.op("i64", f"load atomic i64, {waiting} monotonic, align 8")
    _when(f, f.compare("icmp ne", thread, i64(0)), lambda: f.call("raise_waiting", "void", [waiting]))
    f.ret()
    module.add("tfbridge_compute", f.text())


def _write_raise_waiting(module: ModuleText) -> None:
    """raise_waiting(waiting): makes Python raise what waits (interrupts.word) when this thread is back there."""
    f = Function(module, "raise_waiting", [("ptr", "waiting")])
    lock = f.call("PyGILState_Ensure", "i32", [])
    me = f.call("PyThread_get_thread_ident", "i64", [])

    def leave() -> None:
        f.call("PyThreadState_SetAsyncExc", "i32", [me, f.load("ptr", f.offset(f["waiting"], 8), 8)])
        f.store(i64(0), f["waiting"], 8)

    _when(f, f.compare("icmp eq", f.load("i64", f["waiting"], 8), me), leave)
    f.call("PyGILState_Release", "void", [lock])
    f.ret()
    module.add("raise_waiting", f.text())


def _write_small(module: ModuleText) -> None:
    """create(construction) -> launch. delete(launch): one kernel less. publish(slot, chosen): a release store.
    count(slot, amount) -> the sum."""
    f = Function(module, "tfbridge_create", [("ptr", "construction")], "ptr", linkage="")
    made = call_python(f, "tfbridge_new_launch", [f["construction"]])
    failed = f.compare("icmp eq", made, f.op("ptr", f"inttoptr i64 {NO_LAUNCH} to ptr"))
    f.ret(f.select(failed, _NULL, made))
    module.add("tfbridge_create", f.text())
    f = Function(module, "tfbridge_delete", [("ptr", "launch")], linkage="")

    def one_less() -> None:
        gone = _read(f, Launch, f["launch"], "gone", "ptr")
        before = f.op("i64", f"atomicrmw sub {_field(f, Launch, f['launch'], 'kernels')}, i64 1 seq_cst")
        _when(
            f,
            f.compare("icmp eq", before, i64(1)),  # from here on the launch may be freed
            lambda: f.op("i64", f"atomicrmw add {gone}, i64 1 seq_cst"),
        )

    _when(f, f.compare("icmp ne", f["launch"], _NULL), one_less)  # null: its creation failed
    f.ret()
    module.add("tfbridge_delete", f.text())
    f = Function(module, "tfbridge_publish", [("ptr", "slot"), ("ptr", "chosen")], linkage="")
    f.do(f"store atomic {f['chosen']}, {f['slot']} seq_cst, align 8")
    f.ret()
    module.add("tfbridge_publish", f.text())
    f = Function(module, "tfbridge_count", [("ptr", "slot"), ("i64", "amount")], "i64", linkage="")
    f.ret(f.binary("add", f.op("i64", f"atomicrmw add {f['slot']}, {f['amount']} seq_cst"), f["amount"]))
    module.add("tfbridge_count", f.text())
