"""How the launch op's kernel reads and updates variables: LLVM IR on TensorFlow's own variable objects.

A variable among the inputs comes as its handle. The kernel takes its tensor under the lock, as ReadVariableOp
does, so a value that somebody holds never changes. A variable that a launch updates stays locked while the code runs.
Where nobody else holds its tensor, and the code allows it, the new value is made in the very memory of the old one;
else it gets memory of its own, which becomes the variable's tensor.

Several locks are taken in the order of their addresses, as TensorFlow's kernels take them. Two inputs that turn out to
be one variable, one of them updated, cannot run in compiled code: TensorFlow's nodes do.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import tensorflow as tf

from ...runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64
from ..tf_internals import symbols as private
from . import kernel
from .kernel import Entry, Launch, Output

READ, UPDATED = 1, 2  # Launch.kinds: a variable that is read, and one that gets a new value, too

# TensorFlow's functions by the names that they have here; `available` checks the layout of its objects.
_FUNCTIONS = {
    "handle_of_input": private.HANDLE_FROM_INPUT,
    "look_up": private.LOOK_UP_VARIABLE,
    "release": private.RELEASE_VARIABLE,
    "free_status": private.FREE_STATUS,
    "tensor_of": private.TENSOR_FROM_TENSOR,
    "set_tensor": private.TENSOR_TO_TENSOR,
    "is_unshared": private.TENSOR_IS_UNSHARED,
    "lock": private.LOCK,
    "unlock": private.UNLOCK,
    "lock_shared": private.LOCK_SHARED,
    "unlock_shared": private.UNLOCK_SHARED,
}
IS_INITIALIZED, COPIES_ON_READ, MUTEX, TENSOR = 0x18, 0x19, 0x20, 0x28  # offsets in tensorflow::Var
BUFFER_IN_TENSOR = 0x18
DATA_IN_BUFFER, RESOURCE_IN_HANDLE = 0x10, 0xC0
_NULL = Value("ptr", "null")
_RESOURCE_EXHAUSTED = 8


def imports() -> dict[str, int]:
    """Addresses of what the functions here call."""
    return {f"tfbridge_{name}": private.address(symbol) for name, symbol in _FUNCTIONS.items()}


@functools.cache
def available() -> bool:
    """Whether this TensorFlow's variables are laid out as the kernel expects.

    A variable is made and its object compared with what TensorFlow says of it. Memory is read through the system, so
    that a wrong address is an error and no crash.
    """
    if private.VARIABLES in private.missing():
        return False
    try:
        with private.plain_eager(), open("/proc/self/mem", "rb", buffering=0) as memory:
            return _is_as_expected(memory)
    except (OSError, OverflowError, tf.errors.OpError, AttributeError):
        return False


def _is_as_expected(memory: object) -> bool:
    def word(address: int) -> int:
        memory.seek(address)  # type: ignore[attr-defined]
        return int.from_bytes(memory.read(8), "little")  # type: ignore[attr-defined]

    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3, 5], shared_name=private.ANONYMOUS)
    tf.raw_ops.AssignVariableOp(resource=handle, value=np.ones([3, 5], np.float32))
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

    def data(tensor: int) -> int:
        return word(word(tensor + BUFFER_IN_TENSOR) + DATA_IN_BUFFER)

    variable = word(data(private.tensor_object(handle)) + RESOURCE_IN_HANDLE)
    flags = word(variable + IS_INITIALIZED)
    if word(variable) != private.address(private.VARIABLE_TABLE) + 16 or flags & 0xFFFF != 1:
        return False
    if data(variable + TENSOR) != private.data_of(value) or word(variable + MUTEX) != 0:
        return False
    private.function(private.LOCK)(variable + MUTEX)
    held = word(variable + MUTEX)
    private.function(private.UNLOCK)(variable + MUTEX)
    return held != 0 and word(variable + MUTEX) == 0


def write(module: ModuleText) -> None:
    """Writes the functions that the kernel calls."""
    _write_small(module)
    _write_take(module)
    _write_gather(module)
    _write_sort(module)
    _write_locks(module)
    _write_retake(module)
    _write_unchanged(module)
    _write_acquire(module)
    _write_finish(module)


def _field(
    f: Function, struct: type[ctypes.Structure], pointer: Value, name: str, type_: str = "i64"
) -> Value:
    return f.load(type_, f.offset(pointer, getattr(struct, name).offset), 4 if type_ == "i32" else 8)


def _item(f: Function, table: Value, number: Value, type_: str) -> Value:
    """table[number]."""
    return f.load(type_, f.offset(table, number, type_), {"i8": 1, "i32": 4}.get(type_, 8))


def _each(f: Function, count: Value, body: object) -> None:
    def run(number: Value, _: list[Value]) -> None:
        body(number)  # type: ignore[operator]

    f.loop(0, count, 1, run)


def _is_null(f: Function, pointer: Value) -> Value:
    return f.compare("icmp eq", pointer, _NULL)


def _returning_status(f: Function, name: str, status: Value, arguments: list[Value]) -> Value:
    """Calls a C++ function that returns absl::Status; frees it; gives whether it was OK."""
    parameters = ["ptr sret(i64)", *(a.type for a in arguments)]
    f.module.declare(f"tfbridge_{name}", "void", parameters)
    f.do(f"call void @tfbridge_{name}(ptr sret(i64) {status.text}, {', '.join(map(str, arguments))})")
    return f.call("drop_status", "i1", [status])


def _write_small(module: ModuleText) -> None:
    """drop_status(slot) -> was it OK; same_dims(a, b); copy_tensor(tensor) -> a new one, the old is deleted."""
    f = Function(module, "drop_status", [("ptr", "slot")], "i1")
    word = f.load("i64", f["slot"], 8)
    inline = f.compare("icmp ne", f.binary("and", word, i64(1)), i64(0))
    f.branch(inline, lambda: None, lambda: [f.call("tfbridge_free_status", "void", [word])][:0])
    f.ret(f.compare("icmp eq", word, i64(1)))
    module.add("drop_status", f.text())

    f = Function(module, "same_dims", [("ptr", "a"), ("ptr", "b")], "i1")
    ranks = [f.call("TF_NumDims", "i32", [f[n]]) for n in "ab"]

    def compare_dims() -> list[Value]:
        def axis(number: Value, same: list[Value]) -> list[Value]:
            dims = [f.call("TF_Dim", "i64", [f[n], f.cast("trunc", number, "i32")]) for n in "ab"]
            return [f.binary("and", same[0], f.compare("icmp eq", *dims))]

        return f.loop(0, f.cast("sext", ranks[0], "i64"), 1, axis, [constant("i1", True)])

    f.ret(f.branch(f.compare("icmp eq", *ranks), compare_dims, lambda: [constant("i1", False)])[0])
    module.add("same_dims", f.text())

    f = Function(module, "copy_tensor", [("ptr", "tensor")], "ptr")
    tensor = f["tensor"]
    rank = f.call("TF_NumDims", "i32", [tensor])
    dims = f.op("ptr", f"alloca i64, {f.binary('add', rank, constant('i32', 1))}, align 8")

    def note(axis: Value) -> None:
        f.store(
            f.call("TF_Dim", "i64", [tensor, f.cast("trunc", axis, "i32")]), f.offset(dims, axis, "i64"), 8
        )

    _each(f, f.cast("sext", rank, "i64"), note)
    size = f.call("TF_TensorByteSize", "i64", [tensor])
    made = f.call("TF_AllocateTensor", "ptr", [f.call("TF_TensorType", "i32", [tensor]), dims, rank, size])
    data = f.call("TF_TensorData", "ptr", [tensor])
    f.branch(
        _is_null(f, made),
        lambda: None,
        lambda: [f.call("memcpy", "ptr", [f.call("TF_TensorData", "ptr", [made]), data, size])][:0],
    )
    f.call("TF_DeleteTensor", "void", [tensor])
    f.ret(made)
    module.add("copy_tensor", f.text())


def _write_take(module: ModuleText) -> None:
    """take_variable(context, number, kind, type, slot) -> its tensor, or null; the variable itself goes to `slot`."""
    f = Function(
        module,
        "take_variable",
        [("ptr", "context"), ("i32", "number"), ("i8", "kind"), ("i32", "type"), ("ptr", "slot")],
        "ptr",
    )
    status = f.stack_slot("i64")
    handle = f.call("tfbridge_handle_of_input", "ptr", [f["context"], f["number"]])
    found = _returning_status(f, "look_up", status, [f["context"], handle, f["slot"]])

    def take() -> list[Value]:
        variable = f.load("ptr", f["slot"], 8)
        mutex = f.offset(variable, MUTEX)
        f.call("tfbridge_lock_shared", "void", [mutex])
        is_set = f.compare("icmp ne", f.load("i8", f.offset(variable, IS_INITIALIZED)), constant("i8", 0))
        tensor = f.branch(is_set, lambda: [f.call("current_tensor", "ptr", [variable])], lambda: [_NULL])[0]
        copies = f.compare("icmp ne", f.load("i8", f.offset(variable, COPIES_ON_READ)), constant("i8", 0))
        is_read = f.compare("icmp eq", f["kind"], constant("i8", READ))
        wanted = f.binary("and", f.binary("and", copies, is_read), f.compare("icmp ne", tensor, _NULL))
        tensor = f.branch(wanted, lambda: [f.call("copy_tensor", "ptr", [tensor])], lambda: [tensor])[0]
        f.call("tfbridge_unlock_shared", "void", [mutex])
        return f.branch(_is_null(f, tensor), lambda: [_NULL], lambda: check(tensor))

    def check(tensor: Value) -> list[Value]:
        fits = f.compare("icmp eq", f.call("TF_TensorType", "i32", [tensor]), f["type"])

        def drop() -> list[Value]:
            f.call("TF_DeleteTensor", "void", [tensor])
            return [_NULL]

        return f.branch(fits, lambda: [tensor], drop)

    def nothing() -> list[Value]:
        f.store(_NULL, f["slot"], 8)
        return [_NULL]

    result = f.branch(found, take, nothing)[0]
    f.ret(result)
    module.add("take_variable", f.text())

    f = Function(module, "current_tensor", [("ptr", "variable")], "ptr")
    status = f.stack_slot("i64")
    f.store(i64(1), status, 8)
    tensor = f.call("tfbridge_tensor_of", "ptr", [f.offset(f["variable"], TENSOR), status])
    f.call("drop_status", "i1", [status])
    f.ret(tensor)
    module.add("current_tensor", f.text())


def _write_gather(module: ModuleText) -> None:
    """gather_variables(context, launch, tensors, variables) -> whether all are there; nulls where there is none."""
    f = Function(
        module, "gather_variables", [("ptr", n) for n in ("context", "launch", "tensors", "variables")], "i1"
    )
    inputs = _field(f, Launch, f["launch"], "inputs")
    kinds, types = (_field(f, Launch, f["launch"], name, "ptr") for name in ("kinds", "types"))

    def one(number: Value, complete: list[Value]) -> list[Value]:
        kind, slot = _item(f, kinds, number, "i8"), f.offset(f["variables"], number, "ptr")
        f.store(_NULL, slot, 8)

        def variable() -> list[Value]:
            tensor = f.call(
                "take_variable",
                "ptr",
                [f["context"], f.cast("trunc", number, "i32"), kind, _item(f, types, number, "i32"), slot],
            )
            f.store(tensor, f.offset(f["tensors"], number, "ptr"), 8)
            return [f.compare("icmp ne", tensor, _NULL)]

        is_plain = f.compare("icmp eq", kind, constant("i8", 0))
        there = f.branch(is_plain, lambda: [constant("i1", True)], variable)[0]
        return [f.binary("and", complete[0], there)]

    f.ret(f.loop(0, inputs, 1, one, [constant("i1", True)])[0])
    module.add("gather_variables", f.text())

    f = Function(module, "release_variables", [("ptr", "launch"), ("ptr", "tensors"), ("ptr", "variables")])
    kinds = _field(f, Launch, f["launch"], "kinds", "ptr")

    def release(number: Value) -> None:
        def both() -> None:
            f.call("TF_DeleteTensor", "void", [_item(f, f["tensors"], number, "ptr")])
            f.call("tfbridge_release", "void", [f.offset(f["variables"], number, "ptr")])

        f.branch(f.compare("icmp ne", _item(f, kinds, number, "i8"), constant("i8", 0)), both)

    _each(f, _field(f, Launch, f["launch"], "inputs"), release)
    f.ret()
    module.add("release_variables", f.text())


def _write_sort(module: ModuleText) -> None:
    """sort_variables(launch, variables, order) -> whether one that is updated is there twice. `order`: the addresses,
    rising, with the lowest bit set where the variable is updated."""
    f = Function(module, "compare_words", [("ptr", "a"), ("ptr", "b")], "i32")
    words = [f.load("i64", f[n], 8) for n in "ab"]
    above, below = (f.cast("zext", f.compare(f"icmp {how}", *words), "i32") for how in ("ugt", "ult"))
    f.ret(f.binary("sub", above, below))
    module.add("compare_words", f.text())

    f = Function(module, "sort_variables", [("ptr", n) for n in ("launch", "variables", "order")], "i1")
    kinds = _field(f, Launch, f["launch"], "kinds", "ptr")

    def note(number: Value, count: list[Value]) -> list[Value]:
        kind = f.cast("zext", _item(f, kinds, number, "i8"), "i64")

        def add() -> list[Value]:
            address = f.op("i64", f"ptrtoint {_item(f, f['variables'], number, 'ptr')} to i64")
            f.store(
                f.binary("or", address, f.binary("lshr", kind, i64(1))),
                f.offset(f["order"], count[0], "i64"),
                8,
            )
            return [f.binary("add", count[0], i64(1))]

        return f.branch(f.compare("icmp ne", kind, i64(0)), add, lambda: count)

    count = f.loop(0, _field(f, Launch, f["launch"], "inputs"), 1, note, [i64(0)])[0]
    f.call("qsort", "void", [f["order"], count, i64(8), Value("ptr", "@compare_words")])

    def compare(number: Value, found: list[Value]) -> list[Value]:
        a = _item(f, f["order"], f.binary("sub", number, i64(1)), "i64")
        b = _item(f, f["order"], number, "i64")
        one = f.compare("icmp ult", f.binary("xor", a, b), i64(2))
        updated = f.compare("icmp ne", f.binary("and", f.binary("or", a, b), i64(1)), i64(0))
        return [f.binary("or", found[0], f.binary("and", one, updated))]

    f.ret(f.loop(1, count, 1, compare, [constant("i1", False)])[0])
    module.add("sort_variables", f.text())


def _write_locks(module: ModuleText) -> None:
    """lock_updates(launch, order), unlock_updates(launch, order): the variables that are updated, in that order."""
    for name in ("lock", "unlock"):
        f = Function(module, f"{name}_updates", [("ptr", "launch"), ("ptr", "order")])

        def one(number: Value, f: Function = f, name: str = name) -> None:
            word = _item(f, f["order"], number, "i64")

            def use() -> None:
                variable = f.op("ptr", f"inttoptr {f.binary('and', word, i64(-2))} to ptr")
                f.call(f"tfbridge_{name}", "void", [f.offset(variable, MUTEX)])

            f.branch(f.compare("icmp ne", f.binary("and", word, i64(1)), i64(0)), use)

        _each(f, _field(f, Launch, f["launch"], "variables"), one)
        f.ret()
        module.add(f"{name}_updates", f.text())


def _write_retake(module: ModuleText) -> None:
    """retake_updates(launch, tensors, variables, args) -> whether the locked variables still have their dims.

    If so their data pointers are those of now, and the tensors of before are deleted."""
    f = Function(
        module, "retake_updates", [("ptr", n) for n in ("launch", "tensors", "variables", "args")], "i1"
    )
    targets = _field(f, Launch, f["launch"], "targets", "ptr")
    updates = _field(f, Launch, f["launch"], "updates")

    def one(number: Value, same: list[Value]) -> list[Value]:
        at = _item(f, targets, number, "i64")
        tensor = f.call("current_tensor", "ptr", [_item(f, f["variables"], at, "ptr")])

        def look() -> list[Value]:
            is_same = f.call("same_dims", "i1", [tensor, _item(f, f["tensors"], at, "ptr")])
            f.store(f.call("TF_TensorData", "ptr", [tensor]), f.offset(f["args"], at, "ptr"), 8)
            f.call("TF_DeleteTensor", "void", [tensor])
            return [is_same]

        is_same = f.branch(_is_null(f, tensor), lambda: [constant("i1", False)], look)[0]
        return [f.binary("and", same[0], is_same)]

    same = f.loop(0, updates, 1, one, [constant("i1", True)])[0]

    def drop(number: Value) -> None:
        slot = f.offset(f["tensors"], _item(f, targets, number, "i64"), "ptr")
        f.call("TF_DeleteTensor", "void", [f.load("ptr", slot, 8)])
        f.store(_NULL, slot, 8)

    f.branch(same, lambda: _each(f, updates, drop))
    f.ret(same)
    module.add("retake_updates", f.text())


def _write_unchanged(module: ModuleText) -> None:
    """unchanged_updates(launch, tensors, variables) -> whether the locked variables still have the memory that was
    read, which nobody writes to while the tensors hold it."""
    f = Function(module, "unchanged_updates", [("ptr", n) for n in ("launch", "tensors", "variables")], "i1")
    targets = _field(f, Launch, f["launch"], "targets", "ptr")

    def one(number: Value, same: list[Value]) -> list[Value]:
        at = _item(f, targets, number, "i64")
        tensor = f.call("current_tensor", "ptr", [_item(f, f["variables"], at, "ptr")])

        def look() -> list[Value]:
            data = [f.call("TF_TensorData", "ptr", [t]) for t in (tensor, _item(f, f["tensors"], at, "ptr"))]
            f.call("TF_DeleteTensor", "void", [tensor])
            return [f.compare("icmp eq", *data)]

        is_same = f.branch(_is_null(f, tensor), lambda: [constant("i1", False)], look)[0]
        return [f.binary("and", same[0], is_same)]

    f.ret(f.loop(0, _field(f, Launch, f["launch"], "updates"), 1, one, [constant("i1", True)])[0])
    module.add("unchanged_updates", f.text())


def _write_acquire(module: ModuleText) -> None:
    """acquire_updates(launch, chosen, variables, args, results, fresh, status): memory for new values.

    `fresh` gets the tensors made for them, null where the variable's own memory serves."""
    f = Function(
        module,
        "acquire_updates",
        [("ptr", n) for n in ("launch", "chosen", "variables", "args", "results", "fresh", "status")],
    )
    outputs = _field(f, Launch, f["launch"], "outputs")
    targets = _field(f, Launch, f["launch"], "targets", "ptr")
    table = _field(f, Entry, f["chosen"], "outputs", "ptr")

    def one(number: Value) -> None:
        at = _item(f, targets, number, "i64")
        place = f.binary("add", outputs, number)
        output = f.offset(table, f.binary("mul", place, i64(ctypes.sizeof(Output))))
        tensor_at = f.offset(_item(f, f["variables"], at, "ptr"), TENSOR)
        unshared = f.cast("trunc", f.call("tfbridge_is_unshared", "i8", [tensor_at]), "i1")
        may = f.compare("icmp eq", _field(f, Output, output, "mode", "i32"), constant("i32", kernel.FORWARD))

        def own() -> list[Value]:
            return [_NULL, _item(f, f["args"], at, "ptr")]

        def make() -> list[Value]:
            tensor = f.call(
                "TF_AllocateTensor",
                "ptr",
                [
                    _field(f, Output, output, "dtype", "i32"),
                    _field(f, Output, output, "dims", "ptr"),
                    _field(f, Output, output, "rank", "i32"),
                    _field(f, Output, output, "bytes"),
                ],
            )

            def fail() -> list[Value]:
                f.call(
                    "TF_SetStatus",
                    "void",
                    [f["status"], constant("i32", _RESOURCE_EXHAUSTED), Value("ptr", "@no_memory")],
                )
                return [_NULL]

            data = f.branch(_is_null(f, tensor), fail, lambda: [f.call("TF_TensorData", "ptr", [tensor])])[0]
            return [tensor, data]

        tensor, data = f.branch(f.binary("and", unshared, may), own, make)
        f.store(tensor, f.offset(f["fresh"], number, "ptr"), 8)
        f.store(data, f.offset(f["results"], place, "ptr"), 8)

    _each(f, _field(f, Launch, f["launch"], "updates"), one)
    f.ret()
    text = b"no memory for the new value of a variable\0"
    module.add_global("no_memory", f'private constant [{len(text)} x i8] c"{text[:-1].decode()}\\00"')
    module.add("acquire_updates", f.text())


def _write_finish(module: ModuleText) -> None:
    """finish_updates(launch, variables, fresh, done): gives locked variables their new tensors if all is done.

    assign_updates(launch, variables, fresh): the same for variables that are not locked, or have no value yet."""
    ends = [("ptr", "launch"), ("ptr", "variables"), ("ptr", "fresh")]
    for name, parameters in (("finish_updates", [*ends, ("i1", "done")]), ("assign_updates", ends)):
        f = Function(module, name, parameters)
        _write_tensors_to_variables(f, name == "assign_updates")
        module.add(name, f.text())


def _write_tensors_to_variables(f: Function, lock: bool) -> None:
    targets = _field(f, Launch, f["launch"], "targets", "ptr")
    status = f.stack_slot("i64")

    def one(number: Value) -> None:
        tensor = _item(f, f["fresh"], number, "ptr")
        variable = _item(f, f["variables"], _item(f, targets, number, "i64"), "ptr")
        mutex = f.offset(variable, MUTEX)

        def give() -> None:
            _returning_status(f, "set_tensor", status, [tensor, f.offset(variable, TENSOR)])

        def use() -> None:
            if lock:
                f.call("tfbridge_lock", "void", [mutex])
                give()
                f.store(constant("i8", 1), f.offset(variable, IS_INITIALIZED), 1)
                f.call("tfbridge_unlock", "void", [mutex])
            else:
                f.branch(f["done"], give)
            f.call("TF_DeleteTensor", "void", [tensor])

        f.branch(f.compare("icmp ne", tensor, _NULL), use)

    _each(f, _field(f, Launch, f["launch"], "updates"), one)
    f.ret()
