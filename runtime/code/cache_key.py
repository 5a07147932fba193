"""The user's secret key. The disk cache marks artifacts with it, and loads none without the mark."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from . import private_files
from .private_folder import PrivateFolder, UntrustedError

NAME = "cache.key"
_BYTES = 32
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def key_of(folder: PrivateFolder) -> bytes:
    """The key that is kept in a folder. It is created where there is none, and replaced where other users could read or
    write it.

    Raises: OSError  it cannot be created.
    """
    with folder.opened() as opened:
        publish: private_files.Publish = _publish_first
        try:
            return _read(opened)
        except UntrustedError:
            publish = private_files.replace
        except FileNotFoundError:
            pass
        private_files.write_file(opened, NAME, [secrets.token_bytes(_BYTES)], publish=publish)
        return _read(opened)  # when several processes create a key, the first one is used


def _read(folder: int) -> bytes:
    key = private_files.read_file(folder, NAME, _BYTES, _OTHERS)
    if len(key) != _BYTES:
        raise UntrustedError(f"{NAME} has {len(key)} bytes, wanted {_BYTES}")
    return key


def _publish_first(folder: private_files.Folder, temporary: str, name: str) -> None:
    """Gives a complete file its name, unless a file of that name exists."""
    try:
        with contextlib.suppress(FileExistsError):
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        private_files.remove(folder, temporary)
    except OSError:  # a file system without links
        private_files.replace(folder, temporary, name)
