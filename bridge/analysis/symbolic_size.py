"""Integers computed in a graph, written as polynomials: they tell whether a slice's size is fixed though its ends move.

The end `i + 4` less the begin `i` is 4, whatever `i` is. A polynomial is an assumption: the dims of tensors are not
known, so elements are taken to be those of a vector or of scalars, and machine integers wrap around. Compiled code
checks what it assumes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.sizes import as_size
from ..graph.graph import Graph, GraphNode, Tensor
from ..tf_internals.dtypes import proto_array

SHAPE_OPS = frozenset(
    {"Shape", "ShapeN", "Size", "Rank", "VariableShape", "TensorListLength", "TensorListElementShape"}
)
"""Their results follow from the shapes of their inputs, which are always known when compiling."""

Element = tuple[Tensor, int]  # an element of a tensor, by its number in row-major order
Polynomial = dict[tuple[Element, ...], int]  # coefficients by the factors of a term, which are in order

_SAME = frozenset(
    {"Identity", "StopGradient", "PreventGradient", "Snapshot", "Reshape", "ExpandDims", "Squeeze"}
)
_MAX_TERMS, _MAX_ELEMENTS = 16, 64  # larger polynomials are not computed
_INTEGERS = frozenset({3, 4, 5, 6, 9, 17, 22, 23})  # DataType numbers


def element(
    graph: Graph, tensor: Tensor, number: int, cache: dict[Element, Polynomial] | None = None
) -> Polynomial:
    """An element of an integer tensor."""
    cache = {} if cache is None else cache
    at = (tensor, number)
    if at not in cache and len(cache) >= _MAX_ELEMENTS:
        return {(at,): 1}
    if at not in cache:
        cache[at] = {(at,): 1}  # for a cycle
        node = graph.nodes.get(tensor.node)
        computed = _computed(graph, node, tensor.index, number, cache) if node is not None else None
        if computed is not None and len(computed) <= _MAX_TERMS:
            cache[at] = computed
    return cache[at]


def constant_of(graph: Graph, name: str) -> np.ndarray | None:
    """The value of a constant node; None for another."""
    node = graph.nodes.get(name)
    return proto_array(node.attrs["value"].tensor) if node is not None and node.op == "Const" else None


def folded(graph: Graph, tensor: Tensor, depth: int = 8) -> np.ndarray | None:
    """The integers that a few ops make of constants, as gradients do to number axes; None for another tensor."""
    constant, node = constant_of(graph, tensor.node), graph.nodes.get(tensor.node)
    if constant is not None or node is None or node.op not in _FOLDED or not depth:
        return constant
    operands = [folded(graph, t, depth - 1) for t in node.inputs]  # a Pack of scalars, whatever its axis
    if any(g is None for g in operands) or node.op == "FloorMod" and not np.all(operands[1]):
        return None
    return np.asarray(_FOLDED[node.op](*operands))


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
            factor *= as_size(array.ravel()[number if array.size > 1 and number < array.size else 0])
        total += factor
    return total


def difference(a: Polynomial, b: Polynomial) -> Polynomial:
    """a - b."""
    return _sum(a, _product(b, {(): -1}))


def _computed(
    graph: Graph, node: GraphNode, output: int, number: int, cache: dict[Element, Polynomial]
) -> Polynomial | None:
    """The element as the node computes it; None when that is no polynomial of its inputs' elements."""

    def operand(position: int, at: int = number) -> Polynomial:
        constant = constant_of(graph, node.inputs[position].node)
        return element(
            graph, node.inputs[position], 0 if constant is not None and constant.size == 1 else at, cache
        )

    match node.op:
        case "Const":
            array = constant_of(graph, node.name)
            if array is None or array.dtype.kind not in "iu" or number >= array.size:
                return None
            integer = int(array.ravel()[number])
            return {(): integer} if integer else {}
        case op if op in _SAME:
            return operand(0)
        case "Cast" if node.attrs["SrcT"].type in _INTEGERS and node.attrs["DstT"].type in _INTEGERS:
            return operand(0)
        case "Add" | "AddV2":
            return _sum(operand(0), operand(1))
        case "Sub":
            return difference(operand(0), operand(1))
        case "Mul":
            return _product(operand(0), operand(1))
        case "Neg":
            return _product(operand(0), {(): -1})
        case "Pack":
            width = _width(graph, node)
            return operand(number // width, number % width) if number < width * len(node.inputs) else None
        case "Unpack" if not node.attrs["axis"].i:
            return operand(0, output)
        case "ConcatV2":
            return _joined(graph, node, number, operand)
        case "StridedSlice":
            begin = constant_of(graph, node.inputs[1].node)
            if (
                node.attrs["shrink_axis_mask"].i == 1
                and begin is not None
                and begin.size == 1
                and begin.item() >= 0
            ):
                return operand(0, begin.item())
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
    graph: Graph, node: GraphNode, number: int, operand: Callable[[int, int], Polynomial]
) -> Polynomial | None:
    """An element of vectors, or of columns, one after the other."""
    axis = constant_of(graph, node.inputs[-1].node)
    count = len(node.inputs) - 1
    if axis is None:
        return None
    if axis.item() == 1:
        return operand(number % count, number // count)
    for position in range(count):
        source = graph.nodes.get(node.inputs[position].node)
        constant = constant_of(graph, node.inputs[position].node)
        length = 1
        if constant is not None:
            length = constant.size
        elif source is not None and source.op == "Pack":
            length = len(source.inputs)
        if number < length:
            return operand(position, number)
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
        for other, other_factor in b.items():
            term = tuple(sorted((*one, *other)))
            total[term] = total.get(term, 0) + factor * other_factor
    return {term: factor for term, factor in total.items() if factor}
