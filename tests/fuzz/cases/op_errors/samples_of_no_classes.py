# StatelessMultinomial, input 0: none of axis 1, known
from numpy import inf, nan
import tensorflow as tf
arguments = [
    tf.constant([], tf.float32, [1, 0]),
    tf.constant([1, 2], tf.int64, [2]),
]


def function(a0, a1):
    result = tf.raw_ops.StatelessMultinomial(logits=a0, num_samples=tf.constant([40], tf.int32, []), seed=a1, output_dtype='int32')
    return result
