"""HLO text read into a module: what XLA and JAX print, with or without `%`, types of operands, layouts,
metadata."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.sizes import is_symbolic
from ..analysis.dynamic_dimension_inference import infer_shape
from ..errors import CompilerError, ShapeError
from ..ir.element_types import ElementType
from ..ir.expanded_size import ExpandedSize
from ..ir.literal import Literal
from ..ir.module import NO_METADATA, Computation, Instruction, Metadata, Module
from ..ir.module_attributes import CHECKS, FORMER_NAMES, TYPED_ATTRIBUTES, check_fields
from ..ir.shape import Shape, check_size
from ..ir.verifier import check_attributes, declared_shape
from ..limits import DEFAULT_LIMITS, Limits
from ..ops import OPS, Call, CustomCall, Parameter
from ..ops.custom_call import FORMER_TARGETS
from ..ops.op import Op
from .async_ops import Start, ended, started
from .attributes import KINDS, PREDICATE_BRANCHES, Attribute, attributes, implied, result_field
from .expansions import EXPANSIONS, expanded
from .literals import parse_literal
from .scanner import ARRAY, NAME, Malformed, Scanner, integer
from .sizes import declare_symbols
from .xla_custom_calls import library_call


def _nested_parentheses(depth: int) -> str:
    """The pattern of a text with parentheses, up to that deep. Each part begins with another character than what is
    before it can go on with, so that there is one way to match."""
    inner = "[^()]*"
    for _ in range(depth):
        inner = rf"[^()]*(?:\({inner}\)[^()]*)*"
    return inner


_HEAD = re.compile(r"(ROOT\s+)?%?([\w.\-]+)\s*=\s*", re.ASCII)
_OPCODE = re.compile(r"\s*([\w\-]+)\(", re.ASCII)
_OPERAND = re.compile(r"\s*(?:/\*[^*]*\*/\s*)?%?([\w.\-]+)\s*([,)])", re.ASCII)
_SIGNATURE = re.compile(r"%?([\w.\-]+)\s*:\s*", re.ASCII)
_LITERAL = re.compile(_nested_parentheses(3))
_NUMBER = re.compile(r"\s*(\d+)\s*\)", re.ASCII)
_TABLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)\n((?:\d+ [^\n]*\n?)*)", re.ASCII)
_FIELD = re.compile(r'([\w\-]+)=("(?:[^"\\]|\\.)*"|\{[^{}]*\}|[^\s}]+)')
_DIGITS = re.compile(r"[0-9]{1,18}")

STORED_ATTRIBUTES = frozenset(
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
"""Attributes of instructions that are stored in Metadata.extra as text: they do not change what is
computed."""


def parse_hlo(
    text: str, elided: Callable[[str, Shape], Literal] | None = None, limits: Limits = DEFAULT_LIMITS
) -> Module:
    """The module that the text spells, verified. `elided` gives the constants that it spells as `...`, by name and
    shape.

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
        return parser.module()
    except CompilerError as error:
        raise parser.placed(error, parser.at) from None


class _Parser(Scanner):
    def __init__(self, text: str, elided: Callable[[str, Shape], Literal] | None, limits: Limits) -> None:
        super().__init__(text, limits)
        self.elided = elided
        self.computations: dict[str, Computation] = {}
        self.result_tiles_at: int | None = None
        self.in_entry = False
        self.frames: dict[int, tuple[str, int]] = {}
        self.entry: Computation | None = None
        self.started: dict[Instruction, Start] = {}
        self.leaves: dict[Instruction, int] = {}
        self.count = 0
        self.expanded_size = ExpandedSize(limits)

    def module(self) -> Module:
        self.limits.check("text_characters", len(self.text), "characters of HLO text")
        self.take("HloModule")
        self.space()
        name = self.match(NAME, "the module's name")[1]
        starts = {
            FORMER_NAMES.get(key, key): (start, self.text[start : self.at])
            for key, start in self.attributes()
        }
        if symbols := starts.pop("sizes", None):
            self.checked(lambda: self.declare(symbols[1]), symbols[0])
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
        self.check_symbols(self.entry)
        module = Module(name, self.entry, {k: v for k, (_, v) in starts.items() if k not in TYPED_ATTRIBUTES})
        for key, (start, value) in starts.items():
            self.checked(functools.partial(self.module_attribute, module, key, value), start)
        return module

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

    def computation(self) -> Computation:
        is_entry = self.in_entry = self.accept("ENTRY ")
        self.space()
        start = self.at
        name = self.match(NAME, "a computation")[1]
        if name in self.computations:
            self.fail(f"computation {name} is defined twice", start)
        signature = self.signature()
        self.take("{")
        computation = self.computations[name] = self.body(name)
        self.checked(lambda: _check_signature(computation, *signature), start)
        self.checked(lambda: self.expanded_size.add(computation), start)
        for _ in self.attributes():
            pass
        if is_entry:
            if self.entry is not None:
                self.fail("a second ENTRY computation", start)
            self.entry = computation
        return computation

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
                    self.refuse_tiles(self.result_tiles_at)
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
            self.fail(f"parameters of {name} are numbered {str(sorted(parameters)):.60}, expected 0, 1, ...")
        return Computation(name, root, [parameters[i] for i in range(len(parameters))], effects)

    def instruction(self, name: str, env: dict[str, Instruction]) -> Instruction:
        """The instruction after its name; errors get its position."""
        start = self.at
        self.tiles_at = None
        shape = self.shape()
        self.result_tiles_at = self.tiles_at
        self.space()
        before = self.at
        opcode = self.match(_OPCODE, "an opcode and `(`")[1]
        self.count += 1
        try:
            self.limits.check("instructions", self.count, "instructions")
            instruction = self.apply(name, opcode, shape, before, env)
        except Malformed as error:
            raise self.placed(error, before, f"{opcode}: ") from None
        except CompilerError as error:
            raise self.placed(error, start) from None
        if instruction.shape.tuple_shapes:
            self.leaves[instruction] = sum(1 for _ in instruction.shape.leaves())
        return instruction

    def apply(
        self, name: str, opcode: str, shape: Shape, before: int, env: dict[str, Instruction]
    ) -> Instruction:
        """The instruction of this opcode, whose operands follow.

        Raises: ParseError; Malformed, ShapeError, UnsupportedError  without a position.
        """
        if opcode == "bitcast" or (opcode == "parameter" and self.in_entry):
            self.refuse_tiles(self.result_tiles_at)
        if opcode in EXPANSIONS:
            return self.expansion_of(name, opcode, shape, env)
        if (suffix := ended(opcode)) is not None:
            return self.end(opcode, suffix, shape, env)
        start = started(opcode, shape)
        opcode, shape = (opcode, shape) if start is None else (start.opcode, start.result)
        cls = OPS.get(opcode)
        if cls is None:
            self.unsupported(f"opcode {opcode} is not compiled", before)
        kinds = implied(cls)
        values: dict[str, object] = {}
        operands: list[Instruction] = []
        if "number" in kinds.values():
            values["number"] = integer(
                self.match(_NUMBER, "a parameter number and `)`")[1], "a parameter number"
            )
        elif "literal" in kinds.values():
            values["literal"] = self.literal(name, shape)
        else:
            operands = self.operands(env)
        texts, metadata = self.instruction_attributes({a.name for a in attributes(cls)}, opcode)
        shapes = [o.shape for o in operands]
        op = self.op(cls, opcode, kinds, values, texts, shape, shapes)
        if isinstance(op, CustomCall) and (target := FORMER_TARGETS.get(op.custom_call_target)) is not None:
            op = dataclasses.replace(op, custom_call_target=target)
        inferred = infer_shape(op, shapes)
        check_size(inferred, self.limits)
        if start is not None:
            start.check(shapes)
        shape = declared_shape(opcode, shape, inferred)
        check_attributes(op, shapes)
        if isinstance(op, CustomCall) and (library := library_call(op, shapes)) is not None:
            op = Call(library)
        instruction = Instruction(op, tuple(operands), shape, name, metadata)
        if start is not None:
            self.started[instruction] = start
        return instruction

    def end(self, opcode: str, name: str, shape: Shape, env: dict[str, Instruction]) -> Instruction:
        """The value of the end, or an update, of an asynchronous op."""
        operands = self.operands(env)
        start = self.started.get(operands[0]) if len(operands) == 1 else None
        if start is None or start.name != name:
            names = ", ".join(o.name for o in operands) or "none"
            raise ShapeError(f"{opcode}: operands are {names}, what {name}-start gives is wanted")
        for _ in self.attributes():
            pass
        declared_shape(opcode, shape, start.declared if opcode.endswith("-update") else start.result)
        return operands[0]

    def operands(self, env: dict[str, Instruction]) -> list[Instruction]:
        operands: list[Instruction] = []
        if self.accept(")"):
            return operands
        while True:
            match, declared, at = _OPERAND.match(self.text, self.at), None, self.at
            if match is None:
                self.space()
                at = self.at
                if self.text.startswith("(", self.at) or ARRAY.match(self.text, self.at):
                    declared = self.shape()
                match = self.match(_OPERAND, "an operand and `,` or `)`")
            operand = env.get(match[1])
            if operand is None:
                self.fail(f"operand {match[1]} is not defined before", match.start(1))
            if declared is not None and not self.fits(operand, declared):
                raise self.placed(
                    ShapeError(f"operand {match[1]} has shape {operand.shape}, not {declared}"), at
                )
            operands.append(operand)
            self.at = match.end()
            if match[2] == ")":
                if self.leaves:
                    total = sum(self.leaves.get(o, 1) for o in operands)
                    self.limits.check("tuple_leaves", total, "arrays in the tuples among the operands")
                return operands

    def fits(self, operand: Instruction, declared: Shape) -> bool:
        """Whether an operand has the shape that stands before it: that of an asynchronous op's start is a tuple."""
        start = self.started.get(operand)
        return operand.shape.compatible(declared) or (
            start is not None and start.declared.compatible(declared)
        )

    def literal(self, name: str, shape: Shape) -> object:
        start = self.at
        if is_symbolic(d for leaf in shape.leaves() for d in leaf.dims):
            raise Malformed(f"expected sizes that are numbers in a constant's shape, got {shape}")
        text = self.match(_LITERAL, "a literal")[0]
        self.take(")")
        if self.elided is not None and "..." in text:
            return self.elided(name, shape)
        self.limits.check("constant_bytes", shape.bytes, "bytes of a constant")
        try:
            return parse_literal(text, shape)
        except Malformed as error:
            self.fail(f"constant: {error}", start)

    def expansion_of(self, name: str, opcode: str, shape: Shape, env: dict[str, Instruction]) -> Instruction:
        """An instruction that is read as a call."""
        operands = self.operands(env)
        texts, metadata = self.instruction_attributes(set(EXPANSIONS[opcode].attributes), opcode)
        try:
            computation = expanded(opcode, [o.shape for o in operands], texts, shape)
        except ShapeError as error:  # behind the first line: where the builder was called
            raise ShapeError(str(error).splitlines()[0]) from None
        declared_shape(opcode, shape, computation.root.shape)
        return Instruction(Call(computation), tuple(operands), shape, name, metadata)

    def instruction_attributes(self, own: set[str], opcode: str) -> tuple[dict[str, str], Metadata]:
        if not self.text.startswith(",", self.at):
            return {}, NO_METADATA
        texts: dict[str, str] = {}
        extra: list[tuple[str, str]] = []
        metadata: dict[str, Any] = {}
        for name, start in self.attributes():
            text = self.text[start : self.at]
            if name in texts:
                self.fail(f"{opcode}: a second attribute {name}", start)
            if name in own or (name in PREDICATE_BRANCHES and opcode == "conditional"):
                texts[name] = text
            elif name == "calls" and opcode == "call":  # of an async-start
                texts["to_apply"] = text
            elif name == "metadata":
                metadata = self.metadata(text, extra)
            elif name in STORED_ATTRIBUTES:
                extra.append((name, text))
            else:
                self.unsupported(f"attribute {name} of {opcode} is not compiled", start)
        if not metadata and not extra:
            return texts, NO_METADATA
        return texts, Metadata(**metadata, extra=tuple(extra))

    def metadata(self, text: str, extra: list[tuple[str, str]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in _FIELD.findall(text[1:-1]):
            if name in ("op_type", "op_name", "source_file"):
                values[name] = _unescaped(value)
            elif name == "source_line" and _DIGITS.fullmatch(value):
                values[name] = int(value)
            elif name == "stack_frame_id" and _DIGITS.fullmatch(value) and int(value) in self.frames:
                values["source_file"], values["source_line"] = self.frames[int(value)]
            else:
                extra.append((f"metadata.{name}", value))
        return values

    def op(
        self,
        cls: type[Op],
        opcode: str,
        kinds: Mapping[str, str],
        values: dict[str, object],
        texts: dict[str, str],
        shape: Shape,
        operands: list[Shape],
    ) -> Op:
        if PREDICATE_BRANCHES[0] in texts:
            branches = [texts.pop(name, "") for name in PREDICATE_BRANCHES]
            texts["branch_computations"] = "{" + ", ".join(branches) + "}"
        fields: dict[str, object] = {}
        for name, kind in kinds.items():
            if kind in values:
                fields[name] = values[kind]
            elif kind == "opcode":
                fields[name] = opcode
            elif kind == "implied":
                fields[name] = bool(operands) and operands[0].element_type is not ElementType.PRED
            else:
                fields[name] = result_field(kind, cls, shape, operands)
        for attribute in attributes(cls):
            text = texts.get(attribute.name)
            if text is None:
                self.absent(attribute, fields)
                continue
            value = KINDS[attribute.kind].read(text, self)
            fields.update(
                zip(attribute.fields, value) if len(attribute.fields) > 1 else {attribute.fields[0]: value}
            )
        return cls(**fields)

    def absent(self, attribute: Attribute, fields: dict[str, object]) -> None:
        if attribute.kind == "window":
            fields[attribute.fields[0]] = KINDS["window"].read("{}", self)
        elif isinstance(attribute.default, (tuple, str, int, bool, type(None))):
            if len(attribute.fields) == 1:
                fields[attribute.fields[0]] = attribute.default
        else:
            raise Malformed(f"expected the attribute {attribute.name}=")

    def find(self, name: str) -> Computation:
        computation = self.computations.get(name.lstrip("%"))
        if computation is None:
            raise Malformed(f"computation {name} is not defined before")
        return computation


def _check_signature(computation: Computation, parameters: list[Shape] | None, result: Shape | None) -> None:
    """Raises: ShapeError  the shapes that stand before a computation are not its own."""
    own, root = computation.parameter_shapes, computation.root.shape
    if parameters is not None and not Shape.tuple(parameters).compatible(Shape.tuple(own)):
        raise ShapeError(
            f"{computation.name} has parameters {Shape.tuple(own)}, not {Shape.tuple(parameters)}"
        )
    if result is not None and not result.compatible(root):
        raise ShapeError(f"{computation.name} returns {root}, not {result}")


def _stack_frames(tables: dict[str, str]) -> dict[int, tuple[str, int]]:
    """File and line by stack frame number, from the tables that stand before the computations."""

    def rows(table: str) -> dict[int, str]:
        lines = (line.partition(" ") for line in tables.get(table, "").splitlines())
        return {int(number): rest for number, _, rest in lines if _DIGITS.fullmatch(number)}

    def number(name: str, row: str) -> int:
        match = re.search(rf"\b{name}=([0-9]{{1,18}})\b", row)
        return int(match[1]) if match else 0

    files = {n: _unescaped(r) for n, r in rows("FileNames").items()}
    locations = {
        n: (files.get(number("file_name_id", r), ""), number("line", r))
        for n, r in rows("FileLocations").items()
    }
    return {n: locations.get(number("file_location_id", r), ("", 0)) for n, r in rows("StackFrames").items()}


_ESCAPES: dict[str, str] = {"n": "\n", "t": "\t"}


def _unescaped(text: str) -> str:
    inner = text[1:-1] if text[:1] == '"' else text
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), inner)
