"""Loops over sizes that are known at run time only: one compilation, bound to many sizes, against the evaluator."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tfbridge.compiler import evaluate, parse_hlo
from tfbridge.compiler.cpu.compile import compile_module
from tfbridge.runtime.code.executable import Executable

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
MAXIMUM = ADD.replace("add", "maximum")
GREATER = (
    "ge { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = pred[] compare(a, b), direction=GE }\n"
)
PLUS = ADD.replace("add", "plus", 1).replace("f32", "c64")
FIRST = """first { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE
  v = f32[] select(g, a, b)
  w = s32[] select(g, i, j)
  ROOT t = (f32[], s32[]) tuple(v, w) }
"""
LESS = GREATER.replace("ge", "less").replace("GE", "LT")
LESS_PAIR = """less_pair { a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=LT }
"""
SOFTMAX = """
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[b,n] reduce(x, low), dimensions={2}, to_apply=maximum
  mb = f32[b,n,n] broadcast(m), dimensions={0,1}
  d = f32[b,n,n] subtract(x, mb)
  e = f32[b,n,n] exponential(d)
  s = f32[b,n] reduce(e, zero), dimensions={2}, to_apply=add
  sb = f32[b,n,n] broadcast(s), dimensions={0,1}
  ROOT r = f32[b,n,n] divide(e, sb)"""
PROGRAMS = {
    "softmax": ("x f32[b,n,n]", SOFTMAX),
    "row_sum": (
        "x f32[b,n]",
        "z = f32[] constant(0)\n ROOT s = f32[b] reduce(x, z), dimensions={1}, to_apply=add",
    ),
    "column_sum": (
        "x f32[b,n,m]",
        "z = f32[] constant(0)\n ROOT s = f32[b,m] reduce(x, z), dimensions={1}, to_apply=add",
    ),
    "rows_and_a_bias": (
        "x f32[n,64], y f32[64]",
        "yb = f32[n,64] broadcast(y), dimensions={1}\n s = f32[n,64] add(x, yb)\n ROOT t = f32[n,64] tanh(s)",
    ),
    "rows_of_three_and_a_bias": (
        "x f32[n,3], y f32[3]",
        "yb = f32[n,3] broadcast(y), dimensions={1}\n s = f32[n,3] add(x, yb)\n ROOT t = f32[n,3] tanh(s)",
    ),
    "whole_vectors_of_rows_of_three": (
        "x f32[n,16,3], y f32[3], z f32[n,16]",
        "yb = f32[n,16,3] broadcast(y), dimensions={2}\n zb = f32[n,16,3] broadcast(z), dimensions={0,1}\n "
        "s = f32[n,16,3] add(x, yb)\n ROOT t = f32[n,16,3] multiply(s, zb)",
    ),
    "sums_of_rows_of_three": (
        "x f32[n,16,3]",
        "z = f32[] constant(0)\n ROOT s = f32[n,16] reduce(x, z), dimensions={2}, to_apply=add",
    ),
    "first_of_rows_of_four": (
        "x f32[n,4]",
        "a = f32[n,1] slice(x), slice={[0:n], [0:1]}\n b = f32[n,1] slice(x), slice={[0:n], [3:4]}\n "
        "ROOT d = f32[n,1] subtract(a, b)",
    ),
    "points": (
        "x f32[n,16,3], y f32[3,4]",
        "ROOT d = f32[n,16,4] dot(x, y), lhs_contracting_dims={2}, rhs_contracting_dims={0}",
    ),
    "points_side_by_side": (
        "x f32[3,4], y f32[4,n]",
        "ROOT d = f32[3,n] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "projections": (
        "x f32[n,3], y f32[3]",
        "ROOT d = f32[n] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "transpose": ("x f32[n,m]", "ROOT t = f32[m,n] transpose(x), dimensions={1,0}"),
    "transpose_of_a_side_of_number": (
        "x f32[b,n,4,32]",
        "t = f32[b,4,32,n] transpose(x), dimensions={0,2,3,1}\n ROOT e = f32[b,4,32,n] exponential(t)",
    ),
    "reshape_and_transpose": (
        "x f32[b,n,4,16]",
        "y = f32[b*n,64] reshape(x)\n ROOT t = f32[64,b*n] transpose(y), dimensions={1,0}",
    ),
    "slice": (
        "x f32[n,64]",
        "ROOT s = f32[n-1,64] slice(x), slice={[1:n], [0:64]}",
    ),
    "concatenate": (
        "x f32[b,n], y f32[b,m]",
        "c = f32[b,n+m] concatenate(x, y), dimensions={1}\n ROOT t = f32[b,n+m] tanh(c)",
    ),
    "column_sum_of_large": (
        "x f32[n,4096]",
        "z = f32[] constant(0)\n ROOT s = f32[4096] reduce(x, z), dimensions={0}, to_apply=add",
    ),
    "max_pool": (
        "x f32[b,n,16]",
        "low = f32[] constant(-inf)\n ROOT s = f32[b,n//2,16] reduce-window(x, low), "
        "window={size=1x2x1 stride=1x2x1}, to_apply=maximum",
    ),
    "pool_with_padding": (
        "x f32[b,n,16]",
        "z = f32[] constant(0)\n ROOT s = f32[b,n,16] reduce-window(x, z), "
        "window={size=1x3x1 pad=0_0x1_1x0_0}, to_apply=add",
    ),
    "select_and_scatter": (
        "x f32[b,2*n,16], y f32[b,n,16]",
        "z = f32[] constant(0)\n ROOT s = f32[b,2*n,16] select-and-scatter(x, y, z), "
        "window={size=1x2x1 stride=1x2x1}, select=ge, scatter=add",
    ),
    "top_k": ("x f32[b,n+3], y f32[n]", "ROOT t = (f32[b,2], s32[b,2]) topk(x), k=2"),
    "arg_max": (
        "x f32[b,n]",
        "i = s32[b,n] iota(), iota_dimension=1\n low = f32[] constant(-inf)\n z = s32[] constant(0)\n "
        "r = (f32[b], s32[b]) reduce(x, i, low, z), dimensions={1}, to_apply=first\n "
        "ROOT k = s32[b] get-tuple-element(r), index=1",
    ),
    "rows_of_two_axes": (
        "x f32[b,n,m]",
        "c = f32[b,n-1,m-1] slice(x), slice={[0:b], [1:n], [0:m-1]}\n z = f32[] constant(0)\n "
        "ROOT s = f32[b] reduce(c, z), dimensions={1,2}, to_apply=add",
    ),
    "complex_sum": (
        "x f32[b,n], y f32[b,n]",
        "c = c64[b,n] complex(x, y)\n d = c64[b,n] multiply(c, c)\n z = c64[] constant((0,0))\n "
        "s = c64[b] reduce(d, z), dimensions={1}, to_apply=plus\n ROOT i = f32[b] imag(s)",
    ),
    "largest_of_matrices": (
        "x f32[b,n,m]",
        "low = f32[] constant(-inf)\n s = f32[n,m] reduce(x, low), dimensions={0}, to_apply=maximum\n "
        "t = f32[m,n] transpose(s), dimensions={1,0}\n ROOT e = f32[m,n] tanh(t)",
    ),
    "update": (
        "x f32[b,n,16], y f32[b,1,16], k s32[2]",
        "one = s32[1] slice(k), slice={[0:1]}\n i = s32[] reshape(one)\n z = s32[] constant(0)\n "
        "ROOT s = f32[b,n,16] dynamic-update-slice(x, y, z, i, z)",
    ),
    "cut_at_an_index": (
        "x f32[b,n,16], k s32[2]",
        "one = s32[1] slice(k), slice={[0:1]}\n i = s32[] reshape(one)\n z = s32[] constant(0)\n "
        "ROOT s = f32[b,2,16] dynamic-slice(x, z, i, z), dynamic_slice_sizes={b,2,16}",
    ),
    "one_of_each_row": (
        "x f32[m,n], y s32[m]",
        "r = s32[m] iota(), iota_dimension=0\n r1 = s32[m,1] reshape(r)\n y1 = s32[m,1] reshape(y)\n "
        "k = s32[m,2] concatenate(r1, y1), dimensions={1}\n ROOT g = f32[m] gather(x, k), offset_dims={}, "
        "collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}",
    ),
    "sort": ("x f32[b,n]", "ROOT s = f32[b,n] sort(x), dimensions={1}, to_apply=less"),
    "sort_of_columns": (
        "x f32[b,n,6]",
        "i = s32[b,n,6] iota(), iota_dimension=1\n "
        "s = (f32[b,n,6], s32[b,n,6]) sort(x, i), dimensions={1}, is_stable=true, to_apply=less_pair\n "
        "ROOT r = s32[b,n,6] get-tuple-element(s), index=1",
    ),
    "scatter": (
        "x f32[50,24], y s32[n,1], u f32[n,24]",
        "ROOT s = f32[50,24] scatter(x, y, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    ),
    "sum_in_two_steps": (
        "x f32[b,n,m]",
        "z = f32[] constant(0)\n y = f32[b,n,m] multiply(x, x)\n "
        "ROOT s = f32[] reduce(y, z), dimensions={0,1,2}, to_apply=add",
    ),
    "columns_in_two_steps": (
        "x f32[b*n,768], y f32[b,n]",
        "z = f32[] constant(0)\n ROOT s = f32[768] reduce(x, z), dimensions={0}, to_apply=add",
    ),
    "cumulative_sum": (
        "x f32[b,20,n]",
        "z = f32[] constant(0)\n ROOT s = f32[b,20,n] reduce-window(x, z), "
        "window={size=1x20x1 pad=0_0x19_0x0_0}, to_apply=add",
    ),
    "gather": (
        "x f32[50,24], y s32[b,n]",
        "ROOT g = f32[b,n,24] gather(x, y), offset_dims={2}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=2, slice_sizes={1,24}",
    ),
}
HINTS = {
    "sum_in_two_steps": ", sizes={b=16, n=128, m=256}",
    "columns_in_two_steps": ", sizes={b=16, n=128}",
    "points": ", sizes={n=100}",
    "points_side_by_side": ", sizes={n=1000}",
    "projections": ", sizes={n=2000}",
}
GUARDS = {
    "concatenate": 3,  # indices are s32 up to a size of n
    "arg_max": 1,
    "one_of_each_row": 2,
    "sort": 1,
    "sort_of_columns": 2,
}
VALUES = [
    *[(2, 2, 2), (2, 3, 5), (3, 5, 2), (2, 8, 7), (5, 15, 16), (4, 16, 17), (3, 17, 31), (7, 31, 8)],
    *[(16, 32, 3), (2, 37, 64), (31, 64, 37), (3, 100, 129), (17, 129, 100), (2, 257, 300)],
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compilation_for_all_sizes(name: str) -> None:
    parameters, body = PROGRAMS[name]
    types = dict(p.split() for p in parameters.replace(", ", ";").split(";"))
    listed = [f"{key} = {t} parameter({k})" for k, (key, t) in enumerate(types.items())]
    used = [
        text
        for text in (ADD, MAXIMUM, GREATER, LESS, LESS_PAIR, FIRST, PLUS)
        if f"={text.split()[0]}" in body
    ]
    text = (
        f"HloModule m{HINTS.get(name, '')}\n{''.join(used)}ENTRY main {{\n"
        + "\n".join([*listed, body])
        + "\n}\n"
    )
    code = compile_module(parse_hlo(text))
    assert code.symbolic is not None
    assert len(code.symbolic.assumptions.guards) <= GUARDS.get(name, 0), str(code.symbolic.assumptions)
    executable, rng = Executable(code), np.random.default_rng(1)
    for b, n, m in VALUES:
        arrays = []
        for t in types.values():
            dims = [eval(d, {"b": b, "n": n, "m": m}) for d in re.findall(r"[\w*+]+", t)[1:]]
            is_float = t.startswith("f32")
            arrays.append(
                (rng.standard_normal(dims) if is_float else rng.integers(0, 50, dims)).astype(
                    {"f32": np.float32, "s32": np.int32}[t[:3]]
                )
            )
        bound = executable.bound([a.shape for a in arrays])
        assert not isinstance(bound, str), bound
        expected = evaluate(parse_hlo(text), arrays)
        expected = expected if isinstance(expected, tuple | list) else [expected]
        for result, want in zip(bound.execute(arrays), expected, strict=True):
            np.testing.assert_allclose(result, want, 1e-4, 1e-4, err_msg=f"{name} of {b, n, m}")
