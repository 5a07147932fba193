"""The command: `python -m fuzz` runs the parts, `python -m fuzz FILE ...` runs cases again."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .campaign import FINDINGS, PARTS, Campaign, Worker, part_of


def main() -> int:
    """Returns the exit code: 1 where there are findings."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument(
        "files", nargs="*", type=Path, help="cases to run again; a case's folder names its part"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of all parts together (default 60)")
    parser.add_argument("--cases", type=int, help="of each part, instead of a time")
    parser.add_argument("--part", action="append", choices=PARTS, help="a part to run (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--processes", type=int, default=2, help="parts that run at the same time (default 2)"
    )
    parser.add_argument(
        "--findings", type=Path, default=Path("../build/fuzz"), help="folder for what is found"
    )
    chosen = parser.parse_args()
    if chosen.files:
        return _replay(chosen.files)
    campaigns = [Campaign(part, chosen.findings) for part in chosen.part or PARTS]
    at_once = min(chosen.processes, len(campaigns))
    seconds = None if chosen.cases else chosen.seconds * at_once / len(campaigns)

    def run(campaign: Campaign) -> None:
        campaign.run(chosen.seed, seconds, chosen.cases)
        print(campaign.line(), flush=True)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(run, campaigns))
    files = [file for campaign in campaigns for file in campaign.files.values()]
    for file in files:
        print(f"finding: {file}")
    return 1 if any(campaign.counts[word] for campaign in campaigns for word in FINDINGS) else 0


def _replay(files: list[Path]) -> int:
    wrong = 0
    for file in files:
        worker = Worker(part_of(file))
        outcome = worker.run(file.read_text(encoding="utf-8", errors="surrogatepass"))
        worker.close()
        wrong += outcome.is_finding
        print(f"{file}: {outcome.word}\n{outcome.message}".rstrip())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
