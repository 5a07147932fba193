"""Compile jobs in processes of their own: they run in parallel, and a crash of LLVM there costs one job.

A worker starts when a job finds no idle one (about 0.3 s) and stays for the next. Workers import what their
jobs name, and no TensorFlow.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import Any

from .compile_worker import read_message, write_message
from .errors import CompileCrash

_Job = tuple[str, str, tuple[Any, ...]]


class CompileWorkers:
    """At most `limit` worker processes, started when they are wanted."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._jobs: queue.SimpleQueue[tuple[_Job, Future[Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._threads = 0
        self._unfinished = 0
        self._closed = False

    def submit(self, module: str, function: str, *args: Any) -> Future[Any]:
        """Runs `function(*args)` of `module` in a worker; arguments and value are pickled.

        Raises (from the future): what the function raised; CompileCrash  the worker died or cannot be
        started.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise CompileCrash("the compile workers are closed")
            self._unfinished += 1
            if self._unfinished > self._threads and self._threads < self.limit:
                self._threads += 1
                threading.Thread(target=self._serve, args=(self._threads,), daemon=True,
                                 name=f"tfbridge-compile-{self._threads}").start()
        self._jobs.put(((module, function, args), future))
        return future

    def close(self) -> None:
        """Ends the workers; jobs under way fail with CompileCrash."""
        with self._lock:
            self._closed = True
            processes = list(self._processes.values())
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        with contextlib.suppress(queue.Empty):
            while True:
                _, future = self._jobs.get_nowait()
                if future.set_running_or_notify_cancel():
                    future.set_exception(CompileCrash("the compile workers were closed"))

    def _serve(self, slot: int) -> None:
        while True:
            job, future = self._jobs.get()
            if future.set_running_or_notify_cancel():
                try:
                    succeeded, value = self._exchange(slot, job)
                except BaseException as error:
                    succeeded, value = False, error
                with self._lock:
                    self._unfinished -= 1
                if succeeded:
                    future.set_result(value)
                else:
                    future.set_exception(value)
            else:
                with self._lock:
                    self._unfinished -= 1

    def _exchange(self, slot: int, job: _Job) -> tuple[bool, Any]:
        process = self._worker(slot)
        assert process.stdin is not None and process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                write_message(process.stdin.fileno(), job)
            return read_message(process.stdout.fileno())
        except EOFError:
            process.stdin.close()
            process.stdout.close()
            code = process.wait()
            raise CompileCrash(f"a compile worker ended with status {code} in {job[0]}.{job[1]}") from None

    def _worker(self, slot: int) -> subprocess.Popen[bytes]:
        """The process of this slot; a new one if there is none or it died."""
        with self._lock:
            process = self._processes.get(slot)
            if process is None or process.poll() is not None:
                if self._closed:
                    raise CompileCrash("the compile workers are closed")
                # Scripts are compiled without a change to them by a hook that this variable turns on: not
                # here.
                environment = {**os.environ, "TFBRIDGE_AUTO_JIT": "0",
                               "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
                try:
                    # Pipes without Python's buffers: their locks, held by this thread, could stop the
                    # interpreter's end.
                    process = subprocess.Popen(
                        [sys.executable, "-m", f"{__package__}.compile_worker"], bufsize=0, env=environment,
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                except OSError as error:
                    raise CompileCrash(f"a compile worker cannot be started: {error}") from error
                self._processes[slot] = process
            return process


_workers: CompileWorkers | None = None
_workers_lock = threading.Lock()


def submit(module: str, function: str, *args: Any) -> Future[Any]:
    """Runs a job in this process's workers, at most one per processor."""
    global _workers
    with _workers_lock:
        if _workers is None:
            _workers = CompileWorkers(os.cpu_count() or 1)
    return _workers.submit(module, function, *args)


def _end() -> None:
    if _workers is not None:
        _workers.close()


def _forget() -> None:
    """In a forked child: the workers and the threads that serve them are the parent's."""
    global _workers, _workers_lock
    _workers, _workers_lock = None, threading.Lock()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
