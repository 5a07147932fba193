"""Ops that TensorFlow runs beside the clusters, each with its reason."""

from __future__ import annotations

from .registry import stays

stays("NonMaxSuppressionWithOverlaps",
      because="the values of its inputs decide the shape of its result")
stays("CollectiveAssignGroupV2", "CollectiveReduceV2", "XlaSend", "XlaRecv",
      because="it exchanges values with other devices, which TensorFlow brings together")
stays("VarIsInitializedOp", "VarHandleOp", "_XlaAotOnlyVarHandleOp", "DestroyResourceOp", "ResourceCountUpTo",
      "IsResourceHandleRefCounting",
      because="it is about a variable's existence, which TensorFlow keeps; clusters take variables by their values")
stays("SymbolicGradient", because="its gradient function is built by TensorFlow's runtime")
stays("_Arg", "_Retval", because="it is an end of a graph; arguments and results of the cluster take its place")
stays("AdjustContrast", "BatchCholesky", "BatchCholeskyGrad", "BatchMatrixBandPart", "BatchMatrixDeterminant",
      "BatchMatrixDiag", "BatchMatrixDiagPart", "BatchMatrixInverse", "BatchMatrixSetDiag", "BatchMatrixSolve",
      "BatchMatrixSolveLs", "BatchMatrixTriangularSolve", "BatchNormWithGlobalNormalization",
      "BatchNormWithGlobalNormalizationGrad", "BatchSelfAdjointEig", "BatchSelfAdjointEigV2", "BatchSvd",
      "Conv3DBackpropFilter", "Conv3DBackpropInput", "MatrixExponential", "RandomCrop", "RandomPoisson",
      "SelfAdjointEig", "StatefulStandardNormal", "TileGrad", "TopK",
      because="graphs of today's version may not hold it: TensorFlow has other ops in its place")
stays("ComputeBatchSize", "CustomAggregator", "Fingerprint", "IsTensorFloat32Enabled",
      because="it works on datasets, files or settings, not on numbers")
