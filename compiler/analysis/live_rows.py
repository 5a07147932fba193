"""Which values are read up to a size that is known at run time only: of the rows along their first axis.

Sizes known at run time only became bounds (passes/pad_dynamic_dimensions.py): elements beyond a size hold anything, and
results are cut to their sizes. This analysis finds, from the readers back to the operands, the values of which nothing
beyond a size is ever read; their kernels run for the rows before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from ..ir.element_types import ElementType, integer_info
from ..ir.module import Computation, Instruction, Module
from ..ir.shape import Shape
from ..ops import (
    Broadcast,
    Compare,
    Concatenate,
    Constant,
    Convolution,
    Dot,
    Elementwise,
    Fusion,
    Gather,
    GetTupleElement,
    Iota,
    Pad,
    Parameter,
    Reduce,
    Reshape,
    Scatter,
    Slice,
    Transpose,
    Tuple,
)

Sizes: TypeAlias = "tuple[Instruction, ...]"
Rows: TypeAlias = "Sizes | None"
"""Sizes, the rows before the largest of which are read; None: all rows are."""
_ALL = None
_MAX_SIZES = 4
_SIZE = Shape(ElementType.S32)


def live_rows(module: Module) -> dict[Instruction, Sizes]:
    """By instruction of the entry: s32 scalars, also of the entry. As many rows as the largest of them says, the first
    of the value or of each part of it, are all that is read. Instructions that are not listed are read as a whole."""
    entry, count = module.entry, len(module.sized_results)
    if not any(_is_size(i) for i in entry.instructions):
        return {}
    reads = _Reads()
    root = entry.root
    if isinstance(root.op, Tuple) and all(o.shape.is_array for o in root.operands):
        sizes = dict(zip(module.sized_results, root.operands[len(root.operands) - count :])) if count else {}
        for k, operand in enumerate(root.operands):
            reads.add(operand, (sizes[k],) if k in sizes else _ALL)
    else:
        reads.add(root, _ALL)
    for instruction in reversed(entry.instructions):
        if not (instruction is root and isinstance(root.op, Tuple)):
            _add_operands(reads, instruction, reads.of(instruction), lambda size: size)
    return {i: rows for i in entry.instructions if (rows := reads.of(i)) is not None}


class _Reads:
    """What is read of each value, and of each part of a tuple, by all readers so far."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Instruction, int | None], Rows] = {}

    def add(self, value: Instruction, rows: Rows, part: int | None = None) -> None:
        """A reader of `value`, or of a part of it."""
        parts = range(len(value.shape.tuple_shapes)) if part is None else [part]
        for key in ((value, None), *((value, k) for k in parts)):
            known = self._rows.setdefault(key, rows)
            if known != rows:
                both = (*known, *(s for s in rows if s not in known)) if known and rows else _ALL
                self._rows[key] = both if both and len(both) <= _MAX_SIZES else _ALL

    def of(self, value: Instruction) -> Rows:
        """What is read of a value, or at most of each part."""
        return self._rows.get((value, None))

    def of_parts(self, value: Instruction) -> list[Rows]:
        """What is read of each part of a tuple."""
        return [self._rows.get((value, k), self.of(value)) for k in range(len(value.shape.tuple_shapes))]


def _add_operands(
    reads: _Reads, reader: Instruction, rows: Rows, size_of: Callable[[Instruction], Instruction | None]
) -> None:
    """Adds what an instruction reads of its operands where `rows` of its own are. `size_of` gives the entry's scalar
    for one of the reader's computation, if it has one."""
    op, operands = reader.op, reader.operands
    if isinstance(op, GetTupleElement):
        reads.add(operands[0], rows, op.index)
        return
    if isinstance(op, Fusion):
        parts = reads.of_parts(reader) if isinstance(op.computation.root.op, Tuple) else [rows]
        for operand, read in zip(operands, _parameter_rows(op.computation, operands, parts)):
            reads.add(operand, read)
        return
    for number, operand in enumerate(operands):
        if rows is not None and _reads_same_rows(reader, number):
            reads.add(operand, rows)
        else:
            mask = _mask_of(reader, number)
            size = None if mask is None else size_of(mask)
            reads.add(operand, _ALL if size is None else (size,))


def _parameter_rows(
    computation: Computation, operands: Sequence[Instruction], rows: Sequence[Rows]
) -> Iterable[Rows]:
    """What a fusion reads of its operands, where `rows` of its root, or of each part of it, are read."""
    outer = {p: o for p, o in zip(computation.parameters, operands) if _is_size(o)}
    reads = _Reads()
    root = computation.root
    for value, own in zip(root.operands if isinstance(root.op, Tuple) else [root], rows, strict=True):
        reads.add(value, own)
    for instruction in reversed(computation.instructions):
        if not isinstance(instruction.op, Parameter) and not (
            instruction is root and isinstance(root.op, Tuple)
        ):
            _add_operands(reads, instruction, reads.of(instruction), outer.get)
    return [reads.of(p) for p in computation.parameters]


def _is_size(value: Instruction) -> bool:
    return value.shape == _SIZE


def _reads_same_rows(reader: Instruction, number: int) -> bool:
    """Whether the first rows of a value are made of as many first rows of this operand."""
    op, shape, operand = reader.op, reader.shape, reader.operands[number].shape
    if not (operand.is_array and operand.rank and shape.is_array and shape.rank):
        return False
    match op:
        case Broadcast():
            return op.dimensions[0] == 0
        case Reshape():
            return operand.dims[0] == shape.dims[0]
        case Transpose():
            return op.dimensions[0] == 0
        case Slice():
            return op.start[0] == 0 and op.strides[0] == 1
        case Concatenate():
            return op.dimension != 0
        case Pad():
            return number == 0 and op.low[0] == 0 and op.interior[0] == 0
        case Reduce():
            return 0 not in op.dimensions
        case Dot():
            if op.lhs_batch:
                return (op.lhs_batch if number == 0 else op.rhs_batch)[0] == 0
            return number == 0 and 0 not in op.lhs_contracting
        case Convolution():
            return number == 0 and op.dims.input_batch == op.dims.output_batch == 0 and op.batch_groups == 1
        case Gather():
            return number == 1 and 0 not in op.offset_dims and op.index_vector_dim != 0
        case Scatter():
            return number == 0
    return op.is_elementwise and operand.dims == shape.dims


def _mask_of(reader: Instruction, number: int) -> Instruction | None:
    """The scalar n, where an instruction reads the first n rows of this operand whatever is read of its own value: a
    select that takes no others, a scatter whose other indices are outside."""
    op, operands = reader.op, reader.operands
    if number == 1 and isinstance(op, Elementwise) and op.name == "select":
        return _mask_size(operands[0])
    if number == 2 and len(operands) == 3 and isinstance(op, Scatter):
        if 0 in op.update_window_dims or op.index_vector_dim == 0:
            return None
        return _masked_size(operands[1])
    return None


def _masked_size(value: Instruction) -> Instruction | None:
    """The scalar n, where a value's rows from n on are one constant, the largest number."""
    if isinstance(value.op, Fusion):
        inner = _masked_size(value.op.computation.root)
        parameters = value.op.computation.parameters
        return value.operands[parameters.index(inner)] if inner in parameters else None
    while isinstance(value.op, Reshape) and _reads_same_rows(value, 0):
        value = value.operands[0]
    if not (isinstance(value.op, Elementwise) and value.op.name == "select"):
        return None
    other = value.operands[2]
    while isinstance(other.op, Broadcast):
        other = other.operands[0]
    if not isinstance(other.op, Constant):
        return None
    largest = integer_info(other.shape.element_type.dtype).max
    is_outside = bool((other.op.literal.array == largest).all())
    return _mask_size(value.operands[0]) if is_outside else None


def _mask_size(pred: Instruction) -> Instruction | None:
    """The scalar n, where a pred says of each element whether it is in the first n rows."""
    while isinstance(pred.op, Broadcast | Reshape) and _reads_same_rows(pred, 0):
        pred = pred.operands[0]
    if isinstance(pred.op, Elementwise) and pred.op.name == "and":
        return next((size for o in pred.operands if (size := _mask_size(o)) is not None), None)
    if not isinstance(pred.op, Compare) or pred.op.direction != "LT":
        return None
    row, size = pred.operands
    is_row = isinstance(row.op, Iota) and row.op.iota_dimension == 0
    is_splat = isinstance(size.op, Broadcast) and _is_size(size.operands[0])
    return size.operands[0] if is_row and is_splat else None
