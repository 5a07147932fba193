"""Translates a graph into a module, for concrete shapes of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...compiler.builder.computation_builder import ComputationBuilder, Operand
from ...compiler.errors import CompilerError, InternalError, UnsupportedError
from ...compiler.ir.module import Metadata, Module
from ...compiler.ir.shape import Shape
from ...runtime.threads import interrupts
from ..graph.function_library import Functions
from ..graph.graph import Graph, GraphNode, Tensor, op_definition, output_types
from ..tf_internals.dtypes import element_type
from .context import TranslationContext
from .node import Node
from .operand_shapes import check_operands
from .registry import translations
from .values import Value, Variable


def translate_graph(context: TranslationContext, graph: Graph, arguments: Sequence[Value]) -> list[Value]:
    """Translates all nodes of a graph; returns its results.

    Raises: UnsupportedError  a node cannot be translated; the message names it.
    """
    values: dict[Tensor, Value] = {Tensor(name, 0): value for name, value in zip(graph.arguments, arguments)}
    outer = context.graph, context.values
    context.graph, context.values = graph, values
    for node in graph.nodes.values():
        if node.op != "_Arg":
            outputs = translate_node(context, node, [values[t] for t in node.inputs])
            for k, output in enumerate(outputs):
                values[Tensor(node.name, k)] = output
    context.graph, context.values = outer
    return [values[t] for t in graph.results]


def translate_call(context: TranslationContext, name: str, arguments: Sequence[Value]) -> list[Value]:
    """Translates a library function in place."""
    return translate_graph(context, context.functions[name], arguments)


def translate_node(context: TranslationContext, node: GraphNode, inputs: list[Value]) -> Sequence[Value]:
    """Translates one node; returns its outputs."""
    interrupts.check()
    translation = translations().get(node.op)
    if translation is None:
        if node.op in context.functions.definitions:
            return translate_call(context, node.op, inputs)
        raise UnsupportedError(f"{node.op}: there is no translation of this op (node {node.name})")
    _check_dynamic_dims(node, inputs, translation.takes_sizes is not None)
    file, line = context.source(node.name) if context.source and context.mark_lines else ("", 0)
    outer_mark = context.builder.mark(Metadata(node.op, node.name, file, line))
    try:
        wrapped = Node(context, node, inputs)
        check_operands(wrapped)
        result = translation.function(wrapped)
    except CompilerError as error:
        if "(node " in str(error):
            raise
        file, line = context.source(node.name) if context.source else ("", 0)
        location = f", {file}:{line}" if file else ""
        raise type(error)(f"{error} (node {node.name}, op {node.op}{location})") from error
    finally:
        context.builder.mark(outer_mark)
    if result is None:
        return ()
    return (result,) if isinstance(result, Value) else result


def _check_dynamic_dims(node: GraphNode, inputs: Sequence[Value], takes_dynamic: bool) -> None:
    """Raises: UnsupportedError  an input has a dynamic dim for which there is no translation."""
    for value in inputs:
        if not isinstance(value, Operand) or value.instruction is None:
            continue
        axes = tuple(value.instruction.shape.dynamic)
        if axes and (not takes_dynamic or axes != (0,)):
            raise UnsupportedError(f"{node.op}: the size of an input depends on data (node {node.name})")


def _check_types(builder: ComputationBuilder, graph: Graph, outputs: Sequence[Operand]) -> None:
    """Raises: InternalError  a result has another type than TensorFlow gives it, whose buffer it would not fit."""
    for tensor, output in zip(graph.results, outputs):
        node, actual = graph.nodes[tensor.node], builder.get_shape(output).element_type
        is_known = (
            node.op != "_Arg" and op_definition(node.op) is not None
        )  # a function may be called as an op
        expected = None if not is_known else element_type(output_types(node)[tensor.index])
        if expected not in (None, actual):
            raise InternalError(
                f"{node.op}: output {tensor.index} is {actual}, its type is {expected} (node {node.name})"
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
    capacity_factor: int = 0,
) -> tuple[Module, list[int]]:
    """The module of a graph for these argument shapes.

    constants: values of arguments by number, also with symbols; their parameters are not read. variables: names of the
    arguments that are variables; their parameter is the value that they have at the start (none where the shape is
    None: the graph writes the variable before it reads it). The module's results are the graph's, then the new values
    of the variables that it writes, first those without a shape; returned with it are the numbers of those arguments.
    `source`, `mark_lines` and `capacity_factor` as for TranslationContext.
    Raises: UnsupportedError  a node that cannot be translated, by name.
    """
    builder = ComputationBuilder(name)
    builder.die_immediately_on_error = True
    context = TranslationContext(builder, functions, source, mark_lines, capacity_factor)
    arguments: list[Value] = []
    number = 0
    for k, shape in enumerate(shapes):
        value: Operand | None = None
        if shape is not None:
            value = builder.parameter(number, shape, f"arg{k}")
            number += 1
        if k in constants:
            value = builder.constant(constants[k], None if shape is None else shape.element_type)
        if k in variables:
            arguments.append(Variable(variables[k], value))
        elif value is None:
            raise UnsupportedError(f"argument {k} has no shape")
        else:
            arguments.append(value)
    results = translate_graph(context, graph, arguments)
    new = {k: a.value for k, a in enumerate(arguments) if isinstance(a, Variable) and a.written}
    written = sorted(new, key=lambda k: shapes[k] is not None)
    outputs = []
    for result in [*results, *(new[k] for k in written)]:
        if not isinstance(result, Operand):
            raise UnsupportedError(f"a {type(result).__name__} leaves the cluster")
        outputs.append(result)
    _check_types(builder, graph, outputs)
    return Module(name, builder.build(builder.tuple(outputs))), written
