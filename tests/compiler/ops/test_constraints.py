"""Every numbered constraint that the compiler raises is broken by a test somewhere, under its own number."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[3]
LABEL = re.compile(r'[("](\w+_c\d+)[)"]')


def test_every_label_is_tested() -> None:
    raised = {
        label for file in (ROOT / "compiler").rglob("*.py") for label in LABEL.findall(file.read_text())
    }
    tests = [
        file.read_text()
        for file in (ROOT / "tests").rglob("*.py")
        if file.name != pathlib.Path(__file__).name
    ]
    tested = {label for text in tests for label in re.findall(r"\w+_c\d+", text)}
    assert len(raised) > 150
    assert not raised - tested
