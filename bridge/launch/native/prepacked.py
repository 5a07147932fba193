"""The lookup of packed arguments, see launch/prepacked_weights.py."""

from __future__ import annotations

from ....runtime.llvm.ir_builder import Function, ModuleText, Ptr, VectorValue
from ....runtime.llvm.types import parameters
from .calls import call_python
from .layouts import PACKED_SET, PACKING

EXPORTS = ("tfbridge_exchange_packed", "tfbridge_take_packed")


def write(module: ModuleText) -> None:
    """Writes both EXPORTS."""
    _write_take(module)
    _write_exchange(module)


def _write_take(module: ModuleText) -> None:
    """take_packed(packing, args) -> its set, which gets a user more, if it was packed from these `args`, else null."""
    f = Function(module, "tfbridge_take_packed", parameters("ptr packing, ptr args"), "ptr", linkage="")
    packing, args = f.pointers("packing", "args")
    _lock(f, packing)
    packed = PACKING.field(packing, "set").load_ptr()
    with f.if_(packed.is_not_null(), taken=f.null) as branch, f.if_(_has_values(f, packing, packed, args)):
        PACKED_SET.field(packed, "users").atomic_rmw("add", 1, "monotonic")
        branch.taken = packed
    _unlock(f, packing)
    f.ret(branch.taken)
    module.add("tfbridge_take_packed", f.text())


def _has_values(f: Function, packing: Ptr, packed: Ptr, args: Ptr) -> VectorValue:
    """Whether a set was packed from these arguments: whether their addresses are the same."""
    values = PACKED_SET.field(packed, "values").load_ptr()
    inputs = PACKING.field(packing, "inputs").load_ptr()
    with f.loop(0, PACKING.field(packing, "count").load_int(), same=f.constant("i1", True)) as loop:
        value = args.at(inputs.at(loop.index, "i64").load_int(), "ptr").load_ptr()
        loop.same = loop.same & value.equals(values.at(loop.index, "ptr").load_ptr())
    same: VectorValue = loop.same
    return same


def _write_exchange(module: ModuleText) -> None:
    """exchange_packed(packing, set): makes that set the one of the last values."""
    f = Function(module, "tfbridge_exchange_packed", parameters("ptr packing, ptr set"), linkage="")
    packing = f.pointer("packing")
    _lock(f, packing)
    PACKING.field(packing, "set").store(f.pointer("set"))
    _unlock(f, packing)
    f.ret()
    module.add("tfbridge_exchange_packed", f.text())


def _lock(f: Function, packing: Ptr) -> None:
    """Waits for the lock of the set, which is held for a few instructions."""
    with f.repeat() as spin:
        before = PACKING.field(packing, "lock").atomic_rmw("xchg", 1, "acquire")
        spin.while_(before.differs(0))


def _unlock(f: Function, packing: Ptr) -> None:
    PACKING.field(packing, "lock").atomic_store(f.i64(0), "release")


def use(f: Function, packing: Ptr, args: Ptr, tensors: Ptr) -> Ptr:
    """The set to run code with; null where none could be packed."""
    PACKING.field(packing, "runs").atomic_rmw("add", 1, "monotonic")
    taken = f.call("tfbridge_take_packed", "ptr", [packing, args])
    with f.if_(taken.is_null(), packed=taken) as branch:
        branch.packed = call_python(f, "tfbridge_pack", [packing, args, tensors], 1)
    packed: Ptr = branch.packed
    return packed


def release(packed: Ptr) -> None:
    """Ends the use of a set."""
    PACKED_SET.field(packed, "users").atomic_rmw("sub", 1, "release")
