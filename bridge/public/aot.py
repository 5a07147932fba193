"""`tfbridge.aot`: ahead-of-time compilation, and `python -m tfbridge.aot`, the command `tfbridge-aot`.

What it does is written in `bridge.aot`; this is its public place.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tfbridge.bridge import aot as _aot

if TYPE_CHECKING:
    from tfbridge.bridge.aot import Compiled, compile, quantize

__all__ = ["Compiled", "compile", "quantize"]


def __getattr__(name: str) -> Any:
    return getattr(_aot, name)


if __name__ == "__main__":
    from tfbridge.bridge.aot.__main__ import main

    sys.exit(main())
