"""What this machine can do at most, measured: multiplications and additions, and copying, per second.

The loops are written as LLVM IR for this machine's registers and loaded like any compiled code; threads run them at
the same time, each on memory of its own.

    python -m tfbridge.compiler.cpu.machine_peak THREADS [BYTES ...]  # prints JSON: flops, bytes copied within BYTES
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from ...runtime.code import linker
from ...runtime.code.peak_rates import PeakRates
from ...runtime.llvm.ir_builder import Function
from ...runtime.llvm.module_text import ModuleText
from ...runtime.llvm.target import host
from ...runtime.llvm.types import parameters, split_vector, vector_type
from ...runtime.llvm.vector_value import VectorValue

_ROUNDS = 1 << 20  # of the multiply-add loop: some milliseconds
_COPY_BYTES = 1 << 28  # copied per sample, in as many passes as that takes
_BEYOND_BYTES = 1 << 26  # more than the caches of a core
_COPY_LANES = 4  # vectors per step


@functools.cache
def _functions() -> tuple[Callable[..., float], Callable[..., None], int]:
    """(multiply-add loop, copy loop, floating-point operations of a round of the first)."""
    target = host()
    lanes = target.lanes(32)
    chains = 12 if target.registers >= 16 else 6  # enough to hide the latency, few enough for the registers
    module = ModuleText(target)
    _write_multiply_add(module, vector_type("float", lanes), chains)
    _write_copy(module, vector_type("float", lanes))
    addresses = linker.load_text(module.text(), ("multiply_add", "copy")).keep().addresses
    multiply_add = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64, ctypes.c_float)(addresses["multiply_add"])
    copy = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        addresses["copy"]
    )
    return multiply_add, copy, 2 * chains * lanes


def _write_multiply_add(module: ModuleText, vector: str, chains: int) -> None:
    """`multiply_add(rounds, one)`: in each round a step of every chain of multiply-adds; returns a lane of the sum."""
    f = Function(module, "multiply_add", parameters("i64 rounds, float one"), result="float", linkage="")
    x = VectorValue.of(f, f["one"]).splat(split_vector(vector)[1])
    y = x * x
    with f.loop(0, f.integer("rounds"), sums=[f.zero(vector)] * chains, guard=False) as loop:
        loop.sums = [x.call("fmuladd", y, s) for s in loop.sums]
    total = f.zero(vector)
    for s in loop.sums:
        total = total + s
    f.ret(total.extract(0))
    module.add("multiply_add", f.text())


def _write_copy(module: ModuleText, vector: str) -> None:
    """`copy(source, target, elements, passes)`: copies so many f32, some vectors in a step, again and again."""
    listed = "ptr source, ptr target, i64 elements, i64 passes"
    f = Function(module, "copy", parameters(listed), linkage="")
    source, target = f.pointers("source", "target")
    lanes = split_vector(vector)[1]
    passes, elements = f.integers("passes", "elements")
    with f.loop(0, passes, guard=False), f.loop(0, elements, _COPY_LANES * lanes, guard=False) as loop:
        for k in range(_COPY_LANES):
            at = loop.index + k * lanes
            target.at(at, "float").store(source.at(at, "float").load(vector, 4 * lanes), 4 * lanes)
    f.ret()
    module.add("copy", f.text())


def flops_per_second(threads: int, samples: int = 20) -> float:
    """Operations on f32 per second of `threads` threads, a multiply-add counting as two: the best of some samples."""
    multiply_add, _, per_round = _functions()
    seconds = min(_together(threads, lambda _: multiply_add(_ROUNDS, 1.0)) for _ in range(samples))
    return threads * per_round * _ROUNDS / seconds


def copied_bytes_per_second(size: int, threads: int, samples: int = 6) -> float:
    """Bytes read and written per second by copies within `size` bytes of memory, source and target: the best of some.

    Above a megabyte the C library's copy, which may pass caches by, counts where it is the faster.
    """
    _, copy, _ = _functions()
    part = max(256, size // 2 // threads // 256 * 256)
    passes = max(1, _COPY_BYTES // (part * threads))
    memory = [(_aligned(part), _aligned(part)) for _ in range(threads)]

    def ours(thread: int) -> None:
        source, target = memory[thread]
        copy(source.ctypes.data, target.ctypes.data, part // 4, passes)

    def theirs(thread: int) -> None:
        source, target = memory[thread]
        for _ in range(passes):
            ctypes.memmove(target.ctypes.data, source.ctypes.data, part)

    ways = [ours, theirs] if size > 1 << 20 else [ours]
    seconds = min(_together(threads, way) for way in ways for _ in range(samples))
    return 2 * part * threads * passes / seconds


@functools.cache
def peak_rates() -> PeakRates:
    """The rates of one thread, measured in a quarter of a second."""
    target = host()
    cached, beyond = (
        copied_bytes_per_second(size, 1, samples=2) for size in (target.l2_bytes // 2, _BEYOND_BYTES)
    )
    return PeakRates(flops_per_second(1, samples=4), max(cached, beyond), beyond, target.l2_bytes)


def _aligned(size: int) -> np.ndarray:
    raw = np.ones(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def _together(threads: int, work: Callable[[int], object]) -> float:
    """Seconds until `work(thread)` is over in all threads, which start it at the same time."""
    ready = threading.Barrier(threads + 1)

    def run(thread: int) -> None:
        ready.wait()
        work(thread)

    running = [threading.Thread(target=run, args=(k,)) for k in range(threads)]
    for thread in running:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in running:
        thread.join()
    return time.perf_counter() - start


def main(threads: int, sizes: list[int]) -> None:
    """Measures on the first `threads` CPUs of this process and prints."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    copied = [copied_bytes_per_second(size, threads) for size in sizes]
    print(json.dumps({"flops_per_second": flops_per_second(threads), "bytes_per_second": copied}))


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(text) for text in sys.argv[2:]])
