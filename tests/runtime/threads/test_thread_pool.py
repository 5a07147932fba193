"""The fork-join pool: every task runs once, thread ids stay in range, and no situation hangs or crashes."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from in_threads import in_threads
from machine_code import emit, parallel_artifact
from run_python import run_python
from tfbridge.runtime.code import support_library
from tfbridge.runtime.code.executable import Executable
from tfbridge.runtime.run_context import RunContext
from tfbridge.runtime.threads import futex, processors

pytestmark = pytest.mark.skipif(not futex.is_supported(), reason="no pool on this platform")

KERNEL = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 2, *(ctypes.c_int64,) * 3)


def parallel_for(kernel, tasks: int, grain: int, threads: int) -> None:
    """One launch from Python with a Python kernel."""
    launch = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 3, ctypes.c_int64, ctypes.c_int64)(
        support_library.addresses()["parallel_for"]
    )
    context = RunContext(threads=threads, pool=support_library.addresses()["pool"])
    launch(ctypes.addressof(context), ctypes.cast(kernel, ctypes.c_void_p).value, None, tasks, grain)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    "tasks, grain", [(1, 1), (2, 1), (3, 2), (64, 64), (65, 64), (1000, 7), (4097, 1), (5, 1 << 62)]
)
def test_every_task_runs_once(tasks: int, grain: int, threads: int) -> None:
    run = Executable(parallel_artifact(tasks, grain), threads=threads)
    x = np.arange(tasks)
    for _ in range(50):
        out, tids = run.execute([x])
        np.testing.assert_array_equal(out, x + 1)
        assert tids.min() >= 1 and tids.max() <= threads


def test_no_tasks_and_no_grain() -> None:
    ranges: list[tuple[int, int]] = []
    kernel = KERNEL(lambda context, buffers, low, high, tid: ranges.append((low, high)))
    parallel_for(kernel, 0, 1, 4)
    assert ranges == []
    parallel_for(kernel, 3, 0, 4)
    assert sorted(ranges) == [(0, 1), (1, 2), (2, 3)]


def test_helpers_join_and_get_distinct_ids() -> None:
    met = threading.Barrier(3)
    seen: list[int] = []

    def kernel(context: int, buffers: int, low: int, high: int, tid: int) -> None:
        seen.append(tid)
        met.wait(timeout=30)

    parallel_for(KERNEL(kernel), 3, 1, 3)
    assert sorted(seen) == [0, 1, 2]


def test_fewer_threads_than_helpers() -> None:
    seen: set[int] = set()

    def kernel(context: int, buffers: int, low: int, high: int, tid: int) -> None:
        seen.add(tid)
        time.sleep(0.0005)

    parallel_for(KERNEL(kernel), 40, 1, 4)
    seen.clear()
    parallel_for(KERNEL(kernel), 40, 1, 2)
    assert seen == {0, 1}


def test_nested_launch_is_serial() -> None:
    inner: list[tuple[int, int, int]] = []
    inner_kernel = KERNEL(lambda context, buffers, low, high, tid: inner.append((low, high, tid)))
    outer = KERNEL(lambda context, buffers, low, high, tid: parallel_for(inner_kernel, 10, 1, 4))
    parallel_for(outer, 4, 1, 2)
    assert inner == [(0, 10, 0)] * 4


def test_runs_on_other_threads_leave_no_processor_to_helpers() -> None:
    """As many runs at work as there are processors: a launch is serial. When they are over, helpers join again."""
    usable = processors.usable_cpus()
    over, at_work = threading.Event(), threading.Semaphore(0)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p,) * 4)(
        lambda *_: at_work.release() or over.wait(timeout=30) or 0
    )
    address = ctypes.cast(entry, ctypes.c_void_p).value
    others = [
        threading.Thread(target=support_library.run_function(), args=(address, None, None, None, 0))
        for _ in range(usable + 1)
    ]
    seen: set[int] = set()

    def kernel(context: int, buffers: int, low: int, high: int, tid: int) -> None:
        seen.add(tid)
        time.sleep(1e-3)

    for thread in others:
        thread.start()
    for _ in others:
        assert at_work.acquire(timeout=30)
    parallel_for(KERNEL(kernel), 64, 1, usable)
    assert seen == {0}
    over.set()
    for thread in others:
        thread.join()
    parallel_for(KERNEL(kernel), 64, 1, 2)
    assert seen == {0, 1}


def test_many_callers() -> None:
    sizes = [1, 2, 17, 500, 3000]
    runs = [Executable(parallel_artifact(n), threads=3) for n in sizes]

    def call(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(200):
            k = int(random.integers(len(sizes)))
            x = random.integers(0, 1000, sizes[k])
            out, tids = runs[k].execute([x])
            np.testing.assert_array_equal(out, x + 1)
            assert tids.min() >= 1 and tids.max() <= 3

    in_threads(8, call)


def test_sleeping_helpers_wake_and_idle_ones_rest() -> None:
    met = threading.Barrier(2)
    meet = KERNEL(lambda *_: met.wait(timeout=30) and None)
    for _ in range(5):
        parallel_for(meet, 2, 1, 2)
        time.sleep(0.01)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


@pytest.mark.parametrize("helpers", [1, 3])
def test_waiting_caller_rests_and_wakes(helpers: int) -> None:
    met = threading.Barrier(helpers + 1)
    done: list[int] = []

    def kernel(context: int, buffers: int, low: int, high: int, tid: int) -> None:
        met.wait(timeout=30)
        time.sleep(0.1 * tid)
        done.append(tid)

    start = time.thread_time()
    parallel_for(KERNEL(kernel), helpers + 1, 1, helpers + 1)
    assert time.thread_time() - start < 0.05 * helpers
    assert sorted(done) == list(range(helpers + 1))


# Functions that read and write the register with the floating-point mode, and its bits that flush denormals.
FLOATING_POINT_MODES = {
    "x86_64": (
        """
        declare void @llvm.x86.sse.stmxcsr(ptr)
        declare void @llvm.x86.sse.ldmxcsr(ptr)
        define void @read(ptr %to) {
          call void @llvm.x86.sse.stmxcsr(ptr %to)
          ret void
        }
        define void @write(ptr %from) {
          call void @llvm.x86.sse.ldmxcsr(ptr %from)
          ret void
        }
        """,
        0x8040,
    ),
    "aarch64": (
        """
        declare i64 @llvm.aarch64.get.fpcr()
        declare void @llvm.aarch64.set.fpcr(i64)
        define void @read(ptr %to) {
          %mode = call i64 @llvm.aarch64.get.fpcr()
          store i64 %mode, ptr %to
          ret void
        }
        define void @write(ptr %from) {
          %mode = load i64, ptr %from
          call void @llvm.aarch64.set.fpcr(i64 %mode)
          ret void
        }
        """,
        1 << 24,
    ),
}


@pytest.mark.skipif(os.uname().machine not in FLOATING_POINT_MODES, reason="its register is not read here")
def test_floating_point_mode_of_the_caller() -> None:
    """Helpers flush denormals exactly when the caller does (TensorFlow's threads do)."""
    text, flush = FLOATING_POINT_MODES[os.uname().machine]
    from tfbridge.runtime.code import linker

    loaded = linker.load(emit(text), ("read", "write"))
    read, write = (ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.addresses[n]) for n in ("read", "write"))
    slot = ctypes.c_uint64()
    read(ctypes.byref(slot))
    usual = slot.value
    modes: dict[int, int] = {}
    met = threading.Barrier(2)

    def kernel(context: int, buffers: int, low: int, high: int, tid: int) -> None:
        mine = ctypes.c_uint64()
        read(ctypes.byref(mine))
        modes[tid] = mine.value & flush
        met.wait(timeout=30)

    try:
        for mode in (flush, 0):
            write(ctypes.byref(ctypes.c_uint64(usual | mode)))
            parallel_for(KERNEL(kernel), 2, 1, 2)
            assert modes == {0: mode, 1: mode}
    finally:
        write(ctypes.byref(ctypes.c_uint64(usual)))


def run_script(body: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own, with `run` an executable of 1000 tasks and `x` its argument."""
    folders = [str(folder) for folder in Path(__file__).resolve().parents[:3]]
    head = (
        "import os, sys, threading, time\nimport numpy as np\n"
        f"sys.path[:0] = {folders!r}\n"
        "from machine_code import parallel_artifact\n"
        "from tfbridge.runtime.code.executable import Executable\n"
        "run, x = Executable(parallel_artifact(1000), threads=3), np.arange(1000)\n"
    )
    return run_python(head + body, timeout=60)


def test_fork() -> None:
    """A child, forked while other threads use the pool and the arenas, works with helpers of its own."""
    done = run_script("""
stop = False
def busy():
    while not stop:
        run.execute([x])
threads = [threading.Thread(target=busy) for _ in range(3)]
for t in threads: t.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        for _ in range(100):
            assert (run.execute([x])[0] == x + 1).all()
        met = threading.Barrier(2)
        from test_thread_pool import KERNEL, parallel_for
        parallel_for(KERNEL(lambda *_: met.wait(timeout=20) and None), 2, 1, 2)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop = True
for t in threads: t.join()
""")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "raise ValueError('on purpose')"])
def test_interpreter_ends_while_the_pool_is_busy(end: str) -> None:
    done = run_script(f"""
def busy():
    while True:
        run.execute([x])
for _ in range(2): threading.Thread(target=busy, daemon=True).start()
time.sleep(0.05)
{end}
""")
    assert done.returncode == (1 if "raise" in end else 0), done.stderr
    assert ("on purpose" in done.stderr) == ("raise" in end)
