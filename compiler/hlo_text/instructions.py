"""Instructions of HLO text: with or without shapes, `%` and attributes, one as another's operand, or alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..analysis.dynamic_dimension_inference import infer_shape
from ..builder.other_types import computation_on
from ..errors import CompilerError, ShapeError, UnsupportedError
from ..ir.element_types import ElementType
from ..ir.module import NO_METADATA, Computation, Instruction, Metadata
from ..ir.shape import Shape, check_size
from ..ir.verifier import check_attributes, declared_shape
from ..ops import OPS, Call, Copy, CustomCall, Map, Parameter, Reshape, SetDimensionSize
from ..ops.custom_call import FORMER_TARGETS
from ..ops.op import Op
from .async_ops import START_ATTRIBUTES, ended, started, without_start_attributes
from .attributes import KINDS, PREDICATE_BRANCHES, Attribute, attributes, implied, result_field
from .channels import complete, extra_attributes
from .dynamic_reshape import moving_reshape
from .expansions import EXPANSIONS, REFUSED, expanded
from .metadata import STORED_ATTRIBUTES, as_another_op, parse_metadata
from .mixed_precision import as_declared, differs_in_precision, may_be_mixed, of_one_type
from .operands import Head, OperandReader
from .scanner import Malformed
from .tuples import nested, without_tuples
from .xla_custom_calls import library_call


class InstructionReader(OperandReader):
    """Reads instructions of one computation after the other.

    Raises: ParseError, ShapeError, UnsupportedError, LimitError  with a position.
    """

    def instruction(self, name: str) -> Instruction:
        """The instruction after its name."""
        stack = [self.head(name, is_operand=False)]
        while True:
            head = stack[-1]
            try:
                if (inner := self.inputs(head)) is not None:
                    self.limits.check("nesting", len(stack), "instructions as operands, one inside the other")
                    stack.append(inner)
                    continue
                instruction = self.apply(head, has_attributes=len(stack) == 1)
            except Malformed as error:
                raise self.placed(error, head.at, f"{head.opcode}: ") from None
            except CompilerError as error:
                raise self.placed(error, head.start) from None
            stack.pop()
            self.define(instruction, head)
            if not stack:
                return instruction
            stack[-1].operands.append(instruction)

    def define(self, instruction: Instruction, head: Head) -> None:
        """Adds an instruction to the computation that is read."""
        body = self.body_so_far
        if instruction.shape.tuple_shapes:
            self.leaves[instruction] = sum(1 for _ in instruction.shape.leaves())
        if head.tiles:
            self.tiles_of[instruction] = head.tiles
        if isinstance(instruction.op, Parameter):
            if instruction.op.number in body.parameters:
                self.fail(f"parameter {instruction.op.number} is defined twice", head.start)
            body.parameters[instruction.op.number] = instruction
        self.effect(instruction)

    def effect(self, instruction: Instruction) -> None:
        """Adds an instruction to those that have an effect, if it has one."""
        if instruction.has_side_effect:
            self.body_so_far.effects.append(instruction)

    # -- the instruction
    def apply(self, head: Head, has_attributes: bool) -> Instruction:
        """The instruction, whose operands are read; its attributes follow.

        Raises: ParseError; Malformed, ShapeError, UnsupportedError  without a position.
        """
        opcode, operands = head.opcode, head.operands
        if opcode in EXPANSIONS:
            return self.expansion_of(head, has_attributes)
        if (suffix := ended(opcode)) is not None:
            return self.end(head, suffix)
        start = started(opcode, head.shape)
        if start is not None:
            opcode, head.shape = start.opcode, start.result
        cls = OPS.get(opcode)
        if cls is None:
            reason = REFUSED.get(opcode, "no version of XLA that is known here has it")
            self.unsupported(f"opcode {opcode} is not compiled: {reason}", head.at)
        texts, metadata = self.instruction_attributes(
            {a.name for a in attributes(cls)} | extra_attributes(cls), opcode, has_attributes
        )
        complete(cls, opcode, texts, operands)
        if start is not None:
            metadata = without_start_attributes(metadata)
        shapes = [o.shape for o in operands]
        op = self.op(cls, head, opcode, texts, shapes)
        if may_be_mixed(op):
            operands = of_one_type(op, operands, head.shape)
            shapes = [o.shape for o in operands]
        if isinstance(op, CustomCall) and (target := FORMER_TARGETS.get(op.custom_call_target)) is not None:
            op = dataclasses.replace(op, custom_call_target=target)
        if isinstance(op, CustomCall):
            computation = library_call(op, shapes)
        elif isinstance(op, Reshape) and len(shapes) == 1:
            computation = moving_reshape(op, shapes[0], head.shape, metadata)
        else:
            computation = computation_on(op, shapes)
        if computation is not None:
            op, metadata = Call(computation), as_another_op(metadata)
        if isinstance(op, SetDimensionSize) and len(operands) == 2 and not op.changes(*operands):
            op, operands = Copy(), operands[:1]
        in_text = op
        if isinstance(op, CustomCall):
            op, operands = without_tuples(op, operands)
        inferred = infer_shape(op, [o.shape for o in operands])
        check_size(inferred, self.limits)
        if start is not None:
            start.check([o.shape for o in head.operands])
        declared = head.shape if op is in_text else None
        if declared is not None and may_be_mixed(op) and differs_in_precision(declared, inferred):
            wide = Instruction(op, tuple(operands), inferred, f"{head.name}_wide", metadata)
            instruction = as_declared(wide, declared, head.name, metadata)
            shape = declared_shape(opcode, declared, instruction.shape)
            instruction = dataclasses.replace(instruction, shape=shape)
        else:
            shape = inferred if declared is None else declared_shape(opcode, declared, inferred)
            instruction = Instruction(op, tuple(operands), shape, head.name, metadata)
        check_attributes(op, [o.shape for o in operands])
        if isinstance(in_text, CustomCall) and op is not in_text:
            self.effect(instruction)
            instruction = nested(instruction, in_text.shape.without_layout(), f"{head.name}_nested")
        if start is not None:
            self.started[instruction] = start
        return instruction

    def end(self, head: Head, name: str) -> Instruction:
        """The value of the end, or an update, of an asynchronous op."""
        operands = head.operands
        start = self.started.get(operands[0]) if len(operands) == 1 else None
        if start is None or start.name != name:
            names = ", ".join(o.name for o in operands) or "none"
            raise ShapeError(f"{head.opcode}: operands are {names}, what {name}-start gives is wanted")
        for _ in self.attributes():
            pass
        wanted = start.declared if head.opcode.endswith("-update") else start.result
        if head.shape is not None and wanted is not None:
            declared_shape(head.opcode, head.shape, wanted)
        return operands[0]

    def expansion_of(self, head: Head, has_attributes: bool) -> Instruction:
        """An instruction that is read as a call."""
        opcode, operands = head.opcode, tuple(head.operands)
        expansion = EXPANSIONS[opcode]
        texts, metadata = self.instruction_attributes(set(expansion.attributes), opcode, has_attributes)
        shape = self.wanted_shape(head) if expansion.needs_shape else head.shape
        tiles = (self.tiles_of.get(operands[0], ()) if operands else (), head.tiles)
        try:
            computation = expanded(opcode, [o.shape for o in operands], texts, shape, tiles, self)
        except (ShapeError, UnsupportedError) as error:  # behind the first line: where the builder was called
            raise type(error)(str(error).splitlines()[0]) from None
        result = computation.root.shape
        if shape is not None:
            declared_shape(opcode, shape, result)
        return Instruction(Call(computation), operands, shape or result, head.name, as_another_op(metadata))

    # -- attributes
    def instruction_attributes(
        self, own: set[str], opcode: str, has_attributes: bool = True
    ) -> tuple[dict[str, str], Metadata]:
        """The texts of the op's own attributes, and the others as metadata. An instruction that is an operand has
        none."""
        if not has_attributes:
            return {}, NO_METADATA
        texts: dict[str, str] = {}
        extra: list[tuple[str, str]] = []
        metadata: dict[str, Any] = {}
        for name, start in self.attributes():
            text = self.text[start : self.at]
            if name in texts:
                self.fail(f"{opcode}: a second attribute {name}", start)
            if name in own or (name in PREDICATE_BRANCHES and opcode == "conditional"):
                texts[name] = self.with_names(text, start)
            elif name == "calls" and opcode == "call":  # of an async-start
                texts["to_apply"] = self.with_names(text, start)
            elif name == "to_apply" and opcode == "custom-call":
                texts["called_computations"] = f"{{{self.with_names(text, start)}}}"
            elif name == "metadata":
                metadata = parse_metadata(text, self.frames, extra)
            elif (
                name in STORED_ATTRIBUTES
                or name in UNUSED_ATTRIBUTES.get(opcode, ())
                or name in START_ATTRIBUTES
            ):
                extra.append((name, text))
            else:
                self.unsupported(f"attribute {name} of {opcode} is not compiled", start)
        if not metadata and not extra:
            return texts, NO_METADATA
        return texts, Metadata(**metadata, extra=tuple(extra))

    def with_names(self, text: str, start: int) -> str:
        """An attribute's text, from that position on, with the names of the computations that are written out in it."""
        return text

    def op(self, cls: type[Op], head: Head, opcode: str, texts: dict[str, str], operands: list[Shape]) -> Op:
        """The op of these attributes."""
        if PREDICATE_BRANCHES[0] in texts:
            branches = [texts.pop(name, "") for name in PREDICATE_BRANCHES]
            texts["branch_computations"] = "{" + ", ".join(branches) + "}"
        if cls is Map and operands:
            texts.setdefault("dimensions", KINDS["dims"].show(range(operands[0].rank)))
        fields: dict[str, object] = {}
        for name, kind in implied(cls).items():
            if kind in head.values:
                fields[name] = head.values[kind]
            elif kind == "opcode":
                fields[name] = opcode
            elif kind == "implied":
                fields[name] = bool(operands) and operands[0].element_type is not ElementType.PRED
            elif head.shape is not None or not has_default(cls, name):
                fields[name] = result_field(kind, cls, self.wanted_shape(head), operands)
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
        """Sets the fields of an attribute that is not there to its default."""
        if attribute.kind == "window":
            fields[attribute.fields[0]] = KINDS["window"].read("{}", self)
        elif isinstance(attribute.default, (tuple, str, int, bool, type(None))):
            if len(attribute.fields) == 1:
                fields[attribute.fields[0]] = attribute.default
        else:
            raise Malformed(f"expected the attribute {attribute.name}=")

    def find(self, name: str) -> Computation:
        """The computation of this name. Raises: Malformed."""
        computation = self.computations.get(name.lstrip("%"))
        if computation is None:
            raise Malformed(f"computation {name} is not defined")
        return computation


def has_default(cls: type[Op], name: str) -> bool:
    """Whether a field of an op need not be said."""
    return next(f for f in dataclasses.fields(cls) if f.name == name).default is not dataclasses.MISSING


UNUSED_ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "topk": frozenset({"is_stable"}),
    "custom-call": frozenset(
        {
            "schedule",
            "window",
            "dim_labels",
            "feature_group_count",
            "batch_group_count",
            "padding_type",
            "literal",
        }
    ),
    "convolution": frozenset({"conv_kind", "convolution_kind"}),
    "call": frozenset({"output_to_operand_aliasing"}),
    "fusion": frozenset({"output_to_operand_aliasing"}),
    "reshape": frozenset({"inferred_dimension"}),
}
"""Attributes, by opcode, that are stored in Metadata.extra as STORED_ATTRIBUTES are: they say how another machine
computes the same."""
