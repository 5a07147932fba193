"""Ops that TensorFlow runs beside the clusters, each with its reason."""

from __future__ import annotations

from .registry import stays

stays("NonMaxSuppressionWithOverlaps", because="the values of its inputs decide the shape of its result")
stays(
    "CollectiveAssignGroupV2",
    "CollectiveReduceV2",
    because="it exchanges values with other devices or workers: TensorFlow's runtime brings them together",
)
stays(
    "XlaSend",
    "XlaRecv",
    because="only a program at the other end of XLA's channel, outside of the graph, answers",
)
stays(
    "Eig", because="the order of its eigenvalues and the phases of its eigenvectors are those of its kernel"
)
stays(
    "_XlaAotOnlyVarHandleOp", because="TensorFlow cannot run it: XLA's own AOT compiler puts it into graphs"
)
stays(
    "VarHandleOp",
    "DestroyResourceOp",
    "ResourceCountUpTo",
    "IsResourceHandleRefCounting",
    because="it is about a variable's existence, which TensorFlow keeps; clusters take variables by their values",
)
stays(
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
    because="graphs of today's version may not hold it: TensorFlow has other ops in its place",
)
stays(
    "ComputeBatchSize",
    "CustomAggregator",
    "Fingerprint",
    "IsTensorFloat32Enabled",
    because="it works on datasets, files or settings, not on numbers",
)
