"""Neural network ops: softmax and losses, bias gradients, batch normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.matrices import widened
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ....runtime.sizes import is_symbolic, larger
from ..math.broadcasting import assume_same_size, broadcast
from ..math.reductions import reduce
from ..node import Node
from ..operands.value_ranges import check_indices
from ..registry import every_input, translates

_F32 = ElementType.F32


def narrowed(b: ComputationBuilder, operand: Operand, element_type: ElementType) -> Operand:
    """Back to an element type; the operand itself where it has it."""
    return b.convert_element_type(operand, element_type)


def per_row(b: ComputationBuilder, rows: Operand, dims: Sequence[int]) -> Operand:
    """Values of all axes but the last, along the last one."""
    return b.broadcast_in_dim(rows, dims, range(len(dims) - 1))


def _shifted(b: ComputationBuilder, logits: Operand) -> Operand:
    """Logits less the largest of their row."""
    dims = b.get_shape(logits).dims
    return b.sub(logits, per_row(b, reduce(b, logits, "max", [len(dims) - 1]), dims))


def _shares(b: ComputationBuilder, parts: Operand, sums: Operand) -> Operand:
    """Each part of its row's sum, by the sum's reciprocal: one division for a row."""
    one = b.constant(1, b.get_shape(sums).element_type)
    return b.mul(parts, per_row(b, b.div(one, sums), b.get_shape(parts).dims))


@translates("Softmax", "LogSoftmax", takes_sizes=every_input)
def softmax(node: Node) -> Operand:
    b, shape = node.b, node.array_shape(0)
    shifted = _shifted(b, widened(b, node[0]))
    exps = b.exp(shifted)
    sums = reduce(b, exps, "add", [shape.rank - 1])
    if node.op == "LogSoftmax":
        result = b.sub(shifted, per_row(b, b.log(sums), shape.dims))
    else:
        result = _shares(b, exps, sums)
    return narrowed(b, result, shape.element_type)


def _cross_entropy(
    b: ComputationBuilder, logits: Operand, labels: Operand, are_hot: bool
) -> tuple[Operand, Operand]:
    """(loss per row, gradient by the logits). Of a row with one label, `are_hot`, its logit alone counts: others may be
    infinite."""
    dims = b.get_shape(logits).dims
    rows = len(dims) - 1
    shifted = _shifted(b, logits)
    exps = b.exp(shifted)
    sums = reduce(b, exps, "add", [rows])
    terms = b.mul(labels, b.sub(per_row(b, b.log(sums), dims), shifted))
    if are_hot:
        terms = b.select(b.eq(labels, b.full_like(labels, 0)), b.full_like(terms, 0), terms)
    return reduce(b, terms, "add", [rows]), b.sub(_shares(b, exps, sums), labels)


@translates("SoftmaxCrossEntropyWithLogits", takes_sizes=every_input)
def softmax_cross_entropy(node: Node) -> tuple[Operand, Operand]:
    b, type_ = node.b, node.element_type(0)
    logits, labels = broadcast(b, *(widened(b, node[k]) for k in range(2)))
    loss, gradient = _cross_entropy(b, logits, labels, False)
    return narrowed(b, loss, type_), narrowed(b, gradient, type_)


@translates("SparseSoftmaxCrossEntropyWithLogits", takes_sizes=every_input)
def sparse_softmax_cross_entropy(node: Node) -> tuple[Operand, Operand]:
    """The sum of a row's exponentials, as a logarithm, less the logit of its label."""
    b, shape, labels = node.b, node.array_shape(0), node["labels"]
    if node.shape("labels") != shape.dims[:1]:
        raise ShapeError(
            f"logits and labels must have the same first dimension, got logits shape {list(shape.dims)} "
            f"and labels shape {list(node.shape('labels'))}"
        )
    assume_same_size(b, [(node[0], 0), (labels, 0)])
    check_indices(node, labels, shape.dims[1])
    logits = widened(b, node[0])
    compute_type, index_type = b.get_shape(logits).element_type, node.element_type("labels")
    places = b.broadcast_in_dim(b.iota(Shape(index_type, shape.dims[1:]), 0), shape.dims, [1])
    one, zero = (b.broadcast(b.constant(v, compute_type), shape.dims) for v in (1, 0))
    hot = b.select(b.eq(places, b.broadcast_in_dim(labels, shape.dims, [0])), one, zero)
    loss, gradient = _cross_entropy(b, logits, hot, True)
    return narrowed(b, loss, shape.element_type), narrowed(b, gradient, shape.element_type)


@translates("BiasAddGrad")
def bias_add_grad(node: Node) -> Operand:
    dims = node.shape(0)
    feature = 1 if node.attr("data_format") == "NCHW" else len(dims) - 1
    return reduce(node.b, node[0], "add", [a for a in range(len(dims)) if a != feature])


# -- batch normalization


def _feature_axis(node: Node) -> int:
    format_ = node.attr("data_format") or "NHWC"
    return format_.index("C")


def _along(b: ComputationBuilder, vector: Operand, dims: Sequence[int], axis: int) -> Operand:
    return b.broadcast_in_dim(vector, dims, [axis])


def _full(b: ComputationBuilder, like: Operand, value: float) -> Operand:
    shape = b.get_shape(like)
    return b.broadcast(b.constant(value, shape.element_type), shape.dims)


def full_quotient(b: ComputationBuilder, like: Operand, dividend: int, divisor: int) -> Operand:
    """The quotient of two sizes; NaN where the divisor is 0."""
    if is_symbolic((dividend, divisor)):
        type_, dims = b.get_shape(like).element_type, b.get_shape(like).dims
        return b.broadcast(b.div(b.constant(dividend, type_), b.constant(divisor, type_)), dims)
    return _full(b, like, dividend / divisor if divisor else math.nan)


def _check_features(node: Node, axis: int, *names: str) -> None:
    """Raises: ShapeError  one of these operands has not one number for every feature."""
    features = node.shape("x")[axis]
    for name in names:
        if node.shape(name) != (features,):
            raise ShapeError(f"{node.op}: {name} is {list(node.shape(name))}, there are {features} features")


@translates("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def fused_batch_norm(node: Node) -> tuple[Operand, ...]:
    """y, batch mean, batch variance (unbiased); for the gradient the mean and the (biased) variance; with V3 a zero."""
    b, shape = node.b, node.array_shape(0)
    axis, epsilon = _feature_axis(node), node.attr("epsilon")
    if shape.rank != 4 and (shape.rank != 5 or len(node.attr("data_format")) != 5):
        raise ShapeError(f"{node.op}: input must be 4-dimensional, it is {shape}")
    _check_features(node, axis, "scale", "offset")
    if not node.attr("is_training") or node.attr("exponential_avg_factor") not in (None, 1.0):
        _check_features(node, axis, "mean", "variance")
    x, scale, offset = widened(b, node[0]), node[1], node[2]
    others = [a for a in range(shape.rank) if a != axis]
    count = shape.elements // max(shape.dims[axis], 1)
    if node.attr("is_training"):
        scale_of = full_quotient(b, scale, 1, count)
        mean = b.mul(reduce(b, x, "add", others), scale_of)
        centred = b.sub(x, _along(b, mean, shape.dims, axis))
        variance = b.mul(reduce(b, b.mul(centred, centred), "add", others), scale_of)
        unbiased = b.mul(variance, full_quotient(b, variance, count, larger(count - 1, 1)))
        factor = node.attr("exponential_avg_factor")
        new_mean, new_variance = mean, unbiased
        if factor is not None and factor != 1.0:
            keep, take = _full(b, mean, 1.0 - factor), _full(b, mean, factor)
            new_mean = b.add(b.mul(node[3], keep), b.mul(mean, take))
            new_variance = b.add(b.mul(node[4], keep), b.mul(unbiased, take))
    else:
        mean, variance = node[3], node[4]
        centred = b.sub(x, _along(b, mean, shape.dims, axis))
        new_mean, new_variance = mean, variance
    factor_ = b.mul(scale, b.rsqrt(b.add(variance, _full(b, variance, epsilon))))
    y = b.add(b.mul(centred, _along(b, factor_, shape.dims, axis)), _along(b, offset, shape.dims, axis))
    outputs = [narrowed(b, y, shape.element_type), new_mean, new_variance, mean, variance]
    if node.op == "FusedBatchNormV3":
        outputs.append(b.constant(0.0, ElementType.F32))
    return tuple(outputs)


@translates("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
def fused_batch_norm_grad(node: Node) -> tuple[Operand, ...]:
    b, shape = node.b, node.array_shape("x")
    axis, epsilon = _feature_axis(node), node.attr("epsilon")
    _check_features(node, axis, "scale", "reserve_space_1", "reserve_space_2")
    others = [a for a in range(shape.rank) if a != axis]
    dy, x, scale = widened(b, node["y_backprop"]), widened(b, node["x"]), node["scale"]
    mean, variance = node["reserve_space_1"], node["reserve_space_2"]
    inverse = b.rsqrt(b.add(variance, _full(b, variance, epsilon)))
    centred = b.sub(x, _along(b, mean, shape.dims, axis))
    d_offset = reduce(b, dy, "add", others)
    projected = reduce(b, b.mul(dy, centred), "add", others)
    d_scale = b.mul(projected, inverse)
    if node.attr("is_training"):
        count = full_quotient(b, mean, 1, larger(shape.elements // max(shape.dims[axis], 1), 1))
        mean_dy = b.mul(d_offset, count)
        slope = b.mul(b.mul(projected, count), b.mul(inverse, inverse))
        inner = b.sub(
            b.sub(dy, _along(b, mean_dy, shape.dims, axis)),
            b.mul(centred, _along(b, slope, shape.dims, axis)),
        )
    else:
        inner = dy
    dx = b.mul(inner, _along(b, b.mul(scale, inverse), shape.dims, axis))
    empty = b.constant([], ElementType.F32)
    return narrowed(b, dx, shape.element_type), d_scale, d_offset, empty, empty
