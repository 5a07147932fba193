"""HLO text read into a module: what XLA and JAX print, with or without `%`, types of operands, layouts,
metadata."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from .dynamic_sizes import infer_shape, merged_marks
from .errors import ParseError, ShapeError, UnsupportedError
from .hlo_async import is_end, started
from .hlo_attributes import KINDS, PREDICATE_BRANCHES, Malformed, attributes, implied, result_field
from .hlo_expansions import EXPANSIONS, expanded
from .hlo_literal import parse_literal
from .ir import NO_METADATA, Computation, Instruction, Metadata, Module
from .library_calls import library_call
from .literal import Literal
from .ops import OPS, Call, CustomCall, Parameter
from .ops.op import Op
from .shape import TOKEN, Shape
from .types import ElementType

_SPACE = re.compile(r"(?:\s+|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
_ARRAY = re.compile(r"([a-z]\w*)\[([^\]\n]*)\](\{[^{}\n]*\})?")
_HEAD = re.compile(r"(ROOT\s+)?%?([\w.\-]+)\s*=\s*")
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
_NAME = re.compile(r"%?([\w.\-]+)")
_OPERAND = re.compile(r"\s*(?:/\*[^*]*\*/\s*)?%?([\w.\-]+)\s*([,)])")
_ATTRIBUTE = re.compile(r",\s*([\w\-]+)=")
_WORD = re.compile(r'[^\s,{}"]*')
_FLAT = re.compile(r"\{[^{}\"]*\}")
_BRACKETED = re.compile(r"\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?|\w+\[[^\]]*\](?:\{[^{}]*\})?"
                        r"|\([^()]*(?:\([^()]*\)[^()]*)*\)")  # groups as ranges, shapes, tuple shapes
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r'[{}"]')
_LITERAL = re.compile(r"(?:[^()]++|\((?:[^()]++|\((?:[^()]++|\([^()]*\))*\))*\))*")
_SPARSE = re.compile(r"sparse\{\d+\}")  # an old layout: at most so many elements that are not zero
_NUMBER = re.compile(r"\s*(\d+)\s*\)")
_TABLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)\n((?:\d+ [^\n]*\n?)*)")
_FIELD = re.compile(r'([\w\-]+)=("(?:[^"\\]|\\.)*"|\{[^{}]*\}|[^\s}]+)')

KEPT = frozenset(
    {
        "sharding",
        "frontend_attributes",
        "backend_config",
        "operand_precision",
        "statistics",
        "origin",
        "original_value",
        "result_accuracy",
        "control-predecessors",
        "outer_dimension_partitions",
        "is_composite",
        "algorithm",
        "parameter_replication",
        "execution_thread",
        "async_execution_thread",
        "constrain_layout",
    }
)
"""Attributes of instructions that are kept in Metadata.extra as they are: they do not change what is
computed."""


def parse_hlo(text: str, elided: Callable[[str, Shape], Literal] | None = None) -> Module:
    """The module that the text spells. `elided` gives the constants that it spells as `...`, by name and shape.

    Raises: ParseError  malformed text. UnsupportedError  an opcode, element type or layout that is not
        compiled. ShapeError  an instruction breaks its op's constraints, or its shape is not the inferred
        one.
    """
    return _Parser(text, elided).module()


def parse_shape(text: str) -> Shape:
    """The shape that the text spells.

    Raises: ParseError, UnsupportedError  as `parse_hlo`.
    """
    return _Parser(text).shape()


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """The shapes in `{shape, ...}`.

    Raises: ParseError, UnsupportedError  as `parse_hlo`.
    """
    parser = _Parser(text)
    shapes: list[Shape] = []
    parser.take("{")
    while not parser.accept("}"):
        if shapes:
            parser.take(",")
            parser.space()
        shapes.append(parser.shape())
    return tuple(shapes)


def parse_entry_layout(text: str, parameters: tuple[Shape, ...], result: Shape) -> tuple[tuple[Shape, ...], Shape]:
    """The shapes in `{(parameter, ...)->result}`, the value of a module's entry_computation_layout.

    Raises: ParseError  malformed text. ShapeError  other shapes than these.
    """
    parser = _Parser(text)
    parser.take("{")
    parser.space()
    given = parser.shape()
    parser.take("->")
    parser.space()
    made = parser.shape()
    parser.result_tiles_at = parser.tiles_at
    parser.refuse_tiles()
    if not given.compatible(Shape.tuple(parameters)) or not made.compatible(result):
        raise ShapeError(f"entry_computation_layout is {given} -> {made}, the entry is {Shape.tuple(parameters)} -> "
                         f"{result} (entry_layout_c1)")
    return given.tuple_shapes, made


class _Parser:
    def __init__(self, text: str, elided: Callable[[str, Shape], Literal] | None = None) -> None:
        self.text = text
        self.elided = elided
        self.at = 0
        self.computations: dict[str, Computation] = {}
        self.shapes: dict[str, Shape] = {}
        self.tiled: set[str] = set()
        self.tiles_at: int | None = None
        self.result_tiles_at: int | None = None
        self.in_entry = False
        self.frames: dict[int, tuple[str, int]] = {}
        self.entry: Computation | None = None

    def place(self, at: int) -> tuple[int, int]:
        """Line and column of an offset."""
        return self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        raise ParseError(message, *self.place(self.at if at is None else at)) from None

    def expected(self, what: str) -> NoReturn:
        rest = self.text[self.at : self.at + 30].split("\n")[0]
        self.fail(
            f"expected {what}, got {rest!r}" if self.at < len(self.text) else f"expected {what}, got the end"
        )

    def unsupported(self, message: str, at: int) -> NoReturn:
        line, column = self.place(at)
        raise UnsupportedError(f"line {line}, column {column}: {message}")

    def space(self) -> None:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]

    def take(self, token: str) -> None:
        self.space()
        if not self.text.startswith(token, self.at):
            self.expected(f"`{token}`")
        self.at += len(token)

    def accept(self, token: str) -> bool:
        self.space()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        found = pattern.match(self.text, self.at)
        if found is None:
            self.expected(what)
        self.at = found.end()
        return found

    def module(self) -> Module:
        self.take("HloModule")
        self.space()
        name = self.match(_NAME, "the module's name")[1]
        kept = {key: self.text[start : self.at] for key, start in self.attributes()}
        self.space()
        tables: dict[str, str] = {}
        while table := _TABLE.match(self.text, self.at):
            tables[table[1]], self.at = table[2], table.end()
            self.space()
        self.frames = _stack_frames(tables)
        last = None
        while self.at < len(self.text):
            last = self.computation()
            self.space()
        if self.entry is None and len(self.computations) == 1:
            self.entry = last
        if self.entry is None:
            self.expected("an ENTRY computation")
        return Module(name, self.entry, kept)

    def attributes(self) -> Any:
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

    def shape(self) -> Shape:
        if self.text.startswith("(", self.at):
            self.at += 1
            parts: list[Shape] = []
            while not self.accept(")"):
                if parts:
                    self.take(",")
                    self.space()
                parts.append(self.shape())
            return Shape.tuple(parts)
        start = self.at
        found = self.match(_ARRAY, "a shape like f32[2,3]")
        shape = self.shapes.get(found[0])
        if shape is None:
            shape = self.shapes[found[0]] = self.array_shape(found, start)
        if found[0] in self.tiled:
            self.tiles_at = start
        if sparse := _SPARSE.match(self.text, self.at):
            self.at = sparse.end()
        return shape

    def refuse_tiles(self) -> None:
        """Tiles inside a module are another machine's choice. They matter where bytes are seen: at the entry's ends and
        where they are taken for another shape."""
        at = self.result_tiles_at
        if at is not None:
            shape = self.match_at(_ARRAY, at)
            self.unsupported(f"layout of {shape}: arrays that come from outside, or whose bytes are reinterpreted, "
                             "have no tiles", at)

    def match_at(self, pattern: re.Pattern[str], at: int) -> str:
        """What the pattern finds at an offset."""
        found = pattern.match(self.text, at)
        return found[0] if found else ""

    def array_shape(self, found: re.Match[str], start: int) -> Shape:
        if found[1] == "token":
            return TOKEN
        try:
            element_type = ElementType(found[1])
        except ValueError:
            self.unsupported(f"element type {found[1]}", start)
        sizes = [d.strip() for d in found[2].split(",")] if found[2].strip() else []
        try:
            dims = tuple(int(d.removeprefix("<=")) for d in sizes)
        except ValueError:
            if "?" in found[2]:
                self.unsupported(f"dims without a bound [{found[2]}]", start)
            self.fail(f"expected dims, got [{found[2]}]", start)
        dynamic = tuple(axis for axis, d in enumerate(sizes) if d.startswith("<="))
        layout = found[3]
        if layout is None:
            return Shape(element_type, dims, dynamic=dynamic)
        order, _, rest = layout[1:-1].partition(":")
        if "D(" in rest:
            self.unsupported(f"layout {layout}: sparse arrays are not compiled", start)
        if "T(" in rest:
            self.tiled.add(found[0])
        try:
            axes = tuple(int(a) for a in order.split(",")) if order.strip() else ()
        except ValueError:
            self.fail(f"expected a layout, got {layout}", start)
        if sorted(axes) != list(range(len(dims))):
            self.fail(f"expected a layout with each axis of {found[1]}[{found[2]}] once, got {layout}", start)
        return Shape(element_type, dims, axes, dynamic=dynamic)

    def computation(self) -> Computation:
        is_entry = self.in_entry = self.accept("ENTRY ")
        self.space()
        start = self.at
        name = self.match(_NAME, "a computation")[1]
        if name in self.computations:
            self.fail(f"computation {name} is defined twice", start)
        if self.accept("("):
            depth = 1
            while depth:
                found = re.compile(r"[()]").search(self.text, self.at) or self.fail(
                    "unclosed parameter list", start
                )
                self.at = found.end()
                depth += 1 if found[0] == "(" else -1
            if self.accept("->"):
                self.space()
                self.shape()
        self.take("{")
        made = self.computations[name] = self.body(name)
        for _ in self.attributes():
            pass
        if is_entry:
            if self.entry is not None:
                self.fail("a second ENTRY computation", start)
            self.entry = made
        return made

    def body(self, name: str) -> Computation:
        instructions: dict[str, Instruction] = {}
        parameters: dict[int, Instruction] = {}
        effects: list[Instruction] = []
        root = instruction = None
        while not self.accept("}"):
            start = self.at
            head = self.match(_HEAD, "an instruction `name = shape opcode(operands)` or `}`")
            if head[2] in instructions:
                self.fail(f"instruction {head[2]} is defined twice", start)
            instruction = instructions[head[2]] = self.instruction(head[2], instructions)
            if head[1]:
                if root is not None:
                    self.fail("a second ROOT instruction", start)
                root = instruction
                if self.in_entry:
                    self.refuse_tiles()
            if isinstance(instruction.op, Parameter):
                if instruction.op.number in parameters:
                    self.fail(f"parameter {instruction.op.number} is defined twice", start)
                parameters[instruction.op.number] = instruction
            if instruction.has_side_effect:
                effects.append(instruction)
        root = root or instruction
        if root is None:
            self.expected("an instruction")
        if sorted(parameters) != list(range(len(parameters))):
            self.fail(f"parameters of {name} are numbered {sorted(parameters)}, expected 0, 1, ...")
        return Computation(name, root, [parameters[i] for i in range(len(parameters))], effects)

    def instruction(self, name: str, known: dict[str, Instruction]) -> Instruction:
        start = self.at
        self.tiles_at = None
        shape = self.shape()
        self.result_tiles_at = self.tiles_at
        self.space()
        before = self.at
        opcode = self.match(_OPCODE, "an opcode and `(`")[1]
        if opcode == "bitcast" or (opcode == "parameter" and self.in_entry):
            self.refuse_tiles()
        if opcode in EXPANSIONS:
            return self.expansion(name, opcode, shape, before, known)
        if is_end(opcode):
            return self.end(opcode, before, known)
        opcode, shape = started(opcode, shape) or (opcode, shape)
        cls = OPS.get(opcode)
        if cls is None:
            self.unsupported(f"opcode {opcode} is not compiled", before)
        kinds = implied(cls)
        values: dict[str, Any] = {}
        operands: list[Instruction] = []
        if "number" in kinds.values():
            values["number"] = int(self.match(_NUMBER, "a parameter number and `)`")[1])
        elif "literal" in kinds.values():
            values["literal"] = self.literal(name, shape)
        else:
            operands = self.operands(known)
        texts, metadata = self.instruction_attributes({a.name for a in attributes(cls)}, opcode)
        shapes = [o.shape for o in operands]
        try:
            op = self.op(cls, opcode, kinds, values, texts, shape, shapes)
        except Malformed as error:
            self.fail(f"{opcode}: {error}", before)
        try:
            inferred = infer_shape(op, shapes)
        except ShapeError as error:
            line, column = self.place(start)
            raise ShapeError(f"line {line}, column {column}: {error}") from None
        if not inferred.compatible(shape):
            line, column = self.place(start)
            raise ShapeError(
                f"line {line}, column {column}: {opcode} has shape {shape}, inferred is {inferred}"
            )
        if inferred.is_dynamic:
            shape = merged_marks(shape, inferred)
        if isinstance(op, CustomCall) and (known_library := library_call(op, shapes)) is not None:
            op = Call(known_library)
        return Instruction(op, tuple(operands), shape, name, metadata)

    def end(self, opcode: str, at: int, known: dict[str, Instruction]) -> Instruction:
        """What an asynchronous op's end hands on."""
        operands = self.operands(known)
        if len(operands) != 1:
            self.fail(f"{opcode}: {len(operands)} operands given, 1 wanted", at)
        for _ in self.attributes():
            pass
        return operands[0]

    def operands(self, known: dict[str, Instruction]) -> list[Instruction]:
        operands: list[Instruction] = []
        if self.accept(")"):
            return operands
        while True:
            found = _OPERAND.match(self.text, self.at)
            if found is None:
                self.space()
                if self.text.startswith("(", self.at) or _ARRAY.match(self.text, self.at):
                    self.shape()
                found = self.match(_OPERAND, "an operand and `,` or `)`")
            operand = known.get(found[1])
            if operand is None:
                self.fail(f"operand {found[1]} is not defined before", found.start(1))
            operands.append(operand)
            self.at = found.end()
            if found[2] == ")":
                return operands

    def literal(self, name: str, shape: Shape) -> Any:
        start = self.at
        self.at = _LITERAL.match(self.text, start).end()  # type: ignore[union-attr]
        text = self.text[start : self.at]
        self.take(")")
        if self.elided is not None and "..." in text:
            return self.elided(name, shape)
        try:
            return parse_literal(text, shape)
        except Malformed as error:
            self.fail(f"constant: {error}", start)

    def expansion(self, name: str, opcode: str, shape: Shape, start: int,
                  known: dict[str, Instruction]) -> Instruction:
        """An instruction that is read as a call."""
        operands = self.operands(known)
        texts, metadata = self.instruction_attributes(set(EXPANSIONS[opcode].attributes), opcode)
        shapes = [o.shape for o in operands]
        try:
            computation = expanded(opcode, shapes, texts, shape)
        except Malformed as error:
            self.fail(f"{opcode}: {error}", start)
        except ShapeError as error:
            line, column = self.place(start)
            raise ShapeError(f"line {line}, column {column}: {str(error).splitlines()[0]}") from None
        if not computation.root.shape.compatible(shape):
            line, column = self.place(start)
            raise ShapeError(f"line {line}, column {column}: {opcode} has shape {shape}, inferred is "
                             f"{computation.root.shape}")
        return Instruction(Call(computation), tuple(operands), shape, name, metadata)

    def instruction_attributes(self, own: set[str], opcode: str) -> tuple[dict[str, str], Metadata]:
        if not self.text.startswith(",", self.at):
            return {}, NO_METADATA
        texts: dict[str, str] = {}
        extra: list[tuple[str, str]] = []
        metadata: dict[str, Any] = {}
        for name, start in self.attributes():
            text = self.text[start : self.at]
            if name in own or name in PREDICATE_BRANCHES:
                texts[name] = text
            elif name == "calls" and opcode == "call":  # of an async-start
                texts["to_apply"] = text
            elif name == "metadata":
                metadata = self.metadata(text, extra)
            elif name in KEPT:
                extra.append((name, text))
            else:
                self.unsupported(f"attribute {name} of {opcode} is not compiled", start)
        if not metadata and not extra:
            return texts, NO_METADATA
        return texts, Metadata(**metadata, extra=tuple(extra))

    def metadata(self, text: str, extra: list[tuple[str, str]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in _FIELD.findall(text[1:-1]):
            if name in ("op_type", "op_name", "source_file"):
                found[name] = _unescaped(value)
            elif name == "source_line" and value.isdigit():
                found[name] = int(value)
            elif name == "stack_frame_id" and value.isdigit() and int(value) in self.frames:
                found["source_file"], found["source_line"] = self.frames[int(value)]
            else:
                extra.append((f"metadata.{name}", value))
        return found

    def op(
        self,
        cls: type[Op],
        opcode: str,
        kinds: Any,
        values: dict[str, Any],
        texts: dict[str, str],
        shape: Shape,
        operands: list[Shape],
    ) -> Op:
        if PREDICATE_BRANCHES[0] in texts:
            branches = [texts.pop(name, "") for name in PREDICATE_BRANCHES]
            texts["branch_computations"] = "{" + ", ".join(branches) + "}"
        fields: dict[str, Any] = {}
        for name, kind in kinds.items():
            if kind in values:
                fields[name] = values[kind]
            elif kind == "opcode":
                fields[name] = opcode
            elif kind == "implied":
                fields[name] = bool(operands) and operands[0].element_type is not ElementType.PRED
            else:
                fields[name] = result_field(kind, opcode, shape, operands)
        for attribute in attributes(cls):
            text = texts.get(attribute.name)
            if text is None:
                self.absent(attribute, fields)
                continue
            value = KINDS[attribute.kind].read(text, self.find)
            fields.update(
                zip(attribute.fields, value) if len(attribute.fields) > 1 else {attribute.fields[0]: value}
            )
        return cls(**fields)

    def absent(self, attribute: Any, fields: dict[str, Any]) -> None:
        if attribute.kind == "window":
            fields[attribute.fields[0]] = KINDS["window"].read("{}", self.find)
        elif isinstance(attribute.default, (tuple, str, int, bool, type(None))):
            if len(attribute.fields) == 1:
                fields[attribute.fields[0]] = attribute.default
        else:
            raise Malformed(f"expected the attribute {attribute.name}=")

    def find(self, name: str) -> Computation:
        found = self.computations.get(name.lstrip("%"))
        if found is None:
            raise Malformed(f"computation {name} is not defined before")
        return found


def _stack_frames(tables: dict[str, str]) -> dict[int, tuple[str, int]]:
    """File and line by stack frame number, from the tables that stand before the computations."""

    def rows(table: str) -> dict[int, str]:
        lines = (line.partition(" ") for line in tables.get(table, "").splitlines())
        return {int(number): rest for number, _, rest in lines}

    def number(name: str, row: str) -> int:
        found = re.search(rf"\b{name}=(\d+)", row)
        return int(found[1]) if found else 0

    files = {n: _unescaped(r) for n, r in rows("FileNames").items()}
    places = {
        n: (files.get(number("file_name_id", r), ""), number("line", r))
        for n, r in rows("FileLocations").items()
    }
    return {n: places.get(number("file_location_id", r), ("", 0)) for n, r in rows("StackFrames").items()}


_ESCAPES: dict[str, str] = {"n": "\n", "t": "\t"}


def _unescaped(text: str) -> str:
    inner = text[1:-1] if text[:1] == '"' else text
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), inner)
