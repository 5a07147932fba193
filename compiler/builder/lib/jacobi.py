"""Jacobi rotations: every step pairs the columns in another way, so that each sweep has every pair once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..computation_builder import ComputationBuilder, Operand
from .matrices import converted, real_type


def jacobi_rotation(
    b: ComputationBuilder, first: Operand, last: Operand, cross: Operand
) -> tuple[Operand, ...]:
    """(c, s, phase) that make [[first, cross], [conj(cross), last]] diagonal; first and last are real.

    The new columns are c p - s conj(phase) q and s p + c conj(phase) q.
    """
    size = b.abs(cross)
    one, zero = b.full_like(size, 1), b.full_like(size, 0)
    none = b.eq(size, zero)
    safe = b.select(none, one, size)
    tau = (last - first) / (safe * b.scalar_like(safe, 2))
    root = one / (b.abs(tau) + b.sqrt(one + tau * tau))
    t = b.select(b.lt(tau, zero), -root, root)
    t = b.select(none, zero, t)
    c = one / b.sqrt(one + t * t)
    s = t * c
    type_ = b.get_shape(cross).element_type
    phase = b.select(none, b.full_like(cross, 1), cross / converted(b, safe, type_))
    return converted(b, c, type_), converted(b, s, type_), phase


def rotated(
    b: ComputationBuilder, left: Operand, right: Operand, rotation: Sequence[Operand], axis: int
) -> tuple[Operand, Operand]:
    """Columns (axis -1) or rows (axis -2) after a rotation; the latter by its adjoint."""
    dims = b.get_shape(left).dims
    result_axes = [*range(len(dims) - 2), len(dims) - 1 if axis == -1 else len(dims) - 2]
    c, s, phase = rotation
    phase = b.conj(phase) if axis == -1 else phase
    c, s, cp, sp = (b.broadcast_in_dim(v, dims, result_axes) for v in (c, s, c * phase, s * phase))
    return left * c - right * sp, left * s + right * cp


def next_pairs(b: ComputationBuilder, left: Operand, right: Operand, axis: int) -> tuple[Operand, Operand]:
    """The columns (or rows) paired for the next step: all but the first move on one place around a circle."""
    axis += b.get_shape(left).rank
    size = b.get_shape(left).dims[axis]
    if size < 2:
        return left, right

    def part(x: Operand, start: int, end: int) -> Operand:
        return b.slice_in_dim(x, start, end, 1, axis)

    return (
        b.concat_in_dim([part(left, 0, 1), part(right, 0, 1), part(left, 1, size - 1)], axis),
        b.concat_in_dim([part(right, 1, size), part(left, size - 1, size)], axis),
    )


def halves(b: ComputationBuilder, x: Operand, axis: int) -> tuple[Operand, Operand]:
    axis += b.get_shape(x).rank
    size = b.get_shape(x).dims[axis]
    return b.slice_in_dim(x, 0, size // 2, 1, axis), b.slice_in_dim(x, size // 2, size, 1, axis)


def even_sized(b: ComputationBuilder, x: Operand, axis: int) -> Operand:
    """With a line of zeros more where the number is odd."""
    axis += b.get_shape(x).rank
    return b.pad_in_dim(x, b.scalar_like(x, 0), axis, 0, b.get_shape(x).dims[axis] % 2)


def type_epsilon(b: ComputationBuilder, x: Operand) -> float:
    return float(np.finfo(real_type(b, x).dtype).eps)
