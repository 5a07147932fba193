"""The benchmark of exported models, on its smallest one."""

from __future__ import annotations

import shutil

import pytest
from tfbridge.models.bench.__main__ import AOT, parse
from tfbridge.models.bench.aot_suite import MODELS, _in_process, measure
from tfbridge.runtime.llvm.target import host


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("kind", ["int8", "int8.tflite"])
def test_integers_beside_litert(kind: str) -> None:
    row = measure("keyword_spotter", kind, "", 0.1)
    assert set(row.microseconds) == {"tfbridge", "litert"} and row.ratio is not None
    assert row.decibels["tfbridge"] > 30 and row.file_bytes
    assert 0 < row.code_bytes < row.object_bytes and row.temp_bytes < 200_000


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.skipif(host().vector_bytes < 64, reason="no AVX-512")
def test_litert_without_avx512() -> None:
    """In a process of its own, since LiteRT's choice is for good."""
    row = _in_process("keyword_spotter", "int8", "x86-64-v3", 0.1)
    assert row.ratio is not None and row.decibels["litert"] > 30


def test_command_line() -> None:
    settings, _ = parse(
        ["--suite", "aot", "--workloads", "lstm", "--kinds", "f32", "--target-cpu", "x86-64-v3"]
    )
    assert (settings.suite, settings.workloads, settings.engines) == (AOT, ("lstm",), ("f32",))
    assert settings.target_cpu == "x86-64-v3" and set(MODELS) >= {"resnet50", "transformer"}
    with pytest.raises(SystemExit):
        parse(["--suite", "aot", "--kinds", "int3"])
