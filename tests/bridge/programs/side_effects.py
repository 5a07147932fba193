"""tf.print, py_function, numpy_function and summaries between numeric parts; they run in order, as often as asked."""

import contextlib
import io
import os
import tempfile

import numpy as np
import tensorflow as tf

TOLERANCE = 2e-5  # printed with six digits


def run(compiled=tf.function) -> dict:
    seen: list = []

    def note(v):
        seen.append(float(v))
        return v + 1.0

    @compiled
    def f(x):
        y = tf.tanh(x) * 2.0 + 1.0
        y = y - tf.reduce_mean(y)
        tf.print("sum", tf.reduce_sum(tf.abs(y)), output_stream=stream)
        z = tf.py_function(note, [tf.reduce_max(y)], tf.float32)
        for i in tf.range(3):
            z = tf.sin(z) + tf.cast(i, tf.float32)
            tf.print("loop", i, output_stream=stream)
        w = tf.numpy_function(lambda v: v * np.float32(3.0), [y * z], tf.float32)
        w.set_shape(x.shape)
        tf.summary.write("z", z, step=1)
        return tf.exp(-w * w) + z * y

    with tempfile.TemporaryDirectory() as folder:
        stream = f"file://{os.path.join(folder, 'printed')}"
        with tf.summary.create_file_writer(folder).as_default(), contextlib.redirect_stderr(io.StringIO()):
            results = [f(tf.constant([0.1, 0.5, k])).numpy() for k in (1.0, 2.0)]
        with open(stream[len("file://") :]) as lines:
            words = lines.read().split()
    assert words.count("sum") == 2 and words.count("loop") == 6 and len(seen) == 2
    numbers = [float(w) for w in words if w not in ("sum", "loop")]
    return {"results": np.array(results), "seen": np.array(seen), "printed": np.array(numbers)}
