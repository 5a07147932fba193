"""What this machine can do at most, measured: multiplications and additions, and copying, per second.

The loops are written as LLVM text for this machine's registers and loaded like any compiled code; threads run them at
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
from ...runtime.llvm.target import host

_ROUNDS = 1 << 20  # of the multiply-add loop: some milliseconds
_COPY_BYTES = 1 << 28  # copied per sample, in as many passes as that takes
_COPY_LANES = 4  # vectors per step


@functools.cache
def _functions() -> tuple[Callable[..., float], Callable[..., None], int]:
    """(multiply-add loop, copy loop, floating-point operations of a round of the first)."""
    target = host()
    lanes = target.lanes(32)
    chains = 12 if target.registers >= 16 else 6  # enough to hide the latency, few enough for the registers
    vector = f"<{lanes} x float>"
    phis = "\n".join(
        f"  %a{k} = phi {vector} [zeroinitializer, %entry], [%b{k}, %loop]" for k in range(chains)
    )
    steps = "\n".join(
        f"  %b{k} = call {vector} @llvm.fmuladd.v{lanes}f32({vector} %x, {vector} %y, {vector} %a{k})"
        for k in range(chains)
    )
    sums = "\n".join(
        f"  %s{k} = fadd {vector} {'%s' + str(k - 1) if k else 'zeroinitializer'}, %b{k}"
        for k in range(chains)
    )
    moves = "\n".join(
        f"""  %i{k} = add i64 %i, {k * lanes}
  %p{k} = getelementptr float, ptr %source, i64 %i{k}
  %q{k} = getelementptr float, ptr %target, i64 %i{k}
  %v{k} = load {vector}, ptr %p{k}, align {4 * lanes}
  store {vector} %v{k}, ptr %q{k}, align {4 * lanes}"""
        for k in range(_COPY_LANES)
    )
    text = f"""
declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})
define float @multiply_add(i64 %rounds, float %one) nounwind {{
entry:
  %o = insertelement {vector} poison, float %one, i64 0
  %x = shufflevector {vector} %o, {vector} poison, <{lanes} x i32> zeroinitializer
  %y = fmul {vector} %x, %x
  br label %loop
loop:
  %n = phi i64 [0, %entry], [%m, %loop]
{phis}
{steps}
  %m = add i64 %n, 1
  %more = icmp ult i64 %m, %rounds
  br i1 %more, label %loop, label %done
done:
{sums}
  %r = extractelement {vector} %s{chains - 1}, i64 0
  ret float %r
}}
define void @copy(ptr %source, ptr %target, i64 %elements, i64 %passes) nounwind {{
entry:
  br label %pass
pass:
  %p = phi i64 [0, %entry], [%pn, %passed]
  br label %loop
loop:
  %i = phi i64 [0, %pass], [%in, %loop]
{moves}
  %in = add i64 %i, {_COPY_LANES * lanes}
  %more = icmp ult i64 %in, %elements
  br i1 %more, label %loop, label %passed
passed:
  %pn = add i64 %p, 1
  %again = icmp ult i64 %pn, %passes
  br i1 %again, label %pass, label %done
done:
  ret void
}}
"""
    found = linker.load_text(text, ("multiply_add", "copy")).keep().addresses
    multiply_add = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64, ctypes.c_float)(found["multiply_add"])
    copy = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        found["copy"]
    )
    return multiply_add, copy, 2 * chains * lanes


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
