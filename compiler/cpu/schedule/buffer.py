"""Regions of memory that thunks read and write."""

from __future__ import annotations

import dataclasses
from typing import Literal

from ...ir.literal import Literal as Constant

ALIGN_BYTES = 64
Space = Literal["argument", "result", "temporary", "constant", "packed"]


@dataclasses.dataclass(frozen=True, eq=False)
class Buffer:
    """A region of memory: an argument, a result, temporary memory, a constant, or an argument that was packed.

    `index` is the number of the argument, result, temporary or packed argument; `offset` is that of a constant among
    the constants. Offsets of temporaries are in the BufferAssignment. A result may be given the memory of the argument
    `may_alias`: to write the result then overwrites that argument.
    Units: bytes.
    """

    space: Space
    bytes: int
    index: int = 0
    offset: int = 0
    may_alias: Buffer | None = None

    @property
    def allocation(self) -> Buffer:
        """Equal for buffers that may be the same memory."""
        return self.may_alias or self

    def __repr__(self) -> str:
        place = f"+{self.offset}" if self.space == "constant" else self.index
        return f"{self.space}[{place}]:{self.bytes}"


class Constants:
    """The bytes of a module's constants, each literal once."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._offsets: dict[Constant, int] = {}

    def buffer(self, literal: Constant) -> Buffer:
        """The buffer of a literal."""
        offset = self._offsets.get(literal)
        if offset is None:
            align = ALIGN_BYTES if literal.array.ndim else literal.array.itemsize
            self._data.extend(bytes(-len(self._data) % align))
            offset = self._offsets[literal] = len(self._data)
            self._data.extend(literal.array.tobytes())
        return Buffer("constant", literal.array.nbytes, offset=offset)

    def __len__(self) -> int:
        """The bytes of all constants."""
        return len(self._data)

    def data(self) -> bytes:
        """All constants, a copy."""
        return bytes(self._data)
