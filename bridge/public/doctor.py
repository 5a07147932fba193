"""`python -m tfbridge doctor`: what works on this machine, what is missing and how to get it.

TensorFlow is loaded inside the checks that need it: without it, or with one that cannot be loaded, the others still say
what they find.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...compiler import LocalClient, parse_hlo
from ...runtime.code import disk_cache
from ...runtime.llvm.target import LLVM_VERSION, host
from ..options import flags
from . import aot

OK, LACKS, FAILED, SKIPPED = "ok", "lacks", "FAILED", "skipped"
TESTED = ((2, 18), (2, 21))
"""The oldest and the newest TensorFlow that the tests run with."""
_SPACE_BYTES = 64 << 20  # below this, a disk counts as full
_PACKAGES = ("tensorflow", "tensorflow-cpu", "numpy", "llvmlite", "ml_dtypes")


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a check found: OK, LACKS (it works, with less), FAILED or SKIPPED, and a text for people."""

    status: str
    text: str


class _NoTensorFlow(Exception):
    """A check needs TensorFlow, which the check of that name has said to be missing."""


def _tf() -> Any:
    try:
        import tensorflow as tf
    except Exception as error:
        raise _NoTensorFlow from error
    if _version_of(tf) < TESTED[0]:
        raise _NoTensorFlow
    return tf


def _version_of(tf: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", tf.__version__)[:2])


def _versions() -> Finding:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    listed = ", ".join(f"{package} {version}" for package, version in versions.items())
    return Finding(
        OK, f"tfbridge {__version__}, Python {platform.python_version()}, {listed}, LLVM {LLVM_VERSION}"
    )


def _installation() -> Finding:
    own = Path(__file__).resolve().parents[2]
    others = {
        folder
        for entry in sys.path
        if (folder := Path(entry, "tfbridge").resolve()) != own and (folder / "__init__.py").is_file()
    }
    versions = {d.version for d in importlib.metadata.distributions(name="tfbridge")} - {__version__}
    if others or versions:
        what = [*map(str, sorted(others)), *(f"metadata of version {v}" for v in sorted(versions))]
        return Finding(
            FAILED,
            f"besides {own}, version {__version__}, there is {', '.join(what)}. Run `pip uninstall tfbridge` until "
            "none is left, and install one",
        )
    both = [n for n in ("tensorflow", "tensorflow-cpu") if any(importlib.metadata.distributions(name=n))]
    if len(both) > 1:
        return Finding(
            FAILED,
            "tensorflow and tensorflow-cpu are both installed, in one folder: each has overwritten files of the other. "
            "Uninstall both, and install one",
        )
    return Finding(OK, str(own))


def _processor() -> Finding:
    target = host()
    threads, machine = target.threads, os.cpu_count() or 1
    of_machine = f" (of {machine}: by affinity or quota)" if threads < machine else ""
    vectors = f"vectors of {8 * target.vector_bytes} bits"
    return Finding(OK, f"{target.cpu}, {vectors}, {threads} threads{of_machine}")


def _flags() -> Finding:
    chosen = [f.variable for f in flags.FLAGS if flags.values()[f.name] != f.default]
    return Finding(OK, ", ".join(chosen) or "none is set")


def _compiler() -> Finding:
    text = "HloModule m\nENTRY e {\n  x = f32[5] parameter(0)\n  ROOT y = f32[5] multiply(x, x)\n}\n"
    start = time.perf_counter()
    (result,) = LocalClient().compile(parse_hlo(text)).execute([np.arange(5, dtype=np.float32)])
    seconds = time.perf_counter() - start
    is_right = np.array_equal(result, np.arange(5) ** 2)
    return Finding(OK if is_right else FAILED, f"HLO text compiled and run in {seconds:.2f} s")


def _disk_cache() -> Finding:
    cache = disk_cache.default()
    is_switched_on = cache.enabled
    cache.load("")  # opens it
    if not is_switched_on:
        return Finding(OK, "switched off")
    if not cache.enabled or cache.directory is None:
        return Finding(
            LACKS,
            f"{cache.directory} cannot be used: code is compiled anew in each process. The log says why",
        )
    free = shutil.disk_usage(cache.directory).free
    if free < _SPACE_BYTES:
        return Finding(
            LACKS, f"{cache.directory}: {free >> 20} MB are free on that disk: code may not be kept"
        )
    entries = [entry.stat().st_size for entry in os.scandir(cache.directory) if entry.is_file()]
    return Finding(OK, f"{cache.directory}: {len(entries)} files, {sum(entries) >> 20} MB")


def _tensorflow() -> Finding:
    try:
        import tensorflow as tf
    except ImportError as error:
        if error.name == "tensorflow":
            return Finding(FAILED, "it is not installed; get it by `pip install tensorflow`")
        return Finding(FAILED, f"it cannot be loaded: {error}")
    version = _version_of(tf)
    if version < TESTED[0]:
        oldest = ".".join(map(str, TESTED[0]))
        return Finding(
            FAILED, f"{tf.__version__} is older than {oldest}; get a newer one by `pip install -U tensorflow`"
        )
    if version > TESTED[1]:
        return Finding(LACKS, f"{tf.__version__} is newer than those that tfbridge is tested with")
    return Finding(OK, tf.__version__)


def _features() -> Finding:
    _tf()
    from ..api import features

    lost, offered = features.lost(), ", ".join(features.offered())
    if lost:
        return Finding(LACKS if features.compiles() else FAILED, f"{'; '.join(lost)}. There: {offered}")
    return Finding(OK, offered)


def _graph_pass() -> Finding:
    _tf()
    from ..api import features

    features.register_graph_pass()
    return Finding(OK, "registered: auto-clustering and jit_scope work")


def _compiled_function() -> Finding:
    tf = _tf()
    from ..api.jit import jit

    def function(x: Any) -> Any:
        return tf.nn.softmax(tf.matmul(x, x) * 0.1) + tf.reduce_sum(tf.tanh(x), 0)

    x = tf.constant(np.random.default_rng(0).normal(size=(37, 37)).astype(np.float32))
    start = time.perf_counter()
    result = jit(function, strict=True)(x)
    seconds = time.perf_counter() - start
    error = float(tf.reduce_max(tf.abs(result - function(x))))
    return Finding(
        OK if error < 1e-4 else FAILED,
        f"first call {seconds:.2f} s, largest difference from TensorFlow {error:.1e}",
    )


def _training_step() -> Finding:
    tf = _tf()
    from ..api.jit import jit

    generator = np.random.default_rng(1)
    x, y = (tf.constant(generator.normal(size=(19, n)).astype(np.float32)) for n in (7, 3))
    start_weights = generator.normal(size=(7, 3)).astype(np.float32)

    def trained(wrap: Callable[[Any], Any]) -> Any:
        weights = tf.Variable(start_weights)

        def step() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.tanh(x @ weights) - y))
            weights.assign_sub(0.1 * tape.gradient(loss, weights))
            return loss

        run = wrap(step)
        for _ in range(3):
            run()
        return weights

    error = float(tf.reduce_max(tf.abs(trained(lambda f: jit(f, strict=True)) - trained(tf.function))))
    return Finding(OK if error < 1e-5 else FAILED, f"three steps, difference from TensorFlow {error:.1e}")


def _exported_object() -> Finding:
    tf = _tf()

    def function(x: Any) -> Any:
        return tf.nn.relu(x) * 2.0

    with tempfile.TemporaryDirectory() as folder:
        aot.compile(function, tf.TensorSpec((4,), tf.float32), out_dir=folder, name="check")
        sizes = [
            f"{path.name} {path.stat().st_size} bytes" for path in sorted(Path(folder).glob("check.[oh]"))
        ]
    return Finding(OK if len(sizes) == 2 else FAILED, ", ".join(sizes))


CHECKS: dict[str, Callable[[], Finding]] = {
    "versions": _versions,
    "installation": _installation,
    "processor": _processor,
    "flags": _flags,
    "disk cache": _disk_cache,
    "compiler": _compiler,
    "TensorFlow": _tensorflow,
    "features": _features,
    "graph pass": _graph_pass,
    "compiled function": _compiled_function,
    "training step": _training_step,
    "exported object": _exported_object,
}


def findings() -> Iterator[tuple[str, Finding]]:
    """(name, finding) of every check; one that raises has failed."""
    for name, check in CHECKS.items():
        try:
            finding = check()
        except _NoTensorFlow:
            finding = Finding(SKIPPED, "it needs a TensorFlow that works")
        except Exception as error:
            finding = Finding(FAILED, f"{type(error).__name__}: {error}")
        yield name, finding


def main(arguments: Sequence[str] = ()) -> int:
    """Prints the checks; returns the exit code, 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="tfbridge doctor",
        description="Says what of tfbridge works on this machine. Exit code: 1 if something failed.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: name to status and text")
    as_json = parser.parse_args(list(arguments)).json
    rows: dict[str, dict[str, str]] = {}
    for name, finding in findings():
        rows[name] = dataclasses.asdict(finding)
        if not as_json:
            print(f"{finding.status:8}{name:18} {finding.text}", flush=True)
    if as_json:
        print(json.dumps(rows, indent=1))
    return int(any(row["status"] == FAILED for row in rows.values()))
