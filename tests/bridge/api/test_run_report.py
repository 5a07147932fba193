"""TFBRIDGE_REPORT=folder: reports of runs that end, that end with an error, that fork, and that are killed."""

from __future__ import annotations

import dataclasses
import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tfbridge
from run_python import run_python
from tfbridge.bridge.api import report_files
from tfbridge.bridge.api.run_report import ClusterRun, RunReport, run_report
from tfbridge.runtime import statistics

FUNCTION = """
import tensorflow as tf
@tf.function
def f(x):
    return tf.strings.as_string(tf.reduce_sum(tf.tanh(x) * 2 + tf.exp(x) - 1))
for _ in range(5):
    f(tf.ones(3))
"""
ENDS_WITH_AN_ERROR = f"""{FUNCTION}
import os, signal, sys
os.chdir("/")
def forked(work):
    child = os.fork()
    if not child:
        work()
        sys.exit(0)
    os.waitpid(child, 0)
    return child
def ended_by_a_signal():
    from tfbridge.runtime import statistics
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    statistics.count("memory_hits")
    os.kill(os.getpid(), signal.SIGTERM)
forked(lambda: None)
print(forked(ended_by_a_signal))
raise ValueError("the data is odd: \\udc80")
"""
IS_KILLED = f"""{FUNCTION}
import json, os, pathlib, signal, time
end = time.monotonic() + 100
while time.monotonic() < end:
    texts = [path.read_text() for path in pathlib.Path(os.environ["TFBRIDGE_REPORT"]).glob("*.json")]
    if texts and json.loads(texts[0])["stats"]["clusters_compiled"]:
        break
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""
REPORT = RunReport(
    ("train.py", "--rate", "<3>"),
    1e9,
    True,
    "",
    20.0,
    35.0,
    {
        **dict.fromkeys((*statistics.COUNTERS, *statistics.TOTALS), 0),
        "clusters_compiled": 2,
        "recompiles": 9,
        "specialized_calls": 110,
        "served_by_tensorflow": 7,
        "ops_left_out": {
            "AsString: there is no translation of this op": 2,
            "IteratorGetNext: there is no translation of this op": 1,
            "a reason of its own": 5,
        },
    },
    (
        ClusterRun("first", 7, 10, 3, 1.5, ("f32[3]", "f32[4]"), 100, 5, 0.001, 0.004),
        ClusterRun("second", 4, 1, 1, 0.5, ("f32[]",), 10, 2, 0.002),
    ),
)


def reports_in(folder: Path) -> dict[int, dict[str, Any]]:
    """The reports of a folder by process. Each has a page, and nothing else is there."""
    reports = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert len(list(folder.iterdir())) == 2 * len(reports)
    for path in folder.glob("*.json"):
        assert path.with_suffix(".html").read_text().startswith("<!DOCTYPE html>")
    return {report["process"]: report for report in reports}


def test_a_run_that_ends_with_an_error_and_its_forks(tmp_path: Path) -> None:
    done = run_python(ENDS_WITH_AN_ERROR, cwd=tmp_path, TFBRIDGE_REPORT="made/reports")
    assert done.returncode == 1 and "ValueError: the data is odd" in done.stderr
    reports = reports_in(tmp_path / "made" / "reports")
    child = reports.pop(int(done.stdout))  # the other one did nothing
    assert child["ended"] and not child["error"] and child["stats"]["memory_hits"]
    [report] = reports.values()
    assert report["ended"] and report["error"].startswith("ValueError: the data is odd")
    [cluster] = report["clusters"]
    assert cluster["calls"] == report["stats"]["specialized_calls"] >= 4  # the guard has one more to itself
    assert (cluster["compilations"], cluster["shapes"]) == (1, ["f32[3]"])
    assert any("AsString" in change["seen"] for change in report["changes"])


def test_a_run_that_is_killed(tmp_path: Path) -> None:
    done = run_python(IS_KILLED, TFBRIDGE_REPORT=str(tmp_path))
    assert done.returncode == -signal.SIGKILL, done.stderr
    [report] = reports_in(tmp_path).values()
    assert not report["ended"] and report["stats"]["clusters_compiled"] == 1
    assert "The run had not ended" in next(tmp_path.glob("*.html")).read_text()


def test_a_folder_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    files = report_files.ReportFiles(str(tmp_path / "file" / "folder"))
    with caplog.at_level(logging.WARNING, "tfbridge"):
        assert not files.open()
        files.end()
    [message] = caplog.messages
    assert message.startswith(f"TFBRIDGE_REPORT={tmp_path}/file/folder: the report is not written: [Errno")


def test_a_thread_writes_after_a_compilation(tmp_path: Path) -> None:
    files = report_files.ReportFiles(str(tmp_path))
    assert files.open()
    statistics.count("memory_hits")
    files.note_compilation()
    hits, deadline = statistics.stats()["memory_hits"], time.monotonic() + 60
    [path] = tmp_path.glob("*.json")
    while (report := json.loads(path.read_text()))["stats"]["memory_hits"] < hits:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    files.end()
    [ended] = reports_in(tmp_path).values()
    assert ended["ended"] and not report["ended"]


def test_code_that_runs_for_the_first_time_is_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = report_files.ReportFiles(str(tmp_path))
    assert files.open()
    monkeypatch.setattr(statistics.process, "on_record", files.note_compilation)
    monkeypatch.setattr(files, "_thread", threading.current_thread())  # there is none that writes
    statistics.record(statistics.ClusterRecord("just_compiled", 7, key="just_compiled#1"))
    [path] = tmp_path.glob("*.json")
    assert "just_compiled" in [cluster["name"] for cluster in json.loads(path.read_text())["clusters"]]


def test_errors_in_callbacks_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        raise ValueError("in a callback")
    except ValueError as error:
        monkeypatch.setattr(sys, "last_value", error, raising=False)
        monkeypatch.setattr(sys, "last_traceback", error.__traceback__, raising=False)
    assert report_files._last_error() == ""
    monkeypatch.setitem(globals(), "__name__", "__main__")
    assert report_files._last_error() == "ValueError: in a callback"


def test_text_of_a_report() -> None:
    lines = [" ".join(line.split()) for line in str(REPORT).splitlines()]
    assert "first 7 3 10 1.500 100 5 1.000 4.000 f32[3]; f32[4]" in lines
    assert "second 4 1 1 0.500 10 2 2.000 f32[]" in lines
    assert "5 a reason of its own" in lines
    changes = lines[lines.index("what to change") + 1 :]
    assert changes[0] == "2 clusters were compiled 9 times more, for other shapes or values"
    assert changes[2] == "2 ops: AsString: there is no translation of this op"
    assert changes[3].startswith("Move it before or after the numeric part")


def test_page_of_a_report() -> None:
    page = REPORT.html()
    assert "train.py --rate &lt;3&gt;" in page and "The run ended." in page
    assert "estimated for 100 of 110" in page
    assert "<td>0.100</td><td>0.400</td>" in page
    killed = dataclasses.replace(REPORT, has_ended=False)
    assert "The run had not ended 20.0 s after its start" in killed.html()
    assert json.loads(json.dumps(killed.as_dict()))["clusters"][0]["saved_seconds"] == pytest.approx(0.3)


def test_a_program_without_graphs_is_told_to_make_some() -> None:
    nothing = dataclasses.replace(
        REPORT, stats={**REPORT.stats, "clusters_compiled": 0, "served_by_tensorflow": 0, "ops_left_out": {}}
    )
    assert [change.seen for change in nothing.changes][0] == "no cluster was compiled"


def test_clusters_of_this_process_are_counted_by_key() -> None:
    tfbridge.reset_stats()
    functions = [tfbridge.jit(lambda x, k=k: tf.tanh(x) * k + tf.exp(x)) for k in (1.0, 2.0)]
    for times, f in enumerate(functions, 2):
        for _ in range(times):
            f(tf.ones(5))
    assert sorted(cluster.calls for cluster in run_report(0.0).clusters if cluster.compilations) == [2, 3]
