"""Which values are read up to a size that is known at run time only, and that no more than these rows are computed."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from tfbridge.compiler import parse_hlo
from tfbridge.compiler.analysis.live_rows import live_sizes
from tfbridge.compiler.cpu.artifact_cache import load_module
from tfbridge.runtime.code.executable import Executable

HEAD = """HloModule m, result_sizes={0}
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
ENTRY e {
  x = f32[6000,8] parameter(0)
  n = s32[] parameter(1)
  w = f32[8,16] parameter(2)
  zero = f32[] constant(0)
  zeros = f32[6000,8] broadcast(zero), dimensions={}
  row = s32[6000,8] iota(), iota_dimension=0
  bound = s32[6000,8] broadcast(n), dimensions={}
  is_inside = pred[6000,8] compare(row, bound), direction=LT
"""
PROGRAMS: dict[str, tuple[str, set[str]]] = {
    # what follows the head, and the instructions of which the first n rows are read
    "elementwise": (
        "t = f32[6000,8] tanh(x)  u = f32[6000,8] exponential(t)  ROOT r = (f32[6000,8], s32[]) tuple(u, n)",
        {"x", "t", "u"},
    ),
    "dot": (
        "t = f32[6000,8] tanh(x)  d = f32[6000,16] dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}  "
        "ROOT r = (f32[6000,16], s32[]) tuple(d, n)",
        {"x", "t", "d"},
    ),
    "rows in another order": (
        "t = f32[6000,8] tanh(x)  v = f32[6000,8] reverse(t), dimensions={0}  "
        "ROOT r = (f32[6000,8], s32[]) tuple(v, n)",
        {"v"},
    ),
    "also read as a whole": (
        "t = f32[6000,8] tanh(x)  s = f32[8] reduce(t, zero), dimensions={0}, to_apply=add  "
        "ROOT r = (f32[6000,8], f32[8], s32[]) tuple(t, s, n)",
        set(),
    ),
    "masked": (
        "t = f32[6000,8] tanh(x)  m = f32[6000,8] select(is_inside, t, zeros)  "
        "s = f32[8] reduce(m, zero), dimensions={0}, to_apply=add  "
        "ROOT r = (f32[6000,8], f32[8], s32[]) tuple(t, s, n)",
        {"x", "t"},
    ),
    "gradient of weights": (
        "t = f32[6000,8] tanh(x)  m = f32[6000,8] select(is_inside, t, zeros)  "
        "u = f32[6000,8] exponential(x)  v = f32[6000,8] select(is_inside, u, zeros)  "
        "d = f32[8,8] dot(m, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}  "
        "ROOT r = (f32[6000,8], f32[8,8], s32[]) tuple(t, d, n)",
        {"x", "t", "u", "m", "v", "zeros", "bound", "is_inside"},
    ),
    "product of a mask and of all rows": (
        "t = f32[6000,8] tanh(x)  m = f32[6000,8] select(is_inside, t, zeros)  u = f32[6000,8] exponential(x)  "
        "d = f32[8,8] dot(m, u), lhs_contracting_dims={0}, rhs_contracting_dims={0}  "
        "ROOT r = (f32[6000,8], f32[8,8], s32[]) tuple(t, d, n)",
        {"t"},
    ),
    "gathered rows": (
        "t = f32[6000,8] tanh(x)  d = f32[6000,16] dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}  "
        "less = s32[] constant(-1)  last = s32[] add(n, less)  lasts = s32[100] broadcast(last), dimensions={}  "
        "i = s32[100] iota(), iota_dimension=0  k = s32[100] minimum(i, lasts)  "
        "g = f32[100,16] gather(d, k), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,16}  ROOT r = (f32[6000,16], f32[100,16], s32[]) tuple(d, g, n)",
        {"x", "t", "d"},
    ),
    "masked by the columns": (
        "t = f32[6000,8] tanh(x)  column = s32[6000,8] iota(), iota_dimension=1  "
        "c = pred[6000,8] compare(column, bound), direction=LT  m = f32[6000,8] select(c, t, zeros)  "
        "s = f32[8] reduce(m, zero), dimensions={0}, to_apply=add  "
        "ROOT r = (f32[6000,8], f32[8], s32[]) tuple(t, s, n)",
        set(),
    ),
    "rows along another axis": (
        "t = f32[6000,8] tanh(x)  v = f32[8,6000] transpose(t), dimensions={1,0}  "
        "ROOT r = (f32[8,6000], s32[]) tuple(v, n)",
        {"v"},
    ),
    "flat": (
        "t = f32[6000,8] tanh(x)  v = f32[48000] reshape(t)  ROOT r = (f32[48000], s32[]) tuple(v, n)",
        {"v"},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_read(name: str) -> None:
    program, wanted = PROGRAMS[name]
    module = parse_hlo(HEAD + program + "\n}")
    given = {i.name for i in module.entry.instructions if i.op.is_elementwise or i.operands or i.name == "x"}
    found = live_sizes(module)
    assert {i.name for i in found.rows} & given == wanted
    assert {i.name for i in found.depths} == ({"d"} if name == "gradient of weights" else set())
    assert all([size.name for size in found.of(i)] in (["n"], ["n"]) for i in found.instructions())


def test_sizes_of_several_readers_are_joined() -> None:
    module = parse_hlo("""HloModule m, result_sizes={0,1}
ENTRY e {
  x = f32[6000,8] parameter(0)  n = s32[] parameter(1)  k = s32[] parameter(2)
  t = f32[6000,8] tanh(x)  u = f32[6000,8] cosine(t)  v = f32[6000,8] sine(t)
  ROOT r = (f32[6000,8], f32[6000,8], s32[], s32[]) tuple(u, v, n, k)
}""")
    found = {i.name: {size.name for size in sizes} for i, sizes in live_sizes(module).rows.items()}
    assert found == {"x": {"n", "k"}, "t": {"n", "k"}, "u": {"n"}, "v": {"k"}}


def test_smaller_sizes_are_read_as_the_one_that_they_are_made_of() -> None:
    module = parse_hlo("""HloModule m, result_sizes={0,1}
smaller { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT c = s32[] minimum(b, a) }
ENTRY e {
  x = f32[6000,8] parameter(0)  count = s32[] parameter(1)  other = s32[] parameter(2)
  zero = s32[] constant(0)  bound = s32[] constant(6000)
  least = s32[] minimum(count, bound)  n = s32[] maximum(least, zero)
  k = s32[] fusion(other, n), kind=kLoop, calls=smaller
  t = f32[6000,8] tanh(x)  u = f32[6000,8] cosine(t)  v = f32[6000,8] sine(t)
  ROOT r = (f32[6000,8], f32[6000,8], s32[], s32[]) tuple(u, v, n, k)
}""")
    found = {i.name: [size.name for size in sizes] for i, sizes in live_sizes(module).rows.items()}
    assert found == dict.fromkeys(["x", "t", "u", "v"], ["count"])


def test_fusion_of_one_instruction_with_several_results() -> None:
    module = parse_hlo("""HloModule m
argmax {
  p = f32[] parameter(0)  i = s32[] parameter(1)  q = f32[] parameter(2)  j = s32[] parameter(3)
  c = pred[] compare(p, q), direction=GT  v = f32[] select(c, p, q)  n = s32[] select(c, i, j)
  ROOT t = (f32[], s32[]) tuple(v, n)
}
fused {
  x = f32[40,8] parameter(0)  i = s32[40,8] iota(), iota_dimension=1
  least = f32[] constant(-inf)  none = s32[] constant(0)
  ROOT r = (f32[40], s32[40]) reduce(x, i, least, none), dimensions={1}, to_apply=argmax
}
ENTRY e {
  x = f32[40,8] parameter(0)  n = s32[] parameter(1)
  ROOT f = (f32[40], s32[40]) fusion(x), kind=kInput, calls=fused
}""")
    assert not live_sizes(module).rows


@pytest.mark.parametrize("count", [0, 1, 5, 255, 256, 257, 3000, 5999, 6000])
@pytest.mark.parametrize("name", ["elementwise", "dot", "masked", "gathered rows", "gradient of weights"])
def test_first_rows_are_computed_and_others_are_not(name: str, count: int) -> None:
    """The results' other rows keep what was in their memory, but for some after the last one."""
    module = parse_hlo(HEAD + PROGRAMS[name][0] + "\n}")
    rng = np.random.default_rng(count)
    x, w = rng.standard_normal((6000, 8)).astype("f"), rng.standard_normal((8, 16)).astype("f")
    arguments = [x, np.array(count, np.int32), w]
    tanh = np.tanh(x)
    wanted = {"elementwise": np.exp(tanh), "dot": tanh @ w, "gathered rows": tanh @ w}.get(name, tanh)
    executable = Executable(load_module(module))
    for rows in (6000, count):  # what the first run leaves in memory is in no result of the second
        outputs = [np.full(s.dims, 77, s.dtype) for s in executable.artifact.results]
        arguments[1][...] = rows
        pointers = [(ctypes.c_void_p * len(a))(*(x.ctypes.data for x in a)) for a in (arguments, outputs)]
        executable.run(*map(ctypes.addressof, pointers))
    np.testing.assert_allclose(outputs[0][:count], wanted[:count], rtol=1e-5, atol=1e-5)
    assert (outputs[0][min(6000, count + 1024) :] == 77).all()
    if name == "masked":
        np.testing.assert_allclose(outputs[1], tanh[:count].sum(0), rtol=1e-3, atol=1e-3)
    if name == "gathered rows":
        places = np.maximum(np.minimum(np.arange(100), count - 1), 0)
        np.testing.assert_allclose(outputs[1], wanted[places], rtol=1e-5, atol=1e-5)
    if name == "gradient of weights":
        np.testing.assert_allclose(outputs[1], tanh[:count].T @ np.exp(x[:count]), rtol=1e-3, atol=1e-2)
