"""Matrices by builder: QR by Householder's reflections, eigenvalues and singular values by Jacobi's rotations,
tridiagonal systems. Each is a loop of steps on whole matrices, batches of them at once; element types are f32, f64, c64
and c128.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.element_types import ElementType
from ...ir.shape import Shape
from ..computation_builder import ComputationBuilder, Operand
from ..derived import binary_computation
from .loops import repeated, until

_PRED, _S32 = ElementType.PRED, ElementType.S32
_SWEEPS = 40
_TALL = 1.5  # rows to a column from which on it pays to take an orthogonal factor out before rotations


def line(b: ComputationBuilder, x: Operand, number: Operand, axis: int) -> Operand:
    """One row or column, its axis kept."""
    dims = b.get_shape(x).dims
    zero = b.constant(0, _S32)
    starts = [number if a == axis else zero for a in range(len(dims))]
    return b.dynamic_slice(x, starts, [1 if a == axis else d for a, d in enumerate(dims)])


def with_line(b: ComputationBuilder, x: Operand, new: Operand, number: Operand, axis: int) -> Operand:
    """The array with one row or column replaced."""
    zero = b.constant(0, _S32)
    starts = [number if a == axis else zero for a in range(len(b.get_shape(x).dims))]
    return b.dynamic_update_slice(x, new, starts)


def places(b: ComputationBuilder, dims: Sequence[int], axis: int) -> Operand:
    """The number of every element's row or column, s32."""
    return b.iota(Shape(_S32, tuple(dims)), axis)


def transposed(b: ComputationBuilder, x: Operand) -> Operand:
    """The matrices transposed."""
    rank = b.get_shape(x).rank
    return b.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def adjoint(b: ComputationBuilder, x: Operand) -> Operand:
    """The matrices transposed and conjugated."""
    return b.conj(transposed(b, x))


def _sum(b: ComputationBuilder, x: Operand, axes: Sequence[int], op: str = "add") -> Operand:
    """A sum, or another reduction that starts with zero."""
    type_ = b.get_shape(x).element_type
    return b.reduce(x, b.constant(0, type_), binary_computation(op, type_), tuple(axes))


def column_sum(b: ComputationBuilder, x: Operand) -> Operand:
    """The sums of columns, their axis kept."""
    dims = b.get_shape(x).dims
    return b.reshape(_sum(b, x, [len(dims) - 2]), (*dims[:-2], 1, dims[-1]))


def _sorted(b: ComputationBuilder, rows: Operand, is_descending: bool) -> tuple[Operand, Operand]:
    """The elements of the last axis in order, and the places that they come from."""
    shape = b.get_shape(rows)
    before = b.create_sub_builder("before")
    x, y = (before.parameter(k, Shape(shape.element_type), name) for k, name in enumerate("xy"))
    for k, name in enumerate(("at_x", "at_y")):
        before.parameter(k + 2, Shape(_S32), name)
    order = before.build(before.gt(x, y) if is_descending else before.lt(x, y))
    both = b.sort([rows, places(b, shape.dims, shape.rank - 1)], order, shape.rank - 1, is_stable=True)
    return b.get_tuple_element(both, 0), b.get_tuple_element(both, 1)


def _in_order(b: ComputationBuilder, matrices: Operand, order: Operand) -> Operand:
    """The rows of matrices in an order."""
    dims = b.get_shape(matrices).dims
    axis = len(dims) - 2
    return b.gather(
        matrices,
        order,
        offset_dims=[axis + 1],
        collapsed_slice_dims=[axis],
        start_index_map=[axis],
        index_vector_dim=axis + 1,
        slice_sizes=[1] * (axis + 1) + [dims[-1]],
        operand_batching_dims=range(axis),
        start_indices_batching_dims=range(axis),
    )


def _stretched(b: ComputationBuilder, x: Operand, dims: Sequence[int]) -> Operand:
    """With axes of size 1 as long as wanted."""
    return b.broadcast_in_dim(x, dims, range(len(dims)))


def real_type(b: ComputationBuilder, x: Operand) -> ElementType:
    return {ElementType.C64: ElementType.F32, ElementType.C128: ElementType.F64}.get(
        b.get_shape(x).element_type, b.get_shape(x).element_type
    )


def _real(b: ComputationBuilder, x: Operand) -> Operand:
    return b.real(x) if b.get_shape(x).element_type.is_complex else x


def _typed(b: ComputationBuilder, x: Operand, type_: ElementType) -> Operand:
    return b.convert_element_type(x, type_)


def _squares(b: ComputationBuilder, x: Operand) -> Operand:
    """|x|^2, real."""
    if not b.get_shape(x).element_type.is_complex:
        return x * x
    return b.real(x) * b.real(x) + b.imag(x) * b.imag(x)


def product(b: ComputationBuilder, x: Operand, y: Operand) -> Operand:
    """The matrix product of two batches of matrices."""
    rank = b.get_shape(x).rank
    batch = list(range(rank - 2))
    return b.dot_general(x, y, ([rank - 1], [rank - 2]), (batch, batch))


def unit(b: ComputationBuilder, dims: Sequence[int], type_: ElementType) -> Operand:
    """Unit matrices."""
    rank = len(dims)
    return b.convert_element_type(b.eq(places(b, dims, rank - 2), places(b, dims, rank - 1)), type_)


# -- QR


def reflection(b: ComputationBuilder, column: Operand, number: Operand) -> tuple[Operand, Operand]:
    """(v, tau) of the reflection 1 - tau v v^H that clears a column [..., m, 1] below an element.

    Source: Eigen, Householder.h: the element that stays has the sign opposite to the old one's.
    """
    shape = b.get_shape(column)
    rows = places(b, shape.dims, shape.rank - 2)
    nothing = b.full_like(column, 0)
    tail = b.select(b.gt(rows, number), column, nothing)
    head = column_sum(b, b.select(b.eq(rows, number), column, nothing))
    rest = column_sum(b, _squares(b, tail))
    norm = b.sqrt(_squares(b, head) + rest)
    tiny = b.full_like(rest, float(np.finfo(real_type(b, column).dtype).tiny))
    is_done = b.le(rest, tiny)
    if shape.element_type.is_complex:
        is_done = b.and_(is_done, b.le(b.imag(head) * b.imag(head), tiny))
    beta = _typed(b, b.select(b.ge(_real(b, head), b.full_like(norm, 0)), -norm, norm), shape.element_type)
    beta = b.select(is_done, b.full_like(beta, 1), beta)
    gap = b.select(is_done, b.full_like(head, 1), head - beta)
    v = tail / _stretched(b, gap, shape.dims)
    v = b.select(b.eq(rows, number), b.full_like(v, 1), v)
    tau = b.select(is_done, b.full_like(head, 0), b.conj((beta - head) / beta))
    return v, tau


def reflected(b: ComputationBuilder, x: Operand, v: Operand, tau: Operand) -> Operand:
    """x - tau v (v^H x)."""
    dims = b.get_shape(x).dims
    along = product(b, adjoint(b, v), x)
    scaled = v * _stretched(b, tau, b.get_shape(v).dims)
    return x - _stretched(b, scaled, dims) * _stretched(b, along, dims)


def qr(b: ComputationBuilder, x: Operand, full: bool) -> tuple[Operand, Operand]:
    """(q, r) with x = q r; q is square when `full`, else as wide as the smaller side."""
    *outer, rows, columns = b.get_shape(x).dims
    least, type_, rank = min(rows, columns), b.get_shape(x).element_type, len(outer) + 2
    size = rows if full else least
    taus = b.broadcast(b.constant(0, type_), (*outer, 1, least))
    vectors = b.broadcast(b.constant(0, type_), (*outer, rows, least))

    def forward(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        r, vectors, taus = values
        v, tau = reflection(b, line(b, r, number, rank - 1), number)
        return (
            reflected(b, r, v, tau),
            with_line(b, vectors, v, number, rank - 1),
            with_line(b, taus, tau, number, rank - 1),
        )

    r, vectors, taus = repeated(b, least, [x, vectors, taus], forward)

    def back(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        q, vectors, taus = values
        at = b.constant(least - 1, _S32) - number
        q = reflected(b, q, line(b, vectors, at, rank - 1), b.conj(line(b, taus, at, rank - 1)))
        return q, vectors, taus

    q = repeated(b, least, [unit(b, (*outer, rows, size), type_), vectors, taus], back)[0]
    r = b.slice_in_dim(r, 0, size, 1, rank - 2)
    dims = b.get_shape(r).dims
    upper = b.le(places(b, dims, rank - 2), places(b, dims, rank - 1))
    return q, b.select(upper, r, b.full_like(r, 0))


# -- Jacobi's rotations: columns are paired anew in every step, so that each sweep pairs every two once


def _rotation(b: ComputationBuilder, first: Operand, last: Operand, cross: Operand) -> tuple[Operand, ...]:
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
    phase = b.select(none, b.full_like(cross, 1), cross / _typed(b, safe, type_))
    return _typed(b, c, type_), _typed(b, s, type_), phase


def _turned(
    b: ComputationBuilder, left: Operand, right: Operand, rotation: Sequence[Operand], axis: int
) -> tuple[Operand, Operand]:
    """Columns (axis -1) or rows (axis -2) after a rotation; the latter by its adjoint."""
    dims = b.get_shape(left).dims
    kept = [*range(len(dims) - 2), len(dims) - 1 if axis == -1 else len(dims) - 2]
    c, s, phase = rotation
    phase = b.conj(phase) if axis == -1 else phase
    c, s, cp, sp = (b.broadcast_in_dim(v, dims, kept) for v in (c, s, c * phase, s * phase))
    return left * c - right * sp, left * s + right * cp


def _next_pairs(b: ComputationBuilder, left: Operand, right: Operand, axis: int) -> tuple[Operand, Operand]:
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


def _halves(b: ComputationBuilder, x: Operand, axis: int) -> tuple[Operand, Operand]:
    axis += b.get_shape(x).rank
    size = b.get_shape(x).dims[axis]
    return b.slice_in_dim(x, 0, size // 2, 1, axis), b.slice_in_dim(x, size // 2, size, 1, axis)


def _diagonal(b: ComputationBuilder, x: Operand) -> Operand:
    dims = b.get_shape(x).dims
    on = b.eq(places(b, dims, len(dims) - 2), places(b, dims, len(dims) - 1))
    return _sum(b, b.select(on, x, b.full_like(x, 0)), [len(dims) - 2])


def _even(b: ComputationBuilder, x: Operand, axis: int) -> Operand:
    """With a line of zeros more where the number is odd."""
    axis += b.get_shape(x).rank
    return b.pad_in_dim(x, b.scalar_like(x, 0), axis, 0, b.get_shape(x).dims[axis] % 2)


def _epsilon(b: ComputationBuilder, x: Operand) -> float:
    return float(np.finfo(real_type(b, x).dtype).eps)


def eigh(b: ComputationBuilder, x: Operand) -> tuple[Operand, Operand]:
    """(eigenvalues in ascending order, eigenvectors as columns) of Hermitian matrices, whose lower halves are read."""
    dims, type_ = b.get_shape(x).dims, b.get_shape(x).element_type
    rank, size = len(dims), dims[-1]
    lower, across = b.gt(places(b, dims, rank - 2), places(b, dims, rank - 1)), adjoint(b, x)
    on = b.eq(places(b, dims, rank - 2), places(b, dims, rank - 1))
    x = b.select(lower, x, b.select(on, _typed(b, _real(b, x), type_), across))
    if size > 1:
        values, vectors = _eigh_sweeps(b, x)
    else:
        values, vectors = b.reshape(_real(b, x), dims[:-1]), b.broadcast(b.constant(1, type_), dims)
    values, order = _sorted(b, values, False)
    return values, transposed(b, _in_order(b, transposed(b, vectors), order))


def _eigh_sweeps(b: ComputationBuilder, x: Operand) -> tuple[Operand, Operand]:
    dims, rank = b.get_shape(x).dims, b.get_shape(x).rank
    size, epsilon = dims[-1], _epsilon(b, x)
    x = _even(b, _even(b, x, -1), -2)
    half = b.get_shape(x).dims[-1] // 2
    quarters = [q for part in _halves(b, x, -2) for q in _halves(b, part, -1)]
    full = b.get_shape(x).dims
    vectors = list(_halves(b, unit(b, full, b.get_shape(x).element_type), -1))

    def step(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        tl, tr, bl, br, left, right = values
        rotation = _rotation(b, _real(b, _diagonal(b, tl)), _real(b, _diagonal(b, br)), _diagonal(b, tr))
        tl, tr = _turned(b, tl, tr, rotation, -1)
        bl, br = _turned(b, bl, br, rotation, -1)
        tl, bl = _turned(b, tl, bl, rotation, -2)
        tr, br = _turned(b, tr, br, rotation, -2)
        left, right = _turned(b, left, right, rotation, -1)
        on = unit(b, b.get_shape(tr).dims, _PRED)
        tr, bl = (b.select(on, b.full_like(v, 0), v) for v in (tr, bl))
        (tl, tr), (bl, br) = _next_pairs(b, tl, tr, -1), _next_pairs(b, bl, br, -1)
        (tl, bl), (tr, br) = _next_pairs(b, tl, bl, -2), _next_pairs(b, tr, br, -2)
        return tl, tr, bl, br, *_next_pairs(b, left, right, -1)

    def sweep(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        after = repeated(b, 2 * half - 1, values[:-1], step)
        quarters = after[:4]
        total = _norms(b, quarters)
        inner = unit(b, b.get_shape(quarters[0]).dims, _PRED)
        off = [b.select(inner, b.full_like(q, 0), q) for q in (quarters[0], quarters[3])]
        left = b.gt(_norms(b, [*off, *quarters[1:3]]), total * b.scalar_like(total, epsilon * epsilon))
        return *after, left

    outer = dims[:-2]
    start = b.broadcast(b.constant(True, _PRED), outer)
    tl, _, _, br, left, right, _ = until(b, _SWEEPS, [*quarters, *vectors, start], sweep)
    values = b.concat_in_dim([_real(b, _diagonal(b, tl)), _real(b, _diagonal(b, br))], rank - 2)
    vectors_joined = b.concat_in_dim([left, right], rank - 1)
    # The line that was added stays where it was: it never is rotated.
    return (
        b.slice_in_dim(values, 0, size, 1, rank - 2),
        b.slice_in_dim(b.slice_in_dim(vectors_joined, 0, size, 1, rank - 1), 0, size, 1, rank - 2),
    )


def _norms(b: ComputationBuilder, parts: Sequence[Operand]) -> Operand:
    rank = b.get_shape(parts[0]).rank
    sums = [_sum(b, _squares(b, p), [rank - 2, rank - 1]) for p in parts]
    total = sums[0]
    for one in sums[1:]:
        total = total + one
    return total


def svd(b: ComputationBuilder, x: Operand, full: bool) -> tuple[Operand, Operand, Operand]:
    """(singular values in descending order, u, v) with x = u diag(s) v^H, by one-sided rotations."""
    *outer, rows, columns = b.get_shape(x).dims
    if rows < columns:
        s, v, u = svd(b, adjoint(b, x), full)
        return s, u, v
    if rows > _TALL * columns:
        return _svd_of_tall(b, x, full)
    rank, type_ = len(outer) + 2, b.get_shape(x).element_type
    scaled, right = _svd_sweeps(b, x)
    s, order = _sorted(b, b.sqrt(_sum(b, _squares(b, scaled), [rank - 2])), True)
    left_rows = _in_order(b, transposed(b, scaled), order)
    right_rows = _in_order(b, transposed(b, right), order)
    divisor = b.select(b.eq(s, b.full_like(s, 0)), b.full_like(s, 1), s)
    left_dims = b.get_shape(left_rows).dims
    left_rows = left_rows / _typed(b, b.broadcast_in_dim(divisor, left_dims, range(rank - 1)), type_)
    # Columns of zeros become a basis of the rest; the others change their sign at most.
    q, r = qr(b, transposed(b, left_rows), full)
    signs = _diagonal(b, b.slice_in_dim(r, 0, columns, 1, rank - 2))
    nothing = b.eq(b.abs(signs), b.full_like(b.abs(signs), 0))
    signs = b.select(
        nothing,
        b.full_like(signs, 1),
        signs / _typed(b, b.select(nothing, b.full_like(b.abs(signs), 1), b.abs(signs)), type_),
    )
    more = b.get_shape(q).dims[-1] - columns
    signs = b.pad_in_dim(signs, b.constant(1, type_), rank - 2, 0, more)
    u = q * b.broadcast_in_dim(signs, b.get_shape(q).dims, [*range(rank - 2), rank - 1])
    return s, u, transposed(b, right_rows)


def _svd_of_tall(b: ComputationBuilder, x: Operand, full: bool) -> tuple[Operand, Operand, Operand]:
    """With x = q r, u is q times that of r, which has fewer rows to rotate."""
    columns = b.get_shape(x).dims[-1]
    q, r = qr(b, x, full)
    rank = b.get_shape(q).rank
    s, u, v = svd(b, b.slice_in_dim(r, 0, columns, 1, rank - 2), False)
    size = b.get_shape(q).dims[-1]
    u = product(b, b.slice_in_dim(q, 0, columns, 1, rank - 1), u)
    if size > columns:
        u = b.concat_in_dim([u, b.slice_in_dim(q, columns, size, 1, rank - 1)], rank - 1)
    return s, u, v


def _svd_sweeps(b: ComputationBuilder, x: Operand) -> tuple[Operand, Operand]:
    """(x v with orthogonal columns, v)."""
    *outer, _, columns = b.get_shape(x).dims
    rank, epsilon = len(outer) + 2, _epsilon(b, x)
    vectors = unit(b, (*outer, columns, columns), b.get_shape(x).element_type)
    if columns < 2:
        return x, vectors
    x, vectors = _even(b, x, -1), _even(b, vectors, -1)
    half = b.get_shape(x).dims[-1] // 2
    real = real_type(b, x)

    def step(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        left, right, v_left, v_right, worst = values
        first, last = (_sum(b, _squares(b, v), [rank - 2]) for v in (left, right))
        cross = _sum(b, b.conj(left) * right, [rank - 2])
        size = b.sqrt(first) * b.sqrt(last)
        floor = b.full_like(size, float(np.finfo(real.dtype).tiny))
        angle = b.select(b.gt(size, floor), b.abs(cross) / b.max(size, floor), b.full_like(size, 0))
        small = b.le(angle, b.full_like(angle, epsilon))
        cross = b.select(small, b.full_like(cross, 0), cross)
        rotation = _rotation(b, first, last, cross)
        left, right = _turned(b, left, right, rotation, -1)
        v_left, v_right = _turned(b, v_left, v_right, rotation, -1)
        worst = b.max(worst, _sum(b, angle, [rank - 2], "maximum"))
        return *_next_pairs(b, left, right, -1), *_next_pairs(b, v_left, v_right, -1), worst

    def sweep(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        worst = b.broadcast(b.constant(0, real), outer)
        *after, worst = repeated(b, 2 * half - 1, [*values[:-1], worst], step)
        return *after, b.gt(worst, b.scalar_like(worst, epsilon * 4))

    start = b.broadcast(b.constant(True, _PRED), outer)
    left, right, v_left, v_right, _ = until(
        b, _SWEEPS, [*_halves(b, x, -1), *_halves(b, vectors, -1), start], sweep
    )
    scaled, vectors = b.concat_in_dim([left, right], rank - 1), b.concat_in_dim([v_left, v_right], rank - 1)
    return b.slice_in_dim(scaled, 0, columns, 1, rank - 1), b.slice_in_dim(vectors, 0, columns, 1, rank - 1)


# -- tridiagonal systems


def tridiagonal(b: ComputationBuilder, diagonals: Operand, rhs: Operand, is_pivoting: bool) -> Operand:
    """x of systems whose upper, main and lower diagonals are the rows of `diagonals`; the upper one's last element and
    the lower one's first are not read.

    Elimination row by row, the larger of two rows first where pivots are wanted; then substitution from the end.
    """
    right, type_ = b.get_shape(rhs).dims, b.get_shape(rhs).element_type
    *outer, size, count = right
    batch = int(np.prod(outer, dtype=np.int64))
    # [size, batch, (lower, main, upper, right-hand sides)], upper's and lower's unused elements as zeros
    bands = b.transpose(b.reshape(diagonals, (batch, 3, size)), (2, 0, 1))
    upper, main, lower = (b.slice_in_dim(bands, k, k + 1, 1, 2) for k in range(3))
    number = places(b, (size, batch, 1), 0)
    lower = b.select(b.eq(number, b.constant(0, _S32)), b.full_like(lower, 0), lower)
    upper = b.select(b.eq(number, b.constant(size - 1, _S32)), b.full_like(upper, 0), upper)
    rhs = b.transpose(b.reshape(rhs, (batch, size, count)), (1, 0, 2))
    zero = b.full_like(main, 0)
    rows = b.concat_in_dim([lower, main, upper, zero, rhs], 2)
    current = b.slice_in_dim(b.slice_in_dim(rows, 0, 1, 1, 0), 1, 4 + count, 1, 2)
    done = b.broadcast(b.constant(0, type_), (size, batch, 3 + count))
    current, rows, done = repeated(
        b, size - 1, [current, rows, done], lambda b, at, values: _eliminated_row(b, at, values, is_pivoting)
    )
    done = with_line(b, done, current, b.constant(size - 1, _S32), 0)
    x = _substituted(b, done, size, batch, count)
    return b.reshape(b.transpose(x, (1, 0, 2)), right)


def _eliminated_row(
    b: ComputationBuilder, number: Operand, values: list[Operand], pivoting: bool
) -> Sequence[Operand]:
    current, rows, done = values
    _, batch, width = b.get_shape(current).dims
    following = line(b, rows, number + b.constant(1, _S32), 0)
    below = b.concat_in_dim(
        [b.slice_in_dim(following, 0, 3, 1, 2), b.slice_in_dim(following, 4, width + 1, 1, 2)], 2
    )
    head, other = (b.slice_in_dim(v, 0, 1, 1, 2) for v in (current, below))
    swap = b.lt(b.abs(head), b.abs(other))
    if not pivoting:
        swap = b.full_like(swap, False)
    wide = b.broadcast_in_dim(swap, (1, batch, width), [0, 1, 2])
    pivot, rest = b.select(wide, below, current), b.select(wide, current, below)
    top, low = (b.slice_in_dim(v, 0, 1, 1, 2) for v in (pivot, rest))
    factor = b.broadcast_in_dim(low / top, (1, batch, width), [0, 1, 2])
    rest = rest - factor * pivot
    moved = b.concat_in_dim(
        [b.slice_in_dim(rest, 1, 3, 1, 2), b.full_like(head, 0), b.slice_in_dim(rest, 3, width, 1, 2)], 2
    )
    return moved, rows, with_line(b, done, pivot, number, 0)


def _substituted(b: ComputationBuilder, rows: Operand, size: int, batch: int, count: int) -> Operand:
    type_ = b.get_shape(rows).element_type
    nothing = b.broadcast(b.constant(0, type_), (1, batch, count))

    def step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        rows, x, first, second = values
        at = b.constant(size - 1, _S32) - number
        row = line(b, rows, at, 0)
        main, one, two = (
            _stretched(b, b.slice_in_dim(row, k, k + 1, 1, 2), (1, batch, count)) for k in range(3)
        )
        new = (b.slice_in_dim(row, 3, 3 + count, 1, 2) - one * first - two * second) / main
        return rows, with_line(b, x, new, at, 0), new, first

    x = b.broadcast(b.constant(0, type_), (size, batch, count))
    return repeated(b, size, [rows, x, nothing, nothing], step)[1]
