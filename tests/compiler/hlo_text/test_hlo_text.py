"""HLO text: exact round trips, XLA's variations of the syntax, and the errors of malformed text."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from cases import BY_OPCODE, Case, build
from hypothesis import given
from hypothesis import strategies as st
from tfbridge.compiler import Literal, LocalClient, Module, evaluate, parse_hlo, verify
from tfbridge.compiler.errors import CompilerError, ParseError, ShapeError, UnsupportedError
from tfbridge.compiler.hlo_text.literals import parse_literal, print_literal
from tfbridge.compiler.ir.element_types import ARRAYS, ElementType
from tfbridge.compiler.ir.module import Computation, InputOutputAlias, make
from tfbridge.compiler.ir.shape import array
from tfbridge.compiler.ops import Constant, Elementwise, Parameter


def module(entry: str, before: str = "") -> Module:
    return parse_hlo(f"HloModule m\n{before}\nENTRY main {{\n{entry}\n}}\n")


@pytest.mark.parametrize("opcode", BY_OPCODE)
def test_round_trip_of_every_row(opcode: str) -> None:
    for case in BY_OPCODE[opcode]:
        check_round_trip(case)


def check_round_trip(case: Case) -> None:
    text = str(build(case))
    again = verify(parse_hlo(text))
    assert str(again) == text
    assert (
        again.entry.root.op.opcode == case.op.opcode
        and again.entry.root.shape == build(case).entry.root.shape
    )


def test_typed_attributes_of_a_module() -> None:
    header = (
        "HloModule m, replica_count=1, input_output_alias={ {0}: (1, {}, must-alias) }, "
        "invariant_parameters={0}, result_sizes={0}"
    )
    body = (
        "ENTRY main {\n  p = f32[4] parameter(0)\n  q = f32[4] parameter(1)\n  n = s32[] constant(2)\n"
        "  s = f32[4] add(p, q)\n  ROOT r = (f32[4], s32[]) tuple(s, n)\n}\n"
    )
    read = verify(parse_hlo(f"{header}\n\n{body}"))
    assert read.input_output_aliases == (InputOutputAlias((0,), 1, (), "must-alias"),)
    assert read.invariant_parameters == read.sized_results == (0,)
    assert read.attributes == {"replica_count": "1"}
    assert str(read).startswith(f"{header}\n")
    older = f"{header}\n\n{body}".replace("invariant_parameters", "kept_parameters")
    assert str(parse_hlo(older)) == str(read)


def values(kind: ElementType, count: int) -> np.ndarray:
    """All kinds of bit patterns, NaN payloads among them."""
    rng = np.random.default_rng(3)
    if kind is ElementType.PRED:
        return rng.integers(0, 2, count).astype(np.bool_)
    if kind.bits == 4:
        return rng.integers(-8 if kind.is_signed else 0, 8, count).astype(kind.dtype)
    return rng.integers(0, 256, count * kind.item_bytes, dtype=np.uint8).view(kind.dtype)


@pytest.mark.parametrize("kind", sorted(ARRAYS, key=str), ids=lambda k: k.value)
def test_constants_of_all_types(kind: ElementType) -> None:
    for dims in ((), (600,), (20, 30), (2, 0), (0, 2), (2, 3, 4, 1)):
        literal = Literal(values(kind, max(int(np.prod(dims)), 1))[: int(np.prod(dims))].reshape(dims), kind)
        read = parse_literal(print_literal(literal), literal.shape)
        assert read == literal
        constant = Module("m", Computation("main", make(Constant(literal), name="c"), ()))
        assert parse_hlo(str(constant)).entry.root.op == constant.entry.root.op


def test_nan_signs_and_payloads() -> None:
    bits = np.array([0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7F800000, 0xFF800000, 0x80000000], np.uint32)
    text = print_literal(Literal(bits.view(np.float32)))
    assert text == "{nan, -nan, nan(0x400001), inf, -inf, -0}"
    assert parse_literal(text, array("f32", 6)).array.view(np.uint32).tolist() == bits.tolist()


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("s2", "2"),
        ("u4", "16"),
        ("f4e2m1fn", "6.5"),
        ("f4e2m1fn", "nan"),
        ("f8e3m4", "16"),
        ("f8e8m0fnu", "0"),
    ],
)
def test_numbers_that_a_type_lacks(kind: str, number: str) -> None:
    with pytest.raises(ValueError, match=f"expected values of {kind}, got a value out of range"):
        parse_literal(number, array(kind))


def test_tuple_constants() -> None:
    literal = Literal.tuple([Literal(np.float32(1)), Literal.tuple([Literal(np.array([[1], [2]], np.int8))])])
    assert print_literal(literal) == "(1, ({ {1}, {2} }))"
    assert parse_literal("( 1 , ( { {1}, {2} } ) )", literal.shape) == literal


@given(st.lists(st.floats(width=32), max_size=20))
def test_any_floats(numbers: list[float]) -> None:
    for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
        with np.errstate(over="ignore"):
            literal = Literal(np.array(numbers, np.float64).astype(dtype))
        assert parse_literal(print_literal(literal), literal.shape) == literal


VARIATIONS = """HloModule jit_f.7, is_scheduled=true,
  entry_computation_layout={(f32[2,3]{1,0}, s32[])->(f32[2,3]{1,0}, /*index=1*/s32[])},
  num_partitions=1

FileNames
1 "dir/model.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=4}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%inner.1 (p.1: f32[2,3], q: (f32[], s32[])) -> f32[2,3] {
  %p.1 = f32[2,3]{1,0} parameter(0)
  %q = (f32[], s32[]) parameter(1), sharding={replicated}
  %g = f32[] get-tuple-element((f32[], s32[]) %q), index=0
  %b = f32[2,3]{1,0} broadcast(f32[] %g), dimensions={}, metadata={op_name="a \\"b\\" {c}" stack_frame_id=1}
  ROOT %m = f32[2,3]{1,0} multiply(f32[2,3]{1,0} %p.1, f32[2,3]{1,0} %b), metadata={op_type="Mul"
    op_name="jit(f)/mul" source_file="x.py" source_line=7 source_column=3}
}, execution_thread="main"

ENTRY %main.2 (x: f32[2,3], n: s32[]) -> (f32[2,3], s32[]) {
  %x = f32[2,3]{1,0} parameter(0) // a comment
  %n = s32[] parameter(1), frontend_attributes={a="{",b="x"}
  half = f32[] constant(0.5)
  %t = (f32[], s32[]) tuple(%half, /*index=1*/%n)
  %c = f32[2,3] call(x, t), to_apply=%inner.1, backend_config={"a":{"b":["}"]}}
  ROOT %r = (f32[2,3]{1,0}, /*index=1*/s32[]) tuple(f32[2,3]{1,0} %c, s32[] %n)
}
"""


def test_variations_of_the_syntax() -> None:
    read = verify(parse_hlo(VARIATIONS))
    text = str(read)
    assert str(parse_hlo(text)) == text and read.name == "jit_f.7"
    assert (
        read.attributes["is_scheduled"] == "true"
        and "->(f32[2,3]{1,0}" in read.attributes["entry_computation_layout"]
    )
    inner = read.entry.called()[0]
    by_name = {i.name: i for i in inner.instructions}
    assert by_name["b"].metadata.source_file == "dir/model.py" and by_name["b"].metadata.source_line == 12
    assert by_name["b"].metadata.op_name == 'a "b" {c}'
    assert (
        by_name["m"].metadata.op_type == "Mul"
        and ("metadata.source_column", "3") in by_name["m"].metadata.extra
    )
    assert read.entry.root.operands[0].metadata.extra == (("backend_config", '{"a":{"b":["}"]}}'),)
    value = evaluate(read, [np.ones((2, 3), np.float32), np.asarray(np.int32(4))])
    assert value[0].tolist() == [[0.5] * 3] * 2 and value[1] == 4


def test_layouts_are_kept() -> None:
    read = module("x = f32[2,3]{0,1} parameter(0)\nROOT y = f32[2,3]{1,0} copy(x)")
    assert read.entry.parameters[0].shape.layout == (0, 1) and read.entry.root.shape.layout is None
    assert "f32[2,3]{0,1} parameter(0)" in str(read)


def test_names_are_made_valid_and_different() -> None:
    x = make(Parameter(0, array("f32")), name="model/dense:0")
    y = make(Elementwise("negate"), make(Elementwise("negate"), x, name="n"), name="n")
    text = str(Module("m", Computation("1st", y, [x])))
    assert "model_dense_0 = " in text and "ROOT n.1 = f32[] negate(n)" in text and "ENTRY _1st {" in text
    assert str(parse_hlo(text)) == text


def test_a_single_computation_needs_no_entry() -> None:
    assert parse_hlo("HloModule m\nf { ROOT x = f32[] parameter(0) }").entry.name == "f"


def test_both_forms_of_conditional() -> None:
    before = "one { ROOT a = f32[] parameter(0) }\ntwo { b = f32[] parameter(0) ROOT n = f32[] negate(b) }"
    by_pred = module(
        "p = pred[] parameter(0) x = f32[] parameter(1) ROOT c = f32[] conditional(p, x, x), "
        "true_computation=one, false_computation=two",
        before,
    )
    listed = module(
        "p = pred[] parameter(0) x = f32[] parameter(1) ROOT c = f32[] conditional(p, x, x), "
        "branch_computations={%one, %two}",
        before,
    )
    assert str(by_pred) == str(listed) and "true_computation=one, false_computation=two" in str(by_pred)


@pytest.mark.parametrize(
    ("entry", "line", "column", "expected"),
    [
        ("x = f32[2] parameter(0)\nROOT y = f32[2] add(x, z)", 5, 24, "operand z is not defined"),
        ("ROOT x = f32[2 parameter(0)", 4, 10, "expected a shape"),
        ("ROOT x = f32[2]{1,0} parameter(0)", 4, 10, "expected a layout"),
        ("ROOT x = f32[2] parameter(a)", 4, 27, "expected a parameter number"),
        ("x = f32[2] parameter(0)\nROOT y = f32[2] add x", 5, 17, "expected an opcode"),
        ("x = f32[2] parameter(0)\nROOT y = f32[2] add(x x)", 5, 21, "expected an operand"),
        ("x f32[2] parameter(0)", 4, 1, "expected an instruction"),
        ("x = f32[2] parameter(0)\nx = f32[2] parameter(1)", 5, 1, "defined twice"),
        ("x = f32[2] parameter(1)", 5, 2, "numbered"),
        (
            "x = f32[2] parameter(0)\nROOT y = f32[1] slice(x), slice={[0-1]}",
            5,
            17,
            "expected {[start:limit:stride]",
        ),
        ("x = f32[2] parameter(0)\nROOT y = f32[1] slice(x)", 5, 17, "expected the attribute slice="),
        (
            "x = f32[2] parameter(0)\nROOT y = f32[2] reverse(x), dimensions={a}",
            5,
            17,
            "expected axis numbers",
        ),
        ("x = f32[2] parameter(0)\nROOT y = f32[2] reverse(x), dimensions={0, {", 5, 40, "not closed"),
        ("x = f32[2] parameter(0)\nROOT y = f32[2] call(x), to_apply=nothing", 5, 17, "computation nothing"),
        ("ROOT c = f32[2] constant({1})", 4, 26, "expected 2 elements"),
        ("ROOT c = f32[2,2] constant({1, 2, 3, 4})", 4, 28, "nested braces"),
        ("ROOT c = f32[2] constant({1, b})", 4, 26, "expected values of f32, got b"),
        ("ROOT c = s8[] constant(300)", 4, 24, "out of range"),
        ("ROOT c = u64[] constant(-9223372036854775809)", 4, 25, "out of range"),
        ("ROOT c = pred[] constant(yes)", 4, 26, "expected true, false or an integer"),
        ("ROOT c = bf16[] constant(nan(0x80))", 4, 26, "a payload of 1 to 0x7f"),
        ("ROOT c = f32[100] constant({...})", 4, 28, "elided"),
        ("", 5, 2, "expected an instruction"),
    ],
)
def test_malformed_text(entry, line, column, expected) -> None:
    with pytest.raises(ParseError, match="line") as raised:
        module(entry)
    assert expected in str(raised.value)
    assert (raised.value.line, raised.value.column) == (line, column)


@pytest.mark.parametrize("types", ["f32 bf16 f32", "f32 s8 f32", "s8 u8 s8", "f8e4m3fn f8e5m2 f8e4m3fn"])
def test_products_of_two_types_are_printed_and_read(types: str) -> None:
    left, right, result = types.split()
    parsed = module(
        f"x = {left}[4] parameter(0)\n y = {right}[4] parameter(1)\n"
        f"ROOT z = {result}[] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}"
    )
    assert parsed.entry.root.opcode == "dot"
    assert str(parse_hlo(str(parsed))) == str(parsed)


@pytest.mark.parametrize(
    "instruction",
    [
        "bitcast-convert(x)",
        "bitcast(x)",
        "convert(x)",
        "dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        "stochastic-convert(x, u)",
        "dynamic-reshape(x, n)",
        "scaled-dot(x, x, s, s), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        "ragged-dot(m, m, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}",
    ],
)
@pytest.mark.parametrize("shape", ["()", "(f32[2])", "token[]"])
def test_results_that_can_only_be_arrays(instruction: str, shape: str) -> None:
    arguments = ("x = f32[2]", "s = f32[]", "m = f32[2,2]", "u = u32[2]", "g = s32[2]", "n = s32[]")
    parameters = "\n".join(f"{one} parameter({k})" for k, one in enumerate(arguments))
    with pytest.raises(
        ParseError, match=r"line 10, column .* expected an array as the result, got"
    ) as raised:
        module(f"{parameters}\nROOT y = {shape} {instruction}")
    assert shape in str(raised.value)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("ROOT x = f32[2] shuffle()", "line 4, column 17: opcode shuffle"),
        ("ROOT x = f6e2m3fn[2] parameter(0)", "line 4, column 10: element type f6e2m3fn"),
        ("ROOT x = f32[?] parameter(0)", "dims without a bound"),
        ("x = f32[2] parameter(0)\nROOT y = f32[2] negate(x), is_strange=true", "attribute is_strange"),
    ],
)
def test_unsupported_text(entry, expected) -> None:
    with pytest.raises(UnsupportedError) as raised:
        module(entry)
    assert expected in str(raised.value)


def test_shapes_are_checked() -> None:
    with pytest.raises(ShapeError, match="line 5, column 10: negate has shape f32.3., inferred is f32.2."):
        module("x = f32[2] parameter(0)\nROOT y = f32[3] negate(x)")
    with pytest.raises(ShapeError, match="line 5, column 10: .*transpose_c"):
        module("x = f32[2,2] parameter(0)\nROOT y = f32[2,2] transpose(x), dimensions={0,0}")


def test_modules_that_end_early() -> None:
    for end in range(0, len(VARIATIONS) - 2, 7):
        try:
            read = parse_hlo(VARIATIONS[:end])
        except CompilerError:
            continue
        assert read.entry.name == "inner.1", "only a cut right after the first computation leaves a module"


@given(st.integers(0, len(VARIATIONS) - 1), st.sampled_from('{}()[]=,%"x1 \n'))
def test_a_wrong_character_is_an_error_or_harmless(at: int, character: str) -> None:
    try:
        read = parse_hlo(VARIATIONS[:at] + character + VARIATIONS[at + 1 :])
    except CompilerError:
        return
    assert str(parse_hlo(str(read))) == str(read)


def test_batch_norm_and_bitcast_are_read_as_calls() -> None:
    text = """HloModule norm
ENTRY main {
  x = f32[4,3] parameter(0)
  scale = f32[3]{0} parameter(1)
  offset = f32[3] parameter(2)
  t = (f32[4,3], f32[3], f32[3]) batch-norm-training(x, scale, offset), epsilon=0.001, feature_index=1
  y = f32[4,3] get-tuple-element(t), index=0
  mean = f32[3] get-tuple-element(t), index=1
  variance = f32[3] get-tuple-element(t), index=2
  g = (f32[4,3], f32[3], f32[3]) batch-norm-grad(x, scale, mean, variance, y), epsilon=0.001, feature_index=1
  z = f32[4,3] batch-norm-inference(x, scale, offset, mean, variance), epsilon=0.001, feature_index=1
  flat = f32[12] bitcast(z)
  whole = s32[12] bitcast(flat)
  ROOT all = (f32[4,3], f32[12], s32[12], (f32[4,3], f32[3], f32[3])) tuple(y, flat, whole, g)
}"""
    module = parse_hlo(text)
    assert str(parse_hlo(str(module))) == str(module)
    rng = np.random.default_rng(0)
    x, scale, offset = (rng.standard_normal(s).astype(np.float32) for s in ((4, 3), (3,), (3,)))
    y, flat, whole, gradient = evaluate(module, [x, scale, offset])
    np.testing.assert_allclose(
        y, (x - x.mean(0)) / np.sqrt(x.var(0) + 0.001) * scale + offset, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(flat, y.reshape(-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(whole, flat.view(np.int32))
    np.testing.assert_allclose(gradient[2], y.sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("line", "message", "error"),
    [
        ("y = f32[4,3] batch-norm-inference(x, v, v, v, v), epsilon=0.1", "feature_index=", ParseError),
        (
            "y = f32[4,3] batch-norm-inference(x, v), epsilon=0.1, feature_index=1",
            "2 operands given",
            ShapeError,
        ),
        (
            "y = f32[4,3] batch-norm-inference(x, v, v, v, v), epsilon=0.1, feature_index=0",
            "batch_norm_c1",
            ShapeError,
        ),
        ("y = f32[11] bitcast(x)", "reshape_c2", ShapeError),
        ("y = f32[3,4]{1,0:T(8,128)} bitcast(x)", "different number of bytes", ShapeError),
        ("y = u4[96] bitcast(x)", "less than a byte", UnsupportedError),
    ],
)
def test_expansions_refuse(line: str, message: str, error: type[Exception]) -> None:
    text = (
        "HloModule m\nENTRY main {\n  x = f32[4,3] parameter(0)\n  v = f32[3] parameter(1)\n  ROOT "
        + line
        + "\n}"
    )
    with pytest.raises(error, match=f"line 5.*{message}"):
        parse_hlo(text)


def test_bitcast_of_any_layout() -> None:
    """The bytes, from the slowest axis to the fastest, stay where they are."""
    text = """HloModule m
ENTRY e {
  x = f32[2,3,4]{0,2,1} parameter(0)
  a = f32[3,4,2]{2,1,0} bitcast(x)
  b = s32[4,2,3]{0,1,2} bitcast(x)
  ROOT r = (f32[3,4,2], s32[4,2,3]) tuple(a, b)
}"""
    module = verify(parse_hlo(text))
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    raw = np.ascontiguousarray(x.transpose(1, 2, 0)).reshape(-1)
    first, second = evaluate(module, [x])
    np.testing.assert_array_equal(first, raw.reshape(3, 4, 2))
    np.testing.assert_array_equal(second, raw.view(np.int32).reshape(3, 2, 4).transpose(2, 1, 0))


TILED = """HloModule m, entry_computation_layout={{(f32[2,8]{{1,0{entry}}})->f32[2,8]{{1,0{result}}}}}
ENTRY e {{
  x = f32[2,8]{{1,0{parameter}}} parameter(0)
  y = f32[2,8]{{1,0:T(8,128)(2,1)S(1)}} negate(f32[2,8]{{1,0:T(8,128)}} x)
  ROOT z = f32[2,8]{{1,0{root}}} negate(f32[2,8]{{1,0:T(8,128)}} y), backend_config={{"flag":true}}
}}, execution_thread="main"
"""


@pytest.mark.parametrize("place", ["entry", "result", "parameter", "root"])
@pytest.mark.parametrize("layout", [":T(8,128)", ":T(8,128)(2,1)L(1024)E(32)S(5)SC(1:0)M(8)", ":S(5)"])
def test_tiles_and_memory_spaces_are_another_machines(place: str, layout: str) -> None:
    places = {"entry": "", "result": "", "parameter": "", "root": "", place: layout}
    notes: list[str] = []
    module = parse_hlo(TILED.format(**places), notes=notes)
    assert str(parse_hlo(str(module))) == str(module) and len(notes) == 1
    assert "line 3" in notes[0] or "line 4" in notes[0]
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    np.testing.assert_array_equal(evaluate(module, [x]), x)
    np.testing.assert_array_equal(LocalClient().compile(module).execute([x])[0], x)


def test_layouts_without_more_than_axes_and_bits_make_no_note() -> None:
    notes: list[str] = []
    parse_hlo("HloModule m\nENTRY e { ROOT x = s4[2,8]{0,1:E(4)S(0)} parameter(0) }", notes=notes)
    assert not notes


def in_memory(array: np.ndarray, order: tuple[int, ...], tile: tuple[int, ...]) -> np.ndarray:
    """The elements of an array as they lie in memory: tile by tile, each row-major, padded with zeros."""
    array = array.transpose(order)
    padded = np.zeros([-(-d // t) * t for d, t in zip(array.shape, tile)], array.dtype)
    padded[tuple(map(slice, array.shape))] = array
    tiles = [
        padded[tuple(slice(i * t, i * t + t) for i, t in zip(index, tile))].reshape(-1)
        for index in np.ndindex(*(d // t for d, t in zip(padded.shape, tile)))
    ]
    return np.concatenate(tiles)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("f32[16,256]{1,0:T(8,128)}", "f32[2,2,8,128]{3,2,1,0}"),
        ("f32[16,256]{0,1:T(8,8)}", "f32[4096]{0}"),
        ("f32[5,300]{1,0:T(4,128)}", "s32[3072]{0}"),
        ("f32[2,6,8]{2,1,0:T(*,4)}", "f32[96]{0}"),
        ("bf16[16,128]{1,0:T(8,128)(2,1)}", "bf16[2,4,128,2]{3,2,1,0}"),
        ("f32[2,8]{1,0:T(8,128)}", "f32[8,2]{0,1:T(8,128)}"),
        ("f32[4,6]{1,0:T(2,2)}", "u8[2,3,2,2,4]{4,3,2,1,0}"),
    ],
)
def test_bitcast_of_tiled_layouts(source: str, target: str) -> None:
    module = parse_hlo(f"HloModule m\nENTRY e {{ x = {source} parameter(0)\n ROOT y = {target} bitcast(x) }}")
    shape = module.entry.parameters[0].shape
    x = np.arange(shape.elements).reshape(shape.dims).astype(shape.element_type.dtype)
    found = np.asarray(evaluate(module, [x]))
    np.testing.assert_array_equal(found, LocalClient().compile(module).execute([x])[0])
    if "T(8,128)(2,1)" in source:  # rows in pairs, whose elements alternate
        wanted = x.reshape(2, 4, 2, 128).swapaxes(2, 3)
    elif "*" in source:
        wanted = in_memory(x.reshape(12, 8), (0, 1), (1, 4))
    elif target.endswith("T(8,128)}"):
        wanted = x.T
    else:
        tile = tuple(map(int, re.search(r"T\((\d+),(\d+)\)", source).groups()))  # type: ignore[union-attr]
        wanted = in_memory(x, (1, 0) if "{0,1" in source else (0, 1), tile)
    np.testing.assert_array_equal(found, wanted.reshape(-1).view(found.dtype).reshape(found.shape))


def test_sparse_layouts_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="sparse arrays"):
        parse_hlo("HloModule m\nENTRY e { ROOT x = f32[2,8]{1,0:D(D,C)} parameter(0) }")


@pytest.mark.parametrize(
    ("shape", "text", "wanted"),
    [
        ("f32[2,3]", "f32[2,3]{[0, 1]: 5, [1, 2]: -6.5}", [[0, 5, 0], [0, 0, -6.5]]),
        ("s32[5]", "{1: 2, 4: 3}", [0, 2, 0, 0, 3]),
        ("c64[2]", "{[1]: (1, -2)}", [0, 1 - 2j]),
    ],
)
def test_sparse_constants(shape: str, text: str, wanted: list) -> None:
    found = parse_hlo(f"HloModule m\nENTRY e {{ ROOT x = {shape}sparse{{10}} constant({text}) }}")
    assert evaluate(found, []).tolist() == wanted
    assert str(parse_hlo(str(found))) == str(found)


@pytest.mark.parametrize("text", ["{[0, 9]: 5}", "{[0]: 5}", "{[0, 1]: 5, oops}", "{[0, 1]: five}"])
def test_malformed_sparse_constants(text: str) -> None:
    with pytest.raises(ParseError, match="constant"):
        parse_hlo(f"HloModule m\nENTRY e {{ ROOT x = f32[2,3] constant({text}) }}")
