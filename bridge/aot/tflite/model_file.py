"""Reads a .tflite file: its graphs, tensors, operators and signatures, checked.

Source: tensorflow/compiler/mlir/lite/schema/schema.fbs.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ....compiler.errors import ShapeError
from ...tf_internals import symbols as tfp

_IDENTIFIER = b"TFL3"
_DTYPES = {
    "FLOAT32": np.float32,
    "FLOAT16": np.float16,
    "BFLOAT16": ml_dtypes.bfloat16,
    "FLOAT64": np.float64,
    "COMPLEX64": np.complex64,
    "COMPLEX128": np.complex128,
    "BOOL": np.bool_,
    "INT4": np.int8,  # two to a byte in the file
    **{f"{sign}INT{bits}": f"{sign}int{bits}".lower() for sign in ("", "U") for bits in (8, 16, 32, 64)},
}
BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
_MAX_RANK = 8
_MAX_ELEMENTS = 1 << 40
# What the reader raises where a file is damaged, wherever the damage is.
_DAMAGE = (
    struct.error,
    IndexError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    OverflowError,
    MemoryError,
    RecursionError,
)


@dataclasses.dataclass(frozen=True)
class Quantization:
    """Integers q that stand for (q - zero point) scale: one of each, or one for each element along the axis."""

    scales: np.ndarray
    zero_points: np.ndarray
    axis: int

    @property
    def is_whole(self) -> bool:
        """Whether all elements have the same scale."""
        return self.scales.size == 1

    def numbers(self, integers: np.ndarray) -> np.ndarray:
        """What integers stand for, in f32."""
        along = [1] * integers.ndim
        if not self.is_whole:
            along[self.axis] = -1
        scales, zero_points = (v.reshape(along) for v in (self.scales, self.zero_points))
        result: np.ndarray = (integers.astype(np.int64) - zero_points).astype(np.float32) * scales
        return result


@dataclasses.dataclass(frozen=True)
class FileTensor:
    """A tensor of a graph. dims: as the file has them; open_dims: with None for those that callers choose. value: of a
    constant. dtype: None, an element type without NumPy's, such as of strings."""

    number: int
    name: str
    type_name: str
    dtype: np.dtype[Any] | None
    dims: tuple[int, ...]
    open_dims: tuple[int | None, ...]
    value: np.ndarray | None
    quantization: Quantization | None
    is_variable: bool

    @property
    def is_bytes(self) -> bool:
        """Whether its integers of 8 bits stand for numbers."""
        return self.dtype in BYTES and self.quantization is not None


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator: its name in the schema, tensors by number (-1: an input that is left out), and options."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any


@dataclasses.dataclass(frozen=True)
class FileGraph:
    """A graph: its tensors, and the operators in order."""

    tensors: tuple[FileTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of the file: (name, tensor) of its arguments and results, in the graph of this number."""

    key: str
    graph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class ModelFile:
    """What a .tflite file holds. `content`: its bytes."""

    graphs: tuple[FileGraph, ...]
    signatures: tuple[Signature, ...]
    content: bytes


def read_model(path: str) -> ModelFile:
    """The content of a .tflite file.

    Raises: OSError  it cannot be read; ShapeError  it is none, or it is damaged.
    """
    with open(path, "rb") as file:
        content = file.read()
    if content[4:8] != _IDENTIFIER:
        raise ShapeError(f"{path} is no .tflite file: it does not begin as one")
    try:
        return _Reader(content).model()
    except _DAMAGE as error:
        raise ShapeError(f"{path} is damaged: {type(error).__name__}: {error}") from error


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._schema = content, tfp.lite_schema()
        self._model = self._schema.ModelT.InitFromPackedBuf(content)
        self._types = _names(self._schema.TensorType)
        self._codes = [self._code(code) for code in self._model.operatorCodes or ()]

    def model(self) -> ModelFile:
        if not self._model.subgraphs:
            raise ValueError("it has no graph")
        graphs = tuple(self._graph(graph) for graph in self._model.subgraphs)
        signatures = tuple(self._signature(each, graphs) for each in self._model.signatureDefs or ())
        return ModelFile(graphs, signatures, self._content)

    def _code(self, code: Any) -> str:
        """The operator's name; old files have it in a field of 8 bits."""
        number = max(code.builtinCode, code.deprecatedBuiltinCode)
        name = _names(self._schema.BuiltinOperator).get(number, f"operator {number}")
        return f"CUSTOM {_text(code.customCode)}" if name == "CUSTOM" else name

    def _graph(self, graph: Any) -> FileGraph:
        tensors = tuple(self._tensor(k, tensor) for k, tensor in enumerate(graph.tensors or ()))
        inputs, outputs = (_numbers(n, len(tensors)) for n in (graph.inputs, graph.outputs))
        operators = []
        for each in graph.operators or ():
            name = self._codes[_within(each.opcodeIndex, len(self._codes), "operator code")]
            # Optional inputs are -1.
            operands = _numbers(each.inputs, len(tensors), least=-1)
            results = _numbers(each.outputs, len(tensors))
            options = each.builtinOptions if each.builtinOptions is not None else each.builtinOptions2
            operators.append(Operator(name, operands, results, options))
        return FileGraph(tensors, inputs, outputs, tuple(operators))

    def _tensor(self, number: int, tensor: Any) -> FileTensor:
        name = _text(tensor.name) or f"tensor_{number}"
        type_name = self._types.get(tensor.type, f"type {tensor.type}")
        dtype = np.dtype(_DTYPES[type_name]) if type_name in _DTYPES else None
        dims = _dims(tensor.shape, name)
        signature = dims if tensor.shapeSignature is None else tuple(map(int, tensor.shapeSignature))
        if len(signature) != len(dims) or any(s not in (-1, d) for s, d in zip(signature, dims)):
            raise ValueError(f"tensor {name} has the dims {list(dims)}, open: {list(signature)}")
        if tensor.sparsity is not None:
            type_name, dtype = f"sparse {type_name}", None
        value = None if dtype is None else self._value(tensor.buffer, dtype, dims, name, type_name == "INT4")
        open_dims = tuple(None if s == -1 else s for s in signature)
        quantization = _quantization(tensor.quantization, dims, name)
        return FileTensor(
            number, name, type_name, dtype, dims, open_dims, value, quantization, bool(tensor.isVariable)
        )

    def _value(
        self, number: int, dtype: np.dtype[Any], dims: tuple[int, ...], name: str, is_packed: bool
    ) -> np.ndarray | None:
        """The value of a constant; None for others, whose buffers are empty."""
        buffers = self._model.buffers or ()
        if not number and not buffers:
            return None
        buffer = buffers[_within(number, len(buffers), "buffer")]
        data = buffer.data
        if data is None and buffer.offset > 1:  # behind the flatbuffer, of files of gigabytes
            if buffer.offset + buffer.size > len(self._content):
                raise ValueError(f"tensor {name}: its data lie behind the end of the file")
            data = np.frombuffer(self._content, np.uint8, buffer.size, buffer.offset)
        if data is None or isinstance(data, int):
            return None
        elements = math.prod(dims)
        if not len(data) and elements:
            return None
        if is_packed and len(data) == -(-elements // 2):
            halves = np.stack([data << 4, data], axis=-1).reshape(-1)[:elements].view(np.int8)
            return (halves >> 4).reshape(dims)
        if len(data) != elements * dtype.itemsize:
            raise ValueError(f"tensor {name}: {len(data)} bytes for {type(dtype).__name__} {list(dims)}")
        return np.frombuffer(np.ascontiguousarray(data).tobytes(), dtype).reshape(dims)

    def _signature(self, signature: Any, graphs: Sequence[FileGraph]) -> Signature:
        number = _within(signature.subgraphIndex, len(graphs), "graph")
        count = len(graphs[number].tensors)
        lists = [
            tuple((_text(m.name), _within(m.tensorIndex, count, "tensor")) for m in maps or ())
            for maps in (signature.inputs, signature.outputs)
        ]
        return Signature(_text(signature.signatureKey), number, *lists)


def _names(enumeration: type) -> dict[int, str]:
    return {number: name for name, number in vars(enumeration).items() if isinstance(number, int)}


def _text(text: bytes | str | None) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text or ""


def _within(number: int, count: int, what: str, least: int = 0) -> int:
    if not least <= number < count:
        raise ValueError(f"{what} {number} of {count}")
    return int(number)


def _numbers(numbers: Iterable[int] | None, count: int, least: int = 0) -> tuple[int, ...]:
    listed = () if numbers is None or isinstance(numbers, int) else numbers
    return tuple(_within(number, count, "tensor", least) for number in listed)


def _dims(shape: Iterable[int] | None, name: str) -> tuple[int, ...]:
    dims = () if shape is None or isinstance(shape, int) else tuple(map(int, shape))
    if len(dims) > _MAX_RANK or any(d < 0 for d in dims) or math.prod(dims) > _MAX_ELEMENTS:
        raise ValueError(f"tensor {name} has the dims {list(dims)}")
    return dims


def _quantization(quantization: Any, dims: Sequence[int], name: str) -> Quantization | None:
    if quantization is None or quantization.scale is None or not len(quantization.scale):
        return None
    scales = np.asarray(quantization.scale, np.float32)
    zero_points = np.zeros(1) if quantization.zeroPoint is None else np.asarray(quantization.zeroPoint)
    zero_points = np.broadcast_to(zero_points.astype(np.int64), scales.shape)
    axis = int(quantization.quantizedDimension)
    if not np.isfinite(scales).all() or (scales < 0).any() or abs(zero_points).max() > 1 << 31:
        raise ValueError(f"tensor {name} has a scale or zero point that is none")
    if scales.size > 1 and (not 0 <= axis < len(dims) or dims[axis] != scales.size):
        raise ValueError(f"tensor {name} has {scales.size} scales along axis {axis} of {list(dims)}")
    return Quantization(scales, zero_points, axis)
