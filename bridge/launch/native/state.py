"""Creation and deletion of kernel states, and the atomic operations that Python calls."""

from __future__ import annotations

from ....runtime.llvm.ir_builder import Function, ModuleText
from ....runtime.llvm.types import parameters
from ..structs import INVALID_STATE
from .calls import call_python
from .layouts import STATE


def write(module: ModuleText) -> None:
    """Writes `tfbridge_create`, `tfbridge_delete`, `tfbridge_publish` and `tfbridge_count`."""
    _write_create(module)
    _write_delete(module)
    _write_publish(module)
    _write_count(module)


def _write_create(module: ModuleText) -> None:
    """create(construction) -> state, null where its creation failed."""
    f = Function(module, "tfbridge_create", [("ptr", "construction")], "ptr", linkage="")
    state = call_python(f, "tfbridge_new_launch", [f["construction"]])
    with f.if_(state.as_bits().equals(INVALID_STATE)):
        f.ret(f.null)
    f.ret(state)
    module.add("tfbridge_create", f.text())


def _write_delete(module: ModuleText) -> None:
    """delete(state): one kernel less."""
    f = Function(module, "tfbridge_delete", [("ptr", "state")], linkage="")
    state = f.pointer("state")
    with f.if_(state.is_not_null()):  # null: its creation failed
        orphans = STATE.field(state, "orphans").load_ptr()
        before = STATE.field(state, "kernels").atomic_rmw("sub", 1, "seq_cst")
        with f.if_(before.equals(1)):  # from here on the state may be freed
            orphans.atomic_rmw("add", f.i64(1), "seq_cst")
    f.ret()
    module.add("tfbridge_delete", f.text())


def _write_publish(module: ModuleText) -> None:
    """publish(slot, address): a store that other threads see in order."""
    f = Function(module, "tfbridge_publish", parameters("ptr slot, ptr address"), linkage="")
    f.pointer("slot").atomic_store(f["address"], "seq_cst")
    f.ret()
    module.add("tfbridge_publish", f.text())


def _write_count(module: ModuleText) -> None:
    """count(slot, amount) -> the sum."""
    f = Function(module, "tfbridge_count", parameters("ptr slot, i64 amount"), "i64", linkage="")
    f.ret(f.pointer("slot").atomic_rmw("add", f["amount"], "seq_cst") + f["amount"])
    module.add("tfbridge_count", f.text())
