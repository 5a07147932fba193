"""Groups of devices in HLO text: lists, ranges, and axes of a mesh.

{{0,1},{2,3}}
[2,2]<=[4], [2,2]<=[2,2]T(1,0)                 0 to 3 in two groups, as they are, and transposed
mesh['x'=2,'y'=2] {'y'}                        those along an axis of a mesh
mesh['x'=2,'y'=4], device_ids=(...) {'x','y':(1)2}    ids in another order, a part of an axis
"""

from __future__ import annotations

import math
import re
from typing import TypeAlias

import numpy as np

from .scanner import Malformed, integer

Groups: TypeAlias = tuple[tuple[int, ...], ...]

_MAX_IDS = 1 << 20
_RANGE = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", re.ASCII)
_MESH = re.compile(r"mesh\[([^\[\]]*)\](?:\s*,\s*device_ids=\((.*)\))?\s*\{([^{}]*)\}", re.ASCII | re.DOTALL)
_AXIS = re.compile(r"\s*(?:'([^']*)'|([^\s'=:,]+))\s*=\s*(\d+)\s*", re.ASCII)
_PART = re.compile(r"\s*(?:'([^']*)'|([^\s'=:,]+))\s*(?::\s*\((\d+)\)\s*(\d+))?\s*", re.ASCII)
_IDS = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", re.ASCII)


def show_groups(value: Groups) -> str:
    """Groups as lists."""
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in value) + "}"


def read_groups(text: str) -> Groups:
    """The groups that the text spells. Raises: Malformed."""
    if match := _RANGE.fullmatch(text):
        return _rows(_of_range(match, text))
    if match := _MESH.fullmatch(text):
        return _rows(_of_mesh(match, text))
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        raise Malformed(f"expected groups like {{{{0,1}},{{2,3}}}}, got {text!r:.60}")
    inner = text[1:-1].strip()
    groups = re.findall(r"\{([\d,\s]*)\}", inner)
    if re.sub(r"\{[\d,\s]*\}|[,\s]", "", inner):
        raise Malformed(f"expected groups like {{{{0,1}},{{2,3}}}}, got {text!r:.60}")
    return tuple(_numbers(group, "ids") for group in groups)


def _rows(ids: np.ndarray) -> Groups:
    return tuple(tuple(group) for group in ids.tolist())


def _numbers(text: str, what: str) -> tuple[int, ...]:
    return tuple(integer(part, what) for part in text.split(",")) if text.strip() else ()


def _count(dims: tuple[int, ...], text: str) -> int:
    count = math.prod(dims)
    if count > _MAX_IDS:
        raise Malformed(f"expected at most {_MAX_IDS} ids, got {text!r:.60}")
    return count


def _transposed_range(source: tuple[int, ...], order_text: str | None, text: str) -> np.ndarray:
    order = _numbers(order_text, "axes") if order_text else tuple(range(len(source)))
    if sorted(order) != list(range(len(source))) or len(source) > 32:
        raise Malformed(f"expected [sizes]T(axes), got {text!r:.60}")
    return np.arange(_count(source, text)).reshape(source).transpose(order)


def _of_range(match: re.Match[str], text: str) -> np.ndarray:
    dims, source = (_numbers(match[n], "sizes") for n in (1, 2))
    if len(dims) != 2 or _count(dims, text) != _count(source, text):
        raise Malformed(f"expected [groups,size]<=[sizes]T(axes), got {text!r:.60}")
    return _transposed_range(source, match[3], text).reshape(dims)


def _of_mesh(match: re.Match[str], text: str) -> np.ndarray:
    """A row for each group: the axes of the groups, or parts of them, behind the others."""
    names: dict[str, int] = {}
    for entry in match[1].split(","):
        axis = _AXIS.fullmatch(entry)
        if axis is None or (axis[1] or axis[2]) in names:
            raise Malformed(f"expected a mesh like mesh['x'=2,'y'=4], got {text!r:.60}")
        names[axis[1] or axis[2]] = integer(axis[3], "the size of an axis")
    dims = tuple(names.values())
    count = _count(dims, text)
    ids = np.arange(count) if match[2] is None else _device_ids(match[2], count, text)
    parts: dict[str, list[tuple[int, int, int]]] = {name: [] for name in names}
    for number, entry in enumerate(match[3].split(",") if match[3].strip() else ()):
        part = _PART.fullmatch(entry)
        name = part and (part[1] or part[2])
        if part is None or name not in parts:
            raise Malformed(f"expected axes of the mesh, got {entry!r:.60}")
        before, size = (integer(part[3]), integer(part[4])) if part[3] else (1, names[name])
        parts[name].append((before, size, number))
    pieces: list[int] = []
    chosen: dict[int, int] = {}  # axis of the cut mesh, by the number of the part
    for name, size in names.items():
        reached = 1
        for before, length, number in sorted(parts[name]):
            if not before or not length or before % reached or size % (before * length):
                raise Malformed(f"expected parts of the axis {name} of size {size}, got {text!r:.60}")
            if before != reached:
                pieces.append(before // reached)
            pieces.append(length)
            chosen[number] = len(pieces) - 1
            reached = before * length
        if size != reached:
            pieces.append(size // reached)
    if len(pieces) > 32:
        raise Malformed(f"expected at most 32 parts of axes, got {len(pieces)}")
    grouped = [chosen[n] for n in sorted(chosen)]
    order = [a for a in range(len(pieces)) if a not in grouped] + grouped
    return ids.reshape(pieces).transpose(order).reshape(-1, math.prod(pieces[a] for a in grouped))


def _device_ids(text: str, count: int, whole: str) -> np.ndarray:
    """The ids of a mesh's devices, a list or a range."""
    if match := _IDS.fullmatch(text.strip()):
        source = _numbers(match[1], "sizes")
        ids = _transposed_range(source, match[2], whole).ravel()
    else:
        ids = np.array(_numbers(text, "ids"), np.int64)
    if ids.size != count or sorted(ids.tolist()) != list(range(count)):
        raise Malformed(f"expected the ids 0 to {count - 1}, each once, as device_ids, got {text!r:.60}")
    return ids
