"""Library functions for this machine: compiled when code first calls them, kept in the disk cache."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
from collections.abc import Iterable
from concurrent.futures import Future

from ...runtime import background, disk_cache, loader
from ...runtime.artifact import Artifact
from .code_version import code_version
from .emit_object import emit_object
from .gemm_library import emit_function, library_of
from .target import host

_jobs: dict[str, Future[Artifact]] = {}
_lock = threading.Lock()


def prefetch(functions: Iterable[str]) -> None:
    """Starts to compile library functions in the background, those that are not compiled yet."""
    for name in functions:
        _job(name)


def library_object(function: str) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """(object that has a library function, symbols to look up in it, library functions that it calls); it is linked by
    name, and no symbols are looked up.

    Raises: KeyError  no such function.
    """
    library = _job(function).result()
    return library.object, (), library.libraries


def _job(function: str) -> Future[Artifact]:
    library_of(function)
    with _lock:
        job = _jobs.get(function)
        if job is None or (job.done() and job.exception() is not None):
            job = _jobs[function] = background.submit(_object, function)
        return job


def _object(function: str) -> Artifact:
    target = dataclasses.replace(host(), threads=1)  # libraries do not depend on the number of threads
    parts = ("library", function, repr(target), code_version())
    fingerprint = hashlib.blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()
    cache = disk_cache.default()
    library = cache.load(fingerprint)
    if library is None:
        text, called = emit_function(target, function)
        library = Artifact(emit_object(text, target), "", (), (), libraries=called, fingerprint=fingerprint)
        cache.store(library)
    return library


def _forget() -> None:
    """In a forked child: what the parent's threads compile does not arrive here."""
    global _jobs, _lock
    _jobs, _lock = {}, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
loader.provide_libraries(library_object)
