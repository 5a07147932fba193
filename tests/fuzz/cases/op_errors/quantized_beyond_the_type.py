# UniformQuantize, quantization_min_val is -129, arguments
from numpy import inf, nan
import tensorflow as tf
arguments = [
    tf.constant([-29.122432708740234, -12.044049263000488, -46.87342834472656, 8.952170372009277, -2.8571057319641113, 24.74394416809082, 45.89418411254883, 3.3680272102355957, 14.256529808044434, 17.147830963134766, 44.98969268798828, 25.03195571899414, 24.606361389160156, -34.03753662109375, 16.419477462768555], tf.float32, [5, 3]),
    tf.constant([0.25], tf.float32, []),
    tf.constant([3], tf.int32, []),
]


def function(a0, a1, a2):
    result = tf.raw_ops.UniformQuantize(input=a0, scales=a1, zero_points=a2, Tout='qint8', quantization_axis=-1, quantization_min_val=-129, quantization_max_val=127)
    return result
