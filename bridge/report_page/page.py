"""The page of a report: one file of HTML without references to others."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...runtime.code.artifact import KernelRecord, Temporary
from ...runtime.code.peak_rates import PeakRates
from .charts import BOX, PLOT, Block, Drawing, Roofline, draw_graph, draw_memory, draw_roofline
from .groups import OpGroup

_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#eeca3b")
_OTHER = "#a0a0a0"
# What helps against a reason, by the first pattern that is in it.
REMEDIES = (
    ("no translation of this op", "Move it before or after the numeric part, or compute it with other ops."),
    (
        r"minimum( in \S+)? is",
        "Small groups gain nothing alone. Decorate the function with tfbridge.jit, or set TFBRIDGE_MIN_CLUSTER_SIZE.",
    ),
    (
        "is no array",
        "Strings, resources and variants stay in TensorFlow: convert to numbers before the function.",
    ),
    ("placed on", "Take out tf.device, or place the op on the CPU."),
    ("must be known when compiling", "Make it a Python number, or compute it from shapes instead of data."),
    ("not in a scope", "Add its scope to those that are to be compiled."),
    ("it is fetched", "Return it from a function of its own."),
    (
        "could not be rebuilt",
        "Write the loop with tf.while_loop, or with Python's for and while under tf.function.",
    ),
    ("may not exist yet", "Create the variable before the function runs."),
    ("goes from one cluster to another", "Take out the op between them, which the reason names."),
)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel as the page shows it. `time`: of all its launches in a call; `is_measured`: else what it takes at
    least."""

    number: int
    record: KernelRecord
    kind: str
    title: str
    time: float
    share: float
    colour: str
    source: str


@dataclasses.dataclass(frozen=True)
class Family:
    """Kernels that do the same, as one row of the table."""

    title: str
    kind: str
    colour: str
    kernels: tuple[Kernel, ...]

    @property
    def share(self) -> float:
        """Of the time of a call."""
        return sum(kernel.share for kernel in self.kernels)

    @property
    def flops(self) -> int:
        return sum(kernel.record.flops for kernel in self.kernels)

    @property
    def bytes(self) -> int:
        return sum(kernel.record.bytes for kernel in self.kernels)


@dataclasses.dataclass(frozen=True)
class KernelSection:
    """The drawings and the table of the kernels of one cluster or one exported function."""

    title: str
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    arguments: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    families: tuple[Family, ...]
    kinds: tuple[tuple[str, str, float], ...]  # name, colour, share
    roofline: Roofline | None
    memory: tuple[Block, ...]
    temp_bytes: int
    is_measured: bool
    unit: str


def kernel_section(
    title: str,
    kernels: Sequence[KernelRecord],
    temporaries: Sequence[Temporary],
    temp_bytes: int,
    rates: PeakRates,
    times: Sequence[float] | None = None,
    facts: Iterable[tuple[str, str]] = (),
    notes: Iterable[str] = (),
    arguments: Iterable[str] = (),
    sources: Mapping[str, str] | None = None,
) -> KernelSection:
    """A section. `times`: of all launches of each kernel in a call, in the rates' unit, measured; None: the least that
    the machine allows for one launch. `sources`: places in the program by op name."""
    shown = [rates.least(kernel) for kernel in kernels] if times is None else list(times)
    total = sum(shown) or 1.0
    kinds: dict[str, float] = {}
    for kernel, time in zip(kernels, shown):
        kinds[_kind(kernel)] = kinds.get(_kind(kernel), 0.0) + time
    ordered = sorted(kinds, key=lambda kind: -kinds[kind])
    colours = {kind: _COLOURS[k] if k < len(_COLOURS) else _OTHER for k, kind in enumerate(ordered)}
    rows = [
        Kernel(
            k,
            kernel,
            kind := _kind(kernel),
            kernel.ops[0] if kernel.ops else kernel.name,
            time,
            time / total,
            colours[kind],
            next((place for op in kernel.ops if (place := (sources or {}).get(op, ""))), ""),
        )
        for k, (kernel, time) in enumerate(zip(kernels, shown))
    ]
    return KernelSection(
        title,
        tuple(facts),
        tuple(notes),
        tuple(arguments),
        tuple(rows),
        _families(rows),
        tuple((kind, colours[kind], kinds[kind] / total) for kind in ordered),
        draw_roofline(kernels, shown, rates) if kernels else None,
        draw_memory(temporaries, kernels, temp_bytes),
        temp_bytes,
        times is not None,
        rates.unit,
    )


def _kind(kernel: KernelRecord) -> str:
    return kernel.name.split(".", 1)[0].replace("_", " ")


def _families(kernels: Sequence[Kernel]) -> tuple[Family, ...]:
    """Kernels of one kind whose main ops have the same last name, the family of most time first."""
    members_of: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        name = re.sub(r"_\d+$", "", kernel.title.rsplit("/", 1)[-1])
        members_of.setdefault((kernel.kind, name), []).append(kernel)
    families = [
        Family(members[0].title if len(members) == 1 else name, kind, members[0].colour, tuple(members))
        for (kind, name), members in members_of.items()
    ]
    return tuple(sorted(families, key=lambda family: -family.share))


def remedy(reason: str) -> str:
    """What a user can do about an op that TensorFlow runs; empty where nothing is known."""
    return next((text for pattern, text in REMEDIES if re.search(pattern, reason)), "")


def graph_drawing(groups: Sequence[OpGroup]) -> Drawing | None:
    """The drawing of a graph; None for one without ops."""
    return draw_graph(groups) if groups else None


def cluster_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each cluster."""
    return {name: _COLOURS[k % len(_COLOURS)] for k, name in enumerate(names)}


def render(title: str, facts: Sequence[tuple[str, str]], **parts: object) -> str:
    """The page: a title, facts at its head, and the parts that `page.html` lists at its beginning."""
    return _template().render(title=title, facts=facts, box=BOX, plot=PLOT, **parts)


def amount(value: float, unit: str = "") -> str:
    """A number with three digits and a prefix: 1.23 M."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}".strip()
    steps = min(4, max(-3, math.floor(math.log10(abs(value)) / 3)))
    scaled = value / 1000.0**steps
    digits = 0 if scaled >= 100 or (steps == 0 and value == int(value)) else 1 if scaled >= 10 else 2
    return f"{scaled:.{digits}f} {('n', 'µ', 'm', '', 'k', 'M', 'G', 'T')[steps + 3]}{unit}".strip()


@functools.cache
def _template() -> Any:
    import jinja2  # late: most programs draw no page

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["amount"] = amount
    return environment.get_template("page.html")
