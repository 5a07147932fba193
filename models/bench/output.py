"""Where a suite's results go: to people as a table, to machines as JSON, into a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


def publish(report: object, print_table: Callable[[], None], as_json: bool, save: Path | None) -> None:
    """Prints the results, as JSON or as the table, and saves the JSON."""
    text = json.dumps(report, indent=2)
    if save:
        save.write_text(text + "\n")
    if as_json:
        print(text)
    else:
        print_table()
