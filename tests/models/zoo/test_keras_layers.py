"""Keras's layers give TensorFlow's results and gradients, and the document says what of them is not compiled.

A class has its first row run here in both ways; `python -m tfbridge.models.zoo.keras_layers_table` runs all rows.
"""

from __future__ import annotations

from pathlib import Path

import keras
import pytest
import tfbridge
from tfbridge.models.zoo.keras_layers import EXCLUDED, ROWS, Row
from tfbridge.models.zoo.keras_layers_table import WAYS, read_document, run

DOCUMENT = Path(tfbridge.__file__).parent / "docs" / "keras_layers.md"
TOLD = read_document(DOCUMENT.read_text())
FIRST = {row.layer_class: row for row in reversed(ROWS) if not row.slow}


@pytest.mark.parametrize("row", FIRST.values(), ids=lambda row: row.name)
def test_layer_equals_tensorflow(row: Row) -> None:
    outcomes = run(row)
    assert [(o.way, o.problem) for o in outcomes] == [(way, "") for way in WAYS]
    assert set(TOLD[row.name]) == {text for o in outcomes for text in o.left_out}


def test_every_class_has_a_row() -> None:
    names: dict[type, set[str]] = {}
    for name in dir(keras.layers):
        if isinstance(value := getattr(keras.layers, name), type):
            names.setdefault(value, set()).add(name)
    covered = {row.layer_class for row in ROWS}
    assert [sorted(n) for n in names.values() if not n & (covered | EXCLUDED.keys())] == []


def test_document_has_every_row() -> None:
    assert TOLD.keys() == {row.name for row in ROWS}
