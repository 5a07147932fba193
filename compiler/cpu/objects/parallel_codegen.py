"""Compiles a module's kernels in the background while the rest of the module is still being written.

A module in one piece goes through LLVM at the end, in one thread. Here every few kernels become an LLVM module of their
own, a split module, which a background thread compiles; the entry's object, compiled last, calls them by name.
Functions that several split modules need are written into each. Driver code, which prepares and calls kernels
(ir_builder.DRIVER_ATTRIBUTES), goes into the entry's object, which LLVM does not optimize: that takes a sixth of the
time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from ....runtime import process_defaults
from ....runtime.code import worker_pool
from ....runtime.errors import CompileCrash
from ....runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, ModuleText
from ....runtime.llvm.target import Target
from ....runtime.threads import compile_threads, processors
from ... import budget
from ...errors import UnsupportedError
from ...object_options import ObjectOptions
from . import kernel_libraries
from .decoration import Layer, object_text, references, titles_of
from .object_emitter import emit_measured_object, emit_object, parts_of_measured, prepare
from .split_module import split_module
from .stack_sizes import frame_sizes, stack_bounds

MIN_BYTES = 8 << 10  # text of a module that is split at all
MIN_SPLIT_BYTES = (
    3 << 10
)  # of the modules that the kernels that remain at the end are split into, one for each CPU
SPLIT_BYTES = 48 << 10
"""Text of a split module, at least, but for the last one: LLVM works on it for about 30 ms, thirty times what a further
object costs."""

_NAME = re.compile(r"@([\w.$]+)")


class WholeObject:
    """One object for all that is written to `text`, library kernels included."""

    def __init__(self, text: ModuleText, options: ObjectOptions) -> None:
        assert text.target is not None
        self.text, self.target, self.options = text, text.target, options

    def emit(
        self, entries: Sequence[str], layers: Mapping[int, Layer], kernels: Mapping[str, Sequence[int]]
    ) -> tuple[bytes, dict[str, int]]:
        """(the object, the bytes of the stack that entries take). `kernels`: the numbers of the layers of kernels.

        A worker makes it: what LLVM cannot compile for another machine may end the process, and what it says of frames
        goes to the process's stderr.
        Raises: UnsupportedError  LLVM ended. BudgetError  the compilation's time is over.
        """
        titles = titles_of(self.text, layers, kernels if self.options.debug else {})
        text = object_text(self.text, self.options, titles)
        try:
            data = budget.result(_start_in_worker(text, self.target, emit_measured_object), _LLVM)
        except CompileCrash as crash:
            raise UnsupportedError(
                f"LLVM cannot compile this for {self.target.triple}, CPU {self.target.cpu or 'generic'}: {crash}"
            ) from crash
        messages, object_code = parts_of_measured(data)
        names = {symbol: name for name, symbol in titles.symbols.items()}
        frames = {names.get(symbol, symbol): size for symbol, size in frame_sizes(messages).items()}
        return object_code, stack_bounds(self.text, frames, references(self.text), entries)


def start_worker() -> None:
    """Starts a process for `WholeObject` beside this thread."""
    worker_pool.submit(prepare.__module__, prepare.__name__)


class ParallelCodegen:
    """Objects of the kernels that are written to `text`, compiled while further ones are written."""

    def __init__(self, text: ModuleText, target: Target, split_bytes: int = SPLIT_BYTES) -> None:
        self.text, self.target, self.split_bytes = text, target, split_bytes
        self._waiting: dict[str, None] = {}  # functions for the next split modules
        self._started: set[str] = set()  # functions of split modules
        self._waiting_bytes = self._seen = 0
        self._jobs: list[Future[bytes]] = []

    def kernel_written(self, symbol: str) -> None:
        """Starts to compile the kernels that wait, if they are large enough, and the library kernels that they call.

        Equal kernels may be reported more than once.
        """
        self._wait_for(symbol)
        functions = list(self.text.functions)
        self._waiting_bytes += sum(len(self.text.functions[name]) for name in functions[self._seen :])
        self._seen = len(functions)
        if self._waiting_bytes >= self.split_bytes:
            self._split()
        kernel_libraries.prefetch(self.text.libraries)

    def emit(self, entries: Sequence[str]) -> list[bytes]:
        """The object of the entries, then those of the kernels.

        Raises: BudgetError  the compilation's time is over.
        """
        jobs = self.jobs(*entries)
        compile_threads.run((*jobs, *kernel_libraries.jobs()))
        return [budget.result(job, "LLVM") for job in jobs]

    def jobs(self, *entries: str) -> list[Future[bytes]]:
        """The jobs that compile the entries, with the kernels that are in no split module, and the split modules."""
        if self._started or self._waiting_bytes >= MIN_BYTES:
            for entry in entries:
                self._wait_for(entry)
            self._split(max(1, min(processors.usable_cpus(), self._waiting_bytes // MIN_SPLIT_BYTES)))
        last = split_module(self.text, entries, self._started) if self._started else self.text.text()
        return [_start(last, self.target), *self._jobs]

    def _wait_for(self, symbol: str) -> None:
        """Adds a function, or what driver code calls, to those that wait, unless it is in a split module."""
        self._waiting.update(
            dict.fromkeys(name for name in _kernels(self.text, symbol) if name not in self._started)
        )

    def _split(self, count: int = 1) -> None:
        """Starts to compile the functions that wait, in that many modules of about the same size if there are as many
        functions."""
        sizes = [len(self.text.functions[name]) for name in self._waiting]
        names: list[str] = []
        done, total, modules = 0, sum(sizes), 0
        for name, size in zip(self._waiting, sizes):
            names.append(name)
            done += size
            if done * count >= total * (modules + 1):
                self._jobs.append(_start(split_module(self.text, names), self.target))
                names, modules = [], modules + 1
        self._started.update(self._waiting)
        self._waiting, self._waiting_bytes = {}, 0


def _start(text: str, target: Target) -> Future[bytes]:
    """The object of a module's text, made beside this thread.

    Raises (from the future): InternalError  LLVM refuses the text. CompileCrash  a compile worker died. BudgetError
        the compilation's time was over before it began.
    """
    if process_defaults.process.compile_workers:
        return _start_in_worker(text, target)
    return compile_threads.submit(budget.run, budget.current(), _LLVM, emit_object, text, target)


def _start_in_worker(
    text: str, target: Target, emit: Callable[[str, Target], bytes] = emit_object
) -> Future[bytes]:
    limits = budget.current()
    remaining = None if limits is None else limits.remaining_seconds()
    return worker_pool.submit(budget.__name__, "run", limits, _LLVM, emit, text, target, seconds=remaining)


_LLVM = "LLVM"


def _kernels(text: ModuleText, symbol: str) -> list[str]:
    """A function, or, if it is driver code, the functions that it calls, through other driver code or directly."""
    kernels: dict[str, None] = {}
    stack, seen = [symbol], {symbol}
    while stack:
        name = stack.pop()
        body = text.functions[name]
        if DRIVER_ATTRIBUTES not in body.partition("{")[0]:
            kernels[name] = None
            continue
        for used in _NAME.findall(body):
            if used in text.functions and used not in seen:
                seen.add(used)
                stack.append(used)
    return list(kernels)
