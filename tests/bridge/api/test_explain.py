"""`explain`: what it says of functions that compile as a whole, in parts and not at all."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.api import explain as explain_module
from tfbridge.bridge.api.explain import Report
from tfbridge.compiler.errors import UnsupportedError


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
    assert "sizes or axes follow from the value of n" in text
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
        return tf.sin(tf.raw_ops.ListDiff(x=x, y=[0.0])[0]) * 2

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


@pytest.mark.parametrize(
    "function",
    [
        tf.function(lambda x: tf.exp(x) + 1),
        lambda x: tf.exp(x) + 1,
        tf.nn.relu,
    ],
    ids=["tf.function", "function", "op"],
)
def test_functions_that_are_not_compiled_yet(function: object) -> None:
    assert tfbridge.explain(function, tf.ones(3)).is_whole


def test_code_in_memory_is_counted_and_used() -> None:
    f = tfbridge.jit(lambda x: tf.tanh(x) * 2.0 + tf.exp(x))
    f(tf.ones(3))
    tfbridge.reset_stats()
    assert tfbridge.explain(f, tf.ones(3)).is_whole
    counters = tfbridge.stats()
    assert (counters["memory_hits"], counters["compiles"], counters["disk_hits"]) == (1, 0, 0)


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


def test_trace_of_a_call(tmp_path: Path) -> None:
    counter = tf.Variable(0.0)

    @tfbridge.jit
    def step(x: tf.Tensor) -> tf.Tensor:
        counter.assign_add(1.0)
        for _ in tf.range(3):
            x = tf.matmul(x, x, name="turn")
        return tf.nn.softmax(x, name="scores")

    tfbridge.explain(step, tf.ones((32, 32))).write_trace(tmp_path / "step.json")
    rows = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    named = {row["name"].partition(" [")[0]: row for row in rows}
    assert named["process_name"]["args"]["name"] == "step"
    assert named["while/turn"]["args"]["calls"] == 3 and named["scores"]["args"]["calls"] == 1
    assert named["scores"]["dur"] > 0 and counter.numpy() == 0.0


def test_no_trace_of_what_is_not_one_cluster(tmp_path: Path) -> None:
    in_parts = tfbridge.explain(lambda x: tf.strings.as_string(x + 1.0), tf.ones(3))
    without_arrays = tfbridge.explain(tfbridge.jit(lambda x: x + 1.0), tf.TensorSpec(3))
    for report in (in_parts, without_arrays):
        with pytest.raises(UnsupportedError, match="one cluster, explained for arrays"):
            report.write_trace(tmp_path / "step.json")
    assert not list(tmp_path.iterdir())


def test_html_escapes_and_shows_kernels() -> None:
    f = tfbridge.jit(lambda x: tf.exp(x) + 1)
    page = tfbridge.explain(f, tf.ones(3)).html()
    assert "&lt;lambda&gt;" in page
    assert "<table" in page
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


def _text_length(x: tf.Tensor) -> tf.Tensor:
    """An op that stays in TensorFlow, for what is around it to be left too."""
    return tf.cast(tf.strings.length(tf.strings.as_string(tf.reduce_sum(x))), tf.float32)


def _steps(x: tf.Tensor, w: tf.Variable) -> tf.Tensor:
    for _ in tf.range(3):
        x = tf.tanh(x @ w + 1.0) * tf.sigmoid(x) - 0.1 * tf.exp(-x) * tf.cos(x) + _text_length(x)
    return x


def _nested_steps(x: tf.Tensor, w: tf.Variable) -> tf.Tensor:
    for _ in tf.range(2):
        x = _steps(x, w)
    return x


def _branches(x: tf.Tensor, w: tf.Variable) -> tf.Tensor:
    return (
        tf.tanh(x @ w) * tf.exp(x) + _text_length(x)
        if tf.reduce_sum(x) > 3
        else tf.sin(x @ w) * 2 - _text_length(x)
    )


def _gradient(x: tf.Tensor, w: tf.Variable) -> tf.Tensor:
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.function(_steps)(x, w))
    return tape.gradient(y, w)


def _writes(x: tf.Tensor, w: tf.Variable) -> tf.Tensor:
    for _ in tf.range(3):
        x = _text_length(x) * x
        w.assign_add(tf.exp(w) * tf.sin(w) + tf.cos(w) * tf.tanh(w) - tf.sigmoid(w) * tf.sqrt(tf.abs(w)))
    return x


@pytest.mark.parametrize("function", [_steps, _nested_steps, _branches, _gradient, _writes])
@pytest.mark.parametrize("is_concrete", [False, True], ids=["function", "concrete"])
def test_a_variable_read_where_control_flow_stays(function: Any, is_concrete: bool) -> None:
    w = tf.Variable(tf.ones((3, 3)), name="weights")
    traced = tf.function(lambda x: function(x, w), autograph=True)
    subject = traced.get_concrete_function(tf.TensorSpec((2, 3))) if is_concrete else traced
    report = tfbridge.explain(subject, *([] if is_concrete else [tf.ones((2, 3))]))
    assert not report.problem
    assert "AsString" in {one.op for one in report.left_out}
    taken = [a for c in report.clusters for a in c.arguments]
    assert "weights f32[3,3]" in taken, taken
    assert not any("bug" in c.problem for c in report.clusters)


def test_saved_signature_and_types_for_arguments(tmp_path: Path) -> None:
    class Saved(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((2, 3))])
        def double(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": tf.exp(x) * 2}

    model = Saved()
    tf.saved_model.save(model, tmp_path, signatures=model.double)
    signature = tf.saved_model.load(tmp_path).signatures["serving_default"]
    for args, kwargs in (((), {}), ((), {"x": tf.ones((2, 3))}), ((tf.TensorSpec((2, 3)),), {})):
        report = tfbridge.explain(signature if kwargs or not args else model.double, *args, **kwargs)
        assert report.is_whole, str(report)
    assert "of unknown shape" in str(
        tfbridge.explain(tf.function(lambda x: tf.exp(x) * 2), tf.TensorSpec((None, 3)))
    )


def test_function_that_cannot_be_traced_has_a_report() -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        raise KeyError("no such weight")

    for function, args in ((f, (1,)), (tf.function(f), (1,)), (tf.nn.relu, ())):
        report = tfbridge.explain(function, *args)
        assert "it cannot be traced" in str(report)
        assert not report.is_whole
    assert "KeyError: 'no such weight'" in tfbridge.explain(f, 1).problem


def test_cluster_that_cannot_be_explained_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(explain_module, "_compiled", fail)
    for function in (lambda x: tf.exp(x) * 2, lambda x: tf.exp(x) * tf.sin(x) + _text_length(x)):
        (cluster, *_) = tfbridge.explain(function, tf.ones(3)).clusters
        assert "RuntimeError: unforeseen" in cluster.problem


def test_first_cause_is_named_where_a_loop_and_its_lists_stay() -> None:
    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        rows = tf.TensorArray(tf.float32, 3, element_shape=(2,))
        for k in tf.range(3):
            x = tf.tanh(x) + _text_length(x)
            rows = rows.write(k, x)
        return tf.exp(rows.stack()) * 2

    left = {one.name: one for one in tfbridge.explain(f, tf.ones(2)).left_out}
    (asked,) = [one for one in left.values() if one.op == "AsString"]
    assert asked.reason == "there is no translation of this op"
    for one in left.values():
        if one.op not in ("AsString", "StringLength"):
            assert f"{asked.name} (AsString)" in one.reason, (one.op, one.reason)
            assert asked.reason in one.reason
    (reserve,) = [one for one in left.values() if one.op == "TensorListReserve"]
    assert reserve.reason.startswith("it shares a list with the loop while, which is left because: ")


@pytest.mark.parametrize("way", [tfbridge.jit, tf.function])
def test_a_run_that_is_left_names_the_assumption(way, clustering: None) -> None:
    def tail(x: tf.Tensor, begin: tf.Tensor) -> tf.Tensor:
        return x[begin : begin + 4] * 2.0

    function, x = way(tail), tf.range(12.0)
    for begin in (2, 10, 11):
        np.testing.assert_array_equal(function(x, tf.constant(begin)), tail(x, tf.constant(begin)))
    (cluster,) = tfbridge.explain(function, x, tf.constant(2)).clusters
    ((why, count),) = cluster.left
    assert why.startswith("StridedSlice strided_slice: ") and count == 2
    assert f"run by TensorFlow 2 times: {why}" in str(tfbridge.explain(function, x, tf.constant(2)))
    assert tfbridge.stats()["ops_left_out"][f"bailed out at run time: {why}"] == cluster.ops
