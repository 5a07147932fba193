"""The loss of connectionist temporal classification, with its gradient.

A path names a class, or the blank, for every step; runs of one class count once and blanks not at all. The loss is the
negative logarithm of the probability of all paths that spell the labels. Labels are interleaved with blanks; forward[u]
is the logarithm of the probability of the first steps where they end at place u of that, backward[u] of the rest.
Source: A. Graves, Supervised Sequence Labelling with Recurrent Neural Networks, section 7.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.loops import repeated
from ....compiler.builder.lib.matrices import line, with_line
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ...graph.graph import GraphNode
from ..array.gather import gather_axis
from ..array.scatter_gather import scatter_points, scatter_rows
from ..math.reductions import reduce
from ..node import Node
from ..operands.value_ranges import any_of, check_indices
from ..registry import translates
from .nn import per_row

_S32, _S64 = ElementType.S32, ElementType.S64


def _unsupported(node: GraphNode) -> str | None:
    collapses = "preprocess_collapse_repeated" in node.attrs and node.attrs["preprocess_collapse_repeated"].b
    return (
        "labels that follow an equal one are left out (preprocess_collapse_repeated)" if collapses else None
    )


def _plus(b: ComputationBuilder, *logarithms: Operand) -> Operand:
    """The logarithm of a sum, of numbers given by theirs; that of nothing is minus infinity."""
    largest = logarithms[0]
    for x in logarithms[1:]:
        largest = b.max(largest, x)
    base = b.select(b.gt(largest, b.full_like(largest, -np.inf)), largest, b.full_like(largest, 0))
    total = b.exp(logarithms[0] - base)
    for x in logarithms[1:]:
        total = total + b.exp(x - base)
    return b.log(total) + base


def _moved(b: ComputationBuilder, x: Operand, places: int) -> Operand:
    """[batch, places] with every element so many places on; minus infinity comes in."""
    return b.pad(x, b.scalar_like(x, -np.inf), [(0, 0, 0), (places, -places, 0)])


def _checked_labels(node: Node, steps: int, batch: int, blank: int) -> tuple[Operand, Operand]:
    """(labels [batch, most labels of a row], number of labels of each row), of a sparse matrix whose rows are full.

    Leaves the run for labels that are otherwise, or that TensorFlow has an error for.
    """
    b, values = node.b, node["labels_values"]
    count = node.shape("labels_values")[0]
    row, column = (
        b.reshape(b.slice_in_dim(node["labels_indices"], k, k + 1, 1, 1), (count,)) for k in range(2)
    )
    check_indices(node, row, batch)
    check_indices(node, values, blank)
    max_labels = min(count, steps)
    rows = b.convert_element_type(row, _S32)
    lengths = scatter_rows(b, b.zeros(Shape(_S32, (batch,))), rows, b.full_like(rows, 1), "add")
    before = b.pad(row, b.scalar_like(row, -1), [(1, -1, 0)])
    expected = b.select(
        b.eq(row, before),
        b.pad(column, b.scalar_like(column, -1), [(1, -1, 0)]) + b.full_like(row, 1),
        b.full_like(row, 0),
    )
    node.bail_out_if(
        any_of(b, b.or_(b.ne(column, expected), b.lt(row, before)), [0]), "labels are not in order"
    )
    node.bail_out_if(any_of(b, b.eq(lengths, b.full_like(lengths, 0)), [0]), "a row has no labels")
    none = b.broadcast(b.constant(0, _S32), (batch, max_labels))
    return scatter_points(b, none, node["labels_indices"], values, "update"), lengths


@translates("CTCLoss", unsupported=_unsupported)
def ctc_loss(node: Node) -> Sequence[Operand]:
    """(loss of every row, gradient by the inputs). The last class is the blank."""
    b, (steps, batch, classes), type_ = node.b, _checked_dims(node), node.element_type("inputs")
    dims, blank, sizes = (steps, batch, classes), classes - 1, node["sequence_length"]
    check_indices(node, sizes, steps + 1)
    labels, lengths = _checked_labels(node, steps, batch, blank)
    is_short = b.gt(lengths, sizes)
    if not node.attr("ignore_longer_outputs_than_inputs"):
        node.bail_out_if(any_of(b, is_short, [0]), "a row has more labels than steps")
    is_left_out = b.or_(is_short, b.eq(sizes, b.full_like(sizes, 0)))
    shifted = node["inputs"] - per_row(b, reduce(b, node["inputs"], "max", [2]), dims)
    exps = b.exp(shifted)
    shares = exps / per_row(b, reduce(b, exps, "add", [2]), dims)
    spelled, skips, stays = _places(b, labels, blank, bool(node.attr("ctc_merge_repeated")), type_)
    logs = gather_axis(node, b.transpose(b.log(shares), (1, 0, 2)), spelled, 2, 1)
    logs = b.transpose(logs, (1, 0, 2))
    forward, backward = _alphas_and_betas(b, logs, skips, stays, lengths, sizes)
    both = forward + backward
    total, is_possible = _log_probability(b, both)
    zero = b.full_like(total, 0)
    loss = b.select(is_left_out, zero, b.neg(total))
    # What each place of the labels has of a step's probability goes to the class that stands there.
    divided = b.broadcast_in_dim(b.select(is_possible, total, zero), b.get_shape(both).dims, [1])
    parts = b.select(
        b.broadcast_in_dim(is_possible, b.get_shape(both).dims, [1]),
        b.exp(both - divided),
        b.full_like(both, 0),
    )
    gradient = shares - _by_class(b, parts, spelled, classes)
    step = b.broadcast_in_dim(b.iota(Shape(_S32, (steps,)), 0), dims, [0])
    is_counted = b.and_(
        b.lt(step, b.broadcast_in_dim(sizes, dims, [1])),
        b.not_(b.broadcast_in_dim(is_left_out, dims, [1])),
    )
    return loss, b.select(is_counted, gradient, b.full_like(gradient, 0))


def _checked_dims(node: Node) -> tuple[int, int, int]:
    """(steps, rows, classes) of the inputs."""
    shape = node.array_shape("inputs")
    if (
        shape.rank != 3
        or len(node.shape("labels_indices")) != 2
        or node.shape("sequence_length") != shape.dims[1:2]
    ):
        raise ShapeError(
            "CTCLoss: inputs are [time, batch, classes], labels a matrix, sequence lengths one for a row"
        )
    if 0 in shape.dims or not node.shape("labels_values")[0]:
        raise ShapeError("CTCLoss: there are no inputs or no labels")
    steps, batch, classes = shape.dims
    return steps, batch, classes


def _log_probability(b: ComputationBuilder, both: Operand) -> tuple[Operand, Operand]:
    """(logarithm of the probability of a row's labels, whether they are possible), from the sums of alphas and betas,
    by the first step."""
    first = b.reshape(b.slice_in_dim(both, 0, 1, 1, 0), b.get_shape(both).dims[1:])
    largest = reduce(b, first, "max", [1])
    is_possible = b.gt(largest, b.full_like(largest, -np.inf))
    base = b.select(is_possible, largest, b.full_like(largest, 0))
    total = b.log(reduce(b, b.exp(first - per_row(b, base, b.get_shape(first).dims)), "add", [1])) + base
    return total, is_possible


def _by_class(b: ComputationBuilder, parts: Operand, spelled: Operand, classes: int) -> Operand:
    """The parts of all places of labels [steps, batch, places], added up by class: [steps, batch, classes]."""
    shape = b.get_shape(parts)
    steps, batch, places = shape.dims
    target = spelled + b.broadcast_in_dim(
        b.constant(np.arange(batch, dtype=np.int32) * classes), (batch, places), [0]
    )
    sums = scatter_rows(
        b,
        b.zeros(Shape(shape.element_type, (batch * classes, steps))),
        b.reshape(target, (batch * places,)),
        b.reshape(b.transpose(parts, (1, 2, 0)), (batch * places, steps)),
        "add",
    )
    return b.transpose(b.reshape(sums, (batch, classes, steps)), (2, 0, 1))


def _places(
    b: ComputationBuilder, labels: Operand, blank: int, merges: bool, type_: ElementType
) -> tuple[Operand, Operand, Operand]:
    """(labels with a blank before, between and behind them; for every place 0 where a path may skip the place before
    it, and 0 where it may stay: else minus infinity)."""
    batch, max_labels = b.get_shape(labels).dims
    spelled = b.pad(labels, b.constant(blank, _S32), [(0, 0, 0), (1, 1, 1)])
    dims = (batch, 2 * max_labels + 1)
    is_label = b.eq(b.rem(b.iota(Shape(_S32, dims), 1), b.full_like(spelled, 2)), b.full_like(spelled, 1))
    repeats = b.eq(spelled, b.pad(spelled, b.constant(-1, _S32), [(0, 0, 0), (2, -2, 0)]))
    zero, never = (b.broadcast(b.constant(v, type_), dims) for v in (0, -np.inf))
    skips = b.select(b.and_(is_label, b.not_(repeats)) if merges else is_label, zero, never)
    return spelled, skips, zero if merges else b.select(is_label, never, zero)


def _alphas_and_betas(
    b: ComputationBuilder, logs: Operand, skips: Operand, stays: Operand, lengths: Operand, sizes: Operand
) -> tuple[Operand, Operand]:
    """(forward, backward), each [time, batch, places], of the logarithms of the probabilities of the places."""
    steps, *dims = b.get_shape(logs).dims
    place = b.iota(Shape(_S32, tuple(dims)), 1)
    zero, never = b.full_like(skips, 0), b.full_like(skips, -np.inf)
    start = b.select(b.lt(place, b.full_like(place, 2)), zero, never)
    ends = b.broadcast_in_dim(lengths + lengths, dims, [0])
    end = b.select(b.or_(b.eq(place, ends), b.eq(place, ends - b.full_like(place, 1))), zero, never)
    nothing = b.broadcast(b.scalar_like(logs, -np.inf), b.get_shape(logs).dims)

    def of(b: ComputationBuilder, x: Operand, number: Operand) -> Operand:
        return b.reshape(line(b, x, number, 0), b.get_shape(x).dims[1:])

    def store(b: ComputationBuilder, x: Operand, value: Operand, number: Operand) -> Operand:
        return with_line(b, x, b.reshape(value, (1, *b.get_shape(value).dims)), number, 0)

    def ahead(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        logs, skips, stays, start, before, table = values
        came = _plus(b, before + stays, _moved(b, before, 1), _moved(b, before, 2) + skips)
        is_first = b.broadcast(b.eq(number, b.constant(0, _S32)), b.get_shape(start).dims)
        now = b.select(is_first, start, came) + of(b, logs, number)
        return logs, skips, stays, start, now, store(b, table, now, number)

    def back(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        logs, skips, stays, end, sizes, after, table = values
        at = b.constant(steps - 1, _S32) - number
        goes = _plus(b, after + stays, _moved(b, after, -1), _moved(b, after + skips, -2))
        is_last = b.eq(sizes, b.broadcast(at + b.constant(1, _S32), b.get_shape(sizes).dims))
        now = b.select(b.broadcast_in_dim(is_last, b.get_shape(end).dims, [0]), end, goes)
        return logs, skips, stays, end, sizes, now + of(b, logs, at), store(b, table, now, at)

    *_, forward = repeated(b, steps, [logs, skips, stays, start, never, nothing], ahead)
    *_, backward = repeated(b, steps, [logs, skips, stays, end, sizes, never, nothing], back)
    return forward, backward
