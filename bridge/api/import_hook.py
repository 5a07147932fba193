"""Switches auto-clustering on when TensorFlow is imported, in a program that knows nothing of tfbridge.

The finder in packaging/tfbridge_start.py, which is installed beside the package, asks for TensorFlow's spec when a flag
is set. An error here never stops the program: it is printed, and TensorFlow runs without tfbridge.
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


def spec_of(
    name: str, path: Sequence[str] | None, target: ModuleType | None, finders: Sequence[Any]
) -> ModuleSpec | None:
    """The spec of TensorFlow by the first finder that has one, with a loader that enables auto-clustering if a flag
    asks for it. A search alone changes nothing: many libraries ask whether it is there. Raises: FlagError  as
    `flags.read`.
    """
    if not flags.values()["AUTO_JIT"] and not flags.values()["REPORT"]:
        return None
    found_by = (finder.find_spec(name, path, target) for finder in finders if hasattr(finder, "find_spec"))
    spec: ModuleSpec | None = next(filter(None, found_by), None)
    if spec is not None and spec.loader is not None:
        spec.loader = _Loader(spec.loader)
    return spec


def _enable() -> None:
    try:
        if mode := flags.values()["AUTO_JIT"]:
            from .auto_clustering import enable_auto_clustering

            enable_auto_clustering(jit_compile=mode == 2)
        if folder := flags.values()["REPORT"]:
            from .report_files import start

            start(folder)
        # What is there now, mostly TensorFlow's modules, lives on. What compiling allocates makes Python look for
        # garbage among all objects, which would hold up a call for 0.2 s.
        gc.freeze()
    except Exception as error:
        print(f"tfbridge: auto-clustering stays off: {type(error).__name__}: {error}", file=sys.stderr)
