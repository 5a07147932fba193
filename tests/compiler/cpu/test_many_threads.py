"""The division of work, for as many threads as large machines have, on however few processors there are."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tfbridge.compiler import LocalClient
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.options import Options

TEXT = """
HloModule many
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = pred[] compare(a, b), direction=LT }
ENTRY main {
  x = f32[211,307] parameter(0)
  w = f32[307,509] parameter(1)
  i = f32[3,31,29,16] parameter(2)
  k = f32[3,3,16,24] parameter(3)
  rows = s32[997,1] parameter(4)
  updates = f32[997,509] parameter(5)
  zero = f32[] constant(0)
  d = f32[211,509] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[211,509] tanh(d)
  columns = f32[509] reduce(t, zero), dimensions={0}, to_apply=add
  all = f32[] reduce(t, zero), dimensions={0,1}, to_apply=add
  c = f32[3,31,29,24] convolution(i, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  sorted = f32[211,509] sort(d), dimensions={1}, to_apply=less
  s = f32[211,509] scatter(d, rows, updates), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
  ROOT r = (f32[509], f32[], f32[3,31,29,24], f32[211,509], f32[211,509]) tuple(columns, all, c, sorted, s)
}
"""


@functools.cache
def arguments() -> list[np.ndarray]:
    random = np.random.default_rng(1)
    shapes = [(211, 307), (307, 509), (3, 31, 29, 16), (3, 3, 16, 24), (997, 509)]
    x, w, i, k, updates = (random.normal(size=shape).astype("f4") for shape in shapes)
    return [x, w, i, k, random.integers(0, 211, (997, 1)).astype("i4"), updates]


@functools.cache
def expected() -> list[np.ndarray]:
    return LocalClient("interpreter").compile(parse_hlo(TEXT)).execute(arguments())


@pytest.mark.parametrize("threads", [1, 3, 16, 61, 128])
def test_results_are_the_same_for_any_number_of_threads(threads: int) -> None:
    results = LocalClient("cpu").compile(parse_hlo(TEXT), Options(threads=threads)).execute(arguments())
    for result, wanted in zip(results, expected(), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-3)
