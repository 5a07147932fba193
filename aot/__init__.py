"""`tfbridge.aot`: ahead-of-time compilation. What it does is written in `bridge.aot`; this is its public place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bridge import aot as _aot

if TYPE_CHECKING:
    from ..bridge.aot import Compiled, compile

__all__ = ["Compiled", "compile"]


def __getattr__(name: str) -> Any:
    return getattr(_aot, name)
