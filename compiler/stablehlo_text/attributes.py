"""Attributes in MLIR text: numbers, lists, dictionaries, dense constants, and those of a dialect as fields or words."""

from __future__ import annotations

import dataclasses
import re
from typing import TypeAlias

import numpy as np

from ..errors import ParseError, UnsupportedError
from ..hlo_text.scanner import Malformed, integer
from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.shape import Shape
from .constants import elements_of, one_element
from .mesh_groups import mesh_groups
from .types import FunctionType, TypeReader

_DEPTH = 32
_MAX_NUMBERS = 1 << 20
_KEY = re.compile(r'\s*(?:([A-Za-z_][\w$.\-]*)|("(?:[^"\\]|\\.)*"))\s*')
_SYMBOL = re.compile(r'@(?:([\w$.\-]+)|"((?:[^"\\]|\\.)*)")(?:::@(?:[\w$.\-]+|"(?:[^"\\]|\\.)*"))*')
_NUMBER = re.compile(r"-?(?:0x[0-9A-Fa-f]+|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_WORD = re.compile(r"[A-Za-z_!][\w$.]*")
_DIALECT = re.compile(r"#([A-Za-z_][\w$]*)(?:\.([A-Za-z_][\w$.]*))?")
_ALIAS = re.compile(r"#[A-Za-z_][\w$]*")
_ARRAY = re.compile(r"array<\s*(\w+)\s*(?::([^<>]*))?>")
_RESOURCE = re.compile(r"dense_resource<([\w.\-]+)>")
_DENSE = re.compile(r'dense<("[^"]*"|[^<>"]*)>')
_RAW = re.compile(r"\s*raw\b")
_FIELDS = re.compile(r"(?:raw\s+)?[A-Za-z_][\w$.\-]*\s*=")
_ANGLE = re.compile(r'"(?:[^"\\]|\\.)*"|->|[<>]=|[<>]')
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]]')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")
_ESCAPES = {"n": "\n", "t": "\t"}


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A reference to a function: `@name`."""

    name: str


@dataclasses.dataclass(frozen=True)
class Dialect:
    """An attribute of a dialect, `#stablehlo.gather<offset_dims = [1], ...>`: its name without the dialect, what it
    says as fields (empty where it says words), and its words."""

    name: str
    fields: dict[str, Attribute]
    words: str


@dataclasses.dataclass(frozen=True)
class Dense:
    """A constant: its elements, or the one that all of them are."""

    shape: Shape
    literal: Literal
    is_splat: bool

    def array(self) -> np.ndarray:
        """All elements, of an attribute. Raises: UnsupportedError  they are more than one needs."""
        if self.shape.elements > _MAX_NUMBERS:
            raise UnsupportedError(
                f"an attribute of {self.shape.elements} numbers is not read, {_MAX_NUMBERS} are"
            )
        return np.broadcast_to(self.literal.array, self.shape.dims)


Attribute: TypeAlias = (
    "bool | int | float | str | Symbol | FunctionType | Dialect | Dense | ElementType | list[Attribute] "
    "| tuple[Attribute, ...] | dict[str, Attribute] | None"
)
"""A value. A tuple has lists with `x` or `->` between: `[0] x [1]`. None: `unit`, or a name without a value."""


class AttributeReader(TypeReader):
    """Reads attributes.

    Raises: ParseError, UnsupportedError, ShapeError, LimitError  with a position.
    """

    resources: dict[str, bytes]
    meshes: dict[str, str]  # what is in the angle brackets of `sdy.mesh @name = <...>`

    def attribute(self, depth: int = 0) -> Attribute:
        """The value at the current position."""
        self.space()
        start = self.at
        if depth > _DEPTH:
            self.unsupported(f"attributes in attributes, more than {_DEPTH} deep, are not read", start)
        character = self.text[self.at : self.at + 1]
        if character == "[":
            return self.lists(depth)
        if character == "{":
            return self.dictionary(depth)
        if character == '"':
            value = _unescaped(self.match(_STRING, "a string")[1])
            self.number_type()
            return value
        if character == "@":
            symbol = self.match(_SYMBOL, "a symbol")
            return Symbol(symbol[1] or _unescaped(symbol[2] or ""))
        if character == "#":
            return self.of_dialect(depth)
        if character == "<":
            return self.fields("", depth)
        if character == "(":
            return self.function_type()
        if number := _NUMBER.match(self.text, self.at):
            self.at = number.end()
            kind = self.number_type()
            return _number(number[0], kind)
        return self.word_or_type(start)

    def word_or_type(self, start: int) -> Attribute:
        """A constant, a type, or a word."""
        if self.text.startswith("dense", start):
            return self.dense(start)
        if array := _ARRAY.match(self.text, self.at):
            self.at = array.end()
            entries = [e.strip() for e in (array[2] or "").split(",") if e.strip()]
            return [_entry(e) for e in entries]
        word = self.match(_WORD, "a value")[0]
        if word in ("true", "false"):
            self.number_type()
            return word == "true"
        if word == "unit":
            return None
        if word == "loc" or self.text.startswith("<", self.at):
            self.at = start + len(word)
            self.skip_brackets(start)
            return Dialect(word, {}, self.text[start : self.at])
        kind = self.known_element_type(word)
        return word if kind is None else kind

    def number_type(self) -> ElementType | None:
        """The type behind a number or a string, `: i64`, which is passed over; None where there is none."""
        at = self.at
        if self.accept(":"):
            self.space()
            kind = self.scalar_type()
            if kind is None:
                self.at = at
            return kind
        self.at = at
        return None

    def lists(self, depth: int) -> Attribute:
        """`[value, ...]`; with more lists behind `x` or `->`, a tuple of them."""
        lists: list[Attribute] = [self.one_list(depth)]
        while joint := _JOINT.match(self.text, self.at):
            self.at = joint.end()
            lists.append(self.one_list(depth))
        return tuple(lists) if len(lists) > 1 else lists[0]

    def one_list(self, depth: int) -> list[Attribute]:
        """`[value, ...]`."""
        self.take("[")
        values: list[Attribute] = []
        while not self.accept("]"):
            if values:
                self.take(",")
            values.append(self.attribute(depth + 1))
        return values

    def dictionary(self, depth: int = 0) -> dict[str, Attribute]:
        """`{name = value, name}`."""
        self.take("{")
        return self.entries("}", depth)

    def entries(self, end: str, depth: int) -> dict[str, Attribute]:
        """Names with values up to a closing bracket, which is passed over."""
        values: dict[str, Attribute] = {}
        while not self.accept(end):
            if values:
                self.take(",")
                if end == ">" and self.accept(end):
                    return values
            key = self.match(_KEY, "a name")
            name = key[1] or _unescaped(key[2][1:-1])
            if name in values:
                self.fail(f"a second attribute {name}")
            values[name] = self.attribute(depth + 1) if self.accept("=") else None
        return values

    def of_dialect(self, depth: int) -> Attribute:
        """`#dialect.name<...>`, `#dialect<name ...>`, or the value of `#alias`."""
        start = self.at
        match = self.match(_DIALECT, "an attribute like #stablehlo.gather<...>")
        if not self.text.startswith("<", self.at):
            alias = _ALIAS.match(self.text, start)
            position = self.aliases.get(alias[0]) if alias else None
            if position is None:
                return Dialect(match[2] or match[1], {}, "")
            self.at, end = position, self.at
            value = self.attribute(depth + 1)
            self.at = end
            return value
        return self.fields(match[2] or "", depth)

    def fields(self, name: str, depth: int) -> Attribute:
        """`<name = value, ...>`, `<raw name = value, ...>`, `<words>` or `<"words">`."""
        start = self.at
        self.skip_brackets(start)
        end, words = self.at, self.text[start + 1 : self.at - 1].strip()
        if quoted := _STRING.fullmatch(words):
            return Dialect(name, {}, _unescaped(quoted[1]))
        if name == "replica_group_mesh_axes":
            try:
                return [list(row) for row in mesh_groups(words, self.meshes)]
            except Malformed as error:
                self.fail(f"{name}: {error}", start)
        if _FIELDS.match(words) and "==" not in words:
            raw = _RAW.match(self.text, start + 1)
            self.at = start + 1 if raw is None else raw.end()
            try:
                return Dialect(name, self.entries(">", depth), words)
            except ParseError:
                pass  # another dialect's own syntax
        self.at = end
        return Dialect(name, {}, words)

    def skip_brackets(self, start: int) -> None:
        """Passes over `<...>` or `(...)` from the current position on."""
        self.space()
        if self.text.startswith("(", self.at):
            self.parenthesized(start)
        else:
            self.at = self.closing(_ANGLE, "<>", start)

    def parenthesized(self, start: int) -> None:
        """Passes over parentheses in parentheses."""
        self.at = self.closing(_PARENTHESIS, "()", start)

    def brackets(self) -> str:
        """The text in `[...]`, which is passed over."""
        start = self.at
        self.at = self.closing(_BRACKET, "[]", start)
        return self.text[start + 1 : self.at - 1]

    def closing(self, tokens: re.Pattern[str], pair: str, start: int) -> int:
        """The position behind the bracket that closes the first one from here on. Raises: ParseError  there is none."""
        depth, end = 0, -1
        for token in tokens.finditer(self.text, self.at):
            depth += (token[0] == pair[0]) - (token[0] == pair[1])
            if depth == 0 and token[0] == pair[1]:
                end = token.end()
                break
        if end < 0:
            self.fail("this bracket is not closed", start)
        return end

    def dense(self, start: int) -> Dense:
        """`dense<...> : type` or `dense_resource<name> : type`."""
        resource = _RESOURCE.match(self.text, start)
        match = resource or _DENSE.match(self.text, start)
        if match is None:
            self.fail("expected a constant like dense<1> : tensor<2xi32>", start)
        self.at = match.end()
        self.take(":")
        shape = self.type()
        if not shape.is_array:
            self.fail(f"expected the type of an array, got {shape}", start)
        body = match[1].strip()
        is_splat = resource is None and bool(body) and not body.startswith(("[", '"'))
        if not is_splat:
            self.checked(
                lambda: self.limits.check("constant_bytes", shape.bytes, "bytes of a constant"), start
            )
        try:
            if resource is not None:
                return Dense(shape, one_or_all(self.resource(body), shape), False)
            if is_splat:
                return Dense(shape, Literal(one_element(body, shape.element_type), shape.element_type), True)
            return Dense(shape, elements_of(body, shape), False)
        except Malformed as error:
            self.fail(f"constant: {error}", start)

    def resource(self, name: str) -> bytes:
        """The bytes of a resource. Raises: Malformed  there is none of this name."""
        data = self.resources.get(name)
        if data is None:
            raise Malformed(f"resource {name:.60} is not in the text (print it with its resources)")
        return data


_JOINT = re.compile(r"\s*(?:x|->)\s*(?=\[)")
_PARENTHESIS = re.compile(r'"(?:[^"\\]|\\.)*"|[()]')


def one_or_all(data: bytes, shape: Shape) -> Literal:
    """The literal of an array's bytes, or of the bytes of the one element that it repeats. Raises: Malformed."""
    kind = shape.element_type
    if len(data) == kind.item_bytes and shape.elements != 1:
        return Literal(np.broadcast_to(np.frombuffer(data, kind.dtype)[0], shape.dims), kind)
    if len(data) != shape.bytes:
        raise Malformed(f"expected {shape.bytes} bytes of {shape}, got {len(data)}")
    return Literal(np.frombuffer(data, kind.dtype).reshape(shape.dims), kind)


def _number(text: str, kind: ElementType | None) -> int | float:
    """The number that a text spells; hexadecimal digits are the bits of a float."""
    if kind is not None and kind.is_float and text.lstrip("-").startswith("0x"):
        return float(one_element(text, kind))
    if text.lstrip("-").startswith("0x"):
        return int(text, 16)
    return float(text) if "." in text or "e" in text.lower() else integer(text)


def _entry(text: str) -> bool | int | float:
    if text in ("true", "false"):
        return text == "true"
    if not _NUMBER.fullmatch(text):
        raise Malformed(f"expected a number, got {text[:60]!r}")
    return _number(text, None)


def _unescaped(text: str) -> str:
    """A string without its escapes: `\\n`, `\\"`, and bytes as two hexadecimal digits."""
    if "\\" not in text:
        return text
    data = bytearray()
    at = 0
    for escape in _ESCAPE.finditer(text):
        data += text[at : escape.start()].encode("utf-8", "surrogatepass")
        digits = escape[1]
        data += bytes([int(digits, 16)]) if len(digits) == 2 else _ESCAPES.get(digits, digits).encode()
        at = escape.end()
    data += text[at:].encode("utf-8", "surrogatepass")
    return data.decode("utf-8", "replace")
