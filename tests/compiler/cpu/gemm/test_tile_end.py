"""Which epilogues are the end of tiles."""

from __future__ import annotations

import math

import pytest
from builders import broadcast, constant, op, parameter, scalar
from tfbridge.compiler.cpu.gemm.tile_end import NONE, TileEnd, tile_end
from tfbridge.compiler.ir.module import Computation, Instruction, make
from tfbridge.compiler.ops import Reshape
from tfbridge.runtime.sizes import Assumptions

ROW, FACTORS, PRODUCT = (parameter(k, "f32", *dims) for k, dims in enumerate(((6,), (6,), (2, 5, 6))))
DIMS = PRODUCT.shape.dims


def full(number: float) -> Instruction:
    return scalar(number, PRODUCT)


def of_row(row: Instruction = ROW) -> Instruction:
    return broadcast(row, DIMS, (2,))


def end_of(root: Instruction) -> TileEnd | None:
    return tile_end(Computation("epilogue", root, [ROW, FACTORS, PRODUCT]), 6, 4)


SUM = op("add", PRODUCT, of_row())


@pytest.mark.parametrize(
    ("root", "low", "high"),
    [
        (SUM, -math.inf, math.inf),
        (op("maximum", SUM, full(0.0)), 0.0, math.inf),
        (op("minimum", full(3.0), SUM), -math.inf, 3.0),
        (op("clamp", full(0.0), SUM, full(6.0)), 0.0, 6.0),
        (op("clamp", constant(0.0), SUM, constant(6.0)), 0.0, 6.0),
        (op("minimum", op("maximum", SUM, full(-1.0)), full(2.0)), -1.0, 2.0),
        (op("maximum", op("clamp", full(-1.0), SUM, full(2.0)), full(0.0)), 0.0, 2.0),
    ],
)
def test_limits(root: Instruction, low: float, high: float) -> None:
    assert end_of(root) == TileEnd(NONE, 4, low, high)


def test_rows() -> None:
    scaled = op("multiply", of_row(FACTORS), PRODUCT)
    assert end_of(op("add", of_row(), scaled)) == TileEnd(5, 4, -math.inf, math.inf)
    reshaped = op("add", make(Reshape((10, 6)), PRODUCT), broadcast(ROW, (10, 6), (1,)))
    assert end_of(make(Reshape(DIMS), reshaped)) == TileEnd(NONE, 4, -math.inf, math.inf)
    joined = parameter(0, "f32", 5, 6)
    root = op("add", PRODUCT, broadcast(joined, DIMS, (1, 2)))
    assert tile_end(Computation("epilogue", root, [joined, PRODUCT]), 30, 4) is not None
    assert tile_end(Computation("epilogue", root, [joined, PRODUCT]), 6, 4) is None


@pytest.mark.parametrize(
    "root",
    [
        PRODUCT,
        op("maximum", PRODUCT, full(0.0)),  # adds nothing
        op("tanh", SUM),
        op("maximum", SUM, of_row(FACTORS)),  # a limit for each column
        op("maximum", op("minimum", SUM, full(0.0)), full(1.0)),  # limits that exclude each other
        op("clamp", full(0.0), SUM, full(math.nan)),
        op("subtract", PRODUCT, of_row()),
        op("add", PRODUCT, PRODUCT),
        op("add", op("multiply", PRODUCT, PRODUCT), of_row()),
        op("multiply", SUM, of_row(FACTORS)),  # in another order
        op("add", SUM, of_row(FACTORS)),
    ],
)
def test_other_epilogues(root: Instruction) -> None:
    assert end_of(root) is None


def test_a_product_of_one_row_is_no_row_of_itself() -> None:
    product = parameter(1, "f32", 1, 6)
    square = op("multiply", product, broadcast(make(Reshape((6,)), product), (1, 6), (1,)))
    root = op("add", square, broadcast(ROW, (1, 6), (1,)))
    assert tile_end(Computation("epilogue", root, [ROW, product]), 6, 4) is None


def test_rows_along_other_axes_and_of_sizes_known_at_run_time() -> None:
    square = parameter(1, "f32", 6, 6)
    root = op("add", square, broadcast(ROW, (6, 6), (0,)))
    assert tile_end(Computation("epilogue", root, [ROW, square]), 6, 4) is None
    rows = Assumptions().symbol("rows", 7)
    product = parameter(1, "f32", rows, 6)
    root = op("add", product, broadcast(ROW, (rows, 6), (1,)))
    assert tile_end(Computation("epilogue", root, [ROW, product]), 6, 4) == TileEnd(
        NONE, 4, -math.inf, math.inf
    )
    row = parameter(0, "f32", rows)
    product = parameter(1, "f32", 3, rows)
    root = op("add", product, broadcast(row, (3, rows), (1,)))
    assert tile_end(Computation("epilogue", root, [row, product]), rows, 4) is None
