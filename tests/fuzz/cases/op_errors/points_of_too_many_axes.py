# ResourceGatherNd, input 1: one more of axis 1, constants
from numpy import inf, nan
import tensorflow as tf
v0 = tf.Variable(tf.constant([-2.0991063117980957, 1.6255184412002563, 0.48694291710853577, -1.4686126708984375, 0.8846917152404785, 2.4355387687683105, 1.2629989385604858, -0.4605887830257416, 2.2195746898651123, -2.3846967220306396, 1.1033402681350708, 0.5948383212089539, -1.1640965938568115, 2.353008270263672, 0.5495026111602783], tf.float32, [5, 3]), shape=tf.TensorShape(None))
arguments = [
]


def function():
    result = tf.raw_ops.ResourceGatherNd(resource=v0.handle, indices=tf.constant([4, 1, 1, 0, 0, 0], tf.int32, [2, 3]), dtype=tf.float32)
    return result, v0.read_value()
