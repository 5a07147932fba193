"""Builder operations that are products of arrays whose elements are scaled in blocks, or come in groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import ShapeError
from ..ir.element_types import ElementType
from ..ir.shape import Shape
from .core import Dims, Operand, TypeName, operation
from .lib.loops import repeated, slice_at, with_slice
from .linear_algebra import LinearAlgebraOperations

_E = ElementType
_Pair = tuple[Dims, Dims]


class RaggedProductOperations(LinearAlgebraOperations):
    """Products of scaled and of ragged arrays."""

    @operation
    def scaled_dot(
        self,
        lhs: Operand,
        rhs: Operand,
        lhs_scale: Operand,
        rhs_scale: Operand,
        contracting_dimensions: _Pair,
        batch_dimensions: _Pair = ((), ()),
        preferred_element_type: TypeName | None = None,
    ) -> Operand:
        """dot_general of two arrays of which every block of elements has a scale: along each axis the array has a
        multiple of its scales; a scalar scales all. Products are computed in f32, or in f64 where one of the types is.

        Raises: ShapeError  scaled_dot_c1: the operands are not floats. scaled_dot_c2: scales do not divide the dims.
        """
        shapes = [self.shape_of(o) for o in (lhs, rhs, lhs_scale, rhs_scale)]
        if not all(s.is_array and s.element_type.is_float for s in shapes):
            raise ShapeError(
                f"scaled-dot: operands are {', '.join(map(str, shapes))}, floats are wanted (scaled_dot_c1)"
            )
        kind = (
            shapes[0].element_type if preferred_element_type is None else ElementType(preferred_element_type)
        )
        wide = _E.F64 if _E.F64 in (kind, *(s.element_type for s in shapes)) else _E.F32
        left, right = (self._scaled(o, s, wide) for o, s in ((lhs, lhs_scale), (rhs, rhs_scale)))
        product = self.dot_general(left, right, contracting_dimensions, batch_dimensions)
        return self.convert_element_type(product, kind)

    def _scaled(self, operand: Operand, scale: Operand, wide: ElementType) -> Operand:
        dims, scales = self.shape_of(operand).dims, self.shape_of(scale).dims
        if scales and (
            len(scales) != len(dims) or any(d != s and (s == 0 or d % s) for d, s in zip(dims, scales))
        ):
            raise ShapeError(
                f"scaled-dot: scales are {self.shape_of(scale)}, dims that divide those of {self.shape_of(operand)} "
                "are wanted (scaled_dot_c2)"
            )
        value, factor = (self.convert_element_type(o, wide) for o in (operand, scale))
        if scales and scales != dims:
            blocks = [d // s if s else 1 for d, s in zip(dims, scales)]
            spread = [n for pair in zip(scales, blocks) for n in pair]
            factor = self.broadcast_in_dim(factor, spread, range(0, len(spread), 2))
            factor = self.reshape(factor, dims)
        return self.mul(value, factor)

    @operation
    def ragged_dot(
        self,
        lhs: Operand,
        rhs: Operand,
        group_sizes: Operand,
        contracting_dimensions: _Pair,
        batch_dimensions: _Pair = ((), ()),
        lhs_ragged_dimension: int = 0,
        rhs_group_dimensions: Dims = (),
        preferred_element_type: TypeName | None = None,
    ) -> Operand:
        """dot_general of groups: `group_sizes` says how many elements of the left operand's ragged axis each group has.

        Of a ragged axis that is not contracted, each group is multiplied with its own part of the right operand along
        `rhs_group_dimensions`; what belongs to no group gives zeros. Of a contracted one, the result has a product for
        each group, along a new first axis. Of a batch axis, it is the product of everything. The sizes may have axes
        before the last: the left operand's batch axes, then those of the ragged axis's kind before it.
        Raises: ShapeError  ragged_dot_c1: the ragged axis is none of the left operand's. ragged_dot_c2: there is not
            one group axis for a ragged axis that is not contracted, or there is one for another. ragged_dot_c3: the
            sizes are not integers with such axes; dot_general's.
        """
        (contracted, _), (batch, _) = contracting_dimensions, batch_dimensions
        left, right, sizes = (self.shape_of(o) for o in (lhs, rhs, group_sizes))
        at, groups = lhs_ragged_dimension, tuple(rhs_group_dimensions)
        if not 0 <= at < left.rank:
            raise ShapeError(f"ragged-dot: the ragged axis is {at}, of {left} (ragged_dot_c1)")
        pairs = contracting_dimensions, batch_dimensions
        b = self.create_sub_builder("products")  # for what dot_general demands of the pairs
        b.die_immediately_on_error = True
        b.dot_general(b.parameter(0, left), b.parameter(1, right), *pairs, preferred_element_type)
        is_free = at not in contracted and at not in batch
        if len(groups) != is_free or not all(0 <= g < right.rank for g in groups):
            wanted = "one is" if is_free else "none is"
            raise ShapeError(
                f"ragged-dot: group axes are {list(groups)} of {right}, {wanted} wanted (ragged_dot_c2)"
            )
        own = (
            [a for a in range(left.rank) if a not in contracted and a not in batch]
            if is_free
            else list(contracted)
        )
        if at in batch:
            own = [at]
        outer = [a for a in (*batch, *own[: own.index(at)]) if a != at] if sizes.rank > 1 else []
        if (
            not sizes.element_type.is_integer
            or sizes.rank == 0
            or sizes.dims[:-1] != tuple(left.dims[a] for a in outer if 0 <= a < left.rank)
            or (is_free and sizes.dims[-1] != right.dims[groups[0]])
        ):
            raise ShapeError(
                f"ragged-dot: group_sizes are {sizes}, integers for the groups of {left} and {right} are wanted "
                "(ragged_dot_c3)"
            )
        counts = self.convert_element_type(group_sizes, _E.S64)
        if at in batch:
            return self.dot_general(lhs, rhs, *pairs, preferred_element_type)
        if is_free:
            return self._rows_by_group(
                lhs, rhs, counts, (*outer, at), groups[0], pairs, preferred_element_type
            )
        return self._products_of_groups(lhs, rhs, counts, (*outer, at), pairs, preferred_element_type)

    def _rows_by_group(
        self,
        lhs: Operand,
        rhs: Operand,
        sizes: Operand,
        axes: Sequence[int],
        group: int,
        pairs: tuple[_Pair, _Pair],
        preferred: TypeName | None,
    ) -> Operand:
        """Each row times its group's part; `axes` are those of the left operand that the sizes are about."""
        (contracted, rhs_contracted), (batch, rhs_batch) = pairs
        inner = [[a - (a > group) for a in part] for part in (rhs_contracted, rhs_batch)]

        def product(b: RaggedProductOperations, lhs: Operand, part: Operand) -> Operand:
            return b.dot_general(lhs, part, (contracted, inner[0]), (batch, inner[1]), preferred)

        left, right = self.shape_of(lhs), self.shape_of(rhs)
        rows = [*batch, *(a for a in range(left.rank) if a not in contracted and a not in batch)]
        columns = [a for a in range(right.rank) if a not in (group, *rhs_contracted, *rhs_batch)]
        dims = [*(left.dims[a] for a in rows), *(right.dims[a] for a in columns)]
        places = [rows.index(a) for a in axes]

        def step(b: RaggedProductOperations, number: Operand, values: list[Operand]) -> list[Operand]:
            lhs, rhs, sizes, start, result = values
            end = b.add(start, slice_at(b, sizes, number, len(axes) - 1))
            own = product(b, lhs, slice_at(b, rhs, number, group))
            mask = _inside(b, start, end, dims, places)
            return [lhs, rhs, sizes, end, b.select(mask, own, result)]

        return self._over_groups(lhs, rhs, sizes, dims, preferred, step)

    def _products_of_groups(
        self,
        lhs: Operand,
        rhs: Operand,
        sizes: Operand,
        axes: Sequence[int],
        pairs: tuple[_Pair, _Pair],
        preferred: TypeName | None,
    ) -> Operand:
        """A product of the elements of each group, along a first axis."""
        (contracted, rhs_contracted), (batch, rhs_batch) = pairs
        of_rhs = dict(zip((*contracted, *batch), (*rhs_contracted, *rhs_batch)))
        left, right = self.shape_of(lhs), self.shape_of(rhs)
        free = [
            [shape.dims[a] for a in range(shape.rank) if a not in others]
            for shape, others in ((left, {*contracted, *batch}), (right, {*rhs_contracted, *rhs_batch}))
        ]
        dims = [self.shape_of(sizes).dims[-1], *(left.dims[a] for a in batch), *free[0], *free[1]]

        def step(b: RaggedProductOperations, number: Operand, values: list[Operand]) -> list[Operand]:
            lhs, rhs, sizes, start, results = values
            end = b.add(start, slice_at(b, sizes, number, len(axes) - 1))
            factors = []
            for factor, places in ((lhs, list(axes)), (rhs, [of_rhs[a] for a in axes])):
                mask = _inside(b, start, end, b.shape_of(factor).dims, places)
                factors.append(b.select(mask, factor, b.full_like(factor, 0)))
            result = b.dot_general(factors[0], factors[1], *pairs, preferred)
            return [lhs, rhs, sizes, end, with_slice(b, results, result, number, 0)]

        return self._over_groups(lhs, rhs, sizes, dims, preferred, step)

    def _over_groups(
        self,
        lhs: Operand,
        rhs: Operand,
        sizes: Operand,
        dims: Sequence[int],
        preferred: TypeName | None,
        step: Callable[[RaggedProductOperations, Operand, list[Operand]], Sequence[Operand]],
    ) -> Operand:
        """The last value, of these dims, of a loop over the groups, which is given where each begins."""
        kind = self.shape_of(lhs).element_type if preferred is None else ElementType(preferred)
        result = _zeros(self, kind, dims)
        groups = self.shape_of(sizes).dims
        start = _zeros(self, _E.S64, groups[:-1])
        if not groups[-1]:
            return result
        return repeated(self, groups[-1], [lhs, rhs, sizes, start, result], step)[-1]


def _zeros(b: RaggedProductOperations, kind: ElementType, dims: Sequence[int]) -> Operand:
    return b.broadcast(b.constant(0, kind), dims)


def _inside(
    b: RaggedProductOperations, start: Operand, end: Operand, dims: Sequence[int], places: Sequence[int]
) -> Operand:
    """Where, in an array of these dims, the last of some axes is from `start` on and before `end`, which have the axes
    before it."""
    sizes = [dims[a] for a in places]
    at = b.iota(Shape(_E.S64, tuple(sizes)), len(sizes) - 1)
    before = range(len(sizes) - 1)
    low, high = (b.broadcast_in_dim(o, sizes, before) for o in (start, end))
    return b.broadcast_in_dim(b.and_(b.ge(at, low), b.lt(at, high)), dims, places)
