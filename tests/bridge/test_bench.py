"""The benchmark runs, compares with TensorFlow, and survives an engine that fails."""

from __future__ import annotations

import json
import math

import pytest
from rich.console import Console
from tfbridge.models import bench
from tfbridge.models.bench_report import (
    as_json,
    as_table,
    mean_first_call_ratios,
    mean_ratios,
    milliseconds,
    ratios,
)
from tfbridge.models.measurement import Measurement, Stopwatch


def text(results: dict[str, list[Measurement]]) -> str:
    console = Console(width=150)
    with console.capture() as capture:
        console.print(as_table(results, threads=2))
    return capture.get()


@pytest.fixture
def results() -> dict[str, list[Measurement]]:
    return {
        "mlp": [Measurement("tf", 1.0, [4.0, 40.0], 0.0), Measurement("xla", 2.0, [2.0, 20.0], 1e-7),
                Measurement("tfbridge", 0.5, [1.0, 10.0], 1e-7)],
        "launch": [Measurement("tf", 1.0, [1.0], 0.0), Measurement("xla", 2.0, [2.0], 0.5),
                   Measurement("tfbridge", failure="KeyError: 'x'")],
    }


def test_ratios_compare_within_a_round(results: dict[str, list[Measurement]]) -> None:
    assert ratios(results["mlp"]) == {"tf": 4.0, "xla": 2.0, "better": 2.0}
    assert ratios(results["launch"]) == {}
    assert mean_ratios(results) == pytest.approx({"tf": 4.0, "xla": 2.0, "better": 2.0})
    assert mean_first_call_ratios(results) == pytest.approx({"tf": 2.0, "xla": 4.0})


def test_json_has_no_nan(results: dict[str, list[Measurement]]) -> None:
    report = json.loads(json.dumps(as_json(results, threads=2), allow_nan=False))
    assert report["workloads"]["launch"]["engines"]["tfbridge"]["seconds"] is None
    assert report["workloads"]["mlp"]["engines"]["tf"]["seconds"] == 22.0


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


@pytest.mark.parametrize(("arguments", "message"), [
    (["--workloads", "resnet"], "there is no workload 'resnet'"),
    (["--engines", "tf,xlb"], "there is no engine 'xlb'"),
])
def test_unknown_names_are_refused(arguments: list[str], message: str,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.parse(arguments)
    assert message in capsys.readouterr().err


def test_engines_agree(capsys: pytest.CaptureFixture[str]) -> None:
    status = bench.main(["--quick", "--small", "--json", "--workloads", "mlp_training", "--engines", "tf,xla",
                         "--rounds", "1"])
    row = json.loads(capsys.readouterr().out)["workloads"]["mlp_training"]
    assert status == 0
    assert set(row["ratios"]) == {"tf"}
    for engine in ("tf", "xla"):
        assert row["engines"][engine]["seconds"] > 0
        assert row["engines"][engine]["first_call_seconds"] > row["engines"][engine]["seconds"]
    assert row["engines"]["tf"]["error"] == 0
    assert row["engines"]["xla"]["error"] <= row["tolerance"]


def test_an_engine_that_fails_stops_no_other() -> None:
    settings = bench.Settings(engines=("nonsense", "xla"), rounds=1, round_seconds=0.01, small=True)
    nonsense, xla = bench.measure("launch", settings)
    assert nonsense.failure == "KeyError: 'nonsense'"
    assert not xla.failure and xla.error == 0 and len(xla.round_seconds) == 1
