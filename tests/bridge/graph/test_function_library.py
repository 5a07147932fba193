"""Functions called as ops, as TensorFlow 1's Defun makes them: in a function, in loops and in branches of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tensorflow.python.framework.function import Defun
from tensorflow.python.ops import functional_ops, gen_functional_ops
from tfbridge.bridge.clustering.reports import recent_reports

RANDOM = np.random.default_rng(5)
X = tf.constant(RANDOM.normal(size=(3, 4)).astype("f4"))


def ctc(logits: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(logits)
        labels = tf.constant([[1, 2, 2], [3, 1, 0]])
        loss = tf.nn.ctc_loss(
            labels, logits, tf.constant([3, 2]), tf.constant([7, 6]), logits_time_major=False, blank_index=0
        )
    return loss, tape.gradient(loss, logits)


def looped(x: tf.Tensor) -> Any:
    @Defun(tf.int32, tf.float32)
    def is_early(i: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return i < 5

    @Defun(tf.float32, func_name="two_of_one")
    def two(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.nn.top_k(x, 2)[0][:, :1] + x, tf.sin(x)

    @Defun(tf.int32, tf.float32)
    def step(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first, second = two(x)
        return i + 1, second - first * 0.1

    return functional_ops.While([tf.constant(0), x], is_early, step)


LOGITS = tf.constant(RANDOM.normal(size=(2, 7, 5)).astype("f4"))


@pytest.mark.parametrize(("function", "x"), [(ctc, LOGITS), (looped, X)], ids=["ctc", "looped"])
def test_whole(function: Callable[..., Any], x: tf.Tensor) -> None:
    _compare(tfbridge.jit(function, strict=True)(x), tf.function(function)(x))


@pytest.mark.parametrize(("function", "x"), [(ctc, LOGITS), (looped, X)], ids=["ctc", "looped"])
def test_clustered(function: Callable[..., Any], x: tf.Tensor, clustering: None) -> None:
    found = tf.function(function)(x)
    assert tfbridge.stats()["clusters_compiled"] == 1
    tfbridge.disable_auto_clustering()
    _compare(found, tf.function(function)(x))


def test_in_tensorflow() -> None:
    """What runs a cluster's nodes in TensorFlow finds the functions too."""
    from tfbridge.bridge.dispatch.call_plan import cluster_of

    concrete = tf.function(looped).get_concrete_function(X)
    cluster = cluster_of(concrete)
    _compare(cluster.original([X]), concrete(X))


def _compare(found: Any, wanted: Any) -> None:
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


def symbolic(x: tf.Tensor) -> Any:
    @Defun(tf.float32, func_name="inner_of_symbolic")
    def inner(x: tf.Tensor) -> tf.Tensor:
        return tf.sin(x) * x

    @Defun(tf.float32, tf.float32, tf.int32, func_name="outer_of_symbolic")
    def outer(x: tf.Tensor, y: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.matmul(tf.tanh(x), inner(y)), tf.exp(y) * 3.0

    y, k = tf.transpose(x) * 0.5, tf.constant([2, 0, 2])
    product, rows = outer(x, y, k)
    return gen_functional_ops.symbolic_gradient(
        input=[x, y, k, product * 2.0, rows + 1.0], Tout=[tf.float32, tf.float32, tf.int32], f=outer
    )


def test_symbolic_gradient() -> None:
    """The gradient of a function that takes integers, too, calls another and does not give all of its arguments one."""
    _compare(tfbridge.jit(symbolic, strict=True)(X), tf.function(symbolic)(X))
    _compare(tfbridge.jit(lambda x: [tf.strings.length("ab"), *symbolic(x)])(X)[1:], tf.function(symbolic)(X))


def of_two_implementations(x: tf.Tensor) -> tf.Tensor:
    def made(name: str, device: str) -> Any:
        attributes = {"api_implements": name} | ({"api_preferred_device": device} if device else {})
        factor = {"": 2.0, "CPU": 3.0, "GPU": 5.0}[device]
        return tf.function(lambda v: tf.sin(v) * factor, autograph=False, experimental_attributes=attributes)

    for_others, for_cpu = made("one", ""), made("one", "CPU")
    result = for_others(x)
    concrete = for_cpu.get_concrete_function(x)
    concrete.add_to_graph()
    concrete.add_gradient_functions_to_graph()
    made("two", "GPU").get_concrete_function(x).add_to_graph()
    return result + made("two", "")(x) + made("three", "CPU")(x)


def test_the_implementation_for_cpus_is_chosen(clustering: None) -> None:
    wanted = tf.sin(X) * (3.0 + 2.0 + 3.0)
    _compare(tfbridge.jit(of_two_implementations, strict=True)(X), wanted)
    _compare(tf.function(of_two_implementations)(X), wanted)
    tfbridge.disable_auto_clustering()
    _compare(tf.function(of_two_implementations)(X), wanted)


def of_a_call_that_stays(x: tf.Tensor) -> tf.Tensor:
    """One result of four is used, and two arguments are constants: TensorFlow makes a function for this call."""

    @tf.function(autograph=False, experimental_attributes={"_noinline": True})
    def called(x: tf.Tensor, factor: tf.Tensor, unused: tf.Tensor, shift: tf.Tensor) -> list[tf.Tensor]:
        return [tf.sin(x), tf.cos(x) * factor + shift, tf.tan(x) * unused, factor]

    return tf.sqrt(called(x, tf.constant(2.5), tf.constant(7.0), x * 3.0)[1] + 9.0)


@pytest.mark.parametrize("is_nested", [False, True])
def test_functions_made_for_a_call(is_nested: bool, clustering: None) -> None:
    inner = tf.function(of_a_call_that_stays, autograph=False)

    def outer(x: tf.Tensor) -> Any:
        value = inner(tf.abs(x)) if is_nested else of_a_call_that_stays(tf.abs(x))
        return value, tf.strings.length(tf.strings.as_string(x))

    wanted = outer(X)
    before = recent_reports()
    _compare(tf.function(outer, autograph=False)(X), wanted)
    reports = recent_reports(before)
    assert not [why for r in reports for op, why in r.unclustered.values() if "PartitionedCall" in op]
    clustered = [n.op for r in reports for c in r.clusters for n in c.graph.nodes.values()]
    assert any(op.endswith("PartitionedCall") for op in clustered)


@pytest.mark.parametrize(
    "attribute", [{"_noinline": True}, {"api_implements": "layer", "api_preferred_device": "CPU"}]
)
def test_gradient_of_a_loop_in_a_call_that_stays(attribute: dict[str, Any], clustering: None) -> None:
    """As in the recurrent layers of Keras 2: the lists of the loop are results of one call and arguments of another."""

    def steps(x: tf.Tensor, weights: tf.Tensor, unused: tf.Tensor) -> list[tf.Tensor]:
        state = tf.while_loop(
            lambda k, _: k < tf.shape(x)[0], lambda k, s: (k + 1, tf.tanh(s * weights + x[k])), (0, x[0])
        )[1]
        return [state * 2.0, unused + 1.0]

    layer = tf.function(steps, autograph=False, experimental_attributes=attribute)

    def step(x: tf.Tensor, weights: tf.Tensor, layer: Callable[..., list[tf.Tensor]]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = tf.reduce_sum(tf.abs(layer(tf.sin(x), weights, tf.constant(1.0))[0]))
        return loss, tape.gradient(loss, weights), tf.strings.length(tf.strings.as_string(x))

    weights = tf.constant(RANDOM.normal(size=4).astype("f4"))
    wanted = step(X, weights, steps)
    before = recent_reports()
    _compare(tf.function(lambda x, w: step(x, w, layer), autograph=False)(X, weights), wanted)
    report = next(
        r for r in recent_reports(before) if any(op == "AsString" for op, _ in r.unclustered.values())
    )
    clustered = [n.op for c in report.clusters for n in c.graph.nodes.values()]
    assert sum(op in ("While", "StatelessWhile") for op in clustered) == 2
    assert not [why for op, why in report.unclustered.values() if "PartitionedCall" in op]
