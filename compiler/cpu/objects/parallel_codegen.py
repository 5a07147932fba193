"""Compiles a module's kernels in the background while the rest of the module is still being written.

A module in one piece goes through LLVM at the end, in one thread. Here every few kernels become an object of their own
(a part), which a background thread makes; the entry's object, made last, calls them by name. Functions that several
parts need are written into each. Glue (ir_builder.GLUE), which prepares and calls kernels, goes into the entry's
object, on which LLVM does not work: that takes a sixth of the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import Future

from ....runtime import process_defaults
from ....runtime.code import worker_pool
from ....runtime.llvm.ir_builder import GLUE, ModuleText
from ....runtime.llvm.target import Target
from ....runtime.threads import compile_threads
from ... import budget
from .object_emitter import emit_object

LEAST_BYTES = 8 << 10  # text of a module that is cut at all
LEAST_PART_BYTES = 3 << 10  # of the parts that what is left at the end is divided into, one for each CPU
PART_BYTES = 48 << 10
"""Text of a part, at least, but for the last one: LLVM works on it for about 30 ms, thirty times what a further object
costs."""

_HEAD = re.compile(r"define (?:internal )?\s*(?P<result>\S+) @[\w.$]+\((?P<parameters>[^)]*)\)")
_NAME = re.compile(r"@([\w.$]+)")


class ObjectParts:
    """The objects of the kernels that are written to `text`; `finished` is called after each kernel."""

    def __init__(self, text: ModuleText, target: Target, part_bytes: int = PART_BYTES) -> None:
        self.text, self.target, self.part_bytes = text, target, part_bytes
        self._waiting: dict[str, None] = {}
        self._cut: set[str] = set()
        self._size = self._seen = 0
        self._jobs: list[Future[bytes]] = []

    def finished(self, symbol: str) -> None:
        """A kernel is written; equal ones may be reported more than once."""
        self._wait_for(symbol)
        functions = list(self.text.functions)
        self._size += sum(len(self.text.functions[name]) for name in functions[self._seen :])
        self._seen = len(functions)
        if self._size >= self.part_bytes:
            self._make_part()

    def _wait_for(self, symbol: str) -> None:
        """Puts a function, or what is called where it is glue, into the next part, unless it is in one."""
        self._waiting.update(dict.fromkeys(k for k in _kernels(self.text, symbol) if k not in self._cut))

    def _make_part(self, pieces: int = 1) -> None:
        """Starts to compile what waits, in that many pieces of about the same size where there are so many kernels."""
        sizes = [len(self.text.functions[name]) for name in self._waiting]
        piece: list[str] = []
        before, total, made = 0, sum(sizes), 0
        for name, size in zip(self._waiting, sizes):
            piece.append(name)
            before += size
            if before * pieces >= total * (made + 1):
                self._jobs.append(_start(part_text(self.text, piece), self.target))
                piece, made = [], made + 1
        self._cut.update(self._waiting)
        self._waiting, self._size = {}, 0

    def jobs(self, *entries: str) -> list[Future[bytes]]:
        """The jobs that make the object of the entries, with the kernels that are in no part, and the parts."""
        if self._cut or self._size >= LEAST_BYTES:
            for entry in entries:
                self._wait_for(entry)
            self._make_part(max(1, min(compile_threads.usable_cpus(), self._size // LEAST_PART_BYTES)))
        last = part_text(self.text, entries, self._cut) if self._cut else self.text.text()
        return [_start(last, self.target), *self._jobs]


def _start(text: str, target: Target) -> Future[bytes]:
    """The object of a module's text, made beside this thread.

    Raises (from the future): InternalError  LLVM refuses the text. CompileCrash  a compile worker died. BudgetError
        the compilation's time was over before it began.
    """
    given = budget.current()
    if process_defaults.process.compile_workers:
        left = None if given is None else given.left()
        return worker_pool.submit(
            budget.__name__, "run", given, _LLVM, emit_object, text, target, seconds=left
        )
    return compile_threads.submit(budget.run, given, _LLVM, emit_object, text, target)


_LLVM = "LLVM"


def _kernels(text: ModuleText, symbol: str) -> list[str]:
    """A function, or, where it is glue, the functions that are none and that it calls, directly or through glue."""
    found: dict[str, None] = {}
    stack, seen = [symbol], {symbol}
    while stack:
        name = stack.pop()
        body = text.functions[name]
        if GLUE not in body.partition("{")[0]:
            found[name] = None
            continue
        for used in _NAME.findall(body):
            if used in text.functions and used not in seen:
                seen.add(used)
                stack.append(used)
    return list(found)


def references(text: ModuleText, roots: Iterable[str], outside: Iterable[str] = ()) -> list[str]:
    """All names that functions use, directly and through others and constants of the module, the roots first.

    Functions that are `outside` are named, and not looked into.
    """
    seen = dict.fromkeys(roots)
    stack, closed = list(seen), frozenset(outside)
    while stack:
        name = stack.pop()
        body = "" if name in closed else text.functions.get(name) or text.globals.get(name, "")
        for used in _NAME.findall(body):
            if used not in seen:
                seen[used] = None
                stack.append(used)
    return list(seen)


def part_text(text: ModuleText, roots: Iterable[str], outside: Iterable[str] = ()) -> str:
    """A module of its own for some functions: they are exported, what they use comes along, kernels `outside` are
    declared."""
    roots, outside = list(roots), frozenset(outside)
    part = ModuleText(text.target)
    for name in references(text, roots, outside):
        if name in outside:
            head = _HEAD.match(text.functions[name])
            assert head is not None
            types = [p.rsplit(" ", 1)[0] for p in head["parameters"].split(", ") if p]
            part.declare(name, head["result"], types)
        elif name in text.functions:
            body = text.functions[name]
            part.add(name, body.replace("define internal ", "define ", 1) if name in roots else body)
        elif name in text.globals:
            part.add_global(name, text.globals[name])
        elif name in text.declarations:
            part.declarations[name] = text.declarations[name]
    return part.text()
