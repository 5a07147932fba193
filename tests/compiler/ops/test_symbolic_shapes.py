"""Shape rules with sizes known at run time only: what they infer is right for all values, with no needless guard."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from cases import CASES, Case
from tfbridge.compiler.errors import CompilerError
from tfbridge.compiler.hlo_text.attributes import attributes, implied
from tfbridge.compiler.ir.shape import Shape
from tfbridge.compiler.ops import Op
from tfbridge.compiler.ops.convolution import Convolution
from tfbridge.runtime.sizes import Assumptions, evaluate

Change = Callable[[Any], Any]
OTHERS = [2, 3, 4, 5, 7, 8, 12, 16, 30, 33]
COMPARED = {
    *(
        "dynamic-slice",
        "dynamic-update-slice",
        "gather",
        "slice",
        "pad",
        "topk",
        "nonzero",
        "block-scaled-dot",
        "isotonic-regression",
        "lu-decomposition",
    ),
    *(
        "convolution",
        "reduce-window",
        "select-and-scatter",
        "scatter",
        "triangular-solve",
        "rng-bit-generator",
    ),
}
"""Ops whose rules say which of two sizes is larger."""


def of_shape(shape: Shape, change: Change) -> Shape:
    if shape.is_tuple:
        return Shape.tuple(of_shape(s, change) for s in shape.tuple_shapes)
    return dataclasses.replace(shape, dims=tuple(map(change, shape.dims)))


def of_op(op: Op, change: Change) -> Op:
    """The op with other sizes where its attributes hold some."""
    kinds = {f: a.kind for a in attributes(type(op)) for f in a.fields} | dict(implied(type(op)))
    fields: dict[str, Any] = {}
    for name, kind in kinds.items():
        value = getattr(op, name)
        if kind == "result_dims" or (kind == "sizes" and value is not None) or name == "limit":
            fields[name] = tuple(map(change, value))
        elif kind == "result_shape" and value is not None:
            fields[name] = of_shape(value, change)
        elif kind == "window" and isinstance(op, Convolution):
            fields[name] = dataclasses.replace(value, size=tuple(map(change, value.size)))
    return dataclasses.replace(op, **fields)


def inferred(op: Op, operands: Sequence[Shape], change: Change) -> Shape | str:
    try:
        return of_op(op, change).infer([of_shape(s, change) for s in operands])
    except CompilerError as error:
        return str(error)


def shapes(case: Case) -> list[Shape]:
    return [i.shape for i in case.operands]


SYMBOLIC = [c for c in CASES if any(d > 1 for s in shapes(c) for leaf in s.leaves() for d in leaf.dims)]


@pytest.mark.parametrize("opcode", dict.fromkeys(c.op.opcode for c in SYMBOLIC))
def test_shape_rule(opcode: str) -> None:
    for case in SYMBOLIC:
        if case.op.opcode == opcode:
            check_shape_rule(case)


def check_shape_rule(case: Case) -> None:
    """Every size of the row is a symbol; equal ones are the same."""
    assumptions = Assumptions()
    symbolic = inferred(case.op, shapes(case), lambda d: d if d < 2 else assumptions.symbol(f"s{d}", d))
    guards = dict(assumptions.guards)
    assert not any(relation == "==" and outcome for (relation, _), outcome in guards.items()), str(
        assumptions
    )
    assert not guards or case.op.opcode in COMPARED, str(assumptions)
    if isinstance(symbolic, str):  # the row's sizes depend on each other
        return
    rng = np.random.default_rng(0)
    for _ in range(10):
        values = {name: int(rng.choice(OTHERS)) for name in assumptions.symbols}
        if assumptions.hold(values):
            want = inferred(case.op, shapes(case), lambda d: d if d < 2 else values[f"s{d}"])  # noqa: B023
            assert of_shape(symbolic, lambda d: evaluate(d, values)) == want  # noqa: B023


def test_most_rows_have_such_sizes() -> None:
    served = 0
    for case in SYMBOLIC:
        assumptions = Assumptions()
        served += not isinstance(
            inferred(case.op, shapes(case), lambda d: d if d < 2 else assumptions.symbol(f"s{d}", d)),  # noqa: B023
            str,
        )
    assert served > 0.8 * len(SYMBOLIC)
