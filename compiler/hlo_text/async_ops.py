"""Asynchronous ops of scheduled HLO text, read as what they start: a start is the op, an update and the end are its
value.

    s = (f32[4], f32[8]) all-gather-start(x), dimensions={0}
    g = f32[8] all-gather-done(s)                                 =>     g = f32[8] all-gather(x), dimensions={0}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..errors import ShapeError
from ..ir.module import Metadata
from ..ir.shape import Shape
from ..ops import OPS

_WHOLE_RESULT = frozenset({"all-reduce-start"})
"""Starts whose shape is the result's; that of others is a tuple of operands, result and context."""
START_ATTRIBUTES = frozenset({"async_execution_thread", "cross_program_prefetch_index"})
"""Attributes of starts that what they start has not."""
_RESULT_FIRST = frozenset({"copy-start"})


@dataclasses.dataclass(frozen=True)
class Start:
    """A start: its name without `-start`, the opcode of what it starts, the shape that it is declared with (None: it is
    not), and of that the parts for the result and the operands (None: there is none)."""

    name: str
    opcode: str
    declared: Shape | None
    result: Shape | None
    operands: Shape | None

    def check(self, operands: Sequence[Shape]) -> None:
        """Raises: ShapeError  the declared shape has other operands than these."""
        part = self.operands
        if part is None or part.compatible(Shape.tuple(operands)):
            return
        if len(operands) != 1 or not part.compatible(operands[0]):
            raise ShapeError(
                f"{self.name}-start has shape {self.declared}, its operands are {Shape.tuple(operands)}"
            )


def started(opcode: str, shape: Shape | None) -> Start | None:
    """The start of this opcode and declared shape; None for other opcodes."""
    name = opcode.removesuffix("-start")
    of = "call" if name == "async" else name
    if name == opcode or of not in OPS or opcode in OPS:
        return None
    parts = shape.tuple_shapes if shape is not None else ()
    if opcode in _WHOLE_RESULT or len(parts) < 2:
        return Start(name, of, shape, shape, None)
    result = 0 if opcode in _RESULT_FIRST else 1
    return Start(name, of, shape, parts[result], parts[1 - result])


def ended(opcode: str) -> str | None:
    """The name of the start that an opcode ends or updates; None for other opcodes."""
    for suffix in ("-done", "-update"):
        name = opcode.removesuffix(suffix)
        if name != opcode and opcode not in OPS and (name == "async" or name in OPS):
            return name
    return None


def without_start_attributes(metadata: Metadata) -> Metadata:
    """The metadata of what a start starts."""
    if not any(name in START_ATTRIBUTES for name, _ in metadata.extra):
        return metadata
    extra = tuple(row for row in metadata.extra if row[0] not in START_ATTRIBUTES)
    return dataclasses.replace(metadata, extra=extra)
