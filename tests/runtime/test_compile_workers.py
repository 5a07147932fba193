"""Worker processes: values, errors, crashes, parallel jobs, and an interpreter that ends at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tfbridge.runtime.compile_workers import CompileWorkers
from tfbridge.runtime.errors import CompileCrash


@pytest.fixture
def workers() -> Iterator[CompileWorkers]:
    made = CompileWorkers(2)
    yield made
    made.close()


def test_value_and_exception(workers: CompileWorkers) -> None:
    assert workers.submit("math", "hypot", 3.0, 4.0).result(30) == 5.0
    with pytest.raises(ZeroDivisionError) as caught:
        workers.submit("operator", "truediv", 1, 0).result(30)
    assert "in a compile worker" in caught.value.__notes__[0]
    with pytest.raises(ModuleNotFoundError):
        workers.submit("no_such_module", "f").result(30)
    assert len(workers.submit("builtins", "bytes", 3_000_000).result(30)) == 3_000_000


def test_worker_has_no_tensorflow(workers: CompileWorkers) -> None:
    loaded = workers.submit("builtins", "eval", "sorted(__import__('sys').modules)").result(30)
    assert "tfbridge.runtime" in loaded and not any(name.split(".")[0] == "tensorflow" for name in loaded)


def test_output_of_a_job_is_no_answer(workers: CompileWorkers) -> None:
    assert workers.submit("builtins", "print", "on standard error").result(30) is None
    assert workers.submit("os", "write", 1, b"and this\n").result(30) == 9


def test_answer_that_cannot_be_pickled(workers: CompileWorkers) -> None:
    with pytest.raises(RuntimeError, match="cannot be pickled"):
        workers.submit("threading", "Lock").result(30)
    assert workers.submit("builtins", "abs", -1).result(30) == 1


def test_job_that_cannot_be_pickled(workers: CompileWorkers) -> None:
    with pytest.raises(Exception, match="pickle"):
        workers.submit("builtins", "abs", threading.Lock()).result(30)
    assert workers.submit("builtins", "abs", -1).result(30) == 1


def test_crash_costs_one_job(workers: CompileWorkers) -> None:
    for _ in range(2):
        with pytest.raises(CompileCrash, match="status -11 in os.kill|status -11 in signal.raise_signal"):
            workers.submit("signal", "raise_signal", signal.SIGSEGV).result(30)
        assert workers.submit("builtins", "abs", -1).result(30) == 1


def test_worker_that_died_while_idle_is_replaced(workers: CompileWorkers) -> None:
    first = workers.submit("os", "getpid").result(30)
    os.kill(first, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(p.poll() is None for p in workers._processes.values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert workers.submit("os", "getpid").result(30) != first


def test_jobs_run_in_parallel_and_no_more_workers_than_the_limit(workers: CompileWorkers) -> None:
    pids = {f.result(30) for f in [workers.submit("builtins", "eval", "(__import__('time').sleep(0.2), "
                                                  "__import__('os').getpid())[1]") for _ in range(5)]}
    assert len(pids) == 2


def test_close_fails_what_is_under_way() -> None:
    workers = CompileWorkers(1)
    running, waiting = (workers.submit("time", "sleep", 60) for _ in range(2))
    time.sleep(0.3)
    workers.close()
    for future in (running, waiting):
        with pytest.raises(CompileCrash):
            future.result(10)
    with pytest.raises(CompileCrash):
        workers.submit("builtins", "abs", 1)


def test_interpreter_ends_with_a_job_under_way() -> None:
    script = """
import os
from tfbridge.runtime import compile_workers
print(compile_workers.submit("os", "getpid").result(30))
compile_workers.submit("time", "sleep", 60)
compile_workers.submit("builtins", "abs", -2).result(30)
child = os.fork()
if child == 0:
    print(compile_workers.submit("builtins", "abs", -3).result(30), flush=True)
    raise SystemExit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(compile_workers.submit("builtins", "abs", -4).result(30))
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=40, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    pid, *others = done.stdout.split()
    assert others == ["3", "4"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
