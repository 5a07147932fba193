"""Shapes that an op does not allow raise TensorFlow's own error, although the call went to compiled code first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

F32, S32 = np.float32, np.int32


def zeros(*dims: int) -> np.ndarray:
    """An array of f32."""
    return np.zeros(dims, F32)


def places(*values: object) -> np.ndarray:
    """An array of int32."""
    return np.array(values, S32)


CASES: dict[str, tuple[Callable[..., tf.Tensor], tuple[np.ndarray, ...]]] = {
    "add": (lambda x, y: x + y, (zeros(3), zeros(4))),
    "matmul": (tf.matmul, (zeros(2, 3), zeros(4, 2))),
    "reshape": (lambda x: tf.reshape(x, [2, 2]), (zeros(3),)),
    "squeeze": (lambda x: tf.squeeze(x, [0]), (zeros(3),)),
    "split": (lambda x: tf.split(x, 2)[0], (zeros(3),)),
    "slice": (lambda x: tf.slice(x, [2], [2]), (zeros(3),)),
    "scatter": (lambda i, u: tf.scatter_nd(i, u, [5, 3]), (places([0], [1]), zeros(2, 4))),
    "tensor_scatter": (tf.tensor_scatter_nd_add, (zeros(5, 3), places([0], [1]), zeros(3, 3))),
    "segments": (lambda x, i: tf.math.unsorted_segment_sum(x, i, 3), (zeros(4, 2), places(0, 1, 2))),
    "top_k": (lambda x: tf.math.top_k(x, 4)[0], (zeros(3),)),
    "cross": (tf.linalg.cross, (zeros(2, 4), zeros(2, 4))),
    "cholesky": (tf.linalg.cholesky, (zeros(2, 3),)),
    "space_to_depth": (lambda x: tf.nn.space_to_depth(x, 2), (zeros(1, 3, 4, 1),)),
    "mirror_pad": (lambda x: tf.pad(x, [[4, 0]], "REFLECT"), (zeros(3),)),
    "ensure_shape": (lambda x: tf.ensure_shape(x, [4]), (zeros(3),)),
    "sum_twice": (lambda x: tf.raw_ops.Sum(input=x, axis=[0, -2]), (zeros(2, 3),)),
    "norm_twice": (lambda x: tf.raw_ops.EuclideanNorm(input=x, axis=[1, 1]), (zeros(2, 3),)),
    "arg_max_of_nothing": (lambda x: tf.argmax(x, 1), (zeros(3, 0),)),
    "bucketize": (lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[0.0, 8.0, 3.0]), (zeros(3),)),
    "bias_add": (tf.nn.bias_add, (zeros(2, 3), zeros(4))),
    "inverse": (tf.linalg.inv, (zeros(2, 3, 3),)),
    "solve": (tf.linalg.solve, (np.ones((3, 3), F32), zeros(3, 2))),
    "lu": (lambda x: tf.linalg.lu(x)[0], (np.full((2, 2), np.nan, F32),)),
    "element": (lambda x, k: x[k] * 2.0, (zeros(3), places(3)[0])),
    "element_from_the_end": (lambda x, k: x[:, k] * 2.0, (zeros(2, 3), places(-4)[0])),
    "partition": (lambda x, p: tf.dynamic_partition(x, p, 2)[0], (zeros(3), places(0, 2, 1))),
    "truncated_normal": (
        lambda d: tf.random.stateless_parameterized_truncated_normal([3], [1, 2], 0.0, d, 0.0, 1.0),
        (np.array(-1, F32),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_error_is_tensorflows(name: str) -> None:
    function, arguments = CASES[name]
    specs = [tf.TensorSpec(None, a.dtype) for a in arguments]
    plain = tf.function(function, input_signature=specs)
    compiled = tfbridge.jit(tf.function(function, input_signature=specs))
    tensors = [tf.constant(a) for a in arguments]
    with pytest.raises((tf.errors.OpError, ValueError)) as expected:
        plain(*tensors)
    with pytest.raises((tf.errors.OpError, ValueError)) as given:
        compiled(*tensors)
    assert type(given.value) is type(expected.value)


def test_matrices_without_a_cholesky_decomposition() -> None:
    """NaN, and no error. What TensorFlow leaves above the diagonal then is whatever was in that memory."""
    x = tf.constant([[[1.0, 2.0], [2.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]])
    expected, given = tf.linalg.cholesky(x), tfbridge.jit(tf.linalg.cholesky, strict=True)(x)
    np.testing.assert_allclose(np.tril(given), np.tril(expected), rtol=1e-6)
    np.testing.assert_array_equal(np.triu(given, 1), 0)
