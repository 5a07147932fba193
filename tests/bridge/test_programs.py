"""Whole programs, as people write them, give the same numbers with and without tfbridge.

Every file in `programs` has a `run` that returns arrays. It is run by plain TensorFlow, then under auto-clustering,
with clusters of any size and of the default size; where `run` takes a decorator, also with `tfbridge.jit`.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tfbridge

FOLDER = Path(__file__).parent / "programs"
NEEDS_TWO_DEVICES = "two_devices"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != NEEDS_TWO_DEVICES)
# Programs of which some part is compiled for no shapes, or not for all, and why.
FALLBACKS = {
    "checks": "a product of matrices that do not fit: TensorFlow makes the error",
    "many_shapes": "more values of a start that decides a size than are compiled for",
    "mapped": "a loop whose state changes its shape",
}
UNCOMPILED = {"data_pipeline"}  # graphs of tf.data are left alone


@functools.cache
def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"programs_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # AutoGraph looks there
    spec.loader.exec_module(module)
    return module


@functools.cache
def wanted(name: str) -> dict[str, Any]:
    """What plain TensorFlow computes."""
    return program(name).run()


def compare(name: str, found: dict[str, Any]) -> None:
    tolerance = getattr(program(name), "TOLERANCE", 1e-5)
    assert found.keys() == wanted(name).keys()
    for key, value in wanted(name).items():
        assert np.asarray(found[key]).dtype == np.asarray(value).dtype, key
        np.testing.assert_allclose(found[key], value, rtol=tolerance, atol=tolerance, err_msg=key)
    stats = tfbridge.stats()
    assert stats["clusters_compiled"] or name in UNCOMPILED
    assert name in FALLBACKS or not stats["fallbacks"], stats["ops_left_out"]


@pytest.mark.parametrize("size", [1, None], ids=["any_size", "default_size"])
@pytest.mark.parametrize("name", NAMES)
def test_under_auto_clustering(name: str, size: int | None) -> None:
    wanted(name)
    tfbridge.reset_stats()
    tfbridge.enable_auto_clustering(min_cluster_size=size)
    try:
        found = program(name).run()
    finally:
        tfbridge.disable_auto_clustering()
    compare(name, found)


@pytest.mark.parametrize("name", [n for n in NAMES if inspect.signature(program(n).run).parameters])
def test_with_the_decorator(name: str) -> None:
    wanted(name)
    tfbridge.reset_stats()
    compare(name, program(name).run(tfbridge.jit))


def test_on_two_devices() -> None:
    """In a process of its own: the number of devices is fixed when TensorFlow starts."""
    subprocess.run([sys.executable, __file__], check=True, timeout=300)


if __name__ == "__main__":
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    # Compiled first: TensorFlow hands no graph over several devices to the pass once one has run without it.
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    found_first = program(NEEDS_TWO_DEVICES).run()
    tfbridge.disable_auto_clustering()
    compare(NEEDS_TWO_DEVICES, found_first)
