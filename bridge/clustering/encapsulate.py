"""Takes clusters out of a graph: each becomes one launch node, with reads of variables before and writes after it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from ...compiler.errors import CompilerError, UnsupportedError
from ..analysis.compile_time_constants import called_with
from ..api.options import DEFAULT_OPTIONS, JitOptions
from ..graph.graph import Graph, GraphNode, Tensor, from_graph_def, input_types, output_types
from ..launch import fallback
from ..launch import op as launch_op
from ..tf_internals.dtypes import element_type
from ..tf_internals.symbols import ANONYMOUS
from ..translate.translator import Functions
from .cluster import Cluster, attribute_content_type, content_type, from_function, node_use, strict_error
from .mark_for_compilation import COPIED, behind_constants

GraphDef = tf.compat.v1.GraphDef
NodeDef = tf.compat.v1.NodeDef


@dataclasses.dataclass
class _Outlined:
    """What replaces a cluster: the new nodes, and where its tensors and its control edges are found now."""

    nodes: list[Any]
    tensors: dict[Tensor, str]
    ends: list[str]  # nodes after which all of the cluster has happened
    waits: dict[Tensor, list[str]] = dataclasses.field(
        default_factory=dict
    )  # writes that came before a tensor


def outline(
    graph_def: Any,
    graph: Graph,
    functions: Functions,
    clusters: Sequence[Sequence[str]],
    options: JitOptions = DEFAULT_OPTIONS,
    preserved: Collection[str] = (),
    fetched: Collection[str] = (),
) -> tuple[Any, list[tuple[Cluster, Sequence[str]]], dict[str, str]]:
    """(the graph with a launch node in the place of every cluster, the clusters with the nodes that each replaces, why
    other nodes stayed).

    preserved: nodes whose names must stay. fetched: those of them whose outputs must stay, too.

    A cluster that turns out not to be one array function (a list crosses its edge, say), or whose like did not compile
    in another graph, is left in place.
    """
    reasons: dict[str, str] = {}
    inside: dict[str, int] = {}
    outlined: list[_Outlined | None] = []
    made: list[tuple[Cluster, Sequence[str]]] = []
    for number, names in enumerate(clusters):
        try:
            cluster, replaced = _cluster(graph_def, graph, functions, names, options, preserved, fetched)
        except (CompilerError, ValueError, TypeError) as error:
            outlined.append(None)
            reasons.update(dict.fromkeys(names, f"its cluster could not be taken out of the graph: {error}"))
            continue
        outlined.append(replaced)
        made.append((cluster, names))
        inside.update(dict.fromkeys(names, number))
    if not made:
        return graph_def, [], reasons
    result = GraphDef(versions=graph_def.versions, library=graph_def.library)
    for definition in graph_def.node:
        if definition.name not in inside:
            result.node.append(_reconnected(definition, inside, outlined))
    for one in outlined:
        if one is not None:
            result.node.extend(_reconnected(n, inside, outlined) for n in one.nodes)
    return _without_unused(result, graph_def, preserved), made, reasons


def _cluster(
    graph_def: Any,
    graph: Graph,
    functions: Functions,
    names: Sequence[str],
    options: JitOptions,
    preserved: Collection[str],
    fetched: Collection[str],
) -> tuple[Cluster, _Outlined]:
    members = dict.fromkeys(names)
    body = GraphDef(versions=graph_def.versions, library=graph_def.library)
    sources: dict[Tensor, str] = {}  # tensors from outside: the argument that stands for them
    same: dict[Any, Tensor] = {}
    variables: dict[Tensor, int] = {}  # among them, variables with their DataType
    control: dict[str, None] = {}
    copied: set[str] = set()
    for name in names:
        node = graph.nodes[name]
        inputs = []
        for position, (tensor, type_) in enumerate(zip(node.inputs, input_types(node), strict=True)):
            if tensor.node in members:
                inputs.append(f"{tensor.node}:{tensor.index}")
            elif graph.nodes[tensor.node].op in COPIED:
                inputs.append(tensor.node)
                copied.add(tensor.node)
            else:
                tensor = same.setdefault(_identity(graph, tensor), tensor)
                if tensor not in sources:
                    sources[tensor] = f"tfbridge_arg_{len(sources)}"
                    argument = body.node.add(name=sources[tensor], op="_Arg")
                    argument.attr["T"].type, argument.attr["index"].i = type_, len(sources) - 1
                if type_ == _RESOURCE:
                    variables.setdefault(tensor, 0)
                    content = _content_type(node, position, functions) or attribute_content_type(
                        graph.nodes[tensor.node]
                    )
                    if content:
                        variables[tensor] = content
                inputs.append(sources[tensor])
        for other in node.control:
            if other in members:
                inputs.append(f"^{other}")
        constants = [t.node for t in node.inputs if graph.nodes[t.node].op in COPIED]
        control.update(
            dict.fromkeys(n for n in behind_constants(graph, [*node.control, *constants]) if n not in members)
        )
        definition = NodeDef(name=name, op=node.op, input=inputs, device=node.device)
        for key, value in node.attrs.items():
            definition.attr[key].CopyFrom(value)
        body.node.append(definition)
    for name in sorted(copied):
        constant = body.node.add()
        constant.CopyFrom(graph.nodes[name].definition)
        del constant.input[:]
    results = _results(graph, members, fetched)
    for k, tensor in enumerate(results):
        end = body.node.add(
            name=f"tfbridge_result_{k}", op="_Retval", input=[f"{tensor.node}:{tensor.index}"]
        )
        end.attr["T"].type = output_types(graph.nodes[tensor.node])[tensor.index]
        end.attr["index"].i = k
    if any(element_type(r.attr["T"].type) is None for r in body.node if r.op == "_Retval"):
        raise ValueError("a value that is no array leaves the cluster")
    parsed = from_graph_def(body)
    prefix = names[0].replace("/", "_")
    order = list(sources)
    cluster = from_function(
        f"{prefix}.{len(names)}",
        parsed,
        functions,
        fallback.of_graph(body),
        options,
        None,
        {order.index(t): c for t, c in variables.items()},
    )
    if cluster.earlier_failure and not cluster.is_strict:
        raise UnsupportedError(cluster.earlier_failure)
    for argument, tensor in zip(cluster.arguments, order):
        argument.name = tensor.node  # for messages
    reads, writes = _orders(graph, members, functions, order)
    outlined = _launch_nodes(
        cluster, names[0], order, results, list(control), graph.nodes[names[0]].device, reads
    )
    for tensor in results:
        outlined.waits[tensor] = [
            f"^{outlined.ends[1 + at]}" for at, k in enumerate(cluster.assigned) if tensor.node in writes[k]
        ]
    outlined.nodes.extend(
        _stand_in(graph.nodes[name], outlined, name in fetched) for name in names if name in preserved
    )
    return cluster, outlined


def _stand_in(node: GraphNode, outlined: _Outlined, is_fetched: bool) -> Any:
    """A node of the name and, where fetched, outputs of one that must be found in the graph, though it is inside a
    cluster now."""
    ends = [f"^{end}" for end in outlined.ends]
    types = output_types(node) if is_fetched else []
    if not types:
        return NodeDef(name=node.name, op="NoOp", input=ends, device=node.device)
    tensors = [outlined.tensors[Tensor(node.name, k)] for k in range(len(types))]
    made = NodeDef(
        name=node.name,
        op="Identity" if len(types) == 1 else "IdentityN",
        input=[*tensors, *ends],
        device=node.device,
    )
    if len(types) == 1:
        made.attr["T"].type = types[0]
    else:
        made.attr["T"].list.type.extend(types)
    return made


_RESOURCE = int(tf.resource.as_datatype_enum)


def _identity(graph: Graph, tensor: Tensor) -> Any:
    """Equal for tensors that are the same variable."""
    node = graph.nodes[tensor.node]
    if node.op != "VarHandleOp":
        return tensor
    container, shared = (node.attrs[a].s if a in node.attrs else b"" for a in ("container", "shared_name"))
    return (container, shared or node.name.encode(), node.device) if shared != ANONYMOUS.encode() else tensor


def _content_type(node: GraphNode, position: int, functions: Functions) -> int:
    """DataType of the variable that a node reads or writes by an input, where attributes tell."""
    for name, shift in called_with(node, functions):
        if position >= shift:
            found = content_type(functions[name], functions, functions[name].arguments[position - shift])
            if found:
                return found
    return attribute_content_type(node)


def _orders(
    graph: Graph, members: Collection[str], functions: Functions, order: Sequence[Tensor]
) -> tuple[list[set[str]], list[set[str]]]:
    """For every tensor from outside: the nodes outside that came before it was used as a variable, by way of nodes
    inside; and the nodes inside that came after it was written.

    Graph optimizers drop control edges that follow from others, so such ways may be all that orders two uses.
    """
    number = {_identity(graph, tensor): k for k, tensor in enumerate(order)}
    before: dict[str, set[str]] = {}
    after: dict[str, set[int]] = {}
    reads, writes = [set[str]() for _ in order], [set[str]() for _ in order]
    for name in members:
        node = graph.nodes[name]
        before[name], after[name] = set(), set()
        for other in dict.fromkeys([*(t.node for t in node.inputs), *node.control]):
            if other in members:
                before[name] |= before.get(other, set())
                after[name] |= after.get(other, set())
        for position, (tensor, type_) in enumerate(zip(node.inputs, input_types(node), strict=True)):
            if type_ == _RESOURCE and tensor.node not in members:
                k = number[_identity(graph, tensor)]
                reads[k] |= before[name]
                if node_use(node, position, functions)[1]:
                    after[name].add(k)
        for tensor in node.inputs:
            if tensor.node not in members and graph.nodes[tensor.node].op not in _NEVER_WAITED_FOR:
                before[name].add(tensor.node)
        for k in after[name]:
            writes[k].add(name)
    return reads, writes


_NEVER_WAITED_FOR = COPIED | {"_Arg", "Placeholder", "VarHandleOp"}


def _results(graph: Graph, members: Collection[str], fetched: Collection[str]) -> list[Tensor]:
    """Tensors of the cluster that are read outside of it, or must be found in the graph."""
    found: dict[Tensor, None] = {
        Tensor(n, k): None for n in members if n in fetched for k in range(len(output_types(graph.nodes[n])))
    }
    for node in graph.nodes.values():
        if node.name not in members:
            found.update(dict.fromkeys(t for t in node.inputs if t.node in members))
    found.update(dict.fromkeys(t for t in graph.results if t.node in members))
    return list(found)


def _launch_nodes(
    cluster: Cluster,
    prefix: str,
    order: Sequence[Tensor],
    results: Sequence[Tensor],
    control: Sequence[str],
    device: str,
    reads: Sequence[Collection[str]],
) -> _Outlined:
    """Reads of the variables where the launch does not read them itself, the launch, and writes of the variables that
    it does not update itself.

    reads: for every argument, the nodes that the read of that variable waits for besides those of `control`.
    """
    name = f"{prefix}/tfbridge"
    waits = [f"^{c}" for c in control]
    nodes, inputs = [], []
    for k in cluster.launch_arguments:
        argument, tensor = cluster.arguments[k], order[k]
        text = f"{tensor.node}:{tensor.index}"
        if argument.is_variable and not cluster.takes_handles:
            read = NodeDef(
                name=f"{name}/read_{k}",
                op="ReadVariableOp",
                device=device,
                input=[text, *dict.fromkeys([*waits, *(f"^{r}" for r in sorted(reads[k]))])],
            )
            read.attr["dtype"].type = argument.data_type
            nodes.append(read)
            text = read.name
        inputs.append(text)
    cluster.register()
    launch = launch_op.node_def(
        f"{name}/launch",
        cluster.key,
        [*inputs, *waits],
        *cluster.launch_types,
        cluster.launch_constants,
        device,
        cluster.launch_variables,
    )
    nodes.append(launch)
    ends = [launch.name]
    for at, k in enumerate(cluster.assigned):
        tensor = order[k]
        write = NodeDef(
            name=f"{name}/write_{k}",
            op="AssignVariableOp",
            device=device,
            input=[f"{tensor.node}:{tensor.index}", f"{launch.name}:{len(results) + at}"],
        )
        write.attr["dtype"].type = cluster.arguments[k].data_type
        write.attr["validate_shape"].b = False
        nodes.append(write)
        ends.append(write.name)
    return _Outlined(nodes, {t: f"{launch.name}:{k}" for k, t in enumerate(results)}, ends)


def _reconnected(definition: Any, inside: dict[str, int], outlined: Sequence[_Outlined | None]) -> Any:
    """A node whose inputs come from the launches where they came from clusters."""
    if not any(_node_of(i) in inside for i in definition.input):
        return definition
    changed = NodeDef()
    changed.CopyFrom(definition)
    inputs: dict[str, None] = {}
    data, control = [], inputs
    for text in definition.input:
        name = _node_of(text)
        if name not in inside:
            (control.setdefault(text) if text.startswith("^") else data.append(text))
            continue
        one = outlined[inside[name]]
        assert one is not None
        if text.startswith("^"):
            control.update(dict.fromkeys(f"^{end}" for end in one.ends))
        else:
            _, _, index = text.partition(":")
            tensor = Tensor(name, int(index or 0))
            data.append(one.tensors[tensor])
            control.update(dict.fromkeys(one.waits.get(tensor, ())))
    changed.input[:] = [*data, *control]
    return changed


def refuse_to_run(graph_def: Any, reason: str, preserved: Collection[str]) -> None:
    """Has every run of a graph end, before its results are there, with a strict function's error."""
    key = f"strict#{next(_refusals)}"
    launch_op.register_cluster(key, lambda *_: None, functools.partial(_raise, reason))
    device = next((node.device for node in graph_def.node if "CPU" in node.device.upper()), "")
    refusal = launch_op.node_def("tfbridge/strict", key, [], [], [], device=device)
    nodes = {node.name: node for node in graph_def.node}
    graph_def.node.append(refusal)
    for name in sorted(nodes.keys() & set(preserved)):
        node = nodes[name]
        if node.op in ("_Retval", "_DeviceRetval"):  # of their inputs only the first counts
            last = graph_def.node.add(
                name=f"tfbridge/strict/{name}",
                op="Identity",
                device=node.device,
                input=[node.input[0], f"^{refusal.name}"],
            )
            last.attr["T"].type = node.attr["T"].type
            node.input[0] = last.name
        elif node.input:
            node.input.append(f"^{refusal.name}")


_refusals = itertools.count()


def _raise(reason: str, values: Sequence[Any]) -> Any:
    raise strict_error(reason)


def _node_of(text: str) -> str:
    return text.lstrip("^").partition(":")[0]


def _without_unused(graph_def: Any, before: Any, preserved: Collection[str]) -> Any:
    """The graph without constants that only clusters read, whose copies lie inside them."""
    read = {_node_of(i) for node in graph_def.node for i in node.input}
    was_read = {_node_of(i) for node in before.node for i in node.input}
    kept = [
        n
        for n in graph_def.node
        if n.op not in COPIED or n.name in read or n.name in preserved or n.name not in was_read
    ]
    result = GraphDef(versions=graph_def.versions, library=graph_def.library)
    result.node.extend(kept)
    return result
