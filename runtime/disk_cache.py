"""Artifacts on disk by fingerprint: private to the user, written atomically, verified on load, bounded.

Any number of processes may share the directory. A file is complete or absent (written aside, then renamed);
readers touch it, so the oldest time of change names the file that was not used for the longest time.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from . import defaults
from .artifact import Artifact
from .errors import ArtifactError

DEFAULT_LIMIT_BYTES = 1 << 30
_SUFFIX = ".artifact"
_ABANDONED_SECONDS = 3600.0


def default_directory() -> Path:
    """`tfbridge` in the user's cache directory (XDG_CACHE_HOME, else ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "tfbridge"


def configure(directory: str | os.PathLike[str] | None = None, limit_bytes: int = DEFAULT_LIMIT_BYTES,
              enabled: bool = True) -> DiskCache:
    """Replaces the cache that this process uses."""
    global _process
    _process = DiskCache(directory, limit_bytes, enabled)
    return _process


def default() -> DiskCache:
    """The cache that this process uses: as configured, else as the process's defaults say."""
    global _process
    if _process is None:
        chosen = defaults.process
        _process = DiskCache(chosen.cache_dir or None, chosen.max_cache_bytes, chosen.disk_cache)
    return _process


def at(directory: str = "", limit_bytes: int = 0) -> DiskCache:
    """The cache in a directory, with a limit; empty and 0 stand for those of the process's cache."""
    cache = default()
    if not directory and not limit_bytes:
        return cache
    return _other(directory or str(cache.directory), limit_bytes or cache.limit_bytes)


@functools.cache
def _other(directory: str, limit_bytes: int) -> DiskCache:
    return DiskCache(directory, limit_bytes)


class DiskCache:
    """Artifacts by fingerprint in a directory. A cache that cannot be used is empty and keeps nothing.

    Units: limit_bytes is the size of all files that the cache stays below.
    `directory` None means the default one; `enabled` False switches it off.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None,
                 limit_bytes: int = DEFAULT_LIMIT_BYTES, enabled: bool = True) -> None:
        self.limit_bytes = limit_bytes
        self.enabled = enabled
        self._directory = None if directory is None else Path(directory)
        self._checked = False
        self._written = 0

    @property
    def directory(self) -> Path:
        """Where the files lie."""
        return default_directory() if self._directory is None else self._directory

    def path(self, fingerprint: str) -> Path:
        """The file of a fingerprint; the name is a digest, so any text will do."""
        return self.directory / (hashlib.sha256(fingerprint.encode()).hexdigest() + _SUFFIX)

    def has(self, fingerprint: str) -> bool:
        """Whether there is a file for a fingerprint; it may be damaged."""
        return self._usable() and self.path(fingerprint).exists()

    def load(self, fingerprint: str) -> Artifact | None:
        """The artifact, or None. A damaged file, or one of another version, is removed: it is absent."""
        if not self._usable():
            return None
        path = self.path(fingerprint)
        try:
            artifact = Artifact.from_bytes(path.read_bytes())
            if artifact.fingerprint != fingerprint:
                raise ArtifactError(f"artifact: fingerprint {artifact.fingerprint!r}, wanted {fingerprint!r}")
        except OSError:
            return None
        except ArtifactError:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return artifact

    def store(self, artifact: Artifact) -> bool:
        """Keeps an artifact under its fingerprint; False if it cannot (disk full, no permission)."""
        data = artifact.to_bytes()
        if len(data) > self.limit_bytes or not self._usable():
            return False
        name = ""
        try:
            handle, name = tempfile.mkstemp(dir=self.directory, suffix=".new")
            with open(handle, "wb") as file:
                file.write(data)
            os.replace(name, self.path(artifact.fingerprint))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)
            return False
        # Listing the directory costs more than a store: do it at first and then when the total may have grown
        # by a lot.
        if self._written == 0 or self._written > self.limit_bytes // 16:
            self._written = 0
            self.evict()
        self._written += len(data)
        return True

    def evict(self) -> int:
        """Above the limit, removes what was not used for the longest time until a quarter is free.

        Returns how many files were removed.
        """
        files = []
        removed = 0
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            newest = 0.0
            for entry in entries:
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    newest = max(newest, info.st_mtime)
                    if entry.name.endswith((_SUFFIX, ".new")):
                        files.append((info.st_mtime, info.st_size, entry.path))
            total = sum(size for _, size, path in files)
            goal = self.limit_bytes if total <= self.limit_bytes else self.limit_bytes * 3 // 4
            for changed, size, path in sorted(files):
                abandoned = path.endswith(".new") and changed < newest - _ABANDONED_SECONDS
                if abandoned or (total > goal and not path.endswith(".new")):
                    with contextlib.suppress(OSError):
                        os.unlink(path)
                        total -= size
                        removed += 1
        return removed

    def clear(self) -> None:
        """Removes all artifacts."""
        for path in self.directory.glob("*" + _SUFFIX) if self.directory.is_dir() else ():
            with contextlib.suppress(OSError):
                path.unlink()

    def _usable(self) -> bool:
        """Whether the directory exists, is ours and is closed to others; makes it at first.

        Native code is loaded from here: a directory that others may write to would let them run code as this
        user.
        """
        if not self.enabled or self._checked:
            return self.enabled
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = os.lstat(self.directory)
            if hasattr(os, "getuid"):
                self.enabled = stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()
                if self.enabled and stat.S_IMODE(info.st_mode) & 0o077:
                    os.chmod(self.directory, 0o700)
        except OSError:
            self.enabled = False
        self._checked = True
        return self.enabled


_process: DiskCache | None = None
