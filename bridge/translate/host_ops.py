"""Host ops: ops that TensorFlow runs beside the clusters, each with its reason."""

from __future__ import annotations

_OPS_BY_REASON = {
    "it exchanges values with other devices or workers: TensorFlow's runtime brings them together": (
        "CollectiveAssignGroupV2",
        "CollectiveReduceV2",
    ),
    "only a program at the other end of XLA's channel, outside of the graph, answers": (
        "XlaSend",
        "XlaRecv",
    ),
    "the order of its eigenvalues and the phases of its eigenvectors are those of its kernel": ("Eig",),
    "TensorFlow cannot run it: XLA's own AOT compiler puts it into graphs": ("_XlaAotOnlyVarHandleOp",),
    "it is about a variable's existence, which TensorFlow keeps; clusters take variables by their values": (
        "VarHandleOp",
        "DestroyResourceOp",
        "ResourceCountUpTo",
        "IsResourceHandleRefCounting",
    ),
    "graphs of today's version may not hold it: TensorFlow has other ops in its place": (
        "AdjustContrast",
        "BatchCholesky",
        "BatchCholeskyGrad",
        "BatchMatrixBandPart",
        "BatchMatrixDeterminant",
        "BatchMatrixDiag",
        "BatchMatrixDiagPart",
        "BatchMatrixInverse",
        "BatchMatrixSetDiag",
        "BatchMatrixSolve",
        "BatchMatrixSolveLs",
        "BatchMatrixTriangularSolve",
        "BatchNormWithGlobalNormalization",
        "BatchNormWithGlobalNormalizationGrad",
        "BatchSelfAdjointEig",
        "BatchSelfAdjointEigV2",
        "BatchSvd",
        "Conv3DBackpropFilter",
        "Conv3DBackpropInput",
        "MatrixExponential",
        "RandomCrop",
        "RandomPoisson",
        "SelfAdjointEig",
        "StatefulStandardNormal",
        "TileGrad",
        "TopK",
    ),
    "it works on datasets, files or settings, not on numbers": (
        "ComputeBatchSize",
        "CustomAggregator",
        "Fingerprint",
        "IsTensorFloat32Enabled",
    ),
}
HOST_OPS = {op: reason for reason, ops in _OPS_BY_REASON.items() for op in ops}
"""The reason of every host op."""
