"""Whether an earlier process met a function under the flag: then the disk cache is likely to have its code.

To know it for sure takes the function's clusters, and longer than TensorFlow's first call.
"""

from __future__ import annotations

import hashlib

from ...runtime.code import disk_cache
from ...runtime.code.artifact import Artifact
from ..options.jit_options import JitOptions
from ..tf_internals.types import ConcreteFunction


def note(concrete: ConcreteFunction, options: JitOptions) -> bool:
    """Whether a concrete function with the same ops and types was noted in the disk cache; from now on it is."""
    cache = disk_cache.at(options.cache_dir, options.max_cache_bytes)
    name = f"function {_digest(concrete)}"
    if cache.has(name):
        return True
    cache.store(Artifact(b"", "", (), (), fingerprint=name))
    return False


def _digest(concrete: ConcreteFunction) -> str:
    """A digest of what is quickly read of a function: the types of its nodes, and its arguments."""
    types = [op.type for op in concrete.graph.get_operations()]
    arguments = [(tensor.dtype.name, str(tensor.shape)) for tensor in concrete.inputs]
    return hashlib.sha256(repr((types, arguments)).encode()).hexdigest()
