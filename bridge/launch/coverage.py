"""How far launches have code: counts that tell whether a function is better called without its clusters."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Coverage:
    """fallbacks: runs of clusters by TensorFlow. publications: of code that was compiled in the background. weight: for
    how many calls the present one stands, where functions were called without their clusters meanwhile."""

    fallbacks: int = 0
    publications: int = 0
    weight: int = 1


process = Coverage()
