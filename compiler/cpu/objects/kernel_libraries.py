"""Library functions for this machine: compiled when code first calls them, and stored in the disk cache."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from functools import partial

from ....runtime.code import disk_cache, linker
from ....runtime.code.artifact import Artifact
from ....runtime.llvm.target import Target, host
from ....runtime.threads import compile_threads, forking, processors
from ... import budget
from .library_functions import common_functions, emit_function, library_of
from .object_emitter import emit_object
from .source_fingerprint import code_fingerprint

_jobs: dict[str, compile_threads.Job[Artifact]] = {}
_lock = forking.lock()


def prefetch(functions: Iterable[str]) -> None:
    """Starts to compile library functions in the background, those that are not compiled yet."""
    compile_threads.start(*filter(None, map(_new_job, functions)))


def prepare() -> None:
    """Starts to compile, in one background thread, what most programs call and the disk cache does not have."""
    if processors.usable_cpus() > 1 and disk_cache.default().enabled:
        names = (
            name for name in common_functions(host()) if not disk_cache.default().has(_fingerprint(name))
        )
        compile_threads.start_in_sequence(filter(None, map(_new_job, names)))


def jobs() -> list[compile_threads.Job[Artifact]]:
    """The jobs of all library functions that were requested so far."""
    return list(_jobs.values())


def library_object(function: str) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """(object that has a library function, symbols to look up in it, library functions that it calls); it is linked by
    name, and no symbols are looked up.

    Raises: KeyError  no such function.
    """
    _new_job(function)
    library = _jobs[function].result()
    return library.object, (), library.libraries


def _new_job(function: str) -> compile_threads.Job[Artifact] | None:
    """The job that compiles a library function; None if there was one, and it did not fail."""
    library_of(function)
    with _lock:
        job = _jobs.get(function)
        if job is not None and not (job.done() and job.exception() is not None):
            return None
        job = _jobs[function] = compile_threads.Job(partial(_object, function))
        return job


def _target() -> Target:
    return dataclasses.replace(host(), threads=1)  # libraries do not depend on the number of threads


def _fingerprint(function: str) -> str:
    parts = ("library", function, repr(_target()), code_fingerprint())
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()


def _object(function: str) -> Artifact:
    with budget.within(None):  # other compilations use it too
        return _load_or_compile(function)


def _load_or_compile(function: str) -> Artifact:
    target, fingerprint = _target(), _fingerprint(function)
    cache = disk_cache.default()
    library = cache.load(fingerprint)
    if library is None:
        text, called = emit_function(target, function)
        prefetch(called)
        library = Artifact(emit_object(text, target), "", (), (), libraries=called, fingerprint=fingerprint)
        cache.store(library)
    return library


forking.in_child(_jobs.clear)  # what the parent's threads compile does not arrive here
linker.provide_libraries(library_object)
