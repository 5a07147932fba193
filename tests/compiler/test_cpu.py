"""Every row of the case table through the client: native code, and the interpreter platform, give the reference's
values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from agreement import difference, leaves, nested
from cases import CASES, Case, arguments, build
from guarded import run_guarded
from tfbridge.compiler import ir
from tfbridge.compiler.client import LocalClient
from tfbridge.compiler.cpu.compile import load_module
from tfbridge.compiler.evaluator import evaluate
from tfbridge.compiler.ops import Call, Parameter, Tuple
from tfbridge.compiler.passes.inline_calls import inlined
from tfbridge.runtime.executable import Executable

ROWS_PER_MODULE = 60  # a module of many rows takes a fraction of the time that as many modules take


def groups() -> Iterator[tuple[str, list[Case]]]:
    """Rows of one op, not too many, with a name."""
    for opcode in dict.fromkeys(c.op.opcode for c in CASES):
        rows = [c for c in CASES if c.op.opcode == opcode]
        for number, start in enumerate(range(0, len(rows), ROWS_PER_MODULE)):
            yield f"{opcode}-{number}" if len(rows) > ROWS_PER_MODULE else opcode, rows[start:start + ROWS_PER_MODULE]


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


def differences(rows: list[Case], values: list[list[np.ndarray]], found: list[np.ndarray]) -> list[str]:
    """Every row that differs."""
    rest = iter(found)
    wrong = []
    for row, given in zip(rows, values):
        entry = build(row).entry
        for wanted in leaves(evaluate(entry, nested(entry.parameter_shapes, given))):
            message = difference(next(rest), wanted, row.ulps, row.scale)
            if message:
                wrong.append(f"{row.name}: {message}")
    assert next(rest, None) is None
    return wrong


GROUPS = dict(groups())


@pytest.mark.parametrize("name", GROUPS)
def test_compiled(name: str) -> None:
    """Also on arrays between pages without access, at both ends, unaligned: nothing outside is touched."""
    rows = GROUPS[name]
    values = [arguments(row, np.random.default_rng(0)) for row in rows]
    flat = list(itertools.chain(*values))
    before = [v.tobytes() for v in flat]
    executable = Executable(load_module(combined(rows)))
    found = executable.execute(flat)
    wrong = differences(rows, values, found)
    assert not wrong, "\n" + "\n".join(wrong)
    for at_end in (True, False):
        again = run_guarded(executable, flat, at_end)
        assert [a.tobytes() for a in again] == [f.tobytes() for f in found]
    assert [v.tobytes() for v in flat] == before, "an argument was written to"


@pytest.mark.parametrize("name", GROUPS)
def test_interpreted(name: str) -> None:
    rows = GROUPS[name]
    values = [arguments(row, np.random.default_rng(0)) for row in rows]
    found = LocalClient("interpreter").compile(combined(rows)).execute(list(itertools.chain(*values)))
    assert not differences(rows, values, found)
