"""The table of what ops demand of the shapes of their operands, as TensorFlow's kernels check it.

Ops that are not here take any shapes, or say in their translation which. A node whose operands are not as the table
says is left to TensorFlow, which has an error of its own. Patterns are written as in `shape_patterns`.
"""

from __future__ import annotations

import functools

from ...compiler.builder.computation_builder import Operand
from ...compiler.errors import ShapeError
from ...compiler.ir.shape import Shape
from ..graph.graph import input_range, op_definition
from .node import Node
from .shape_patterns import Pattern, match, patterns
from .values import Value, Variable

_IMAGES, _VOLUMES = "[_ _ _ _]", "[_ _ _ _ _]"
OPS_BY_SHAPES: tuple[tuple[str, str], ...] = (
    # -- elementwise
    ("[*s]", "AddN AccumulateNV2 Pack"),
    (
        "[*s] [*s]",
        """ApproximateEqual EluGrad InvGrad LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad
        SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad TanhGrad FakeQuantWithMinMaxArgsGradient AssignAddVariableOp
        AssignSubVariableOp""",
    ),
    ("[*s] []|[*s] []|[*s]", "ClipByValue"),
    ("[]|[*s] []|[*s] []|[*s]", "Betainc"),
    ("? [*s] [*s]", "Select"),
    ("? [] []", "FakeQuantWithMinMaxVars"),
    ("[... _ _] [] []", "MatrixBandPart"),
    ("[*s] [*s] [] []", "FakeQuantWithMinMaxVarsGradient"),
    ("[... c] [c] [c]", "FakeQuantWithMinMaxVarsPerChannel"),
    ("[*s c] [*s c] [c] [c]", "FakeQuantWithMinMaxVarsPerChannelGradient"),
    ("[_ ...] []", "Cumsum Cumprod CumulativeLogsumexp"),
    # -- arrays
    ("? []|[1]", "ExpandDims"),
    ("? [_]>=-1", "Reshape"),
    ("? [_]>=0", "BroadcastTo"),
    ("? [#]", "ConjugateTranspose Transpose"),
    ("[]|[+ ...] [#]", "Reverse"),
    ("? [#]>=0", "Tile"),
    ("? [#] [#]", "Slice"),
    ("? [# 2]>=0", "Pad MirrorPad MirrorPadGrad"),
    ("? [# 2]>=0 []", "PadV2"),
    ("? [_]", "ReverseV2"),
    ("? []|[n] []|[n]", "Roll"),
    ("[_]", "InvertPermutation Unique UniqueWithCounts"),
    ("[_] [_]", "BroadcastArgs BroadcastGradientArgs ListDiff"),
    ("[] [_ ...]", "Concat Split"),
    ("[_ ...] []", "ConcatV2"),
    ("[] [n]", "ConcatOffset"),
    ("[_ ...] [_] []", "SplitV"),
    ("[_ ...]", "Unpack Diag"),
    ("? [n] [n] [n]", "StridedSlice"),
    ("[_]>=0 [n] [n] [n] ?", "StridedSliceGrad"),
    ("? [n] [n] [n] ?", "ResourceStridedSliceAssign TensorStridedSliceUpdate"),
    ("[_]>=0", "Empty RandomUniform RandomStandardNormal TruncatedNormal NonDeterministicInts"),
    ("[_]>=0 []", "Fill"),
    ("[] [] []", "Range LinSpace"),
    ("? []>=0 [] []", "OneHot"),
    ("[_ ...] ?", "Gather ResourceGather"),
    ("[_ ...] ? []", "GatherV2"),
    ("[_ ...] [... _]", "GatherNd ResourceGatherNd"),
    # -- scatters and segments
    ("[... _] ? [_]>=0", "ScatterNd"),
    (
        "[_ ...] [... _] ?",
        """TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin
        ResourceScatterNdUpdate ResourceScatterNdAdd ResourceScatterNdSub ResourceScatterNdMax ResourceScatterNdMin""",
    ),
    (
        "[_ ...] ? ?",
        """ResourceScatterUpdate ResourceScatterAdd ResourceScatterSub ResourceScatterMul
        ResourceScatterDiv ResourceScatterMax ResourceScatterMin""",
    ),
    ("[_ *s] [m] [m *s]", "InplaceUpdate InplaceAdd InplaceSub"),
    ("[n ...] [n]", "SegmentSum SegmentMean SegmentProd SegmentMax SegmentMin"),
    ("[n ...] [n] []>=0", "SegmentSumV2 SegmentProdV2 SegmentMaxV2 SegmentMinV2"),
    ("? ? []>=0", "UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin"),
    ("[n 2] [n] [2]>=0 [_ _]", "SparseTensorDenseMatMul"),
    ("[]|[n]|[n _] [_]>=0 []|[n] []", "SparseToDense"),
    ("[_ ...] [n] [n]", "SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN"),
    (
        "[_ ...] [n] [n] []>=0",
        """SparseSegmentSumWithNumSegments SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments
        SparseSegmentSumGrad SparseSegmentMeanGrad SparseSegmentSqrtNGrad
        SparseSegmentSumGradV2 SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2""",
    ),
    ("[_ r] [r]>=0 [_]", "SparseReshape"),
    ("[n r] [n] [r]>=0", "SparseReorder"),
    ("[n r] [n] [r]>=0 []", "SparseFillEmptyRows"),
    ("[_] [_]", "SparseFillEmptyRowsGrad"),
    ("[n r] [n] [r]>=0 []|[_]", "SparseReduceSum"),
    (
        "[n r] [n] [r]>=0 ?",
        "SparseTensorDenseAdd SparseDenseCwiseMul SparseDenseCwiseDiv SparseDenseCwiseAdd",
    ),
    ("[n r] [n] [r]>=0 [r]>=0 [r]>=0", "SparseSlice"),
    ("[n r] [n] [r]>=0", "SparseSoftmax"),
    ("[n r] [n] [+]>=0 [m r] [m] [+]>=0 []", "SparseAdd"),
    ("[_ _] [_] [+]>=0", "SparseConcat"),
    # -- ragged arrays
    ("[]|[_] [_ ...] ? []|[_]", "RaggedTensorToTensor"),
    ("[]|[n] []|[n] []|[n]", "RaggedRange"),
    ("[+] [_ ...] ?", "RaggedGather"),
    ("[+] [_ ...]", "RaggedTensorToSparse"),
    # -- reductions, sorting, counting
    ("[_ ...] []", "ArgMax ArgMin"),
    ("[... _] []>=0", "TopKV2"),
    ("[... _] []", "NthElement"),
    ("[b _] [b]", "InTopK"),
    ("[b _] [b] []", "InTopKV2"),
    ("[b _] [b _]", "LowerBound UpperBound"),
    ("[*s] []>=0 [*s]|[0]", "Bincount"),
    ("[n]|[n m] []>=0 [n]|[n m]|[0]", "DenseBincount"),
    ("? [2] []>=1", "HistogramFixedWidth"),
    ("? [0]|[1]", "UniqueV2 UniqueWithCountsV2"),
    ("[]|[_] [_]>=0", "UnravelIndex"),
    ("[_ _] [_]", "ComputeAccidentalHits"),
    # -- matrices
    ("[_ _] [_ _]", "MatMul SparseMatMul SoftmaxCrossEntropyWithLogits"),
    ("[*b _ _] [*b _ _]", "BatchMatMul"),
    ("[... _ _] [... _ _]", "BatchMatMulV2 BatchMatMulV3"),
    (
        "[... n n]",
        """Cholesky LogMatrixDeterminant Lu MatrixDeterminant MatrixInverse MatrixLogarithm MatrixSquareRoot
        SelfAdjointEigV2""",
    ),
    ("[... _ _]", "MatrixDiagPart Qr Svd"),
    ("[... _]", "LogSoftmax MatrixDiag Softmax"),
    ("[*b n n] [*b n n]", "CholeskyGrad"),
    ("[*b n n] [*b n _]", "MatrixSolve"),
    ("[*b n _] [*b n _] []", "MatrixSolveLs"),
    ("[... n n] [... n _]", "MatrixTriangularSolve"),
    ("[... + n] [... n _]", "BandedTriangularSolve"),
    ("[... _ _] []|[1]|[2] []", "MatrixDiagPartV2 MatrixDiagPartV3"),
    ("[... _] []|[1]|[2] [] [] []", "MatrixDiagV2 MatrixDiagV3"),
    ("[... _ _] [... _]", "MatrixSetDiag"),
    ("[... _ _] [... _] []|[1]|[2]", "MatrixSetDiagV2 MatrixSetDiagV3"),
    ("[*s 3] [*s 3]", "Cross"),
    ("[*b 1 n] [*b 1 n] [*b 1 n] [*b n _]", "TridiagonalMatMul"),
    ("[*b 3 n] [*b n _]", "TridiagonalSolve"),
    ("[... _] [1]>=0", "RFFT IRFFT"),
    ("[... _ _] [2]>=0", "RFFT2D IRFFT2D"),
    ("[... _ _ _] [3]>=0", "RFFT3D IRFFT3D"),
    ("[_ ...]", "FFT IFFT"),
    ("[_ _ ...]", "FFT2D IFFT2D"),
    ("[_ _ _ ...]", "FFT3D IFFT3D"),
    # -- networks
    ("[_ _ ...] [_]", "BiasAdd BiasAddV1"),
    ("[_ _ ...]", "BiasAddGrad"),
    ("[n _] [n]", "SparseSoftmaxCrossEntropyWithLogits"),
    ("[+ + + +]", "MaxPoolWithArgmax"),
    (_IMAGES, "AvgPool MaxPool LRN SpaceToDepth DepthToSpace ExtractImagePatches"),
    (_VOLUMES, "AvgPool3D MaxPool3D ExtractVolumePatches"),
    (f"{_IMAGES} [4] [4]", "MaxPoolV2"),
    (f"[4]>=0 {_IMAGES}", "AvgPoolGrad"),
    (f"[5]>=0 {_VOLUMES}", "AvgPool3DGrad"),
    (f"{_IMAGES} [b h w c] [b h w c]", "MaxPoolGrad"),
    (f"{_VOLUMES} [b d h w c] [b d h w c]", "MaxPool3DGrad"),
    (f"[b h w c] {_IMAGES} [b h w c]", "MaxPoolGradGrad"),
    (f"[b d h w c] {_VOLUMES} [b d h w c]", "MaxPool3DGradGrad"),
    (f"{_IMAGES} [b h w c] [b h w c] [4] [4]", "MaxPoolGradV2"),
    (f"[b h w c] {_IMAGES} [b h w c] [4] [4]", "MaxPoolGradGradV2"),
    (f"{_IMAGES} [b h w c] [b h w c]", "MaxPoolGradWithArgmax"),
    (f"{_IMAGES} {_IMAGES}", "Conv2D DepthwiseConv2dNative"),
    (f"{_VOLUMES} {_VOLUMES}", "Conv3D"),
    (f"{_IMAGES}|{_VOLUMES} {_IMAGES}|{_VOLUMES}", "Conv"),
    (f"{_IMAGES} [4]>=0 {_IMAGES}", "Conv2DBackpropFilter DepthwiseConv2dNativeBackpropFilter"),
    (f"[4]|[2]>=0 {_IMAGES} {_IMAGES}", "Conv2DBackpropInput"),
    (f"[4]>=0 {_IMAGES} {_IMAGES}", "DepthwiseConv2dNativeBackpropInput"),
    (f"{_VOLUMES} [5]>=0 {_VOLUMES}", "Conv3DBackpropFilterV2"),
    (f"[5]>=0 {_VOLUMES} {_VOLUMES}", "Conv3DBackpropInputV2"),
    (f"{_IMAGES} [4 2]>=0 {_IMAGES}", "FusedPadConv2D"),
    (f"{_IMAGES} [2]>=1 [4 2]>=0 {_IMAGES}", "FusedResizeAndPadConv2D"),
    ("[_ _ _ c] [_ _ c]", "Dilation2D"),
    ("[b _ _ c] [_ _ c] [b _ _ c]", "Dilation2DBackpropFilter Dilation2DBackpropInput"),
    (f"{_IMAGES}|{_VOLUMES} [c] [c] [c]|[0] [c]|[0]", "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"),
    (f"{_IMAGES}|{_VOLUMES} [c] [c] [c]|[0] [c]|[0] {_IMAGES}|{_VOLUMES}", "_FusedBatchNormEx"),
    ("[*s] [*s] [c] [c] [c]", "FusedBatchNormGrad FusedBatchNormGradV2"),
    ("[*s] [*s] [c] [c] [c] ?", "FusedBatchNormGradV3"),
    ("[a b c d] [a b c d] [a b c d]", "LRNGrad"),
    ("[b n] [b u] [_ 2u] [_ u] [2u] [u]", "GRUBlockCell"),
    ("[b n] [b u] [_ 2u] [_ u] [2u] [u] [b u] [b u] [b u] [b u]", "GRUBlockCellGrad"),
    ("[b _] [b u] [b u] [_ 4u] [u] [u] [u] [4u]", "LSTMBlockCell"),
    ("[b _] [b u] [b u] [_ 4u] [u] [u] [u] [4u]" + 8 * " [b u]", "LSTMBlockCellGrad"),
    ("[] [t b _] [b u] [b u] [_ 4u] [u] [u] [u] [4u]", "BlockLSTM BlockLSTMV2"),
    ("[] [t b _] [b u] [b u] [_ 4u] [u] [u] [u] [4u]" + 9 * " [t b u]", "BlockLSTMGrad BlockLSTMGradV2"),
    ("[_ b _] [n 2] [n] [b]", "CTCLoss"),
    # -- images
    ("[... 3]", "HSVToRGB RGBToHSV"),
    ("[... _ _ _] []", "AdjustContrastv2"),
    ("[... _ _ 3] []", "AdjustHue AdjustSaturation"),
    ("[_ + + +] [2]>=1", "ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor"),
    (f"{_IMAGES} [2]>=1", "ResizeNearestNeighborGrad"),
    ("[b _ _ c] [b _ _ c]", "ResizeBicubicGrad ResizeBilinearGrad"),
    ("[_ + + +] [2]>=1 [2] [2]", "ScaleAndTranslate"),
    ("[b _ _ c] [b _ _ c] [2] [2]", "ScaleAndTranslateGrad"),
    ("[_ + + _] [n 4] [n] [2]>=1", "CropAndResize"),
    ("[n + + c] [_ + + c] [n 4] [n]", "CropAndResizeGradBoxes"),
    ("[n + + _] [n 4] [n] [4]>=1", "CropAndResizeGradImage"),
    ("[b _ _ _] [1 8]|[b 8] [2]>=1", "ImageProjectiveTransformV2"),
    ("[b _ _ _] [1 8]|[b 8] [2]>=1 []", "ImageProjectiveTransformV3"),
    ("[b _ _ _] [b _ 4]", "DrawBoundingBoxes"),
    ("[b _ _ _] [b _ 4] [_ _]", "DrawBoundingBoxesV2"),
    ("[n 4] [n] []", "NonMaxSuppression"),
    ("[n 4] [n] [] []", "NonMaxSuppressionV2"),
    ("[n 4] [n] [] [] []", "NonMaxSuppressionV3 NonMaxSuppressionV4"),
    ("[n 4] [n] [] [] [] []", "NonMaxSuppressionV5"),
    ("[n n] [n] [] [] []", "NonMaxSuppressionWithOverlaps"),
    ("[b n 1 4]|[b n c 4] [b n c] []>=1 []>=1 [] []", "CombinedNonMaxSuppression"),
    # -- quantized values
    ("? [*q]>0 [*q]", "UniformQuantize UniformDequantize"),
    ("? [*i]>0 [*i] [*o]>0 [*o]", "UniformRequantize"),
    ("? [*q] [*q] [*q]>0 [*q]", "UniformQuantizedClipByValue"),
    (
        "? ? [*l]>0 [*l] [*r]>0 [*r] [*o]>0 [*o]",
        "UniformQuantizedAdd UniformQuantizedDot UniformQuantizedConvolution",
    ),
    # -- blocks and sequences
    (f"{_IMAGES} [2 2]>=0", "BatchToSpace SpaceToBatch"),
    ("[_ ...] [m]>=1 [m 2]>=0", "BatchToSpaceND SpaceToBatchND"),
    ("[_ _ ...] [_]", "ReverseSequence"),
    # -- random numbers
    ("[_]>=0 [] []", "RandomUniformInt"),
    ("[_]>=0 ?", "RandomGamma RandomPoissonV2"),
    (
        "[_]>=0 [2]",
        """StatelessRandomNormal StatelessRandomUniform StatelessRandomUniformFullInt
        StatelessTruncatedNormal""",
    ),
    ("[_]>=0 [2] ?", "StatelessRandomGammaV2 StatelessRandomPoisson"),
    ("[_]>=0 [2] [] []", "StatelessRandomUniformInt"),
    (
        "[_]>=0 [1] [1]|[2] []",
        """StatelessRandomNormalV2 StatelessRandomUniformV2 StatelessRandomUniformFullIntV2
        StatelessTruncatedNormalV2""",
    ),
    ("[_]>=0 [1] [1]|[2] [] [] []", "StatelessRandomUniformIntV2"),
    ("[_]>=0 [1] [2] [] ?", "StatelessRandomGammaV3"),
    ("[_ ...] [1] [1]|[2] []", "StatelessShuffle"),
    ("? [1] [1]|[2] []", "StochasticCastToInt"),
    ("[_ +] []>=0", "Multinomial"),
    ("[_ +] []>=0 [2]", "StatelessMultinomial"),
    ("[2]", "StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg"),
    ("[_] [] []", "RngReadAndSkip RngSkip"),
    (
        "[_] [] [_]>=0",
        "StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt",
    ),
    ("[_] [] [_]>=0 [] []", "StatefulUniformInt"),
    # -- lists and arrays of tensors
    ("[]|[_] []>=0", "TensorListReserve"),
    ("[]|[_] []", "EmptyTensorList"),
    ("? [] ?", "TensorListGetItem TensorListSetItem"),
    ("? []>=0", "TensorListResize"),
    ("? [_] ?", "TensorListGather"),
    ("[n ...] [n] ?", "TensorListScatter"),
    ("[n ...] [n] ? []", "TensorListScatterV2"),
    ("? [n ...] [n]", "TensorListScatterIntoExistingList"),
    ("[_ ...] ? [_]>=0", "TensorListSplit"),
    ("[]>=0", "TensorArrayV3"),
    ("? [] ? []", "TensorArrayWriteV3"),
    ("? [] []", "TensorArrayReadV3"),
    ("? [_] []", "TensorArrayGatherV3"),
    ("? [n] [n ...] []", "TensorArrayScatterV3"),
    ("? [_ ...] [_]>=0 []", "TensorArraySplitV3"),
    # -- optimizers
    ("[*s] [] [*s]", "ResourceApplyGradientDescent"),
    ("[*s] [] [] [] [*s]", "ResourceApplyProximalGradientDescent"),
    ("[*s] [*s] [] [*s]", "ResourceApplyAdagrad"),
    ("[*s] [*s] [] [] [*s]", "ResourceApplyAdagradV2"),
    ("[*s] [*s] [] [*s] []", "ResourceApplyMomentum ResourceApplyKerasMomentum"),
    ("[*s] [*s] [] [] [] [*s]", "ResourceApplyProximalAdagrad"),
    ("[*s] [*s] [] [] [] [] [*s]", "ResourceApplyAddSign ResourceApplyPowerSign"),
    ("[*s] [*s] [*s] [] [] [] [*s]", "ResourceApplyAdadelta"),
    ("[*s] [*s] [*s] [] [] [] [] [*s]", "ResourceApplyRMSProp"),
    ("[*s] [*s] [*s] [] [] [] [] [] [*s]", "ResourceApplyAdaMax"),
    ("[*s] [*s] [*s] [] [] [] [] [] [] [*s]", "ResourceApplyAdam"),
    ("[*s] [*s] [*s] [*s] [] [] [] [] [*s]", "ResourceApplyCenteredRMSProp"),
    ("[*s] [*s] [*s] [*s] [] [] [] [] [] [] [*s]", "ResourceApplyAdamWithAmsgrad"),
    ("[*s] [*s] [*s] [*s] [] [] [] []", "ResourceApplyAdagradDA ResourceApplyFtrl"),
    ("[*s] [*s] [*s] [*s] [] [] [] [] []", "ResourceApplyFtrlV2"),
    ("[_ *s] [] [] [] [m *s] [m]", "ResourceSparseApplyProximalGradientDescent"),
    ("[n *s] [n *s] [] [m *s] [m]", "ResourceSparseApplyAdagrad"),
    ("[n *s] [n *s] [] [] [m *s] [m]", "ResourceSparseApplyAdagradV2"),
    (
        "[n *s] [n *s] [] [m *s] [m] []",
        "ResourceSparseApplyMomentum ResourceSparseApplyKerasMomentum",
    ),
    ("[n *s] [n *s] [] [] [] [m *s] [m]", "ResourceSparseApplyProximalAdagrad"),
    ("[n *s] [n *s] [n *s] [] [] [] [m *s] [m]", "ResourceSparseApplyAdadelta"),
    ("[n *s] [n *s] [n *s] [] [] [] [] [m *s] [m]", "ResourceSparseApplyRMSProp"),
    ("[n *s] [n *s] [n *s] [n *s] [] [] [] [] [m *s] [m]", "ResourceSparseApplyCenteredRMSProp"),
    (
        "[n *s] [n *s] [n *s] [m *s] [m] [] [] [] []",
        "ResourceSparseApplyAdagradDA ResourceSparseApplyFtrl",
    ),
    ("[n *s] [n *s] [n *s] [m *s] [m] [] [] [] [] []", "ResourceSparseApplyFtrlV2"),
)

PATTERNS: dict[str, tuple[Pattern, ...]] = {
    op: patterns(text) for text, ops in OPS_BY_SHAPES for op in ops.split()
}
"""What ops demand of their arguments, in order."""


@functools.cache
def _argument_names(op: str) -> tuple[str, ...]:
    return tuple(argument.name for argument in op_definition(op).input_arg)


def check_operands(node: Node) -> None:
    """Compares the operands of a node with the table.

    Raises: ShapeError  they are not as its op demands.
    """
    patterns = PATTERNS.get(node.op)
    if patterns is None:
        return
    names = _argument_names(node.op)
    shapes = [_shape(node, value) for value in node.inputs]
    ranges = (
        [(k, k + 1) for k in range(len(names))]
        if len(names) == len(shapes)
        else [input_range(node.definition, name) for name in names]
    )
    mismatch = match(patterns, [shapes[first:end] for first, end in ranges])
    if mismatch is not None:
        shapes_text = ", ".join(str(shape) for shape in shapes if shape is not None)
        raise ShapeError(
            f"{node.op}: {names[mismatch]} of the operands {shapes_text} should have the shape "
            f"{patterns[mismatch].text}"
        )
    for name, pattern, (first, end) in zip(names, patterns, ranges):
        if pattern.minimum is not None:
            for k in range(first, end):
                _check_values(node, name, k, pattern)


def _shape(node: Node, value: Value) -> Shape | None:
    """The shape of an operand; None for a value that is no array, or that is not written yet."""
    array = value.value if isinstance(value, Variable) else value
    return node.b.get_shape(array) if isinstance(array, Operand) else None


def _check_values(node: Node, name: str, number: int, pattern: Pattern) -> None:
    constant, minimum = node.constant_or_none(number), pattern.minimum
    if constant is None or not constant.size:
        return
    # Of sizes one by one: the smallest of them is not the same for all values.
    lowest = constant.ravel() if constant.dtype == object else [constant.min()]
    if not all(value > minimum if pattern.is_open else value >= minimum for value in lowest):
        raise ShapeError(f"{node.op}: {name} {constant.tolist()} should be {pattern.text}")
