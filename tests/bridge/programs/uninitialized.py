"""A variable that has no value: TensorFlow's error, and the function works once it has one."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def run() -> dict:
    raised = []
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=tf.ones(3), use_resource=True)
        x = v1.placeholder(tf.float32, (None,))
        y = tf.tanh(v * 2.0 + x) - tf.exp(v)
        late = v1.assign(v, tf.sin(x) * 2.0 + 1.0)
        missing = v1.report_uninitialized_variables()
        with v1.Session() as session:
            raised.append(len(session.run(missing)))
            for _ in range(2):
                try:
                    session.run(y, {x: [1.0, 2.0, 3.0]})
                except tf.errors.FailedPreconditionError as error:
                    raised.append(int("v" in str(error)))
            session.run(late, {x: [1.0, 2.0, 3.0]})
            raised.append(len(session.run(missing)))
            found = session.run(y, {x: [1.0, 2.0, 3.0]})
    return {"raised": np.array(raised), "y": found}
