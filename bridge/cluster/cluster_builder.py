"""Builds the cluster of a graph: which arguments are variables, which are written, which are compile-time constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...compiler.errors import UnsupportedError
from ..analysis.compile_time_constants import constant_arguments
from ..graph.function_library import Functions, nodes_of_functions
from ..graph.graph import Graph, output_types
from ..launch.fallback import Original
from ..options.jit_options import DEFAULT_OPTIONS, JitOptions
from ..options.marks import is_strict
from ..tf_internals.dtypes import element_type
from .cluster import Argument, Cluster
from .refusal import unsupported
from .variable_uses import RESOURCE, attribute_content_type, content_type, first_uses


def build_cluster(
    name: str,
    graph: Graph,
    functions: Functions,
    original: Original,
    options: JitOptions = DEFAULT_OPTIONS,
    source: Callable[[str], tuple[str, int]] | None = None,
    content_types: Mapping[int, int] | None = None,
) -> Cluster:
    """The cluster of a whole graph. `content_types`: DataType of the variables among the arguments, by number.

    Raises: UnsupportedError  an op has no translation: all such ops, with the reasons, are in the message.
    """
    problems = unsupported(graph, functions)
    if problems:
        raise UnsupportedError("\n".join(f"{node.name} ({node.op}): {reason}" for node, reason in problems))
    arguments, written = _arguments(graph, functions, content_types or {})
    result_types = _result_types(graph)
    if any(element_type(t) is None for t in result_types):
        raise UnsupportedError("a result of the function is no array (a string, resource or variant)")
    return Cluster(
        name,
        graph,
        functions,
        arguments,
        constant_arguments(graph, functions),
        result_types + [arguments[k].data_type for k in written],
        written,
        original,
        options,
        source,
        is_strict=any(
            is_strict(node.definition.attr)
            for node in (*graph.nodes.values(), *nodes_of_functions(graph, functions))
        ),
    )


def _arguments(
    graph: Graph, functions: Functions, content_types: Mapping[int, int]
) -> tuple[list[Argument], list[int]]:
    """(the arguments, the numbers of the variables that are written: first those that are not read before)."""
    arguments, written = [], []
    uses = first_uses(graph, functions)
    for k, name in enumerate(graph.arguments):
        data_type = graph.nodes[name].attrs["T"].type
        if data_type != RESOURCE:
            arguments.append(Argument(name, data_type))
            continue
        is_read, is_written = uses[name]
        content = (
            content_types.get(k, 0)
            or content_type(graph, functions, name)
            or attribute_content_type(graph.nodes[name])
        )
        if not content:
            raise UnsupportedError(f"argument {k} is a resource that is no variable")
        arguments.append(Argument(name, content, True, is_read))
        if is_written:
            written.append(k)
    return arguments, sorted(written, key=lambda k: arguments[k].is_read)


def _result_types(graph: Graph) -> list[int]:
    types = []
    for tensor in graph.results:
        node = graph.nodes[tensor.node]
        types.append(node.attrs["T"].type if node.op == "_Arg" else output_types(node)[tensor.index])
    return types
