"""Threads of launches, where the program or its environment limits those of TensorFlow's ops."""

from __future__ import annotations

import pytest
import tensorflow as tf
from tfbridge.bridge.options import intra_op_threads, jit_options


@pytest.mark.parametrize(
    ("chosen", "variable", "usable", "threads"),
    [
        (0, "", 8, 0),
        (3, "", 8, 3),
        (0, "2", 8, 2),
        (3, "2", 8, 3),
        (16, "", 8, 0),
        (0, "many", 8, 0),
        (8, "", 8, 0),
    ],
)
def test_threads(
    chosen: int, variable: str, usable: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: chosen)
    monkeypatch.setattr(intra_op_threads, "usable_cpus", lambda: usable)
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", variable)
    assert jit_options.current().threads == threads
    assert jit_options.current({"threads": 5}).threads == 5
