"""docs/troubleshooting.md: each message stands in the code, and what has a remedy in a report is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tfbridge.bridge.report_page.page import REMEDIES

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "troubleshooting.md").read_text()
MESSAGES = re.findall(r"^### `(.*)`$", TEXT, re.MULTILINE)
_CHANGES = "\0"
"""What stands in a template for the values of an f-string or of `%`."""


def _templates(tree: ast.AST) -> Iterator[str]:
    """The texts of a module, with `_CHANGES` in the places of values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[sdr]", _CHANGES, node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else _CHANGES for part in node.values)
            yield "".join(map(str, parts))


@pytest.fixture(scope="module")
def templates() -> list[str]:
    files = [path for layer in ("bridge", "compiler", "runtime") for path in (ROOT / layer).rglob("*.py")]
    return [text for file in files for text in _templates(ast.parse(file.read_text(encoding="utf-8")))]


def test_there_are_messages() -> None:
    assert len(MESSAGES) > 80 and len(set(MESSAGES)) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES)
def test_message_is_in_the_code(message: str, templates: list[str]) -> None:
    """One text of the code has the fixed parts of the message, in this order."""
    parts = [part for part in message.split("...") if part.strip(" :;,.()'")]
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    assert any(pattern.search(text) for text in templates), message


def test_every_reason_with_a_remedy_is_there() -> None:
    messages = [message.replace("...", "") for message in MESSAGES]
    assert [pattern for pattern, _ in REMEDIES if not any(re.search(pattern, m) for m in messages)] == []
