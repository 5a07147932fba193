"""Rows of a table that is stored in a narrower type: what is gathered is converted, no other row is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Instruction, make
from ..ops import (
    Broadcast,
    Concatenate,
    Constant,
    Convert,
    DynamicSlice,
    Elementwise,
    Gather,
    Opcode,
    Reshape,
    Slice,
)
from ..ops.block_scaled_dot import packed
from ..passes.rules.rule import full
from .weights import as_stored, quantize_blocks, quantize_weights


def stored_rows(
    gather: Instruction,
    numbers: Sequence[Instruction],
    table: np.ndarray,
    kind: ElementType,
    block_size: int,
) -> Instruction:
    """The rows of a table that a gather or a dynamic slice has, whose other operands are `numbers`. Integers have a
    scale for each row, those of 4 bits one for each `block_size` elements of a row."""
    columns = table.shape[1]
    if not kind.is_integer:
        return _converted(_rows(gather, as_stored(table, kind), numbers))
    if kind is ElementType.S4:
        block_size = min(block_size, columns)
        integers, scales = (a.T for a in quantize_blocks(table.T, block_size))
        rows = _unpacked(_rows(gather, packed(integers), numbers), columns)
    else:
        block_size = columns
        integers, row_scales = quantize_weights(table, 0)
        rows, scales = _rows(gather, integers, numbers), row_scales[:, None]
    factors = _rows(gather, np.ascontiguousarray(scales), numbers)
    *outer, blocks = factors.shape.dims
    spread = make(Broadcast((*outer, blocks, block_size), tuple(range(len(outer) + 1))), factors)
    factors = _first(make(Reshape((*outer, blocks * block_size)), spread), columns)
    return make(Elementwise(Opcode.MULTIPLY.value), _converted(rows), factors, metadata=gather.metadata)


def _rows(gather: Instruction, table: np.ndarray, numbers: Sequence[Instruction]) -> Instruction:
    """The same rows of another table."""
    op = gather.op
    assert isinstance(op, Gather | DynamicSlice)
    op = dataclasses.replace(op, slice_sizes=(1, table.shape[1]))
    return make(op, make(Constant(Literal(table))), *numbers, metadata=gather.metadata)


def _converted(value: Instruction) -> Instruction:
    return make(Convert(ElementType.F32), value, metadata=value.metadata)


def _unpacked(pairs: Instruction, columns: int) -> Instruction:
    """The integers of 4 bits in bytes, the low ones first."""
    dims = pairs.shape.dims
    four = full(pairs.shape, 4)
    left, right = (Elementwise(opcode.value) for opcode in (Opcode.SHIFT_LEFT, Opcode.SHIFT_RIGHT_ARITHMETIC))
    low, high = make(right, make(left, pairs, four), four), make(right, pairs, four)
    both = make(Concatenate(len(dims)), *(make(Reshape((*dims, 1)), half) for half in (low, high)))
    return _first(make(Reshape((*dims[:-1], 2 * dims[-1])), both), columns)


def _first(value: Instruction, columns: int) -> Instruction:
    """The first elements of each row."""
    dims = value.shape.dims
    if dims[-1] == columns:
        return value
    zeros, ones = (0,) * len(dims), (1,) * len(dims)
    return make(Slice(zeros, (*dims[:-1], columns), ones), value, metadata=value.metadata)
