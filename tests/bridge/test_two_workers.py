"""MultiWorkerMirroredStrategy, two workers on this machine: under auto-clustering and without, the same numbers.

What each worker computes is compiled; the collectives between the workers are TensorFlow's.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tfbridge


def train(strategy: Any) -> dict[str, Any]:
    """Losses and weights, the same on both workers, of a model that is trained on half of the data by each."""
    import tensorflow as tf

    random = np.random.default_rng(5)
    x, y = (random.standard_normal((16, n)).astype(np.float32) for n in (6, 3))
    weights = [random.standard_normal(dims).astype(np.float32) * 0.3 for dims in ((6, 8), (8, 3))]
    with strategy.scope():
        variables = [tf.Variable(w) for w in weights]

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            h = tf.nn.gelu(x @ variables[0])
            h = h - tf.reduce_mean(h, 1, keepdims=True)
            loss = tf.reduce_mean((tf.tanh(h @ variables[1]) - y) ** 2)
        for v, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            v.assign_sub(0.1 * tf.distribute.get_replica_context().all_reduce("sum", gradient))
        return loss

    @tf.function
    def run(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("sum", strategy.run(step, (x, y)), None)

    own = slice(8 * strategy.cluster_resolver.task_id, 8 * strategy.cluster_resolver.task_id + 8)
    losses = [float(run(tf.constant(x[own]), tf.constant(y[own]))) for _ in range(4)]
    return {
        "replicas": strategy.num_replicas_in_sync,
        "losses": losses,
        "weights": [v.numpy().tolist() for v in variables],
    }


def worker() -> None:
    """What one of the two does; it prints what came out."""
    import tensorflow as tf
    from tfbridge.bridge.clustering.reports import recent_reports

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    # Compiled first: TensorFlow hands no graph over several devices to the pass once one has run without it.
    tfbridge.enable_auto_clustering()
    compiled = train(strategy)
    reports = recent_reports()
    compiled["inside"] = sorted({n.op for r in reports for c in r.clusters for n in c.graph.nodes.values()})
    compiled["outside"] = sorted({op for r in reports for op, _ in r.unclustered.values()})
    compiled["fallbacks"] = tfbridge.stats()["fallbacks"]
    tfbridge.disable_auto_clustering()
    print("RESULT " + json.dumps([compiled, train(strategy)]), flush=True)
    signal.pause()  # the other worker may still read from this one


def started(number: int, ports: list[int], output: Path) -> subprocess.Popen[bytes]:
    config = {
        "cluster": {"worker": [f"localhost:{port}" for port in ports]},
        "task": {"type": "worker", "index": number},
    }
    with output.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, __file__],
            env=os.environ | {"TF_CONFIG": json.dumps(config)},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )


def result_lines(output: Path) -> list[str]:
    return [line for line in output.read_text().splitlines(keepends=True) if line.startswith("RESULT ")]


def test_two_workers(tmp_path: Path) -> None:
    sockets = [socket.socket() for _ in range(2)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    outputs = [tmp_path / f"{number}.txt" for number in range(2)]
    workers = [started(number, ports, output) for number, output in enumerate(outputs)]
    deadline = time.monotonic() + 240
    try:
        # Both run until both are done: a worker that ends takes its half of the last collective with it.
        while time.monotonic() < deadline and all(one.poll() is None for one in workers):
            lines = [result_lines(output) for output in outputs]
            if all(line and line[0].endswith("\n") for line in lines):
                break
            time.sleep(0.2)
    finally:
        for one in workers:
            one.kill()
            one.wait()
    lines = [result_lines(output) for output in outputs]
    assert all(lines), [output.read_text() for output in outputs]
    for (line,) in lines:
        compiled, plain = json.loads(line.removeprefix("RESULT "))
        assert compiled["replicas"] == 2
        np.testing.assert_allclose(compiled["losses"], plain["losses"], rtol=1e-5)
        for found, wanted in zip(compiled["weights"], plain["weights"], strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        assert {"MatMul", "Tanh", "AssignSubVariableOp"} <= set(compiled["inside"])
        assert not any(op.startswith("Collective") for op in compiled["inside"])
        assert "CollectiveReduceV2" in compiled["outside"] and not compiled["fallbacks"]
        assert plain["losses"] == sorted(plain["losses"], reverse=True)


if __name__ == "__main__":
    worker()
