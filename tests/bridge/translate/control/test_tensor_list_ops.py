"""Tensor lists gathered, scattered, split and joined, compiled, give what TensorFlow gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

X = np.arange(24, dtype=np.float32).reshape(6, 4)
R = tf.raw_ops


def _list(x: tf.Tensor, dims: tuple[int, ...] = (4,)) -> tf.Tensor:
    return R.TensorListFromTensor(tensor=x, element_shape=tf.constant(dims, tf.int32))


def _stack(handle: tf.Tensor, dims: tuple[int, ...] = (4,)) -> tf.Tensor:
    return R.TensorListStack(
        input_handle=handle, element_shape=tf.constant(dims, tf.int32), element_dtype=tf.float32
    )


# fmt: off
CASES: dict[str, Callable[[tf.Tensor], object]] = {
    "gather": lambda x: R.TensorListGather(input_handle=_list(x), indices=[4, 0, 4], element_shape=[4],
                                           element_dtype=tf.float32),
    "concat": lambda x: R.TensorListConcatV2(input_handle=_list(x), element_shape=[4], element_dtype=tf.float32,
                                             leading_dims=tf.zeros([0], tf.int64)),
    "concat_v1": lambda x: R.TensorListConcat(input_handle=_list(x), element_dtype=tf.float32, element_shape=[4]),
    "split": lambda x: _stack(R.TensorListSplit(tensor=x, element_shape=[2, 4],
                                                lengths=tf.constant([2, 2, 2], tf.int64)), (2, 4)),
    "scatter": lambda x: _stack(R.TensorListScatterV2(tensor=x, indices=[5, 0, 1, 3, 2, 4], element_shape=[4],
                                                      num_elements=8)),
    "scatter_v1": lambda x: _stack(R.TensorListScatter(tensor=x, indices=[5, 0, 1, 3, 2, 4], element_shape=[4])),
    "scatter_into": lambda x: _stack(R.TensorListScatterIntoExistingList(
        input_handle=_list(x), tensor=x[:2], indices=[3, 1])),
    "scatter_into_new": lambda x: tf.TensorArray(tf.float32, 3, infer_shape=False).scatter(
        [2, 0], x[:2]).gather([0, 2]),
    "concat_lists": lambda x: _stack(R.TensorListConcatLists(input_a=_list(x), input_b=_list(x[:2]),
                                                             element_dtype=tf.float32)),
    "resize": lambda x: _stack(R.TensorListResize(input_handle=_list(x), size=4)),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_list(name: str) -> None:
    expected = tf.nest.flatten(tf.function(CASES[name])(tf.constant(X)))
    tfbridge.reset_stats()
    given = tf.nest.flatten(tfbridge.jit(CASES[name], strict=True)(tf.constant(X)))
    assert tfbridge.stats()["fallbacks"] == 0, tfbridge.stats()["ops_left_out"]
    for a, b in zip(given, expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_array_written_in_a_loop_is_joined() -> None:
    def function(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows = tf.TensorArray(tf.float32, 5)
        for k in tf.range(5):
            rows = rows.write(k, x[k : k + 1] * 2)
        return rows.concat(), rows.gather([0, 2])

    for one, other in zip(tfbridge.jit(function, strict=True)(X), tf.function(function)(X), strict=True):
        np.testing.assert_array_equal(one, other)
    assert tfbridge.explain(tfbridge.jit(function), X).is_whole
