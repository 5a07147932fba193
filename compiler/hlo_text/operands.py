"""Operands of instructions in HLO text: names, instructions themselves, elements of tuples, numbers and literals."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from ...runtime.sizes import is_symbolic
from ..errors import CompilerError, ShapeError
from ..ir.expanded_size import ExpandedSize
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction
from ..ir.shape import Shape
from ..limits import Limits
from ..ops import OPS, Parameter
from .async_ops import Start
from .attributes import implied
from .layouts import Tile
from .literals import parse_literal
from .scanner import Malformed, Scanner, integer
from .tuples import element_at


def _nested_parentheses(depth: int) -> str:
    """The pattern of a text with parentheses, up to that deep. Each part begins with another character than what is
    before it can go on with, so that there is one way to match."""
    inner = "[^()]*"
    for _ in range(depth):
        inner = rf"[^()]*(?:\({inner}\)[^()]*)*"
    return inner


_OPCODE = re.compile(r"\s*([\w\-]+)\s*\(", re.ASCII)
_SHAPE = re.compile(r"\(|b\s*\(|[a-z]\w*\[", re.ASCII)
_OPERAND = re.compile(r"\s*(?:/\*[^*]*\*/\s*)?%?([\w.\-]+)((?:#\d+)*)\s*([,)])", re.ASCII)
_END_OF_OPERAND = re.compile(r"\s*([,)])")
_LITERAL = re.compile(_nested_parentheses(3))
_NUMBER = re.compile(r"\s*(\d+)\s*\)", re.ASCII)


@dataclasses.dataclass
class Head:
    """The beginning of an instruction, and what was read of its operands."""

    name: str
    start: int
    at: int  # of the opcode
    opcode: str
    shape: Shape | None
    tiles: tuple[Tile, ...]
    operands: list[Instruction] = dataclasses.field(default_factory=list)
    values: dict[str, object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Body:
    """What was read of a computation."""

    instructions: dict[str, Instruction] = dataclasses.field(default_factory=dict)
    parameters: dict[int, Instruction] = dataclasses.field(default_factory=dict)
    effects: list[Instruction] = dataclasses.field(default_factory=list)


class OperandReader(Scanner):
    """Reads the beginning of an instruction and its operands.

    Raises: ParseError, ShapeError, UnsupportedError, LimitError  with a position.
    """

    def __init__(self, text: str, elided: Callable[[str, Shape], Literal] | None, limits: Limits) -> None:
        super().__init__(text, limits)
        self.elided = elided
        self.computations: dict[str, Computation] = {}
        self.frames: dict[int, tuple[str, int]] = {}
        self.started: dict[Instruction, Start] = {}
        self.leaves: dict[Instruction, int] = {}
        self.tiles_of: dict[Instruction, tuple[Tile, ...]] = {}
        self.count = 0
        self.body_so_far = Body()
        self.has_free_operands = False  # operands that are no instructions are parameters
        self.expanded_size = ExpandedSize(limits)

    def head(self, name: str, is_operand: bool) -> Head:
        """Shape, if there is one, and opcode of an instruction."""
        start = self.at
        shape: Shape | None = None
        if _SHAPE.match(self.text, self.at):
            shape = self.shape()
        elif not is_operand and _OPCODE.match(self.text, self.at) is None:
            self.expected("a shape like f32[2,3] or an opcode and `(`")
        tiles = self.last_tiles if shape is not None and shape.is_array else ()
        self.space()
        at = self.at
        opcode = self.match(_OPCODE, "an opcode and `(`")[1]
        self.count += 1
        try:
            self.limits.check("instructions", self.count, "instructions")
        except CompilerError as error:
            raise self.placed(error, start) from None
        return Head(name or f"{opcode}.operand{self.count}", start, at, opcode, shape, tiles)

    # -- operands
    def inputs(self, head: Head) -> Head | None:
        """Reads what is in the parentheses, up to the first operand that is an instruction itself: returns that one's
        head, None at the end."""
        kinds = implied(OPS[head.opcode]) if head.opcode in OPS else {}
        if "number" in kinds.values():
            match = self.match(_NUMBER, "a parameter number and `)`")
            head.values["number"] = integer(match[1], "a parameter number")
        elif "literal" in kinds.values():
            head.values["literal"] = self.literal(head.name, self.wanted_shape(head))
        else:
            return self.operands(head)
        return None

    def operands(self, head: Head) -> Head | None:
        """The operands, as `inputs`."""
        inner = self.rest_of_operands(head)
        if inner is None and self.leaves:
            total = sum(self.leaves.get(o, 1) for o in head.operands)
            self.limits.check("tuple_leaves", total, "arrays in the tuples among the operands")
        return inner

    def rest_of_operands(self, head: Head) -> Head | None:
        """Reads operands, behind those that were read, which end with one that is an instruction."""
        if not head.operands and self.accept(")"):
            return None
        if head.operands and self.match(_END_OF_OPERAND, "`,` or `)`")[1] == ")":
            return None
        while True:
            match, declared, at = _OPERAND.match(self.text, self.at), None, self.at
            if match is None:
                self.space()
                at = self.at
                if _SHAPE.match(self.text, self.at):
                    declared = self.shape()
                    self.space()
                match = _OPERAND.match(self.text, self.at)
                if match is None and _OPCODE.match(self.text, self.at):
                    self.at = at
                    return self.head("", is_operand=True)
                if match is None and declared is not None and self.has_free_operands:
                    head.operands.append(self.free_operand("", declared))
                    match = self.match(_END_OF_OPERAND, "an operand and `,` or `)`")
                    if match[1] == ")":
                        return None
                    continue
                match = self.match(_OPERAND, "an operand and `,` or `)`")
            head.operands.append(self.operand(match[1], match[2], declared, match.start(1), at))
            self.at = match.end()
            if match[3] == ")":
                return None

    def operand(self, name: str, path: str, declared: Shape | None, at: int, shape_at: int) -> Instruction:
        """The instruction of this name, or the element of it that `#0#1` names."""
        operand = self.body_so_far.instructions.get(name)
        if operand is None:
            if declared is not None and self.has_free_operands and not path:
                return self.free_operand(name, declared)
            self.fail(f"operand {name} is not defined before", at)
        if path:
            try:
                operand = element_at(operand, path)
            except ShapeError as error:
                raise self.placed(error, at) from None
        if declared is not None and not self.fits(operand, declared):
            raise self.placed(
                ShapeError(f"operand {name} has shape {operand.shape}, not {declared}"), shape_at
            )
        return operand

    def free_operand(self, name: str, shape: Shape) -> Instruction:
        """A new parameter, in the text of one instruction alone."""
        body = self.body_so_far
        number = len(body.parameters)
        parameter = Instruction(Parameter(number, shape), (), shape, name or f"parameter.{number}")
        body.parameters[number] = parameter
        if name:
            body.instructions[name] = parameter
        if self.last_tiles and shape.is_array:
            self.tiles_of[parameter] = self.last_tiles
        return parameter

    def fits(self, operand: Instruction, declared: Shape) -> bool:
        """Whether an operand has the shape that stands before it: that of an asynchronous op's start is a tuple."""
        start = self.started.get(operand)
        return operand.shape.compatible(declared) or (
            start is not None and start.declared is not None and start.declared.compatible(declared)
        )

    def literal(self, name: str, shape: Shape) -> object:
        """The literal in the parentheses."""
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

    def wanted_shape(self, head: Head) -> Shape:
        """The shape that the text says. Raises: Malformed  it says none."""
        if head.shape is None:
            raise Malformed("expected the result's shape, which does not follow from the operands")
        return head.shape
