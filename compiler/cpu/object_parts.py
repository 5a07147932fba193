"""Compiles a module's kernels in the background while the rest of the module is still being written.

A module in one piece goes through LLVM at the end, in one thread. Here every few kernels become an object of their own
(a part), which a background thread makes; the entry's object, made last, calls them by name. Functions that several
parts need are written into each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import Future

from ...runtime import background
from .emit_object import emit_object
from .llvm_text import ModuleText
from .target import Target

PART_BYTES = 48 << 10
"""Text of a part, at least: LLVM works on it for about 50 ms, a hundred times what a further object costs."""

KERNEL_TYPES = ("ptr", "ptr", "i64", "i64", "i64")
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
        if symbol in self._cut or symbol in self._waiting:
            return
        self._waiting[symbol] = None
        functions = list(self.text.functions)
        self._size += sum(len(self.text.functions[name]) for name in functions[self._seen:])
        self._seen = len(functions)
        if self._size >= self.part_bytes:
            self._cut.update(self._waiting)
            part = part_text(self.text, self._waiting)
            self._jobs.append(background.submit(emit_object, part, self.target))
            self._waiting, self._size = {}, 0

    def objects(self, entry: str) -> tuple[bytes, tuple[bytes, ...]]:
        """(object of the entry and of kernels that are in no part, the parts); waits for the background threads.

        Raises: InternalError  LLVM refuses the text.
        """
        last = part_text(self.text, [entry], self._cut) if self._cut else self.text.text()
        return emit_object(last, self.target), tuple(job.result() for job in self._jobs)


def references(text: ModuleText, roots: Iterable[str], outside: Iterable[str] = ()) -> list[str]:
    """All names that functions use, directly and through other functions of the module, the roots first.

    Functions that are `outside` are named, and not looked into.
    """
    seen = dict.fromkeys(roots)
    stack, closed = list(seen), frozenset(outside)
    while stack:
        body = "" if (name := stack.pop()) in closed else text.functions.get(name, "")
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
            part.declare(name, "void", KERNEL_TYPES)
        elif name in text.functions:
            body = text.functions[name]
            part.add(name, body.replace("define internal ", "define ", 1) if name in roots else body)
        elif name in text.globals:
            part.add_global(name, text.globals[name])
        elif name in text.declarations:
            part.declarations[name] = text.declarations[name]
    return part.text()
