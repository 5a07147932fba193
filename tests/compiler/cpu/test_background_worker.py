"""Modules as bytes, and their compilation in a worker of low priority."""

from __future__ import annotations

import math
import os
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from random_graphs import random_module
from tfbridge.compiler.cpu import artifact_cache, background_worker
from tfbridge.compiler.cpu.compile import machine
from tfbridge.compiler.errors import BudgetError
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.options import Options
from tfbridge.runtime.code.executable import Executable
from tfbridge.runtime.code.worker_pool import CompileWorkers, ProcessWorkers
from tfbridge.runtime.errors import CompileCrash
from tfbridge.runtime.threads import background
from tfbridge.runtime.threads.background import Request

LOOP = """
HloModule loop

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
body {
  p = (s32[], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4,8] get-tuple-element(p), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  zero = f32[] constant(0)
  sums = f32[4] reduce(x, zero), dimensions={1}, to_apply=add
  wide = f32[4,8] broadcast(sums), dimensions={0}
  y = f32[4,8] tanh(wide)
  ROOT t = (s32[], f32[4,8]) tuple(n, y)
}
condition {
  p = (s32[], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[4,8] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[4,8]) tuple(zero, x)
  w = (s32[], f32[4,8]) while(t), condition=condition, body=body
  ROOT r = f32[4,8] get-tuple-element(w), index=1
}
"""
X = np.random.default_rng(3).normal(size=(4, 8)).astype("f4")


def expected() -> np.ndarray:
    x = X
    for _ in range(3):
        x = np.tanh(x.sum(1, keepdims=True) * np.ones_like(x))
    return x


@pytest.mark.parametrize("seed", range(20))
def test_a_module_comes_back_the_same(seed: int) -> None:
    module = random_module(random.Random(seed).randrange)
    assert str(background_worker.module_of_bytes(background_worker.module_bytes(module))) == str(module)


def test_computations_and_attributes_come_back() -> None:
    module = parse_hlo(LOOP)
    again = background_worker.module_of_bytes(background_worker.module_bytes(module))
    assert str(again) == str(module)
    assert again.entry.instructions[0] is not module.entry.instructions[0]


def test_a_deep_module_comes_back() -> None:
    lines = "\n".join(f"x{k + 1} = f32[2] negate(x{k})" for k in range(5000))
    module = parse_hlo(
        f"HloModule deep\nENTRY e {{ x0 = f32[2] parameter(0)\n{lines}\nROOT r = f32[2] copy(x5000) }}"
    )
    assert str(background_worker.module_of_bytes(background_worker.module_bytes(module))) == str(module)


def compiled_in_background(priority: float = 1.0, **options: int) -> Any:
    """The artifact that the background thread loads, or its error."""
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(
                artifact_cache.load_artifact(os.urandom(8).hex(), lambda: parse_hlo(LOOP), Options(**options))
            )
        except Exception as error:
            results.append(error)

    background.process.request(Request("test", 0, work, priority))
    assert background.wait_for_compilation(120)
    return results[0]


def test_the_worker_compiles_at_low_priority() -> None:
    before = background.process.cpu_seconds
    artifact = compiled_in_background()
    np.testing.assert_allclose(Executable(artifact).execute([X])[0], expected(), rtol=1e-5)
    assert background.process.cpu_seconds > before
    (process,) = background_worker._process_workers.get()._processes.values()
    if hasattr(os, "getpriority"):
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == background_worker._NICENESS


def test_errors_of_the_worker_are_those_of_the_compiler() -> None:
    error = compiled_in_background(compile_instructions=2)
    assert isinstance(error, BudgetError) and "compile_instructions=2" in str(error)


def test_a_worker_that_dies_costs_one_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_in_background()
    workers = background_worker._process_workers.get()

    def dying(slot: int, worker: Callable[[int], Any] = workers._worker) -> Any:
        process = worker(slot)
        process.kill()  # found alive, it ends before it reads the module
        return process

    with monkeypatch.context() as patch:
        patch.setattr(workers, "_worker", dying)
        assert isinstance(compiled_in_background(), CompileCrash)
    np.testing.assert_allclose(Executable(compiled_in_background()).execute([X])[0], expected(), rtol=1e-5)


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")
def test_code_in_the_place_of_other_code_has_a_lower_priority() -> None:
    def lowest() -> int:
        process = background_worker._process_workers.get()._processes[1]
        threads = os.listdir(f"/proc/{process.pid}/task")
        return min(os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in threads)

    own = os.getpriority(os.PRIO_PROCESS, 0)
    compiled_in_background(priority=1.0)
    assert lowest() == min(own + background_worker._NICENESS, 19)
    compiled_in_background(priority=math.inf)
    may_raise = os.geteuid() == 0
    assert lowest() == own or not may_raise


def test_without_a_worker_this_process_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = ProcessWorkers(lambda: CompileWorkers(1))
    for name, value in {"_process_workers": workers, "_has_answered": False, "_is_broken": False}.items():
        monkeypatch.setattr(background_worker, name, value)
    monkeypatch.setattr("tfbridge.runtime.code.worker_pool._START", "raise SystemExit(1)")
    np.testing.assert_allclose(Executable(compiled_in_background()).execute([X])[0], expected(), rtol=1e-5)
    assert not background_worker.is_available()


def test_the_foreground_uses_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_worker, "compile", lambda *_: pytest.fail("a worker was asked"))
    assert threading.current_thread() is not background.process._thread
    artifact = artifact_cache.load_artifact(os.urandom(8).hex(), lambda: parse_hlo(LOOP))
    assert artifact.threads == machine(Options()).threads
