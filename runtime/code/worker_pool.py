"""Compile jobs in processes of their own: they run in parallel, and a crash of LLVM there costs one job.

A worker starts when a job finds no idle one (about 0.3 s) and stays for the next. One that has not answered in time is
killed; the next job starts another. Workers import what their jobs name, and no TensorFlow. They look for modules where
this process has its own, in no current folder, and heed none of Python's environment variables.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..errors import CompileCrash, add_note
from ..threads import forking
from ..threads.processors import usable_cpus
from .worker import BYTES, VALUE, read_message, write_message

_Job = tuple[str, str, tuple[object, ...]]

# Starts a worker: the package from its folder, whatever that is called, and the folders of other packages last.
_START = """
import importlib.util, sys
name, folder, *folders = sys.argv[1:]
sys.path += folders
spec = importlib.util.spec_from_file_location(name, folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules[name] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
importlib.import_module(name + ".runtime.code.worker").main()
"""
MAX_SECONDS = 3600.0  # of a job that is given no time of its own
_PACKAGES = ("llvmlite", "numpy", "ml_dtypes")  # that compilation needs


_all: weakref.WeakSet[CompileWorkers] = weakref.WeakSet()


class CompileWorkers:
    """At most `limit` worker processes, started when they are wanted."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._jobs: queue.SimpleQueue[tuple[_Job, float | None, Future[Any]]] = queue.SimpleQueue()
        self._lock = forking.lock()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._threads = 0
        self._unfinished = 0
        self._closed = False
        _all.add(self)  # last: the interpreter's end closes what is there, in another thread

    def submit(self, module: str, function: str, *args: object, seconds: float | None = None) -> Future[Any]:
        """Runs `function(*args)` of `module` in a worker; the value is bytes, or what JSON has.

        Raises (from the future): what the function raised, a RuntimeError where this process does not have its class;
        CompileCrash  the worker died, cannot be started, or was ended because it had not answered `seconds` from now,
        or, without that, MAX_SECONDS after it was given the job.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise CompileCrash("the compile workers are closed")
            self._unfinished += 1
            if self._unfinished > self._threads and self._threads < self.limit:
                self._threads += 1
                threading.Thread(
                    target=self._serve,
                    args=(self._threads,),
                    daemon=True,
                    name=f"tfbridge-compile-{self._threads}",
                ).start()
        self._jobs.put(((module, function, args), deadline, future))
        return future

    @property
    def is_closed(self) -> bool:
        """Whether there are no workers any more."""
        return self._closed

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
                *_, future = self._jobs.get_nowait()
                if future.set_running_or_notify_cancel():
                    future.set_exception(CompileCrash("the compile workers were closed"))

    def close_pipes(self) -> None:
        """Closes this process's ends of the workers' pipes."""
        for process in self._processes.values():
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _serve(self, slot: int) -> None:
        while True:
            job, deadline, future = self._jobs.get()
            if future.set_running_or_notify_cancel():
                try:
                    succeeded, value = self._exchange(slot, job, deadline)
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

    def _exchange(self, slot: int, job: _Job, deadline: float | None) -> tuple[bool, Any]:
        end = time.monotonic() + MAX_SECONDS if deadline is None else deadline
        if time.monotonic() > end:
            raise CompileCrash(f"no time was left for {job[0]}.{job[1]} in a compile worker")
        process = self._worker(slot)
        assert process.stdin is not None and process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                write_message(
                    process.stdin.fileno(), pickle.dumps(job, protocol=pickle.HIGHEST_PROTOCOL), end
                )
            return _parse(read_message(process.stdout.fileno(), end))
        except (EOFError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                process.kill()
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
                try:
                    # Pipes without Python's buffers: their locks, held by this thread, could stop the
                    # interpreter's end.
                    process = subprocess.Popen(
                        _command(),
                        bufsize=0,
                        cwd=os.path.abspath(os.sep),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                    )
                except OSError as error:
                    raise CompileCrash(f"a compile worker cannot be started: {error}") from error
                assert process.stdin is not None
                os.set_blocking(process.stdin.fileno(), False)  # a worker that hangs does not read
                self._processes[slot] = process
            return process


def _command() -> list[str]:
    """Python without its environment variables, the current folder, the user's folder and what `site` runs."""
    top = (__package__ or "").partition(".")[0]
    folder = os.path.abspath(__file__).rsplit(os.sep, 3)[0]
    files = [sys.modules[name].__file__ for name in _PACKAGES if name in sys.modules]
    folders = dict.fromkeys(os.path.dirname(os.path.dirname(os.path.abspath(file))) for file in files if file)
    return [sys.executable, "-I", "-S", "-c", _START, top, folder, *folders]


def _parse(answer: bytes) -> tuple[bool, Any]:
    """(whether there is a value, the value or the error) of a worker's answer.

    Raises: EOFError  the answer is none.
    """
    kind, body = answer[:1], answer[1:]
    if kind == BYTES:
        return True, body
    try:
        value = json.loads(body)
        if kind == VALUE:
            return True, value
        module, name, args, note = value
    except ValueError as error:
        raise EOFError from error
    class_: Any = getattr(sys.modules.get(module), name, None)
    is_exception = isinstance(class_, type) and issubclass(class_, Exception)
    # No code of the class runs.
    raised: Exception = class_.__new__(class_) if class_ is not None and is_exception else RuntimeError()
    raised.args = tuple(args) if is_exception else (f"{name}: {', '.join(args)}",)
    add_note(raised, note)
    return False, raised


class ProcessWorkers:
    """The workers of this process for some kind of job, started at the first use."""

    def __init__(self, start: Callable[[], CompileWorkers]) -> None:
        self._start, self._lock = start, forking.lock()
        self._workers: CompileWorkers | None = None
        forking.in_child(self._forget)

    def get(self) -> CompileWorkers:
        """The workers."""
        with self._lock:
            if self._workers is None:
                self._workers = self._start()
            return self._workers

    def _forget(self) -> None:
        """In a forked child: the workers and the threads that serve them are the parent's, which alone keeps them
        alive."""
        if self._workers is not None:
            self._workers.close_pipes()
        self._workers = None


_process_workers = ProcessWorkers(lambda: CompileWorkers(usable_cpus()))


def submit(module: str, function: str, *args: object, seconds: float | None = None) -> Future[Any]:
    """Runs a job in this process's workers, at most one per processor, as `CompileWorkers.submit`."""
    return _process_workers.get().submit(module, function, *args, seconds=seconds)


def _end() -> None:
    for workers in tuple(_all):
        workers.close()


atexit.register(_end)
