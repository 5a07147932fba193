"""Threads of one op in TensorFlow, as many as a launch of compiled code may use too."""

from __future__ import annotations

import os

import tensorflow as tf

from ...runtime.threads.processors import usable_cpus


def intra_op_threads() -> int:
    """What `tf.config.threading` or TF_NUM_INTRAOP_THREADS say; 0: no fewer than there are usable processors."""
    text = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    chosen: int = tf.config.threading.get_intra_op_parallelism_threads()
    threads = chosen or (int(text) if text.isdecimal() else 0)
    return threads if threads < usable_cpus() else 0
