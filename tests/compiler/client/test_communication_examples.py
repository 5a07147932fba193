"""The examples of docs/communication.md run."""

from __future__ import annotations

import pathlib
import re

TEXT = (pathlib.Path(__file__).parents[3] / "docs" / "communication.md").read_text()


def test_examples() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "communication.md", "exec"), names)
