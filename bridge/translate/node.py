"""The node that a translation function is given: its inputs, attributes and the builder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...compiler.builder.computation_builder import ComputationBuilder, Operand
from ...compiler.errors import UnsupportedError
from ...compiler.ir.element_types import ElementType
from ...compiler.ir.shape import Shape
from ...runtime.sizes import as_size
from ..graph import graph as graphs
from ..tf_internals.dtypes import element_type, proto_array
from ..tf_internals.types import AttrValue, TensorShapeProto
from .context import TranslationContext
from .values import TensorList, Value, Variable


class Node:
    """One TensorFlow node under translation.

    Inputs are named by number or by the op's argument name: `node["x"]`, `node.shape(0)`, `node.constant("axis")`.
    """

    __slots__ = ("b", "context", "definition", "graph_node", "inputs")

    def __init__(self, context: TranslationContext, node: graphs.GraphNode, inputs: list[Value]) -> None:
        self.context = context
        self.b: ComputationBuilder = context.builder
        self.graph_node = node
        self.definition = node.definition
        self.inputs = inputs

    @property
    def op(self) -> str:
        """The TensorFlow op."""
        return self.graph_node.op

    @property
    def name(self) -> str:
        """The node's name."""
        return self.graph_node.name

    def number(self, which: int | str) -> int:
        """The number of an input given by number or argument name."""
        return which if isinstance(which, int) else graphs.input_range(self.definition, which)[0]

    def __getitem__(self, which: int | str) -> Operand:
        value = self.inputs[self.number(which)]
        if not isinstance(value, Operand):
            raise UnsupportedError(
                f"{self.op}: input {which} is a {type(value).__name__.lower()}, not an array"
            )
        return value

    def list(self, which: str) -> list[Operand]:
        """The inputs of a list argument."""
        first, end = graphs.input_range(self.definition, which)
        return [self[k] for k in range(first, end)]

    def variable(self, which: int | str) -> Variable:
        """A resource input."""
        value = self.inputs[self.number(which)]
        if not isinstance(value, Variable):
            raise UnsupportedError(f"{self.op}: input {which} is not a variable")
        return value

    def tensor_list(self, which: int | str) -> TensorList:
        """A tensor list input."""
        value = self.inputs[self.number(which)]
        if not isinstance(value, TensorList):
            raise UnsupportedError(f"{self.op}: input {which} is not a tensor list")
        return value

    def array_shape(self, which: int | str) -> Shape:
        """Element type and dims of an input."""
        return self.b.get_shape(self[which])

    def shape(self, which: int | str) -> tuple[int, ...]:
        """Dims of an input."""
        return self.array_shape(which).dims

    def element_type(self, which: int | str) -> ElementType:
        """Element type of an input."""
        return self.array_shape(which).element_type

    def constant(self, which: int | str) -> np.ndarray:
        """The value of an input that is known when compiling.

        Raises: UnsupportedError  its value is known only at run time.
        """
        value = self.context.constant_value(self[which])
        if value is None:
            raise UnsupportedError(
                f"{self.op}: input {which} must be known when compiling; it is computed at run time"
            )
        return value

    def constant_or_none(self, which: int | str) -> np.ndarray | None:
        """The value of an input if it is known when compiling."""
        return self.context.constant_value(self[which])

    def integers(self, which: int | str) -> tuple[int, ...]:
        """A constant input as a tuple of ints (a scalar: of one)."""
        return tuple(as_size(v) for v in self.constant(which).ravel())

    def attr(self, name: str, default: object = None) -> Any:
        """An attribute as a Python value: number, bool, str, ElementType, dims (None for unknown), list of these;
        a tensor as a NumPy array, a function as its name."""
        if name not in self.definition.attr:
            definition = graphs.op_definition(self.op)
            declared = next((a for a in definition.attr if a.name == name), None) if definition else None
            if declared is None or not declared.HasField("default_value"):
                return default
            return attribute_value(declared.default_value)
        return attribute_value(self.definition.attr[name])

    def bail_out_if(self, bad: Operand, what: str) -> None:
        """Leaves the run where a pred holds; `what` tells people why."""
        self.b.bail_out_if(bad, what)

    def function(self, name: str) -> str:
        """The name of the function in a function attribute."""
        return str(self.definition.attr[name].func.name)

    def output_types(self) -> Sequence[ElementType | None]:
        """Element types of the outputs; None for resources and variants."""
        return [element_type(t) for t in graphs.output_types(self.graph_node)]


def attribute_value(value: AttrValue) -> Any:
    """An AttrValue as a Python value."""
    kind = value.WhichOneof("value")
    if kind == "list":
        lists = value.list
        for field in ("i", "f", "b"):
            if getattr(lists, field):
                return list(getattr(lists, field))
        if lists.s:
            return [s.decode() for s in lists.s]
        if lists.type:
            return [element_type(t) for t in lists.type]
        if lists.shape:
            return [_dims(s) for s in lists.shape]
        return [f.name for f in lists.func]
    if kind == "s":
        return value.s.decode(errors="replace")
    if kind == "type":
        return element_type(value.type)
    if kind == "shape":
        return _dims(value.shape)
    if kind == "tensor":
        return proto_array(value.tensor)
    if kind == "func":
        return value.func.name
    return getattr(value, kind) if kind else None


def _dims(shape: TensorShapeProto) -> tuple[int | None, ...] | None:
    return None if shape.unknown_rank else tuple(None if d.size < 0 else int(d.size) for d in shape.dim)
