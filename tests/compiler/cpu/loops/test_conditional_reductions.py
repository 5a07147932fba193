"""Reductions whose results are not wanted at all indices read nothing where they are not."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import run_guarded
from tfbridge.compiler import evaluate, parse_hlo
from tfbridge.compiler.cpu.compile import compile_module
from tfbridge.runtime.code.executable import Executable

ADD = "add {a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b)}\n"
BODY = """
  x = f32[{rows},{columns}] parameter(0)
  other = f32[{results}] parameter(1)
  zero = f32[] constant(0)
  y = f32[{rows},{columns}] multiply(x, x)
  sums = f32[{results}] reduce(y, zero), dimensions={{{axis}}}, to_apply=add
  root = f32[{results}] sqrt(sums)
  a = f32[{results},1] reshape(root)
  b = f32[{results},1] reshape(other)
"""
ENDS = {
    "before": "ROOT r = f32[{twice}] concatenate(root, other), dimensions={{0}}\n",
    "after": "ROOT r = f32[{twice}] concatenate(other, root), dimensions={{0}}\n",
    "beside": "ROOT r = f32[{results},2] concatenate(b, a), dimensions={{1}}\n",
    "pad": "ROOT r = f32[{padded}] pad(root, zero), padding=5_3\n",
    "slice and pad": "ROOT r = f32[{results}] pad(root, zero), padding=2_-2\n",
}


@pytest.mark.parametrize("rows,columns", [(130, 2048), (70, 2051), (1100, 128), (700, 24), (24, 7), (3, 129)])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("axis", [0, 1])
def test_reads_no_other_memory(axis: int, end: str, rows: int, columns: int) -> None:
    results = (columns, rows)[axis]
    text = (BODY + ENDS[end]).format(
        rows=rows, columns=columns, axis=axis, results=results, twice=2 * results, padded=results + 8
    )
    module = parse_hlo(f"HloModule m\n{ADD}ENTRY main {{{text}}}\n")
    rng = np.random.default_rng(1)
    arguments = [rng.standard_normal(dims, np.float32) for dims in ((rows, columns), results)]
    executable, wanted = Executable(compile_module(module)), evaluate(module, arguments)
    for at_end in (False, True):
        (found,) = run_guarded(executable, arguments, at_end)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
