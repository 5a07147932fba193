"""Variables given to TensorFlow's nodes by their values: to make a variable for a call takes longer than many a node.

A variable that is only read:
    Before:  x = ReadVariableOp(handle);  y = ResourceGather(handle, rows)
    After:   x is the argument itself;    y = Gather(value, rows)
One that is updated, whose new value becomes a result:
    Before:  AssignSubVariableOp(handle, y)
    After:   handle = VarHandleOp();  a = AssignVariableOp(handle, value);  b = AssignSubVariableOp(handle, y, ^a)
             new = ReadVariableOp(handle, ^b)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from ..graph.graph import GraphNode, output_types
from ..tf_internals.symbols import ANONYMOUS

_RESOURCE = tf.resource.as_datatype_enum


def read_only(nodes: Sequence[NodeDef], arguments: Mapping[str, int]) -> frozenset[int]:
    """The numbers of the arguments that are handles which nodes here only read. `arguments`: numbers by name."""
    read: set[int] = set()
    used: set[int] = set()
    for node in nodes:
        is_read = node.op == "ReadVariableOp" or node.op == "ResourceGather" and not node.attr["batch_dims"].i
        for position, name in enumerate(node.input):
            if name in arguments:
                (read if is_read and not position else used).add(arguments[name])
    return frozenset(read - used)


def passed_on(nodes: Sequence[NodeDef], arguments: Mapping[str, int]) -> frozenset[int]:
    """The numbers of the arguments that a node with a handle among its results takes."""
    return frozenset(
        arguments[name]
        for node in nodes
        if any(name in arguments for name in node.input)
        and _RESOURCE in output_types(GraphNode(node.name, node.op, [], [], node))
        for name in node.input
        if name in arguments
    )


def on_values(
    nodes: Sequence[NodeDef], arguments: Mapping[str, int], by_value: Collection[int]
) -> tuple[list[NodeDef], dict[str, int]]:
    """(the nodes without those that read an argument given by value, the numbers of the arguments that these are)."""
    rewritten: list[NodeDef] = []
    same: dict[str, int] = {}
    for node in nodes:
        number = arguments.get(node.input[0], -1) if node.input else -1
        if number not in by_value:
            rewritten.append(node)
        elif node.op == "ReadVariableOp":
            same[node.name] = number
        else:
            gather = NodeDef(name=node.name, op="Gather", input=node.input)
            gather.attr["Tparams"].CopyFrom(node.attr["dtype"])
            gather.attr["Tindices"].CopyFrom(node.attr["Tindices"])
            rewritten.append(gather)
    return rewritten, same


def with_updates(
    nodes: Sequence[NodeDef], arguments: Mapping[str, int], updated: Mapping[int, int]
) -> tuple[list[NodeDef], list[str]]:
    """(the nodes and those that make variables of the arguments `updated`, the names of the new values).

    updated: DataType of the values by argument, in the order of the new values.
    """
    added: list[NodeDef] = []
    reads: dict[int, NodeDef] = {}
    name_of = {number: name for name, number in arguments.items()}
    for number, data_type in updated.items():
        handle, assign, read = (f"tfbridge_{what}_{number}" for what in ("variable", "assign", "read"))
        variable = NodeDef(name=handle, op="VarHandleOp")
        variable.attr["dtype"].type, variable.attr["shape"].shape.unknown_rank = data_type, True
        variable.attr["shared_name"].s = ANONYMOUS.encode()
        added += [variable, NodeDef(name=assign, op="AssignVariableOp", input=[handle, name_of[number]])]
        added[-1].attr["dtype"].type = data_type
        reads[number] = NodeDef(name=read, op="ReadVariableOp", input=[handle, f"^{assign}"])
        reads[number].attr["dtype"].type = data_type
    rewritten: list[NodeDef] = []
    for node in nodes:
        numbers = {arguments[name] for name in node.input if name in arguments} & reads.keys()
        if numbers:
            copy = NodeDef()
            copy.CopyFrom(node)
            copy.input[:] = [
                f"tfbridge_variable_{arguments[name]}" if arguments.get(name) in reads else name
                for name in node.input
            ]
            copy.input.extend(f"^tfbridge_assign_{number}" for number in sorted(numbers))
            for number in numbers:
                reads[number].input.append(f"^{node.name}")
            node = copy
        rewritten.append(node)
    return [*added, *rewritten, *reads.values()], [node.name for node in reads.values()]
