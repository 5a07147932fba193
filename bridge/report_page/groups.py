"""The graph of a function, drawn small: its ops in groups, by scopes in their names and the clusters they are in."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

_MOST_GROUPS = 48
_MOST_SCOPES = 400  # that are then taken together, one after another
_DEEPEST = 5
# Ops that pass their input on, or are none of the program's.
_PASSED = frozenset({"Identity", "IdentityN", "StopGradient", "PreventGradient", "ReadVariableOp", "NoOp"})
_HIDDEN = frozenset({"_Arg", "_Retval", "Const", "Placeholder", "VarHandleOp"})


@dataclasses.dataclass(frozen=True)
class OpGroup:
    """Ops that are drawn as one box. `cluster`: the name of theirs; empty where TensorFlow runs them. `inputs`: the
    numbers of the groups before it whose results it takes."""

    name: str
    ops: int
    cluster: str
    inputs: tuple[int, ...] = ()


def op_groups(
    nodes: Mapping[str, tuple[str, Sequence[str]]], cluster_of: Mapping[str, str]
) -> tuple[OpGroup, ...]:
    """The groups of a graph, at most `_MOST_GROUPS` where its clusters allow it.

    `nodes`: op and names of the inputs by name, inputs first; `cluster_of`: the clusters of those that are in one.
    """
    shown = [n for n, (op, _) in nodes.items() if op not in _PASSED and op not in _HIDDEN]
    keys: dict[str, tuple[str, str]] = {}
    for depth in range(1, _DEEPEST + 1):
        deeper = {name: (cluster_of.get(name, ""), _scope(name, depth)) for name in shown}
        if depth > 1 and len(set(deeper.values())) > _MOST_SCOPES:
            break
        keys = deeper
        if len(set(keys.values())) > _MOST_GROUPS:
            break
    listed: dict[tuple[str, str], list[str]] = {}
    for name in shown:
        listed.setdefault(keys[name], []).append(name)
    chunks = _chunks(list(listed))
    number = {name: k for k, chunk in enumerate(chunks) for key in chunk for name in listed[key]}
    sources = _sources(nodes, number)
    return tuple(
        OpGroup(
            _title([scope for _, scope in chunk]),
            sum(len(listed[key]) for key in chunk),
            chunk[0][0],
            tuple(sorted({s for key in chunk for n in listed[key] for s in sources[n] if s < k})),
        )
        for k, chunk in enumerate(chunks)
    )


def _scope(name: str, depth: int) -> str:
    parts = name.split("/")
    return "/".join(parts[:depth])


def _chunks(keys: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Keys one after another that are of one cluster, as many in each chunk as make it few chunks."""
    runs = [list(run) for _, run in itertools.groupby(keys, key=lambda key: key[0])]
    size = 1
    while sum(-(-len(run) // size) for run in runs) > max(_MOST_GROUPS, len(runs)):
        size += 1
    return [run[at : at + size] for run in runs for at in range(0, len(run), size)]


def _title(scopes: Sequence[str]) -> str:
    first = scopes[0].rsplit("/", 1)[-1]
    return first if len(scopes) == 1 else f"{first} and {len(scopes) - 1} more"


def _sources(
    nodes: Mapping[str, tuple[str, Sequence[str]]], number: Mapping[str, int]
) -> dict[str, frozenset[int]]:
    """By node, the groups whose results its inputs are, through nodes that are not drawn."""
    through: dict[str, frozenset[int]] = {}
    inputs_of: dict[str, frozenset[int]] = {}
    for name, (_, inputs) in nodes.items():
        sources = frozenset(itertools.chain.from_iterable(through.get(i, ()) for i in inputs))
        inputs_of[name] = sources
        through[name] = frozenset([number[name]]) if name in number else sources
    return inputs_of


class GraphDefNode(Protocol):
    """A node of a GraphDef."""

    name: str
    op: str
    input: Iterable[str]


def nodes_of_graph_def(nodes: Iterable[GraphDefNode]) -> dict[str, tuple[str, list[str]]]:
    """Op and inputs by name of the nodes of a GraphDef, in an order in which inputs come first, loops aside."""
    inputs = {node.name: (node.op, [i.lstrip("^").partition(":")[0] for i in node.input]) for node in nodes}
    ordered: dict[str, tuple[str, list[str]]] = {}
    for root in inputs:
        stack = [(root, iter(inputs[root][1]))]
        open_names = {root}
        while stack:
            name, rest = stack[-1]
            following = next(
                (i for i in rest if i in inputs and i not in ordered and i not in open_names), None
            )
            if following is None:
                stack.pop()
                open_names.discard(name)
                ordered.setdefault(name, inputs[name])
            else:
                stack.append((following, iter(inputs[following][1])))
                open_names.add(following)
    return ordered
