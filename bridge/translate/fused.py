"""Ops that TensorFlow's own graph rewrites have put together: each is taken apart into the ops that it stands for."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from ...compiler.builder import Operand
from ..graph import Graph, GraphNode
from .node import Node
from .registry import translates
from .values import Value

_BASES = {"_FusedMatMul": "MatMul", "_FusedConv2D": "Conv2D", "_FusedDepthwiseConv2dNative": "DepthwiseConv2dNative"}
_BASE_ATTRIBUTES = ("transpose_a", "transpose_b", "strides", "padding", "explicit_paddings", "data_format",
                    "dilations")
_UNARY = frozenset({"Relu", "Relu6", "Elu", "Tanh", "Sigmoid"})
_KNOWN = _UNARY | {"BiasAdd", "Add", "LeakyRelu", "FusedBatchNorm", "GeluExact", "GeluApproximate"}


def _refuse(node: GraphNode) -> str | None:
    fused_ops = node.attrs["fused_ops"].list.s if "fused_ops" in node.attrs else ()
    unknown = [s.decode() for s in fused_ops if s.decode() not in _KNOWN]
    if unknown:
        return f"it is fused with {', '.join(unknown)}"
    if "filter_format" in node.attrs and node.attrs["filter_format"].s != b"HWIO":
        return f"its filter has the format {node.attrs['filter_format'].s.decode()}"
    return None


def _apply(node: Node, op: str, inputs: Sequence[Value], attributes: Sequence[str] = (),
           **more: Any) -> Sequence[Value]:
    """The outputs of another op, which has these attributes of the node and `more`."""
    definition = tf.compat.v1.NodeDef(name=node.name, op=op)
    for name in ("T", *attributes):
        if name in node.definition.attr:
            definition.attr[name].CopyFrom(node.definition.attr[name])
    for name, value in more.items():
        definition.attr[name].CopyFrom(value)
    return node.translator.node(GraphNode(node.name, op, [], [], definition), list(inputs))


def _rows_of_product(node: GraphNode, graph: Graph) -> Collection[int]:
    """The first factor, where all that comes after the product is for its columns, or for each element alone."""
    later = node.attrs["fused_ops"].list.s
    return () if node.op != "_FusedMatMul" or node.attrs["transpose_a"].b or b"Add" in later else (0,)


@translates(*_BASES, refuse=_refuse, takes_sizes=_rows_of_product)
def fused(node: Node) -> Value:
    """A product or convolution, then the ops named by `fused_ops`, in this order; `args` are their other inputs."""
    rest = list(node.inputs[2:])
    value = _apply(node, _BASES[node.op], node.inputs[:2], _BASE_ATTRIBUTES)[0]
    for op in node.attr("fused_ops"):
        if op == "BiasAdd":
            value = _apply(node, op, [value, rest.pop(0)], ("data_format",))[0]
        elif op == "Add":
            value = _apply(node, "AddV2", [value, rest.pop(0)])[0]
        elif op == "FusedBatchNorm":
            value = _apply(node, "FusedBatchNormV3", [value, *rest[:4]], ("epsilon", "data_format"),
                           U=node.definition.attr["T"], is_training=tf.compat.v1.AttrValue(b=False))[0]
            del rest[:4]
        else:
            value = _activation(node, op, value)
    return value


def _activation(node: Node, op: str, value: Value) -> Value:
    if op == "LeakyRelu":
        alpha = tf.compat.v1.AttrValue(f=node.attr("leakyrelu_alpha"))
        return _apply(node, op, [value], alpha=alpha)[0]
    if op in _UNARY:
        return _apply(node, op, [value])[0]
    return _gelu(node, value, op == "GeluApproximate")  # type: ignore[arg-type]


def _gelu(node: Node, x: Operand, approximate: bool) -> Operand:
    b = node.b

    def scaled(operand: Operand, factor: float) -> Operand:
        return b.mul(operand, b.constant(factor, b.get_shape(x).element_type))

    if approximate:
        cube = b.mul(b.mul(x, x), x)
        inner = b.tanh(scaled(b.add(x, scaled(cube, 0.044715)), math.sqrt(2 / math.pi)))
    else:
        inner = b.erf(scaled(x, math.sqrt(0.5)))
    return b.mul(scaled(x, 0.5), b.add(inner, b.constant(1, b.get_shape(x).element_type)))


def _refuse_activation(node: GraphNode) -> str | None:
    mode = node.attrs["activation_mode"].s if "activation_mode" in node.attrs else b"Identity"
    return None if mode in (b"Identity", b"Relu") else f"it is fused with {mode.decode()}"


@translates("_FusedBatchNormEx", refuse=_refuse_activation)
def fused_batch_norm(node: Node) -> Sequence[Value]:
    """Batch normalization, a side input added, an activation."""
    y, *rest = _apply(node, "FusedBatchNormV3", node.inputs[:5],
                      ("U", "epsilon", "exponential_avg_factor", "data_format", "is_training"))
    for side in node.inputs[5:]:
        y = _apply(node, "AddV2", [y, side])[0]
    if node.attr("activation_mode") == "Relu":
        y = _apply(node, "Relu", [y])[0]
    return [y, *rest]


@translates("_UnaryOpsComposition")
def unary_composition(node: Node) -> Value:
    value = node.inputs[0]
    for op in node.attr("op_names"):
        value = _apply(node, op, [value])[0]
    return value
