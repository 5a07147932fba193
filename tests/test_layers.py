"""The arrows of the source map: models -> bridge -> compiler -> runtime, and who may know which library."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("runtime", "compiler", "bridge", "models")  # each imports itself and what stands to its left
FILES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))

# Which files may import a library. A name ending in a slash is a folder.
LIBRARY_HOMES = {
    "tensorflow": ("bridge/", "models/"),
    "keras": ("bridge/", "models/"),
    "llvmlite": ("compiler/cpu/", "runtime/llvm/target.py", "runtime/code/linker.py", "bridge/launch/op.py"),
    "jax": (),
    "sklearn": ("models/",),
    "rich": ("bridge/", "models/"),
}
PRIVATE_HOME = "bridge/tf_internals/symbols.py"
PRIVATE_WORDS = ("pywrap_tfe", "pywrap_tensorflow")
DYNAMIC_IMPORTS = ("importlib.import_module", "import_module", "__import__")


def imported_modules(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Every absolute module name that the file imports, relative imports resolved, with its line."""
    package = ("tfbridge", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                start = package[: len(package) - node.level + 1]
                module = ".".join((*start, node.module) if node.module else start)
            else:
                module = node.module or ""
            for name in node.names:
                yield node.lineno, f"{module}.{name.name}"
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in DYNAMIC_IMPORTS
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


def within(relative: str, homes: tuple[str, ...]) -> bool:
    return any(relative.startswith(home) if home.endswith("/") else relative == home for home in homes)


def violations(path: Path, text: str) -> list[str]:
    """Each line of the file that breaks an arrow, as `file:line: reason`."""
    relative = path.relative_to(ROOT).as_posix()
    layer = relative.split("/")[0]
    above = LAYERS[LAYERS.index(layer) + 1 :]
    found = []
    for line, module in imported_modules(path, text):
        parts = module.split(".")
        if parts[0] == "tfbridge" and len(parts) > 1 and parts[1] in above:
            found.append(f"{relative}:{line}: {layer}/ imports {module}, which lies above it")
        if parts[0] in LIBRARY_HOMES and not within(relative, LIBRARY_HOMES[parts[0]]):
            found.append(f"{relative}:{line}: {parts[0]} is known only in {LIBRARY_HOMES[parts[0]]}")
        if parts[:2] == ["tensorflow", "python"] and relative != PRIVATE_HOME:
            found.append(f"{relative}:{line}: {module} is private; only {PRIVATE_HOME} may use it")
    if relative != PRIVATE_HOME:
        found += [f"{relative}: mentions the private name {name}" for name in PRIVATE_WORDS if name in text]
    found += [f"{relative}: reaches outside the repository"] if "../shared" in text else []
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_file_respects_the_layers(path: Path) -> None:
    assert violations(path, path.read_text()) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("runtime/cache.py", "from ..compiler import ir"),
        ("runtime/cache.py", "from .. import compiler"),
        ("compiler/cpu/gemm/emit.py", "from ....bridge.api.flags import FLAGS"),
        ("compiler/client/client.py", "import tfbridge.bridge"),
        ("compiler/ir/module.py", "import tensorflow as tf"),
        ("compiler/ir/module.py", "import importlib\nimportlib.import_module('tensorflow')"),
        ("compiler/passes/fuse.py", "import llvmlite.binding"),
        ("bridge/api/jit.py", "from tensorflow.python.eager import context"),
        ("bridge/api/jit.py", "x = tf.pywrap_tfe"),
        ("bridge/api/jit.py", "from ...models import mlp"),
        ("models/zoo/mlp.py", "DATA = '../shared'"),
    ],
)
def test_a_broken_arrow_is_found(file: str, text: str) -> None:
    assert len(violations(ROOT / file, text)) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("compiler/client/client.py", "from ...runtime.code.artifact import Artifact"),
        ("compiler/cpu/gemm/emit.py", "import llvmlite.binding"),
        ("runtime/code/linker.py", "import llvmlite.binding"),
        ("bridge/tf_internals/symbols.py", "from tensorflow.python import pywrap_tfe"),
        ("models/zoo/mlp.py", "import tfbridge\nimport tensorflow as tf"),
    ],
)
def test_a_right_arrow_passes(file: str, text: str) -> None:
    assert violations(ROOT / file, text) == []


def test_the_root_holds_the_face_and_the_command() -> None:
    assert sorted(path.name for path in ROOT.glob("*.py")) == ["__init__.py", "__main__.py"]


def test_the_root_holds_no_other_folder() -> None:
    folders = {path.relative_to(ROOT).parts[0] for path in ROOT.glob("[a-z]*/**/*.py")}
    assert folders - {"build", "out"} == {*LAYERS, "tests", "docs", "packaging"}


def test_every_package_is_listed() -> None:
    import tomllib

    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    present = {".".join(("tfbridge", *path.relative_to(ROOT).parent.parts)) for path in FILES}
    assert set(listed) == present | {"tfbridge"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("tfbridge", "tensorflow"),
        ("tfbridge", "llvmlite"),
        ("tfbridge.runtime", "tensorflow"),
        ("tfbridge.compiler", "tensorflow"),
    ],
)
def test_import_stays_light(module: str, absent: str) -> None:
    program = f"import sys, {module}; sys.exit({absent!r} in sys.modules)"
    # A process-wide auto-clustering flag would make any import of TensorFlow legitimate.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TFBRIDGE_")}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0
