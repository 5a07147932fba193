"""Variables that a fast call reads: locked in place, without TensorFlow's resource lookups and tensors.

A captured variable costs microseconds in TensorFlow's executor: its handle is copied, hashed and looked up, its value
wrapped. For models of hundreds of small layers that is most of the call. A fast call knows the addresses of the
variables. It locks all of them as readers, in the order of their addresses, compares the shapes of their values with
those that the code was compiled for, and unlocks them after the run. An assignment waits until then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import tensorflow as tf

from ...runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, VectorValue
from ...runtime.llvm.types import parameters
from ..launch import prepacked_weights, resource_variables
from ..launch.native import prepacked
from ..launch.native.layouts import ENTRY, layout_of
from ..tf_internals import symbols as private

# tensorflow::TensorShape has 16 bytes. The last three are the type, the rank and the format of the dims before them.
_RANK_AT, _FORM_AT, _SHAPE_BYTES = 14, 15, 16
_DIM_BYTES = {0: 2, 1: 4}  # by form; others keep their dims elsewhere


class Variable(ctypes.Structure):
    """A variable and the shape that its value must have: the words of the shape where `mask` has bits."""

    _fields_ = [("object", ctypes.c_void_p), ("mask", ctypes.c_uint64 * 2), ("shape", ctypes.c_uint64 * 2)]


class Use(ctypes.Structure):
    """An input of the entry that is the value of a variable, by its number."""

    _fields_ = [("input", ctypes.c_int64), ("variable", ctypes.c_int64)]


class NoFastPath(Exception):
    """A variable must be read by TensorFlow."""


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


class Captured:
    """A variable that every call reads, and the dims of its value now.

    Raises: NoFastPath.
    """

    def __init__(self, handle: tf.Tensor) -> None:
        tensor = private.tensor_object(handle) if resource_variables.available() else 0
        if not tensor:
            raise NoFastPath
        data = _word(_word(tensor + resource_variables.BUFFER_IN_TENSOR) + resource_variables.DATA_IN_BUFFER)
        self.object = _word(data + resource_variables.RESOURCE_IN_HANDLE)
        if not self.object or _word(self.object) != private.address(private.VARIABLE_TABLE) + 16:
            raise NoFastPath
        self._text = text = self._shape_text()
        size, rank = _DIM_BYTES.get(text[_FORM_AT], 0), text[_RANK_AT]
        self.shape = tuple(int.from_bytes(text[at * size : at * size + size], "little") for at in range(rank))
        if not size or 0 in self.shape:
            raise NoFastPath
        mask = (b"\xff" * (rank * size)).ljust(_RANK_AT, b"\0") + b"\xff\xff"
        masks, words = (
            [int.from_bytes(part[at : at + 8], "little") for at in (0, 8)] for part in (mask, text)
        )
        pair = ctypes.c_uint64 * 2
        self.row = Variable(
            self.object, pair(*masks), pair(*(w & m for w, m in zip(words, masks, strict=True)))
        )

    def _shape_text(self) -> bytes:
        return ctypes.string_at(self.object + resource_variables.TENSOR, _SHAPE_BYTES)

    def is_current(self) -> bool:
        """Whether the dims are still those of the value. The variable must live."""
        return self._text == self._shape_text()


def tables(inputs: Sequence[object]) -> tuple[ctypes.Array[Variable], ctypes.Array[Use]]:
    """The captured variables among the inputs of an entry, in the order in which they are locked, and their uses."""
    uses = {k: i for k, i in enumerate(inputs) if isinstance(i, Captured)}
    rows = {i.object: i.row for i in uses.values()}
    order = sorted(rows)
    return (
        (Variable * len(order))(*(rows[address] for address in order)),
        (Use * len(uses))(*(Use(k, order.index(i.object)) for k, i in uses.items())),
    )


# -- native code

_VARIABLE, _USE = layout_of(Variable), layout_of(Use)


def _row(variables: Ptr, number: Int) -> tuple[Ptr, Ptr]:
    """Row `number` of a table of variables, and its variable."""
    row = variables + number * ctypes.sizeof(Variable)
    return row, _VARIABLE.field(row, "object").load_ptr()


def write(module: ModuleText) -> None:
    """Writes `lock_variables` and `unlock_variables`."""
    has_variables = private.VARIABLES not in private.missing()
    _write_lock(module, has_variables)
    _write_unlock(module, has_variables)


def _write_lock(module: ModuleText, has_variables: bool) -> None:
    """lock_variables(cache entry, variables, count, uses, their count, args) -> whether all fit, and the packed
    arguments are there; stores their data pointers. unlock_variables(variables, count) must follow in any case."""
    listed = "ptr cache_entry, ptr variables, i64 count, ptr uses, i64 use_count, ptr args"
    f = Function(module, "lock_variables", parameters(listed), "i1")
    if not has_variables:
        f.ret(f.constant("i1", False))
        module.add("lock_variables", f.text())
        return
    variables = f.pointer("variables")
    with f.loop(0, f.integer("count"), fit=f.constant("i1", True)) as loop:
        row, variable = _row(variables, loop.index)
        f.call(private.LOCK_SHARED, "void", [variable + resource_variables.MUTEX])
        loop.fit = loop.fit & _fits(f, row, variable)
    with f.if_(~loop.fit):
        f.ret(f.constant("i1", False))
    entry, args, uses = f.pointers("cache_entry", "args", "uses")
    _store_data(f, variables, uses, f.integer("use_count"), args)
    packing = ENTRY.field(entry, "packing").load_ptr()
    with f.if_(packing.is_null()):
        f.ret(f.constant("i1", True))
    # Where nothing is packed yet, the call misses: TensorFlow's kernel has the tensors to hold.
    packed = f.call("tfbridge_take_packed", "ptr", [packing, args])
    with f.if_(packed.is_not_null()):
        prepacked.release(packed)
    f.ret(packed.is_not_null())
    module.add("lock_variables", f.text())


def _fits(f: Function, row: Ptr, variable: Ptr) -> VectorValue:
    """Whether a variable has a value of the expected shape, and readers share it."""
    # IS_INITIALIZED and COPIES_ON_READ: a value that is copied when it is read may change under readers.
    fits = (variable + resource_variables.IS_INITIALIZED).load("i16", 1).equals(1)
    for word in (0, 8):
        mask, shape = ((_VARIABLE.field(row, name).address + word).load_int() for name in ("mask", "shape"))
        current = (variable + (resource_variables.TENSOR + word)).load_int()
        fits = fits & (current & mask).equals(shape)
    return fits


def _store_data(f: Function, variables: Ptr, uses: Ptr, count: Int, args: Ptr) -> None:
    """Stores the data pointers of variables as arguments."""
    with f.loop(0, count) as loop:
        use = uses + loop.index * ctypes.sizeof(Use)
        input_, number = (_USE.field(use, name).load_int() for name in ("input", "variable"))
        _, variable = _row(variables, number)
        tensor = variable + resource_variables.TENSOR
        buffer = (tensor + resource_variables.BUFFER_IN_TENSOR).load_ptr()
        args.at(input_, "ptr").store((buffer + resource_variables.DATA_IN_BUFFER).load_ptr())


def _write_unlock(module: ModuleText, has_variables: bool) -> None:
    """unlock_variables(variables, count)."""
    f = Function(module, "unlock_variables", parameters("ptr variables, i64 count"))
    if has_variables:
        with f.loop(0, f.integer("count")) as loop:
            _, variable = _row(f.pointer("variables"), loop.index)
            f.call(private.UNLOCK_SHARED, "void", [variable + resource_variables.MUTEX])
    f.ret()
    module.add("unlock_variables", f.text())


def imports() -> dict[str, int]:
    """Addresses of what the functions here call and TensorFlow does not have."""
    return {"tfbridge_take_packed": prepacked_weights.take_address()}
