"""Rebuilds functional If and Case from Switch nodes, the nodes that are alive in one branch only, and Merge nodes.

Before:  x -> Switch(p) -> A (branch 0), B (branch 1) -> Merge -> y
After:   p, x -> If(then_branch=B, else_branch=A) -> y
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ...compiler.progress import Progress
from ..graph.graph import SWITCHES, GraphNode, Tensor, constant_node
from .branch_analysis import BranchGroup, Liveness, branch_bodies
from .dataflow_graph import (
    Dataflow,
    NotUnderstoodError,
    function_attribute,
    has_effect,
    type_of,
    types_attribute,
)

_BOOL, _INT32 = int(tf.bool.as_datatype_enum), int(tf.int32.as_datatype_enum)
Bodies = Sequence[Mapping[str, GraphNode]]


def rebuild_branches(flow: Dataflow, members: set[str], exits: Mapping[str, list[str]]) -> None:
    """Replaces what can be replaced among the nodes of one frame; `members` is changed with them.

    exits: for the Exit nodes of loops in the frame that stayed, the nodes from which those loops are entered.
    """
    failed: set[str] = set()
    progress = Progress("branches", len(members) + 1)
    while any(flow.nodes[n].op == "Merge" for n in members):
        progress.step()
        nodes = flow.view(sorted(members))  # in one order in every process
        for name, sources in exits.items():
            if name in nodes:
                nodes[name].control = [*nodes[name].control, *(flow.current_node(s) for s in sources)]
        liveness = Liveness(nodes)
        groups = [g for g in liveness.groups() if g.name not in failed]
        depth = max((len(g.alive) for g in groups), default=0)
        for group in sorted((g for g in groups if len(g.alive) == depth), key=lambda g: g.level):
            try:
                _rebuild(flow, members, liveness, group)
            except NotUnderstoodError as error:
                flow.reasons.update(dict.fromkeys(group.merges, str(error)))
                failed.add(group.name)
        if not groups:
            return


def _rebuild(flow: Dataflow, members: set[str], liveness: Liveness, group: BranchGroup) -> None:
    """Replaces the merges of a group, and the nodes of its branches, by an If or a Case.

    Raises: NotUnderstoodError  they have another form; the graph is unchanged.
    """
    if group.name in flow.excluded:
        raise NotUnderstoodError(flow.excluded[group.name])
    bodies = branch_bodies(liveness, group)
    if any(has_effect(node) and node.name not in flow.nodes for body in bodies for node in body.values()):
        raise NotUnderstoodError("an effect in one of its branches is shared with another one")
    switched = _switched(liveness, group)
    signature = _signature(flow, group, bodies, switched)
    functions, control = _branch_functions(flow, liveness, group, bodies, signature, switched)
    _insert(flow, group, bodies, signature, functions, control)
    try:
        _remove(flow, group, bodies, group.name)
    except NotUnderstoodError:
        del flow.nodes[group.name]
        raise
    for merge in group.merges:
        flow.replace(merge, signature.value(group, merge), group.name, signature.number(group, merge))
    members.add(group.name)
    members.intersection_update(flow.nodes)
    _drop_unread_switches(flow, members, {t.node for t in switched})


def _switched(liveness: Liveness, group: BranchGroup) -> dict[Tensor, Tensor]:
    """By each output of a Switch of the group, the tensor that it hands on."""
    return {
        Tensor(n.name, k): n.inputs[0]
        for n in liveness.nodes.values()
        if n.op in SWITCHES
        and not liveness.alive[n.name] - group.alive
        and liveness.selector(n) == group.selector
        for k in range(group.count)
    }


@dataclasses.dataclass
class _Signature:
    """Inputs and results of an If or a Case.

    inputs: tensors outside. arguments: by tensor that a branch reads, the number of the input; switched forms have one,
    too. values: the merges whose first output is read; the results. numbers: those whose second output,
    the number of the branch, is read; further results.
    """

    inputs: list[Tensor]
    arguments: dict[Tensor, int]
    values: list[str]
    numbers: list[str]
    types: list[int]
    result_types: list[int]

    def value(self, group: BranchGroup, merge: str) -> Tensor | None:
        """The result that replaces the first output of a merge; None if it is not read."""
        return Tensor(group.name, self.values.index(merge)) if merge in self.values else None

    def number(self, group: BranchGroup, merge: str) -> Tensor | None:
        """The result that replaces the second output of a merge; None if it is not read."""
        if merge not in self.numbers:
            return None
        return Tensor(group.name, len(self.values) + self.numbers.index(merge))


def _signature(
    flow: Dataflow, group: BranchGroup, bodies: Bodies, switched: Mapping[Tensor, Tensor]
) -> _Signature:
    read = {t for node in flow.nodes.values() for t in node.inputs}
    numbers = [m for m in sorted(group.merges) if Tensor(m, 1) in read or m in flow.preserved]
    values = [m for m in sorted(group.merges) if Tensor(m, 0) in read or m in numbers]
    inputs: list[Tensor] = []
    arguments: dict[Tensor, int] = {}
    for branch, body in enumerate(bodies):
        results = [group.merges[m][branch] for m in values]
        for tensor in [*(t for node in body.values() for t in node.inputs), *results]:
            if tensor.node in body or tensor in arguments:
                continue
            source = flow.current(switched.get(tensor, tensor))
            if source not in inputs:
                inputs.append(source)
            arguments[tensor] = inputs.index(source)
    types = [type_of(flow.nodes[t.node], t.index) for t in inputs]
    value_types = [int(flow.nodes[m].attrs["T"].type) for m in values]
    return _Signature(inputs, arguments, values, numbers, types, value_types + [_INT32] * len(numbers))


def _branch_functions(
    flow: Dataflow,
    liveness: Liveness,
    group: BranchGroup,
    bodies: Bodies,
    signature: _Signature,
    switched: Mapping[Tensor, Tensor],
) -> tuple[list[str], set[str]]:
    """(the names of the functions of the branches, the nodes outside for which the If or Case waits)."""
    functions, control = [], set[str]()
    for branch, body in enumerate(bodies):
        numbers = [_number_constant(liveness.nodes[m], group.merges[m][branch]) for m in signature.numbers]
        results = [group.merges[m][branch] for m in signature.values] + [Tensor(n.name, 0) for n in numbers]
        function, outside = flow.function(
            f"{group.name}_{branch}",
            {**body, **{n.name: n for n in numbers}},
            signature.arguments,
            signature.types,
            results,
            signature.result_types,
        )
        functions.append(function)
        switches = {
            n
            for n in (*outside, *(t.node for t in signature.arguments))
            if n in liveness.nodes and Tensor(n, 0) in switched
        }
        control |= {n for n in outside if n not in switches}.union(*map(liveness.controls, switches))
    inside = {n for body in bodies for n in body}
    control |= {c for m in group.merges for c in liveness.nodes[m].control if c not in inside}
    return functions, control


def _insert(
    flow: Dataflow,
    group: BranchGroup,
    bodies: Bodies,
    signature: _Signature,
    functions: Sequence[str],
    control: Collection[str],
) -> None:
    """Adds the If or Case node."""
    selector = flow.current(group.selector)
    selector_type = type_of(flow.nodes[selector.node], selector.index)
    attributes = {"Tin": types_attribute(signature.types), "Tout": types_attribute(signature.result_types)}
    if selector_type == _BOOL:
        attributes |= {
            "Tcond": tf.compat.v1.AttrValue(type=selector_type),
            "then_branch": function_attribute(functions[1]),
            "else_branch": function_attribute(functions[0]),
        }
    else:
        attributes["branches"] = tf.compat.v1.AttrValue()
        for function in functions:
            attributes["branches"].list.func.add(name=function)
    flow.insert(
        group.name,
        "If" if selector_type == _BOOL else "Case",
        [selector, *signature.inputs],
        [flow.current_node(c) for c in sorted(control)],
        flow.nodes[min(group.merges)].device,
        attributes,
        [node for body in bodies for node in body.values()],
    )


def _number_constant(merge: GraphNode, tensor: Tensor) -> GraphNode:
    """A constant: the number of this input of a Merge, which is its second output where the input is alive."""
    return constant_node(f"{merge.name}/tfbridge_index", np.asarray(merge.inputs.index(tensor), np.int32))


def _remove(flow: Dataflow, group: BranchGroup, bodies: Bodies, name: str) -> None:
    """Takes the branches' nodes out, except those that others read too.

    Raises: NotUnderstoodError  such a node has an effect.
    """
    inside = {n for body in bodies for n in body}
    outside = [n for n in flow.nodes if n not in inside and n not in group.merges and n != name]
    shared: set[str] = set()
    stack = [t.node for n in outside for t in flow.inputs(flow.nodes[n])]
    while stack:
        source = stack.pop()
        if source in inside and source in flow.nodes and source not in shared:
            shared.add(source)
            stack += [*(t.node for t in flow.inputs(flow.nodes[source])), *flow.controls(flow.nodes[source])]
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
