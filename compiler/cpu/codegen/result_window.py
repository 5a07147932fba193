"""The result of a contraction that only its epilogue reads: kept for a block at a time, in a window of scratch memory.

All blocks are written to the same place, which stays in cache. Addresses are computed as for the whole result, from a
base that moves with the block.
"""

from __future__ import annotations

from ....runtime.llvm.ir_builder import Function, Int, Ptr
from ....runtime.llvm.target import Target

RESULT = 2  # the number of the result among a contraction's buffers


def window_rows(target: Target, row_bytes: int) -> int:
    """Rows of a block whose window stays in the second cache beside the operands."""
    return max(1, target.l2_bytes // 16 // max(row_bytes, 1))


def move_window(f: Function, window: Ptr, offset: Int) -> Ptr:
    """The base for a block that begins so many bytes after the start of the result; the epilogue finds it too."""
    base = Ptr("ptr", f.assign(f"getelementptr i8, {window}, i64 {(0 - offset).text}"), f)
    f.pointer("buffers").at(RESULT, "ptr").store(base)
    return base
