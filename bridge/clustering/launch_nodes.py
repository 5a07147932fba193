"""The nodes in the place of a cluster: reads of variables, the launch node, writes of variables, placeholders."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from ..cluster.cluster import Cluster
from ..cluster.cluster_launch import register
from ..cluster.compute_ops import COPIED
from ..cluster.variable_uses import RESOURCE, node_use
from ..graph.function_library import Functions
from ..graph.graph import Graph, GraphNode, Tensor, input_types, output_types
from ..launch import op as launch_op
from ..tf_internals.types import NodeDef
from .cluster_body import ClusterBody, variable_identity

_NEVER_WAITED_FOR = COPIED | {"_Arg", "Placeholder", "VarHandleOp"}


@dataclasses.dataclass
class Replacement:
    """The nodes in the place of a cluster.

    tensors: the new name of each tensor of the cluster that is read outside. ends: the nodes after which all of the
    cluster has run. waits: control inputs for the readers of a tensor, of the writes that came before it.
    """

    nodes: list[NodeDef]
    tensors: dict[Tensor, str]
    ends: list[str]
    waits: dict[Tensor, list[str]] = dataclasses.field(default_factory=dict)


def replacement(
    graph: Graph,
    functions: Functions,
    names: Sequence[str],
    cluster: Cluster,
    body: ClusterBody,
    preserved: Collection[str],
    fetched: Collection[str],
) -> Replacement:
    """The replacement for the nodes `names`. preserved: nodes whose names must stay; fetched: whose outputs, too."""
    before_uses, after_writes = _variable_orders(graph, dict.fromkeys(names), functions, list(body.arguments))
    nodes = _launch_nodes(cluster, names[0], body, graph.nodes[names[0]].device, before_uses)
    for tensor in body.results:
        nodes.waits[tensor] = [
            f"^{nodes.ends[1 + at]}"
            for at, k in enumerate(cluster.assigned)
            if tensor.node in after_writes[k]
        ]
    nodes.nodes.extend(
        _placeholder(graph.nodes[name], nodes, name in fetched) for name in names if name in preserved
    )
    return nodes


def _launch_nodes(
    cluster: Cluster,
    prefix: str,
    body: ClusterBody,
    device: str,
    before_uses: Sequence[Collection[str]],
) -> Replacement:
    """The launch, reads of variables that it does not read itself, and writes of variables that it does not update.

    before_uses: for every argument, the nodes that a read of that variable waits for besides `body.control`.
    """
    name = f"{prefix}/tfbridge"
    control = [f"^{c}" for c in body.control]
    handles = [f"{t.node}:{t.index}" for t in body.arguments]
    nodes, inputs = [], []
    for k in cluster.launch_arguments:
        argument = cluster.arguments[k]
        if argument.is_variable and not cluster.takes_handles:
            waits = dict.fromkeys([*control, *(f"^{r}" for r in sorted(before_uses[k]))])
            read = NodeDef(
                name=f"{name}/read_{k}", op="ReadVariableOp", device=device, input=[handles[k], *waits]
            )
            read.attr["dtype"].type = argument.data_type
            nodes.append(read)
            inputs.append(read.name)
        else:
            inputs.append(handles[k])
    register(cluster)
    launch = launch_op.node_def(
        f"{name}/launch",
        cluster.key,
        [*inputs, *control],
        *cluster.launch_types,
        cluster.launch_constants,
        device,
        cluster.launch_variables,
    )
    nodes.append(launch)
    ends = [launch.name]
    for number, k in enumerate(cluster.assigned, len(body.results)):
        write = NodeDef(
            name=f"{name}/write_{k}",
            op="AssignVariableOp",
            device=device,
            input=[handles[k], f"{launch.name}:{number}"],
        )
        write.attr["dtype"].type = cluster.arguments[k].data_type
        write.attr["validate_shape"].b = False
        nodes.append(write)
        ends.append(write.name)
    return Replacement(nodes, {t: f"{launch.name}:{k}" for k, t in enumerate(body.results)}, ends)


def _placeholder(node: GraphNode, nodes: Replacement, is_fetched: bool) -> NodeDef:
    """A node with the name of a clustered node that must stay: an identity if its outputs must stay, too."""
    ends = [f"^{end}" for end in nodes.ends]
    types = output_types(node) if is_fetched else []
    if not types:
        return NodeDef(name=node.name, op="NoOp", input=ends, device=node.device)
    tensors = [nodes.tensors[Tensor(node.name, k)] for k in range(len(types))]
    placeholder = NodeDef(
        name=node.name,
        op="Identity" if len(types) == 1 else "IdentityN",
        input=[*tensors, *ends],
        device=node.device,
    )
    if len(types) == 1:
        placeholder.attr["T"].type = types[0]
    else:
        placeholder.attr["T"].list.type.extend(types)
    return placeholder


def _variable_orders(
    graph: Graph, members: Collection[str], functions: Functions, arguments: Sequence[Tensor]
) -> tuple[list[set[str]], list[set[str]]]:
    """(nodes outside on whose results a use of a variable depends, nodes inside that depend on a write), by argument.

    Graph optimizers drop control edges that follow from others, so these paths may be all that orders two uses.
    """
    number = {variable_identity(graph, tensor): k for k, tensor in enumerate(arguments)}
    before: dict[str, set[str]] = {}  # by node inside: the nodes outside on which it depends
    written: dict[str, set[int]] = {}  # by node inside: the variables on whose writes it depends
    before_uses, after_writes = [set[str]() for _ in arguments], [set[str]() for _ in arguments]
    for name in members:
        node = graph.nodes[name]
        before[name], written[name] = set(), set()
        for other in dict.fromkeys([*(t.node for t in node.inputs), *node.control]):
            if other in members:
                before[name] |= before.get(other, set())
                written[name] |= written.get(other, set())
        for position, (tensor, data_type) in enumerate(zip(node.inputs, input_types(node), strict=True)):
            if data_type == RESOURCE and tensor.node not in members:
                k = number[variable_identity(graph, tensor)]
                before_uses[k] |= before[name]
                if node_use(node, position, functions)[1]:
                    written[name].add(k)
        for tensor in node.inputs:
            if tensor.node not in members and graph.nodes[tensor.node].op not in _NEVER_WAITED_FOR:
                before[name].add(tensor.node)
        for k in written[name]:
            after_writes[k].add(name)
    return before_uses, after_writes
