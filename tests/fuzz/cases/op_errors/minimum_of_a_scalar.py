# Min, input 0: scalar, arguments
from numpy import inf, nan
import tensorflow as tf
arguments = [
    tf.constant([-0.38867661356925964], tf.float32, []),
    tf.constant([0], tf.int32, [1]),
]


def function(a0, a1):
    result = tf.raw_ops.Min(input=a0, axis=a1, keep_dims=False)
    return result
