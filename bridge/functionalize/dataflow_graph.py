"""A graph in dataflow form (Switch, Merge, Enter, ...) under reconstruction: frames, and functions cut out of it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence

import tensorflow as tf

from ...compiler.progress import followed
from ..graph.graph import DATAFLOW, ENTERS, GraphNode, Tensor, op_definition, output_range, output_types, sort
from ..tf_internals.types import AttrValue, FunctionDef, GraphDef

_numbers = itertools.count()


class NotUnderstoodError(Exception):
    """A loop or branch that does not have the form that TensorFlow gives it; it stays as it is."""


@dataclasses.dataclass
class Dataflow:
    """The nodes of a graph by name, changed in place, with the functions cut out of them.

    A node that is taken out leaves its tensors under new names in `moved` and itself, for control edges, in `renamed`.
    excluded: names of the loops and branches to leave as they are. preserved: nodes whose names must stay.
    """

    nodes: dict[str, GraphNode]
    preserved: Collection[str]
    excluded: Mapping[str, str]
    mark: str
    functions: dict[str, FunctionDef] = dataclasses.field(default_factory=dict)
    rebuilt: set[str] = dataclasses.field(default_factory=set)
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    moved: dict[Tensor, Tensor] = dataclasses.field(default_factory=dict)
    renamed: dict[str, str] = dataclasses.field(default_factory=dict)

    def inputs(self, node: GraphNode) -> list[Tensor]:
        """A node's inputs where they are now."""
        return [self.current(t) for t in node.inputs]

    def controls(self, node: GraphNode) -> list[str]:
        """The nodes that a node waits for, where they are now."""
        return list(dict.fromkeys(self.current_node(c) for c in node.control))

    def current(self, tensor: Tensor) -> Tensor:
        """Where a tensor is now."""
        return followed(self.moved, tensor, "tensors that moved")

    def current_node(self, name: str) -> str:
        """The node that stands for one that may have been taken out."""
        return followed(self.renamed, name, "nodes that were taken out")

    def view(self, names: Collection[str]) -> dict[str, GraphNode]:
        """These nodes with their inputs where they are now, in topological order."""
        return sort(
            {
                n: GraphNode(
                    n,
                    self.nodes[n].op,
                    self.inputs(self.nodes[n]),
                    self.controls(self.nodes[n]),
                    self.nodes[n].definition,
                )
                for n in names
            }
        )

    def frames(self) -> dict[str, str]:
        """The frame in which every node runs ("" outside of all loops); an Enter node counts to the frame it enters."""
        frame_of: dict[str, str] = {}
        parents: dict[str, str] = {"": ""}
        for node in self.view(self.nodes).values():
            outer = next(
                (f for n in [*(t.node for t in node.inputs), *node.control] if (f := frame_of.get(n, ""))), ""
            )
            if node.op in ENTERS:
                frame = node.attrs["frame_name"].s.decode()
                if parents.setdefault(frame, outer) != outer:
                    raise NotUnderstoodError(f"frame {frame} is entered from two places")
                outer = frame
            frame_of[node.name] = parents[outer] if node.op in ("Exit", "RefExit") else outer
        self.parents = parents
        return frame_of

    def insert(
        self,
        name: str,
        op: str,
        inputs: Sequence[Tensor],
        control: Collection[str],
        device: str,
        attributes: Mapping[str, AttrValue],
        inside: Sequence[GraphNode],
    ) -> GraphNode:
        """Adds the node that stands for a loop or a branch with the nodes `inside`."""
        definition = tf.compat.v1.NodeDef(name=name, op=op, device=device)
        for key, value in attributes.items():
            definition.attr[key].CopyFrom(value)
        marks = [n.attrs[self.mark] for n in inside if self.mark in n.attrs]
        if marks:
            definition.attr[self.mark].CopyFrom(marks[0])
        node = GraphNode(name, op, list(inputs), list(dict.fromkeys(control)), definition)
        self.nodes[name] = node
        self.rebuilt.add(name)
        return node

    def replace(self, name: str, tensor: Tensor | None, by: str, second: Tensor | None = None) -> None:
        """Takes a node out: its outputs are `tensor` and `second` now, what waited for it waits for `by`.

        A preserved node stays, as the identity of these tensors.
        """
        node = self.nodes.pop(name)
        if name in self.preserved and tensor is not None:
            op = "Identity" if second is None else "IdentityN"
            definition = tf.compat.v1.NodeDef(name=name, op=op, device=node.device)
            if second is None:
                definition.attr["T"].CopyFrom(node.attrs["T"])
            else:
                definition.attr["T"].CopyFrom(
                    types_attribute([node.attrs["T"].type, tf.int32.as_datatype_enum])
                )
            self.nodes[name] = GraphNode(
                name, op, [tensor] if second is None else [tensor, second], [], definition
            )
            return
        for k, moved in enumerate((tensor, second)):
            if moved is not None:
                self.moved[Tensor(name, k)] = moved
        self.renamed[name] = by

    def function(
        self,
        name: str,
        body: Mapping[str, GraphNode],
        arguments: Mapping[Tensor, int],
        types: Sequence[int],
        results: Sequence[Tensor],
        result_types: Sequence[int],
    ) -> tuple[str, set[str]]:
        """Cuts a function out: (its name, the nodes outside that its nodes waited for).

        arguments: number of the argument that stands for a tensor. types: DataType of every argument.
        Raises: NotUnderstoodError  a node cannot be part of a function, or reads what is no argument.
        """
        unique = f"tfbridge_{name.replace('/', '_')}_{next(_numbers)}"
        function = tf.compat.v1.GraphDef().library.function.add()
        function.signature.name = unique
        for k, type_ in enumerate(types):
            function.signature.input_arg.add(name=f"tfbridge_arg_{k}", type=type_)

        def text(tensor: Tensor) -> str:
            if tensor in arguments:
                return f"tfbridge_arg_{arguments[tensor]}"
            if tensor.node not in body:
                raise NotUnderstoodError(f"{tensor.node} is read across the edge of a loop or branch")
            return f"{tensor.node}:{_output_name(body[tensor.node], tensor.index)}"

        outside: set[str] = set()
        for node in body.values():
            if node.op in DATAFLOW:
                raise NotUnderstoodError(f"{node.name} ({node.op}) within it could not be rebuilt")
            if node.name in self.preserved or node.op in ("_Retval", "_Arg", "Placeholder"):
                raise NotUnderstoodError(f"{node.name} within it must keep its name")
            definition = function.node_def.add()
            definition.CopyFrom(node.definition)
            outside.update(c for c in node.control if c not in body)
            definition.input[:] = [*map(text, node.inputs), *(f"^{c}" for c in node.control if c in body)]
            if is_stateful(node):  # the next iteration, and what comes after a branch, wait for it
                function.signature.control_output.append(node.name)
                function.control_ret[node.name] = node.name
        function.signature.is_stateful = bool(function.control_ret)
        for k, (tensor, type_) in enumerate(zip(results, result_types, strict=True)):
            function.signature.output_arg.add(name=f"result_{k}", type=type_)
            function.ret[f"result_{k}"] = text(tensor)
        self.functions[unique] = function
        return unique, outside

    def graph_def(self, original: GraphDef) -> GraphDef:
        """The graph as it is now, with the functions in its library.

        Raises: NotUnderstoodError  it has a cycle.
        """
        result = type(original)(versions=original.versions, library=original.library)
        placed: set[str] = set()
        for node in self.view(self.nodes).values():
            if node.op not in ("Merge", "RefMerge") and not placed.issuperset(
                n for n in [*(t.node for t in node.inputs), *node.control] if n in self.nodes
            ):
                raise NotUnderstoodError(f"{node.name} depends on itself")
            placed.add(node.name)
            definition = result.node.add()
            definition.CopyFrom(node.definition)
            texts = [t.node if t.index == 0 else f"{t.node}:{t.index}" for t in node.inputs]
            definition.input[:] = [*texts, *(f"^{c}" for c in node.control)]
        reached: set[str] = set()
        for node in self.nodes.values():
            reached |= {self.current(t).node for t in node.inputs}
        missing = reached - self.nodes.keys()
        if missing:
            raise NotUnderstoodError(f"{min(missing)} is read and no longer there")
        result.library.function.extend(self._used_functions())
        return result

    def _used_functions(self) -> list[FunctionDef]:
        """The functions that loops and branches of the graph call, and those that these call."""
        used: dict[str, FunctionDef] = {}
        stack = [n.definition for n in self.nodes.values() if n.name in self.rebuilt]
        while stack:
            definition = stack.pop()
            for value in definition.attr.values():
                for called in [value.func.name, *(f.name for f in value.list.func)]:
                    if called in self.functions and called not in used:
                        used[called] = self.functions[called]
                        stack.extend(used[called].node_def)
        return list(used.values())


def type_of(node: GraphNode, index: int) -> int:
    """DataType of an output of a node."""
    return int(node.attrs["T"].type) if node.op == "_Arg" else output_types(node)[index]


def is_stateful(node: GraphNode) -> bool:
    """Whether it matters when a node runs."""
    definition = op_definition(node.op)
    return definition is None or definition.is_stateful


def has_effect(node: GraphNode) -> bool:
    """Whether it matters how often a node runs."""
    return node.op != "ReadVariableOp" and is_stateful(node)


def types_attribute(types: Sequence[int]) -> AttrValue:
    """An attribute that is a list of types."""
    value = tf.compat.v1.AttrValue()
    value.list.SetInParent()
    value.list.type.extend(types)
    return value


def function_attribute(name: str) -> AttrValue:
    """An attribute that is one function."""
    value = tf.compat.v1.AttrValue()
    value.func.name = name
    return value


def _output_name(node: GraphNode, index: int) -> str:
    for argument in op_definition(node.op).output_arg:
        first, end = output_range(node.definition, argument.name)
        if first <= index < end:
            return f"{argument.name}:{index - first}"
    raise NotUnderstoodError(f"{node.name} ({node.op}) has no output {index}")
