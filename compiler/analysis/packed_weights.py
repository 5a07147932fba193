"""Weights of four bits, two to a byte, that a graph unpacks with shifts and masks.

What a graph does to bytes is followed as data: for every element of a value the byte of the source that it comes from,
and a table of what becomes of the 256 bytes. Any way to unpack that gives the right elements is recognised.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...runtime.sizes import is_symbolic
from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Instruction, make, topological
from ..ops import Broadcast, Concatenate, Constant, Reshape, Slice, Transpose
from ..ops.block_scaled_dot import packed

_MOVES = Reshape | Transpose | Slice
_SIGNED = (ElementType.S8, ElementType.S4)
_MOST_ELEMENTS = 1 << 26
_BYTES = np.arange(-128, 128).astype(np.int8)
_LOW = (np.left_shift(_BYTES, 4)) >> 4
_HIGH = _BYTES >> 4


@dataclasses.dataclass(frozen=True, eq=False)
class _Bytes:
    """A value of which each element is tables[table] at a byte of the source."""

    byte: np.ndarray
    table: np.ndarray
    tables: tuple[np.ndarray, ...]

    def of(self, source: np.ndarray) -> np.ndarray:
        """The value, where this is the source."""
        bytes_ = source.reshape(-1)[self.byte].astype(np.int16)
        tables = np.stack([table.astype(np.int8) for table in self.tables])
        result: np.ndarray = tables[self.table, bytes_ - _BYTES[0]]
        return result


_Known = _Bytes | np.generic
"""Bytes, or the number that all elements are."""


def packed_weights(value: Instruction) -> Instruction | None:
    """An array s8 (k, (n + 1) / 2) whose halves of bytes along the last axis are a matrix (k, n) of s8 or s4, as
    block-scaled-dot reads them; None where there is none. Of constants it is a new one."""
    if value.shape.element_type not in _SIGNED or value.shape.rank != 2:
        return None
    source = _source(value)
    if source is None or is_symbolic((*value.shape.dims, *source.shape.dims)):
        return None
    rows, columns = value.shape.dims
    constant = source.op.literal.array if isinstance(source.op, Constant) else None
    fits = constant is not None or source.shape.dims == (rows, (columns + 1) // 2)
    if not fits or not 0 < value.shape.elements <= _MOST_ELEMENTS:
        return None
    found = _followed(value, source)
    if not isinstance(found, _Bytes):
        return None
    if constant is None:
        return source if _is_unpacked(found) else None
    integers = found.of(constant)
    in_range = integers.min() >= -8 and integers.max() <= 7
    return make(Constant(Literal(packed(integers)))) if in_range else None


def _source(value: Instruction) -> Instruction | None:
    """The one value of bytes from which, with numbers, another is computed element by element."""
    sources = set()
    stack, seen = [value], set[Instruction]()
    while stack:
        each = stack.pop()
        if each in seen or _number(each) is not None:
            continue
        seen.add(each)
        if _is_followed(each):
            stack += each.operands
        else:
            sources.add(each)
    source = sources.pop() if len(sources) == 1 else None
    if source is None or source.shape.element_type not in _SIGNED[: 2 if _is_constant(source) else 1]:
        return None
    return source


def _is_constant(value: Instruction) -> bool:
    return isinstance(value.op, Constant)


def _is_followed(value: Instruction) -> bool:
    return value.op.is_elementwise or isinstance(value.op, _MOVES | Concatenate)


def _number(value: Instruction) -> np.generic | None:
    """The number that all elements of a constant are."""
    source = value.operands[0] if isinstance(value.op, Broadcast) else value
    if isinstance(source.op, Constant) and source.shape.is_scalar:
        return _scalar(source.op.literal.array)
    return None


def _scalar(array: np.ndarray) -> np.generic:
    number: np.generic = array.dtype.type(array)
    return number


def _followed(value: Instruction, source: Instruction) -> _Known | None:
    known: dict[Instruction, _Known | None] = {
        source: _Bytes(
            np.arange(source.shape.elements, dtype=np.int32).reshape(source.shape.dims),
            np.zeros(source.shape.dims, np.int8),
            (_BYTES,),
        )
    }
    for each in topological([value]):
        if each in known:
            continue
        number = _number(each)
        if number is not None:
            known[each] = number
        elif _is_followed(each):
            known[each] = _applied(each, [known.get(o) for o in each.operands])
    return known.get(value)


def _applied(each: Instruction, operands: Sequence[_Known | None]) -> _Known | None:
    """An op on what is known of its operands."""
    arrays = [o for o in operands if isinstance(o, _Bytes)]
    if any(o is None for o in operands):
        return None
    if each.op.is_elementwise:
        return _elementwise(each, operands, arrays)
    if len(arrays) < len(operands):
        return None
    if isinstance(each.op, Concatenate):
        starts = np.cumsum([0, *(len(a.tables) for a in arrays)])
        if starts[-1] > 127:
            return None
        tables = [a.table + np.int8(start) for a, start in zip(arrays, starts)]
        return _Bytes(
            _array(each, *(a.byte for a in arrays)),
            _array(each, *tables),
            tuple(table for a in arrays for table in a.tables),
        )
    (array,) = arrays
    return _Bytes(_array(each, array.byte), _array(each, array.table), array.tables)


def _array(instruction: Instruction, *operands: np.ndarray) -> np.ndarray:
    """The value of an instruction on arrays, as the evaluator has it."""
    with np.errstate(all="ignore"):
        return np.asarray(instruction.op.reference(*operands))


def _elementwise(
    each: Instruction, operands: Sequence[_Known | None], arrays: Sequence[_Bytes]
) -> _Known | None:
    if not arrays:
        return _scalar(_array(each, *map(np.asarray, operands)))
    first = arrays[0]
    if any(a.byte is not first.byte or a.table is not first.table for a in arrays):
        return None
    tables = []
    for number_of_table in range(len(first.tables)):
        columns = (
            o.tables[number_of_table] if isinstance(o, _Bytes) else np.full(_BYTES.shape, o) for o in operands
        )
        tables.append(_array(each, *columns))
    # A conversion of bits may have results of other dims.
    return dataclasses.replace(first, tables=tuple(tables)) if tables[0].shape == _BYTES.shape else None


def _is_unpacked(value: _Bytes) -> bool:
    """Whether the elements are the low and the high halves of the bytes of a matrix, in order."""
    rows, columns = value.byte.shape
    row_bytes = (columns + 1) // 2
    expected = np.arange(rows, dtype=np.int32)[:, None] * row_bytes + np.arange(columns, dtype=np.int32) // 2
    if not np.array_equal(value.byte, expected):
        return False
    for first, half in enumerate((_LOW, _HIGH)):
        numbers = np.unique(value.table[:, first::2])
        if not all(np.array_equal(value.tables[number].astype(np.int8), half) for number in numbers):
            return False
    return True
