"""The budget of a compilation: seconds, instructions of a module and memory, after which it ends with an error.

A compilation opens one with `limited`. Passes, rewriting loops, kernel emitters and the code that starts LLVM call
`check`. A compilation within another one shares its budget. `run` hands the budget to another thread.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

from ..runtime.llvm import control_flow
from ..runtime.threads import compile_threads, interrupts
from .errors import BudgetError

Result = TypeVar("Result")


@dataclasses.dataclass
class _Memory:
    """The memory of a process when a compilation began in it, and the time of the next sample."""

    process: int = dataclasses.field(default_factory=os.getpid)
    bytes: int = dataclasses.field(default_factory=lambda: resident_bytes())
    next_sample: float = dataclasses.field(default_factory=lambda: time.monotonic() + _SAMPLE_SECONDS)


@dataclasses.dataclass(frozen=True)
class Budget:
    """Limits of a compilation. seconds, instructions, megabytes: 0 for no limit. deadline: of the monotonic clock.

    megabytes: growth of the memory of the whole process. The memory of LLVM in a compile worker is not counted.
    Units: a megabyte is 2**20 bytes.
    """

    seconds: float
    instructions: int
    deadline: float
    megabytes: int = 0
    memory: _Memory = dataclasses.field(default_factory=_Memory, compare=False)

    def growth(self, now: float) -> int:
        """Megabytes by which the process has grown, a new sample; 0 where the system does not say."""
        memory = self.memory
        if not memory.bytes or memory.process != os.getpid():
            return 0
        memory.next_sample = now + _SAMPLE_SECONDS
        return resident_bytes() - memory.bytes >> 20

    def remaining_seconds(self) -> float | None:
        """Seconds, 0 when none remain; None without a limit."""
        return max(0.0, self.deadline - time.monotonic()) if self.seconds else None


_SAMPLE_SECONDS = 0.03  # between samples of the memory; each takes some ten microseconds
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


def resident_bytes() -> int:
    """Memory of this process that is not swapped out; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


_current: contextvars.ContextVar[Budget | None] = contextvars.ContextVar(
    "tfbridge_compile_budget", default=None
)


@contextlib.contextmanager
def limited(seconds: float, instructions: int, megabytes: int = 0) -> Iterator[None]:
    """Within, the compilation has this budget, or that of the compilation around it, if there is one."""
    if _current.get() is not None:
        yield
        return
    with within(Budget(seconds, instructions, time.monotonic() + seconds, megabytes)):
        yield


@contextlib.contextmanager
def within(budget: Budget | None) -> Iterator[None]:
    """Within, this budget is in force, or none: for other threads of a compilation, and for work that several
    compilations share."""
    token = _current.set(budget)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Budget | None:
    """The budget in force."""
    return _current.get()


def check(where: str, instructions: int = 0) -> None:
    """Checks the budget. `instructions`: number of instructions of the module now.

    Raises: BudgetError  the time is over, the process has grown too much, or there are too many instructions; it says
        `where`. KeyboardInterrupt  Ctrl-C came.
    """
    interrupts.check()
    budget = _current.get()
    if budget is None:
        return
    now = time.monotonic()
    if budget.seconds and now > budget.deadline:
        raise BudgetError(f"compilation took more than compile_seconds={budget.seconds:g} (in {where})")
    if budget.megabytes and now >= budget.memory.next_sample:
        growth = budget.growth(now)
        if growth > budget.megabytes:
            raise BudgetError(
                f"memory grew by more than compile_megabytes={budget.megabytes} (in {where}: by {growth})"
            )
    if budget.instructions and instructions > budget.instructions:
        raise BudgetError(
            f"the module has more than compile_instructions={budget.instructions} (in {where}: "
            f"{instructions})"
        )


def run(budget: Budget | None, where: str, function: Callable[..., Result], *arguments: object) -> Result:
    """Calls a function with a budget in force. Raises: BudgetError  the budget is used up."""
    with within(budget):
        check(where)
        return function(*arguments)


def result(future: Future[Result], where: str) -> Result:
    """The result of a future. Raises: BudgetError  it is not there when the budget is used up."""
    budget = _current.get()
    try:
        return compile_threads.result(future, None if budget is None else budget.remaining_seconds())
    except FutureTimeoutError:
        check(where)
        raise


control_flow.set_checkpoint(check)
