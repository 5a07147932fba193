"""A name for the code that compiles: part of every fingerprint, so that no old artifact is used."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import llvmlite

_COMPILER = Path(__file__).resolve().parent.parent


def _sources(folder: str) -> Iterator[str]:
    for at, _, names in os.walk(folder):
        yield from (os.path.join(at, name) for name in names if name.endswith(".py"))


@functools.cache
def code_version(folder: Path = _COMPILER) -> str:
    """A digest of llvmlite's version and of the source files in a folder (sizes and times of change)."""
    digest = hashlib.sha256(llvmlite.__version__.encode())
    for path in sorted(_sources(str(folder))):
        info = os.stat(path)
        digest.update(f"{os.path.relpath(path, folder)} {info.st_size} {info.st_mtime_ns}\n".encode())
    return digest.hexdigest()
