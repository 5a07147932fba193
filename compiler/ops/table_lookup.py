"""TableLookup: a function of bytes, as the table of its 256 results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType
from ..ir.shape import Shape
from .op import Op, attribute, require, require_arrays

BYTES = (ElementType.S8, ElementType.U8)
"""The types of operands and results."""
ENTRIES = 256


@dataclasses.dataclass(frozen=True)
class TableLookup(Op):
    """Entry x of a table, for every byte x of the operand; a signed one counts by its bits, so that -1 is 255.

    table_lookup_c1: one array operand.
    table_lookup_c2: its type and that of the result are s8 or u8.
    table_lookup_c3: the table has 256 entries, which the result's type holds.
    """

    opcode: ClassVar[str] = "table-lookup"
    is_elementwise: ClassVar[bool] = True
    cycles: ClassVar[int] = 12
    table: tuple[int, ...] = attribute("dims", "table")
    element_type: ElementType = attribute("result_type", "", default=ElementType.U8)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's dims with the table's element type."""
        require_arrays("table-lookup", operands, 1, "table_lookup_c1")
        old, new = operands[0].element_type, self.element_type
        if old not in BYTES or new not in BYTES:
            types = f"{old.value} and {new.value}"
            require(
                False, f"table-lookup: operand and result are {types}, s8 or u8 is wanted", "table_lookup_c2"
            )
        lowest = 0 if new is ElementType.U8 else -128
        count, least, largest = len(self.table), min(self.table, default=0), max(self.table, default=0)
        require(
            count == ENTRIES and lowest <= least and largest < lowest + ENTRIES,
            f"table-lookup: {count} entries from {least} to {largest}, {ENTRIES} of {new.value} are wanted",
            "table_lookup_c3",
        )
        return operands[0].with_type(new)

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """Indexing by the bytes."""
        return np.array(self.table, self.element_type.dtype)[operand.view(np.uint8)]
