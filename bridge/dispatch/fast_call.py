"""Calls from Python to compiled code with nothing between: builtin functions, written as LLVM IR.

TensorFlow's eager executor looks an op's kernel up by its attributes on every call. A function that is called with
tensors of the shapes of its last call can do without: its builtin compares them with one entry of the launch op, reads
the data pointers, makes the outputs and runs the code. The same goes for NumPy arrays. Whatever is not as the builtin
wants it (another shape, a type, an error) is answered by `NotImplemented`, and the caller goes the long way.

A builtin's `self` is the address of a `Call`. The GIL is held while Python objects are touched, and only then.
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
from ...runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64
from ..launch import kernel
from ..launch import op as launch_op
from ..tf_internals import symbols as private
from . import fast_call_variables
from .fast_call_variables import Captured

Builtin = Callable[..., Any]


class Call(ctypes.Structure):
    """What a builtin knows. `args` is the number of Python arguments, `inputs` that of the entry.

    sources   per input: number of the Python argument, -1 - k for entry k of `held`, or VARIABLE
    held      tensor handles (data pointers for arrays) of inputs that every call has in common
    variables, uses  tables of fast_call_variables: what is captured and read
    types     per Python argument: what its type must be, a DataType number or the address of an array's descr
    makers    for arrays, per result: a callable and its tuple of arguments
    type      the Python type that every argument must have exactly
    single    the one result is returned, not a list of results
    """

    _fields_ = [
        ("entry", ctypes.c_void_p),
        ("args", ctypes.c_int64),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        ("sources", ctypes.c_void_p),
        ("held", ctypes.c_void_p),
        ("types", ctypes.c_void_p),
        ("makers", ctypes.c_void_p),
        ("type", ctypes.c_void_p),
        ("single", ctypes.c_int64),
        ("refusal", ctypes.c_void_p),
        ("variables", ctypes.c_void_p),
        ("captured", ctypes.c_int64),
        ("uses", ctypes.c_void_p),
        ("used", ctypes.c_int64),
    ]


class _MethodDef(ctypes.Structure):
    """PyMethodDef of Python's C API."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


VARIABLE = -1 << 62  # in `sources`
_METH_FASTCALL = 0x80
_PYTHON = (
    "PyLong_AsVoidPtr",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyList_New",
    "PyList_SetItem",
    "PyObject_CallObject",
    "Py_IncRef",
    "Py_DecRef",
)

# PyArrayObject_fields of NumPy's C API, after the object's head: data, nd, dimensions, strides, base, descr, flags.
_DATA, _RANK, _DIMS, _DESCR, _FLAGS = (object.__basicsize__ + at for at in (0, 8, 16, 40, 48))
_CONTIGUOUS_AND_ALIGNED = 0x1 | 0x100


def of_tensors(
    found: launch_op.Found,
    sources: Sequence[int | tf.Tensor | Captured],
    dtypes: Sequence[tf.DType],
    single: bool,
) -> Builtin:
    """A builtin that runs an entry on eager tensors: `dtypes` per argument of the call, `sources` per input of the
    entry (the number of an argument, or a tensor or variable that every call has in common).

    Raises: TensorFlowMismatch  this TensorFlow lacks what that needs.
    """
    private.check(private.DIRECT)
    handles = [private.tensor_handle(s) for s in sources if not isinstance(s, int | Captured)]
    return _builtin(
        "tfbridge_call_tensors",
        found,
        sources,
        handles,
        [d.as_datatype_enum for d in dtypes],
        private.eager_tensor_type(),
        single,
        [],
    )


def of_arrays(
    found: launch_op.Found,
    sources: Sequence[int | np.ndarray | Captured],
    dtypes: Sequence[np.dtype],
    single: bool,
) -> Builtin:
    """A builtin that runs an entry on NumPy arrays in C order, else as above. No output may be an input."""
    _check_arrays()
    held = [s.ctypes.data for s in sources if not isinstance(s, int | Captured)]
    makers = [
        x for dtype, dims in found.results for x in (empty_array, (dims, np.dtype(dtype.as_numpy_dtype)))
    ]
    return _builtin(
        "tfbridge_call_arrays",
        found,
        sources,
        held,
        list(map(id, dtypes)),
        np.ndarray,
        single,
        makers,
        dtypes,
    )


def _builtin(
    symbol: str,
    found: launch_op.Found,
    sources: Sequence[Any],
    held: Sequence[int],
    types: Sequence[int],
    type_: type,
    single: bool,
    makers: Sequence[Any],
    keep: Any = None,
) -> Builtin:
    numbers = iter(range(-1, -1 - len(held), -1))
    places = [
        s if isinstance(s, int) else VARIABLE if isinstance(s, Captured) else next(numbers) for s in sources
    ]
    tables = [
        (ctypes.c_int64 * max(len(words), 1))(*words)
        for words in (places, held, types, list(map(id, makers)))
    ]
    variables, uses = fast_call_variables.tables(sources)
    call = Call(
        ctypes.addressof(found.entry),
        len(types),
        len(sources),
        len(found.results),
        *map(ctypes.addressof, tables),
        id(type_),
        single,
        id(NotImplemented),
        ctypes.addressof(variables),
        len(variables),
        ctypes.addressof(uses),
        len(uses),
    )
    held_self = _Self(ctypes.addressof(call))
    held_self.keep = (call, tables, variables, uses, found, sources, type_, makers, keep)
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    return new(ctypes.addressof(_method(symbol)), held_self, None)


class _Self(int):
    """The address of a `Call`, and in `keep` what must live as long."""

    keep: Any


@functools.cache
def _method(symbol: str) -> _MethodDef:
    return _MethodDef(b"call", _functions()[symbol], _METH_FASTCALL, None)


@functools.cache
def _check_arrays() -> None:
    """Raises: ImportError  this NumPy lays arrays out otherwise."""
    probe = np.arange(6, dtype=np.int16).reshape(2, 3)

    def word(at: int) -> int:
        return ctypes.c_int64.from_address(id(probe) + at).value

    found = (
        word(_DATA),
        word(_RANK) & 0xFFFFFFFF,
        ctypes.c_int64.from_address(word(_DIMS) + 8).value,
        word(_DESCR),
        word(_FLAGS) & _CONTIGUOUS_AND_ALIGNED,
    )
    if found != (probe.ctypes.data, 2, 3, id(probe.dtype), _CONTIGUOUS_AND_ALIGNED):
        raise ImportError(f"NumPy {np.__version__} lays arrays out in another way than expected")


def prefetch() -> None:
    """Starts to compile the builtins' functions in the background."""
    linker.prepare_text(_module().text())


def load() -> None:
    """Loads the builtins' functions, which otherwise happens when one is first made."""
    _functions()


@functools.cache
def _module() -> ModuleText:
    module = ModuleText()
    for write in (
        fast_call_variables.write,
        kernel.write_new_tensor,
        _write_matching_tensors,
        _write_make_tensors,
        _write_call_tensors,
        _write_matching_arrays,
        _write_call_arrays,
    ):
        write(module)
    return module


@functools.cache
def _functions() -> dict[str, int]:
    """Addresses of the builtins' functions."""
    module = _module()
    imports = {
        name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _PYTHON
    }
    imports |= {
        symbol: private.address(symbol)
        for symbol in module.declarations
        if symbol.startswith(("TF_", "TFE_", "_Z"))
    }
    imports |= {"tfbridge_run_entry": launch_op.run_entry_address()}
    imports |= kernel.block_functions() | fast_call_variables.imports()
    exports = ("tfbridge_call_tensors", "tfbridge_call_arrays")
    return dict(linker.load_text(module.text(), exports, imports).keep().addresses)


# -- pieces that both builtins share

_NULL = Value("ptr", "null")
_TRUE, _FALSE = constant("i1", True), constant("i1", False)


def _get(f: Function, call: Value, name: str, type_: str = "i64") -> Value:
    """A field of the call."""
    return f.load(type_, f.offset(call, getattr(Call, name).offset), 8)


def _at(f: Function, table: Value, index: Value, type_: str = "ptr") -> Value:
    """One entry of a table of words."""
    return f.load(type_, f.offset(table, index, "i64"), 8)


def _if(f: Function, condition: Value, then: Callable[[], Value], otherwise: Value) -> Value:
    """The value of `then()` where the condition holds, else `otherwise`."""
    return f.branch(condition, lambda: [then()], lambda: [otherwise])[0]


def _all(f: Function, count: Value, test: Callable[[Value], Value]) -> Value:
    """Whether `test(k)` holds for every k below `count`; stops testing at the first that does not."""

    def step(k: Value, good: list[Value]) -> list[Value]:
        return [_if(f, good[0], lambda: test(k), _FALSE)]

    return f.loop(0, count, 1, step, [_TRUE])[0]


def _each(f: Function, count: Value, body: Callable[[Value], object]) -> None:
    def step(k: Value, _: list[Value]) -> None:
        body(k)

    f.loop(0, count, 1, step)


def _array(f: Function, type_: str, count: Value) -> Value:
    return f.op("ptr", f"alloca {type_}, {count}, align 16")


def _equal(f: Function, a: Value, b: Value) -> Value:
    return f.compare("icmp eq", a, b)


def _types_match(f: Function, call: Value, args: Value, count: Value) -> Value:
    """Whether the number of arguments is right and all are of exactly the wanted Python type."""
    wanted = _get(f, call, "type", "ptr")

    def is_wanted(k: Value) -> Value:
        head = _at(f, args, k)
        return _equal(f, f.load("ptr", f.offset(head, object.__basicsize__ - 8), 8), wanted)

    return _if(f, _equal(f, count, _get(f, call, "args")), lambda: _all(f, count, is_wanted), _FALSE)


def _source(f: Function, call: Value, number: Value, of_argument: Callable[[Value], Value]) -> Value:
    """What an input of the entry comes from: `of_argument(its number)`, or its word in `held`."""
    source = _at(f, _get(f, call, "sources", "ptr"), number, "i64")
    held = _get(f, call, "held", "ptr")
    return f.branch(
        f.compare("icmp sge", source, i64(0)),
        lambda: [of_argument(source)],
        lambda: [_at(f, held, f.binary("sub", i64(-1), source))],
    )[0]


def _shapes_match(f: Function, call: Value, test: Callable[[Value, Value, Value], Value]) -> Value:
    """Whether every input but variables has the dims of the entry's key; test(input, rank, dims) compares one."""
    entry = _get(f, call, "entry", "ptr")
    key = f.load("ptr", f.offset(entry, kernel.Entry.key.offset), 8)

    sources = _get(f, call, "sources", "ptr")

    def step(number: Value, carried: list[Value]) -> list[Value]:
        good, at = carried
        rank, dims = f.load("i64", at, 8), f.offset(at, 8)
        is_given = f.compare("icmp ne", _at(f, sources, number, "i64"), i64(VARIABLE))
        good = _if(f, f.binary("and", good, is_given), lambda: test(number, rank, dims), good)
        return [good, f.offset(dims, rank, "i64")]

    return f.loop(0, _get(f, call, "inputs"), 1, step, [_TRUE, key])[0]


def _run(f: Function, call: Value, args: Value, results: Value) -> Value:
    """Runs the entry's code on data pointers, which those of variables are added to; whether it was there and said
    that all went well."""
    entry = _get(f, call, "entry", "ptr")
    message = f.stack_slot(f"[{kernel.ERROR_CAPACITY} x i8]")
    code = f.op("ptr", f"load atomic ptr, {f.offset(entry, kernel.Entry.code.offset)} acquire, align 8")

    def run() -> Value:
        status = f.call("tfbridge_run_entry", "i32", [entry, code, args, results, message, _NULL])
        return _equal(f, status, constant("i32", 0))

    def run_on_variables() -> Value:
        variables, captured = _get(f, call, "variables", "ptr"), _get(f, call, "captured")
        fit = f.call(
            "hold_variables",
            "i1",
            [entry, variables, captured, _get(f, call, "uses", "ptr"), _get(f, call, "used"), args],
        )
        good = _if(f, fit, run, _FALSE)
        f.call("let_go_variables", "void", [variables, captured])
        return good

    def choose() -> Value:
        has_variables = f.compare("icmp ne", _get(f, call, "captured"), i64(0))
        return f.branch(has_variables, lambda: [run_on_variables()], lambda: [run()])[0]

    return _if(f, f.compare("icmp ne", code, _NULL), choose, _FALSE)


def _refuse(f: Function, call: Value) -> Value:
    refusal = _get(f, call, "refusal", "ptr")
    f.call("Py_IncRef", "void", [refusal])
    return refusal


def _listed(f: Function, call: Value, made: Callable[[Value], Value]) -> Value:
    """The one result, or a list of all; null where one of them could not be made."""
    outputs = _get(f, call, "outputs")

    def listed() -> Value:
        whole = f.call("PyList_New", "ptr", [outputs])

        def fill() -> Value:
            def set_item(number: Value) -> Value:
                item = made(number)
                f.call("PyList_SetItem", "i32", [whole, number, item])
                return f.compare("icmp ne", item, _NULL)

            def drop() -> Value:
                f.call("Py_DecRef", "void", [whole])
                return _NULL

            return f.branch(_all(f, outputs, set_item), lambda: [whole], lambda: [drop()])[0]

        return _if(f, f.compare("icmp ne", whole, _NULL), fill, _NULL)

    return f.branch(
        f.compare("icmp ne", _get(f, call, "single"), i64(0)), lambda: [made(i64(0))], lambda: [listed()]
    )[0]


# -- tensors


def _write_matching_tensors(module: ModuleText) -> None:
    """matching_tensors(call, handles, data, status): whether the handles fit the entry; their data pointers.

    Waits for tensors that are still being computed.
    """
    f = Function(
        module, "matching_tensors", [("ptr", n) for n in ("call", "handles", "data", "status")], "i1"
    )
    call = f["call"]
    types, args = _get(f, call, "types", "ptr"), _get(f, call, "args")

    def has_type(k: Value) -> Value:
        found = f.call("TFE_TensorHandleDataType", "i32", [_at(f, f["handles"], k)])
        return _equal(f, f.cast("zext", found, "i64"), _at(f, types, k, "i64"))

    def fits(number: Value, rank: Value, dims: Value) -> Value:
        handle = _source(f, call, number, lambda k: _at(f, f["handles"], k))
        found = f.call("TFE_TensorHandleNumDims", "i32", [handle, f["status"]])

        def has_dim(axis: Value) -> Value:
            dim = f.call("TFE_TensorHandleDim", "i64", [handle, f.cast("trunc", axis, "i32"), f["status"]])
            return _equal(f, dim, _at(f, dims, axis, "i64"))

        def take() -> Value:
            data = f.call("TFE_TensorHandleDevicePointer", "ptr", [handle, f["status"]])
            f.store(data, f.offset(f["data"], number, "ptr"), 8)
            return _equal(f, f.call("TF_GetCode", "i32", [f["status"]]), constant("i32", 0))

        same = _if(f, _equal(f, f.cast("sext", found, "i64"), rank), lambda: _all(f, rank, has_dim), _FALSE)
        return _if(f, same, take, _FALSE)

    f.ret(_if(f, _all(f, args, has_type), lambda: _shapes_match(f, call, fits), _FALSE))
    module.add("matching_tensors", f.text())


def _write_make_tensors(module: ModuleText) -> None:
    """make_tensors(call, handles, results, made, status): whether all outputs got a handle and memory.

    An output that is an input as it was shares its memory.
    """
    f = Function(
        module, "make_tensors", [("ptr", n) for n in ("call", "handles", "results", "made", "status")], "i1"
    )
    call = f["call"]
    table = f.load("ptr", f.offset(_get(f, call, "entry", "ptr"), kernel.Entry.outputs.offset), 8)

    def read(output: Value, name: str, type_: str) -> Value:
        return f.load(
            type_, f.offset(output, getattr(kernel.Output, name).offset), 4 if type_ == "i32" else 8
        )

    def make(number: Value) -> Value:
        output = f.offset(table, f.binary("mul", number, i64(ctypes.sizeof(kernel.Output))))
        slot = f.offset(f["made"], number, "ptr")

        def share() -> Value:
            source = f.cast("sext", read(output, "source", "i32"), "i64")
            handle = _source(f, call, source, lambda k: _at(f, f["handles"], k))
            shared = f.call("TFE_TensorHandleCopySharingTensor", "ptr", [handle, f["status"]])
            f.store(shared, slot, 8)
            return f.compare("icmp ne", shared, _NULL)

        def allocate() -> Value:
            tensor = f.call("new_tensor", "ptr", [output])

            def wrap() -> Value:
                f.store(f.call("TF_TensorData", "ptr", [tensor]), f.offset(f["results"], number, "ptr"), 8)
                handle = f.call("TFE_NewTensorHandle", "ptr", [tensor, f["status"]])
                f.call("TF_DeleteTensor", "void", [tensor])
                f.store(handle, slot, 8)
                return f.compare("icmp ne", handle, _NULL)

            return _if(f, f.compare("icmp ne", tensor, _NULL), wrap, _FALSE)

        is_alias = _equal(f, read(output, "mode", "i32"), constant("i32", kernel.ALIAS))
        return f.branch(is_alias, lambda: [share()], lambda: [allocate()])[0]

    f.ret(_all(f, _get(f, call, "outputs"), make))
    module.add("make_tensors", f.text())


def _write_call_tensors(module: ModuleText) -> None:
    """call_tensors(self, arguments, their number): a METH_FASTCALL function on eager tensors."""
    f = Function(
        module,
        "tfbridge_call_tensors",
        [("ptr", "self"), ("ptr", "args"), ("i64", "count")],
        "ptr",
        linkage="",
    )
    call = f.call("PyLong_AsVoidPtr", "ptr", [f["self"]])

    def run() -> Value:
        inputs, outputs = _get(f, call, "inputs"), _get(f, call, "outputs")
        handles, data = _array(f, "ptr", f["count"]), _array(f, "ptr", inputs)
        results, made = _array(f, "ptr", outputs), _array(f, "ptr", outputs)

        def clear(number: Value) -> None:
            f.store(_NULL, f.offset(made, number, "ptr"), 8)

        def open_tensor(k: Value) -> None:
            handle = f.call(private.HANDLE_OF_TENSOR, "ptr", [_at(f, f["args"], k)])
            f.store(handle, f.offset(handles, k, "ptr"), 8)

        _each(f, outputs, clear)
        _each(f, f["count"], open_tensor)
        thread = f.call("PyEval_SaveThread", "ptr", [])
        status = f.call("TF_NewStatus", "ptr", [])

        def make_and_run() -> Value:
            ready = f.call("make_tensors", "i1", [call, handles, results, made, status])
            return _if(f, ready, lambda: _run(f, call, data, results), _FALSE)

        fits = f.call("matching_tensors", "i1", [call, handles, data, status])
        good = _if(f, fits, make_and_run, _FALSE)
        f.call("TF_DeleteStatus", "void", [status])
        f.call("PyEval_RestoreThread", "void", [thread])

        def take(number: Value) -> Value:
            return f.call(private.TENSOR_OF_HANDLE, "ptr", [_at(f, made, number), _FALSE])

        def drop() -> Value:
            def delete(number: Value) -> None:
                handle = _at(f, made, number)
                f.branch(
                    f.compare("icmp ne", handle, _NULL),
                    lambda: [f.call("TFE_DeleteTensorHandle", "void", [handle])][:0],
                )

            _each(f, outputs, delete)
            return _refuse(f, call)

        return f.branch(good, lambda: [_listed(f, call, take)], lambda: [drop()])[0]

    f.ret(
        f.branch(_types_match(f, call, f["args"], f["count"]), lambda: [run()], lambda: [_refuse(f, call)])[0]
    )
    module.add("tfbridge_call_tensors", f.text())


# -- arrays


def _write_matching_arrays(module: ModuleText) -> None:
    """matching_arrays(call, arguments, data): whether the arrays fit the entry; their data pointers."""
    f = Function(module, "matching_arrays", [("ptr", n) for n in ("call", "args", "data")], "i1")
    call = f["call"]
    types, args = _get(f, call, "types", "ptr"), _get(f, call, "args")

    def is_plain(k: Value) -> Value:
        array = _at(f, f["args"], k)
        flags = f.binary(
            "and", f.load("i32", f.offset(array, _FLAGS), 4), constant("i32", _CONTIGUOUS_AND_ALIGNED)
        )
        same_type = _equal(f, f.load("ptr", f.offset(array, _DESCR), 8), _at(f, types, k))
        return f.binary("and", same_type, _equal(f, flags, constant("i32", _CONTIGUOUS_AND_ALIGNED)))

    def fits(number: Value, rank: Value, dims: Value) -> Value:
        slot = f.offset(f["data"], number, "ptr")
        source = _at(f, _get(f, call, "sources", "ptr"), number, "i64")

        def compare() -> Value:
            array = _at(f, f["args"], source)
            found = f.cast("sext", f.load("i32", f.offset(array, _RANK), 4), "i64")
            own = f.load("ptr", f.offset(array, _DIMS), 8)
            f.store(f.load("ptr", f.offset(array, _DATA), 8), slot, 8)
            return _if(
                f,
                _equal(f, found, rank),
                lambda: _all(
                    f, rank, lambda axis: _equal(f, _at(f, own, axis, "i64"), _at(f, dims, axis, "i64"))
                ),
                _FALSE,
            )

        def take_held() -> Value:
            f.store(_at(f, _get(f, call, "held", "ptr"), f.binary("sub", i64(-1), source)), slot, 8)
            return _TRUE

        return f.branch(f.compare("icmp sge", source, i64(0)), lambda: [compare()], lambda: [take_held()])[0]

    f.ret(_if(f, _all(f, args, is_plain), lambda: _shapes_match(f, call, fits), _FALSE))
    module.add("matching_arrays", f.text())


def _write_call_arrays(module: ModuleText) -> None:
    """call_arrays(self, arguments, their number): a METH_FASTCALL function on NumPy arrays."""
    f = Function(
        module,
        "tfbridge_call_arrays",
        [("ptr", "self"), ("ptr", "args"), ("i64", "count")],
        "ptr",
        linkage="",
    )
    call = f.call("PyLong_AsVoidPtr", "ptr", [f["self"]])

    def run() -> Value:
        outputs = _get(f, call, "outputs")
        results, made = _array(f, "ptr", outputs), _array(f, "ptr", outputs)
        data = _array(f, "ptr", _get(f, call, "inputs"))

        def clear(number: Value) -> None:
            f.store(_NULL, f.offset(made, number, "ptr"), 8)

        def make(number: Value) -> Value:
            maker = f.offset(_get(f, call, "makers", "ptr"), f.binary("mul", number, i64(16)))
            parts = [f.load("ptr", f.offset(maker, at), 8) for at in (0, 8)]
            array = f.call("PyObject_CallObject", "ptr", parts)
            f.store(array, f.offset(made, number, "ptr"), 8)

            def take_data() -> Value:
                f.store(f.load("ptr", f.offset(array, _DATA), 8), f.offset(results, number, "ptr"), 8)
                return _TRUE

            return _if(f, f.compare("icmp ne", array, _NULL), take_data, _FALSE)

        def make_and_run() -> Value:
            def go() -> Value:
                thread = f.call("PyEval_SaveThread", "ptr", [])
                good = _run(f, call, data, results)
                f.call("PyEval_RestoreThread", "void", [thread])
                return f.branch(
                    good,
                    lambda: [_listed(f, call, lambda number: _at(f, made, number))],
                    lambda: [drop(True)],
                )[0]

            return f.branch(_all(f, outputs, make), lambda: [go()], lambda: [drop(False)])[0]

        def drop(refuse: bool) -> Value:
            """Gives the arrays back; without memory for one of them Python's error is set already."""

            def release(number: Value) -> None:
                array = _at(f, made, number)
                f.branch(
                    f.compare("icmp ne", array, _NULL), lambda: [f.call("Py_DecRef", "void", [array])][:0]
                )

            _each(f, outputs, release)
            return _refuse(f, call) if refuse else _NULL

        _each(f, outputs, clear)
        fits = f.call("matching_arrays", "i1", [call, f["args"], data])
        return f.branch(fits, lambda: [make_and_run()], lambda: [_refuse(f, call)])[0]

    f.ret(
        f.branch(_types_match(f, call, f["args"], f["count"]), lambda: [run()], lambda: [_refuse(f, call)])[0]
    )
    module.add("tfbridge_call_arrays", f.text())
