"""The C structs that the launch op's native code shares with Python, and the types of the functions between both."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable

from ...runtime import run_context

BUCKETS = 256  # of the hash table of a launch
ERROR_CAPACITY = 512  # bytes of an error message
MIN_BAILOUTS = 8  # before code is removed for its bailouts
ALLOCATE, ALIAS, FORWARD, LATER, SIZED = 0, 1, 2, 3, 4  # Output.mode
READ, UPDATED = 1, 2  # LaunchState.kinds: a variable that is read only, and one that also gets a new value
INVALID_STATE = 1  # the address that stands for a state that could not be created


class Output(ctypes.Structure):
    """How an output gets its memory. `source` is the input that ALIAS and FORWARD name.

    LATER: new memory becomes the output after the run, because a run may bail out; TensorFlow then sets the output.
    SIZED: as LATER, but only the first rows become the output. The code returns their number as size number `source`.
    """

    _fields_ = [
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("source", ctypes.c_int32),
        ("mode", ctypes.c_int32),
    ]


class CacheEntry(ctypes.Structure):
    """The code for one key. `code` null: TensorFlow runs the original nodes. Every call copies `context`.

    runs, fallback_runs: of the code, and in TensorFlow. A run that bails out is one of both.
    benchmark_at_run: after that run (0: never) the code is removed until it has been compared with TensorFlow's.
    promote_at_run: at that run (0: never) weight_pages.py moves large inputs to huge pages.
    bailouts: runs in which an assumption of the code failed. The code is removed after MIN_BAILOUTS of them, if they
        are more than half of all runs.
    packing: of the inputs that the code reads packed; null: there are none.
    sizes: number of s32 results, behind the others, with the sizes of SIZED outputs.
    overflowed: a run bailed out because a list outgrew its capacity.
    trace_name: what runs are called in TensorFlow's traces, zero-terminated; null: they are not recorded.
    kernel_names: the addresses of what its kernels are called there.
    """

    _fields_ = [
        ("next", ctypes.c_void_p),
        ("hash", ctypes.c_uint64),
        ("key_bytes", ctypes.c_int64),
        ("key", ctypes.c_void_p),
        ("code", ctypes.c_void_p),
        ("temp_bytes", ctypes.c_int64),
        ("outputs", ctypes.c_void_p),
        ("runs", ctypes.c_int64),
        ("fallback_runs", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("benchmark_at_run", ctypes.c_int64),
        ("promote_at_run", ctypes.c_int64),
        ("bailouts", ctypes.c_int64),
        ("packing", ctypes.c_void_p),
        ("sizes", ctypes.c_int64),
        ("overflowed", ctypes.c_int64),
        ("trace_name", ctypes.c_void_p),
        ("kernel_names", ctypes.c_void_p),
        ("context", run_context.RunContext),
    ]


class LaunchState(ctypes.Structure):
    """The state of TensorFlow's kernels for one launch: its types and the hash table of its cache entries.

    last_hit: the entry that the last call used. number: the key of the launch in Python.
    keyed, kinds: a byte per input: whether its value is part of the key; READ or UPDATED for variables, else 0.
    types: DataType of each input's value. targets: the input of each updated variable.
    variables, updates: how many inputs are variables, and how many of those get new values. New values follow the
        outputs among an entry's results.
    kernels: how many kernels have this state. When the last one is deleted, the word at `orphans` is incremented.
    epoch, active_calls: calls in progress, counted in one of two words, new calls in the word of the lowest bit of
        `epoch`; see entry_table.py.
    cold_entry: an entry without code, for keys that have not been seen often enough.
    """

    _fields_ = [
        ("last_hit", ctypes.c_void_p),
        ("number", ctypes.c_int64),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        ("keyed", ctypes.c_void_p),
        ("variables", ctypes.c_int64),
        ("updates", ctypes.c_int64),
        ("kinds", ctypes.c_void_p),
        ("types", ctypes.c_void_p),
        ("targets", ctypes.c_void_p),
        ("kernels", ctypes.c_int64),
        ("orphans", ctypes.c_void_p),
        ("epoch", ctypes.c_int64),
        ("active_calls", ctypes.c_int64 * 2),
        ("cold_entry", ctypes.c_void_p),
        ("buckets", ctypes.c_void_p * BUCKETS),
    ]


class Packing(ctypes.Structure):
    """The inputs that code reads packed, for all entries with this code; see prepacked_weights.py.

    count, inputs: their numbers. set: the PackedSet of the last values, read and written while `lock` is 1. runs: of
    the code.
    """

    _fields_ = [
        ("count", ctypes.c_int64),
        ("inputs", ctypes.c_void_p),
        ("lock", ctypes.c_int64),
        ("set", ctypes.c_void_p),
        ("runs", ctypes.c_int64),
    ]


class PackedSet(ctypes.Structure):
    """Packed arguments: for each, the address of its data and of its packed form."""

    _fields_ = [("users", ctypes.c_int64), ("values", ctypes.c_void_p), ("addresses", ctypes.c_void_p)]


# Python functions that native code calls; the last argument is the address of the result.
CREATE = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)
MISS = ctypes.CFUNCTYPE(
    None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p
)
FALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * 6)
PACK = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
PROMOTE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

# Native functions that Python calls.
PUBLISH = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
COUNT = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
EXCHANGE_PACKED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
TAKE_PACKED = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@dataclasses.dataclass(frozen=True)
class Native:
    """The native code of the launch op: addresses of functions, and functions that Python calls.

    `publish(slot, entry)` is a store that other threads see in order. `count(slot, amount)` adds to a word and returns
    its new value.
    """

    create: int
    compute: int
    delete: int
    run_entry: int
    publish: Callable[[int, int], None]
    count: Callable[[int, int], int]
