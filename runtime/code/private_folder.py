"""A folder of the user that nobody else can write to.

Native code is loaded from there: whoever can write to it, or put another folder in its place, runs code as this user.
So every folder on the way is opened by its name in the one above, and owner and mode are those of what is open. No
folder is made more private than it was: one that others can write to keeps its mode, and is not used.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Iterator

_FOLDER = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)
_PASS = _FOLDER | getattr(os, "O_PATH", 0)  # a folder above need not be readable
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAX_LINKS = 40


class UntrustedError(OSError):
    """A folder or a file that another user may have written, or that is no plain file. The message is a sentence."""


class PrivateFolder:
    """A folder in use: `path` is it, or one of our own in it where it belongs to others or is open to them.

    It is made, with mode 0700, where there is none.
    Raises: UntrustedError  others can write to it or to a folder above; OSError  it cannot be made or opened.
    """

    def __init__(self, path: str) -> None:
        if not hasattr(os, "geteuid") or os.open not in os.supports_dir_fd:
            raise OSError(errno.ENOSYS, "this system does not tell owners of files", path)
        self.path = os.path.abspath(path)
        folder = _walk(self.path)
        try:
            if not _is_private(os.fstat(folder)):
                _check_above(folder, self.path)
                name = f"tfbridge-{os.geteuid()}"
                self.path = os.path.join(self.path, name)
                folder = _replaced(folder, _enter(folder, name))
            info = os.fstat(folder)
            if not _is_private(info):
                raise UntrustedError(_sentence(self.path, info))
            self._identity = info.st_dev, info.st_ino
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Its descriptor. None is kept open: a program may close all descriptors that it does not know.

        Raises: UntrustedError  it is open to others now; FileNotFoundError  it is gone, or another one is there.
        """
        folder = os.open(self.path, _FOLDER)
        try:
            info = os.fstat(folder)
            if (info.st_dev, info.st_ino) != self._identity:
                raise FileNotFoundError(errno.ENOENT, "another folder is there now", self.path)
            if not _is_private(info):
                raise UntrustedError(_sentence(self.path, info))
            yield folder
        finally:
            os.close(folder)


def _walk(path: str) -> int:
    """Opens a folder by its path, one name at a time. No folder on the way may let others change what is in it, so
    links there are followed when this user or root made them; a link in place of the folder itself is not.
    """
    names = path.split(os.sep)[::-1]
    folder, at, links = os.open(os.sep, _PASS), os.sep, 0
    try:
        while names:
            name = names.pop()
            if not name:
                continue
            _check_above(folder, at)
            try:
                folder = _replaced(folder, _enter(folder, name, _PASS if names else _FOLDER))
                at = os.path.join(at, name)
            except NotADirectoryError as error:
                target = _link(folder, name) if names else ""
                links += 1
                if not target or links > _MAX_LINKS:
                    raise NotADirectoryError(
                        error.errno, "not a folder, or a link", os.path.join(at, name)
                    ) from None
                names += target.split(os.sep)[::-1]
                if os.path.isabs(target):
                    folder, at = _replaced(folder, os.open(os.sep, _PASS)), os.sep
    except BaseException:
        os.close(folder)
        raise
    return folder


def _replaced(folder: int, other: int) -> int:
    os.close(folder)
    return other


def _enter(folder: int, name: str, flags: int = _FOLDER) -> int:
    """Opens a folder in a folder; makes it when there is none."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        return os.open(name, flags, dir_fd=folder)


def _link(folder: int, name: str) -> str:
    """Where a link points to that this user or root made; empty if there is none."""
    with contextlib.suppress(OSError):
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid in _trusted_owners():
            return os.readlink(name, dir_fd=folder)
    return ""


# -- who can write


def _is_private(info: os.stat_result) -> bool:
    return info.st_uid == os.geteuid() and not info.st_mode & _OTHERS_WRITE


def _check_above(folder: int, path: str) -> None:
    """Checks that nobody else can replace our files in a folder: only root and this user write to it, or it is sticky.

    Raises: UntrustedError  others can.
    """
    info = os.fstat(folder)
    writers = info.st_mode & _OTHERS_WRITE
    is_closed = (
        not writers
        or bool(info.st_mode & stat.S_ISVTX)
        or (writers == stat.S_IWGRP and _is_own_group(info.st_gid))
    )
    if info.st_uid not in _trusted_owners() or not is_closed:
        raise UntrustedError(_sentence(path, info))


def _sentence(path: str, info: os.stat_result) -> str:
    if info.st_mode & _OTHERS_WRITE:
        return f"{path} has mode {stat.S_IMODE(info.st_mode):04o}, so that other users can write to it"
    return f"{path} belongs to user {info.st_uid}, this process to user {os.geteuid()}"


def _trusted_owners() -> tuple[int, ...]:
    return (0, os.geteuid(), *_unknown_root())


@functools.cache
def _unknown_root() -> tuple[int, ...]:
    """The user id that root's files have in a container without a mapping for root; empty elsewhere."""
    try:
        with open("/proc/self/uid_map") as file:
            outside = [int(line.split()[1]) for line in file]
        if outside and 0 not in outside:
            with open("/proc/sys/kernel/overflowuid") as file:
                return (int(file.read()),)
    except (OSError, ValueError, IndexError):
        pass
    return ()


def _is_own_group(group: int) -> bool:
    """Whether this user is the only member of a group, as on systems where each user has a group."""
    import grp
    import pwd

    try:
        user, members = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except (KeyError, OSError):
        return False
    return user.pw_gid == group and user.pw_name == members.gr_name and set(members.gr_mem) <= {user.pw_name}
