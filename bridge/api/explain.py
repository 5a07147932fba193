"""`tfbridge.explain`: what of a function is compiled, what is not and why, and what the code is made of.

A function that compiles as a whole is one cluster. Over the graph of another one TensorFlow's graph optimizers are
run, so that the report shows the clusters that a call makes. Nothing is executed: variables keep their values.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...compiler.errors import UnsupportedError
from ...compiler.ir.shape import Shape
from ...runtime import statistics
from ...runtime.code.artifact import KernelInfo
from ..clustering import rewrite_graph
from ..clustering.cluster import Cluster
from ..dispatch import tf_function_hook
from ..launch import op as launch_op
from ..tf_internals import symbols as tfp
from ..tf_internals.dtypes import element_type, make_ndarray
from . import source_location
from .jit import Jit

_UNKNOWN = "a shape is known only when it runs"


@dataclasses.dataclass(frozen=True)
class ClusterReport:
    """One cluster: how many TensorFlow ops it replaces, and the code for the shapes asked about.

    `keyed_by_value`: arguments whose values, not only shapes, pick the code. `problem`: why there is no code.
    `runs` and `fallback_runs`: calls so far of compiled code and in TensorFlow, for all shapes. `left`: assumptions of
    compiled code that did not hold for data (the op, and what was wrong), with the number of runs that TensorFlow did.
    Units: temp_bytes and object_bytes are bytes; seconds is what making the code ready took.
    """

    name: str
    ops: int
    variables: int
    arguments: tuple[str, ...]
    keyed_by_value: tuple[str, ...]
    problem: str = ""
    kernels: tuple[KernelInfo, ...] = ()
    temp_bytes: int = 0
    object_bytes: int = 0
    seconds: float = 0.0
    runs: int = 0
    fallback_runs: int = 0
    left: tuple[tuple[str, int], ...] = ()

    @property
    def flops(self) -> int:
        """Floating-point operations of a call."""
        return sum(kernel.flops for kernel in self.kernels)

    @property
    def bytes(self) -> int:
        """Bytes of memory traffic of a call."""
        return sum(kernel.bytes for kernel in self.kernels)


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """An op that runs in TensorFlow, and where the program makes it (an empty file: not known)."""

    name: str
    op: str
    reason: str
    file: str = ""
    line: int = 0


@dataclasses.dataclass(frozen=True)
class Report:
    """What becomes of a function; `str()` of it is for people, `html()` is a page.

    `problem`: why nothing is known of it, or of some of it; empty when all is.
    """

    function: str
    clusters: tuple[ClusterReport, ...]
    left_out: tuple[LeftOut, ...]
    problem: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether all of the function is one cluster with code."""
        problem = self.problem or next((c.problem for c in self.clusters if c.problem), "")
        return len(self.clusters) == 1 and not self.left_out and not problem

    def __str__(self) -> str:
        compiled = sum(c.ops for c in self.clusters if not c.problem)
        every = sum(c.ops for c in self.clusters) + len(self.left_out)
        many = "1 cluster" if len(self.clusters) == 1 else f"{len(self.clusters)} clusters"
        lines = [f"{self.function}: {compiled} of {every} ops compiled, in {many}"]
        if self.problem:
            lines[0] = f"{self.function}: {self.problem}"
        for cluster in self.clusters:
            lines += ["", *_cluster_lines(cluster)]
        if self.left_out:
            lines += ["", "left to TensorFlow:"]
        for one in self.left_out:
            lines.append(f"  {one.op} {one.name}: {one.reason}")
            if one.file:
                lines.append(f"    at {one.file}:{one.line}")
        return "\n".join(lines)

    def html(self) -> str:
        """The report as one page without references to other files."""
        kernels = "".join(
            f"<h2>{html.escape(c.name)}</h2><p>{html.escape('; '.join(_cluster_lines(c, kernels=False)[1:]))}</p>"
            + _table(
                ("kernel", "tasks", "flops", "bytes", "ops"),
                [
                    (k.name, f"{k.tasks:,}", f"{k.flops:,}", f"{k.bytes:,}", ", ".join(k.ops))
                    for k in c.kernels
                ],
            )
            for c in self.clusters
        )
        left = _table(
            ("op", "node", "reason", "source"),
            [(o.op, o.name, o.reason, f"{o.file}:{o.line}" if o.file else "") for o in self.left_out],
        )
        return (
            "<!DOCTYPE html><meta charset=utf-8><style>body{font:14px sans-serif;margin:2em}table{border-collapse:"
            "collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}</style>"
            f"<title>{html.escape(self.function)}</title><h1>{html.escape(str(self).splitlines()[0])}</h1>{kernels}"
            + (f"<h2>left to TensorFlow</h2>{left}" if self.left_out else "")
        )

    _repr_html_ = html


def explain(function: Any, *args: Any, **kwargs: Any) -> Report:
    """What becomes of a function when it is called with these arguments; compiles it for them, does not run it.

    `function` may be compiled by `jit`, a tf.function, a concrete function (without arguments: for those that it was
    traced for) or a plain function; all but the first are explained as `jit` would compile them or, TensorFlow's
    functions under auto-clustering, as that does. Arguments may be TensorSpecs. A function that cannot be traced gets
    a report with that as its `problem`.
    """
    while isinstance(function, functools.partial):
        function, args, kwargs = function.func, (*function.args, *args), {**function.keywords, **kwargs}
    if tfp.is_concrete(function) and not args and not kwargs:
        args, kwargs = function.structured_input_signature
    name = _name(function)
    is_tensorflows = tfp.is_function(function) or tfp.is_concrete(function)
    if not isinstance(function, Jit) and not (is_tensorflows and rewrite_graph.is_auto_clustering()):
        function = Jit(function if tfp.is_function(function) else _plain(function, name))
    try:
        concrete = (
            function
            if tfp.is_concrete(function)
            else _traced(function).get_concrete_function(*args, **kwargs)
        )
    except Exception as error:  # of the function itself
        return Report(name, (), (), f"it cannot be traced: {type(error).__name__}: {error}")
    given = _given(function, concrete, args, kwargs)
    try:
        whole = (function if isinstance(function, Jit) else tf_function_hook).direct_cluster(concrete)
    except UnsupportedError:  # strict: the report shows what is in the way
        whole = None
    if whole is not None:
        return Report(name, (_guarded(whole, lambda: _whole(whole, concrete, given)),), ())
    return _parts(name, concrete, given)


def _traced(function: Any) -> Any:
    return function.traced if isinstance(function, Jit) else function


def _name(function: Any) -> str:
    """What people call a function, a model or a layer."""
    for found in (getattr(function, "__name__", None), getattr(function, "name", None)):
        if isinstance(found, bytes | str):
            return found.decode() if isinstance(found, bytes) else found
    return type(function).__name__


def _given(function: Any, concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What a concrete function's inputs are in a call with these arguments, what it captures behind them: tensors, or
    the input itself where only its type is given."""
    own = concrete.inputs[: len(concrete.inputs) - len(concrete.captured_inputs)]
    flat = tf.nest.flatten((args, kwargs), expand_composites=True)
    if tfp.is_concrete(function):
        given = [v if isinstance(v, tf.Tensor) else getattr(v, "handle", None) for v in flat]
    elif any(isinstance(v, tf.TypeSpec) for v in flat):
        given = []
    else:
        given = tfp.flat_arguments(_traced(function), concrete, args, kwargs)
    if len(given) != len(own):
        given = [None] * len(own)
    is_like = [g is not None and g.dtype == o.dtype for g, o in zip(given, own)]
    return [*(g if like else o for g, o, like in zip(given, own, is_like)), *concrete.captured_inputs]


def _guarded(cluster: Cluster, report: Callable[[], ClusterReport]) -> ClusterReport:
    """The report of a cluster; where making it fails, one that says so."""
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

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__name__ = name
    return call


def _names(concrete: Any, given: Sequence[Any]) -> dict[str, str]:
    """How the inputs of a concrete function's graph are called: variables by their own name."""
    variables = {id(v.handle): v.name.partition(":")[0] for v in concrete.graph.variables}
    return {
        tensor.op.name: variables.get(id(value), tensor.op.name)
        for tensor, value in zip(concrete.inputs, given)
    }


def _whole(cluster: Cluster, concrete: Any, given: Sequence[Any]) -> ClusterReport:
    names = list(_names(concrete, given).values())
    shapes = [_shape(given[k], cluster.arguments[k].data_type) for k in cluster.launch_arguments]
    values = {at: given[cluster.launch_arguments[at]] for at in cluster.launch_constants}
    return _compiled(
        cluster,
        [names[k] for k in cluster.launch_arguments],
        shapes,
        {at: v.numpy() for at, v in values.items() if hasattr(v, "numpy")},
        [cluster],
    )


def _shape(given: Any, data_type: int) -> Shape | None:
    """The shape of an argument (of a variable: of its value); None when it is not wholly known."""
    type_ = element_type(data_type)
    dims = tfp.content_shape(given, tf.as_dtype(data_type)) if given.dtype == tf.resource else given.shape
    return Shape(type_, tuple(dims)) if type_ is not None and dims.is_fully_defined() else None


def _compiled(
    cluster: Cluster,
    names: Sequence[str],
    shapes: Sequence[Shape | None],
    constants: dict[int, np.ndarray],
    running: Sequence[Cluster],
) -> ClusterReport:
    """The report of a cluster, compiled for these shapes of its launch arguments. `running`: what calls of it run."""
    counters = [launch_op.counters(c.key) for c in running if launch_op.is_registered(c.key)]
    made = ClusterReport(
        cluster.name,
        cluster.op_count,
        sum(a.is_variable for a in cluster.arguments),
        tuple(
            f"{name} {'of unknown shape' if shape is None else shape}" for name, shape in zip(names, shapes)
        ),
        tuple(names[at] for at in cluster.launch_constants),
        runs=sum(c.runs for c in counters),
        fallback_runs=sum(c.fallback_runs for c in counters),
        left=tuple(sum((collections.Counter(c.left) for c in running), collections.Counter()).items()),
    )
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or constants.keys() != set(cluster.launch_constants):
        what = (
            _UNKNOWN if len(known) < len(shapes) else "a value that picks the code is known only when it runs"
        )
        return dataclasses.replace(made, problem=f"not compiled yet: {what}")
    executable = cluster.compile(known, constants)
    if executable is None:
        return dataclasses.replace(made, problem=f"runs in TensorFlow: {cluster.failure(known, constants)}")
    artifact, text = executable.artifact, ", ".join(map(str, known))
    slower = next((v for c in running if (v := c.slower.get(text or "no arguments"))), "")
    if slower:
        made = dataclasses.replace(made, problem=f"runs in TensorFlow, which is faster: {slower}")
    seconds = [r.seconds for r in statistics.clusters() if r.name == cluster.name and r.shapes == text]
    return dataclasses.replace(
        made,
        kernels=artifact.kernels,
        temp_bytes=artifact.temp_bytes,
        object_bytes=artifact.object_bytes,
        seconds=seconds[-1] if seconds else 0.0,
    )


def _parts(name: str, concrete: Any, given: Sequence[Any]) -> Report:
    """The report of a function that is compiled in parts, by the graph pass."""
    try:
        seen = rewrite_graph.preview(concrete)
    except (ValueError, tf.errors.OpError) as error:
        return Report(name, (), (), f"TensorFlow's graph optimizers do not take its graph: {error}")
    if seen is None:
        return Report(name, (), ())
    before, after, report = seen
    outside = _Outside(concrete, given, before, after)
    same = [
        r
        for r in rewrite_graph.reports()
        if _ops(r.clusters) == _ops(report.clusters) and r.left_out == report.left_out
    ]

    def explained(cluster: Cluster) -> ClusterReport:
        running = [c for r in same for c in r.clusters if _ops([c]) == _ops([cluster])]
        names, shapes, constants = outside.arguments(cluster)
        made = _compiled(cluster, names, shapes, constants, running)
        outside.add_results(cluster, shapes, constants)
        return made

    clusters = tuple(_guarded(c, functools.partial(explained, c)) for c in report.clusters)
    find = _finder(concrete.graph)
    left = (LeftOut(n, op, reason, *find(n)) for n, (op, reason) in report.left_out.items())
    return Report(name, clusters, tuple(left))


def _ops(clusters: Iterable[Cluster]) -> set[str]:
    """Names of the ops of clusters, but for what graph optimizers make anew."""
    return {
        name
        for cluster in clusters
        for name, node in cluster.graph.nodes.items()
        if node.op not in ("_Arg", "Const", "Identity", "NoOp")
    }


class _Outside:
    """Shapes and values of what goes into the clusters of a graph."""

    def __init__(self, concrete: Any, given: Sequence[Any], before: Any, after: Any) -> None:
        self.given = {tensor.op.name: value for tensor, value in zip(concrete.inputs, given)}
        self.names = _names(concrete, given)
        self.nodes = {node.name: node for node in after.node}
        self.launches = {
            node.attr["cluster"].s.decode(): node for node in after.node if node.op == launch_op.OP
        }
        self.results: dict[str, tuple[Shape | None, ...]] = {}
        self.graph = tf.Graph()
        nodes = {node.name: node for node in before.node}
        for node in before.node:
            self._tell_shape(node, nodes)
            node.attr.pop("_class", None)  # it may name a node that graph optimizers took out
        with (
            self.graph.as_default(),
            contextlib.suppress(ValueError, tf.errors.OpError),
        ):  # then no shapes are known
            tf.import_graph_def(before, name="")

    def _tell_shape(self, node: Any, nodes: Mapping[str, Any]) -> None:
        """Gives an argument its shape; a read of a variable becomes a placeholder of the variable's shape."""
        if node.op == "ReadVariableOp":
            dims = self._variable_dims(
                _origin(node.input[0], nodes)[0], nodes, tf.as_dtype(node.attr["dtype"].type)
            )
            if dims.rank is None:
                return
            node.op = "Placeholder"
            del node.input[:]
        elif (
            node.op == "Placeholder"
            and node.name in self.given
            and self.given[node.name].dtype != tf.resource
        ):
            dims = self.given[node.name].shape
        else:
            return
        node.attr["shape"].shape.CopyFrom(dims.as_proto())

    def _variable_dims(self, name: str, nodes: Mapping[str, Any], dtype: tf.DType) -> tf.TensorShape:
        """The shape of a variable's value: of one that is given, or that the graph itself makes."""
        if name in self.given:
            return tfp.content_shape(self.given[name], dtype)
        node = nodes.get(name)
        is_made = node is not None and node.op == "VarHandleOp"
        return tf.TensorShape(node.attr["shape"].shape if is_made else None)  # type: ignore[union-attr]

    def arguments(self, cluster: Cluster) -> tuple[list[str], list[Shape | None], dict[int, np.ndarray]]:
        """Names and shapes of the launch arguments; by position, the values that pick the code, as far as known."""
        inputs = [text for text in self.launches[cluster.key].input if not text.startswith("^")]
        types = [cluster.arguments[k].data_type for k in cluster.launch_arguments]
        shapes = [self._shape(text, type_) for text, type_ in zip(inputs, types)]
        values = {at: self._value(inputs[at]) for at in cluster.launch_constants}
        return (
            [self._name(text) for text in inputs],
            shapes,
            {k: v for k, v in values.items() if v is not None},
        )

    def add_results(
        self, cluster: Cluster, shapes: Sequence[Shape | None], constants: dict[int, np.ndarray]
    ) -> None:
        """Notes the shapes of what a cluster makes, for those that read it."""
        if None not in shapes and constants.keys() == set(cluster.launch_constants):
            executable = cluster.compile([s for s in shapes if s is not None], constants)
            if executable is not None:
                types, made = [element_type(t) for t in cluster.result_types], executable.artifact
                self.results[self.launches[cluster.key].name] = tuple(
                    None if t is None or k in made.sizes else Shape(t, r.dims)
                    for k, (t, r) in enumerate(zip(types, made.results))
                )

    def _source(self, text: str) -> tuple[str, int]:
        """Node and output number behind an input; of a variable or its value, where the variable comes from."""
        name, index = _split(text)
        node = self.nodes[name]
        if node.op == "ReadVariableOp":
            return _origin(node.input[0], self.nodes)
        is_handle = any(node.attr[a].type == _RESOURCE for a in ("T", "dtype") if a in node.attr)
        return _origin(text, self.nodes) if is_handle else (name, index)

    def _name(self, text: str) -> str:
        name, index = self._source(text)
        if self.nodes[name].op == launch_op.OP:
            return f"result {index} of {self.nodes[name].attr['cluster'].s.decode().partition('#')[0]}"
        return self.names.get(name, f"{name}:{index}" if index else name)

    def _shape(self, text: str, data_type: int) -> Shape | None:
        name, index = self._source(text)
        if name in self.results:
            return self.results[name][index]
        if name in self.given:
            return _shape(self.given[name], data_type)
        if self.nodes[name].op == "VarHandleOp":
            dims, type_ = (
                self._variable_dims(name, self.nodes, tf.as_dtype(data_type)),
                element_type(data_type),
            )
            return Shape(type_, tuple(dims)) if type_ is not None and dims.is_fully_defined() else None
        try:
            return _shape(self.graph.get_tensor_by_name(f"{name}:{index}"), data_type)
        except (KeyError, ValueError):  # a node that clustering made, a rebuilt loop
            return None

    def _value(self, text: str) -> np.ndarray | None:
        name = text.partition(":")[0]
        given = self.given.get(name)
        if given is not None and hasattr(given, "numpy"):
            return np.asarray(given.numpy())
        return make_ndarray(self.nodes[name].attr["value"].tensor) if self.nodes[name].op == "Const" else None


_RESOURCE = int(tf.resource.as_datatype_enum)
# What hands a variable on: into and through loops and branches.
_HANDING_ON = frozenset({"Identity", "Enter", "Switch", "_SwitchN", "Merge", "Exit", "NextIteration"})


def _split(text: str) -> tuple[str, int]:
    name, _, index = text.partition(":")
    return name, int(index or 0)


def _origin(text: str, nodes: Mapping[str, Any]) -> tuple[str, int]:
    """Node and output number of what a handle is, before it was handed on."""
    name, index = _split(text)
    while name in nodes and nodes[name].op in _HANDING_ON:
        name, index = _split(nodes[name].input[0])
    return name, index


def _finder(graph: Any) -> Callable[[str], tuple[str, int]]:
    """Like `source.finder`; a node that was inlined from a called function gets the line of the call."""
    find = source_location.finder(graph)

    def find_outer(name: str) -> tuple[str, int]:
        parts = name.split("/")
        places = (find("/".join(parts[:n])) for n in range(len(parts), 0, -1))
        return next((place for place in places if place[0]), ("", 0))

    return find_outer


def _cluster_lines(cluster: ClusterReport, kernels: bool = True) -> list[str]:
    lines = [
        f"cluster {cluster.name}",
        f"  {cluster.ops} ops, {cluster.variables} variables; takes {', '.join(cluster.arguments) or 'nothing'}",
    ]
    if cluster.keyed_by_value:
        lines.append(f"  compiled anew for every value of {', '.join(cluster.keyed_by_value)}")
    if cluster.problem:
        lines.append(f"  {cluster.problem}")
    else:
        lines.append(
            f"  {len(cluster.kernels)} kernels, {cluster.flops:,} flops, {cluster.bytes:,} bytes moved, "
            f"{cluster.temp_bytes:,} bytes temporary, {cluster.object_bytes:,} bytes of code; "
            f"compiled in {cluster.seconds:.3f} s"
        )
    lines.append(f"  runs so far: {cluster.runs} compiled, {cluster.fallback_runs} in TensorFlow")
    lines += [f"  left to TensorFlow {count} times: {why}" for why, count in cluster.left]
    if kernels:
        lines += [
            f"    {k.name}: {k.tasks:,} tasks, {k.flops:,} flops, {k.bytes:,} bytes: {', '.join(k.ops)}"
            for k in cluster.kernels
        ]
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>" if rows else ""
