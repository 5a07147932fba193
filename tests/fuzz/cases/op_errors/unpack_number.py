# Unpack, input 0: none of axis 1, arguments
from numpy import inf, nan
import tensorflow as tf
arguments = [
    tf.constant([], tf.float32, [5, 0]),
]


def function(a0):
    result = tf.raw_ops.Unpack(value=a0, num=3, axis=-1)
    return result
