"""A digest of the source files in a folder, by what they contain: two installations share compiled code only when they
would compile the same.
"""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
from collections.abc import Iterator

_BUFFER_BYTES = 1 << 18


def source_digest(folder: str | os.PathLike[str]) -> str:
    """SHA-256 of the names and contents of all Python files below a folder.

    Sizes and times say nothing: the files of a reproducible wheel all have one time. Sources that cannot be read (in an
    archive, or removed after they were compiled) have another digest in every process, so that nothing is shared.
    """
    root = os.fspath(folder)
    digest = hashlib.sha256()
    view = memoryview(bytearray(_BUFFER_BYTES))
    try:
        paths = sorted(_sources(root))
        for path in paths:
            size = 0
            with open(path, "rb", buffering=0) as file:
                while count := file.readinto(view):
                    digest.update(view[:count])
                    size += count
            digest.update(f"\0{path[len(root) :]}\0{size}\0".encode())
    except OSError:
        paths = []
    return digest.hexdigest() if paths else secrets.token_hex(32)


@functools.cache
def runtime_digest() -> str:
    """That of the runtime itself."""
    return source_digest(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _sources(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path
            elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path)
