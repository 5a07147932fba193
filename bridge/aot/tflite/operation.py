"""An operator of a file under translation: its operands as TensorFlow's tensors, quantised ones as numbers or as they
are stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from ....compiler.errors import ShapeError, UnsupportedError
from ...tf_internals import symbols as tfp
from .model_file import BYTES, FileTensor, Operator, Quantization

_QUANTIZED = (*BYTES, np.dtype(np.int16))
_MAX_IN_GRAPH = 1024  # elements; larger constants are captured
_LIMITS = {0: None, 1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}  # of fused activations
_TANH = 4


@dataclasses.dataclass(frozen=True)
class ByteForm:
    """How a target multiplies bytes best. dtype: of values in 8 bits, with a sign or without; by_output: whether the
    weights of each output feature of a convolution lie side by side."""

    dtype: tf.DType
    by_output: bool = False


UNSIGNED = ByteForm(tf.uint8)


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of the file with its value.

    stored: as compiled code has it, bytes in the form of the target; None: of a constant, until it is read. unstored:
    of what integers are made when it is stored, where what reads it as numbers is in the same kernel, which then need
    not convert twice.
    """

    tensor: FileTensor
    stored: tf.Tensor | None = None
    unstored: tf.Tensor | None = None

    @property
    def quantization(self) -> Quantization | None:
        """Of tensors of 8 and 16 bits that stand for numbers."""
        tensor = self.tensor
        return tensor.quantization if tensor.dtype in _QUANTIZED else None


class Operation:
    """An operator, its operands and what it makes. `graphs`: calls a graph of the file, by number."""

    def __init__(
        self,
        operator: Operator,
        operands: Sequence[Value | None],
        results: Sequence[FileTensor],
        form: ByteForm,
        call: Callable[[int, Sequence[tf.Tensor]], list[tf.Tensor]],
        variables: Callable[[FileTensor], tf.Variable],
    ) -> None:
        self.operator, self.operands, self.results = operator, operands, results
        self.form, self.call, self.variables = form, call, variables
        self.unstored: dict[object, tf.Tensor] = {}

    @property
    def name(self) -> str:
        """The operator's name in the schema."""
        return self.operator.name

    def option(self, name: str, default: Any = None) -> Any:
        """An option; the default where the file leaves out all of them."""
        if self.operator.options is None:
            if default is None:
                raise ShapeError(f"{self.name} has no options in the file")
            return default
        return getattr(self.operator.options, name, default)

    def has(self, number: int) -> bool:
        """Whether an operand is not left out."""
        return number < len(self.operands) and self.operands[number] is not None

    def value(self, number: int) -> Value:
        """An operand. Raises: ShapeError  it is left out."""
        if not self.has(number):
            raise ShapeError(f"{self.name} has no input {number}")
        value = self.operands[number]
        assert value is not None
        return value

    # -- operands

    def number(self, which: int) -> tf.Tensor:
        """An operand as numbers: what is quantised in f32, other types as they are."""
        value = self.value(which)
        quantization = value.quantization
        if value.tensor.value is not None:
            array = value.tensor.value
            return constant(array if quantization is None else quantization.numbers(array))
        assert value.stored is not None
        if quantization is None:
            return value.stored
        kind = self.stored_quantization(value.tensor)
        zero_points, scales = (
            self._along(v.astype(np.float32), kind.axis, len(value.tensor.dims))
            for v in (kind.zero_points, kind.scales)
        )
        if value.unstored is None:
            integers = tf.cast(value.stored, tf.float32)
        else:
            least, largest = np.float32(value.stored.dtype.min), np.float32(value.stored.dtype.max)
            integers = tf.minimum(tf.maximum(value.unstored, least), largest)
            integers = tf.floor(integers) if value.stored.dtype == tf.uint8 else integers
        return (integers - zero_points) * scales

    def numbers(self) -> list[tf.Tensor]:
        """All operands as numbers."""
        return [self.number(k) for k in range(len(self.operands)) if self.has(k)]

    def stored(self, which: int) -> tf.Tensor:
        """An operand as it is stored."""
        value = self.value(which)
        if value.stored is not None:
            return value.stored
        return constant(self.stored_array(value))

    def stored_array(self, value: Value) -> np.ndarray:
        """A constant as it is stored."""
        array = self.constant_of(value)
        return to_form(array, self.form) if value.quantization is not None else array

    def constant_of(self, value: Value) -> np.ndarray:
        """The value of a constant as the file has it. Raises: UnsupportedError  it is none."""
        if value.tensor.value is None:
            raise UnsupportedError(f"{value.tensor.name} is computed, a constant is compiled")
        return value.tensor.value

    def constant(self, which: int) -> np.ndarray:
        """An operand that is a constant, as the file has it. Raises: UnsupportedError  it is none."""
        return self.constant_of(self.value(which))

    def integers(self, which: int) -> list[int]:
        """A constant of integers."""
        return [int(n) for n in self.constant(which).reshape(-1)]

    # -- quantised values

    def stored_quantization(self, tensor: FileTensor) -> Quantization:
        """What stored integers stand for. Raises: ShapeError  nothing."""
        kind = tensor.quantization
        assert kind is not None
        if not kind.scales.all():
            raise ShapeError(f"the scale of {tensor.name} is zero")
        if tensor.dtype not in BYTES:
            return kind
        return dataclasses.replace(kind, zero_points=kind.zero_points + _shift(tensor.dtype, self.form))

    def is_bytes(self, tensor: FileTensor) -> bool:
        """Whether a tensor has quantised values of 8 bits and one scale."""
        return tensor.is_bytes and tensor.quantization is not None and tensor.quantization.is_whole

    def moves_bits(self) -> bool:
        """Whether all that is quantised stands for numbers in one way, so that values may move as they are stored."""
        values = [v.tensor for v in self.operands if v is not None and v.quantization is not None]
        kinds = [t for t in (*values, *self.results) if t.dtype in _QUANTIZED]
        keys = {
            (
                t.dtype,
                tuple(t.quantization.scales) if t.quantization else (),
                tuple(t.quantization.zero_points) if t.quantization else (),
            )
            for t in kinds
        }
        return len(keys) <= 1 and all(t.quantization is None or t.quantization.is_whole for t in kinds)

    def store(self, number: tf.Tensor, result: int = 0) -> tf.Tensor:
        """Numbers as the result is stored."""
        tensor = self.results[result]
        if tensor.quantization is None or tensor.dtype not in _QUANTIZED:
            return number
        kind = self.stored_quantization(tensor)
        inverse = np.float32(1) / kind.scales.astype(np.float32)
        rank = len(tensor.dims)
        factors = self._along(inverse, kind.axis, rank)
        return self.rounded(tf.cast(number, tf.float32) * factors, kind.zero_points, tensor, rank, kind.axis)

    def rounded(
        self, x: tf.Tensor, zero_points: np.ndarray, tensor: FileTensor, rank: int = 0, axis: int = 0
    ) -> tf.Tensor:
        """Multiples of the scale as integers of a tensor, with the zero point."""
        dtype = self.form.dtype if tensor.dtype in BYTES else tf.as_dtype(tensor.dtype)
        # Where nothing is negative, truncation after adding a half rounds.
        shift = zero_points.astype(np.float32) + (0.5 if dtype == tf.uint8 else 0.0)
        if shift.any():
            x = x + self._along(shift.astype(np.float32), axis, rank)
        return self.cast(x if dtype == tf.uint8 else tf.round(x), dtype)

    def cast(self, x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Floats as integers of a result: rounded ones, or those to be truncated to u8."""
        stored = tfp.saturating_cast(x, dtype)
        self.unstored[stored.ref()] = x
        return stored

    @staticmethod
    def _along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
        """One number, or numbers along an axis."""
        if values.size == 1:
            return values.reshape(())
        dims = [1] * rank
        dims[axis] = -1
        return values.reshape(dims)

    # -- activations

    def limits(self) -> tuple[float | None, float | None] | None:
        """The least and the largest number that the fused activation lets through."""
        which = self.option("fusedActivationFunction", 0)
        if which == _TANH:
            return None
        if which not in _LIMITS:
            raise UnsupportedError(f"the fused activation {which} is not compiled")
        return _LIMITS[which] or (None, None)

    def activated(self, x: tf.Tensor) -> tf.Tensor:
        """Numbers after the fused activation."""
        limits = self.limits()
        if limits is None:
            return tf.tanh(x)
        low, high = limits
        if low == 0 and high == 6:
            return tf.nn.relu6(x)
        if low == 0 and high is None:
            return tf.nn.relu(x)
        return x if low is None else tf.clip_by_value(x, low, high)


Result: TypeAlias = "tf.Tensor | Sequence[tf.Tensor]"


def constant(array: np.ndarray) -> tf.Tensor:
    """A constant of the graph, or one that it captures, if it is large."""
    if array.size <= _MAX_IN_GRAPH:
        return tf.constant(array)
    with tf.init_scope():
        return tf.constant(array)


def _shift(dtype: np.dtype[Any] | None, form: ByteForm) -> int:
    """What is added to integers of a file's type for the form of the target."""
    if dtype == form.dtype.as_numpy_dtype:
        return 0
    return 128 if form.dtype == tf.uint8 else -128


def to_form(array: np.ndarray, form: ByteForm) -> np.ndarray:
    """Bytes of a constant in the form of the target; others as they are."""
    if array.dtype not in BYTES:
        return array
    result: np.ndarray = (array.astype(np.int16) + _shift(array.dtype, form)).astype(
        form.dtype.as_numpy_dtype
    )
    return result


def between_forms(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Bytes with a sign as those without, and back: the highest bit differs."""
    if x.dtype == dtype:
        return x
    high = 128 if x.dtype == tf.uint8 else -128
    return tf.bitcast(tf.bitwise.bitwise_xor(x, tf.constant(high, x.dtype)), dtype)
