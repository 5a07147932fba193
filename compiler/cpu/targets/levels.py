"""Levels of processors of one architecture: what each has, and how a program learns at run time that it is there.

Names of x86-64's levels, and of the CPUs that have them, are those of its ABI; `v4-vnni` has the products of bytes too.
Arm's are versions of the architecture.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ...ir.code_version import Level
from .named_target import target_for
from .triple import parse_triple


@dataclasses.dataclass(frozen=True)
class _Row:
    cpu: str
    features: str
    needs: Mapping[str, Sequence[int]]  # numbers of bits, besides those of the level before


_X86 = {
    "v1": _Row("x86-64", "", {}),
    "v2": _Row("x86-64-v2", "", {"features": (0, 9, 13, 19, 20, 23)}),  # SSE3 to 4.2, CMPXCHG16B, POPCNT
    "v3": _Row(
        "x86-64-v3",
        "",
        {
            "features": (12, 22, 27, 28, 29),  # FMA, MOVBE, OSXSAVE, AVX, F16C
            "structured": (3, 5, 8),  # BMI1, AVX2, BMI2
            "extended": (5,),  # LZCNT
            "saved": (1, 2),  # the registers that the system keeps: of SSE and AVX
        },
    ),
    "v4": _Row(
        "x86-64-v4", "", {"structured": (16, 17, 28, 30, 31), "saved": (5, 6, 7)}
    ),  # AVX-512 F DQ CD BW VL
    "v4-vnni": _Row("x86-64-v4", "+avx512vnni", {"structured2": (11,)}),
}
# A field of four bits is 0 where the processor lacks the feature, and odd in the feature's first version.
_AARCH64 = {
    "v8.0": _Row("generic", "+neon", {}),
    "v8.2": _Row("generic", "+v8.2a,+dotprod,+fullfp16", {"instructions0": (44,), "processor": (16, 20)}),
    "v8.6": _Row("generic", "+v8.6a,+dotprod,+fullfp16,+i8mm,+bf16", {"instructions1": (44, 52)}),
}
LEVELS = {"x86_64": _X86, "aarch64": _AARCH64, "arm64": _AARCH64}
"""The levels of an architecture, the lowest first."""
# Where programs may not read what the processor says of itself.
_CLOSED = ("darwin", "macos", "ios", "windows", "tvos", "watchos")


def levels_for(
    triple: str,
    names: Sequence[str],
    threads: int = 1,
    l1_bytes: int | None = None,
    l2_bytes: int | None = None,
) -> list[Level]:
    """The levels of these names for a triple, the lowest first.

    Raises: ValueError  an architecture without levels, a level that it has not, or the same one twice; UnsupportedError
    as `target_for`.
    """
    parsed = parse_triple(triple)
    rows = LEVELS.get(parsed.architecture)
    if rows is None:
        raise ValueError(f"CPU levels: {parsed.architecture} has none; {', '.join(LEVELS)} have")
    if rows is _AARCH64 and parsed.system.startswith(_CLOSED):
        raise ValueError(
            f"CPU levels: programs for {triple} cannot ask the processor what it has; give one CPU"
        )
    if unknown := [name for name in names if name not in rows]:
        raise ValueError(f"CPU levels: {unknown[0]!r} is none of {', '.join(rows)}")
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"CPU levels: {', '.join(names) or 'no level'}: one or several different ones are wanted"
        )
    needs: dict[str, int] = {}
    levels = []
    for name, row in rows.items():
        for word, bits in row.needs.items():
            needs[word] = needs.get(word, 0) | sum(1 << bit for bit in bits)
        if name in names:
            target = target_for(triple, row.cpu, row.features, threads, l1_bytes, l2_bytes)
            levels.append(Level(name, target, dict(needs)))
    return levels
