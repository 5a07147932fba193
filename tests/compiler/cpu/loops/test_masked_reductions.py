"""Reductions behind a mask end where it leaves out all that follows."""

from __future__ import annotations

import ctypes
import itertools
import math
import re

import numpy as np
import pytest
from guarded import guarded_copy
from tfbridge.compiler import parse_hlo
from tfbridge.compiler.cpu.artifact_cache import load_module
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.runtime.code.executable import Executable

REDUCERS = {"add": "0", "multiply": "1", "maximum": "-inf", "minimum": "inf"}
SHAPES = {
    # dims, the axis of the mask, the reduced axes
    "vector": ((4096,), 0, (0,)),
    "large vector": ((1 << 20,), 0, (0,)),
    "few columns": ((4096, 24), 0, (0,)),
    "many columns": ((2048, 300), 0, (0,)),
    "whole matrix": ((2048, 40), 0, (0, 1)),
    "rows of a batch": ((5, 512, 160), 1, (1,)),
    "rows and a batch": ((512, 5, 160), 0, (0, 1)),
    "prime": ((4099, 7), 0, (0, 1)),
}


def program(dims: tuple[int, ...], axis: int, axes: tuple[int, ...], kind: str, type_: str) -> str:
    x, result = f"{type_}{[*dims]}", f"{type_}{[d for k, d in enumerate(dims) if k not in axes]}"
    text = f"""HloModule m
combine {{ a = {type_}[] parameter(0)  b = {type_}[] parameter(1)  ROOT c = {type_}[] {kind}(a, b) }}
ENTRY e {{
  x = {x} parameter(0)  n = s32[] parameter(1)
  i = s32{[*dims]} iota(), iota_dimension={axis}
  k = s32{[*dims]} broadcast(n), dimensions={{}}
  m = pred{[*dims]} compare(i, k), direction=LT
  none = {type_}[] constant({REDUCERS[kind]})
  others = {x} broadcast(none), dimensions={{}}
  t = {x} negate(x)
  y = {x} select(m, t, others)
  ROOT r = {result} reduce(y, none), dimensions={{{",".join(map(str, axes))}}}, to_apply=combine
}}"""
    return re.sub(r"(\d), (?=\d)", r"\1,", text)


def run(executable: Executable, arguments: list[np.ndarray]) -> np.ndarray:
    ((dtype, dims, _),) = executable.artifact.results
    output = np.full(dims, 77, dtype)
    pointers = [(ctypes.c_void_p * len(a))(*(x.ctypes.data for x in a)) for a in (arguments, [output])]
    executable.run(*map(ctypes.addressof, pointers))
    return output


@pytest.mark.parametrize(
    "name, type_, kind",
    [
        *itertools.product([n for n in SHAPES if n != "large vector"], ["f32", "f16", "f64"], REDUCERS),
        ("large vector", "f32", "add"),
    ],
)
def test_what_counts(name: str, type_: str, kind: str) -> None:
    dims, axis, axes = SHAPES[name]
    module = parse_hlo(program(dims, axis, axes, kind, type_))
    executable = Executable(load_module(module))
    rng = np.random.default_rng(3)
    values = rng.uniform(0.97, 1.03, dims).astype(ElementType(type_).dtype)
    bound = dims[axis]
    for count in {-2, 0, 1, 2, 7, 31, 32, 33, bound // 3, bound - 1, bound, bound + 9}:
        x = values.copy()
        np.moveaxis(x, axis, 0)[max(count, 0) :] = np.nan
        arguments = [x, np.array(count, np.int32)]
        wide = parse_hlo(program(dims, axis, axes, kind, "f64"))
        wanted = evaluate(wide.entry, [x.astype(np.float64), arguments[1]])
        tolerance = {"f32": 1e-4, "f16": 5e-3, "f64": 1e-10}[type_]
        with np.errstate(over="ignore"):
            wanted = wanted.astype(values.dtype).astype(np.float64)
        np.testing.assert_allclose(run(executable, arguments), wanted, rtol=tolerance, err_msg=f"{count}")


@pytest.mark.parametrize(
    "name", ["vector", "few columns", "many columns", "whole matrix", "rows and a batch"]
)
def test_rows_behind_the_mask_are_not_read(name: str) -> None:
    """They are not there: the array ends before memory without access, some rows after the last that counts."""
    dims, axis, axes = SHAPES[name]
    executable = Executable(load_module(parse_hlo(program(dims, axis, axes, "add", "f32"))))
    for count in (0, 64, dims[0] // 2):
        rows = min(-(-max(count, 1) // 32) * 32, dims[0])
        x = guarded_copy(np.ones((rows, *dims[1:]), np.float32))
        wanted = -float(count * math.prod(dims[k] for k in axes if k))
        np.testing.assert_allclose(run(executable, [x, np.array(count, np.int32)]), wanted)
