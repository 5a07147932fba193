"""Products of matrices and convolutions, and what belongs to linear algebra."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from ...builder.other_types import apply_on_any_type
from ...errors import UnsupportedError
from ...ir.element_types import ElementType
from ...ops import Cholesky, Convolution, ConvolutionDims, Dot, Fft, TriangularSolve, Window
from ..attributes import Attribute, Dense, Dialect
from ..operations import integers, shown
from ..translation import Context, Results, translates
from ..types import FunctionType
from .arrays import axes, numbers

_SPLIT = re.compile(r"\s*\[([^\]]*)\]\s*x\s*\[([^\]]*)\]\s*->\s*\[([^\]]*)\]\s*")


def _pair(c: Context, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The lists in `[0] x [1]`, empty where there are none."""
    value = c.op.attributes.get(name, ([], []))
    if not isinstance(value, tuple) or isinstance(value, FunctionType) or len(value) != 2:
        raise UnsupportedError(f"{c.op.name}: expected lists like [1] x [0] as {name}, got {shown(value)}")
    return integers(value[0], name), integers(value[1], name)


def preferred(c: Context) -> ElementType | None:
    """The element type of a product of the first two operands; None where it is that of both."""
    kind = c.element_type()
    return None if all(c.b.get_shape(o).element_type is kind for o in c.operands[:2]) else kind


@translates("dot_general")
def dot_general(c: Context) -> Results:
    if c.op.has("dot_dimension_numbers"):
        n = numbers(c, "dot_dimension_numbers")
        contracting = axes(n, "lhs_contracting_dimensions"), axes(n, "rhs_contracting_dimensions")
        batch = axes(n, "lhs_batching_dimensions"), axes(n, "rhs_batching_dimensions")
    else:
        contracting, batch = _pair(c, "contracting_dims"), _pair(c, "batching_dims")
    op = Dot(*contracting, *batch, preferred(c))
    return apply_on_any_type(c.b, op, *c.operands)


@translates("dot")
def dot(c: Context) -> Results:
    return c.b.dot(c.operand(0), c.operand(1), preferred(c))


@translates("convolution")
def convolution(c: Context) -> Results:
    c.all_operands(2)
    return convolved(c, _padding(c))


def convolved(c: Context, padding: Attribute) -> Results:
    """The convolution of the first two operands with this padding."""
    dims = _convolution_dims(c)
    window = _convolution_window(c, dims, padding)
    groups = [c.op.integer(name, 1) for name in ("feature_group_count", "batch_group_count")]
    op = Convolution(window, dims, groups[0], groups[1], preferred(c))
    return apply_on_any_type(c.b, op, c.operand(0), c.operand(1))


def _convolution_dims(c: Context) -> ConvolutionDims:
    """The axes in `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`."""
    value = c.op.attributes.get("dim_numbers", c.op.attributes.get("dimension_numbers"))
    lists: list[list[str]] = []
    if isinstance(value, Dialect) and value.fields:
        return _raw_convolution_dims(value)
    if isinstance(value, tuple) and len(value) == 3:
        lists = [[str(entry) for entry in part] for part in value if isinstance(part, list)]
    elif isinstance(value, Dialect) and (match := _SPLIT.fullmatch(value.words)):
        lists = [[entry.strip() for entry in part.split(",")] for part in match.groups()]
    positions: list[int | tuple[int, ...]] = []
    for labels, pair in zip(lists, ("bf", "io", "bf"), strict=False):
        spatial = [str(k) for k in range(len(labels) - 2)]
        if sorted(labels) != sorted([*pair, *spatial]):
            raise UnsupportedError(f"{c.op.name}: expected {pair[0]}, {pair[1]} and numbers, got {labels}")
        positions += [labels.index(pair[0]), labels.index(pair[1]), tuple(map(labels.index, spatial))]
    if len(positions) != 9:
        raise UnsupportedError(
            f"{c.op.name}: expected axes like [b, 0, f]x[0, i, o]->[b, 0, f], got {shown(value)}"
        )
    return ConvolutionDims(*positions)  # type: ignore[arg-type]


def _raw_convolution_dims(value: Dialect) -> ConvolutionDims:
    """The axes in `raw input_batch_dimension = 0, input_spatial_dimensions = [1, 2], ...`."""
    names = [field.name for field in dataclasses.fields(ConvolutionDims)]
    return ConvolutionDims(
        *(
            axes(value, f"{n}_dimensions")
            if n.endswith("spatial")
            else integers([value.fields.get(f"{n}_dimension")], n)[0]
            for n in names
        )  # type: ignore[arg-type]
    )


def _padding(c: Context) -> Attribute:
    """The padding among the attributes."""
    window = c.op.attributes.get("window")
    return window.get("pad") if isinstance(window, dict) else c.op.attributes.get("padding")


def _convolution_window(c: Context, dims: ConvolutionDims, padding: Attribute) -> Window:
    fields: Mapping[str, Attribute] = c.op.attributes
    names = ("window_strides", "lhs_dilation", "rhs_dilation", "window_reversal")
    window = fields.get("window")
    if isinstance(window, dict):
        fields, names = window, ("stride", "lhs_dilate", "rhs_dilate", "reverse")
    stride, lhs, rhs = (integers(fields.get(name, []), f"{c.op.name}: {name}") for name in names[:3])
    kernel = c.shape(1).dims
    if any(a >= len(kernel) for a in dims.kernel_spatial):
        raise UnsupportedError(f"{c.op.name}: the kernel {c.shape(1)} has not the axes of dim_numbers")
    size = [kernel[a] for a in dims.kernel_spatial]
    pads = _rows(padding, len(size))
    reversal = fields.get(names[3])
    if isinstance(reversal, Dense):
        reversal = reversal.array().reshape(-1).tolist()
    reverse = [bool(r) for r in reversal] if isinstance(reversal, list) else []
    for entries in (stride, lhs, rhs, reverse):
        if entries and len(entries) != len(size):
            raise UnsupportedError(f"{c.op.name}: the window has not {len(size)} entries everywhere")
    return Window.of(size, stride, [p[0] for p in pads], [p[1] for p in pads], lhs, rhs, reverse)


def _rows(value: Attribute, count: int) -> list[tuple[int, int]]:
    """Pairs of numbers, zeros where there are none."""
    rows: Attribute = value.array().tolist() if isinstance(value, Dense) else value
    if rows is None:
        return [(0, 0)] * count
    pairs = [integers(row, "padding") for row in rows] if isinstance(rows, list) else []
    if len(pairs) != count or any(len(pair) != 2 for pair in pairs):
        raise UnsupportedError(f"padding: expected {count} pairs of numbers, got {shown(value)}")
    return [(pair[0], pair[1]) for pair in pairs]


@translates("fft")
def fft(c: Context) -> Results:
    kind = c.op.word("type") if c.op.has("type") else c.op.word("fft_type")
    return c.b.apply(Fft(kind, c.op.integers("length" if c.op.has("length") else "fft_length")), c.operand())


@translates("cholesky")
def cholesky(c: Context) -> Results:
    return apply_on_any_type(c.b, Cholesky(c.op.boolean("lower")), c.operand())


@translates("triangular_solve")
def triangular_solve(c: Context) -> Results:
    left, lower, unit = (c.op.boolean(name) for name in ("left_side", "lower", "unit_diagonal"))
    op = TriangularSolve(left, lower, unit, c.op.word("transpose_a", "NO_TRANSPOSE"))
    return apply_on_any_type(c.b, op, *c.operands)


@translates("batch_norm_training", "batch_norm_inference", "batch_norm_grad")
def batch_norm(c: Context) -> Results:
    epsilon, feature = c.op.number("epsilon"), c.op.integer("feature_index")
    x, scale, third = (c.operand(k) for k in range(3))
    if c.op.name.endswith("training"):
        return c.parts(c.b.batch_norm_training(x, scale, third, epsilon, feature))
    method = c.b.batch_norm_grad if c.op.name.endswith("grad") else c.b.batch_norm_inference
    return c.parts(method(x, scale, third, c.operand(3), c.operand(4), epsilon, feature))
