"""Sample models in plain TensorFlow and Keras, the table of workloads, the benchmark and the demo."""

from __future__ import annotations

import importlib
import os


def _import_tensorflow() -> None:
    """Imports TensorFlow without its greeting, which no setting silences and would stand between tables."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    standard_error = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        importlib.import_module("tensorflow")
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(nowhere)


_import_tensorflow()
