"""How much of the stack code takes: frames as LLVM lays them out, along the deepest chain of calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ....runtime.llvm.ir_builder import ModuleText

# LLVM's message about a function with the attribute "warn-stack-size".
_MESSAGE = re.compile(r"stack frame size \((\d+)\)[^'\n]*'([^'\n]+)'")
_SLOT = re.compile(r" = alloca [^\n]*, align (\d+)$", re.MULTILINE)
_STACK_ALIGN_BYTES = 8  # which every stack has
_SPILL_ALIGN_BYTES = 16  # above which spilled vectors want frames to be aligned


def frame_sizes(messages: str) -> dict[str, int]:
    """The bytes of frames by function, from what LLVM says while it makes an object; those not named have none."""
    return {name: int(size) for size, name in _MESSAGE.findall(messages)}


def stack_bounds(
    text: ModuleText,
    frames: Mapping[str, int],
    calls: Mapping[str, Collection[str]],
    entries: Collection[str],
) -> dict[str, int]:
    """The most bytes that calls of the entries take. `calls`: the functions that functions may call.

    A frame counts with the address to return to, and with what aligning its slots and spilled vectors takes.
    """
    assert text.target is not None
    pointer_bytes, vector_bytes = text.target.pointer_bytes, text.target.vector_bytes
    bounds: dict[str, int] = {}

    def bound(name: str, above: frozenset[str]) -> int:
        if name in bounds or name in above:
            return bounds.get(name, 0)
        frame = frames.get(name, 0)
        aligned = [int(number) for number in _SLOT.findall(text.functions.get(name, ""))]
        if vector_bytes > _SPILL_ALIGN_BYTES and frame >= vector_bytes:
            aligned.append(vector_bytes)
        aligning = max((number for number in aligned if number > _STACK_ALIGN_BYTES), default=0)
        deepest = max((bound(callee, above | {name}) for callee in calls.get(name, ())), default=0)
        bounds[name] = frame + pointer_bytes + aligning + deepest
        return bounds[name]

    return {entry: bound(entry, frozenset()) for entry in entries}
