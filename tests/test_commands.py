"""The commands: `python -m tfbridge`, and the public modules that are commands too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tfbridge
from run_python import run_python


def run(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    variables = os.environ | (environment or {})
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, env=variables)


@pytest.mark.parametrize("command", [("tfbridge", "flags"), ("tfbridge.flags",)])
def test_flags(command: tuple[str, ...]) -> None:
    done = run(*command)
    assert done.returncode == 0 and "TFBRIDGE_AUTO_JIT" in done.stdout and not done.stderr
    assert run(*command, "--markdown").stdout.startswith("| Variable |")
    assert run(*command, "--help").stdout.startswith("usage: ")


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
    from tfbridge.bridge.public import doctor

    monkeypatch.setitem(
        doctor.CHECKS, "TensorFlow", lambda: (_ for _ in ()).throw(RuntimeError("lacks a name"))
    )
    assert doctor.main() == 1
    assert "FAILED  TensorFlow         RuntimeError: lacks a name" in capsys.readouterr().out


def doctor_of(**environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code and the findings of the command in a process of its own."""
    done = run("tfbridge", "doctor", "--json", environment=environment)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("raise ModuleNotFoundError('no', name='tensorflow')", "not installed; get it by `pip install"),
        ("raise ImportError('libfoo.so: no such file')", "cannot be loaded: libfoo.so: no such file"),
        ("__version__ = '2.10.1'", "2.10.1 is older than 2.18; get a newer one"),
    ],
    ids=["absent", "broken", "old"],
)
def test_doctor_without_tensorflow(tmp_path: Path, source: str, wanted: str) -> None:
    (tmp_path / "tensorflow.py").write_text(source + "\n")
    code, found = doctor_of(PYTHONPATH=str(tmp_path))
    assert code == 1 and wanted in found["TensorFlow"]["text"]
    assert found["compiled function"]["status"] == "skipped" and found["compiler"]["status"] == "ok"


def test_doctor_without_a_home() -> None:
    code, found = doctor_of(HOME="/proc/nowhere", XDG_CACHE_HOME="")
    assert code == 0 and found["disk cache"]["status"] == "lacks"
    assert "compiled anew in each process" in found["disk cache"]["text"]
    assert found["exported object"]["status"] == "ok"


def test_doctor_without_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tfbridge.bridge.public import doctor

    cache = doctor.disk_cache.DiskCache(tmp_path)
    monkeypatch.setattr(doctor.disk_cache, "default", lambda: cache)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    found = doctor.CHECKS["disk cache"]()
    assert found.status == "lacks" and "1 MB are free" in found.text


def test_doctor_of_two_installations(tmp_path: Path) -> None:
    (tmp_path / "tfbridge-0.0.1.dist-info").mkdir()
    (tmp_path / "tfbridge-0.0.1.dist-info/METADATA").write_text("Name: tfbridge\nVersion: 0.0.1\n")
    code, found = doctor_of(PYTHONPATH=str(tmp_path))
    assert code == 1 and "metadata of version 0.0.1" in found["installation"]["text"]


PROGRAM = """
import sys
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
    folder = tmp_path / "reports"
    done = run(
        *("tfbridge", "report", str(program), "--size", "7"), environment={"TFBRIDGE_REPORT": str(folder)}
    )
    assert done.returncode == 3, done.stderr
    printed, _, report = done.stdout.partition("\n\n")
    assert printed == "(3,) ['--size', '7'] __main__"
    assert "1 clusters of 5 ops compiled" in report and "2 ops not compiled" in report
    assert "f32[3]" in report and "AsString: there is no translation of this op" in report
    [written] = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert written["program"] == [str(program), "--size", "7"] and written["ended"]


def test_the_commands_that_are_installed() -> None:
    tomllib = pytest.importorskip("tomllib")
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
