"""Translates a graph into a module, for concrete shapes of its arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow.core.framework.function_pb2 import FunctionDefLibrary

from ...compiler.builder.computation_builder import ComputationBuilder, Operand
from ...compiler.errors import CompilerError, InternalError, UnsupportedError
from ...compiler.evaluator.evaluator import evaluate_instruction
from ...compiler.ir.module import Instruction, Metadata, Module
from ...compiler.ir.shape import Shape
from ...runtime.code import float_mode
from ...runtime.threads import interrupts
from ..graph.function_library import calls_as_ops
from ..graph.graph import Graph, GraphNode, Tensor, from_function_def, op_definition, output_types
from ..tf_internals import symbols as tfp
from ..tf_internals.dtypes import element_type
from .node import Node
from .operand_shapes import check_operands
from .registry import translations
from .values import Value, Variable

_FOLD_ELEMENTS = 1 << 16  # larger values are no shapes, axes or paddings


@dataclasses.dataclass
class Functions:
    """The functions of a library, read when first called. `denied`: op types that are left to TensorFlow.
    `data_sizes`: what has been found out about sizes in them."""

    definitions: Mapping[str, Any]
    denied: Collection[str] = ()
    read: dict[str, Graph] = dataclasses.field(default_factory=dict)
    data_sizes: dict[Any, Any] = dataclasses.field(default_factory=dict)

    def __getitem__(self, name: str) -> Graph:
        if name not in self.read:
            if name not in self.definitions:
                raise UnsupportedError(f"function {name} is not in the graph's library")
            self.read[name] = from_function_def(self.definitions[name])
        return self.read[name]

    def gradient(self, name: str) -> str:
        """The name of the function that is the gradient of another, made when first asked for."""
        made = f"{name}/gradient"
        if made not in self.definitions and name in self.definitions:
            definition, called = tfp.gradient_function(
                self.definitions[name], list(self.definitions.values()), made
            )
            new = calls_as_ops(FunctionDefLibrary(function=[definition, *called])).function
            self.definitions = {f.signature.name: f for f in new} | dict(self.definitions)
        return made


class Translator:
    """Translates graphs into one computation of `builder`.

    `source` tells file and line of a node by its name, for errors and, with `mark_lines`, for metadata: it takes as
    long as to translate the node. `growth` says how much larger than at first bounds of lists whose length is not known
    are; 0: there are no such bounds. `is_inner`: what is translated may run many times, or not at all. `ranges`: the
    least and the greatest value of integers, `points`: vectors of indices into arrays of some dims, as checked.
    """

    def __init__(
        self,
        builder: ComputationBuilder,
        functions: Functions,
        source: Callable[[str], tuple[str, int]] | None = None,
        mark_lines: bool = False,
        growth: int = 0,
    ) -> None:
        self.builder = builder
        self.functions = functions
        self.source = source
        self.mark_lines = mark_lines
        self.growth = growth
        self.is_inner = False
        self.ranges: dict[Instruction, tuple[int, int]] = {}
        self.points: set[tuple[Instruction, tuple[int, ...]]] = set()
        self._known: dict[Instruction, np.ndarray | None] = {}
        self.current: tuple[Graph, dict[Tensor, Value]] = (
            Graph({}),
            {},
        )  # what is being translated, as far as it is

    def child(self, name: str) -> Translator:
        """A translator for a function that becomes a computation of its own (a loop's body, a branch)."""
        made = Translator(
            self.builder.create_sub_builder(name), self.functions, self.source, self.mark_lines, self.growth
        )
        made.is_inner = True
        return made

    def graph(self, graph: Graph, arguments: Sequence[Value]) -> list[Value]:
        """Translates all nodes of a graph; returns its results.

        Raises: UnsupportedError  a node cannot be translated; the message names it.
        """
        values: dict[Tensor, Value] = {
            Tensor(name, 0): value for name, value in zip(graph.arguments, arguments)
        }
        around, self.current = self.current, (graph, values)
        for node in graph.nodes.values():
            if node.op != "_Arg":
                outputs = self.node(node, [values[t] for t in node.inputs])
                for k, output in enumerate(outputs):
                    values[Tensor(node.name, k)] = output
        self.current = around
        return [values[t] for t in graph.results]

    def call(self, name: str, arguments: Sequence[Value]) -> list[Value]:
        """Translates a library function in place."""
        return self.graph(self.functions[name], arguments)

    def node(self, node: GraphNode, inputs: list[Value]) -> Sequence[Value]:
        """Translates one node; returns its outputs."""
        interrupts.check()
        translation = translations().get(node.op)
        if translation is None:
            if node.op in self.functions.definitions:
                return self.call(node.op, inputs)
            raise UnsupportedError(f"{node.op}: there is no translation of this op (node {node.name})")
        sized = [
            axes
            for v in inputs
            if isinstance(v, Operand) and v.instruction is not None and (axes := v.instruction.shape.dynamic)
        ]
        if sized and (translation.takes_sizes is None or any(tuple(axes) != (0,) for axes in sized)):
            raise UnsupportedError(f"{node.op}: the size of an input depends on data (node {node.name})")
        file, line = self.source(node.name) if self.source and self.mark_lines else ("", 0)
        around = self.builder.mark(Metadata(node.op, node.name, file, line))
        try:
            made = Node(self, node, inputs)
            check_operands(made)
            result = translation.function(made)
        except CompilerError as error:
            if "(node " in str(error):
                raise
            file, line = self.source(node.name) if self.source else ("", 0)
            place = f", {file}:{line}" if file else ""
            raise type(error)(f"{error} (node {node.name}, op {node.op}{place})") from error
        finally:
            self.builder.mark(around)
        if result is None:
            return ()
        return (result,) if isinstance(result, Value) else result

    # -- values known when compiling
    def constant_value(self, operand: Operand) -> np.ndarray | None:
        """The value of an operand if it depends on constants alone and is small."""
        return self._value(operand.instruction) if operand.instruction is not None else None

    def _value(self, instruction: Instruction) -> np.ndarray | None:
        known = self._known
        stack = [instruction]
        while stack:
            current = stack[-1]
            if current in known:
                stack.pop()
                continue
            if (
                current.opcode in ("parameter", "rng", "rng-bit-generator", "while")
                or current.has_side_effect
                or not _small(current.shape)
            ):
                known[current] = None
            elif missing := [o for o in current.operands if o not in known]:
                stack.extend(missing)
                continue
            else:
                operands = [known[o] for o in current.operands]
                if any(o is None for o in operands):
                    known[current] = _clamped(current, known)
                elif _is_cut(current, operands):
                    known[current] = None
                else:
                    with float_mode.of_runs():
                        known[current] = evaluate_instruction(current, operands)
            stack.pop()
        return known[instruction]


def _is_cut(instruction: Instruction, operands: Sequence[Any]) -> bool:
    """Whether an operand of a size that depends on data is smaller than its bound, which decides the result's dims."""
    return (
        instruction.opcode in ("reshape", "broadcast")
        and np.shape(operands[0]) != instruction.operands[0].shape.dims
    )


def _clamped(instruction: Instruction, known: Mapping[Instruction, np.ndarray | None]) -> np.ndarray | None:
    """The value of an integer that two limits leave no room: min(limit, max(no less, anything)), or the reverse."""
    inside = _REVERSE.get(instruction.opcode)
    if inside is None or not instruction.shape.element_type.is_integer:
        return None
    beyond = np.greater_equal if inside == "maximum" else np.less_equal
    for limit, clamped in (instruction.operands, instruction.operands[::-1]):
        value = known[limit]
        if value is not None and clamped.opcode == inside and limit.shape == instruction.shape:
            others = [known.get(o) for o in clamped.operands]
            if any(o is not None and beyond(o, value).all() for o in others):
                return value
    return None


_REVERSE = {"minimum": "maximum", "maximum": "minimum"}


def _small(shape: Shape) -> bool:
    return sum(s.elements for s in shape.leaves()) <= _FOLD_ELEMENTS


def _check_types(builder: ComputationBuilder, graph: Graph, outputs: Sequence[Operand]) -> None:
    """Raises: InternalError  a result has another type than TensorFlow gives it, whose buffer it would not fit."""
    for tensor, output in zip(graph.results, outputs):
        node, given = graph.nodes[tensor.node], builder.get_shape(output).element_type
        is_known = (
            node.op != "_Arg" and op_definition(node.op) is not None
        )  # a function may be called as an op
        wanted = None if not is_known else element_type(output_types(node)[tensor.index])
        if wanted not in (None, given):
            raise InternalError(
                f"{node.op}: output {tensor.index} is {given}, its type is {wanted} (node {node.name})"
            )


def translate(
    graph: Graph,
    functions: Functions,
    shapes: Sequence[Shape | None],
    constants: Mapping[int, np.ndarray],
    variables: Mapping[int, str],
    name: str = "cluster",
    source: Callable[[str], tuple[str, int]] | None = None,
    mark_lines: bool = False,
    growth: int = 0,
) -> tuple[Module, list[int]]:
    """The module of a graph for these argument shapes.

    constants: values of arguments by number; their parameters are not read. variables: names of the arguments that are
    variables; their parameter is the value that they have at the start (none where the shape is None: the graph writes
    the variable before it reads it). The module's results are the graph's, then the new values of the variables that it
    writes, first those without a shape; returned with it are the numbers of those arguments.
    `source`, `mark_lines` and `growth` as for Translator.
    Raises: UnsupportedError  a node that cannot be translated, by name.
    """
    builder = ComputationBuilder(name)
    builder.die_immediately_on_error = True
    translator = Translator(builder, functions, source, mark_lines, growth)
    arguments: list[Value] = []
    number = 0
    for k, shape in enumerate(shapes):
        value: Operand | None = None
        if shape is not None:
            value = builder.parameter(number, shape, f"arg{k}")
            number += 1
        if k in constants:
            value = builder.constant(constants[k])
        if k in variables:
            arguments.append(Variable(variables[k], value))
        elif value is None:
            raise UnsupportedError(f"argument {k} has no shape")
        else:
            arguments.append(value)
    results = translator.graph(graph, arguments)
    new = {k: a.value for k, a in enumerate(arguments) if isinstance(a, Variable) and a.written}
    written = sorted(new, key=lambda k: shapes[k] is not None)
    outputs = []
    for result in [*results, *(new[k] for k in written)]:
        if not isinstance(result, Operand):
            raise UnsupportedError(f"a {type(result).__name__} leaves the cluster")
        outputs.append(result)
    _check_types(builder, graph, outputs)
    return Module(name, builder.build(builder.tuple(outputs))), written
