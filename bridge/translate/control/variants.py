"""Zeros like lists and optionals, and their sums: what gradients of gradients of loops and branches make of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ....compiler.builder.computation_builder import ComputationBuilder
from ....compiler.errors import UnsupportedError
from ..node import Node
from ..operands.dynamic_dims import filled_like
from ..values import Optional, TensorList, Value, flatten, rebuild
from .optionals import completed
from .tensor_list import add_items, longer

Variant = TensorList | Optional


def zeros_like_variant(b: ComputationBuilder, value: Variant) -> Value:
    """A list as long, or an optional that has a value where this one has: of zeros."""
    if isinstance(value, TensorList):
        value = dataclasses.replace(value, items=())
    arrays = zip(flatten(value), _is_content(value), strict=True)
    zeros = [filled_like(b, array, 0) if is_content else array for array, is_content in arrays]
    return rebuild(_differing(value), zeros)


def add_variants(node: Node, terms: Sequence[Value]) -> Value:
    """The sum of lists or of optionals, element by element. Those that a gradient adds are of one length, or all have
    a value; in TensorFlow it is an error if they are not.
    """
    lists = [term for term in terms if isinstance(term, TensorList)]
    if len(lists) == len(terms):
        return _sum_of_lists(node, lists)
    optionals = [term for term in terms if isinstance(term, Optional)]
    if len(optionals) < len(terms):
        raise UnsupportedError(f"{node.op}: arrays, lists and optionals in one sum")
    total, b = optionals[0], node.b
    for one in optionals[1:]:
        differ = b.ne(total.has_value, one.has_value)
        if node.context.constant_value(differ) is None:
            node.bail_out_if(differ, "one of two optionals that are added has a value")
        first = completed(b, total, one, b)
        total = _added(b, first, completed(b, one, first, b))
    return total


def _sum_of_lists(node: Node, lists: Sequence[TensorList]) -> TensorList:
    sized = [one for one in lists if one.has_buffers]
    items = tuple(item for one in lists for item in one.items)
    if not sized:
        return dataclasses.replace(lists[0], items=items)
    total, b = sized[0], node.b
    for one in sized[1:]:
        room = max(total.capacity, one.capacity)
        total = _added(b, longer(b, total, room), longer(b, one, room))
    if not items:
        return total
    assert total.buffer is not None
    return dataclasses.replace(total, buffer=add_items(b, total.buffer, items), differs=True)


def _added(b: ComputationBuilder, x: Value, y: Value) -> Any:
    """The sum of two that consist of arrays of the same shapes."""
    arrays = zip(flatten(x), flatten(y), _is_content(x), strict=True)
    return rebuild(_differing(x), [b.add(p, q) if is_content else p for p, q, is_content in arrays])


def _is_content(value: Value) -> list[bool]:
    """For each array of `flatten(value)` whether it holds elements; others tell how many there are, and where."""
    if isinstance(value, Optional):
        return [False, *(c for kind in value.kinds for v in kind for c in _is_content(v))]
    if isinstance(value, TensorList):
        inner = [True] if value.element is None else _is_content(value.element)
        return [*(inner if value.has_buffers else []), False]
    return [True]


def _differing(value: Value) -> Any:
    """The value without claims about the values of elements, its own and those of lists within."""
    if isinstance(value, TensorList):
        element = None if value.element is None else _differing(value.element)
        return dataclasses.replace(value, element=element, differs=True)
    if isinstance(value, Optional):
        kinds = tuple(tuple(_differing(v) for v in kind) for kind in value.kinds)
        return Optional(value.has_value, kinds)
    return value
