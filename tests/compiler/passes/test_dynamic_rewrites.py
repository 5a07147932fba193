"""Ops on arrays whose size is known at run time only, after their sizes became bounds."""

from __future__ import annotations

import numpy as np
import pytest
from tfbridge.compiler import parse_hlo
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.options import DEFAULT_OPTIONS
from tfbridge.compiler.passes.pad_dynamic_dimensions import pad_dynamic_dimensions


@pytest.mark.parametrize("size", [1, 60, 150, 200])
@pytest.mark.parametrize("type_", ["s8", "u8", "s16", "s32", "s64"])
def test_gathered_indices_are_those_of_elements(type_: str, size: int) -> None:
    """Also where the numbers of elements do not fit in the type of the indices."""
    module = parse_hlo(f"""HloModule m
ENTRY e {{
  x = f32[200] parameter(0)  n = s32[] parameter(1)  i = {type_}[5] parameter(2)
  y = f32[<=200] set-dimension-size(x, n), dimensions={{0}}
  ROOT g = f32[5] gather(y, i), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1}}
}}""")
    places = np.array([0, 3, 59, 60, 127], ElementType(type_).dtype)
    padded = pad_dynamic_dimensions(module, DEFAULT_OPTIONS)
    found = evaluate(padded.entry, [np.arange(200, dtype=np.float32), np.int32(size), places])
    np.testing.assert_array_equal(found, np.minimum(places.astype(int), size - 1))
