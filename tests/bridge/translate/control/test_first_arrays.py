"""TensorArrays and stacks as TensorFlow 1 has them, in loops and their gradients, give TensorFlow's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tensorflow.python.ops import control_flow_util

tf1 = tf.compat.v1
raw = tf.raw_ops
F32 = tf.float32


@pytest.fixture
def first_control_flow() -> Iterator[None]:
    before = control_flow_util.ENABLE_CONTROL_FLOW_V2
    control_flow_util.ENABLE_CONTROL_FLOW_V2 = False
    yield
    control_flow_util.ENABLE_CONTROL_FLOW_V2 = before


def recurrent(x: tf.Tensor, w: tf.Tensor) -> list[tf.Tensor]:
    """A state carried over rows that are read, and kept: gradients go through stacks."""
    rows, kept = tf.TensorArray(F32, 5).unstack(x), tf.TensorArray(F32, 5)

    def body(i: tf.Tensor, h: tf.Tensor, kept: Any) -> Any:
        h = tf.tanh(tf.linalg.matvec(w, h) + rows.read(i))
        return i + 1, h, kept.write(i, h)

    _, h, kept = tf1.while_loop(lambda i, *_: i < 5, body, (tf.constant(0), tf.zeros([3]), kept))
    return [kept.stack(), h]


def read_twice(x: tf.Tensor, w: tf.Tensor) -> list[tf.Tensor]:
    """Gradients of one element from two reads add up."""
    rows = tf.TensorArray(F32, 5, clear_after_read=False).unstack(x)

    def body(i: tf.Tensor, total: tf.Tensor) -> Any:
        return i + 1, total + tf.linalg.matvec(w, rows.read(i)) * rows.read((i * 2) % 5)

    return [
        tf1.while_loop(lambda i, _: i < 5, body, (tf.constant(0), tf.zeros([3])))[1],
        rows.concat() if x.shape.rank == 3 else rows.gather([4, 0, 0]),
    ]


def in_branches(x: tf.Tensor, w: tf.Tensor) -> list[tf.Tensor]:
    kept = tf.TensorArray(F32, 4)

    def body(i: tf.Tensor, kept: Any) -> Any:
        row = tf1.cond(tf.equal(i % 2, 0), lambda: tf.sin(x[0]) * w[0], lambda: x[1] + w[1])
        return i + 1, kept.write(i, row)

    return [tf1.while_loop(lambda i, _: i < 4, body, (tf.constant(0), kept))[1].stack()]


def split_and_joined(x: tf.Tensor, w: tf.Tensor) -> list[tf.Tensor]:
    parts = tf.TensorArray(F32, 3, clear_after_read=False).split(tf.concat([x, w, x[:1]], 0), [3, 3, 3])
    other = tf.TensorArray(F32, 3).scatter([2, 0, 1], w)
    return [parts.read(1) * 2.0, parts.concat() + 1.0, other.stack(), tf.cast(parts.size(), F32)]


def nested(x: tf.Tensor, w: tf.Tensor) -> list[tf.Tensor]:
    """The inner loop's stack has the trips of both: it stays TensorFlow's."""

    def inner(h: tf.Tensor) -> tf.Tensor:
        return tf1.while_loop(
            lambda j, _: j < 2, lambda j, h: (j + 1, tf.sin(tf.linalg.matvec(w, h))), (tf.constant(0), h)
        )[1]

    return [
        tf1.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, inner(h) + x[0]), (tf.constant(0), x[1]))[1]
    ]


PROGRAMS: dict[Callable[..., list[tf.Tensor]], int] = {
    recurrent: 2,
    read_twice: 2,
    in_branches: 0,
    split_and_joined: 2,
    nested: 2,
}
"""Programs, and of how many arguments their gradients are taken too."""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_session(program: Callable[..., list[tf.Tensor]], first_control_flow: None, clustering: None) -> None:
    random = np.random.default_rng(5)
    x, w = (random.uniform(-1, 1, dims).astype(np.float32) for dims in ((5, 3), (3, 3)))

    def run() -> list[np.ndarray]:
        with tf.Graph().as_default():
            given = [tf1.placeholder(F32, a.shape) for a in (x, w)]
            results = program(*given)
            chosen = given[: PROGRAMS[program]]
            results += tf1.gradients([r * r for r in results], chosen) if chosen else []
            with tf1.Session() as session:
                return list(session.run(results, dict(zip(given, (x, w)))))

    expected = run()
    tfbridge.reset_stats()
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    given = run()
    for value, wanted in zip(given, expected, strict=True):
        np.testing.assert_allclose(value, wanted, 1e-5, 1e-6)
    counters = tfbridge.stats()
    assert counters["fallbacks"] == 0, counters["ops_left_out"]
    assert counters["clusters_compiled"] > 0
    if program is not nested:
        assert not any("rray" in reason or "loop" in reason for reason in counters["ops_left_out"])


TYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "complex64",
    "complex128",
    "bool",
)


@pytest.mark.parametrize("type_", TYPES)
def test_ops(type_: str) -> None:
    """Every op, for every type, by itself."""
    dtype = tf.as_dtype(type_)

    def function(x: tf.Tensor, index: tf.Tensor) -> list[tf.Tensor]:
        handle, flow = raw.TensorArrayV3(size=4, dtype=dtype, element_shape=[2, 3], clear_after_read=False)
        flow = raw.TensorArrayScatterV3(handle=handle, indices=[0, 1, 2, 3], value=x, flow_in=flow)
        size = raw.TensorArraySizeV3(handle=handle, flow_in=flow)
        one = raw.TensorArrayReadV3(handle=handle, index=index, flow_in=flow, dtype=dtype)
        some = raw.TensorArrayGatherV3(handle=handle, indices=[3, 1], flow_in=flow, dtype=dtype)
        joined, lengths = raw.TensorArrayConcatV3(handle=handle, flow_in=flow, dtype=dtype)
        other, second = raw.TensorArrayV3(size=2, dtype=dtype)
        second = raw.TensorArraySplitV3(
            handle=other, value=joined, lengths=tf.constant([4, 4], tf.int64), flow_in=second
        )
        parts, _ = raw.TensorArrayConcatV3(handle=other, flow_in=second, dtype=dtype)
        third, third_flow = raw.TensorArrayV3(size=2, dtype=dtype)
        third_flow = raw.TensorArrayWriteV3(handle=third, index=1 - index, value=one, flow_in=third_flow)
        third_flow = raw.TensorArrayWriteV3(handle=third, index=index, value=x[0], flow_in=third_flow)
        written = raw.TensorArrayGatherV3(handle=third, indices=[0, 1], flow_in=third_flow, dtype=dtype)
        with tf.control_dependencies([written]):
            raw.TensorArrayCloseV3(handle=third)
        stack = raw.StackV2(max_size=3, elem_type=dtype)
        with tf.control_dependencies([raw.StackPushV2(handle=stack, elem=one)]):
            pushed = raw.StackPushV2(handle=stack, elem=x[3])
        with tf.control_dependencies([pushed]):
            popped = raw.StackPopV2(handle=stack, elem_type=dtype)
        with tf.control_dependencies([popped]):
            last = raw.StackPopV2(handle=stack, elem_type=dtype)
        with tf.control_dependencies([last]):
            raw.StackCloseV2(handle=stack)
        return [size, one, some, joined, lengths, parts, written, pushed, popped, last]

    x = tf.cast(np.random.default_rng(3).integers(0, 100, (4, 2, 3)), dtype)
    expected = tf.function(function)(x, tf.constant(1))
    tfbridge.reset_stats()
    given = tfbridge.jit(function, strict=True)(x, tf.constant(1))
    assert tfbridge.stats()["fallbacks"] == 0, tfbridge.stats()["ops_left_out"]
    for value, wanted in zip(given, expected, strict=True):
        np.testing.assert_array_equal(value.numpy(), wanted.numpy())


def test_gradient_array_adds() -> None:
    """What is written to a gradient's array adds up, also from scatter and split; each source has its own."""

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        handle, flow = raw.TensorArrayV3(size=3, dtype=F32)
        flow = raw.TensorArrayScatterV3(handle=handle, indices=[0, 1, 2], value=x, flow_in=flow)
        results = []
        for source, times in (("a", 1.0), ("b", 10.0)):
            gradient, order = raw.TensorArrayGradV3(handle=handle, flow_in=flow, source=source)
            order = raw.TensorArrayScatterV3(
                handle=gradient, indices=[2, 0], value=x[:2] * times, flow_in=order
            )
            order = raw.TensorArrayWriteV3(handle=gradient, index=1, value=x[2], flow_in=order)
            order = raw.TensorArrayWriteV3(handle=gradient, index=2, value=x[2] * times, flow_in=order)
            results.append(
                raw.TensorArrayGatherV3(handle=gradient, indices=[0, 1, 2], flow_in=order, dtype=F32)
            )
        return results

    x = tf.constant(np.arange(6, dtype=np.float32).reshape(3, 2) + 1.0)
    expected = tf.function(function)(x)
    tfbridge.reset_stats()
    for value, wanted in zip(tfbridge.jit(function, strict=True)(x), expected, strict=True):
        np.testing.assert_array_equal(value.numpy(), wanted.numpy())
    assert tfbridge.stats()["fallbacks"] == 0
