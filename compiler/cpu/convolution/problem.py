"""A convolution as a problem of sizes, strides and types, whatever the order of its axes."""

from __future__ import annotations

import dataclasses
import math

from ...ir.element_types import ElementType
from ...ir.module import Instruction
from ...ir.shape import Shape
from ...ops import Convolution


@dataclasses.dataclass(frozen=True)
class Axis:
    """A spatial axis: output position o and window element k see input position
    (o * stride + k * window_dilation - pad) / base_dilation, where that is whole and inside.

    Units: strides in elements; that of the kernel is negative where the window is reversed.
    """

    input: int
    window: int
    output: int
    stride: int
    pad: int
    base_dilation: int
    window_dilation: int
    input_stride: int
    kernel_stride: int
    output_stride: int

    @property
    def is_plain(self) -> bool:
        """One window element that sees every input position once: the axis is no window at all."""
        return (
            self.window == 1
            and self.stride == 1
            and self.pad == 0
            and self.base_dilation == 1
            and self.output == self.input
        )

    @property
    def has_border(self) -> bool:
        """Some window element sees padding or a hole."""
        last = (self.output - 1) * self.stride + (self.window - 1) * self.window_dilation - self.pad
        return self.base_dilation > 1 or self.pad > 0 or last >= self.input


@dataclasses.dataclass(frozen=True)
class ConvolutionProblem:
    """out[n, g, o, p] = sum over c and window elements k of in[n, g, c, seen(p, k)] * kernel[g, o, c, k].

    Groups stand for feature groups and for batch groups alike; `inputs` and `outputs` are features of one group.
    Units: strides in elements; kernel_offset is that of window element 0 of every axis (reversal moves it).
    """

    input_type: ElementType
    kernel_type: ElementType
    result_type: ElementType
    batch: int
    groups: int
    inputs: int
    outputs: int
    axes: tuple[Axis, ...]
    input_batch: int
    input_group: int
    input_feature: int
    kernel_offset: int
    kernel_group: int
    kernel_input: int
    kernel_output: int
    output_batch: int
    output_group: int
    output_feature: int

    @property
    def window(self) -> int:
        """Elements of the window."""
        return math.prod(a.window for a in self.axes)

    @property
    def positions(self) -> int:
        """Output positions of one image."""
        return math.prod(a.output for a in self.axes)

    @property
    def flops(self) -> int:
        """Multiplications and additions, those with padding counted too."""
        return (
            2
            * self.batch
            * self.groups
            * self.inputs
            * self.outputs
            * self.window
            * self.positions
            * (4 if self.input_type.is_complex else 1)
        )


def convolution_problem(product: Instruction, result: ElementType) -> ConvolutionProblem:
    """The problem that a convolution poses, with a result of this element type."""
    op, (lhs, rhs) = product.op, (o.shape for o in product.operands)
    assert isinstance(op, Convolution)
    out, d, window = Shape(result, product.shape.dims), op.dims, op.window
    left, right, made = lhs.strides, rhs.strides, out.strides
    axes, offset = [], 0
    for j, (i, k, o) in enumerate(zip(d.input_spatial, d.kernel_spatial, d.output_spatial)):
        sign = -1 if window.reversal[j] else 1
        offset += (rhs.dims[k] - 1) * right[k] if window.reversal[j] else 0
        axes.append(
            Axis(
                lhs.dims[i],
                rhs.dims[k],
                out.dims[o],
                window.stride[j],
                window.pad_low[j],
                window.base_dilation[j],
                window.window_dilation[j],
                left[i],
                sign * right[k],
                made[o],
            )
        )
    groups = max(op.feature_groups, op.batch_groups)
    batch, outputs = out.dims[d.output_batch], out.dims[d.output_feature] // groups
    inputs = rhs.dims[d.kernel_input_feature]
    step = batch * left[d.input_batch] if op.batch_groups > 1 else inputs * left[d.input_feature]
    return ConvolutionProblem(
        lhs.element_type,
        rhs.element_type,
        result,
        batch,
        groups,
        inputs,
        outputs,
        tuple(axes),
        left[d.input_batch],
        step,
        left[d.input_feature],
        offset,
        outputs * right[d.kernel_output_feature],
        right[d.kernel_input_feature],
        right[d.kernel_output_feature],
        made[d.output_batch],
        outputs * made[d.output_feature],
        made[d.output_feature],
    )
