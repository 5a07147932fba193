"""Makes the module of integers: quantised values, weights and contractions in the place of those in f32."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set

import numpy as np

from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Metadata, make
from ..ir.shape import Shape
from ..ops import (
    BlockScaledDot,
    Broadcast,
    Constant,
    Convert,
    Convolution,
    Dot,
    Elementwise,
    GetTupleElement,
    Opcode,
    OptimizationBarrier,
    Pad,
    Parameter,
    ReduceWindow,
    Reshape,
    Tuple,
    is_op,
)
from ..ops.block_scaled_dot import packed
from ..ops.convolution import ConvolutionDims
from ..passes.rules.rule import splat
from .embeddings import stored_rows
from .layers import Layer
from .loops import body_of, is_counted
from .weights import LARGEST_WEIGHT, SMALLEST_SCALE, as_stored, quantize_blocks, quantize_weights


@dataclasses.dataclass(frozen=True)
class Quantized:
    """How a value is stored in 8 bits: the integer q stands for (q - zero_point) * scale."""

    element_type: ElementType
    scale: float
    zero_point: int

    @staticmethod
    def of(bounds: tuple[float, float], element_type: ElementType) -> Quantized:
        """The integers of 8 bits spread over the bounds, among which is zero."""
        low, high = bounds
        scale = max((high - low) / 255, SMALLEST_SCALE)
        lowest = 0 if element_type is ElementType.U8 else -128
        zero_point = int(np.clip(round(lowest - low / scale), lowest, lowest + 255))
        return Quantized(element_type, float(np.float32(scale)), zero_point)

    def integer(self, number: float) -> int:
        """The integer that stands for a number, or for the nearest one that there is."""
        low, high = self.bounds
        return round(min(max(number, low), high) / self.scale) + self.zero_point

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest number that it stands for."""
        lowest = 0 if self.element_type is ElementType.U8 else -128
        return (lowest - self.zero_point) * self.scale, (lowest + 255 - self.zero_point) * self.scale


class Rewriting:
    """A new computation under construction: a subclass says what becomes of layers. `done`: new instructions by the old
    ones."""

    def __init__(self, computation: Computation, layers: Sequence[Layer]) -> None:
        self.computation = computation
        self.layers = {layer.result: layer for layer in layers}
        self.done: dict[Instruction, Instruction] = {}

    def run(self) -> Computation:
        """The computation."""
        return self._rewritten(self.computation)

    def _rewritten(self, computation: Computation) -> Computation:
        for old in computation.instructions:
            layer = self.layers.get(old)
            if layer is not None:
                self.done[old] = self.layer(layer)
                continue
            keeps = old is computation.root or isinstance(old.op, Tuple) or old.has_side_effect
            operands = [self.done[o] if keeps else self.read(o) for o in old.operands]
            new = old.with_operands(operands) if operands else old
            if is_counted(old):
                body = body_of(old)
                new = dataclasses.replace(new, op=new.op.with_called({body: self._rewritten(body)}))
            self.done[old] = new
        return computation.mapped(self.done)

    def read(self, old: Instruction) -> Instruction:
        """A value as others than layers read it."""
        return self.done[old]

    def layer(self, layer: Layer) -> Instruction:
        """The result of a layer."""
        raise NotImplementedError

    def weights_type(self, layer: Layer) -> ElementType:
        """The type in which the weights of a layer are stored."""
        return ElementType.S8


class StoredWeights(Rewriting):
    """Layers whose weights are stored in a narrower type: the products read them so, and convert in registers. Of
    4 bits are weights of matrix products, in blocks of `block_size` rows; the others then have 8."""

    def __init__(
        self, computation: Computation, layers: Sequence[Layer], kind: ElementType, block_size: int
    ) -> None:
        super().__init__(computation, layers)
        self.kind, self.block_size = kind, block_size

    def layer(self, layer: Layer) -> Instruction:
        """The product, the scales of integers after it, and the bias; or rows of a table."""
        if layer.kind == "embedding":
            numbers = [self.done[o] for o in layer.contraction.operands[1:]]
            return stored_rows(layer.contraction, numbers, layer.weights, self.kind, self.block_size)
        is_in_blocks = self.weights_type(layer) is ElementType.S4
        result = self._product_of_blocks(layer) if is_in_blocks else self._product(layer)
        bias = layer.bias.astype(np.float32)
        return _by_feature(Opcode.ADD, result, bias, layer.feature_axis) if bias.any() else result

    def weights_type(self, layer: Layer) -> ElementType:
        """4 bits for matrix products and tables alone."""
        is_convolution = layer.kind != "embedding" and not layer.is_matrix_product
        return ElementType.S8 if self.kind is ElementType.S4 and is_convolution else self.kind

    def _product_of_blocks(self, layer: Layer) -> Instruction:
        """The product with weights of 4 bits."""
        contraction, features = layer.contraction, layer.weights.shape[layer.channel_axis]
        by_row = np.moveaxis(layer.weights, layer.channel_axis, -1).reshape(-1, features)
        integers, scales = quantize_blocks(by_row, self.block_size)
        values, metadata = self.done[contraction.operands[0]], contraction.metadata
        rows = values.shape.elements // len(by_row)
        operands = (
            make(Reshape((rows, len(by_row))), values, metadata=metadata),
            _constant(packed(integers)),
            _constant(scales),
        )
        product = make(BlockScaledDot(min(self.block_size, len(by_row))), *operands, metadata=metadata)
        return make(Reshape(contraction.shape.dims), product, metadata=metadata)

    def _product(self, layer: Layer) -> Instruction:
        """The product with weights of 8 or 16 bits."""
        scales = np.ones((), np.float32)
        if self.kind.is_integer:
            weights, scales = quantize_weights(layer.weights, layer.channel_axis)
        else:
            weights = as_stored(layer.weights, self.kind)
        contraction, op = layer.contraction, layer.contraction.op
        assert isinstance(op, Dot | Convolution)
        # Not by a conversion, which would be moved out of loops.
        operands = self.done[contraction.operands[0]], _constant(weights)
        op = dataclasses.replace(op, preferred_type=ElementType.F32)
        result = make(op, *operands, metadata=contraction.metadata)
        if scales.ndim:
            result = _by_feature(Opcode.MULTIPLY, result, scales, layer.feature_axis)
        return result


class IntegerLayers(Rewriting):
    """Layers in integers. `types`: how each of their sources is stored. `largest_weight`: of sums of products.
    `by_output`: whether the weights of each output feature of a convolution lie side by side. `tabulated`: results of
    layers that only functions of them read, which become tables."""

    def __init__(
        self,
        computation: Computation,
        layers: Sequence[Layer],
        types: Mapping[Instruction, Quantized],
        largest_weight: int = LARGEST_WEIGHT,
        by_output: bool = False,
        tabulated: Set[Instruction] = frozenset(),
    ) -> None:
        super().__init__(computation, layers)
        self.types, self.largest_weight, self.by_output = types, largest_weight, by_output
        self.tabulated = tabulated
        self.quantized: dict[Instruction, Instruction] = {}
        self.restored: dict[Instruction, Instruction] = {}
        self.sums: dict[Instruction, _Sums] = {}

    def read(self, old: Instruction) -> Instruction:
        """A value as others than layers read it: what is stored in 8 bits for these is not stored twice."""
        kind = self.types.get(old)
        if kind is None or isinstance(old.op, Parameter | GetTupleElement):  # stored in f32 anyway
            return self.done[old]
        if old not in self.restored:
            value = self._quantize(old)
            # The layer's kernel ends here: its sums of integers are not stored.
            if old in self.sums and old not in self.tabulated:
                value = make(OptimizationBarrier(), value, metadata=old.metadata)
            number = make(Convert(ElementType.F32), value, metadata=old.metadata)
            if kind.zero_point:
                number = _with(Opcode.SUBTRACT, number, float(kind.zero_point))
            self.restored[old] = _with(Opcode.MULTIPLY, number, kind.scale)
        return self.restored[old]

    def _quantize(self, old: Instruction) -> Instruction:
        """A value in 8 bits: conversion saturates."""
        if old not in self.quantized:
            kind, inner = self.types[old], _without_clamp(old, self.types[old])
            is_unsigned = kind.element_type is ElementType.U8
            # Where nothing is negative, truncation after adding a half rounds.
            offset = kind.zero_point + (0.5 if is_unsigned else 0.0)
            if inner in self.sums:
                sums = self.sums[inner]
                value = sums.scaled(1 / kind.scale, offset)
            else:
                value = _with(Opcode.MULTIPLY, self.done[inner], float(np.float32(1 / kind.scale)))
                value = _with(Opcode.ADD, value, offset) if offset else value
            if not is_unsigned:
                value = make(Elementwise(Opcode.ROUND_NEAREST_EVEN.value), value, metadata=old.metadata)
            self.quantized[old] = make(Convert(kind.element_type), value, metadata=old.metadata)
        return self.quantized[old]

    def layer(self, layer: Layer) -> Instruction:
        """The product of integers, scaled."""
        kind, metadata = self.types[layer.source], layer.contraction.metadata
        value = self._quantize(layer.source)
        zero = _constant(np.array(kind.zero_point, kind.element_type.dtype))
        for move in reversed(layer.moves):
            value = _moved(move, value, kind)
        most = LARGEST_WEIGHT if layer.kind == "depthwise" else self.largest_weight
        weights, scales = quantize_weights(layer.weights, layer.channel_axis, most)
        op = layer.contraction.op
        if isinstance(op, Dot):
            product = _dot(op, value, weights, layer.channel_axis, metadata)
        else:
            assert isinstance(op, Convolution)
            product = _convolution(op, value, weights, kind.zero_point, zero, self.by_output, metadata)
        factors = scales.astype(np.float64) * kind.scale
        summed = tuple(a for a in range(weights.ndim) if a != layer.channel_axis)
        shift = layer.bias - weights.astype(np.int64).sum(axis=summed) * kind.zero_point * factors
        value = make(Convert(ElementType.F32), product, metadata=metadata)
        self.sums[layer.result] = _Sums(value, factors, shift, layer.feature_axis)
        return self.sums[layer.result].scaled(1.0, 0.0)


def _without_clamp(value: Instruction, kind: Quantized) -> Instruction:
    """What is clamped, where conversion to 8 bits saturates at the bounds or inside them."""
    low, high = kind.bounds
    if is_op(value, Opcode.CLAMP):
        (least, largest), inner = (splat(value.operands[k]) for k in (0, 2)), value.operands[1]
        slack = kind.scale / 2  # rounded away
        if least is not None and largest is not None and least <= low and largest >= high - slack:
            return inner
    if is_op(value, Opcode.MAXIMUM):
        for number, inner in (value.operands, value.operands[::-1]):
            least = splat(number)
            if least is not None and least <= low:
                return inner
    return value


def _moved(move: Instruction, value: Instruction, kind: Quantized) -> Instruction:
    """A move of a value in 8 bits. The number for padding, or with which a maximum begins, is rounded as values are."""
    op, type_ = move.op, kind.element_type
    others = []
    for operand in move.operands[1:]:
        number = splat(operand)
        assert number is not None
        others.append(_constant(np.array(kind.integer(float(number)), type_.dtype)))
    if isinstance(op, ReduceWindow):
        scalar = Shape(type_, ())
        a, b = (Instruction(Parameter(k, scalar), (), scalar, f"p{k}") for k in range(2))
        largest = Computation(f"max_{type_.value}", make(Elementwise(Opcode.MAXIMUM.value), a, b), [a, b])
        op = ReduceWindow(op.window, largest)
    return make(op, value, *others, metadata=move.metadata)


@dataclasses.dataclass(frozen=True)
class _Sums:
    """A layer's sums of integers as f32, and the factor and shift of each output feature that make its result."""

    value: Instruction
    factors: np.ndarray
    shift: np.ndarray
    axis: int

    def scaled(self, factor: float, offset: float) -> Instruction:
        """The result times a factor, plus an offset."""
        factors, shift = (
            (n * factor + o).astype(np.float32) for n, o in ((self.factors, 0), (self.shift, offset))
        )
        result = _by_feature(Opcode.MULTIPLY, self.value, factors, self.axis)
        return _by_feature(Opcode.ADD, result, shift, self.axis) if shift.any() else result


def _dot(
    op: Dot,
    value: Instruction,
    weights: np.ndarray,
    channel_axis: int,
    metadata: Metadata,
) -> Instruction:
    """The product with the weights' sums side by side in memory."""
    by_feature = np.moveaxis(weights, channel_axis, 0)
    integers = Dot((value.shape.rank - 1,), (1,), (), (), ElementType.S32)
    return make(integers, value, _constant(by_feature), metadata=metadata)


def _convolution(
    op: Convolution,
    value: Instruction,
    weights: np.ndarray,
    zero_point: int,
    zero: Instruction,
    by_output: bool,
    metadata: Metadata,
) -> Instruction:
    """The convolution with padding of the zero point. The kernel has output features before input features, or,
    `by_output`, before everything."""
    d, window, rank = op.dims, op.window, value.shape.rank
    low, high, interior = [0] * rank, [0] * rank, [0] * rank
    if zero_point and (any(window.pad_low) or any(window.pad_high) or max(window.base_dilation) > 1):
        for k, axis in enumerate(d.input_spatial):
            low[axis], high[axis] = window.pad_low[k], window.pad_high[k]
            interior[axis] = window.base_dilation[k] - 1
        ones, none = (1,) * window.rank, (0,) * window.rank
        window = dataclasses.replace(window, pad_low=none, pad_high=none, base_dilation=ones)
    is_depthwise = op.feature_groups > 1 and weights.shape[d.kernel_input_feature] == 1
    kernel = weights.transpose(*d.kernel_spatial, d.kernel_output_feature, d.kernel_input_feature)
    spatial = tuple(range(rank - 2))
    dims = ConvolutionDims(
        d.input_batch, d.input_feature, d.input_spatial, rank - 1, rank - 2, spatial, *_output(d)
    )
    if is_depthwise:
        kernel = np.swapaxes(kernel, -1, -2)
        dims = dataclasses.replace(dims, kernel_input_feature=rank - 2, kernel_output_feature=rank - 1)
    if by_output and not is_depthwise:
        kernel = np.ascontiguousarray(np.moveaxis(kernel, -2, 0))
        spatial = tuple(axis + 1 for axis in spatial)
        dims = dataclasses.replace(dims, kernel_output_feature=0, kernel_spatial=spatial)
    if any((*low, *high, *interior)):
        value = _pad(value, zero, low, high, interior)
    integers = Convolution(window, dims, op.feature_groups, 1, ElementType.S32)
    return make(integers, value, _constant(kernel), metadata=metadata)


def _output(dims: ConvolutionDims) -> tuple[int, int, tuple[int, ...]]:
    return dims.output_batch, dims.output_feature, dims.output_spatial


def _pad(
    value: Instruction,
    zero: Instruction,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] = (),
) -> Instruction:
    holes = tuple(interior) or (0,) * value.shape.rank
    return make(Pad(tuple(low), tuple(high), holes), value, zero, metadata=value.metadata)


def _constant(value: np.ndarray) -> Instruction:
    return make(Constant(Literal(value)))


def _full(shape: Shape, value: Instruction, axes: tuple[int, ...], metadata: Metadata) -> Instruction:
    return make(Broadcast(shape.dims, axes), value, metadata=metadata)


def _with(opcode: Opcode, value: Instruction, number: float) -> Instruction:
    """An elementwise op with one number."""
    constant = _constant(np.array(number, np.float32))
    other = _full(value.shape, constant, (), value.metadata)
    return make(Elementwise(opcode.value), value, other, metadata=value.metadata)


def _by_feature(opcode: Opcode, value: Instruction, numbers: np.ndarray, axis: int) -> Instruction:
    """An elementwise op with a number for each feature."""
    other = _full(value.shape, _constant(numbers), (axis,), value.metadata)
    return make(Elementwise(opcode.value), value, other, metadata=value.metadata)
