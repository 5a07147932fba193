"""Builder operations that have no op of their own: each is decomposed into others here."""

from __future__ import annotations

import math

import numpy as np

from ..errors import ShapeError
from ..ir.element_types import ElementType, float_info
from ..ir.module import Computation, Instruction
from ..ir.shape import Shape
from ..ops import BitcastConvert, Broadcast, Convert, Elementwise, GetDimensionSize, Parameter, Tuple
from .contractions import WindowOperations
from .core import Operand, operation

_BITS_TYPE = {1: ElementType.U8, 2: ElementType.U16, 4: ElementType.U32, 8: ElementType.U64}


class DerivedOperations(WindowOperations):
    """Inverse functions, the hyperbolic cosine, float classification, batch normalisation."""

    @operation
    def square(self, operand: Operand) -> Operand:
        """x * x."""
        return self.mul(operand, operand)

    @operation
    def reciprocal(self, operand: Operand) -> Operand:
        """1 / x."""
        return self.div(self.scalar_like(operand, 1), operand)

    @operation
    def conj(self, operand: Operand) -> Operand:
        """The complex conjugate; a real operand itself."""
        if not self.shape_of(operand).element_type.is_complex:
            return operand
        return self.complex(self.real(operand), self.neg(self.imag(operand)))

    @operation
    def sqrt_f32(self, operand: Operand) -> Operand:
        """The square root of an f32 array. Raises: ShapeError  f32_c1: another type."""
        return self.sqrt(self._f32("sqrt_f32", operand))

    @operation
    def square_f32(self, operand: Operand) -> Operand:
        """The square of an f32 array. Raises: ShapeError  f32_c1: another type."""
        return self.square(self._f32("square_f32", operand))

    @operation
    def reciprocal_f32(self, operand: Operand) -> Operand:
        """The reciprocal of an f32 array. Raises: ShapeError  f32_c1: another type."""
        return self.reciprocal(self._f32("reciprocal_f32", operand))

    def _f32(self, name: str, operand: Operand) -> Operand:
        if self.shape_of(operand).element_type is not ElementType.F32:
            raise ShapeError(f"{name}: operand {self.shape_of(operand)} is not f32 (f32_c1)")
        return operand

    @operation
    def is_nan(self, operand: Operand) -> Operand:
        """True where the element is NaN."""
        return self.ne(operand, operand)

    @operation
    def is_inf(self, operand: Operand) -> Operand:
        """True where the element is an infinity of either sign."""
        return self.eq(self.abs(operand), self.scalar_like(operand, math.inf))

    @operation
    def is_pos_inf(self, operand: Operand) -> Operand:
        """True where the element is +infinity."""
        return self.eq(operand, self.scalar_like(operand, math.inf))

    @operation
    def is_neg_inf(self, operand: Operand) -> Operand:
        """True where the element is -infinity."""
        return self.eq(operand, self.scalar_like(operand, -math.inf))

    @operation
    def is_neg_zero(self, operand: Operand) -> Operand:
        """True where the element is -0.0."""
        shape = self.shape_of(operand)
        bits = _BITS_TYPE[shape.element_type.item_bytes]
        zero = np.asarray(-0.0, shape.element_type.dtype).view(bits.dtype)
        return self.eq(self.apply(BitcastConvert(bits), operand), self.constant(zero))

    @operation
    def atan(self, operand: Operand) -> Operand:
        """The arc tangent."""
        return self.atan2(operand, self.full_like(operand, 1))

    @operation
    def asin(self, operand: Operand) -> Operand:
        """The arc sine: atan2(x, sqrt(1 - x^2))."""
        one = self.scalar_like(operand, 1)
        return self.atan2(operand, self.sqrt(self.mul(self.sub(one, operand), self.add(one, operand))))

    @operation
    def acos(self, operand: Operand) -> Operand:
        """The arc cosine: 2 atan2(sqrt(1 - x^2), 1 + x), which is pi at -1."""
        one = self.scalar_like(operand, 1)
        root = self.sqrt(self.mul(self.sub(one, operand), self.add(one, operand)))
        twice = self.mul(self.scalar_like(operand, 2), self.atan2(root, self.add(one, operand)))
        return self.select(
            self.eq(operand, self.scalar_like(operand, -1)), self.scalar_like(operand, math.pi), twice
        )

    @operation
    def cosh(self, operand: Operand) -> Operand:
        """The hyperbolic cosine, without overflow before its result overflows: of exp(x) / 2 and exp(-x) / 2, both
        products of their roots."""
        half = self.scalar_like(operand, 0.5)
        root = self.exp(self.mul(operand, half))
        inverse = self.exp(self.mul(self.neg(operand), half))
        return self.add(self.mul(self.mul(root, half), root), self.mul(self.mul(inverse, half), inverse))

    @operation
    def asinh(self, operand: Operand) -> Operand:
        """The inverse hyperbolic sine: sign(x) log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))), log |x| + log 2 where
        large."""
        one, size = self.scalar_like(operand, 1), self.abs(operand)
        square = self.mul(operand, operand)
        small = self.log1p(self.add(size, self.div(square, self.add(one, self.sqrt(self.add(square, one))))))
        large = self.add(self.log(size), self.scalar_like(operand, math.log(2)))
        magnitude = self.select(self.ge(size, self._root_of_largest(operand)), large, small)
        return self.mul(self.sign(operand), magnitude)

    @operation
    def acosh(self, operand: Operand) -> Operand:
        """The inverse hyperbolic cosine: log1p(t + sqrt(t (x + 1))) with t = x - 1, log x + log 2 where large; NaN
        below 1."""
        one = self.scalar_like(operand, 1)
        beyond = self.sub(operand, one)
        small = self.log1p(self.add(beyond, self.sqrt(self.mul(self.add(operand, one), beyond))))
        large = self.add(self.log(operand), self.scalar_like(operand, math.log(2)))
        inside = self.select(self.ge(operand, self._root_of_largest(operand)), large, small)
        return self.select(self.lt(operand, one), self.scalar_like(operand, math.nan), inside)

    @operation
    def atanh(self, operand: Operand) -> Operand:
        """The inverse hyperbolic tangent: (log1p(x) - log1p(-x)) / 2; NaN outside -1..1."""
        return self.mul(
            self.scalar_like(operand, 0.5), self.sub(self.log1p(operand), self.log1p(self.neg(operand)))
        )

    def _root_of_largest(self, operand: Operand) -> Operand:
        shape = self.shape_of(operand)
        if not shape.element_type.is_float:
            raise ShapeError(f"operand {shape} is not of a float type (float_c1)")
        return self.scalar_like(operand, math.sqrt(float(float_info(shape.element_type.dtype).max)))

    def full_like(self, operand: Operand, value: float) -> Operand:
        """A constant of the operand's type and dims, every element the same value.

        Shapes: the result's are the operand's.
        """
        scalar, dims = self.scalar_like(operand, value), self.shape_of(operand).dims
        return self.apply(Broadcast(dims, ()), scalar) if dims else scalar

    @operation
    def batch_norm_inference(
        self,
        operand: Operand,
        scale: Operand,
        offset: Operand,
        mean: Operand,
        variance: Operand,
        epsilon: float,
        feature_index: int,
    ) -> Operand:
        """(x - mean) / sqrt(variance + epsilon) * scale + offset, per feature.

        Shapes: operand [..f..] with f at feature_index; scale, offset, mean, variance [f]; the result's are the
            operand's.
        Raises: ShapeError  batch_norm_c1: a vector's size is not the feature axis's.
        """
        axis = self._features("batch_norm_inference", operand, feature_index, scale, offset, mean, variance)
        factor = self.mul(scale, self.rsqrt(self.add(variance, self.scalar_like(variance, epsilon))))
        return self.add(self.mul(self.sub(operand, mean, axis), factor, axis), offset, axis)

    @operation
    def batch_norm_training(
        self, operand: Operand, scale: Operand, offset: Operand, epsilon: float, feature_index: int
    ) -> Operand:
        """A tuple: the operand normalised over all other axes, the mean and the (biased) variance of each
        feature.

        Shapes: operand [..f..] with f at feature_index; scale, offset [f]; results operand's, [f], [f].
        Raises: ShapeError  batch_norm_c1: a vector's size is not the feature axis's.
        """
        axis = self._features("batch_norm_training", operand, feature_index, scale, offset)
        mean = self._feature_mean(operand, feature_index)
        centred = self.sub(operand, mean, axis)
        variance = self._feature_mean(self.square(centred), feature_index)
        factor = self.mul(scale, self.rsqrt(self.add(variance, self.scalar_like(variance, epsilon))))
        return self.tuple_of(self.add(self.mul(centred, factor, axis), offset, axis), mean, variance)

    @operation
    def batch_norm_grad(
        self,
        operand: Operand,
        scale: Operand,
        mean: Operand,
        variance: Operand,
        grad_output: Operand,
        epsilon: float,
        feature_index: int,
    ) -> Operand:
        """A tuple: the gradients of batch_norm_training's first result for operand, scale and offset.

        Shapes: operand, grad_output [..f..] with f at feature_index; the others [f]; results operand's, [f], [f].
        Raises: ShapeError  batch_norm_c1: a vector's size is not the feature axis's.
        Source: XLA, "BatchNormGrad".
        """
        axis = self._features("batch_norm_grad", operand, feature_index, scale, mean, variance)
        shifted = self.add(variance, self.scalar_like(variance, epsilon))
        inverse = self.rsqrt(shifted)
        centred = self.sub(operand, mean, axis)
        weighted = self.mul(grad_output, centred)
        grad_offset = self._feature_sum(grad_output, feature_index)
        weighted_sum = self._feature_sum(weighted, feature_index)
        count = self._feature_count(operand, feature_index)
        d = self.div(grad_offset, count)
        c = self.div(self.div(weighted_sum, count), shifted)
        rest = self.sub(self.sub(grad_output, d, axis), self.mul(centred, c, axis))
        return self.tuple_of(
            self.mul(rest, self.mul(scale, inverse), axis), self.mul(weighted_sum, inverse), grad_offset
        )

    def tuple_of(self, *elements: Operand) -> Operand:
        """A tuple of the elements."""
        return self.apply(Tuple(), *elements)

    def _features(self, name: str, operand: Operand, feature_index: int, *vectors: Operand) -> tuple[int]:
        shape = self.shape_of(operand)
        axis = self.axis(name, feature_index, shape.rank)
        for vector in vectors:
            if self.shape_of(vector).dims != (shape.dims[axis],):
                raise ShapeError(
                    f"{name}: {self.shape_of(vector)} must have one element for each of the "
                    f"{shape.dims[axis]} features of {shape} (batch_norm_c1)"
                )
        return (axis,)

    def _feature_sum(self, operand: Operand, feature_index: int) -> Operand:
        shape = self.shape_of(operand)
        axes = tuple(a for a in range(shape.rank) if a != feature_index)
        return self.reduce(
            operand, self.scalar_like(operand, 0), binary_computation("add", shape.element_type), axes
        )

    def _feature_count(self, operand: Operand, feature_index: int) -> Operand:
        shape = self.shape_of(operand)
        axes = [a for a in range(shape.rank) if a != feature_index]
        count = self.scalar_like(operand, math.prod(shape.dims[a] for a in axes if a not in shape.dynamic))
        for axis in axes:
            if axis in shape.dynamic:
                size = self.apply(GetDimensionSize(axis), operand)
                count = self.mul(count, self.apply(Convert(shape.element_type), size))
        return count

    def _feature_mean(self, operand: Operand, feature_index: int) -> Operand:
        return self.div(
            self._feature_sum(operand, feature_index), self._feature_count(operand, feature_index)
        )


def binary_computation(opcode: str, element_type: ElementType) -> Computation:
    """A computation of two scalars: one binary op of them. The reducer of most reductions."""
    scalar = Shape(element_type)
    op = Elementwise(opcode)
    x, y = (Instruction(Parameter(i, scalar), (), scalar, "xy"[i]) for i in range(2))
    return Computation(opcode, Instruction(op, (x, y), op.infer([scalar, scalar]), f"{opcode}.2"), (x, y))
