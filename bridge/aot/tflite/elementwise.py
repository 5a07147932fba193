"""Operators that compute each element by itself, on numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from .operation import Operation, Result
from .registry import translates

_elementwise = functools.partial(translates, is_elementwise=True)


def _unary(name: str, function: Callable[[tf.Tensor], tf.Tensor]) -> None:
    _elementwise(name)(lambda op: function(op.number(0)))


def _binary(name: str, function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], is_activated: bool) -> None:
    def translate(op: Operation) -> Result:
        result = function(op.number(0), op.number(1))
        return op.activated(result) if is_activated else result

    _elementwise(name)(translate)


for _name, _function in {
    "ABS": tf.abs,
    "CEIL": tf.math.ceil,
    "COMPLEX_ABS": tf.abs,
    "COS": tf.cos,
    "ELU": tf.nn.elu,
    "EXP": tf.exp,
    "FLOOR": tf.floor,
    "IMAG": tf.math.imag,
    "LOG": tf.math.log,
    "LOGICAL_NOT": tf.logical_not,
    "LOGISTIC": tf.sigmoid,
    "NEG": tf.negative,
    "REAL": tf.math.real,
    "RELU": tf.nn.relu,
    "RELU6": tf.nn.relu6,
    "RELU_0_TO_1": lambda x: tf.clip_by_value(x, 0.0, 1.0),
    "RELU_N1_TO_1": lambda x: tf.clip_by_value(x, -1.0, 1.0),
    "ROUND": tf.round,
    "RSQRT": tf.math.rsqrt,
    "SIGN": tf.sign,
    "SIN": tf.sin,
    "SQRT": tf.sqrt,
    "SQUARE": tf.square,
    "TANH": tf.tanh,
    "ZEROS_LIKE": tf.zeros_like,
}.items():
    _unary(_name, _function)

for _name, _function, _activated in (
    ("ADD", tf.add, True),
    ("SUB", tf.subtract, True),
    ("MUL", tf.multiply, True),
    ("MAXIMUM", tf.maximum, False),
    ("MINIMUM", tf.minimum, False),
    ("POW", tf.pow, False),
    ("SQUARED_DIFFERENCE", tf.math.squared_difference, False),
    ("FLOOR_MOD", tf.math.floormod, False),
    ("ATAN2", tf.atan2, False),
    ("LOGICAL_AND", tf.logical_and, False),
    ("LOGICAL_OR", tf.logical_or, False),
    ("EQUAL", tf.equal, False),
    ("NOT_EQUAL", tf.not_equal, False),
    ("LESS", tf.less, False),
    ("LESS_EQUAL", tf.less_equal, False),
    ("GREATER", tf.greater, False),
    ("GREATER_EQUAL", tf.greater_equal, False),
    ("BITWISE_XOR", tf.bitwise.bitwise_xor, False),
    ("RIGHT_SHIFT", tf.bitwise.right_shift, False),
):
    _binary(_name, _function, _activated)


@_elementwise("DIV")
def divide(op: Operation) -> Result:
    x, y = op.number(0), op.number(1)
    return op.activated(x / y if x.dtype.is_floating else tf.truncatediv(x, y))


@_elementwise("FLOOR_DIV")
def floor_divide(op: Operation) -> Result:
    return tf.math.floordiv(op.number(0), op.number(1))


@_elementwise("ADD_N")
def add_all(op: Operation) -> Result:
    return tf.add_n(op.numbers())


@_elementwise("HARD_SWISH")
def hard_swish(op: Operation) -> Result:
    x = op.number(0)
    return x * tf.nn.relu6(x + 3.0) * np.float32(1 / 6)


@_elementwise("GELU")
def gelu(op: Operation) -> Result:
    return tf.nn.gelu(op.number(0), approximate=bool(op.option("approximate", False)))


@_elementwise("LEAKY_RELU")
def leaky_relu(op: Operation) -> Result:
    x = op.number(0)
    return tf.where(x < 0, x * np.float32(op.option("alpha")), x)


@_elementwise("PRELU")
def prelu(op: Operation) -> Result:
    x, slope = op.number(0), op.number(1)
    return tf.where(x < 0, x * slope, x)


@_elementwise("SELECT", "SELECT_V2")
def select(op: Operation) -> Result:
    condition, x, y = op.number(0), op.number(1), op.number(2)
    if op.name == "SELECT" and condition.shape.rank == 1 and (x.shape.rank or 0) > 1:  # of whole rows
        condition = tf.reshape(condition, [-1] + [1] * (x.shape.rank - 1))
    return tf.where(condition, x, y)


@translates("CAST")
def cast(op: Operation) -> Result:
    tensor = op.results[0]
    return tf.cast(op.number(0), tensor.dtype)


@_elementwise("QUANTIZE")
def quantize(op: Operation) -> Result:
    """The numbers; who calls stores them in the scale of the result."""
    return op.number(0)


@_elementwise("DEQUANTIZE")
def dequantize(op: Operation) -> Result:
    return tf.cast(op.number(0), tf.float32)


@translates("FAKE_QUANT")
def fake_quantization(op: Operation) -> Result:
    limits = op.option("min"), op.option("max"), int(op.option("numBits")), bool(op.option("narrowRange"))
    return tf.quantization.fake_quant_with_min_max_args(op.number(0), *limits)


@translates("BITCAST")
def bitcast(op: Operation) -> Result:
    return tf.bitcast(op.number(0), op.results[0].dtype)


@translates("SOFTMAX", "LOG_SOFTMAX")
def softmax(op: Operation) -> Result:
    x = op.number(0)
    if op.name == "LOG_SOFTMAX":
        return tf.nn.log_softmax(x)
    beta = np.float32(op.option("beta"))
    return tf.nn.softmax(x if beta == 1 else x * beta)


@translates("L2_NORMALIZATION")
def l2_normalization(op: Operation) -> Result:
    x = op.number(0)
    norm = tf.sqrt(tf.reduce_sum(tf.square(x), -1, keepdims=True))
    return op.activated(x / tf.maximum(norm, np.float32(1e-6)))
