"""A TensorFlow graph as the bridge sees it: nodes with resolved inputs, in topological order.

GraphDefs and FunctionDefs are both read into it. A tensor is (node name, output number); a function's arguments are
`_Arg` nodes and its results a list of tensors.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..tf_internals import symbols as tfp
from ..tf_internals.types import AttrValue, FunctionDef, GraphDef, NodeDef, OpDef

# The ops to which TensorFlow lowers loops and branches.
DATAFLOW = frozenset(
    {
        "Switch",
        "RefSwitch",
        "_SwitchN",
        "Merge",
        "RefMerge",
        "Enter",
        "RefEnter",
        "Exit",
        "RefExit",
        "NextIteration",
        "RefNextIteration",
        "LoopCond",
    }
)


SWITCHES = frozenset({"Switch", "_SwitchN"})
ENTERS = frozenset({"Enter", "RefEnter"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
LOOPS = frozenset({"While", "StatelessWhile"})


class Tensor(NamedTuple):
    """Output `index` of the node `node`."""

    node: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here


@dataclasses.dataclass(slots=True)
class GraphNode:
    """An operation: its inputs are tensors, its control inputs node names, `definition` the NodeDef it came from."""

    name: str
    op: str
    inputs: list[Tensor]
    control: list[str]
    definition: NodeDef

    @property
    def attrs(self) -> Mapping[str, AttrValue]:
        """AttrValue by name."""
        return self.definition.attr

    @property
    def device(self) -> str:
        """The device asked for; empty for none."""
        return self.definition.device


@dataclasses.dataclass(slots=True)
class Graph:
    """Nodes by name in topological order (loops of Switch/Merge aside); a function's arguments and results."""

    nodes: dict[str, GraphNode]
    arguments: list[str] = dataclasses.field(default_factory=list)
    results: list[Tensor] = dataclasses.field(default_factory=list)
    control_results: list[str] = dataclasses.field(default_factory=list)
    name: str = ""


def from_graph_def(graph_def: GraphDef) -> Graph:
    """Reads a GraphDef; `_Arg` and `_Retval` nodes become arguments and results."""
    nodes: dict[str, GraphNode] = {}
    arguments: dict[int, str] = {}
    results: dict[int, Tensor] = {}
    for node in read_nodes(graph_def).values():
        if node.op == "_Retval":
            results[node.attrs["index"].i] = node.inputs[0]
            continue
        if node.op == "_Arg":
            arguments[node.attrs["index"].i] = node.name
        nodes[node.name] = node
    return Graph(
        sort(nodes), [arguments[k] for k in sorted(arguments)], [results[k] for k in sorted(results)]
    )


def from_function_def(function: FunctionDef) -> Graph:
    """Reads a FunctionDef: its arguments become `_Arg` nodes."""
    nodes: dict[str, GraphNode] = {}
    for k, argument in enumerate(function.signature.input_arg):
        definition = tf.compat.v1.NodeDef(name=argument.name, op="_Arg")
        definition.attr["index"].i = k
        definition.attr["T"].type = argument.type
        if k in function.arg_attr:
            for key, value in function.arg_attr[k].attr.items():
                definition.attr[key].CopyFrom(value)
        nodes[argument.name] = GraphNode(argument.name, "_Arg", [], [], definition)
    definitions = {d.name: d for d in function.node_def}
    tensors: dict[str, Tensor] = {}

    def tensor(text: str) -> Tensor:
        cached = tensors.get(text)
        if cached is None:
            cached = tensors[text] = _function_tensor(text, definitions)
        return cached

    for name, definition in definitions.items():
        nodes[name] = _node(definition, tensor)
    results = [tensor(function.ret[r.name]) for r in function.signature.output_arg]
    ends = list(function.control_ret.values())
    return Graph(
        sort(live_nodes(nodes, [*(t.node for t in results), *ends])),
        [a.name for a in function.signature.input_arg],
        results,
        ends,
        function.signature.name,
    )


def _function_tensor(text: str, definitions: Mapping[str, NodeDef]) -> Tensor:
    """What a node's input in a function names: an argument, or `node:output argument:number`."""
    name, _, output = text.partition(":")
    definition = definitions.get(name) if output else None
    if definition is None:
        return Tensor(name, 0)
    argument, _, number = output.partition(":")
    first = _fixed_output(definition.op, argument)
    if first is None:
        first = output_range(definition, argument)[0]
    return Tensor(name, first + int(number))


def live_nodes(nodes: Mapping[str, GraphNode], ends: Iterable[str]) -> dict[str, GraphNode]:
    """The nodes that the ends need, and those that have an effect, or may have one, with what they need."""
    stack = [*ends, *(name for name, node in nodes.items() if node.op == "_Arg" or _may_have_effect(node.op))]
    live: set[str] = set()
    while stack:
        name = stack.pop()
        if name not in live and name in nodes:
            live.add(name)
            stack += [*(t.node for t in nodes[name].inputs), *nodes[name].control]
    return {name: node for name, node in nodes.items() if name in live}


def read_nodes(graph_def: GraphDef) -> dict[str, GraphNode]:
    """The nodes of a GraphDef by name, in its order, `_Retval` nodes too."""
    return {d.name: _node(d, _graph_tensor) for d in graph_def.node}


def _graph_tensor(text: str) -> Tensor:
    name, _, index = text.partition(":")
    return Tensor(name, int(index or 0))


def _node(definition: NodeDef, tensor: Callable[[str], Tensor]) -> GraphNode:
    inputs: list[Tensor] = []
    control: list[str] = []
    for name in definition.input:
        if name[0] == "^":
            control.append(name[1:])
        else:
            inputs.append(tensor(name))
    return GraphNode(definition.name, definition.op, inputs, control, definition)


def constant_node(name: str, value: np.ndarray) -> GraphNode:
    """A new Const node."""
    definition = NodeDef(name=name, op="Const")
    definition.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    definition.attr["dtype"].type = definition.attr["value"].tensor.dtype
    return GraphNode(name, "Const", [], [], definition)


def sort(nodes: Mapping[str, GraphNode]) -> dict[str, GraphNode]:
    """The nodes with inputs before users; the back edges of NextIteration nodes are left out of the order."""
    order: dict[str, GraphNode] = {}
    entered: set[str] = set()

    def needed(node: GraphNode) -> Iterable[str]:
        names = dict.fromkeys([*(t.node for t in node.inputs), *node.control])
        if node.op in ("Merge", "RefMerge"):
            return [
                n for n in names if n in nodes and nodes[n].op not in ("NextIteration", "RefNextIteration")
            ]
        return [n for n in names if n in nodes]

    for start, node in nodes.items():
        if start in order:
            continue
        if all(t.node in order for t in node.inputs) and all(name in order for name in node.control):
            entered.add(start)
            order[start] = node
            continue
        stack = [(start, iter(needed(nodes[start])))]
        entered.add(start)
        while stack:
            name, rest = stack[-1]
            following = next((n for n in rest if n not in order and n not in entered), None)
            if following is None:
                order[name] = nodes[name]
                stack.pop()
            else:
                entered.add(following)
                stack.append((following, iter(needed(nodes[following]))))
    return order


@functools.cache
def op_definition(op: str) -> OpDef:
    """The OpDef of a registered op; None for an unknown name (a function called as an op)."""
    return tfp.op_definition(op)


@functools.cache
def takes_functions(op: str) -> bool:
    """Whether a node of an op calls functions, or is itself a function's name."""
    definition = op_definition(op)
    return definition is None or any(attr.type in ("func", "list(func)") for attr in definition.attr)


@functools.cache
def _may_have_effect(op: str) -> bool:
    definition = op_definition(op)
    return definition is None or definition.is_stateful


@functools.cache
def _fixed_output(op: str, name: str) -> int | None:
    """Number of the first output that belongs to an output argument; None where that depends on the node."""
    for at, argument in enumerate(op_definition(op).output_arg):
        if argument.name == name:
            return at
        if argument.number_attr or argument.type_list_attr:
            return None
    return None


def _count(argument: OpDef.ArgDef, attrs: Mapping[str, AttrValue]) -> int:
    if argument.number_attr:
        return int(attrs[argument.number_attr].i)
    if argument.type_list_attr:
        return len(attrs[argument.type_list_attr].list.type)
    return 1


def output_range(definition: NodeDef, name: str) -> tuple[int, int]:
    """(first, end) numbers of the outputs that belong to the output argument `name` of a node."""
    return _range(op_definition(definition.op).output_arg, definition.attr, name)


def input_range(definition: NodeDef, name: str) -> tuple[int, int]:
    """(first, end) numbers of the inputs that belong to the input argument `name` of a node."""
    return _range(op_definition(definition.op).input_arg, definition.attr, name)


def _range(arguments: Iterable[OpDef.ArgDef], attrs: Mapping[str, AttrValue], name: str) -> tuple[int, int]:
    at = 0
    for argument in arguments:
        count = _count(argument, attrs)
        if argument.name == name:
            return at, at + count
        at += count
    raise KeyError(f"no argument {name!r}; there are {[a.name for a in arguments]}")


DT_STRING, DT_RESOURCE, DT_VARIANT = 7, 20, 21  # of what is no array; TensorFlow's types.proto


def _types(arguments: Iterable[OpDef.ArgDef], attrs: Mapping[str, AttrValue]) -> list[int]:
    types: list[int] = []
    for argument in arguments:
        if argument.type_list_attr:
            types.extend(attrs[argument.type_list_attr].list.type)
        else:
            one = attrs[argument.type_attr].type if argument.type_attr else argument.type
            types.extend([one] * _count(argument, attrs))
    return types


def output_types(node: GraphNode) -> list[int]:
    """DataType numbers of the outputs of a node; an `_Arg` has its T."""
    return _types(op_definition(node.op).output_arg, node.attrs)


def input_types(node: GraphNode) -> list[int]:
    """DataType numbers of the inputs of a node."""
    return _types(op_definition(node.op).input_arg, node.attrs)
