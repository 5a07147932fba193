"""Names of ahead-of-time models: what may be chosen is checked before anything is compiled, what a model brings is
written so that no text of it becomes code.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from tfbridge import aot
from tfbridge.bridge.aot import build
from tfbridge.bridge.aot.__main__ import main
from tfbridge.bridge.aot.writers import names
from tfbridge.compiler.cpu.targets import named_target

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow", "-fsyntax-only")
EVIL = "*/\n#error INJECTED\nint injected(void) { return 1; }\n/*"
HOSTILE = [
    EVIL,
    "int",
    "class",
    "a b",
    'a"b',
    "a\\",
    "a\nb",
    "é",
    "日本",
    "\ud800",
    "??/",
    "x*/y",
    "//x",
    "/*",
    "__FILE__",
    "1x",
    "-",
    "arg0",
    "result0",
    "run",
    "error_message",
    "a" * 300,
    "NULL",
    "operator",
    "%s%n",
    "$name",
    "${NAME}",
    "$(touch PWNED)",
    "`id`",
    "main",
    "../../x",
    "a/b",
    "a.b",
    "\0x",
    "\x1b[2J",
    "_x",
    "x_",
    "x__y",
]


@pytest.fixture
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "freeze", None)
    monkeypatch.setattr(named_target, "probe", None)


def compiles_as_c_and_cpp(header: Path, program: str = "int main(void) { return 0; }") -> None:
    for compiler, standard, suffix in (("gcc", "c99", "c"), ("g++", "c++11", "cc")):
        if shutil.which(compiler) is None:
            pytest.skip(f"{compiler} is not installed")
        source = header.with_suffix(f".main.{suffix}")
        source.write_text(f'#include "{header.name}"\n{program}\n')
        more = ("-Wold-style-cast",) if suffix == "cc" else ("-Wcast-qual",)
        subprocess.run([compiler, f"-std={standard}", *STRICT, *more, source], check=True)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "int",
        "restrict",
        "_Bool",
        "co_await",
        "new",
        "this",
        "xor",
        "1x",
        "a b",
        "a-b",
        "é",
        "日本",
        "a\n",
        "a\0",
        EVIL,
        'x"y',
        "../x",
        "a/b",
        "/tmp/x",
        ".",
        "_a",
        "a_",
        "a__b",
        "x" * 101,
        "NULL",
        "stdout",
        "main",
        "printf",
        "memcpy",
        "sinf",
        "tfbridge",
        "TFBRIDGE_RUNTIME",
        "tfbridge_x",
        "linux",
    ],
)
def test_names_that_are_refused(name: str, tmp_path: Path, nothing_is_compiled: None) -> None:
    for chosen in (
        {"name": name},
        {"cpp_class": name},
        {"cpp_class": f"a::{name}"},
        {"cpp_class": f"{name}::A"},
    ):
        with pytest.raises(ValueError, match=f"^{next(iter(chosen))}: ['\"].* is "):
            aot.compile(lambda x: x, tf.TensorSpec(()), out_dir=tmp_path / "out", **chosen)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "part",
    [
        "m_model",
        "m_init",
        "m_entry",
        "M_ARGS",
        "M_H",
        "run",
        "own_",
        "memory_bytes",
        "c_model",
        "size_t",
        "int32_t",
        "UINT8_MAX",
        "INT64_C",
        "arg0",
        "arg0_bytes",
        "set_arg1_data",
        "result_x",
        "set_thread_pool",
        "int8_t",
    ],
)
def test_classes_that_the_header_uses(part: str) -> None:
    for cpp_class in (part, f"{part}::A"):
        with pytest.raises(ValueError, match="cpp_class"):
            names.check("m", cpp_class)


@pytest.mark.parametrize(
    "chosen",
    [
        {"target_triple": f"x86_64-linux-gnu{end}"}
        for end in ("\n#error", " */ int x; /*", "\0", '"', "é", "x" * 5000)
    ]
    + [
        {which: text}
        for which in ("target_cpu", "target_features")
        for text in ("*/\n/*", 'generic" "', "x\n", "+x y", "+\0", "`id`")
    ],
)
def test_targets_that_are_none(chosen: dict[str, str], nothing_is_compiled: None) -> None:
    with pytest.raises(ValueError, match=r"target (triple|CPU|features): .* (other characters|at most)"):
        aot.compile(lambda x: x, tf.TensorSpec(()), **chosen)


def test_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str], nothing_is_compiled: None) -> None:
    for arguments in (["--name", "../x"], ["--cpp-class", "A;"], ["--target-triple", "a\nb"]):
        assert main(["--saved-model", "none", *arguments]) == 2
        printed = capsys.readouterr()
        assert printed.err.startswith("tfbridge-aot: ") and printed.err.count("\n") == 1 and not printed.out


def test_chosen_names_stay() -> None:
    for name in ("model", "Digits2", "a_b_c", "x" * 100):
        names.check(name, f"ns::{name}" if name != "model" else "Model")
        assert names.file_name(name) == name[:98]


def test_names_that_are_made() -> None:
    """Whatever a function is called, the files have a name that could be chosen."""
    for name in (*HOSTILE, "", "tfbridge", "printf", "_", "<lambda>"):
        names.check(names.file_name(name), "Model")
        assert names.in_comment(name).isascii() and names.in_comment(name).isprintable()
    assert names.file_name("<lambda>") == "lambda" and names.file_name("int") == "m_int"


def test_hostile_names_of_a_model(tmp_path: Path) -> None:
    """A header with all of them is C and C++ without a warning; what is like a name is one, the description has all."""
    structure = {name: tf.TensorSpec((2,)) for name in HOSTILE}
    function = tf.function(
        lambda arrays: {name: arrays[name] * 2.0 for name in HOSTILE}, input_signature=[structure]
    )
    function.__name__ = EVIL
    made = aot.compile(function, out_dir=tmp_path)
    assert made.header.parent == tmp_path and {p.suffix for p in tmp_path.iterdir()} == {
        ".o",
        ".h",
        ".json",
        ".html",
    }
    assert not any(line.startswith("#error INJECTED") for line in made.header.read_text().splitlines())
    described = json.loads(made.description.read_text())
    assert {result["name"] for result in described["results"]} >= {EVIL, "日本", "a\\"}
    compiles_as_c_and_cpp(made.header)


def test_links_are_replaced(tmp_path: Path) -> None:
    for suffix in ("h", "o", "json", "html", "bin"):
        os.symlink(tmp_path / "victim", tmp_path / f"m.{suffix}")
    weights = tf.constant([1.0, 2.0])
    made = aot.compile(
        lambda x: x * weights, tf.TensorSpec((2,)), name="m", out_dir=tmp_path, large_constants="file"
    )
    files = (made.object_file, made.header, made.description, made.page, made.constants_file)
    assert not (tmp_path / "victim").exists() and not any(file is None or file.is_symlink() for file in files)
    assert len(os.listdir(tmp_path)) == 5
    umask = os.umask(0)
    os.umask(umask)
    assert made.header.stat().st_mode & 0o777 == 0o666 & ~umask


def test_current_folder_is_no_place_for_modules(tmp_path: Path) -> None:
    """LLVM is asked about a target in a process of its own, which takes no code from where it starts."""
    (tmp_path / "llvmlite.py").write_text("raise SystemExit('planted')")
    program = "from tfbridge.compiler.cpu.targets.named_target import target_for; target_for('x86_64')"
    subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, check=True)
