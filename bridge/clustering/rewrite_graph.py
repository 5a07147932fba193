"""Clustering in the graph pass: of all graphs under auto-clustering, else of what `jit` and `jit_scope` marked."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from ...compiler.cpu.kernel_emitters import load_common
from ...compiler.errors import InternalError
from ...runtime import statistics
from ...runtime.threads import forking
from ..api.options import (
    DEFAULT_OPTIONS,
    MARK,
    JitOptions,
    asked_by,
    current,
    is_strict,
    mark_of_function,
    merged,
)
from ..dispatch import autograph_bypass, tf_function_hook
from ..dispatch.call_plan import Plan
from ..functionalize.functionalize import functionalize
from ..graph.function_library import calls_as_ops
from ..graph.graph import DATAFLOW, GraphNode, from_graph_def, op_definition, read_nodes
from ..launch import kernel as launch_kernel
from ..launch.op import OP
from ..tf_internals import symbols as tfp
from ..translate.translator import Functions
from . import grappler_pass
from .cluster import Cluster
from .encapsulate import outline, refuse_to_run
from .feeds import cut_at_feeds, read_fed_tensors
from .mark_for_compilation import TRIVIAL, decide

_LEAST_IN_PARTS = 2  # compute ops: a launch in the place of one op of a function saves nothing


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of one graph: its clusters, and (op, reason) of the nodes that stayed in TensorFlow."""

    clusters: tuple[Cluster, ...]
    left_out: dict[str, tuple[str, str]]


@dataclasses.dataclass
class _Watch:
    """What the graph pass saw during a preview; `fetched` are the nodes whose results the function returns."""

    fetched: frozenset[str]
    seen: list[tuple[Any, Any, Report]] = dataclasses.field(default_factory=list)


_lock = forking.long_lock()
_minimum: int | None = None  # None: auto-clustering is off
_takes_jit_compile = False
_reports: collections.deque[Report] = collections.deque(maxlen=256)
_watching: contextvars.ContextVar[_Watch | None] = contextvars.ContextVar("tfbridge_watching", default=None)
_log = logging.getLogger("tfbridge.clusters")


def enable_auto_clustering(min_cluster_size: int | None = None, jit_compile: bool = False) -> None:
    """Compiles clusters in every graph that TensorFlow makes from now on in this process.

    min_cluster_size: compute ops that a cluster has at least (default: the flag's). jit_compile: functions and Keras
    models that are made with jit_compile=True from now on are compiled as `jit` does, not by XLA.
    Raises: ValueError  not positive; TensorFlowMismatch  this TensorFlow has no hook for graph passes.
    """
    global _minimum, _takes_jit_compile
    size = DEFAULT_OPTIONS.min_cluster_size if min_cluster_size is None else min_cluster_size
    if size < 1:
        raise ValueError(f"min_cluster_size: {size} is not positive")
    with _lock:
        _minimum, _takes_jit_compile = size, jit_compile
    if jit_compile:
        tfp.on_jit_compile(_in_place_of_xla)
    load_common()
    launch_kernel.prefetch()
    ensure_registered()
    tf_function_hook.stand_in(_options_of, _note_whole)


def disable_auto_clustering() -> None:
    """Leaves graphs made from now on alone, but for what `jit` and `jit_scope` ask for."""
    global _minimum, _takes_jit_compile
    with _lock:
        _minimum, _takes_jit_compile = None, False


def _in_place_of_xla(function: Callable[..., Any], features: Any) -> Callable[..., Any] | None:
    return marked(function, {}, features) if _takes_jit_compile else None


def is_auto_clustering() -> bool:
    """Whether auto-clustering is on."""
    return _minimum is not None


def ensure_registered() -> None:
    """Registers the graph pass with TensorFlow, once."""
    if not grappler_pass.is_registered():
        with _lock:
            tfp.mark_gradients(MARK)
            tfp.optimize_small_graphs()
            grappler_pass.register(_rewrite)


@contextlib.contextmanager
def jit_scope() -> Iterator[None]:
    """Within, every op that is created (in a tf.function or a TF1 graph) is to be compiled."""
    ensure_registered()
    with tfp.attribute_scope(MARK, b"scope"):
        yield


def marked(
    function: Callable[..., Any], options: Mapping[str, Any], features: Any = None, strict: bool = False
) -> Callable[..., Any]:
    """The function, tracing which marks its graph as one to be compiled, with these options. `features`: what
    AutoGraph is asked to do besides its usual work. `strict`: what is not compiled is an error."""
    mark = mark_of_function(options, strict)

    def traced(*args: Any, **kwargs: Any) -> Any:
        with tfp.attribute_afterwards(MARK, mark):
            given = traced.__wrapped__  # type: ignore[attr-defined]
            is_left = features is not None or given is function  # to AutoGraph, or by it
            made = None if is_left else autograph_bypass.converted(function, args, kwargs, True)
            if made is None:
                return given(*args, **kwargs)
            with tfp.converting():
                return made(*args, **kwargs)

    return tfp.decorator(function, traced)


def reports(seen: Collection[Report] = ()) -> tuple[Report, ...]:
    """What became of the graphs met lately, oldest first, but for the reports `seen` before. Old ones are forgotten."""
    known = set(map(id, seen))
    return tuple(report for report in _reports if id(report) not in known)


def preview(concrete: Any) -> tuple[Any, Any, Report] | None:
    """(the graph that the graph pass gets of a concrete function, what it makes of it, its report); changes nothing.

    None when the pass leaves the graph alone.
    """
    ensure_registered()
    watch = _Watch(frozenset(tensor.op.name for tensor in concrete.outputs))
    token = _watching.set(watch)
    try:
        tfp.optimize_graph(concrete)
    finally:
        _watching.reset(token)
    return watch.seen[0] if watch.seen else None


def _rewrite(graph_def: Any, item: grappler_pass.Item) -> Any | None:
    marks = {node.attr[MARK].s for node in graph_def.node if MARK in node.attr}
    asked = _asked(graph_def.node)
    everything = _minimum is not None or bool(asked)
    if not everything and not marks or any(_SEEN in node.attr or node.op == OP for node in graph_def.node):
        return None
    if not marks and grappler_pass.is_data_function(graph_def, item):
        return None
    strict = tuple({_scope(node.name) for node in graph_def.node if is_strict(node.attr)})
    minimum = _minimum if not marks else 1 if b"scope" in marks or strict else _LEAST_IN_PARTS
    options = current(merged(asked), {"min_cluster_size": minimum})

    def wanted(node: GraphNode) -> bool:
        return everything or (MARK in node.attrs and node.attrs[MARK].s == b"scope")

    watch = _watching.get()
    # A function returns by its ends; what else is preserved in it, as reads and writes of variables are, only has to
    # have run. All that is preserved in a session's graph must be found there with its outputs.
    fetched = watch.fetched if watch else frozenset(n.name for n in graph_def.node if n.op == "_Retval")
    barriers: dict[str, str] = {}
    if not watch and not fetched.issuperset(item.fetches):
        fetched = item.nodes_to_preserve
        graph_def, barriers = cut_at_feeds(graph_def, item.nodes_to_preserve, item.fetches)
    result, report = _compiled(graph_def, item.nodes_to_preserve, fetched, options, wanted)
    read_fed_tensors(result, barriers)
    if watch is not None:
        watch.seen.append((graph_def, result, report))
        return None
    _note(report)
    refused = [
        f"{name} ({op}): {reason}"
        for name, (op, reason) in report.left_out.items()
        if name.startswith(strict) and op not in TRIVIAL
    ]
    if refused:
        more = [f"and {len(refused) - _MOST_NAMED} more"] if len(refused) > _MOST_NAMED else []
        lines = "\n  ".join([*refused[:_MOST_NAMED], *more])
        refuse_to_run(result, f"these ops cannot be compiled:\n  {lines}", item.nodes_to_preserve)
    for node in result.node:  # TensorFlow hands every graph over twice
        if node.op not in _UNCOUNTED or node.name in item.nodes_to_preserve:
            node.attr[_SEEN].b = True
    return result


_CALL = re.compile(r"(?:.*/)?(?:Stateful)?PartitionedCall(?:_\d+)?/")
_MOST_NAMED = 32  # ops in an error


def _scope(name: str) -> str:
    """What the names of the nodes of a function begin with, its loops and the functions that it calls included, which
    have no marks: empty in a graph of its own, else the name of the call in the place of which it stands."""
    call = _CALL.match(name)
    return call.group() if call else ""


def _options_of(concrete: Any) -> JitOptions | None:
    """The options for a function that is called as a whole; None: it is not to be compiled, or by XLA."""
    definition = concrete.function_def
    if _minimum is None or definition.attr["_XlaMustCompile"].b:
        return None
    asked = _asked(definition.node_def)
    return current(merged(asked), {"min_cluster_size": 1 if asked else _minimum})


def _asked(nodes: Iterable[Any]) -> list[dict[str, Any]]:
    """The options of the functions that were marked to be compiled, by the marks on their nodes."""
    return asked_by({node.attr[MARK].s for node in nodes if MARK in node.attr})


def _note_whole(plan: Plan) -> None:
    _note(Report((plan.cluster,), {}))


def _note(report: Report) -> None:
    for op, reason in report.left_out.values():
        statistics.leave_out(f"{op}: {reason}")
    _reports.append(report)
    if report.clusters or report.left_out:
        _log.info(
            "%s; %d ops left to TensorFlow%s",
            ", ".join(f"cluster {c.name} of {c.op_count} ops" for c in report.clusters) or "no cluster",
            len(report.left_out),
            "".join(f"\n  {n} ({op}): {r}" for n, (op, r) in report.left_out.items()),
        )


def _compiled(
    graph_def: Any,
    preserved: Collection[str],
    fetched: Collection[str],
    options: JitOptions,
    wanted: Callable[[GraphNode], bool],
) -> tuple[Any, Report]:
    """The graph with its clusters outlined. Loops and branches that are in no cluster stay as TensorFlow has them.

    preserved: nodes whose names must stay. fetched: those of them whose outputs must stay, too.
    """
    excluded: dict[str, str] = {}
    given, graph_def = graph_def, _with_bodies(graph_def)
    nodes = read_nodes(graph_def)
    while True:
        functional = functionalize(graph_def, preserved, excluded, MARK, nodes)
        functions = Functions(
            {f.signature.name: f for f in functional.graph_def.library.function}, options.deny_ops
        )
        graph = from_graph_def(functional.graph_def)
        plan = decide(
            graph,
            functions,
            minimum=options.min_cluster_size,
            fetched=fetched,
            wanted=wanted,
            unrebuilt=functional.reasons,
        )
        stayed: dict[str, str] = {}
        outside = functional.made.difference(*plan.clusters)
        if not outside:
            result, clusters, stayed = outline(
                functional.graph_def, graph, functions, plan.clusters, options, preserved, fetched
            )
            outside = functional.made.difference(*(names for _, names in clusters))
        if not outside:
            break
        if outside <= excluded.keys():
            raise InternalError(f"control flow that was left alone is rebuilt: {', '.join(sorted(outside))}")
        excluded.update((n, plan.left_out.get(n) or stayed.get(n, "it is in no cluster")) for n in outside)
    made = type(graph_def)()
    made.CopyFrom(result)
    made.library.CopyFrom(given.library)
    reasons = plan.left_out | stayed | {n: r for n, r in functional.reasons.items() if n in graph.nodes}
    left_out = {n: (graph.nodes[n].op, r) for n, r in reasons.items() if graph.nodes[n].op not in _UNCOUNTED}
    return made, Report(tuple(cluster for cluster, _ in clusters), left_out)


def _with_bodies(graph_def: Any) -> Any:
    """The graph with the bodies of its functions, of which TensorFlow hands over the signatures only.

    A function whose body is not known (in a graph of TensorFlow 1) is left out; what calls it stays in TensorFlow.
    """
    given = {f.signature.name: f for f in graph_def.library.function}
    found: dict[str, Any] = {}
    names = list(given)
    while names:
        name = names.pop()
        if name in found:
            continue
        definition = given.get(name)
        if definition is None or not (definition.node_def or definition.ret):
            definition = tfp.function_definition(name)
        if definition is not None:
            found[name] = definition
            for node in definition.node_def:
                names += [node.op] if op_definition(node.op) is None else []
                for value in node.attr.values():
                    names += [f.name for f in (value.func, *value.list.func) if f.name]
    if not all(found.get(name) is f for name, f in given.items()):
        graph_def = type(graph_def)(node=graph_def.node, versions=graph_def.versions)
        graph_def.library.function.extend(found.values())
    library = calls_as_ops(graph_def.library)
    if library is not graph_def.library:
        graph_def = type(graph_def)(node=graph_def.node, versions=graph_def.versions, library=library)
    return graph_def


_SEEN = "_tfbridge_seen"
_UNCOUNTED = frozenset(
    {
        "_Arg",
        "_Retval",
        "_DeviceArg",
        "_DeviceRetval",
        "Placeholder",
        "NoOp",
        "Const",
        "Identity",
        "VarHandleOp",
        "ReadVariableOp",
        "AssignVariableOp",
        OP,
    }
) | DATAFLOW - {"LoopCond"}
