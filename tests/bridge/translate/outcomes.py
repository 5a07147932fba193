"""What a function gives: results, or the type of its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Outcome = list[Any] | type[Exception]


def outcome(f: Callable[..., Any], *given: Any) -> Outcome:
    """The results, without their structure, or the type of the error."""
    try:
        return [
            np.asarray(tf.convert_to_tensor(r)) for r in tf.nest.flatten(f(*given), expand_composites=True)
        ]
    except tf.errors.OpError as error:
        return type(error)


def compare(found: Outcome, wanted: Outcome) -> None:
    """Equal errors, or results of equal types and dims, as near as sums of some hundred numbers in any order."""
    if isinstance(found, type) or isinstance(wanted, type):
        assert found is wanted
        return
    assert [(f.dtype, f.shape) for f in found] == [(w.dtype, w.shape) for w in wanted]
    for f, w in zip(found, wanted):
        np.testing.assert_allclose(f, w, 1e-5, 1e-5)
