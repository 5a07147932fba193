"""Files of LiteRT of one operator, made by hand: for operators that no converter writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
from tfbridge.bridge.tf_internals.symbols import lite_schema


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of a file: an argument or result, a constant if it has a value, or a variable."""

    dims: Sequence[int]
    dtype: str = "float32"
    value: np.ndarray | None = None
    scale: float | None = None
    zero_point: int = 0
    is_variable: bool = False


def const(value: Any, dtype: str = "float32", scale: float | None = None, zero_point: int = 0) -> Tensor:
    array = np.asarray(value, dtype)
    return Tensor(array.shape, dtype, array, scale, zero_point)


def one_operator(
    name: str,
    operands: Sequence[Tensor | None],
    results: Sequence[Tensor],
    kind: str = "",
    **options: object,
) -> bytes:
    """The content of a file. kind: the table of the operator's options in the schema, without `Options`."""
    schema = lite_schema()
    graph, model, operator = schema.SubGraphT(), schema.ModelT(), schema.OperatorT()
    graph.tensors, model.buffers, graph.inputs = [], [schema.BufferT()], []

    def add(tensor: Tensor, label: str) -> int:
        each, number = schema.TensorT(), len(graph.tensors)
        each.name, each.shape, each.isVariable = label, list(tensor.dims), tensor.is_variable
        each.type = getattr(schema.TensorType, tensor.dtype.upper())
        if tensor.scale is not None:
            each.quantization = schema.QuantizationParametersT()
            each.quantization.scale, each.quantization.zeroPoint = [tensor.scale], [tensor.zero_point]
        if tensor.value is not None:
            each.buffer = len(model.buffers)
            model.buffers.append(schema.BufferT())
            model.buffers[-1].data = np.frombuffer(tensor.value.tobytes(), np.uint8)
        graph.tensors.append(each)
        return number

    operator.inputs = [-1 if t is None else add(t, f"operand{k}") for k, t in enumerate(operands)]
    operator.outputs = [add(t, f"result{k}") for k, t in enumerate(results)]
    if kind:
        operator.builtinOptions = getattr(schema, f"{kind}OptionsT")()
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{kind}Options")
    for option, value in options.items():
        assert hasattr(operator.builtinOptions, option)
        setattr(operator.builtinOptions, option, value)
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, name)
    code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
    graph.inputs = [
        place
        for place, t in zip(operator.inputs, operands)
        if t is not None and t.value is None and not t.is_variable
    ]
    graph.outputs, graph.operators = list(operator.outputs), [operator]
    model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
    return packed(model)


def packed(model: Any) -> bytes:
    """The bytes of a model of the schema's classes."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
