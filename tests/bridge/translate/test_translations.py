"""Every translation, compiled, gives what TensorFlow's own kernel gives: the rows of the tables, one cluster per op."""

from __future__ import annotations

import dataclasses
import importlib

import pytest
from op_row import TABLE, check, runs, types_without_a_row
from tfbridge.bridge.translate.registry import translations
from tfbridge.runtime.llvm.target import host

MODULES = (
    "rows_elementwise",
    "rows_arrays",
    "rows_reductions",
    "rows_linear",
    "rows_variables",
    "rows_scatter_gather",
    "rows_optimizers",
    "rows_sorting",
    "rows_spaces",
    "rows_random",
    "rows_images",
    "rows_special_functions",
    "rows_incomplete_functions",
    "rows_linear_algebra",
    "rows_spectral",
    "rows_xla_ops",
    "rows_factorizations",
    "rows_stateful_random",
    "rows_uniform_quantization",
    "rows_detection",
    "rows_recurrent",
    "rows_resampling",
    "rows_bessel",
    "rows_dense_solvers",
    "rows_sharding",
    "rows_fused",
    "rows_sparse",
    "rows_ragged",
)


def _load() -> dict[str, list[str]]:
    of_module = {}
    for module in MODULES:
        start = len(TABLE)
        importlib.import_module(module)
        of_module[module] = [r.op for r in TABLE[start:]]
    return of_module


OF_MODULE = _load()
# Tested as parts of functions: control flow and lists need more than one node; the others have no results to compare,
# or random ones.
ELSEWHERE = frozenset(
    {
        "Const",
        "HostConst",
        "NoOp",
        "ControlTrigger",
        "PartitionedCall",
        "StatefulPartitionedCall",
        "While",
        "StatelessWhile",
        "If",
        "StatelessIf",
        "Case",
        "StatelessCase",
        "TensorListReserve",
        "EmptyTensorList",
        "TensorListFromTensor",
        "TensorListSetItem",
        "TensorListGetItem",
        "TensorListPushBack",
        "TensorListPopBack",
        "TensorListStack",
        "TensorListLength",
        "TensorListElementShape",
        "VarIsInitializedOp",
        "VariableShape",
        "ReadVariableOp",
        "TensorListGather",
        "TensorListConcat",
        "TensorListConcatV2",
        "TensorListSplit",
        "TensorListScatter",
        "TensorListScatterV2",
        "TensorListScatterIntoExistingList",
        "TensorListConcatLists",
        "TensorListResize",
        "RandomUniform",
        "RandomStandardNormal",
        "TruncatedNormal",
        "RandomUniformInt",
        "RandomShuffle",
        "NonDeterministicInts",
        "Multinomial",
        "RandomGamma",
        "RandomPoissonV2",
        "ParameterizedTruncatedNormal",
        "Assert",
        "TensorArrayV3",
        "TensorArrayGradV3",
        "TensorArrayWriteV3",
        "TensorArrayReadV3",
        "TensorArrayGatherV3",
        "TensorArrayScatterV3",
        "TensorArrayConcatV3",
        "TensorArraySplitV3",
        "TensorArraySizeV3",
        "TensorArrayCloseV3",
        "StackV2",
        "StackPushV2",
        "StackPopV2",
        "StackCloseV2",
        "OptionalFromValue",
        "OptionalNone",
        "OptionalHasValue",
        "OptionalGetValue",
        "XlaCallModule",
        "XlaCustomCall",
        "SymbolicGradient",
        "XlaCustomCallV2",
        "StatelessParameterizedTruncatedNormal",
        "_ArrayToList",
        "_ListToArray",
        "_EagerConst",
    }
)


@pytest.mark.parametrize("op", sorted({r.op for r in TABLE}))
def test_op(op: str) -> None:
    check(op)


def test_every_translation_has_a_row() -> None:
    assert translations().keys() - {r.op for r in TABLE} - ELSEWHERE == set()


# Types that an op's first row does not suit.
UNSUITED: dict[str, str] = {
    **dict.fromkeys(
        ("Conv", "Conv2DBackpropInput", "Conv3D", "Conv3DBackpropFilterV2"), "float16 bfloat16"
    ),  # rounded
    **dict.fromkeys(
        ("Dilation2DBackpropFilter",), "bfloat16"
    ),  # by TensorFlow after every addition, as those above
    "SparseAdd": "complex128",  # its threshold has the type of its parts
    "ImageProjectiveTransformV2": "float64",  # TensorFlow blends in float32
    **dict.fromkeys(("InTopK", "InTopKV2"), "int32 int64"),  # T is the targets' type
    **dict.fromkeys(("MaxPoolGradGrad", "MaxPoolGradGradV2"), "int8 uint8"),  # too many values for eight bits
    "BlockLSTMV2": "float16",
    "Round": "int32 int64",  # which TensorFlow's kernel makes zeros; tf.round leaves them
    "_FusedConv2D": "int8",  # takes scales besides
    # Registered for a type that the kernel itself refuses, or has no meaning for.
    **dict.fromkeys(("InplaceAdd", "InplaceSub", "ResourceScatterNdSub"), "bool"),
    "Tile": "uint16",
    "ToBool": "float16 bfloat16 uint16 uint32 uint64 complex64 complex128",
    "Bitcast": "complex64 complex128",
}


# What TensorFlow's oneDNN has no kernels for on CPUs without these instructions: it fails, or ends the process.
ONEDNN_NEEDS = {"float16": "+avx512fp16", "bfloat16": "+avx512bw"}


def _is_refused(op: str, type_name: str) -> bool:
    """Whether TensorFlow cannot run the op with this type here."""
    of_onednn = op in OF_MODULE["rows_fused"] and ONEDNN_NEEDS.get(
        type_name, ""
    ) not in host().features.split(",")
    return of_onednn and type_name in ONEDNN_NEEDS or type_name in UNSUITED.get(op, "").split()


def _without_a_row() -> dict[str, list[str]]:
    """Types by op that rows are made for from the op's first one; ops that XLA alone has are tried for one type."""
    rows = {r.op: r for r in reversed(TABLE) if r.reference is None}
    found = {
        op: types_without_a_row(op, translations()[op].types.get("T", translations()[op].types.get("dtype")))
        for op in rows
        if op in translations()
    }
    return {
        op: wanted
        for op, types in sorted(found.items())
        if (wanted := [t for t in types if not _is_refused(op, t)])
    }


WITHOUT_A_ROW = _without_a_row()


@pytest.mark.parametrize("op", WITHOUT_A_ROW)
def test_types_without_a_row(op: str) -> None:
    """The op's first row that TensorFlow has a kernel for, in all the types that no row names."""
    line = next(r for r in TABLE if r.op == op and r.reference is None)
    check(op, runs(op, [dataclasses.replace(line, types=tuple(WITHOUT_A_ROW[op]))]))


def test_unsuited_types_have_no_row() -> None:
    tested = {r.op: {t for line in TABLE if line.op == r.op for t in line.types} for r in TABLE}
    assert not {op for op, types in UNSUITED.items() if tested[op] & set(types.split())}
