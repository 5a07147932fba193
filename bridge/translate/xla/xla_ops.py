"""The Xla ops: operations of the builder as TensorFlow ops, one to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....compiler.builder.computation_builder import Operand
from ....compiler.builder.lib.matrices import adjoint
from ....compiler.builder.lib.svd import svd
from ....compiler.errors import UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.module import Computation
from ....compiler.ir.shape import Shape
from ...tf_internals import symbols as tfp
from ..linalg.matmul import einsum
from ..nn.convolutions import message_dims
from ..node import Node
from ..registry import first_output, translates
from ..translator import translate_call
from ..values import Value, flatten


def _numbers(node: Node, message: str) -> Any:
    """The dimension numbers of a node."""
    return tfp.xla_message(message, node.definition.attr["dimension_numbers"].s)


def _scalar_function(node: Node, attr: str, types: Sequence[ElementType]) -> Computation:
    """A function attribute as a computation of scalars; several results become a tuple."""
    name = node.function(attr)
    inner = node.context.child(name)
    arguments = [inner.builder.parameter(k, Shape(t), f"p{k}") for k, t in enumerate(types)]
    results = [o for value in translate_call(inner, name, arguments) for o in flatten(value)]
    return inner.builder.build(results[0] if len(results) == 1 else inner.builder.tuple(results))


def _unpacked(node: Node, result: Operand, count: int) -> Sequence[Operand]:
    """The elements of a tuple; one result is none."""
    return [result] if count == 1 else [node.b.get_tuple_element(result, k) for k in range(count)]


@translates("XlaDot", "XlaDotV2")
def dot(node: Node) -> Operand:
    n = _numbers(node, "DotDimensionNumbers")
    return node.b.dot_general(
        node[0],
        node[1],
        (list(n.lhs_contracting_dimensions), list(n.rhs_contracting_dimensions)),
        (list(n.lhs_batch_dimensions), list(n.rhs_batch_dimensions)),
        node.attr("preferred_element_type"),
    )


@translates(
    "XlaConv",
    "XlaConvV2",
    constants=("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count"),
)
def convolution(node: Node) -> Operand:
    numbers = message_dims(_numbers(node, "ConvolutionDimensionNumbers"))
    return node.b.conv_general_dilated(
        node[0],
        node[1],
        node.integers("window_strides"),
        [tuple(p) for p in node.constant("padding").tolist()],
        node.integers("lhs_dilation"),
        node.integers("rhs_dilation"),
        numbers,
        node.integers("feature_group_count")[0],
        node.attr("batch_group_count") or 1,
        node.attr("preferred_element_type"),
    )


@translates("XlaPad", constants=("padding_low", "padding_high", "padding_interior"))
def pad(node: Node) -> Operand:
    return node.b.pad(node[0], node[1], list(zip(*(node.integers(k) for k in (2, 3, 4)))))


@translates("XlaGather", constants=("slice_sizes",))
def gather(node: Node) -> Operand:
    n = _numbers(node, "GatherDimensionNumbers")
    return node.b.gather(
        node[0],
        node[1],
        list(n.offset_dims),
        list(n.collapsed_slice_dims),
        node.integers("slice_sizes"),
        list(n.start_index_map),
        n.index_vector_dim,
        node.attr("indices_are_sorted"),
        list(n.operand_batching_dims),
        list(n.start_indices_batching_dims),
    )


@translates("XlaScatter")
def scatter(node: Node) -> Operand:
    n, type_ = _numbers(node, "ScatterDimensionNumbers"), node.element_type(0)
    return node.b.scatter(
        node[0],
        node[1],
        node[2],
        _scalar_function(node, "update_computation", [type_] * 2),
        n.index_vector_dim,
        list(n.update_window_dims),
        list(n.inserted_window_dims),
        list(n.scatter_dims_to_operand_dims),
        node.attr("indices_are_sorted"),
        False,
        list(n.input_batching_dims),
        list(n.scatter_indices_batching_dims),
    )


@translates("XlaDynamicSlice", constants=("size_indices",))
def dynamic_slice(node: Node) -> Operand:
    return node.b.dynamic_slice(node[0], node[1], node.integers("size_indices"))


@translates("XlaDynamicUpdateSlice")
def dynamic_update_slice(node: Node) -> Operand:
    return node.b.dynamic_update_slice(node[0], node[1], node[2])


@translates("XlaEinsum")
def xla_einsum(node: Node) -> Operand:
    return einsum(node)


@translates("XlaReduce")
def reduce(node: Node) -> Operand:
    step = _scalar_function(node, "reducer", [node.element_type(0)] * 2)
    return node.b.reduce(node[0], node[1], step, node.attr("dimensions_to_reduce") or [])


@translates("XlaVariadicReduce", "XlaVariadicReduceV2")
def variadic_reduce(node: Node) -> Sequence[Operand]:
    names = ("inputs", "init_values") if node.op.endswith("V2") else ("input", "init_value")
    operands, starts = (node.list(name) for name in names)
    types = [node.b.get_shape(o).element_type for o in operands]
    step = _scalar_function(node, "reducer", [*types, *types])
    result = node.b.reduce(operands, starts, step, node.attr("dimensions_to_reduce") or [])
    return _unpacked(node, result, len(operands))


_WINDOW = ("window_dimensions", "window_strides", "padding")


@translates("XlaReduceWindow", constants=(*_WINDOW, "base_dilations", "window_dilations"))
def reduce_window(node: Node) -> Operand:
    size, strides = (node.integers(k) for k in _WINDOW[:2])
    return node.b.reduce_window(
        node[0],
        node[1],
        _scalar_function(node, "computation", [node.element_type(0)] * 2),
        size,
        strides,
        [tuple(p) for p in node.constant("padding").tolist()],
        node.integers("base_dilations"),
        node.integers("window_dilations"),
    )


@translates("XlaSelectAndScatter", constants=_WINDOW)
def select_and_scatter(node: Node) -> Operand:
    types = [node.element_type(0)] * 2
    size, strides = (node.integers(k) for k in _WINDOW[:2])
    return node.b.select_and_scatter(
        node["operand"],
        _scalar_function(node, "select", types),
        size,
        strides,
        [tuple(p) for p in node.constant("padding").tolist()],
        node["source"],
        node["init_value"],
        _scalar_function(node, "scatter", types),
    )


@translates("XlaSort")
def sort(node: Node) -> Operand:
    return node.b.sort(node[0])


@translates("XlaKeyValueSort")
def key_value_sort(node: Node) -> Sequence[Operand]:
    """Rows in ascending order of the keys."""
    dims, types = node.shape(0), [node.element_type(k) for k in range(2)]
    inner = node.b.create_sub_builder("keys_ascending")
    left, right, _, _ = (inner.parameter(k, Shape(types[k // 2]), f"p{k}") for k in range(4))
    before = inner.build(inner.lt(left, right))
    return _unpacked(node, node.b.sort([node[0], node[1]], before, len(dims) - 1, is_stable=True), 2)


@translates("XlaVariadicSort", constants=("dimension",))
def variadic_sort(node: Node) -> Sequence[Operand]:
    operands = node.list("inputs")
    types = [node.b.get_shape(o).element_type for o in operands for _ in range(2)]
    axis = node.integers("dimension")[0]
    result = node.b.sort(operands, _scalar_function(node, "comparator", types), axis, node.attr("is_stable"))
    return _unpacked(node, result, len(operands))


@translates("XlaBroadcastHelper", constants=("broadcast_dims",))
def broadcast_helper(node: Node) -> Sequence[Operand]:
    """Both inputs with the higher rank; `broadcast_dims` names the axes of the lower rank's."""
    b, axes = node.b, node.integers("broadcast_dims")
    pair = [node[0], node[1]]
    low = 0 if len(node.shape(0)) < len(node.shape(1)) else 1
    if axes and len(node.shape(0)) != len(node.shape(1)):
        dims = [1] * len(node.shape(1 - low))
        for axis, size in zip(axes, node.shape(low)):
            dims[axis] = size
        pair[low] = b.reshape(pair[low], dims)
    return pair


@translates("XlaOptimizationBarrier", "XlaSharding")
def unchanged(node: Node) -> Sequence[Value]:
    """On one device there is nothing to divide, and compiled code keeps its order by itself."""
    return tuple(node.inputs)


@translates("XlaSetDynamicDimensionSize", constants=("dim_index",), sizes=first_output)
def set_dynamic_dimension_size(node: Node) -> Operand:
    axis = node.integers("dim_index")[0]
    if axis:
        raise UnsupportedError(
            f"{node.op}: dim_index is {axis}; the first axis may have a size that depends on data"
        )
    return node.b.set_dimension_size(
        node[0], node.b.convert_element_type(node["size"], ElementType.S32), axis
    )


@translates("XlaReducePrecision")
def reduce_precision(node: Node) -> Operand:
    return node.b.reduce_precision(node[0], node.attr("exponent_bits"), node.attr("mantissa_bits"))


_ALGORITHMS = {0: "rng_default", 1: "rng_philox", 2: "rng_three_fry", 3: "rng_default"}


@translates("XlaRngBitGenerator", constants=("algorithm", "shape"))
def rng_bit_generator(node: Node) -> Sequence[Operand]:
    number = node.integers("algorithm")[0]
    if number not in _ALGORITHMS:
        raise UnsupportedError(f"{node.op}: algorithm {number}")
    shape = Shape(node.attr("dtype"), node.integers("shape"))
    return _unpacked(node, node.b.rng_bit_generator(_ALGORITHMS[number], node["initial_state"], shape), 2)


@translates("XlaReplicaId")
def replica_id(node: Node) -> Operand:
    """A cluster runs on one replica."""
    return node.b.constant(0, ElementType.S32)


# -- factorizations, quantized values


@translates("XlaSelfAdjointEig")
def self_adjoint_eig(node: Node) -> Sequence[Operand]:
    """Exact to rounding, whatever number of iterations and accuracy are asked for."""
    x = node[0] if node.attr("lower") else adjoint(node.b, node[0])
    both = node.b.self_adjoint_eig(x)
    return node.b.get_tuple_element(both, 0), node.b.get_tuple_element(both, 1)


@translates("XlaSvd")
def singular_values(node: Node) -> Sequence[Operand]:
    """Exact to rounding, whatever number of iterations and accuracy are asked for."""
    return svd(node.b, node[0], True)


@translates("XlaDequantize")
def dequantize(node: Node) -> Operand:
    """bf16 of the four bytes in every word of the last axis, the first in the highest place."""
    b, dims = node.b, node.shape(0)
    if node.attr("mode") != "MIN_COMBINED":
        raise UnsupportedError(f"{node.op}: mode {node.attr('mode')}; MIN_COMBINED is compiled")
    low, high = np.float32(node.attr("min_range")), np.float32(node.attr("max_range"))
    shifts = b.broadcast_in_dim(b.constant(np.array([24, 16, 8, 0], np.uint32)), (*dims, 4), [len(dims)])
    words = b.broadcast_in_dim(node[0], (*dims, 4), range(len(dims)))
    parts = b.and_(b.shift_right_logical(words, shifts), b.scalar_like(words, 255))
    values = b.convert_element_type(parts, ElementType.BF16)
    scale = (high - low) / np.float32(255)
    values = values * b.scalar_like(values, float(scale)) + b.scalar_like(values, float(low))
    values = b.reshape(values, (*dims[:-1], 4 * dims[-1]))
    return b.transpose(values, range(len(dims))[::-1]) if node.attr("transpose_output") else values
