"""Clustering in the graph pass: for all graphs when auto-clustering is on, else for what `jit` and `jit_scope` marked."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..compiler.options import DEFAULT_OPTIONS
from ..runtime import statistics
from . import graph_pass
from . import tensorflow_private as tfp
from .clustering import decide
from .control_flow import functionalize
from .graph import GraphNode, from_graph_def
from .outline import outline
from .translate.translator import Functions

MARK = "_tfbridge"  # node attribute: "function" (its whole graph is to be compiled) or "scope" (this node is)
_DEFAULT_MINIMUM = 4

_lock = threading.RLock()
_minimum: int | None = None  # None: auto-clustering is off
_on_clusters: list[Callable[[Any, Any], None]] = []


def enable_auto_clustering(min_cluster_size: int | None = None) -> None:
    """Compiles clusters in every graph that TensorFlow makes from now on in this process.

    min_cluster_size: compute ops that a cluster has at least (default 4).
    Raises: ValueError  not positive; TensorFlowMismatch  this TensorFlow has no hook for graph passes.
    """
    global _minimum
    size = _DEFAULT_MINIMUM if min_cluster_size is None else min_cluster_size
    if size < 1:
        raise ValueError(f"min_cluster_size: {size} is not positive")
    with _lock:
        _minimum = size
    ensure_registered()


def disable_auto_clustering() -> None:
    """Leaves graphs made from now on alone, but for what `jit` and `jit_scope` ask for."""
    global _minimum
    with _lock:
        _minimum = None


def is_auto_clustering() -> bool:
    """Whether auto-clustering is on."""
    return _minimum is not None


def ensure_registered() -> None:
    """Registers the graph pass with TensorFlow, once."""
    if not graph_pass.is_registered():
        with _lock:
            tfp.mark_gradients(MARK)
            tfp.optimize_small_graphs()
            graph_pass.register(_rewrite)


@contextlib.contextmanager
def jit_scope() -> Iterator[None]:
    """Within, every op that is created (in a tf.function or a TF1 graph) is to be compiled."""
    ensure_registered()
    with tfp.attribute_scope(MARK, b"scope"):
        yield


def marked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, tracing which marks its graph as one to be compiled."""
    def traced(*args: Any, **kwargs: Any) -> Any:
        with tfp.attribute_scope(MARK, b"function"):
            return function(*args, **kwargs)

    functools.update_wrapper(traced, function)
    traced.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return traced


def _rewrite(graph_def: Any, item: graph_pass.Item) -> Any | None:
    marks = {node.attr[MARK].s for node in graph_def.node if MARK in node.attr}
    everything = _minimum is not None or b"function" in marks
    if not everything and not marks:
        return None
    minimum = 1 if marks else _minimum or 1

    def wanted(node: GraphNode) -> bool:
        return everything or (MARK in node.attrs and node.attrs[MARK].s == b"scope")

    graph_def = functionalize(graph_def)
    functions = Functions({f.signature.name: f for f in graph_def.library.function})
    graph = from_graph_def(graph_def)
    preserved = item.nodes_to_preserve
    plan = decide(graph, functions, minimum=minimum, preserved=preserved, wanted=wanted)
    result, clusters = outline(graph_def, graph, functions, plan.clusters, DEFAULT_OPTIONS, preserved)
    for name, reason in plan.left_out.items():
        if graph.nodes[name].op not in _UNCOUNTED:
            statistics.leave_out(f"{graph.nodes[name].op}: {reason}")
    return result if clusters else None


_UNCOUNTED = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Placeholder", "NoOp", "Const", "Identity",
                        "VarHandleOp", "ReadVariableOp", "AssignVariableOp", "TfbridgeLaunch"})
