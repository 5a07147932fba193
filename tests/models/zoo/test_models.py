"""Every workload, compiled in each way there is, gives TensorFlow's outputs and updated variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tensorflow.core.protobuf import saved_model_pb2
from tfbridge.models.bench.workloads import WORKLOADS, Workload, relative_error
from tfbridge.models.program import Array, Program

CALLS = 3  # the later ones meet variables that the earlier ones have updated
COMPILED_SHARE = 0.95


@dataclass
class Case:
    """A workload with its state before the first call and TensorFlow's results after the last."""

    workload: Workload
    program: Program
    state: list[Array]
    wanted: list[Array]

    def check(self, found: list[Array]) -> None:
        assert relative_error(found, self.wanted) <= self.workload.tolerance
        stats = tfbridge.stats()
        assert stats["fallbacks"] == 0
        assert stats["ops_compiled"] > 0
        left_out = sum(stats["ops_left_out"].values())
        assert stats["ops_compiled"] / (stats["ops_compiled"] + left_out) >= COMPILED_SHARE, stats


@pytest.fixture(scope="module", params=[name for name, row in WORKLOADS.items() if not row.big])
def case(request: pytest.FixtureRequest) -> Case:
    workload = WORKLOADS[request.param]
    program = workload.build_small()
    state = program.state()
    return Case(workload, program, state, program.run(tf.function(program.function), CALLS))


@pytest.fixture(autouse=True)
def fresh(case: Case) -> None:
    case.program.restore(case.state)
    tfbridge.reset_stats()


@pytest.fixture
def auto_clustering() -> Iterator[None]:
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    yield
    tfbridge.disable_auto_clustering()


def save(case: Case, folder: Path, function: Callable[..., Any] | None = None) -> Any:
    """Saves and loads the program; what saving counted is forgotten."""
    case.program.save(folder, function)
    tfbridge.reset_stats()
    return tf.saved_model.load(str(folder))


def run_loaded(case: Case, loaded: Any) -> list[Array]:
    for _ in range(CALLS):
        outputs = loaded.call(*case.program.inputs)
    return [np.array(value.numpy()) for value in (*tf.nest.flatten(outputs), *loaded.updated)]


def test_decorator(case: Case) -> None:
    case.check(case.program.run(tfbridge.jit(case.program.function), CALLS))


def test_strict_decorator(case: Case) -> None:
    case.check(case.program.run(tfbridge.jit(case.program.function, strict=True), CALLS))


def test_auto_clustering(case: Case, auto_clustering: None) -> None:
    case.check(case.program.run(tf.function(case.program.function), CALLS))


def test_saved_model(case: Case, auto_clustering: None, tmp_path: Path) -> None:
    case.check(run_loaded(case, save(case, tmp_path)))


def test_saved_model_of_decorated_function(case: Case, tmp_path: Path) -> None:
    loaded = save(case, tmp_path, tfbridge.jit(case.program.function))
    case.check(run_loaded(case, loaded))
    ops = saved_ops(tmp_path)
    assert ops and not [op for op in ops if "tfbridge" in op.lower()]


def saved_ops(folder: Path) -> set[str]:
    """The op of every node in a SavedModel."""
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    return {
        node.op
        for graph in saved.meta_graphs
        for nodes in (graph.graph_def.node, *(f.node_def for f in graph.graph_def.library.function))
        for node in nodes
    }


def test_cached_call_after_other_shapes(case: Case) -> None:
    """A function that has met other shapes in between gives the same results."""
    if case.workload.kind == "training" or case.workload.one_shape:
        pytest.skip("one shape only")
    function = tfbridge.jit(case.program.function)
    function(*case.program.inputs)
    halves = [value[: max(1, value.shape[0] // 2)] for value in case.program.inputs]
    function(*halves)
    case.check(case.program.run(function, CALLS))
