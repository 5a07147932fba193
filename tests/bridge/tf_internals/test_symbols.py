"""TensorFlow's private names: all are there, and an error names those that are not and what is lost with them."""

from __future__ import annotations

import sys

import pytest
import tensorflow as tf
from tfbridge.bridge.tf_internals import symbols


def test_private_names_are_all_there() -> None:
    absent = {symbols.AUTOGRAPH: ("code.co_positions",)} if sys.version_info < (3, 11) else {}
    symbols.check(*symbols.FEATURES.keys() - absent)
    assert symbols.missing() == absent


def test_check_names_version_and_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = {symbols.PLUGIN: ("InitX in liby",)}
    monkeypatch.setattr(symbols, "missing", lambda: lacking)
    symbols.check(symbols.OP)
    pattern = rf"{tf.__version__}[\s\S]*decorator[\s\S]*InitX"
    with pytest.raises(symbols.TensorFlowMismatch, match=pattern):
        symbols.check()
