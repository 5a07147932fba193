"""Runs the tests of the bridge with several versions of Python, TensorFlow, NumPy and llvmlite: `make test-matrix`.

Every row of ROWS has an environment of its own under build/matrix. What its `tfbridge doctor` and its tests say goes
into docs/versions.md. A row whose Python is not installed is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "versions.md"
TESTS = ("tf_internals", "graph", "cluster", "clustering", "launch", "dispatch", "api")
_TOOLS = ("pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6", "scikit-learn>=1.4", "rich>=13", "jinja2>=3.1")


@dataclasses.dataclass(frozen=True)
class Row:
    """An environment: a Python, and packages with their versions; the rest is what pip takes with them."""

    python: str
    tensorflow: str
    packages: tuple[str, ...]

    @property
    def name(self) -> str:
        """The folder of the environment."""
        return re.sub(r"[^\w.]+", "-", "-".join((self.python, self.tensorflow, *self.packages))).strip("-")


ROWS = (
    Row("3.10", "tensorflow-cpu==2.18.*", ("llvmlite==0.44.*", "numpy==1.26.*", "numba==0.61.*")),
    Row("3.12", "tensorflow-cpu==2.18.*", ("llvmlite==0.50.*", "numpy==2.0.*")),
    Row("3.11", "tensorflow-cpu==2.19.*", ("llvmlite==0.44.*", "numpy==2.1.*", "numba==0.61.*")),
    Row("3.12", "tensorflow-cpu==2.19.*", ("llvmlite==0.50.*", "numpy==1.26.*")),
    Row("3.12", "tensorflow-cpu==2.20.*", ("llvmlite==0.45.*", "numpy>=2", "numba==0.62.*")),
    Row("3.13", "tensorflow-cpu==2.20.*", ("llvmlite==0.50.*", "numpy>=2")),
    Row("3.11", "tensorflow-cpu==2.21.*", ("llvmlite==0.44.*", "numpy>=2")),
    Row("3.13", "tensorflow==2.21.*", ("llvmlite==0.50.*", "numpy>=2")),
)


def interpreter(version: str) -> str | None:
    """The path of a Python of that version: on PATH, or of pyenv; None where there is none."""
    if on_path := shutil.which(f"python{version}"):
        works = subprocess.run([on_path, "-c", ""], capture_output=True, check=False).returncode == 0
        if works:
            return on_path
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return next((str(path) for path in sorted(root.glob(f"versions/{version}.*/bin/python"))), None)


def environment(row: Row, folder: Path) -> Path | None:
    """The interpreter of a row's environment, which is made where it is not there; None without its Python."""
    base, python = interpreter(row.python), folder / row.name / "bin" / "python"
    if base is None:
        return None
    if not (folder / row.name / ".complete").exists():
        subprocess.run([base, "-m", "venv", "--clear", folder / row.name], check=True)
        pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        subprocess.run([*pip, row.tensorflow, *row.packages, *_TOOLS], check=True)
        subprocess.run([*pip, "--no-deps", "--editable", ROOT], check=True)
        (folder / row.name / ".complete").touch()
    return python


def run(python: Path, workers: str) -> dict[str, Any]:
    """What an environment has, and what the tests say in it."""
    doctor = subprocess.run(
        [python, "-m", "tfbridge", "doctor", "--json"], capture_output=True, text=True, check=False
    )
    checks = json.loads(doctor.stdout)
    tests = subprocess.run(
        [python, "-m", "pytest", "--numprocesses", workers, "--dist", "loadfile"]
        + [f"tests/bridge/{part}" for part in TESTS],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    (python.parents[1] / "tests.log").write_text(tests.stdout)
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)", tests.stdout)}
    return {"doctor": checks, "counts": counts}


def packages(python: Path) -> dict[str, str]:
    """The versions that pip took."""
    names = ("tensorflow", "tensorflow-cpu", "numpy", "llvmlite", "ml_dtypes", "numba")
    program = (
        "import importlib.metadata as m, json\ndef v(n):\n  try: return m.version(n)\n  except Exception: return ''\n"
        f"print(json.dumps({{n: v(n) for n in {names!r}}}))"
    )
    out = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout
    return {name: version for name, version in json.loads(out).items() if version}


def table(results: dict[str, dict[str, Any]]) -> str:
    """The Markdown table of results by the rows' names."""
    lines = [
        "| Python | TensorFlow | NumPy | llvmlite (LLVM) | Numba | features | tests |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        result = results.get(row.name)
        if result is None:
            lines.append(f"| {row.python} | {row.tensorflow} | | | | | not run |")
            continue
        versions, doctor, counts = result["packages"], result["doctor"], result["counts"]
        package = next(name for name in ("tensorflow-cpu", "tensorflow") if name in versions)
        llvm = doctor["versions"]["text"].rpartition("LLVM ")[2]
        lost = doctor["features"]
        lines.append(
            f"| {row.python} | {package} {versions[package]} | {versions['numpy']} | {versions['llvmlite']} ({llvm}) | "
            f"{versions.get('numba', '')} | {'all' if lost['status'] == 'ok' else lost['text'].replace('|', '/')} | "
            + ", ".join(
                f"{counts[word]} {word}"
                for word in ("passed", "failed", "error", "skipped")
                if word in counts
            )
            + " |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs the rows and writes the table; the exit code is 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "matrix", help="of the environments")
    parser.add_argument("--only", default="", help="a part of the names of the rows to run")
    parser.add_argument("--workers", default="2", help="test processes")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    file = chosen.folder / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for row in ROWS:
        if chosen.only not in row.name:
            continue
        python = environment(row, chosen.folder)
        if python is None:
            print(f"{row.name}: there is no Python {row.python}", file=sys.stderr)
            continue
        results[row.name] = {"packages": packages(python), **run(python, chosen.workers)}
        print(row.name, results[row.name]["counts"], flush=True)
        file.write_text(json.dumps(results, indent=1))
    text = DOCUMENT.read_text()
    head, begin, rest = text.partition("<!-- table -->\n")
    tail = rest.partition("<!-- end -->")[2]
    DOCUMENT.write_text(f"{head}{begin}{table(results)}<!-- end -->{tail}")
    return int(any(r["counts"].get("failed", 0) or r["counts"].get("error", 0) for r in results.values()))


if __name__ == "__main__":
    sys.exit(main())
