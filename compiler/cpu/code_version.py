"""A name for the code that compiles: part of every fingerprint, so that no old artifact is used."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import llvmlite

_COMPILER = Path(__file__).resolve().parent.parent


@functools.cache
def code_version(folder: Path = _COMPILER) -> str:
    """A digest of llvmlite's version and of the source files in a folder (sizes and times of change)."""
    digest = hashlib.sha256(llvmlite.__version__.encode())
    for path in sorted(folder.rglob("*.py")):
        info = path.stat()
        digest.update(f"{path.relative_to(folder)} {info.st_size} {info.st_mtime_ns}\n".encode())
    return digest.hexdigest()
