"""The native code of fast calls: METH_FASTCALL functions on eager tensors and on NumPy arrays.

The `self` of both is the address of a `Call`. The GIL is held while Python objects are touched, and only then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeAlias

from ...runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, Value, VectorValue
from ...runtime.llvm.types import parameters
from ..launch.native.calls import array, call_i1, call_i32, data_of, delete_tensor, has_failed, sign_extended
from ..launch.native.layouts import ENTRY, OUTPUT, layout_of, output_row
from ..launch.structs import ALIAS, ERROR_CAPACITY
from ..tf_internals import symbols as private

VARIABLE = -1 << 62  # in Call.sources

# PyArrayObject_fields of NumPy's C API, after the object's head: data, nd, dimensions, strides, base, descr, flags.
DATA, RANK, DIMS, DESCR, FLAGS = (object.__basicsize__ + at for at in (0, 8, 16, 40, 48))
CONTIGUOUS_AND_ALIGNED = 0x1 | 0x100
_TYPE = object.__basicsize__ - 8  # of any Python object


class Call(ctypes.Structure):
    """What a fast call knows. `args` is the number of Python arguments, `inputs` that of the entry.

    sources: per input: the number of the Python argument, -1 - k for entry k of `fixed`, or VARIABLE.
    fixed: tensor handles (data pointers for arrays) of inputs that are the same in every call.
    variables, uses: tables of fast_call_variables: the captured variables, and the inputs that read them.
    types: per Python argument: its required type, a DataType number or the address of an array's descr.
    makers: for arrays, per result: a callable and its tuple of arguments.
    type: the Python type that every argument must have exactly.
    single: the one result is returned, not a list of results.
    miss: the address of NotImplemented, which tells that the call is not for this entry.
    """

    _fields_ = [
        ("entry", ctypes.c_void_p),
        ("args", ctypes.c_int64),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        ("sources", ctypes.c_void_p),
        ("fixed", ctypes.c_void_p),
        ("types", ctypes.c_void_p),
        ("makers", ctypes.c_void_p),
        ("type", ctypes.c_void_p),
        ("single", ctypes.c_int64),
        ("miss", ctypes.c_void_p),
        ("variables", ctypes.c_void_p),
        ("variable_count", ctypes.c_int64),
        ("uses", ctypes.c_void_p),
        ("use_count", ctypes.c_int64),
    ]


_CALL = layout_of(Call)
_Test: TypeAlias = Callable[[Int], VectorValue]


def write(module: ModuleText) -> None:
    """Writes `tfbridge_call_tensors` and `tfbridge_call_arrays`, and the functions that they call."""
    _write_matching_tensors(module)
    _write_make_tensors(module)
    _write_call_tensors(module)
    _write_matching_arrays(module)
    _write_call_arrays(module)


# -- what both have in common


def _int(call: Ptr, name: str) -> Int:
    return _CALL.field(call, name).load_int()


def _ptr(call: Ptr, name: str) -> Ptr:
    return _CALL.field(call, name).load_ptr()


def _false(f: Function) -> VectorValue:
    return f.constant("i1", False)


def _all(f: Function, count: Int, test: _Test) -> VectorValue:
    """Whether `test(k)` holds for every k below `count`; stops testing at the first that does not."""
    with f.loop(0, count, good=f.constant("i1", True)) as loop, f.if_(loop.good):
        loop.good = test(loop.index)
    good: VectorValue = loop.good
    return good


def _both(f: Function, condition: VectorValue, test: Callable[[], VectorValue]) -> VectorValue:
    """Whether the condition and the test hold; the test runs only where the condition holds."""
    with f.if_(condition, good=_false(f)) as branch:
        branch.good = test()
    good: VectorValue = branch.good
    return good


def _fastcall(module: ModuleText, name: str) -> tuple[Function, Ptr]:
    """A METH_FASTCALL function, and the Call that its `self` is."""
    f = Function(module, name, parameters("ptr self, ptr args, i64 count"), "ptr", linkage="")
    return f, f.call("PyLong_AsVoidPtr", "ptr", [f["self"]])


def _return_miss(f: Function, call: Ptr) -> None:
    """Returns NotImplemented."""
    miss = _ptr(call, "miss")
    f.call("Py_IncRef", "void", [miss])
    f.ret(miss)


def _require(f: Function, call: Ptr, condition: VectorValue) -> None:
    """Returns NotImplemented unless the condition holds."""
    with f.if_(~condition):
        _return_miss(f, call)


def _types_match(f: Function, call: Ptr, args: Ptr, count: Int) -> VectorValue:
    """Whether the number of arguments is right and all have exactly the required Python type."""
    required = _ptr(call, "type")

    def is_required(k: Int) -> VectorValue:
        return (args.at(k, "ptr").load_ptr() + _TYPE).load_ptr().equals(required)

    return _both(f, count.equals(_int(call, "args")), lambda: _all(f, count, is_required))


def _source(f: Function, call: Ptr, number: Int, of_argument: Callable[[Int], Ptr]) -> Ptr:
    """The origin of an input of the entry: `of_argument(its number)`, or its word in `fixed`."""
    source = _ptr(call, "sources").at(number, "i64").load_int()
    with f.if_(source >= 0) as branch:
        branch.origin = of_argument(source)
    with branch.else_():
        branch.origin = _ptr(call, "fixed").at(-1 - source, "ptr").load_ptr()
    origin: Ptr = branch.origin
    return origin


def _shapes_match(f: Function, call: Ptr, test: Callable[[Int, Int, Ptr], VectorValue]) -> VectorValue:
    """Whether every input but variables has the dims of the entry's key; test(input, rank, dims) compares one."""
    sources, key = _ptr(call, "sources"), ENTRY.field(_ptr(call, "entry"), "key").load_ptr()
    with f.loop(0, _int(call, "inputs"), good=f.constant("i1", True), key=key) as loop:
        number = loop.index
        rank, dims = loop.key.load_int(), loop.key + 8
        is_argument = sources.at(number, "i64").load_int().differs(VARIABLE)
        with f.if_(loop.good & is_argument):
            loop.good = test(number, rank, dims)
        loop.key = dims.at(rank, "i64")
    good: VectorValue = loop.good
    return good


def _run(f: Function, call: Ptr, args: Ptr, results: Ptr) -> VectorValue:
    """Runs the entry's code on data pointers, to which those of variables are added; whether there was code and it
    succeeded."""
    entry = _ptr(call, "entry")
    message = f.stack_slot(f"[{ERROR_CAPACITY} x i8]")
    code = ENTRY.field(entry, "code").atomic_load("acquire")

    def run() -> VectorValue:
        arguments = [entry, code, args, results, message, f.null]
        with f.if_(_int(call, "variable_count").differs(0)) as branch:
            branch.good = _run_on_variables(f, call, args, arguments)
        with branch.else_():
            branch.good = call_i32(f, "tfbridge_run_entry", arguments).equals(0)
        good: VectorValue = branch.good
        return good

    return _both(f, Ptr.of(f, code).is_not_null(), run)


def _run_on_variables(f: Function, call: Ptr, args: Ptr, arguments: list[Value]) -> VectorValue:
    variables, count = _ptr(call, "variables"), _int(call, "variable_count")
    uses, use_count = _ptr(call, "uses"), _int(call, "use_count")
    locked = [arguments[0], variables, count, uses, use_count, args]
    is_locked = call_i1(f, "lock_variables", locked)
    good = _both(f, is_locked, lambda: call_i32(f, "tfbridge_run_entry", arguments).equals(0))
    f.call("unlock_variables", "void", [variables, count])
    return good


def _return_results(f: Function, call: Ptr, result: Callable[[Int], Ptr]) -> None:
    """Returns the one result, or a list of all; null where one of them could not be created."""
    with f.if_(_int(call, "single").differs(0)):
        f.ret(result(f.i64(0)))
    outputs = _int(call, "outputs")
    results = f.call("PyList_New", "ptr", [outputs])
    with f.if_(results.is_null()):
        f.ret(f.null)

    def set_item(number: Int) -> VectorValue:
        item = result(number)
        f.call("PyList_SetItem", "i32", [results, number, item])
        return item.is_not_null()

    with f.if_(~_all(f, outputs, set_item)):
        f.call("Py_DecRef", "void", [results])
        f.ret(f.null)
    f.ret(results)


def _clear(f: Function, table: Ptr, count: Int) -> None:
    with f.loop(0, count) as loop:
        table.at(loop.index, "ptr").store(f.null)


def _delete_all(f: Function, table: Ptr, count: Int, delete: str) -> None:
    """Calls the function `delete` on the objects of a table that are not null."""
    with f.loop(0, count) as loop:
        item = table.at(loop.index, "ptr").load_ptr()
        with f.if_(item.is_not_null()):
            f.call(delete, "void", [item])


# -- tensors


def _write_matching_tensors(module: ModuleText) -> None:
    """matching_tensors(call, handles, data, status) -> whether the handles fit the entry; stores their data pointers.

    Waits for tensors that are still being computed.
    """
    names = ("call", "handles", "data", "status")
    f = Function(module, "matching_tensors", [("ptr", n) for n in names], "i1")
    call, handles, data, status = f.pointers(*names)
    types = _ptr(call, "types")

    def has_type(k: Int) -> VectorValue:
        dtype = call_i32(f, "TFE_TensorHandleDataType", [handles.at(k, "ptr").load_ptr()])
        return Int.zero_extended(dtype).equals(types.at(k, "i64").load_int())

    def fits(number: Int, rank: Int, dims: Ptr) -> VectorValue:
        handle = _source(f, call, number, lambda k: handles.at(k, "ptr").load_ptr())

        def has_dim(axis: Int) -> VectorValue:
            dim = f.call("TFE_TensorHandleDim", "i64", [handle, axis.truncate("i32"), status])
            return dim.equals(dims.at(axis, "i64").load_int())

        same_rank = sign_extended(f, call_i32(f, "TFE_TensorHandleNumDims", [handle, status])).equals(rank)

        with f.if_(same_rank, good=_false(f)) as branch, f.if_(_all(f, rank, has_dim)):
            pointer = f.call("TFE_TensorHandleDevicePointer", "ptr", [handle, status])
            data.at(number, "ptr").store(pointer)
            branch.good = ~has_failed(f, status)
        good: VectorValue = branch.good
        return good

    with f.if_(~_all(f, _int(call, "args"), has_type)):
        f.ret(_false(f))
    f.ret(_shapes_match(f, call, fits))
    module.add("matching_tensors", f.text())


def _write_make_tensors(module: ModuleText) -> None:
    """make_tensors(call, handles, results, outputs, status) -> whether all outputs got a handle and memory.

    An output that is an input, unchanged, shares its memory.
    """
    names = ("call", "handles", "results", "outputs", "status")
    f = Function(module, "make_tensors", [("ptr", n) for n in names], "i1")
    call, handles, results, outputs, status = f.pointers(*names)
    rows = ENTRY.field(_ptr(call, "entry"), "outputs").load_ptr()

    def share(output: Ptr) -> Ptr:
        source = sign_extended(f, OUTPUT.field(output, "source").load())
        handle = _source(f, call, source, lambda k: handles.at(k, "ptr").load_ptr())
        return f.call("TFE_TensorHandleCopySharingTensor", "ptr", [handle, status])

    def allocate(output: Ptr, number: Int) -> Ptr:
        tensor = f.call("new_tensor", "ptr", [output])
        with f.if_(tensor.is_not_null(), handle=f.null) as branch:
            results.at(number, "ptr").store(data_of(f, tensor))
            branch.handle = f.call("TFE_NewTensorHandle", "ptr", [tensor, status])
            delete_tensor(f, tensor)
        handle: Ptr = branch.handle
        return handle

    def make(number: Int) -> VectorValue:
        output = output_row(rows, number)
        with f.if_(OUTPUT.field(output, "mode").load().equals(ALIAS)) as branch:
            branch.handle = share(output)
        with branch.else_():
            branch.handle = allocate(output, number)
        outputs.at(number, "ptr").store(branch.handle)
        is_made: VectorValue = branch.handle.is_not_null()
        return is_made

    f.ret(_all(f, _int(call, "outputs"), make))
    module.add("make_tensors", f.text())


def _write_call_tensors(module: ModuleText) -> None:
    """call_tensors(self, arguments, their number): a METH_FASTCALL function on eager tensors."""
    f, call = _fastcall(module, "tfbridge_call_tensors")
    args, count = f.pointer("args"), f.integer("count")
    _require(f, call, _types_match(f, call, args, count))
    inputs, outputs = _int(call, "inputs"), _int(call, "outputs")
    handles, data = array(f, "ptr", count), array(f, "ptr", inputs)
    results, created = array(f, "ptr", outputs), array(f, "ptr", outputs)
    _clear(f, created, outputs)
    with f.loop(0, count) as loop:
        handle = f.call(private.HANDLE_OF_TENSOR, "ptr", [args.at(loop.index, "ptr").load_ptr()])
        handles.at(loop.index, "ptr").store(handle)
    thread = f.call("PyEval_SaveThread", "ptr", [])
    status = f.call("TF_NewStatus", "ptr", [])
    fits = call_i1(f, "matching_tensors", [call, handles, data, status])
    is_ready = _both(f, fits, lambda: call_i1(f, "make_tensors", [call, handles, results, created, status]))
    good = _both(f, is_ready, lambda: _run(f, call, data, results))
    f.call("TF_DeleteStatus", "void", [status])
    f.call("PyEval_RestoreThread", "void", [thread])
    with f.if_(~good):
        _delete_all(f, created, outputs, "TFE_DeleteTensorHandle")
        _return_miss(f, call)

    def take(number: Int) -> Ptr:
        return f.call(private.TENSOR_OF_HANDLE, "ptr", [created.at(number, "ptr").load_ptr(), _false(f)])

    _return_results(f, call, take)
    module.add("tfbridge_call_tensors", f.text())


# -- arrays


def _write_matching_arrays(module: ModuleText) -> None:
    """matching_arrays(call, arguments, data) -> whether the arrays fit the entry; stores their data pointers."""
    f = Function(module, "matching_arrays", [("ptr", n) for n in ("call", "args", "data")], "i1")
    call, args, data = f.pointers("call", "args", "data")
    types = _ptr(call, "types")

    def is_plain(k: Int) -> VectorValue:
        array_at = args.at(k, "ptr").load_ptr()
        flags = (array_at + FLAGS).load("i32") & CONTIGUOUS_AND_ALIGNED
        same_type = (array_at + DESCR).load_ptr().equals(types.at(k, "ptr").load_ptr())
        return same_type & flags.equals(CONTIGUOUS_AND_ALIGNED)

    def fits(number: Int, rank: Int, dims: Ptr) -> VectorValue:
        slot = data.at(number, "ptr")
        source = _ptr(call, "sources").at(number, "i64").load_int()
        with f.if_(source >= 0) as branch:
            branch.good = compare(args.at(source, "ptr").load_ptr(), rank, dims, slot)
        with branch.else_():
            slot.store(_ptr(call, "fixed").at(-1 - source, "ptr").load_ptr())
            branch.good = f.constant("i1", True)
        good: VectorValue = branch.good
        return good

    def compare(array_at: Ptr, rank: Int, dims: Ptr, slot: Ptr) -> VectorValue:
        own_dims = (array_at + DIMS).load_ptr()
        slot.store((array_at + DATA).load_ptr())

        def has_dim(axis: Int) -> VectorValue:
            return own_dims.at(axis, "i64").load_int().equals(dims.at(axis, "i64").load_int())

        own_rank = sign_extended(f, (array_at + RANK).load("i32"))
        return _both(f, own_rank.equals(rank), lambda: _all(f, rank, has_dim))

    with f.if_(~_all(f, _int(call, "args"), is_plain)):
        f.ret(_false(f))
    f.ret(_shapes_match(f, call, fits))
    module.add("matching_arrays", f.text())


def _write_call_arrays(module: ModuleText) -> None:
    """call_arrays(self, arguments, their number): a METH_FASTCALL function on NumPy arrays."""
    f, call = _fastcall(module, "tfbridge_call_arrays")
    args, count = f.pointer("args"), f.integer("count")
    _require(f, call, _types_match(f, call, args, count))
    outputs = _int(call, "outputs")
    results, created = array(f, "ptr", outputs), array(f, "ptr", outputs)
    data = array(f, "ptr", _int(call, "inputs"))
    _clear(f, created, outputs)
    _require(f, call, call_i1(f, "matching_arrays", [call, args, data]))

    def make(number: Int) -> VectorValue:
        maker = _ptr(call, "makers") + number * 16
        result = f.call("PyObject_CallObject", "ptr", [maker.load_ptr(), (maker + 8).load_ptr()])
        created.at(number, "ptr").store(result)
        with f.if_(result.is_not_null()):
            results.at(number, "ptr").store((result + DATA).load_ptr())
        return result.is_not_null()

    with f.if_(~_all(f, outputs, make)):  # Python's error is set
        _delete_all(f, created, outputs, "Py_DecRef")
        f.ret(f.null)
    thread = f.call("PyEval_SaveThread", "ptr", [])
    good = _run(f, call, data, results)
    f.call("PyEval_RestoreThread", "void", [thread])
    with f.if_(~good):
        _delete_all(f, created, outputs, "Py_DecRef")
        _return_miss(f, call)
    _return_results(f, call, lambda number: created.at(number, "ptr").load_ptr())
    module.add("tfbridge_call_arrays", f.text())
