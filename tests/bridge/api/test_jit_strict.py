"""`jit(strict=True)`: what is not compiled is an error that names it, whichever way the function is called."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.compiler import UnsupportedError
from tfbridge.compiler.client.platforms import native

X = tf.constant([0.5, 1.0, 2.0])


def with_string(x: tf.Tensor) -> tf.Tensor:
    return tf.sin(x) * tf.cast(tf.strings.length(tf.strings.as_string(x)), tf.float32)


@tf.custom_gradient
def _half(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    return tf.tanh(x) * 2.0, lambda dy: dy * tf.strings.to_number(tf.strings.as_string(x))


def with_string_in_gradient(x: tf.Tensor) -> tf.Tensor:
    return _half(x) + 1.0


def plain(x: tf.Tensor) -> tf.Tensor:
    return tf.exp(tf.sin(x) * 2.0) + tf.cos(x)


def directly(function: Callable) -> tf.Tensor:
    return function(X)


def under_tape(function: Callable) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = function(X)
    return tape.gradient(y, X)


def in_function(function: Callable) -> tf.Tensor:
    return tf.function(lambda x: function(x) * 3.0)(X)


def in_gradient_of_function(function: Callable) -> tf.Tensor:
    return tf.function(lambda: under_tape(function))()


def in_jit(function: Callable) -> tf.Tensor:
    return tfbridge.jit(lambda x: function(x) * 3.0)(X)


def concrete(function: Callable) -> tf.Tensor:
    return function.get_concrete_function(X)(X)


def in_branch(function: Callable) -> tf.Tensor:
    return tf.function(lambda x: tf.cond(x[0] > 0.0, lambda: function(x), lambda: x))(X)


def in_graph_of_tensorflow_1(function: Callable) -> np.ndarray:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3])
        y = function(x)
    with tf.compat.v1.Session(graph=graph) as session:
        return session.run(y, {x: X.numpy()})


WAYS = [
    directly,
    under_tape,
    in_function,
    in_gradient_of_function,
    in_jit,
    concrete,
    in_branch,
    in_graph_of_tensorflow_1,
]


@pytest.mark.parametrize("way", WAYS)
def test_an_op_without_translation_is_an_error_on_every_way(way: Callable) -> None:
    with pytest.raises(
        Exception, match=r"with_string: strict=True(.|\n)*AsString(.|\n)*StringLength"
    ) as error:
        way(tfbridge.jit(with_string, strict=True))
    assert isinstance(error.value, UnsupportedError) or "UnsupportedError:" in str(
        error.value
    )  # AutoGraph's own error


@pytest.mark.parametrize("way", WAYS)
def test_a_compilation_that_fails_is_an_error_on_every_way(
    way: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise UnsupportedError("sine: has no code")

    monkeypatch.setattr(native(), "load_artifact", fail)
    function = tfbridge.jit(plain, strict=True)
    for _ in range(2):
        with pytest.raises(
            (UnsupportedError, tf.errors.InternalError), match=r"strict=True(.|\n)*sine: has no code"
        ):
            way(function)
    monkeypatch.undo()
    assert way(tfbridge.jit(plain)) is not None


@pytest.mark.parametrize("way", [under_tape, in_gradient_of_function])
def test_an_op_of_the_gradient_that_stays_is_an_error(way: Callable) -> None:
    with pytest.raises(
        tf.errors.InternalError, match=r"strict=True(.|\n)*\(AsString\)(.|\n)*\(StringToNumber\)"
    ):
        way(tfbridge.jit(with_string_in_gradient, strict=True))
    np.testing.assert_allclose(way(tfbridge.jit(with_string_in_gradient)), X, rtol=1e-6)


def loop(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda k, y: k < 5, lambda k, y: (k + 1, tf.sin(y) * 2.0 + x), (0, x))[1]


def test_a_loop_whose_gradient_is_taken_outside_is_an_error() -> None:
    """The lists that go from the loop to its gradient are in two functions then."""
    function = tfbridge.jit(loop, strict=True)
    np.testing.assert_allclose(directly(function), loop(X), rtol=1e-5)
    with pytest.raises(
        UnsupportedError, match=r"strict=True(.|\n)*TensorListPushBack(.|\n)*result of the graph"
    ):
        under_tape(function)
    for way in (in_gradient_of_function, lambda f: tfbridge.jit(lambda: under_tape(f), strict=True)()):
        np.testing.assert_allclose(way(function), under_tape(tf.function(loop)), rtol=1e-5)


@pytest.mark.parametrize("way", [under_tape, in_gradient_of_function])
def test_a_function_within_a_strict_one_counts(way: Callable) -> None:
    inner = tf.function(with_string_in_gradient)
    with pytest.raises(
        tf.errors.InternalError, match=r"strict=True(.|\n)*\(AsString\)(.|\n)*\(StringToNumber\)"
    ):
        way(tfbridge.jit(lambda x: inner(tf.sin(x)), strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_what_compiles_is_no_error(way: Callable) -> None:
    tfbridge.reset_stats()
    np.testing.assert_allclose(way(tfbridge.jit(plain, strict=True)), way(tf.function(plain)), rtol=1e-5)
    np.testing.assert_allclose(
        way(tfbridge.jit(tf.sin, strict=True)), way(tf.function(lambda x: tf.sin(x))), rtol=1e-5
    )
    assert tfbridge.stats()["clusters_compiled"] > 1 and not tfbridge.stats()["fallbacks"]


def test_a_model_is_trained_under_strict() -> None:
    layers = [
        tf.keras.layers.Dense(5, "relu"),
        tf.keras.layers.LayerNormalization(),
        tf.keras.layers.Dense(2),
    ]
    model = tf.keras.Sequential(layers)
    model(tf.ones((4, 3)))
    strict = tfbridge.jit(lambda x: tf.reduce_mean(model(x) ** 2), strict=True)

    def step(f: Callable, x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            y = f(x)
        return [y, *tape.gradient(y, model.trainable_variables)]

    x = tf.constant(np.random.default_rng(0).normal(size=(4, 3)).astype("f4"))
    wanted = step(lambda x: tf.reduce_mean(model(x) ** 2), x)
    for found in (step(strict, x), tf.function(lambda x: step(strict, x))(x)):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_strict_function_among_others_leaves_them_alone() -> None:
    strict = tfbridge.jit(plain, strict=True)
    mixed = tf.function(lambda x: tf.strings.length(tf.strings.as_string(strict(x))))
    np.testing.assert_array_equal(mixed(X), tf.strings.length(tf.strings.as_string(plain(X))))
    other = tf.function(with_string)

    def own_loop(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda k, y: k < 2, lambda k, y: (k + 1, other(strict(y))), (0, x))[1]

    np.testing.assert_allclose(tf.function(own_loop)(X), own_loop(X), rtol=1e-5)
    whole = tf.function(lambda x: strict(x) + with_string(x) + other(x) - other(x))
    np.testing.assert_allclose(whole(X), plain(X) + with_string(X), rtol=1e-5)


def test_explain_shows_what_is_in_the_way_of_a_strict_function() -> None:
    assert re.search(r"AsString .*: ", str(tfbridge.explain(tfbridge.jit(with_string, strict=True), X)))
