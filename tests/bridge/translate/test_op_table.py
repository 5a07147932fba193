"""The document of TensorFlow's ops says what the registry holds."""

from __future__ import annotations

from pathlib import Path

import tfbridge
from tfbridge.bridge.translate.registry import STAYING, translations
from tfbridge.bridge.translate.table import document, read_list

LISTS = read_list(Path(__file__).parent / "tf_ops.txt")
DOCUMENT = Path(tfbridge.__file__).parent / "docs" / "tensorflow_ops.md"


def test_document_is_current() -> None:
    assert DOCUMENT.read_text() == document(LISTS), "python -m tfbridge.bridge.translate.table makes it anew"


def test_an_op_is_compiled_or_stays() -> None:
    assert not translations().keys() & STAYING.keys()


def test_every_op_that_xla_compiles_has_its_line() -> None:
    listed = set(LISTS["Ops that XLA compiles on CPUs"])
    assert listed - translations().keys() - STAYING.keys() == set()
