"""A convolution as data: sizes, strides and types of its axes, in any order of the axes in memory.

Nothing here depends on the target.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

from ...runtime.sizes import Size, ceiling, estimate, heuristic, larger, smaller, surely_less
from ..ir.element_types import ElementType
from ..ir.module import Instruction
from ..ir.shape import Shape
from ..ops import Convolution
from .gemm_problem import GemmProblem, are_converted
from .quads import QUAD, are_whole_quads, quad_type

MIN_ROWS_OF_IMAGE = 128  # where each image is a GEMM of its own


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
        """Output position o sees input position o alone: the axis has no window."""
        return (
            self.window == 1
            and self.stride == 1
            and self.pad == 0
            and self.base_dilation == 1
            and self.output == self.input
        )

    @property
    def is_trivial(self) -> bool:
        """Input, window and output have one element, and no padding is seen."""
        return self.window * self.output * self.input == 1 and not self.has_border

    @property
    def has_border(self) -> bool:
        """Some window element may see padding or a hole."""
        end = (self.output - 1) * self.stride + self.dilated_window - self.pad
        is_inside = surely_less(self.pad, 1) and surely_less(end, self.input + 1)
        return self.base_dilation > 1 or not is_inside

    @property
    def dilated_window(self) -> int:
        """Length of the window with its dilation."""
        return (self.window - 1) * self.window_dilation + 1

    def extent(self, outputs: int) -> int:
        """Dilated input positions that this many neighbouring output positions see."""
        return larger(0, (outputs - 1) * self.stride + self.dilated_window) if outputs else 0

    def window_inside(self, position: int) -> tuple[int, int]:
        """The window elements [low, high) of an output position that are inside, for input without holes."""
        first, step = position * self.stride - self.pad, self.window_dilation
        low = smaller(self.window, larger(0, -(first // step)))
        return low, larger(low, smaller(self.window, ceiling(self.input - first, step)))

    def phases(self) -> list[tuple[Axis, int, int]]:
        """The axis as axes without holes: (axis, first window element, first output position) for each remainder of the
        output position by the base dilation. An axis that cannot be split is its only phase.
        """
        step = self.base_dilation
        if step == 1 or self.stride != 1 or self.window_dilation != 1:
            return [(self, 0, 0)]
        phases = []
        for number in range(step if isinstance(self.output, Size) else min(step, self.output)):
            other = (self.pad - number) % step
            first, remainder = (number, other) if isinstance(self.pad, Size) else (other, number)
            phase = Axis(
                self.input,
                larger(0, -(-(self.window - first) // step)),
                -(-(self.output - remainder) // step),
                1,
                (self.pad - remainder - first) // step,
                1,
                1,
                self.input_stride,
                self.kernel_stride * step,
                self.output_stride * step,
            )
            phases.append((phase, first, remainder))
        return phases


@dataclasses.dataclass(frozen=True)
class Phase:
    """A convolution without holes that computes a part of the output.

    Units: offsets in elements, of window element 0 in the kernel and of position 0 in the output.
    """

    axes: tuple[Axis, ...]
    kernel_offset: int
    output_offset: int

    @property
    def positions(self) -> int:
        """Output positions."""
        return positions_of(self.axes)


@dataclasses.dataclass(frozen=True)
class ConvolutionProblem:
    """out[n, g, o, p] = sum over c and window elements k of in[n, g, c, seen(p, k)] * kernel[g, o, c, k].

    Groups stand for feature groups and for batch groups alike; `in_channels` and `out_channels` count the features of
    one group.
    `quads`: where elements are quads of bytes, the name of their type (quads.py); else "".
    Units: strides in elements; kernel_offset is that of window element 0 of every axis (reversal moves it).
    """

    input_type: ElementType
    kernel_type: ElementType
    result_type: ElementType
    batch: int
    groups: int
    in_channels: int
    out_channels: int
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
    quads: str = ""

    @property
    def window(self) -> int:
        """Elements of the window."""
        return window_of(self.axes)

    @property
    def positions(self) -> int:
        """Output positions of one image."""
        return positions_of(self.axes)

    @property
    def channels_last(self) -> bool:
        """The output features are contiguous."""
        return self.output_feature == 1

    @property
    def flops(self) -> int:
        """Multiplications and additions, those with padding counted too."""
        return (
            2
            * self.batch
            * self.groups
            * self.in_channels
            * self.out_channels
            * self.window
            * self.positions
            * (4 if self.input_type.is_complex else QUAD if self.quads else 1)
        )

    @property
    def converts_kernel(self) -> bool:
        """The kernel has a narrower type than the input; what is read of it is converted."""
        return are_converted(self.input_type, self.kernel_type, self.result_type)

    @property
    def is_of_bytes(self) -> bool:
        """One number of 8 bits in the input for each of the output: signs may differ (convolution/depthwise.py)."""
        types = {self.input_type, self.kernel_type}
        return self.in_channels == 1 and types <= {ElementType.S8, ElementType.U8} and self.groups > 1

    def in_quads(self, has_small_kernel: bool = False) -> ConvolutionProblem:
        """The convolution with quads of input features for elements, where it is one of bytes that lie so; else the
        same."""
        quads = quad_type(self.input_type, self.kernel_type, self.result_type, has_small_kernel)
        counts = {
            "in_channels": 2,
            "kernel_offset": 2,
            "input_batch": self.batch,
            "input_group": self.groups,
            "kernel_group": self.groups,
            "kernel_output": self.out_channels,
        }
        strides = {name: getattr(self, name) for name in counts}
        steps = [(count, strides[name]) for name, count in counts.items()]
        steps += [(a.input, a.input_stride) for a in self.axes] + [
            (a.window, a.kernel_stride) for a in self.axes
        ]
        is_run = self.input_feature == 1 and self.kernel_input == 1
        if not quads or not is_run or not are_whole_quads(s for count, s in steps if count != 1):
            return self
        axes = tuple(
            dataclasses.replace(a, input_stride=a.input_stride // QUAD, kernel_stride=a.kernel_stride // QUAD)
            for a in self.axes
        )
        return dataclasses.replace(
            self,
            input_type=ElementType.S32,
            kernel_type=ElementType.S32,
            axes=axes,
            quads=quads,
            **{name: stride // QUAD for name, stride in strides.items()},
        )


def convolution_problem(convolution: Instruction, result: ElementType) -> ConvolutionProblem:
    """The sizes and strides of a convolution whose result has this element type, in quads where it can be."""
    op = convolution.op
    assert isinstance(op, Convolution)
    return plain_problem(convolution, result).in_quads(op.has_small_rhs)


def plain_problem(convolution: Instruction, result: ElementType) -> ConvolutionProblem:
    """The sizes and strides of a convolution, whose result has this element type, in its own elements."""
    op, (lhs, rhs) = convolution.op, (o.shape for o in convolution.operands)
    assert isinstance(op, Convolution)
    out, d, window = Shape(result, convolution.shape.dims), op.dims, op.window
    input_strides, kernel_strides, output_strides = lhs.strides, rhs.strides, out.strides
    axes, offset = [], 0
    for j, (i, k, o) in enumerate(zip(d.input_spatial, d.kernel_spatial, d.output_spatial)):
        sign = -1 if window.reversal[j] else 1
        offset += (rhs.dims[k] - 1) * kernel_strides[k] if window.reversal[j] else 0
        axes.append(
            Axis(
                lhs.dims[i],
                rhs.dims[k],
                out.dims[o],
                window.stride[j],
                window.pad_low[j],
                window.base_dilation[j],
                window.window_dilation[j],
                input_strides[i],
                sign * kernel_strides[k],
                output_strides[o],
            )
        )
    groups = max(op.feature_groups, op.batch_groups)
    batch, outputs = out.dims[d.output_batch], out.dims[d.output_feature] // groups
    inputs = rhs.dims[d.kernel_input_feature]
    group_stride = (
        batch * input_strides[d.input_batch]
        if op.batch_groups > 1
        else inputs * input_strides[d.input_feature]
    )
    return ConvolutionProblem(
        lhs.element_type,
        rhs.element_type,
        result,
        batch,
        groups,
        inputs,
        outputs,
        tuple(axes),
        input_strides[d.input_batch],
        group_stride,
        input_strides[d.input_feature],
        offset,
        outputs * kernel_strides[d.kernel_output_feature],
        kernel_strides[d.kernel_input_feature],
        kernel_strides[d.kernel_output_feature],
        output_strides[d.output_batch],
        outputs * output_strides[d.output_feature],
        output_strides[d.output_feature],
    )


def positions_of(axes: Iterable[Axis]) -> int:
    """Output positions along some axes."""
    return math.prod(a.output for a in axes)


def window_of(axes: Iterable[Axis]) -> int:
    """Window elements along some axes."""
    return math.prod(a.window for a in axes)


def spatial_axes(problem: ConvolutionProblem) -> tuple[Axis, ...]:
    """The spatial axes in the order of the output in memory, without trivial ones."""
    return _in_output_order(problem.axes)


def axes_of(problem: ConvolutionProblem) -> tuple[Axis, ...]:
    """The batch, as an axis of window 1, and the spatial axes in the order of the output in memory; at least one."""
    batch = Axis(problem.batch, 1, problem.batch, 1, 0, 1, 1, problem.input_batch, 0, problem.output_batch)
    return _in_output_order((batch, *problem.axes)) or (batch,)


@heuristic()
def _in_output_order(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    return tuple(sorted((a for a in axes if not a.is_trivial), key=lambda a: -a.output_stride))


def phases_of(axes: tuple[Axis, ...], kernel_offset: int) -> tuple[Phase, ...]:
    """The convolution as convolutions without holes, one for each remainder of the output position."""
    return tuple(
        Phase(
            tuple(axis for axis, _, _ in phases),
            kernel_offset + sum(element * a.kernel_stride for a, (_, element, _) in zip(axes, phases)),
            sum(position * a.output_stride for a, (_, _, position) in zip(axes, phases)),
        )
        for phases in itertools.product(*(a.phases() for a in axes))
    )


def features_before_positions(problem: ConvolutionProblem) -> bool:
    """Whether the output is [batch, features, positions], positions in the order of the axes."""
    step = 1
    for a in reversed(problem.axes):
        if a.output != 1 and a.output_stride != step:
            return False
        step *= a.output
    channels = problem.groups * problem.out_channels
    return problem.output_feature == step and (problem.batch == 1 or problem.output_batch == channels * step)


def as_gemm(problem: ConvolutionProblem) -> GemmProblem | None:
    """The GEMM that computes a convolution whose window has one element, or sees contiguous input: one, or one for
    each image; None for other convolutions."""
    axes = axes_of(problem)
    if (
        problem.groups > 1
        or problem.kernel_offset
        or not problem.channels_last
        or (problem.kernel_type is not problem.input_type and not problem.converts_kernel)
        or any(a.has_border or a.pad for a in axes)
    ):
        return None
    rows = _gemm_rows(problem, axes)
    depth = _gemm_depth(problem)
    if rows is None or depth is None:
        return None
    (images, image_stride), m, row_stride = rows
    k, a_stride, b_stride = depth
    batch = (images,) if images else ()
    return GemmProblem(
        problem.input_type,
        problem.result_type,
        batch,
        m,
        problem.out_channels,
        k,
        (*(batch and (image_stride,)), row_stride, a_stride),
        (*(batch and (0,)), b_stride, problem.kernel_output),
        (*(batch and (m * problem.out_channels,)), problem.out_channels, 1),
        problem.quads,
        problem.kernel_type if problem.converts_kernel else None,
    )


def _gemm_rows(problem: ConvolutionProblem, axes: Sequence[Axis]) -> tuple[tuple[int, int], int, int] | None:
    """((images, stride of one), rows, stride of a row) of A, with 0 images where all are rows of one GEMM."""
    rows = 1
    batch = 0, 0
    strides = (a.input_stride * a.stride for a in reversed(axes) if a.output != 1)
    row_stride = next(strides, problem.input_batch)
    for a in reversed(axes):
        stride = a.input_stride * a.stride
        if a.output != 1 and stride == row_stride * rows and (a.window == 1 or rows == 1):
            rows *= a.output
        elif a.output != 1 and a is axes[0] and a.window == 1 and estimate(rows) >= MIN_ROWS_OF_IMAGE:
            batch = a.output, stride
        elif a.output != 1:
            return None
    return batch, rows, row_stride


@heuristic()
def _gemm_depth(problem: ConvolutionProblem) -> tuple[int, int, int] | None:
    """(size, stride in the input, stride in the kernel) of the input features and window elements as one axis."""
    features = problem.in_channels, problem.input_feature, problem.kernel_input
    window = ((a.window, a.input_stride * a.window_dilation, a.kernel_stride) for a in problem.axes)
    summed = sorted((features, *window), key=lambda s: s[1])
    summed = [s for s in summed if s[0] != 1] or [(1, 1, 1)]
    k, (_, a_stride, b_stride) = 1, summed[0]
    for size, input_stride, kernel_stride in summed:
        if (input_stride, kernel_stride) != (a_stride * k, b_stride * k):
            return None
        k *= size
    return k, a_stride, b_stride
