"""The build backend: setuptools, and two start-up files that lie beside the package in the wheel.

Python runs the lines of `*.pth` files at start; that is how TFBRIDGE_AUTO_JIT=1 reaches a program that does not import
tfbridge. setuptools can put no file there, neither in a wheel nor in an editable one, so both get them here.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any

from setuptools.build_meta import *  # noqa: F403
from setuptools.build_meta import build_editable as _build_editable
from setuptools.build_meta import build_wheel as _build_wheel

START_UP = [Path(__file__).parent / name for name in ("tfbridge_auto_jit.pth", "tfbridge_start.py")]


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Builds the wheel; returns its file name."""
    return _with_start_up(wheel_directory, _build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Builds the wheel of an editable installation; returns its file name."""
    return _with_start_up(
        wheel_directory, _build_editable(wheel_directory, config_settings, metadata_directory)
    )


def _with_start_up(directory: str, name: str) -> str:
    """Adds the start-up files to a wheel, and lines about them to the wheel's record."""
    path, files = Path(directory, name), {file.name: file.read_bytes() for file in START_UP}
    changed = path.with_suffix(".new")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            content = old.read(item)
            if item.filename.endswith(".dist-info/RECORD"):
                content += "".join(_record(file, data) for file, data in files.items()).encode()
            new.writestr(item, content)
        for file, data in files.items():
            new.writestr(file, data)
    os.replace(changed, path)
    return name


def _record(file: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{file},sha256={digest},{len(data)}\n"
