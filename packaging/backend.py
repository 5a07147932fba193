"""The build backend: setuptools, and a start-up file that lies beside the package in the wheel.

Python runs the lines of `*.pth` files at start; that is how TFBRIDGE_AUTO_JIT=1 reaches a program that does not import
tfbridge. setuptools can put no file there, neither in a wheel nor in an editable one, so both get it here.
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

START_UP = Path(__file__).parent / "tfbridge_auto_jit.pth"


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
    """Adds the start-up file to a wheel, and a line about it to the wheel's record."""
    path, data = Path(directory, name), START_UP.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    changed = path.with_suffix(".new")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            content = old.read(item)
            if item.filename.endswith(".dist-info/RECORD"):
                content += f"{START_UP.name},sha256={digest},{len(data)}\n".encode()
            new.writestr(item, content)
        new.writestr(START_UP.name, data)
    os.replace(changed, path)
    return name
