"""SECURITY.md says the limits that are in force."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tfbridge.compiler.limits import DEFAULT_LIMITS
from tfbridge.runtime import process_defaults

TEXT = (Path(__file__).parents[2] / "SECURITY.md").read_text()


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(DEFAULT_LIMITS)])
def test_limits(name: str) -> None:
    assert f"| `{name}` | {getattr(DEFAULT_LIMITS, name):,} |" in TEXT


def test_budget() -> None:
    budget = process_defaults.Defaults()
    assert f"`TFBRIDGE_COMPILE_SECONDS`, {budget.compile_seconds:,})" in TEXT
    assert f"`TFBRIDGE_COMPILE_INSTRUCTIONS`, {budget.compile_instructions:,})" in TEXT
    assert f"`TFBRIDGE_COMPILE_MEGABYTES`, {budget.compile_megabytes:,})" in TEXT
