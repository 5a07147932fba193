"""TFBRIDGE_AUTO_JIT=1 on a program that knows nothing of tfbridge, by the start-up file beside the package."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import tensorflow as tf
from google.protobuf import text_format
from run_python import run_python
from tfbridge.compiler import parse_hlo

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import importlib.util
assert importlib.util.find_spec("tensorflow") is not None  # asking for it must not use up the hook
import keras
import numpy as np
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((32, 8), "f4"), np.ones((32, 1), "f4"), verbose=0)
import sys
print(sys.modules["tfbridge"].stats())
"""

CONVERSION = """
import tensorflow as tf
class Module(tf.Module):
    def __init__(self):
        self.weights = tf.Variable(tf.ones(3))
    @tf.function(input_signature=[tf.TensorSpec([1, 3])])
    def __call__(self, x):
        return tf.tanh(x * self.weights + 1.0) * 2.0 - x
module = Module()
concrete = module.__call__.get_concrete_function()
print(len(tf.lite.TFLiteConverter.from_concrete_functions([concrete], module).convert()) > 0)
module(tf.ones([1, 3]))
import sys
print(sys.modules["tfbridge"].stats()["clusters_compiled"])
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_python(program, cwd=Path(sys.executable).parent, **environment)


def test_a_conversion_which_keeps_pythons_lock_while_its_threads_run_sessions() -> None:
    done = run(CONVERSION, TFBRIDGE_AUTO_JIT="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "1"]


def test_unchanged_program_is_compiled_logged_and_dumped(tmp_path: Path) -> None:
    done = run(
        PROGRAM,
        TFBRIDGE_AUTO_JIT="1",
        TFBRIDGE_LOG="clusters,compiles,fusion",
        TFBRIDGE_DUMP=str(tmp_path / "d"),
        TFBRIDGE_CACHE_DIR=str(tmp_path / "c"),
    )
    assert done.returncode == 0, done.stderr
    stats = eval(done.stdout)
    assert stats["clusters_compiled"] >= 1
    assert stats["ops_compiled"] > 10
    assert stats["fallbacks"] == 0
    for line in ("tfbridge.clusters: cluster ", "tfbridge.compiles: cluster ", "tfbridge.fusion: cluster "):
        assert any(found.startswith(line) for found in done.stderr.splitlines()), done.stderr
    assert list((tmp_path / "c").glob("*.artifact"))
    folders = sorted((tmp_path / "d").iterdir())
    assert len(folders) == stats["compiles"]
    names = [path.name.partition("-")[2] for path in sorted(folders[0].iterdir())]
    assert names[:3] == ["options.txt", "cluster.pbtxt", "before.hlo"]
    assert names[-3:] == ["thunks.txt", "module.ll", "module.s"]
    assert "after-fuse.hlo" in names
    graph = text_format.Parse((folders[0] / "01-cluster.pbtxt").read_text(), tf.compat.v1.GraphDef())
    assert "MatMul" in {node.op for node in graph.node}
    assert parse_hlo((folders[0] / "02-before.hlo").read_text()).entry.parameters


def test_garbage_is_not_looked_for_among_what_tensorflow_imports() -> None:
    program = """
import gc, weakref
import tensorflow as tf
class Node: pass
node = Node(); node.itself, seen = node, weakref.ref(node)
del node
gc.collect()
print(gc.get_freeze_count() > 50_000, seen() is None)
"""
    assert run(program, TFBRIDGE_AUTO_JIT="1").stdout.split() == ["True", "True"]


def test_python_without_the_flag_does_not_load_tfbridge() -> None:
    assert run("import sys; print('tfbridge' in sys.modules)").stdout == "False\n"


def test_little_is_loaded_before_tensorflow() -> None:
    loaded = "import sys; print([m for m in sys.modules if m.startswith('tfbridge')])"
    assert run(loaded, TFBRIDGE_AUTO_JIT="1").stdout == "['tfbridge_start']\n"


def test_misspelt_flag_is_told_once_and_stops_nothing() -> None:
    search = "import importlib.util as u; print([u.find_spec('tensorflow') is not None for _ in range(2)])"
    done = run(search, TFBRIDGE_AUTO_JTI="1")
    assert done.stdout == "[True, True]\n"
    assert (
        done.stderr == "tfbridge: TFBRIDGE_AUTO_JTI: there is no such flag; did you mean TFBRIDGE_AUTO_JIT?\n"
    )


def test_wheel_gets_the_start_up_files_and_their_records(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("backend", ROOT / "packaging" / "backend.py")
    backend = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(backend)
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr("x/__init__.py", "")
        wheel.writestr("x-1.dist-info/RECORD", "x/__init__.py,,\n")
    backend._with_start_up(str(tmp_path), "x.whl")
    with zipfile.ZipFile(tmp_path / "x.whl") as wheel:
        files = {file.name: wheel.read(file.name) for file in backend.START_UP}
        record = wheel.read("x-1.dist-info/RECORD").decode().splitlines()
    assert record[0] == "x/__init__.py,,"
    for (name, data), line in zip(files.items(), record[1:], strict=True):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert line == f"{name},sha256={digest},{len(data)}"
        assert data == (ROOT / "packaging" / name).read_bytes()
    assert files["tfbridge_auto_jit.pth"].count(b"\n") == 1, "site runs lines, so the program is one"
