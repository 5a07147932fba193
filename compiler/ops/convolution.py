"""Convolution: any spatial rank, strides, dilations, padding, groups and axis order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ...runtime.sizes import larger
from ..ir.element_types import ElementType
from ..ir.module import Instruction
from ..ir.shape import Shape
from .dot import factors, require_product
from .numeric import narrow
from .op import Op, attribute, require
from .window import Window


@dataclasses.dataclass(frozen=True)
class ConvolutionDims:
    """Which axis of input, kernel and output is what; spatial axes are listed in the window's order."""

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]

    @property
    def input(self) -> tuple[int, ...]:
        """The input's axes in the order batch, feature, spatial."""
        return (self.input_batch, self.input_feature, *self.input_spatial)

    @property
    def kernel(self) -> tuple[int, ...]:
        """The kernel's axes in the order output feature, input feature, spatial."""
        return (self.kernel_output_feature, self.kernel_input_feature, *self.kernel_spatial)

    @property
    def output(self) -> tuple[int, ...]:
        """The output's axes in the order batch, feature, spatial."""
        return (self.output_batch, self.output_feature, *self.output_spatial)


@dataclasses.dataclass(frozen=True)
class Convolution(Op):
    """For every position of the window over the spatial axes of the input, batch and output feature: the sum
    of products with the kernel over the window and the input features. Padding and holes count as zeros.

    With feature_groups g, input and output features are cut into g runs and the i-th runs belong together;
    with batch_groups g, so are the input's batch and the output features.
    Shapes: output batch = input batch / batch_groups, output features = the kernel's, spatial dims as the
    window's positions. The result has preferred_type, or the operands' type.
    convolution_c1: two arrays of numbers of one element type, or of floats of at most 8 bits; with preferred_type also
    of s8 and u8, or f32 and then f16, bf16, s8 or u8.
    convolution_c2: dims give every axis of input, kernel and output once, and all have the same rank.
    convolution_c3: the window has one entry per spatial axis; strides and dilations are at least 1; the
    padded dims are not negative.
    convolution_c4: the window's size is the kernel's spatial dims.
    convolution_c5: feature_groups and batch_groups are at least 1, and one of them is 1.
    convolution_c6: input features = the kernel's input features * feature_groups.
    convolution_c7: the kernel's output features are a multiple of feature_groups and of batch_groups.
    convolution_c8: the input's batch is a multiple of batch_groups.
    convolution_c9: preferred_type is as the operands' type: integer, float or complex.
    has_small_rhs: as dot's.
    Source: operation semantics, Conv (convolution).
    """

    opcode: ClassVar[str] = "convolution"
    is_contraction: ClassVar[bool] = True
    window: Window = attribute("window", "window")
    dims: ConvolutionDims = attribute("dim_labels", "dim_labels")
    feature_groups: int = attribute("size", "feature_group_count", default=1)
    batch_groups: int = attribute("size", "batch_group_count", default=1)
    preferred_type: ElementType | None = attribute("result_type", "", default=None)
    has_small_rhs: bool = attribute("bool", "has_small_rhs", default=False)

    def flops(self, instruction: Instruction) -> int:
        """A multiplication and an addition for each term."""
        kernel = instruction.operands[1].shape.dims
        taps = math.prod(kernel[axis] for axis in self.dims.kernel_spatial)
        return 2 * instruction.shape.elements * kernel[self.dims.kernel_input_feature] * taps

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """Batch, features and positions, in the output's order."""
        kind = require_product(
            "convolution", operands, self.preferred_type, ("convolution_c1", "convolution_c9")
        )
        lhs, rhs = operands
        d, axes = self.dims, list(range(lhs.rank))
        require(
            rhs.rank == lhs.rank and sorted(d.input) == sorted(d.kernel) == sorted(d.output) == axes,
            f"convolution: {d} do not name the axes of {lhs} and {rhs}",
            "convolution_c2",
        )
        spatial = [lhs.dims[a] for a in d.input_spatial]
        kernel = tuple(rhs.dims[a] for a in d.kernel_spatial)
        require(
            self.window.size == kernel,
            f"convolution: window size is {self.window.size}, the kernel {rhs} has {kernel}",
            "convolution_c4",
        )
        # A kernel may have size 0: the window's own check is for sizes of 1 or more.
        dataclasses.replace(self.window, size=tuple(larger(s, 1) for s in kernel)).check(
            "convolution", spatial, "convolution_c3"
        )
        groups = (self.feature_groups, self.batch_groups)
        require(
            min(groups) == 1,
            f"convolution: feature_groups and batch_groups are {groups}, 1 and 1 or more is wanted",
            "convolution_c5",
        )
        features, inputs = lhs.dims[d.input_feature], rhs.dims[d.kernel_input_feature]
        require(
            features == inputs * self.feature_groups,
            f"convolution: {lhs} has {features} features, kernel {rhs} takes {inputs} in "
            f"{self.feature_groups} groups",
            "convolution_c6",
        )
        outputs, batch = rhs.dims[d.kernel_output_feature], lhs.dims[d.input_batch]
        require(
            outputs % max(groups) == 0,
            f"convolution: {outputs} output features of {rhs} do not split into {max(groups)} groups",
            "convolution_c7",
        )
        require(
            batch % self.batch_groups == 0,
            f"convolution: the batch of {batch} of {lhs} does not split into {self.batch_groups} groups",
            "convolution_c8",
        )
        result = [0] * lhs.rank
        for axis, size in zip(d.output, (batch // self.batch_groups, outputs, *self.window.output(spatial))):
            result[axis] = size
        return Shape(kind, tuple(result))

    def reference(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        """For every element of the window, one matrix product of the input elements under it with its slice of the
        kernel."""
        left, right, dtype = factors(lhs, rhs, self.preferred_type)
        base, kernel = left.transpose(self.dims.input), right.transpose(self.dims.kernel)
        spatial, window = base.shape[2:], self.window
        positions = window.output(spatial)
        kernel = np.flip(kernel, tuple(a + 2 for a, back in enumerate(window.reversal) if back))
        batch, groups = base.shape[0] // self.batch_groups, self.feature_groups
        per_group = kernel.shape[0] // (groups * self.batch_groups)
        whole = Window.of(
            (1, 1, *window.size),
            (1, 1, *window.stride),
            (0, 0, *window.pad_low),
            (0, 0, *window.pad_high),
            (1, 1, *window.base_dilation),
            (1, 1, *window.window_dilation),
        )
        base = whole.pad(base, np.zeros((), base.dtype))
        count = math.prod(positions)
        split = kernel.reshape(
            self.batch_groups, 1, groups, per_group, kernel.shape[1], math.prod(window.size)
        )
        total = np.zeros((self.batch_groups, batch, groups, per_group, count), base.dtype)
        with np.errstate(all="ignore"):
            for number, seen in enumerate(whole.views(base, (*base.shape[:2], *positions))):
                patch = seen.reshape(self.batch_groups, batch, groups, kernel.shape[1], count)
                total = total + split[..., number] @ patch
        result = np.moveaxis(total, 0, 1).reshape(batch, kernel.shape[0], *positions)
        return narrow(result.transpose(np.argsort(self.dims.output)), dtype)
