"""What a kernel launch has to compute and to move, counted from the IR: the terms of a roofline.

Flops: two per term of a product or convolution, one per element of an arithmetic operation (whatever it costs: an
exponential counts as one), one per element that a reduction takes in and operation of its computation. Bytes: every
input once and every output once, whether they lie in a cache or not; of an input that is only sliced or gathered
from, and of an output that is updated in place, the part that is touched. Both are of one launch: what a loop runs
again counts again at every call, and the profile says how many there were.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from ..cpu.kernel_emitters import as_computation, updated_operands
from ..ir.module import Computation, Instruction
from ..ops import ROWS, Convolution, Dot, Fft, Fusion, Op, Reduce, ReduceWindow

_PARTIAL_READS = frozenset({"slice", "dynamic-slice", "gather"})  # of their first operand
_ARITHMETIC = (frozenset(ROWS) | {"compare", "clamp", "select"}) - {"real", "imag", "complex", "copy"}


def flops(instruction: Instruction) -> int:
    """Operations on numbers of an instruction, those inside of a fusion too."""
    if isinstance(instruction.op, Fusion):
        return sum(map(flops, instruction.op.computation.instructions))
    if instruction.opcode in _ARITHMETIC:
        return instruction.shape.elements
    counted = _FLOPS.get(instruction.opcode)
    return 0 if counted is None else counted(instruction)


def moved_bytes(instruction: Instruction) -> int:
    """Bytes that an instruction's kernel must read and write."""
    computation = _computation(instruction)
    updated = dict(updated_operands(instruction))
    reads = sum(
        _read_bytes(p, computation) for k, p in enumerate(computation.parameters) if k not in updated.values()
    )
    return reads + sum(
        _updated_bytes(instruction) if k in updated else leaf.bytes
        for k, leaf in enumerate(instruction.shape.leaves())
    )


def _computation(instruction: Instruction) -> Computation:
    return instruction.op.computation if isinstance(instruction.op, Fusion) else as_computation(instruction)


def _read_bytes(parameter: Instruction, computation: Computation) -> int:
    """Bytes of a parameter that are read: all, unless every reader takes a part."""
    readers = [i for i in computation.instructions if parameter in i.operands]
    whole = sum(leaf.bytes for leaf in parameter.shape.leaves())
    if not readers or any(i.opcode not in _PARTIAL_READS or parameter in i.operands[1:] for i in readers):
        return whole
    return min(whole, sum(i.shape.bytes for i in readers))


def _updated_bytes(instruction: Instruction) -> int:
    """Bytes read and written of an output that is updated in place."""
    if instruction.opcode == "dynamic-update-slice":
        return instruction.operands[1].shape.bytes
    if instruction.opcode == "scatter":
        return 2 * instruction.operands[-1].shape.bytes
    return 2 * next(iter(instruction.shape.leaves())).bytes


def _first(instruction: Instruction) -> Instruction:
    return instruction.operands[0]


def _dot(instruction: Instruction) -> int:
    axes = cast(Dot, instruction.op).lhs_contracting
    return 2 * instruction.shape.elements * math.prod(_first(instruction).shape.dims[a] for a in axes)


def _convolution(instruction: Instruction) -> int:
    dims, kernel = cast(Convolution, instruction.op).dims, instruction.operands[1].shape.dims
    terms = kernel[dims.kernel_input_feature] * math.prod(kernel[a] for a in dims.kernel_spatial)
    return 2 * instruction.shape.elements * terms


def _operations(op: Op) -> int:
    """Arithmetic operations of the scalar computation that a reduction applies; at least one."""
    return max(1, sum(i.opcode in _ARITHMETIC for i in cast(Reduce | ReduceWindow, op).to_apply.instructions))


def _reduce(instruction: Instruction) -> int:
    return _first(instruction).shape.elements * _operations(instruction.op)


def _reduce_window(instruction: Instruction) -> int:
    outputs = next(iter(instruction.shape.leaves())).elements
    sizes = cast(ReduceWindow, instruction.op).window.size
    return outputs * math.prod(sizes) * _operations(instruction.op)


def _fft(instruction: Instruction) -> int:
    lengths = cast(Fft, instruction.op).fft_length
    elements = max(_first(instruction).shape.elements, instruction.shape.elements)
    return int(5 * elements * math.log2(max(2, math.prod(lengths))))


def _cholesky(instruction: Instruction) -> int:
    return instruction.shape.elements * instruction.shape.dims[-1] // 3


def _triangular_solve(instruction: Instruction) -> int:
    return instruction.shape.elements * _first(instruction).shape.dims[-1]


_FLOPS: dict[str, Callable[[Instruction], int]] = {
    "dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "select-and-scatter": lambda i: _first(i).shape.elements,
    "scatter": lambda i: i.operands[-1].shape.elements,
    "fft": _fft,
    "cholesky": _cholesky,
    "triangular-solve": _triangular_solve,
}
