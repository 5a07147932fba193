"""Weight prepacking for variables: packed once per value, and again when the value changes.

A packed value holds the tensor that it was packed from, so nobody changes that tensor's memory: a variable with data
at that address has that value. All entries of the launch op with the same code, which may be for many sizes, point to
one `Packing` with the `PackedSet` of its last values. A call with the same addresses uses it; any other calls
`tfbridge_pack`, which is Python. A set is in use while `users` is not zero. A value that changes in most calls is
packed in each of them and not held, because an update of a held tensor copies it.
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
from ...runtime.threads import forking, interrupts
from ..tf_internals import symbols as private
from . import resource_variables
from .structs import EXCHANGE_PACKED, PACK, TAKE_PACKED, PackedSet, Packing

_MIN_RUNS = 8  # of a set, before its values change, for which packing pays
_MAX_PATIENCE = 64  # calls with the same addresses before they count as constant
_REFERENCES_IN_BUFFER = 8


class _Source:
    """A tensor whose value was packed. It is held, so nobody changes its memory."""

    def __init__(self, tensor: tf.Tensor) -> None:
        self.tensor = tensor

    def is_current(self) -> bool:
        """Whether somebody else holds the tensor as well; true where that is unknown."""
        alone = _references_alone()
        return alone == 0 or _references(self.tensor) != alone


class _Packed:
    """A packed value; `source` is the tensor that it was packed from."""

    def __init__(self, memory: np.ndarray, source: _Source | None) -> None:
        self.memory, self.source = memory, source


class _Set:
    """A PackedSet and the memory that it points to."""

    def __init__(self, values: Sequence[int], packed: Sequence[_Packed]) -> None:
        self.packed = packed
        self.values = (ctypes.c_void_p * len(values))(*values)
        self.addresses = (ctypes.c_void_p * len(values))(*(p.memory.ctypes.data for p in packed))
        self.struct = PackedSet(1, ctypes.addressof(self.values), ctypes.addressof(self.addresses))
        self.address = ctypes.addressof(self.struct)


_lock = forking.lock()
_sources: weakref.WeakValueDictionary[int, _Source] = weakref.WeakValueDictionary()  # by address of the data
_packed: weakref.WeakValueDictionary[tuple[int, str], _Packed] = weakref.WeakValueDictionary()
_arguments: weakref.WeakValueDictionary[int, Arguments] = weakref.WeakValueDictionary()  # by address
_by_code: weakref.WeakValueDictionary[tuple[int, bool], Arguments] = weakref.WeakValueDictionary()


class Arguments:
    """The packed arguments of code. address: of the `Packing`, which lives as long as this object.

    cached: the set that the next call with the same values uses. sets: all sets that calls may be using.
    A value counts as constant after `patience` calls with the same addresses; `repeats` counts those calls.
    """

    def __init__(self, executable: Executable, may_hold: bool) -> None:
        self.executable, self.may_hold = executable, may_hold
        self.inputs = [p.parameter for p in executable.artifact.packed]
        self._inputs = (ctypes.c_int64 * len(self.inputs))(*self.inputs)
        self.lock = forking.long_lock()
        self.cached: _Set | None = None
        self.sets: list[_Set] = []
        self.runs_before = 0  # of the code, when the cached set was built
        self.patience = self.repeats = 0
        self.last_values: list[int] = []
        self.struct = Packing(len(self.inputs), ctypes.addressof(self._inputs))
        self.address = ctypes.addressof(self.struct)
        drop_stale()
        with _lock:
            _arguments[self.address] = self

    def pack(self, args: int, tensors: int | None) -> int:
        """The address of a set for arguments with values that are not cached; the caller is its user."""
        with self.lock:
            cached: int | None = _native[1](self.address, args)
            if cached:  # another thread has packed them
                return cached
            values = [_word(args, position) for position in self.inputs]
            if tensors and self.may_hold and self._is_constant(values):
                new = self._pack_shared(values, args, [_word(tensors, position) for position in self.inputs])
                self._cache(new)
                self.runs_before = self.struct.runs
            else:
                new = self._pack_all(values, args)
            self.sets.append(new)
            return new.address

    def _is_constant(self, values: list[int]) -> bool:
        """Whether these values are likely to be those of the next calls."""
        if self.cached is not None:
            runs = self.struct.runs - self.runs_before
            self.patience = 0 if runs >= _MIN_RUNS else min(4 * self.patience + 1, _MAX_PATIENCE)
            self._cache(None)
            self.repeats = 0
        self.repeats = self.repeats + 1 if values == self.last_values else 0
        self.last_values = values
        return self.repeats >= self.patience

    def _pack_all(self, values: list[int], args: int) -> _Set:
        """A set for this call alone."""
        self._forget_unused()
        memory = empty_pieces([spec.bytes for spec in self.executable.artifact.packed])
        packed = [_Packed(piece, None) for piece in memory]
        self._fill(args, [p.memory.ctypes.data for p in packed])
        return _Set(values, packed)

    def _pack_shared(self, values: list[int], args: int, tensors: list[int]) -> _Set:
        """A set that later calls may use: it shares packed values with other code and holds their tensors."""
        self._forget_unused()
        specs = self.executable.artifact.packed
        keys = [(value, spec.layout) for value, spec in zip(values, specs, strict=True)]
        with _lock:
            shared = [_packed.get(key) for key in keys]
        memory = iter(empty_pieces([spec.bytes for p, spec in zip(shared, specs) if p is None]))
        packed = [p or _Packed(next(memory), None) for p in shared]
        for p, value, tensor in zip(packed, values, tensors, strict=True):  # before anything is read
            p.source = p.source or _source_of(value, tensor)
        self._fill(args, [0 if old else p.memory.ctypes.data for old, p in zip(shared, packed)])
        with _lock:
            for p, key in zip(packed, keys, strict=True):
                _packed.setdefault(key, p)
        return _Set(values, packed)

    def _fill(self, args: int, addresses: list[int]) -> None:
        """Packs the arguments to these addresses, except where that is 0."""
        if any(addresses):
            table = (ctypes.c_void_p * len(addresses))(*(address or None for address in addresses))
            self.executable.prepare(args, ctypes.addressof(table))

    def _cache(self, new: _Set | None) -> None:
        _native[0](self.address, new.address if new else None)
        self.cached = new
        self._forget_unused()

    def _forget_unused(self) -> None:
        # Only the cached set gets new users.
        self.sets = [s for s in self.sets if s is self.cached or s.struct.users > 0]

    def drop_stale(self) -> None:
        """Drops the cached set when a value of it is no longer that of a variable."""
        if self.lock.acquire(blocking=False):
            try:
                if self.cached is not None and not all(
                    p.source is None or p.source.is_current() for p in self.cached.packed
                ):
                    self._cache(None)
            finally:
                self.lock.release()


def _source_of(value: int, tensor: int) -> _Source:
    with _lock:
        source = _sources.get(value)
        if source is None:
            source = _sources[value] = _Source(*private.tensors_of([tensor]))
        return source


def packing_of(executable: Executable, may_hold: bool) -> Arguments:
    """The packed arguments of an executable: those of all that are bound from one. may_hold: their tensors."""
    key = id(executable.origin), may_hold
    with _lock:
        arguments = _by_code.get(key)
    if arguments is None:
        arguments = Arguments(executable, may_hold)
        with _lock:
            arguments = _by_code.setdefault(key, arguments)
    return arguments


@forking.in_child
def _forget_calls() -> None:
    """In a forked child: nobody holds the native locks."""
    for arguments in all_arguments():
        arguments.struct.lock = 0


def all_arguments() -> list[Arguments]:
    """The packed arguments of all code."""
    with _lock:
        return list(_arguments.values())


def is_cached(executable: Executable) -> bool:
    """Whether the next call of this code can use cached packed arguments."""
    return any(a.executable.origin is executable.origin and a.cached is not None for a in all_arguments())


def packed_values() -> list[_Packed]:
    """The packed values in memory."""
    with _lock:
        return list(_packed.values())


def drop_stale(fresh: Arguments | None = None) -> None:
    """Frees packed values whose tensor nobody else holds any more. `fresh` is not checked."""
    for arguments in all_arguments():
        if arguments is not fresh:
            arguments.drop_stale()


def _word(table: int, position: int) -> int:
    return ctypes.c_uint64.from_address(table + 8 * position).value


def _pack(packing: int, args: int, tensors: int | None) -> int | None:
    """Called by native code; nothing may be raised out of it."""
    try:
        with private.plain_eager():
            arguments = _arguments[packing]
            packed_set = arguments.pack(args, tensors)
            drop_stale(arguments)
            return packed_set
    except Exception:
        return None


_callback = PACK(interrupts.callback(_pack, gives=True))
_native: list[Callable[..., Any]] = []


def imports() -> dict[str, int]:
    """Addresses of the functions that native code calls."""
    return {"tfbridge_pack": ctypes.cast(_callback, ctypes.c_void_p).value or 0}


def connect(exchange: int, take: int) -> None:
    """Takes the addresses of native/prepacked.py's EXPORTS."""
    _native[:] = EXCHANGE_PACKED(exchange), TAKE_PACKED(take)


def take_address() -> int:
    """Address of `take_packed`."""
    return ctypes.cast(_native[1], ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def _references(tensor: tf.Tensor) -> int:
    """The reference count of an eager tensor's buffer; 0 when it has none."""
    at = private.tensor_object(tensor)
    buffer = ctypes.c_uint64.from_address(at + resource_variables.BUFFER_IN_TENSOR).value if at else 0
    return ctypes.c_int32.from_address(buffer + _REFERENCES_IN_BUFFER).value if buffer else 0


@functools.cache
def _references_alone() -> int:
    """`_references` of a tensor with one holder; 0 when this TensorFlow does not count as expected."""
    if not resource_variables.available():
        return 0
    with private.plain_eager():
        first = tf.raw_ops.Fill(dims=[3], value=1.0)
        alone = _references(first)
        others = [tf.raw_ops.Identity(input=first) for _ in range(2)]
        shared = _references(first)
        del others
        return alone if 0 < alone < shared < 16 and _references(first) == alone else 0
