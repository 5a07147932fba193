"""TensorArrays and stacks of TensorFlow 1, which keep their elements behind a handle, as variables do."""

from __future__ import annotations

from collections.abc import Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ...graph.graph import Graph, GraphNode
from ...tf_internals.dtypes import element_type
from ..array.gather import gather_axis
from ..array.scatter_gather import scatter_rows
from ..node import Node
from ..operands.value_ranges import TRUSTED, check_indices, note
from ..registry import translates
from ..values import Stack, TensorArray, UnknownElementsError, Value

STORES = frozenset({"TensorArrayV3", "TensorArrayGradV3", "StackV2"})
"""Ops whose first output is the handle of what keeps elements."""
_S32, _S64 = ElementType.S32, ElementType.S64


def zeros_for(b: ComputationBuilder, store: TensorArray | Stack, content: Shape) -> Operand:
    """The store's first content, given the shape of a content with some number of elements.

    Raises: UnsupportedError  the number of elements is not known.
    """
    length = store.length if isinstance(store, TensorArray) else store.capacity
    if length < 0:
        raise UnsupportedError("a stack that grows without a bound; give the loop maximum_iterations")
    return b.broadcast(b.constant(0, content.element_type), (length, *content.dims[1:]))


def make_gradients(node: Node, body: Graph, inputs: Sequence[Value]) -> None:
    """Makes the gradients' arrays that a loop's body asks for before the loop: they outlive it.

    Raises: UnsupportedError  the loop takes such an array by its own handle too.
    """
    for inner in body.nodes.values():
        if inner.op == "TensorArrayGradV3" and inner.inputs[0].node in body.arguments:
            array = inputs[body.arguments.index(inner.inputs[0].node)]
            if isinstance(array, TensorArray):
                _gradient(node, array, inner.attrs["source"].s.decode())
    arrays = [v for v in inputs if isinstance(v, TensorArray)]
    if any(a.owner in arrays for a in arrays if a.owner is not None) or len({id(a) for a in arrays}) < len(
        arrays
    ):
        raise UnsupportedError(f"{node.op}: an array comes into the loop twice")


def _array(node: Node) -> TensorArray:
    array = node.variable("handle")
    if not isinstance(array, TensorArray):
        raise UnsupportedError(f"{node.op}: input handle is no TensorArray of this cluster")
    return array


def _content(node: Node, array: TensorArray) -> Operand:
    if array.value is None:
        raise UnknownElementsError(f"{node.op}: an array is read before its element shape is known")
    return array.value


def _flow(node: Node) -> Operand:
    return node.b.constant(0.0)


def _unsupported(node: GraphNode) -> str | None:
    if node.attrs["dynamic_size"].b:
        return "an array that grows as it is written (dynamic_size=True); give it its size"
    return _unsupported_elements(node, "dtype")


def _unsupported_elements(node: GraphNode, attr: str = "elem_type") -> str | None:
    is_array = element_type(node.attrs[attr].type) is not None
    return None if is_array else "its elements are no arrays"


@translates("TensorArrayV3", constants=("size",), stateful=True, unsupported=_unsupported)
def tensor_array(node: Node) -> Sequence[Value]:
    dims, length = node.attr("element_shape"), node.integers("size")[0]
    array = TensorArray(node.name, None, length=length)
    if dims is not None and None not in dims:
        array.value = zeros_for(node.b, array, Shape(node.attr("dtype"), (length, *dims)))
    return array, _flow(node)


@translates("TensorArrayGradV3", stateful=True)
def gradient(node: Node) -> Sequence[Value]:
    return _gradient(node, _array(node), node.attr("source")), _flow(node)


def _gradient(node: Node, array: TensorArray, source: str) -> TensorArray:
    """The array for one of the gradients of an array, zeros at first: made once."""
    gradient = array.gradients.get(source)
    if gradient is None:
        zeros = zeros_for(node.b, array, node.b.get_shape(_content(node, array)))
        gradient = TensorArray(f"{array.name}/{source}", zeros, length=array.length, added=True, owner=array)
        array.gradients[source] = gradient
    return gradient


def _start(node: Node, array: TensorArray | Stack, shape: Shape) -> Operand:
    """The content, of zeros if these are the first elements."""
    if array.value is None:
        array.value = zeros_for(node.b, array, shape)
    return array.value


def _row(b: ComputationBuilder, content: Operand, index: Operand) -> tuple[Operand, list[Operand]]:
    """(an element with an axis of one before it, where it starts)."""
    length, *dims = b.get_shape(content).dims
    zero = b.constant(0, b.get_shape(index).element_type)
    starts = [index] + [zero] * len(dims)
    return b.dynamic_slice(content, starts, (1, *dims)), starts


@translates("TensorArrayWriteV3", stateful=True)
def write(node: Node) -> Operand:
    b, array, shape = node.b, _array(node), node.array_shape("value")
    content = _start(node, array, Shape(shape.element_type, (1, *shape.dims)))
    check_indices(node, node["index"], array.length)
    if array.length:
        item = b.reshape(node["value"], (1, *shape.dims))
        old, starts = _row(b, content, node["index"])
        array.write(b.dynamic_update_slice(content, b.add(old, item) if array.added else item, starts))
    return _flow(node)


@translates("TensorArrayReadV3", stateful=True)
def read(node: Node) -> Operand:
    b, content = node.b, _content(node, _array(node))
    length, *dims = b.get_shape(content).dims
    check_indices(node, node["index"], length)
    if not length:
        return b.broadcast(b.constant(0, b.get_shape(content).element_type), dims)
    return b.reshape(_row(b, content, node["index"])[0], dims)


@translates("TensorArrayGatherV3", stateful=True)
def gather(node: Node) -> Operand:
    array, dims = _array(node), node.attr("element_shape")
    if array.value is None and dims is not None and None not in dims:
        array.value = zeros_for(node.b, array, Shape(node.attr("dtype"), (array.length, *dims)))
    check_indices(node, node["indices"], array.length)
    return gather_axis(node, _content(node, array), node["indices"], 0, 0)


@translates("TensorArrayScatterV3", stateful=True)
def scatter(node: Node) -> Operand:
    array = _array(node)
    content = _start(node, array, node.array_shape("value"))
    check_indices(node, node["indices"], array.length)
    array.write(
        scatter_rows(node.b, content, node["indices"], node["value"], "add" if array.added else "update")
    )
    return _flow(node)


@translates("TensorArrayConcatV3", stateful=True)
def concat(node: Node) -> Sequence[Operand]:
    """The elements joined along their first axis, and the length of each: they have one shape, so one length."""
    b, content = node.b, _content(node, _array(node))
    count, *dims = b.get_shape(content).dims
    if not dims:
        raise ShapeError("Concat saw a scalar shape")
    return b.reshape(content, (count * dims[0], *dims[1:])), b.broadcast(b.constant(dims[0], _S64), (count,))


@translates("TensorArraySplitV3", constants=("lengths",), stateful=True)
def split(node: Node) -> Operand:
    b, array, dims, lengths = node.b, _array(node), node.shape("value"), node.integers("lengths")
    if len(set(lengths)) != 1 or lengths[0] * len(lengths) != dims[0] or len(lengths) != array.length:
        raise UnsupportedError(
            f"{node.op}: parts of {sorted(set(lengths))} rows; an array has elements of one shape"
        )
    parts = b.reshape(node["value"], (len(lengths), lengths[0], *dims[1:]))
    array.write(b.add(_content(node, array), parts) if array.added else parts)
    return _flow(node)


@translates("TensorArraySizeV3", stateful=True)
def size(node: Node) -> Operand:
    return node.b.constant(_array(node).length, _S32)


@translates("TensorArrayCloseV3", "StackCloseV2", stateful=True)
def close(node: Node) -> None:
    """Nothing: an array that is not read again takes no memory."""


@translates("StackV2", constants=("max_size",), stateful=True, unsupported=_unsupported_elements)
def stack(node: Node) -> Stack:
    max_size = node.constant_or_none("max_size")
    return Stack(
        node.name, None, size=node.b.constant(0, _S32), capacity=-1 if max_size is None else int(max_size)
    )


def _stack(node: Node) -> tuple[Stack, Operand]:
    stack_value = node.variable("handle")
    if not isinstance(stack_value, Stack) or stack_value.size is None:
        raise UnsupportedError(f"{node.op}: input handle is no stack of this cluster")
    return stack_value, stack_value.size


@translates("StackPushV2", stateful=True)
def push(node: Node) -> Operand:
    b, shape = node.b, node.array_shape("elem")
    stack_value, count = _stack(node)
    if stack_value.is_full:
        raise UnsupportedError(
            f"{node.op}: a stack grows in two loops; the first one's bound is its capacity"
        )
    content = _start(node, stack_value, Shape(shape.element_type, (1, *shape.dims)))
    if stack_value.capacity:
        item = b.reshape(node["elem"], (1, *shape.dims))
        stack_value.value = b.dynamic_update_slice(content, item, _row(b, content, count)[1])
    stack_value.size, stack_value.written = b.add(count, b.constant(1, _S32)), True
    stack_value.note(node.constant_or_none("elem"))
    return node["elem"]


@translates("StackPopV2", stateful=True)
def pop(node: Node) -> Operand:
    b = node.b
    stack_value, count = _stack(node)
    if stack_value.value is None:
        raise UnknownElementsError(f"{node.op}: a stack is read before its element shape is known")
    _, *dims = b.get_shape(stack_value.value).dims
    stack_value.size, stack_value.written = b.sub(count, b.constant(1, _S32)), True
    if stack_value.constant_element is not None and not stack_value.differs:
        return b.constant(stack_value.constant_element, b.get_shape(stack_value.value).element_type)
    if not stack_value.capacity:  # of a loop that never runs
        return b.broadcast(b.constant(0, b.get_shape(stack_value.value).element_type), dims)
    item = b.reshape(_row(b, stack_value.value, stack_value.size)[0], dims)
    note(node.context, item, TRUSTED)  # an index that a gradient takes back was one before
    return item
