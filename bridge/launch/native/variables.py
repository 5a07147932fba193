"""Variables among the inputs of a launch: read under their locks, updated in place where nobody shares their tensor.

A variable comes as its handle. The kernel takes its tensor under the lock, as ReadVariableOp does, so a value that
somebody holds never changes. A variable that a launch updates stays locked while the code runs. If nobody else holds
its tensor, and the code allows it, the new value is written to the memory of the old one. Otherwise it gets memory of
its own, which becomes the variable's tensor.

TensorFlow's gathers and sparse updates set a mode of the variable for good, in which readers copy it, and writers write
in place whoever reads. A launch ends the mode where no op can be about to write: the next sparse op sets it anew.

Several locks are taken in the order of their addresses, as TensorFlow's kernels take them. Two inputs that turn out
to be one variable, one of them updated, cannot run in compiled code: TensorFlow's nodes do.
"""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, Value, VectorValue
from ....runtime.llvm.types import parameters
from ...tf_internals.symbols import ok_status
from ..resource_variables import COPIES_ON_READ, IS_INITIALIZED, MUTEX, REFERENCES, TENSOR
from ..structs import FORWARD, READ
from .calls import (
    array,
    call_i1,
    call_i32,
    data_of,
    delete_tensor,
    dim_of,
    rank_of,
    set_no_memory,
    sign_extended,
)
from .layouts import ENTRY, OUTPUT, STATE, is_variable, output_row


def write(module: ModuleText) -> None:
    """Writes the functions that the kernel calls."""
    _write_drop_status(module)
    _write_same_dims(module)
    _write_copy_tensor(module)
    _write_current_tensor(module)
    _write_share_again(module)
    _write_take(module)
    _write_gather(module)
    _write_release(module)
    _write_sort(module)
    _write_locks(module)
    _write_retake(module)
    _write_unchanged(module)
    _write_acquire(module)
    _write_finish(module)


# -- tensors and their variables


def _write_drop_status(module: ModuleText) -> None:
    """drop_status(slot) -> whether the absl::Status there was OK; frees it."""
    f = Function(module, "drop_status", [("ptr", "slot")], "i1")
    word, ok = f.pointer("slot").load_int(), ok_status()
    with f.if_((word & 1).differs(ok & 1)):  # it is no inline status
        f.call("tfbridge_free_status", "void", [word])
    f.ret(word.equals(ok))
    module.add("drop_status", f.text())


def _call_returning_status(f: Function, name: str, status: Ptr, arguments: list[Value]) -> VectorValue:
    """Calls a C++ function that returns absl::Status, and frees the status; whether it was OK."""
    f.module.declare(f"tfbridge_{name}", "void", ["ptr sret(i64)", *(a.type for a in arguments)])
    f.do(f"call void @tfbridge_{name}(ptr sret(i64) {status.text}, {', '.join(map(str, arguments))})")
    return call_i1(f, "drop_status", [status])


def _write_same_dims(module: ModuleText) -> None:
    """same_dims(a, b) -> whether two tensors have the same dims."""
    f = Function(module, "same_dims", parameters("ptr a, ptr b"), "i1")
    a, b = f.pointers("a", "b")
    rank = rank_of(f, a)
    with f.if_(rank.differs(rank_of(f, b))):
        f.ret(f.constant("i1", False))
    with f.loop(0, rank, same=f.constant("i1", True)) as loop:
        loop.same = loop.same & dim_of(f, a, loop.index).equals(dim_of(f, b, loop.index))
    f.ret(loop.same)
    module.add("same_dims", f.text())


def _write_copy_tensor(module: ModuleText) -> None:
    """copy_tensor(tensor) -> a new one, or null; the old one is deleted."""
    f = Function(module, "copy_tensor", [("ptr", "tensor")], "ptr")
    tensor = f.pointer("tensor")
    rank = call_i32(f, "TF_NumDims", [tensor])
    dims = array(f, "i64", sign_extended(f, rank) + 1)
    with f.loop(0, sign_extended(f, rank)) as loop:
        dims.at(loop.index, "i64").store(dim_of(f, tensor, loop.index))
    size = f.call("TF_TensorByteSize", "i64", [tensor])
    copy = f.call("TF_AllocateTensor", "ptr", [f.call("TF_TensorType", "i32", [tensor]), dims, rank, size])
    with f.if_(copy.is_not_null()):
        f.call("memcpy", "ptr", [data_of(f, copy), data_of(f, tensor), size])
    delete_tensor(f, tensor)
    f.ret(copy)
    module.add("copy_tensor", f.text())


def _write_current_tensor(module: ModuleText) -> None:
    """current_tensor(variable) -> its tensor, or null; the caller has its lock, and deletes the tensor."""
    f = Function(module, "current_tensor", [("ptr", "variable")], "ptr")
    status = f.stack_slot("i64")
    status.store(ok_status())
    tensor = f.call("tfbridge_tensor_of", "ptr", [f.pointer("variable") + TENSOR, status])
    f.call("drop_status", "i1", [status])
    f.ret(tensor)
    module.add("current_tensor", f.text())


def _current_tensor(f: Function, variable: Ptr) -> Ptr:
    return f.call("current_tensor", "ptr", [variable])


# -- reading


def _write_share_again(module: ModuleText) -> None:
    """share_again(variable): ends the mode in which readers copy, unless another op has the variable.

    Besides the caller, who has a reference, its handle or TensorFlow's resource manager has one. An op takes a
    reference, then looks at the mode, then writes under the lock. So the mode is ended before the references are
    counted: an op that is missing there finds it ended, and waits for the lock to set it.
    """
    f = Function(module, "share_again", [("ptr", "variable")])
    variable = f.pointer("variable")
    mode, mutex = variable + COPIES_ON_READ, variable + MUTEX
    f.call("tfbridge_lock", "void", [mutex])
    before = mode.atomic_rmw("xchg", f.constant("i8", 0), "seq_cst")
    with f.if_((variable + REFERENCES).atomic_load("i64", "seq_cst").differs(2)):
        mode.atomic_store(before, "seq_cst")
    f.call("tfbridge_unlock", "void", [mutex])
    f.ret()
    module.add("share_again", f.text())


def _write_take(module: ModuleText) -> None:
    """take_variable(context, number, kind, type, slot) -> its tensor, or null; the variable itself goes to `slot`."""
    f = Function(
        module,
        "take_variable",
        parameters("ptr context, i32 number, i8 kind, i32 type, ptr slot"),
        "ptr",
    )
    status, slot = f.stack_slot("i64"), f.pointer("slot")
    handle = f.call("tfbridge_handle_of_input", "ptr", [f["context"], f["number"]])
    exists = _call_returning_status(f, "look_up", status, [f["context"], handle, slot])
    with f.if_(~exists):
        slot.store(f.null)
        f.ret(f.null)
    tensor = _locked_read(f, slot.load_ptr())
    with f.if_(tensor.is_null()):
        f.ret(f.null)
    with f.if_(call_i32(f, "TF_TensorType", [tensor]).differs(f["type"])):
        delete_tensor(f, tensor)
        f.ret(f.null)
    f.ret(tensor)
    module.add("take_variable", f.text())


def _locked_read(f: Function, variable: Ptr) -> Ptr:
    """The tensor of a variable, or a copy of it where a reader gets one; null without a value."""
    mutex, is_read = variable + MUTEX, VectorValue.of(f, f["kind"]).equals(READ)
    with f.if_(is_read & (variable + COPIES_ON_READ).atomic_load("i8", "monotonic").differs(0)):
        f.call("share_again", "void", [variable])
    f.call("tfbridge_lock_shared", "void", [mutex])
    is_set = (variable + IS_INITIALIZED).load("i8").differs(0)
    with f.if_(is_set, tensor=f.null) as branch:
        branch.tensor = _current_tensor(f, variable)
    copies = (variable + COPIES_ON_READ).load("i8").differs(0)
    with f.if_(copies & is_read & branch.tensor.is_not_null(), tensor=branch.tensor) as branch:
        branch.tensor = f.call("copy_tensor", "ptr", [branch.tensor])
    f.call("tfbridge_unlock_shared", "void", [mutex])
    tensor: Ptr = branch.tensor
    return tensor


def _write_gather(module: ModuleText) -> None:
    """gather_variables(context, state, tensors, variables) -> whether all are there; nulls where there is none.

    Where none is updated, the variables themselves are given back at once: another call may then share them again."""
    f = Function(
        module, "gather_variables", [("ptr", n) for n in ("context", "state", "tensors", "variables")], "i1"
    )
    state, tensors, variables = f.pointers("state", "tensors", "variables")
    kinds, types = (STATE.field(state, name).load_ptr() for name in ("kinds", "types"))
    with f.loop(0, STATE.field(state, "inputs").load_int(), complete=f.constant("i1", True)) as loop:
        number = loop.index
        kind, slot = kinds.at(number).load("i8"), variables.at(number, "ptr")
        slot.store(f.null)
        with f.if_(kind.differs(0)):
            type_ = types.at(number, "i32").load("i32")
            tensor = f.call("take_variable", "ptr", [f["context"], number.truncate("i32"), kind, type_, slot])
            tensors.at(number, "ptr").store(tensor)
            with f.if_(STATE.field(state, "updates").load_int().equals(0)):
                f.call("tfbridge_release", "void", [slot])
                slot.store(f.null)
            loop.complete = loop.complete & tensor.is_not_null()
    f.ret(loop.complete)
    module.add("gather_variables", f.text())


def _write_release(module: ModuleText) -> None:
    """release_variables(state, tensors, variables): deletes the tensors of variables, and gives the variables back."""
    f = Function(module, "release_variables", [("ptr", n) for n in ("state", "tensors", "variables")])
    state, tensors, variables = f.pointers("state", "tensors", "variables")
    with f.loop(0, STATE.field(state, "inputs").load_int()) as loop, f.if_(is_variable(state, loop.index)):
        delete_tensor(f, tensors.at(loop.index, "ptr").load_ptr())
        f.call("tfbridge_release", "void", [variables.at(loop.index, "ptr")])
    f.ret()
    module.add("release_variables", f.text())


# -- locks


def _write_sort(module: ModuleText) -> None:
    """sort_variables(state, variables, order) -> whether one that is updated is there twice. `order`: the addresses,
    rising, with the lowest bit set where the variable is updated."""
    _write_compare_words(module)
    f = Function(module, "sort_variables", [("ptr", n) for n in ("state", "variables", "order")], "i1")
    state, variables, order = f.pointers("state", "variables", "order")
    kinds = STATE.field(state, "kinds").load_ptr()
    with f.loop(0, STATE.field(state, "inputs").load_int(), count=0) as loop:
        kind = Int.zero_extended(kinds.at(loop.index).load("i8"))
        with f.if_(kind.differs(0)):
            address = Int.of(f, variables.at(loop.index, "ptr").load_ptr().as_bits())
            order.at(loop.count, "i64").store(address | (kind >> 1))
            loop.count = loop.count + 1
    count = loop.count
    f.call("qsort", "void", [order, count, 8, f.symbol("compare_words")])
    with f.loop(1, count, is_twice=f.constant("i1", False)) as loop:
        a, b = (order.at(k, "i64").load_int() for k in (loop.index - 1, loop.index))
        same = (a ^ b).compare("icmp ult", 2)
        loop.is_twice = loop.is_twice | (same & ((a | b) & 1).differs(0))
    f.ret(loop.is_twice)
    module.add("sort_variables", f.text())


def _write_compare_words(module: ModuleText) -> None:
    """compare_words(a, b): the order of two unsigned words, for qsort."""
    f = Function(module, "compare_words", parameters("ptr a, ptr b"), "i32")
    a, b = (f.pointer(name).load_int() for name in "ab")
    above, below = (a.compare(f"icmp {how}", b).cast("zext", "i32") for how in ("ugt", "ult"))
    f.ret(above - below)
    module.add("compare_words", f.text())


def _write_locks(module: ModuleText) -> None:
    """lock_updates(state, order), unlock_updates(state, order): the variables that are updated, in that order."""
    for name in ("lock", "unlock"):
        f = Function(module, f"{name}_updates", parameters("ptr state, ptr order"))
        state, order = f.pointers("state", "order")
        with f.loop(0, STATE.field(state, "variables").load_int()) as loop:
            word = order.at(loop.index, "i64").load_int()
            with f.if_((word & 1).differs(0)):
                f.call(f"tfbridge_{name}", "void", [(word & -2).as_pointer() + MUTEX])
        f.ret()
        module.add(f"{name}_updates", f.text())


# -- updates


class _Updates:
    """The variables that get new values, by the number of the update."""

    def __init__(self, f: Function) -> None:
        self.f, self.state = f, f.pointer("state")
        self.targets = STATE.field(self.state, "targets").load_ptr()
        self.count = STATE.field(self.state, "updates").load_int()

    def input_of(self, number: Int) -> Int:
        """The input that an update's variable is."""
        return self.targets.at(number, "i64").load_int()

    def all(self, test: Callable[[Int, Ptr], VectorValue]) -> VectorValue:
        """Whether every variable has a value and `test(input, its current tensor)` holds; deletes the tensors."""
        f, variables = self.f, self.f.pointer("variables")
        with f.loop(0, self.count, good=f.constant("i1", True)) as loop:
            at = self.input_of(loop.index)
            tensor = _current_tensor(f, variables.at(at, "ptr").load_ptr())
            with f.if_(tensor.is_not_null(), passes=f.constant("i1", False)) as branch:
                branch.passes = test(at, tensor)
                delete_tensor(f, tensor)
            loop.good = loop.good & branch.passes
        good: VectorValue = loop.good
        return good


def _write_retake(module: ModuleText) -> None:
    """retake_updates(state, tensors, variables, args) -> whether the locked variables still have their dims.

    If so, their data pointers are read anew, and their tensors deleted."""
    f = Function(
        module, "retake_updates", [("ptr", n) for n in ("state", "tensors", "variables", "args")], "i1"
    )
    tensors, args, updates = f.pointer("tensors"), f.pointer("args"), _Updates(f)

    def has_same_dims(at: Int, tensor: Ptr) -> VectorValue:
        same = call_i1(f, "same_dims", [tensor, tensors.at(at, "ptr").load_ptr()])
        args.at(at, "ptr").store(data_of(f, tensor))
        return same

    same = updates.all(has_same_dims)
    with f.if_(same), f.loop(0, updates.count) as loop:
        slot = tensors.at(updates.input_of(loop.index), "ptr")
        delete_tensor(f, slot.load_ptr())
        slot.store(f.null)
    f.ret(same)
    module.add("retake_updates", f.text())


def _write_unchanged(module: ModuleText) -> None:
    """unchanged_updates(state, tensors, variables) -> whether the locked variables still have the memory that was
    read, which nobody writes to while the tensors hold it."""
    f = Function(module, "unchanged_updates", [("ptr", n) for n in ("state", "tensors", "variables")], "i1")
    tensors = f.pointer("tensors")

    def has_same_data(at: Int, tensor: Ptr) -> VectorValue:
        return data_of(f, tensor).equals(data_of(f, tensors.at(at, "ptr").load_ptr()))

    f.ret(_Updates(f).all(has_same_data))
    module.add("unchanged_updates", f.text())


def _write_acquire(module: ModuleText) -> None:
    """acquire_updates(state, cache entry, variables, args, results, fresh, status): memory for new values.

    `fresh` gets the tensors allocated for them, null where the variable's own memory is used."""
    names = ("state", "cache_entry", "variables", "args", "results", "fresh", "status")
    f = Function(module, "acquire_updates", [("ptr", n) for n in names])
    entry, variables, args, results, fresh = f.pointers(
        "cache_entry", "variables", "args", "results", "fresh"
    )
    updates = _Updates(f)
    outputs = STATE.field(updates.state, "outputs").load_int()
    rows = ENTRY.field(entry, "outputs").load_ptr()
    with f.loop(0, updates.count) as loop:
        at = updates.input_of(loop.index)
        output = output_row(rows, outputs + loop.index)
        tensor_at = variables.at(at, "ptr").load_ptr() + TENSOR
        is_unshared = VectorValue.of(f, f.call("tfbridge_is_unshared", "i8", [tensor_at])).cast("trunc", "i1")
        may_reuse = OUTPUT.field(output, "mode").load().equals(FORWARD)
        with f.if_(is_unshared & may_reuse) as branch:
            branch.tensor, branch.data = f.null, args.at(at, "ptr").load_ptr()
        with branch.else_():
            branch.tensor = _allocate(f, output)
            with f.if_(branch.tensor.is_null()) as allocated:
                message = "no memory for the new value of a variable"
                set_no_memory(f, f.pointer("status"), "no_memory_for_update", message)
                allocated.data = f.null
            with allocated.else_():
                allocated.data = data_of(f, branch.tensor)
            branch.data = allocated.data
        fresh.at(loop.index, "ptr").store(branch.tensor)
        results.at(outputs + loop.index, "ptr").store(branch.data)
    f.ret()
    module.add("acquire_updates", f.text())


def _allocate(f: Function, output: Ptr) -> Ptr:
    """A tensor for an output."""
    dtype, dims, rank, size = (OUTPUT.field(output, n).load() for n in ("dtype", "dims", "rank", "bytes"))
    return f.call("TF_AllocateTensor", "ptr", [dtype, dims, rank, size])


def _write_finish(module: ModuleText) -> None:
    """finish_updates(state, variables, fresh, done): gives locked variables their new tensors if all is done.

    assign_updates(state, variables, fresh): the same for variables that are not locked, or have no value yet."""
    f = Function(module, "finish_updates", parameters("ptr state, ptr variables, ptr fresh, i1 done"))

    def set_if_done(variable: Ptr, tensor: Ptr, status: Ptr) -> None:
        with f.if_(VectorValue.of(f, f["done"])):
            _set_tensor(f, variable, tensor, status)

    _each_new_tensor(f, set_if_done)
    module.add("finish_updates", f.text())
    f = Function(module, "assign_updates", parameters("ptr state, ptr variables, ptr fresh"))

    def lock_and_set(variable: Ptr, tensor: Ptr, status: Ptr) -> None:
        f.call("tfbridge_lock", "void", [variable + MUTEX])
        _set_tensor(f, variable, tensor, status)
        (variable + IS_INITIALIZED).store(f.constant("i8", 1))
        f.call("tfbridge_unlock", "void", [variable + MUTEX])

    _each_new_tensor(f, lock_and_set)
    module.add("assign_updates", f.text())


def _set_tensor(f: Function, variable: Ptr, tensor: Ptr, status: Ptr) -> None:
    _call_returning_status(f, "set_tensor", status, [tensor, variable + TENSOR])


def _each_new_tensor(f: Function, use: Callable[[Ptr, Ptr, Ptr], None]) -> None:
    """The body of a function that calls `use(variable, new tensor, status)` for the tensors in `fresh`, and deletes
    them."""
    variables, fresh, status = f.pointer("variables"), f.pointer("fresh"), f.stack_slot("i64")
    updates = _Updates(f)
    with f.loop(0, updates.count) as loop:
        tensor = fresh.at(loop.index, "ptr").load_ptr()
        variable = variables.at(updates.input_of(loop.index), "ptr").load_ptr()
        with f.if_(tensor.is_not_null()):
            use(variable, tensor, status)
            delete_tensor(f, tensor)
    f.ret()
