"""The functions of an MLIR module, in pretty or generic form, its attributes, resources, and aliases."""

from __future__ import annotations

import re

from ..ir.shape import Shape
from ..limits import Limits
from .attributes import Attribute, Dialect
from .operations import Function
from .reader import GENERIC, LABEL, NAME, VALUE
from .short_forms import ShortFormReader
from .types import FunctionType

_ALIAS_LINE = re.compile(r"([#!][A-Za-z_][\w$]*)\s*=\s*")
_RESOURCE = re.compile(r'([\w.\-]+)\s*:\s*"0x([0-9A-Fa-f]*)"')
_FUNCTION_NAME = re.compile(r'@(?:([\w$.\-]+)|"((?:[^"\\]|\\.)*)")')
_VISIBILITY = re.compile(r"(public|private|nested)\b")


class FunctionReader(ShortFormReader):
    """Reads a module's functions.

    Raises: ParseError, UnsupportedError, ShapeError, LimitError  with a position.
    """

    def __init__(self, text: str, limits: Limits) -> None:
        super().__init__(text, limits)
        self.functions: dict[str, Function] = {}
        self.module_name = "module"
        self.module_attributes: dict[str, Attribute] = {}

    def read(self) -> None:
        """Reads all functions."""
        self.limits.check("text_characters", len(self.text), "characters of StableHLO text")
        if (start := self.text.find("{-#")) >= 0:
            self.resources = {
                name: bytes.fromhex(digits)[4:]
                for name, digits in _RESOURCE.findall(self.text, start)
                if len(digits) % 2 == 0
            }
        self.find_aliases()
        depth = self.at_top_level(0)
        while self.at < len(self.text):
            depth = self.at_top_level(depth)
        if depth:
            self.expected("`}`")

    def find_aliases(self) -> None:
        """Notes where `#name = value` and `!name = type` stand: behind the module, for what is used before."""
        for line in re.finditer(r"^[ \t]*([#!][A-Za-z_][\w$]*)\s*=\s*", self.text, re.MULTILINE):
            self.aliases[line[1]] = line.end()

    def at_top_level(self, depth: int) -> int:
        """Reads a function, the beginning or the end of a module, or an alias; returns how many modules are open."""
        self.space()
        if self.at >= len(self.text):
            return depth
        if self.accept("{-#"):
            end = self.text.find("#-}", self.at)
            self.at = len(self.text) if end < 0 else end + 3
        elif alias := _ALIAS_LINE.match(self.text, self.at):
            self.at = alias.end()
            self.attribute()
        elif depth and self.accept("}"):
            self.location()
            return depth - 1
        elif GENERIC.match(self.text, self.at):
            self.generic_at_top_level(is_inside=depth > 0)
        else:
            return self.module_or_function(depth)
        return depth

    def module_or_function(self, depth: int) -> int:
        """`module @name attributes {...} {`, or a function."""
        start = self.at
        word = self.match(NAME, "module, func.func or `}`")[0]
        if word in ("module", "builtin.module"):
            if depth:
                self.unsupported("a module in a module is not compiled", start)
            self.space()
            if name := _FUNCTION_NAME.match(self.text, self.at):
                self.at = name.end()
                self.module_name = name[1] or name[2]
            if self.accept("attributes"):
                self.module_attributes = self.dictionary()
            self.take("{")
            return depth + 1
        if word in ("func.func", "func"):
            self.function_definition(start)
            self.block_by_block()
        elif word == "sdy.mesh":
            self.mesh()
        else:
            self.unsupported(f"operation {word} outside of a function is not compiled", start)
        return depth

    def mesh(self) -> None:
        """`@name = <axes>`, with attributes."""
        self.space()
        symbol = self.match(_FUNCTION_NAME, "a mesh's name")
        self.take("=")
        self.space()
        mesh = self.of_dialect(0) if self.peek("#") else self.fields("mesh", 0)
        if isinstance(mesh, Dialect):
            self.meshes[symbol[1] or symbol[2]] = mesh.words
        if self.peek("{"):
            self.dictionary()
        self.location()

    def generic_at_top_level(self, is_inside: bool = False) -> None:
        """`"builtin.module"() <{...}> ({ ... })` and `"func.func"() <{...}> ({ ... })`."""
        start = self.at
        name = self.match(GENERIC, "an operation")[1]
        self.take("(")
        self.take(")")
        attributes = self.properties()
        if name == "sdy.mesh":
            symbol, mesh = attributes.get("sym_name"), attributes.get("mesh")
            if isinstance(symbol, str) and isinstance(mesh, Dialect):
                self.meshes[symbol] = mesh.words
            self.take(":")
            self.function_type()
            return
        if name == "builtin.module":
            if is_inside:
                self.unsupported("a module in a module is not compiled", start)
            self.generic_module(attributes)
            return
        if name != "func.func":
            self.unsupported(f"operation {name} outside of a function is not compiled", start)
        self.generic_function(start, attributes)
        self.block_by_block()

    def generic_module(self, attributes: dict[str, Attribute]) -> None:
        """A module in generic form, from its region on."""
        symbol = attributes.get("sym_name")
        self.module_name = symbol if isinstance(symbol, str) else self.module_name
        self.take("(")
        self.take("{")
        self.space()
        if label := LABEL.match(self.text, self.at):
            self.at = label.end()
            self.take(":")
        while not self.accept("}"):
            self.space()
            if self.at >= len(self.text):
                self.expected("`}`")
            self.generic_at_top_level(is_inside=True)
        self.take(")")
        self.module_attributes = self.dictionary() if self.peek("{") else {}
        self.take(":")
        self.function_type()
        self.location()

    def generic_function(self, start: int, attributes: dict[str, Attribute]) -> None:
        """A function in generic form, from its region on."""
        function = self.function = Function("", start, True)
        self.take("(")
        self.take("{")

        def close() -> None:
            self.take(")")
            self.declared(function, attributes | (self.dictionary() if self.peek("{") else {}))
            self.take(":")
            self.function_type()
            self.location()

        function.has_body = not self.peek("}")
        self.open_block(None, function.region, close)
        self.block_arguments(function.region)

    def declared(self, function: Function, attributes: dict[str, Attribute]) -> None:
        """Adds a function in generic form, whose attributes say its name and its types."""
        symbol, kind = attributes.get("sym_name"), attributes.get("function_type")
        if not isinstance(symbol, str) or not isinstance(kind, FunctionType):
            self.fail("expected a function with sym_name and function_type", function.at)
        function.name, function.is_public = symbol, attributes.get("sym_visibility") != "private"
        arguments = attributes.get("arg_attrs")
        function.argument_attributes = (
            [a for a in arguments if isinstance(a, dict)] if isinstance(arguments, list) else []
        )
        function.types = kind.results
        self.add(function)

    def add(self, function: Function) -> None:
        """Adds a function. Raises: ParseError  there is one of its name."""
        if function.name in self.functions:
            self.fail(f"function @{function.name} is defined twice", function.at)
        self.functions[function.name] = function

    def function_definition(self, start: int) -> None:
        """`public @name(%arg0: type {...}) -> (type {...}) attributes {...} {`."""
        self.space()
        visibility = ""
        if word := _VISIBILITY.match(self.text, self.at):
            visibility, self.at = word[1], word.end()
        self.space()
        symbol = self.match(_FUNCTION_NAME, "a function's name")
        function = self.function = Function(symbol[1] or symbol[2], start, visibility != "private")
        self.add(function)
        self.take("(")
        while not self.accept(")"):
            if function.argument_attributes:
                self.take(",")
            self.space()
            name = self.match(VALUE, "an argument like %arg0")[0] if self.peek("%") else ""
            if name:
                self.take(":")
            shape = self.type()
            if name in function.region.arguments:
                self.fail(f"argument {name} is defined twice")
            function.region.arguments[name or f"{len(function.argument_attributes)}"] = shape
            function.argument_attributes.append(self.dictionary() if self.peek("{") else {})
            self.location()
        if self.accept("->"):
            function.types = self.function_results()
        if self.accept("attributes"):
            self.dictionary()
        if self.peek("{"):
            self.take("{")
            function.has_body = True
            self.open_block(None, function.region, self.location)
        else:
            self.location()

    def function_results(self) -> tuple[Shape, ...]:
        """`type` or `(type {...}, type {...})`."""
        if not self.accept("("):
            return (self.type(),)
        shapes: list[Shape] = []
        while not self.accept(")"):
            if shapes:
                self.take(",")
            shapes.append(self.type())
            if self.peek("{"):
                self.dictionary()
        return tuple(shapes)
