"""The launch op's kernel: native code finds the cache entry for the shapes and runs it; Python runs on a miss only.

The structs are in structs.py, the writers of the code in native/. A kernel's state has a hash table with an entry for
each key. A key is, for every input in order, one word rank, one word per dim and, for inputs keyed by value, one word
byte size and the bytes, zero-padded. Entries are published and removed by atomic stores, so the lookup needs no lock;
entry_table.py tells when a removed entry may be freed.
"""

from __future__ import annotations

import ctypes
import functools

from ...runtime.code import linker, support_library
from ...runtime.llvm.ir_builder import ModuleText
from ...runtime.threads import interrupts
from ..tf_internals import symbols as private
from . import prepacked_weights, resource_variables, traces, weight_pages
from .native import compute, lookup, outputs, prepacked, run_entry, state, trace, variables
from .structs import COUNT, PUBLISH, Native

_PYTHON_FUNCTIONS = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyThreadState_SetAsyncExc",
    "PyThread_get_thread_ident",
)
_EXPORTS = tuple(
    f"tfbridge_{name}" for name in ("create", "compute", "delete", "run_entry", "publish", "count")
)
_loaded: list[Native] = []


def load(create: int, miss: int, fallback: int) -> Native:
    """Compiles the kernel.

    `i32 run_entry(entry, code, args, results, message, tensors)` runs an entry's code on data pointers and returns its
    status; `message` has room for ERROR_CAPACITY bytes. `tensors` of the inputs, null where variables are none.

    create(kernel construction) -> state, miss(launch number, key, key bytes, hash) -> entry and fallback(launch
    number, tensors, variables, new, reason, status) -> not null are addresses of C functions, with the address of the
    result as last argument. fallback puts the op's outputs and the tensors for updated variables into `new`; the tensor
    of a variable without a value is null. `reason`: the text that tells which assumption of compiled code failed, empty
    where none did, null where no code ran.
    """
    with_variables, with_traces = resource_variables.available(), traces.available()
    text, tensorflow = _module(with_variables, with_traces)
    imports = {symbol: private.address(symbol) for symbol in tensorflow}
    imports |= {"tfbridge_new_launch": create, "tfbridge_miss": miss, "tfbridge_fallback": fallback}
    imports |= resource_variables.imports() if with_variables else {}
    imports |= traces.imports() if with_traces else {}
    imports |= outputs.block_functions() | prepacked_weights.imports() | weight_pages.imports()
    imports |= {name: python_address(name) for name in _PYTHON_FUNCTIONS}
    imports |= {"tfbridge_waiting": ctypes.addressof(interrupts.word)}
    imports |= {"tfbridge_run": support_library.addresses()["run"]}
    addresses = linker.load_text(text, _EXPORTS + prepacked.EXPORTS, imports).keep().addresses
    prepacked_weights.connect(*(addresses[name] for name in prepacked.EXPORTS))
    create, compute_, delete, run, publish, count = (addresses[name] for name in _EXPORTS)
    _loaded[:] = [Native(create, compute_, delete, run, PUBLISH(publish), COUNT(count))]
    return _loaded[0]


def native() -> Native:
    """The kernel's native code, after `load`."""
    return _loaded[0]


def python_address(name: str) -> int:
    """Address of a function of Python's C API."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


def prefetch() -> None:
    """Starts to compile the kernel in the background, the one that most TensorFlows need."""
    support_library.prefetch()
    linker.prepare_text(_module(True, traces.available())[0])


@functools.cache
def _module(with_variables: bool, with_traces: bool) -> tuple[str, tuple[str, ...]]:
    """(the module's text, the TensorFlow symbols that it calls)."""
    module = ModuleText()
    if with_variables:
        variables.write(module)
    lookup.write(module)
    outputs.write(module)
    prepacked.write(module)
    if with_traces:
        trace.write(module)
    run_entry.write(module, with_traces)
    compute.write(module, with_variables)
    state.write(module)
    return module.text(), tuple(symbol for symbol in module.declarations if symbol.startswith("TF_"))
