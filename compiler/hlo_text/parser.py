"""HLO text read into a module: what XLA and JAX print, with or without a header, `%`, types of operands, layouts,
metadata."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from ..errors import CompilerError, ShapeError
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Module
from ..ir.module_attributes import CHECKS, FORMER_NAMES, TYPED_ATTRIBUTES, check_fields
from ..ir.shape import Shape
from ..limits import DEFAULT_LIMITS, Limits
from .computation_order import Unit, callees_first, scan_body
from .instructions import InstructionReader
from .metadata import TABLE, stack_frames
from .operands import Body
from .scanner import NAME, Malformed
from .sizes import declare_symbols

_HEAD = re.compile(r"(ROOT\s+)?%?([\w.\-]+)\s*=\s*", re.ASCII)
_ALONE = re.compile(
    rf"{_HEAD.pattern}|\(|b\s*\(|[a-z]\w*\[|[a-z][\w\-]*\s*\((?!\s*%?[\w.\-]+\s*:|\s*\)\s*(?:->|\{{))",
    re.ASCII,
)
"""The beginning of an instruction without a computation around it: of its name, its shape, or its operands, which are
no signature."""
_ENTRY = re.compile(r"ENTRY(?![\w.\-])", re.ASCII)
_MODULE_NAME = re.compile(rf"{NAME.pattern}:?", re.ASCII)  # of old texts with a colon
_SIGNATURE = re.compile(r"%?([\w.\-]+)\s*:\s*", re.ASCII)


class _OutOfOrder(Exception):
    """A computation is named that is not defined yet."""


def parse_hlo(
    text: str,
    elided: Callable[[str, Shape], Literal] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    notes: list[str] | None = None,
) -> Module:
    """The module that the text spells, verified. `elided` gives the constants that it spells as `...`, by name and
    shape. `notes` gets a sentence for what was left out of the text because it is about another machine.

    The text may have no header, and may be one instruction alone, whose operands are then parameters. Shapes of
    operands, and of results where they follow from the operands, may be left out; computations stand in any order.
    Every error has a position in the text: `line` and `column`.

    >>> from tfbridge.compiler import parse_hlo
    >>> module = parse_hlo("HloModule m\\nENTRY e {\\n  x = f32[2] parameter(0)\\n  ROOT y = f32[2] add(x, x)\\n}")
    >>> module.name, module.entry.parameter_shapes
    ('m', (f32[2],))
    >>> parse_hlo("HloModule m\\nENTRY e {\\n  x = f32[2] parameter(0)\\n  ROOT y = f32[3] add(x, x)\\n}")
    Traceback (most recent call last):
    tfbridge.compiler.errors.ShapeError: line 4, column 12: add has shape f32[3], inferred is f32[2]

    Raises: ParseError  malformed text. UnsupportedError  an opcode, element type or layout that is not
        compiled. ShapeError  an instruction breaks its op's constraints, or its shape is not the inferred
        one. LimitError  more than the limits allow.
    """
    parser = _Parser(text, elided, limits)
    try:
        try:
            module = parser.module()
        except _OutOfOrder:
            parser = _Parser(text, elided, limits)
            parser.is_in_order = False
            module = parser.module()
    except CompilerError as error:
        raise parser.placed(error, parser.at) from None
    if notes is not None and parser.of_machines:
        notes.append(parser.note_on_layouts())
    return module


class _Parser(InstructionReader):
    def __init__(self, text: str, elided: Callable[[str, Shape], Literal] | None, limits: Limits) -> None:
        super().__init__(text, elided, limits)
        self.entry: Computation | None = None
        self.is_in_order = True
        self.written_out: dict[int, Unit] = {}  # computations in attributes, by their position

    def module(self) -> Module:
        """The whole text."""
        self.limits.check("text_characters", len(self.text), "characters of HLO text")
        self.space()
        if _ALONE.match(self.text, self.at):
            return self.module_of_instruction()
        name, starts = self.header()
        last = self.computations_in_order() if self.is_in_order else self.computations_in_any_order()
        entry = self.entry or last
        if entry is None:
            self.expected("a computation `name { ... }`")
        self.check_symbols(entry)
        attributes = {k: v for k, (_, v) in starts.items() if k not in TYPED_ATTRIBUTES}
        module = Module(name or f"module_{entry.name}", entry, attributes)
        for key, (start, value) in starts.items():
            self.checked(functools.partial(self.module_attribute, module, key, value), start)
        return module

    def header(self) -> tuple[str, dict[str, tuple[int, str]]]:
        """The module's name, empty where there is no header, and its attributes with their positions."""
        if not self.accept("HloModule"):
            return "", {}
        self.space()
        name = self.match(_MODULE_NAME, "the module's name")[1]
        starts = {
            FORMER_NAMES.get(key, key): (start, self.text[start : self.at])
            for key, start in self.attributes()
        }
        if symbols := starts.pop("sizes", None):
            self.checked(lambda: self.declare(symbols[1]), symbols[0])
        self.space()
        tables: dict[str, str] = {}
        while table := TABLE.match(self.text, self.at):
            tables[table[1]], self.at = table[2], table.end()
            self.space()
        self.frames = stack_frames(tables)
        return name, starts

    def module_of_instruction(self) -> Module:
        """A text that is one instruction: its operands are the parameters."""
        self.has_free_operands = True
        start = self.at
        if not self.is_in_order:
            self.order(self.scanned("", start, start, {}))
            self.at = start
        self.body_so_far = Body()
        head = _HEAD.match(self.text, self.at)
        self.at = self.at if head is None else head.end()
        root = self.instruction(head[2] if head is not None else "root")
        self.space()
        if self.at < len(self.text):
            self.expected("the end, behind one instruction without a computation around it")
        body = self.body_so_far
        parameters = [body.parameters[k] for k in sorted(body.parameters)]
        if sorted(body.parameters) != list(range(len(parameters))):
            self.fail(f"parameters are numbered {str(sorted(body.parameters)):.60}, expected 0, 1, ...")
        return Module("module_main", Computation("main", root, parameters, body.effects))

    def declare(self, text: str) -> None:
        """Makes the symbols that a module's attribute `sizes` names. Raises: Malformed."""
        try:
            declare_symbols(text, self.assumptions)
        except ValueError as error:
            raise Malformed(f"sizes: {error}") from None

    def check_symbols(self, entry: Computation) -> None:
        """Raises: ParseError  a symbol is no dim of an argument, from which it would get its value."""
        dims = {d for shape in entry.parameter_shapes for leaf in shape.leaves() for d in leaf.dims}
        for name, size in self.assumptions.symbols.items():
            if size not in dims:
                start = self.first_uses.get(name, 0)
                self.fail(f"size {name:.60} is no dim of a parameter of the ENTRY computation", start)

    def module_attribute(self, module: Module, key: str, value: str) -> None:
        """Sets the module's field if the attribute has one, and checks the attribute."""
        if key in TYPED_ATTRIBUTES:
            setattr(module, TYPED_ATTRIBUTES[key].field, TYPED_ATTRIBUTES[key].parse(value))
            check_fields(module)
        elif key in CHECKS:
            CHECKS[key](module, self.limits)

    def note_on_layouts(self) -> str:
        """What the user is told of layouts that say more than the order of the axes."""
        line, _ = self.line_and_column(self.first_layout_at)
        return (
            f"line {line}: of the layout of {next(iter(self.of_machines)):.80} the order of the axes is read alone, "
            f"and so of {len(self.of_machines) - 1} other shapes: tiles, memory spaces and sizes are of another machine"
        )

    # -- computations
    def computations_in_order(self) -> Computation | None:
        """Reads all computations; returns the last."""
        last = None
        while self.at < len(self.text):
            last = self.computation()
            self.space()
        return last

    def computations_in_any_order(self) -> Computation | None:
        """The same, callees first wherever they stand."""
        units: dict[str, Unit] = {}
        last = None
        while self.at < len(self.text):
            start = self.at
            _, name, name_at = self.computation_head()
            if name in units:
                self.fail(f"computation {name} is defined twice", name_at)
            self.signature()
            self.take("{")
            units.update(self.scanned(name, start, self.at, units))
            last = name
            for _ in self.attributes():
                pass
            self.space()
        end = self.at
        self.order(units)
        self.at = end
        return self.computations.get(last) if last is not None else None

    def scanned(self, name: str, start: int, body: int, others: dict[str, Unit]) -> dict[str, Unit]:
        """The computation whose text is behind the brace at `body`, and those in its attributes; goes to its end."""
        unit = Unit(name, start)
        nested = scan_body(self.text, body, unit, [*others, name])
        if unit.end > len(self.text) or (name and self.text[unit.end - 1 : unit.end] != "}"):
            self.fail("this brace is not closed", body - 1)
        self.at = unit.end
        self.written_out.update((inner.start, inner) for inner in nested)
        return {unit.name: unit, **{inner.name: inner for inner in nested}}

    def order(self, units: dict[str, Unit]) -> None:
        """Reads the computations, callees first."""
        try:
            for unit in map(units.__getitem__, callees_first(units, {n: u.calls for n, u in units.items()})):
                self.at = unit.start
                if unit.is_nested:
                    self.take("{")
                    self.add(unit.name, self.body(unit.name), unit.start)
                elif unit.name:
                    self.computation()
        except RecursionError as error:
            name = str(error)
            self.fail(f"computation {name} calls itself", units[name].start)

    def computation_head(self) -> tuple[bool, str, int]:
        """Whether it is the entry, its name, and where that stands."""
        is_entry = _ENTRY.match(self.text, self.at)
        if is_entry:
            self.at = is_entry.end()
        self.space()
        start = self.at
        return is_entry is not None, self.match(NAME, "a computation")[1], start

    def computation(self) -> Computation:
        """One computation, from its name on."""
        is_entry, name, start = self.computation_head()
        if name in self.computations:
            self.fail(f"computation {name} is defined twice", start)
        signature = self.signature()
        self.take("{")
        computation = self.body(name)
        self.checked(lambda: _check_signature(computation, *signature), start)
        self.add(name, computation, start)
        for _ in self.attributes():
            pass
        if is_entry:
            if self.entry is not None:
                self.fail("a second ENTRY computation", start)
            self.entry = computation
        return computation

    def add(self, name: str, computation: Computation, start: int) -> None:
        """Adds a computation to those that can be called."""
        self.computations[name] = computation
        self.checked(lambda: self.expanded_size.add(computation), start)

    def signature(self) -> tuple[list[Shape] | None, Shape | None]:
        """The shapes in `(name: shape, ...) -> shape`, which is optional."""
        parameters: list[Shape] | None = None
        result = None
        if self.accept("("):
            parameters = []
            while not self.accept(")"):
                if parameters:
                    self.take(",")
                    self.space()
                self.match(_SIGNATURE, "a parameter `name: shape`")
                parameters.append(self.shape())
            if self.accept("->"):
                self.space()
                result = self.shape()
        return parameters, result

    def body(self, name: str) -> Computation:
        """The instructions up to the closing brace."""
        body = self.body_so_far = Body()
        root: Instruction | None = None
        instruction: Instruction | None = None
        while not self.accept("}"):
            start = self.at
            head = self.match(_HEAD, "an instruction `name = shape opcode(operands)` or `}`")
            if head[2] in body.instructions:
                self.fail(f"instruction {head[2]} is defined twice", start)
            instruction = body.instructions[head[2]] = self.instruction(head[2])
            if head[1]:
                if root is not None:
                    self.fail("a second ROOT instruction", start)
                root = instruction
        root = root or instruction
        if root is None:
            self.expected("an instruction")
        parameters = body.parameters
        if sorted(parameters) != list(range(len(parameters))):
            self.fail(f"parameters of {name} are numbered {str(sorted(parameters)):.60}, expected 0, 1, ...")
        return Computation(name, root, [parameters[i] for i in range(len(parameters))], body.effects)

    def find(self, name: str) -> Computation:
        """The computation of this name. Raises: Malformed; _OutOfOrder  it may be defined below."""
        if self.is_in_order and name.lstrip("%") not in self.computations:
            raise _OutOfOrder
        return super().find(name)

    def with_names(self, text: str, start: int) -> str:
        """An attribute's text, from that position on, with the names of the computations that are written out in it."""
        if not self.written_out:
            return text
        parts, at = [], start
        while (begin := self.text.find("{", at, start + len(text))) >= 0:
            unit = self.written_out.get(begin)
            end = begin + 1 if unit is None else unit.end
            parts += [self.text[at:begin], "{" if unit is None else unit.name]
            at = end
        return "".join([*parts, self.text[at : start + len(text)]])


def _check_signature(computation: Computation, parameters: list[Shape] | None, result: Shape | None) -> None:
    """Raises: ShapeError  the shapes that stand before a computation are not its own."""
    own, root = computation.parameter_shapes, computation.root.shape
    if parameters is not None and not Shape.tuple(parameters).compatible(Shape.tuple(own)):
        raise ShapeError(
            f"{computation.name} has parameters {Shape.tuple(own)}, not {Shape.tuple(parameters)}"
        )
    if result is not None and not result.compatible(root):
        raise ShapeError(f"{computation.name} returns {root}, not {result}")
