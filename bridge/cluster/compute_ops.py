"""Which ops are worth a cluster: all but those that cost TensorFlow nearly nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..graph.function_library import Functions, called_functions
from ..graph.graph import GraphNode

# Copied into every cluster that reads them.
COPIED = frozenset({"Const"})
TRIVIAL = frozenset(
    {
        "Const",
        "Identity",
        "IdentityN",
        "NoOp",
        "ReadVariableOp",
        "AssignVariableOp",
        "Assert",
        "Shape",
        "Size",
        "Rank",
        "StopGradient",
        "Reshape",
        "ExpandDims",
        "Squeeze",
        "VariableShape",
        "VarIsInitializedOp",
    }
)


def count_ops(nodes: Iterable[GraphNode], functions: Functions, trivial: Collection[str]) -> int:
    """How many nodes are not trivial; for a call, a loop or a branch, those in its functions count, and for a fused op
    what was fused."""
    total = 0
    for node in nodes:
        called = [f for f in called_functions(node) if f in functions.definitions]
        if called:
            total += sum(count_ops(functions[f].nodes.values(), functions, trivial) for f in called)
        else:
            total += node.op not in trivial
            if node.op.startswith("_") and "fused_ops" in node.attrs:
                total += len(node.attrs["fused_ops"].list.s)
    return total
