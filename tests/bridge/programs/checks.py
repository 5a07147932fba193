"""Checks that must raise, as often as they fail, and leave what follows them undone."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    done = tf.Variable(0.0)

    @compiled
    def positive(x):
        y = tf.sqrt(x * 2.0 + 0.5) - 1.0
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x > 0.0), [x])]):
            done.assign_add(tf.reduce_sum(y))
        return y * y

    @compiled
    def finite(x):
        return tf.debugging.check_numerics(tf.math.log(x) * 2.0, "log") + tf.exp(x) * x

    @compiled
    def shapes(x, y):
        tf.debugging.assert_equal(tf.shape(x)[0], tf.shape(y)[0], "rows")
        return tf.tanh(x) * tf.reduce_mean(y) - 1.0

    @compiled
    def bad_matmul(x, y):
        return tf.nn.relu(tf.matmul(tf.tanh(x), y) * 2.0 + 1.0)

    unknown = [tf.TensorSpec((None, None), tf.float32)] * 2
    good, bad = tf.constant([1.0, 2.0]), tf.constant([1.0, -2.0])
    raised = []
    calls = (
        (positive, (good,)),
        (positive, (bad,)),
        (positive, (good,)),
        (finite, (good,)),
        (finite, (bad,)),
        (finite, (good,)),
        (shapes, (good, bad)),
        (shapes, (good, bad[:1])),
    )
    results = []
    for function, arguments in calls:
        try:
            results.append(function(*arguments).numpy())
            raised.append(0)
        except tf.errors.InvalidArgumentError as error:
            assert type(error) is tf.errors.InvalidArgumentError
            raised.append(1)
    product = tf.function(bad_matmul, input_signature=unknown) if compiled is tf.function else bad_matmul
    try:
        product(tf.ones((2, 3)), tf.ones((2, 3)))
    except (tf.errors.InvalidArgumentError, ValueError):
        raised.append(1)
    return {"raised": np.array(raised), "results": np.array(results), "done": done.numpy()}
