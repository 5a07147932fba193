"""Builder operations that combine elements: reductions, windows, dots, convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError
from ..ir.element_types import ElementType
from ..ir.module import Computation
from ..ops import (
    BlockScaledDot,
    Convolution,
    ConvolutionDims,
    Dot,
    Reduce,
    ReduceWindow,
    SelectAndScatter,
    Window,
)
from .arrays import ArrayOperations, listed
from .core import Dims, Operand, TypeName, operation
from .other_types import apply_on_any_type

Padding = str | Sequence[tuple[int, int]]


class WindowOperations(ArrayOperations):
    """Reductions, windows, dots and convolutions."""

    @operation
    def reduce(
        self,
        operands: Operand | Sequence[Operand],
        init_values: Operand | Sequence[Operand],
        computation: Computation | None,
        dimensions_to_reduce: Dims,
    ) -> Operand:
        """Elements along the axes combined; several operands are reduced together and give a tuple.

        Shapes: operands of the same dims, init_values []; the result has the axes that are not reduced.
        """
        return self.apply(
            Reduce(tuple(dimensions_to_reduce), self.computation(computation)),
            *listed(operands),
            *listed(init_values),
        )

    @operation
    def reduce_all(self, operand: Operand, init_value: Operand, computation: Computation | None) -> Operand:
        """All elements combined to a scalar.

        Shapes: init_value [], result [].
        """
        return self.reduce(operand, init_value, computation, tuple(range(self.shape_of(operand).rank)))

    @operation
    def reduce_window(
        self,
        operands: Operand | Sequence[Operand],
        init_values: Operand | Sequence[Operand],
        computation: Computation | None,
        window_dimensions: Dims,
        window_strides: Dims,
        padding: Padding,
        base_dilations: Dims = (),
        window_dilations: Dims = (),
    ) -> Operand:
        """Elements in every position of a window combined. padding: "same", "valid", or (low, high) per
        axis.

        Shapes: axis i of the result has floor((d + low + high - w) / stride) + 1 elements, with d and w as dilated.
        """
        operands = listed(operands)
        window = self._window(
            "reduce_window",
            self.shape_of(operands[0]).dims,
            window_dimensions,
            window_strides,
            padding,
            base_dilations,
            window_dilations,
        )
        return self.apply(
            ReduceWindow(window, self.computation(computation)), *operands, *listed(init_values)
        )

    reduce_window_with_general_padding = reduce_window

    @operation
    def select_and_scatter(
        self,
        operand: Operand,
        select: Computation | None,
        window_dimensions: Dims,
        window_strides: Dims,
        padding: Padding,
        source: Operand,
        init_value: Operand,
        scatter: Computation | None,
    ) -> Operand:
        """Scatters the source to the element that `select` picks in every position of the window.

        Shapes: source: one element for each position of the window; the result's are the operand's.
        """
        window = self._window(
            "select_and_scatter",
            self.shape_of(operand).dims,
            window_dimensions,
            window_strides,
            padding,
            (),
            (),
        )
        return self.apply(
            SelectAndScatter(window, self.computation(select), self.computation(scatter)),
            operand,
            source,
            init_value,
        )

    select_and_scatter_with_general_padding = select_and_scatter

    @operation
    def dot(self, lhs: Operand, rhs: Operand, preferred_element_type: TypeName | None = None) -> Operand:
        """Products summed over the last axis of a vector or matrix and the first of another; of two scalars, their
        product; of arrays of higher rank, summed over the last axis and the one before the last.

        Shapes: [m, k] and [k, n] give [m, n]; of vectors [k] that axis is left out.
        Raises: ShapeError  dot_c0: one operand is a scalar, the other is not; the others are dot_general's.
        Source: operation semantics, Dot; for scalars and higher ranks the preview document's Dot.
        """
        left, right = self.shape_of(lhs), self.shape_of(rhs)
        if (left.rank == 0) != (right.rank == 0):
            raise ShapeError(f"dot: operands {left} and {right} must be both scalars or neither (dot_c0)")
        if left.rank == 0:
            return self.dot_general(lhs, rhs, ((), ()), ((), ()), preferred_element_type)
        contracted = ((left.rank - 1,), (max(right.rank - 2, 0),))
        return self.dot_general(lhs, rhs, contracted, ((), ()), preferred_element_type)

    @operation
    def dot_general(
        self,
        lhs: Operand,
        rhs: Operand,
        contracting_dimensions: tuple[Dims, Dims],
        batch_dimensions: tuple[Dims, Dims] = ((), ()),
        preferred_element_type: TypeName | None = None,
    ) -> Operand:
        """Products summed over pairs of axes, for each index of the batch axes. Each pair is (of lhs, of
        rhs). Of pred, whether both are true anywhere."""
        (left, right), (left_batch, right_batch) = contracting_dimensions, batch_dimensions
        op = Dot(
            tuple(left),
            tuple(right),
            tuple(left_batch),
            tuple(right_batch),
            None if preferred_element_type is None else ElementType(preferred_element_type),
        )
        return apply_on_any_type(self, op, lhs, rhs)

    @operation
    def block_scaled_dot(
        self,
        lhs: Operand,
        weights: Operand,
        scales: Operand,
        zeros: Operand | None = None,
        blocks: Operand | None = None,
        block_size: int = 0,
    ) -> Operand:
        """The product of a matrix and of weights (q - zero) * scale, q being integers of four bits, two to a byte. Row
        r of the weights belongs to block r / block_size, or to the one that `blocks` says.

        Shapes: lhs [m, k], weights s8[k, (n + 1) / 2], scales [blocks, n], zeros s8[blocks, n], blocks s32[k].
        """
        others = [operand for operand in (zeros, blocks) if operand is not None]
        op = BlockScaledDot(block_size, zeros is not None)
        return self.apply(op, lhs, weights, scales, *others)

    @operation
    def conv(
        self,
        lhs: Operand,
        rhs: Operand,
        window_strides: Dims,
        padding: Padding,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
    ) -> Operand:
        """Convolution of batch-feature-spatial input with output-input-spatial kernel.

        Shapes: lhs [batch, features, ..spatial..], rhs [out, features / feature_group_count, ..window..], result
            [batch, out, ..positions..].
        """
        return self.conv_general_dilated(
            lhs, rhs, window_strides, padding, (), (), None, feature_group_count, batch_group_count
        )

    conv_with_general_padding = conv

    @operation
    def conv_with_general_dimensions(
        self,
        lhs: Operand,
        rhs: Operand,
        window_strides: Dims,
        padding: Padding,
        dimension_numbers: ConvolutionDims,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
    ) -> Operand:
        """Convolution with any order of axes.

        Shapes: as conv, with the axes that dimension_numbers names.
        """
        return self.conv_general_dilated(
            lhs,
            rhs,
            window_strides,
            padding,
            (),
            (),
            dimension_numbers,
            feature_group_count,
            batch_group_count,
        )

    conv_general = conv_with_general_dimensions

    @operation
    def conv_general_dilated(
        self,
        lhs: Operand,
        rhs: Operand,
        window_strides: Dims,
        padding: Padding,
        lhs_dilation: Dims = (),
        rhs_dilation: Dims = (),
        dimension_numbers: ConvolutionDims | None = None,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        preferred_element_type: TypeName | None = None,
        window_reversal: Sequence[bool] = (),
    ) -> Operand:
        """Convolution in its general form.

        Shapes: as conv; a spatial axis has floor((d + low + high - w) / stride) + 1 positions, with d and w as
            dilated.
        Raises: ShapeError  convolution's; dimension_numbers default to those of `conv`.
        """
        left, right = self.shape_of(lhs), self.shape_of(rhs)
        dims = dimension_numbers or create_default_conv_dimension_numbers(max(left.rank - 2, 0))
        axes = (dims.input_batch, dims.input_feature, *dims.input_spatial)
        kernel_axes = (dims.kernel_output_feature, dims.kernel_input_feature, *dims.kernel_spatial)
        if sorted(axes) != list(range(left.rank)) or sorted(kernel_axes) != list(range(right.rank)):
            raise ShapeError(
                f"convolution: dimension numbers {dims} do not fit operands {left} and {right} (conv_c1)"
            )
        window = self._window(
            "convolution",
            [left.dims[a] for a in dims.input_spatial],
            [right.dims[a] for a in dims.kernel_spatial],
            window_strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            window_reversal,
        )
        preferred = None if preferred_element_type is None else ElementType(preferred_element_type)
        op = Convolution(window, dims, feature_group_count, batch_group_count, preferred)
        return apply_on_any_type(self, op, lhs, rhs)

    def _window(
        self,
        name: str,
        base: Dims,
        size: Dims,
        strides: Dims,
        padding: Padding,
        base_dilation: Dims,
        window_dilation: Dims,
        reversal: Sequence[bool] = (),
    ) -> Window:
        rank = len(base)
        for what, value in (
            ("window dimensions", size),
            ("strides", strides),
            ("base dilations", base_dilation),
            ("window dilations", window_dilation),
            ("reversal", reversal),
        ):
            if value and len(value) != rank:
                raise ShapeError(
                    f"{name}: {what} {list(value)} must have one entry for each of {rank} axes (window_c1)"
                )
        pads = padding
        if isinstance(pads, str):
            pads = window_padding(name, base, size, strides, pads, base_dilation, window_dilation)
        elif len(pads) != rank or any(len(p) != 2 for p in pads):
            raise ShapeError(
                f"{name}: padding {[list(p) for p in pads]} must be one (low, high) for each of {rank} axes "
                "(window_c1)"
            )
        return Window.of(
            size,
            strides,
            [p[0] for p in pads],
            [p[1] for p in pads],
            base_dilation,
            window_dilation,
            reversal,
        )


def window_padding(
    name: str,
    base: Dims,
    size: Dims,
    strides: Dims,
    padding: str,
    base_dilation: Dims = (),
    window_dilation: Dims = (),
) -> list[tuple[int, int]]:
    """(low, high) per axis of "same" (as many positions as ceil(base / stride)) or "valid" (none).

    Raises: ShapeError  window_c2: another word.
    """
    rank = len(base)
    if padding.lower() == "valid":
        return [(0, 0)] * rank
    if padding.lower() != "same":
        raise ShapeError(f'{name}: padding {padding!r} is neither "same" nor "valid" (window_c2)')
    whole = Window.of(size, strides, (), (), base_dilation, window_dilation)
    total = [
        max((-(-b // t) - 1) * t + w - b, 0)
        for b, t, w in zip(whole.padded(base), whole.stride, whole.dilated_size)
    ]
    return [(t // 2, t - t // 2) for t in total]


def create_default_conv_dimension_numbers(spatial: int = 2) -> ConvolutionDims:
    """Batch, feature, spatial for input and output; output feature, input feature, spatial for the kernel."""
    axes = tuple(range(2, spatial + 2))
    return ConvolutionDims(0, 1, axes, 1, 0, axes, 0, 1, axes)


def create_conv_dimension_numbers(
    batch: int,
    feature: int,
    first_spatial: int,
    second_spatial: int,
    kernel_output_feature: int,
    kernel_input_feature: int,
    kernel_first_spatial: int,
    kernel_second_spatial: int,
) -> ConvolutionDims:
    """Dimension numbers of a two-dimensional convolution; the output has the input's.

    Raises: ShapeError  conv_c1: two numbers of the input, or of the kernel, are the same.
    """
    for what, axes in (
        ("input", (batch, feature, first_spatial, second_spatial)),
        (
            "kernel",
            (kernel_output_feature, kernel_input_feature, kernel_first_spatial, kernel_second_spatial),
        ),
    ):
        if len(set(axes)) != len(axes):
            raise ShapeError(
                f"convolution: dimension numbers of the {what} are not all different: {list(axes)} (conv_c1)"
            )
    spatial = (first_spatial, second_spatial)
    return ConvolutionDims(
        batch,
        feature,
        spatial,
        kernel_input_feature,
        kernel_output_feature,
        (kernel_first_spatial, kernel_second_spatial),
        batch,
        feature,
        spatial,
    )
