"""Variables that a graph only reads, given to TensorFlow's nodes by their values: to make a variable for a call takes
longer than many a node.

Before:  x = ReadVariableOp(handle);  y = ResourceGather(handle, rows)
After:   x is the argument itself;    y = Gather(value, rows)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tensorflow.core.framework.node_def_pb2 import NodeDef


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
