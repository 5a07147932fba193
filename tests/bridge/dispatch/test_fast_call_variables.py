"""Direct calls of functions that read variables: the value of now, whatever happened to the variable."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from in_threads import in_threads
from tfbridge.bridge.dispatch import fast_call_variables
from tfbridge.bridge.launch import resource_variables

RNG = np.random.default_rng(5)
pytestmark = pytest.mark.skipif(
    not resource_variables.available(), reason="variables are laid out in another way"
)


def goes_directly(function: tfbridge.bridge.api.jit.Jit, *args: tf.Tensor) -> bool:
    """Whether the last way of a function answers these arguments."""
    return function._fast_path[0](*args) is not NotImplemented


def normal(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


def adding(v: tf.Variable) -> tfbridge.bridge.api.jit.Jit:
    """A compiled function that adds a variable."""
    return tfbridge.jit(lambda x: x + v)


@pytest.mark.parametrize(
    "dims", [(), (1,), (5,), (70_000,), (2, 3), (1, 1, 70_000), (2, 1, 3, 1, 2), (1, 2, 1, 3, 1, 2)]
)
def test_every_rank(dims: tuple[int, ...]) -> None:
    v = tf.Variable(normal(*dims))
    shifted = adding(v)
    x = tf.constant(normal(*dims))
    for _ in range(4):
        v.assign(normal(*dims))
        np.testing.assert_array_equal(shifted(x), x + v)
        np.testing.assert_array_equal(shifted.native(x.numpy()), x + v)
    assert goes_directly(shifted, x)


@pytest.mark.parametrize("dims", [(0,), (2, 0), (1,) * 7, (1, 1, 1, 70_000)])
def test_shapes_that_tensorflow_reads(dims: tuple[int, ...]) -> None:
    v = tf.Variable(normal(*dims))
    shifted = adding(v)
    x = tf.constant(normal(*dims))
    for _ in range(3):
        v.assign_add(tf.ones(dims))
        np.testing.assert_array_equal(shifted(x), x + v)
    assert not goes_directly(shifted, x)


def test_values_of_another_shape() -> None:
    v = tf.Variable(normal(2, 3), shape=tf.TensorShape(None))

    @tfbridge.jit
    def total(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(v * 2.0) + x

    x = tf.constant(1.0)
    for dims in ((2, 3), (2, 3), (3, 2), (6,), (2, 3), (4,), (4,), (2, 3)):
        v.assign(normal(*dims))
        for _ in range(2):
            np.testing.assert_allclose(total(x), tf.reduce_sum(v * 2.0) + x, rtol=1e-5)
            np.testing.assert_allclose(total.native(np.float32(1.0)), tf.reduce_sum(v * 2.0) + x, rtol=1e-5)


def test_one_variable_twice_and_constants_beside() -> None:
    v, other = tf.Variable(normal(3)), tf.Variable(normal(3))
    kept = tf.constant(normal(3))

    @tfbridge.jit
    def mixed(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return v * x + other * kept, other.read_value() - v.read_value() * kept

    x = tf.constant(normal(3))
    for _ in range(4):
        other.assign(normal(3))
        v.assign_add(x)
        first, second = mixed(x)
        np.testing.assert_allclose(first, v * x + other * kept, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(second, other - v * kept, rtol=1e-5, atol=1e-6)
    assert goes_directly(mixed, x)


def test_packed_weights_that_change() -> None:
    w, b = tf.Variable(normal(96, 80)), tf.Variable(normal(80))

    @tfbridge.jit
    def dense(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(x @ w + b)

    x = tf.constant(normal(64, 96))
    for step in range(30):
        if step % 7 == 3:
            w.assign(normal(96, 80))
        if step % 5 == 4:
            w.assign_add(normal(96, 80))
        np.testing.assert_allclose(dense(x), tf.nn.relu(x @ w + b), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(dense.native(x.numpy()), tf.nn.relu(x @ w + b), rtol=1e-4, atol=1e-4)
    for _ in range(70):  # a value that lives is packed once
        dense(x)
    assert goes_directly(dense, x)


def test_a_result_that_is_the_variable_keeps_its_value() -> None:
    v = tf.Variable(normal(4))

    @tfbridge.jit
    def both(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return v.read_value(), v + x

    x = tf.constant(normal(4))
    for _ in range(3):
        before = v.numpy()
        read, _ = both(x)
        v.assign_add(x)
        np.testing.assert_array_equal(read, before)


def test_a_result_keeps_its_value_and_updates_stay_in_place() -> None:
    v = tf.Variable(normal(1000))

    @tfbridge.jit
    def doubled() -> tf.Tensor:
        return v * 2.0

    for _ in range(4):
        wanted = v.numpy() * 2
        result = doubled()
        v.assign_add(tf.ones([1000]))
        np.testing.assert_array_equal(result, wanted)
    assert goes_directly(doubled)


def test_uninitialized_and_copied_on_read() -> None:
    v = tf.Variable(normal(6))
    shifted = adding(v)
    x = tf.constant(normal(6))
    for _ in range(3):
        shifted(x)
    assert goes_directly(shifted, x)
    for _ in range(2):
        held = v.read_value()
        tf.raw_ops.ResourceScatterAdd(resource=v.handle, indices=[1], updates=[1.0])  # now reading copies
        np.testing.assert_array_equal(shifted(x), x + v)  # no more
        assert goes_directly(shifted, x)
        np.testing.assert_array_equal(shifted.native(x.numpy()), x + v)
        np.testing.assert_allclose(v - held, [0, 1, 0, 0, 0, 0], atol=1e-6)


def test_a_function_without_arguments_of_its_own() -> None:
    v = tf.Variable(normal(5))
    total = tfbridge.jit(lambda: tf.reduce_sum(v))
    for _ in range(3):
        v.assign(normal(5))
        np.testing.assert_allclose(total(), tf.reduce_sum(v), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(total.native(), tf.reduce_sum(v), rtol=1e-5, atol=1e-6)
    assert goes_directly(total)


def test_others_assign_meanwhile() -> None:
    """Two variables that are assigned in turn by other threads: every read sees whole values."""
    first, second = tf.Variable(tf.zeros([5000])), tf.Variable(tf.zeros([5000]))

    @tfbridge.jit
    def spread(x: tf.Tensor) -> tf.Tensor:
        a, b = first + x, second + x
        return tf.stack([tf.reduce_max(a), tf.reduce_min(a), tf.reduce_max(b), tf.reduce_min(b)])

    x, done, results = tf.zeros([5000]), threading.Event(), []
    spread(x)

    def assign(variables: list[tf.Variable]) -> None:
        for number in range(150):
            for v in variables:
                v.assign(tf.fill([5000], float(number)))
        done.set()

    def read() -> None:
        while not (results and done.is_set()):
            results.append(spread(x).numpy())
            results.append(spread.native(x.numpy()))

    bodies = (lambda: assign([first, second]), lambda: assign([second, first]), read, read)
    in_threads(4, lambda number: bodies[number]())
    values = np.array(results)
    np.testing.assert_array_equal(values[:, 0], values[:, 1])
    np.testing.assert_array_equal(values[:, 2], values[:, 3])


def test_what_is_no_variable_of_this_process() -> None:
    """A handle that holds no variable (of a resource manager) is left to TensorFlow."""
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3], shared_name="by_name")
    tf.raw_ops.AssignVariableOp(resource=handle, value=normal(3))
    with pytest.raises(fast_call_variables.NoFastPath):
        fast_call_variables.Captured(handle)
