"""Loops from which work is lifted, and that are cut and run side by side: what changes, what stays, same results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from random_loops import random_loop
from tfbridge.compiler.client.client import LocalClient
from tfbridge.compiler.cpu.schedule.buffer import Buffer
from tfbridge.compiler.cpu.schedule.buffer_assignment import assign_buffers
from tfbridge.compiler.cpu.schedule.lowering import lower_module
from tfbridge.compiler.cpu.schedule.thunks import ParallelThunk
from tfbridge.compiler.cpu.targets.named_target import target_for
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.ir.module import Instruction, Module
from tfbridge.compiler.ir.verifier import verify
from tfbridge.compiler.options import Options
from tfbridge.compiler.passes import loop_invariant_code_motion as lifting
from tfbridge.compiler.passes import parallelize_loops as sharding
from tfbridge.compiler.passes.dce import dce
from tfbridge.compiler.passes.loop_invariant_code_motion import loop_invariant_code_motion
from tfbridge.compiler.passes.parallelize_loops import parallelize_loops
from tfbridge.compiler.passes.pipeline import CPU_PASSES, run_pipeline
from tfbridge.compiler.passes.simplify import simplify
from tfbridge.runtime.llvm.ir_builder import ModuleText

TWO = Options(threads=2)
HEAD = (
    "HloModule m\nplus { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
    "largest { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }\n"
)


def loop(
    name: str,
    batch: int,
    extra: str = "",
    state: str = "z",
    steps: int = 40,
    width: int = 64,
    test: str = "",
    total: str = "add(d, product)",
) -> str:
    """Computations of a loop h = tanh(x h w) that keeps the states and sums x' h: `extra` are further lines, `state`
    the new h, `test` further lines of the condition (its root is `c`)."""
    rows, square = f"f32[{batch},{width}]", f"f32[{width},{width}]"
    kind = f"(s32[], {rows}, f32[{steps},{batch},{width}], {square}, {square}, f32[{steps},{batch},{width}])"
    parts = "\n".join(
        f"{n} = {s} get-tuple-element(p), index={k}"
        for k, (n, s) in enumerate(
            zip(["n", "h", "xs", "w", "d", "ys"], kind[1:-1].replace(", ", "|").split("|"))
        )
    )
    numbers = f"zero = s32[] constant(0) one = s32[] constant(1) last = s32[] constant({steps}) f = f32[] constant(0)"
    return f"""{name}_more {{ p = {kind} parameter(0)
{parts} {numbers}
{test or "ROOT c = pred[] compare(n, last), direction=LT"} }}
{name}_step {{ p = {kind} parameter(0)
{parts} {numbers}
next = s32[] add(n, one)
s = f32[1,{batch},{width}] dynamic-slice(xs, n, zero, zero), dynamic_slice_sizes={{1,{batch},{width}}}
x = {rows} reshape(s)
y = {rows} dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
xy = {rows} add(x, y)
z = {rows} tanh(xy)
{extra}
product = {square} dot(x, z), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
sum = {square} {total}
u = f32[1,{batch},{width}] reshape({state})
list = f32[{steps},{batch},{width}] dynamic-update-slice(ys, u, n, zero, zero)
ROOT r = {kind} tuple(next, {state}, xs, w, sum, list) }}
"""


def entry(*loops: tuple[str, str], batch: int, steps: int = 40, width: int = 64) -> str:
    """The entry: each (name, sequence) is a loop over a sequence, a parameter or the list that another one made."""
    rows, square = f"f32[{batch},{width}]", f"f32[{width},{width}]"
    sequence = f"f32[{steps},{batch},{width}]"
    kind = f"(s32[], {rows}, {sequence}, {square}, {square}, {sequence})"
    lines = [
        f"x = {sequence} parameter(0) w = {square} parameter(1) h = {rows} parameter(2) n = s32[] constant(0)",
        f"f = f32[] constant(0) d = {square} broadcast(f), dimensions={{}} "
        f"ys = {sequence} broadcast(f), dimensions={{}}",
    ]
    results = []
    for name, given in loops:
        lines += [
            f"{name}_t = {kind} tuple(n, h, {given}, w, d, ys)",
            f"{name} = {kind} while({name}_t), condition={name}_more, body={name}_step",
            f"{name}_h = {rows} get-tuple-element({name}), index=1",
            f"{name}_d = {square} get-tuple-element({name}), index=4",
            f"{name}_ys = {sequence} get-tuple-element({name}), index=5",
        ]
        results += [(rows, f"{name}_h"), (square, f"{name}_d"), (sequence, f"{name}_ys")]
    root = f"ROOT r = ({', '.join(s for s, _ in results)}) tuple({', '.join(n for _, n in results)})"
    newline = "\n"
    return f"ENTRY main {{\n{newline.join(lines)}\n{root} }}\n"


def one(batch: int, **changes: object) -> str:
    return HEAD + loop("a", batch, **changes) + entry(("a", "x"), batch=batch)  # type: ignore[arg-type]


def given(module: Module, seed: int = 0, scale: float = 1 / 12) -> list[np.ndarray]:
    """Small numbers: a recurrence with large ones is chaotic."""
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal(p.shape.dims) * scale).astype(p.shape.element_type.dtype)
        for p in module.entry.parameters
    ]


def same(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], absolute: float = 2e-6) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=absolute)  # sums are made in another order


def concurrents(module: Module) -> list[Instruction]:
    return [i for i in module.entry.instructions if i.opcode == "concurrent"]


@pytest.mark.parametrize("batch", [8, 9, 33])
@pytest.mark.parametrize("threads", [2, 3])
def test_batch_is_cut(batch: int, threads: int) -> None:
    module = parse_hlo(one(batch))
    made = verify(parallelize_loops(module, Options(threads=threads)))
    (found,) = concurrents(made)
    branches = found.op.branches  # type: ignore[attr-defined]
    assert len(branches) == min(threads, batch // 4)
    # Every part slices the whole sequence and has its own rows of the state.
    rows = [next(i for i in b.instructions if i.opcode == "while").shape.tuple_shapes for b in branches]
    assert [r[2].dims for r in rows] == [(40, batch, 64)] * len(branches)
    assert sum(r[1].dims[0] for r in rows) == sum(r[5].dims[1] for r in rows) == batch
    arguments = given(module)
    wanted = evaluate(module, arguments)
    same(evaluate(made, arguments), wanted)
    client = LocalClient(platform="cpu")
    same(client.compile(module, Options(threads=threads)).execute(arguments), wanted)


@pytest.mark.parametrize(
    "changes",
    [
        {"extra": "q = f32[16,64] reverse(z), dimensions={0}", "state": "q"},
        {
            "extra": "m = f32[64] reduce(z, f), dimensions={0}, to_apply=largest "
            "q = f32[16,64] broadcast(m), dimensions={1}",
            "state": "q",
        },
        {
            "extra": "m = f32[64] reduce(z, f), dimensions={0}, to_apply=plus k = f32[] constant(0.0625) "
            "kk = f32[64] broadcast(k), dimensions={} mm = f32[64] multiply(m, kk) "
            "q = f32[16,64] broadcast(mm), dimensions={1}",
            "state": "q",
        },
        {"total": "maximum(d, product)"},
        {
            "test": "t = f32[] reduce(h, f), dimensions={0,1}, to_apply=largest k = f32[] constant(9) "
            "low = pred[] compare(t, k), direction=LT m = pred[] compare(n, last), direction=LT "
            "ROOT c = pred[] and(low, m)"
        },
        {"steps": 2, "width": 64},
    ],
    ids=["reversed", "largest", "total", "largest total", "condition", "short"],
)
def test_what_mixes_the_batch_is_not_cut(changes: dict[str, object]) -> None:
    steps = changes.get("steps", 40)
    text = HEAD + loop("a", 16, **changes) + entry(("a", "x"), batch=16, steps=steps)  # type: ignore[arg-type]
    module = parse_hlo(text)
    assert parallelize_loops(module, TWO) is module
    arguments = given(module)
    same(LocalClient(platform="cpu").compile(module, TWO).execute(arguments), evaluate(module, arguments))


def test_what_all_parts_read_stays_in_a_core() -> None:
    """The weights are [64, 64] of f32: 16 KiB."""
    module = parse_hlo(one(16))
    assert len(concurrents(parallelize_loops(module, Options(threads=2, l2_bytes=16 << 10)))) == 1
    assert parallelize_loops(module, Options(threads=2, l2_bytes=12 << 10)) is module


def test_one_thread_and_reproducible_code_have_loops_whole() -> None:
    module = parse_hlo(one(16))
    for options in (Options(threads=1), Options(threads=4, numerics="reproducible")):
        assert parallelize_loops(module, options) is module


@pytest.mark.parametrize(("second", "groups"), [("x", [2]), ("a_ys", [2, 2])])
def test_loops_that_do_not_need_each_other(second: str, groups: list[int]) -> None:
    """Two are a branch each; one that needs the other is cut after it."""
    module = parse_hlo(
        HEAD
        + loop("a", 16)
        + loop("b", 16, "e = f32[16,64] negate(z)", "e")
        + entry(("a", "x"), ("b", second), batch=16)
    )
    made = verify(parallelize_loops(module, TWO))
    assert [len(c.operands) for c in concurrents(made)] == groups
    arguments = given(module)
    wanted = evaluate(module, arguments)
    same(evaluate(made, arguments), wanted)
    same(LocalClient(platform="cpu").compile(module, TWO).execute(arguments), wanted)


def test_branches_have_memory_of_their_own() -> None:
    target = target_for("x86_64-unknown-linux-gnu", features="+avx2,+fma", threads=2)
    module = run_pipeline(parse_hlo(one(16)), TWO, None, CPU_PASSES)
    entry = lower_module(module, ModuleText(target), target, TWO).entry
    assignment = assign_buffers(entry)
    offsets, ranges = assignment.offsets, assignment.ranges
    (thunk,) = [t for t in entry.thunks if isinstance(t, ParallelThunk)]
    own: list[list[Buffer]] = [
        [b for b in offsets if ranges[b].branches[-1:] and ranges[b].branches[-1][1] == k]
        for k in range(len(thunk.branches))
    ]
    assert len(own) == 2 and all(own)
    for a in own[0]:
        for b in own[1]:
            assert (
                not (a.bytes and b.bytes)
                or offsets[a] + a.bytes <= offsets[b]
                or offsets[b] + b.bytes <= offsets[a]
            )


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_random_loops(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_MIN_US", 0), ("_MIN_ROWS", 1)):
        monkeypatch.setattr(sharding, name, value)
    for name in ("_MIN_FLOPS", "_MIN_SUM_BYTES"):
        monkeypatch.setattr(lifting, name, 0)
    options = Options(threads=3)
    changed = 0
    for seed in range(first, first + 15):
        module = parse_hlo(random_loop(seed))
        arguments = given(module, seed, 0.5)
        wanted = evaluate(module, arguments)
        lifted = simplify(dce(verify(loop_invariant_code_motion(module, options)), options), options)
        same(evaluate(verify(lifted), arguments), wanted, 2e-5)
        cut = verify(parallelize_loops(lifted, options))
        same(evaluate(cut, arguments), wanted, 2e-5)
        changed += cut is not lifted
    assert changed >= 3
    same(LocalClient(platform="cpu").compile(module, options).execute(arguments), wanted, 2e-5)


# -- work lifted from loops


def while_of(module: Module) -> Instruction:
    (found,) = [i for i in module.entry.instructions if i.opcode == "while"]
    return found


def lifted(text: str) -> Module:
    """The module after lifting, with the same results."""
    module = parse_hlo(text)
    made = simplify(dce(verify(loop_invariant_code_motion(module, TWO)), TWO), TWO)
    arguments = given(module)
    same(evaluate(verify(made), arguments), evaluate(module, arguments))
    return made


def dots(module: Module, inside: bool) -> list[tuple[int, ...]]:
    body = while_of(module).op.body if inside else module.entry  # type: ignore[attr-defined]
    return [i.shape.dims for i in body.instructions if i.opcode == "dot"]


DENSE = (
    "v = f32[16,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} q = f32[16,64] add(v, z)"
)


def test_products_of_slices_become_one() -> None:
    made = lifted(one(16, extra=DENSE, state="q"))
    assert dots(made, False) == [(40, 16, 64)]
    assert dots(made, True) == [(16, 64), (64, 64)]


def test_products_beside_a_check() -> None:
    """A check within the loop stays there, in every step."""
    check = (
        "t = f32[] reduce(h, f), dimensions={0,1}, to_apply=largest far = f32[] constant(1e9) "
        "bad = pred[] compare(t, far), direction=GT e = () custom-call(bad), "
        'custom_call_target="tfbridge.bail_out_if", custom_call_has_side_effect=true, backend_config="far" '
    )
    made = lifted(one(16, extra=check + DENSE, state="q"))
    assert dots(made, False) == [(40, 16, 64)]
    assert [i.opcode for i in while_of(made).op.body.instructions].count("custom-call") == 1  # type: ignore[attr-defined]


def test_products_of_a_part_of_a_concatenation() -> None:
    made = lifted(
        one(
            16,
            state="q",
            extra="""both = f32[16,128] concatenate(x, h), dimensions={1}
ww = f32[128,64] concatenate(w, w), dimensions={0}
q = f32[16,64] dot(both, ww), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
        )
    )
    assert dots(made, False) == [(40, 16, 64)]
    assert (16, 64) in dots(made, True)


def test_products_stay_where_the_count_of_steps_is_unknown() -> None:
    test = (
        "t = f32[] reduce(h, f), dimensions={0,1}, to_apply=largest k = f32[] constant(9) "
        "ROOT c = pred[] compare(t, k), direction=LT"
    )
    more = "m = f32[] constant(1) mm = f32[16,64] broadcast(m), dimensions={} o = f32[16,64] add(h, mm) "
    made = lifted(one(16, extra=more + DENSE.replace("add(v, z)", "add(v, o)"), state="q", test=test))
    assert dots(made, False) == []


def test_sums_of_products_become_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the lists of both factors; a sum that something else is done with stays."""
    monkeypatch.setattr(lifting, "_MIN_SUM_BYTES", 0)
    made = lifted(one(16))
    assert dots(made, False) == [(64, 64)] and dots(made, True) == [(16, 64)]
    stays = lifted(one(16, total="maximum(d, product)"))
    assert dots(stays, False) == [] and dots(stays, True) == [(16, 64), (64, 64)]


def test_where_a_count_ends_is_known() -> None:
    """A loop as long as another one was is one of known length."""
    text = """HloModule m
more { p = (s32[], s32[], f32[4]) parameter(0) n = s32[] get-tuple-element(p), index=0
  last = s32[] get-tuple-element(p), index=1 ROOT c = pred[] compare(n, last), direction=LT }
step { p = (s32[], s32[], f32[4]) parameter(0) n = s32[] get-tuple-element(p), index=0
  last = s32[] get-tuple-element(p), index=1 x = f32[4] get-tuple-element(p), index=2 two = s32[] constant(2)
  next = s32[] add(n, two) y = f32[4] tanh(x) ROOT r = (s32[], s32[], f32[4]) tuple(next, last, y) }
ENTRY main { x = f32[4] parameter(0) zero = s32[] constant(0) nine = s32[] constant(9)
  t = (s32[], s32[], f32[4]) tuple(zero, nine, x)
  w = (s32[], s32[], f32[4]) while(t), condition=more, body=step
  n = s32[] get-tuple-element(w), index=0 y = f32[4] get-tuple-element(w), index=2
  u = (s32[], s32[], f32[4]) tuple(zero, n, y)
  v = (s32[], s32[], f32[4]) while(u), condition=more, body=step
  k = s32[] get-tuple-element(v), index=0 z = f32[4] get-tuple-element(v), index=2
  ROOT r = (s32[], s32[], f32[4]) tuple(n, k, z) }
"""
    made = lifted(text)
    ends = [o.op.literal.array.item() for o in made.entry.root.operands[:2]]  # type: ignore[attr-defined]
    assert ends == [10, 10]


@pytest.mark.parametrize(("value", "lists"), [("w", 1), ("ww", 1), ("z", 2)])
def test_list_of_one_value(value: str, lists: int) -> None:
    """A list of a matrix that no step changes is not written; the sequence is the other one."""
    made = lifted(one(64, extra="ww = f32[64,64] add(w, w)").replace("reshape(z)", f"reshape({value})"))
    assert sum(s.dims == (40, 64, 64) for s in while_of(made).shape.tuple_shapes) == lists


@pytest.mark.parametrize(("steps", "places"), [(40, 40), (40, 41), (40, 30)])
def test_list_of_a_sequence(steps: int, places: int) -> None:
    """It is the sequence where every place is written; else it keeps what it began with."""
    text = f"""HloModule m
more {{ p = (s32[], f32[{places},2], f32[{places},2]) parameter(0) n = s32[] get-tuple-element(p), index=0
  last = s32[] constant({steps}) ROOT c = pred[] compare(n, last), direction=LT }}
step {{ p = (s32[], f32[{places},2], f32[{places},2]) parameter(0) n = s32[] get-tuple-element(p), index=0
  xs = f32[{places},2] get-tuple-element(p), index=1 ys = f32[{places},2] get-tuple-element(p), index=2
  zero = s32[] constant(0) one = s32[] constant(1) next = s32[] add(n, one)
  x = f32[1,2] dynamic-slice(xs, n, zero), dynamic_slice_sizes={{1,2}}
  u = f32[{places},2] dynamic-update-slice(ys, x, n, zero)
  ROOT r = (s32[], f32[{places},2], f32[{places},2]) tuple(next, xs, u) }}
ENTRY main {{ xs = f32[{places},2] parameter(0) ys = f32[{places},2] parameter(1) n = s32[] constant(0)
  t = (s32[], f32[{places},2], f32[{places},2]) tuple(n, xs, ys)
  w = (s32[], f32[{places},2], f32[{places},2]) while(t), condition=more, body=step
  k = s32[] get-tuple-element(w), index=0 u = f32[{places},2] get-tuple-element(w), index=2
  ROOT r = (s32[], f32[{places},2]) tuple(k, u) }}
"""
    made = lifted(text)
    assert any(i.opcode == "while" for i in made.entry.instructions) == (
        places > steps
    )  # nothing is left to do


def test_slices_of_one_value() -> None:
    """A slice of a list that has a matrix in every place is the matrix."""
    made = lifted(
        HEAD
        + loop("a", 64).replace("reshape(z)", "reshape(w)")
        + loop("b", 64)
        + entry(("a", "x"), ("b", "a_ys"), batch=64)
    )
    slices = [
        [i.opcode for i in loop.op.body.instructions].count("dynamic-slice")  # type: ignore[attr-defined]
        for loop in made.entry.instructions
        if loop.opcode == "while"
    ]
    assert slices == [1, 0]
