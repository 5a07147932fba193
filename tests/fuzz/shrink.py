"""The shrinker: pieces of a text are left out as long as the rest still shows what it showed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence


def shrunk(text: str, holds: Callable[[str], bool], units: Sequence[str], seconds: float) -> str:
    """The smallest text found for which `holds`: with each expression of `units` in turn the text is cut in pieces,
    and halves, quarters, ... of them are left out."""
    end = time.monotonic() + seconds
    for expression in units:
        pieces = [p for p in re.findall(expression, text) if p]
        if "".join(pieces) != text:
            pieces.append(text[len("".join(pieces)) :])
        text = "".join(_fewest(pieces, holds, end))
    return text


def _fewest(pieces: list[str], holds: Callable[[str], bool], end: float) -> list[str]:
    size = max(len(pieces) // 2, 1)
    while pieces:
        at, changed = 0, False
        while at < len(pieces):
            if time.monotonic() > end:
                return pieces
            fewer = pieces[:at] + pieces[at + size :]
            if holds("".join(fewer)):
                pieces, changed = fewer, True
            else:
                at += size
        if size == 1 and not changed:
            break
        size = max(size // 2, 1)
    return pieces
