# UniformQuantizedDot, output_quantization_max_val is 2147483648, known
from numpy import inf, nan
import tensorflow as tf
arguments = [
    tf.constant([39, 51, -112, -89, -48, -104, -40, -61, -14, 101, -23, 118, -123, 85, -125, -127, -53, -11, -117, -30, 36, -35, -52, 63, -109, 44, 126, 75, -63, 47, -31, 105, 34, 121, -17], tf.int8, [5, 7]),
    tf.constant([45, 87, 90, -38, 87, -46, 65, 60, -55, -46, -46, 32, -1, -64, -46, 95, 18, 71, -30, -9, 80], tf.int8, [7, 3]),
]


def function(a0, a1):
    result = tf.raw_ops.UniformQuantizedDot(lhs=tf.bitcast(a0, tf.qint8), rhs=tf.bitcast(a1, tf.qint8), lhs_scales=tf.constant([0.25], tf.float32, []), lhs_zero_points=tf.constant([3], tf.int32, []), rhs_scales=tf.constant([0.5], tf.float32, []), rhs_zero_points=tf.constant([0], tf.int32, []), output_scales=tf.constant([0.10000000149011612], tf.float32, []), output_zero_points=tf.constant([20], tf.int32, []), Tout='qint32', lhs_quantization_min_val=-128, lhs_quantization_max_val=127, rhs_quantization_min_val=-128, rhs_quantization_max_val=127, output_quantization_min_val=-2147483648, output_quantization_max_val=2147483648)
    return result
