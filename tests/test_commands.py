"""The commands: `python -m tfbridge`, and the public modules that are commands too."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tfbridge
from run_python import run_python


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("command", [("tfbridge", "flags"), ("tfbridge.flags",)])
def test_flags(command: tuple[str, ...]) -> None:
    done = run(*command)
    assert done.returncode == 0 and "TFBRIDGE_AUTO_JIT" in done.stdout and not done.stderr
    assert run(*command, "--markdown").stdout.startswith("| Variable |")


@pytest.mark.parametrize("command", [("tfbridge", "aot"), ("tfbridge.aot",)])
def test_aot(command: tuple[str, ...]) -> None:
    done = run(*command, "--help")
    assert done.returncode == 0 and "--saved-model" in done.stdout and not done.stderr


def test_run(tmp_path: Path) -> None:
    text = tmp_path / "m.hlo"
    text.write_text(
        "HloModule m\n\nENTRY main {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] add(x, x)\n}\n"
    )
    done = run("tfbridge", "run", str(text), "--print")
    assert done.returncode == 0 and "add(" in done.stdout


def test_doctor() -> None:
    done = run("tfbridge", "doctor")
    assert done.returncode == 0, done.stdout
    assert "FAILED" not in done.stdout and "largest difference from TensorFlow" in done.stdout


def test_doctor_names_what_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tfbridge.bridge.api import doctor

    monkeypatch.setitem(
        doctor.CHECKS, "TensorFlow", lambda: (_ for _ in ()).throw(RuntimeError("lacks a name"))
    )
    assert doctor.main() == 1
    assert "FAILED TensorFlow         RuntimeError: lacks a name" in capsys.readouterr().out


PROGRAM = """
import sys
import tomllib
from pathlib import Path
import tensorflow as tf
@tf.function
def f(x):
    return tf.strings.length(tf.strings.as_string(tf.tanh(x) * 2 + tf.exp(x) - 1))
print(f(tf.ones(3)).shape, sys.argv[1:], __name__)
sys.exit(3)
"""


def test_report(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = run("tfbridge", "report", str(program), "--size", "7")
    assert done.returncode == 3, done.stderr
    printed, _, report = done.stdout.partition("\n\n")
    assert printed == "(3,) ['--size', '7'] __main__"
    assert "1 clusters of 5 ops compiled" in report and "2 ops not compiled" in report
    assert "f32[3]" in report and "AsString: there is no translation of this op" in report


def test_the_commands_that_are_installed() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    assert project["scripts"].keys() == {"tfbridge", "tfbridge-aot"}


def test_version() -> None:
    assert run("tfbridge", "--version").stdout == f"tfbridge {tfbridge.__version__}\n"


def test_unknown_command() -> None:
    done = run("tfbridge", "fly")
    assert done.returncode == 2 and "invalid choice" in done.stderr


def test_public_modules_are_those_of_the_package() -> None:
    program = (
        "import tfbridge.flags, tfbridge.aot\nfrom tfbridge.bridge import aot\n"
        "from tfbridge.bridge.options import flags\n"
        "assert tfbridge.flags.FLAGS is flags.FLAGS and tfbridge.aot.compile is aot.compile"
    )
    assert run_python(program).returncode == 0
