"""Runs the code of pages in one process, one page after the other: `python run_pages.py REPORT PAGE...`.

Writes a line of JSON for each page to the file REPORT: its number of blocks, seconds, and the error of a block that
failed.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from blocks import Block, blocks_of

_TOOLS = {
    "python": 'exec {python} "$@"',
    "tfbridge": 'exec {python} -m tfbridge "$@"',
    "tfbridge-aot": 'exec {python} -m tfbridge.aot "$@"',
}
_SECONDS = 120
_IN_THIS_PROCESS = {
    "tfbridge-aot ": "tfbridge.bridge.aot.__main__",
    "tfbridge report ": "tfbridge.bridge.api.report",
    "tfbridge run ": "tfbridge.compiler.__main__",
}
"""Commands, by module, that run in this process, which has TensorFlow already; to import it takes seconds."""
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Failure(Exception):
    """A block does not do what its page says."""


def run_page(page: str, tools: Path) -> dict[str, Any]:
    """Runs the blocks of a page in a folder of its own, up to the first that fails."""
    before, begin, count, error = os.getcwd(), time.perf_counter(), 0, ""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        names: dict[str, Any] = {"__name__": "__main__"}
        for block in blocks_of(page):
            try:
                _run(block, names, tools)
            except BaseException as problem:  # of the page's own code, sys.exit too
                text = str(problem) if isinstance(problem, Failure) else traceback.format_exc()
                error = f"{page}:{block.line}: {text}"
                break
            count += block.can_run
        os.chdir(before)
        sys.path.remove(folder)
    _clean_up()
    return {"page": page, "blocks": count, "seconds": time.perf_counter() - begin, "error": error}


def _run(block: Block, names: dict[str, Any], tools: Path) -> None:
    if block.title:
        path = Path(block.title)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return
    if block.is_run and not block.can_run:
        return
    if block.before:
        _run_python(f"before_{block.line}.py", block.before, names)
    if not block.is_run:
        return
    if block.language == "sh":
        stdout = _run_shell(block.text, tools)
    else:
        stdout = _run_python(f"block_{block.line}.py", block.text, names)
    if block.output is not None:
        output = "\n".join(line.rstrip() for line in block.output.splitlines()) + "\n"
        if not doctest.OutputChecker().check_output(output, stdout, _FLAGS):
            raise Failure(f"the page says\n{block.output}\nit prints\n{stdout}")


def _run_python(name: str, text: str, names: dict[str, Any]) -> str:
    """Runs code, as of a file: tracing reads the source. Returns what it printed."""
    Path(name).write_text(text, encoding="utf-8")
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        exec(compile(text, str(Path(name).resolve()), "exec"), names)
    return stdout.getvalue()


def _run_shell(text: str, tools: Path) -> str:
    """Runs commands in bash, or in this process if all of them are such. Returns what they printed."""
    lines = [_without_settings(line) for line in text.replace("\\\n", " ").splitlines()]
    if all(line.startswith(tuple(_IN_THIS_PROCESS)) for line in lines):
        return "".join(map(_run_command, lines))
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
    process = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    if process.returncode:
        raise Failure(
            f"exit code {process.returncode} of\n{text}\n{process.stdout[-2000:]}\n{process.stderr[-2000:]}"
        )
    return process.stdout


def _without_settings(line: str) -> str:
    """A command without the variables in front of it that have these values here."""
    setting, _, rest = line.partition(" ")
    name, _, value = setting.partition("=")
    return _without_settings(rest) if name and os.environ.get(name) == value else line


def _run_command(line: str) -> str:
    command = next(command for command in _IN_THIS_PROCESS if line.startswith(command))
    main = importlib.import_module(_IN_THIS_PROCESS[command]).main
    stdout, path, arguments = io.StringIO(), sys.path[:], sys.argv
    try:
        with contextlib.redirect_stdout(stdout):
            code = main(shlex.split(line.removeprefix(command)))
    finally:
        sys.path[:], sys.argv = path, arguments
        importlib.import_module("tfbridge").disable_auto_clustering()
    if code:
        raise Failure(f"exit code {code} of {line}")
    return stdout.getvalue()


def _clean_up() -> None:
    """What pages change for the process is as before."""
    if "tfbridge" in sys.modules and "tensorflow" in sys.modules:
        import tensorflow as tf
        import tfbridge

        tfbridge.wait_for_compilation(60)
        tfbridge.disable_auto_clustering()
        tfbridge.reset_stats()
        tf.keras.backend.clear_session()


def main() -> None:
    report, *pages = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, open(report, "w", encoding="utf-8") as file:
        for name, command in _TOOLS.items():
            path = Path(folder, name)
            path.write_text(f"#!/bin/sh\n{command.format(python=sys.executable)}\n")
            path.chmod(0o755)
        for page in pages:
            print(json.dumps(run_page(page, Path(folder))), file=file, flush=True)


if __name__ == "__main__":
    main()
