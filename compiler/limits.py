"""Limits on programs that come from outside: HLO text, and modules that are given to a client.

They can be raised: `parse_hlo(text, limits=dataclasses.replace(DEFAULT_LIMITS, instructions=10**7))`, and
`Options(limits=...)` for the compilation. The evaluator and the builder always have the default ones.
"""

from __future__ import annotations

import dataclasses

from ..runtime.sizes import estimate
from .errors import LimitError


@dataclasses.dataclass(frozen=True)
class Limits:
    """Upper limits of a program. A program beyond one raises LimitError, which names the limit.

    text_characters: of HLO text. instructions: in all computations of a text or module together.
    expanded_instructions: the same, with every call, loop body and branch counted as often as it occurs.
    nesting: computations that call each other, one inside the other; tuples in tuples. tuple_leaves: arrays of a tuple.
    rank: axes of an array (NumPy has 64). array_bytes: of one array, or a tuple's arrays together.
    constant_bytes: of one constant. evaluated_bytes: of one value of the evaluator.
    devices: replicas times partitions.
    """

    text_characters: int = 1 << 28
    instructions: int = 1_000_000
    expanded_instructions: int = 200_000
    nesting: int = 100
    tuple_leaves: int = 1 << 16
    rank: int = 64
    array_bytes: int = 1 << 40
    constant_bytes: int = 1 << 30
    evaluated_bytes: int = 1 << 32
    devices: int = 1024

    def check(self, name: str, number: int, what: str) -> None:
        """Raises: LimitError  the number is above the limit of that name."""
        if estimate(number) > getattr(self, name):
            raise LimitError(f"{what}: {number}, at most {getattr(self, name)} wanted (limits.{name})")


DEFAULT_LIMITS = Limits()
