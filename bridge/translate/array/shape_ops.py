"""Constants, shapes, reshapes, transposes, broadcasts and tiles."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ...analysis import symbolic_size
from ...graph.graph import Graph, GraphNode
from ..math.broadcasting import broadcast_dims, broadcast_to
from ..node import Node
from ..operands.axes import axis_of
from ..operands.dynamic_dims import Extent, bounds, room_of, with_first
from ..operands.dynamic_dims import extents as measured_extents
from ..registry import first_input, translates
from ..values import Text


@translates("Const", "HostConst")
def const(node: Node) -> Operand | Text:
    value = node.attr("value")
    return Text(value) if value.dtype == object else node.b.constant(value)


@translates("Shape", takes_sizes=first_input)
@translates("ShapeN")
def shape(node: Node) -> Sequence[Operand]:
    """Sizes that depend on data are read at run time."""
    type_ = node.attr("out_type")
    return tuple(
        _dims_of(node.b, node[k], type_)
        if node.array_shape(k).is_dynamic
        else node.b.constant(np.array(node.shape(k)), type_)
        for k in range(len(node.inputs))
    )


def _dims_of(b: ComputationBuilder, operand: Operand, type_: ElementType) -> Operand:
    rest = b.constant(np.array(b.get_shape(operand).dims[1:]), type_)
    first = b.convert_element_type(b.get_dimension_size(operand, 0), type_)
    return b.concat_in_dim([b.reshape(first, (1,)), rest], 0)


@translates("Size", takes_sizes=first_input)
def size(node: Node) -> Operand:
    dims, type_ = node.shape(0), node.attr("out_type")
    if not node.array_shape(0).is_dynamic:
        return node.b.constant(math.prod(dims), type_)
    first = node.b.convert_element_type(node.b.get_dimension_size(node[0], 0), type_)
    return first * node.b.constant(math.prod(dims[1:]), type_)


@translates("Rank")
def rank(node: Node) -> Operand:
    return node.b.constant(len(node.shape(0)), ElementType.S32)


def _reshaped_with_size(node: GraphNode, graph: Graph) -> Collection[int]:
    """The first input, if it becomes rows of a fixed size, or all sizes of the result are numbers."""
    target = symbolic_size.constant_of(graph, node.inputs[1].node)
    is_taken = target is None or target.ravel()[:1] == -1 and (target.ravel()[1:] > 0).all()
    return (0,) if is_taken or _is_whole(node, graph, ()) else ()


def _is_whole(node: GraphNode, graph: Graph, sized: Collection[int]) -> bool:
    """Whether the result has these sizes, or there is an error."""
    target = symbolic_size.constant_of(graph, node.inputs[1].node)
    return target is not None and bool(target.size) and bool((target > 0).all())


@translates(
    "Reshape",
    constants=("shape",),
    takes_sizes=_reshaped_with_size,
    drops_sizes=_is_whole,
    sized_by=("shape",),
)
def reshape(node: Node) -> Operand:
    if node.array_shape(0).is_dynamic:
        return _reshape_rows(node)
    sizes, have = measured_extents(node, "shape"), math.prod(node.shape(0))
    target = bounds(sizes)
    if sizes and isinstance(sizes[0], Extent):
        rest = math.prod(target[1:])
        target[0] = have // rest if rest > 0 else 0
        node.bail_out_if(
            node.b.ne(sizes[0].value, node.b.constant(target[0], ElementType.S32)),
            "an array is reshaped to another size",
        )
    if -1 in target:  # where a 0 is wanted, TensorFlow leaves zeros out on both sides
        count = math.prod(d for d in node.shape(0) if d or 0 not in target)
        target[target.index(-1)] = count // math.prod(d for d in target if d not in (0, -1))
    if math.prod(target) != have:
        raise ShapeError(
            f"Input to reshape is a tensor with {have} values, but the requested shape has "
            f"{math.prod(target)}"
        )
    return node.b.reshape(node[0], target)


def _reshape_rows(node: Node) -> Operand:
    """An array of a number of rows that depends on data, whose first size follows from the others."""
    b, dims, (first, *rest) = node.b, node.shape(0), measured_extents(node, "shape")
    inner, row_elements = math.prod(dims[1:]), math.prod(bounds(rest))
    target = () if isinstance(first, Extent) else (first, *bounds(rest))
    if target and -1 not in target and 0 < math.prod(target) <= math.prod(dims):
        return _reshape_all(node, target)
    if first != -1 and not isinstance(first, Extent) or -1 in rest or not row_elements:
        raise UnsupportedError(
            f"Reshape: {node.array_shape(0)}, of a size that depends on data, to other rows"
        )
    result = (
        _other_rows(node, bounds(rest))
        if inner % row_elements or dims[0] == 1 != inner // row_elements
        else b.reshape(node[0], [dims[0] * (inner // row_elements), *bounds(rest)])
    )
    if isinstance(first, Extent):
        b.bail_out_if(
            b.ne(first.value, b.get_dimension_size(result, 0)), "an array is reshaped to another size"
        )
    return result


def _elements(node: Node) -> Operand:
    """How many elements an array has of which the number of rows depends on data."""
    rows, inner = node.b.get_dimension_size(node[0], 0), math.prod(node.shape(0)[1:])
    return node.b.mul(rows, node.b.size(inner))


def _first_elements(node: Node, dims: Sequence[int]) -> Operand:
    """An array of these dims, of the first elements of one of which the number of rows depends on data."""
    b, count = node.b, math.prod(dims)
    flat = b.reshape(room_of(b, node[0]), [math.prod(node.shape(0))])
    return b.reshape(b.slice_in_dim(flat, 0, count, 1, 0), dims)


def _other_rows(node: Node, rest: Sequence[int]) -> Operand:
    """An array of a number of rows that depends on data, as rows of these dims: as many as it has elements for."""
    b, row = node.b, math.prod(rest)
    size, elements = _elements(node), b.size(row)
    b.bail_out_if(
        b.ne(b.rem(size, elements), b.size(0)),
        "an array is reshaped to rows that it does not fill",
    )
    rows = _first_elements(node, [math.prod(node.shape(0)) // row, *rest])
    return b.set_dimension_size(rows, b.div(size, elements), 0)


def _reshape_all(node: Node, target: Sequence[int]) -> Operand:
    """An array of a number of rows that depends on data, with as many elements as these dims have."""
    b, count = node.b, math.prod(target)
    b.bail_out_if(b.ne(_elements(node), b.size(count)), "an array is reshaped to another size")
    return _first_elements(node, target)


def _expanded_with_size(node: GraphNode, graph: Graph) -> Collection[int]:
    """The first input, if the new axis comes behind."""
    axis = symbolic_size.constant_of(graph, node.inputs[1].node)
    return (0,) if axis is not None and axis.size == 1 and (axis.item() > 0 or axis.item() == -1) else ()


@translates("ExpandDims", constants=("dim",), takes_sizes=_expanded_with_size)
def expand_dims(node: Node) -> Operand:
    dims, axis = list(node.shape(0)), node.integers("dim")[0]
    dims.insert(axis_of(axis, len(dims) + 1, node.op), 1)
    return node.b.reshape(node[0], dims)


def _squeezed_with_size(node: GraphNode, graph: Graph) -> Collection[int]:
    """The first input, if it is said which axes are dropped."""
    axes = node.attrs["squeeze_dims"].list.i if "squeeze_dims" in node.attrs else ()
    return (0,) if axes and 0 not in axes else ()


@translates("Squeeze", takes_sizes=_squeezed_with_size)
def squeeze(node: Node) -> Operand:
    dims = node.shape(0)
    axes = {axis_of(a, len(dims), node.op) for a in node.attr("squeeze_dims") or []}
    if axes & set(node.array_shape(0).dynamic):
        raise UnsupportedError("Squeeze: an axis that is dropped has a size that depends on data")
    if any(dims[a] != 1 for a in axes):
        raise ShapeError(f"Can not squeeze dim[{min(axes)}], expected a dimension of 1, got {list(dims)}")
    return node.b.reshape(node[0], [d for a, d in enumerate(dims) if (a not in axes if axes else d != 1)])


@translates("Transpose", "ConjugateTranspose", constants=("perm",))
def transpose(node: Node) -> Operand:
    order = [axis_of(a, len(node.shape(0)), node.op) for a in node.integers("perm")]
    result = node.b.transpose(node[0], order)
    return (
        node.b.conj(result) if node.op == "ConjugateTranspose" and node.element_type(0).is_complex else result
    )


@translates("InvertPermutation", constants=("x",))
def invert_permutation(node: Node) -> Operand:
    numbers = node.constant(0)
    if not np.array_equal(np.sort(numbers), np.arange(numbers.size)):
        raise ShapeError(f"InvertPermutation: {numbers.tolist()} is no permutation")
    return node.b.constant(np.argsort(numbers), node.element_type(0))


@translates("BroadcastTo", constants=("shape",), takes_sizes=first_input, sized_by=("shape",))
def broadcast_to_shape(node: Node) -> Operand:
    b, sizes, dims = node.b, measured_extents(node, "shape"), node.shape(0)
    if node.array_shape(0).is_dynamic:
        if len(dims) != len(sizes):
            raise UnsupportedError("BroadcastTo: an array of a size that depends on data gets axes before it")
        size = sizes[0].value if isinstance(sizes[0], Extent) else b.constant(sizes[0], ElementType.S32)
        node.bail_out_if(
            b.ne(size, b.get_dimension_size(node[0], 0)), "an array is stretched to another size"
        )
        return broadcast_to(b, node[0], (dims[0], *bounds(sizes[1:])))
    if sizes and isinstance(sizes[0], Extent) and len(dims) == len(sizes) and dims[0] != 1:
        b.bail_out_if(b.ne(sizes[0].value, b.size(dims[0])), "an array is stretched to another size")
    return with_first(b, broadcast_to(b, node[0], bounds(sizes)), sizes)


@translates("BroadcastArgs", constants=("s0", "s1"))
def broadcast_args(node: Node) -> Operand:
    dims = broadcast_dims(node.integers(0), node.integers(1))
    return node.b.constant(np.array(dims), node.element_type(0))


def _are_axes(node: GraphNode, graph: Graph, sized: Collection[int]) -> bool:
    return True


@translates("BroadcastGradientArgs", constants=("s0", "s1"), sized_by=("s0", "s1"), drops_sizes=_are_axes)
def broadcast_gradient_args(node: Node) -> Sequence[Operand]:
    """For each input the axes over which its gradient is summed. A size that depends on data is taken not to be one
    that was stretched."""
    measured = [measured_extents(node, k) for k in ("s0", "s1")]
    if any(isinstance(e, int) and e < 0 for extents_ in measured for e in extents_):
        raise ShapeError(f"Incompatible shapes: {' vs. '.join(map(str, measured))}")
    shapes = [tuple(-1 if isinstance(e, Extent) else e for e in extents_) for extents_ in measured]
    broadcast_dims(*(tuple(1 if d == -1 else d for d in s) for s in shapes))  # checks them
    if shapes[0] == shapes[1]:
        return tuple(node.b.constant(np.array([], np.int32), node.element_type(k)) for k in range(2))
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    result = []
    for k in range(2):
        axes = [
            a
            for a in range(rank)
            if padded[k][a] == 1
            and (padded[1 - k][a] != 1 or a < rank - len(shapes[k]) or padded[0][a] == padded[1][a] == 1)
        ]
        result.append(node.b.constant(np.array(axes), node.element_type(k)))
    return tuple(result)


@translates("Tile", constants=("multiples",), sized_by=("multiples",))
def tile(node: Node) -> Operand:
    b, dims, counts = node.b, node.shape(0), measured_extents(node, "multiples")
    times = bounds(counts)
    if len(times) != len(dims):
        raise ShapeError(
            f"Expected multiples argument to be a vector of length {len(dims)} but got length {len(times)}"
        )
    broadcast_dims, copied_axes = [], []
    for count, length in zip(times, dims):
        broadcast_dims += [count, length]
        copied_axes.append(len(broadcast_dims) - 1)
    tiled = with_first(b, b.broadcast_in_dim(node[0], broadcast_dims, copied_axes), counts)
    return b.reshape(tiled, [c * d for c, d in zip(times, dims)])


@translates("ReverseV2", constants=("axis",), takes_sizes=first_input)
def reverse(node: Node) -> Operand:
    axes = [axis_of(a, len(node.shape(0)), node.op) for a in node.integers("axis")]
    return node.b.rev(node[0], axes)
