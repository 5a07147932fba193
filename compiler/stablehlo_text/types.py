"""Types in MLIR text: `tensor<2x3xf32>`, tuples, tokens, functions."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from ..hlo_text.scanner import Scanner
from ..ir.element_types import ARRAYS, ElementType
from ..ir.shape import TOKEN, Shape, check_size

_TENSOR = re.compile(
    r"tensor<(?P<dims>(?:(?:\d{1,19}|\?)x)*)(?P<element>complex<\w+>|!?[a-zA-Z][\w.]*)"
    r"(?:\s*,\s*(?P<encoding>[^<>]*(?:<[^<>]*>)?))?\s*>",
    re.ASCII,
)
_ELEMENT = re.compile(r"complex<\w+>|[a-zA-Z]\w*", re.ASCII)
_ALIAS = re.compile(r"![A-Za-z_][\w$]*(?![\w$.<])")
_TUPLE = re.compile(r"tuple<|!(?:stablehlo|mhlo)\.future<")
_TOKEN = re.compile(r"!(?:stablehlo|mhlo)\.token\b")
_BOUNDS = re.compile(
    r"#(?:stablehlo|mhlo)\.(?:bounds<([^<>]*)>|type_extensions<\s*bounds\s*=\s*\[([^\]]*)\]\s*>)"
)
_SIZE = re.compile(r"\d{1,19}", re.ASCII)
_INTEGER = re.compile(r"([su]?i)(\d+)")
_COMPLEX = {"complex<f32>": ElementType.C64, "complex<f64>": ElementType.C128}


class FunctionType(NamedTuple):
    """What stands behind an operation's colon: the operands' types (None: they are not said) and the results'."""

    operands: tuple[Shape, ...] | None
    results: tuple[Shape, ...]


class TypeReader(Scanner):
    """Reads types.

    Raises: ParseError, UnsupportedError, ShapeError, LimitError  with a position.
    """

    aliases: dict[str, int]  # positions of `#name = value` and `!name = type`, behind the `=`

    def type(self, depth: int = 0) -> Shape:
        """The type at the current position: that of a value."""
        self.space()
        start = self.at
        if token := _TOKEN.match(self.text, self.at):
            self.at = token.end()
            return TOKEN
        alias = _ALIAS.match(self.text, self.at)
        if alias is not None and alias[0] in self.aliases:
            self.deeper(depth, "names of types that stand for names", start)
            self.at = self.aliases[alias[0]]
            shape = self.type(depth + 1)
            self.at = alias.end()
            return shape
        if several := _TUPLE.match(self.text, self.at):
            self.deeper(depth, "tuples in a tuple, one inside the other", start)
            self.at = several.end()
            parts: list[Shape] = []
            while not self.accept(">"):
                if parts:
                    self.take(",")
                parts.append(self.type(depth + 1))
            shape = Shape.tuple(parts)
            self.checked(lambda: check_size(shape, self.limits), start)
            return shape
        match = _TENSOR.match(self.text, self.at)
        if match is None:
            self.no_type(start)
        shape = self.shapes.get(match[0]) or self.tensor(match, start)
        self.shapes[match[0]] = shape
        self.at = match.end()
        return shape

    def deeper(self, depth: int, what: str, start: int) -> None:
        """Raises: LimitError  types in types are deeper than the limits allow."""
        self.checked(lambda: self.limits.check("nesting", depth + 1, what), start)

    def no_type(self, start: int) -> NoReturn:
        """Raises: UnsupportedError  a type that is none of a value here. ParseError  no type."""
        for name in ("tensor<", "memref<", "vector<", "!", "index", "none"):
            if self.text.startswith(name, start):
                end = min(start + 40, len(self.text))
                self.unsupported(f"type {self.text[start:end].splitlines()[0]} is not compiled", start)
        scalar = _ELEMENT.match(self.text, start)
        if scalar is not None and self.known_element_type(scalar[0]) is not None:
            self.unsupported(f"type {scalar[0]} is not compiled: tensor<{scalar[0]}> is", start)
        self.expected("a type like tensor<2x3xf32>")

    def tensor(self, match: re.Match[str], start: int) -> Shape:
        """The shape of an array."""
        element = self.element_type(match["element"], start)
        sizes = match["dims"].split("x")[:-1]
        dynamic: tuple[int, ...] = ()
        if match["encoding"] is not None:
            sizes, dynamic = self.bounded(match, sizes, start)
        elif "?" in sizes:
            self.unsupported(
                f"type {match[0]:.60}: sizes that are not known are not compiled; give the function fixed sizes",
                start,
            )
        shape = Shape(element, tuple(map(int, sizes)), dynamic=dynamic)
        self.checked(lambda: check_size(shape, self.limits), start)
        return shape

    def bounded(
        self, match: re.Match[str], sizes: list[str], start: int
    ) -> tuple[list[str], tuple[int, ...]]:
        """Sizes, and the axes whose sizes are bounds: those of `tensor<?x3xf32, #stablehlo.bounds<5, ?>>`."""
        encoding = match["encoding"].strip()
        if encoding in self.aliases:
            bounds = _BOUNDS.match(self.text, self.aliases[encoding])
        else:
            bounds = _BOUNDS.fullmatch(encoding)
        text = (bounds[1] or bounds[2] or "").strip() if bounds else ""
        entries = [e.strip() for e in text.split(",")] if text else []
        if (
            bounds is None
            or len(entries) != len(sizes)
            or any((s == "?") is (_SIZE.fullmatch(e) is None) for s, e in zip(sizes, entries))
        ):
            self.unsupported(f"type {match[0]:.80}: its encoding is not compiled", start)
        return (
            [s if s != "?" else e for s, e in zip(sizes, entries)],
            tuple(axis for axis, s in enumerate(sizes) if s == "?"),
        )

    def element_type(self, name: str, start: int) -> ElementType:
        """The element type of this name. Raises: UnsupportedError  it has none here."""
        known = self.known_element_type(name)
        if known is None or known not in ARRAYS:
            self.unsupported(f"element type {name} is not compiled", start)
        return known

    @staticmethod
    def known_element_type(name: str) -> ElementType | None:
        """The element type of this name; None: there is none."""
        if name in _COMPLEX:
            return _COMPLEX[name]
        if name == "i1":
            return ElementType.PRED
        if name == "index":
            return ElementType.S64
        if match := _INTEGER.fullmatch(name):
            name = ("u" if match[1] == "ui" else "s") + match[2]
        try:
            kind = ElementType(name.lower())
        except ValueError:
            return None
        return kind if kind not in (ElementType.TUPLE, ElementType.TOKEN, ElementType.PRED) else None

    def types(self, end: str) -> tuple[Shape, ...]:
        """The types up to a closing bracket, which is passed over."""
        types: list[Shape] = []
        while not self.accept(end):
            if types:
                self.take(",")
            types.append(self.type())
        return tuple(types)

    def function_type(self) -> FunctionType:
        """`T`, `T, U`, `(T, U) -> V`, `(T) -> (U, V)` or `T -> U`."""
        if self.accept("("):
            operands: tuple[Shape, ...] = self.types(")")
        else:
            first = [self.type()]
            while self.accept(","):
                first.append(self.type())
            operands = tuple(first)
            if not self.accept("->"):
                return FunctionType(None, operands)
            return FunctionType(operands, self.result_types())
        self.take("->")
        return FunctionType(operands, self.result_types())

    def result_types(self) -> tuple[Shape, ...]:
        """`T` or `(T, U)`."""
        return self.types(")") if self.accept("(") else (self.type(),)

    def scalar_type(self) -> ElementType | None:
        """The type of a number in an attribute, which is passed over; None where none follows."""
        match = _ELEMENT.match(self.text, self.at)
        kind = self.known_element_type(match[0]) if match else None
        if match is not None and kind is not None:
            self.at = match.end()
        return kind
