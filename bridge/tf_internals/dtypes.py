"""TensorFlow's dtypes and the compiler's element types."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...compiler.ir.element_types import FORMATS, SMALL_INTEGERS, ElementType, element_type_of
from .types import TensorProto

# Types for which TensorFlow has hardly a kernel.
_OF_HLO_TEXT = (FORMATS.keys() | SMALL_INTEGERS) - {
    ElementType.BF16,
    ElementType.F16,
    ElementType.F8E4M3FN,
    ElementType.F8E5M2,
    ElementType.S4,
    ElementType.U4,
}


@functools.cache
def element_type(data_type: int) -> ElementType | None:
    """The element type of a DataType number, of a quantized type that of its integers; None for strings, resources and
    variants."""
    try:
        dtype = tf.as_dtype(data_type)
        if dtype in (tf.string, tf.resource, tf.variant):
            return None
        type_ = element_type_of(dtype.as_numpy_dtype[0] if dtype.is_quantized else dtype.as_numpy_dtype)
        return None if type_ in _OF_HLO_TEXT else type_
    except (TypeError, KeyError):
        return None


@functools.cache
def data_type(type_: ElementType) -> int:
    """The DataType number of an element type."""
    return int(tf.as_dtype(type_.dtype).as_datatype_enum)


def make_ndarray(tensor: TensorProto) -> np.ndarray:
    """The array of a TensorProto. tf.make_ndarray fails where there are no elements and yet a value is written, as
    TensorFlow's constant folding writes them.
    """
    dims = [d.size for d in tensor.tensor_shape.dim]
    if 0 in dims:
        return np.zeros(dims, tf.as_dtype(tensor.dtype).as_numpy_dtype)
    array: np.ndarray = tf.make_ndarray(tensor)
    return array


_CONTENT_TYPES: dict[int, np.dtype] = {
    int(t.as_datatype_enum): np.dtype(t.as_numpy_dtype)
    for t in (
        tf.float32,
        tf.float64,
        tf.float16,
        tf.bfloat16,
        tf.bool,
        tf.int8,
        tf.int16,
        tf.int32,
        tf.int64,
        tf.uint8,
        tf.uint16,
        tf.uint32,
        tf.uint64,
        tf.complex64,
        tf.complex128,
    )
}
_VALUE_FIELDS = {
    int(t.as_datatype_enum): field
    for t, field in (
        (tf.float32, "float_val"),
        (tf.float64, "double_val"),
        (tf.int32, "int_val"),
        (tf.int64, "int64_val"),
        (tf.bool, "bool_val"),
    )
}


def proto_array(tensor: TensorProto) -> np.ndarray:
    """A TensorProto as an array, of quantized values as one of integers."""
    dtype = _CONTENT_TYPES.get(tensor.dtype)
    if dtype is not None:  # the two common forms: a graph has thousands of them
        dims = [d.size for d in tensor.tensor_shape.dim]
        count, content = math.prod(dims), tensor.tensor_content
        if content and len(content) == count * dtype.itemsize:
            return np.frombuffer(content, dtype).reshape(dims)
        numbers: Sequence[Any] = (
            getattr(tensor, _VALUE_FIELDS[tensor.dtype]) if tensor.dtype in _VALUE_FIELDS else ()
        )
        if count == 1 and len(numbers) == 1:
            return np.array(numbers[0], dtype).reshape(dims)
    array = make_ndarray(tensor)
    return array if array.dtype.names is None else array.view(array.dtype[0])
