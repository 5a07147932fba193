"""Reshapes of products move behind the elementwise instructions that read them, where they change the last axis.

    d = f32[64,128] dot(x, w)                              d = f32[64,128] dot(x, w)
    h = f32[64,4,32] reshape(d)                            b = f32[64,128] broadcast(reshape(bias)), dimensions={1}
    b = f32[64,4,32] broadcast(bias), dimensions={1,2} =>  a = f32[64,128] add(d, b)
    a = f32[64,4,32] add(h, b)                             h = f32[64,4,32] reshape(a)

What follows a product along its own columns is computed with it (analysis/epilogue_chains.py): the biases of an
attention's heads, say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...runtime.sizes import AnySize, is_symbolic
from ..ir.module import Computation, Instruction, Module, make
from ..ops import Broadcast, Convolution, Dot, Reshape
from ..options import Options


def sink_reshapes(module: Module, options: Options) -> Module:
    """The module with such reshapes behind what is computed of products, numbers and rows."""
    return module.map_computations(_sink)


def _sink(computation: Computation) -> Computation:
    if not computation.has_op(Convolution, Dot) or not computation.has_op(Reshape):
        return computation
    sources: dict[Instruction, Instruction] = {}  # by such a reshape: the product, or what is computed of it

    def change(instruction: Instruction) -> Instruction | None:
        if isinstance(instruction.op, Reshape):
            (product,) = instruction.operands
            if product.op.is_contraction and _last_axes(product, instruction) not in (None, (1, 1)):
                sources[instruction] = product
            return None
        source = _computed_before(instruction, sources) if instruction.op.is_elementwise else None
        if source is None:
            return None
        reshape = make(Reshape(instruction.shape.dims), source, metadata=instruction.metadata)
        sources[reshape] = source
        return reshape

    return computation.rewrite(change)


def _last_axes(a: Instruction, b: Instruction) -> tuple[int, int] | None:
    """How many of the last axes of two arrays with as many elements are the same part of both: as few as can be; None
    where a size among them is known at run time only. `axis_groups` would compare the sizes of all axes."""
    if not a.shape.rank or not b.shape.rank:
        return None
    counts, sizes = [1, 1], [a.shape.dims[-1], b.shape.dims[-1]]
    while not is_symbolic(sizes) and sizes[0] != sizes[1]:
        shorter = int(sizes[1] < sizes[0])
        dims = (a, b)[shorter].shape.dims
        if counts[shorter] == len(dims):
            return None
        counts[shorter] += 1
        sizes[shorter] = math.prod(dims[-counts[shorter] :])
    return None if is_symbolic(sizes) else (counts[0], counts[1])


def _computed_before(
    instruction: Instruction, sources: Mapping[Instruction, Instruction]
) -> Instruction | None:
    """An elementwise instruction of what its operands reshape; None where others are no numbers or rows."""
    reshapes = [o for o in instruction.operands if o in sources]
    if not reshapes:
        return None
    first = sources[reshapes[0]]
    operands: list[Instruction] = []
    for operand in instruction.operands:
        if not operand.shape.rank:
            before: Instruction | None = operand
        elif operand in sources:
            before = sources[operand] if _have_same_dims(sources[operand], first) else None
        else:
            before = _repeated(operand, first, reshapes[0])
        if before is None:
            return None
        operands.append(before)
    return make(instruction.op, *operands, name=instruction.name, metadata=instruction.metadata)


def _have_same_dims(a: Instruction, b: Instruction) -> bool:
    """Whether they have, for all values of sizes known at run time only."""

    def is_zero(difference: AnySize) -> bool:
        return isinstance(difference, int) and difference == 0

    return a.shape.rank == b.shape.rank and all(is_zero(x - y) for x, y in zip(a.shape.dims, b.shape.dims))


def _repeated(operand: Instruction, source: Instruction, reshape: Instruction) -> Instruction | None:
    """A number, or a row along all of the last axes, repeated in the shape of `source` instead of that of `reshape`;
    None of other operands."""
    if not isinstance(operand.op, Broadcast):
        return None
    (row,), axes, dims = operand.operands, operand.op.dimensions, source.shape.dims
    if not row.shape.rank:
        return make(Broadcast(dims, ()), row, metadata=operand.metadata)
    counts = _last_axes(source, reshape)
    assert counts is not None
    before, after = counts
    last = tuple(range(operand.shape.rank - after, operand.shape.rank))
    if axes != last or row.shape.dims != operand.shape.dims[-after:]:
        return None
    joined = make(Reshape(dims[-before:]), row, metadata=operand.metadata)
    return make(
        Broadcast(dims, tuple(range(len(dims) - before, len(dims)))), joined, metadata=operand.metadata
    )
