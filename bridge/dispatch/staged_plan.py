"""How to call a concrete function that compiles in stages: data decides sizes that later code must know.

Each stage is a cluster. Its launch has the sizes that the stages before it found, in the dims and in the values of its
arguments. So code is compiled for symbolic sizes once, and runs without TensorFlow's executor.

    lengths -> [maximum] -> m        stage 0
    m, x    -> [mask of m columns, ...]        stage 1
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ...compiler.errors import UnsupportedError
from ..cluster.cluster import Cluster
from ..cluster.cluster_builder import build_cluster
from ..cluster.cluster_launch import prepare
from ..cluster.compute_ops import COPIED
from ..cluster.refusal import unsupported
from ..clustering.cluster_body import ClusterBody, cluster_body
from ..clustering.stages import stages_of
from ..graph import source_location
from ..graph.graph import Graph, Tensor, from_graph_def
from ..launch import fallback
from ..options.jit_options import JitOptions
from ..tf_internals.types import ConcreteFunction, GraphDef
from .call_plan import CallPlan, WholeFunction, packer, plan_of

_MAX_STAGES = 8


def staged_plan_of(concrete: ConcreteFunction, options: JitOptions) -> CallPlan:
    """The plan of a concrete function, of one stage or of several.

    Raises: UnsupportedError  part of it must run in TensorFlow.
    """
    whole = WholeFunction.read(concrete, options)
    stages = stages_of(whole.graph, whole.functions)
    if not any(stages.values()):
        return plan_of(concrete, options)
    if options.deny_ops and unsupported(whole.graph, whole.functions):
        return plan_of(concrete, options)  # which has the error
    return _plan(concrete, whole, stages, options)


@dataclasses.dataclass
class _Stage:
    """A cluster with what runs it. inputs: where its launch arguments lie among the values of a call; outputs: where
    its results go."""

    cluster: Cluster
    launch: Callable[[list[tf.Tensor]], list[tf.Tensor]]
    inputs: Sequence[int]
    outputs: Sequence[int]


def _plan(
    concrete: ConcreteFunction, whole: WholeFunction, stages: Mapping[str, int], options: JitOptions
) -> CallPlan:
    graph = whole.graph
    captured = list(concrete.captured_inputs)
    own = len(concrete.inputs) - len(captured)
    slots = {Tensor(name, 0): k for k, name in enumerate(graph.arguments)}
    parts = []
    for number in range(max(stages.values()) + 1):
        names = [n for n, s in stages.items() if s == number and _is_part(graph, n)]
        if names:
            parts.append(_stage(concrete, whole, names, number, options, slots))
    if not 1 < len(parts) <= _MAX_STAGES or any(t not in slots for t in graph.results):
        raise UnsupportedError(f"it would be compiled in {len(parts)} stages")
    pack = packer(concrete, len(graph.results))
    run = _runner(parts, own, captured, [slots[t] for t in graph.results], len(slots), pack)
    *earlier, last = (part.cluster for part in parts)
    return CallPlan(run, last, captured, (), False, pack, earlier=earlier)


def _is_part(graph: Graph, name: str) -> bool:
    return graph.nodes[name].op not in COPIED | {"_Arg"}


def _stage(
    concrete: ConcreteFunction,
    whole: WholeFunction,
    names: Sequence[str],
    number: int,
    options: JitOptions,
    slots: dict[Tensor, int],
) -> _Stage:
    """The stage of these nodes; its results get slots.

    Raises: UnsupportedError  it cannot be compiled, or gives another stage what is no array.
    """
    graph = whole.graph
    try:
        body = cluster_body(GraphDef(library=whole.library), graph, whole.functions, names, ())
    except ValueError as error:
        raise UnsupportedError(str(error)) from error
    content = {t: whole.content_types.get(slots.get(t, -1), 0) for t in body.content_types}
    cluster = build_cluster(
        f"{whole.definition.signature.name}.stage_{number}",
        from_graph_def(body.graph_def),
        whole.functions,
        fallback.of_graph(body.graph_def),
        options,
        source_location.finder(concrete.graph),
        {k: content[t] or body.content_types[t] for k, t in enumerate(body.arguments) if t in content},
    )
    if cluster.assigned or any(a.is_variable for a in cluster.arguments) and not cluster.takes_handles:
        raise UnsupportedError("a stage assigns variables")
    inputs = _places(cluster, body, slots)
    for tensor in body.results:
        slots[tensor] = len(slots)
    for argument, tensor in zip(cluster.arguments, body.arguments):
        argument.name = tensor.node  # for messages
    return _Stage(cluster, prepare(cluster), inputs, [slots[t] for t in body.results])


def _places(cluster: Cluster, body: ClusterBody, slots: Mapping[Tensor, int]) -> list[int]:
    tensors = list(body.arguments)
    return [slots[tensors[k]] for k in cluster.launch_arguments]


def _runner(
    stages: Sequence[_Stage],
    own: int,
    captured: Sequence[tf.Tensor],
    results: Sequence[int],
    count: int,
    pack: Callable[[list[Any]], Any] | None,
) -> Callable[[Sequence[tf.Tensor]], Any]:
    """A function that runs the stages one after the other. The values of a call are its arguments, what the function
    captured, and what the stages give."""
    pack = pack or operator.itemgetter(0)
    room = [None] * (count - own - len(captured))

    def run(args: Sequence[tf.Tensor]) -> Any:
        values: list[Any] = [*args[:own], *captured, *room]
        for stage in stages:
            for place, value in zip(stage.outputs, stage.launch([values[k] for k in stage.inputs])):
                values[place] = value
        return pack([values[k] for k in results])

    return run
