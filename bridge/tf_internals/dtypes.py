"""TensorFlow's dtypes and the compiler's element types."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from ...compiler.ir.element_types import ElementType, element_type_of


@functools.cache
def element_type(data_type: int) -> ElementType | None:
    """The element type of a DataType number, of a quantized type that of its integers; None for strings, resources and
    variants."""
    try:
        dtype = tf.as_dtype(data_type)
        if dtype in (tf.string, tf.resource, tf.variant):
            return None
        if dtype.is_quantized:
            return element_type_of(dtype.as_numpy_dtype[0])
        return element_type_of(dtype.as_numpy_dtype)
    except (TypeError, KeyError):
        return None


@functools.cache
def data_type(type_: ElementType) -> int:
    """The DataType number of an element type."""
    return int(tf.as_dtype(type_.dtype).as_datatype_enum)


def make_ndarray(tensor: Any) -> np.ndarray:
    """The array of a TensorProto. tf.make_ndarray fails where there are no elements and yet a value is written, as
    TensorFlow's constant folding writes them.
    """
    dims = [d.size for d in tensor.tensor_shape.dim]
    if 0 in dims:
        return np.zeros(dims, tf.as_dtype(tensor.dtype).as_numpy_dtype)
    array: np.ndarray = tf.make_ndarray(tensor)
    return array
