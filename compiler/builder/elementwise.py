"""Elementwise operations of the builder, and the broadcasting of their operands."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ShapeError
from ..ir.element_types import ElementType
from ..ir.shape import Shape
from ..ops import (
    ROWS,
    BitcastConvert,
    Broadcast,
    Compare,
    Convert,
    Elementwise,
    GetTupleElement,
    ReducePrecision,
    Reshape,
    Tuple,
)
from .core import BuilderCore, Dims, Operand, TypeName, operation
from .other_types import apply_on_any_type


def _unary(opcode: str) -> Callable[[BuilderCore, Operand], Operand]:
    op = Elementwise(opcode)

    @operation
    def method(self: BuilderCore, operand: Operand) -> Operand:
        return self.apply(op, operand)

    method.__doc__ = (
        f"Elementwise: {ROWS[opcode].meaning}.\n\nShapes: the result's are the operand's.\n"
        "Raises (from `build`): ShapeError  the op is not defined for the operand's type."
    )
    return method


def _binary(opcode: str) -> Callable[..., Operand]:
    @operation
    def method(
        self: BuilderCore, lhs: Operand, rhs: Operand, broadcast_dimensions: Dims | None = None
    ) -> Operand:
        return self.binary(opcode, lhs, rhs, broadcast_dimensions)

    method.__doc__ = (
        f"Elementwise: {ROWS[opcode].meaning}.\n\n"
        "Shapes: operands of the same dims, or broadcast as `broadcast_pair` says.\n"
        "Raises (from `build`): ShapeError  the operands' types differ, or the op is not defined for them."
    )
    return method


def _comparison(direction: str, type: str = "") -> Callable[..., Operand]:
    @operation
    def method(
        self: ElementwiseOperations, lhs: Operand, rhs: Operand, broadcast_dimensions: Dims | None = None
    ) -> Operand:
        return self.compare(lhs, rhs, direction, broadcast_dimensions, type)

    method.__doc__ = (
        f"Elementwise comparison {direction}{' in total order of floats' * bool(type)}.\n\n"
        "Shapes: operands of the same dims, or broadcast as `broadcast_pair` says; the result is pred."
    )
    return method


class ElementwiseOperations(BuilderCore):
    """Unary, binary, comparing and selecting operations."""

    abs, neg, sign, not_ = _unary("abs"), _unary("negate"), _unary("sign"), _unary("not")
    ceil, floor = _unary("ceil"), _unary("floor")
    round, round_nearest_even = _unary("round-nearest-afz"), _unary("round-nearest-even")
    sqrt, rsqrt, cbrt = _unary("sqrt"), _unary("rsqrt"), _unary("cbrt")
    exp, expm1, log, log1p = (
        _unary("exponential"),
        _unary("exponential-minus-one"),
        _unary("log"),
        _unary("log-plus-one"),
    )
    logistic, tanh, sinh, tan, sin, cos, erf, erfc = (
        _unary("logistic"),
        _unary("tanh"),
        _unary("sinh"),
        _unary("tan"),
        _unary("sine"),
        _unary("cosine"),
        _unary("erf"),
        _unary("erfc"),
    )
    is_finite, population_count, clz = _unary("is-finite"), _unary("popcnt"), _unary("count-leading-zeros")
    real, imag = _unary("real"), _unary("imag")

    add, sub, mul, div = _binary("add"), _binary("subtract"), _binary("multiply"), _binary("divide")
    rem, pow, max, min = _binary("remainder"), _binary("power"), _binary("maximum"), _binary("minimum")
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    logical_and, logical_or, logical_not = and_, or_, not_
    shift_left, shift_right_arithmetic, shift_right_logical = (
        _binary("shift-left"),
        _binary("shift-right-arithmetic"),
        _binary("shift-right-logical"),
    )
    atan2, complex, mulhi = _binary("atan2"), _binary("complex"), _binary("mulhi")

    eq, ne, ge, gt, le, lt = (
        _comparison("EQ"),
        _comparison("NE"),
        _comparison("GE"),
        _comparison("GT"),
        _comparison("LE"),
        _comparison("LT"),
    )
    eq_total_order, ne_total_order = _comparison("EQ", "TOTALORDER"), _comparison("NE", "TOTALORDER")
    ge_total_order, gt_total_order = _comparison("GE", "TOTALORDER"), _comparison("GT", "TOTALORDER")
    le_total_order, lt_total_order = _comparison("LE", "TOTALORDER"), _comparison("LT", "TOTALORDER")

    def binary(
        self, opcode: str, lhs: Operand, rhs: Operand, broadcast_dimensions: Dims | None = None
    ) -> Operand:
        """An elementwise op of two operands, broadcast to one shape."""
        return self.apply(_OPS[opcode], *self.broadcast_pair(opcode, lhs, rhs, broadcast_dimensions))

    @operation
    def compare(
        self,
        lhs: Operand,
        rhs: Operand,
        direction: str,
        broadcast_dimensions: Dims | None = None,
        type: str = "",
    ) -> Operand:
        """Elementwise comparison: direction EQ NE GE GT LE LT, type FLOAT TOTALORDER SIGNED UNSIGNED or the
        operands'.

        Shapes: operands of the same dims, or broadcast as `broadcast_pair` says; the result is pred.
        """
        return self.apply(
            Compare(direction, type), *self.broadcast_pair("compare", lhs, rhs, broadcast_dimensions)
        )

    @operation
    def select(self, pred: Operand, on_true: Operand, on_false: Operand) -> Operand:
        """on_true where pred, else on_false; scalars of the two are broadcast, and pred may be a scalar. Of tuples
        of the same shape, with a scalar pred, one or the other.

        Shapes: what is no scalar has the same dims, which are the result's.
        """
        if self.shape_of(on_true).is_tuple:
            return self._select_tuple(pred, on_true, on_false)
        on_true, on_false = self.broadcast_pair("select", on_true, on_false)
        if self.shape_of(on_true).is_scalar and self.shape_of(pred).dims:
            dims = self.shape_of(pred).dims
            on_true, on_false = self._scalar_to(on_true, dims), self._scalar_to(on_false, dims)
        return self.apply(_OPS["select"], pred, on_true, on_false)

    def _select_tuple(self, pred: Operand, on_true: Operand, on_false: Operand) -> Operand:
        shape, other = self.shape_of(on_true), self.shape_of(on_false)
        if not shape.compatible(other) or self.shape_of(pred) != Shape(ElementType.PRED):
            raise ShapeError(
                f"select: pred is {self.shape_of(pred)}, pred[] is wanted for tuples of one shape, got {shape} and "
                f"{other} (elementwise_c5)"
            )
        parts = [
            self.select(pred, *(self.apply(GetTupleElement(k), side) for side in (on_true, on_false)))
            for k in range(len(shape.tuple_shapes))
        ]
        return self.apply(Tuple(), *parts)

    @operation
    def clamp(self, min: Operand, operand: Operand, max: Operand) -> Operand:
        """The operand, but at least min and at most max (scalars, or arrays of its dims).

        The order (operand, min, max) of the r1.3 document is understood where the operand is an array and min a
        scalar.

        Shapes: the result's are the operand's.
        """
        first, second = self.shape_of(min), self.shape_of(operand)
        if first.dims and second.is_scalar:
            min, operand = operand, min
        return self.apply(_OPS["clamp"], min, operand, max)

    @operation
    def convert_element_type(self, operand: Operand, new_element_type: TypeName) -> Operand:
        """Every element converted; the operand itself where it has the type already.

        Shapes: the result's are the operand's.
        """
        new_type = ElementType(new_element_type)
        return (
            operand
            if self.shape_of(operand).element_type is new_type
            else self.apply(Convert(new_type), operand)
        )

    @operation
    def bitcast_convert_type(self, operand: Operand, new_element_type: TypeName) -> Operand:
        """The bits of the elements as another type; between widths, the last axis is added or removed. pred has eight
        bits, 0 or 1."""
        return apply_on_any_type(self, BitcastConvert(ElementType(new_element_type)), operand)

    @operation
    def reduce_precision(self, operand: Operand, exponent_bits: int, mantissa_bits: int) -> Operand:
        """Every element rounded to a format with these bits, in the operand's type.

        Shapes: the result's are the operand's.
        """
        return self.apply(ReducePrecision(exponent_bits, mantissa_bits), operand)

    def _scalar_to(self, operand: Operand, dims: Dims) -> Operand:
        return self.apply(Broadcast(tuple(dims), ()), operand) if dims else operand

    def broadcast_pair(
        self, name: str, lhs: Operand, rhs: Operand, broadcast_dimensions: Dims | None = None
    ) -> tuple[Operand, Operand]:
        """Both operands with the same dims: equal already; a scalar with an array; the lower rank's axes
        mapped to the higher rank's by `broadcast_dimensions`; and axes of size 1 stretched to the other's
        size.

        Raises: ShapeError  broadcast_c1: different ranks without broadcast_dimensions. broadcast_c2: a bad
            mapping. broadcast_c3: axes of different sizes, neither 1.
        Source: XLA, "Broadcasting".
        """
        left, right = self.shape_of(lhs), self.shape_of(rhs)
        if left.dims == right.dims and not broadcast_dimensions:
            return lhs, rhs
        if not left.dims or not right.dims:
            return self._scalar_to(lhs, () if left.dims else right.dims), self._scalar_to(
                rhs, () if right.dims else left.dims
            )
        low, high = (left, right) if left.rank <= right.rank else (right, left)
        mapping = tuple(broadcast_dimensions or ())
        if low.rank == high.rank:
            mapping = mapping or tuple(range(low.rank))
            if mapping != tuple(range(low.rank)):
                raise ShapeError(
                    f"{name}: broadcast_dimensions {list(mapping)} must be empty or the identity for "
                    f"operands of equal rank {left} and {right} (broadcast_c2)"
                )
        elif not mapping:
            raise ShapeError(
                f"{name}: operands {left} and {right} have different ranks; give broadcast_dimensions "
                "(broadcast_c1)"
            )
        if (
            len(mapping) != low.rank
            or list(mapping) != sorted(set(mapping))
            or not all(0 <= axis < high.rank for axis in mapping)
        ):
            raise ShapeError(
                f"{name}: broadcast_dimensions {list(mapping)} must name, for each axis of {low}, one axis "
                f"of {high}, ascending (broadcast_c2)"
            )
        sizes = list(high.dims)
        for size, axis in zip(low.dims, mapping):
            if size != sizes[axis] and 1 not in (size, sizes[axis]):
                raise ShapeError(
                    f"{name}: operands {left} and {right} have sizes {size} and {sizes[axis]} on axis "
                    f"{axis} (broadcast_c3)"
                )
            sizes[axis] = sizes[axis] if size == 1 else size
        whole = tuple(range(high.rank))
        return (
            self.stretch(lhs, sizes, mapping if left is low else whole),
            self.stretch(rhs, sizes, mapping if right is low else whole),
        )

    def stretch(self, operand: Operand, dims: Dims, axes: Dims) -> Operand:
        """Broadcasts axis i of the operand to axis axes[i] of `dims`; an axis of size 1 is dropped where it
        grows."""
        shape = self.shape_of(operand)
        if shape.dims == tuple(dims) and tuple(axes) == tuple(range(shape.rank)):
            return operand
        stretched_axes = [i for i in range(shape.rank) if shape.dims[i] != 1 or dims[axes[i]] == 1]
        if len(stretched_axes) < shape.rank:
            operand = self.apply(Reshape(tuple(shape.dims[i] for i in stretched_axes)), operand)
        return self.apply(Broadcast(tuple(dims), tuple(axes[i] for i in stretched_axes)), operand)


_OPS = {opcode: Elementwise(opcode) for opcode in ROWS}
