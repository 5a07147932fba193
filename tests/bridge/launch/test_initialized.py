"""Functions that ask whether a variable has a value, or act on it: with and without one, and as it gets its first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tensorflow.python.ops import resource_variable_ops

v1 = tf.compat.v1
X = tf.constant([1.0, 2.0, 3.0])


class Late(tf.Module):
    """A variable without a value at first, and functions of it."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = resource_variable_ops.eager_safe_variable_handle(tf.zeros(3), [3], None, "late", False)

    def read(self, x: tf.Tensor) -> tf.Tensor:
        """Its value, or another."""
        return tf.cond(self.is_set(), lambda: self.value() * 2.0 + x, lambda: x - 1.0)

    def write(self, x: tf.Tensor) -> tf.Tensor:
        """Its first value, or the next."""

        def start() -> tf.Tensor:
            tf.raw_ops.AssignVariableOp(resource=self.handle, value=x * 10.0)
            return x

        def proceed() -> tf.Tensor:
            tf.raw_ops.AssignAddVariableOp(resource=self.handle, value=x)
            return self.value()

        return tf.sin(tf.cond(self.is_set(), proceed, start)) * tf.exp(x)

    def flag(self, x: tf.Tensor) -> tf.Tensor:
        """Whether it has one."""
        return tf.cast(self.is_set(), tf.float32) + tf.tanh(x) * 2.0

    def chosen(self, x: tf.Tensor) -> tf.Tensor:
        """It is read in a branch that is taken for large numbers alone."""
        return tf.sin(tf.cond(x[0] > 50.0, lambda: self.value() + x, lambda: x * 2.0)) + tf.exp(-x)

    def set_first(self, x: tf.Tensor) -> tf.Tensor:
        """It has a value by the time that it is asked."""
        tf.raw_ops.AssignVariableOp(resource=self.handle, value=tf.sin(x))
        return tf.cast(self.is_set(), tf.float32) * tf.cos(self.value())

    def is_set(self) -> tf.Tensor:
        """Whether the variable has a value."""
        return tf.raw_ops.VarIsInitializedOp(resource=self.handle)

    def value(self) -> tf.Tensor:
        """The variable's value."""
        return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=tf.float32)


def results(compile: Callable[..., Any], name: str) -> list[np.ndarray]:
    """Three calls without a value, if none gives it one, and three with one; then what the variable holds."""
    late = Late()
    assert not late.is_set()
    function = compile(getattr(late, name))
    found = [np.asarray(function(X)) for _ in range(3)]
    tf.raw_ops.AssignVariableOp(resource=late.handle, value=X * 100.0)
    return [*found, *(np.asarray(function(X)) for _ in range(3)), late.value().numpy()]


NAMES = ("read", "write", "flag", "chosen", "set_first")


@pytest.mark.parametrize("name", NAMES)
def test_whole(name: str) -> None:
    wanted = results(tf.function, name)
    for compile in (lambda f: tfbridge.jit(f, strict=True), lambda f: tfbridge.jit(f, strict=True).native):
        np.testing.assert_allclose(results(compile, name), wanted, rtol=1e-5, atol=1e-5)
    assert tfbridge.stats()["clusters_compiled"]


@pytest.mark.parametrize("name", NAMES)
def test_clustered(name: str) -> None:
    wanted = results(tf.function, name)
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    try:
        np.testing.assert_allclose(results(tf.function, name), wanted, rtol=1e-5, atol=1e-5)
    finally:
        tfbridge.disable_auto_clustering()
    assert tfbridge.stats()["clusters_compiled"]


@pytest.mark.parametrize(
    "compile", [lambda f: tfbridge.jit(f, strict=True), tfbridge.jit], ids=["whole", "parts"]
)
def test_a_read_without_a_value_is_an_error(compile: Callable[..., Any]) -> None:
    late = Late()
    function = compile(lambda x: tf.cast(late.is_set(), tf.float32) + late.value() * tf.tanh(x))
    with pytest.raises(tf.errors.FailedPreconditionError):
        function(X)
    tf.raw_ops.AssignVariableOp(resource=late.handle, value=X)
    np.testing.assert_allclose(function(X), 1.0 + X * np.tanh(X), rtol=1e-5)


def in_session(kind: str) -> list[np.ndarray]:
    """A session in which a variable is not there at first."""
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=tf.ones(3), use_resource=True)
        x = v1.placeholder(tf.float32, (None,))
        is_set = v1.is_variable_initialized(v)
        if kind == "read":
            y = v1.cond(is_set, lambda: v.read_value() * 2.0 + x, lambda: x - 1.0)
        elif kind == "write":
            y = v1.cond(is_set, lambda: v1.assign_add(v, x) + 0.0, lambda: v1.assign(v, x * 10.0) + 0.0)
        else:
            with tf.control_dependencies([is_set]):
                assigned = v1.assign(v, x * 3.0)
            with tf.control_dependencies([assigned]):
                y = v.read_value() + tf.cast(is_set, tf.float32) * tf.tanh(x)
        y = tf.tanh(y / 100.0) + tf.sin(y)
        with v1.Session() as session:
            found = [session.run(y, {x: X.numpy()}) for _ in range(2)]
            session.run(v.initializer)
            return [*found, *(session.run(y, {x: X.numpy()}) for _ in range(2))]


@pytest.mark.parametrize("kind", ["read", "write", "then_write"])
def test_in_sessions(kind: str) -> None:
    wanted = in_session(kind)
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    try:
        np.testing.assert_allclose(in_session(kind), wanted, rtol=1e-5, atol=1e-5)
    finally:
        tfbridge.disable_auto_clustering()
    assert tfbridge.stats()["clusters_compiled"]
