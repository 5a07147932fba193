"""What a cluster is compiled from has one name in every run, and another name when anything in it differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tfbridge
from run_python import run_python
from tfbridge.bridge.api.jit import Jit
from tfbridge.bridge.cluster import cluster_module
from tfbridge.bridge.dispatch.call_plan import cluster_of

X = tf.constant([1.0, 2.0, 3.0])


def loop(factor: float, steps: int = 4) -> Callable[[Any], Any]:
    """A function with a loop, whose condition and body are functions with numbers in their names."""

    def function(x: Any) -> Any:
        return tf.while_loop(lambda k, y: k < steps, lambda k, y: (k + 1, y * factor), [0, x])[1]

    return function


def digest(function: Callable[[Any], Any]) -> str:
    return cluster_of(tf.function(function).get_concrete_function(X)).digest


def test_same_contents() -> None:
    assert digest(loop(2.0)) == digest(loop(2.0))


@pytest.mark.parametrize(
    "other", [loop(3.0), loop(2.0, 5), lambda x: loop(2.0)(x) + 1, lambda x: loop(2.0)(x + x)]
)
def test_other_contents(other: Callable[[Any], Any]) -> None:
    assert digest(loop(2.0)) != digest(other)


def test_swapped_arguments() -> None:
    def of(function: Callable[..., Any]) -> str:
        return cluster_of(tf.function(function).get_concrete_function(X, X)).digest

    assert of(lambda x, y: x - y) == of(lambda a, b: a - b) != of(lambda x, y: y - x)


def test_nothing_is_translated_when_the_disk_cache_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tfbridge.jit(loop(2.0), cache_dir=str(tmp_path))
    assert first(X).numpy().tolist() == [16, 32, 48]
    monkeypatch.setattr(cluster_module, "translate", None)
    before = tfbridge.stats()
    again = tfbridge.jit(loop(2.0), cache_dir=str(tmp_path))
    assert isinstance(again, Jit) and again(X).numpy().tolist() == [16, 32, 48]
    after = tfbridge.stats()
    assert after["disk_hits"] == before["disk_hits"] + 1 and after["fallbacks"] == before["fallbacks"]


SESSION = """
import tensorflow as tf, tfbridge
tfbridge.enable_auto_clustering(min_cluster_size=1)
with tf.Graph().as_default():
    x = tf.compat.v1.placeholder(tf.float32, [3])
    step = lambda k, y, z: (k + 1, tf.cond(y[0] > z, lambda: tf.sin(y) * z, lambda: y - z), z + 0.5)
    w = tf.while_loop(lambda k, y, z: k < 4, step, [0, x, tf.reduce_sum(x)])[1]
    with tf.compat.v1.Session() as session:
        print(session.run(w, {x: [1.0, 2.0, 3.0]}))
print(tfbridge.stats()["compiles"], tfbridge.stats()["disk_hits"])
"""


def test_a_loop_of_a_session_is_found_by_a_process_that_hashes_otherwise(tmp_path: Path) -> None:
    """Sets of strings have another order in every process; what is rebuilt from Switch and Merge must not."""
    runs = []
    for seed in ("1", "2"):
        run = run_python(
            SESSION, PYTHONHASHSEED=seed, TFBRIDGE_CACHE_DIR=str(tmp_path), TFBRIDGE_COST_GUARD="0"
        )
        assert run.returncode == 0, run.stderr
        runs.append(run.stdout.splitlines())
    assert runs[0][0] == runs[1][0]
    assert [run[1] for run in runs] == ["1 0", "0 1"]
