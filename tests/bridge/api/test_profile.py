"""The profile of a function counts its kernels, those of a loop once for each turn, and changes nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.api.profile import profile
from tfbridge.compiler.errors import UnsupportedError
from tfbridge.runtime.process_defaults import process


def test_loops_count_each_turn() -> None:
    counter = tf.Variable(1.0)

    @tfbridge.jit
    def function(matrix: tf.Tensor) -> tf.Tensor:
        counter.assign_add(1.0)
        return tf.while_loop(lambda n, x: n < 7, lambda n, x: (n + 1, tf.matmul(x, x) * 0.1), (0, matrix))[1]

    found = profile(function, tf.eye(32), runs=3)
    assert counter.numpy() == 1.0
    assert found.flops >= 7 * 2 * 32**3
    assert found.flops < 8 * 2 * 32**3
    assert found.bytes >= 7 * 2 * 4 * 32**2
    assert found.footprint_bytes >= 2 * 4 * 32**2
    assert all(event.ns > 0 for event in found.events if event.calls)


def test_what_runs_in_tensorflow_has_no_profile() -> None:
    function = tfbridge.jit(lambda x: tf.strings.as_string(x))
    with pytest.raises(UnsupportedError):
        profile(function, tf.ones(3))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="perf is Linux'")
def test_perf_knows_kernels_by_the_names_of_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "symbols", frozenset({"perf"}))
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    try:
        tfbridge.jit(lambda x: tf.nn.relu(tf.matmul(x, x, name="second_layer")) * 2.0)(tf.ones([64, 64]))
        assert "second_layer [dot" in path.read_text()
    finally:
        path.unlink(missing_ok=True)
