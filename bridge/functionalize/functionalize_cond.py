"""Rebuilds functional If and Case from Switch nodes, the nodes that are alive in one branch only, and Merge nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import tensorflow as tf

from ...compiler.progress import Progress
from ..graph.graph import DATAFLOW, GraphNode, Tensor
from .dataflow_graph import (
    SWITCHES,
    Dataflow,
    NotUnderstoodError,
    function_attribute,
    has_effect,
    type_of,
    types_attribute,
)

Alive = frozenset[tuple[Tensor, int]]  # (selector, branch): all must hold for a node to be alive
_ALWAYS: Alive = frozenset()


@dataclasses.dataclass
class _Branches:
    """One cond or case: its selector, when it is reached, and its merges with their inputs in the branches' order."""

    selector: Tensor
    alive: Alive
    level: int
    merges: dict[str, list[Tensor]] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """The node that is to stand for it."""
        return f"{min(self.merges)}/tfbridge_if"

    @property
    def count(self) -> int:
        """The number of branches."""
        return len(next(iter(self.merges.values())))


def rebuild_branches(flow: Dataflow, members: set[str], exits: Mapping[str, list[str]]) -> None:
    """Replaces what can be replaced among the nodes of one frame; `members` is changed with them.

    exits: for the Exit nodes of loops in the frame that stayed, the nodes from which those loops are entered.
    """
    failed: set[str] = set()
    progress = Progress("branches", len(members) + 1)
    while any(flow.nodes[n].op == "Merge" for n in members):
        progress.step()
        nodes = flow.view(members)
        for name, sources in exits.items():
            if name in nodes:
                nodes[name].control = [*nodes[name].control, *(flow.current_node(s) for s in sources)]
        analysis = _Analysis(nodes)
        found = [g for g in analysis.groups() if g.name not in failed]
        depth = max((len(g.alive) for g in found), default=0)
        for group in sorted((g for g in found if len(g.alive) == depth), key=lambda g: g.level):
            try:
                _rebuild(flow, members, analysis, group)
            except NotUnderstoodError as error:
                flow.reasons.update(dict.fromkeys(group.merges, str(error)))
                failed.add(group.name)
        if not found:
            return


class _Analysis:
    """When each node of a frame is alive."""

    def __init__(self, nodes: Mapping[str, GraphNode]) -> None:
        self.nodes = nodes
        self.alive: dict[str, Alive] = {}
        self.merges: dict[str, tuple[Tensor, list[Tensor]]] = {}
        for node in nodes.values():
            self.alive[node.name] = self._node(node)

    def tensor(self, tensor: Tensor) -> Alive:
        """When a tensor is alive. That an iteration of the loop runs is no condition."""
        alive = self.alive.get(tensor.node, _ALWAYS)
        node = self.nodes.get(tensor.node)
        if node is None or node.op not in SWITCHES or self._is_loop_switch(node):
            return alive
        return alive | {(self.selector(node), tensor.index)}

    def selector(self, switch: GraphNode) -> Tensor:
        """What a Switch decides by, behind identities."""
        return self._with_identities(switch)[-1].inputs[-1]

    def controls(self, switch: str) -> set[str]:
        """What runs before a Switch, and before what it decides by."""
        return {name for node in self._with_identities(self.nodes[switch]) for name in node.control}

    def _with_identities(self, switch: GraphNode) -> list[GraphNode]:
        """A Switch and the identities behind its last input, one after the other."""
        nodes = [switch]
        while (source := self.nodes.get(nodes[-1].inputs[-1].node)) is not None and source.op == "Identity":
            nodes.append(source)
        return nodes

    def _is_loop_switch(self, node: GraphNode) -> bool:
        source = self.nodes.get(node.inputs[1].node)
        return source is not None and source.op == "LoopCond"

    def _node(self, node: GraphNode) -> Alive:
        if node.op == "Enter":
            return _ALWAYS
        if node.op == "Merge":
            return self._merge(node)
        alive = frozenset().union(*map(self.tensor, node.inputs))
        return alive.union(*(self.alive.get(c, _ALWAYS) for c in node.control))

    def _merge(self, node: GraphNode) -> Alive:
        if any(t.node not in self.nodes or self.nodes[t.node].op == "NextIteration" for t in node.inputs):
            return _ALWAYS
        each = [self.tensor(t) for t in node.inputs]
        selectors = []
        for selector in {s for s, _ in each[0]}:
            taken = [[b for s, b in alive if s == selector] for alive in each]
            if sorted(taken) == [[b] for b in range(len(each))]:
                selectors.append((selector, [b for [b] in taken]))
        if len(selectors) != 1:
            return frozenset({(Tensor(node.name, -1), 0)})
        selector, order = selectors[0]
        by_branch = [tensor for _, tensor in sorted(zip(order, node.inputs))]
        self.merges[node.name] = (selector, by_branch)
        return frozenset((s, b) for alive in each for s, b in alive if s != selector)

    def levels(self, selector: Tensor, alive: Alive) -> dict[str, int]:
        """For every node how many merges of this selector lie before it, one after the other."""
        own = {n for n, (s, _) in self.merges.items() if s == selector and self.alive[n] == alive}
        levels: dict[str, int] = {}
        for node in self.nodes.values():
            levels[node.name] = max(
                (
                    levels[n] + (n in own)
                    for n in [*(t.node for t in node.inputs), *node.control]
                    if n in levels
                ),
                default=0,
            )
        return levels

    def after(self, names: Collection[str]) -> set[str]:
        """The nodes that depend on these: a second cond on the same selector may read what is inside the first one."""
        found: set[str] = set()
        for node in self.nodes.values():
            if any(n in found or n in names for n in [*(t.node for t in node.inputs), *node.control]):
                found.add(node.name)
        return found

    def before(self, names: Collection[str]) -> set[str]:
        """The nodes on which these depend: what such a node shares with a later cond on the same selector is pure."""
        found: set[str] = set()
        stack = list(names)
        while stack:
            node = self.nodes.get(stack.pop())
            needed = [*(t.node for t in node.inputs), *node.control] if node is not None else []
            stack += [n for n in needed if n not in found]
            found.update(needed)
        return found

    def groups(self) -> list[_Branches]:
        """The conds and cases: merges of one selector, reached alike, none before another."""
        found: dict[tuple[Tensor, Alive, int], _Branches] = {}
        levels: dict[tuple[Tensor, Alive], dict[str, int]] = {}
        for name, (selector, inputs) in self.merges.items():
            alive = self.alive[name]
            if (selector, alive) not in levels:
                levels[selector, alive] = self.levels(selector, alive)
            level = levels[selector, alive][name]
            found.setdefault((selector, alive, level), _Branches(selector, alive, level)).merges[name] = (
                inputs
            )
        return list(found.values())


def _rebuild(flow: Dataflow, members: set[str], analysis: _Analysis, group: _Branches) -> None:
    name = group.name
    if name in flow.excluded:
        raise NotUnderstoodError(flow.excluded[name])
    bodies = _bodies(analysis, group)
    if any(has_effect(node) and node.name not in flow.nodes for body in bodies for node in body.values()):
        raise NotUnderstoodError("an effect in one of its branches is shared with another one")
    switched = {
        Tensor(n.name, k): n.inputs[0]
        for n in analysis.nodes.values()
        if n.op in SWITCHES
        and not analysis.alive[n.name] - group.alive
        and analysis.selector(n) == group.selector
        for k in range(group.count)
    }
    read = {t for node in flow.nodes.values() for t in node.inputs}
    indexed = [m for m in sorted(group.merges) if Tensor(m, 1) in read or m in flow.preserved]
    merges = [m for m in sorted(group.merges) if Tensor(m, 0) in read or m in indexed]
    arguments: dict[Tensor, int] = {}  # tensors outside by number; their switched forms too
    outer: list[Tensor] = []
    for branch, body in enumerate(bodies):
        for tensor in [t for node in body.values() for t in node.inputs] + [
            group.merges[m][branch] for m in merges
        ]:
            if tensor.node in body or tensor in arguments:
                continue
            source = flow.current(switched.get(tensor, tensor))
            if source not in outer:
                outer.append(source)
            arguments[tensor] = outer.index(source)
    types = [type_of(flow.nodes[t.node], t.index) for t in outer]
    result_types = [int(flow.nodes[m].attrs["T"].type) for m in merges]
    result_types += [tf.int32.as_datatype_enum] * len(indexed)
    functions, control = [], set[str]()
    for branch, body in enumerate(bodies):
        numbers = [_number_taken(analysis.nodes[m], group.merges[m][branch]) for m in indexed]
        results = [group.merges[m][branch] for m in merges] + [Tensor(n.name, 0) for n in numbers]
        whole = {**body, **{n.name: n for n in numbers}}
        function, outside = flow.function(f"{name}_{branch}", whole, arguments, types, results, result_types)
        functions.append(function)
        switches = {n for n in (*outside, *(t.node for t in arguments)) if _is_switch(analysis, n, switched)}
        control |= {n for n in outside if n not in switches}.union(*map(analysis.controls, switches))
    inside = {n for body in bodies for n in body}
    control |= {c for m in group.merges for c in analysis.nodes[m].control if c not in inside}
    attributes = {"Tin": types_attribute(types), "Tout": types_attribute(result_types)}
    selector = flow.current(group.selector)
    selector_type = type_of(flow.nodes[selector.node], selector.index)
    if selector_type == tf.bool.as_datatype_enum:
        attributes |= {
            "Tcond": tf.compat.v1.AttrValue(type=selector_type),
            "then_branch": function_attribute(functions[1]),
            "else_branch": function_attribute(functions[0]),
        }
    else:
        attributes["branches"] = tf.compat.v1.AttrValue()
        for function in functions:
            attributes["branches"].list.func.add(name=function)
    made = flow.insert(
        name,
        "If" if selector_type == tf.bool.as_datatype_enum else "Case",
        [selector, *outer],
        [flow.current_node(c) for c in sorted(control)],
        flow.nodes[min(group.merges)].device,
        attributes,
        [node for body in bodies for node in body.values()],
    )
    try:
        _remove(flow, group, bodies, name)
    except NotUnderstoodError:
        del flow.nodes[name]
        raise
    for merge in group.merges:
        flow.replace(
            merge,
            Tensor(name, merges.index(merge)) if merge in merges else None,
            name,
            Tensor(name, len(merges) + indexed.index(merge)) if merge in indexed else None,
        )
    members.add(made.name)
    members.intersection_update(flow.nodes)
    _drop_unread_switches(flow, members, {t.node for t in switched})


def _number_taken(merge: GraphNode, tensor: Tensor) -> GraphNode:
    """A constant: the number of this input of a Merge, which is its second output where the input is alive."""
    definition = tf.compat.v1.NodeDef(name=f"{merge.name}/tfbridge_index", op="Const")
    definition.attr["dtype"].type = tf.int32.as_datatype_enum
    definition.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(merge.inputs.index(tensor), tf.int32))
    return GraphNode(definition.name, "Const", [], [], definition)


def _is_switch(analysis: _Analysis, name: str, switched: Mapping[Tensor, Tensor]) -> bool:
    return name in analysis.nodes and Tensor(name, 0) in switched


def _bodies(analysis: _Analysis, group: _Branches) -> list[dict[str, GraphNode]]:
    """The nodes of each branch: those from which its merges are made, and what else reads these.

    Raises: NotUnderstoodError  part of a branch stays in dataflow form.
    """
    bodies = []
    later = analysis.after(group.merges)
    others = {
        n
        for n, (selector, _) in analysis.merges.items()
        if selector == group.selector
        and analysis.alive[n] == group.alive
        and n not in group.merges
        and n not in later
    }
    earlier = analysis.before(others)
    control = [c for m in group.merges for c in analysis.nodes[m].control]
    for branch in range(group.count):
        inside = (group.selector, branch)
        candidates = {n for n, alive in analysis.alive.items() if inside in alive and n not in later}
        found: set[str] = set()
        stack = [*(inputs[branch].node for inputs in group.merges.values()), *control]
        while stack:
            while stack:
                name = stack.pop()
                if name in candidates and name not in found:
                    found.add(name)
                    node = analysis.nodes[name]
                    stack += [*(t.node for t in node.inputs), *node.control]
            stack = [
                n
                for n in candidates - found - earlier
                if any(t.node in found for t in analysis.nodes[n].inputs) and n not in group.merges
            ]
        for name in found:
            node, alive = analysis.nodes[name], analysis.alive[name]
            if (
                node.op in DATAFLOW
                or not alive <= group.alive | {inside}
                or has_effect(node)
                and alive != group.alive | {inside}
            ):
                raise NotUnderstoodError(f"{name} ({node.op}) in one of its branches could not be rebuilt")
        bodies.append({n: node for n, node in analysis.nodes.items() if n in found})
    return bodies


def _remove(flow: Dataflow, group: _Branches, bodies: list[dict[str, GraphNode]], name: str) -> None:
    """Takes the branches' nodes out, except those that others read too.

    Raises: NotUnderstoodError  such a node has an effect.
    """
    inside = {n for body in bodies for n in body}
    outside = [n for n in flow.nodes if n not in inside and n not in group.merges and n != name]
    shared: set[str] = set()
    stack = [t.node for n in outside for t in flow.inputs(flow.nodes[n])]
    while stack:
        found = stack.pop()
        if found in inside and found in flow.nodes and found not in shared:
            shared.add(found)
            stack += [*(t.node for t in flow.inputs(flow.nodes[found])), *flow.controls(flow.nodes[found])]
    if any(has_effect(flow.nodes[n]) for n in shared):
        raise NotUnderstoodError("an effect in one of its branches is shared with another one")
    for member in inside - shared:
        if member in flow.nodes:
            flow.replace(member, None, name)


def _drop_unread_switches(flow: Dataflow, members: set[str], names: Collection[str]) -> None:
    """Takes out the Switch nodes whose branches are all rebuilt, with copies of their outputs that nothing reads."""
    copies = [
        n for n in members if flow.nodes[n].op == "Identity" and flow.inputs(flow.nodes[n])[0].node in names
    ]
    for unread in (copies, names):
        used = {flow.current(t).node for node in flow.nodes.values() for t in node.inputs} | {
            c for node in flow.nodes.values() for c in flow.controls(node)
        }
        for name in unread:
            if name in flow.nodes and name not in used and name not in flow.preserved:
                del flow.nodes[name]
                members.discard(name)
