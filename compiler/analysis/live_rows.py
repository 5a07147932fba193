"""Which values are read up to a size that is known at run time only: of the rows along their first axis.

Sizes known at run time only became bounds (passes/pad_dynamic_dimensions.py): elements beyond a size hold anything, and
results are cut to their sizes. This analysis finds, from the readers back to the operands, the values of which nothing
beyond a size is ever read; their kernels run for the rows before it. Products that sum over rows which are zero beyond
a size, as gradients of weights do, sum up to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ..ir.element_types import ElementType, integer_info
from ..ir.module import Computation, Instruction, Module
from ..ir.shape import Shape
from ..ops import (
    Broadcast,
    Compare,
    Concatenate,
    Constant,
    Convert,
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


@dataclasses.dataclass(frozen=True)
class LiveSizes:
    """By instruction of the entry: s32 scalars, also of the entry, the largest of which is the size.

    `rows`: of a value, or of each part of it, as many rows are all that is read. Others are read as a whole.
    `depths`: a dot is the sum over as many rows of its operands, which need no others.
    """

    rows: Mapping[Instruction, Sizes]
    depths: Mapping[Instruction, Sizes]

    def of(self, instruction: Instruction) -> Sizes:
        """All scalars that are read when an instruction runs."""
        return (*self.rows.get(instruction, ()), *self.depths.get(instruction, ()))

    def instructions(self) -> list[Instruction]:
        """All that read scalars."""
        return list(dict.fromkeys((*self.rows, *self.depths)))


NO_SIZES = LiveSizes({}, {})


def live_sizes(module: Module) -> LiveSizes:
    """What is read of the values of a module's entry, up to sizes known at run time only."""
    entry, count = module.entry, len(module.sized_results)
    if not any(_is_size(i) for i in entry.instructions):
        return NO_SIZES
    reads = _Reads(_sources(entry.instructions))
    depths = {i: reads.sources_of(depth) for i in entry.instructions if (depth := _depth(i))}
    root = entry.root
    if isinstance(root.op, Tuple) and all(o.shape.is_array for o in root.operands):
        sizes = dict(zip(module.sized_results, root.operands[len(root.operands) - count :])) if count else {}
        for k, operand in enumerate(root.operands):
            reads.add(operand, (sizes[k],) if k in sizes else _ALL)
    else:
        reads.add(root, _ALL)
    for instruction in reversed(entry.instructions):
        if not (instruction is root and isinstance(root.op, Tuple)):
            depth = depths.get(instruction, ())
            _add_operands(reads, instruction, reads.of(instruction), depth, lambda size: size)
    return LiveSizes({i: rows for i in entry.instructions if (rows := reads.of(i)) is not None}, depths)


class _Reads:
    """What is read of each value, and of each part of a tuple, by all readers so far; sizes by their `sources`."""

    def __init__(self, sources: Mapping[Instruction, Instruction]) -> None:
        self.sources = sources
        self._rows: dict[tuple[Instruction, int | None], Rows] = {}

    def sources_of(self, sizes: Sizes) -> Sizes:
        """The sizes in place of which others may be read."""
        return tuple(dict.fromkeys(self.sources.get(s, s) for s in sizes))

    def add(self, value: Instruction, rows: Rows, part: int | None = None) -> None:
        """A reader of `value`, or of a part of it."""
        rows = rows and self.sources_of(rows)
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
    reads: _Reads,
    reader: Instruction,
    rows: Rows,
    depth: Sizes,
    size_of: Callable[[Instruction], Instruction | None],
) -> None:
    """Adds what an instruction reads of its operands where `rows` of its own are, and where a dot, which it is or has,
    sums up to a `depth`. `size_of` gives the entry's scalar for one of the reader's computation, if it has one."""
    op, operands = reader.op, reader.operands
    if isinstance(op, GetTupleElement):
        reads.add(operands[0], rows, op.index)
        return
    if isinstance(op, Fusion):
        parts = reads.of_parts(reader) if isinstance(op.computation.root.op, Tuple) else [rows]
        for operand, read in zip(operands, _parameter_rows(reads, op.computation, operands, parts, depth)):
            reads.add(operand, read)
        return
    if isinstance(op, Dot) and depth:
        for operand in operands:
            reads.add(operand, depth)
        return
    for number, operand in enumerate(operands):
        if rows is not None and _reads_same_rows(reader, number):
            reads.add(operand, rows)
        else:
            if isinstance(op, Gather) and number == 0:
                size = _gathered_rows(reader, size_of)
            else:
                mask = _mask_of(reader, number)
                size = mask and size_of(mask)
            reads.add(operand, _ALL if size is None else (size,))


def _parameter_rows(
    outside: _Reads,
    computation: Computation,
    operands: Sequence[Instruction],
    rows: Sequence[Rows],
    depth: Sizes,
) -> Iterable[Rows]:
    """What a fusion reads of its operands, where `rows` of its root, or of each part of it, are read, and its dot sums
    up to a `depth`."""
    outer = {p: o for p, o in zip(computation.parameters, operands) if o.shape.is_scalar}
    reads = _Reads(outside.sources)
    root = computation.root
    for value, own in zip(root.operands if isinstance(root.op, Tuple) else [root], rows, strict=True):
        reads.add(value, own)
    for instruction in reversed(computation.instructions):
        if not isinstance(instruction.op, Parameter) and not (
            instruction is root and isinstance(root.op, Tuple)
        ):
            _add_operands(reads, instruction, reads.of(instruction), depth, outer.get)
    return [reads.of(p) for p in computation.parameters]


def _sources(instructions: Iterable[Instruction]) -> dict[Instruction, Instruction]:
    """For each size the first one that is not less: sizes of arrays that are combined are the minimum of theirs, which
    in all but wrong programs are the same."""
    sources: dict[Instruction, Instruction] = {}
    numbers: dict[Instruction, int] = {}
    for instruction in filter(_is_size, instructions):
        numbers[instruction] = len(numbers)
        bounds = [sources[b] for b in _bounds(instruction) if b in sources]
        sources[instruction] = min(bounds, key=numbers.__getitem__, default=instruction)
    return sources


def _bounds(size: Instruction) -> list[Instruction]:
    """Operands of the instruction that are not less than its value, a size, where that is not negative."""
    size, fusion = _inside(size)
    if fusion is not None:
        return [o for o in (_of_operand(fusion, b) for b in _bounds(size)) if o is not None]
    if not isinstance(size.op, Elementwise):
        return []
    operands: Sequence[Instruction] = size.operands
    if size.op.name == "maximum":
        operands = [
            a for a, b in (operands, operands[::-1]) if isinstance(b.op, Constant) and b.op.literal.array <= 0
        ]
    elif size.op.name != "minimum":
        return []
    return [b for o in operands for b in (o, *_bounds(o))]


def _depth(instruction: Instruction) -> Sizes:
    """Scalars, from the largest of which on both operands of a dot have rows of zeros, over which it sums."""
    op, operands = instruction.op, instruction.operands
    if isinstance(op, Fusion):
        parameters, inside = op.computation.parameters, op.computation.instructions
        dot = next((i for i in inside if i.op.is_contraction), instruction)
        if not all(o in parameters for o in dot.operands):
            return ()
        operands = tuple(operands[parameters.index(o)] for o in dot.operands)
        op = dot.op
    if not isinstance(op, Dot) or op.lhs_contracting != (0,) or op.rhs_contracting != (0,):
        return ()
    if not all(o.shape.element_type.is_float for o in operands):
        return ()
    sizes = [_masked_size(o, _is_zero) for o in operands]
    return tuple(dict.fromkeys(s for s in sizes if s is not None)) if None not in sizes else ()


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
        return _masked_size(operands[1], _is_largest)
    return None


def _gathered_rows(
    gather: Instruction, size_of: Callable[[Instruction], Instruction | None]
) -> Instruction | None:
    """The entry's scalar n, where a gather has rows of its operand and none of its indices is n or more."""
    op = gather.op
    assert isinstance(op, Gather)
    if op.start_index_map != (0,) or op.slice_sizes[0] != 1:
        return None
    last = _largest_index(gather.operands[1])
    if last is None:
        return None
    if (size := _successor(last)) is not None:
        return size_of(size)
    outer = size_of(last)
    return None if outer is None else _successor(outer)


def _largest_index(indices: Instruction) -> Instruction | None:
    """A scalar that no index is above."""
    indices = _unmoved(indices)
    if not (isinstance(indices.op, Elementwise) and indices.op.name == "minimum"):
        return None
    return next((o for o in map(_unmoved, indices.operands) if o.shape.is_scalar), None)


def _successor(number: Instruction) -> Instruction | None:
    """The scalar n, where a number is n - 1; of a fusion's result one of its operands."""
    number, fusion = _inside(number)
    if fusion is not None:
        return _of_operand(fusion, _successor(number))
    number = _unmoved(number)
    if not (isinstance(number.op, Elementwise) and number.op.name == "add"):
        return None
    size, one = number.operands
    is_less = isinstance(one.op, Constant) and one.op.literal.array == -1
    return size if is_less and _is_size(size) else None


def _unmoved(value: Instruction) -> Instruction:
    """Where the elements of a value come from, whatever their order, and their type where all of its numbers stay."""
    while isinstance(value.op, Broadcast | Reshape | Transpose) or _is_widened(value):
        value = value.operands[0]
    return value


def _is_widened(value: Instruction) -> bool:
    if not isinstance(value.op, Convert):
        return False
    wide, narrow = value.shape.element_type, value.operands[0].shape.element_type
    are_signed = all(t.is_integer and t.is_signed for t in (wide, narrow))
    return are_signed and wide.bits >= narrow.bits


def _is_largest(constant: np.ndarray) -> bool:
    return bool((constant == integer_info(constant.dtype).max).all())


def _is_zero(constant: np.ndarray) -> bool:
    return not constant.any()


def _masked_size(value: Instruction, is_other: Callable[[np.ndarray], bool]) -> Instruction | None:
    """The scalar n, where a value's rows from n on are one constant, of which `is_other` is true."""
    value, fusion = _inside(value)
    while isinstance(value.op, Reshape) and _reads_same_rows(value, 0):
        value = value.operands[0]
    if not (isinstance(value.op, Elementwise) and value.op.name == "select"):
        return None
    other = _splat(value.operands[2], fusion)
    if other is None or not is_other(other):
        return None
    size = _mask_size(value.operands[0])
    return size if fusion is None else _of_operand(fusion, size)


def _inside(value: Instruction) -> tuple[Instruction, Instruction | None]:
    """The instruction that computes a value, and the fusion that it is in, if it is in one."""
    part = 0
    if isinstance(value.op, GetTupleElement) and isinstance(value.operands[0].op, Fusion):
        part, value = value.op.index, value.operands[0]
    if not isinstance(value.op, Fusion):
        return value, None
    root = value.op.computation.root
    return root.operands[part] if isinstance(root.op, Tuple) else root, value


def _splat(value: Instruction, fusion: Instruction | None) -> np.ndarray | None:
    """The number that all elements of a value are, which is in a fusion or in the entry."""
    if fusion is None:
        value, fusion = _inside(value)
    while isinstance(value.op, Broadcast):
        value = value.operands[0]
    if isinstance(value.op, Constant):
        return value.op.literal.array
    outer = fusion and _of_operand(fusion, value)
    return None if outer is None else _splat(outer, None)


def _of_operand(fusion: Instruction, parameter: Instruction | None) -> Instruction | None:
    """The operand of a fusion that is one of its computation's parameters."""
    assert isinstance(fusion.op, Fusion)
    parameters = fusion.op.computation.parameters
    return fusion.operands[parameters.index(parameter)] if parameter in parameters else None


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
