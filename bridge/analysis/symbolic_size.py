"""Integers computed in a graph, written as polynomials: they tell whether a slice's size is fixed though its ends move.

The end `i + 4` less the begin `i` is 4, whatever `i` is. What is found here is an assumption: a tensor's dims are not
known, so some elements are guessed to be those of a vector or of scalars, and machine integers wrap around. The code
that is compiled with it tests what it assumes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph.graph import Graph, GraphNode, Tensor
from ..translate.node import tensor_array

SHAPE_OPS = frozenset(
    {"Shape", "ShapeN", "Size", "Rank", "VariableShape", "TensorListLength", "TensorListElementShape"}
)
"""Their results follow from the shapes of their inputs, which are always known when compiling."""

Element = tuple[Tensor, int]  # an element of a tensor, by its number in row-major order
Polynomial = dict[tuple[Element, ...], int]  # coefficients by the factors of a term, which are in order

_SAME = frozenset(
    {"Identity", "StopGradient", "PreventGradient", "Snapshot", "Reshape", "ExpandDims", "Squeeze"}
)
_MOST_TERMS, _MOST_ELEMENTS = 16, 64  # longer ways are not followed
_INTEGERS = frozenset({3, 4, 5, 6, 9, 17, 22, 23})  # DataType numbers


def element(
    graph: Graph, tensor: Tensor, number: int, known: dict[Element, Polynomial] | None = None
) -> Polynomial:
    """An element of an integer tensor."""
    known = {} if known is None else known
    at = (tensor, number)
    if at not in known and len(known) >= _MOST_ELEMENTS:
        return {(at,): 1}
    if at not in known:
        known[at] = {(at,): 1}  # while it is looked at
        node = graph.nodes.get(tensor.node)
        found = _computed(graph, node, tensor.index, number, known) if node is not None else None
        if found is not None and len(found) <= _MOST_TERMS:
            known[at] = found
    return known[at]


def constant_of(graph: Graph, name: str) -> np.ndarray | None:
    """The value of a constant node; None for another."""
    node = graph.nodes.get(name)
    return tensor_array(node.attrs["value"].tensor) if node is not None and node.op == "Const" else None


def folded(graph: Graph, tensor: Tensor, depth: int = 8) -> np.ndarray | None:
    """The integers that a few ops make of constants, as gradients do to number axes; None for another tensor."""
    constant, node = constant_of(graph, tensor.node), graph.nodes.get(tensor.node)
    if constant is not None or node is None or node.op not in _FOLDED or not depth:
        return constant
    given = [folded(graph, t, depth - 1) for t in node.inputs]  # a Pack of scalars, whatever its axis
    if any(g is None for g in given) or node.op == "FloorMod" and not np.all(given[1]):
        return None
    return np.asarray(_FOLDED[node.op](*given))


_FOLDED: dict[str, Callable[..., Any]] = {
    "Identity": np.asarray,
    "Cast": np.asarray,
    "Size": np.size,
    "Rank": np.ndim,
    "Range": np.arange,
    "AddV2": np.add,
    "Add": np.add,
    "Sub": np.subtract,
    "FloorMod": np.mod,
    "Pack": lambda *values: np.stack(values),
}


def is_fixed(graph: Graph, polynomial: Polynomial) -> bool:
    """Whether its value is known when compiling."""
    return all(graph.nodes[tensor.node].op in SHAPE_OPS for term in polynomial for tensor, _ in term)


def value(polynomial: Polynomial, read: Callable[[Tensor], np.ndarray | None]) -> int | None:
    """Its value, where `read` gives those of tensors; None when it is not known."""
    total = 0
    for term, factor in polynomial.items():
        for tensor, number in term:
            array = read(tensor)
            if array is None or not array.size:
                return None
            factor *= int(array.ravel()[number if array.size > 1 and number < array.size else 0])
        total += factor
    return total


def difference(a: Polynomial, b: Polynomial) -> Polynomial:
    """a - b."""
    return _sum(a, _product(b, {(): -1}))


def _computed(
    graph: Graph, node: GraphNode, output: int, number: int, known: dict[Element, Polynomial]
) -> Polynomial | None:
    """The element as the node computes it; None when that is no polynomial of its inputs' elements."""

    def given(position: int, at: int = number) -> Polynomial:
        constant = constant_of(graph, node.inputs[position].node)
        return element(
            graph, node.inputs[position], 0 if constant is not None and constant.size == 1 else at, known
        )

    match node.op:
        case "Const":
            array = constant_of(graph, node.name)
            if array is None or array.dtype.kind not in "iu" or number >= array.size:
                return None
            found = int(array.ravel()[number])
            return {(): found} if found else {}
        case op if op in _SAME:
            return given(0)
        case "Cast" if node.attrs["SrcT"].type in _INTEGERS and node.attrs["DstT"].type in _INTEGERS:
            return given(0)
        case "Add" | "AddV2":
            return _sum(given(0), given(1))
        case "Sub":
            return difference(given(0), given(1))
        case "Mul":
            return _product(given(0), given(1))
        case "Neg":
            return _product(given(0), {(): -1})
        case "Pack":
            width = _width(graph, node)
            return given(number // width, number % width) if number < width * len(node.inputs) else None
        case "Unpack" if not node.attrs["axis"].i:
            return given(0, output)
        case "ConcatV2":
            return _joined(graph, node, number, given)
        case "StridedSlice":
            begin = constant_of(graph, node.inputs[1].node)
            if (
                node.attrs["shrink_axis_mask"].i == 1
                and begin is not None
                and begin.size == 1
                and begin.item() >= 0
            ):
                return given(0, begin.item())
    return None


def _width(graph: Graph, node: GraphNode) -> int:
    """How many elements each input of a Pack has, as far as it shows: 1 where it does not."""
    for tensor in node.inputs:
        constant, source = constant_of(graph, tensor.node), graph.nodes.get(tensor.node)
        if constant is not None:
            return max(constant.size, 1)
        if source is not None and source.op == "Pack":
            return len(source.inputs)
    return 1


def _joined(
    graph: Graph, node: GraphNode, number: int, given: Callable[[int, int], Polynomial]
) -> Polynomial | None:
    """An element of vectors, or of columns, one after the other."""
    axis = constant_of(graph, node.inputs[-1].node)
    count = len(node.inputs) - 1
    if axis is None:
        return None
    if axis.item() == 1:
        return given(number % count, number // count)
    for position in range(count):
        source = graph.nodes.get(node.inputs[position].node)
        constant = constant_of(graph, node.inputs[position].node)
        length = 1
        if constant is not None:
            length = constant.size
        elif source is not None and source.op == "Pack":
            length = len(source.inputs)
        if number < length:
            return given(position, number)
        number -= length
    return None


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    total = dict(a)
    for term, factor in b.items():
        total[term] = total.get(term, 0) + factor
    return {term: factor for term, factor in total.items() if factor}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for one, factor in a.items():
        for other, more in b.items():
            term = tuple(sorted((*one, *other)))
            total[term] = total.get(term, 0) + factor * more
    return {term: factor for term, factor in total.items() if factor}
