"""The kernel's compute function: key, lookup, outputs, run, and TensorFlow's nodes where there is no code."""

from __future__ import annotations

import dataclasses

from ....runtime import run_context
from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, Value, VectorValue
from ....runtime.llvm.types import parameters
from ....runtime.memory import temp_arena
from ..structs import ALIAS, ERROR_CAPACITY
from . import key
from .calls import (
    ABORTED,
    INVALID_ARGUMENT,
    LAST_CODE,
    RESOURCE_EXHAUSTED,
    array,
    call_i1,
    call_i32,
    call_python,
    delete_plain_inputs,
    delete_tensor,
    delete_tensors,
    get_input,
    has_failed,
    set_output,
    set_status,
    sign_extended,
    text_global,
)
from .layouts import ENTRY, OUTPUT, STATE, is_variable, output_row
from .outputs import finish_outputs


def write(module: ModuleText, with_variables: bool) -> None:
    """Writes `tfbridge_compute` and the functions that it calls."""
    _write_launch(module, with_variables)
    _write_raise_waiting(module)
    _write_compute_by(module, with_variables)
    _write_compute(module)


# -- the run of compiled code


def _write_launch(module: ModuleText, with_variables: bool) -> None:
    """launch(context, state, cache entry, code, tensors, variables, args, results, message, status) -> whether the run
    bailed out; the message, with room for ERROR_CAPACITY bytes, then says which assumption of the code failed, if one
    did.

    Allocates outputs and runs; after a bailout no output is set. Deletes the tensors, except those of variables, as
    soon as their data pointers suffice, so that inputs can be forwarded. Variables that are updated are locked.
    """
    names = (
        "context",
        "state",
        "cache_entry",
        "code",
        "tensors",
        "variables",
        "args",
        "results",
        "message",
        "status",
    )
    f = Function(module, "launch", [("ptr", name) for name in names], "i1")
    context, state, entry, args, results, status = f.pointers(
        "context", "state", "cache_entry", "args", "results", "status"
    )
    inputs, outputs, updates = (STATE.field(state, n).load_int() for n in ("inputs", "outputs", "updates"))
    rows = ENTRY.field(entry, "outputs").load_ptr()
    _set_aliases(f, context, rows, outputs, status)
    with f.if_(STATE.field(state, "variables").load_int().equals(0)) as branch:
        delete_tensors(f, inputs, f.pointer("tensors"))
    with branch.else_():
        delete_plain_inputs(f, state, inputs, f.pointer("tensors"))
    pending, fresh = array(f, "ptr", outputs), array(f, "ptr", updates)
    f.call("acquire_outputs", "void", [context, entry, outputs, results, pending, status])
    if with_variables:
        f.call("acquire_updates", "void", [state, entry, f["variables"], args, results, fresh, status])
    sizes = _add_sizes(f, entry, results.at(outputs + updates, "ptr"))
    with f.if_(~has_failed(f, status), bailed_out=f.constant("i1", False)) as branch:
        branch.bailed_out = _run(f, entry)
    done = ~(has_failed(f, status) | branch.bailed_out)
    if with_variables:
        f.call("finish_updates", "void", [state, f["variables"], fresh, done])
    finish_outputs(f, context, rows, outputs, pending, sizes, done, status)
    f.ret(branch.bailed_out)
    module.add("launch", f.text())


def _set_aliases(f: Function, context: Ptr, rows: Ptr, outputs: Int, status: Ptr) -> None:
    """Sets the outputs that are an input."""
    tensors, args, results = f.pointers("tensors", "args", "results")
    with f.loop(0, outputs) as loop:
        output = output_row(rows, loop.index)
        with f.if_(OUTPUT.field(output, "mode").load().equals(ALIAS)):
            source = sign_extended(f, OUTPUT.field(output, "source").load())
            set_output(f, context, loop.index, tensors.at(source, "ptr").load_ptr(), status)
            results.at(loop.index, "ptr").store(args.at(source, "ptr").load_ptr())


def _add_sizes(f: Function, entry: Ptr, results: Ptr) -> Ptr:
    """Memory for the sizes of SIZED outputs, which the code writes as its last results."""
    count = ENTRY.field(entry, "sizes").load_int()
    sizes = array(f, "i32", count)
    with f.loop(0, count) as loop:
        results.at(loop.index, "ptr").store(sizes.at(loop.index, "i32"))
    return sizes


def _run(f: Function, entry: Ptr) -> VectorValue:
    """Runs the code; whether it bailed out. Other errors are in the status."""
    message = f.pointer("message")
    arguments = [entry, *(f[n] for n in ("code", "args", "results", "message", "tensors"))]
    code = call_i32(f, "tfbridge_run_entry", arguments)
    is_overflow = code.equals(run_context.CAPACITY_OVERFLOW)
    bailed_out = is_overflow | code.equals(run_context.ASSUMPTION_FAILED)
    with f.if_(is_overflow):
        ENTRY.field(entry, "overflowed").store(f.i64(1))
        message.store(f.constant("i8", 0))  # the next run has larger capacities
    with f.if_(~(bailed_out | code.equals(0))):
        is_status_code = (code - 2).below(LAST_CODE - 1)
        status_code = is_status_code.choose(code, INVALID_ARGUMENT)
        no_memory = code.equals(temp_arena.OUT_OF_MEMORY)
        set_status(f, f.pointer("status"), no_memory.choose(RESOURCE_EXHAUSTED, status_code), message)
    return bailed_out


# -- a call


@dataclasses.dataclass(frozen=True)
class _Call:
    """The values of a call that most steps need; `variables` and `order` are null where variables are not supported.

    tensors, args: of every input the tensor and the data pointer. order: the addresses of variables, rising.
    """

    f: Function
    state: Ptr
    context: Ptr
    status: Ptr
    inputs: Int
    outputs: Int
    tensors: Ptr
    args: Ptr
    variables: Ptr
    order: Ptr

    def int_field(self, name: str) -> Int:
        """A count of the state."""
        return STATE.field(self.state, name).load_int()

    def has_variables(self) -> VectorValue:
        """Whether inputs are variables."""
        return self.int_field("variables").differs(0)

    def has_updates(self) -> VectorValue:
        """Whether variables get new values."""
        return self.int_field("updates").differs(0)

    def delete_plain_inputs(self) -> None:
        """Deletes the tensors of inputs that are no variables."""
        delete_plain_inputs(self.f, self.state, self.inputs, self.tensors)

    def report_failure(self) -> None:
        """Tells the kernel context about an error in the status."""
        with self.f.if_(has_failed(self.f, self.status)):
            self.f.call("TF_OpKernelContext_Failure", "void", [self.context, self.status])

    def release_variables(self) -> None:
        """Deletes the tensors of variables, and gives the variables back."""
        self.f.call("release_variables", "void", [self.state, self.tensors, self.variables])


def _write_compute_by(module: ModuleText, with_variables: bool) -> None:
    """compute_by(state, kernel context, reason): what TensorFlow calls; with a reason, which is not null, TensorFlow
    runs the original nodes."""
    f = Function(module, "compute_by", parameters("ptr state, ptr context, ptr reason"))
    state, context, reason = f.pointers("state", "context", "reason")
    message = f.stack_slot(f"[{ERROR_CAPACITY} x i8]")
    status = f.call("TF_NewStatus", "ptr", [])
    inputs, outputs, updates = (STATE.field(state, n).load_int() for n in ("inputs", "outputs", "updates"))
    tensors, args = array(f, "ptr", inputs), array(f, "ptr", inputs)
    results = array(f, "ptr", outputs + outputs + updates)  # outputs, updates and the sizes of outputs
    variables = array(f, "ptr", inputs) if with_variables else f.null
    order = array(f, "i64", inputs) if with_variables else f.null
    call = _Call(f, state, context, status, inputs, outputs, tensors, args, variables, order)
    if with_variables:
        _gather_variables(call)
    size = key.take_inputs(f, context, state, inputs, tensors, args, status)
    key_at, on_heap = key.allocate(f, size)
    key.write_key(f, state, inputs, tensors, args, key_at)
    entry = _entry_of(f, state, [key_at, size, key.hash_of(f, key_at, size)])
    code = Ptr.of(f, ENTRY.field(entry, "code").atomic_load("monotonic"))
    is_twice = _sort_variables(call) if with_variables else f.constant("i1", False)
    if with_variables:
        code = is_twice.choose(f.null, code)
    code = reason.is_not_null().choose(f.null, code)
    with f.if_(code.is_not_null()) as branch:
        launch: list[Value] = [entry, code, tensors, variables, args, results, message, status]
        branch.changed, branch.bailed_out = _launch(call, launch, with_variables)
    with branch.else_():
        branch.changed = _fall_back(call, entry, reason, is_twice, with_variables)
        branch.bailed_out = f.constant("i1", False)
    call.report_failure()
    with f.if_(on_heap):
        f.call("free", "void", [key_at])
    if with_variables:
        with f.if_(call.has_variables()):
            call.release_variables()
    f.call("TF_DeleteStatus", "void", [status])
    with f.if_(
        branch.changed | branch.bailed_out
    ):  # a variable changed after it was read: the call starts anew
        f.call("compute_by", "void", [state, context, branch.bailed_out.choose(message, f.null)])
    f.ret()
    module.add("compute_by", f.text())


def _entry_of(f: Function, state: Ptr, key_parts: list[Value]) -> Ptr:
    """The entry for a key. Python adds a new key; where an interrupt ended that, it is the entry without code."""
    entry = f.call("find", "ptr", [state, *key_parts])
    with f.if_(entry.is_null(), entry=entry) as branch:
        new = call_python(f, "tfbridge_miss", [STATE.field(state, "number").load_int(), *key_parts])
        cold = STATE.field(state, "cold_entry").load_ptr()
        branch.entry = new.is_not_null().choose(new, cold)
    result: Ptr = branch.entry
    return result


def _sort_variables(call: _Call) -> VectorValue:
    """Writes the order in which variables are locked; whether one that is updated is there twice."""
    f = call.f
    with f.if_(call.has_updates(), is_twice=f.constant("i1", False)) as branch:
        branch.is_twice = call_i1(f, "sort_variables", [call.state, call.variables, call.order])
    is_twice: VectorValue = branch.is_twice
    return is_twice


def _launch(call: _Call, arguments: list[Value], with_variables: bool) -> tuple[VectorValue, VectorValue]:
    """Runs compiled code, with the variables that it updates locked.

    Returns whether a variable has other dims than when it was read, so that nothing ran, and whether the run bailed
    out.
    """
    f = call.f
    if not with_variables:
        return f.constant("i1", False), call_i1(f, "launch", [call.context, call.state, *arguments])
    with f.if_(call.has_updates(), same=f.constant("i1", True)) as locked:
        f.call("lock_updates", "void", [call.state, call.order])
        locked.same = call_i1(f, "retake_updates", [call.state, call.tensors, call.variables, call.args])
    with f.if_(locked.same) as branch:
        branch.bailed_out = call_i1(f, "launch", [call.context, call.state, *arguments])
    with branch.else_():
        call.delete_plain_inputs()
        branch.bailed_out = f.constant("i1", False)
    with f.if_(call.has_updates()):
        f.call("unlock_updates", "void", [call.state, call.order])
    return ~locked.same, branch.bailed_out


# -- TensorFlow's nodes


def _fall_back(
    call: _Call, entry: Ptr, reason: Ptr, is_twice: VectorValue, with_variables: bool
) -> VectorValue:
    """Has TensorFlow run the original nodes; whether a variable changed meanwhile, so that nothing was set."""
    f = call.f
    ENTRY.field(entry, "fallback_runs").atomic_rmw("add", 1, "monotonic")
    new = _run_original(call, reason)
    good = ~has_failed(f, call.status)
    same = f.constant("i1", True)
    if with_variables:
        with f.if_(call.has_updates(), same=same) as branch:
            branch.same = _exchange(call, new.at(call.outputs, "ptr"), good, is_twice)
        same = branch.same
    _set_new_outputs(call, new, good & same)
    with f.if_(call.has_variables()) as branch:
        call.delete_plain_inputs()
    with branch.else_():
        delete_tensors(f, call.inputs, call.tensors)
    return ~same


def _run_original(call: _Call, reason: Ptr) -> Ptr:
    """Has TensorFlow run the original nodes: the tensors of outputs and updates, null where there is none.

    `reason`: the text that tells which assumption of compiled code failed; null where no code ran.
    """
    f = call.f
    count = call.outputs + call.int_field("updates")
    new = array(f, "ptr", count)
    with f.loop(0, count) as loop:
        new.at(loop.index, "ptr").store(f.null)
    # The status, should an interrupt end the call of Python.
    text = f.symbol(text_global(f.module, "interrupted", "interrupted"))
    set_status(f, call.status, f.constant("i32", ABORTED), text)
    number = call.int_field("number")
    call_python(f, "tfbridge_fallback", [number, call.tensors, call.variables, new, reason, call.status])
    return new


def _exchange(call: _Call, new: Ptr, good: VectorValue, is_twice: VectorValue) -> VectorValue:
    """Gives variables their new tensors; false, and nothing done, when one was updated since they were read."""
    f = call.f
    with f.if_(is_twice) as branch:
        f.call("assign_updates", "void", [call.state, call.variables, new])
        branch.same = f.constant("i1", True)
    with branch.else_():
        f.call("lock_updates", "void", [call.state, call.order])
        same = call_i1(f, "unchanged_updates", [call.state, call.tensors, call.variables])
        f.call("finish_updates", "void", [call.state, call.variables, new, same & good])
        f.call("unlock_updates", "void", [call.state, call.order])
        branch.same = same | ~good
    result: VectorValue = branch.same
    return result


def _set_new_outputs(call: _Call, new: Ptr, done: VectorValue) -> None:
    """Makes the tensors that TensorFlow's nodes returned outputs, if all is done; deletes them."""
    f = call.f
    with f.loop(0, call.outputs) as loop:
        tensor = new.at(loop.index, "ptr").load_ptr()
        with f.if_(tensor.is_not_null()):
            with f.if_(done):
                set_output(f, call.context, loop.index, tensor, call.status)
            delete_tensor(f, tensor)


def _gather_variables(call: _Call) -> None:
    """Takes the tensors of all variables. Where one has no value, TensorFlow's nodes run, and the function returns."""
    f = call.f
    with f.if_(call.has_variables()):
        arguments = [call.context, call.state, call.tensors, call.variables]
        with f.if_(~call_i1(f, "gather_variables", arguments)):
            _run_without_values(call)
            f.ret()


def _run_without_values(call: _Call) -> None:
    """A call in which a variable has no value: TensorFlow's nodes run."""
    f = call.f
    with f.loop(0, call.inputs) as loop, f.if_(~is_variable(call.state, loop.index)):
        get_input(f, call.context, loop.index, call.tensors.at(loop.index, "ptr"), call.status)
    new = _run_original(call, f.null)
    good = ~has_failed(f, call.status)
    with f.if_(good):
        f.call("assign_updates", "void", [call.state, call.variables, new.at(call.outputs, "ptr")])
    _set_new_outputs(call, new, good)
    call.report_failure()
    call.delete_plain_inputs()
    call.release_variables()
    f.call("TF_DeleteStatus", "void", [call.status])


# -- the entry point


def _write_compute(module: ModuleText) -> None:
    """compute(state, kernel context): counts the call as active while it runs, and raises interrupts after it."""
    f = Function(module, "tfbridge_compute", parameters("ptr state, ptr context"), linkage="")
    state = f.pointer("state")
    epoch = Int.of(f, STATE.field(state, "epoch").atomic_load("monotonic"))
    active_calls = STATE.field(state, "active_calls").address.at(epoch & 1, "i64")
    active_calls.atomic_rmw("add", f.i64(1), "seq_cst")
    f.fence("seq_cst")
    f.call("compute_by", "void", [state, f["context"], f.null])
    active_calls.atomic_rmw("sub", f.i64(1), "seq_cst")
    module.add_global("tfbridge_waiting", "external global [2 x i64]")
    waiting = f.symbol("tfbridge_waiting")
    with f.if_(waiting.atomic_load("i64", "monotonic").differs(0)):
        f.call("raise_waiting", "void", [waiting])
    f.ret()
    module.add("tfbridge_compute", f.text())


def _write_raise_waiting(module: ModuleText) -> None:
    """raise_waiting(waiting): has Python raise the waiting exception (interrupts.word) when this thread is back
    there."""
    f = Function(module, "raise_waiting", [("ptr", "waiting")])
    waiting = f.pointer("waiting")
    lock = f.call("PyGILState_Ensure", "i32", [])
    thread = f.call("PyThread_get_thread_ident", "i64", [])
    with f.if_(waiting.load_int().equals(thread)):
        f.call("PyThreadState_SetAsyncExc", "i32", [thread, (waiting + 8).load_ptr()])
        waiting.store(0)
    f.call("PyGILState_Release", "void", [lock])
    f.ret()
    module.add("raise_waiting", f.text())
