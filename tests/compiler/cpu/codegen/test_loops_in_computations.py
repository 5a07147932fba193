"""Loops, branches and functions of the user inside the computations that other ops call: compiled as interpreted."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import difference
from tfbridge.compiler import LocalClient, evaluate, parse_hlo, register_custom_call, unregister_custom_call

COMPUTATIONS = """HloModule m
more {
  s = (f32[], f32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=2
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
next {
  s = (f32[], f32[], s32[]) parameter(0)
  a = f32[] get-tuple-element(s), index=0
  b = f32[] get-tuple-element(s), index=1
  i = s32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = f32[] maximum(a, b)
  ROOT t = (f32[], f32[], s32[]) tuple(c, b, j)
}
largest {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  z = s32[] constant(0)
  s = (f32[], f32[], s32[]) tuple(a, b, z)
  w = (f32[], f32[], s32[]) while(s), condition=more, body=next
  ROOT r = f32[] get-tuple-element(w), index=0
}
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  x = f32[] call(a, a), to_apply=largest
  y = f32[] call(b, b), to_apply=largest
  ROOT r = pred[] compare(x, y), direction=LT
}
not_less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  x = pred[] call(a, b), to_apply=less
  ROOT r = pred[] not(x)
}
twice_as_f {
  a = f32[] parameter(0)
  v = f32[1] reshape(a)
  w = f32[1] custom-call(v), custom_call_target="one_by_one"
  r = f32[] reshape(w)
  ROOT s = f32[] add(r, r)
}
ENTRY main {
  x = f32[5,4] parameter(0)
  zero = f32[] constant(0)
  rows = s32[3,1] constant({ {1}, {4}, {1} })
  updates = f32[3,4] slice(x), slice={[0:3], [0:4]}
  windows = f32[3,2] slice(x), slice={[0:3], [0:2]}
  ROOT r = ENTRY_ROOT
}"""


@pytest.mark.parametrize(
    "root",
    [
        "f32[5] reduce(x, zero), dimensions={1}, to_apply=largest",
        "f32[4] reduce(x, zero), dimensions={0}, to_apply=largest",
        "f32[] reduce(x, zero), dimensions={0,1}, to_apply=largest",
        "f32[4,4] reduce-window(x, zero), window={size=2x1}, to_apply=largest",
        "f32[5,4] sort(x), dimensions={0}, to_apply=less, is_stable=true",
        "f32[5,4] scatter(x, rows, updates), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=largest",
        "f32[5,4] select-and-scatter(x, windows, zero), window={size=2x2 stride=2x2 pad=0_1x0_0}, select=not_less, "
        "scatter=largest",
        "f32[5,4] map(x, x), dimensions={0,1}, to_apply=largest",
        "f32[5,4] map(x), dimensions={0,1}, to_apply=twice_as_f",
        "f32[5,4] all-reduce(x), to_apply=largest",
    ],
    ids=lambda root: root.split(" ")[1].split("(")[0],
)
def test_compiled(root: str) -> None:
    register_custom_call("one_by_one", lambda x: x + 1)
    try:
        module = parse_hlo(COMPUTATIONS.replace("ENTRY_ROOT", root))
        x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
        (found,) = LocalClient().compile(module).execute([x])
        assert not difference(found, evaluate(module, [x]))
    finally:
        unregister_custom_call("one_by_one")
