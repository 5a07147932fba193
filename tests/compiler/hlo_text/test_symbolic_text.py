"""HLO text of sizes that are known at run time only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfbridge.compiler import ComputationBuilder, Module, ParseError, ShapeError, parse_hlo, verify
from tfbridge.compiler.errors import CompilerError
from tfbridge.compiler.hlo_text.sizes import parse_size
from tfbridge.compiler.ir.shape import array, assumptions_of
from tfbridge.runtime.sizes import AnySize, Assumptions, Size, estimate, maximum

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"


def module(body: str, header: str = "") -> Module:
    return parse_hlo(f"HloModule m{header}\n\n{ADD}\nENTRY e {{\n  p = f32[n,64] parameter(0)\n{body}\n}}\n")


INSTRUCTIONS = [
    "ROOT r = f32[64*n] reshape(p)",
    "ROOT r = f32[n,8,8] reshape(p)",
    "ROOT r = f32[n-1,64] slice(p), slice={[1:n], [0:64]}",
    "ROOT r = f32[((n+1)//2),64] slice(p), slice={[0:n:2], [0:64]}",
    "ROOT r = f32[2*n-1,64] pad(p, c), padding=0_0_1x0_0",
    "ROOT r = f32[3*n-1,64] pad(p, c), padding=(n)_(n-1)x0_0",
    "ROOT r = s32[n,n] iota(), iota_dimension=1",
    "ROOT r = f32[64,n] transpose(p), dimensions={1,0}",
    "ROOT r = f32[n,n,64] broadcast(p), dimensions={1,2}",
    "ROOT r = f32[2*n,64] concatenate(p, p), dimensions={0}",
    "ROOT r = f32[n-1,2] dynamic-slice(p, i, i), dynamic_slice_sizes={n-1,2}",
    "ROOT r = f32[n,64] dynamic-update-slice(p, u, i, i)",
    "ROOT r = f32[5,n-1] gather(g, j), offset_dims={1}, collapsed_slice_dims={1}, start_index_map={1}, "
    "index_vector_dim=1, slice_sizes={n-1,1}",
    "ROOT r = f32[n,64] reduce-window(p, c), window={size=2x1 pad=0_1x0_0}, to_apply=add",
    "ROOT r = f32[n,64] reduce-window(p, c), window={size=(n)x1 pad=(n-1)_0x0_0}, to_apply=add",
    "ROOT r = f32[(n//2),64] reduce-window(p, c), window={size=2x1 stride=2x1}, to_apply=add",
    "ROOT r = f32[64] reduce(p, c), dimensions={0}, to_apply=add",
    "ROOT r = f32[n,n] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "ROOT r = s32[] size(), value=2*n+1",
    "ROOT r = s32[] size(), value=max((n//2),7)",
    "ROOT r = s64[] size(), value=-max(-n,-(n*n//5)*n)",
    "ROOT r = (f32[n,64], s32[64]) tuple(p, k)",
    "ROOT r = c64[n,33] fft(p), fft_type=RFFT, fft_length={64}",
]
BEFORE = """  c = f32[] constant(0)
  i = s32[] constant(1)
  j = s32[5,1] parameter(1)
  u = f32[n-1,8] slice(p), slice={[0:n-1], [0:8]}
  g = f32[n,64] negate(p)
  k = s32[64] iota(), iota_dimension=0
"""


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_round_trip_without_a_guard(instruction: str) -> None:
    read = verify(module(BEFORE + "  " + instruction))
    again = parse_hlo(str(read))
    assert str(again) == str(read)
    assert "sizes={n=37}" in str(read)
    assumptions = assumptions_of(read.entry.parameter_shapes)
    assert assumptions is not None and not assumptions.guards, str(assumptions)


def test_typical_values_and_lower_bounds() -> None:
    read = module("  q = f32[b,k] parameter(1)", ", sizes={n>=1=5, b=100, k>=0=0}")
    assert str(read).startswith("HloModule m, sizes={n>=1=5, b=100, k>=0=0}\n")
    assert [estimate(d) for d in read.entry.parameters[1].shape.dims] == [100, 0]
    assert str(parse_hlo(str(read))) == str(read)
    (n,) = (d for d in read.entry.parameters[0].shape.dims if isinstance(d, Size))
    assert n.lower() == 1


def test_entry_layout_and_operand_layouts_name_the_same_symbols() -> None:
    read = module(
        '  ROOT r = f32[n,64] custom-call(p), custom_call_target="f", operand_layout_constraints={f32[n,64]{1,0}}',
        ", entry_computation_layout={(f32[n,64]{1,0})->f32[n,64]{1,0}}",
    )
    assert str(parse_hlo(str(verify(read)))) == str(read)
    with pytest.raises(ShapeError, match="entry_computation_layout"):
        module("", ", entry_computation_layout={(f32[n+1,64]{1,0})->f32[n,64]{1,0}}")


def test_a_module_of_a_builder() -> None:
    assumptions = Assumptions()
    n, m = assumptions.symbol("n", 8), assumptions.symbol("m", 3, 1)
    b = ComputationBuilder("main")
    p = b.parameter(0, array("f32", n, m, maximum([n // 2, m])))  # type: ignore[arg-type]
    built = Module("m", b.build(b.add(p, p)))
    assert str(built).startswith("HloModule m, sizes={n=8, m>=1=3}\n")
    assert str(parse_hlo(str(built))) == str(built)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("n,", "expected dims"),
        ("2n", "expected a size"),
        ("n*", "expected a size"),
        ("n/2", r"only \+, -, \*, //, % and max"),
        ("n**2", r"only \+"),
        ("n//0", "expected a size"),
        ("n%(n-n)", "expected a size"),
        ("(n", "expected a size"),
        ("n)", "expected a size"),
        ("max()", r"only \+"),
        ("min(n,2)", r"only \+"),
        ("max", r"only \+"),
        ("n.a", "other characters"),
        ("n if n else n", "only|other"),
        ("True", "only|shape|"),
        ("n" + "+n" * 600, "too long"),
        ("*".join(["(a+b+c)"] * 40), "more than"),
        ("*".join("abcdefghijk"), "more than"),
        ("n*9999999999*9999999999", "."),
        ("n-40", "negative size"),
        ("100000000*n*n*n", "limit"),
        ("n 2", "expected a size"),
        ("é", "."),
        ("(" * 300 + "n" + ")" * 300, "."),
    ],
)
def test_malformed_sizes(sizes: str, message: str) -> None:
    with pytest.raises(CompilerError, match=message) as raised:
        parse_hlo(f"HloModule m\nENTRY e {{\n  ROOT p = f32[{sizes}] parameter(0)\n}}\n")
    assert raised.value.line == 3 and raised.value.column > 0


@pytest.mark.parametrize(
    "header", ["n", "{n}", "{n=1}", "{n=a}", "{n=5, n=6}", "{max=5}", "{n=5 m=6}", "{n>=7=3}", "{2=3}"]
)
def test_malformed_declarations(header: str) -> None:
    with pytest.raises(ParseError, match="sizes: expected"):
        module("", f", sizes={header}")


@pytest.mark.parametrize(
    "instruction",
    [
        "ROOT r = f32[n,65] add(p, p)",
        "ROOT r = f32[n+1,64] add(p, p)",
        "ROOT r = f32[n,n] reshape(p)",
        "ROOT r = f32[32*n] reshape(p)",
        "ROOT r = f32[n,64] slice(p), slice={[0:n+1], [0:64]}",
        "ROOT r = f32[n,64] dynamic-slice(p, i, i), dynamic_slice_sizes={n+1,64}",
        "ROOT r = f32[n,64] concatenate(p, p), dimensions={0}",
        "ROOT r = f32[n,n] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "ROOT r = f32[n] constant({1, 2})",
        "ROOT r = f32[n,64] pad(p, c), padding=n_0x0_0",
        "ROOT r = f32[n,64] slice(p), slice={[0:n:, [0:64]}",
        "ROOT r = f32[n,64] transpose(p), dimensions={n,0}",
    ],
)
def test_inconsistent_sizes(instruction: str) -> None:
    with pytest.raises(CompilerError) as raised:
        module(BEFORE + "  " + instruction)
    assert raised.value.line > 0 and raised.value.column > 0


sizes = st.recursive(
    st.sampled_from(["n", "m"]) | st.integers(0, 99).map(str),
    lambda s: st.one_of(
        st.tuples(s, st.sampled_from(["+", "-", "*", "//", "%"]), s).map(lambda t: f"({t[0]}{t[1]}{t[2]})"),
        st.tuples(s, s).map(lambda t: f"max({t[0]}, {t[1]})"),
    ),
    max_leaves=6,
)


def read(text: str, assumptions: Assumptions) -> AnySize | None:
    try:
        return parse_size(text, assumptions)
    except ValueError:
        return None


@given(sizes)
def test_sizes_print_and_parse(text: str) -> None:
    assumptions = Assumptions()
    size = read(text, assumptions)
    if size is not None:
        assert read(str(size), assumptions) == size


@given(st.text(st.sampled_from("nm2+-*/%(),max _:x"), max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    read(text, Assumptions())
    with pytest.raises(CompilerError):
        parse_hlo(f"HloModule m\nENTRY e {{\n  ROOT p = f32[2] pad(p, p), padding={text}\n}}\n")
