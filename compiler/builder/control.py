"""Builder operations for tuples, control flow, calls, sorting and random bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..ir.element_types import ElementType
from ..ir.module import Computation, Instruction
from ..ir.shape import Shape
from ..ops import (
    Call,
    Compare,
    Conditional,
    Copy,
    GetDimensionSize,
    GetTupleElement,
    IsotonicRegression,
    Map,
    Nonzero,
    OptimizationBarrier,
    Parameter,
    Rng,
    RngBitGenerator,
    SetDimensionSize,
    Sort,
    TopK,
    While,
)
from .arrays import listed
from .core import Dims, Operand, operation
from .derived import DerivedOperations
from .other_types import apply_on_any_type


class ControlOperations(DerivedOperations):
    """Tuples, control flow, calls."""

    @operation
    def tuple(self, elements: Sequence[Operand]) -> Operand:
        """A tuple of the elements."""
        return self.tuple_of(*elements)

    @operation
    def get_tuple_element(self, tuple_data: Operand, index: int) -> Operand:
        """One element of a tuple."""
        return self.apply(GetTupleElement(index), tuple_data)

    @operation
    def copy(self, operand: Operand) -> Operand:
        """The same value."""
        return self.apply(Copy(), operand)

    @operation
    def optimization_barrier(self, operand: Operand) -> Operand:
        """The same value (a tuple of several to hold them together), which no optimisation sees through."""
        return self.apply(OptimizationBarrier(), operand)

    @operation
    def get_dimension_size(self, operand: Operand, dimension: int) -> Operand:
        """The size of an axis, as an s32 scalar.

        Shapes: result [], s32.
        """
        return self.apply(GetDimensionSize(dimension), operand)

    @operation
    def set_dimension_size(self, operand: Operand, size: Operand, dimension: int) -> Operand:
        """The operand with the size of an axis set: only its first `size` elements are part of the value."""
        op = SetDimensionSize(dimension)
        if not op.changes(self.take(operand), self.take(size)):
            return operand
        return self.apply(op, operand, size)

    @operation
    def while_(self, condition: Computation | None, body: Computation | None, init: Operand) -> Operand:
        """body applied again and again, from init, while condition holds.

        Shapes: condition takes init's shape and returns pred[]; body takes and returns init's shape, which is the
            result's.
        """
        return self.apply(While(self.computation(condition), self.computation(body)), init)

    @operation
    def conditional(self, selector: Operand, *arguments: Any) -> Operand:
        """`conditional(pred, true_operand, true_computation, false_operand, false_computation)`, or
        `conditional(branch_index, branch_computations, branch_operands)`, which takes the last branch when
        the index is out of range.

        Shapes: each computation takes its operand's shape; all return the same one, which is the result's.
        """
        if len(arguments) == 4:
            on_true, true_computation, on_false, false_computation = arguments
            branches, operands = (true_computation, false_computation), (on_true, on_false)
        elif len(arguments) == 2:
            branches, operands = arguments
        else:
            raise TypeError(
                "conditional takes a predicate with two operands and computations, or a branch index with "
                f"computations and operands; got {len(arguments)} arguments after the selector"
            )
        op = Conditional(tuple(map(self.computation, branches)), by_index=len(arguments) == 2)
        return self.apply(op, selector, *operands)

    @operation
    def call(self, computation: Computation | None, operands: Sequence[Operand]) -> Operand:
        """The computation's value for these arguments.

        Shapes: operands as the computation's parameters; result as its root.
        """
        return self.apply(Call(self.computation(computation)), *operands)

    @operation
    def map(
        self,
        operands: Sequence[Operand],
        computation: Computation | None,
        dimensions: Dims | None = None,
        static_operands: Sequence[Operand] = (),
    ) -> Operand:
        """A scalar computation applied to every element. It is given the static operands, of any shape, as they are,
        after the elements."""
        axes = tuple(range(self.shape_of(operands[0]).rank)) if dimensions is None else tuple(dimensions)
        if not static_operands:
            return self.apply(Map(axes, self.computation(computation)), *operands)
        if all(self.shape_of(s).is_scalar for s in static_operands):
            dims = self.shape_of(operands[0]).dims
            static_arrays = [self.broadcast_in_dim(s, dims, ()) for s in static_operands]
            return self.apply(Map(axes, self.computation(computation)), *operands, *static_arrays)
        return self._map_one_by_one(operands, self.computation(computation), static_operands)

    def _map_one_by_one(
        self, operands: Sequence[Operand], computation: Computation, static_operands: Sequence[Operand]
    ) -> Operand:
        """A loop over the elements, for static operands that are arrays or tuples.

        Raises: ShapeError  map_c1: the operands are not arrays of the same dims. map_c3, call_c1: the computation does
            not take one element of each and the static operands, and give a scalar.
        """
        shapes = [self.shape_of(o) for o in operands]
        result = computation.root.shape
        if any(not s.is_array or s.dims != shapes[0].dims for s in shapes):
            raise ShapeError(
                f"map: operands are {', '.join(map(str, shapes))}, arrays of the same dims are wanted (map_c1)"
            )
        if not result.is_scalar:
            raise ShapeError(f"map: to_apply returns {result}, a scalar is wanted (map_c3)")
        count = shapes[0].elements
        flat = [self.reshape(o, (count,)) for o in operands]
        results = self.broadcast(self.constant(0, result.element_type), (count,))
        start = self.tuple_of(self.constant(0), results, *flat, *static_operands)
        state = self.shape_of(start)
        condition = self.create_sub_builder("more")
        condition.lt(condition.get_tuple_element(condition.parameter(0, state), 0), condition.constant(count))
        b = self.create_sub_builder("element")
        b.die_immediately_on_error = True
        parts = [
            b.get_tuple_element(p, k) for p in [b.parameter(0, state)] for k in range(len(state.tuple_shapes))
        ]
        at, done, arrays, rest = parts[0], parts[1], parts[2 : 2 + len(flat)], parts[2 + len(flat) :]
        elements = [b.reshape(b.dynamic_slice(a, [at], (1,)), ()) for a in arrays]
        value = b.broadcast(b.call(computation, [*elements, *rest]), (1,))
        done = b.dynamic_update_slice(done, value, [at])
        body = b.build(b.tuple([b.add(at, b.constant(1)), done, *arrays, *rest]))
        loop = self.while_(condition.build(), body, start)
        return self.reshape(self.get_tuple_element(loop, 1), shapes[0].dims)

    @operation
    def sort(
        self,
        operands: Operand | Sequence[Operand],
        comparator: Computation | None = None,
        dimension: int = -1,
        is_stable: bool = False,
    ) -> Operand:
        """Operands sorted together along an axis (the last by default); ascending by the first one, in total
        order, when there is no comparator.

        Shapes: operands of the same dims; results likewise, a tuple where there are several.
        """
        operands = listed(operands)
        shapes = [self.shape_of(o) for o in operands]
        axis = dimension + shapes[0].rank if dimension < 0 else dimension
        compare = comparator if comparator is not None else _ascending(shapes)
        return self.apply(Sort(axis, compare, is_stable), *operands)

    @operation
    def top_k(self, operand: Operand, k: int, largest: bool = True, order: str = "") -> Operand:
        """A tuple of the k largest (or smallest) elements along the last axis, the best first, and their numbers."""
        return apply_on_any_type(self, TopK(k, largest, order), operand)

    @operation
    def isotonic_regression(self, operand: Operand) -> Operand:
        """A tuple of the lines along the last axis that do not increase and are nearest (least squares), and the
        numbers of their segments.

        Shapes: operand [.., n], results [.., n] and s32[.., n].
        """
        return self.apply(IsotonicRegression(), operand)

    @operation
    def nonzero(self, operand: Operand) -> Operand:
        """A tuple of the coordinates of the true elements, rows of anything behind them, and how many are true.

        Shapes: operand pred with r axes and n elements; results s32[n, r] and s32[].
        """
        return self.apply(Nonzero(), operand)

    @operation
    def rng_bit_generator(self, algorithm: str, initial_state: Operand, shape: Shape) -> Operand:
        """A tuple of the new state and random bits. algorithm: rng_philox, rng_three_fry or rng_default.

        Shapes: results: the state's shape, and the shape given.
        """
        return self.apply(RngBitGenerator(algorithm, shape), initial_state)

    @operation
    def rng_uniform(self, a: Operand, b: Operand, shape: Shape) -> Operand:
        """Random numbers in a <= x < b, scalars of the shape's element type. Of pred: a where a is b, else either.

        Shapes: a, b []; result as given.
        """
        if shape.element_type is ElementType.PRED:
            zero, one = (self.constant(v, ElementType.F32) for v in (0.0, 1.0))
            drawn = self.apply(Rng("rng_uniform", shape.with_type(ElementType.F32)), zero, one)
            tossed = self.lt(drawn, self.constant(0.5, ElementType.F32))
            first = self.broadcast_in_dim(a, shape.dims, ())
            return self.select(self.broadcast_in_dim(self.eq(a, b), shape.dims, ()), first, tossed)
        return self.apply(Rng("rng_uniform", shape), a, b)

    @operation
    def rng_normal(self, mu: Operand, sigma: Operand, shape: Shape) -> Operand:
        """Random numbers of the normal distribution with mean mu and standard deviation sigma.

        Shapes: mu, sigma []; result as given.
        """
        return self.apply(Rng("rng_normal", shape), mu, sigma)

    @operation
    def rng_bernoulli(self, mean: Operand, shape: Shape) -> Operand:
        """Ones with the probability `mean` (an f32 scalar), else zeros.

        Raises: ShapeError  rng_c1: mean is not f32[]; rng_bernoulli_c1: the shape is not of u32.
        """
        if shape.element_type is not ElementType.U32:
            raise ShapeError(f"rng_bernoulli: shape is {shape}, u32 is wanted (rng_bernoulli_c1)")
        zero, one = (self.constant(v, ElementType.F32) for v in (0.0, 1.0))
        drawn = self.apply(Rng("rng_uniform", shape.with_type(ElementType.F32)), zero, one)
        return self.convert_element_type(self.lt(drawn, mean), ElementType.U32)


def _ascending(shapes: Sequence[Shape]) -> Computation:
    """Comparator over pairs of elements: less-than, in total order, of the first pair."""
    scalars = [Shape(s.element_type) for s in shapes for _ in range(2)]
    parameters = [Instruction(Parameter(i, s), (), s, f"p.{i}") for i, s in enumerate(scalars)]
    op = Compare("LT", "TOTALORDER" if shapes[0].element_type.is_float else "")
    root = Instruction(op, tuple(parameters[:2]), op.infer(scalars[:2]), "less")
    return Computation("ascending", root, parameters)
