"""Diagonals and bands of matrices, cross products, tridiagonal products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ....runtime.sizes import smaller
from ..array.gather import gather_axis
from ..node import Node
from ..operands.value_ranges import check_indices
from ..registry import translates

_S64 = ElementType.S64


@translates("MatrixBandPart")
def band_part(node: Node) -> Operand:
    """Elements on at most num_lower diagonals below and num_upper above the main one; negative: all. Both are data."""
    b, shape = node.b, node.array_shape(0)
    for which, size in ((1, shape.dims[-2]), (2, shape.dims[-1])):
        check_indices(node, node[which], size + 1, low=None)
    row, column = (b.iota(Shape(_S64, shape.dims), shape.rank - k) for k in (2, 1))
    sides = []
    for limit, distance in ((node[1], row - column), (node[2], column - row)):
        limit = b.convert_element_type(limit, _S64)
        sides.append(b.or_(b.lt(limit, b.constant(0, _S64)), b.le(distance, limit)))
    return b.select(b.and_(*sides), node[0], b.broadcast(b.scalar_like(node[0], 0), shape.dims))


def _picked(
    node: Node, source: Operand, dims: Sequence[int], places: np.ndarray, padding: Operand
) -> Operand:
    """Elements of the source's axes after `dims`, flattened, at constant places; the padding where negative."""
    b, shape = node.b, node.b.get_shape(source)
    size = math.prod(shape.dims[len(dims) :])
    rows = b.reshape(source, (*dims, size))
    rows = b.concat_in_dim([rows, b.broadcast(padding, (*dims, 1))], len(dims))
    flat = np.where(places < 0, size, places).ravel()
    taken = gather_axis(node, rows, b.constant(flat, _S64), len(dims), 0)
    return b.reshape(taken, (*dims, *places.shape))


def _on_diagonal(node: Node, diagonal: Operand, number: int, others: Operand) -> Operand:
    """The matrices `others` with one diagonal replaced; `diagonal` is [..., its length]."""
    b, dims = node.b, node.b.get_shape(others).dims
    axis, start = len(dims) - 2, max(number, 0)
    length = b.get_shape(diagonal).dims[-1]
    line = b.pad_in_dim(diagonal, b.scalar_like(diagonal, 0), axis, start, dims[-1] - start - length)
    line = b.broadcast_in_dim(line, dims, (*range(axis), axis + 1))
    row, column = (b.iota(Shape(_S64, dims), k) for k in (axis, axis + 1))
    return b.select(b.eq(column - row, b.constant(number, _S64)), line, others)


def _diagonal(node: Node, matrices: Operand, number: int) -> Operand:
    """One diagonal, [..., its length]: the first column where a row has one element more than the matrix's."""
    b, (*outer, rows, columns) = node.b, node.b.get_shape(matrices).dims
    length = _longest(rows, columns, number, number)
    begin = number if number >= 0 else -number * columns
    flat = b.reshape(matrices, (*outer, rows * columns))
    end = length * (columns + 1) - (rows * columns - begin)
    flat = b.pad_in_dim(flat, b.scalar_like(matrices, 0), len(outer), -begin, end)
    column = b.slice_in_dim(b.reshape(flat, (*outer, length, columns + 1)), 0, 1, 1, len(outer) + 1)
    return b.reshape(column, (*outer, length))


def _diagonals(node: Node) -> tuple[int, int]:
    """(lowest, highest) diagonal: those of the input k, of a V1 op the main one."""
    if node.op.endswith(("V2", "V3")):
        numbers = node.integers("k")
        return numbers[0], numbers[-1]
    return 0, 0


def _place_in_diagonals(node: Node, rows: int, columns: int, low: int, high: int) -> np.ndarray:
    """For every element of a matrix its place among diagonals stored as [high - low + 1, longest]; -1 outside of them.

    Source: TensorFlow, matrix_diag_op.cc (alignment).
    """
    rows, columns = int(rows), int(columns)
    align = node.attr("align") if node.op.endswith("V3") else "LEFT_LEFT"
    above, below = align.split("_")
    row, column = np.mgrid[:rows, :columns]
    number = column - row
    lengths = np.minimum(rows + np.minimum(number, 0), columns - np.maximum(number, 0))
    longest = min(rows + min(high, 0), columns - max(low, 0))
    is_left = ((number >= 0) & (above == "LEFT")) | ((number <= 0) & (below == "LEFT"))
    at = column - np.maximum(number, 0) + np.where(is_left, 0, longest - lengths)
    inside = (number >= low) & (number <= high)
    return np.where(inside, (high - number) * longest + at, -1)


@translates("MatrixDiag")
def matrix_diag(node: Node) -> Operand:
    b, dims = node.b, node.shape(0)
    return _on_diagonal(node, node[0], 0, b.broadcast(b.scalar_like(node[0], 0), (*dims, dims[-1])))


@translates("MatrixDiagV2", "MatrixDiagV3", constants=("k", "num_rows", "num_cols"))
def matrix_diag_of(node: Node) -> Operand:
    (low, high), dims = _diagonals(node), node.shape(0)
    longest = dims[-1]
    if low > high or low != high and (len(dims) < 2 or dims[-2] != high - low + 1):
        raise ShapeError(f"diagonals {low} to {high} cannot be {list(dims)}")
    rows, columns = (node.integers(k)[0] for k in ("num_rows", "num_cols"))
    min_rows, min_columns = longest - min(high, 0), longest + max(low, 0)
    if rows == columns == -1:
        rows = columns = max(min_rows, min_columns)
    rows, columns = (min_rows if rows == -1 else rows), (min_columns if columns == -1 else columns)
    if rows < min_rows or columns < min_columns:
        raise ShapeError("The number of rows or columns is too small for the specified diagonals")
    if rows != min_rows and columns != min_columns:
        raise ShapeError("The number of rows or columns is not consistent with the specified diagonals")
    if low == high:
        others = node.b.broadcast(node["padding_value"], (*dims[:-1], rows, columns))
        return _on_diagonal(node, node[0], low, others)
    places = _place_in_diagonals(node, rows, columns, low, high)
    return _picked(node, node[0], dims[:-2], places, node["padding_value"])


@translates("MatrixDiagPart")
def matrix_diag_part(node: Node) -> Operand:
    return _diagonals_of(node, node.b.scalar_like(node[0], 0))


@translates("MatrixDiagPartV2", "MatrixDiagPartV3", constants=("k",))
def matrix_diag_part_of(node: Node) -> Operand:
    return _diagonals_of(node, node["padding_value"])


def _longest(rows: int, columns: int, low: int, high: int) -> int:
    """Elements of the longest of some diagonals of a matrix.

    Raises: ShapeError  it has no such diagonals.
    """
    if not -rows < low <= high < columns and (rows, columns) != (0, 0):
        raise ShapeError(
            f"lower_diag_index must be larger than {-rows} and upper_diag_index smaller than {columns}, "
            f"got {low}, {high}"
        )
    return smaller(rows + min(high, 0), columns - max(low, 0))


def _diagonals_of(node: Node, padding: Operand) -> Operand:
    (low, high), (*outer, rows, columns) = _diagonals(node), node.shape(0)
    longest = _longest(rows, columns, low, high)
    if low == high:
        return _diagonal(node, node[0], low)
    places = np.full((high - low + 1) * longest, -1)
    of_element = _place_in_diagonals(node, rows, columns, low, high).ravel()
    inside = np.flatnonzero(of_element >= 0)
    places[of_element[inside]] = inside
    return _picked(node, node[0], outer, places.reshape(high - low + 1, longest), padding)


@translates("MatrixSetDiag")
def matrix_set_diag(node: Node) -> Operand:
    return _with_diagonals(node)


@translates("MatrixSetDiagV2", "MatrixSetDiagV3", constants=("k",))
def matrix_set_diag_of(node: Node) -> Operand:
    return _with_diagonals(node)


def _with_diagonals(node: Node) -> Operand:
    b, (low, high), dims = node.b, _diagonals(node), node.shape(0)
    longest = _longest(dims[-2], dims[-1], low, high)
    expected = (*dims[:-2], longest) if low == high else (*dims[:-2], high - low + 1, longest)
    if node.shape("diagonal") != expected:
        raise ShapeError(
            f"diagonals {low} to {high} of {list(dims)} are {list(expected)}, "
            f"got {list(node.shape('diagonal'))}"
        )
    if low == high:
        return _on_diagonal(node, node["diagonal"], low, node[0])
    places = _place_in_diagonals(node, dims[-2], dims[-1], low, high)
    new = _picked(node, node["diagonal"], dims[:-2], places, b.scalar_like(node[0], 0))
    axes = (len(dims) - 2, len(dims) - 1)
    return b.select(b.broadcast_in_dim(b.constant(places >= 0, ElementType.PRED), dims, axes), new, node[0])


@translates("Diag")
def diag(node: Node) -> Operand:
    b, dims = node.b, node.shape(0)
    size = math.prod(dims)
    others = b.broadcast(b.scalar_like(node[0], 0), (size, size))
    return b.reshape(_on_diagonal(node, b.reshape(node[0], (size,)), 0, others), (*dims, *dims))


@translates("DiagPart")
def diag_part(node: Node) -> Operand:
    dims = node.shape(0)
    half = dims[: len(dims) // 2]
    if half != dims[len(dims) // 2 :]:
        raise ShapeError(
            f"Invalid shape {list(dims)}: dimensions {list(half)} and {list(dims[len(dims) // 2 :])} "
            "do not match."
        )
    size = math.prod(half)
    return node.b.reshape(_diagonal(node, node.b.reshape(node[0], (size, size)), 0), half)


@translates("Cross")
def cross(node: Node) -> Operand:
    b, dims = node.b, node.shape(0)
    if not dims or dims[-1] != 3:
        raise ShapeError(f"Cross-products are only defined for 3-element vectors: {list(dims)}")
    axis = len(dims) - 1

    def turned(x: Operand, by: int) -> Operand:
        return b.concat_in_dim([b.slice_in_dim(x, by, 3, 1, axis), b.slice_in_dim(x, 0, by, 1, axis)], axis)

    x, y = node[0], node[1]
    return turned(x, 1) * turned(y, 2) - turned(x, 2) * turned(y, 1)


@translates("TridiagonalMatMul")
def tridiagonal_product(node: Node) -> Operand:
    """Each row of the result is made of three neighbouring rows of the right-hand side."""
    b, dims = node.b, node.shape("rhs")
    rows = len(dims) - 2

    def along(which: str) -> Operand:
        diagonal = node.shape(which)
        return b.broadcast_in_dim(
            b.reshape(node[which], (*diagonal[:-2], diagonal[-1])), dims, range(rows + 1)
        )

    def shifted(by: int) -> Operand:
        return b.pad_in_dim(node["rhs"], b.scalar_like(node["rhs"], 0), rows, by, -by)

    return along("maindiag") * node["rhs"] + along("superdiag") * shifted(-1) + along("subdiag") * shifted(1)
