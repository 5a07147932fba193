"""The budget of a compilation: seconds, instructions of a module and memory, after which it ends with an error.

Who compiles opens one with `limited`. Passes, rewriting loops, the code that writes kernels, and what starts LLVM call
`check`. A compilation within another one shares its budget. Work for another thread or process takes it along with
`run`.
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

from ..runtime.llvm import ir_builder
from ..runtime.threads import compile_threads, interrupts
from .errors import BudgetError

Result = TypeVar("Result")


@dataclasses.dataclass
class _Memory:
    """The memory of a process when a compilation began in it, and when to look at it again."""

    process: int = dataclasses.field(default_factory=os.getpid)
    bytes: int = dataclasses.field(default_factory=lambda: resident_bytes())
    next_look: float = 0.0


@dataclasses.dataclass(frozen=True)
class Budget:
    """What a compilation may take. seconds, instructions, megabytes: 0 for no limit. deadline: of the monotonic clock.

    megabytes: growth of the memory of the whole process. What LLVM takes in a process of its own is not seen.
    Units: a megabyte is 2**20 bytes.
    """

    seconds: float
    instructions: int
    deadline: float
    megabytes: int = 0
    memory: _Memory = dataclasses.field(default_factory=_Memory, compare=False)

    def grown(self, now: float) -> int:
        """Megabytes that the process has grown by, looked at from time to time only: 0 in between, and where it is not
        known."""
        memory = self.memory
        if now < memory.next_look or not memory.bytes or memory.process != os.getpid():
            return 0
        memory.next_look = now + _LOOK_SECONDS
        return resident_bytes() - memory.bytes >> 20

    def left(self) -> float | None:
        """Seconds, 0 when none are left; None without a limit."""
        return max(0.0, self.deadline - time.monotonic()) if self.seconds else None


_LOOK_SECONDS = 0.01  # between looks at the memory, of which each takes some ten microseconds
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
    """Within, the compilation has this budget from now on; it has that of the one around it, if there is one."""
    if _current.get() is not None:
        yield
        return
    with within(Budget(seconds, instructions, time.monotonic() + seconds, megabytes)):
        yield


@contextlib.contextmanager
def within(budget: Budget | None) -> Iterator[None]:
    """Within, this budget is in force, or none: for what other threads do for a compilation, and for what several
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
    """Goes on only with a budget left. `instructions`: of the module now.

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
    if budget.megabytes and (grown := budget.grown(now)) > budget.megabytes:
        raise BudgetError(
            f"memory grew by more than compile_megabytes={budget.megabytes} (in {where}: by {grown})"
        )
    if budget.instructions and instructions > budget.instructions:
        raise BudgetError(
            f"the module has more than compile_instructions={budget.instructions} (in {where}: "
            f"{instructions})"
        )


def run(budget: Budget | None, where: str, function: Callable[..., Result], *arguments: object) -> Result:
    """What a function returns, called with a budget, if any of it is left. Raises: BudgetError  none is."""
    with within(budget):
        check(where)
        return function(*arguments)


def result(future: Future[Result], where: str) -> Result:
    """A future's result, for which nobody waits longer than the budget. Raises: BudgetError  it takes longer."""
    budget = _current.get()
    try:
        return compile_threads.result(future, None if budget is None else budget.left())
    except FutureTimeoutError:
        check(where)
        raise


ir_builder.checkpoint = check
