"""A module of LLVM IR as text: functions, globals and declarations."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..sizes import Size

if TYPE_CHECKING:
    from .target import Target


_NAME = re.compile(r"@([\w.$]+)")


class _FunctionText(Protocol):
    def text(self) -> str:
        """The function, named `SELF`."""


class ModuleText:
    """A module's text: functions, globals and declarations, each written once.

    `target` is the machine that code is written for; without one, code uses no instruction that a machine may lack.
    `define` returns a name for a function's text; equal text given twice is written once. That is how equal kernels are
    compiled once. With `embed_libraries` the library functions that are called are written into the module. `outlined`
    are the functions of elements that kernels call. `sizes` are the sizes that functions read from the run context, by
    their numbers in its table.
    """

    def __init__(self, target: Target | None = None, embed_libraries: bool = False) -> None:
        self.target = target
        self.embed_libraries = embed_libraries
        self.triple = target.triple if target else ""
        self.functions: dict[str, str] = {}
        self.outlined: dict[Hashable, str] = {}
        self._by_text: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.sizes: dict[Size, int] = {}
        self._later: dict[str, tuple[Callable[[Sequence[Any]], None], list[Any]]] = {}

    @property
    def libraries(self) -> list[str]:
        """The library functions that are called and not written here."""
        return sorted(n for n in self.declarations if n.startswith("tfb_") and n not in self.functions)

    def declare(self, name: str, result: str, parameters: Sequence[str], attributes: str = "") -> str:
        """Declares an external function or an intrinsic; returns its name."""
        self.declarations[name] = f"declare {result} @{name}({', '.join(parameters)}) {attributes}".rstrip()
        return name

    def add_global(self, name: str, text: str) -> str:
        """Adds `@name = text`; returns the name."""
        self.globals[name] = text
        return name

    def has(self, name: str) -> bool:
        """Whether a function of that name is defined here."""
        return name in self.functions

    def add(self, name: str, text: str) -> str:
        """Adds a function's whole text under its own name; a second one of the same name is ignored."""
        self.functions.setdefault(name, text)
        return name

    def write_later(self, name: str, uses: object, write: Callable[[Sequence[Any]], None]) -> None:
        """A function that `finish` writes, by what all say who use it."""
        self._later.setdefault(name, (write, []))[1].append(uses)

    def finish(self) -> None:
        """Writes what was left for later."""
        for write, all_uses in self._later.values():
            write(all_uses)
        self._later.clear()

    def define(self, prefix: str, function: _FunctionText) -> str:
        """Adds a function built with the name `SELF`; returns its name: `prefix.N`, or that of its equal."""
        text = function.text()
        name = self._by_text.get(text)
        if name is None:
            name = f"{prefix}.{len(self.functions)}"
            self._by_text[text] = name
            self.functions[name] = text.replace("@SELF(", f"@{name}(", 1)
        return name

    def include(self, other: ModuleText, suffix: str) -> None:
        """Adds all of a module for another processor: its functions are compiled for that one, and their names and
        those of its globals get a suffix."""
        other.finish()
        own = other.functions.keys() | other.globals.keys()
        target = other.target
        attributes = f'"target-cpu"="{target.cpu}" "target-features"="{target.features}"' if target else ""

        def renamed(text: str) -> str:
            return _NAME.sub(lambda m: f"{m[0]}{suffix}" if m[1] in own else m[0], text)

        for name, text in other.functions.items():
            head, rest = renamed(text).split("\n", 1)
            self.functions[f"{name}{suffix}"] = f"{head.removesuffix('{')}{attributes} {{\n{rest}"
        for name, text in other.globals.items():
            self.globals[f"{name}{suffix}"] = renamed(text)
        self.declarations |= {n: d for n, d in other.declarations.items() if n not in other.functions}

    def text(self) -> str:
        """The module, with all that was left for later."""
        self.finish()
        triple = [f'target triple = "{self.triple}"'] if self.triple else []
        external = [d for n, d in self.declarations.items() if n not in self.functions]
        variables = [f"@{n} = {t}" for n, t in self.globals.items()]
        metadata = ["!0 = distinct !{!0, !1}", '!1 = !{!"llvm.loop.unroll.disable"}', "!2 = !{i32 1}"]
        return "\n".join([*triple, *variables, *external, *self.functions.values(), *metadata]) + "\n"
