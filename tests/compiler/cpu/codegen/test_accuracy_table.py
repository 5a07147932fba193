"""docs/numerics.md has the tables of today."""

from __future__ import annotations

from pathlib import Path

from tfbridge.compiler.cpu.codegen.accuracy_table import errors, fast_rules

DOCUMENT = (Path(__file__).parents[4] / "docs" / "numerics.md").read_text(encoding="utf-8")


def test_tables() -> None:
    """`python -m tfbridge.compiler.cpu.codegen.accuracy_table` prints them."""
    assert f"<!-- errors -->\n{errors()}<!-- /errors -->" in DOCUMENT
    assert f"<!-- fast -->\n{fast_rules()}<!-- /fast -->" in DOCUMENT
