"""The disk cache with processes that are killed while they write, and with errors of the file system.

A case has artifacts, or modules to be compiled, that a process stores and loads in one folder; it is killed after some
time, or calls of the system fail. What is loaded is what was stored, no error comes out; and when the next process has
begun, there are only whole artifacts, not more bytes than the limit, and the cache works.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import signal
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tfbridge.compiler import LocalClient, parse_hlo
from tfbridge.compiler.cpu import compile as _loaded_once  # noqa: F401  by all processes that are forked here
from tfbridge.compiler.options import Options
from tfbridge.runtime.code import cache_key, disk_cache, private_files, private_folder
from tfbridge.runtime.code.artifact import Artifact
from tfbridge.runtime.code.disk_cache import DiskCache

from ..part import LINES, Difference, Part

_MODULES = (cache_key, disk_cache, private_files, private_folder)
_ERRORS = ("EIO", "ENOSPC", "EINTR", "EROFS", "EACCES", "ENOENT", "ESTALE", "EDQUOT", "EMFILE", "ENOTSUP")
_CALLS = (
    "open",
    "read",
    "write",
    "fstat",
    "stat",
    "listdir",
    "scandir",
    "mkdir",
    "unlink",
    "rmdir",
    "replace",
    "link",
    "utime",
    "close",
    "flock",
)
_SHORT = {"read": ("short", "empty"), "write": ("short", "short", "short")}
_X = np.arange(7, dtype=np.float32)


class Faults:
    """The system's calls, of which some fail: by name, how many come before it, and how."""

    def __init__(self, system: types.ModuleType, faults: list[tuple[str, int, str]]) -> None:
        self._system = system
        self._faults = {(call, number): kind for call, number, kind in faults}
        self._counts = dict.fromkeys(_CALLS, 0)
        self.met = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._system, name)
        if name == "supports_dir_fd":
            return {self.open}
        if name not in _CALLS:
            return call
        self.__dict__[name] = lambda *args, **kwargs: self._run(name, call, *args, **kwargs)
        return self.__dict__[name]

    def _run(self, name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        number = self._counts[name]
        self._counts[name] += 1
        kind = self._faults.get((name, number))
        self.met += kind is not None
        if kind == "short" and name == "read":
            return call(args[0], max(1, args[1] // 2))
        if kind == "short":
            return call(args[0], args[1][: max(1, len(args[1]) // 2)])
        if kind == "empty":
            return b""
        if kind is not None:
            if name == "close":
                call(*args)
            raise OSError(getattr(errno, kind), f"injected into {name}")
        return call(*args, **kwargs)


@contextlib.contextmanager
def failing(faults: list[tuple[str, int, str]]) -> Iterator[Callable[[], int]]:
    """The cache's calls fail; tells how many have."""
    system, locks = Faults(os, faults), Faults(fcntl, faults)
    names = [(module, name) for module in _MODULES for name in ("os", "fcntl") if name in vars(module)]
    try:
        for module, name in names:
            setattr(module, name, system if name == "os" else locks)
        yield lambda: system.met + locks.met
    finally:
        for module, name in names:
            setattr(module, name, os if name == "os" else fcntl)


class Program:
    """What a process does with a cache folder."""

    def __init__(self, lines: list[list[str]], folder: Path) -> None:
        self.folder = folder
        self.limit = next((int(line[1]) for line in lines if line[0] == "limit"), 1 << 20)
        self.artifacts = [
            Artifact(random.Random(line[1]).randbytes(int(line[2])), "entry", (), (), fingerprint=line[1])
            for line in lines
            if line[0] == "artifact"
        ]
        self.powers = [int(line[1]) for line in lines if line[0] == "compile"]

    def run(self) -> None:
        """Raises: Difference  something else is loaded than was stored."""
        cache = DiskCache(self.folder, self.limit)
        for artifact in self.artifacts:
            loaded = cache.load(artifact.fingerprint)
            if loaded not in (None, artifact):
                raise Difference(f"{artifact.fingerprint} is not what was stored")
            if cache.has(artifact.fingerprint) is not (loaded is not None) or not cache.store(artifact):
                cache.evict()
        for power in self.powers:
            self._compile(power)

    def _compile(self, power: int) -> None:
        text = f"HloModule m{power}\nENTRY e {{ p = f32[7] parameter(0)\n x0 = f32[7] copy(p)\n"
        for k in range(power):
            text += f" x{k + 1} = f32[7] multiply(x{k}, p)\n"
        module = parse_hlo(text + f" ROOT r = f32[7] add(x{power}, x{power}) }}")
        executable = LocalClient("cpu").compile(
            module, Options(cache_dir=str(self.folder), max_cache_bytes=self.limit)
        )
        result = executable.execute([_X])[0]
        if not np.array_equal(result, 2 * _X ** (power + 1)):
            raise Difference(f"power {power} gives {result}")

    def check(self) -> None:
        """The next process: everything is whole, and is kept again. Raises: Difference."""
        cache = DiskCache(self.folder, self.limit)
        cache.has("that the next process looks for")
        loaded = {a.fingerprint: cache.load(a.fingerprint) for a in self.artifacts}
        for artifact in self.artifacts:
            if loaded[artifact.fingerprint] not in (None, artifact):
                raise Difference(f"{artifact.fingerprint} is not what was stored")
        whole = {cache.path(name).name for name, artifact in loaded.items() if artifact is not None}
        files = {path.name: path.stat().st_size for path in self.folder.iterdir()}
        others = {name for name in files if name not in whole and name != cache_key.NAME}
        if self.powers:  # their names are those of all that they are compiled from
            others = {name for name in others if not name.endswith(".artifact")}
        home = disk_cache.default_directory()
        others |= set(os.listdir(home) if home is not None and home.exists() else ()) - {cache_key.NAME}
        if others:
            raise Difference(f"left: {sorted(others)}")
        if sum(files.values()) - files.get(cache_key.NAME, 0) > self.limit:
            raise Difference(f"{sum(files.values())} bytes, the limit is {self.limit}")
        for artifact in self.artifacts:
            if not cache.store(artifact) or cache.load(artifact.fingerprint) != artifact:
                raise Difference(f"{artifact.fingerprint} is not kept")


class CacheFaults(Part):
    units = (LINES,)
    seconds = 20.0
    quick = 30

    def make(self, seed: int) -> str:
        rng = random.Random(seed)
        lines = [f"limit {rng.choice((100_000, 400_000, 1 << 22))}"]
        if rng.random() < 0.25:
            lines += [f"compile {power}" for power in rng.sample(range(1, 6), rng.randint(1, 2))]
            longest = 0.2
        else:
            lines += [
                f"artifact {k}.{rng.randrange(100)} {int(10 ** rng.uniform(1, 4.9))}"
                for k in range(rng.randint(1, 6))
            ]
            longest = 0.02
        if rng.random() < 0.5:
            lines += [f"kill {rng.uniform(0, longest):.6f}"]
        else:
            for _ in range(rng.choice((1, 1, 2, 4))):
                call = rng.choice(_CALLS + ("open", "read", "write", "replace") * 2)
                kind = rng.choice(_ERRORS + _SHORT.get(call, ()) * 2)
                lines.append(f"fault {call} {int(rng.expovariate(0.2))} {kind}")
        return "\n".join(lines) + "\n"

    def check(self, text: str) -> str:
        lines = [line.split() for line in text.splitlines() if line]
        kill = next((float(line[1]) for line in lines if line[0] == "kill"), None)
        faults = [(line[1], int(line[2]), line[3]) for line in lines if line[0] == "fault"]
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "home")
            program = Program(lines, Path(folder, "cache"))
            os.mkdir(program.folder, 0o700)
            if kill is not None:
                word = "killed" if _in_child(lambda: _forever(program.run), kill) else "ended"
            else:
                word = (
                    "faults met" if _in_child(lambda: _with_faults(program.run, faults)) else "faults not met"
                )
            _in_child(program.check)
            _in_child(program.run)
        return word


def _forever(run: Callable[[], None]) -> None:
    while True:
        run()


def _with_faults(run: Callable[[], None], faults: list[tuple[str, int, str]]) -> bool:
    with failing(faults) as met:
        run()
        run()
        return met() > 0


def _in_child(function: Callable[[], object], kill_after: float | None = None) -> bool:
    """Runs a function in a forked process, which may be killed; whether it was, or what the function returned.

    Raises: Difference  it raised.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        report = b"exit"
        try:
            report = b"true" if function() else b"false"
        except BaseException as error:
            import traceback

            report = f"{type(error).__name__}: {error}\n{traceback.format_exc()}".encode(errors="replace")
        finally:
            os.write(writer, report[:60_000])
            os._exit(0)
    os.close(writer)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    with open(reader, "rb") as pipe:
        report = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and not (kill_after is not None and os.WTERMSIG(status) == signal.SIGKILL):
        raise Difference(f"the process died of signal {os.WTERMSIG(status)}")
    if report not in (b"true", b"false", b""):
        raise Difference(report.decode(errors="replace"))
    return report != b"false"


PART = CacheFaults()
