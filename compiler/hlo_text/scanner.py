"""The characters of HLO text: tokens, attribute values passed over, shapes; and the place of an error."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import NoReturn

from ..errors import CompilerError, ParseError, ShapeError, UnsupportedError
from ..ir.element_types import ARRAYS, ElementType
from ..ir.shape import TOKEN, Shape, check_size
from ..limits import DEFAULT_LIMITS, Limits
from .attributes import Malformed, integer

SPACE = re.compile(r"(?:\s+|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
ARRAY = re.compile(r"([a-z]\w*)\[([^\]\n]*)\](\{[^{}\n]*\})?", re.ASCII)
NAME = re.compile(r"%?([\w.\-]+)", re.ASCII)
_ATTRIBUTE = re.compile(r",\s*([\w\-]+)=", re.ASCII)
_WORD = re.compile(r'[^\s,{}"]*')
_FLAT = re.compile(r"\{[^{}\"]*\}")
_BRACKETED = re.compile(
    r"\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?|\w+\[[^\]]*\](?:\{[^{}]*\})?"
    r"|\([^()]*(?:\([^()]*\)[^()]*)*\)"
)  # groups as ranges, shapes, tuple shapes
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r'[{}"]')
_SPARSE = re.compile(r"sparse\{\d+\}")  # an old layout: at most so many elements that are not zero
_MESSAGE = 4000


class Scanner:
    """A text and a place in it. What it reads at the place it passes over.

    Raises: ParseError  malformed. UnsupportedError, ShapeError, LimitError  without a place: `placed` adds it.
    """

    def __init__(self, text: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self.text = text
        self.limits = limits
        self.at = 0
        self.shapes: dict[str, Shape] = {}
        self.tiled: set[str] = set()
        self.tiles_at: int | None = None

    # -- errors
    def place(self, at: int) -> tuple[int, int]:
        """Line and column of an offset."""
        return self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)

    def placed(self, error: CompilerError, at: int, prefix: str = "") -> CompilerError:
        """The error with the place's line and column; itself where it has one."""
        if error.line:
            return error
        line, column = self.place(at)
        message = str(error)
        message = message if len(message) < _MESSAGE else message[:_MESSAGE] + " ..."
        if isinstance(error, Malformed):
            return ParseError(f"{prefix}{message}", line, column)
        placed = type(error)(f"line {line}, column {column}: {message}")
        placed.line, placed.column = line, column
        return placed

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        """Raises ParseError, with the current place or another one."""
        raise ParseError(message, *self.place(self.at if at is None else at)) from None

    def expected(self, what: str) -> NoReturn:
        """Raises ParseError: the text goes on with something else."""
        rest = self.text[self.at : self.at + 30].split("\n")[0]
        self.fail(
            f"expected {what}, got {rest!r}" if self.at < len(self.text) else f"expected {what}, got the end"
        )

    def unsupported(self, message: str, at: int) -> NoReturn:
        """Raises UnsupportedError with a place."""
        raise self.placed(UnsupportedError(message), at) from None

    # -- tokens
    def space(self) -> None:
        """Passes over space and comments."""
        self.at = SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]

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
        """Passes over what the pattern finds. Raises: ParseError  nothing."""
        found = pattern.match(self.text, self.at)
        if found is None:
            self.expected(what)
        self.at = found.end()
        return found

    # -- attributes
    def attributes(self) -> Iterator[tuple[str, int]]:
        """Name and start of the value for each `, name=value` that follows; the value ends where reading is
        then."""
        while True:
            self.space()
            found = _ATTRIBUTE.match(self.text, self.at)
            if found is None:
                return
            self.at = found.end()
            start = self.at
            self.value()
            yield found[1], start

    def value(self) -> None:
        """Passes over one attribute value: braces, a string, or a word."""
        if self.text.startswith("{", self.at):
            if flat := _FLAT.match(self.text, self.at):
                self.at = flat.end()
            else:
                self.balanced()
        elif self.text.startswith('"', self.at):
            self.match(_STRING, "a string")
        elif not (found := _BRACKETED.match(self.text, self.at)):
            self.match(_WORD, "a value")
        else:
            self.at = found.end()

    def balanced(self) -> None:
        """Passes over braces in braces."""
        start, depth = self.at, 0
        while True:
            found = _BRACKET.search(self.text, self.at)
            if found is None:
                self.fail("this brace is not closed", start)
            self.at = found.start()
            if found[0] == '"':
                self.match(_STRING, "a string")
                continue
            self.at += 1
            depth += 1 if found[0] == "{" else -1
            if depth == 0:
                return

    # -- shapes
    def shape(self) -> Shape:
        """The shape at the place."""
        start = self.at
        shape = self.any_shape(0)
        if shape.tuple_shapes:
            try:
                check_size(shape, self.limits)
            except CompilerError as error:
                raise self.placed(error, start) from None
        return shape

    def any_shape(self, depth: int) -> Shape:
        """The shape at the place, inside so many tuples."""
        start = self.at
        if self.text.startswith("(", self.at):
            self.at += 1
            self.checked(
                lambda: self.limits.check("nesting", depth + 1, "tuples in a tuple, one inside the other"),
                start,
            )
            parts: list[Shape] = []
            while not self.accept(")"):
                if parts:
                    self.take(",")
                    self.space()
                parts.append(self.any_shape(depth + 1))
            return Shape.tuple(parts)
        found = self.match(ARRAY, "a shape like f32[2,3]")
        shape = self.shapes.get(found[0])
        if shape is None:
            shape = self.shapes[found[0]] = self.array_shape(found, start)
        if found[0] in self.tiled:
            self.tiles_at = start
        if sparse := _SPARSE.match(self.text, self.at):
            self.at = sparse.end()
        return shape

    def checked(self, check: Callable[[], None], at: int) -> None:
        """Runs a check; its error gets the place."""
        try:
            check()
        except CompilerError as error:
            raise self.placed(error, at) from None

    def refuse_tiles(self, at: int | None) -> None:
        """Tiles inside a module are another machine's choice. They matter where bytes are seen: at the entry's ends and
        where they are taken for another shape."""
        if at is not None:
            found = ARRAY.match(self.text, at)
            shape = found[0] if found else ""
            self.unsupported(
                f"layout of {shape}: arrays that come from outside, or whose bytes are reinterpreted, "
                "have no tiles",
                at,
            )

    def array_shape(self, found: re.Match[str], start: int) -> Shape:
        """The shape of an array, or a token, from its type, sizes and layout.

        Raises: ParseError, UnsupportedError, ShapeError, LimitError.
        """
        type_name, sizes_text, layout = found[1], found[2].strip(), found[3]
        try:
            element_type = ElementType(type_name)
        except ValueError:
            self.unsupported(f"element type {type_name}", start)
        if element_type is ElementType.TOKEN and not sizes_text:
            return TOKEN
        if element_type not in ARRAYS:
            self.fail(f"expected the type of an array, got {found[0]!r:.60}", start)
        sizes = [d.strip() for d in sizes_text.split(",")] if sizes_text else []
        if any(d.startswith("?") or d == "<=" for d in sizes):
            self.unsupported(f"dims without a bound [{sizes_text:.60}]", start)
        try:
            dims = tuple(integer(d.removeprefix("<="), "dims") for d in sizes)
            shape = Shape(
                element_type, dims, dynamic=tuple(a for a, d in enumerate(sizes) if d.startswith("<="))
            )
            check_size(shape, self.limits)
        except CompilerError as error:
            raise self.placed(error, start) from None
        return shape if layout is None else self.laid_out(shape, found, start)

    def laid_out(self, shape: Shape, found: re.Match[str], start: int) -> Shape:
        """The array's shape with a layout."""
        layout = found[3]
        order, _, rest = layout[1:-1].partition(":")
        if "D(" in rest:
            self.unsupported(f"layout {layout:.60}: sparse arrays are not compiled", start)
        if "T(" in rest:
            self.tiled.add(found[0])
        try:
            axes = tuple(integer(a, "a layout") for a in order.split(",")) if order.strip() else ()
        except Malformed as error:
            raise self.placed(error, start) from None
        if sorted(axes) != list(range(shape.rank)):
            self.fail(f"expected a layout with each axis of {shape} once, got {layout:.60}", start)
        return Shape(shape.element_type, shape.dims, axes, dynamic=shape.dynamic)


@contextlib.contextmanager
def inner(what: str) -> Iterator[None]:
    """Around the reading of a text that is a part of another one: an error inside has no place of its own.

    Raises: Malformed  for ParseError, with its message.
    """
    try:
        yield
    except ParseError as error:
        raise Malformed(f"{what}: {error}") from None
    except CompilerError as error:
        error.line = error.column = 0
        raise


def parse_shape(text: str) -> Shape:
    """The shape that the text spells.

    Raises: ParseError, UnsupportedError  as `parse_hlo`.
    """
    return Scanner(text).shape()


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """The shapes in `{shape, ...}`.

    Raises: ParseError, UnsupportedError  as `parse_hlo`.
    """
    parser = Scanner(text)
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
    parser = Scanner(text)
    parser.take("{")
    parser.space()
    given = parser.shape()
    parser.take("->")
    parser.space()
    made = parser.shape()
    parser.refuse_tiles(parser.tiles_at)
    if not given.compatible(Shape.tuple(parameters)) or not made.compatible(result):
        raise ShapeError(
            f"entry_computation_layout is {given} -> {made}, the entry is {Shape.tuple(parameters)} -> "
            f"{result} (entry_layout_c1)"
        )
    return given.tuple_shapes, made
