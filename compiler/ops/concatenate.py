"""Concatenate: arrays one after the other along an axis."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..shape import Shape
from .op import Indexer, Op, attribute, require, require_arrays


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
    dimension: int = attribute("dim", "dimensions")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The dims, added along one axis."""
        require_arrays("concatenate", operands, max(len(operands), 1), "concatenate_c1")
        first, axis = operands[0], self.dimension
        require(0 <= axis < first.rank,
                f"concatenate: dimension is {axis}, operand {first} has {first.rank} axes",
                "concatenate_c2")
        for other in operands[1:]:
            fits = other.element_type is first.element_type and other.rank == first.rank \
                and all(a == b or i == axis for i, (a, b) in enumerate(zip(first.dims, other.dims)))
            require(fits, f"concatenate: operands {first} and {other} differ not only along axis {axis}",
                    "concatenate_c3")
        total = sum(o.dims[axis] for o in operands)
        return first.with_dims((*first.dims[:axis], total, *first.dims[axis + 1:]))

    def reference(self, *operands: np.ndarray) -> np.ndarray:
        """NumPy's concatenate."""
        return np.concatenate(operands, self.dimension)

    def element(self, e: Indexer, index: Sequence[Any], operands: Sequence[Shape], shape: Shape) -> Any:
        """The element of the operand whose span holds the index."""
        axis = self.dimension
        sizes = [o.dims[axis] for o in operands]
        starts = list(itertools.accumulate(sizes, initial=0))
        filled = [n for n, size in enumerate(sizes) if size] or [0]
        result = None
        for number in reversed(filled):
            place = e.add(index[axis], e.index(-starts[number])) if starts[number] else index[axis]
            below = None if number == filled[-1] else e.less(index[axis], e.index(starts[number + 1]))
            above = None if number == filled[0] else e.less(e.index(starts[number] - 1), index[axis])
            inside = below if above is None else above if below is None else e.both(above, below)
            own = e.operand(number, [*index[:axis], place, *index[axis + 1:]], inside)
            result = own if result is None else e.choose(below, own, result)
        return result
