"""Kernel libraries for this machine: compiled when an artifact first names them, kept in the disk cache."""

from __future__ import annotations

import dataclasses

from ...runtime import disk_cache
from ...runtime.artifact import Artifact
from .code_version import code_version
from .emit_object import emit_object
from .gemm_library import LIBRARIES, emit_library
from .target import host


def library_object(name: str) -> tuple[bytes, tuple[str, ...]]:
    """The object of a kernel library and the symbols to look up in it (none: it is linked by name).

    Raises: KeyError  no such library.
    """
    if name not in LIBRARIES:
        raise KeyError(name)
    target = dataclasses.replace(host(), threads=1)  # libraries do not depend on the number of threads
    fingerprint = f"library {name} {target} {code_version()}"
    cache = disk_cache.default()
    library = cache.load(fingerprint)
    if library is None:
        text = emit_library(target, name).text()
        library = Artifact(emit_object(text, target), "", (), (), fingerprint=fingerprint)
        cache.store(library)
    return library.object, ()
