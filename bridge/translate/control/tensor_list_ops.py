"""Tensor lists as a whole: gathered, scattered, split, joined."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....runtime.sizes import as_size
from ..array.gather import gather_axis
from ..array.scatter_gather import scatter_rows
from ..node import Node
from ..registry import translates
from ..values import TensorList, UnknownElementsError
from .tensor_list import check_places, initialized

_S32 = ElementType.S32


def _filled(node: Node, values: TensorList) -> Operand:
    """The elements of a list whose length is known."""
    if values.buffer is None:
        raise UnknownElementsError(f"{node.op}: a list is read before its element shape is known")
    length = node.context.constant_value(values.size)
    if length is None:
        raise UnsupportedError(f"{node.op}: the length of the list is known only at run time")
    return node.b.slice_in_dim(values.buffer, 0, as_size(length[()]), 1, 0)


@translates("TensorListGather")
def gather(node: Node) -> Operand:
    values = node.tensor_list("input_handle")
    if values.buffer is None:
        raise UnknownElementsError(f"{node.op}: a list is read before its element shape is known")
    check_places(node, values, node["indices"])
    return gather_axis(node, values.buffer, node["indices"], 0, 0)


@translates("TensorListConcat", "TensorListConcatV2")
def concat(node: Node) -> Sequence[Operand]:
    """The elements joined along their first axis, and the length of each: they have one shape, so one length."""
    b, elements = node.b, _filled(node, node.tensor_list("input_handle"))
    count, *dims = b.get_shape(elements).dims
    if not dims:
        raise ShapeError("Concat saw a scalar shape")
    joined = b.reshape(elements, (count * dims[0], *dims[1:]))
    return joined, b.broadcast(b.constant(dims[0], ElementType.S64), (count,))


@translates("TensorListSplit", constants=("lengths",))
def split(node: Node) -> TensorList:
    b, dims, lengths = node.b, node.shape("tensor"), node.integers("lengths")
    if len(set(lengths)) != 1 or lengths[0] * len(lengths) != dims[0]:
        raise UnsupportedError(
            f"{node.op}: parts of {sorted(set(lengths))} rows; a list has elements of one shape"
        )
    buffer = b.reshape(node["tensor"], (len(lengths), lengths[0], *dims[1:]))
    return TensorList(buffer, b.constant(len(lengths), _S32), len(lengths))


@translates("TensorListScatter", constants=("indices",))
@translates("TensorListScatterV2", constants=("indices", "num_elements"))
def scatter(node: Node) -> TensorList:
    b, indices = node.b, node.integers("indices")
    count = node.integers("num_elements")[0] if node.op.endswith("V2") else -1
    if min(indices, default=0) < 0:
        raise ShapeError(f"Indices in {node.op} must all be non-negative: {min(indices)}")
    count = max(count, max(indices, default=-1) + 1)
    base = b.broadcast(b.scalar_like(node["tensor"], 0), (count, *node.shape("tensor")[1:]))
    buffer = scatter_rows(b, base, node["indices"], node["tensor"], "update")
    return TensorList(buffer, b.constant(count, _S32), count)


@translates("TensorListScatterIntoExistingList")
def scatter_into(node: Node) -> TensorList:
    values, rows = node.tensor_list("input_handle"), node.b.get_shape(node["tensor"])
    check_places(node, values, node["indices"])
    if values.buffer is None:
        values = initialized(node.b, values, rows.element_type, rows.dims[1:])
    assert values.buffer is not None
    buffer = scatter_rows(node.b, values.buffer, node["indices"], node["tensor"], "update")
    return dataclasses.replace(values, buffer=buffer, differs=True)


@translates("TensorListConcatLists")
def concat_lists(node: Node) -> TensorList:
    """One list after the other."""
    b = node.b
    both = b.concat_in_dim([_filled(node, node.tensor_list(k)) for k in ("input_a", "input_b")], 0)
    count = b.get_shape(both).dims[0]
    return TensorList(both, b.constant(count, _S32), count)


@translates("TensorListResize")
def resize(node: Node) -> TensorList:
    """With a size that is known at run time only, a list that gets shorter: it keeps its room."""
    b, values = node.b, node.tensor_list("input_handle")
    if node.constant_or_none("size") is None:
        node.bail_out_if(b.gt(node["size"], values.size), "a list gets longer, which is not compiled")
        return dataclasses.replace(values, size=node["size"], varies=True)
    count = node.integers("size")[0]
    elements = _filled(node, node.tensor_list("input_handle"))
    have = b.get_shape(elements).dims[0]
    fitted = b.pad_in_dim(
        b.slice_in_dim(elements, 0, min(have, count), 1, 0),
        b.scalar_like(elements, 0),
        0,
        0,
        max(0, count - have),
    )
    return TensorList(fitted, b.constant(count, _S32), count)
