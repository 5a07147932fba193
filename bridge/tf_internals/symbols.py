"""Every private or mangled name of TensorFlow that tfbridge uses, wrapped and checked, in this one place.

`check()` tells what this TensorFlow lacks. Nothing here runs at import besides loading TensorFlow.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import inspect
import itertools
import mmap
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, op_def_pb2
from tensorflow.core.protobuf import rewriter_config_pb2
from tensorflow.python import pywrap_tfe
from tensorflow.python.autograph.core import ag_ctx, converter
from tensorflow.python.autograph.impl import api, conversion
from tensorflow.python.eager import cancellation, context, core, execute, record
from tensorflow.python.eager.polymorphic_function import (
    concrete_function,
    eager_function_run,
    function_type_utils,
    polymorphic_function,
    tf_method_target,
)
from tensorflow.python.framework import c_api_util, errors_impl, op_def_registry, ops, tensor_util
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph
from tensorflow.python.framework.graph_to_function_def import graph_to_function_def
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.ops import gradients_util
from tensorflow.python.util import tf_decorator

from ...runtime.threads import interrupts
from .types import ConcreteFunction, FunctionDef, NodeDef

_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_TEXT, _I64 = ctypes.c_char_p, ctypes.c_int64


class Status(ctypes.Structure):
    """What a function that returns an absl::Status returns.

    The status is one word, which C++ returns in memory that the caller provides: its address comes as a first argument
    on x86-64, and in a register of its own on AArch64. Both are how C returns a struct of more than two words.
    """

    _fields_ = [("word", ctypes.c_uint64), ("unused", ctypes.c_uint64 * 3)]


_FOLDER = os.path.dirname(tf.__file__)
_FRAMEWORK, _CC = "libtensorflow_framework.so.2", "libtensorflow_cc.so.2"
_PYWRAP = next(
    (
        library
        for library in ("python/lib_pywrap_tensorflow_common.so", "python/_pywrap_tensorflow_internal.so")
        if os.path.exists(os.path.join(_FOLDER, library))
    ),
    "python",
)


def _abseil_namespace() -> str:
    """The mangled namespace of TensorFlow's Abseil, such as `4absl12lts_20250814`, which is another in each version."""
    with (
        contextlib.suppress(OSError, ValueError),
        open(os.path.join(_FOLDER, _FRAMEWORK), "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library,
    ):
        if match := re.search(rb"_ZN(4absl(?:12lts_\d{8})?)5Mutex4[Ll]ockEv", library):
            return match[1].decode()
    return "4absl"


_ABSEIL = _abseil_namespace()

OP, EAGER, DIRECT, PLUGIN, FALLBACK = "op", "eager", "direct", "plugin", "fallback"
VARIABLES, AUTOGRAPH, FUNCTIONS, TRACES = "variables", "autograph", "functions", "traces"
HANDLE_OF_TENSOR, TENSOR_OF_HANDLE = (
    "_Z18EagerTensor_HandlePK7_object",
    "_Z21EagerTensorFromHandleP16TFE_TensorHandleb",
)

# The function that is lost where one of a feature's symbols is missing.
FEATURES = {
    OP: "the launch op cannot be registered: nothing is compiled",
    EAGER: "the launch op cannot be called eagerly: the decorator goes through tf.function",
    DIRECT: "every call goes through TensorFlow's eager executor, which costs microseconds",
    VARIABLES: "variables are read before a launch and assigned after it, not updated in place",
    PLUGIN: "no graph pass: auto-clustering and jit_scope do nothing, the decorator still works",
    FALLBACK: "clusters that do not compile cannot run in TensorFlow: nothing is clustered",
    FUNCTIONS: "functions that compile as a whole go through TensorFlow's executor under auto-clustering",
    AUTOGRAPH: "AutoGraph rewrites functions that need it not: their first calls take longer",
    TRACES: "TensorFlow's profiler sees no runs of compiled code, but for the launch ops of graphs",
}

# (feature, library, symbol, result, parameters). A library loaded as PyDLL keeps the GIL during the call.
_PLUGIN_SYMBOL = (
    "_ZN10tensorflow8grappler15InitGraphPluginEPFvP30TP_OptimizerRegistrationParamsP10TSL_StatusE"
)
ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"  # the shared name of variables that nobody else finds

# On variables (tensorflow::Var), for native code.
HANDLE_FROM_INPUT = "_ZN10tensorflow15HandleFromInputEPNS_15OpKernelContextEi"
LOOK_UP_VARIABLE = (
    f"_ZN10tensorflow14LookupResourceINS_3VarELb0EEEN{_ABSEIL}6StatusE"
    "PNS_15OpKernelContextERKNS_14ResourceHandleEPPT_"
)
RELEASE_VARIABLE = "_ZNSt10unique_ptrIN10tensorflow3VarEN3tsl4core15RefCountDeleterEED2Ev"
VARIABLE_TABLE = "_ZTVN10tensorflow3VarE"
_TENSOR_OF_HANDLE = "_ZNK10tensorflow12TensorHandle6TensorEPPKNS_6TensorE"
FREE_STATUS = f"_ZNK{_ABSEIL}15status_internal9StatusRep5UnrefEv"
TENSOR_FROM_TENSOR = f"_ZN10tensorflow19TF_TensorFromTensorERKNS_6TensorEPN{_ABSEIL}6StatusE"
TENSOR_TO_TENSOR = "_ZN10tensorflow17TF_TensorToTensorEPK9TF_TensorPNS_6TensorE"
TENSOR_IS_UNSHARED = "_ZNK10tensorflow6Tensor13RefCountIsOneEv"
LOCK, UNLOCK, LOCK_SHARED, UNLOCK_SHARED = (
    f"_ZN3tsl5mutex{name}Ev" for name in ("4lock", "6unlock", "11lock_shared", "13unlock_shared")
)

# The recorder of traces (tsl::profiler::TraceMeRecorder), and std::string, of which its events have one.
TRACE_LEVEL = "_ZN3tsl8profiler8internal13g_trace_levelE"
TRACE_CLOCK = "_ZN3tsl8profiler19GetCurrentTimeNanosEv"
RECORD_TRACE = "_ZN3tsl8profiler15TraceMeRecorder6RecordEONS1_5EventE"
NEW_STRING, ASSIGN_STRING, DELETE_STRING = (
    f"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE{name}" for name in ("C1Ev", "6assignEPKc", "D1Ev")
)

# What other versions of TensorFlow call a symbol. A mutex is Abseil's where TensorFlow has none of its own.
_OTHER_NAMES = {
    FREE_STATUS: (f"_ZN{_ABSEIL}6Status15UnrefNonInlinedEm",),
    LOCK: (f"_ZN{_ABSEIL}5Mutex4lockEv", f"_ZN{_ABSEIL}5Mutex4LockEv"),
    UNLOCK: (f"_ZN{_ABSEIL}5Mutex6unlockEv", f"_ZN{_ABSEIL}5Mutex6UnlockEv"),
    LOCK_SHARED: (f"_ZN{_ABSEIL}5Mutex11lock_sharedEv", f"_ZN{_ABSEIL}5Mutex10ReaderLockEv"),
    UNLOCK_SHARED: (f"_ZN{_ABSEIL}5Mutex13unlock_sharedEv", f"_ZN{_ABSEIL}5Mutex12ReaderUnlockEv"),
}

_SYMBOLS: tuple[tuple[str, str, str, Any, tuple[Any, ...]], ...] = (
    (OP, _FRAMEWORK, "TF_NewStatus", _POINTER, ()),
    (OP, _FRAMEWORK, "TF_DeleteStatus", None, (_POINTER,)),
    (OP, _FRAMEWORK, "TF_SetStatus", None, (_POINTER, _INT, _TEXT)),
    (OP, _FRAMEWORK, "TF_GetCode", _INT, (_POINTER,)),
    (OP, _FRAMEWORK, "TF_Message", _TEXT, (_POINTER,)),
    (OP, _FRAMEWORK, "TF_NewOpDefinitionBuilder", _POINTER, (_TEXT,)),
    (OP, _FRAMEWORK, "TF_OpDefinitionBuilderAddInput", None, (_POINTER, _TEXT)),
    (OP, _FRAMEWORK, "TF_OpDefinitionBuilderAddOutput", None, (_POINTER, _TEXT)),
    (OP, _FRAMEWORK, "TF_OpDefinitionBuilderAddAttr", None, (_POINTER, _TEXT)),
    (OP, _FRAMEWORK, "TF_OpDefinitionBuilderSetShapeInferenceFunction", None, (_POINTER, _POINTER)),
    (OP, _FRAMEWORK, "TF_ShapeInferenceContextSetUnknownShape", None, (_POINTER, _POINTER)),
    (OP, _FRAMEWORK, "TF_OpDefinitionBuilderSetIsStateful", None, (_POINTER, ctypes.c_bool)),
    (OP, _FRAMEWORK, "TF_RegisterOpDefinition", None, (_POINTER, _POINTER)),
    (OP, _FRAMEWORK, "TF_NewKernelBuilder", _POINTER, (_TEXT, _TEXT, _POINTER, _POINTER, _POINTER)),
    (OP, _FRAMEWORK, "TF_RegisterKernelBuilder", None, (_TEXT, _POINTER, _POINTER)),
    (OP, _FRAMEWORK, "TF_OpKernelConstruction_GetNodeDef", _POINTER, (_POINTER, _POINTER)),
    (OP, _FRAMEWORK, "TF_OpKernelConstruction_Failure", None, (_POINTER, _POINTER)),
    (OP, _FRAMEWORK, "TF_OpKernelContext_Failure", None, (_POINTER, _POINTER)),
    (OP, _FRAMEWORK, "TF_GetInput", None, (_POINTER, _INT, _POINTER, _POINTER)),
    (OP, _FRAMEWORK, "TF_SetOutput", None, (_POINTER, _INT, _POINTER, _POINTER)),
    (OP, _FRAMEWORK, "TF_AllocateOutput", _POINTER, (_POINTER, _INT, _INT, _POINTER, _INT, _SIZE, _POINTER)),
    (
        OP,
        _FRAMEWORK,
        "TF_ForwardInputOrAllocateOutput",
        _POINTER,
        (_POINTER, _POINTER, _INT, _INT, _POINTER, _INT, _POINTER, _POINTER),
    ),
    (OP, _FRAMEWORK, "TF_AllocateTensor", _POINTER, (_INT, _POINTER, _INT, _SIZE)),
    (OP, _FRAMEWORK, "TF_NewTensor", _POINTER, (_INT, _POINTER, _INT, _POINTER, _SIZE, _POINTER, _POINTER)),
    (OP, _FRAMEWORK, "TF_TensorData", _POINTER, (_POINTER,)),
    (OP, _FRAMEWORK, "TF_TensorByteSize", _SIZE, (_POINTER,)),
    (OP, _FRAMEWORK, "TF_NumDims", _INT, (_POINTER,)),
    (OP, _FRAMEWORK, "TF_Dim", _I64, (_POINTER, _INT)),
    (OP, _FRAMEWORK, "TF_DeleteTensor", None, (_POINTER,)),
    (OP, _FRAMEWORK, "TF_DeleteBuffer", None, (_POINTER,)),
    (PLUGIN, _CC, _PLUGIN_SYMBOL, Status, (_POINTER,)),
    (PLUGIN, _CC, "TF_GetNodesToPreserveListSize", None, (_POINTER, _POINTER, _POINTER, _POINTER)),
    (
        PLUGIN,
        _CC,
        "TF_GetNodesToPreserveList",
        None,
        (_POINTER, _POINTER, _POINTER, _INT, _POINTER, _SIZE, _POINTER),
    ),
    (PLUGIN, _CC, "TF_GetFetchNodesListSize", None, (_POINTER, _POINTER, _POINTER, _POINTER)),
    (
        PLUGIN,
        _CC,
        "TF_GetFetchNodesList",
        None,
        (_POINTER, _POINTER, _POINTER, _INT, _POINTER, _SIZE, _POINTER),
    ),
    (FALLBACK, _CC, "TFE_NewTensorHandle", _POINTER, (_POINTER, _POINTER)),
    (FALLBACK, _CC, "TFE_TensorHandleResolve", _POINTER, (_POINTER, _POINTER)),
    (FALLBACK, _CC, "TFE_DeleteTensorHandle", None, (_POINTER,)),
    (FALLBACK, _CC, "TFE_NewOp", _POINTER, (_POINTER, _TEXT, _POINTER)),
    (FALLBACK, _CC, "TFE_DeleteOp", None, (_POINTER,)),
    (FALLBACK, _CC, "TFE_OpSetDevice", None, (_POINTER, _TEXT, _POINTER)),
    (FALLBACK, _CC, "TFE_OpSetAttrValueProto", None, (_POINTER, _TEXT, _TEXT, _SIZE, _POINTER)),
    (FALLBACK, _CC, "TFE_OpAddInput", None, (_POINTER, _POINTER, _POINTER)),
    (FALLBACK, _CC, "TFE_Execute", None, (_POINTER, _POINTER, _POINTER, _POINTER)),
    (FALLBACK, _PYWRAP, TENSOR_OF_HANDLE, ctypes.py_object, (_POINTER, ctypes.c_bool)),
    (FALLBACK, _PYWRAP, HANDLE_OF_TENSOR, _POINTER, (ctypes.py_object,)),
    (VARIABLES, _FRAMEWORK, "TF_AllocateTensor", _POINTER, (_INT, _POINTER, _INT, _SIZE)),
    (VARIABLES, _FRAMEWORK, "TF_TensorType", _INT, (_POINTER,)),
    *(
        (VARIABLES, _FRAMEWORK, symbol, None, (_POINTER,))
        for symbol in (
            HANDLE_FROM_INPUT,
            VARIABLE_TABLE,
            FREE_STATUS,
            TENSOR_FROM_TENSOR,
            TENSOR_TO_TENSOR,
            TENSOR_IS_UNSHARED,
            LOCK,
            UNLOCK,
            LOCK_SHARED,
            UNLOCK_SHARED,
        )
    ),
    *((VARIABLES, _CC, symbol, None, (_POINTER,)) for symbol in (LOOK_UP_VARIABLE, RELEASE_VARIABLE)),
    (VARIABLES, _CC, "TFE_TensorHandleDevicePointer", _POINTER, (_POINTER, _POINTER)),
    (VARIABLES, _CC, _TENSOR_OF_HANDLE, Status, (_POINTER, _POINTER)),
    (TRACES, _FRAMEWORK, TRACE_LEVEL, None, ()),
    (TRACES, _FRAMEWORK, TRACE_CLOCK, _I64, ()),
    (TRACES, _FRAMEWORK, RECORD_TRACE, None, (_POINTER,)),
    (TRACES, _FRAMEWORK, NEW_STRING, None, (_POINTER,)),
    (TRACES, _FRAMEWORK, ASSIGN_STRING, _POINTER, (_POINTER, _TEXT)),
    (TRACES, _FRAMEWORK, DELETE_STRING, None, (_POINTER,)),
    (DIRECT, _CC, "TFE_TensorHandleDataType", _INT, (_POINTER,)),
    (DIRECT, _CC, "TFE_TensorHandleNumDims", _INT, (_POINTER, _POINTER)),
    (DIRECT, _CC, "TFE_TensorHandleDim", _I64, (_POINTER, _INT, _POINTER)),
    (DIRECT, _CC, "TFE_TensorHandleDevicePointer", _POINTER, (_POINTER, _POINTER)),
    (DIRECT, _CC, "TFE_TensorHandleCopySharingTensor", _POINTER, (_POINTER, _POINTER)),
)
_PYTHON_NAMES: tuple[tuple[str, Any, str], ...] = (
    (EAGER, pywrap_tfe, "TFE_Py_Execute"),
    (EAGER, context.Context, "_handle"),
    (EAGER, context.Context, "ensure_initialized"),
    (EAGER, core, "_NotOkStatusException"),
    (EAGER, core, "_status_to_exception"),
    (FALLBACK, context, "eager_mode"),
    (FALLBACK, record, "stop_recording"),
    (OP, op_def_registry, "get"),
    (FUNCTIONS, polymorphic_function.Function, "__call__"),
    (FUNCTIONS, polymorphic_function, "FREQUENT_TRACING_WARNING_MAX_CALL_HISTORY"),
    (FUNCTIONS, polymorphic_function, "_frequent_tracing_detector_manager"),
    (FUNCTIONS, concrete_function.ConcreteFunction, "_call_flat"),
    (FUNCTIONS, ops.Graph, "_distribution_strategy_stack"),
    (AUTOGRAPH, types.CodeType, "co_positions"),  # Python 3.11
    (AUTOGRAPH, api, "converted_call"),
    (AUTOGRAPH, api, "autograph_artifact"),
    (AUTOGRAPH, api, "is_autograph_artifact"),
    (AUTOGRAPH, conversion, "is_allowlisted"),
    (AUTOGRAPH, conversion, "is_in_allowlist_cache"),
    (AUTOGRAPH, conversion, "is_unsupported"),
    (AUTOGRAPH, converter, "ConversionOptions"),
    (AUTOGRAPH, ag_ctx, "ControlStatusCtx"),
    (AUTOGRAPH, tf_method_target, "TfMethodTarget"),
)


class TensorFlowMismatch(RuntimeError):
    """This TensorFlow lacks a private name that a feature needs."""


@functools.cache
def _library(name: str) -> ctypes.CDLL:
    path = os.path.join(_FOLDER, name)
    return ctypes.PyDLL(path) if name == _PYWRAP else ctypes.CDLL(path)


def _bound(library: str, symbol: str) -> Any:
    try:
        return getattr(_library(library), symbol)
    except (OSError, AttributeError):
        return None


@functools.cache
def _functions() -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """(functions by symbol, names missing by feature)."""
    functions: dict[str, Any] = {}
    missing: dict[str, list[str]] = {}
    for feature, library, symbol, result, parameters in _SYMBOLS:
        names = (symbol, *_OTHER_NAMES.get(symbol, ()))
        function = next(filter(None, (_bound(library, name) for name in names)), None)
        if function is None:
            missing.setdefault(feature, []).append(f"{symbol} in {library}")
            continue
        function.restype, function.argtypes = result, parameters
        functions[symbol] = function
    for feature, owner, name in _PYTHON_NAMES:
        if not hasattr(owner, name):
            missing.setdefault(feature, []).append(f"{getattr(owner, '__name__', owner)}.{name}")
    return functions, {feature: tuple(names) for feature, names in missing.items()}


def missing() -> dict[str, tuple[str, ...]]:
    """Names that this TensorFlow lacks, by the feature of `FEATURES` that needs them."""
    return _functions()[1]


def check(*features: str) -> None:
    """Verifies that this TensorFlow has what the features need (default: all features).

    Raises: TensorFlowMismatch  names the version, the missing symbols and the lost function.
    """
    lines = [
        f"  {FEATURES[f]}; missing: {', '.join(names)}"
        for f, names in missing().items()
        if not features or f in features
    ]
    if lines:
        raise TensorFlowMismatch(
            f"TensorFlow {tf.__version__} at {_FOLDER} lacks names that tfbridge needs "
            "(it is made for 2.18 to 2.21):\n" + "\n".join(lines)
        )


def function(symbol: str) -> Any:
    """The ctypes function of a symbol in the table.

    Raises: TensorFlowMismatch  this TensorFlow does not have it.
    """
    bound = _functions()[0].get(symbol)
    if bound is None:
        check()
    return bound


def address(symbol: str) -> int:
    """Address of a symbol in the table, for native code. Raises: TensorFlowMismatch."""
    return ctypes.cast(function(symbol), _POINTER).value or 0


def mutex_bytes() -> int:
    """Bytes of a mutex in TensorFlow's objects: one of its own is two words, Abseil's is one."""
    return 16 if _bound(_FRAMEWORK, LOCK) else 8


# -- statuses


def error_of(code: int, message: str) -> tf.errors.OpError:
    """The exception that TensorFlow raises for a status code."""
    return errors_impl.exception_type_from_error_code(code)(None, None, message)


@contextlib.contextmanager
def _status() -> Iterator[int]:
    """A TF_Status for one or more calls. Raises: tf.errors.OpError  the calls left an error in it."""
    status = function("TF_NewStatus")()
    try:
        yield status
        code = function("TF_GetCode")(status)
        if code:
            raise error_of(code, function("TF_Message")(status).decode(errors="replace"))
    finally:
        function("TF_DeleteStatus")(status)


@functools.cache
def ok_status() -> int:
    """The word that is an absl::Status without an error: 1, or 0 in TensorFlow's versions until 2.19."""
    status = function("TF_NewStatus")()
    try:
        return ctypes.c_uint64.from_address(status).value  # what a TF_Status begins with
    finally:
        function("TF_DeleteStatus")(status)


def set_status(status: int, error: BaseException, what: str) -> None:
    """Writes an exception into a TF_Status: TensorFlow's own errors as they are, others as INTERNAL."""
    if isinstance(error, tf.errors.OpError):
        code, message = int(error.error_code), error.message
    else:
        code, message = int(tf.errors.INTERNAL), f"{what}: {type(error).__name__}: {error}"
    function("TF_SetStatus")(status, code, message.encode())


def clear_status(status: int) -> None:
    """Makes a TF_Status that of success."""
    function("TF_SetStatus")(status, 0, b"")


# -- op and kernel registration


def register_op(name: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Sequence[str]) -> None:
    """Registers a stateful op whose output shapes are unknown. The strings are as in REGISTER_OP.

    Raises: tf.errors.OpError  malformed, or there is an op of that name.
    """
    builder = function("TF_NewOpDefinitionBuilder")(name.encode())
    for symbol, texts in (
        ("TF_OpDefinitionBuilderAddInput", inputs),
        ("TF_OpDefinitionBuilderAddOutput", outputs),
        ("TF_OpDefinitionBuilderAddAttr", attributes),
    ):
        for text in texts:
            function(symbol)(builder, text.encode())
    function("TF_OpDefinitionBuilderSetShapeInferenceFunction")(
        builder, address("TF_ShapeInferenceContextSetUnknownShape")
    )
    function("TF_OpDefinitionBuilderSetIsStateful")(builder, True)
    with _status() as status:
        function("TF_RegisterOpDefinition")(builder, status)


def register_kernel(op: str, device: str, create: int, compute: int, delete: int) -> None:
    """Registers a kernel given by the addresses of its three C functions. Raises: tf.errors.OpError."""
    builder = function("TF_NewKernelBuilder")(op.encode(), device.encode(), create, compute, delete)
    with _status() as status:
        function("TF_RegisterKernelBuilder")(op.encode(), builder, status)


class _Buffer(ctypes.Structure):  # TF_Buffer
    _fields_ = [("data", _POINTER), ("length", _SIZE), ("deallocator", _POINTER)]


def kernel_node(construction: int) -> tf.compat.v1.NodeDef:
    """The node for which a kernel is being created (argument of the kernel's create function)."""
    with _status() as status:
        buffer = function("TF_OpKernelConstruction_GetNodeDef")(construction, status)
    try:
        node_buffer = _Buffer.from_address(buffer)
        return tf.compat.v1.NodeDef.FromString(ctypes.string_at(node_buffer.data, node_buffer.length))
    finally:
        function("TF_DeleteBuffer")(buffer)


def fail_kernel(construction: int, error: BaseException) -> None:
    """Makes the creation of a kernel fail with an exception's code and message."""
    status = function("TF_NewStatus")()
    set_status(status, error, "creating a kernel")
    function("TF_OpKernelConstruction_Failure")(construction, status)
    function("TF_DeleteStatus")(status)


# -- eager execution


def eager_handle() -> Any:
    """The eager context's handle, as `eager_execute` wants it."""
    eager = context.context()
    eager.ensure_initialized()
    return eager._handle


def runs_at_once() -> bool:
    """Whether an op that is executed eagerly has run when the call returns."""
    return not context.context().is_async()


def has_begun() -> bool:
    """Whether this process has run something eagerly."""
    eager = context.context_safe()
    return eager is not None and getattr(eager, "_initialized", True)


# (handle, device, op, inputs, (name, value, ...), number of outputs) -> tensors; `raised` turns its errors.
eager_execute: Callable[..., list[tf.Tensor]] = pywrap_tfe.TFE_Py_Execute
ExecuteError: type[Exception] = core._NotOkStatusException


def raised(error: Exception) -> Exception:
    """TensorFlow's public exception for an `ExecuteError`."""
    return core._status_to_exception(error)


@contextlib.contextmanager
def plain_eager() -> Iterator[None]:
    """Eager mode on this thread whatever graph it was building, and nothing is recorded on tapes."""
    with context.eager_mode(), record.stop_recording():
        yield


def tensors_of(tensors: Iterable[int]) -> list[tf.Tensor]:
    """Eager tensors that share the memory of TF_Tensors."""
    new_handle = function("TFE_NewTensorHandle")
    with _status() as status:
        handles = [new_handle(tensor, status) for tensor in tensors]
    return [_tensor_of_handle(handle) for handle in handles]


def _tensor_of_handle(handle: int) -> tf.Tensor:
    return function(TENSOR_OF_HANDLE)(handle, False)


def tensor_handle(tensor: tf.Tensor) -> int:
    """The handle (TFE_TensorHandle) of an eager tensor, which holds it."""
    return function(HANDLE_OF_TENSOR)(tensor)


def resolved(tensor: tf.Tensor) -> int:
    """A TF_Tensor that shares the memory of an eager tensor; the caller deletes it. Raises: tf.errors.OpError."""
    with _status() as status:
        return function("TFE_TensorHandleResolve")(tensor_handle(tensor), status) or 0


def data_of(tensor: tf.Tensor) -> int:
    """Address of the first element of an eager tensor of numbers on the CPU. Raises: tf.errors.OpError."""
    with _status() as status:
        return function("TFE_TensorHandleDevicePointer")(tensor_handle(tensor), status) or 0


def tensor_object(tensor: tf.Tensor) -> int:
    """Address of the tensorflow::Tensor of an eager tensor on the CPU; 0 when there is none."""
    address = ctypes.c_void_p()
    status = function(_TENSOR_OF_HANDLE)(tensor_handle(tensor), ctypes.addressof(address))
    return (address.value or 0) if status.word == ok_status() else 0


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = _POINTER, (ctypes.py_object, _TEXT)


def execute_node(
    op: str, attributes: Sequence[tuple[bytes, bytes]], inputs: Sequence[tf.Tensor], outputs: int
) -> list[tf.Tensor]:
    """Runs one op eagerly on this thread; attributes are (name, serialized AttrValue), inputs are flat.

    Raises: tf.errors.OpError  the op's own error, or an unknown op, attribute or function.
    """
    with _status() as status:
        failed, running = function("TF_GetCode"), None
        handles, count = (_POINTER * max(outputs, 1))(), ctypes.c_int(outputs)
        running = function("TFE_NewOp")(_capsule_pointer(eager_handle(), None), op.encode(), status)
        if failed(status):
            return []
        try:
            for name, value in attributes:
                function("TFE_OpSetAttrValueProto")(running, name, value, len(value), status)
            for tensor in inputs:
                if not failed(status):
                    function("TFE_OpAddInput")(running, tensor_handle(tensor), status)
            if not failed(status):
                function("TFE_Execute")(running, handles, ctypes.byref(count), status)
        finally:
            function("TFE_DeleteOp")(running)
        if failed(status):
            return []
    return [_tensor_of_handle(handle or 0) for handle in handles[: count.value]]


def execute_function(
    name: str, attributes: tuple[object, ...], inputs: list[tf.Tensor], outputs: int
) -> list[tf.Tensor]:
    """Runs a function of the eager context on this thread. attributes: (name, value, ...).

    Raises: tf.errors.OpError  the error of one of its ops.
    """
    try:
        return eager_execute(eager_handle(), None, name, inputs, attributes, outputs)
    except ExecuteError as error:
        raise raised(error) from None


def op_definition(op: str) -> op_def_pb2.OpDef | None:
    """The OpDef of a registered op, or None."""
    return op_def_registry.get(op)


def function_definition(name: str) -> function_pb2.FunctionDef | None:
    """A function that is registered in the eager context, or None."""
    eager = context.context()
    return eager.get_function_def(name) if eager.has_function(name) else None


def add_function(definition: function_pb2.FunctionDef) -> None:
    """Registers a function in the eager context unless there is one of its name."""
    eager = context.context()
    if not eager.has_function(definition.signature.name):
        eager.add_function_def(definition)


# -- the grappler plug-in

_CONFIG_NAMES = (
    "disable_model_pruning",
    "implementation_selector",
    "function_optimization",
    "common_subgraph_elimination",
    "arithmetic_optimization",
    "debug_stripper",
    "constant_folding",
    "shape_optimization",
    "auto_mixed_precision",
    "auto_mixed_precision_onednn_bfloat16",
    "auto_mixed_precision_mkl",
    "pin_to_host_optimization",
    "layout_optimizer",
    "remapping",
    "loop_optimization",
    "dependency_optimization",
    "auto_parallel",
    "memory_optimization",
    "scoped_allocator_optimization",
)
_OFF = 1


class _Configs(ctypes.Structure):  # TP_OptimizerConfigs; a switch is 0 default, 1 off, 2 on
    _fields_ = [("struct_size", _SIZE), ("ext", _POINTER), *((name, ctypes.c_int) for name in _CONFIG_NAMES)]


class _Optimizer(ctypes.Structure):  # TP_Optimizer
    _fields_ = [
        ("struct_size", _SIZE),
        ("ext", _POINTER),
        ("create", _POINTER),
        ("optimize", _POINTER),
        ("destroy", _POINTER),
    ]


class _Registration(ctypes.Structure):  # TP_OptimizerRegistrationParams
    _fields_ = [
        ("struct_size", _SIZE),
        ("ext", _POINTER),
        ("major", ctypes.c_int32),
        ("minor", ctypes.c_int32),
        ("patch", ctypes.c_int32),
        ("device_type", _TEXT),
        ("configs", ctypes.POINTER(_Configs)),
        ("optimizer", ctypes.POINTER(_Optimizer)),
    ]


_keep: list[object] = []  # callbacks that TensorFlow holds until the process ends
_Optimize = ctypes.CFUNCTYPE(
    None, _POINTER, ctypes.POINTER(_Buffer), _POINTER, ctypes.POINTER(_Buffer), _POINTER
)


def register_graph_optimizer(
    device: str,
    optimize: Callable[[bytes, int], bytes | None],
    gate: Callable[[int], int],
    turn_off: Sequence[str] = (),
) -> None:
    """Registers a graph optimizer for a device type, for the rest of the process.

    `optimize` gets a serialized GraphDef and its grappler item's address, and returns the new one or None
    for no change; it must not raise. `gate` gets the address of the C function that calls it and returns the
    one that TensorFlow is to call, which is all of Python that it calls. `turn_off` names optimizers of
    TensorFlow to switch off with it.
    Raises: TensorFlowMismatch; RuntimeError  TensorFlow refuses (one optimizer per device type).
    """
    check(PLUGIN)
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = _POINTER, [_SIZE], [_POINTER]
    create, destroy = address("TF_NewStatus"), address("TF_DeleteStatus")  # any object that is not null
    release = ctypes.cast(libc.free, _POINTER)

    def run(_: int, graph_in: Any, item: int, graph_out: Any, __: int) -> None:
        graph_bytes = ctypes.string_at(graph_in.contents.data, graph_in.contents.length)
        optimized = optimize(graph_bytes, item)
        data = graph_bytes if optimized is None else optimized
        copy = libc.malloc(max(len(data), 1))
        ctypes.memmove(copy, data, len(data))
        out = graph_out.contents
        out.data, out.length, out.deallocator = copy, len(data), release

    def fill(registration: Any, _: int) -> None:
        r = registration.contents
        r.struct_size, r.device_type = ctypes.sizeof(_Registration), device_type
        r.configs.contents.struct_size = ctypes.sizeof(_Configs)
        for name in turn_off:
            setattr(r.configs.contents, name, _OFF)
        o = r.optimizer.contents
        o.struct_size = ctypes.sizeof(_Optimizer)
        o.create, o.optimize, o.destroy = create, entry, destroy

    device_type = device.encode()  # TensorFlow reads it after `fill` has returned
    run_callback = _Optimize(interrupts.callback(run, is_whole=True))
    entry = gate(ctypes.cast(run_callback, _POINTER).value or 0)
    fill_callback = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Registration), _POINTER)(fill)
    _keep.extend((run_callback, fill_callback, device_type))
    status = function(_PLUGIN_SYMBOL)(ctypes.cast(fill_callback, _POINTER))
    if status.word != ok_status():
        raise RuntimeError(
            f"TensorFlow {tf.__version__} refused the optimizer for {device}; only one can "
            "be registered for a device type"
        )


# Modules of native functions that keep Python's lock while threads of theirs run sessions.
_KEEPING_THE_LOCK = (
    "tensorflow.compiler.mlir.lite.python._pywrap_converter_api",
    "tensorflow.python._pywrap_mlir",
    "tensorflow.compiler.mlir.quantization.tensorflow.python.pywrap_quantize_model",
)


def wrap_functions_that_keep_the_lock(wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Puts what `wrapper` makes of each in the place of the functions that keep Python's lock while sessions run."""
    for name in _KEEPING_THE_LOCK:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            for public in [n for n in dir(module) if not n.startswith("_") and callable(getattr(module, n))]:
                setattr(module, public, wrapper(getattr(module, public)))


def _item_names(item: int, which: str) -> list[str]:
    count, size = ctypes.c_int(), _SIZE()
    with _status() as status:
        function(f"TF_Get{which}ListSize")(item, ctypes.byref(count), ctypes.byref(size), status)
    if not count.value:
        return []
    values, lengths = (_POINTER * count.value)(), (_SIZE * count.value)()
    storage = ctypes.create_string_buffer(max(size.value, 1))
    with _status() as status:
        function(f"TF_Get{which}List")(item, values, lengths, count.value, storage, size.value, status)
    return [ctypes.string_at(value, length).decode() for value, length in zip(values, lengths)]


def nodes_to_preserve(item: int) -> list[str]:
    """Names of the nodes that an optimizer must keep: feeds, fetches, init ops, ... of a grappler item."""
    return _item_names(item, "NodesToPreserve")


def fetch_nodes(item: int) -> list[str]:
    """Names of the nodes that a grappler item fetches."""
    return _item_names(item, "FetchNodes")


def optimize_small_graphs() -> None:
    """Lets the graph optimizers see graphs under four nodes too, in functions of the eager context."""
    context.context().set_optimizer_experimental_options({"min_graph_nodes": -1})


def optimize_graph(concrete: ConcreteFunction) -> None:
    """Runs the graph optimizers, the graph pass too, over the graph of a concrete function. Nothing is executed."""
    graph_def = concrete.graph.as_graph_def()
    for node in graph_def.node:
        node.device = node.device or "/job:localhost/replica:0/task:0/device:CPU:0"
    meta_graph = tf.compat.v1.train.export_meta_graph(graph_def=graph_def, graph=concrete.graph)
    ends = [
        *(tensor.name for tensor in concrete.outputs),
        *(op.name for op in concrete.graph.control_outputs),
    ]
    if not ends:  # which the optimizers refuse, and nothing is left of
        return
    meta_graph.collection_def["train_op"].node_list.value.extend(ends)
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    tf_optimizer.OptimizeGraph(config, meta_graph)


def constant_results(graph_def: tf.compat.v1.GraphDef, name: str) -> list[np.ndarray] | None:
    """The values of a node's results; None where it fails, or a result is no array of numbers."""
    values = []
    with tf.Graph().as_default() as graph:
        try:
            tf.graph_util.import_graph_def(graph_def, name="")
            for tensor in graph.get_operation_by_name(name).outputs:
                value = tensor_util.try_evaluate_constant(tensor)
                if value is None or tensor.dtype == tf.string:
                    return None
                values.append(value)
        except (ValueError, tf.errors.OpError):
            return None
    return values


# -- tf.function


def prefetch_tracing() -> None:
    """Makes ops in a graph that nobody needs, as TensorFlow's first ones take longer."""
    with tf.Graph().as_default():
        tf.nn.relu(tf.compat.v1.placeholder(tf.float32, [2]) * 2.0 + 1.0)


# tf.function itself, also in a program that puts tfbridge.jit in its place.
new_function = polymorphic_function.function


def is_function(function: object) -> bool:
    """Whether something is a tf.function."""
    return isinstance(function, polymorphic_function.Function)


def is_concrete(function: object) -> bool:
    """Whether something is a concrete function: one trace of a tf.function, a signature of a SavedModel."""
    return isinstance(function, concrete_function.ConcreteFunction)


@functools.cache
def on_jit_compile(replaced: Callable[[Callable[..., Any], Any], Callable[..., Any] | None]) -> None:
    """From now on asks about every tf.function that is made with jit_compile=True.

    What `replaced` returns for its Python function and AutoGraph's features is traced in its place, without XLA; None
    leaves it to XLA.
    """
    original = polymorphic_function.Function.__init__

    def make(self: Any, python_function: Callable[..., Any], *args: object, **kwargs: object) -> None:
        original(self, python_function, *args, **kwargs)
        if (
            self._jit_compile
            and (other := replaced(python_function, self._experimental_autograph_options)) is not None
        ):
            self._jit_compile = None
            self._python_function = other

    polymorphic_function.Function.__init__ = make


def python_function(function: Any) -> Callable[..., Any]:
    """The Python function behind a tf.function; a plain function as it is."""
    return function.python_function if is_function(function) else function


def autograph_features(function: Any) -> Any:
    """What a tf.function asks AutoGraph to do besides its usual work; None for a plain function."""
    return function._experimental_autograph_options if is_function(function) else None


def function_like(function: Any, body: Callable[..., Any]) -> Any:
    """A tf.function of `body`, with the signature and options of `function` where that is one."""
    if not is_function(function):
        return new_function(body)
    return new_function(
        body,
        input_signature=function.input_signature,
        autograph=function._autograph,
        reduce_retracing=function._reduce_retracing,
        experimental_attributes=function._attributes,
        experimental_autograph_options=function._experimental_autograph_options,
    )


def decorator(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper, known to TensorFlow as one. It is to call its own `__wrapped__`, which is the function at first:
    AutoGraph stores the rewritten function there, and does not change the wrapper."""
    return tf_decorator.make_decorator(function, wrapper)


@functools.cache
def _conversion(is_requested: bool) -> Any:
    """AutoGraph's options for a function that is traced, or for one that such a function calls."""
    options = converter.ConversionOptions(recursive=True, user_requested=True, optional_features=None)
    return options if is_requested else options.call_options()


def converts(function: object, is_requested: bool) -> bool:
    """Whether AutoGraph rewrites a function. `is_requested`: it is traced itself, not called by a traced function."""
    return (
        AUTOGRAPH not in missing()
        and ag_ctx.control_status_ctx().status != ag_ctx.Status.DISABLED
        and not isinstance(getattr(function, "__self__", None), tf_method_target.TfMethodTarget)
        and not conversion.is_in_allowlist_cache(function, _conversion(is_requested))
        and not api.is_autograph_artifact(function)
        and not conversion.is_unsupported(function)
        and (is_requested or not conversion.is_allowlisted(function))
    )


def converting() -> Any:
    """A context: within, TensorFlow rewrites functions that it is given to call, as in one that AutoGraph rewrote."""
    return ag_ctx.ControlStatusCtx(ag_ctx.Status.ENABLED, _conversion(True))


def converted_call(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    """Calls what AutoGraph makes of a function, or the function where AutoGraph leaves it as it is."""
    return api.converted_call(function, args, kwargs or None, options=_conversion(False))


def autograph_artifact(function: object) -> Any:
    """The function, marked as one that AutoGraph is done with."""
    return api.autograph_artifact(function)


def with_constant_variables(concrete: ConcreteFunction) -> ConcreteFunction:
    """A concrete function whose variables are constants of their value now; loops stay functional."""
    return convert_variables_to_constants_v2(concrete, lower_control_flow=False)


def may_call_directly() -> bool:
    """Whether ops run at once, on a device of TensorFlow's choice, no graph, tape or accumulator is active, and
    functions are not to be run op by op."""
    here = context.context()._thread_local_data
    return (
        here.is_eager
        and not here.device_name
        and pywrap_tfe.TFE_Py_TapeSetIsEmpty()
        and not eager_function_run.RUN_FUNCTIONS_EAGERLY
    )


def may_hook_calls() -> bool:
    """Whether a hook may run a function that is called now: as above, and no op callback watches the call."""
    return (
        may_call_directly()
        and not context.context()._thread_local_data.op_callbacks
        and not ops.get_default_graph()._distribution_strategy_stack
    )


def call_concrete(
    concrete: ConcreteFunction, tensors: Sequence[tf.Tensor], captured: Sequence[tf.Tensor]
) -> Any:
    """Calls a concrete function as TensorFlow does, without a hook."""
    original = inspect.unwrap(concrete_function.ConcreteFunction._call_flat)
    return original(concrete, list(tensors), list(captured))


@contextlib.contextmanager
def without_graph_passes() -> Iterator[None]:
    """Within, functions that this thread calls are their own forms, which no graph pass of a plugin has changed."""
    process = context.context()
    options = process.function_call_options
    process.function_call_options = _without_graph_passes(
        options.config_proto_serialized or b"", options.executor_type
    )
    try:
        yield
    finally:
        process.function_call_options = options


@functools.lru_cache(8)
def _without_graph_passes(config: bytes, executor: str | None) -> context.FunctionCallOptions:
    changed = tf.compat.v1.ConfigProto.FromString(config)
    changed.graph_options.rewrite_options.use_plugin_optimizers = rewriter_config_pb2.RewriterConfig.OFF
    return context.FunctionCallOptions(executor, changed)


def prepare_without_graph_passes(concrete: ConcreteFunction, inputs: list[tf.Tensor]) -> None:
    """Makes that form of a concrete function ready, for such inputs."""
    with without_graph_passes():
        prepare(concrete, inputs)


def prepare(concrete: ConcreteFunction, inputs: list[tf.Tensor]) -> None:
    """Makes a concrete function ready, for such inputs: by a call that is cancelled before an op runs."""
    function = concrete._inference_function
    attributes = itertools.chain(*context.context().function_call_options.as_attrs().items())
    outputs = len(function.function_type.flat_outputs)
    prepare_function(function.name.decode(), tuple(attributes), inputs, outputs)


def prepare_function(
    name: str, attributes: tuple[object, ...], inputs: list[tf.Tensor], outputs: int
) -> None:
    """Makes a function of the eager context ready, for such inputs: by a call that is cancelled before an op runs."""
    manager = cancellation.CancellationManager()
    manager.start_cancel()
    with contextlib.suppress(errors_impl.CancelledError):
        execute.execute_with_cancellation(
            name,
            num_outputs=outputs,
            inputs=inputs,
            attrs=attributes,
            ctx=context.context(),
            cancellation_manager=manager,
        )


@functools.cache
def on_eager_calls(
    of_function: Callable[..., Any], of_concrete: Callable[..., Any], of_tensors: Callable[..., Any]
) -> None:
    """From now on calls of tf.functions go to `of_function(original, function, args, kwargs)`, those of concrete
    functions to `of_concrete(original, concrete, args, kwargs)`, and those that reach a concrete function to
    `of_tensors(original, concrete, tensors, captured)`."""
    call, call_concrete = polymorphic_function.Function.__call__, concrete_function.ConcreteFunction.__call__
    call_flat = concrete_function.ConcreteFunction._call_flat

    @functools.wraps(call)
    def called(self: Any, *args: object, **kwargs: object) -> Any:
        return of_function(call, self, args, kwargs)

    @functools.wraps(call_concrete)
    def called_concrete(self: Any, *args: object, **kwargs: object) -> Any:
        return of_concrete(call_concrete, self, args, kwargs)

    @functools.wraps(call_flat)
    def called_flat(self: Any, tensor_inputs: list[tf.Tensor], captured_inputs: list[tf.Tensor]) -> Any:
        return of_tensors(call_flat, self, tensor_inputs, captured_inputs)

    polymorphic_function.Function.__call__ = called
    concrete_function.ConcreteFunction.__call__ = called_concrete
    concrete_function.ConcreteFunction._call_flat = called_flat


def count_calls(function: Any, count: int) -> None:
    """Tells TensorFlow, which warns of functions that are traced in most calls, of calls that it has not seen."""
    for _ in range(min(count, polymorphic_function.FREQUENT_TRACING_WARNING_MAX_CALL_HISTORY + 1)):
        polymorphic_function._frequent_tracing_detector_manager.called_without_tracing(
            function._key_for_call_stats
        )


def has_symbolic_captures(concrete: ConcreteFunction) -> bool:
    """Whether a concrete function captured tensors of another graph: callers pass others for them, as a tape does that
    calls the function of a gradient."""
    return any(
        isinstance(c, tf.Tensor) and not isinstance(c, ops.EagerTensor) for c in concrete.captured_inputs
    )


def makes_captures_anew(concrete: ConcreteFunction) -> bool:
    """Whether some of what a concrete function captured is made at each of its calls."""
    return any(map(callable, concrete._captured_inputs))


@functools.cache
def has_only_cpus() -> bool:
    """Whether every tensor of this process lies in the machine's memory."""
    return all(device.device_type == "CPU" for device in context.context().list_logical_devices())


def eager_tensor_type() -> type:
    """The Python type of eager tensors."""
    return ops.EagerTensor


def composite_tensor_type() -> type:
    """The Python type of what consists of tensors: ragged and sparse ones, extension types, optionals, datasets."""
    composite: type = tf.__internal__.CompositeTensor
    return composite


def tensor_key(tensor: tf.Tensor) -> tuple[int, tuple[int, ...]]:
    """dtype and dims of an eager tensor. Raises: AttributeError  it is something else."""
    return tensor._datatype_enum(), tensor._shape_tuple()


def flat_arguments(
    traced: Any, concrete: ConcreteFunction, args: tuple[object, ...], kwargs: dict[str, object]
) -> list[tf.Tensor]:
    """The tensors that a concrete function of a tf.function takes, in its order, from the arguments of a call."""
    whole = function_type_utils.canonicalize_function_inputs(
        args, kwargs, traced.function_type, traced._default_values
    )
    type_ = concrete.function_type
    return list(type_.unpack_inputs(type_.bind(*whole.args, **whole.kwargs)))


def variable_type(graph: tf.Graph, inner: tf.Tensor, captured: tf.Tensor) -> int:
    """DataType number of the content of a variable whose handle is captured by a function."""
    for handle in (captured, inner):
        data = getattr(handle, "_handle_data", None)
        if data is not None and data.is_set and data.shape_and_type:
            return int(data.shape_and_type[0].dtype)
    return 0


def remove_function(name: str) -> None:
    """Takes a function out of the eager context, with what TensorFlow made of it."""
    eager = context.context()
    if eager.has_function(name):
        eager.remove_function(name)


def read_variable(handle: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The value of a variable now, by its eager handle. Raises: tf.errors.OpError  uninitialized."""
    try:
        return eager_execute(
            context.context()._handle, None, "ReadVariableOp", [handle], ("dtype", dtype.as_datatype_enum), 1
        )[0]
    except ExecuteError as error:
        raise raised(error) from None


def content_shape(handle: tf.Tensor, dtype: tf.DType) -> tf.TensorShape:
    """The shape of a variable's value, by its handle; the declared one for a graph's handle, or without a value."""
    if isinstance(handle, eager_tensor_type()):
        try:
            return read_variable(handle, dtype).shape
        except tf.errors.OpError:
            pass
    data = getattr(handle, "_handle_data", None)
    is_known = data is not None and data.is_set and data.shape_and_type
    return tf.TensorShape(data.shape_and_type[0].shape if data is not None and is_known else None)


def assign_variable(handle: tf.Tensor, value: tf.Tensor) -> None:
    """Makes a tensor the value of a variable, by its eager handle; the memory is shared, not copied."""
    try:
        eager_execute(
            context.context()._handle,
            None,
            "AssignVariableOp",
            [handle, value],
            ("dtype", value._datatype_enum(), "validate_shape", False),
            0,
        )
    except ExecuteError as error:
        raise raised(error) from None


# -- marks on nodes


@contextlib.contextmanager
def attribute_scope(name: str, value: bytes) -> Iterator[None]:
    """Within, nodes made in the default graph have a string attribute. In eager mode: nothing."""
    if context.executing_eagerly():
        yield
        return
    with ops.get_default_graph()._attr_scope({name: attr_value_pb2.AttrValue(s=value)}):
        yield


@contextlib.contextmanager
def attribute_afterwards(name: str, value: bytes) -> Iterator[None]:
    """As `attribute_scope`, but the nodes get the attribute at the end, all at once: a tenth of tracing's time less."""
    if context.executing_eagerly():
        yield
        return
    graph = ops.get_default_graph()
    first = len(graph.get_operations())
    graph._tfbridge_marked_later = True
    try:
        yield
    finally:
        graph._tfbridge_marked_later = False
        with c_api_util.tf_buffer(attr_value_pb2.AttrValue(s=value).SerializeToString()) as content:
            for operation in graph.get_operations()[first:]:
                operation._set_attr_with_buf(name, content)


@functools.cache
def mark_gradients(name: str) -> None:
    """From now on the nodes of an op's gradient have the attribute of that name that the op has."""
    original = gradients_util._MaybeCompile

    def marking(scope: str, op: Any, func: Any, grad_fn: Callable[[], Any]) -> Any:
        if getattr(ops.get_default_graph(), "_tfbridge_marked_later", False):
            return original(scope, op, func, grad_fn)
        try:
            mark = op.get_attr(name)
        except (ValueError, AttributeError):
            return original(scope, op, func, grad_fn)
        with attribute_scope(name, mark):
            return original(scope, op, func, grad_fn)

    gradients_util._MaybeCompile = marking


def gradient_source(op: str) -> str | None:
    """The source of the gradient function of an op; None where it has none, or is declared not to have one."""
    try:
        function = ops.gradient_registry.lookup(op)
    except LookupError:
        return None
    return None if function is None else inspect.getsource(function)


def gradient_function(
    definition: FunctionDef, library: Sequence[FunctionDef], name: str
) -> tuple[FunctionDef, Sequence[FunctionDef]]:
    """(the FunctionDef `name` of a FunctionDef's gradient, the functions that it may call).

    It takes the function's arguments and gradients of its results, and gives those of the arguments.
    """
    with tf.Graph().as_default():
        functions = function_pb2.FunctionDefLibrary(function=library)
        tf.graph_util.import_graph_def(tf.compat.v1.GraphDef(library=functions), name="")
        graph = function_def_to_graph(definition)
        with graph.as_default():
            inputs = list(graph.inputs)
            seeds = [tf.compat.v1.placeholder(t.dtype, t.shape) for t in graph.outputs]
            gradients = tf.gradients(graph.outputs, inputs, seeds)
            results = [
                tf.zeros_like(x) if g is None else tf.convert_to_tensor(g) for x, g in zip(inputs, gradients)
            ]
    arguments = [*inputs, *seeds]
    ends = {t.op for t in arguments}
    gradient = graph_to_function_def(
        graph, [op for op in graph.get_operations() if op not in ends], arguments, results
    )
    gradient.signature.name = name
    return gradient, list(graph.as_graph_def().library.function)


def xla_message(name: str, data: bytes) -> Any:
    """A message of XLA's protocol, such as DotDimensionNumbers, from its bytes."""
    from tensorflow.compiler.xla import xla_data_pb2

    return getattr(xla_data_pb2, name).FromString(data)


def xla_lowering(
    definition: NodeDef, inputs: Sequence[tf.TensorSpec], outputs: Sequence[int]
) -> tuple[str, Callable[[], bytes]]:
    """(HLO text of one node, where long constants are left out; what gives the same as a serialized HloModuleProto).

    outputs: the DataType numbers of its outputs.
    """

    def function(*arguments: tf.Tensor) -> Any:
        graph = tf.compat.v1.get_default_graph()
        return graph.create_op(
            definition.op, arguments, [tf.as_dtype(t) for t in outputs], None, "node", dict(definition.attr)
        ).outputs

    traced = new_function(function, autograph=False)
    traced._jit_compile = True  # behind the back of `on_jit_compile`
    with tf.init_scope(), tf.device("CPU:0"):
        lower = traced.experimental_get_compiler_ir(*inputs)
        return lower(stage="hlo_no_metadata"), lambda: lower(stage="hlo_serialized")


def hlo_literals(data: bytes) -> dict[str, Any]:
    """The LiteralProto of every constant of a serialized HloModuleProto, by the instruction's name."""
    from tensorflow.compiler.xla.service import hlo_pb2

    module = hlo_pb2.HloModuleProto.FromString(data)
    return {i.name: i.literal for c in module.computations for i in c.instructions if i.opcode == "constant"}


def uniform_convolution_numbers(data: bytes) -> Any:
    """The dimension numbers of a quantized convolution from their bytes."""
    from tensorflow.core.util.quantization import uniform_quant_ops_attr_pb2

    return uniform_quant_ops_attr_pb2.UniformQuantizedConvolutionDimensionNumbersAttr.FromString(data)


def lite_schema() -> Any:
    """The classes of LiteRT's schema: `ModelT.InitFromPackedBuf(bytes)` reads a file."""
    from tensorflow.lite.python import schema_py_generated

    return schema_py_generated


# -- products and conversions that TensorFlow's own operations lack


def xla_dot(left: tf.Tensor, right: tf.Tensor, contracting: tuple[int, int], result: tf.DType) -> tf.Tensor:
    """The product over an axis of each, of any element types, summed in the type of the result: for graphs alone."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops
    from tensorflow.compiler.xla import xla_data_pb2

    numbers = xla_data_pb2.DotDimensionNumbers(
        lhs_contracting_dimensions=[contracting[0]], rhs_contracting_dimensions=[contracting[1]]
    )
    return gen_xla_ops.xla_dot_v2(left, right, numbers.SerializeToString(), "", result)


def xla_convolution(
    x: tf.Tensor,
    kernel: tf.Tensor,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    dimension_numbers: dict[str, Any],
    result: tf.DType,
) -> tf.Tensor:
    """The convolution of any element types, summed in the type of the result: for graphs alone. dimension_numbers: the
    fields of XLA's ConvolutionDimensionNumbers."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops
    from tensorflow.compiler.xla import xla_data_pb2

    numbers = xla_data_pb2.ConvolutionDimensionNumbers(**dimension_numbers)
    settings = [tf.constant(v, tf.int32) for v in (strides, padding, base_dilation, dilation, groups)]
    return gen_xla_ops.xla_conv_v2(
        x, kernel, *settings, numbers.SerializeToString(), "", result, batch_group_count=1
    )


def xla_pad(
    x: tf.Tensor, value: tf.Tensor, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> tf.Tensor:
    """x with so many values before, behind and between its elements along each axis: for graphs alone."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    return gen_xla_ops.xla_pad(x, value, *(tf.constant(v, tf.int32) for v in (low, high, interior)))


def xla_dynamic_update_slice(x: tf.Tensor, update: tf.Tensor, begin: tf.Tensor) -> tf.Tensor:
    """x with the update at a place, moved so that it fits: for graphs alone."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    return gen_xla_ops.xla_dynamic_update_slice(x, update, begin)


SATURATES = "_saturates"
"""The attribute of a Cast that saturates, as TensorFlow's does on no processor for all types."""


def saturating_cast(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Floats as integers, truncated, those out of range as the nearest there is, NaN as 0; for graphs alone."""
    with attribute_scope(SATURATES, b"yes"):
        return tf.cast(x, dtype)
