"""Calls of functions whose clusters have no code yet: TensorFlow runs the function as if there were no clusters.

A cluster that TensorFlow runs costs more than its nodes would in the function's own graph. So after a call that met
clusters without code, some calls go to a second form of the function, which the graph pass leaves alone; then one goes
through the clusters again, to see what they have, and to have counted what they lack. The second form is made in the
background, by a call that is cancelled before it runs.

A function is clustered once TensorFlow has served it for so long that code may pay. First calls are slow as they are:
nothing is made ready while one of them runs.
"""

from __future__ import annotations

import contextvars
import functools
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ...runtime import statistics
from ...runtime.threads import background
from ..launch import coverage
from ..launch.compile_policy import Served
from ..tf_internals import symbols as tfp
from ..tf_internals.types import ConcreteFunction
from .call_plan import CallPlan

_MAX_CALLS = 64  # of the second form in a row
_MAX_WAIT_SECONDS = 60.0  # of calls served, for first calls that do not end
_MAX_EARLY_CALLS = 8  # whose arguments are kept until their code is asked for
_MAX_KEPT_BYTES = 1 << 16  # of an argument; of a larger one its shape is
_CALLS = "_tfbridge_unclustered"  # attribute of concrete functions

Run = Callable[[Sequence[tf.Tensor]], Any]
Arguments = Sequence[tf.Tensor | tf.TensorSpec]
Prepare = Callable[[ConcreteFunction, list[Arguments], Sequence[tf.Tensor]], None]

_running: list[
    None
] = []  # an item for each call that runs: of several, nobody knows whose clusters had no code


class _Calls:
    """What is known of a concrete function: its calls in a row that met clusters without code, how many calls are to go
    to the second form until how much code is published, and how many have gone since the last one that did not."""

    def __init__(self, is_ready: bool = False) -> None:
        self.misses = self.remaining = self.publications = self.uncounted = 0
        self.is_ready = is_ready
        self.served = Served()  # before the function was made ready
        self.first: list[None] = []  # an item for each running call that began before one had ended
        self.early: list[Arguments] = []  # of those calls, with what the caller passed for symbolic captures
        self.asked: float | None = None  # the priority with which that was asked for

    @property
    def is_first_running(self) -> bool:
        """Whether first calls are waited for."""
        return bool(self.first) and self.served.seconds < _MAX_WAIT_SECONDS

    def take(self) -> bool:
        """Whether the next call goes to the second form."""
        if not self.remaining or self.publications != coverage.process.publications:
            return False
        self.remaining -= 1
        self.uncounted += 1
        return True

    def note(self, missed: bool, publications: int) -> None:
        """Notes whether a call met clusters without code, when so much was published."""
        earlier = (
            self.misses if publications == self.publications else 0
        )  # code that has come may serve others
        self.misses = earlier + 1 if missed and self.is_ready else 0
        # After a single one, sizes that come often may have code.
        self.remaining = min(1 << self.misses, _MAX_CALLS) if self.misses > 1 else 0
        self.publications = publications


def first_call(
    prepare: Prepare, concrete: ConcreteFunction, tensors: Sequence[tf.Tensor], captured: Sequence[tf.Tensor]
) -> Any:
    """A call of a concrete function without any code: in its second form. `prepare` makes the function ready in the
    background, once such calls have taken so long that code may pay."""
    statistics.count("served_by_tensorflow")
    calls: _Calls | None = concrete.__dict__.get(_CALLS)
    if calls is None:
        calls = concrete.__dict__.setdefault(_CALLS, _Calls(is_ready=True))
    if len(calls.early) < _MAX_EARLY_CALLS:
        passed = [*tensors, *captured] if tfp.has_symbolic_captures(concrete) else tensors
        calls.early.append([_kept(tensor) for tensor in passed])
    is_first = not calls.served.is_warm
    if is_first:
        calls.first.append(None)
    begin = time.perf_counter()
    try:
        with tfp.without_graph_passes():
            result = tfp.call_concrete(concrete, tensors, captured)
    finally:
        if is_first:
            calls.first.pop()
    calls.served.add(time.perf_counter() - begin)
    # At first, and when code begins to pay.
    if calls.asked != calls.served.priority and not calls.is_first_running:
        calls.asked = calls.served.priority
        work = functools.partial(_prepare, contextvars.copy_context(), prepare, weakref.ref(concrete))
        request = background.Request(id(concrete), b"", work, calls.asked)
        background.preparations.request(request)
    return result


def _kept(tensor: tf.Tensor) -> tf.Tensor | tf.TensorSpec:
    """A tensor, or what of it decides about code."""
    size = tensor.shape.num_elements() * tensor.dtype.size
    has_zeros = tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_complex
    return tf.TensorSpec(tensor.shape, tensor.dtype) if has_zeros and size > _MAX_KEPT_BYTES else tensor


def as_tensors(arguments: Arguments) -> list[tf.Tensor]:
    """Arguments of which code for those of an early call can be asked."""
    return [tf.zeros(a.shape, a.dtype) if isinstance(a, tf.TensorSpec) else a for a in arguments]


def _prepare(context: contextvars.Context, prepare: Prepare, function: weakref.ref[ConcreteFunction]) -> None:
    concrete = function()
    if concrete is not None:
        captured = () if tfp.has_symbolic_captures(concrete) else concrete.captured_inputs
        context.run(prepare, concrete, concrete.__dict__[_CALLS].early, captured)


def route(plan: CallPlan, concrete: ConcreteFunction) -> None:
    """Has the calls of a function's plan go through `call`."""
    run = plan.run
    plan.run = lambda tensors: call(run, concrete, tensors, plan.captured)


def call(
    run: Run, concrete: ConcreteFunction, tensors: Sequence[tf.Tensor], captured: Sequence[tf.Tensor]
) -> Any:
    """A call of a concrete function, in the form that is faster as far as is known; `run` goes through its clusters."""
    calls: _Calls | None = concrete.__dict__.get(_CALLS)
    if calls is not None and calls.take():
        statistics.count("served_by_tensorflow")
        with tfp.without_graph_passes():
            return tfp.call_concrete(concrete, tensors, captured)
    now = coverage.process
    fallbacks, publications = now.fallbacks, now.publications
    _running.append(None)
    is_alone = len(_running) == 1
    try:
        if calls is not None:
            now.weight, calls.uncounted = 1 + calls.uncounted, 0
        result = run(tensors)
        is_alone = is_alone and len(_running) == 1
    finally:
        now.weight = 1
        _running.pop()
    missed = now.fallbacks != fallbacks and is_alone
    if calls is not None:
        calls.note(missed, publications)
    elif missed:
        calls = concrete.__dict__.setdefault(_CALLS, _Calls())
        work = functools.partial(_make, concrete, tensors, captured, calls)
        background.preparations.request(background.Request(id(calls), b"", work, background.PAYS))
    return result


def _make(
    concrete: ConcreteFunction, tensors: Sequence[tf.Tensor], captured: Sequence[tf.Tensor], calls: _Calls
) -> None:
    """Has TensorFlow make the second form of a function."""
    tfp.prepare_without_graph_passes(concrete, [*tensors, *captured])
    calls.is_ready = True
