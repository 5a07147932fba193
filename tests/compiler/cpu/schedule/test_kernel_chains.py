"""Kernels that run slice by slice: which are chained, what memory their values take, and that results are the same."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import numpy as np
import pytest
from guarded import run_guarded
from tfbridge.compiler import evaluate, parse_hlo
from tfbridge.compiler.cpu.compile import compile_module, lower_to_thunks
from tfbridge.compiler.cpu.schedule import kernel_chains
from tfbridge.compiler.cpu.schedule.thunks import ChainThunk, KernelThunk, Thunk, kernel_thunks
from tfbridge.compiler.options import Options
from tfbridge.runtime.code.executable import Executable
from tfbridge.runtime.sizes import Size
from tfbridge.runtime.sizes import evaluate as evaluate_size

REDUCERS = """
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
larger { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] maximum(a, b) }
"""


def softmax(x: str, dims: str, result: str) -> str:
    """Instructions for the softmax of `x` along the last of four axes."""
    outer = dims.rsplit(",", 1)[0]
    return f"""
  low = f32[] constant(-inf)
  largest = f32[{outer}] reduce({x}, low), dimensions={{3}}, to_apply=larger
  same = f32[{dims}] broadcast(largest), dimensions={{0,1,2}}
  less = f32[{dims}] subtract({x}, same)
  power = f32[{dims}] exponential(less)
  none = f32[] constant(0)
  total = f32[{outer}] reduce(power, none), dimensions={{3}}, to_apply=add
  totals = f32[{dims}] broadcast(total), dimensions={{0,1,2}}
  {result} = f32[{dims}] divide(power, totals)"""


def attention(batch: str) -> str:
    """Attention of 2 heads of 17 positions whose results have their heads behind the positions."""
    scores = f"{batch},2,17,17"
    return f"""
  q = f32[{batch},17,2,5] parameter(0)
  k = f32[{batch},17,2,5] parameter(1)
  v = f32[{batch},17,2,5] parameter(2)
  s = f32[{scores}] dot(q, k), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,2}},
    lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}{softmax("s", scores, "p")}
  o = f32[{batch},2,17,5] dot(p, v), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,2}},
    lhs_contracting_dims={{3}}, rhs_contracting_dims={{1}}
  ROOT r = f32[{batch},17,2,5] transpose(o), dimensions={{0,2,1,3}}"""


DENSE = """
  x = f32[96,24] parameter(0)
  w = f32[24,40] parameter(1)
  u = f32[40,24] parameter(2)
  h = f32[96,40] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[96,40] tanh(h)
  d = f32[96,24] dot(t, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[96,24] add(d, x)
  zero = f32[] constant(0)
  sums = f32[96] reduce(y, zero), dimensions={1}, to_apply=add
  wide = f32[96,24] broadcast(sums), dimensions={0}
  ROOT r = f32[96,24] subtract(y, wide)"""

# 1x1, depthwise, 1x1 with a residual, then the mean of each image times a matrix.
IMAGES = """
  x = f32[8,9,7,16] parameter(0)
  w = f32[1,1,16,48] parameter(1)
  k = f32[3,3,1,48] parameter(2)
  u = f32[1,1,48,16] parameter(3)
  v = f32[3,3,16,24] parameter(4)
  g = f32[24,6] parameter(5)
  a = f32[8,9,7,48] convolution(x, w), window={size=1x1}, dim_labels=b01f_01io->b01f
  b = f32[8,9,7,48] tanh(a)
  c = f32[8,9,7,48] convolution(b, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f,
    feature_group_count=48
  d = f32[8,9,7,48] tanh(c)
  e = f32[8,9,7,16] convolution(d, u), window={size=1x1}, dim_labels=b01f_01io->b01f
  s = f32[8,9,7,16] add(e, x)
  f = f32[8,5,4,24] convolution(s, v), window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  h = f32[8,5,4,24] tanh(f)
  zero = f32[] constant(0)
  m = f32[8,24] reduce(h, zero), dimensions={1,2}, to_apply=add
  ROOT r = f32[8,6] dot(m, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""

PROGRAMS = {"attention": attention("6"), "dense": DENSE, "images": IMAGES}


def text_of(body: str, header: str = "") -> str:
    return f"HloModule m{header}\n{REDUCERS}\nENTRY main {{{body}\n}}\n"


def chains(text: str, threads: int = 2) -> list[KernelThunk]:
    """The chains of a program that is compiled for so many threads."""
    program, _ = lower_to_thunks(parse_hlo(text), Options(threads=threads))
    return [thunk for thunk in kernel_thunks(program.entry.thunks) if thunk.parts]


def numbers(text: str) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = parse_hlo(text).entry.parameter_shapes
    return [rng.standard_normal(s.dims).astype(s.element_type.dtype) for s in shapes]


def check(text: str, threads: int = 2) -> None:
    """Compiled code gives the evaluator's values, and touches no memory but its own."""
    arguments = numbers(text)
    executable = Executable(compile_module(parse_hlo(text), Options(threads=threads)))
    wanted = evaluate(parse_hlo(text), arguments)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for at_end in (False, True):
        for found, want in zip(run_guarded(executable, arguments, at_end), wanted, strict=True):
            scale = max(1.0, float(np.abs(want).max()))
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5 * scale)


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are chained however small they are."""
    monkeypatch.setattr(kernel_chains, "_SHARE_OF_L2", 0.0)
    monkeypatch.setattr(kernel_chains, "_FEWEST_ROWS", 8)
    monkeypatch.setattr(kernel_chains, "_FEWEST_UNPACKED", 8)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same(name: str, threads: int) -> None:
    text = text_of(PROGRAMS[name])
    assert chains(text, threads)
    check(text, threads)


def test_all_kernels_of_a_network_are_one_chain() -> None:
    (chain,) = chains(text_of(IMAGES))
    assert len(chain.parts) == 7 and chain.kernel.tasks == 8


def test_values_inside_take_memory_for_the_slices_at_work() -> None:
    """Scores of all heads take 30 * 2 * 17 * 17 floats; those of a head on each of two threads a thirtieth."""
    text = text_of(attention("30"))
    (chain,) = chains(text)
    sizes = {b.bytes for b in chain.buffers if b.space == "temporary"}
    assert sum(sizes) < 30 * 2 * 17 * 17 * 4 / 8
    assert compile_module(parse_hlo(text), Options(threads=2)).temp_bytes < 30 * 2 * 17 * 17 * 4 / 2


def test_values_that_others_read_are_kept() -> None:
    text = text_of(DENSE.replace("ROOT r", "r") + "\n  ROOT all = (f32[96,24], f32[96,40]) tuple(r, t)")
    (chain,) = chains(text)
    assert len(chain.parts) == 3
    check(text)


def test_what_needs_other_rows_is_no_part() -> None:
    """Each element needs the same column of all rows."""
    body = DENSE.replace("f32[96] reduce(y, zero), dimensions={1}", "f32[24] reduce(y, zero), dimensions={0}")
    text = text_of(body.replace("broadcast(sums), dimensions={0}", "broadcast(sums), dimensions={1}"))
    assert all(part.instruction.opcode != "reduce" for chain in chains(text) for part in chain.parts)
    check(text)


def test_an_argument_that_is_read_whole_is_not_overwritten() -> None:
    """The result takes the place of weights that every slice reads."""
    body = """
  x = f32[32,32] parameter(0)
  w = f32[32,32] parameter(1)
  h = f32[32,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[32,32] tanh(h)
  ROOT r = f32[32,32] dot(t, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    aliased = text_of(body, ", input_output_alias={ {}: (1, {}, may-alias) }")
    assert chains(text_of(body)) and not chains(aliased)
    check(aliased)


def test_what_stands_between_runs_before_or_after() -> None:
    """Other products, of which one needs the chain and one does not."""
    body = DENSE.replace(
        "  d = f32[96,24] dot(t, u)",
        """  aside = f32[40,40] dot(t, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  before = f32[24,24] dot(w, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[96,24] dot(t, u)""",
    ).replace("ROOT r", "r")
    text = text_of(body + "\n  ROOT all = (f32[96,24], f32[40,40], f32[24,24]) tuple(r, aside, before)")
    (chain,) = chains(text)
    assert len(chain.parts) == 3
    check(text)


def test_slices_of_too_few_for_the_threads() -> None:
    assert not chains(text_of(attention("1")), threads=3)


@pytest.mark.parametrize("batch", [2, 3, 7, 40])
def test_a_batch_of_any_size(batch: int) -> None:
    """One compilation for batches known at run time only."""
    text = text_of(attention("b"), ", sizes={b=4}")
    assert chains(text)
    code = compile_module(parse_hlo(text), Options(threads=2))
    rng = np.random.default_rng(batch)
    arguments = [rng.standard_normal((batch, 17, 2, 5)).astype(np.float32) for _ in range(3)]
    bound = Executable(code).bound([a.shape for a in arguments])
    assert not isinstance(bound, str), bound
    (found,) = bound.execute(arguments)
    np.testing.assert_allclose(found, evaluate(parse_hlo(text), arguments), rtol=1e-4, atol=1e-5)


def test_values_that_are_needed_one_after_the_other_share_memory() -> None:
    """Eight layers take no more than two, the values of a layer and of the next one."""

    def temp_bytes(layers: int) -> int:
        lines = ["  w = f32[40,40] parameter(0)", "  x0 = f32[960,40] parameter(1)"]
        for k in range(layers):
            lines += [
                f"  h{k} = f32[960,40] dot(x{k}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
                f"  x{k + 1} = f32[960,40] tanh(h{k})",
            ]
        text = text_of("\n" + "\n".join([*lines, f"  ROOT r = f32[960,40] negate(x{layers})"]))
        (chain,) = chains(text)
        assert len(chain.parts) >= layers
        if layers == 3:
            check(text)
        (memory,) = {b for b in chain.buffers if b.space == "temporary" and b.bytes > 8 * len(chain.parts)}
        return memory.bytes

    assert 0 < temp_bytes(8) <= temp_bytes(3)


LAYERS = """
  x = f32[b,n,24] parameter(0)
  w = f32[24,40] parameter(1)
  u = f32[40,24] parameter(2)
  h = f32[b,n,40] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  t = f32[b,n,40] tanh(h)
  d = f32[b,n,24] dot(t, u), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  y = f32[b,n,24] add(d, x)
  s = f32[b,n,n] dot(y, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={2}
  e = f32[b,n,n] tanh(s)
  v = f32[b,n,24] dot(e, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1}
  zero = f32[] constant(0)
  sums = f32[b,n] reduce(v, zero), dimensions={2}, to_apply=add
  wide = f32[b,n,24] broadcast(sums), dimensions={0,1}
  z = f32[b,n,24] subtract(v, wide)
  ROOT r = f32[b,n,40] dot(z, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}"""
TEXTS = text_of(LAYERS, ", sizes={b=16,n=20}")


def kernels_and_chains(thunks: Sequence[Thunk]) -> list[KernelThunk | ChainThunk]:
    return [thunk for thunk in thunks if isinstance(thunk, KernelThunk | ChainThunk)]


def is_sliced(threads: int) -> int:
    """Whether the chain of TEXTS runs: a size."""
    program, _ = lower_to_thunks(parse_hlo(TEXTS), Options(threads=threads))
    (thunk,) = (t for t in kernels_and_chains(program.entry.thunks) if t.parts)
    assert len(thunk.parts) == 6
    return thunk.are_run if isinstance(thunk, ChainThunk) else 1


def texts(batch: int, length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(batch)
    shapes = (batch, length, 24), (24, 40), (40, 24)
    return [(rng.standard_normal(s) / 4).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_chain_of_a_batch_of_any_size(threads: int) -> None:
    """With batches in slices and as a whole, slices of one text and of several, and a last one of fewer."""
    choice, chosen = is_sliced(threads), set()
    executable = Executable(compile_module(parse_hlo(TEXTS), Options(threads=threads)))
    for batch, length in itertools.product((2, 3, 6, 7, 13, 29), (2, 3, 8, 23, 40)):
        chosen.add(evaluate_size(choice, {"b": batch, "n": length}))
        arguments = texts(batch, length)
        bound = executable.bound([a.shape for a in arguments])
        assert not isinstance(bound, str), bound
        want = evaluate(parse_hlo(TEXTS), arguments)
        for at_end in (False, True):
            (found,) = run_guarded(bound, arguments, at_end)
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    assert chosen == ({1} if threads == 1 else {0, 1})


# Positions of images: the sum ends the second product.
STRIDED = """
  x = f32[b,8,8,16] parameter(0)
  w = f32[1,1,16,24] parameter(1)
  y = f32[b,4,4,20] parameter(2)
  v = f32[1,1,20,24] parameter(3)
  a = f32[b,4,4,24] convolution(x, w), window={size=1x1 stride=2x2}, dim_labels=b01f_01io->b01f
  c = f32[b,4,4,24] convolution(y, v), window={size=1x1}, dim_labels=b01f_01io->b01f
  s = f32[b,4,4,24] add(c, a)
  ROOT r = f32[b,4,4,24] tanh(s)"""


@pytest.mark.parametrize("body", [IMAGES.replace("f32[8,", "f32[b,"), STRIDED], ids=["images", "strided"])
@pytest.mark.parametrize("batch", [2, 3, 7, 12, 17])
def test_images_of_a_batch_of_any_size(body: str, batch: int) -> None:
    text = text_of(body, ", sizes={b=12}")
    program, _ = lower_to_thunks(parse_hlo(text), Options(threads=2))
    assert any(thunk.parts for thunk in kernels_and_chains(program.entry.thunks))
    rng = np.random.default_rng(batch)
    shapes = [
        [batch if isinstance(d, Size) else d for d in s.dims] for s in parse_hlo(text).entry.parameter_shapes
    ]
    arguments = [(rng.standard_normal(s) / 4).astype(np.float32) for s in shapes]
    bound = Executable(compile_module(parse_hlo(text), Options(threads=2))).bound(shapes)
    assert not isinstance(bound, str), bound
    want = evaluate(parse_hlo(text), arguments)
    for at_end in (False, True):
        (found,) = run_guarded(bound, arguments, at_end)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_a_chain_of_a_batch_of_any_size_whose_values_are_results() -> None:
    """None of them is inside."""
    text = text_of(
        """
  e = f32[50,40] parameter(0)
  i = s32[b,1] parameter(1)
  g = f32[b,40] gather(e, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1,40}
  zero = f32[] constant(0)
  sums = f32[b] reduce(g, zero), dimensions={1}, to_apply=add
  wide = f32[b,40] broadcast(sums), dimensions={0}
  t = f32[b,40] subtract(g, wide)
  ROOT all = (f32[b,40], f32[b,40]) tuple(g, t)""",
        ", sizes={b=90}",
    )
    program, _ = lower_to_thunks(parse_hlo(text), Options(threads=2))
    assert any(thunk.parts for thunk in kernels_and_chains(program.entry.thunks))
    executable = Executable(compile_module(parse_hlo(text), Options(threads=2)))
    for batch in (3, 200):
        rng = np.random.default_rng(batch)
        arguments = [
            rng.standard_normal((50, 40)).astype(np.float32),
            rng.integers(0, 50, (batch, 1)).astype(np.int32),
        ]
        bound = executable.bound([a.shape for a in arguments])
        assert not isinstance(bound, str), bound
        for found, want in zip(bound.execute(arguments), evaluate(parse_hlo(text), arguments), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_a_chain_of_a_large_batch_takes_memory_for_few_texts() -> None:
    executable = Executable(compile_module(parse_hlo(TEXTS), Options(threads=2)))
    taken = []
    for batch in (1000, 2000):
        bound = executable.bound([a.shape for a in texts(batch, 20)])
        assert not isinstance(bound, str), bound
        taken.append(bound.artifact.temp_bytes)
    assert taken[0] == taken[1] < 1000 * 20 * 24 * 4


def test_a_profile_has_the_kernels_of_a_chain_that_does_not_run() -> None:
    executable = Executable(compile_module(parse_hlo(TEXTS), Options(threads=2)))
    names = []
    for batch in (2, 30):
        arguments = texts(batch, 20)
        bound = executable.bound([a.shape for a in arguments])
        assert not isinstance(bound, str), bound
        profiled = Executable(bound.artifact, profile=True, code=executable)
        profiled.execute(arguments)
        assert profiled.profile is not None
        events = profiled.profile.events()
        names.append([e.kernel.name for e in events])
        assert all(e.calls == 1 and e.ns > 0 for e in events)
    assert names[0] == names[1] and len(names[0]) == 6


def test_a_profile_has_the_kernels_of_a_chain() -> None:
    text = text_of(attention("60"))
    (chain,) = chains(text)
    artifact = compile_module(parse_hlo(text), Options(threads=2))
    executable = Executable(artifact, profile=True)
    start = time.perf_counter_ns()
    for _ in range(3):
        executable.execute(numbers(text))
    elapsed = time.perf_counter_ns() - start
    assert executable.profile is not None
    events = executable.profile.events()
    assert [e.kernel.name for e in events] == [part.kernel.symbol for part in chain.parts]
    assert all(e.calls == 3 and e.ns > 0 for e in events) and sum(e.ns for e in events) < elapsed


# Each block of 16 positions beside the one before it, as an attention over windows reads them.
WINDOWS = """
  x = f32[b,n,16,24] parameter(0)
  w = f32[24,24] parameter(1)
  h = f32[b,n,16,24] dot(x, w), lhs_contracting_dims={3}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  p = f32[b,n+1,16,24] pad(h, zero), padding=0_0x1_0x0_0x0_0
  before = f32[b,n,16,24] slice(p), slice={[0:b], [0:n], [0:16], [0:24]}
  both = f32[b,n,32,24] concatenate(before, h), dimensions={2}
  s = f32[b,n,16,32] dot(h, both), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3},
    rhs_contracting_dims={3}
  ROOT r = f32[b,n,16,32] tanh(s)"""


@pytest.mark.parametrize("batch", [3, 9, 4000])
def test_what_is_read_under_a_condition_is_no_other_slice(batch: int) -> None:
    """Of the last texts, the first one would lie tens of megabytes before the frame: no memory."""
    text = text_of(WINDOWS, ", sizes={b=12,n=7}")
    program, _ = lower_to_thunks(parse_hlo(text), Options(threads=2))
    assert any(len(thunk.parts) > 2 for thunk in kernels_and_chains(program.entry.thunks))
    rng = np.random.default_rng(batch)
    arguments = [(rng.standard_normal(s) / 4).astype(np.float32) for s in ((batch, 7, 16, 24), (24, 24))]
    bound = Executable(compile_module(parse_hlo(text), Options(threads=2))).bound(
        [a.shape for a in arguments]
    )
    assert not isinstance(bound, str), bound
    want = evaluate(parse_hlo(text), arguments)
    for at_end in (False, True):
        (found,) = run_guarded(bound, arguments, at_end)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
