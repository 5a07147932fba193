"""TensorLists: the storage of TensorArrays and of the accumulators of a loop's gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ....runtime.sizes import as_size
from ...graph.graph import DT_VARIANT, GraphNode
from ...tf_internals.dtypes import element_type
from ..node import Node
from ..operands.dynamic_dims import Extent, extents_or_none
from ..operands.value_ranges import TRUSTED, check_indices, note
from ..registry import first_input, translates
from ..values import Optional, TensorList, UnknownElementsError, Value, flatten, rebuild

_S32 = ElementType.S32


def initialized(
    b: ComputationBuilder, values: TensorList, element_type: ElementType, dims: Sequence[int]
) -> TensorList:
    """The list with a buffer of zeros and its items, now that its element shape is known."""
    if values.capacity < 0:
        raise UnsupportedError("a list that grows without a bound; give the loop maximum_iterations")
    zeros = b.broadcast(b.constant(0, element_type), (values.capacity, *dims))
    return dataclasses.replace(values, buffer=add_items(b, zeros, values.items), items=())


def add_items(b: ComputationBuilder, buffer: Operand, items: Sequence[tuple[Operand, Operand]]) -> Operand:
    """The buffer with each item added to the element of its index."""
    for index, item in items:
        buffer = write_row(b, buffer, index, b.add(read_row(b, buffer, index), item))
    return buffer


def _dims(node: Node, which: str) -> tuple[int, ...] | None:
    """A constant element shape; None when it is not fully known."""
    value = node.constant(which)
    dims = tuple(int(v) for v in value.ravel())
    return None if value.ndim == 0 or any(d < 0 for d in dims) else dims


def _list(node: Node, dims: tuple[int, ...] | None, capacity: int, size: Operand) -> TensorList:
    """Without a buffer, where it has no element type: what lists and optionals consist of shows the first of them."""
    values, type_ = TensorList(None, size, capacity), node.attr("element_dtype")
    return values if dims is None or type_ is None else initialized(node.b, values, type_, dims)


def _unsupported(node: GraphNode) -> str | None:
    type_ = node.attrs["element_dtype"].type
    # Variants are lists or optionals, of gradients of loops and branches inside loops.
    is_known = element_type(type_) is not None or type_ == DT_VARIANT
    return None if is_known else "a list of elements that are no arrays"


@translates(
    "TensorListReserve",
    constants=("element_shape", "num_elements"),
    unsupported=_unsupported,
    sized_by=("num_elements",),
)
def reserve(node: Node) -> TensorList:
    sizes = extents_or_none(node, "num_elements")
    if (
        sizes is not None
        and isinstance(sizes[0], Extent)
        and node.constant_or_none("element_shape") is not None
    ):
        values = _list(node, _dims(node, "element_shape"), sizes[0].bound, sizes[0].value)
        return dataclasses.replace(values, varies=True)
    if node.constant_or_none("num_elements") is None or node.constant_or_none("element_shape") is None:
        return TensorList(None, node["num_elements"], -1)
    capacity = node.integers("num_elements")[0]
    return _list(node, _dims(node, "element_shape"), capacity, node.b.constant(capacity, _S32))


@translates("EmptyTensorList", constants=("element_shape", "max_num_elements"), unsupported=_unsupported)
def empty(node: Node) -> TensorList:
    capacity = node.integers("max_num_elements")[0]
    dims = (
        _dims(node, "element_shape") if capacity >= 0 else None
    )  # without a bound: no buffer before the loop
    return dataclasses.replace(_list(node, dims, capacity, node.b.constant(0, _S32)), differs=False)


@translates("TensorListFromTensor", constants=("element_shape",), takes_sizes=first_input)
def from_tensor(node: Node) -> TensorList:
    length = node.shape("tensor")[0]
    if node.array_shape("tensor").is_dynamic:
        size, room = node.b.get_dimension_size(node["tensor"], 0), node.b.constant(length, _S32)
        return TensorList(node.b.set_dimension_size(node["tensor"], room, 0), size, length, varies=True)
    return TensorList(node["tensor"], node.b.constant(length, _S32), length)


def allocate_like(
    b: ComputationBuilder, values: TensorList, item: Value, shapes: Sequence[Shape]
) -> TensorList:
    """The list with room for elements like one, whose arrays have these shapes."""
    if isinstance(item, Operand):
        return initialized(b, values, shapes[0].element_type, shapes[0].dims)
    if values.capacity < 0:
        raise UnsupportedError("a list that grows without a bound; give the loop maximum_iterations")
    parts = [b.broadcast(b.constant(0, s.element_type), (values.capacity, *s.dims)) for s in shapes]
    assert isinstance(item, TensorList | Optional)
    return dataclasses.replace(values, element=item, parts=tuple(parts))


def write_row(b: ComputationBuilder, buffer: Operand, index: Operand, item: Operand) -> Operand:
    """The buffer with an element written."""
    if b.get_shape(buffer).dims[0] == 0:  # of a loop that never runs
        return buffer
    dims = b.get_shape(item).dims
    return b.dynamic_update_slice(buffer, b.reshape(item, (1, *dims)), _starts(b, index, len(dims)))


def read_row(b: ComputationBuilder, buffer: Operand, index: Operand) -> Operand:
    """An element of the buffer."""
    length, *dims = b.get_shape(buffer).dims
    if length == 0:  # of a loop that never runs
        return b.broadcast(b.constant(0, b.get_shape(buffer).element_type), dims)
    return b.reshape(b.dynamic_slice(buffer, _starts(b, index, len(dims)), (1, *dims)), dims)


def _starts(b: ComputationBuilder, index: Operand, rank: int) -> list[Operand]:
    zero = b.constant(0, b.get_shape(index).element_type)
    return [index] + [zero] * rank


def _write(node: Node, values: TensorList, index: Operand, item: Operand) -> Operand:
    """The buffer with an element written."""
    shape = node.b.get_shape(item)
    if values.buffer is None:
        values = initialized(node.b, values, shape.element_type, shape.dims)
    assert values.buffer is not None
    return write_row(node.b, values.buffer, index, item)


def _read(node: Node, values: TensorList, index: Operand) -> Operand:
    if values.buffer is None:
        raise UnknownElementsError(f"{node.op}: a list is read before its element shape is known")
    return read_row(node.b, values.buffer, index)


def _extended(node: Node, values: TensorList) -> TensorList:
    """The list with room for the element that is to be written, and as long as it is then."""
    b, index, size = node.b, node.constant_or_none("index"), node.context.constant_value(values.size)
    if index is not None:
        values = longer(b, values, max(int(index) + 1, values.capacity))
        if size is not None:
            return dataclasses.replace(
                values, size=b.constant(max(as_size(index[()]) + 1, as_size(size[()])), _S32)
            )
    elif values.beyond:
        if not node.context.capacity_factor:
            raise UnsupportedError(
                f"{node.op}: a list that grows as it is written (dynamic_size=True); give it its size"
            )
        room = b.constant(values.capacity, _S32)
        end_run = b.overflow_if if values.beyond == "reallocate" else b.bail_out_if
        end_run(
            b.or_(b.lt(node["index"], b.constant(0, _S32)), b.ge(node["index"], room)),
            f"a list outgrows its bound of {values.capacity} elements",
        )
    end = b.add(node["index"], b.constant(1, _S32))
    return dataclasses.replace(values, size=b.max(values.size, end), varies=True)


def check_places(node: Node, values: TensorList, places: Operand) -> None:
    """Leaves the run where the list has no element of such a number. Within loops, a list whose length varies is taken
    to be as long as it may be."""
    if values.capacity >= 0:
        is_sized = values.varies and not node.context.is_inner
        check_indices(node, places, Extent(values.size, values.capacity) if is_sized else values.capacity)


def longer(b: ComputationBuilder, values: TensorList, capacity: int) -> TensorList:
    """The list with room for as many elements."""
    more = capacity - values.capacity
    if more <= 0:
        return values
    arrays = [b.pad_in_dim(a, b.scalar_like(a, 0), 0, 0, more) for a in values.arrays]
    values = dataclasses.replace(values, capacity=capacity)
    return values.with_arrays(arrays) if values.has_buffers else values


@translates("TensorListSetItem")
def set_item(node: Node) -> TensorList:
    values = node.tensor_list("input_handle")
    if node.attr("resize_if_index_out_of_bounds") and values.capacity >= 0:
        values = _extended(node, values)
    if values.buffer is None and values.capacity < 0:
        if values.items:
            raise UnsupportedError(f"{node.op}: a list whose length is not known is written twice")
        return dataclasses.replace(values, items=((node["index"], node["item"]),))
    check_places(node, values, node["index"])
    return dataclasses.replace(values, buffer=_write(node, values, node["index"], node["item"]), differs=True)


@translates("TensorListGetItem")
def get_item(node: Node) -> Operand:
    values = node.tensor_list("input_handle")
    check_places(node, values, node["index"])
    return _read(node, values, node["index"])


@translates("TensorListPushBack")
def push_back(node: Node) -> TensorList:
    values, item = node.tensor_list("input_handle"), node.inputs[node.number("tensor")]
    if values.is_full:  # after a loop that appends to it comes one that takes from it; it may grow again then
        if not node.context.capacity_factor:
            raise UnsupportedError(
                f"{node.op}: a list grows in two loops; the first one's bound is its capacity"
            )
        node.bail_out_if(
            node.b.ge(values.size, node.b.constant(values.capacity, _S32)),
            f"a list outgrows its bound of {values.capacity} elements",
        )
    if not values.has_buffers:
        values = allocate_like(node.b, values, item, [node.b.get_shape(o) for o in flatten(item)])
    arrays = [write_row(node.b, a, values.size, o) for a, o in zip(values.arrays, flatten(item), strict=True)]
    size = node.b.add(values.size, node.b.constant(1, _S32))
    value = node.constant_or_none("tensor") if isinstance(item, Operand) else None
    differs = (
        values.differs
        or value is None
        or values.constant_element is not None
        and not np.array_equal(value, values.constant_element)
    )
    return dataclasses.replace(
        values.with_arrays(arrays), size=size, varies=True, constant_element=value, differs=differs
    )


@translates("TensorListPopBack")
def pop_back(node: Node) -> tuple[TensorList, Value]:
    values = node.tensor_list("input_handle")
    last = node.b.sub(values.size, node.b.constant(1, _S32))
    if values.constant_element is not None and not values.differs:
        item: Operand = node.b.constant(values.constant_element, node.attr("element_dtype"))
        return dataclasses.replace(values, size=last, varies=True), item
    if values.element is None:
        item = _read(node, values, last)
        note(node.context, item, TRUSTED)  # an index that a gradient takes back was one before
        return dataclasses.replace(values, size=last, varies=True), item
    parts = [read_row(node.b, a, last) for a in values.parts]
    return dataclasses.replace(values, size=last, varies=True), rebuild(values.element, parts)


@translates("TensorListStack", constants=("element_shape",))
def stack(node: Node) -> Operand:
    values = node.tensor_list("input_handle")
    if values.buffer is None:
        dims = _dims(node, "element_shape")
        if dims is None:
            raise UnsupportedError(f"{node.op}: a list is stacked whose element shape is not known")
        values = initialized(node.b, values, node.attr("element_dtype"), dims)
    assert values.buffer is not None
    length = node.context.constant_value(values.size)
    if length is None and values.varies:
        return node.b.set_dimension_size(values.buffer, values.size, 0)
    if length is None or as_size(length[()]) == values.capacity:
        return values.buffer
    return node.b.slice_in_dim(values.buffer, 0, as_size(length[()]), 1, 0)


@translates("TensorListLength")
def length(node: Node) -> Operand:
    return node.tensor_list("input_handle").size


@translates("TensorListElementShape")
def element_shape(node: Node) -> Operand:
    values = node.tensor_list("input_handle")
    if values.buffer is None:
        raise UnsupportedError(f"{node.op}: the element shape is not known yet")
    return node.b.constant(list(node.b.get_shape(values.buffer).dims[1:]), node.attr("shape_type"))
