"""Auto-clustering on whole programs: loops and branches are compiled as such, and give TensorFlow's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.cluster import code_cache
from tfbridge.bridge.clustering.reports import recent_reports
from tfbridge.models.zoo import lstm

F32 = tf.float32
INPUTS = ([0.1, 0.2, 0.3], [0.5, 1.0, 0.6])  # the branches taken differ


def array_loop(x: tf.Tensor, v: tf.Variable) -> Any:
    def body(i: tf.Tensor, h: tf.Tensor, states: tf.TensorArray) -> Any:
        h = tf.cond(tf.reduce_sum(h) > 1.0, lambda: h * 2.0 - v, lambda: tf.tanh(h))
        return i + 1, h, states.write(i, h)

    _, h, states = tf.while_loop(lambda i, *_: i < 5, body, (0, x, tf.TensorArray(F32, 5)))
    return states.stack(), h


def loop_with_break(x: tf.Tensor, v: tf.Variable) -> Any:
    total = tf.constant(0.0)
    for i in tf.range(6):
        if total > 4.0:
            break
        total += tf.reduce_sum(x) * tf.cast(i, F32)
        x = tf.sin(x) + 0.1
    return total, x


def loop_that_assigns(x: tf.Tensor, v: tf.Variable) -> Any:
    for _ in tf.range(3):
        v.assign_add(tf.reduce_mean(x))
        x = x * v
    return x, v.read_value()


def nested_loops(x: tf.Tensor, v: tf.Variable) -> Any:
    total = tf.zeros(())
    for i in tf.range(3):
        for j in tf.range(4):
            if (i + j) % 2 == 0:
                total += tf.reduce_sum(x) * tf.cast(j, F32)
            else:
                total = total * 0.5
    return total


def loop_in_a_branch(x: tf.Tensor, v: tf.Variable) -> Any:
    if tf.reduce_sum(x) > 1.0:
        for _ in tf.range(3):
            x = tf.sin(x)
    else:
        x = x * v
    return x + 1.0


def two_branches_on_one_condition(x: tf.Tensor, v: tf.Variable) -> Any:
    big = tf.reduce_sum(x) > 1.0
    y = tf.cond(big, lambda: x * v, lambda: tf.exp(x))
    z = tf.tanh(y)
    return tf.cond(big, lambda: z + x, lambda: z * y - x)


def case(x: tf.Tensor, v: tf.Variable) -> Any:
    return (
        tf.switch_case(
            tf.cast(tf.reduce_sum(x), tf.int32), [lambda: tf.sin(x) + v, lambda: tf.exp(x), lambda: x * x]
        )
        * 2.0
    )


def branch_that_assigns(x: tf.Tensor, v: tf.Variable) -> Any:
    if tf.reduce_sum(x) > 1.0:
        v.assign(tf.reduce_max(x))
    return x * v


def scan_and_map(x: tf.Tensor, v: tf.Variable) -> Any:
    return tf.scan(lambda a, e: tf.tanh(a * e) + v, x), tf.map_fn(lambda e: tf.exp(e) * 2.0, x)


def gradient(x: tf.Tensor, v: tf.Variable) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for i in tf.range(4, 0, -1):
            y = tf.sin(y) * x * tf.cast(i, F32)
        total = tf.reduce_sum(y)
    return tape.gradient(total, [x])


WHOLE = (
    array_loop,
    loop_with_break,
    loop_that_assigns,
    nested_loops,
    loop_in_a_branch,
    two_branches_on_one_condition,
    case,
    branch_that_assigns,
    scan_and_map,
    gradient,
)


def compare(function: Callable[..., Any]) -> None:
    """Both inputs, each from the same variable, with and without clusters."""
    v = tf.Variable(1.5)
    tf.config.run_functions_eagerly(False)
    for values in INPUTS:
        x = tf.constant(values)
        wanted, v_wanted = uncompiled(function, x, v)
        v.assign(1.5)
        found = tf.function(function)(x, v)
        for a, b in zip(tf.nest.flatten(found), wanted, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-6)
        assert v.numpy() == pytest.approx(v_wanted, rel=1e-6)


def uncompiled(function: Callable[..., Any], x: tf.Tensor, v: tf.Variable) -> tuple[list[np.ndarray], float]:
    v.assign(1.5)
    tf.config.run_functions_eagerly(True)
    try:
        results = [np.array(t.numpy()) for t in tf.nest.flatten(tf.function(function)(x, v))]
    finally:
        tf.config.run_functions_eagerly(False)
    return results, float(v.numpy())


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_program_is_one_cluster(clustering: None, function: Callable[..., Any]) -> None:
    before = recent_reports()
    compare(function)
    stats = tfbridge.stats()
    assert stats["fallbacks"] == 0
    assert stats["ops_left_out"] == {}
    reports = [r for r in recent_reports(before) if r.clusters]
    assert [len(r.clusters) for r in reports] == [1, 1]
    ops = {n.op for r in reports for c in r.clusters for n in c.graph.nodes.values()}
    assert ops & {"While", "If", "Case"}
    assert not ops & {"Switch", "Merge", "Enter", "Exit"}


def printing_loop(x: tf.Tensor, v: tf.Variable) -> Any:
    for _ in tf.range(3):
        x = tf.sin(x) * 2.0 + tf.exp(x) - tf.tanh(x)
        tf.debugging.Assert(tf.strings.length(tf.strings.as_string(x[0])) > 0, [x])
        y = x
        for _ in tf.range(2):
            y = y * v
        x = x + y
    return x


def gradient_of_loop_without_bound(x: tf.Tensor, v: tf.Variable) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        while tf.reduce_sum(y) > 0.05:
            y = tf.sin(y) * x * 0.5
        total = tf.reduce_sum(y)
    return tape.gradient(total, [x])


def gradient_of_nested_loops(x: tf.Tensor, v: tf.Variable) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in tf.range(3):
            for _ in tf.range(2):
                y = tf.sin(y) * x
        total = tf.reduce_sum(y)
    return tape.gradient(total, [x])


@pytest.mark.parametrize(
    "function", [gradient_of_loop_without_bound, gradient_of_nested_loops], ids=lambda f: f.__name__
)
def test_gradient_of_loops_is_compiled(clustering: None, function: Callable[..., Any]) -> None:
    before = recent_reports()
    compare(function)
    assert tfbridge.stats()["fallbacks"] == 0
    left = [left for report in recent_reports(before) for left in report.unclustered.values()]
    assert not [reason for op, reason in left if op == "LoopCond"]


def test_loop_that_stays_in_tensorflow(clustering: None) -> None:
    """Its body, and loops in it, are compiled; the report names the reason."""
    before = recent_reports()
    compare(printing_loop)
    assert tfbridge.stats()["fallbacks"] == 0
    report = next(r for r in recent_reports(before) if r.clusters)
    assert [reason for op, reason in report.unclustered.values() if op == "LoopCond"]


def test_loops_over_the_array_of_one_that_stays_in_tensorflow(clustering: None) -> None:
    """TensorFlow's optimizers make one list of the array for both loops."""

    def loops(x: tf.Tensor, lengths: tf.Tensor) -> Any:
        heads = tf.map_fn(
            lambda pair: tf.reduce_sum(pair[0][: pair[1]]), (x, lengths), fn_output_signature=tf.float32
        )
        return heads, tf.scan(lambda last, row: tf.tanh(last * 0.9 + row), x)

    x, lengths = tf.reshape(tf.range(12.0) / 12, (3, 4)), tf.constant([1, 4, 2])
    want = loops(x, lengths)
    before = recent_reports()
    for value, expected in zip(tf.function(loops)(x, lengths), want):
        np.testing.assert_allclose(value, expected, 1e-5)
    report = next(r for r in recent_reports(before) if r.clusters)
    assert [reason for op, reason in report.unclustered.values() if op == "LoopCond"] == [
        "its body needs to know, when compiling, a value that changes in the loop"
    ]
    assert any(n.op == "While" for c in report.clusters for n in c.graph.nodes.values())


def test_inner_loop_is_compiled_where_the_outer_one_is_not(clustering: None) -> None:
    before = recent_reports()
    compare(printing_loop)
    clusters = [c for r in recent_reports(before) for c in r.clusters]
    assert any(n.op == "While" for c in clusters for n in c.graph.nodes.values())


def test_lstm(clustering: None) -> None:
    program = lstm.inference(batch=3, time=5, features=4, width=6)
    wanted = uncompiled_program(program)
    found = tf.function(program.function)(*program.inputs)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert tfbridge.stats()["clusters_compiled"] == 1
    assert tfbridge.stats()["ops_left_out"] == {}


def uncompiled_program(program: Any) -> np.ndarray:
    tf.config.run_functions_eagerly(True)
    try:
        return np.array(program.function(*program.inputs).numpy())
    finally:
        tf.config.run_functions_eagerly(False)


def test_keras_lstm_fit_and_predict() -> None:
    layers = tf.keras.layers
    random = np.random.default_rng(0)
    x, y = random.random((8, 6, 4), np.float32), random.random((8, 6, 2), np.float32)
    model = tf.keras.Sequential(
        [layers.Input((6, 4)), layers.LSTM(5, return_sequences=True), layers.Dense(2)]
    )
    weights = model.get_weights()
    results = []
    for compiled in (False, True):
        model.set_weights(weights)
        model.compile(tf.keras.optimizers.SGD(0.1), "mse")
        if compiled:
            tfbridge.reset_stats()
            tfbridge.enable_auto_clustering()
        try:
            model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
            results.append([model.predict(x, verbose=0), *model.get_weights()])
        finally:
            tfbridge.disable_auto_clustering()
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    stats = tfbridge.stats()
    assert stats["fallbacks"] == 0
    assert not [reason for reason in stats["ops_left_out"] if reason.startswith(("LoopCond", "TensorList"))]


def test_control_flow_of_a_tf1_graph(clustering: None) -> None:
    v1 = tf.compat.v1
    was_v2 = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default():
            x = v1.placeholder(F32, [3])
            y = v1.cond(tf.reduce_sum(x) > 1.0, lambda: x * 2.0, lambda: tf.tanh(x))
            _, z = v1.while_loop(
                lambda i, z: i < 3,
                lambda i, z: (i + 1, v1.cond(i > 1, lambda: z * y, lambda: z + 1.0)),
                [0, x],
            )
            with v1.Session() as session:
                found = [session.run(z, {x: values}) for values in INPUTS]
    finally:
        if was_v2:
            v1.enable_control_flow_v2()
    for values, z in zip(INPUTS, found):
        x = np.array(values, np.float32)
        np.testing.assert_allclose(z, (x + 2) * (x * 2 if x.sum() > 1 else np.tanh(x)), rtol=1e-5)
    assert tfbridge.stats()["clusters_compiled"] == 1
    assert tfbridge.stats()["ops_left_out"] == {}


def test_ops_left_out_count_once(clustering: None) -> None:
    """TensorFlow hands a graph over twice."""
    tf.function(lambda x: tf.strings.length(tf.strings.as_string(tf.sin(x))))(tf.ones(2))
    left_out = tfbridge.stats()["ops_left_out"]
    assert {reason.partition(":")[0]: count for reason, count in left_out.items()} == {
        "AsString": 1,
        "StringLength": 1,
    }


def test_functions_of_tf_data_are_left_alone(clustering: None) -> None:
    before = recent_reports()
    data = tf.data.Dataset.from_tensor_slices(np.ones((4, 2), np.float32)).map(lambda x: tf.sin(x) * 2.0 + x)
    assert len(list(data)) == 4
    assert not [r for r in recent_reports(before) if r.clusters]


def test_values_that_change_with_every_call_stop_compiling(
    clustering: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_cache, "_MAX_CONSTANTS", 3)
    function = tf.function(lambda x, n: tf.sin(tf.reshape(x, tf.stack([n, -1]))) + 1.0)
    x = tf.range(60, dtype=F32)
    for n in (1, 2, 3, 4, 5, 6):
        np.testing.assert_allclose(
            function(x, tf.constant(n)).numpy(),
            np.sin(np.arange(60)).reshape(n, -1) + 1,
            rtol=1e-5,
            atol=1e-5,
        )
    stats = tfbridge.stats()
    assert stats["recompiles"] == 2
    assert stats["fallbacks"] == 3
    assert any("compiled for 3 values of n" in reason for reason in stats["ops_left_out"])


def list_gradient(x: tf.Tensor, v: tf.Variable) -> Any:
    """The gradient makes lists as long as the one that is read: their length is kept by the loop before."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        rows, h = tf.TensorArray(F32, 3, clear_after_read=False).unstack(x), v * 1.0
        for i in tf.range(3):
            h = tf.tanh(h + rows.read(i) * rows.read(2 - i) + rows.read(0))
        total = h * h
    return tape.gradient(total, [x])


def test_gradient_of_lists_read_in_a_loop(clustering: None) -> None:
    compare(list_gradient)
    assert not tfbridge.stats()["fallbacks"]


def changing_shape(x: tf.Tensor, v: tf.Variable) -> Any:
    def body(i: tf.Tensor, rows: tf.Tensor) -> Any:
        return i + 1, tf.concat([rows, tf.sin(rows[-1:]) * v], 0)

    return tf.while_loop(lambda i, _: i < 4, body, (0, x), (tf.TensorShape(()), tf.TensorShape((None,))))


def test_what_never_compiled_is_left_out_of_later_graphs(clustering: None) -> None:
    x, v = tf.constant([1.0, 2.0]), tf.Variable(1.5)
    first = tf.function(changing_shape)(x, v)
    assert tfbridge.stats()["fallbacks"] == 1
    second = tf.function(changing_shape)(x, v)
    assert tfbridge.stats()["fallbacks"] == 1
    np.testing.assert_allclose(first[1], second[1])


def test_no_small_clusters_inside_loops_of_tensorflow(clustering: None) -> None:
    """A launch in every iteration costs more than some ops of TensorFlow."""

    def loop(x: tf.Tensor, length: int) -> tf.Tensor:
        for _i in tf.range(3):
            for _ in range(length):
                x = tf.sin(x) * 0.5
            tf.numpy_function(lambda: None, [], [])
        return x

    for length, count in ((1, 0), (8, 1)):
        before = recent_reports()
        tf.function(loop)(tf.constant([1.0, 2.0]), length)
        assert sum(len(report.clusters) for report in recent_reports(before)) == count


def test_a_decorated_function_of_which_a_part_never_compiled(clustering: None) -> None:
    """It no longer runs as one cluster, op by op, but as a graph with clusters in it."""
    x, v = tf.constant([1.0, 2.0]), tf.Variable(1.5)
    jitted = tfbridge.jit(lambda x: changing_shape(x, v)[1])
    results = [jitted(x).numpy() for _ in range(3)]
    assert jitted.direct_cluster(jitted.get_concrete_function(x)) is None
    np.testing.assert_allclose(results[0], results[2])


def test_an_array_that_grows_as_it_is_written(clustering: None) -> None:
    @tf.function
    def rows(x: tf.Tensor) -> tf.Tensor:
        out = tf.TensorArray(F32, 0, dynamic_size=True)
        for i in tf.range(tf.shape(x)[0]):
            out = out.write(i, tf.sin(x[i]) * 2.0)
        return out.stack()

    np.testing.assert_allclose(rows(tf.constant([1.0, 2.0])), 2.0 * np.sin([1.0, 2.0]), rtol=1e-6)


def test_functions_that_ask_for_xla_are_taken_over() -> None:
    tfbridge.reset_stats()
    tfbridge.enable_auto_clustering(jit_compile=True)
    try:

        class Model:
            @tf.function(jit_compile=True)
            def call(self, x: tf.Tensor) -> tf.Tensor:
                return tf.cast(tf.strings.length(tf.strings.as_string(x)), F32) * tf.exp(
                    x
                )  # XLA has no strings

        found = Model().call(tf.constant([1.0, 22.0])).numpy()
    finally:
        tfbridge.disable_auto_clustering()
    np.testing.assert_allclose(found, np.array([8, 9]) * np.exp([1, 22]), rtol=1e-5)
    assert tfbridge.stats()["clusters_compiled"]


def test_branches_that_only_assign_are_compiled_as_such(clustering: None) -> None:
    v = tf.Variable(1.0)

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        def assign() -> None:
            v.assign(v * 2.0 + x)

        tf.cond(x > 1.0, assign, lambda: None)
        return v * 3.0

    assert [float(function(tf.constant(x))) for x in (2.0, 0.5, 3.0)] == [12.0, 12.0, 33.0]
    assert tfbridge.stats()["clusters_compiled"] == 1
    assert tfbridge.stats()["ops_left_out"] == {}


def test_branches_wait_for_what_was_assigned_before(clustering: None) -> None:
    """A branch waits for it by its Switch alone; the loop, whose lists the gradient reads, runs in TensorFlow."""
    v = tf.Variable(0.0)

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        v.assign(v * 0.5 + tf.reduce_mean(x))
        tf.cond(x[0] > 0.0, lambda: v.assign_add(tf.reduce_mean(x)), lambda: v.read_value())
        states = tf.TensorArray(F32, 3)
        loop = tf.while_loop(
            lambda i, *_: i < 3, lambda i, h, states: (i + 1, h + v, states.write(i, h + v)), (0, x, states)
        )
        return loop[2].stack()

    for first in (1.0, -1.0):
        x = tf.constant([first, 2.0, 4.0])
        for _ in range(4):
            v.assign(1.0)
            with tf.GradientTape() as tape:
                tape.watch(x)
                found = function(x)
            mean = (first + 6) / 3
            read = 0.5 + mean + (mean if first > 0 else 0.0)
            np.testing.assert_allclose(found, [x + read * k for k in (1, 2, 3)], rtol=1e-5)
    assert tfbridge.stats()["clusters_compiled"]


def test_a_loop_that_never_runs_compiles(clustering: None) -> None:
    @tf.function
    def function(x: tf.Tensor, n: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(n):
                y = tf.sin(y) * x
            total = tf.reduce_sum(y)
        return total, tape.gradient(total, x)

    total, gradient = function(tf.constant([1.0, 2.0]), tf.constant(0))
    assert (float(total), gradient.numpy().tolist()) == (3.0, [1.0, 1.0])
    assert tfbridge.stats()["fallbacks"] == 0


def test_a_fetched_op_of_several_outputs_is_compiled(clustering: None) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype("f4")
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        given = v1.placeholder(F32, (3, 5))
        values, places = tf.math.top_k(tf.exp(given) * 2.0, k=2, name="largest")
        total = values + tf.cast(places, F32)
        found = session.run([values, places, total], {given: x})
        again = session.run("largest:1", {given: x})
    wanted_places = np.argsort(-x, axis=1)[:, :2]
    wanted = np.exp(np.take_along_axis(x, wanted_places, 1)) * 2
    np.testing.assert_array_equal(found[1], wanted_places)
    np.testing.assert_array_equal(again, wanted_places)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-6)
    np.testing.assert_allclose(found[2], wanted + wanted_places, rtol=1e-6)
    assert tfbridge.stats()["ops_left_out"] == {}
    assert tfbridge.stats()["clusters_compiled"] == 2


@pytest.mark.parametrize("channels", [1, 4])
def test_a_bias_that_was_added_with_four_axes(clustering: None, channels: int) -> None:
    """TensorFlow's graph rewrites fuse such a sum with the convolution, and leave the shape as it was."""
    random = np.random.default_rng(0)
    x, kernel, bias = (
        tf.constant(random.standard_normal(dims).astype("f4"))
        for dims in ((2, 8, 8, 3), (3, 3, 3, channels), (channels,))
    )

    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(tf.nn.conv2d(x, kernel, 1, "SAME") + tf.reshape(bias, [1, 1, 1, channels])) * 2.0

    np.testing.assert_allclose(
        tf.function(function)(x), function(x), rtol=1e-4, atol=1e-5
    )  # 27 terms, other order
    assert tfbridge.stats()["fallbacks"] == 0
    assert tfbridge.stats()["ops_left_out"] == {}


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "SimpleRNN"])
def test_gradient_of_a_recurrent_layer_of_any_batch_and_length(
    clustering: None, layer: str, masked: bool
) -> None:
    """The forward loop keeps shapes in lists, for the backward loop needs them."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((None,)),
            layers.Embedding(9, 3, mask_zero=masked),
            getattr(layers, layer)(4),
            layers.Dense(1),
        ]
    )

    def gradients(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_variables)]

    function = tf.function(gradients, input_signature=[tf.TensorSpec([None, None], tf.int64)])
    before = recent_reports()
    for dims in ((2, 5), (3, 1), (1, 7)):
        x = tf.constant(np.random.default_rng(0).integers(0, 9, dims))
        for found, wanted in zip(tf.nest.flatten(function(x)), tf.nest.flatten(gradients(x)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)  # sums over time, in other order
    assert tfbridge.stats()["fallbacks"] == 0
    left = [left for report in recent_reports(before) for left in report.unclustered.values()]
    assert not [reason for op, reason in left if op in ("LoopCond", "TensorListPushBack")]


@pytest.mark.parametrize("start", ["constant", "argument"])
def test_lists_of_constants_that_change_are_read(clustering: None, start: str) -> None:
    """What a loop pops is no constant, though a shape is made from it: its elements differ, or are data."""

    @tf.function
    def function(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        none = tf.zeros([0], tf.int32)
        values = tf.raw_ops.EmptyTensorList(element_shape=none, max_num_elements=8, element_dtype=tf.int32)
        first = tf.constant(1) if start == "constant" else n
        for i in tf.range(3):
            values = tf.raw_ops.TensorListPushBack(input_handle=values, tensor=first + i * n)
        total = tf.zeros([])
        for _ in tf.range(3):
            values, size = tf.raw_ops.TensorListPopBack(
                input_handle=values, element_shape=none, element_dtype=tf.int32
            )
            total += tf.reduce_sum(tf.fill([size, 2], tf.reduce_sum(x)))
        return total

    for n in (0, 1, 2):
        sizes = [(1 if start == "constant" else n) + i * n for i in range(3)]
        assert function(tf.ones([3]), tf.constant(n)).numpy() == 6 * sum(sizes)


def test_constants_that_wait_for_constants(clustering: None) -> None:
    """A cluster that copies one must not wait for itself."""
    v1 = tf.compat.v1
    x = np.array([0.5, 2.0], "f4")
    with tf.Graph().as_default(), v1.Session() as session:
        given = v1.placeholder(F32, (2,))
        a = tf.sin(given)
        with tf.control_dependencies([a]):
            first = tf.constant([1.5, 1.0], name="first")
        with tf.control_dependencies([first]):
            second = tf.constant([2.5, 3.0], name="second")
        found = session.run([first, tf.tanh(tf.cos(given) * second) + tf.exp(a)], {given: x})
    np.testing.assert_allclose(found[1], np.tanh(np.cos(x) * [2.5, 3.0]) + np.exp(np.sin(x)), rtol=1e-5)
    assert tfbridge.stats()["clusters_compiled"] == 1


def test_branches_within_branches_within_a_loop(clustering: None) -> None:
    """Of a branch that is rebuilt, what nothing reads goes, too."""
    images = tf.constant(np.random.default_rng(0).random((5, 4, 4, 1), np.float32))

    @tf.function
    def turned(images: tf.Tensor, times: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(lambda given: tf.image.rot90(*given), (images, times), fn_output_signature=F32)

    times = np.array([3, 0, 2, 1, 7], np.int32)
    wanted = [np.rot90(image, k) for image, k in zip(images.numpy(), times)]
    np.testing.assert_array_equal(turned(images, tf.constant(times)), wanted)
    assert tfbridge.stats()["ops_left_out"] == {}


def test_call_that_lacks_results_is_left_to_tensorflow(
    clustering: None, caplog: pytest.LogCaptureFixture
) -> None:
    """TensorFlow's implementation selector puts functions with other results into calls of forward functions."""

    def implementation(function: Callable, **attributes: str) -> Any:
        return tf.function(function, experimental_attributes={"api_implements": "test_choice", **attributes})

    chosen = implementation(lambda x: tf.exp(tf.sin(x)) * tf.cos(x) * tf.tanh(x))
    other = implementation(lambda x: tf.exp(x) + 1.0, api_preferred_device="CPU")

    @tf.function
    def doubled(x: tf.Tensor) -> tf.Tensor:
        y = chosen(x)
        concrete = other.get_concrete_function(x)
        concrete.add_to_graph()
        concrete.add_gradient_functions_to_graph()
        return y * 2.0

    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = doubled(x)
    np.testing.assert_allclose(y, 2 * np.exp(np.sin(x)) * np.cos(x) * np.tanh(x), rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(y, x), [1.5231884, 1.9280552], rtol=1e-5)
    assert not caplog.records


def test_variants_and_strings_go_in(clustering: None, caplog: pytest.LogCaptureFixture) -> None:
    """Optionals, as Keras' `predict` takes them, lists of tensors, and what is not used: the function is no whole
    cluster."""
    x, dims = tf.constant([1.0, 2.0, 3.0]), tf.constant([], tf.int32)
    optional = tf.experimental.Optional.from_value(x)
    items = tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=dims)

    def stacked(items: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.TensorListStack(input_handle=items, element_dtype=tf.float32, element_shape=dims)

    cases = [
        (lambda o: tf.tanh(o.get_value()) * 2.0 + 1.0, optional),
        (lambda o: tf.tanh(o[0].get_value()) * o[1] + 1.0, [optional, x]),
        (lambda a: tf.tanh(a) * optional.get_value() + 1.0, x),
        (lambda i: tf.tanh(stacked(i)) * 2.0 + 1.0, items),
        (lambda o: tf.tanh(o[1]) * 2.0 + 1.0, [optional, x]),
        (lambda s: tf.tanh(s[1]) * 2.0 + 1.0, [tf.constant("name"), x]),
    ]
    for function, argument in cases:
        wanted, compiled = function(argument), tf.function(function)
        for _ in range(3):
            np.testing.assert_allclose(compiled(argument), wanted, rtol=1e-5)
    assert not caplog.records
