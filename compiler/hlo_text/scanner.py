"""The characters of HLO text: tokens, attribute values, shapes, and the position of an error."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from ...runtime.sizes import Assumptions, is_symbolic
from ..errors import CompilerError, ParseError, ShapeError, UnsupportedError
from ..ir.element_types import ARRAYS, ElementType
from ..ir.shape import TOKEN, Shape, assumptions_of, check_size
from ..limits import DEFAULT_LIMITS, Limits
from .layouts import Tile, parse_layout
from .sizes import is_symbolic_text, parse_size, split_outside_parentheses

SPACE = re.compile(r"(?:\s+|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
_LAYOUT = r"\s*(\{\s*\}|\{\s*[\d:][^{}=\n]*(?:\{[^{}=\n]*\}[^{}=\n]*)?\})"
ARRAY = re.compile(rf"([a-z]\w*)\[([^\]\n]*)\](?:{_LAYOUT})?", re.ASCII)
NAME = re.compile(r"%?([\w.\-]+)", re.ASCII)
_BUFFER = re.compile(r"b\s*\(")
_ATTRIBUTE = re.compile(r",\s*([\w\-]+)[ \t]*=(?:\s*(?=\{)|[ \t]*)", re.ASCII)
_WORD = re.compile(r'[^\s,{}"()]*')
_WORD_IN_PARENTHESES = re.compile(r'[^\n{}"()]*')
_FLAT = re.compile(r"\{[^{}\"']*\}")
_BRACKETED = re.compile(
    r"mesh\[[^\[\]\n]*\](?:\s*,\s*device_ids=\((?:[^()\n]|\([^()\n]*\))*\))?\s*\{[^{}\n]*\}"
    r"|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?|\w+\[[^\]]*\](?:\{[^{}]*\})?"
)  # groups by a mesh and as ranges, shapes
STRING = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_STRING = re.compile(STRING)
_BRACKET = re.compile(r"""[{}"']""")
_PARENTHESIS = re.compile(r"""[()"']""")
_SPARSE = re.compile(r"sparse\{\d+\}")  # an old layout: an upper limit of nonzero elements
_MESSAGE = 4000


class Malformed(CompilerError, ValueError):
    """Attribute text of the wrong form; the message says what was expected."""


_INTEGER = re.compile(r"\s*(-?[0-9]{1,19})\s*")


def integer(text: str, what: str = "an integer") -> int:
    """The number that a text spells. Raises: Malformed  it is no whole number of 64 bits."""
    match = _INTEGER.fullmatch(text)
    number = int(match[1]) if match else 1 << 63
    if not -(1 << 63) <= number < 1 << 63:
        raise Malformed(f"expected {what}, got {text[:60]!r}")
    return number


class Scanner:
    """A text and the current position; reading advances the position.

    Raises: ParseError  malformed. UnsupportedError, ShapeError, LimitError  without a position: `placed` adds it.
    """

    def __init__(
        self, text: str, limits: Limits = DEFAULT_LIMITS, assumptions: Assumptions | None = None
    ) -> None:
        self.text = text
        self.limits = limits
        self.at = 0
        self.shapes: dict[str, Shape] = {}
        self.tiles: dict[str, tuple[Tile, ...]] = {}  # by the text of a shape, those of its layout
        self.last_tiles: tuple[Tile, ...] = ()  # those of the array that was read last
        self.of_machines: dict[
            str, None
        ] = {}  # texts of shapes whose layouts say more than the order of axes
        self.first_layout_at = 0
        self.assumptions = Assumptions() if assumptions is None else assumptions
        self.first_uses: dict[str, int] = {}  # where in the text a symbol was met

    # -- errors
    def line_and_column(self, at: int) -> tuple[int, int]:
        """Line and column of an offset."""
        return self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)

    def placed(self, error: CompilerError, at: int, prefix: str = "") -> CompilerError:
        """The error with the line and column of an offset; itself where it has a position."""
        if error.line:
            return error
        line, column = self.line_and_column(at)
        message = str(error)
        message = message if len(message) < _MESSAGE else message[:_MESSAGE] + " ..."
        if isinstance(error, Malformed):
            return ParseError(f"{prefix}{message}", line, column)
        placed = type(error)(f"line {line}, column {column}: {message}")
        placed.line, placed.column = line, column
        return placed

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        """Raises ParseError, at the current position or another one."""
        raise ParseError(message, *self.line_and_column(self.at if at is None else at)) from None

    def expected(self, what: str) -> NoReturn:
        """Raises ParseError: the text continues with something else."""
        rest = self.text[self.at : self.at + 30].split("\n")[0]
        self.fail(
            f"expected {what}, got {rest!r}" if self.at < len(self.text) else f"expected {what}, got the end"
        )

    def unsupported(self, message: str, at: int) -> NoReturn:
        """Raises UnsupportedError with a position."""
        raise self.placed(UnsupportedError(message), at) from None

    # -- tokens
    def space(self) -> None:
        """Passes over space and comments."""
        if space := SPACE.match(self.text, self.at):  # matches always, the empty text too
            self.at = space.end()

    def take(self, token: str) -> None:
        """Passes over a token. Raises: ParseError  it is not there."""
        self.space()
        if not self.text.startswith(token, self.at):
            self.expected(f"`{token}`")
        self.at += len(token)

    def accept(self, token: str) -> bool:
        """Passes over a token; False where it is not there."""
        self.space()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Passes over a match of the pattern. Raises: ParseError  there is none."""
        match = pattern.match(self.text, self.at)
        if match is None:
            self.expected(what)
        self.at = match.end()
        return match

    # -- attributes
    def attributes(self) -> Iterator[tuple[str, int]]:
        """Name and start of the value for each `, name=value` that follows; the value ends where reading is
        then."""
        while True:
            self.space()
            match = _ATTRIBUTE.match(self.text, self.at)
            if match is None:
                return
            self.at = match.end()
            start = self.at
            self.value()
            has_shape = match[1] == "literal" and not self.text.startswith("(", start)
            if has_shape:  # before the value; a tuple has shapes inside
                self.space()
                self.value()
            yield match[1], start

    def value(self) -> None:
        """Passes over one attribute value: braces, a string, or a word."""
        if self.text.startswith("{", self.at):
            if flat := _FLAT.match(self.text, self.at):
                self.at = flat.end()
            else:
                self.balanced(_BRACKET, "{")
        elif self.text.startswith("(", self.at):
            self.balanced(_PARENTHESIS, "(")  # a tuple, or a size: `(n-1)_0`
            self.word()
        elif self.text.startswith(('"', "'"), self.at):
            self.match(_STRING, "a string")
        else:
            if match := _BRACKETED.match(self.text, self.at):
                self.at = match.end()
            self.word()

    def word(self) -> None:
        """Passes over a word, in which parentheses hold sizes: `0_(n-1)x0_max(n,m)`."""
        depth = 0
        while True:
            self.match(_WORD_IN_PARENTHESES if depth else _WORD, "a value")
            if not self.text.startswith(("(", ")"), self.at):
                return
            depth += 1 if self.text[self.at] == "(" else -1
            if depth < 0:
                return
            self.at += 1

    def balanced(self, bracket: re.Pattern[str], opening: str) -> None:
        """Passes over brackets in brackets."""
        start, depth = self.at, 0
        while True:
            match = bracket.search(self.text, self.at)
            if match is None:
                self.fail("this brace is not closed", start)
            self.at = match.start()
            if match[0] in "\"'":
                self.match(_STRING, "a string")
                continue
            self.at += 1
            depth += 1 if match[0] == opening else -1
            if depth == 0:
                return

    # -- shapes
    def shape(self) -> Shape:
        """The shape at the current position."""
        start = self.at
        shape = self.any_shape(0)
        if shape.tuple_shapes:
            try:
                check_size(shape, self.limits)
            except CompilerError as error:
                raise self.placed(error, start) from None
        return shape

    def any_shape(self, depth: int) -> Shape:
        """The shape at the current position, inside `depth` tuples."""
        start = self.at
        self.checked(
            lambda: self.limits.check("nesting", depth, "tuples in a tuple, one inside the other"), start
        )
        if self.text.startswith("(", self.at):
            self.at += 1
            parts: list[Shape] = []
            while not self.accept(")"):
                if parts:
                    self.take(",")
                    self.space()
                parts.append(self.any_shape(depth + 1))
            return Shape.tuple(parts)
        if buffer := _BUFFER.match(self.text, self.at):
            self.at = buffer.end()
            self.space()
            inside = self.any_shape(depth + 1)
            if not inside.is_array:
                self.fail(f"expected the shape of an array in b(...), got {inside}", start)
            self.take(")")
            return inside
        match = self.match(ARRAY, "a shape like f32[2,3]")
        shape = self.shapes.get(match[0])
        if shape is None:
            shape = self.shapes[match[0]] = self.array_shape(match, start)
        self.last_tiles = self.tiles.get(match[0], ()) if self.tiles else ()
        if sparse := _SPARSE.match(self.text, self.at):
            self.at = sparse.end()
        return shape

    def checked(self, check: Callable[[], None], at: int) -> None:
        """Runs a check; its error gets the position."""
        try:
            check()
        except CompilerError as error:
            raise self.placed(error, at) from None

    def array_shape(self, match: re.Match[str], start: int) -> Shape:
        """The shape of an array, or a token, from its type, sizes and layout.

        Raises: ParseError, UnsupportedError, ShapeError, LimitError.
        """
        type_name, sizes_text, layout = match[1], match[2].strip(), match[3]
        try:
            element_type = ElementType(type_name)
        except ValueError:
            self.unsupported(f"element type {type_name}", start)
        if element_type is ElementType.TOKEN and not sizes_text:
            return TOKEN
        if element_type not in ARRAYS and element_type not in (ElementType.TUPLE, ElementType.TOKEN):
            self.unsupported(f"element type {type_name}, which the installed ml_dtypes lacks,", start)
        if element_type not in ARRAYS:
            self.fail(f"expected the type of an array, got {match[0]!r:.60}", start)
        sizes = split_outside_parentheses(sizes_text) if sizes_text else []
        if any(d.startswith("?") or d == "<=" for d in sizes):
            self.unsupported(f"dims without a bound [{sizes_text:.60}]", start)
        try:
            dims = tuple(self.size(d.removeprefix("<="), "dims") for d in sizes)
            shape = Shape(
                element_type, dims, dynamic=tuple(a for a, d in enumerate(sizes) if d.startswith("<="))
            )
            check_size(shape, self.limits)
        except CompilerError as error:
            raise self.placed(error, start) from None
        if is_symbolic(dims[axis] for axis in shape.dynamic):
            self.unsupported(f"bounds that are no numbers [{sizes_text:.60}]", start)
        return shape if layout is None else self.laid_out(shape, match, start)

    def size(self, text: str, what: str = "an integer") -> int:
        """The number, or the size known at run time only, that a text spells. Raises: Malformed."""
        if not is_symbolic_text(text):
            return integer(text, what)
        try:
            size = parse_size(text, self.assumptions)
        except ValueError as error:
            raise Malformed(str(error)) from None
        for name in self.assumptions.symbols:
            self.first_uses.setdefault(name, self.at)
        return size

    def laid_out(self, shape: Shape, match: re.Match[str], start: int) -> Shape:
        """The array's shape with a layout."""
        layout = parse_layout(match[3], shape.element_type.bits)
        if layout is None:
            self.fail(f"expected a layout like {{1,0}} or {{1,0:T(8,128)}}, got {match[3]:.60}", start)
        if layout.is_sparse:
            self.unsupported(f"layout {match[3]:.60}: sparse arrays are not compiled", start)
        try:
            axes = (
                tuple(integer(a, "a layout") for a in layout.order.split(",")) if layout.order.strip() else ()
            )
        except Malformed as error:
            raise self.placed(error, start) from None
        if sorted(axes) != list(range(shape.rank)):
            self.fail(f"expected a layout with each axis of {shape} once, got {match[3]:.60}", start)
        if layout.tiles:
            self.tiles[match[0]] = layout.tiles
        if layout.is_of_machine:
            self.first_layout_at = self.first_layout_at if self.of_machines else start
            self.of_machines[match[0]] = None
        return Shape(shape.element_type, shape.dims, axes, dynamic=shape.dynamic)


@contextlib.contextmanager
def inner(what: str) -> Iterator[None]:
    """Around the parsing of a part of another text: an error inside has no position of its own.

    Raises: Malformed  for ParseError, with its message.
    """
    try:
        yield
    except ParseError as error:
        raise Malformed(f"{what}: {error}") from None
    except CompilerError as error:
        error.line = error.column = 0
        raise


def parse_shape(text: str, assumptions: Assumptions | None = None) -> Shape:
    """The shape that the text spells, its symbols those of assumptions.

    Raises: ParseError, UnsupportedError  as `parse_hlo`.
    """
    return Scanner(text, assumptions=assumptions).shape()


def parse_shapes(text: str, assumptions: Assumptions | None = None) -> tuple[Shape, ...]:
    """The shapes in `{shape, ...}`, their symbols those of assumptions.

    Raises: ParseError, UnsupportedError  as `parse_hlo`.
    """
    parser = Scanner(text, assumptions=assumptions)
    shapes: list[Shape] = []
    parser.take("{")
    while not parser.accept("}"):
        if shapes:
            parser.take(",")
            parser.space()
        shapes.append(parser.shape())
    return tuple(shapes)


def parse_entry_layout(
    text: str, parameters: tuple[Shape, ...], result: Shape
) -> tuple[tuple[Shape, ...], Shape]:
    """The shapes in `{(parameter, ...)->result}`, the value of a module's entry_computation_layout.

    Raises: ParseError  malformed text. ShapeError  other shapes than these.
    """
    parser = Scanner(text, assumptions=assumptions_of([*parameters, result]))
    parser.take("{")
    parser.space()
    declared_parameters = parser.shape()
    parser.take("->")
    parser.space()
    declared_result = parser.shape()
    if not declared_parameters.compatible(Shape.tuple(parameters)) or not declared_result.compatible(result):
        raise ShapeError(
            f"entry_computation_layout is {declared_parameters} -> {declared_result}, "
            f"the entry is {Shape.tuple(parameters)} -> {result} (entry_layout_c1)"
        )
    return declared_parameters.tuple_shapes, declared_result


def is_nested(text: str, dims: Sequence[int], opening: str = "{", closing: str = "}") -> bool:
    """Whether brackets are those of an array of these dims; no dim is 0."""
    brackets = ""
    for size in reversed(dims):
        if len(brackets) * size > len(text):
            return False
        brackets = opening + brackets * size + closing
    return text == brackets
