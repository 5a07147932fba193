"""Under auto-clustering: eager calls of functions that compile as a whole go past TensorFlow's executor, as `jit`'s do.

TensorFlow traces such a function, and finds the trace for a call, as ever. A call that comes to a concrete function is
answered by its code, and the next one with like arguments is answered at once.
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
from ..api.options import JitOptions
from ..clustering.cluster import Cluster, count_ops
from ..clustering.mark_for_compilation import TRIVIAL
from ..tf_internals import symbols as tfp
from .call_plan import Plan, plan_of
from .dispatch_cache import Calls, has_arrays, with_tensors

_CALLS, _PLAN = "_tfbridge_calls", "_tfbridge_plan"  # attributes of TensorFlow's functions
_MOST_MISSES = 16  # calls in a row without a route, before a function is left to itself

Chosen = Callable[
    [Any], JitOptions | None
]  # the options for a concrete function; None: it is left to TensorFlow

logger = logging.getLogger("tfbridge")
_lock = forking.long_lock()
_chosen: Chosen  # of `stand_in`, from which on there are calls here
_made: Callable[[Plan], object]


@dataclasses.dataclass
class _Reached:
    """The last concrete function that a call of a tf.function came to: its plan and the tensors given."""

    plan: Plan | None = None
    tensors: Sequence[tf.Tensor] = ()


class _Watch(threading.local):
    """Where a first call of this thread wants to be told what it reaches."""

    reached: _Reached | None = None


_watch = _Watch()


class _FunctionCalls(Calls):
    """The calls of one tf.function."""

    _keeps_plans = True

    def __init__(self, function: Any, original: Callable[..., Any]) -> None:
        self._function, self._original = function, original
        self.misses = self.unseen = (
            0  # first calls in a row without a route; calls that TensorFlow knows nothing of
        )
        self._forget_routes()

    def _traced_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._original(self._function, *args, **kwargs)

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with contextlib.suppress(TypeError, ValueError):
            if self._function.input_signature is None and has_arrays(
                (args, kwargs)
            ):  # it would convert them itself
                args, kwargs = with_tensors(args), with_tensors(kwargs)
        tfp.count_calls(self._function, self.unseen)
        self.unseen = 0
        outer, _watch.reached = _watch.reached, _Reached()
        try:
            result = self._traced_call(args, kwargs)
            reached = _watch.reached
        finally:
            _watch.reached = outer
        self.misses += 1
        if reached.plan is None:
            self._note_traced(args, kwargs)
        elif self._note_route(args, kwargs, reached.plan, reached.tensors):
            self.misses = 0
        return result


def stand_in(chosen: Chosen, made: Callable[[Plan], object]) -> None:
    """From now on calls of concrete functions that `chosen` has options for go past TensorFlow's executor, when they
    compile as a whole; `made` is told of each."""
    global _chosen, _made
    _chosen, _made = chosen, made
    if not tfp.missing().keys() & {tfp.FUNCTIONS, tfp.EAGER}:
        tfp.on_eager_calls(_call, _call_concrete)


def direct_cluster(concrete: Any) -> Cluster | None:
    """The cluster that calls of a concrete function run; None when they go through TensorFlow's executor."""
    plan = _plan_of(concrete)
    return None if plan is None else plan.cluster


def leave(concrete: Any) -> None:
    """Has a concrete function run in TensorFlow's executor."""
    concrete.__dict__[_PLAN] = None


def _call(original: Callable[..., Any], function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a tf.function."""
    calls = function.__dict__.get(_CALLS)
    if calls is None:
        calls = function.__dict__.setdefault(_CALLS, _FunctionCalls(function, original))
    if calls.misses > _MOST_MISSES or not _may_stand_in():
        return original(function, *args, **kwargs)
    calls.unseen += 1
    if not kwargs:
        call, pack = calls._way
        result = call(*args)
        if result is not NotImplemented:
            return result if pack is None else pack(result)
    return calls._routed_call(args, kwargs)


def _call_concrete(original: Callable[..., Any], concrete: Any, tensors: Any, captured: Any) -> Any:
    """A call that comes to a concrete function."""
    plan = _plan_of(concrete) if _may_stand_in() and all(type(t) is _eager_tensor for t in tensors) else None
    is_for_it = plan is not None and all(map(operator.is_, captured, plan.captured))
    if _watch.reached is not None:
        _watch.reached = _Reached(plan, tensors) if is_for_it else _Reached()
    if plan is None or not is_for_it:
        return original(concrete, tensors, captured)
    result = plan.run(tensors)
    if plan.cluster.earlier_failure:
        leave(concrete)
        if _watch.reached is not None:
            _watch.reached.plan = None
    return result


def _plan_of(concrete: Any) -> Plan | None:
    try:
        return concrete.__dict__[_PLAN]
    except KeyError:
        with _lock:
            if _PLAN not in concrete.__dict__:
                concrete.__dict__[_PLAN] = _new_plan(concrete)
            return concrete.__dict__[_PLAN]


def _new_plan(concrete: Any) -> Plan | None:
    try:
        options = _chosen(concrete)
        if options is None:
            return None
        with python_settings.compiling():
            plan = plan_of(concrete, options)
    except UnsupportedError:  # the graph pass finds what compiles of it, and reports the rest
        return None
    except Exception as error:
        logger.warning("a function is not compiled as a whole; this is a bug in tfbridge", exc_info=error)
        return None
    size = count_ops(plan.cluster.graph.nodes.values(), plan.cluster.functions, TRIVIAL | {"_Arg"})
    if size < options.min_cluster_size or plan.cluster.has_data_constants:
        return None
    _made(plan)
    return plan


_may_stand_in, _eager_tensor = tfp.may_stand_in, tfp.eager_tensor_type()
