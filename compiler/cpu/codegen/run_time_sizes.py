"""Sizes that are data: s32 scalars in buffers."""

from __future__ import annotations

from collections.abc import Iterable

from ....runtime.llvm.ir_builder import Function, Int, Ptr


def largest_size(f: Function, sizes: Iterable[Ptr], least: int) -> Int:
    """The largest of the s32 at some addresses, at least `least`."""
    largest = f.i64(least)
    for size in sizes:
        largest = largest.maximum(Int.of(f, size.load("i32").cast("sext", "i64")))
    return largest
