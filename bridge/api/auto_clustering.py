"""`tfbridge.enable_auto_clustering`: compiles clusters in every graph that TensorFlow optimizes in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compiler.client.platforms import native
from ..clustering import reports, rewrite_graph
from ..clustering.clustering_request import options_of_function
from ..dispatch import fast_call, tf_function_hook
from ..dispatch.call_plan import CallPlan
from ..launch import kernel as launch_kernel
from ..options.auto_clustering import process
from ..options.jit_options import DEFAULT_OPTIONS
from ..tf_internals import symbols as tfp
from ..translate.registry import translations
from .marking import marked


def enable_auto_clustering(min_cluster_size: int | None = None, jit_compile: bool = False) -> None:
    """Compiles clusters in every graph that TensorFlow makes from now on in this process.

    Graphs of earlier traces stay as they are: call it right after the imports. `TFBRIDGE_AUTO_JIT=1` does the same for
    a program that is not changed.

    min_cluster_size: compute ops that a cluster has at least (default: the flag's).
    jit_compile: functions and Keras models that are made with jit_compile=True from now on are compiled as `jit` does,
        not by XLA.

    >>> import tfbridge
    >>> tfbridge.enable_auto_clustering(min_cluster_size=8)
    >>> tfbridge.disable_auto_clustering()

    Raises: ValueError  min_cluster_size is not positive; TensorFlowMismatch  this TensorFlow has no hook for graph
        passes.
    """
    size = DEFAULT_OPTIONS.min_cluster_size if min_cluster_size is None else min_cluster_size
    if size < 1:
        raise ValueError(f"min_cluster_size: {size} is not positive")
    process.min_cluster_size, process.takes_jit_compile = size, jit_compile
    if jit_compile:
        tfp.on_jit_compile(_in_place_of_xla)
    # What a first call needs is loaded now: it shall not take longer than TensorFlow's.
    native().load_emitters()
    translations()
    launch_kernel.prefetch()
    fast_call.prefetch()
    rewrite_graph.ensure_registered()
    tf_function_hook.install(options_of_function, _note_whole_function)


def disable_auto_clustering() -> None:
    """Graphs made from now on run in TensorFlow, but for what `jit` and `jit_scope` mark."""
    process.min_cluster_size, process.takes_jit_compile = None, False


def _in_place_of_xla(function: Callable[..., Any], features: object) -> Callable[..., Any] | None:
    """The marked function, for one that asks for XLA; None: XLA compiles it."""
    return marked(function, {}, features) if process.takes_jit_compile else None


def _note_whole_function(plan: CallPlan) -> None:
    reports.note(reports.Report(tuple(plan.clusters), {}))
