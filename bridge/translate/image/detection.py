"""Choice of boxes by their scores: non-maximum suppression, for one set of boxes or for many classes and images.

A loop takes the best box that is left and takes away, or weakens, those that overlap it too much. The number of boxes
chosen is data: results have it fixed by padding, or have a size that depends on data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.loops import until
from ....compiler.builder.lib.matrices import line
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ...graph.graph import Graph, GraphNode
from ..array.gather import gather_axis
from ..array.sorting import sorted_with_places
from ..math.broadcasting import assume_same_size
from ..math.reductions import reduce
from ..node import Node
from ..operands.dynamic_size_rules import only
from ..registry import translates

_S32, _F32 = ElementType.S32, ElementType.F32


def _columns(b: ComputationBuilder, boxes: Operand) -> list[Operand]:
    """(least y, least x, greatest y, greatest x) of boxes [..., 4], whose corners may be in any order."""
    dims = b.get_shape(boxes).dims
    y0, x0, y1, x1 = (
        b.reshape(b.slice_in_dim(boxes, k, k + 1, 1, len(dims) - 1), dims[:-1]) for k in range(4)
    )
    return [b.min(y0, y1), b.min(x0, x1), b.max(y0, y1), b.max(x0, x1)]


def overlap(b: ComputationBuilder, boxes: Operand, other: Operand) -> Operand:
    """Intersection over union of boxes [..., n, 4] with one each [..., 1, 4]."""
    dims = b.get_shape(boxes).dims[:-1]
    first = _columns(b, boxes)
    second = [
        b.broadcast_in_dim(b.reshape(v, dims[:-1]), dims, range(len(dims) - 1)) for v in _columns(b, other)
    ]
    zero = b.full_like(first[0], 0)
    areas = [(v[2] - v[0]) * (v[3] - v[1]) for v in (first, second)]
    height = b.max(b.min(first[2], second[2]) - b.max(first[0], second[0]), zero)
    width = b.max(b.min(first[3], second[3]) - b.max(first[1], second[1]), zero)
    shared = height * width
    empty = b.or_(b.le(areas[0], zero), b.le(areas[1], zero))
    return b.select(empty, zero, shared / (areas[0] + areas[1] - shared))


_Shares = Callable[[ComputationBuilder, Operand, Operand, Operand], Operand]
"""Of (builder, boxes, numbers [batch], whether each has the number [batch, n]): by how much the others overlap with the
boxes of these numbers, [batch, n]."""


def _shares_of_boxes(b: ComputationBuilder, boxes: Operand, _: Operand, is_chosen: Operand) -> Operand:
    """`_Shares` of boxes [batch, n, 4]."""
    mask = b.broadcast_in_dim(is_chosen, b.get_shape(boxes).dims, [0, 1])
    box = reduce(b, b.select(mask, boxes, b.full_like(boxes, 0)), "add", [1], True)
    return overlap(b, boxes, box)


def _shares_of_matrix(b: ComputationBuilder, overlaps: Operand, number: Operand, _: Operand) -> Operand:
    """`_Shares` of one batch, where all are known: [1, n, n], rows overlap with columns."""
    return b.reshape(line(b, overlaps, b.reshape(number, ()), 2), b.get_shape(overlaps).dims[:2])


def suppressed(
    b: ComputationBuilder,
    boxes: Operand,
    shares: _Shares,
    scores: Operand,
    max_boxes: int,
    threshold: Operand,
    min_score: Operand,
    sigma: Operand | None = None,
) -> tuple[Operand, Operand, Operand]:
    """(numbers, scores, count) of the boxes chosen for every batch, `most` of them, padded with zeros.

    `boxes`: what `shares` reads.
    Shapes: scores [batch, n], sigma a scalar: the width of the bell by which overlapping boxes are weakened; the
    results [batch, most], [batch, most], [batch].
    """
    batch, size = b.get_shape(scores).dims
    type_ = b.get_shape(scores).element_type
    lowest = b.full_like(scores, -math.inf)
    scores = b.select(b.gt(scores, b.broadcast(min_score, (batch, size))), scores, lowest)
    rows = b.broadcast(b.constant(0, _S32), (batch, max_boxes))
    state = [
        boxes,
        scores,
        threshold,
        min_score,
        rows,
        b.broadcast(b.constant(0, type_), (batch, max_boxes)),
        b.broadcast(b.constant(0, _S32), (batch,)),
        *([sigma] if sigma is not None else []),
    ]

    def step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        boxes, scores, threshold, min_score, chosen, selected_scores, count, *sigma, _ = values
        places = b.iota(Shape(_S32, (batch, size)), 1)
        best = reduce(b, scores, "max", [1])
        hit = b.eq(scores, b.broadcast_in_dim(best, (batch, size), [0]))
        at = reduce(b, b.select(hit, places, b.full_like(places, size - 1)), "min", [1])
        is_present = b.gt(best, b.full_like(best, -math.inf))
        here = b.eq(places, b.broadcast_in_dim(at, (batch, size), [0]))
        overlaps = shares(b, boxes, at, here)
        rest = _remaining_scores(b, scores, overlaps, here, threshold, min_score, *sigma)
        column = b.and_(
            b.eq(b.iota(Shape(_S32, (batch, max_boxes)), 1), b.broadcast(number, (batch, max_boxes))),
            b.broadcast_in_dim(is_present, (batch, max_boxes), [0]),
        )
        chosen = b.select(column, b.broadcast_in_dim(at, (batch, max_boxes), [0]), chosen)
        selected_scores = b.select(column, b.broadcast_in_dim(best, (batch, max_boxes), [0]), selected_scores)
        count = count + b.convert_element_type(is_present, _S32)
        return boxes, rest, threshold, min_score, chosen, selected_scores, count, *sigma, is_present

    if not size or not max_boxes:
        return rows, state[5], state[6]
    values = until(b, max_boxes, [*state, b.broadcast(b.constant(True), (batch,))], step)
    return values[4], values[5], values[6]


def _remaining_scores(
    b: ComputationBuilder,
    scores: Operand,
    shares: Operand,
    is_chosen: Operand,
    threshold: Operand,
    min_score: Operand,
    sigma: Operand | None = None,
) -> Operand:
    """The scores after a box was chosen: boxes that overlap with it, by these shares, are suppressed or weakened."""
    dims, type_ = b.get_shape(scores).dims, b.get_shape(scores).element_type
    gone = b.gt(shares, b.broadcast(threshold, dims))
    lowest = b.full_like(scores, -math.inf)
    if sigma is not None:
        weight = b.exp(shares * shares * b.broadcast(b.constant(-0.5, type_) / sigma, dims))
        soft = b.gt(sigma, b.constant(0, type_))
        weight = b.select(b.broadcast(soft, dims), weight, b.full_like(weight, 1))
        weakened = scores * weight
        weakened = b.select(b.gt(weakened, b.broadcast(min_score, dims)), weakened, lowest)
        gone = b.and_(gone, b.not_(b.broadcast(soft, dims)))
        scores = b.select(b.eq(scores, lowest), lowest, weakened)
    return b.select(b.or_(gone, is_chosen), lowest, scores)


def _is_padded(node: GraphNode) -> bool:
    return "pad_to_max_output_size" in node.attrs and node.attrs["pad_to_max_output_size"].b


def _unpadded(node: GraphNode, graph: Graph) -> Collection[int]:
    """Numbers of the outputs that are as long as the number of boxes chosen."""
    return () if _is_padded(node) else (0, 1) if node.op.endswith("V5") else (0,)


@translates(
    "NonMaxSuppression",
    "NonMaxSuppressionV2",
    "NonMaxSuppressionV3",
    "NonMaxSuppressionV4",
    "NonMaxSuppressionV5",
    constants=("max_output_size",),
    sizes=_unpadded,
    takes_sizes=only(0, 1),
)
def non_max_suppression(node: Node) -> Sequence[Operand]:
    b, max_boxes, type_ = node.b, node.integers("max_output_size")[0], node.element_type("scores")
    dims = node.shape("boxes")
    if len(dims) != 2 or dims[1] != 4 or node.shape("scores") != dims[:1]:
        raise ShapeError(
            f"boxes must be [n, 4] and scores [n], got {list(dims)} and {list(node.shape('scores'))}"
        )
    assume_same_size(b, [(node["boxes"], 0), (node["scores"], 0)])
    if max_boxes < 0:
        raise ShapeError(f"max_output_size must be non-negative, got {max_boxes}")
    is_padded = _is_padded(node.graph_node)
    max_boxes = max_boxes if is_padded else min(max_boxes, dims[0])
    overlaps = (
        b.constant(np.float32(node.attr("iou_threshold")))
        if node.op == "NonMaxSuppression"
        else b.convert_element_type(node["iou_threshold"], _F32)
    )
    _check_overlaps(node, overlaps)
    has_threshold = node.op not in ("NonMaxSuppression", "NonMaxSuppressionV2")
    min_score = (
        b.convert_element_type(node["score_threshold"], _F32)
        if has_threshold
        else b.constant(np.float32(-np.inf))
    )
    boxes, scores = (b.convert_element_type(node[k], _F32) for k in ("boxes", "scores"))
    sigma = None
    if node.op.endswith("V5"):
        sigma = b.convert_element_type(node["soft_nms_sigma"], _F32)
        node.bail_out_if(b.not_(b.ge(sigma, b.scalar_like(sigma, 0))), "soft_nms_sigma is negative or NaN")
    numbers, selected_scores, count = suppressed(
        b,
        b.reshape(boxes, (1, *dims)),
        _shares_of_boxes,
        b.reshape(scores, (1, *dims[:1])),
        max_boxes,
        overlaps,
        min_score,
        sigma,
    )
    count = b.reshape(count, ())
    results = [
        b.reshape(numbers, (max_boxes,)),
        b.convert_element_type(b.reshape(selected_scores, (max_boxes,)), type_),
    ]
    if not is_padded:
        results = [b.set_dimension_size(r, count, 0) for r in results]
    return {"V4": (results[0], count), "V5": (*results, count)}.get(node.op[-2:], (results[0],))


@translates("NonMaxSuppressionWithOverlaps", constants=("max_output_size",), sizes=lambda node, graph: (0,))
def non_max_suppression_with_overlaps(node: Node) -> Operand:
    b, max_boxes = node.b, node.integers("max_output_size")[0]
    dims = node.shape("overlaps")
    if len(dims) != 2 or dims[0] != dims[1] or node.shape("scores") != dims[:1]:
        raise ShapeError(
            f"overlaps must be [n, n] and scores [n], got {list(dims)} and {list(node.shape('scores'))}"
        )
    if max_boxes < 0:
        raise ShapeError(f"max_output_size must be non-negative, got {max_boxes}")
    max_boxes = min(max_boxes, dims[0])
    numbers, _, count = suppressed(
        b,
        b.reshape(node["overlaps"], (1, *dims)),
        _shares_of_matrix,
        b.reshape(node["scores"], (1, *dims[:1])),
        max_boxes,
        node["overlap_threshold"],
        node["score_threshold"],
    )
    return b.set_dimension_size(b.reshape(numbers, (max_boxes,)), b.reshape(count, ()), 0)


def _check_overlaps(node: Node, overlaps: Operand) -> None:
    b, zero, one = node.b, node.b.scalar_like(overlaps, 0), node.b.scalar_like(overlaps, 1)
    constant = node.context.constant_value(overlaps)
    if constant is None or not 0 <= constant <= 1:
        node.bail_out_if(
            b.not_(b.and_(b.ge(overlaps, zero), b.le(overlaps, one))), "iou_threshold must be in [0, 1]"
        )


@translates("CombinedNonMaxSuppression", constants=("max_output_size_per_class", "max_total_size"))
def combined_non_max_suppression(node: Node) -> Sequence[Operand]:
    """For every image the best boxes of all classes, each class suppressed by itself."""
    b = node.b
    batch, size, box_classes, _ = node.shape("boxes")
    classes = node.shape("scores")[2]
    per_class, total = (node.integers(k)[0] for k in ("max_output_size_per_class", "max_total_size"))
    per_class = min(per_class, size)
    if box_classes not in (1, classes):
        raise ShapeError(f"boxes have {box_classes} classes, scores {classes}")
    boxes = b.transpose(node["boxes"], (0, 2, 1, 3))
    if box_classes != classes:
        boxes = b.broadcast_in_dim(b.reshape(boxes, (batch, size, 4)), (batch, classes, size, 4), [0, 2, 3])
    boxes = b.reshape(boxes, (batch * classes, size, 4))
    scores = b.reshape(b.transpose(node["scores"], (0, 2, 1)), (batch * classes, size))
    _check_overlaps(node, node["iou_threshold"])
    numbers, selected_scores, count = suppressed(
        b, boxes, _shares_of_boxes, scores, per_class, node["iou_threshold"], node["score_threshold"]
    )
    taken = gather_axis(node, boxes, numbers, 1, 1)
    valid = b.lt(
        b.iota(Shape(_S32, (batch * classes, per_class)), 1),
        b.broadcast_in_dim(count, (batch * classes, per_class), [0]),
    )
    selected_scores = b.select(valid, selected_scores, b.full_like(selected_scores, -math.inf))
    every = classes * per_class
    ordered, order = sorted_with_places(b, b.reshape(selected_scores, (batch, every)), 1, True)
    taken = gather_axis(node, b.reshape(taken, (batch, every, 4)), order, 1, 1)
    class_of = b.convert_element_type(b.div(order, b.scalar_like(order, max(per_class, 1))), _F32)
    box_count = total
    if node.attr("pad_per_class"):
        box_count = min(total, node.integers("max_output_size_per_class")[0] * classes)
    pad = max(0, box_count - every)
    present_flags = b.convert_element_type(b.gt(ordered, b.full_like(ordered, -math.inf)), _S32)

    def fitted(x: Operand) -> Operand:
        x = b.pad_in_dim(x, b.scalar_like(x, 0), 1, 0, pad)
        return b.slice_in_dim(x, 0, box_count, 1, 1)

    present = fitted(present_flags)
    is_present = b.gt(present, b.full_like(present, 0))
    boxes_out, scores_out, classes_out = fitted(taken), fitted(ordered), fitted(class_of)
    if node.attr("clip_boxes"):
        boxes_out = b.clamp(b.scalar_like(boxes_out, 0), boxes_out, b.scalar_like(boxes_out, 1))
    present_boxes = b.broadcast_in_dim(is_present, (batch, box_count, 4), [0, 1])
    return (
        b.select(present_boxes, boxes_out, b.full_like(boxes_out, 0)),
        b.select(is_present, scores_out, b.full_like(scores_out, 0)),
        b.select(is_present, classes_out, b.full_like(classes_out, 0)),
        reduce(b, present, "add", [1]),
    )
