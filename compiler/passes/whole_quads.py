"""Products of bytes with constants, in whole quads: features in no multiple of four get zeros beside them.

    convolution(u8[1,28,28,3], s8[3,3,3,16])    =>    convolution(pad(..) u8[1,28,28,4], s8[3,3,16,4])

Kernels multiply four neighbouring bytes at once (analysis/quads.py). Where features are so few that most of a quad were
zeros, elements of the window along an axis become features:

    convolution(u8[1,28,28,1], s8[3,3,1,16])    =>    convolution(concatenate(..) u8[1,28,26,4], s8[3,1,16,4])
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from ...runtime.sizes import Size, ceiling
from ..analysis.quads import QUAD, quad_type
from ..ir.literal import Literal
from ..ir.module import Instruction, Module, make
from ..ir.shape import Shape
from ..ops import Concatenate, Constant, Convolution, Dot, Pad, Slice
from ..ops.window import Window
from ..options import Options
from .rules.rule import full

_LEAST_GAIN = 2  # sums that a window takes, in those with elements as features
_MOST_MEMORY = 2  # bytes of the input with elements as features, in those without


def whole_quads(module: Module, options: Options) -> Module:
    """The module with dots and convolutions that kernels multiply in quads."""
    return module.rewrite_ops((Convolution, Dot), lambda i: _changed(i, options.summed_bytes))


def _changed(product: Instruction, summed_bytes: int) -> Instruction | None:
    if not isinstance(product.op, Dot | Convolution):
        return None
    values, weights = product.operands
    types = (values.shape.element_type, weights.shape.element_type)
    if not isinstance(weights.op, Constant) or not quad_type(*types, product.shape.element_type):
        return None
    return _dot(product) if isinstance(product.op, Dot) else _convolution(product, summed_bytes)


def _dot(product: Instruction) -> Instruction | None:
    """A dot over the last axis of both operands."""
    op, (values, weights) = product.op, product.operands
    assert isinstance(op, Dot)
    last = values.shape.rank - 1
    if op.lhs_contracting != (last,) or op.rhs_batch:
        return None
    (axis,), array = op.rhs_contracting, _array(weights)
    missing = -array.shape[axis] % QUAD
    if not missing and axis == array.ndim - 1:
        return None
    array = _with_zeros(np.moveaxis(array, axis, -1), missing)
    op = dataclasses.replace(op, rhs_contracting=(array.ndim - 1,))
    return dataclasses.replace(product, op=op, operands=(_padded(values, missing), _constant(array)))


def _convolution(product: Instruction, summed_bytes: int) -> Instruction | None:
    """A convolution whose input features are the last axis of both operands."""
    op, (values, weights) = product.op, product.operands
    assert isinstance(op, Convolution)
    d, array, last = op.dims, _array(weights), values.shape.rank - 1
    is_last = d.kernel_input_feature == last
    if op.feature_groups * op.batch_groups != 1 or d.input_feature != last:
        return None
    if is_last and array.shape[-1] % QUAD == 0:
        return None
    if not is_last:
        array = array.transpose(*d.kernel_spatial, d.kernel_output_feature, d.kernel_input_feature)
        spatial = tuple(range(last - 1))
        d = dataclasses.replace(
            d, kernel_input_feature=last, kernel_output_feature=last - 1, kernel_spatial=spatial
        )
        op = dataclasses.replace(op, dims=d)
    k = _axis_for_features(op, values.shape.dims, product.shape.dims, summed_bytes)
    if k is not None:
        axis, positions = d.kernel_spatial[k], product.shape.dims[d.output_spatial[k]]
        values = _elements_as_features(op, k, values, positions)
        array = np.moveaxis(array, axis, -2)
        array = np.expand_dims(array.reshape(*array.shape[:-2], -1), axis)
        op = dataclasses.replace(op, window=_without_axis(op.window, k))
    missing = -array.shape[-1] % QUAD
    values, array = _padded(values, missing), _with_zeros(array, missing)
    return dataclasses.replace(product, op=op, operands=(values, _constant(array)))


def _axis_for_features(
    op: Convolution, dims: Sequence[int], positions: Sequence[int], summed_bytes: int
) -> int | None:
    """The spatial axis along which the window's elements become features; None where that is not worth while."""
    window, d = op.window, op.dims
    features = dims[d.input_feature]

    def sums(sizes: Sequence[int], features: int) -> int:
        """How many a window takes. Its elements along the last axis are neighbours."""
        run = sizes[-1] * QUAD * ceiling(features, QUAD)
        return math.prod(sizes[:-1]) * ceiling(run, summed_bytes)

    best, most = None, float(_LEAST_GAIN)
    for k, (axis, result) in enumerate(zip(d.input_spatial, d.output_spatial)):
        size, count, elements = dims[axis], positions[result], features * window.size[k]
        has_elements = not isinstance(size, Size) and size * count * elements > 0
        if window.base_dilation[k] != 1 or window.reversal[k] or not has_elements:
            continue
        others = (*window.size[:k], 1, *window.size[k + 1 :])
        gain = sums(window.size, features) / max(1, sums(others, elements))
        length = size + window.pad_low[k] + window.pad_high[k]
        more = count * ceiling(elements, QUAD) / (length * ceiling(features, QUAD))
        if gain >= most and more <= _MOST_MEMORY:
            best, most = k, gain
    return best


def _elements_as_features(op: Convolution, k: int, values: Instruction, positions: int) -> Instruction:
    """The input with as many positions along an axis as the result has, each with the features that it sees there."""
    window, axis = op.window, op.dims.input_spatial[k]
    values = _padded_along(values, axis, window.pad_low[k], window.pad_high[k])
    parts = []
    for element in range(window.size[k]):
        start, strides = [0] * values.shape.rank, [1] * values.shape.rank
        limit = list(values.shape.dims)
        start[axis], strides[axis] = element * window.window_dilation[k], window.stride[k]
        limit[axis] = start[axis] + (positions - 1) * window.stride[k] + 1
        parts.append(
            make(Slice(tuple(start), tuple(limit), tuple(strides)), values, metadata=values.metadata)
        )
    return make(Concatenate(op.dims.input_feature), *parts, metadata=values.metadata)


def _without_axis(window: Window, k: int) -> Window:
    """The window with one element along an axis, at each position."""

    def at(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
        return *numbers[:k], number, *numbers[k + 1 :]

    return dataclasses.replace(
        window,
        size=at(window.size, 1),
        stride=at(window.stride, 1),
        window_dilation=at(window.window_dilation, 1),
        pad_low=at(window.pad_low, 0),
        pad_high=at(window.pad_high, 0),
    )


def _padded(values: Instruction, missing: int) -> Instruction:
    """Values with further features. What these are does not count, as their weights are zeros: a padded value is padded
    further."""
    last = values.shape.rank - 1
    op = values.op
    if missing and isinstance(op, Pad):
        wider = dataclasses.replace(op, high=(*op.high[:last], op.high[last] + missing))
        return make(wider, *values.operands, metadata=values.metadata)
    return _padded_along(values, last, 0, missing)


def _padded_along(values: Instruction, axis: int, low: int, high: int) -> Instruction:
    """Values with zeros along an axis."""
    if not low and not high:
        return values
    none = (0,) * values.shape.rank
    lows, highs = ((*none[:axis], amount, *none[axis + 1 :]) for amount in (low, high))
    zero = full(Shape(values.shape.element_type, ()), 0)
    return make(Pad(lows, highs, none), values, zero, metadata=values.metadata)


def _array(constant: Instruction) -> np.ndarray:
    assert isinstance(constant.op, Constant)
    return constant.op.literal.array


def _constant(array: np.ndarray) -> Instruction:
    return make(Constant(Literal(np.ascontiguousarray(array))))


def _with_zeros(array: np.ndarray, missing: int) -> np.ndarray:
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)]) if missing else array
