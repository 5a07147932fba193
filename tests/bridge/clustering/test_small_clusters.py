"""Clusters that are too small by themselves join those beside them: steps of optimizers are one cluster."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.clustering.reports import recent_reports

RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize("name", ["RMSprop", "Adadelta", "Ftrl"])
def test_optimizer_step_of_an_embedding_is_one_cluster(name: str) -> None:
    ids, wanted = (
        tf.constant(RANDOM.integers(0, 50, (4, 6))),
        tf.constant(RANDOM.uniform(size=(4, 1)), tf.float32),
    )

    def trained(is_compiled: bool) -> list[np.ndarray]:
        keras.utils.set_random_seed(3)
        model = keras.Sequential(
            [keras.layers.Embedding(50, 4), keras.layers.Flatten(), keras.layers.Dense(1)]
        )
        model.build((None, 6))
        optimizer = getattr(keras.optimizers, name)(0.1)
        optimizer.build(model.trainable_variables)

        @tf.function
        def step() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(ids) - wanted) ** 2)
            optimizer.apply_gradients(
                zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            )
            return loss

        seen = recent_reports()
        for _ in range(3):
            step()
        if is_compiled:
            (report,) = recent_reports(seen)
            assert len(report.clusters) == 1
            assert not report.unclustered, report.unclustered
        return [v.numpy() for v in model.trainable_variables]

    plain = trained(False)
    tfbridge.enable_auto_clustering()
    try:
        for one, other in zip(trained(True), plain, strict=True):
            np.testing.assert_allclose(one, other, 1e-4, 1e-5)
    finally:
        tfbridge.disable_auto_clustering()


def test_clusters_that_are_too_small_join_those_beside_them() -> None:
    variables = [tf.Variable(float(k)) for k in range(4)]

    @tf.function
    def f(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        for v in variables:
            v.assign(v.read_value() * 2.0)
        return tf.exp(tf.sin(tf.cos(tf.tanh(x)))), tf.strings.as_string(x)

    tfbridge.enable_auto_clustering()
    try:
        seen = recent_reports()
        f(tf.ones(3))
        (report,) = recent_reports(seen)
    finally:
        tfbridge.disable_auto_clustering()
    assert len(report.clusters) == 1
    assert {op for op, _ in report.unclustered.values()} == {"AsString"}
    assert [v.numpy() for v in variables] == [0.0, 2.0, 4.0, 6.0]


def test_a_step_in_a_branch_in_a_loop_is_one_cluster() -> None:
    """TensorFlow switches every variable and loop variable by itself; all run under the same predicate."""
    given = tf.constant(RANDOM.normal(size=(4, 8)), tf.float32)

    def trained() -> list[np.ndarray]:
        variables = [tf.Variable(tf.fill([8, 8], 0.1 * k)) for k in range(1, 4)]
        counts = [tf.Variable(0.0) for _ in variables]

        @tf.function
        def steps(x: tf.Tensor, times: tf.Tensor) -> tf.Tensor:
            total = tf.constant(0.0)
            for n in tf.range(times):
                tf.numpy_function(lambda: None, [], [])
                if n % 3 != 2:
                    with tf.GradientTape() as tape:
                        y = tf.tanh(tf.tanh(x @ variables[0]) @ variables[1]) @ variables[2]
                        loss = tf.reduce_mean(y * y)
                    for v, c, g in zip(variables, counts, tape.gradient(loss, variables), strict=True):
                        c.assign_add(1.0)
                        v.assign_sub(0.1 * g * tf.sqrt(c))
                    total += loss
            return total

        return [steps(given, 7).numpy(), *(v.numpy() for v in (*variables, *counts))]

    plain = trained()
    tfbridge.enable_auto_clustering()
    try:
        seen = recent_reports()
        for one, other in zip(trained(), plain, strict=True):
            np.testing.assert_allclose(one, other, 1e-4, 1e-5)
        assert [len(report.clusters) for report in recent_reports(seen) if report.clusters] == [1]
    finally:
        tfbridge.disable_auto_clustering()


def test_branches_of_other_predicates_are_no_cluster() -> None:
    """Their nodes run or not by themselves; what comes after both runs in any case."""

    def branches(x: tf.Tensor, first: tf.Tensor, second: tf.Tensor) -> tuple[tf.Tensor, ...]:
        for n in tf.range(2):
            tf.numpy_function(lambda: None, [], [])
            a, b = x, x
            if first and n == 1:
                a = tf.tanh(x) * tf.sigmoid(x) + tf.sin(x) * tf.cos(x) - tf.square(x)
                tf.numpy_function(lambda: None, [], [])
            if second:
                b = tf.sigmoid(x) * tf.tanh(x) - tf.cos(x) * tf.sin(x) + tf.square(x)
                tf.numpy_function(lambda: None, [], [])
            x = tf.tanh(a) * tf.sin(b) + tf.cos(a) * tf.sigmoid(b) - tf.square(x)
        return x, a, b

    x = tf.constant([0.3, 0.7, 1.0])
    plain, compiled = tf.function(branches), tf.function(branches)
    cases = [(x, tf.constant(a), tf.constant(b)) for a in (True, False) for b in (True, False)]
    wanted = [plain(*case) for case in cases]
    seen = recent_reports()
    tfbridge.enable_auto_clustering()
    try:
        found = [compiled(*case) for case in cases]
    finally:
        tfbridge.disable_auto_clustering()
    assert sum(len(report.clusters) for report in recent_reports(seen)) == 2
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, 1e-5)
