"""The Python examples of README run."""

from __future__ import annotations

import pathlib
import re

import pytest

README = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMPLETE = [block for block in BLOCKS if "print(" in block and "model.fit" not in block]


@pytest.mark.parametrize("block", COMPLETE, ids=range(len(COMPLETE)))
def test_example(block: str, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "example.py"  # tracing wants to see the source
    path.write_text(block)
    exec(compile(block, path, "exec"), {"__name__": "example"})
    assert capsys.readouterr().out


def test_all_examples_are_known() -> None:
    assert len(COMPLETE) >= 2
