"""Every row of the case table through the client: native code, and the interpreter platform, give the reference's
values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from agreement import difference, leaves, nested
from cases import BY_OPCODE, Case, arguments, build
from guarded import run_guarded
from random_graphs import values
from tfbridge.compiler.client.client import LocalClient
from tfbridge.compiler.cpu.artifact_cache import load_module
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.ir import module as ir
from tfbridge.compiler.ops import Call, Parameter, Tuple
from tfbridge.compiler.options import Options
from tfbridge.compiler.passes.inline_calls import inlined
from tfbridge.runtime.code.executable import Executable

ROWS_PER_MODULE = 60  # a module of many rows takes a fraction of the time that as many modules take


def groups() -> Iterator[tuple[str, list[Case]]]:
    """Rows of one op, not too many, with a name."""
    for opcode, rows in BY_OPCODE.items():
        for number, start in enumerate(range(0, len(rows), ROWS_PER_MODULE)):
            yield (
                f"{opcode}-{number}" if len(rows) > ROWS_PER_MODULE else opcode,
                rows[start : start + ROWS_PER_MODULE],
            )


def combined(rows: list[Case]) -> ir.Module:
    """One module that returns the rows' results as a tuple; its parameters are theirs in order."""
    parameters: list[ir.Instruction] = []
    roots = []
    for row in rows:
        entry = build(row).entry
        operands = []
        for shape in entry.parameter_shapes:
            operands.append(ir.make(Parameter(len(parameters), shape), name=f"p{len(parameters)}"))
            parameters.append(operands[-1])
        roots.append(inlined(entry, ir.make(Call(entry), *operands)))
    return ir.Module("rows", ir.Computation("main", ir.make(Tuple(), *roots), parameters))


def differences(rows: list[Case], given: list[list[np.ndarray]], found: list[np.ndarray]) -> list[str]:
    """Every row that differs."""
    rest = iter(found)
    wrong = []
    for row, own in zip(rows, given):
        entry = build(row).entry
        parts = list(leaves(evaluate(entry, nested(entry.parameter_shapes, own))))
        for number, wanted in enumerate(parts):
            counted = slice(int(parts[1]) if row.counted and not number else None)
            made = next(rest)
            message = difference(
                made[counted] if made.ndim else made,
                wanted[counted] if made.ndim else wanted,
                row.ulps,
                row.scale,
            )
            if message:
                wrong.append(f"{row.name}: {message}")
    assert next(rest, None) is None
    return wrong


GROUPS = dict(groups())


@pytest.mark.parametrize("name", GROUPS)
def test_compiled(name: str) -> None:
    """Also on arrays between pages without access, at both ends, unaligned: nothing outside is touched."""
    rows = GROUPS[name]
    given = [arguments(row, np.random.default_rng(0)) for row in rows]
    flat = list(itertools.chain(*given))
    before = [v.tobytes() for v in flat]
    executable = Executable(load_module(combined(rows)))
    found = executable.execute(flat)
    wrong = differences(rows, given, found)
    assert not wrong, "\n" + "\n".join(wrong)
    for at_end in (True, False):
        again = run_guarded(executable, flat, at_end)
        if any(row.counted for row in rows):
            assert not differences(rows, given, again)
        else:
            assert [a.tobytes() for a in again] == [f.tobytes() for f in found]
    assert [v.tobytes() for v in flat] == before, "an argument was written to"


@pytest.mark.parametrize("name", GROUPS)
def test_interpreted(name: str) -> None:
    rows = GROUPS[name]
    given = [arguments(row, np.random.default_rng(0)) for row in rows]
    found = LocalClient("interpreter").compile(combined(rows)).execute(list(itertools.chain(*given)))
    assert not differences(rows, given, found)


MODULES = {
    "a stored reduction's parts go to two fusions": """
argmax {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  larger = pred[] compare(a, b), direction=GT
  v = f32[] select(larger, a, b)
  k = s32[] select(larger, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k)
}
ENTRY main {
  x = f32[5,8] parameter(0)
  n = s32[5,8] parameter(1)
  low = f32[] constant(-100)
  zero = s32[] constant(0)
  pair = (f32[5], s32[5]) reduce(x, n, low, zero), dimensions={1}, to_apply=argmax
  value = f32[5] get-tuple-element(pair), index=0
  place = s32[5] get-tuple-element(pair), index=1
  product = s32[] dot(place, place), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  most = f32[] constant(4)
  bounds = f32[5] broadcast(most), dimensions={}
  small = f32[5] minimum(value, bounds)
  ROOT r = (f32[5], s32[]) tuple(small, product)
}""",
    "a convolution with a single weight and an epilogue that reads it too": """
ENTRY main {
  x = f32[3,4,1] parameter(0)
  w = f32[1,1,1] constant({ { {3} } })
  y = f32[3,4,1] convolution(x, w), window={size=1}, dim_labels=b0f_0io->b0f
  flat = f32[] reshape(w)
  spread = f32[3,4,1] broadcast(flat), dimensions={}
  ROOT z = f32[3,4,1] maximum(y, spread)
}""",
    "a branch is decided by a number that is folded": """
negated {
  x = f32[3] parameter(0)
  ROOT y = f32[3] negate(x)
}
same {
  x = f32[3] parameter(0)
  ROOT y = f32[3] copy(x)
}
ENTRY main {
  x = f32[3] parameter(0)
  seven = s32[] constant(7)
  three = s32[] popcnt(seven)
  ROOT r = f32[3] conditional(three, x, x), branch_computations={same, negated}
}""",
    "an empty product with an epilogue": """
ENTRY main {
  x = f32[3,0,4] parameter(0)
  y = f32[4,5] parameter(1)
  z = f32[3,0,5] parameter(2)
  product = f32[3,0,5] dot(x, y), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  ROOT sum = f32[3,0,5] add(product, z)
}""",
    "branches in a computation of scalars": """
up {
  v = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT w = s32[] add(v, one)
}
down {
  v = s32[] parameter(0)
  ROOT w = s32[] negate(v)
}
either {
  v = s32[] parameter(0)
  one = s32[] constant(1)
  low = pred[] compare(v, one), direction=LT
  ROOT w = s32[] conditional(low, v, v), true_computation=up, false_computation=down
}
ENTRY main {
  x = s32[37] parameter(0)
  ROOT y = s32[37] map(x), dimensions={0}, to_apply=either
}""",
}


@pytest.mark.parametrize("left_out", ["", "simplify"])
@pytest.mark.parametrize("name", MODULES)
def test_module(name: str, left_out: str) -> None:
    module = parse_hlo("HloModule m\n" + MODULES[name])
    rng = np.random.default_rng(0)
    given = [values(shape, rng) for shape in module.entry.parameter_shapes]
    options = Options(disabled_passes=frozenset({left_out}))
    found = LocalClient("cpu").compile(module, options).execute(given)
    for f, w in zip(found, leaves(evaluate(module, given)), strict=True):
        assert not difference(f, w)
