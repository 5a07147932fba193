# UnravelIndex, input 0: none of axis 0, constants
from numpy import inf, nan
import tensorflow as tf
arguments = [
]


def function():
    result = tf.raw_ops.UnravelIndex(indices=tf.constant([], tf.int32, [0]), dims=tf.constant([2, 3, 5], tf.int32, [3]))
    return result
