"""Functions with `strict=True`: what is not compiled of them is an error when TensorFlow comes to run it."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

import numpy as np
import tensorflow as tf

from ...compiler.errors import UnsupportedError
from ..launch import op as launch_op
from ..options.marks import is_strict
from ..tf_internals.types import GraphDef
from .compute_ops import TRIVIAL

_MAX_OPS_IN_ERROR = 32
_PREFIX = "strict=True, and it cannot be compiled: "
_INLINED_CALL = re.compile(r"(?:.*/)?(?:Stateful)?PartitionedCall(?:_\d+)?/")
_error_nodes = itertools.count()


def strict_error(reason: str) -> UnsupportedError:
    """The error of a strict function that is not compiled."""
    return UnsupportedError(f"{_PREFIX}{reason}")


def strict_reason(error: tf.errors.OpError) -> str:
    """The reason in a TensorFlow error that a `strict_error` caused; empty for another error."""
    return error.message.partition(f"{UnsupportedError.__name__}: {_PREFIX}")[2].partition("\n\t [[")[0]


def strict_scopes(graph_def: GraphDef) -> tuple[str, ...]:
    """The prefixes of the names of all nodes of strict functions, for each function one.

    Its loops and the functions that it calls have no marks, so the prefix, not the mark, tells its nodes: empty for a
    function in a graph of its own, else the name of the inlined call.
    """
    return tuple({_scope(node.name) for node in graph_def.node if is_strict(node.attr)})


def _scope(name: str) -> str:
    call = _INLINED_CALL.match(name)
    return call.group() if call else ""


def fail_if_unclustered(
    graph_def: GraphDef,
    unclustered: Mapping[str, tuple[str, str]],
    scopes: tuple[str, ...],
    preserved: Collection[str],
) -> None:
    """Lets every run of a graph fail if there are ops of strict functions outside clusters.

    unclustered: (op, reason) by node. preserved: nodes whose results end a run.
    """
    lines = [
        f"{name} ({op}): {reason}"
        for name, (op, reason) in unclustered.items()
        if name.startswith(scopes) and op not in TRIVIAL
    ]
    if lines:
        hidden = len(lines) - _MAX_OPS_IN_ERROR
        shown = [*lines[:_MAX_OPS_IN_ERROR], *([f"and {hidden} more"] if hidden > 0 else [])]
        _fail_at_run(graph_def, "these ops cannot be compiled:\n  " + "\n  ".join(shown), preserved)


def _fail_at_run(graph_def: GraphDef, reason: str, preserved: Collection[str]) -> None:
    """Adds a node that raises `strict_error`, before all preserved nodes."""
    key = f"strict#{next(_error_nodes)}"
    launch_op.register_cluster(key, lambda *_: None, functools.partial(_raise, reason))
    device = next((node.device for node in graph_def.node if "CPU" in node.device.upper()), "")
    error_node = launch_op.node_def("tfbridge/strict", key, [], [], [], device=device)
    nodes = {node.name: node for node in graph_def.node}
    graph_def.node.append(error_node)
    for name in sorted(nodes.keys() & set(preserved)):
        node = nodes[name]
        if node.op in ("_Retval", "_DeviceRetval"):  # of their inputs only the first counts
            checked = graph_def.node.add(
                name=f"tfbridge/strict/{name}",
                op="Identity",
                device=node.device,
                input=[node.input[0], f"^{error_node.name}"],
            )
            checked.attr["T"].type = node.attr["T"].type
            node.input[0] = checked.name
        elif node.input:
            node.input.append(f"^{error_node.name}")


def _raise(reason: str, values: Sequence[np.ndarray]) -> NoReturn:
    raise strict_error(reason)
