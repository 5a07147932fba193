"""Static and shared libraries of exported models, and the Python module that runs a shared one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.aot.writers.libraries import archive
from tfbridge.compiler.errors import UnsupportedError

RNG = np.random.default_rng(4)
WEIGHTS = tf.constant(RNG.normal(size=(5, 3)).astype(np.float32))
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def layer(x: tf.Tensor) -> tf.Tensor:
    return tf.tanh(x @ WEIGHTS)


class Counter(tf.Module):
    def __init__(self) -> None:
        self.total = tf.Variable(tf.zeros((3,)), name="total")

    def add(self, x: tf.Tensor) -> tf.Tensor:
        return self.total.assign_add(tf.reduce_sum(layer(x), 0)) * 2.0

    def shape(self, x: tf.Tensor, n: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return x[:1], n + 1


def _python(folder: Path, program: str) -> str:
    """What a program prints in a process without TensorFlow."""
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_compiler
@pytest.mark.parametrize("constants", ["object", "file"])
def test_static_library(tmp_path: Path, constants: str) -> None:
    made = tfbridge.aot.compile(
        layer,
        tf.TensorSpec((2, 5)),
        name="layer",
        out_dir=tmp_path,
        format="static",
        extras=["test", "cmake"],
        large_constants=constants,
    )
    assert made.object_file.name == "liblayer.a"
    if shutil.which("ar"):
        listed = subprocess.run(["ar", "t", made.object_file], capture_output=True, text=True, check=True)
        assert listed.stdout.split() == ["layer.o"]
    (test,) = (file for file in made.extra_files if file.suffix == ".c")
    command = ["cc", str(test), "-L", str(tmp_path), "-llayer", "-lm", "-o", "program"]
    subprocess.run(command, check=True, cwd=tmp_path)
    subprocess.run([str(tmp_path / "program")], check=True, cwd=tmp_path)
    assert "add_library(layer STATIC IMPORTED)" in (tmp_path / "layer-config.cmake").read_text()
    assert "liblayer.a" in (tmp_path / "layer.pc").read_text()


def test_form_of_archives() -> None:
    gnu = archive("m.o", b"12345", ["first", "second"], "x86_64-linux-gnu")
    assert gnu.startswith(b"!<arch>\n/ ") and b"first\0second\0" in gnu and len(gnu) % 2 == 0
    offset = int.from_bytes(gnu[72:76], "big")
    assert gnu[offset:].startswith(b"m.o/") and gnu[offset + 60 :].startswith(b"12345")
    bsd = archive("m.o", b"12345678", ["first"], "arm64-apple-ios")
    assert bsd[8:].startswith(b"#1/16 ") and bsd[68:].startswith(b"__.SYMDEF\0") and b"_first\0" in bsd
    where = int.from_bytes(bsd[92:96], "little")
    assert bsd[where:].startswith(b"m.o") and where % 8 == 4 and bsd[where + 60 :].startswith(b"12345678")


@pytest.mark.skipif(shutil.which("llvm-nm") is None, reason="no llvm-nm")
@pytest.mark.parametrize(
    "triple, prefix",
    [("x86_64-linux-gnu", ""), ("arm64-apple-macosx13", "_"), ("i686-w64-mingw32", "_")],
)
def test_index_names_the_symbols(triple: str, prefix: str, tmp_path: Path) -> None:
    """Linkers take an object out of a library for the names in the index, which are those in the object."""
    made = tfbridge.aot.compile(
        layer, tf.TensorSpec((2, 5)), name="layer", out_dir=tmp_path, format="static", target_triple=triple
    )
    command = ["llvm-nm", "--print-armap", "--defined-only", "--extern-only", made.object_file]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    index, members = listed.removeprefix("Archive map\n").split("\n\n", 1)
    (symbol,) = [line.split()[0] for line in index.splitlines()]
    assert symbol.startswith(f"{prefix}layer_entry_")
    assert f" T {symbol}\n" in members


@pytest.mark.skipif(shutil.which("x86_64-w64-mingw32-gcc") is None, reason="no compiler for Windows")
def test_programs_link_with_a_dll(tmp_path: Path) -> None:
    made = tfbridge.aot.compile(
        layer,
        tf.TensorSpec((2, 5)),
        name="layer",
        out_dir=tmp_path,
        format="shared",
        extras=["test", "cmake"],
        target_triple="x86_64-w64-mingw32",
    )
    command = ["x86_64-w64-mingw32-gcc", "layer_test.c", made.object_file.name, "-o", "program.exe"]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert "IMPORTED_IMPLIB" in (tmp_path / "layer-config.cmake").read_text()


@needs_compiler
@pytest.mark.parametrize("name", ["lambda", "reset"])
def test_names_of_methods(name: str, tmp_path: Path) -> None:
    """Python's own words and the class's methods are not taken by functions of the model."""
    counter = Counter()
    functions = {name: (counter.add, tf.TensorSpec((2, 5)))}
    tfbridge.aot.compile(functions, name="counter", out_dir=tmp_path, format="shared", extras=["python"])
    printed = _python(
        tmp_path,
        f"""import numpy as np, counter
model, x = counter.Counter(), np.ones((2, 5), np.float32)
first = model.{name}_(x)
model.reset()
print((model.{name}_(x) == first).all())""",
    )
    assert printed == "True"


@needs_compiler
@pytest.mark.parametrize("constants", ["object", "file"])
def test_python_module(tmp_path: Path, constants: str) -> None:
    tfbridge.aot.compile(
        layer,
        tf.TensorSpec((2, 5), name="x"),
        name="layer",
        out_dir=tmp_path,
        format="shared",
        extras=["python"],
        large_constants=constants,
    )
    x = RNG.normal(size=(2, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    printed = _python(
        tmp_path,
        f"""import numpy as np, layer
model = layer.Layer()
x = np.load({str(tmp_path / "x.npy")!r})
np.save({str(tmp_path / "y.npy")!r}, model.run(x))
for bad in (x[:1], x.astype(complex)):
    try: model.run(bad)
    except (ValueError, TypeError) as error: print(type(error).__name__, error)
print('tensorflow' in sys.modules, model.run.__doc__)""",
    )
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), layer(x), rtol=1e-5)
    assert printed.splitlines() == [
        "ValueError x has the shape (1, 5), (2, 5) is wanted",
        "TypeError x is complex128, float32 is wanted",
        "False Arguments: arg0: 'x', float32[2, 5]. Results: float32[2, 3].",
    ]


@needs_compiler
def test_state_and_several_functions(tmp_path: Path) -> None:
    counter = Counter()
    spec = tf.TensorSpec((2, 5))
    functions = {
        "add": (counter.add, spec),
        "shape": (counter.shape, spec, tf.TensorSpec((), tf.int64)),
    }
    made = tfbridge.aot.compile(
        functions, name="counter", out_dir=tmp_path, format="shared", extras=["python"]
    )
    assert made.object_file.stat().st_size == made.object_bytes
    wanted = 2 * np.asarray(layer(tf.ones((2, 5)))).sum(0)
    printed = _python(
        tmp_path,
        """import numpy as np, counter
model, x = counter.Counter(), np.ones((2, 5), np.float32)
first = model.add(x)
state = model.get_state()
second = model.add(x)
model.set_state(state)
assert (model.add(x) == second).all() and not (first == second).all()
model.reset()
assert (model.add(x) == first).all()
rows, number = model.shape(x, 41)
assert rows.shape == (1, 5) and number == 42
print(first.tolist())""",
    )
    np.testing.assert_allclose(eval(printed), wanted, rtol=1e-5)


def test_refusals(tmp_path: Path) -> None:
    spec = tf.TensorSpec((2, 5))
    for options, match in (
        ({"format": "tarball"}, "'tarball' is none of object, static, shared"),
        ({"extras": ["python"]}, "format='shared' is wanted"),
    ):
        with pytest.raises(ValueError, match=match):
            tfbridge.aot.compile(layer, spec, out_dir=tmp_path, **options)
    with pytest.raises(UnsupportedError, match="is linked with .* install it"):
        tfbridge.aot.compile(
            layer, spec, name="layer", out_dir=tmp_path, format="shared", target_triple="riscv32-unknown-elf"
        )
    for triple in ("riscv64-linux-android35", "riscv64-linux-musl"):  # not with another C library
        with pytest.raises(UnsupportedError, match=f"with {triple}-gcc or {triple}-clang"):
            tfbridge.aot.compile(
                layer, spec, name="layer", out_dir=tmp_path, format="shared", target_triple=triple
            )
    half = tf.TensorSpec((2,), tf.bfloat16)
    if shutil.which("cc"):
        with pytest.raises(UnsupportedError, match="NumPy has no type bfloat16"):
            tfbridge.aot.compile(
                lambda x: x * x, half, name="half", out_dir=tmp_path, format="shared", extras=["python"]
            )
