"""What small clusters cost: twenty tiny ops spread between ops that are not compiled, with auto-clustering and without.

`python -m tfbridge.models.zoo.small_clusters` prints a line for each distance between those that are not compiled: the
clusters' sizes, and the time of a call, the two taken in turn (the fifth part of the calls that took least).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tfbridge
from tfbridge.bridge.clustering.reports import recent_reports

_OPS, _CALLS = 20, 1500
_LEFT_OUT = "Maximum"


def between(distance: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function of tiny ops, with one that is left out after every `distance` of them."""

    def function(x: tf.Tensor) -> tf.Tensor:
        for number in range(_OPS):
            x = tf.tanh(x) if number % 2 else x * 1.5
            if (number + 1) % distance == 0:
                x = tf.maximum(x, 0.1)
        return x

    return tf.function(function)


def compare(distance: int) -> tuple[list[int], float, float]:
    """(sizes of the clusters, seconds of a call in plain TensorFlow, under auto-clustering)."""
    x = tf.constant(np.linspace(0.1, 1.0, 16, dtype=np.float32))
    plain, clustered = between(distance), between(distance)
    plain(x)
    seen = recent_reports()
    with tfbridge.options(deny_ops=[_LEFT_OUT], compile="foreground"):
        tfbridge.enable_auto_clustering()
        try:
            clustered(x)
        finally:
            tfbridge.disable_auto_clustering()
    sizes = [c.op_count for r in recent_reports(seen) for c in r.clusters]
    seconds: tuple[list[float], list[float]] = [], []
    for _ in range(_CALLS):
        for function, times in zip((plain, clustered), seconds):
            start = time.perf_counter()
            function(x)
            times.append(time.perf_counter() - start)
    return sizes, float(np.percentile(seconds[0], 20)), float(np.percentile(seconds[1], 20))


if __name__ == "__main__":
    for distance in (1, 2, 4, 5, 10, 20):
        sizes, plain, clustered = compare(distance)
        print(
            f"one left out after {distance:2}: TensorFlow {plain * 1e6:6.1f} us, clustered "
            f"{clustered * 1e6:6.1f} us, {plain / clustered:.3f} times as fast; "
            f"clusters of {sizes or 'no'} ops",
            flush=True,
        )
