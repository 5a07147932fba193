"""The module of a cluster: the one way from TensorFlow nodes to the compiler, for calls, graphs and export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from ...compiler.errors import UnsupportedError
from ...compiler.ir.module import InputOutputAlias, Module
from ...compiler.ir.shape import Shape
from ...compiler.passes.lower_dynamic_boundary import lower_dynamic_boundary
from ..translate.translator import translate
from .cluster import Cluster


def build_module(
    cluster: Cluster,
    shapes: Sequence[Shape | None],
    constants: Mapping[int, np.ndarray],
    capacity_factor: int = 0,
    mark_lines: bool = False,
) -> Module:
    """The module of a cluster. Its parameters are the arguments with a shape; new values of variables follow results.

    shapes: of every argument; None: it has no parameter, as a variable without a value, or a constant. constants:
    values by argument number, also with symbols. capacity_factor: how much larger than at first the capacities of lists
    of unknown length are; 0: such lists are not compiled. mark_lines: instructions name lines of the program.
    Raises: UnsupportedError  a node that cannot be translated, or a result of which another dim than the first is known
        at run time only.
    """
    variables = {k: a.name for k, a in enumerate(cluster.arguments) if a.is_variable}
    module, written = translate(
        cluster.graph,
        cluster.functions,
        shapes,
        constants,
        variables,
        cluster.name,
        cluster.source,
        mark_lines,
        capacity_factor,
    )
    if written != cluster.written:
        raise UnsupportedError(
            f"cluster {cluster.name}: variables {written} are written, expected {cluster.written}"
        )
    module = _with_size_results(cluster, module)
    parameters = {k: n for n, k in enumerate(k for k, shape in enumerate(shapes) if shape is not None)}
    module.input_output_aliases = _aliases(cluster, parameters, module)
    module.invariant_parameters = invariant_parameters(cluster, parameters)
    return module


def _with_size_results(cluster: Cluster, module: Module) -> Module:
    """The module; where first dims of results are known at run time only, with these sizes as further results."""
    lowered = lower_dynamic_boundary(module)
    if lowered is None:
        return module
    outputs = len(cluster.result_types) - len(cluster.written)
    if lowered.argument_sizes or any(axis or leaf >= outputs for leaf, axis in lowered.result_sizes):
        raise UnsupportedError(
            "a result has an axis, not its first, of a size that is known at run time only"
        )
    lowered.module.sized_results = tuple(leaf for leaf, _ in lowered.result_sizes)
    return lowered.module


def _aliases(cluster: Cluster, parameters: Mapping[int, int], module: Module) -> tuple[InputOutputAlias, ...]:
    """New values of variables that may be written to the memory of the old ones, which have the same shape."""
    first, results = len(cluster.result_types) - len(cluster.written), list(module.entry.root.shape.leaves())
    return tuple(
        InputOutputAlias((first + n,), parameters[k])
        for n, k in enumerate(cluster.written)
        if k in parameters and results[first + n] == module.entry.parameters[parameters[k]].shape
    )


def invariant_parameters(cluster: Cluster, parameters: Mapping[int, int]) -> tuple[int, ...]:
    """The parameters of variables that the launch reads and does not change."""
    return tuple(
        number
        for k, number in parameters.items()
        if cluster.takes_handles and cluster.arguments[k].is_variable and k not in cluster.written
    )


def source_text(cluster: Cluster) -> str:
    """The cluster's nodes and the functions of their graph, as the text of a GraphDef."""
    graph_def = tf.compat.v1.GraphDef(node=[node.definition for node in cluster.graph.nodes.values()])
    graph_def.library.function.extend(cluster.functions.definitions.values())
    return str(graph_def)
