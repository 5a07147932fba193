"""The verifier: what it refuses, and how it says so."""

from __future__ import annotations

import dataclasses

import pytest
from tfbridge.compiler.errors import ShapeError
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.ir.module import Computation, Instruction, Metadata, Module, make
from tfbridge.compiler.ir.shape import array
from tfbridge.compiler.ir.verifier import verify
from tfbridge.compiler.ops import Elementwise, Parameter, Transpose

X = make(Parameter(0, array("f32", 2, 3)), name="x")
ADD = make(Elementwise("add"), X, X, name="sum", metadata=Metadata("AddV2", "net/add", "model.py", 12))


def module(root: Instruction, *parameters: Instruction) -> Module:
    return Module("m", Computation("main", root, parameters or (X,)))


def test_a_good_module_is_returned() -> None:
    good = module(make(Elementwise("negate"), ADD))
    assert verify(good) is good


def test_wrong_shape_shows_the_ir_around() -> None:
    wrong = dataclasses.replace(ADD, shape=array("f32", 3, 2))
    chain = wrong
    for n in range(6):
        chain = Instruction(Elementwise("negate"), (chain,), chain.shape, f"n{n}")
    with pytest.raises(ShapeError) as raised:
        verify(module(chain))
    lines = str(raised.value).splitlines()
    assert lines[0] == "add: has shape f32[3,2], inferred is f32[2,3] (verify_c1)"
    marked = [line for line in lines if "<--" in line]
    assert (
        len(marked) == 1 and marked[0].startswith("  > sum = f32[3,2] add(x, x)") and "verify_c1" in marked[0]
    )
    assert any("x = f32[2,3] parameter(0)" in line for line in lines) and not any(
        "n5" in line for line in lines
    )
    assert lines[-2:] == ["  from AddV2 net/add", "  at model.py:12"]


def test_the_ops_own_constraints() -> None:
    wrong = Instruction(Transpose((0, 0)), (X,), array("f32", 2, 2), "t")
    with pytest.raises(ShapeError, match="transpose_c.*\n.*in main"):
        verify(module(wrong))


def test_parameters_out_of_order() -> None:
    y = make(Parameter(1, array("f32")), name="y")
    with pytest.raises(ShapeError, match="verify_c3"):
        verify(module(X, y, X))
    with pytest.raises(ShapeError, match="verify_c3"):
        verify(module(make(Elementwise("negate"), y), X))


def test_operands_that_come_later() -> None:
    good = Computation("main", make(Elementwise("negate"), ADD), (X,))
    good.instructions = good.instructions[::-1]
    with pytest.raises(ShapeError, match="verify_c2"):
        verify(Module("m", good))


def test_called_computations_are_verified() -> None:
    good = parse_hlo("""HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[4] parameter(0) z = f32[] constant(0) ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add }
""")
    reducer = good.entry.called()[0]
    wrong = dataclasses.replace(reducer.root, shape=array("f32", 1))
    broken = good.map_computations(
        lambda c: Computation(c.name, wrong, c.parameters) if c.name == "add" else c
    )
    with pytest.raises(ShapeError, match="in add:"):
        verify(broken)
