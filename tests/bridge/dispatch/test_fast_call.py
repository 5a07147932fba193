"""Calls that go straight to compiled code: eager tensors through `f(x)`, NumPy arrays through `f.native(x)`."""

from __future__ import annotations

import gc
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from in_threads import in_threads
from tfbridge.bridge.dispatch import fast_call
from tfbridge.bridge.launch import cluster_registry

RNG = np.random.default_rng(7)


def goes_directly(function: tfbridge.bridge.api.jit.Jit, *args: tf.Tensor) -> bool:
    """Whether the last way of a function answers these arguments."""
    return function._fast_path[0](*args) is not NotImplemented


@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.float64, np.int8, np.int64, np.bool_, np.complex64, np.float16, ml_dtypes.bfloat16],
)
@pytest.mark.parametrize("dims", [(), (0,), (1,), (7,), (3, 0, 5), (2, 3, 5, 7)])
def test_types_and_dims(dtype: type, dims: tuple[int, ...]) -> None:
    @tfbridge.jit
    def same_twice(x: tf.Tensor) -> tf.Tensor:
        return tf.stack([x, x])

    x = tf.constant(RNG.integers(0, 2, dims).astype(dtype))
    for _ in range(3):
        result = same_twice(x)
        assert result.dtype == x.dtype
        np.testing.assert_array_equal(result.numpy(), np.stack([x.numpy()] * 2))
    assert goes_directly(same_twice, x)
    for _ in range(3):
        array = same_twice.native(x.numpy())
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, np.stack([x.numpy()] * 2))


def test_shapes_and_types_that_take_turns() -> None:
    @tfbridge.jit
    def doubled(x: tf.Tensor) -> tf.Tensor:
        return x + x

    inputs = [
        tf.constant(RNG.integers(0, 9, dims).astype(dtype))
        for dims in ((3,), (4,), (2, 2), ())
        for dtype in (np.float32, np.int32)
    ]
    for _ in range(3):
        for x in inputs:
            np.testing.assert_array_equal(doubled(x).numpy(), 2 * x.numpy())
            np.testing.assert_array_equal(doubled.native(x.numpy()), 2 * x.numpy())


def test_structures() -> None:
    held = tf.constant([[1.0, 2.0], [3.0, 4.0]])

    @tfbridge.jit
    def several(x: tf.Tensor, y: tf.Tensor) -> dict[str, object]:
        return {"b": [x + y, x @ held], "a": (x, None), "c": tf.reduce_sum(y)}

    @tfbridge.jit
    def pair(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return x + 1.0, x @ held

    x, y = tf.constant(RNG.random((2, 2), np.float32)), tf.constant(RNG.random((2, 2), np.float32))
    for _ in range(3):
        result = several(x, y)
        assert list(result) == ["b", "a", "c"] and isinstance(result["a"], tuple) and result["a"][1] is None
        np.testing.assert_allclose(result["b"][1], x.numpy() @ held.numpy(), rtol=1e-6)
        np.testing.assert_allclose(result["c"], y.numpy().sum(), rtol=1e-6)
        np.testing.assert_array_equal(result["a"][0], x)
        first, second = pair(x)
        np.testing.assert_array_equal(first, x + 1.0)
        arrays = pair.native(x.numpy())
        assert isinstance(arrays, tuple) and all(type(a) is np.ndarray for a in arrays)
        np.testing.assert_allclose(arrays[1], second, rtol=1e-6)
        np.testing.assert_array_equal(several.native(x.numpy(), y.numpy())["a"][0], x)
    assert goes_directly(pair, x) and goes_directly(several, x, y)


def test_results_keep_nothing_alive_and_arguments_neither() -> None:
    @tfbridge.jit
    def several(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return x * 2.0, x + 1.0

    x = tf.constant(RNG.random(1000, np.float32))
    array = x.numpy().copy()
    several(x)
    several.native(array)
    counts = sys.getrefcount(x), sys.getrefcount(array), sys.getrefcount(NotImplemented)
    for _ in range(20):
        several(x)
        several.native(array)
        several._fast_path[0](array)
        several._array_fast_path[0](x)
    assert (sys.getrefcount(x), sys.getrefcount(array)) == counts[:2]
    assert sys.getrefcount(NotImplemented) - counts[2] in range(-5, 5)
    first, _ = several(x)
    gone = weakref.ref(first)
    del first, _
    gc.collect()
    assert gone() is None
    results = [several.native(array)[0] for _ in range(3)]
    assert len({r.ctypes.data for r in results}) == 3


def test_a_function_that_is_gone_leaves_no_builtin() -> None:
    @tfbridge.jit
    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.exp(x) - x

    f(tf.ones(5))
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


def test_what_is_no_plain_call_goes_the_long_way() -> None:
    @tfbridge.jit
    def square(x: tf.Tensor, y: tf.Tensor = 1.0) -> tf.Tensor:
        return x * x * y

    x = tf.constant([1.0, 2.0, 3.0])
    y = tf.constant([2.0, 2.0, 2.0])
    for _ in range(2):
        square(x, y)
    assert goes_directly(square, x, y)
    np.testing.assert_array_equal(square(x), [1, 4, 9])
    np.testing.assert_array_equal(square(x, y=y), [2, 8, 18])
    np.testing.assert_array_equal(square(x.numpy(), y), [2, 8, 18])
    np.testing.assert_array_equal(square(tf.Variable(x), y), [2, 8, 18])
    np.testing.assert_array_equal(tf.function(square)(x, y), [2, 8, 18])
    with tf.GradientTape() as tape:
        tape.watch(x)
        z = square(x, y)
    np.testing.assert_array_equal(tape.gradient(z, x), [4, 8, 12])
    with tf.autodiff.ForwardAccumulator(x, tf.ones(3)) as accumulator:
        z = square(x, y)
    np.testing.assert_array_equal(accumulator.jvp(z), [4, 8, 12])
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        square(x, tf.constant([1.0, 2.0]))
    with pytest.raises(TypeError):
        square(x, y, x)
    with pytest.raises(TypeError):
        square()


def test_variables_are_read_at_every_call() -> None:
    w = tf.Variable([1.0, 2.0])

    @tfbridge.jit
    def scaled(x: tf.Tensor) -> tf.Tensor:
        return w * x

    x = tf.constant([3.0, 4.0])
    for value in ([1.0, 2.0], [5.0, 6.0], [7.0, 8.0]):
        w.assign(value)
        np.testing.assert_array_equal(scaled(x), np.multiply(value, [3, 4]))
        np.testing.assert_array_equal(scaled.native(x.numpy()), np.multiply(value, [3, 4]))


def test_arrays_of_every_layout() -> None:
    @tfbridge.jit
    def total(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(x, axis=1) - x[:, 0]

    plain = RNG.random((6, 4), np.float32)
    big_endian = plain.astype(">f4")
    unaligned = np.frombuffer(b"\0" + plain.tobytes(), np.uint8)[1:].view(np.float32).reshape(6, 4)
    read_only = plain.copy()
    read_only.flags.writeable = False
    wanted = plain.sum(1) - plain[:, 0]
    for _ in range(2):
        for array in (
            plain,
            np.asfortranarray(plain),
            np.repeat(plain, 2, 1)[:, ::2],
            plain[::-1][::-1],
            read_only,
            unaligned,
            big_endian,
            plain.tolist(),
        ):
            np.testing.assert_allclose(total.native(array), wanted, rtol=1e-5)


def test_a_dropped_cluster_answers_no_more() -> None:
    @tfbridge.jit
    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.sin(x) + x

    x = tf.constant([1.0, 2.0])
    wanted = f(x).numpy()
    cluster = f.direct_cluster(f.get_concrete_function(x))
    assert goes_directly(f, x)
    cluster_registry.drop_code(cluster.key)
    assert not goes_directly(f, x)
    np.testing.assert_allclose(f(x), wanted, rtol=1e-6)


def test_many_threads() -> None:
    @tfbridge.jit
    def f(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.reduce_sum(x, 0), x * 2.0

    inputs = [tf.constant(RNG.random((n, 3), np.float32)) for n in (2, 3, 5, 7)]
    for x in inputs:
        f(x)

    def call(number: int) -> None:
        x = inputs[number % len(inputs)]
        for _ in range(300):
            by_tensor, by_array = f(x)[1].numpy(), f.native(x.numpy())[1]
            np.testing.assert_array_equal(by_tensor, x.numpy() * 2)
            np.testing.assert_array_equal(by_array, x.numpy() * 2)

    in_threads(8, call)


def test_other_devices_and_async_execution() -> None:
    @tfbridge.jit
    def f(x: tf.Tensor) -> tf.Tensor:
        return x * 3.0

    x = tf.constant([1.0, 2.0])
    f(x)
    with tf.device("CPU:0"):
        np.testing.assert_array_equal(f(x), [3, 6])
    tf.config.experimental.set_synchronous_execution(False)
    try:
        y = x
        for _ in range(5):
            y = f(y + 1.0)
        np.testing.assert_allclose(y, [606.0, 849.0])
    finally:
        tf.config.experimental.set_synchronous_execution(True)


def test_threads_that_make_the_first_builtins_at_once_keep_them() -> None:
    """Python has the address of a builtin's method alone: each builtin owns one, not only the last that was made."""
    f = tfbridge.jit(lambda x: tf.tanh(x) * 2.0)
    x = tf.ones([3])
    f(x), f(x)
    call, _ = f._fast_path
    assert any(isinstance(o, fast_call._MethodDef) for o in call.__self__.owned)
