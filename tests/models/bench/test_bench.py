"""The benchmark runs, compares with TensorFlow, and survives an engine that fails."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console
from tfbridge.compiler.cpu import machine_peak
from tfbridge.models.bench import __main__ as bench
from tfbridge.models.bench import compile_suite, kernel_suite
from tfbridge.models.bench.engines import ENGINES
from tfbridge.models.bench.measurement import Kernel, Measurement, Stopwatch
from tfbridge.models.bench.plot import plot
from tfbridge.models.bench.report import (
    as_json,
    as_table,
    mean_first_call_ratios,
    mean_ratios,
    milliseconds,
    ratios,
    roofline_share,
)
from tfbridge.models.bench.roofline import Machine
from tfbridge.models.bench.workloads import WORKLOADS, relative_error

MACHINE = Machine(2, 1e9, ((1000, 4e9), (2000, 2e9)))


def text(results: dict[str, list[Measurement]]) -> str:
    console = Console(width=220)
    with console.capture() as capture:
        console.print(as_table(results, "workloads", MACHINE))
    return capture.get()


@pytest.fixture
def results() -> dict[str, list[Measurement]]:
    kernels = [Kernel("product", "MatMul", 1, 5e8, 1e6, 0.6), Kernel("fusion", "Relu", 2, 1e6, 4e8, 0.4)]
    return {
        "mlp": [
            Measurement("tf", 1.0, [4.0, 40.0], 0.0),
            Measurement("xla", 2.0, [2.0, 20.0], 1e-7),
            Measurement(
                "tfbridge",
                0.5,
                [1.0, 10.0],
                1e-7,
                warm_first_call_seconds=0.25,
                footprint_bytes=1500,
                kernels=kernels,
            ),
        ],
        "mlp_training": [
            Measurement("tf", 1.0, [2.0], 0.0),
            Measurement("xla", 8.0, [0.5], 1e-7),
            Measurement("tfbridge", 1.0, [1.0], 1e-7),
        ],
        "launch": [
            Measurement("tf", 1.0, [1.0], 0.0),
            Measurement("xla", 2.0, [2.0], 0.5),
            Measurement("tfbridge", failure="KeyError: 'x'"),
        ],
    }


def test_ratios_compare_within_a_round(results: dict[str, list[Measurement]]) -> None:
    assert ratios(results["mlp"]) == {"tf": 4.0, "xla": 2.0, "better": 2.0}
    assert ratios(results["launch"]) == {}


def test_means_are_of_all_and_of_each_kind(results: dict[str, list[Measurement]]) -> None:
    means = mean_ratios(results)
    assert means["inference"] == pytest.approx({"tf": 4.0, "xla": 2.0, "better": 2.0})
    assert means["training"] == pytest.approx({"tf": 2.0, "xla": 0.5, "better": 0.5})
    assert means["all"] == pytest.approx({"tf": math.sqrt(8), "xla": 1.0, "better": 1.0})
    assert mean_first_call_ratios(results) == pytest.approx({"cold": math.sqrt(4 * 8), "warm": 8.0})


def test_rivals_on_arrays_are_compared_with_calls_on_arrays() -> None:
    row = [
        Measurement("tf", 1.0, [6.0]),
        Measurement("openvino", 1.0, [4.0]),
        Measurement("litert", 1.0, [2.0]),
        Measurement("tfbridge-native", 1.0, [1.0]),
        Measurement("tfbridge", 1.0, [3.0]),
    ]
    assert ratios(row) == pytest.approx(
        {"tf": 2.0, "openvino": 4.0, "litert": 2.0, "tfbridge-native": 1 / 3, "rivals": 2.0}
    )


def test_roofline_takes_the_slower_limit_of_each_kernel(results: dict[str, list[Measurement]]) -> None:
    # 0.5 s for the product's flops, and 0.1 s for the fusion's bytes within a footprint between 1000 and 2000.
    assert roofline_share(results["mlp"], MACHINE) == pytest.approx(0.6 / 5.5)
    assert math.isnan(roofline_share(results["mlp_training"], MACHINE))
    assert [MACHINE.bytes_per_second(size) for size in (1, 1000, 1999, 2000, 9999)] == [
        4e9,
        4e9,
        4e9,
        2e9,
        2e9,
    ]


def test_json_has_no_nan(results: dict[str, list[Measurement]]) -> None:
    report = json.loads(json.dumps(as_json(results, "workloads", MACHINE), allow_nan=False))
    assert report["workloads"]["launch"]["engines"]["tfbridge"]["seconds"] is None
    assert report["workloads"]["mlp"]["engines"]["tf"]["seconds"] == 22.0
    assert report["workloads"]["mlp"]["engines"]["tfbridge"]["flops"] == 5.01e8


def test_plot_is_a_picture(results: dict[str, list[Measurement]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(results, "workloads", tmp_path / "ratios.png")
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


def test_table_names_the_failure(results: dict[str, list[Measurement]]) -> None:
    table = text(results)
    assert "launch, tfbridge: KeyError: 'x'" in table
    assert "5e-01" in table


@pytest.mark.parametrize(("seconds", "shown"), [(1.2345, "1234"), (0.0123, "12.3"), (1.5e-6, "0.00150")])
def test_milliseconds_keep_three_digits(seconds: float, shown: str) -> None:
    assert milliseconds(seconds) == shown


def test_stopwatch_repeats_short_calls() -> None:
    calls = []
    waited = []
    stopwatch = Stopwatch(calls.append, (1,), waited.append)
    stopwatch.warm_up(0.01)
    calls.clear()
    waited.clear()
    assert 0 < stopwatch.sample() < math.inf
    assert len(calls) > 1 and len(waited) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workloads", "resnet"], "there is no workload 'resnet'"),
        (["--engines", "tf,xlb"], "there is no engine 'xlb'"),
    ],
)
def test_unknown_names_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench.parse(arguments)
    assert message in capsys.readouterr().err


def test_engines_agree(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status = bench.main(
        [
            "--quick",
            "--small",
            "--json",
            "--workloads",
            "mlp_training",
            "--rounds",
            "1",
            "--save",
            str(tmp_path / "results.json"),
        ]
    )
    printed = capsys.readouterr().out
    report = json.loads(printed)
    row = report["workloads"]["mlp_training"]
    assert status == 0
    assert json.loads((tmp_path / "results.json").read_text()) == report
    assert set(row["ratios"]) == {"tf", "xla", "better"}
    assert set(row["first_call_ratios"]) == {"cold", "warm", "tracing"}
    for engine in ("tf", "xla", "tfbridge"):
        measured = row["engines"][engine]
        assert measured["first_call_seconds"] > measured["seconds"] >= measured["least_seconds"] > 0
        assert measured["error"] <= (0 if engine == "tf" else row["tolerance"])
    assert row["engines"]["tfbridge"]["flops"] > 3 * 2 * 16 * (784 * 64 + 64 * 64 + 64 * 10) * 0.6
    assert row["roofline"] > 0


def test_one_process_runs_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        bench.main(
            [
                "--suite",
                "ops",
                "--quick",
                "--small",
                "--json",
                "--workloads",
                "sort,argmax",
                "--rounds",
                "1",
                "--engines",
                "numpy,tfbridge",
            ]
        )
        == 0
    )
    rows = json.loads(capsys.readouterr().out)["workloads"]
    assert list(rows) == ["sort", "argmax"]
    for row in rows.values():
        assert row["ratios"]["numpy"] > 0 and not row["first_call_ratios"]
        for measured in row["engines"].values():
            assert measured["error"] == 0 and measured["seconds"] >= measured["least_seconds"] > 0
            assert measured["first_call_seconds"] is None and measured["peak_bytes"] == 0


def test_an_engine_that_fails_stops_no_other() -> None:
    settings = bench.Settings(engines=("nonsense", "xla"), rounds=1, round_seconds=0.01, small=True)
    nonsense, xla = bench.measure("launch", settings)
    assert nonsense.failure == "KeyError: 'nonsense'"
    assert not xla.failure and xla.error == 0 and len(xla.round_seconds) == 1


@pytest.mark.parametrize("name", ["openvino", "onnxruntime", "litert"])
def test_optional_engines_agree(name: str) -> None:
    if not ENGINES[name].is_installed:
        pytest.skip(f"{name} is not installed")
    program = WORKLOADS["layernorm_gelu_softmax"].build_small()
    function = ENGINES[name].prepare(program, 1)()
    assert relative_error(program.run(function, inputs=program.arrays), program.run()) <= 1e-5


def test_machine_has_peaks() -> None:
    one = machine_peak.flops_per_second(1, samples=1)
    assert 1e8 < one < 1e13
    assert 1e8 < machine_peak.copied_bytes_per_second(1 << 16, 2, samples=1) < 1e13


def test_kernel_suite_counts_work() -> None:
    row = next(r for r in kernel_suite.rows() if r.name == "product 256 x 256 x 256")
    seconds, flops = kernel_suite.time_of(row, 1, 0.01)
    assert flops == 2 * 256**3 and seconds > 0


@pytest.mark.parametrize("family", compile_suite.FAMILIES)
def test_compile_suite_measures_both_engines_on_the_same_results(family: str) -> None:
    row = compile_suite.measure(family, 6, 1)
    assert row.error < compile_suite.TOLERANCE
    assert row.seconds.keys() == set(compile_suite.ENGINES) and all(0 < s < 100 for s in row.seconds.values())


@pytest.mark.parametrize("family", compile_suite.FAMILIES)
def test_compile_suite_has_results_that_can_differ(family: str) -> None:
    build = compile_suite.FAMILIES[family][0]
    x = tf.constant([0.1, 0.5, 0.9])
    results = tf.nest.flatten(build(100)([x] * 100 if "input each" in family else x))
    assert all(np.isfinite(r).all() for r in results) and np.all(results[-1])


def test_compile_suite_sees_a_result_that_is_no_number() -> None:
    one, nan = np.ones(2), np.array([1.0, np.nan])
    assert np.isnan(compile_suite._difference([one, one], [one, nan]))
