"""StableHLO text: a corpus that runs without JAX, and errors with their places."""

from __future__ import annotations

import pathlib

import corpus
import pytest
from tfbridge.compiler import (
    LimitError,
    Limits,
    LocalClient,
    Module,
    ParseError,
    ShapeError,
    UnsupportedError,
    parse_hlo,
    parse_stablehlo,
)
from tfbridge.compiler.errors import CompilerError

CASES = corpus.read(pathlib.Path(__file__).parent / "corpus")
RUN = [c for c in CASES if "refused" not in c.marks]
GENERIC = [c for c in RUN if f"{c.name}_generic" in {other.name for other in RUN}]


def instructions(module: Module) -> list[tuple[str, str]]:
    """Opcode and shape of every instruction; names may differ."""
    return [(i.opcode, str(i.shape)) for c in module.computations() for i in c.instructions]


@pytest.mark.parametrize("case", RUN, ids=str)
def test_read_and_run(case: corpus.Case) -> None:
    module = parse_stablehlo(case.text)
    assert str(parse_hlo(str(module))) == str(module)
    corpus.check(case, module)


@pytest.mark.parametrize("case", GENERIC, ids=str)
def test_the_generic_form_is_the_same_program(case: corpus.Case) -> None:
    other = next(c for c in RUN if c.name == f"{case.name}_generic")
    short, generic = (parse_stablehlo(c.text) for c in (case, other))
    assert instructions(short) == instructions(generic)


@pytest.mark.parametrize("case", [c for c in CASES if "refused" in c.marks], ids=str)
def test_refused(case: corpus.Case) -> None:
    with pytest.raises(UnsupportedError) as raised:
        LocalClient().compile(parse_stablehlo(case.text))
    assert case.marks["refused"] in str(raised.value)
    assert raised.value.line > 0 and raised.value.column > 0


@pytest.mark.parametrize("case", RUN, ids=str)
def test_cut_short(case: corpus.Case) -> None:
    corpus.check_beginnings(case, parse_stablehlo)


@pytest.mark.parametrize(
    ("body", "error", "place", "message"),
    [
        ("%0 = stablehlo.abs %y : tensor<2xf32>", ParseError, (2, 3), "value %y is not defined before"),
        ("%0 = stablehlo.abs %x : tensor<3xf32>", ShapeError, (2, 3), "it is declared with the types (f32[3])"),
        ("%0 = stablehlo.abs %x ; tensor<2xf32>", ParseError, (2, 25), "what stablehlo.abs goes on with"),
        ("%0 = stablehlo.abs %x, %x : tensor<2xf32>", ShapeError, (2, 3), "2 operands"),
        ("%0 = stablehlo.constant dense<[1, a]> : tensor<2xi8>", ParseError, (2, 27), "values of s8, got a"),
        ("%0 = stablehlo.constant dense<[1]> : tensor<2xi8>", ParseError, (2, 27), "expected 2 elements"),
        ("%0 = stablehlo.constant dense<1> : tensor<2xi9>", UnsupportedError, (2, 38), "element type i9"),
        ("%0 = stablehlo.dot %x, %x : (tensor<2xf32>, tensor<2xf32>) -> tuple<>", ShapeError, (2, 3), "an array"),
        ("%0 = stablehlo.convert %x : (tensor<2xf32>) -> tuple<>", ShapeError, (2, 3), "an array"),
        ("%0 = stablehlo.bitcast_convert %x : (tensor<2xf32>) -> tuple<>", ShapeError, (2, 3), "an array"),
        (
            "%0 = stablehlo.reverse %x, dims = dense<0> : tensor<9999999xi8> : tensor<2xf32>",
            UnsupportedError, (2, 3), "an attribute of 9999999 numbers",
        ),
        ("%0 = stablehlo.frobnicate %x : tensor<2xf32>", UnsupportedError, (2, 3), "frobnicate is not compiled"),
        ("%0 = func.call @g(%x) : (tensor<2xf32>) -> tensor<2xf32>", ParseError, (1, 1), "@g is not defined"),
        ("%0 = func.call @f(%x) : (tensor<2xf32>) -> tensor<2xf32>", ParseError, (1, 1), "@f calls itself"),
        ("%0 = stablehlo.iota dim = 1 : tensor<2xf32>", ShapeError, (2, 3), "iota"),
        ("%0 = stablehlo.abs %x : tensor<2xf32>}", UnsupportedError, (3, 3), "return outside of a function"),
    ],
)  # fmt: skip
def test_errors_have_a_place(
    body: str, error: type[CompilerError], place: tuple[int, int], message: str
) -> None:
    with pytest.raises(error) as raised:
        parse_stablehlo(
            f"func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {{\n  {body}\n  return %0 : tensor<2xf32>\n}}"
        )
    assert message in str(raised.value)
    assert (raised.value.line, raised.value.column) == place


def test_limits_hold() -> None:
    text = next(c.text for c in RUN if c.name == "dense")
    for limits in (Limits(text_characters=100), Limits(instructions=2), Limits(array_bytes=8)):
        with pytest.raises(LimitError):
            parse_stablehlo(text, limits)


def test_modules_in_modules_are_refused() -> None:
    for text in ("module {\n  module @m {", '"builtin.module"() ({\n  "builtin.module"() ({' * 1000):
        with pytest.raises(UnsupportedError, match="line 2, column 3: a module in a module"):
            parse_stablehlo(text)
