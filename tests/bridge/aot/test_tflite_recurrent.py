"""Recurrent operators of .tflite files beside the interpreter, whose states outlive a run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from lite_files import Tensor, const, one_operator
from tfbridge.bridge.aot import __main__ as command
from tfbridge.bridge.aot.freeze import Frozen, freeze
from tfbridge.compiler.client.platforms import native
from tfbridge.compiler.errors import ShapeError, UnsupportedError
from tfbridge.compiler.options import DEFAULT_OPTIONS

Operands = list[Tensor | None]
KIND = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTM",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNN",
}


def numbers(*dims: int) -> np.ndarray:
    return np.random.default_rng(sum(dims)).normal(0, 0.5, dims).astype(np.float32)


def state(*dims: int) -> Tensor:
    return Tensor(dims, is_variable=True)


def layer(
    name: str, x: Sequence[int], result: Sequence[int], operands: Sequence[Tensor | None], **options: object
) -> bytes:
    """A file of one recurrent operator, on an argument of floats."""
    return one_operator(name, [Tensor(x), *operands], [Tensor(result)], KIND.get(name, name), **options)


def lstm_operands(rows: int, features: int, cells: int, **kinds: bool) -> Operands:
    """kinds: which of the optional operands there are."""
    has = kinds.get
    outputs = cells - 1 if has("projection") else cells
    kernels, recurrents = [
        [numbers(cells, inner) + sign * k / 9 for k in range(4)]
        for inner, sign in ((features, 1), (outputs, -1))
    ]
    if has("bytes"):
        weights = [const(np.clip(np.round(w * 100), -127, 127), "int8", 0.01) for w in kernels + recurrents]
    else:
        weights = [const(w) for w in kernels + recurrents]
    operands: Operands = [
        *weights,
        *(const(numbers(cells) + k) if has("peepholes") else None for k in range(3)),
        *(const(numbers(cells) + k / 3) for k in range(4)),
        *([const(numbers(outputs, cells)), const(numbers(outputs))] if has("projection") else [None] * 2),
        state(rows, outputs),
        state(rows, cells),
        *(const(numbers(cells) + 1) for _ in range(4 if has("normalised") else 0)),
    ]
    if has("coupled"):
        for place in (0, 4, 8, 11, 19):
            operands[place : place + 1] = [None] * len(operands[place : place + 1])
    return operands


def runs(frozen: Frozen, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(compiled, LiteRT's) results of each of a number of runs on one argument."""
    (function,) = frozen.functions
    random, compiled = np.random.default_rng(1), native().compile(function.module, DEFAULT_OPTIONS)
    arrays = [random.normal(size=s.dims).astype(np.float32) for s in function.module.entry.parameter_shapes]
    state_of = dict(function.state_arguments)
    for k, number in state_of.items():
        arrays[k] = np.array(frozen.states[number].value)
    own = [a for k, a in enumerate(arrays) if k not in state_of]
    pairs = []
    for run in range(1, count + 1):
        found = compiled.execute(arrays)
        pairs.append((np.array(found[0]), function.expected(own, run)[0]))
        written = {number: np.array(found[k]) for k, number in function.state_results}
        for k, number in state_of.items():
            arrays[k] = written[number]
    return pairs


def frozen_file(path: Path, content: bytes) -> Frozen:
    path.write_bytes(content)
    return freeze(str(path), (), "serving_default", {})


KINDS: dict[str, dict[str, bool]] = {
    "plain": {},
    "peepholes": {"peepholes": True},
    "coupled": {"coupled": True, "peepholes": True},
    "projection": {"projection": True},
    "normalised": {"normalised": True},
    "all": {"coupled": True, "peepholes": True, "projection": True, "normalised": True},
}
TANH = 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_time_first", [False, True], ids=["rows", "times"])
def test_lstm(kind: str, is_time_first: bool, tmp_path: Path) -> None:
    rows, times, features, cells = 3, 5, 2, 4
    operands = lstm_operands(rows, features, cells, **KINDS[kind])
    outputs = cells - 1 if "projection" in KINDS[kind] or kind == "all" else cells
    begin = (times, rows) if is_time_first else (rows, times)
    options = {"timeMajor": is_time_first, "cellClip": 0.8, "projClip": 0.6 if outputs < cells else 0.0}
    content = layer(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        (*begin, features),
        (*begin, outputs),
        operands,
        fusedActivationFunction=TANH,
        **options,
    )
    pairs = runs(frozen_file(tmp_path / "lstm.tflite", content), 3)
    assert np.abs(pairs[0][0] - pairs[1][0]).max() > 1e-3  # the state goes on
    for found, wanted in pairs:
        assert found.shape == wanted.shape == (*begin, outputs)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)


def test_lstm_with_weights_of_bytes(tmp_path: Path) -> None:
    """The interpreter rounds the values to bytes, too: code does not."""
    operands = lstm_operands(2, 4, 8, bytes=True)
    content = layer(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", (2, 6, 4), (2, 6, 8), operands, fusedActivationFunction=TANH
    )
    for found, wanted in runs(frozen_file(tmp_path / "lstm.tflite", content), 2):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=0.02)


def test_one_step_of_an_lstm(tmp_path: Path) -> None:
    content = layer("LSTM", (2, 3), (2, 5), lstm_operands(2, 3, 5), fusedActivationFunction=TANH)
    for found, wanted in runs(frozen_file(tmp_path / "lstm.tflite", content), 3):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize("activation", [0, 1, TANH], ids=["none", "relu", "tanh"])
@pytest.mark.parametrize("name", ["RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"])
def test_rnn(name: str, activation: int, tmp_path: Path) -> None:
    operands = [const(numbers(4, 3)), const(numbers(4, 4) / 2), const(numbers(4)), state(2, 4)]
    times = () if name == "RNN" else (5,)
    content = layer(name, (2, *times, 3), (2, *times, 4), operands, fusedActivationFunction=activation)
    for found, wanted in runs(frozen_file(tmp_path / "rnn.tflite", content), 3):
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("rank", [1, 2])
def test_svdf(rank: int, has_bias: bool, tmp_path: Path) -> None:
    units, times = 3, 7
    operands = [
        const(numbers(units * rank, 5)),
        const(numbers(units * rank, times)),
        const(numbers(units)) if has_bias else None,
        state(2, units * rank * times),
    ]
    content = layer("SVDF", (2, 5), (2, units), operands, rank=rank, fusedActivationFunction=1)
    for found, wanted in runs(frozen_file(tmp_path / "svdf.tflite", content), 3):
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.skipif(shutil.which("cc") is None, reason="the program is compiled in C")
def test_an_exported_program_keeps_the_state(tmp_path: Path) -> None:
    path = tmp_path / "lstm.tflite"
    content = layer(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        (1, 4, 3),
        (1, 4, 5),
        lstm_operands(1, 3, 5),
        fusedActivationFunction=TANH,
    )
    path.write_bytes(content)
    assert command.main([str(path), "--name", "net", "--out", str(tmp_path), "--with", "test"]) == 0
    assert "state" in (tmp_path / "net.h").read_text()
    subprocess.run(["cc", "net_test.c", "net.o", "-lm", "-o", "net"], check=True, cwd=tmp_path)
    subprocess.run([str(tmp_path / "net")], check=True)


def test_refusals(tmp_path: Path) -> None:
    operands, path = lstm_operands(2, 3, 5), tmp_path / "lstm.tflite"
    no_state = [*operands[:17], const(numbers(2, 5)), *operands[18:]]
    with pytest.raises(ShapeError, match="operand18 is no variable"):
        frozen_file(path, layer("LSTM", (2, 3), (2, 5), no_state))
    basic = layer("LSTM", (2, 3), (2, 5), operands, kernelType=1)
    with pytest.raises(UnsupportedError, match=r"lstm\.tflite(?s:.*)LSTM \(result0\): .* basic kind"):
        frozen_file(path, basic)
    operands[2] = None
    with pytest.raises(ShapeError, match="LSTM has no input 3"):
        frozen_file(path, layer("LSTM", (2, 3), (2, 5), operands))
