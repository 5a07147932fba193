"""Files in an opened folder: read only what this user alone can have written, written whole or not at all.

Files are opened without following links and without waiting for the other end of a pipe; owner, mode and kind are those
of what is open. A file that is written has another name until it is complete. Its writer holds a lock on it, which
the system takes from a process that dies: what is unlocked under such a name is garbage.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Sequence

from .private_folder import UntrustedError

with contextlib.suppress(ImportError):  # Windows, where no folder is private
    import fcntl

_READ = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_ABANDONED_SECONDS = 3600.0
_TEMPORARY = re.compile(r"[0-9a-f]{16}\.new|tmp[a-z0-9_]{8}\.new")

Folder = int | None  # a descriptor; None: names are paths
Publish = Callable[[Folder, str, str], None]


def read_file(folder: int, name: str, limit_bytes: int, others: int = stat.S_IWGRP | stat.S_IWOTH) -> bytes:
    """The contents of a file, which counts as used now. `others` are the permissions that nobody else may have.

    Raises: UntrustedError  no plain file, not ours, open to others, or above the limit; OSError  it cannot be read.
    """
    try:
        file = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise UntrustedError(f"{name} is no plain file") from None
        raise
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode):
            raise UntrustedError(f"{name} is no plain file")
        if info.st_uid != os.geteuid() or info.st_mode & others:
            raise UntrustedError(
                f"{name} belongs to user {info.st_uid} and has mode {stat.S_IMODE(info.st_mode):04o}"
            )
        if info.st_size > limit_bytes:
            raise UntrustedError(f"{name} has {info.st_size} bytes, at most {limit_bytes} are wanted")
        parts, missing = [], info.st_size
        while missing and (part := os.read(file, missing)):
            parts.append(part)
            missing -= len(part)
        with contextlib.suppress(OSError):
            os.utime(file)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(file)


def replace(folder: Folder, temporary: str, name: str) -> None:
    """Gives a complete file its name; one that has it goes."""
    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def write_file(
    folder: Folder, name: str, contents: Sequence[bytes], mode: int = 0o600, publish: Publish = replace
) -> None:
    """Writes a file, its contents one after the other. Whatever happens, `name` is a complete file or what it was; a
    link of that name is replaced.

    Raises: OSError  it cannot be written; nothing is left.
    """
    file, temporary = _new_file(folder, os.path.dirname(name), mode)
    try:
        for content in contents:
            rest = memoryview(content)
            while rest:
                count = os.write(file, rest)
                if not count:
                    raise OSError(errno.EIO, "nothing was written", name)
                rest = rest[count:]
        publish(folder, temporary, name)
    except BaseException:
        remove(folder, temporary)
        raise
    finally:
        os.close(file)


def _new_file(folder: Folder, path: str, mode: int) -> tuple[int, str]:
    """(descriptor, name) of an empty file that this process has locked."""
    while True:
        name = os.path.join(path, f"{secrets.token_hex(8)}.new")
        file = os.open(name, _WRITE, mode, dir_fd=folder)
        try:
            if _lock(file, unknown=True) and os.fstat(file).st_nlink:
                return file, name
        except BaseException:
            os.close(file)
            remove(folder, name)
            raise
        os.close(file)  # another process took it for garbage before it was locked


def remove(folder: Folder, name: str) -> bool:
    """Removes a file, or an empty folder in its place; False if it cannot."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError:
            return False
    return True


def collect(folder: int, names: Iterable[str]) -> None:
    """Removes those of the files that are temporary and whose writers have died."""
    for name in filter(is_temporary, names):
        with contextlib.suppress(OSError):
            file = os.open(name, _READ, dir_fd=folder)
            try:
                is_old = time.time() - os.fstat(file).st_mtime > _ABANDONED_SECONDS
                if _lock(file, unknown=is_old):
                    remove(folder, name)
            finally:
                os.close(file)


def is_temporary(name: str) -> bool:
    """Whether a file of this name is not complete yet."""
    return _TEMPORARY.fullmatch(name) is not None


def _lock(file: int, unknown: bool = False) -> bool:
    """Locks a file unless another process has; `unknown` where the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (OSError, NameError):
        return unknown
    return True
