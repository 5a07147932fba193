"""tfbridge compiles TensorFlow graphs to native CPU code.

`jit` compiles a function, `enable_auto_clustering` every graph of the process, `jit_scope` what is created inside it,
`aot.compile` writes an object file and a header. `stats` and `explain` say what was compiled and what was not,
`options` sets how for a block. `python -m tfbridge.flags` prints the environment variables.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# `tfbridge.aot` and `tfbridge.flags`, modules and commands, lie in bridge/public.
__path__.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "bridge", "public"))

if any(name.startswith("TFBRIDGE_") for name in os.environ):
    from .bridge.options.flags import apply as _apply_flags

    _apply_flags()

_WHERE = {
    "jit": ("bridge.api.jit", "jit"),
    "enable_auto_clustering": ("bridge.api.auto_clustering", "enable_auto_clustering"),
    "disable_auto_clustering": ("bridge.api.auto_clustering", "disable_auto_clustering"),
    "jit_scope": ("bridge.api.marking", "jit_scope"),
    "options": ("bridge.options.jit_options", "options"),
    "explain": ("bridge.api.explain", "explain"),
    "stats": ("runtime.statistics", "stats"),
    "wait_for_compilation": ("runtime.threads.background", "wait_for_compilation"),
    "reset_stats": ("runtime.statistics", "reset_stats"),
    "aot": ("aot", None),
    "compiler": ("compiler", None),
}

if TYPE_CHECKING:
    from . import compiler
    from .bridge.api.auto_clustering import disable_auto_clustering, enable_auto_clustering
    from .bridge.api.explain import explain
    from .bridge.api.jit import jit
    from .bridge.api.marking import jit_scope
    from .bridge.options.jit_options import options
    from .bridge.public import aot
    from .runtime.statistics import reset_stats, stats
    from .runtime.threads.background import wait_for_compilation

__all__ = [
    "aot",
    "compiler",
    "disable_auto_clustering",
    "enable_auto_clustering",
    "explain",
    "jit",
    "jit_scope",
    "options",
    "reset_stats",
    "stats",
    "wait_for_compilation",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'tfbridge' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    loaded = importlib.import_module(f"tfbridge.{module}")
    value = loaded if attribute is None else getattr(loaded, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
