# BroadcastGradientArgs, input 0: first=-1, arguments
from numpy import inf, nan
import tensorflow as tf
arguments = [
    tf.constant([-1, 3], tf.int32, [2]),
    tf.constant([2, 3], tf.int32, [2]),
]


def function(a0, a1):
    result = tf.raw_ops.BroadcastGradientArgs(s0=a0, s1=a1)
    return result
