"""The end of a product in registers: its rows are multiplied by one row, another one is added, and the results are
clamped, before a tile is stored: biases, batch normalisation, the usual activations.

Any other end of a product is an epilogue, which reads the block again (loops/epilogue.py). Where sums are short, that
takes a fifth as long as the product.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Mapping

from ....runtime.llvm.addressing import Ptr
from ....runtime.llvm.types import parameters
from ....runtime.llvm.vector_value import VectorValue
from ....runtime.sizes import is_symbolic
from ...ir.module import Computation, Instruction
from ...ops import Broadcast, Opcode, Parameter, Reshape, is_op
from ...passes.rules.rule import splat
from .compute_types import STORED
from .register_tile import RegisterTile

PARAMETERS = parameters("ptr factors, ptr added, ptr limits")
"""Of a microkernel that ends tiles: the tile's columns of the row of factors, null where there are none, and of the row
that is added, null where nothing is done; and the least and the greatest result, 8 bytes each."""
NONE = 0  # in the place of a buffer's number: there is no such row. Buffer 0 is an operand.


@dataclasses.dataclass(frozen=True)
class TileEnd:
    """factors, added: the numbers of the buffers of the rows, of C's type; factors may be NONE. low, high: the limits
    of the results."""

    factors: int
    added: int
    low: float
    high: float

    def limits(self, compute: str) -> tuple[int, int]:
        """The limits as bits."""
        formats = ("<f", "<I") if STORED[compute].bits == 32 else ("<d", "<Q")
        low, high = (struct.unpack(formats[1], struct.pack(formats[0], x))[0] for x in (self.low, self.high))
        return low, high


def ends_tiles(compute: str | None) -> bool:
    """Whether the microkernels of a compute type have an end."""
    return compute in ("f32", "f64")


def tile_end(epilogue: Computation, columns: int, first_buffer: int) -> TileEnd | None:
    """The end that an epilogue is: its last parameter is the product, the others are the buffers from `first_buffer`
    on. None where it is anything else."""
    low, high, value = -math.inf, math.inf, _source(epilogue.root)
    while (limited := _limited(value)) is not None:
        value, least, greatest = limited
        low, high = max(low, least), min(high, greatest)
    if not low <= high:
        return None
    *others, product = epilogue.parameters
    buffers = {parameter: first_buffer + k for k, parameter in enumerate(others)}
    value, added = _without_row(value, Opcode.ADD, columns, buffers)
    factors = NONE
    if value is not product:
        value, factors = _without_row(value, Opcode.MULTIPLY, columns, buffers)
    return TileEnd(factors, added, low, high) if value is product and added != NONE else None


def _without_row(
    value: Instruction, opcode: Opcode, columns: int, buffers: Mapping[Instruction, int]
) -> tuple[Instruction, int]:
    """The other operand of an op of which one is a row, and the row's buffer; of other values these and NONE."""
    if is_op(value, opcode):
        for other, row in (value.operands, value.operands[::-1]):
            if _is_row(row, columns) and (parameter := _source(row.operands[0])) in buffers:
                return _source(other), buffers[parameter]
    return value, NONE


def _source(value: Instruction) -> Instruction:
    """The value before it was reshaped."""
    while isinstance(value.op, Reshape):
        value = value.operands[0]
    return value


def _limited(value: Instruction) -> tuple[Instruction, float, float] | None:
    """What a value clamps, and the limits: numbers that are the same for all elements."""
    least: float | None = -math.inf
    greatest: float | None = math.inf
    if is_op(value, Opcode.CLAMP):
        low, inner, high = value.operands
        least, greatest = _number(low), _number(high)
    elif is_op(value, Opcode.MAXIMUM, Opcode.MINIMUM):
        inner, limit = value.operands if _number(value.operands[0]) is None else value.operands[::-1]
        if is_op(value, Opcode.MAXIMUM):
            least = _number(limit)
        else:
            greatest = _number(limit)
    else:
        return None
    if least is None or greatest is None or not least <= greatest:
        return None
    return _source(inner), least, greatest


def _number(value: Instruction) -> float | None:
    number = splat(value)
    return None if number is None else float(number)


def _is_row(value: Instruction, columns: int) -> bool:
    """Whether a value is the same for all rows: a parameter of so many elements, along the last axes."""
    if not isinstance(value.op, Broadcast) or not isinstance(_source(value.operands[0]).op, Parameter):
        return False
    row, dims = value.operands[0].shape, value.shape.dims
    if is_symbolic(row.dims) or row.elements != columns:
        return False
    axes = [axis for axis, size in zip(value.op.dimensions, row.dims) if size != 1]
    last = len(dims)
    for axis in reversed(axes):
        last -= 1
        while last > axis and not is_symbolic([dims[last]]) and dims[last] == 1:
            last -= 1
        if last != axis:
            return False
    return True


def end(
    tile: RegisterTile, sums: list[VectorValue], factors: Ptr, added: Ptr, limits: Ptr
) -> list[VectorValue]:
    """The tile after its end, if there is one."""
    f, compute = tile.f, tile.compute

    def rows(row: Ptr) -> list[VectorValue]:
        return tile.load(tile.addresses([row])) * tile.rows

    with f.if_(added.is_not_null()) as ended:
        with f.if_(factors.is_not_null()) as scaled:
            scaled.tile = [x * y for x, y in zip(sums, rows(factors), strict=True)]
        with scaled.else_():
            scaled.tile = sums
        low, high = (compute.broadcast((limits + at).load(compute.type)) for at in (0, 8))
        ended.tile = [
            (x + y).at_least(low).at_most(high) for x, y in zip(scaled.tile, rows(added), strict=True)
        ]
    with ended.else_():
        ended.tile = sums
    result: list[VectorValue] = ended.tile
    return result
