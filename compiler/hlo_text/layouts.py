"""Layouts in HLO text, with all that XLA prints of them: `{1,0:T(8,128)(2,1)S(1)}`.

An array has an order of its axes here. What else a layout says is about the memory of another machine: it is read, and
left out. Only a `bitcast` depends on it (bitcast.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

Tile: TypeAlias = tuple[int, ...]
COMBINED = -1
"""The size of a tile's axis that is one with the next axis."""

_PARTS = re.compile(
    r"(?:D\((?P<levels>[^()]*)\))?"
    r"(?:T(?P<tiles>(?:\([^()]*\))+))?"
    r"(?P<alignment>L\(\d+\))?"
    r"(?P<index>#\(\w+\))?"
    r"(?P<pointer>\*\(\w+\))?"
    r"(?:E\((?P<bits>\d+)\))?"
    r"(?P<space>S\(\d+\))?"
    r"(?P<splits>SC(?:\([^()]*\))+)?"
    r"(?P<physical>P\(.*\))?"
    r"(?P<metadata>M\(\d+\))?",
    re.ASCII,
)
_TILE = re.compile(r"\(([^()]*)\)")


class LayoutText(NamedTuple):
    """What a layout's text says: the order of the axes, fastest first, as text; its tiles; whether an axis is sparse;
    and whether it says more than the order and the number of bits that an element has anyway."""

    order: str
    tiles: tuple[Tile, ...]
    is_sparse: bool
    is_of_machine: bool


def parse_layout(text: str, bits: int) -> LayoutText | None:
    """The parts of `{order:...}` of an array whose elements have so many bits; None: it is malformed."""
    order, _, rest = text.strip()[1:-1].partition(":")
    match = _PARTS.fullmatch(rest.replace(" ", ""))
    if match is None:
        return None
    tiles: list[Tile] = []
    for inner in _TILE.findall(match["tiles"] or ""):
        sizes = [
            COMBINED if s == "*" else int(s) if s.isascii() and s.isdigit() else 0 for s in inner.split(",")
        ]
        if 0 in sizes or max(sizes) > 1 << 30:
            return None
        tiles.append(tuple(sizes))
    levels = (match["levels"] or "").replace(" ", "")
    has_more = any(v for k, v in match.groupdict().items() if k not in ("levels", "bits") and v != "S(0)")
    has_bits = match["bits"] not in (None, "0", str(bits))
    return LayoutText(order, tuple(tiles), levels.strip("D,") != "", has_more or has_bits)
