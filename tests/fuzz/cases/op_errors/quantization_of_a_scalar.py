# QuantizeAndDequantizeV3, input 0: scalar, arguments
from numpy import inf, nan
import tensorflow as tf
arguments = [
    tf.constant([6.537806510925293], tf.float32, []),
    tf.constant([-4.300000190734863], tf.float32, []),
    tf.constant([5.099999904632568], tf.float32, []),
    tf.constant([6], tf.int32, []),
]


def function(a0, a1, a2, a3):
    result = tf.raw_ops.QuantizeAndDequantizeV3(input=a0, input_min=a1, input_max=a2, num_bits=a3, signed_input=True, range_given=True, narrow_range=True)
    return result
