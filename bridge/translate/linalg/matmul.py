"""Matrix products."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ...graph.graph import Graph, GraphNode
from ..math.broadcasting import assume_same_size, broadcast_dims, broadcast_to
from ..math.reductions import reduce
from ..node import Node
from ..registry import first_input, translates


def matrix_product(
    b: ComputationBuilder,
    x: Operand,
    y: Operand,
    transpose_x: bool = False,
    transpose_y: bool = False,
    preferred_type: ElementType | None = None,
) -> Operand:
    """x @ y over the last two axes; leading axes broadcast. Transposed operands are read as they lie."""
    left, right = b.get_shape(x).dims, b.get_shape(y).dims
    batch = broadcast_dims(left[:-2], right[:-2])
    if left[:-2] != batch:
        x = broadcast_to(b, x, (*batch, *left[-2:]))
    if right[:-2] != batch:
        y = broadcast_to(b, y, (*batch, *right[-2:]))
    n = len(batch)
    inner_x, inner_y = (left[-2] if transpose_x else left[-1]), (right[-1] if transpose_y else right[-2])
    if inner_x != inner_y:
        raise ShapeError(f"Matrix size-incompatible: In[0]: {list(left)}, In[1]: {list(right)}")
    axes = list(range(n))
    return b.dot_general(
        x, y, ([n if transpose_x else n + 1], [n + 1 if transpose_y else n]), (axes, axes), preferred_type
    )


def _rows_times(node: GraphNode, graph: Graph) -> Collection[int]:
    """The first factor, if its rows are the result's; both, if their rows are summed."""
    if not node.attrs["transpose_a"].b:
        return (0,)
    return () if node.attrs["transpose_b"].b else (0, 1)


def _rows_summed(node: GraphNode, graph: Graph, sized: Collection[int]) -> bool:
    return node.attrs["transpose_a"].b


@translates("MatMul", takes_sizes=_rows_times, drops_sizes=_rows_summed)
def mat_mul(node: Node) -> Operand:
    for k in range(2):
        if len(node.shape(k)) != 2:
            raise ShapeError(f"In[{k}] is not a matrix: {list(node.shape(k))}")
    if node.attr("transpose_a"):
        assume_same_size(node.b, [(node[0], 0), (node[1], 1 if node.attr("transpose_b") else 0)])
    return matrix_product(node.b, node[0], node[1], node.attr("transpose_a"), node.attr("transpose_b"))


@translates("SparseMatMul")
def sparse_mat_mul(node: Node) -> Operand:
    """The operands are dense; that one has many zeros is a hint. The product is f32."""
    x, y = (node.b.convert_element_type(node[k], ElementType.F32) for k in range(2))
    return matrix_product(node.b, x, y, node.attr("transpose_a"), node.attr("transpose_b"))


@translates("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_mat_mul(node: Node) -> Operand:
    x, y = node[0], node[1]
    adjoint = node.attr("adj_x"), node.attr("adj_y")
    if node.element_type(0).is_complex:
        x, y = (node.b.conj(v) if a else v for v, a in zip((x, y), adjoint))
    return matrix_product(node.b, x, y, *adjoint, node.attr("Tout"))


@translates("BiasAdd", "BiasAddV1", takes_sizes=first_input)
def bias_add(node: Node) -> Operand:
    dims = node.shape(0)
    axis = 1 if node.attr("data_format") == "NCHW" else len(dims) - 1
    if node.shape(1) != (dims[axis],):
        raise ShapeError(
            f"Must provide as many biases as the last dimension of the input tensor: "
            f"{list(node.shape(1))} vs. {list(dims)}"
        )
    return node.b.add(node[0], node.b.broadcast_in_dim(node[1], dims, [axis]))


@translates("Einsum")
def einsum(node: Node) -> Operand:
    """One or two operands: sums over axes that only one has, a product over shared ones, a transpose at the end."""
    equation = node.attr("equation").replace(" ", "")
    inputs, _, output = equation.partition("->")
    terms = inputs.split(",")
    named = [_named(term, len(node.shape(k))) for k, term in enumerate(terms)]
    widest = max((n for _, n in named), default=0)
    labels = [_spelled(term, rank, widest) for term, (_, rank) in zip(terms, named)]
    output_labels = _spelled(output, widest, widest)
    _check_labels(labels, [node.shape(k) for k in range(len(terms))], output_labels)
    operands = [_diagonal(node.b, node[k], labels[k]) for k in range(len(terms))]
    if len(operands) == 1:
        return _arranged(node.b, *operands[0], output_labels)
    (x, left), (y, right) = operands
    x, left = _summed(node.b, x, left, set(right) | set(output_labels))
    y, right = _summed(node.b, y, right, set(left) | set(output_labels))
    sizes: dict[str, int] = {}
    for operand, term in ((x, left), (y, right)):
        for label, size in zip(term, node.b.get_shape(operand).dims):
            sizes[label] = max(sizes.get(label, 1), size) if sizes.get(label, 1) != 0 and size != 0 else 0
    x = broadcast_to(node.b, x, [sizes[c] for c in left])
    y = broadcast_to(node.b, y, [sizes[c] for c in right])
    shared = [c for c in left if c in right]
    batch, summed = [c for c in shared if c in output_labels], [c for c in shared if c not in output_labels]
    result = node.b.dot_general(
        x,
        y,
        ([left.index(c) for c in summed], [right.index(c) for c in summed]),
        ([left.index(c) for c in batch], [right.index(c) for c in batch]),
    )
    order = [*batch, *(c for c in left if c not in shared), *(c for c in right if c not in shared)]
    return _arranged(node.b, result, order, output_labels)


def _check_labels(
    labels: Sequence[Sequence[str]], shapes: Sequence[Sequence[int]], output_labels: Collection[str]
) -> None:
    """Raises: ShapeError  a named label has two sizes; in TensorFlow a result's label may have 0 and then 1. Those of
    an ellipsis may be 1 in one operand."""
    sizes: dict[str, int] = {}
    for term, dims in zip(labels, shapes):
        for axis, (label, size) in enumerate(zip(term, dims)):
            known = size if label.isdigit() else sizes.setdefault(label, size)
            if known != size and not (known == 0 and size == 1 and label in output_labels):
                raise ShapeError(
                    f"Expected dimension {known} at axis {axis} of the input shaped {list(dims)} "
                    f"but got dimension {size}"
                )


def _named(term: str, rank: int) -> tuple[int, int]:
    """(number of named axes, number of axes that the ellipsis stands for)."""
    count = len(term.replace("...", ""))
    if rank < count or rank > count and "..." not in term:
        raise ShapeError(f"Einsum: an operand of rank {rank} for the term {term}")
    return count, rank - count


def _spelled(term: str, count: int, widest: int) -> list[str]:
    """Labels of the axes; those of an ellipsis are numbers, aligned at the right."""
    before, dots, after = term.partition("...")
    middle = [str(k) for k in range(widest - count, widest)] if dots else []
    return [*before, *middle, *after]


def _diagonal(b: ComputationBuilder, x: Operand, labels: list[str]) -> tuple[Operand, list[str]]:
    """A label that stands twice takes the diagonal."""
    labels = list(labels)
    while (twice := next((c for c in labels if labels.count(c) > 1), None)) is not None:
        first, second = [k for k, c in enumerate(labels) if c == twice][:2]
        dims = b.get_shape(x).dims
        here, there = (b.iota(Shape(ElementType.S32, dims), a) for a in (first, second))
        zero = b.broadcast(b.constant(0, b.get_shape(x).element_type), dims)
        x, labels = (
            _reduced(b, b.select(b.eq(here, there), x, zero), [second]),
            labels[:second] + labels[second + 1 :],
        )
    return x, labels


def _reduced(b: ComputationBuilder, x: Operand, axes: list[int]) -> Operand:
    return reduce(b, x, "add", axes) if axes else x


def _summed(
    b: ComputationBuilder, x: Operand, labels: list[str], other_labels: set[str]
) -> tuple[Operand, list[str]]:
    axes = [k for k, c in enumerate(labels) if c not in other_labels]
    return _reduced(b, x, axes), [c for c in labels if c in other_labels]


def _arranged(b: ComputationBuilder, x: Operand, labels: list[str], order: list[str]) -> Operand:
    """x with the axes of order, those of other labels summed. A label that stands twice there makes a diagonal."""
    x, labels = _summed(b, x, labels, set(order))
    distinct = list(dict.fromkeys(order))
    x = b.transpose(x, [labels.index(c) for c in distinct])
    if len(distinct) == len(order):
        return x
    sizes = dict(zip(distinct, b.get_shape(x).dims))
    dims = tuple(sizes[c] for c in order)
    x = b.broadcast_in_dim(x, dims, [order.index(c) for c in distinct])
    zero = b.broadcast(b.constant(0, b.get_shape(x).element_type), dims)
    for axis, label in enumerate(order):
        if (first := order.index(label)) != axis:
            here, there = (b.iota(Shape(ElementType.S32, dims), a) for a in (first, axis))
            x = b.select(b.eq(here, there), x, zero)
    return x
