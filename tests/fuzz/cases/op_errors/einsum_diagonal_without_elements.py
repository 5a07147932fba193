# Einsum, input 0: none of axis 1, known
from numpy import inf, nan
import tensorflow as tf
arguments = [
    tf.constant([], tf.float32, [5, 0]),
]


def function(a0):
    result = tf.raw_ops.Einsum(inputs=[a0], equation='ii->i')
    return result
