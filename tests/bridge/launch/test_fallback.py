"""The fallback interpreter gives what TensorFlow gives: functions, graphs, control flow, errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from tfbridge.bridge.launch import fallback

F32, I32 = tf.float32, tf.int32


def interpret(function: Callable, *arguments: tf.Tensor) -> list[np.ndarray]:
    """The results of a traced function, node by node."""
    concrete = tf.function(function).get_concrete_function(*arguments)
    graph = concrete.graph.as_graph_def()
    definition = concrete.function_def
    run = fallback.of_function(definition, graph.library)
    return [tensor.numpy() for tensor in run([*arguments, *concrete.captured_inputs])]


def check(function: Callable, *arguments: object) -> None:
    tensors = [tf.convert_to_tensor(a) for a in arguments]
    expected = tf.nest.flatten(function(*tensors))
    given = interpret(function, *tensors)
    assert len(given) == len(expected)
    for a, b in zip(given, expected):
        assert a.dtype == b.numpy().dtype
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-6)


def while_loop(x: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda i, v: i < count, lambda i, v: (i + 1, v * 0.5 + 1.0), (0, x))[1]


def nested(x: tf.Tensor) -> tf.Tensor:
    inner = tf.function(lambda v: tf.matmul(v, v) + 1.0)
    outer = tf.function(lambda v: inner(v) * inner(v + 1.0))
    return outer(x) - outer(x * 2.0)


MATRIX = np.arange(4, dtype=np.float32).reshape(2, 2)
CASES = {
    "elementwise": (lambda x: tf.nn.relu(x * 2.0 - 1.0), MATRIX),
    "list_inputs_and_outputs": (lambda x: tf.split(tf.concat([x, x + 1.0, x], axis=0), [1, 2, 3]), MATRIX),
    "tensor_attribute": (lambda x: x + tf.constant([[1.0, 2.0], [3.0, 4.0]]), MATRIX),
    "results_are_arguments": (lambda x, y: (y, x, y), MATRIX, np.float32(3)),
    "strings": (lambda x: tf.strings.length(tf.strings.join([tf.as_string(x), "a"])), MATRIX),
    "shapes_and_slices": (lambda x: tf.reshape(x[:, 1:], tf.stack([1, tf.shape(x)[0]])), MATRIX),
    "several_outputs_of_an_op": (lambda x: tf.nn.moments(x, [0]) + tuple(tf.math.top_k(x, 1)), MATRIX),
    "convolution": (
        lambda x: tf.nn.conv2d(x, tf.ones((2, 2, 3, 4)), 1, "SAME"),
        np.ones((1, 4, 4, 3), np.float32),
    ),
    "calls": (nested, MATRIX),
    "while": (while_loop, MATRIX, np.int32(5)),
    "while_not_entered": (while_loop, MATRIX, np.int32(0)),
    "cond_true": (lambda x, p: tf.cond(p, lambda: x + 1.0, lambda: x * 2.0), MATRIX, True),
    "cond_false": (lambda x, p: tf.cond(p, lambda: x + 1.0, lambda: x * 2.0), MATRIX, False),
    "loop_in_cond": (lambda x, n: tf.cond(n > 2, lambda: while_loop(x, n), lambda: x), MATRIX, np.int32(4)),
    **{
        f"case_{k}": (
            lambda x, i: tf.switch_case(i, [lambda: x, lambda: x * 2.0, lambda: x * 3.0]),
            MATRIX,
            np.int32(k),
        )
        for k in (0, 2, 7, -1)
    },
    "gradient": (lambda x: tf.gradients(tf.reduce_sum(tf.tanh(tf.matmul(x, x))), x), MATRIX),
}
GRAPH_ONLY = {"gradient"}


@pytest.mark.parametrize("name", CASES)
def test_same_as_tensorflow(name):
    function, *arguments = CASES[name]
    if name in GRAPH_ONLY:
        tensors = [tf.convert_to_tensor(a) for a in arguments]
        expected = [t.numpy() for t in tf.function(function)(*tensors)]
        np.testing.assert_allclose(interpret(function, *tensors), expected, rtol=1e-6)
    else:
        check(function, *arguments)


FILTERS = np.random.default_rng(0).random((3, 3, 2, 8), np.float32)
VOLUMES = np.random.default_rng(1).random((2, 2, 2, 2, 8), np.float32)


@tf.function(jit_compile=True)
def images_in_groups(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, FILTERS, 1, "SAME"), tf.range(8.0)))


@tf.function(jit_compile=True)
def images_in_groups_within(x: tf.Tensor) -> tf.Tensor:
    filters = tf.constant(FILTERS)
    return tf.cond(
        x[0, 0, 0, 0] > 0, lambda: tf.nn.conv2d(x, filters, 1, "SAME"), lambda: tf.tile(x, [1, 1, 1, 2])
    )


@tf.function(jit_compile=True)
def volumes_in_groups(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv3d(x, VOLUMES, [1] * 5, "VALID")


@pytest.mark.parametrize("may_wait", [True, False])
@pytest.mark.parametrize("has_gradient", [False, True])
@pytest.mark.parametrize(
    ("function", "dims"),
    [
        (images_in_groups, (2, 5, 4, 4)),
        (images_in_groups_within, (2, 5, 4, 4)),
        (volumes_in_groups, (1, 3, 4, 3, 4)),
    ],
)
def test_convolutions_in_groups_are_left_to_xla(function, dims, has_gradient, may_wait, monkeypatch):
    """TensorFlow's kernels have no gradients of groups and no groups in 3D, and its optimizer fuses groups wrongly."""

    def call(x: tf.Tensor) -> tf.Tensor:
        return tf.exp(-function(x)) + 1.0

    def gradient(x: tf.Tensor) -> tf.Tensor:
        return tf.gradients(tf.reduce_sum(call(x)), x)[0]

    monkeypatch.setattr(fallback, "_may_wait", lambda: contextlib.nullcontext(may_wait))
    given = tf.constant(np.random.default_rng(2).random(dims, np.float32))
    tested = gradient if has_gradient else call
    expected = tf.function(tested)(given).numpy()
    np.testing.assert_allclose(interpret(tested, given)[0], expected, rtol=1e-5)


def test_control_inputs_order_side_effects():
    variable = tf.Variable(1.0)

    def function(x):
        variable.assign(x)
        before = variable.read_value()
        variable.assign_add(1.0)
        return before, variable.read_value()

    assert interpret(function, tf.constant(5.0)) == [5.0, 6.0]


def test_preparing_runs_nothing():
    seen: list[float] = []

    def note(v: tf.Tensor) -> tf.Tensor:
        seen.append(float(v))
        return v

    def function(x: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        return while_loop(tf.py_function(note, [x], F32), count)

    concrete = tf.function(function).get_concrete_function(tf.constant(1.0), tf.constant(3))
    original = fallback.of_function(concrete.function_def, concrete.graph.as_graph_def().library)
    original.prepare(frozenset(), {}, is_brief=False)
    assert seen == []
    assert original([tf.constant(4.0), tf.constant(3)])[0].numpy() == 2.25
    assert seen == [4.0]


def test_graph_between_args_and_retvals():
    graph = tf.compat.v1.GraphDef()
    enum = F32.as_datatype_enum
    for name, op, inputs in (
        ("r0", "_Retval", ["s:0"]),
        ("r1", "_Retval", ["b"]),
        ("s", "Sub", ["a", "b:0"]),
        ("b", "_Arg", []),
        ("a", "_Arg", []),
    ):
        graph.node.add(name=name, op=op, input=inputs).attr["T"].type = enum
    graph.node[1].attr["index"].i = graph.node[3].attr["index"].i = 1
    first, second = fallback.of_graph(graph)([tf.constant(5.0), tf.constant(2.0)])
    assert (first.numpy(), second.numpy()) == (3.0, 2.0)


def test_errors_are_tensorflows():
    matmul = tf.function(lambda x: tf.matmul(x, x))
    concrete = matmul.get_concrete_function(tf.TensorSpec([None, None], F32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Matrix size-incompatible"):
        fallback.of_function(concrete.function_def)([tf.ones((2, 3))])
    concrete = tf.function(lambda x, y: x + y).get_concrete_function(tf.ones(1), tf.ones(1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="1 arguments for a function of 2"):
        fallback.of_function(concrete.function_def)([tf.ones(1)])


@pytest.mark.parametrize(
    "op, inputs, error, message",
    [
        ("NoSuchOp", [], tf.errors.NotFoundError, "no op 'NoSuchOp'"),
        ("Switch", [], tf.errors.UnimplementedError, "no meaning on its own"),
        ("Neg", ["n"], tf.errors.UnimplementedError, "cycle"),
    ],
)
def test_graphs_that_cannot_run(op, inputs, error, message):
    graph = tf.compat.v1.GraphDef()
    graph.node.add(name="n", op=op, input=inputs)
    with pytest.raises(error, match=message):
        fallback.of_graph(graph)([])


def test_nothing_is_recorded_on_a_tape():
    concrete = tf.function(lambda x: x * x).get_concrete_function(tf.ones(()))
    x = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        (y,) = fallback.of_function(concrete.function_def)([x.read_value()])
    assert y.numpy() == 9.0
    assert tape.gradient(y, x) is None
