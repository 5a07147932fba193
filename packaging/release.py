"""Builds the wheel and the sdist into dist/, and tries each in an environment of its own: `make release`."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRIAL = """
import importlib.util, numpy as np, tensorflow as tf, tfbridge
assert importlib.util.find_spec("pytest") is None, "test tools came along"
f = tfbridge.jit(lambda x: tf.reduce_sum(tf.nn.softmax(x @ x) * 2.0, 0))
report = tfbridge.explain(f, tf.ones((8, 8)))
assert report.is_whole and "<svg" in report.html(), report
np.testing.assert_allclose(f(tf.ones((8, 8))), np.full(8, 2.0), rtol=1e-6)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Runs a command; one that fails ends the release with its exit code."""
    print("$", *command, flush=True)
    code = subprocess.run([*map(str, command)], cwd=cwd, check=False).returncode
    if code:
        sys.exit(code)


def environment(folder: Path, *packages: str | Path) -> Path:
    """A new environment with packages; its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return python


def main() -> None:
    """Builds, then tries what was built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files go; default: dist")
    out = parser.parse_args().out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = environment(folder / "builder", "build")
        run(builder, "-m", "build", "--outdir", out, ROOT)
        for file in sorted(out.iterdir()):
            python = environment(folder / file.name, file)
            run(python, "-m", "tfbridge", "--version", cwd=folder)
            run(python, "-m", "tfbridge", "doctor", cwd=folder)
            run(python, "-c", TRIAL, cwd=folder)
    print(f"{out}: {', '.join(sorted(file.name for file in out.iterdir()))}, both installed and tried")


if __name__ == "__main__":
    main()
