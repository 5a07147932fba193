"""HLO text from outside: nothing that it declares is believed, limits hold, and every error has its place."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re

import numpy as np
import pytest
from tfbridge.compiler import (
    DEFAULT_LIMITS,
    ComputationBuilder,
    LimitError,
    Limits,
    LocalClient,
    Module,
    Options,
    ParseError,
    ShapeError,
    UnsupportedError,
    array,
    evaluate,
    parse_hlo,
)
from tfbridge.compiler.errors import CompilerError
from tfbridge.compiler.ir.module import Computation, InputOutputAlias, Instruction, make
from tfbridge.compiler.ir.shape import Shape, check_size
from tfbridge.compiler.ir.verifier import verify
from tfbridge.compiler.ops import CustomCall, Elementwise, Parameter, Tuple

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
TWO = "x = f32[2] parameter(0)\n y = f32[2] parameter(1)\n"


def refused(text: str, error: type[CompilerError], message: str | None = None) -> None:
    with pytest.raises(error, match=message) as raised:
        parse_hlo(text)
    assert raised.value.line > 0 and raised.value.column > 0 and "line " in str(raised.value)


def entry(body: str, header: str = "", before: str = "") -> str:
    return f"HloModule m{header}\n{before}ENTRY e {{\n {body} }}\n"


LIBRARY = {
    "Sharding": ("f64[16] custom-call(a)", "s8[16]", "library_c3"),
    "TopK": ("(f32[4,3], s32[400]) custom-call(a)", "f32[4,8]", "library_c3"),
    "lapack_sgetrf_ffi": ("(f32[3,3], s32[300], s32[]) custom-call(a)", "f32[3,3]", "library_c3"),
    "lapack_sgeqrf_ffi": ("(f32[3,3], f32[300]) custom-call(a)", "f32[3,3]", "library_c3"),
    "lapack_spotrf_ffi": ("(f32[3,3], s32[3]) custom-call(a)", "f32[3,3]", "library_c3"),
    "lapack_ssyevd_ffi": ("(f32[3,3], f32[3], s32[9]) custom-call(a)", "f32[3,3]", "library_c3"),
    "lapack_sgesdd_ffi": (
        "(f32[3,3], f32[3], f32[3,3], f32[3,3], s32[9]) custom-call(a)",
        "f32[3,3]",
        "library_c3",
    ),
    "lapack_sgtsv_ffi": ("(f32[3], f32[3]) custom-call(a, a, a, a)", "f32[3]", "library_c1"),
    "lapack_strsm_ffi": ("f32[3,3] custom-call(a)", "f32[3,3]", "library_c1"),
    "lapack_cgees_ffi": ("(c64[9], c64[9], c64[3], s32[], s32[]) custom-call(a)", "c64[9]", "library_c2"),
}


@pytest.mark.parametrize("target", LIBRARY)
def test_results_of_library_calls(target: str) -> None:
    call, operand, label = LIBRARY[target]
    body = f'a = {operand} parameter(0)\n ROOT r = {call}, custom_call_target="{target}"'
    refused(entry(body), ShapeError, label)


DECLARED = [
    ("an instruction", entry(f"{TWO} ROOT z = f32[3] add(x, y)"), "inferred is f32"),
    (
        "an operand",
        entry(f"{TWO} ROOT z = f32[2] add(f32[3] x, y)"),
        r"operand x has shape f32\[2\], not f32\[3\]",
    ),
    (
        "a computation's parameters",
        f"HloModule m\nENTRY e (x: f32[9], y: f32[2]) -> f32[2] {{ {TWO} ROOT z = f32[2] add(x, y) }}",
        "e has parameters",
    ),
    (
        "a computation's result",
        f"HloModule m\nENTRY e (x: f32[2], y: f32[2]) -> f32[9] {{ {TWO} ROOT z = f32[2] add(x, y) }}",
        "e returns",
    ),
    (
        "the entry's layout",
        entry(f"{TWO} ROOT z = f32[2] add(x, y)", ", entry_computation_layout={(f32[2], f32[2])->f32[9]}"),
        "entry_layout_c1",
    ),
    (
        "an end",
        entry(
            "x = f32[2] parameter(0)\n s = (f32[2], f32[2], u32[]) copy-start(x)\n "
            "ROOT d = f32[9] copy-done(s)"
        ),
        "copy-done has shape",
    ),
    ("an end without a start", entry("x = f32[2] parameter(0)\n ROOT d = f32[2] copy-done(x)"), "copy-start"),
    (
        "a start's operands",
        entry(
            "x = f32[2] parameter(0)\n s = (f32[2], f32[9], u32[]) copy-start(x)\n "
            "ROOT d = f32[2] copy-done(s)"
        ),
        "its operands are",
    ),
    (
        "an alias of no result",
        entry(f"{TWO} ROOT z = f32[2] add(x, y)", ", input_output_alias={ {7}: (0, {}) }"),
        "alias_c1",
    ),
    (
        "an alias of no parameter",
        entry(f"{TWO} ROOT z = f32[2] add(x, y)", ", input_output_alias={ {}: (7, {}) }"),
        "alias_c1",
    ),
    (
        "an alias of another shape",
        entry(
            "x = f32[3] parameter(0)\n ROOT z = f32[3,1] reshape(x)",
            ", input_output_alias={ {}: (0, {}, may-alias) }",
        ),
        "alias_c2",
    ),
    (
        "invariant parameters",
        entry(f"{TWO} ROOT z = f32[2] add(x, y)", ", invariant_parameters={99}"),
        "below 2",
    ),
    ("the former name", entry(f"{TWO} ROOT z = f32[2] add(x, y)", ", kept_parameters={99}"), "below 2"),
    ("sizes of results", entry(f"{TWO} ROOT z = f32[2] add(x, y)", ", result_sizes={0}"), "s32"),
    (
        "a custom call's layouts",
        entry(
            f'{TWO} ROOT z = f32[2] custom-call(x, y), custom_call_target="t", '
            "operand_layout_constraints={f32[2]{0}, f32[9]{0}}"
        ),
        "verify_c5",
    ),
    (
        "a custom call's aliases",
        entry(
            f'{TWO} ROOT z = f32[2] custom-call(x, y), custom_call_target="t", '
            "output_to_operand_aliasing={{}: (5, {})}"
        ),
        "alias_c1",
    ),
    (
        "a custom call's bytes",
        entry(f'{TWO} ROOT z = f32[2] custom-call(x, y), custom_call_target="t", backend_config="\\x"'),
        "custom_call_c5",
    ),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in DECLARED], ids=[row[0] for row in DECLARED])
def test_what_is_declared(text: str, message: str) -> None:
    refused(text, ShapeError, message)


def test_declared_sizes_known_at_run_time_only() -> None:
    module = parse_hlo(entry("x = f32[4] parameter(0)\n ROOT z = f32[<=4] add(x, x)"))
    assert module.entry.root.shape == array("f32", 4)


CALLS = "".join(
    f"c{k} {{ p = f32[] parameter(0)\n q = f32[] call(p), to_apply=c{k - 1}\n "
    f"ROOT r = f32[] call(q), to_apply=c{k - 1} }}\n"
    for k in range(1, 40)
)
CHAIN = "".join(
    f"c{k} {{ p = f32[] parameter(0)\n ROOT r = f32[] call(p), to_apply=c{k - 1} }}\n" for k in range(1, 150)
)
FIRST = "c0 { p = f32[] parameter(0)\n ROOT n = f32[] negate(p) }\n"
LIMITED = [
    (
        "expanded_instructions",
        entry("p = f32[] parameter(0)\n ROOT r = f32[] call(p), to_apply=c39", "", FIRST + CALLS),
    ),
    ("nesting", entry("p = f32[] parameter(0)\n ROOT r = f32[] call(p), to_apply=c149", "", FIRST + CHAIN)),
    ("nesting", entry(f"ROOT p = {'(' * 3000}f32[]{')' * 3000} parameter(0)")),
    ("nesting", entry(f"ROOT p = {'b(' * 3000}f32[]{')' * 3000} parameter(0)")),
    ("rank", entry(f"ROOT p = f32[{','.join('1' * 100)}] parameter(0)")),
    ("array_bytes", entry("ROOT p = s8[4611686018427387904] iota(), iota_dimension=0")),
    (
        "array_bytes",
        entry("p = f32[] parameter(0)\n ROOT b = f32[1099511627776] broadcast(p), dimensions={}"),
    ),
    ("constant_bytes", entry("ROOT p = f32[400000000,1] constant({1})")),
    ("constant_bytes", entry("ROOT p = f32[40000000,10] constant({[0,0]: 1})")),
    ("devices", entry("ROOT p = f32[] parameter(0)", ", replica_count=4294967296")),
    (
        "tuple_leaves",
        entry(
            "x = f32[] parameter(0)\n"
            + "".join(
                f"t{k} = ({', '.join(['f32[]'] * 400)}) tuple({', '.join(['x'] * 400)})\n" for k in range(1)
            )
            + f"ROOT t = (f32[]) tuple({', '.join(['t0'] * 400)})"
        ),
    ),
]


@pytest.mark.parametrize(("name", "text"), LIMITED, ids=[f"{k}-{row[0]}" for k, row in enumerate(LIMITED)])
def test_limits(name: str, text: str) -> None:
    refused(text, LimitError, f"limits.{name}")


def test_limits_can_be_raised_and_lowered() -> None:
    text = entry("x = f32[4] parameter(0)\n y = f32[4] negate(x)\n ROOT z = f32[4] negate(y)")
    with pytest.raises(LimitError):
        parse_hlo(text, limits=Limits(text_characters=20))
    for limits in (Limits(instructions=2), Limits(array_bytes=15)):
        with pytest.raises(LimitError):
            parse_hlo(text, limits=limits)
        with pytest.raises(LimitError):
            LocalClient("interpreter").compile(parse_hlo(text), Options(limits=limits))
    deep = entry("p = f32[] parameter(0)\n ROOT r = f32[] call(p), to_apply=c149", "", FIRST + CHAIN)
    higher = dataclasses.replace(DEFAULT_LIMITS, nesting=200)
    module = parse_hlo(deep, limits=higher)
    executable = LocalClient().compile(module, Options(limits=higher))
    assert executable.execute([np.float32(3)])[0] == -3


MALFORMED = [
    "ROOT p = f32[-2,3] parameter(0)",
    "ROOT p = token[] constant(1)",
    "ROOT p = tuple[] constant(1)",
    f"ROOT p = f32[] parameter({'9' * 5000})",
    "ROOT p = f32[1_0] parameter(0)",
    "ROOT p = f32[²] parameter(0)",
    "ROOT p = f32[] parameter(²)",
    f"ROOT p = s32[] constant({'9' * 5000})",
    "ROOT p = f32[2] constant({{1, 2})",
    f"ROOT p = f32[{'9' * 5000}] parameter(0)",
    "ROOT p = f32[9223372036854775807,9] constant({[0,0]: 1})",
    "p = f32[4] parameter(0)\n ROOT r = f32[4] slice(p), slice={[0:4:1]}, slice={[0:2:1]}",
    f"p = f32[4] parameter(0)\n ROOT r = f32[4] reverse(p), dimensions={{{'1' * 5000}}}",
    "p = f32[4] parameter(0)\n ROOT r = f32[4] all-gather(p), dimensions={0}, "
    "replica_groups=[999999,999999]<=[999998000001]",
    "p = f32[4] parameter(0)\n ROOT r = f32[4] pad(p, p), padding=99999999999999999999_0",
    "x = f32[4,3] parameter(0)\n s = f32[3] parameter(1)\n ROOT b = (f32[4,3], f32[3], f32[3]) batch-norm-training"
    "(x, s, s), epsilon=1e-3, feature_index=inf",
]


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: body[:40])
def test_malformed(body: str) -> None:
    refused(entry(body), CompilerError)


@pytest.mark.parametrize("value", ["{", "{ {0} }", "{ {0}: 1 }", "x", "{ {}: (0, {}) trailing }"])
def test_malformed_aliases(value: str) -> None:
    refused(entry("ROOT p = f32[] parameter(0)", f", input_output_alias={value}"), ParseError)


def test_malformed_metadata_is_kept_as_it_is() -> None:
    text = (
        "FileNames\n" + "9" * 5000 + ' "x"\n\n'
        "ENTRY e { ROOT p = f32[] parameter(0), metadata={source_line=² } }"
    )
    assert parse_hlo("HloModule m\n" + text).entry.root.metadata.source_line == 0


def test_constants_of_many_elements() -> None:
    numbers = ", ".join(str(k % 1000) for k in range(400_000))
    found = parse_hlo(entry(f"ROOT c = s32[400000] constant({{{numbers}}})")).entry.root.op.literal.array
    assert found.tolist() == [k % 1000 for k in range(400_000)]


def test_what_a_client_compiles_is_verified() -> None:
    x = make(Parameter(0, array("f32", 4)), name="x")
    wrong = Instruction(Elementwise("negate"), (x,), array("f32", 4000), "n")
    with pytest.raises(ShapeError, match="verify_c1"):
        LocalClient().compile(Module("m", Computation("main", wrong, [x])))
    negated = Computation("main", make(Elementwise("negate"), x), [x])
    with pytest.raises(ShapeError, match="verify_c4"):
        verify(Module("m", negated, {"input_output_alias": "{ {}: (0, {}) }"}))
    with pytest.raises(ShapeError, match="alias_c1"):
        verify(Module("m", negated, input_output_aliases=[InputOutputAlias((), 1)]))
    call = Instruction(
        CustomCall(array("f32", 4), "t", operand_layout_constraints="{f32[9]}"), (x,), array("f32", 4)
    )
    with pytest.raises(ShapeError, match="verify_c5"):
        verify(Module("m", Computation("main", call, [x])))


def test_tuples_in_tuples_from_the_builder() -> None:
    b = ComputationBuilder("m")
    value = b.parameter(0, array("f32"))
    for _ in range(3):
        value = b.tuple([value] * 300)
    with pytest.raises(LimitError, match="limits.tuple_leaves"):
        b.build()
    deep = array("f32")
    for _ in range(5000):
        deep = Shape.tuple([deep])
    with pytest.raises(LimitError, match="limits.nesting"):
        check_size(deep)


def test_the_evaluator_makes_no_huge_values() -> None:
    b = ComputationBuilder("m")
    huge = b.build(b.iota(array("f32", 1 << 37), 0))
    with pytest.raises(LimitError, match="limits.evaluated_bytes"):
        evaluate(huge, [])


WINDOWS = [
    "ROOT r = f32[1] reduce-window(c, z), window={size=99999999 pad=0_99999998}, to_apply=add",
    "ROOT r = f32[1] reduce-window(c, z), window={size=9999999999 pad=9999999998_0}, to_apply=add",
    "ROOT r = f32[2] reduce-window(c, z), window={size=1 pad=0_9999999999 stride=9999999999}, to_apply=add",
]


@pytest.mark.parametrize("root", WINDOWS)
def test_huge_windows_of_constants_are_not_folded(root: str) -> None:
    text = entry(f"c = f32[1] constant({{1}})\n z = f32[] constant(0)\n {root}", "", ADD)
    LocalClient().compile(parse_hlo(text))


def test_loops_are_not_run_while_compiling() -> None:
    for_ever = (
        "yes { s = f32[] parameter(0)\n ROOT t = pred[] constant(true) }\n"
        "same { s = f32[] parameter(0)\n ROOT n = f32[] negate(s) }\n"
        "spin { a = f32[] parameter(0)\n ROOT w = f32[] while(a), condition=yes, body=same }\n"
    )
    text = entry(
        "c = f32[2] constant({1, 2})\n ROOT m = f32[2] map(c), dimensions={0}, to_apply=spin", "", for_ever
    )
    with contextlib.suppress(UnsupportedError):  # compiled or not, it ends
        LocalClient().compile(parse_hlo(text))


def test_leaves_of_wide_tuples_compile_in_time() -> None:
    """Two thousand results that are one value: copies once took the square of it."""
    x = make(Parameter(0, array("f32")), name="x")
    results = make(Tuple(), *[x] * 2000)
    found = LocalClient().compile(Module("m", Computation("main", results, [x]))).execute([np.float32(2)])
    assert len(found) == 2000 and all(f == 2 for f in found)


def test_the_document_has_every_limit() -> None:
    text = (pathlib.Path(__file__).parents[3] / "docs" / "client.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d,^]+) \|", text, re.MULTILINE))
    said = {
        name: 2 ** int(number[2:]) if "^" in number else int(number.replace(",", ""))
        for name, number in rows.items()
    }
    assert said == dataclasses.asdict(DEFAULT_LIMITS)
