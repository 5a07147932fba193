"""A short run of each part of the fuzzer, and every case that was found before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .campaign import HERE, PARTS, Campaign, Outcome, Worker
from .shrink import shrunk
from .tf_programs import Case, Program, Step, parsed_case

CASES = sorted(p for p in (HERE / "cases").glob("*/*") if p.is_file())


@pytest.mark.parametrize("part", PARTS)
def test_some_cases(part: str, tmp_path: Path) -> None:
    campaign = Campaign(part, tmp_path)
    campaign.run(seed=1)
    logs = [
        f"{file}:\n{file.read_text()}\n{file.with_name(file.name + '.log').read_text()}"
        for file in campaign.files.values()
    ]
    assert not logs, "\n".join([campaign.line(), *logs])
    assert campaign.counts["rejected"] < sum(campaign.counts.values()), campaign.line()


@pytest.fixture(scope="module")
def workers() -> Iterator[dict[str, Worker]]:
    """Worker processes by part."""
    made: dict[str, Worker] = {}
    yield made
    for worker in made.values():
        worker.close()


@pytest.mark.parametrize("case", CASES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_case(case: Path, workers: dict[str, Worker]) -> None:
    part = case.parent.name
    worker = workers[part] if part in workers else workers.setdefault(part, Worker(part))
    outcome = worker.run(case.read_text(encoding="utf-8", errors="surrogatepass"))
    assert not outcome.is_finding, f"{outcome.word}: {outcome.message}"


def test_a_valid_case_that_is_rejected_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker("programs")
    try:
        monkeypatch.setattr(worker, "_outcome", lambda: Outcome("rejected"))
        assert worker.make(1)[1].is_finding
        assert not worker.run("").is_finding
    finally:
        worker.close()


def test_programs_are_read_as_they_were_written() -> None:
    """With loops in branches in loops."""
    inner = Program(
        (Step(2, "cond", (0, 1), 3, (Program((), (0,)), Program((Step(2, "tanh", (0,)),), (2,)))),), (2,)
    )
    case = Case("jit", (("int32", (3,), 1),), (), Program((Step(1, "while", (0, 0), 2, (inner,)),), (1,)))
    assert parsed_case(str(case)) == case


def test_shrunk() -> None:
    assert shrunk("a\nb x y\nc\nd\n", lambda text: "x" in text, (r"[^\n]*\n?", r"\s*\w"), 10.0) == " x"
