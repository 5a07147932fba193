"""Switches auto-clustering on when TensorFlow is imported, in a program that knows nothing of tfbridge.

The file `tfbridge_auto_jit.pth`, which is installed beside the package, calls `start` at the start of Python when a
flag is set. An error here never stops the program: it is printed, and TensorFlow runs without tfbridge.
"""

from __future__ import annotations

import gc
import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ..options import flags

_MODULE = "tensorflow"


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, and switches auto-clustering on after it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's own loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module, then enables auto-clustering: before the program can trace its first function."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _enable()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow by the other finders. A search alone changes nothing: many libraries ask whether it is there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of TensorFlow with a loader that enables auto-clustering; None for every other module."""
        if name != _MODULE:
            return None
        others = [
            finder.find_spec
            for finder in sys.meta_path
            if not isinstance(finder, _Finder) and hasattr(finder, "find_spec")
        ]
        spec = next((spec for find in others if (spec := find(name, path, target)) is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def start() -> None:
    """Installs the hook if the flag AUTO_JIT is set. The start-up file calls it. Raises: FlagError  as `flags.read`."""
    if flags.values()["AUTO_JIT"]:
        install()


def install() -> None:
    """Enables auto-clustering now, or when TensorFlow is imported."""
    if _MODULE in sys.modules:
        _enable()
    else:
        sys.meta_path.insert(0, _Finder())


def _enable() -> None:
    try:
        from .auto_clustering import enable_auto_clustering

        enable_auto_clustering(jit_compile=flags.values()["AUTO_JIT"] == 2)
        # What is there now, mostly TensorFlow's modules, lives on. What compiling allocates makes Python look for
        # garbage among all objects, which would hold up a call for 0.2 s.
        gc.freeze()
    except Exception as error:
        print(f"tfbridge: auto-clustering stays off: {type(error).__name__}: {error}", file=sys.stderr)
