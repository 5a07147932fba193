"""Room for as many elements as data asks for: code has a bound, and where there are more, the next has a larger one."""

from __future__ import annotations

import dataclasses

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....runtime.sizes import estimate
from ..node import Node

_MAX_ELEMENTS = 1 << 24  # that any code has room for, if it has more than the first code
_MAX_GROWTH = 1 << 10


@dataclasses.dataclass(frozen=True)
class Capacity:
    """For how many elements code has room, and up to how many there will be code that has it, if that is more."""

    bound: int
    limit: int
    grows: bool

    @classmethod
    def of(cls, node: Node, first: int, elements: int = 1) -> Capacity:
        """That of a node, for the first code of which so many are enough; each has so many elements.

        Raises: UnsupportedError  code is not made anew for more.
        """
        factor, room = node.context.capacity_factor, max(_MAX_ELEMENTS // max(estimate(elements), 1), 1)
        if not factor:
            raise UnsupportedError(f"{node.op}: nothing bounds how many it makes")
        growth = min(room // max(estimate(first), 1), _MAX_GROWTH)
        return cls(first * max(min(factor, growth), 1), first * max(growth, 1), factor < growth)

    def check(self, node: Node, largest: Operand) -> None:
        """Leaves the run where a number, s64, is larger: TensorFlow serves it, and if it is within the limit, later
        ones have more room."""
        b = node.b
        bound, limit = (b.constant(n, ElementType.S64) for n in (self.bound, self.limit))
        node.bail_out_if(b.gt(largest, limit), f"more than {self.limit}, for which there is no room")
        if self.grows:
            b.overflow_if(b.gt(largest, bound), f"more than {self.bound}")
