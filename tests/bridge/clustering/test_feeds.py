"""Sessions that are fed tensors which are no placeholders: the values are those of a session that compiles nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

v1 = tf.compat.v1
ONES, ZEROS = np.ones(4, np.float32), np.zeros(4, np.float32)


def network() -> dict[str, Any]:
    """Tensors of a graph, by name: constants that shape others, loops, branches, gradients, variables."""
    p = v1.placeholder(tf.float32, [None])
    count, axis, order = tf.constant(3), tf.constant(0), tf.constant([1, 0])
    x = tf.exp(p) * 2.0
    total = tf.reduce_sum(x * 1.5, axis)
    joined = tf.concat([x, x * tf.sin(x)], axis)
    rows = tf.reshape(joined, tf.stack([2, -1]))
    turned = tf.transpose(rows, order) * 2.0 + 1.0
    last, state = tf.while_loop(lambda i, a: i < count, lambda i, a: (i + 1, a * 1.5 + tf.sin(a)), [0, x])
    branch = tf.cond(total > 3.0, lambda: state * 2.0 + 1.0, lambda: state - 1.0)
    unique, index = tf.unique(tf.cast(tf.round(x), tf.int32))
    distinct = tf.cast(unique, tf.float32) * 2.0 + 1.0
    (gradient,) = tf.gradients(tf.reduce_sum(tf.tanh(branch * x)), p)
    v = v1.get_variable("v", initializer=ONES, use_resource=True)
    ref = v1.get_variable("ref", initializer=ONES, use_resource=False)
    weighed = tf.exp(v * 2.0) + tf.sin(ref) * x
    updated = v.assign_add(weighed)
    default = v1.placeholder_with_default(p * 2.0, [None])
    beside_default = tf.exp(default * p) + p
    picked = tf.gather(x, order)
    return locals()


# (names fetched, values fed besides p by name)
RUNS: list[tuple[str, dict[str, Any]]] = [
    ("turned total", {}),
    ("turned", {"order": [0, 1]}),
    ("turned joined", {"x": ZEROS}),
    ("turned", {"axis": 0}),
    ("branch last", {}),
    ("branch last", {"count": 5}),
    ("branch", {"state": ZEROS}),
    ("branch", {"total": -1.0}),
    ("branch", {"last": 2}),
    ("branch", {"x": 3 * ONES}),
    ("distinct", {"unique": [1, 2]}),
    ("distinct unique", {"index": [1]}),
    ("distinct index", {"unique": [1, 2]}),
    ("unique distinct", {"unique": [7]}),
    ("gradient", {"x": ONES}),
    ("gradient branch", {"state": ONES}),
    ("weighed", {"v": ZEROS}),
    ("weighed", {"ref": ZEROS}),
    ("weighed v", {"v": ONES}),
    ("updated", {"weighed": ONES}),
    ("updated", {}),
    ("beside_default default", {}),
    ("beside_default", {"default": ZEROS}),
    ("picked", {"order": [3, 2]}),
]


def results() -> list[Any]:
    with tf.Graph().as_default(), v1.Session() as session:
        tensors = network()
        session.run(v1.global_variables_initializer())
        return [
            session.run(
                [tensors[name] for name in names.split()],
                {tensors["p"]: ONES, **{tensors[name]: value for name, value in fed.items()}},
            )
            for names, fed in RUNS
        ]


def test_fed_tensors(clustering: None) -> None:
    tfbridge.disable_auto_clustering()
    expected = results()
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    for (names, fed), wanted, got in zip(RUNS, expected, results()):
        for a, b in zip(wanted, got):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5, err_msg=f"{names} with {fed}")
    assert tfbridge.stats()["clusters_compiled"] > len(RUNS)


def run(session: Any, y: Any, p: Any, middle: Any) -> Any:
    return session.run(y, {p: ONES, middle: ZEROS})


def make_callable(session: Any, y: Any, p: Any, middle: Any) -> Any:
    return session.make_callable(y, [p, middle])(ONES, ZEROS)


def partial_run(session: Any, y: Any, p: Any, middle: Any) -> Any:
    setup = session.partial_run_setup([y], [p, middle])
    return session.partial_run(setup, y, {p: ONES, middle: ZEROS})


@pytest.mark.parametrize("way", [run, make_callable, partial_run])
@pytest.mark.parametrize("scoped", [False, True])
def test_ways_to_feed(clustering: None, way: Callable[..., Any], scoped: bool) -> None:
    if scoped:
        tfbridge.disable_auto_clustering()
    with tf.Graph().as_default(), v1.Session() as session:
        p = v1.placeholder(tf.float32, [4])
        with tfbridge.jit_scope():
            middle = tf.exp(p) * 3.0 - p
            y = tf.sin(middle) + middle * p + 1.0
        unfed = session.run(y, {p: ONES})
        np.testing.assert_array_equal(way(session, y, p, middle), ONES)
        np.testing.assert_array_equal(session.run(y, {p: ONES}), unfed)
    assert tfbridge.stats()["clusters_compiled"] >= 2


def test_a_numeric_gradient_checker(clustering: None) -> None:
    """It feeds constants."""
    with tf.Graph().as_default(), v1.Session():
        x = tf.constant([[0.3, -1.2], [0.7, 0.1]])
        y = tf.tanh(tf.matmul(x, x)) * tf.exp(x)
        assert v1.test.compute_gradient_error(x, (2, 2), y, (2, 2)) < 1e-3


def test_a_fed_default_that_depends_on_what_it_joins(clustering: None) -> None:
    """One cluster of all that is around the default would wait for itself."""
    with tf.Graph().as_default(), v1.Session() as session:
        p = v1.placeholder(tf.float32, [4])
        x = tf.exp(p) + 1.0
        default = v1.placeholder_with_default(x * 2.0, [4])
        y = tf.sin(default) * x + p
        e = np.exp(ONES) + 1
        np.testing.assert_allclose(session.run(y, {p: ONES}), np.sin(2 * e) * e + 1, rtol=1e-5)
        np.testing.assert_allclose(session.run(y, {p: ONES, default: ONES}), np.sin(1) * e + 1, rtol=1e-5)
        np.testing.assert_allclose(session.run([y, default], {p: ONES})[0], np.sin(2 * e) * e + 1, rtol=1e-5)
    stats = tfbridge.stats()
    assert stats["compiles"] + stats["disk_hits"] >= 2  # TensorFlow drops a rewritten graph that has a cycle
