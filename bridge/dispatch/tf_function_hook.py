"""Under auto-clustering: a hook in tf.function and in concrete functions that runs what compiles as a whole, without
TensorFlow's executor.

TensorFlow traces such a function and finds the trace for a call, as usual. The hook runs the code of the concrete
function that a call comes to, and adds an entry to the dispatch cache, so that the next call with such arguments is a
fast call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ...compiler.errors import UnsupportedError
from ...runtime.threads import forking, python_settings
from ..cluster import original_nodes
from ..cluster.cluster import Cluster
from ..cluster.code_cache import bounded
from ..cluster.compute_ops import TRIVIAL, count_ops
from ..cluster.variable_uses import READS
from ..clustering.reports import recent_reports
from ..graph.function_library import nodes_of_functions
from ..graph.graph import op_definition, takes_functions
from ..launch.launch_site import has_no_tensorflow
from ..options.jit_options import JitOptions
from ..options.marks import is_marked
from ..tf_internals import symbols as tfp
from ..tf_internals.types import ConcreteFunction
from . import earlier_functions, fast_call, unclustered_calls
from .call_plan import CallPlan
from .dispatch_cache import (
    MAX_ENTRIES,
    DispatchCache,
    TensorKey,
    as_given_by,
    fit_signature,
    has_arrays,
    with_tensors,
)
from .staged_plan import staged_plan_of

# attributes of TensorFlow's functions
_CALLS, _PLAN, _IN_BACKGROUND = "_tfbridge_calls", "_tfbridge_plan", "_tfbridge_in_background"
_MAX_MISSES = 16  # calls in a row without an entry, after which the hook ignores a function

OptionsOf = Callable[
    [ConcreteFunction], JitOptions | None
]  # for a concrete function; None: TensorFlow runs it

logger = logging.getLogger("tfbridge")
_lock = forking.long_lock()
_options_of: OptionsOf  # set by `install`, as is `_on_plan`
_on_plan: Callable[[CallPlan], object]


_Early = tuple[ConcreteFunction, Sequence[tf.Tensor]]  # a function that is not ready, and what it captured


@dataclasses.dataclass
class _Reached:
    """The last concrete function that a call of a tf.function came to: its plan, and its arguments as tensors.

    early: the function, while it is not known whether there is a plan.
    """

    plan: CallPlan | None = None
    tensors: Sequence[tf.Tensor] = ()
    early: _Early | None = None


class _FirstCall(threading.local):
    """Where a first call of this thread learns which concrete function it reaches."""

    reached: _Reached | None = None


_first_call_state = _FirstCall()


class _FunctionCalls(DispatchCache):
    """The calls of one tf.function."""

    _keeps_varying_plans = True

    def __init__(self, function: Any, original: Callable[..., Any]) -> None:
        self._function, self._original = function, original
        self.misses = self.unseen = (
            0  # first calls in a row without an entry; calls that TensorFlow knows nothing of
        )
        self._early: dict[tuple[TensorKey, ...], _Early] = {}  # by the arguments of calls that came to it
        self._clear_cache()

    def _traced_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        return self._original(self._function, *args, **kwargs)

    def _signature(self) -> Sequence[Any] | None:
        return self._function.input_signature

    def _first_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        if self._early and not kwargs:
            result = self._early_call(args)
            if result is not NotImplemented:
                return result
        with contextlib.suppress(TypeError, ValueError):
            has_signature = self._signature() is not None
            if has_arrays((args, kwargs)) and not (has_signature and kwargs):  # else it converts them itself
                args, kwargs = self._with_tensors(args), with_tensors(kwargs)
        self._tell_of_unseen_calls()
        self.unseen = 0
        outer, _first_call_state.reached = _first_call_state.reached, _Reached()
        try:
            result = self._traced_call(args, kwargs)
            reached = _first_call_state.reached
        finally:
            _first_call_state.reached = outer
        if reached.early is not None:
            is_plain = not kwargs and len(args) == len(reached.tensors)
            is_same = is_plain and all(map(operator.is_, args, reached.tensors))
            if is_same and not tfp.makes_captures_anew(reached.early[0]):
                key = tuple(map(tfp.tensor_key, reached.tensors))
                bounded(self._early, MAX_ENTRIES)[key] = reached.early
            return result
        self.misses += 1
        if reached.plan is None:
            self._add_traced(args, kwargs)
        elif self._add_entry(args, kwargs, reached.plan, reached.tensors):
            self.misses = 0
        return result

    def _tell_of_unseen_calls(self) -> None:
        tfp.count_calls(self._function, self.unseen)

    def _early_call(self, args: tuple[Any, ...]) -> Any:
        """A call of a concrete function that TensorFlow serves until it is made ready: one to which a call with tensors
        of these types and dims came before, or that serves all which fit the signature. NotImplemented: TensorFlow has
        to find the function."""
        try:
            key = tuple(map(tfp.tensor_key, args))
        except AttributeError:
            return NotImplemented
        early = self._early.get(key)
        if early is None and fit_signature(key, self._signature()):
            early = next(iter(self._early.values()))
        if early is None:
            return NotImplemented
        concrete, captured = early
        if _PLAN in concrete.__dict__ or has_no_tensorflow():
            self._early.clear()
            return NotImplemented
        return unclustered_calls.first_call(_prepare, concrete, args, captured)


class _ConcreteCalls(_FunctionCalls):
    """The calls of one concrete function: one trace of a tf.function, a signature of a SavedModel."""

    def __init__(self, function: Any, original: Callable[..., Any]) -> None:
        super().__init__(function, original)
        self._keywords: dict[str, Any] = (function.structured_input_signature or ((), {}))[1]

    def _signature(self) -> Sequence[Any] | None:
        return None

    def _tell_of_unseen_calls(self) -> None:
        pass

    def _with_tensors(self, args: tuple[object, ...]) -> tuple[Any, ...]:
        if has_arrays(args):
            raise TypeError("TensorFlow tells that it does not convert them")
        return args

    def _structured_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """As for any function; TensorFlow converts arrays of keywords alone, to the types of the signature."""
        arrays = {n: v for n, v in kwargs.items() if type(v) is not _eager_tensor and has_arrays(v)}
        if any(type(self._keywords.get(name)) is not tf.TensorSpec for name in arrays):
            return self._traced_call(args, kwargs)
        try:
            tensors = {name: as_given_by(self._keywords[name], value) for name, value in arrays.items()}
        except (TypeError, ValueError):
            return self._traced_call(args, kwargs)
        return super()._structured_call(args, kwargs | tensors)


def install(options_of: OptionsOf, on_plan: Callable[[CallPlan], object]) -> None:
    """Installs the hook for concrete functions that `options_of` has options for; `on_plan` gets the plan of each."""
    global _options_of, _on_plan
    _options_of, _on_plan = options_of, on_plan
    if not tfp.missing().keys() & {tfp.FUNCTIONS, tfp.EAGER}:
        tfp.on_eager_calls(_call, _call, _call_with_tensors)


def direct_cluster(concrete: ConcreteFunction) -> Cluster | None:
    """The cluster that calls of a concrete function run; None when they go through TensorFlow's executor, or run
    several."""
    plan = _plan_of(concrete)
    return None if plan is None or plan.earlier else plan.cluster


def direct_stages(concrete: ConcreteFunction) -> Sequence[Cluster]:
    """The clusters that calls of a concrete function run one after the other; none as above."""
    plan = _plan_of(concrete)
    return () if plan is None else plan.clusters


def run_in_tensorflow(concrete: ConcreteFunction) -> None:
    """Has TensorFlow's executor run a concrete function from now on."""
    concrete.__dict__[_PLAN] = None


def _call(
    original: Callable[..., Any], function: Any, args: tuple[object, ...], kwargs: dict[str, object]
) -> Any:
    """A call of a tf.function or of a concrete one."""
    calls = function.__dict__.get(_CALLS)
    if calls is None:
        kind = _ConcreteCalls if tfp.is_concrete(function) else _FunctionCalls
        calls = function.__dict__.setdefault(_CALLS, kind(function, original))
    if calls.misses > _MAX_MISSES or not _may_hook_calls():
        return original(function, *args, **kwargs)
    calls.unseen += 1
    if not kwargs:
        call, pack = calls._fast_path
        result = call(*args)
        if result is not NotImplemented:
            return result if pack is None else pack(result)
    return calls._cached_call(args, kwargs)


def _call_with_tensors(
    original: Callable[..., Any],
    concrete: ConcreteFunction,
    tensors: Sequence[tf.Tensor],
    captured: Sequence[tf.Tensor],
) -> Any:
    """A call that comes to a concrete function."""
    if _PLAN not in concrete.__dict__ and _may_be_prepared(concrete, tensors):
        if _first_call_state.reached is not None:
            _first_call_state.reached = _Reached(None, tensors, (concrete, captured))
        return unclustered_calls.first_call(_prepare, concrete, tensors, captured)
    plan = (
        _plan_of(concrete) if _may_hook_calls() and all(type(t) is _eager_tensor for t in tensors) else None
    )
    fits = plan is not None and all(map(operator.is_, captured, plan.captured))
    if _first_call_state.reached is not None:
        _first_call_state.reached = _Reached(plan, tensors) if fits else _Reached()
    if plan is None or not fits:
        if _may_hook_calls() and concrete.__dict__.get(_PLAN, concrete) is None:
            return unclustered_calls.call(
                lambda tensors: original(concrete, tensors, captured), concrete, tensors, captured
            )
        return original(concrete, tensors, captured)
    result = plan.run(tensors)
    if plan.has_failed():
        run_in_tensorflow(concrete)
        if _first_call_state.reached is not None:
            _first_call_state.reached.plan = None
    return result


def _may_be_prepared(concrete: ConcreteFunction, tensors: Sequence[tf.Tensor]) -> bool:
    """Whether TensorFlow serves the calls of a concrete function until it is known what of it compiles: not where the
    disk cache may have its code."""
    if not _may_hook_calls() or has_no_tensorflow() or any(type(t) is not _eager_tensor for t in tensors):
        return False
    known: bool | None = concrete.__dict__.get(_IN_BACKGROUND)
    if known is None:
        options = _options_of(concrete)
        known = concrete.__dict__[_IN_BACKGROUND] = (
            options is not None
            and not earlier_functions.note(concrete, options)
            and not options.in_foreground(True)
            and options.background_share > 0
            and not is_marked(concrete)
        )
    return known


def _prepare(
    concrete: ConcreteFunction, calls: list[unclustered_calls.Arguments], captured: Sequence[tf.Tensor]
) -> None:
    """Makes the plan of a function and asks for the code of calls; where there is no plan, its graph is clustered. Then
    makes ready what later calls use: what runs the clusters in TensorFlow until there is code, and fast calls."""
    plan, earlier = _new_plan(concrete), recent_reports()
    if plan is None:
        tfp.prepare(concrete, [*unclustered_calls.as_tensors(calls[0]), *captured])
        clusters = [cluster for report in recent_reports(earlier) for cluster in report.clusters]
    else:
        clusters = list(plan.clusters)
    for cluster in clusters:
        cluster.served.pay()
    if plan is not None:
        _ask_for_code(plan, calls, captured)
    for cluster in clusters:
        cluster.digest = cluster.digest  # computed here, not by the call that asks whether there is code
        original_nodes.prepare(cluster)
    concrete.__dict__.setdefault(_PLAN, plan)
    if plan is not None:
        _ask_for_code(plan, calls, captured)
    calls.clear()
    with contextlib.suppress(Exception):  # a call that needs what cannot be loaded tells why
        fast_call.load()


def _ask_for_code(
    plan: CallPlan, calls: list[unclustered_calls.Arguments], captured: Sequence[tf.Tensor]
) -> None:
    """Has the launch of a plan note that there were such calls, which are removed."""
    # Where another function has brought code for the call, that runs: it must have no effects.
    if any(map(_has_effects, plan.clusters)) or not all(map(operator.is_, captured, plan.captured)):
        return
    asked, calls[:] = {str([a.shape for a in arguments]): arguments for arguments in calls}, []
    for arguments in asked.values():
        with contextlib.suppress(tf.errors.OpError):
            # This only notes what is called for: see `_fall_back` of the launch op.
            plan.run(unclustered_calls.as_tensors(arguments))


def _has_effects(cluster: Cluster) -> bool:
    """Whether a run changes anything: variables, or the state of random numbers."""
    nodes = [*cluster.graph.nodes.values(), *nodes_of_functions(cluster.graph, cluster.functions)]
    ops = {node.op for node in nodes} - READS - {"_Arg"}
    return bool(cluster.written) or any(
        (definition := op_definition(op)) is not None and definition.is_stateful and not takes_functions(op)
        for op in ops
    )


def _plan_of(concrete: ConcreteFunction) -> CallPlan | None:
    try:
        return concrete.__dict__[_PLAN]
    except KeyError:
        with _lock:
            if _PLAN not in concrete.__dict__:
                concrete.__dict__[_PLAN] = _new_plan(concrete)
            return concrete.__dict__[_PLAN]


def _new_plan(concrete: ConcreteFunction) -> CallPlan | None:
    if tfp.has_symbolic_captures(concrete):  # which are others in each call
        return None
    try:
        options = _options_of(concrete)
        if options is None:
            return None
        with python_settings.compiling():
            plan = staged_plan_of(concrete, options)
    except UnsupportedError:  # the graph pass finds what compiles of it, and reports the rest
        return None
    except Exception as error:
        logger.warning("a function is not compiled as a whole; this is a bug in tfbridge", exc_info=error)
        return None
    size = sum(count_ops(c.graph.nodes.values(), c.functions, TRIVIAL | {"_Arg"}) for c in plan.clusters)
    if size < options.min_cluster_size or any(c.has_data_constants for c in plan.clusters):
        return None
    unclustered_calls.route(plan, concrete)
    _on_plan(plan)
    return plan


_may_hook_calls, _eager_tensor = tfp.may_hook_calls, tfp.eager_tensor_type()
