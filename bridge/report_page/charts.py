"""The drawings of the page, as coordinates: boxes of the graph, the roofline plot, memory over the kernels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from ...runtime.code.artifact import KernelRecord, Temporary
from ...runtime.code.peak_rates import PeakRates
from .groups import OpGroup

BOX = 168, 44
_GAP = 40, 14
_COLUMNS, _ROW_GAP = 5, 22


@dataclasses.dataclass(frozen=True)
class Box:
    """A group of ops at its place."""

    group: OpGroup
    x: float
    y: float


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Boxes and the curves between them, and how large it all is."""

    boxes: tuple[Box, ...]
    curves: tuple[str, ...]
    width: float
    height: float


def draw_graph(groups: Sequence[OpGroup]) -> Drawing:
    """Each group in the column behind those that it takes results of, so many columns in a row of the page; curves are
    paths of SVG."""
    columns: list[int] = []
    for group in groups:
        columns.append(1 + max((columns[k] for k in group.inputs), default=-1))
    count = max(columns, default=0) + 1
    heights = [columns.count(k) for k in range(count)]
    tops = [0.0]
    for start in range(0, count, _COLUMNS):
        most = max(heights[start : start + _COLUMNS])
        tops.append(tops[-1] + most * (BOX[1] + _GAP[1]) + _ROW_GAP)
    filled = [0] * count
    boxes: list[Box] = []
    for group, column in zip(groups, columns):
        y = tops[column // _COLUMNS] + filled[column] * (BOX[1] + _GAP[1])
        boxes.append(Box(group, column % _COLUMNS * (BOX[0] + _GAP[0]), y))
        filled[column] += 1
    curves = [_curve(boxes[source], boxes[k]) for k, group in enumerate(groups) for source in group.inputs]
    width = min(count, _COLUMNS) * (BOX[0] + _GAP[0])
    return Drawing(tuple(boxes), tuple(curves), width, tops[-1] - _ROW_GAP)


def _curve(start: Box, end: Box) -> str:
    x1, y1, x2, y2 = start.x + BOX[0], start.y + BOX[1] / 2, end.x, end.y + BOX[1] / 2
    bend = max(_GAP[0], (x2 - x1) / 2)
    return f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"


@dataclasses.dataclass(frozen=True)
class Point:
    """A kernel in the roofline plot; `number` is its own in the schedule."""

    number: int
    x: float
    y: float
    radius: float


@dataclasses.dataclass(frozen=True)
class Tick:
    """A mark at an axis."""

    at: float
    label: str


@dataclasses.dataclass(frozen=True)
class Roofline:
    """Kernels by operations per byte (x) and operations per time (y), below what the machine allows.

    `roofs`: paths of SVG, of memory beyond the caches and within them.
    """

    points: tuple[Point, ...]
    roofs: tuple[str, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


PLOT = 640, 300


def draw_roofline(kernels: Sequence[KernelRecord], times: Sequence[float], rates: PeakRates) -> Roofline:
    """`times`: of a launch of each kernel, in the rates' unit. Kernels without operations or bytes are not shown."""
    known = [
        (k, kernel.flops / kernel.bytes, kernel.flops / time)
        for k, (kernel, time) in enumerate(zip(kernels, times))
        if kernel.flops and kernel.bytes and time > 0
    ]
    balance = rates.flops / rates.bytes
    xs = _decades([x for _, x, _ in known] + [balance / 30, balance * 10])
    ys = _decades([y for *_, y in known] + [rates.flops / 300, rates.flops])
    longest = max((times[k] for k, *_ in known), default=1.0)

    def x_of(value: float) -> float:
        return PLOT[0] * (math.log10(value) - xs[0]) / (xs[-1] - xs[0])

    def y_of(value: float) -> float:
        return PLOT[1] * (1 - (math.log10(value) - ys[0]) / (ys[-1] - ys[0]))

    def roof(bytes_rate: float) -> str:
        start = max(10.0 ** xs[0], 10.0 ** ys[0] / bytes_rate)
        corner = rates.flops / bytes_rate
        points = [(start, start * bytes_rate), (corner, rates.flops), (10.0 ** xs[-1], rates.flops)]
        return "M" + "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in points)

    return Roofline(
        tuple(
            Point(k, round(x_of(x), 1), round(y_of(y), 1), round(3 + 9 * math.sqrt(times[k] / longest), 1))
            for k, x, y in known
        ),
        (roof(rates.bytes), roof(rates.cached_bytes)),
        tuple(Tick(x_of(10.0**d), _power(d)) for d in xs),
        tuple(Tick(y_of(10.0**d), _power(d)) for d in ys),
    )


def _decades(values: Iterable[float]) -> list[int]:
    logs = [math.log10(v) for v in values]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    return list(range(low, max(high, low + 1) + 1))


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power(exponent: int) -> str:
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"


@dataclasses.dataclass(frozen=True)
class Block:
    """A temporary buffer in the memory plot, in parts of its width and height."""

    x: float
    y: float
    width: float
    height: float
    title: str


def draw_memory(
    temporaries: Sequence[Temporary], kernels: Sequence[KernelRecord], temp_bytes: int
) -> tuple[Block, ...]:
    """The arena over the kernels: a buffer from its first to its last kernel, at its offset."""
    top = max([temp_bytes, *(t.offset + t.bytes for t in temporaries)], default=0)
    if not top or not kernels:
        return ()
    count = len(kernels)
    return tuple(
        Block(
            t.first / count,
            1 - (t.offset + t.bytes) / top,
            (t.last - t.first + 1) / count,
            t.bytes / top,
            f"{t.bytes:,} bytes at {t.offset:,}, from {kernels[t.first].name} to {kernels[t.last].name}",
        )
        for t in temporaries
    )
