"""Variables that compiled code reads packed: packed once per value, and again when the value is another one.

What is packed holds the tensor that it was packed from, so nobody changes that tensor's memory: a variable whose data
lie at that address has that value. An entry of the launch op points to the `PackedSet` of its last values; a call whose
values lie where they lay takes it, any other asks `tfbridge_pack`, which is Python. A set is in use while `users` says
so. A value that changes in most calls is packed in each of them and not held: to hold it would make whoever updates it
copy it.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...runtime.code.executable import Executable, empty_pieces
from ...runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64
from ...runtime.threads import forking, interrupts
from ..tf_internals import symbols as private
from . import kernel, resource_variables

_RUNS_THAT_PAY = 8  # of a set, before its values change
_MOST_PATIENCE = 64  # calls with the same addresses before they are trusted to stay
_REFERENCES_IN_BUFFER = 8
_NULL = Value("ptr", "null")


class PackedSet(ctypes.Structure):
    """The packed arguments of an entry: per argument, the address of its data and that of the packed ones."""

    _fields_ = [("users", ctypes.c_int64), ("values", ctypes.c_void_p), ("addresses", ctypes.c_void_p)]


_PACK = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
_EXCHANGE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_TAKE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
EXPORTS = ("tfbridge_exchange_packed", "tfbridge_take_packed")


# -- native code


def write(module: ModuleText) -> None:
    """take_packed(entry, args) -> its set, with one user more, if the values are those of `args`, else null;
    exchange_packed(entry, set): makes that set the entry's."""
    for name, result, second in (("take", "ptr", "args"), ("exchange", "void", "set")):
        f = Function(
            module, f"tfbridge_{name}_packed", [("ptr", "chosen"), ("ptr", second)], result, linkage=""
        )
        lock = f.offset(f["chosen"], kernel.Entry.packed_lock.offset)
        slot = f.offset(f["chosen"], kernel.Entry.packed.offset)
        f.do("br label %spin")
        f.start_block("spin")
        was = f.op("i64", f"atomicrmw xchg {lock}, i64 1 acquire")
        f.do(f"br {f.compare('icmp eq', was, i64(0))}, label %held, label %spin")
        f.start_block("held")
        taken = None
        if name == "take":
            taken = _take(f, f.load("ptr", slot, 8))
        else:
            f.store(f["set"], slot, 8)
        f.do(f"store atomic i64 0, {lock} release, align 8")
        f.ret(*([] if taken is None else [taken]))
        module.add(f"tfbridge_{name}_packed", f.text())


def _take(f: Function, found: Value) -> Value:
    def compare() -> list[Value]:
        values = f.load("ptr", f.offset(found, PackedSet.values.offset), 8)
        inputs = f.load("ptr", f.offset(f["chosen"], kernel.Entry.packed_inputs.offset), 8)
        count = f.load("i64", f.offset(f["chosen"], kernel.Entry.packed_count.offset), 8)

        def one(k: Value, same: list[Value]) -> list[Value]:
            given = f.load("ptr", f.offset(f["args"], f.load("i64", f.offset(inputs, k, "i64"), 8), "ptr"), 8)
            known = f.load("ptr", f.offset(values, k, "ptr"), 8)
            return [f.binary("and", same[0], f.compare("icmp eq", given, known))]

        def use() -> list[Value]:
            f.do(f"%before = atomicrmw add {f.offset(found, PackedSet.users.offset)}, i64 1 monotonic")
            return [found]

        return [f.branch(f.loop(0, count, 1, one, [constant("i1", True)])[0], use, lambda: [_NULL])[0]]

    return f.branch(f.compare("icmp ne", found, _NULL), compare, lambda: [_NULL])[0]


def use(f: Function, tensors: Value) -> Value:
    """In a function of an entry `chosen` and its `args`: the set to run with, null where none could be made."""
    arguments = [f["chosen"], f["args"]]
    found = f.call("tfbridge_take_packed", "ptr", arguments)
    return f.branch(
        f.compare("icmp ne", found, _NULL),
        lambda: [found],
        lambda: [kernel.call_python(f, "tfbridge_pack", [*arguments, tensors], 1)],
    )[0]


def release(f: Function, taken: Value) -> None:
    """Ends the use of a set."""
    f.op("i64", f"atomicrmw sub {f.offset(taken, PackedSet.users.offset)}, i64 1 release")


# -- Python


class _Held:
    """A tensor that packed memory was made from; nobody changes its memory."""

    def __init__(self, tensor: tf.Tensor) -> None:
        self.tensor = tensor

    def is_current(self) -> bool:
        """Whether somebody else has the tensor, too, or may have it."""
        alone = _references_alone()
        return alone == 0 or _references(self.tensor) != alone


class _Packed:
    """A packed value; `held` is what it was made from."""

    def __init__(self, memory: np.ndarray, held: _Held | None) -> None:
        self.memory, self.held = memory, held


class _Set:
    """A PackedSet and what it consists of."""

    def __init__(self, values: Sequence[int], packed: Sequence[_Packed]) -> None:
        self.packed = packed
        self.values = (ctypes.c_void_p * len(values))(*values)
        self.addresses = (ctypes.c_void_p * len(values))(*(p.memory.ctypes.data for p in packed))
        self.struct = PackedSet(1, ctypes.addressof(self.values), ctypes.addressof(self.addresses))
        self.address = ctypes.addressof(self.struct)


_lock = forking.lock()
_held: weakref.WeakValueDictionary[int, _Held] = weakref.WeakValueDictionary()  # by address of the data
_packed: weakref.WeakValueDictionary[tuple[int, str], _Packed] = weakref.WeakValueDictionary()
_arguments: dict[int, Arguments] = {}  # by address of the entry


class Arguments:
    """The packed arguments of an entry."""

    def __init__(self, entry: kernel.Entry, executable: Executable, may_hold: bool) -> None:
        self.entry, self.executable, self.may_hold = entry, executable, may_hold
        self.inputs = [p.parameter for p in executable.artifact.packed]
        self._inputs = (ctypes.c_int64 * len(self.inputs))(*self.inputs)
        self.lock = forking.long_lock()
        self.kept: _Set | None = None
        self.sets: list[_Set] = []  # those that calls may use
        self.runs_before = 0  # of the entry, when the kept set was made
        self.patience = self.seen = 0
        self.last: list[int] = []
        entry.packed_count, entry.packed_inputs = len(self.inputs), ctypes.addressof(self._inputs)
        drop_stale()
        with _lock:
            _arguments[ctypes.addressof(entry)] = self

    def pack(self, args: int, tensors: int | None) -> int:
        """The address of a set for arguments that are not those of the kept one; the caller is its user."""
        with self.lock:
            taken: int | None = _native[1](ctypes.addressof(self.entry), args)
            if taken:  # another thread was here
                return taken
            values = [_word(args, position) for position in self.inputs]
            if tensors and self.may_hold and self._will_stay(values):
                made = self._make(values, args, [_word(tensors, position) for position in self.inputs])
                self._keep(made)
                self.runs_before = self.entry.runs
            else:
                made = self._make(values, args, None)
            self.sets.append(made)
            return made.address

    def _will_stay(self, values: list[int]) -> bool:
        """Whether these values are likely to be those of the next calls."""
        if self.kept is not None:
            lived = self.entry.runs - self.runs_before
            self.patience = 0 if lived >= _RUNS_THAT_PAY else min(4 * self.patience + 1, _MOST_PATIENCE)
            self._keep(None)
            self.seen = 0
        self.seen = self.seen + 1 if values == self.last else 0
        self.last = values
        return self.seen >= self.patience

    def _make(self, values: list[int], args: int, tensors: list[int] | None) -> _Set:
        self._forget_unused()
        layouts = [p.layout for p in self.executable.artifact.packed]
        found: list[_Packed | None] = [None] * len(values)
        if tensors is not None:
            with _lock:
                found = [_packed.get(key) for key in zip(values, layouts, strict=True)]
        memory = iter(
            empty_pieces(
                [
                    spec.bytes
                    for p, spec in zip(found, self.executable.artifact.packed, strict=True)
                    if p is None
                ]
            )
        )
        packed = [p or _Packed(next(memory), None) for p in found]
        wanted = [None if known else p.memory.ctypes.data for known, p in zip(found, packed, strict=True)]
        table = (ctypes.c_void_p * len(values))(*wanted)
        if tensors is not None:  # before anything is read
            for p, value, tensor in zip(packed, values, tensors, strict=True):
                p.held = p.held or _hold(value, tensor)
        if any(wanted):
            self.executable.prepare(args, ctypes.addressof(table))
        if tensors is not None:
            with _lock:
                for p, key in zip(packed, zip(values, layouts, strict=True), strict=True):
                    _packed.setdefault(key, p)
        return _Set(values, packed)

    def _keep(self, made: _Set | None) -> None:
        _native[0](ctypes.addressof(self.entry), made.address if made else None)
        self.kept = made
        self._forget_unused()

    def _forget_unused(self) -> None:
        # Only the kept set gets new users.
        self.sets = [s for s in self.sets if s is self.kept or s.struct.users > 0]

    def drop_stale(self) -> None:
        """Drops the kept set when a value of it is no variable's any more."""
        if self.lock.acquire(blocking=False):
            try:
                if self.kept is not None and not all(
                    p.held is None or p.held.is_current() for p in self.kept.packed
                ):
                    self._keep(None)
            finally:
                self.lock.release()


def _hold(value: int, tensor: int) -> _Held:
    with _lock:
        held = _held.get(value)
        if held is None:
            held = _held[value] = _Held(private.tensor_of(tensor))
        return held


def forget(entry: int) -> None:
    """Frees the packed arguments of an entry, given by its address, that nobody runs any more."""
    _arguments.pop(entry, None)


@forking.in_child
def _forget_calls() -> None:
    """In a forked child: nobody holds the native locks."""
    for arguments in _arguments.values():
        arguments.entry.packed_lock = 0


def all_arguments() -> list[Arguments]:
    """Those of every entry that has packed ones."""
    with _lock:
        return list(_arguments.values())


def are_kept(executable: Executable) -> bool:
    """Whether the calls of this code find its packed arguments as they were, and need not pack them."""
    return any(a.executable is executable and a.kept is not None for a in all_arguments())


def kept_values() -> list[_Packed]:
    """What is packed and kept."""
    with _lock:
        return list(_packed.values())


def drop_stale(fresh: Arguments | None = None) -> None:
    """Frees what was packed from values that only their packed form still holds. What is `fresh` cannot be stale."""
    for arguments in all_arguments():
        if arguments is not fresh:
            arguments.drop_stale()


def _word(table: int, position: int) -> int:
    return ctypes.c_uint64.from_address(table + 8 * position).value


def _pack(entry: int, args: int, tensors: int | None) -> int | None:
    """Called by native code; nothing may be raised out of it."""
    try:
        with private.plain_eager():
            arguments = _arguments[entry]
            made = arguments.pack(args, tensors)
            drop_stale(arguments)
            return made
    except Exception:
        return None


_callback = _PACK(interrupts.callback(_pack, gives=True))
_native: list[Callable[..., Any]] = []


def imports() -> dict[str, int]:
    """Addresses of what the native code calls."""
    return {"tfbridge_pack": ctypes.cast(_callback, ctypes.c_void_p).value or 0}


def connect(exchange: int, take: int) -> None:
    """Tells the addresses of EXPORTS."""
    _native[:] = _EXCHANGE(exchange), _TAKE(take)


def take_address() -> int:
    """Address of `take_packed`."""
    return ctypes.cast(_native[1], ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def _references(tensor: tf.Tensor) -> int:
    """How many hold the buffer of an eager tensor; 0 when it has none."""
    at = private.tensor_object(tensor)
    buffer = ctypes.c_uint64.from_address(at + resource_variables.BUFFER_IN_TENSOR).value if at else 0
    return ctypes.c_int32.from_address(buffer + _REFERENCES_IN_BUFFER).value if buffer else 0


@functools.cache
def _references_alone() -> int:
    """What `_references` says of a tensor that is held here alone; 0 when it does not count as expected."""
    if not resource_variables.available():
        return 0
    with private.plain_eager():
        first = tf.raw_ops.Fill(dims=[3], value=1.0)
        alone = _references(first)
        others = [tf.raw_ops.Identity(input=first) for _ in range(2)]
        shared = _references(first)
        del others
        return alone if 0 < alone < shared < 16 and _references(first) == alone else 0
