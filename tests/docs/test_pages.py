"""The code of README and docs/ runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import blocks
import pytest

PAGES = [page for page in blocks.pages() if any(b.is_run for b in blocks.blocks_of(page))]
FLAGS = {"TFBRIDGE_COST_GUARD": "0", "TFBRIDGE_COMPILE": "foreground"}
"""What pages show must not depend on how busy the machine is."""
MOST_NOT_RUN = 0.2
"""The largest share of blocks of Python and sh that are not run."""


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What became of the pages under test, all run in one process."""
    items = [item for item in request.session.items if item.module is request.module]
    pages = [item.callspec.params["page"] for item in items if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("pages")
    process = subprocess.run(
        [sys.executable, Path(__file__).with_name("run_pages.py"), folder / "report", *dict.fromkeys(pages)],
        env=os.environ | FLAGS | {"TFBRIDGE_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = (folder / "report").read_text().splitlines()
    rows = {row["page"]: row for row in map(json.loads, lines)}
    if process.returncode:
        culprit = next(page for page in pages if page not in rows)
        rows[culprit] = {"error": f"the process ended with {process.returncode}: {process.stderr[-2000:]}"}
    return rows


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, results: dict[str, dict]) -> None:
    assert page in results, "a page before this one ended the process"
    assert not results[page]["error"], results[page]["error"]


def test_every_block_has_a_language_and_most_run() -> None:
    every = [(page, block) for page in blocks.pages() for block in blocks.blocks_of(page)]
    assert [(page, block.line) for page, block in every if not block.language] == []
    code = [block for _, block in every if block.language in blocks.RUN]
    assert len([block for block in code if block.reason]) <= MOST_NOT_RUN * len(code)
