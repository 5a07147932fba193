"""Every translation, compiled, gives what TensorFlow's own kernel gives: the rows of the tables, one cluster per op."""

from __future__ import annotations

import importlib

import pytest
from op_row import TABLE, check
from tfbridge.bridge.translate.registry import translations

MODULES = ("rows_elementwise", "rows_arrays", "rows_reductions", "rows_linear", "rows_variables",
           "rows_scatter_gather", "rows_optimizers", "rows_sorting", "rows_spaces", "rows_random", "rows_images",
           "rows_special_functions", "rows_incomplete_functions",
           "rows_linear_algebra", "rows_spectral", "rows_xla_ops", "rows_factorizations", "rows_stateful_random",
           "rows_uniform_quantization", "rows_detection", "rows_recurrent", "rows_resampling",
           "rows_bessel", "rows_dense_solvers", "rows_sharding")


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
ELSEWHERE = frozenset({
    "Const", "HostConst", "NoOp", "ControlTrigger", "PartitionedCall", "StatefulPartitionedCall",
    "While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase", "TensorListReserve", "EmptyTensorList",
    "TensorListFromTensor", "TensorListSetItem", "TensorListGetItem", "TensorListPushBack", "TensorListPopBack",
    "TensorListStack", "TensorListLength", "TensorListElementShape", "VarIsInitializedOp", "VariableShape",
    "ReadVariableOp", "TensorListGather", "TensorListConcat", "TensorListConcatV2", "TensorListSplit",
    "TensorListScatter", "TensorListScatterV2", "TensorListScatterIntoExistingList", "TensorListConcatLists",
    "TensorListResize", "RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt",
    "RandomShuffle", "NonDeterministicInts", "Multinomial", "RandomGamma", "RandomPoissonV2",
    "ParameterizedTruncatedNormal",
})


@pytest.mark.parametrize("op", sorted({r.op for r in TABLE}))
def test_op(op: str) -> None:
    check(op)


def test_every_translation_has_a_row() -> None:
    public = {op for op in translations() if not op.startswith("_")}  # what a graph pass made has tests of its own
    assert public - {r.op for r in TABLE} - ELSEWHERE == set()
