"""The sample workloads themselves: seeded, repeatable, and compared by a measure that finds what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
import tfbridge
from tfbridge.models import digits
from tfbridge.models.bench.operations import OPERATIONS
from tfbridge.models.bench.workloads import WORKLOADS, relative_error


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("found", "wanted", "error"),
    [
        ([], [], 0.0),
        ([array(1, 2)], [array(1, 2)], 0.0),
        ([array(1, 2.5)], [array(1, 2)], 0.25),
        ([array(0.5)], [array(0)], 500.0),
        ([array(np.nan, np.inf)], [array(np.nan, np.inf)], 0.0),
        ([array(np.nan, 1)], [array(1, 1)], np.nan),
        ([array(1, 1)], [array(np.nan, 1)], np.inf),
        ([array(-np.inf)], [array(np.inf)], np.inf),
        ([array(1, 1)], [array(1)], np.inf),
        ([array(1)], [array(1), array(1)], np.inf),
        ([array(1).astype(np.float64)], [array(1)], np.inf),
        ([np.array([3])], [np.array([3])], 0.0),
        ([np.array([3])], [np.array([4])], np.inf),
        ([array()], [array()], 0.0),
        ([np.array([3 + 5j])], [np.array([3 + 4j])], 0.2),
    ],
)
def test_relative_error(found: list[np.ndarray], wanted: list[np.ndarray], error: float) -> None:
    np.testing.assert_equal(relative_error(found, wanted), error)


@pytest.mark.parametrize("name", ["black_scholes", "lstm", "gpt_decode", "transformer_training"])
def test_programs_are_seeded(name: str) -> None:
    first, second = (WORKLOADS[name].build_small() for _ in range(2))
    assert relative_error(first.state(), second.state()) == 0
    assert relative_error(first.run(), second.run()) == 0


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_in_numpy_and_compiled_agree_with_tensorflow(name: str) -> None:
    if name == "random_uniform":
        pytest.skip("NumPy has other numbers, and the size is that of the benchmark")
    row = OPERATIONS[name]
    program = row.build_small()
    wanted = program.run()
    assert relative_error(program.run(program.numpy_function, inputs=program.arrays), wanted) <= row.tolerance
    assert relative_error(program.run(tfbridge.jit(program.function)), wanted) <= row.tolerance


def test_state_is_restored() -> None:
    program = WORKLOADS["mlp_training"].build_small()
    before = program.state()
    once = program.run()
    assert relative_error(program.state(), before) > 0
    program.restore(before)
    assert relative_error(program.run(), once) == 0


def test_digits_are_split_evenly() -> None:
    data = digits.load()
    assert data.images.shape == (1437, 8, 8, 1) and data.held_out_images.shape == (360, 8, 8, 1)
    assert data.images.min() == 0 and data.images.max() == 1
    assert np.bincount(data.held_out_labels).tolist() == pytest.approx([36] * digits.CLASSES, abs=2)
