"""Ops that TensorFlow's own graph rewrites have put together: each is taken apart into the ops that it stands for."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import tensorflow as tf

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.matrices import widened
from ...graph.graph import Graph, GraphNode
from ..math.elementwise import UNARY
from ..math.reductions import reduce
from ..node import Node
from ..registry import every_input, translates
from ..translator import translate_node
from .nn import full_quotient, narrowed

_BASES = {
    "_FusedMatMul": "MatMul",
    "_FusedConv2D": "Conv2D",
    "_FusedDepthwiseConv2dNative": "DepthwiseConv2dNative",
    "_FusedConv3D": "Conv3D",
    "_MklFusedBatchMatMulV2": "BatchMatMulV2",
}
_BASE_ATTRIBUTES = (
    "transpose_a",
    "transpose_b",
    "adj_x",
    "adj_y",
    "strides",
    "padding",
    "explicit_paddings",
    "data_format",
    "dilations",
)
_UNARY = frozenset({"Relu", "Relu6", "Elu", "Tanh", "Sigmoid"})
_BINARY = {"Add": "AddV2", "Mul": "Mul"}


def _scaled(b: ComputationBuilder, operand: Operand, factor: float) -> Operand:
    return b.mul(operand, b.constant(factor, b.get_shape(operand).element_type))


def _gelu(b: ComputationBuilder, x: Operand) -> Operand:
    one = b.constant(1, b.get_shape(x).element_type)
    return b.mul(_scaled(b, x, 0.5), b.add(b.erf(_scaled(b, x, math.sqrt(0.5))), one))


def _gelu_by_tanh(b: ComputationBuilder, x: Operand) -> Operand:
    cube = b.mul(b.mul(x, x), x)
    inner = b.tanh(_scaled(b, b.add(x, _scaled(b, cube, 0.044715)), math.sqrt(2 / math.pi)))
    return b.mul(_scaled(b, x, 0.5), b.add(inner, b.constant(1, b.get_shape(x).element_type)))


def _hard_swish(b: ComputationBuilder, x: Operand) -> Operand:
    three = b.constant(3, b.get_shape(x).element_type)
    return _scaled(b, b.mul(x, UNARY["Relu6"](b, b.add(x, three))), 1 / 6)


_ACTIVATIONS: dict[str, Callable[[ComputationBuilder, Operand], Operand]] = {
    "GeluExact": _gelu,
    "GeluApproximate": _gelu_by_tanh,
    "_FusedHardSwish": _hard_swish,
    "Mish": lambda b, x: b.mul(x, b.tanh(UNARY["Softplus"](b, x))),
    "Swish": lambda b, x: b.mul(x, b.logistic(x)),
}
_SUPPORTED = _UNARY | _BINARY.keys() | _ACTIVATIONS.keys() | {"BiasAdd", "LeakyRelu", "FusedBatchNorm"}


def _unsupported(node: GraphNode) -> str | None:
    fused_ops = node.attrs["fused_ops"].list.s if "fused_ops" in node.attrs else ()
    unknown = [s.decode() for s in fused_ops if s.decode() not in _SUPPORTED]
    if unknown:
        return f"it is fused with {', '.join(unknown)}"
    if node.attrs["T"].type in (tf.int8.as_datatype_enum, tf.qint8.as_datatype_enum):
        return "its values are quantized"
    if "filter_format" in node.attrs and node.attrs["filter_format"].s != b"HWIO":
        return f"its filter has the format {node.attrs['filter_format'].s.decode()}"
    return None


def _arrays(node: Node) -> list[Operand]:
    return [node[k] for k in range(len(node.inputs))]


def _apply(
    node: Node, op: str, inputs: Sequence[Operand], attributes: Sequence[str] = (), **more: object
) -> Sequence[Operand]:
    """The outputs of another op, which has these attributes of the node and `more`."""
    definition = tf.compat.v1.NodeDef(name=node.name, op=op)
    for name in ("T", *attributes):
        if name in node.definition.attr:
            definition.attr[name].CopyFrom(node.definition.attr[name])
    for name, value in more.items():
        definition.attr[name].CopyFrom(value)
    outputs = translate_node(node.context, GraphNode(node.name, op, [], [], definition), list(inputs))
    return [value for value in outputs if isinstance(value, Operand)]  # they are arrays


def _rows_of_product(node: GraphNode, graph: Graph) -> Collection[int]:
    """The first factor, where all that comes after the product is for its columns, or for each element alone."""
    later = node.attrs["fused_ops"].list.s
    return () if node.op != "_FusedMatMul" or node.attrs["transpose_a"].b or b"Add" in later else (0,)


@translates(*_BASES, unsupported=_unsupported, takes_sizes=_rows_of_product)
def fused(node: Node) -> Operand:
    """A product or convolution, then the ops named by `fused_ops`, in this order; `args` are their other inputs."""
    x, factor, *rest = _arrays(node)
    value = _apply(node, _BASES[node.op], [_padded(node, x), factor], _BASE_ATTRIBUTES)[0]
    for op in node.attr("fused_ops"):
        if op == "BiasAdd":
            value = _apply(node, op, [value, _biases(node, rest.pop(0))], ("data_format",))[0]
        elif op in _BINARY:
            value = _apply(node, _BINARY[op], [value, rest.pop(0)])[0]
        elif op == "FusedBatchNorm":
            value = _apply(
                node,
                "FusedBatchNormV3",
                [value, *rest[:4]],
                ("epsilon", "data_format"),
                U=node.definition.attr["T"],
                is_training=tf.compat.v1.AttrValue(b=False),
            )[0]
            del rest[:4]
        else:
            value = _activation(node, op, value)
    return value


def _padded(node: Node, x: Operand) -> Operand:
    """The operand of a convolution with the Pad that came before it: `padding_list` has low, high of every axis."""
    widths = node.attr("padding_list") if "padding_list" in node.definition.attr else ()
    if not widths:
        return x
    zero = node.b.constant(0, node.element_type(0))
    return node.b.pad(x, zero, list(zip(widths[::2], widths[1::2])))


def _biases(node: Node, value: Operand) -> Operand:
    """A bias as a vector: where it was added as [1, 1, 1, C], a fused op has it in that shape."""
    dims = node.b.get_shape(value).dims
    return node.b.reshape(value, [math.prod(dims)]) if len(dims) > 1 else value


def _activation(node: Node, op: str, value: Operand) -> Operand:
    if op == "LeakyRelu":
        alpha = tf.compat.v1.AttrValue(f=node.attr("leakyrelu_alpha"))
        return _apply(node, op, [value], alpha=alpha)[0]
    if op in _UNARY:
        return _apply(node, op, [value])[0]
    return _ACTIVATIONS[op](node.b, value)


@translates("_MklSwish", "_MklFusedMish")
def fused_activation(node: Node) -> Operand:
    return _activation(node, node.op.removeprefix("_Mkl").removeprefix("Fused"), node[0])


@translates("_MklLayerNorm", "_MklFusedInstanceNorm", unsupported=_unsupported)
def fused_normalization(node: Node) -> Operand:
    """Mean 0 and variance 1 over the last axis or `reduction_axes`, scaled and shifted, then activations.

    Scale and offset have the size of the axis of features, in any rank. Sums of f16 and bf16 are f32's.
    """
    b, shape = node.b, node.array_shape(0)
    last = shape.rank - 1
    axes = (
        [last] if node.op == "_MklLayerNorm" else [axis % shape.rank for axis in node.attr("reduction_axes")]
    )
    features = last if node.op == "_MklLayerNorm" else max(set(range(1, shape.rank)) - set(axes))
    channel_axes = [axis for axis in range(shape.rank) if axis not in axes]
    count = math.prod(shape.dims[axis] for axis in axes)

    def along(value: Operand, of: Sequence[int]) -> Operand:
        return b.broadcast_in_dim(b.reshape(value, [shape.dims[axis] for axis in of]), shape.dims, of)

    def mean(value: Operand) -> Operand:
        total = reduce(b, value, "add", axes)
        return b.mul(total, full_quotient(b, total, 1, count))

    x, scale, offset = (widened(b, node[k]) for k in range(3))
    centred = b.sub(x, along(mean(x), channel_axes))
    variance = mean(b.mul(centred, centred))
    epsilon = b.constant(node.attr("epsilon"), b.get_shape(x).element_type)
    factor = b.mul(along(b.rsqrt(b.add(variance, epsilon)), channel_axes), along(scale, [features]))
    value = narrowed(b, b.add(b.mul(centred, factor), along(offset, [features])), shape.element_type)
    for op in node.attr("fused_ops") or ():
        value = _activation(node, op, value)
    return value


def _unsupported_activation(node: GraphNode) -> str | None:
    mode = node.attrs["activation_mode"].s if "activation_mode" in node.attrs else b"Identity"
    return None if mode in (b"Identity", b"Relu") else f"it is fused with {mode.decode()}"


@translates("_FusedBatchNormEx", unsupported=_unsupported_activation)
def fused_batch_norm(node: Node) -> Sequence[Operand]:
    """Batch normalization, a side input added, an activation."""
    inputs = _arrays(node)
    y, *rest = _apply(
        node,
        "FusedBatchNormV3",
        inputs[:5],
        ("U", "epsilon", "exponential_avg_factor", "data_format", "is_training"),
    )
    for side in inputs[5:]:
        y = _apply(node, "AddV2", [y, side])[0]
    if node.attr("activation_mode") == "Relu":
        y = _apply(node, "Relu", [y])[0]
    return [y, *rest]


@translates("_UnaryOpsComposition", takes_sizes=every_input)
def unary_composition(node: Node) -> Operand:
    value = node[0]
    for op in node.attr("op_names"):
        value = _apply(node, op, [value])[0]
    return value
