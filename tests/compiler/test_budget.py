"""A compilation that takes more than it may ends with an error that says so, wherever it is at that time."""

from __future__ import annotations

import time
import types
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from builders import op, parameter, scalar
from tfbridge.compiler import BudgetError, LocalClient, Options, UnsupportedError, budget
from tfbridge.compiler.cpu import compile as cpu_compile
from tfbridge.compiler.cpu.compile import compile_module
from tfbridge.compiler.cpu.objects import kernel_libraries, parallel_codegen
from tfbridge.compiler.ir.module import Computation, Instruction, Module, make
from tfbridge.compiler.ops import Call, Dot, Parameter, Tuple
from tfbridge.compiler.progress import Progress
from tfbridge.runtime import process_defaults
from tfbridge.runtime.code import worker_pool
from tfbridge.runtime.errors import CompileCrash
from tfbridge.runtime.threads import compile_threads


class Clock:
    """A clock of the budget alone, that is an hour later from the n-th time on that it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.late_from, self.now = 0, 1 << 60, time.monotonic
        monkeypatch.setattr(budget, "time", types.SimpleNamespace(monotonic=self))

    def __call__(self) -> float:
        self.asked += 1
        return self.now() + 3600 * (self.asked >= self.late_from)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def program(size: int = 6, parts: int = 3) -> Module:
    """Products and fusions."""
    x = parameter(0, "f32", size, size)
    values = [x]
    for k in range(parts):
        values.append(op("tanh", op("add", make(Dot((1,), (0,)), values[-1], x), scalar(k, x))))
    return Module("program", Computation("main", make(Tuple(), *values[1:]), [x]))


def test_time_may_be_over_at_any_check(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever check it is that finds the time over, the error is the same, and the next compilation goes on."""
    monkeypatch.setattr(
        budget.Budget, "remaining_seconds", lambda self: 60.0
    )  # the clock is asked by checks alone
    options = Options(compile_seconds=60)
    compile_module(program(), options)
    asked, places = clock.asked, set()
    for late_from in range(2, asked, max(1, asked // 40)):
        clock.asked, clock.late_from = 0, late_from
        with pytest.raises(BudgetError, match="took more than compile_seconds=60") as error:
            compile_module(program(), options)
        places.add(str(error.value).partition("(in ")[2].split()[0])
    assert {"pass", "computation", "code", "a"} <= places
    clock.late_from = 1 << 60
    compile_module(program(), options)


def test_no_limit(clock: Clock) -> None:
    clock.late_from = 2
    compile_module(program(), Options(compile_seconds=0, compile_instructions=0))


def test_client_raises_what_its_options_allow() -> None:
    with pytest.raises(BudgetError, match="more than compile_instructions=9 "):
        LocalClient().compile(program(), Options(compile_instructions=9))
    x = np.eye(6, dtype=np.float32)
    assert len(LocalClient().compile(program(), Options(compile_instructions=900)).execute([x])) == 3
    assert issubclass(BudgetError, UnsupportedError)
    for name in ("compile_seconds", "compile_instructions", "compile_megabytes"):
        with pytest.raises(ValueError, match=f"{name}: -1 is negative"):
            Options(**{name: -1})


def test_memory_that_grows_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of this process, where the system tells of it, whatever the worker has that runs LLVM."""
    monkeypatch.setattr(budget, "_SAMPLE_SECONDS", 0)
    with budget.limited(0, 0, 16):
        budget.check("here")
        taken = np.ones(40 << 20, np.uint8)
        with pytest.raises(BudgetError, match=r"compile_megabytes=16 \(in here: by (3|4)\d\)"):
            budget.check("here")
        assert taken.all()
        monkeypatch.setattr(budget.os, "getpid", lambda: -1)
        budget.check("in a worker")
    monkeypatch.setattr(budget, "resident_bytes", lambda: 0)
    with budget.limited(0, 0, 1):
        budget.check("where the system does not tell")


def test_calls_that_double_end_soon() -> None:
    """Forty computations, each of which calls the one before twice: inlined, that would be a million millions."""
    x = Instruction(Parameter(0, parameter(0, "f32", 2).shape), (), parameter(0, "f32", 2).shape, "x")
    computation = Computation("c0", op("tanh", x), [x])
    for k in range(1, 40):
        inner = make(Call(computation), x)
        computation = Computation(f"c{k}", op("add", inner, make(Call(computation), inner)), [x])
    with pytest.raises(BudgetError, match="compile_instructions=5000"):
        compile_module(Module("m", computation), Options(compile_instructions=5000))


def test_a_compilation_within_another_shares_its_budget() -> None:
    with budget.limited(0, 10):
        with budget.limited(0, 1000), pytest.raises(BudgetError):
            budget.check("here", 11)
        with budget.within(None):
            budget.check("here", 11)
    budget.check("here", 11)


def test_rewriting_loops_ask(clock: Clock) -> None:
    with budget.limited(60, 0):
        Progress("work", 5).step()
        clock.late_from = 0
        with pytest.raises(BudgetError, match=r"\(in work\)"):
            Progress("work", 5).step()


def test_parts_that_wait_for_a_thread_are_not_compiled(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_threads, "start", lambda *jobs: None)
    monkeypatch.setattr(parallel_codegen, "emit_object", lambda text, target: b"object")
    with budget.limited(60, 0):
        first, second = (parallel_codegen._start("", cpu_compile.machine(Options())) for _ in range(2))
        assert budget.result(first, "LLVM") == b"object"
        clock.late_from = 0
        with pytest.raises(BudgetError, match=r"\(in LLVM\)"):
            budget.result(second, "LLVM")


def test_nobody_waits_longer_than_the_budget() -> None:
    with budget.limited(0.01, 0), pytest.raises(BudgetError, match=r"compile_seconds=0.01 \(in LLVM\)"):
        budget.result(Future[Any](), "LLVM")


def test_library_functions_have_no_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_libraries, "_load_or_compile", lambda function: budget.current())
    with budget.limited(60, 10):
        assert kernel_libraries._object("f") is None


def test_a_worker_gets_the_budget_and_is_ended_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_defaults.process, "compile_workers", True)
    workers = worker_pool.CompileWorkers(1)
    monkeypatch.setattr(worker_pool, "_process_workers", worker_pool.ProcessWorkers(lambda: workers))
    try:
        with budget.limited(60, 0):
            job = parallel_codegen._start("define void @f() { ret void }", cpu_compile.machine(Options()))
            assert b"ELF" in budget.result(job, "LLVM")[:4]
        with pytest.raises(CompileCrash, match="status -9 in time.sleep"):
            workers.submit("time", "sleep", 60, seconds=0.05).result(60)
        over = budget.Budget(1, 0, 0.0)
        with pytest.raises(BudgetError):
            workers.submit(budget.__name__, "run", over, "LLVM", abs, -2).result(60)
    finally:
        workers.close()
