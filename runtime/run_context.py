"""The run context: what generated code gets besides buffers; one table fixes its layout for both sides."""

from __future__ import annotations

import ctypes

# (name, byte offset, type). Generated code reads fields by OFFSETS[name], Python and the launch op
# write them.
#   parallel_for    void (*)(ptr run_context, ptr kernel, ptr buffers, i64 tasks, i64 grain); null: serial
#   pool            opaque, for parallel_for
#   threads         thread ids that kernels may see are below it
#   error_message   buffer of error_capacity bytes for a zero-terminated text
#   rng_state       two u64
#   feeds           null, or what the entry calls at its sites: i32 (*)(i64 site, ptr buffers); ptr to the addresses of
#                   the C functions of sites that are custom calls; ptr to a status of 512 bytes for them
#   recorder        null, or what is told that kernels have ended (Recorder)
#   constants       base of the constant blob, 64-byte aligned
#   packed          an address for each of the artifact's packed arguments
#   sizes           the values, i64, of the artifact's sizes that are known at run time only
FIELDS: tuple[tuple[str, int, type], ...] = (
    ("parallel_for", 0, ctypes.c_void_p),
    ("pool", 8, ctypes.c_void_p),
    ("threads", 16, ctypes.c_int32),
    ("replica_id", 20, ctypes.c_int32),
    ("num_replicas", 24, ctypes.c_int32),
    ("partition_id", 28, ctypes.c_int32),
    ("error_message", 32, ctypes.c_void_p),
    ("error_capacity", 40, ctypes.c_int64),
    ("rng_state", 48, ctypes.c_void_p),
    ("feeds", 56, ctypes.c_void_p),
    ("recorder", 64, ctypes.c_void_p),
    ("constants", 72, ctypes.c_void_p),
    ("packed", 80, ctypes.c_void_p),
    ("sizes", 88, ctypes.c_void_p),
)
# Status of an entry that ended early, for its arguments are not what was assumed when it was compiled.
ASSUMPTION_FAILED = 64
# Status of an entry that ended early, for code with larger bounds has to do the work.
CAPACITY_OVERFLOW = 65
# Status of an entry whose caller told sizes that it has no code for.
SIZES_REFUSED = 66
# Status of an entry whose code is for processors that have more than this one.
PROCESSOR_REFUSED = 67
ABI_VERSION = 1
"""The version of what exported objects and their headers agree about: the fields, how entries and kernels are called,
and how a pool is. With a change of these comes a new number."""
OFFSETS: dict[str, int] = {name: offset for name, offset, _ in FIELDS}
CONTEXT_BYTES = 96


class RunContext(ctypes.Structure):
    """The run context as ctypes sees it."""

    _fields_ = [(name, type_) for name, _, type_ in FIELDS]


class Recorder(ctypes.Structure):
    """What is told of kernels: a function, void (*)(ptr recorder, i64 kernel, ptr last), and data of its own.

    The function is called after every kernel, with its number in the schedule and the i64 at `last`, which is for it
    to write: its clock, when the kernel ended. Before the first kernel it is called with RECORD_START. The i64 at
    RECORD_END after `last` is 0, or the clock at which the kernel ended; it is for the caller to write. Kernels that
    run at once have a `last` each.
    """

    _fields_ = [("record", ctypes.c_void_p), ("data", ctypes.c_void_p)]


RECORD_START = -1
RECORD_END = 8


for _name, _offset, _ in FIELDS:
    if getattr(RunContext, _name).offset != _offset:
        raise ImportError(f"run context: {_name} lies at {getattr(RunContext, _name).offset}, not {_offset}")
