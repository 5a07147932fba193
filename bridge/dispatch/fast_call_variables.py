"""Variables that a direct call reads: taken as they are, without TensorFlow's resource lookups and tensors.

What a captured variable costs in TensorFlow's executor (its handle copied, hashed and looked up, its value wrapped) is
microseconds, which is most of the call for models of hundreds of small layers. A direct call knows the variables'
objects: it locks all of them as readers, in the order of their addresses, compares the shapes of their values with
those that the code was compiled for, and lets go after the run. Nobody can assign meanwhile; who does so waits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ...runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64
from ..launch import kernel, prepacked_weights, resource_variables
from ..tf_internals import symbols as private

# tensorflow::TensorShape: 16 bytes of which the last three are the type, the rank and how the dims before are written.
_RANK_AT, _FORM_AT, _SHAPE_BYTES = 14, 15, 16
_DIM_BYTES = {0: 2, 1: 4}  # by form; others keep their dims elsewhere


class Variable(ctypes.Structure):
    """A variable and the shape that its value must have: the words of the shape where `mask` has bits."""

    _fields_ = [("object", ctypes.c_void_p), ("mask", ctypes.c_uint64 * 2), ("shape", ctypes.c_uint64 * 2)]


class Use(ctypes.Structure):
    """An input of the entry that is the value of a variable, by its number."""

    _fields_ = [("input", ctypes.c_int64), ("variable", ctypes.c_int64)]


class NotDirect(Exception):
    """A variable must be read by TensorFlow."""


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


class Captured:
    """A variable that every call reads, and the dims of its value now.

    Raises: NotDirect.
    """

    def __init__(self, handle: tf.Tensor) -> None:
        tensor = private.tensor_object(handle) if resource_variables.available() else 0
        if not tensor:
            raise NotDirect
        data = _word(_word(tensor + resource_variables.BUFFER_IN_TENSOR) + resource_variables.DATA_IN_BUFFER)
        self.object = _word(data + resource_variables.RESOURCE_IN_HANDLE)
        if not self.object or _word(self.object) != private.address(private.VARIABLE_TABLE) + 16:
            raise NotDirect
        text = ctypes.string_at(self.object + resource_variables.TENSOR, _SHAPE_BYTES)
        size, rank = _DIM_BYTES.get(text[_FORM_AT], 0), text[_RANK_AT]
        self.shape = tuple(int.from_bytes(text[at * size : at * size + size], "little") for at in range(rank))
        if not size or 0 in self.shape:
            raise NotDirect
        mask = (b"\xff" * (rank * size)).ljust(_RANK_AT, b"\0") + b"\xff\xff"
        masks, words = (
            [int.from_bytes(part[at : at + 8], "little") for at in (0, 8)] for part in (mask, text)
        )
        pair = ctypes.c_uint64 * 2
        self.row = Variable(
            self.object, pair(*masks), pair(*(w & m for w, m in zip(words, masks, strict=True)))
        )


def tables(inputs: Sequence[Any]) -> tuple[ctypes.Array[Variable], ctypes.Array[Use]]:
    """The captured variables among the inputs of an entry, in the order in which they are locked, and their uses."""
    uses = {k: i for k, i in enumerate(inputs) if isinstance(i, Captured)}
    rows = {i.object: i.row for i in uses.values()}
    order = sorted(rows)
    return (
        (Variable * len(order))(*(rows[found] for found in order)),
        (Use * len(uses))(*(Use(k, order.index(i.object)) for k, i in uses.items())),
    )


# -- native code


def _row(f: Function, number: Value) -> tuple[Value, Value]:
    """Row `number` of a function's `variables`, and its variable."""
    row = f.offset(f["variables"], f.binary("mul", number, i64(ctypes.sizeof(Variable))))
    return row, f.load("ptr", f.offset(row, Variable.object.offset), 8)


def write(module: ModuleText) -> None:
    """hold_variables(entry, variables, count, uses, their count, data) -> whether all fit, and what is packed from them
    is there; their data pointers. let_go_variables(variables, count) must follow in any case."""
    known = private.VARIABLES not in private.missing()
    f = Function(
        module,
        "hold_variables",
        [
            ("ptr", "chosen"),
            ("ptr", "variables"),
            ("i64", "count"),
            ("ptr", "uses"),
            ("i64", "used"),
            ("ptr", "args"),
        ],
        "i1",
    )

    def hold(number: Value, good: list[Value]) -> list[Value]:
        row, variable = _row(f, number)
        f.call(private.LOCK_SHARED, "void", [f.offset(variable, resource_variables.MUTEX)])
        # One that is copied when it is read may change under readers.
        flags = f.load("i16", f.offset(variable, resource_variables.IS_INITIALIZED), 1)
        fits = f.compare("icmp eq", flags, constant("i16", 1))
        for word in (0, 8):
            mask, wanted = (
                f.load("i64", f.offset(row, at + word), 8)
                for at in (Variable.mask.offset, Variable.shape.offset)
            )
            found = f.load("i64", f.offset(variable, resource_variables.TENSOR + word), 8)
            fits = f.binary("and", fits, f.compare("icmp eq", f.binary("and", found, mask), wanted))
        return [f.binary("and", good[0], fits)]

    fit = f.loop(0, f["count"], 1, hold, [constant("i1", True)])[0] if known else constant("i1", False)

    def take() -> list[Value]:
        def one(number: Value, _: list[Value]) -> None:
            use = f.offset(f["uses"], f.binary("mul", number, i64(ctypes.sizeof(Use))))
            place, which = (
                f.load("i64", f.offset(use, at), 8) for at in (Use.input.offset, Use.variable.offset)
            )
            variable = _row(f, which)[1]
            at = f.offset(variable, resource_variables.TENSOR + resource_variables.BUFFER_IN_TENSOR)
            data = f.load("ptr", f.offset(f.load("ptr", at, 8), resource_variables.DATA_IN_BUFFER), 8)
            f.store(data, f.offset(f["args"], place, "ptr"), 8)

        f.loop(0, f["used"], 1, one)
        packs = f.load("i64", f.offset(f["chosen"], kernel.Entry.packed_count.offset), 8)
        return f.branch(f.compare("icmp ne", packs, i64(0)), is_packed, lambda: [constant("i1", True)])

    def is_packed() -> list[Value]:
        # Else TensorFlow's kernel packs anew: it has the tensors to hold.
        found = f.call("tfbridge_take_packed", "ptr", [f["chosen"], f["args"]])
        is_there = f.compare("icmp ne", found, Value("ptr", "null"))
        f.branch(is_there, lambda: prepacked_weights.release(f, found))
        return [is_there]

    f.ret(f.branch(fit, take, lambda: [constant("i1", False)])[0])
    module.add("hold_variables", f.text())

    f = Function(module, "let_go_variables", [("ptr", "variables"), ("i64", "count")])

    def let_go(number: Value, _: list[Value]) -> None:
        variable = _row(f, number)[1]
        f.call(private.UNLOCK_SHARED, "void", [f.offset(variable, resource_variables.MUTEX)])

    if known:
        f.loop(0, f["count"], 1, let_go)
    f.ret()
    module.add("let_go_variables", f.text())


def imports() -> dict[str, int]:
    """Addresses of what the functions here call and TensorFlow does not have."""
    return {"tfbridge_take_packed": prepacked_weights.take_address()}
