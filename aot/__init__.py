"""`tfbridge.aot`: ahead-of-time compilation. What it does is written in `bridge.aot`; this is its public place."""

from __future__ import annotations

from ..bridge.aot import Compiled, compile

__all__ = ["Compiled", "compile"]
