"""The suite `shapes`: every case runs, its results agree with TensorFlow's, and the tables show them."""

from __future__ import annotations

import json
import math

import pytest
import tfbridge
from tfbridge.models.bench import __main__ as bench
from tfbridge.models.bench.shapes import report
from tfbridge.models.bench.shapes.case import Outcome, Scale
from tfbridge.models.bench.shapes.cases import CASES

QUICK = Scale(threads=2, seconds=0.5, quick=True)
# One of the workloads stands for all of them.
NAMES = [name for name in CASES if "/" not in name or name.endswith("/mlp")]


@pytest.mark.parametrize("name", NAMES)
def test_case_runs_and_agrees_with_tensorflow(name: str) -> None:
    case = CASES[name]
    plain = case.measure("tf", QUICK)
    tfbridge.reset_stats()
    if "tfbridge" in case.engines:
        compiled = case.measure("tfbridge", QUICK)
    else:
        tfbridge.enable_auto_clustering()
        try:
            compiled = case.measure("tfbridge-auto", QUICK)
        finally:
            tfbridge.disable_auto_clustering()
    assert compiled.values["clusters with code"], "nothing was compiled"
    assert report.error(compiled, plain) < report.TOLERANCE
    assert all(result > 0 for result in plain.results)
    assert len(compiled.call_seconds) == len(plain.call_seconds)
    for outcome in plain, compiled:
        assert all(value is None or value >= 0 for value in outcome.values.values())


@pytest.fixture
def results() -> report.Results:
    plain = Outcome({"p50 ms": 2.0, "compilations": None}, [1.0, 2.0], [4.0, 1.0])
    return {
        "new_shapes": {
            "tf": plain,
            "xla": Outcome(failure="ValueError: no such shape"),
            "tfbridge": Outcome({"p50 ms": 1.0, "compilations": 2}, [1.0, 1.0], [4.0, 1.0]),
        }
    }


def test_calls_are_compared_with_the_same_calls(results: report.Results) -> None:
    row = results["new_shapes"]
    assert report.ratios(row["tfbridge"], row["tf"])["of TF p50"] == 0.75
    assert report.ratios(row["xla"], row["tf"]) == {}


def test_results_that_differ_are_wrong(results: report.Results) -> None:
    assert not report.is_wrong(results)  # XLA may fail
    row = results["new_shapes"]
    row["tfbridge"].results = [4.0, 1.1]
    assert report.error(row["tfbridge"], row["tf"]) == pytest.approx(0.1 / 4)
    assert report.is_wrong(results)
    row["tfbridge"].results = [4.0, math.nan]
    assert report.is_wrong(results)
    row["tfbridge"] = Outcome(failure="ended")
    assert report.is_wrong(results)


def test_tables_show_numbers_and_failures(
    results: report.Results, capsys: pytest.CaptureFixture[str]
) -> None:
    report.print_tables(results, QUICK)
    printed = capsys.readouterr().out
    assert "0.750" in printed and "failed" in printed
    assert "new_shapes, xla: ValueError: no such shape" in printed


def test_engines_run_in_processes_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--suite", "shapes", "--quick", "--json", "--workloads", "first_call/launch"]
    assert bench.main([*arguments, "--engines", "xla,tfbridge"]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    (row,) = cases.values()
    assert list(row) == ["tf", "xla", "tfbridge"]
    assert [outcome["values"]["compilations"] for outcome in row.values()] == [None, 1, 1]
    assert all(outcome["error"] <= report.TOLERANCE for outcome in row.values())


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--workloads", "generation"], {"growing_cache", "fixed_cache"}),
        (["--workloads", "server,boolean_mask"], {"server", "boolean_mask"}),
        ([], set(CASES)),
    ],
)
def test_workloads_are_cases_or_tables(arguments: list[str], names: set[str]) -> None:
    settings, _ = bench.parse(["--suite", "shapes", *arguments])
    assert set(settings.workloads) == names
