"""Asynchronous ops of scheduled HLO text, read as what they start: a start is the op, an update and the end are its
value.

    s = (f32[4], f32[8]) all-gather-start(x), dimensions={0}
    g = f32[8] all-gather-done(s)                                 =>     g = f32[8] all-gather(x), dimensions={0}
"""

from __future__ import annotations

from .ops import OPS
from .shape import Shape

_WHOLE_RESULT = frozenset({"all-reduce-start"})
"""Starts whose shape is the result's; others' is a tuple of operands, result, and what keeps the two apart."""
_RESULT_FIRST = frozenset({"copy-start"})


def started(opcode: str, shape: Shape) -> tuple[str, Shape] | None:
    """(opcode, shape) of the op that a start begins; None for other opcodes."""
    name = opcode.removesuffix("-start")
    name = "call" if name == "async" else name
    if name == opcode or name not in OPS or opcode in OPS:
        return None
    if opcode in _WHOLE_RESULT or not shape.is_tuple or len(shape.tuple_shapes) < 2:
        return name, shape
    return name, shape.tuple_shapes[0 if opcode in _RESULT_FIRST else 1]


def is_end(opcode: str) -> bool:
    """Whether it hands on what a start began."""
    for suffix in ("-done", "-update"):
        name = opcode.removesuffix(suffix)
        if name != opcode and opcode not in OPS:
            return name == "async" or name in OPS
    return False
