"""`TFBRIDGE_REPORT=folder`: the report of a run as a page and as JSON, written at its end and meanwhile.

A thread writes when clusters were compiled, and now and then while calls are counted: a process that is killed leaves
the report of its last state, which says that the run had not ended. The JSON is there before code runs that was just
compiled, should that crash. Files are replaced as a whole. Calls do nothing for it.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import platform
import re
import runpy
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from ...runtime import statistics
from ...runtime.threads import forking, python_settings
from .run_report import RunReport, run_report

_SECONDS = 30.0  # between two looks at the counters, when nothing is compiled
_MIN_SECONDS = 1.0  # between two writes
_SHARE = 0.01  # of the time, that writing may take

_MAX_ERROR = 2000  # characters
_RUNPY = {runpy.__file__, "<frozen runpy>"}

_log = logging.getLogger("tfbridge")


class ReportFiles:
    """The two files of one process, and the thread that writes them."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).absolute()  # a program may change its current folder
        self._is_told = False
        self._begin()

    def _begin(self) -> None:
        self._start, self._lock, self._wake = time.time(), forking.long_lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._written: dict[str, Any] | None = None  # the counters that both files have
        self._next_json = 0.0  # of the monotonic clock: when a compilation may wait for the JSON again
        self._has_ended = self._has_files = False
        when = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._start))
        self._stem = re.sub(r"[^\w.-]", "_", f"{_program_name()}-{platform.node()}-{os.getpid()}-{when}")

    def open(self) -> bool:
        """Writes the first report; returns whether that was possible. Where it was not, a warning says why."""
        self._write(False)
        return not self._is_told

    def restart(self) -> None:
        """In the child of a fork: it gets files of its own once its counters differ from those it began with."""
        self._begin()
        self._written = statistics.stats()

    def note_compilation(self) -> None:
        """Writes the JSON, unless that was done just before, and has the thread write the report."""
        if time.monotonic() >= self._next_json and self._lock.acquire(blocking=False):
            begin = time.monotonic()
            try:
                if not self._has_ended:
                    self._write(False, only_json=True)
            finally:
                self._lock.release()
            self._next_json = time.monotonic() + (time.monotonic() - begin) / _SHARE
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tfbridge-report", daemon=True)
            self._thread.start()
        self._wake.set()

    def end(self) -> None:
        """Writes the report of the run that has ended."""
        with self._lock:
            self._has_ended = True
            if self._has_files or self._is_changed():
                self._write(True, _last_error())

    def _run(self) -> None:
        wake = self._wake
        while True:
            wake.wait(_SECONDS)
            wake.clear()
            begin = time.perf_counter()
            with self._lock:
                if self._has_ended:
                    return
                if self._is_changed():
                    with python_settings.switching_quickly():
                        self._write(False)
            time.sleep(max(_MIN_SECONDS, (time.perf_counter() - begin) / _SHARE))

    def _is_changed(self) -> bool:
        return statistics.stats() != self._written

    def _path(self, suffix: str) -> Path:
        return self._folder / f"{self._stem}{suffix}"

    def _write(self, has_ended: bool, error: str = "", only_json: bool = False) -> None:
        """Writes both files, or one. What is wrong with that is told once and stops nothing."""
        try:
            report = run_report(self._start, has_ended, error)
            if not only_json:
                self._written = dict(report.stats)
                self._replace(self._path(".html"), _page(report))
            self._replace(self._path(".json"), json.dumps(report.as_dict(), indent=1))
            self._has_files = True
        except Exception as problem:
            if not self._is_told:
                why = str(problem) if isinstance(problem, OSError) else f"{type(problem).__name__}: {problem}"
                _log.warning("TFBRIDGE_REPORT=%s: the report is not written: %s", self._folder, why)
            self._is_told = True

    def _replace(self, path: Path, text: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_text(text, encoding="utf-8", errors="replace")
        os.replace(new, path)


def _page(report: RunReport) -> str:
    with forking.uninterrupted():  # it is made with locks of another library
        return report.html()


def _program_name() -> str:
    path = Path(sys.argv[0] if sys.argv else "")
    name = path.parent.name if path.stem == "__main__" else path.stem
    return "python" if name in ("", "-c", "-m") else name[:64]


def _last_error() -> str:
    """The exception that ended the program; empty where none did. Errors in callbacks are printed, and no end."""
    error, traceback_ = getattr(sys, "last_value", None), getattr(sys, "last_traceback", None)
    if error is None or traceback_ is None or hasattr(sys, "ps1") or sys.flags.interactive:
        return ""
    outermost = traceback_.tb_frame
    if outermost.f_globals.get("__name__") != "__main__" and outermost.f_code.co_filename not in _RUNPY:
        return ""
    return "".join(traceback.format_exception_only(error)).strip()[:_MAX_ERROR]


_files: ReportFiles | None = None


def start(folder: str) -> None:
    """Writes the reports of this process to a folder, which is made where it is missing, from now on."""
    global _files
    if _files is not None:
        return
    files = ReportFiles(folder)
    if not files.open():
        return
    _files = files
    statistics.process.on_record = files.note_compilation
    atexit.register(files.end)


@forking.in_child
def _restart() -> None:
    if _files is not None:
        _files.restart()
