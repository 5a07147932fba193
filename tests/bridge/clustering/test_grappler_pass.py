"""The graph pass: functions, tapes, sessions, Keras and SavedModels reach it; what it returns is run."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator

import launch_entries as entries
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tfbridge.bridge.clustering import grappler_pass
from tfbridge.bridge.launch import cluster_registry, entry_table, fallback
from tfbridge.bridge.launch import op as launch_op
from tfbridge.bridge.launch.compiled_code import CompiledCode

F32 = tf.float32
KEY = "test_graph_pass/peak"


@pytest.fixture
def rewriting() -> Iterator[Callable]:
    yield grappler_pass.register
    grappler_pass.register(None)


def peak(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """What is replaced: two nodes that TensorFlow's own optimizers leave alone."""
    return tf.maximum(tf.math.squared_difference(x, y), y)


def compile_peak(specs: list, values: dict) -> CompiledCode | None:
    dims = specs[0][1]
    return CompiledCode(entries.peak(math.prod(dims)), ((F32, dims),)) if specs[1][1] == dims else None


def replace(graph: graph_pb2.GraphDef, item: grappler_pass.Item) -> graph_pb2.GraphDef | None:
    """Maximum(SquaredDifference(x, y), y) becomes a launch; an Identity keeps the name of the Maximum."""
    inner = {node.name: set(node.input) for node in graph.node if node.op == "SquaredDifference"}
    launches = []
    for node in graph.node:
        found = [name for name in node.input if name in inner] if node.op == "Maximum" else []
        if not found:
            continue
        # TensorFlow may have sorted the inputs of both: they commute.
        (y,) = set(node.input) - set(found)
        (x,) = inner[found[0]] - {y}
        launch_op.register_cluster(KEY, compile_peak, lambda inputs: [peak(*inputs)])
        launches.append(launch_op.node_def(node.name, KEY, [x, y], [F32, F32], [F32], device=node.device))
        node.op, node.input[:] = "Identity", [launches[-1].name]
        node.attr["T"].type = F32.as_datatype_enum
    graph.node.extend(launches)
    return graph if launches else None


def runs() -> int:
    return cluster_registry.counters(KEY).runs if cluster_registry.is_registered(KEY) else 0


def test_rewritten_function(rewriting):
    rewriting(replace)
    function = tf.function(lambda x, y: tf.exp(peak(x, y)) + y, reduce_retracing=True)
    before = runs()
    for dims in ((3,), (2, 2), (0,), (3,)):
        x, y = np.random.default_rng(0).random((2, *dims), np.float32)
        np.testing.assert_allclose(function(x, y).numpy(), np.exp(np.maximum((x - y) ** 2, y)) + y, rtol=1e-5)
    assert runs() == before + 4


def test_rewritten_function_under_a_tape(rewriting):
    rewriting(replace)
    function = tf.function(lambda x, y: tf.reduce_sum(peak(x, y) * tf.constant([1.0, 2.0, 3.0])))
    x, y = tf.Variable([1.0, 2.0, 3.0]), tf.constant([3.0, 4.0, 5.0])
    before = runs()
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            loss = function(x, y)
        gradient = tape.gradient(loss, x)
    assert loss.numpy() == 4 + 8 + 15
    np.testing.assert_allclose(gradient.numpy(), [-4, -8, 0])
    np.testing.assert_allclose(outer.gradient(gradient, x).numpy(), [2, 4, 0])
    assert runs() > before


def test_rewritten_session_with_a_fetch_in_the_middle(rewriting):
    preserved, fetched = [], []

    def rewrite(graph, item):
        preserved.append(item.nodes_to_preserve)
        fetched.append(item.fetches)
        return replace(graph, item)

    rewriting(rewrite)
    before = runs()
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(F32, [None], name="x")
        middle = tf.identity(peak(x, tf.sin(x)), name="middle")
        last = tf.reduce_sum(tf.exp(middle), name="last")
        with tf.compat.v1.Session() as session:
            first, total = session.run([middle, last], {x: [1.0, 2.0]})
    y = np.sin([1.0, 2.0])
    np.testing.assert_allclose(first, np.maximum(([1.0, 2.0] - y) ** 2, y), rtol=1e-5)
    np.testing.assert_allclose(total, np.exp(first).sum(), rtol=1e-5)
    assert runs() == before + 1
    assert {"middle", "last", "x"} <= preserved[0]
    assert set(fetched[0]) == {"middle:0", "last:0"}


@pytest.mark.parametrize("inlined", [False, True])
def test_launch_inside_a_function_that_is_called(rewriting, inlined):
    """A function that is not inlined is handed over as a graph of its own."""
    inner = tf.function(peak, experimental_attributes={"_noinline": not inlined})
    rewriting(replace)
    before = runs()
    result = tf.function(lambda x, y: tf.exp(inner(x, y)) * y)(tf.ones(2), tf.fill(2, 0.5))
    np.testing.assert_allclose(result.numpy(), np.full(2, np.exp(0.5) / 2), rtol=1e-6)
    assert runs() == before + 1


def test_launch_in_a_loop(rewriting):
    @tf.function
    def loop(x, y):
        for _ in tf.range(5):
            x = peak(x, y) * 0.5 + tf.sin(x)
        return x

    rewriting(replace)
    before = runs()
    result = loop(tf.ones(3), tf.ones(3))
    assert runs() == before + 5
    rewriting(None)
    x = tf.ones(3)
    for _ in range(5):
        x = peak(x, tf.ones(3)) * 0.5 + tf.sin(x)
    np.testing.assert_allclose(result.numpy(), x.numpy(), rtol=1e-5)


def test_launch_of_constants_is_not_folded(rewriting):
    rewriting(replace)
    size = 300_000  # more than TensorFlow folds itself
    function = tf.function(lambda: tf.reduce_max(peak(tf.range(size, dtype=F32), tf.ones(size))))
    before = runs()
    for _ in range(2):
        assert function().numpy() == np.square(np.float32(size - 2))
    assert runs() == before + 2


def test_exception_leaves_the_graph_and_is_logged_once(rewriting, caplog):
    def rewrite(graph, item):
        raise KeyError("broken rewrite")

    rewriting(rewrite)
    with caplog.at_level(logging.ERROR, "tfbridge"):
        for _ in range(2):
            assert tf.function(lambda x: tf.exp(x) * 2.0 + x)(tf.zeros(2)).numpy().tolist() == [2, 2]
    assert [r.message for r in caplog.records] == ["the graph pass left a graph as it is"]


def ops_met(rewriting: Callable) -> list[set[str]]:
    met: list[set[str]] = []
    rewriting(lambda graph, item: met.append({node.op for node in graph.node}))
    return met


def test_keras_fit_and_predict_reach_it(rewriting):
    met = ops_met(rewriting)
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((4,)), layers.Dense(3, "softsign"), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 4), np.float32), np.ones((8, 1), np.float32), batch_size=4, verbose=0)
    assert any({"Softsign", "SoftsignGrad"} <= ops for ops in met)
    met.clear()
    model.predict(np.ones((8, 4), np.float32), verbose=0)
    assert any("Softsign" in ops and "SoftsignGrad" not in ops for ops in met)


def test_loaded_saved_model_reaches_it(rewriting, tmp_path):
    module = tf.Module()
    module.call = tf.function(
        lambda x, y: {"z": tf.exp(peak(x, y))}, input_signature=[tf.TensorSpec([None], F32)] * 2
    )
    tf.saved_model.save(module, str(tmp_path), signatures=module.call)
    rewriting(replace)
    before = runs()
    loaded = tf.saved_model.load(str(tmp_path))
    result = loaded.signatures["serving_default"](x=tf.constant([2.0]), y=tf.constant([2.0]))["z"]
    assert result.numpy() == pytest.approx(np.exp(2))
    assert runs() == before + 1


def test_functions_of_tf_data_are_told_apart(rewriting):
    met: list[tuple[set[str], bool]] = []
    rewriting(
        lambda graph, item: met.append(
            ({n.op for n in graph.node}, grappler_pass.is_data_function(graph, item))
        )
    )
    two = (np.ones((4, 2), np.float32), np.ones((4, 2), np.float32))
    data = tf.data.Dataset.from_tensor_slices(two).map(lambda x, y: tf.math.softsign(x * 2 + y))
    list(data.filter(lambda x: tf.reduce_sum(tf.math.asinh(x)) > 0).batch(2))
    tf.function(lambda *args: tf.math.sinh(args[0]) + args[1])(*two)
    noinline = tf.function(
        lambda *args: tf.math.cosh(args[0]) + args[1], experimental_attributes={"_noinline": True}
    )
    tf.function(lambda *args: noinline(*args) * 2.0)(*two)
    told = {op: {data for ops, data in met if op in ops} for op in ("Softsign", "Asinh", "Sinh", "Cosh")}
    assert told == {"Softsign": {True}, "Asinh": {True}, "Sinh": {False}, "Cosh": {False}}


def test_fallback_program_of_the_replaced_nodes(rewriting):
    """A cluster that is refused runs its original nodes, inside a function run by TensorFlow's executor."""
    key = "test_graph_pass/refused"
    body = graph_pb2.GraphDef()

    def rewrite(graph, item):
        made = replace(graph, item)
        for node in made.node if made else ():
            if node.op == launch_op.OP:
                node.attr["cluster"].s = key.encode()
        return made

    for name, op, inputs in (
        ("x", "_Arg", []),
        ("y", "_Arg", []),
        ("m", "Maximum", ["d", "y"]),
        ("d", "SquaredDifference", ["x", "y:0"]),
        ("r", "_Retval", ["m:0"]),
    ):
        body.node.add(name=name, op=op, input=inputs).attr["T"].type = F32.as_datatype_enum
    body.node[1].attr["index"].i = 1
    launch_op.register_cluster(key, lambda specs, values: None, fallback.of_graph(body))
    rewriting(rewrite)
    function = tf.function(lambda x, y: tf.exp(peak(x, y)))
    np.testing.assert_allclose(function(tf.ones(3), tf.zeros(3)).numpy(), np.full(3, np.e), rtol=1e-6)
    assert cluster_registry.counters(key) == entry_table.Counters(fallback_runs=1, uncompiled=1)
