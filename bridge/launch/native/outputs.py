"""Memory for outputs: allocated, forwarded from an input, or set after the run."""

from __future__ import annotations

import ctypes
import dataclasses

from ....runtime.code import support_library
from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.types import parameters
from ....runtime.memory import result_pool
from ..structs import ALIAS, FORWARD, LATER, SIZED, Output
from .calls import array, data_of, delete_tensor, set_no_memory, set_output, sign_extended
from .layouts import ENTRY, OUTPUT, output_row


def block_functions() -> dict[str, int]:
    """Addresses of the functions that `new_tensor` calls besides TensorFlow's."""
    addresses = support_library.addresses()
    return {"tfb_block_take": addresses["block_take"], "tfb_block_put": addresses["block_put"]}


def write(module: ModuleText) -> None:
    """Writes `new_tensor`, `acquire_outputs` and `first_rows`."""
    write_new_tensor(module)
    _write_acquire_outputs(module)
    _write_first_rows(module)


def write_new_tensor(module: ModuleText) -> None:
    """new_tensor(output) -> a tensor for an output, large ones in a pooled block; null: no memory."""
    f = Function(module, "new_tensor", [("ptr", "output")], "ptr")
    output = f.pointer("output")
    dtype, rank = (OUTPUT.field(output, name).load() for name in ("dtype", "rank"))
    dims, size = OUTPUT.field(output, "dims").load_ptr(), OUTPUT.field(output, "bytes").load_int()
    with f.if_(_is_large(size)):
        memory = f.call("tfb_block_take", "ptr", [size])
        with f.if_(memory.is_null()):
            f.ret(f.null)
        module.declare("tfb_block_put", "void", ["ptr", "i64", "ptr"])
        deallocator = f.symbol("tfb_block_put")
        f.ret(f.call("TF_NewTensor", "ptr", [dtype, dims, rank, memory, size, deallocator, f.null]))
    f.ret(f.call("TF_AllocateTensor", "ptr", [dtype, dims, rank, size]))
    module.add("new_tensor", f.text())


def _is_large(size: Int) -> VectorValue:
    return size.compare("icmp uge", result_pool.MIN_BYTES)


@dataclasses.dataclass(frozen=True)
class _Target:
    """An output that gets its memory: its Output, its number, and the kernel context that takes it."""

    f: Function
    output: Ptr
    number: Int
    context: Ptr
    status: Ptr

    def field(self, name: str) -> VectorValue:
        """A field of the Output that is an i32."""
        return OUTPUT.field(self.output, name).load()

    @property
    def dims(self) -> Ptr:
        """The address of its dims."""
        return OUTPUT.field(self.output, "dims").load_ptr()


def _write_acquire_outputs(module: ModuleText) -> None:
    """acquire_outputs(context, cache entry, outputs, results, pending, status): memory for outputs that are no alias.

    A result stays null where TensorFlow has no memory; the status says so. `pending` gets the tensors of outputs that
    are set later, else null.
    """
    f = Function(
        module,
        "acquire_outputs",
        parameters("ptr context, ptr cache_entry, i64 outputs, ptr results, ptr pending, ptr status"),
    )
    context, entry, results, pending, status = f.pointers(
        "context", "cache_entry", "results", "pending", "status"
    )
    outputs = ENTRY.field(entry, "outputs").load_ptr()
    with f.loop(0, f.integer("outputs")) as loop:
        number = loop.index
        target = _Target(f, output_row(outputs, number), number, context, status)
        pending.at(number, "ptr").store(f.null)
        mode = target.field("mode")
        with f.if_(mode.differs(ALIAS)):
            with f.if_(mode.equals(FORWARD)) as branch:
                branch.tensor = _forward(target)
            with branch.else_():
                branch.tensor = _allocate(target, mode, pending.at(number, "ptr"))
            tensor = branch.tensor
            with f.if_(tensor.is_not_null(), data=f.null) as branch:
                branch.data = data_of(f, tensor)
                with f.if_(mode < LATER):  # the kernel context holds the memory
                    delete_tensor(f, tensor)
            results.at(number, "ptr").store(branch.data)
    f.ret()
    module.add("acquire_outputs", f.text())


def _forward(target: _Target) -> Ptr:
    """A tensor in the memory of an input, if nobody else holds that, or in memory of its own."""
    f = target.f
    candidate, forwarded = f.stack_slot("i32", 4), f.stack_slot("i32", 4)
    candidate.store(target.field("source"))
    return f.call(
        "TF_ForwardInputOrAllocateOutput",
        "ptr",
        [
            target.context,
            candidate,
            f.constant("i32", 1),
            target.number.truncate("i32"),
            target.dims,
            target.field("rank"),
            forwarded,
            target.status,
        ],
    )


def _allocate(target: _Target, mode: VectorValue, pending: Ptr) -> Ptr:
    """A tensor in new memory: large ones and those that are set later in a tensor of our own."""
    f, size = target.f, OUTPUT.field(target.output, "bytes").load_int()
    is_later = mode >= LATER
    with f.if_(_is_large(size) | is_later) as branch:
        branch.tensor = _allocate_own(target, is_later, pending)
    with branch.else_():
        branch.tensor = f.call(
            "TF_AllocateOutput",
            "ptr",
            [
                target.context,
                target.number.truncate("i32"),
                target.field("dtype"),
                target.dims,
                target.field("rank"),
                size,
                target.status,
            ],
        )
    tensor: Ptr = branch.tensor
    return tensor


def _allocate_own(target: _Target, is_later: VectorValue, pending: Ptr) -> Ptr:
    f = target.f
    tensor = f.call("new_tensor", "ptr", [target.output])
    with f.if_(tensor.is_null()) as branch:
        set_no_memory(f, target.status)
    with branch.else_():
        with f.if_(is_later) as branch:
            pending.store(tensor)
        with branch.else_():
            set_output(f, target.context, target.number, tensor, target.status)
    return tensor


def _write_first_rows(module: ModuleText) -> None:
    """first_rows(output, tensor, sizes, status) -> a tensor of the first rows of a SIZED output's memory; null where
    there is no memory for it, and the status says so."""
    f = Function(
        module, "first_rows", [("ptr", name) for name in ("output", "tensor", "sizes", "status")], "ptr"
    )
    output, tensor, sizes, status = f.pointers("output", "tensor", "sizes", "status")
    rank = sign_extended(f, OUTPUT.field(output, "rank").load())
    dims, bounds = array(f, "i64", rank), OUTPUT.field(output, "dims").load_ptr()
    with f.loop(0, rank) as loop:
        dims.at(loop.index, "i64").store(bounds.at(loop.index, "i64").load_int())
    number = sign_extended(f, OUTPUT.field(output, "source").load())
    size = sign_extended(f, sizes.at(number, "i32").load("i32"))
    max_rows = Int.of(f, dims.load("i64").call("umax", 1))
    dims.store(size)
    bytes_ = OUTPUT.field(output, "bytes").load_int() // max_rows * size
    row = f.stack_slot(f"[{ctypes.sizeof(Output)} x i8]", 8)
    for name in ("dtype", "rank"):
        OUTPUT.field(row, name).store(OUTPUT.field(output, name).load())
    OUTPUT.field(row, "dims").store(dims)
    OUTPUT.field(row, "bytes").store(bytes_)
    first = f.call("new_tensor", "ptr", [row])
    with f.if_(first.is_null()) as branch:
        set_no_memory(f, status)
    with branch.else_():
        f.call("memcpy", "ptr", [data_of(f, first), data_of(f, tensor), bytes_])
    f.ret(first)
    module.add("first_rows", f.text())


def finish_outputs(
    f: Function,
    context: Ptr,
    outputs: Ptr,
    count: Int,
    pending: Ptr,
    sizes: Ptr,
    done: VectorValue,
    status: Ptr,
) -> None:
    """Sets the outputs that were to be set later, if the run is done; deletes their tensors."""
    with f.loop(0, count) as loop:
        number = loop.index
        tensor = pending.at(number, "ptr").load_ptr()
        with f.if_(tensor.is_not_null()):
            with f.if_(done):
                _set_later(f, context, output_row(outputs, number), number, tensor, sizes, status)
            delete_tensor(f, tensor)


def _set_later(
    f: Function, context: Ptr, output: Ptr, number: Int, tensor: Ptr, sizes: Ptr, status: Ptr
) -> None:
    with f.if_(OUTPUT.field(output, "mode").load().equals(SIZED)) as branch:
        first = f.call("first_rows", "ptr", [output, tensor, sizes, status])
        with f.if_(first.is_not_null()):
            set_output(f, context, number, first, status)
            delete_tensor(f, first)
    with branch.else_():
        set_output(f, context, number, tensor, status)
