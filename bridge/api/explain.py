"""`tfbridge.explain`: what of a function is compiled, what is not and why, and what the code is made of.

A function that compiles as a whole is one cluster. Over the graph of another one TensorFlow's graph optimizers are
run, so that the report shows the clusters that a call makes. Nothing is executed: variables keep their values.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...compiler.errors import UnsupportedError
from ...compiler.ir.shape import Shape
from ...runtime import statistics
from ...runtime.profiler import Event
from ..cluster.cluster import Cluster
from ..cluster.cluster_compiler import compile_cluster
from ..cluster.code_cache import listed
from ..cluster.code_key import code_key
from ..cluster.symbolic_sizes import described_variants
from ..clustering import reports, rewrite_graph
from ..dispatch import tf_function_hook
from ..graph import source_location
from ..launch import cluster_registry
from ..options import auto_clustering
from ..report_page.groups import nodes_of_graph_def, op_groups
from ..tf_internals import symbols as tfp
from ..tf_internals.types import ConcreteFunction
from .cluster_inputs import ClusterInputs, input_names, shape_of
from .explanation import ClusterReport, LeftOut, Report
from .jit import Jit
from .profile import profile_cluster

_MEASURED_RUNS = 10


def explain(function: Any, *args: object, **kwargs: object) -> Report:
    """What becomes of a function when it is called with these arguments; compiles it for them, does not run it.

    >>> import tensorflow as tf
    >>> import tfbridge
    >>> report = tfbridge.explain(lambda x: tf.strings.as_string(tf.tanh(x) * 2.0 + 1.0), tf.ones(3))
    >>> print(str(report).splitlines()[0])
    <lambda>: 3 of 4 ops compiled, in 1 cluster
    >>> report.left_out[0].op, report.left_out[0].reason
    ('AsString', 'there is no translation of this op')

    `function` may be compiled by `jit`, a tf.function, a concrete function (without arguments: for those that it was
    traced for) or a plain function; all but the first are explained as `jit` would compile them or, TensorFlow's
    functions under auto-clustering, as that does. Arguments may be TensorSpecs. A function that cannot be traced gets
    a report with that as its `problem`; nothing is raised.
    Units: of the report: bytes, floating-point operations, seconds.
    """
    while isinstance(function, functools.partial):
        function, args, kwargs = function.func, (*function.args, *args), {**function.keywords, **kwargs}
    if tfp.is_concrete(function) and not args and not kwargs:
        args, kwargs = function.structured_input_signature
    name = _name(function)
    is_tensorflows = tfp.is_function(function) or tfp.is_concrete(function)
    if not isinstance(function, Jit) and not (is_tensorflows and auto_clustering.process.is_on):
        function = Jit(function if tfp.is_function(function) else _plain(function, name))
    try:
        concrete = (
            function
            if tfp.is_concrete(function)
            else _traced(function).get_concrete_function(*args, **kwargs)
        )
    except Exception as error:  # of the function itself
        return Report(name, (), (), f"it cannot be traced: {type(error).__name__}: {error}")
    arguments = _call_arguments(function, concrete, args, kwargs)
    stages: Sequence[Cluster] = ()
    try:
        caller = function if isinstance(function, Jit) else tf_function_hook
        whole = caller.direct_cluster(concrete)
        if whole is None:
            stages = caller.direct_stages(concrete)
    except UnsupportedError:  # strict: the report shows what is in the way
        whole = None
    if whole is not None:
        cluster = _guarded(whole, lambda: _whole(whole, concrete, arguments))
        nodes = {n.name: (n.op, [t.node for t in n.inputs]) for n in whole.graph.nodes.values()}
        graph = op_groups(nodes, dict.fromkeys(nodes, whole.name))
        return Report(name, (cluster,), (), graph=graph, measurement=_measurement(whole, arguments))
    if stages:
        return _stages(name, stages, concrete, arguments)
    return _parts(name, concrete, arguments)


def _stages(
    name: str, stages: Sequence[Cluster], concrete: ConcreteFunction, arguments: Sequence[object]
) -> Report:
    """The report of a function that is compiled in stages: of those that take what others give no dims are known."""
    given = dict(zip((a.name for a in concrete.function_def.signature.input_arg), arguments))
    find = _finder(concrete.graph)

    def explained(cluster: Cluster) -> ClusterReport:
        own = [cluster.arguments[k] for k in cluster.launch_arguments]
        shapes = [shape_of(given[a.name], a.data_type) if a.name in given else None for a in own]
        values: dict[int, Any] = {at: given.get(own[at].name) for at in cluster.launch_constants}
        known = {at: v.numpy() for at, v in values.items() if hasattr(v, "numpy")}
        return _compiled(cluster, [a.name for a in own], shapes, known, [cluster], find)

    nodes = {n.name: (n.op, [t.node for t in n.inputs]) for c in stages for n in c.graph.nodes.values()}
    graph = op_groups(nodes, {n: c.name for c in stages for n in c.graph.nodes})
    reported = tuple(_guarded(c, functools.partial(explained, c)) for c in stages)
    return Report(name, reported, (), graph=graph)


def _measurement(cluster: Cluster, arguments: Sequence[object]) -> Callable[[], Sequence[Event]] | None:
    """Runs code with counters; None where some arguments are no arrays."""
    values = [arguments[k] for k in cluster.launch_arguments]
    if not all(isinstance(value, tf.Tensor) and hasattr(value, "numpy") for value in values):
        return None

    def measure() -> Sequence[Event]:
        measured = profile_cluster(cluster, arguments, _MEASURED_RUNS)
        runs = measured.runs
        return [e._replace(calls=e.calls // runs, ns=e.ns / runs) for e in measured.events]

    return measure


def _traced(function: object) -> Any:
    return function.traced if isinstance(function, Jit) else function


def _name(function: object) -> str:
    """What people call a function, a model or a layer."""
    for label in (getattr(function, "__name__", None), getattr(function, "name", None)):
        if isinstance(label, bytes | str):
            return label.decode() if isinstance(label, bytes) else label
    return type(function).__name__


def _call_arguments(
    function: object, concrete: ConcreteFunction, args: tuple[object, ...], kwargs: dict[str, object]
) -> list[object]:
    """The inputs of a concrete function in a call with these arguments, then the tensors that it captures.

    Of an argument that is a type alone, the symbolic input.
    """
    own = concrete.inputs[: len(concrete.inputs) - len(concrete.captured_inputs)]
    flat = tf.nest.flatten((args, kwargs), expand_composites=True)
    if tfp.is_concrete(function):
        tensors = [v if isinstance(v, tf.Tensor) else getattr(v, "handle", None) for v in flat]
    elif any(isinstance(v, tf.TypeSpec) for v in flat):
        tensors = []
    else:
        tensors = tfp.flat_arguments(_traced(function), concrete, args, kwargs)
    if len(tensors) != len(own):
        tensors = [None] * len(own)
    is_like = [g is not None and g.dtype == o.dtype for g, o in zip(tensors, own)]
    return [*(g if like else o for g, o, like in zip(tensors, own, is_like)), *concrete.captured_inputs]


def _guarded(cluster: Cluster, report: Callable[[], ClusterReport]) -> ClusterReport:
    """The report of a cluster; if that fails, one that says so."""
    try:
        return report()
    except Exception as error:
        return ClusterReport(
            cluster.name,
            cluster.op_count,
            sum(a.is_variable for a in cluster.arguments),
            (),
            (),
            f"it cannot be explained, which is a bug in tfbridge: {type(error).__name__}: {error}",
        )


def _plain(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function as such, of whatever can be called (a Keras model, say)."""
    if hasattr(function, "__name__") and not tfp.is_concrete(function):
        return function

    def call(*args: object, **kwargs: object) -> Any:
        return function(*args, **kwargs)

    call.__name__ = name
    return call


def _whole(cluster: Cluster, concrete: ConcreteFunction, arguments: Sequence[object]) -> ClusterReport:
    names = list(input_names(concrete, arguments).values())
    find = _finder(concrete.graph)
    shapes = [shape_of(arguments[k], cluster.arguments[k].data_type) for k in cluster.launch_arguments]
    values = {at: arguments[cluster.launch_arguments[at]] for at in cluster.launch_constants}
    return _compiled(
        cluster,
        [names[k] for k in cluster.launch_arguments],
        shapes,
        {at: v.numpy() for at, v in values.items() if hasattr(v, "numpy")},
        [cluster],
        find,
    )


def _compiled(
    cluster: Cluster,
    names: Sequence[str],
    shapes: Sequence[Shape | None],
    constants: dict[int, np.ndarray],
    running: Sequence[Cluster],
    find: Callable[[str], tuple[str, int]],
) -> ClusterReport:
    """The report of a cluster, compiled for these shapes of its launch arguments. `running`: what calls of it run."""
    counters = [cluster_registry.counters(c.key) for c in running if cluster_registry.is_registered(c.key)]
    report = ClusterReport(
        cluster.name,
        cluster.op_count,
        sum(a.is_variable for a in cluster.arguments),
        tuple(
            f"{name} {'of unknown shape' if shape is None else shape}" for name, shape in zip(names, shapes)
        ),
        tuple(names[at] for at in cluster.launch_constants),
        runs=sum(c.runs for c in counters),
        fallback_runs=sum(c.fallback_runs for c in counters),
        left=tuple(sum((collections.Counter(c.bailouts) for c in running), collections.Counter()).items()),
        waiting=tuple(
            f"{listed(key[0])}: {why}" for c in running for key, why in c.code.waiting.copy().items()
        ),
        symbolic=tuple(line for c in running for line in described_variants(c)),
        background=tuple(
            f"{listed(key[0])}: {what}" for c in running for key, what in c.code.background.copy().items()
        ),
    )
    full_shapes = [shape for shape in shapes if shape is not None]
    is_open = len(full_shapes) < len(shapes) or constants.keys() != set(cluster.launch_constants)
    made = [c.code.latest() for c in running if c.code.latest() is not None] if is_open else []
    if is_open and not made:
        what = "a shape" if len(full_shapes) < len(shapes) else "a value that picks the code"
        return dataclasses.replace(report, problem=f"not compiled yet: {what} is known only when it runs")
    executable = made[0] if is_open else compile_cluster(cluster, full_shapes, constants)
    if executable is None:
        return dataclasses.replace(
            report, problem=f"runs in TensorFlow: {cluster.code.reason(code_key(full_shapes, constants))}"
        )
    artifact, text = executable.artifact, ", ".join(map(str, full_shapes))
    slower = next((v for c in running if (v := c.slower.get(listed(full_shapes)))), "")
    if slower:
        report = dataclasses.replace(report, problem=f"runs in TensorFlow, which is faster: {slower}")
    seconds = [r.seconds for r in statistics.clusters() if r.name == cluster.name and r.shapes == text]
    return dataclasses.replace(
        report,
        kernels=artifact.kernels,
        temporaries=artifact.temporaries,
        sources=tuple(
            (op, f"{os.path.basename(place[0])}:{place[1]}")
            for op in dict.fromkeys(kernel.ops[0] for kernel in artifact.kernels if kernel.ops)
            if (place := find(op))[0]
        ),
        temp_bytes=artifact.temp_bytes,
        object_bytes=artifact.object_bytes,
        seconds=seconds[-1] if seconds else 0.0,
    )


def _parts(name: str, concrete: ConcreteFunction, arguments: Sequence[object]) -> Report:
    """The report of a function that is compiled in parts, by the graph pass."""
    rewrite_graph.ensure_registered()
    try:
        previewed = reports.preview(concrete)
    except (ValueError, tf.errors.OpError) as error:
        return Report(name, (), (), f"TensorFlow's graph optimizers do not take its graph: {error}")
    if previewed is None:
        return Report(name, (), ())
    report = previewed.report
    inputs = ClusterInputs(concrete, arguments, previewed.original, previewed.rewritten)
    same = [
        r
        for r in reports.recent_reports()
        if _ops(r.clusters) == _ops(report.clusters) and r.unclustered == report.unclustered
    ]

    find = _finder(concrete.graph)

    def explained(cluster: Cluster) -> ClusterReport:
        running = [c for r in same for c in r.clusters if _ops([c]) == _ops([cluster])]
        names, shapes, constants = inputs.arguments(cluster)
        explanation = _compiled(cluster, names, shapes, constants, running, find)
        inputs.add_results(cluster, shapes, constants)
        return explanation

    clusters = tuple(_guarded(c, functools.partial(explained, c)) for c in report.clusters)
    left_out = (LeftOut(n, op, reason, *find(n)) for n, (op, reason) in report.unclustered.items())
    cluster_of = {node: c.name for c in report.clusters for node in c.graph.nodes}
    groups = op_groups(nodes_of_graph_def(previewed.original.node), cluster_of)
    return Report(name, clusters, tuple(left_out), graph=groups)


def _ops(clusters: Iterable[Cluster]) -> set[str]:
    """The names of the ops of clusters, without those that graph optimizers add."""
    return {
        name
        for cluster in clusters
        for name, node in cluster.graph.nodes.items()
        if node.op not in ("_Arg", "Const", "Identity", "NoOp")
    }


def _finder(graph: tf.Graph) -> Callable[[str], tuple[str, int]]:
    """As `source_location.finder`; a node that was inlined from a called function has the line of the call."""
    find = source_location.finder(graph)

    def find_outer(name: str) -> tuple[str, int]:
        parts = name.split("/")
        places = (find("/".join(parts[:n])) for n in range(len(parts), 0, -1))
        return next((place for place in places if place[0]), ("", 0))

    return find_outer
