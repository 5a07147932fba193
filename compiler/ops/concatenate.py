"""Concatenate: arrays one after the other along an axis."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.shape import Shape
from .op import C, E, Indexer, N, Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class Concatenate(Op):
    """The operands one after the other along `dimension`.

    Shapes: the operands' dims; along `dimension` the sum of theirs.
    concatenate_c1: at least one operand, all arrays.
    concatenate_c2: dimension is an axis of the operands (so they are no scalars).
    concatenate_c3: all operands have the same element type and, except along `dimension`, the same dims.
    Source: operation semantics, Concatenate.
    """

    opcode: ClassVar[str] = "concatenate"
    is_index_map: ClassVar[bool] = True
    dimension: int = attribute("dim", "dimensions")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The dims, added along one axis."""
        require_arrays("concatenate", operands, max(len(operands), 1), "concatenate_c1")
        first, axis = operands[0], self.dimension
        require(
            0 <= axis < first.rank,
            f"concatenate: dimension is {axis}, operand {first} has {first.rank} axes",
            "concatenate_c2",
        )
        for other in operands[1:]:
            fits = (
                other.element_type is first.element_type
                and other.rank == first.rank
                and all(a == b or i == axis for i, (a, b) in enumerate(zip(first.dims, other.dims)))
            )
            require(
                fits,
                f"concatenate: operands {first} and {other} differ not only along axis {axis}",
                "concatenate_c3",
            )
        total = sum(o.dims[axis] for o in operands)
        return first.with_dims((*first.dims[:axis], total, *first.dims[axis + 1 :]))

    def reference(self, *operands: np.ndarray) -> np.ndarray:
        """NumPy's concatenate."""
        return np.concatenate(operands, self.dimension)

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The element of the operand whose span holds the index."""
        axis = self.dimension
        starts = list(itertools.accumulate((o.dims[axis] for o in operands), initial=0))
        filled = [n for n in range(len(operands)) if starts[n] < starts[n + 1]] or [0]
        is_below: dict[int, C] = {}  # whether the index is below the end of an operand that is not the last
        is_above: dict[int, C] = {}  # whether it is above the start of an operand that is not the first

        def below(at: int) -> C:
            if at not in is_below:
                is_below[at] = e.less(index[axis], e.index(starts[filled[at] + 1]))
            return is_below[at]

        def above(at: int) -> C:
            if at not in is_above:
                is_above[at] = e.less(e.index(starts[filled[at]] - 1), index[axis])
            return is_above[at]

        # Where loops are split at the boundaries of operands, one operand remains, and the others are not evaluated.
        last = len(filled) - 1
        first = bisect.bisect_left(range(last), True, key=lambda at: below(at) is not False)
        end = (
            bisect.bisect_left(range(first + 1, len(filled)), True, key=lambda at: above(at) is False)
            + first
            + 1
        )

        def part(at: int) -> E:
            start = starts[filled[at]]
            position = e.add(index[axis], e.index(-start)) if start else index[axis]
            inside = None if at == last else below(at)
            if at:
                inside = above(at) if inside is None else e.both(above(at), inside)
            return e.operand(filled[at], [*index[:axis], position, *index[axis + 1 :]], inside)

        result = part(end - 1)
        for at in reversed(range(first, end - 1)):
            own = part(at)
            result = e.choose(below(at), own, result)
        return result
