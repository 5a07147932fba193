# StridedSliceGrad, input 4: flat, constants
from numpy import inf, nan
import tensorflow as tf
arguments = [
]


def function():
    result = tf.raw_ops.StridedSliceGrad(shape=tf.constant([5, 6], tf.int32, [2]), begin=tf.constant([4, 5], tf.int32, [2]), end=tf.constant([-6, 0], tf.int32, [2]), strides=tf.constant([-1, -2], tf.int32, [2]), dy=tf.constant([1.9823424816131592, 1.5004463195800781, -2.365929365158081, 1.7964146137237549, 1.949207067489624, -1.6571060419082642, 1.285061240196228, -1.0863860845565796, -0.21867966651916504, 2.437159776687622, 1.4548403024673462, -0.011148391291499138, -1.5674265623092651, -1.6463807821273804, 2.2987864017486572], tf.float32, [15]))
    return result
