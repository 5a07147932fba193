"""Fast calls: builtin functions of Python, written as LLVM IR, that run one entry of the launch op.

TensorFlow's eager executor looks an op's kernel up by its attributes on every call. A function that is called with
tensors of the shapes of its last call does not need that: its builtin compares them with one entry of the launch op,
reads the data pointers, allocates the outputs and runs the code. The same goes for NumPy arrays. A call that does not
fit (another shape or type, an error) returns `NotImplemented`, and the caller takes the slow path.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...runtime.code import linker
from ...runtime.code.executable import empty_array
from ...runtime.llvm.ir_builder import ModuleText
from ..launch import cluster_registry
from ..launch import kernel as launch_kernel
from ..launch import op as launch_op
from ..launch.native import outputs as native_outputs
from ..tf_internals import symbols as private
from . import fast_call_code, fast_call_variables
from .fast_call_code import CONTIGUOUS_AND_ALIGNED, DATA, DESCR, DIMS, FLAGS, RANK, VARIABLE, Call
from .fast_call_variables import Captured

Builtin = Callable[..., Any]


class _MethodDef(ctypes.Structure):
    """PyMethodDef of Python's C API."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_METH_FASTCALL = 0x80
_PYTHON_FUNCTIONS = (
    "PyLong_AsVoidPtr",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyList_New",
    "PyList_SetItem",
    "PyObject_CallObject",
    "Py_IncRef",
    "Py_DecRef",
)


def of_tensors(
    target: cluster_registry.DirectEntry,
    sources: Sequence[int | tf.Tensor | Captured],
    dtypes: Sequence[tf.DType],
    single: bool,
) -> Builtin:
    """A builtin that runs an entry on eager tensors.

    dtypes: per argument of the call. sources: per input of the entry the number of an argument, or a tensor or variable
        that is the same in every call.

    Raises: TensorFlowMismatch  this TensorFlow lacks what that needs.
    """
    private.check(private.DIRECT)
    handles = [private.tensor_handle(s) for s in sources if not isinstance(s, int | Captured)]
    return _builtin(
        "tfbridge_call_tensors",
        target,
        sources,
        handles,
        [d.as_datatype_enum for d in dtypes],
        private.eager_tensor_type(),
        single,
        [],
    )


def of_arrays(
    target: cluster_registry.DirectEntry,
    sources: Sequence[int | np.ndarray | Captured],
    dtypes: Sequence[np.dtype],
    single: bool,
) -> Builtin:
    """A builtin that runs an entry on NumPy arrays in C order, else as above. No output may be an input."""
    _check_arrays()
    fixed = [s.ctypes.data for s in sources if not isinstance(s, int | Captured)]
    makers = [
        x for dtype, dims in target.results for x in (empty_array, (dims, np.dtype(dtype.as_numpy_dtype)))
    ]
    return _builtin(
        "tfbridge_call_arrays",
        target,
        sources,
        fixed,
        list(map(id, dtypes)),
        np.ndarray,
        single,
        makers,
        dtypes,
    )


def _builtin(
    symbol: str,
    target: cluster_registry.DirectEntry,
    sources: Sequence[Any],
    fixed: Sequence[int],
    types: Sequence[int],
    type_: type,
    single: bool,
    makers: Sequence[Any],
    owned: object = None,
) -> Builtin:
    numbers = iter(range(-1, -1 - len(fixed), -1))
    origins = [
        s if isinstance(s, int) else VARIABLE if isinstance(s, Captured) else next(numbers) for s in sources
    ]
    tables = [
        (ctypes.c_int64 * max(len(words), 1))(*words)
        for words in (origins, fixed, types, list(map(id, makers)))
    ]
    variables, uses = fast_call_variables.tables(sources)
    call = Call(
        ctypes.addressof(target.entry),
        len(types),
        len(sources),
        len(target.results),
        *map(ctypes.addressof, tables),
        id(type_),
        single,
        id(NotImplemented),
        ctypes.addressof(variables),
        len(variables),
        ctypes.addressof(uses),
        len(uses),
    )
    self_ = _Self(ctypes.addressof(call))
    method = _method(symbol)  # Python keeps its address alone
    self_.owned = (call, tables, variables, uses, target, sources, type_, makers, owned, method)
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    return new(ctypes.addressof(method), self_, None)


class _Self(int):
    """The address of a `Call`, and in `owned` the objects that must live as long."""

    owned: object


@functools.cache
def _method(symbol: str) -> _MethodDef:
    return _MethodDef(b"call", _functions()[symbol], _METH_FASTCALL, None)


@functools.cache
def _check_arrays() -> None:
    """Raises: ImportError  this NumPy has another layout of arrays."""
    probe = np.arange(6, dtype=np.int16).reshape(2, 3)

    def word(at: int) -> int:
        return ctypes.c_int64.from_address(id(probe) + at).value

    layout = (
        word(DATA),
        word(RANK) & 0xFFFFFFFF,
        ctypes.c_int64.from_address(word(DIMS) + 8).value,
        word(DESCR),
        word(FLAGS) & CONTIGUOUS_AND_ALIGNED,
    )
    if layout != (probe.ctypes.data, 2, 3, id(probe.dtype), CONTIGUOUS_AND_ALIGNED):
        raise ImportError(f"NumPy {np.__version__} has another layout of arrays than expected")


def prefetch() -> None:
    """Starts to compile the builtins' functions in the background."""
    linker.prepare_text(_module().text())


def load() -> None:
    """Loads the builtins' functions now, not at the first fast call."""
    _functions()


@functools.cache
def _module() -> ModuleText:
    module = ModuleText()
    fast_call_variables.write(module)
    native_outputs.write_new_tensor(module)
    fast_call_code.write(module)
    return module


@functools.cache
def _functions() -> dict[str, int]:
    """Addresses of the builtins' functions."""
    module = _module()
    imports = {name: launch_kernel.python_address(name) for name in _PYTHON_FUNCTIONS}
    imports |= {
        symbol: private.address(symbol)
        for symbol in module.declarations
        if symbol.startswith(("TF_", "TFE_", "_Z"))
    }
    imports |= {"tfbridge_run_entry": launch_op.run_entry_address()}
    imports |= native_outputs.block_functions() | fast_call_variables.imports()
    exports = ("tfbridge_call_tensors", "tfbridge_call_arrays")
    return dict(linker.load_text(module.text(), exports, imports).keep().addresses)
