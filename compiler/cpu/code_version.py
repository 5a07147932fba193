"""A name for the code that compiles: part of every fingerprint, so that no old artifact is used."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import llvmlite

_COMPILER = Path(__file__).resolve().parent.parent


def _sources(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path, entry.stat()
            elif entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path)


@functools.cache
def code_version(folder: Path = _COMPILER) -> str:
    """A digest of llvmlite's version and of the source files in a folder (sizes and times of change)."""
    digest = hashlib.sha256(llvmlite.__version__.encode())
    root = str(folder)
    for path, info in sorted(_sources(root)):
        digest.update(f"{path[len(root):]} {info.st_size} {info.st_mtime_ns}\n".encode())
    return digest.hexdigest()
