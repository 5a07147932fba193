"""`explain`: what it says of functions that compile as a whole, in parts and not at all."""

from __future__ import annotations

import inspect

import keras
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.explain import Report


def test_whole_function() -> None:
    w = tf.Variable(tf.ones((3, 4)), name="weights")

    @tfbridge.jit
    def f(x: tf.Tensor, n: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.nn.relu(x @ w) * 2, tf.fill([n, 2], 1.0)

    x, n = tf.ones((2, 3)), tf.constant(5)
    report = tfbridge.explain(f, x, n)
    (cluster,) = report.clusters
    assert report.is_whole
    assert (cluster.variables, cluster.keyed_by_value, cluster.runs) == (1, ("n",), 0)
    assert set(cluster.arguments) == {"x f32[2,3]", "n s32[]", "weights f32[3,4]"}
    assert cluster.flops >= 2 * 2 * 3 * 4
    assert cluster.object_bytes > 0
    assert any("MatMul" in op or "matmul" in op for kernel in cluster.kernels for op in kernel.ops)
    text = str(report)
    assert text.startswith("f: ")
    assert "compiled anew for every value of n" in text
    f(x, n)
    f(x, n)
    assert tfbridge.explain(f, x, n).clusters[0].runs == 2


def test_parts_around_an_op_that_is_left_out() -> None:
    total = tf.Variable(0.0)

    @tf.function
    def inner(y: tf.Tensor) -> tf.Tensor:
        return tf.tanh(y) * 2

    @tfbridge.jit
    def f(x: tf.Tensor) -> tf.Tensor:
        z = tf.exp(inner(x))
        total.assign_add(tf.reduce_sum(z))
        length = tf.strings.length(tf.strings.as_string(z))
        return z * tf.cast(length, tf.float32)

    x = tf.ones((2, 3))
    before = tfbridge.stats()["ops_left_out"]
    report = tfbridge.explain(f, x)
    assert total.numpy() == 0.0, "explaining ran the function"
    assert tfbridge.stats()["ops_left_out"] == before
    assert not report.is_whole
    assert [c.problem for c in report.clusters] == ["", ""]
    assert {one.op for one in report.left_out} == {"AsString", "StringLength"}
    first = inspect.getsourcelines(test_parts_around_an_op_that_is_left_out)[1]
    for one in report.left_out:
        assert one.file == __file__
        assert first < one.line < first + 20
        assert one.reason == "there is no translation of this op"
    f(x)
    assert [c.runs for c in tfbridge.explain(f, x).clusters] == [1, 1]
    assert [c.fallback_runs for c in tfbridge.explain(f, x).clusters] == [0, 0]
    assert f"at {__file__}:" in str(report)


def test_shape_known_only_at_run_time_is_said() -> None:
    @tfbridge.jit
    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.sin(tf.unique(x)[0]) * 2

    (cluster,) = tfbridge.explain(f, tf.ones(4)).clusters
    assert cluster.problem == "not compiled yet: a shape is known only when it runs"
    assert not cluster.kernels


def test_strict_function_is_explained_all_the_same() -> None:
    f = tfbridge.jit(lambda x: tf.strings.length(tf.strings.as_string(tf.exp(x) * x)), strict=True)
    assert {one.op for one in tfbridge.explain(f, tf.ones(3)).left_out} == {"AsString", "StringLength"}


def test_wrong_shapes_in_a_cluster_show_the_reason() -> None:
    f = tfbridge.jit(tf.function(lambda x, y: tf.exp(x) + y, input_signature=[tf.TensorSpec([None])] * 2))
    report = tfbridge.explain(f, tf.ones(3), tf.ones(2))
    assert "runs in TensorFlow: ShapeError" in report.clusters[0].problem
    assert not report.is_whole
    assert "0 of " in str(report)


@pytest.mark.parametrize("function", [
    tf.function(lambda x: tf.exp(x) + 1), lambda x: tf.exp(x) + 1, tf.nn.relu,
], ids=["tf.function", "function", "op"])
def test_functions_that_are_not_compiled_yet(function: object) -> None:
    assert tfbridge.explain(function, tf.ones(3)).is_whole


def test_method() -> None:
    class Model(tf.Module):
        @tfbridge.jit
        def double(self, x: tf.Tensor) -> tf.Tensor:
            return x * 2

    assert tfbridge.explain(Model().double, tf.ones(3)).function == "double"


def test_auto_clustering_explains_a_function_with_its_minimum() -> None:
    f = tf.function(lambda x: tf.exp(x) + 1)
    try:
        tfbridge.enable_auto_clustering()
        report = tfbridge.explain(f, tf.ones(3))
        assert report.clusters == ()
        assert all("the minimum is 4" in one.reason for one in report.left_out)
        with tfbridge.options(min_cluster_size=2):
            assert len(tfbridge.explain(f, tf.ones(3)).clusters) == 1
    finally:
        tfbridge.disable_auto_clustering()


def test_html_escapes_and_shows_kernels() -> None:
    f = tfbridge.jit(lambda x: tf.exp(x) + 1)
    page = tfbridge.explain(f, tf.ones(3)).html()
    assert "&lt;lambda&gt;" in page
    assert "<table>" in page
    assert Report("<f>", (), ()).html().count("<f>") == 0


def test_nodes_placed_beside_ones_that_graph_optimizers_took_out() -> None:
    """Sparse updates by a Keras optimizer: branches within branches, of sizes that depend on data."""
    tables = [tf.Variable(tf.ones((n, 3))) for n in (7, 5)]
    optimizer = keras.optimizers.Adagrad(0.1)
    optimizer.build(tables)

    @tfbridge.jit
    def step(users: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            rows = [tf.gather(table, ids) for table, ids in zip(tables, (users, items))]
            loss = tf.reduce_mean(rows[0] * rows[1]) + tf.nn.l2_loss(tf.gather(tables[0], users))
        optimizer.apply_gradients(zip(tape.gradient(loss, tables), tables))
        return loss

    report = tfbridge.explain(step, tf.constant([1, 2, 2]), tf.constant([0, 4, 1]))
    assert report.clusters
