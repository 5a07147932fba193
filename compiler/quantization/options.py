"""How a module is quantised: the schemes and the methods that there are, and those that are chosen."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Sequence

from ..ir.element_types import ElementType

METHODS = ("min-max", "percentile", "mse")
WEIGHTS = {
    "int8-weights": ElementType.S8,
    "int4-weights": ElementType.S4,
    "float16": ElementType.F16,
    "bfloat16": ElementType.BF16,
}
BLOCK_SIZE = 64
TABULATED_ELEMENTS = 1024
FEW_TABULATED_ELEMENTS = 16  # without vectors
SCHEMES = ("int8", *WEIGHTS)


@dataclasses.dataclass(frozen=True)
class QuantizationOptions:
    """How a module is quantised.

    scheme: one of SCHEMES: `int8` has weights and values in 8 bits; the others store weights in a narrower type, which
    the products read, and compute in f32.
    calibration: how ranges follow from the values observed, `min-max`, `percentile` (99.99 % of the values) or `mse`
    (the least squared error). keep_float: layers that stay in f32: `first`, `last`, or names of TensorFlow nodes with
    `*` and `?`. block_size: rows of weights that have one scale for each output feature, where these have 4 bits.
    activations, largest_weight, kernels_by_output: 8 bits with or without a sign, integers for weights, and whether
    those of each output feature of a convolution lie side by side, as the target multiplies them best.
    tabulated_elements: of an expensive activation, from which on its argument is in 8 bits too, so that it is a table.
    """

    scheme: str = "int8"
    calibration: str = "mse"
    keep_float: tuple[str, ...] = ()
    block_size: int = BLOCK_SIZE
    activations: ElementType = ElementType.U8
    largest_weight: int = 127
    kernels_by_output: bool = False
    tabulated_elements: int = TABULATED_ELEMENTS

    def __post_init__(self) -> None:
        """Raises: ValueError  a scheme or a method that there is not, or blocks of no rows."""
        if self.scheme not in SCHEMES:
            raise ValueError(f"quantize: {self.scheme!r} is none of {', '.join(SCHEMES)}")
        if self.calibration not in METHODS:
            raise ValueError(f"calibration: {self.calibration!r} is none of {', '.join(METHODS)}")
        if self.block_size < 1:
            raise ValueError(f"block_size: {self.block_size} rows; a block has one or more")

    def quantizes(self, layers: Sequence[str], number: int) -> bool:
        """Whether the layer of this number is computed in integers. `layers`: the names of all."""
        ends = {"first": 0, "last": len(layers) - 1}
        return not any(
            ends.get(pattern) == number or fnmatch.fnmatchcase(layers[number], pattern)
            for pattern in self.keep_float
        )
