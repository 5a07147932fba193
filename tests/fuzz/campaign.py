"""Cases run in worker processes: one at a time, or a part's for some time, with findings shrunk and written down."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import select
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .shrink import shrunk

HERE = Path(__file__).parent
PARTS = sorted(p.stem for p in (HERE / "parts").glob("*.py") if p.stem != "__init__")
FINDINGS = ("internal error", "difference", "hang", "crash", "refused", "broken part")
_STALL = 6.0
"""A case that takes so many times its processor time on the clock hangs too."""
_CASES_A_PROCESS = 1000
_SHRINK_SECONDS = 60.0
_MOST_FINDINGS = 20
_TICK = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a case did: a word; of a finding what tells it from others, and how it shows."""

    word: str
    signature: str = ""
    message: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether the case shows a defect."""
        return self.word in FINDINGS


class Worker:
    """A worker process of a part, started anew when it has died, hung or run many cases."""

    def __init__(self, part: str) -> None:
        self.part = part
        self._process: subprocess.Popen[str] | None = None
        self._buffer = b""
        self._cases = 0
        self.about: dict[str, Any] = {}
        self._start()

    def _start(self) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "TFBRIDGE_COMPILE": "foreground",  # compiled code is what is compared
            "TFBRIDGE_DISK_CACHE": "0",
            "PYTHONHASHSEED": "0",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker", self.part],
            cwd=HERE.parent,
            text=True,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._buffer, self._cases = b"", 0
        found = self._answer(120.0)
        if found is None:
            self.close()
            raise RuntimeError(f"the part {self.part} does not start: python -m fuzz.worker {self.part}")
        self.about = found
        return self._process

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process = None

    def make(self, seed: int) -> tuple[str, Outcome]:
        """The case of a seed, and what it did."""
        self._ask(seed=seed)
        found = self._answer(self.about["seconds"])
        if found is None:
            return f"seed {seed}\n", self._dead()
        outcome = self._outcome()
        if outcome.word == "rejected" and self.about["is_valid"]:
            return found["text"], Outcome("refused", "refused", "a valid case is rejected")
        return found["text"], outcome

    def run(self, text: str) -> Outcome:
        """What a case did."""
        self._ask(text=text)
        return self._outcome()

    def _ask(self, **request: Any) -> None:
        process = self._process
        if process is None or self._cases >= _CASES_A_PROCESS:
            self.close()
            process = self._start()
        self._cases += 1
        assert process.stdin is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()

    def _outcome(self) -> Outcome:
        found = self._answer(self.about["seconds"])
        if found is None:
            return self._dead()
        outcome = Outcome(found["outcome"], found.get("signature", ""), found.get("message", ""))
        if "MemoryError" in outcome.message:
            self.close()
        return outcome

    def _dead(self) -> Outcome:
        process = self._process
        assert process is not None
        code = process.poll()
        self.close()
        if code is None:
            return Outcome("hang", "hang", f"more than {self.about['seconds']} s of processor time")
        return Outcome(
            "crash", f"signal {-code}" if code < 0 else f"exit {code}", f"the process ended with {code}"
        )

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        """The next answer; None when the process has ended or takes too long."""
        process = self._process
        assert process is not None and process.stdout is not None
        started, used = time.monotonic(), _processor_seconds(process.pid)
        while b"\n" not in self._buffer:
            if not select.select([process.stdout], [], [], 0.5)[0]:
                stalled = time.monotonic() - started > seconds * _STALL
                if stalled or _processor_seconds(process.pid) - used > seconds:
                    return None
                continue
            more = os.read(process.stdout.fileno(), 1 << 16)
            if not more:
                process.wait()
                return None
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)


def _processor_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


@dataclasses.dataclass
class Campaign:
    """The counts of one part's run, and its findings: a file for each that is unlike the others."""

    part: str
    findings: Path
    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    files: dict[str, Path] = dataclasses.field(default_factory=dict)

    def run(self, seed: int, seconds: float | None = None, cases: int | None = None) -> None:
        """Cases from a seed on, until the time or their number is over (None: the part's own quick number)."""
        worker = Worker(self.part)
        end = None if seconds is None else time.monotonic() + seconds
        number = cases if cases is not None or seconds is not None else worker.about["quick"]
        try:
            for k in itertools.count():
                if k == number or (end is not None and time.monotonic() > end):
                    return
                text, outcome = worker.make(seed * 1_000_003 + k)
                self.counts[outcome.word] += 1
                if outcome.is_finding:
                    self._note(worker, text, outcome)
        finally:
            worker.close()

    def _note(self, worker: Worker, text: str, outcome: Outcome) -> None:
        name = re.sub(r"[^\w.\-]+", "-", outcome.signature)
        if name in self.files and (outcome.word != "difference" or len(self.files) > _MOST_FINDINGS):
            return
        if name in self.files:
            name = next(n for k in itertools.count(2) if (n := f"{name}-{k}") not in self.files)
        folder = self.findings / self.part
        folder.mkdir(parents=True, exist_ok=True)
        file = self.files[name] = folder / (name + worker.about["suffix"])
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        file.with_name(file.name + ".log").write_text(outcome.message, encoding="utf-8", errors="replace")
        if outcome.word in ("refused", "broken part"):
            return

        def same(candidate: str) -> bool:
            found = worker.run(candidate)
            return (found.word, found.signature) == (outcome.word, outcome.signature)

        small = shrunk(text, same, worker.about["units"], _SHRINK_SECONDS)
        file.write_text(small, encoding="utf-8", errors="surrogatepass")

    def line(self) -> str:
        """The counts as a row."""
        total = sum(self.counts.values())
        found = [f"{self.counts[word]} {word}" for word in FINDINGS[:4]]
        found += [f"{self.counts[word]} {word}" for word in FINDINGS[4:] if self.counts[word]]
        other = [f"{count} {word}" for word, count in sorted(self.counts.items()) if word not in FINDINGS]
        return f"{self.part:16} {total:8} cases: {', '.join([*other, *found])}"


def part_of(file: Path) -> str:
    """The part of a case's file: its folder's name."""
    return file.resolve().parent.name
