"""Every row of the case table through the client: native code, and the interpreter platform, give the reference's
values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from agreement import difference, leaves, nested
from cases import CASES, Case, arguments, build
from tfbridge.compiler import ir
from tfbridge.compiler.client import LocalClient
from tfbridge.compiler.evaluator import evaluate
from tfbridge.compiler.ops import Call, Parameter, Tuple
from tfbridge.compiler.passes.inline_calls import inlined

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


def compare(platform: str, rows: list[Case]) -> None:
    """Fails with every row that differs."""
    module = combined(rows)
    values = [arguments(row, np.random.default_rng(0)) for row in rows]
    flat = list(itertools.chain(*values))
    copies = [v.copy() for v in flat]
    found = LocalClient(platform).compile(module).execute(flat)
    at = 0
    wrong = []
    for row, given in zip(rows, values):
        entry = build(row).entry
        wanted = leaves(evaluate(entry, nested(entry.parameter_shapes, given)))
        for w in wanted:
            message = difference(found[at], w, row.ulps, row.scale)
            at += 1
            if message:
                wrong.append(f"{row.name}: {message}")
    assert not wrong, "\n" + "\n".join(wrong)
    assert at == len(found)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(flat, copies)), "an argument was written to"


GROUPS = dict(groups())


@pytest.mark.parametrize("name", GROUPS)
def test_compiled(name: str) -> None:
    compare("cpu", GROUPS[name])


@pytest.mark.parametrize("name", GROUPS)
def test_interpreted(name: str) -> None:
    compare("interpreter", GROUPS[name])
