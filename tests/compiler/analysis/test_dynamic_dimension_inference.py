"""Sizes known at run time only: what follows sees no element beyond them, results come with their real size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tfbridge.compiler import (
    ComputationBuilder,
    LocalClient,
    Operand,
    Shape,
    array,
    evaluate,
    parse_hlo,
    verify,
)
from tfbridge.compiler.analysis.dynamic_dimension_inference import is_dynamic
from tfbridge.compiler.builder.derived import binary_computation
from tfbridge.compiler.errors import ShapeError
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ir.module import Computation, Module
from tfbridge.compiler.options import DEFAULT_OPTIONS
from tfbridge.compiler.passes.pad_dynamic_dimensions import pad_dynamic_dimensions

F32 = ElementType.F32
ADD, MAXIMUM = binary_computation("add", F32), binary_computation("maximum", F32)
Build = Callable[[ComputationBuilder, Operand, Operand], Operand]
Wanted = Callable[[np.ndarray, np.ndarray], Any]
BOUNDS = (5, 4)
SIZES = [(5, 4), (3, 4), (3, 2), (1, 1), (0, 3), (5, 0)]


def pooled(x: np.ndarray) -> np.ndarray:
    """Sums of windows of 2 by 2, stride 1 by 2, padded by 1 at both ends of the second axis."""
    wide = np.pad(x, ((0, 0), (1, 1)))
    rows, columns = max(x.shape[0] - 1, 0), max((x.shape[1] + 2 - 2) // 2 + 1, 0)
    return np.array(
        [[wide[i : i + 2, 2 * j : 2 * j + 2].sum() for j in range(columns)] for i in range(rows)], np.float32
    ).reshape(rows, columns)


def convolved(x: np.ndarray) -> np.ndarray:
    """Rows as features, columns as space, a kernel of ones of three columns, padded by one."""
    wide = np.pad(x.sum(0), 1)
    return np.array([[[wide[i : i + 3].sum() for i in range(x.shape[1])]]], np.float32).reshape(
        1, 1, x.shape[1]
    )


def as_image(b: ComputationBuilder, x: Operand) -> Operand:
    return b.reshape(x, (1, *BOUNDS))


def normalised(x: np.ndarray) -> Any:
    with np.errstate(all="ignore"):
        mean, variance = x.mean(0), x.var(0)
        return (x - mean) / np.sqrt(variance + 1e-3), mean, variance


# Each row: how it is built from x, whose axes 0 and 1 have sizes known at run time only, and y, of x's sizes; and
# what NumPy makes of arrays of the real sizes.
CASES: dict[str, tuple[Build, Wanted]] = {
    "add": (lambda b, x, y: b.add(x, y), lambda x, y: x + y),
    "scalar": (lambda b, x, y: b.mul(x, b.constant(2.0)), lambda x, y: 2 * x),
    "compare": (lambda b, x, y: b.select(b.gt(x, y), x, y), np.maximum),
    "convert": (lambda b, x, y: b.convert_element_type(x, "f64"), lambda x, y: x.astype(np.float64)),
    "clamp": (lambda b, x, y: b.clamp(b.constant(-0.5), x, b.constant(0.5)), lambda x, y: x.clip(-0.5, 0.5)),
    "broadcast": (
        lambda b, x, y: b.broadcast_in_dim(x, (3, 5, 4), (1, 2)),
        lambda x, y: np.broadcast_to(x, (3, *x.shape)),
    ),
    "transpose": (lambda b, x, y: b.transpose(x, (1, 0)), lambda x, y: x.T),
    "reduce 0": (lambda b, x, y: b.reduce(x, b.constant(0.0), ADD, (0,)), lambda x, y: x.sum(0)),
    "reduce 1": (
        lambda b, x, y: b.reduce(b.exp(x), b.constant(0.0), ADD, (1,)),
        lambda x, y: np.exp(x).sum(1),
    ),
    "maximum": (
        lambda b, x, y: b.reduce_all(b.add(x, y), b.constant(-np.inf), MAXIMUM),
        lambda x, y: (x + y).max(initial=-np.inf),
    ),
    "mean": (
        lambda b, x, y: b.div(
            b.reduce(x, b.constant(0.0), ADD, (0, 1)),
            b.convert_element_type(b.mul(b.get_dimension_size(x, 0), b.get_dimension_size(x, 1)), "f32"),
        ),
        lambda x, y: x.mean() if x.size else np.float32(np.nan),
    ),
    "window": (
        lambda b, x, y: b.reduce_window(x, b.constant(0.0), ADD, (2, 2), (1, 2), [(0, 0), (1, 1)]),
        lambda x, y: pooled(x),
    ),
    "dot": (lambda b, x, y: b.dot_general(x, y, ((1,), (1,))), lambda x, y: x @ y.T),
    "dot static": (
        lambda b, x, y: b.dot(x, b.constant(np.full((4, 2), np.inf, np.float32))),
        lambda x, y: x @ np.full((x.shape[1], 2), np.inf, np.float32),
    ),
    "batch": (lambda b, x, y: b.dot_general(x, y, ((1,), (1,)), ((0,), (0,))), lambda x, y: (x * y).sum(1)),
    "conv": (
        lambda b, x, y: b.conv_general_dilated(
            as_image(b, x), b.constant(np.ones((1, 5, 3), np.float32)), (1,), [(1, 1)]
        ),
        lambda x, y: convolved(x),
    ),
    "slice": (lambda b, x, y: b.slice(x, (1, 0), (4, 4), (2, 1)), lambda x, y: x[1:4:2]),
    "concatenate": (
        lambda b, x, y: b.concat_in_dim([x, b.neg(y), x], 0),
        lambda x, y: np.concatenate([x, -y, x]),
    ),
    "concatenate 1": (lambda b, x, y: b.concat_in_dim([x, y], 1), lambda x, y: np.concatenate([x, y], 1)),
    "reshape": (
        lambda b, x, y: b.reshape(x, (1, 5, 1, 4, 1)),
        lambda x, y: x.reshape(1, len(x), 1, -1, 1) if x.size else x.reshape(1, x.shape[0], 1, x.shape[1], 1),
    ),
    "pad": (
        lambda b, x, y: b.pad(x, b.constant(7.0), [(1, 2, 0), (0, 1, 0)]),
        lambda x, y: np.pad(x, ((1, 2), (0, 1)), constant_values=7),
    ),
    "rev": (lambda b, x, y: b.rev(x, (0, 1)), lambda x, y: x[::-1, ::-1]),
    "sort": (lambda b, x, y: b.sort(x, None, 0), lambda x, y: np.sort(x, 0)),
    "sort pairs": (
        lambda b, x, y: b.sort([x, y], None, 1),
        lambda x, y: (np.sort(x, 1), np.take_along_axis(y, np.argsort(x, 1), 1)),
    ),
    "sizes": (
        lambda b, x, y: b.tuple([b.get_dimension_size(x, a) for a in (0, 1)]),
        lambda x, y: tuple(map(np.int32, x.shape)),
    ),
    "gather": (
        lambda b, x, y: b.gather(x, b.constant(np.zeros((2, 1), np.int32)), (1,), (0,), (1, 4), (0,)),
        lambda x, y: x[[0, 0]],
    ),
    "batch norm": (
        lambda b, x, y: b.batch_norm_training(
            x, b.constant(np.ones(4, np.float32)), b.constant(np.zeros(4, np.float32)), 1e-3, 1
        ),
        lambda x, y: normalised(x),
    ),
}


def program(build: Build) -> Module:
    """(x, y, rows, columns) -> build(x, y) of the first rows and columns of both."""
    b = ComputationBuilder("sized")
    b.die_immediately_on_error = True
    x, y, rows, columns = (
        b.parameter(k, s)
        for k, s in enumerate([array("f32", *BOUNDS), array("f32", *BOUNDS), array("s32"), array("s32")])
    )
    sized = [b.set_dimension_size(b.set_dimension_size(v, rows, 0), columns, 1) for v in (x, y)]
    return verify(Module("sized", b.build(build(b, *sized))))


def flat(value: Any) -> list[np.ndarray]:
    return (
        [leaf for part in value for leaf in flat(part)]
        if isinstance(value, (tuple, list))
        else [np.asarray(value)]
    )


def check(found: Sequence[np.ndarray], wanted: Any) -> None:
    for one, other in zip(found, flat(wanted), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_sizes_are_respected(name: str) -> None:
    build, wanted = CASES[name]
    module = program(build)
    executable = LocalClient().compile(module)
    assert str(parse_hlo(str(module))) == str(module)
    rng = np.random.default_rng(0)
    for rows, columns in SIZES:
        if (name == "gather" and rows == 0) or (name == "batch norm" and 0 in (rows, columns)):
            continue
        x, y = (rng.standard_normal(BOUNDS).astype(np.float32) for _ in range(2))
        small = x[:rows, :columns].copy(), y[:rows, :columns].copy()
        for poisoned in (x, y):  # what lies beyond must not be seen
            poisoned[rows:], poisoned[:, columns:] = np.nan, np.inf
        arguments = [x, y, np.int32(rows), np.int32(columns)]
        with np.errstate(all="ignore"):
            expected = wanted(*small)
            check(flat(evaluate(module, arguments)), expected)
        check(executable.execute(arguments), expected)


def test_worked_example() -> None:
    """SetDimensionSize of the operation semantics."""
    b = ComputationBuilder("example")
    v = b.constant(np.arange(1, 11, dtype=np.float32))
    five, six = (b.set_dimension_size(v, b.constant(n), 0) for n in (5, 6))
    multiply = binary_computation("multiply", F32)
    results = [
        b.reduce(five, b.constant(0.0), ADD, (0,)),
        b.reduce(five, b.constant(1.0), multiply, (0,)),
        b.reduce(six, b.constant(0.0), ADD, (0,)),
    ]
    computation = b.build(b.tuple(results))
    for platform in ("cpu", "interpreter"):
        assert [float(r) for r in LocalClient(platform).compile(computation).execute([])] == [15, 120, 21]


def test_scatter_and_update() -> None:
    b = ComputationBuilder("updates")
    n = b.parameter(0, array("s32"))
    base = b.constant(np.zeros(6, np.float32))
    updates = b.set_dimension_size(b.constant(np.array([1, 2, 4], np.float32)), n, 0)
    indices = b.set_dimension_size(b.constant(np.array([5, 0, 5], np.int32)), n, 0)
    added = b.scatter(base, indices, updates, ADD, 1, (), (0,), (0,))
    written = b.dynamic_update_slice(b.add(base, b.constant(9.0)), updates, [b.constant(2)])
    executable = LocalClient().compile(b.build(b.tuple([added, written])))
    for count, first, second in (
        (0, [0] * 6, [9] * 6),
        (2, [2, 0, 0, 0, 0, 1], [9, 9, 1, 2, 9, 9]),
        (3, [2, 0, 0, 0, 0, 5], [9, 9, 1, 2, 4, 9]),
    ):
        found = executable.execute([np.int32(count)])
        assert [f.tolist() for f in found] == [first, second]


def looped(by_call: bool) -> Module:
    """The sum, over three turns, of a vector that loses an element each turn; and the vector."""
    state = Shape.tuple([array("s32"), array("f32", 8).with_dynamic([0]), array("f32")])
    condition = ComputationBuilder("condition")
    turn = condition.get_tuple_element(condition.parameter(0, state), 0)
    condition.lt(turn, condition.constant(3))
    b = ComputationBuilder("body")
    turn, vector, total = _parts(b, state)
    shorter = b.set_dimension_size(vector, b.sub(b.get_dimension_size(vector, 0), b.constant(1)), 0)
    more = b.add(total, b.reduce(shorter, b.constant(0.0), ADD, (0,)))
    body = b.build(b.tuple([b.add(turn, b.constant(1)), shorter, more]))
    e = ComputationBuilder("entry")
    n = e.parameter(0, array("s32"))
    vector = e.set_dimension_size(e.constant(np.arange(8, dtype=np.float32)), n, 0)
    start = e.tuple([e.constant(0), vector, e.constant(0.0)])
    loop = e.while_(condition.build(), body, start)
    root = e.tuple([e.get_tuple_element(loop, k) for k in (1, 2)])
    if by_call:
        inner = e.build(root)
        e = ComputationBuilder("outer")
        root = e.call(inner, [e.parameter(0, array("s32"))])
    return Module("loop", e.build(root))


def _parts(b: ComputationBuilder, state: Shape) -> list[Operand]:
    parameter = b.parameter(0, state)
    return [b.get_tuple_element(parameter, k) for k in range(3)]


@pytest.mark.parametrize("by_call", [False, True])
def test_loop(by_call: bool) -> None:
    module = verify(looped(by_call))
    for platform in ("cpu", "interpreter"):
        executable = LocalClient(platform).compile(module)
        for size in (8, 4, 3):
            vector, total = executable.execute([np.int32(size)])
            assert vector.tolist() == list(range(size - 3))
            assert total == sum(sum(range(size - k)) for k in (1, 2, 3))


def test_conditional() -> None:
    """One branch gives a shorter vector, the other one of full size."""
    vector = array("f32", 4)

    def branch(name: str, shorter: bool) -> Computation:
        b = ComputationBuilder(name)
        x = b.parameter(0, vector)
        return b.build(b.set_dimension_size(x, b.constant(2), 0) if shorter else b.neg(x))

    b = ComputationBuilder("choice")
    p, x = b.parameter(0, array("pred")), b.parameter(1, vector)
    made = b.conditional(p, x, branch("short", True), x, branch("long", False))
    executable = LocalClient().compile(b.build(made))
    given = np.arange(4, dtype=np.float32)
    assert executable.execute([np.bool_(True), given])[0].tolist() == [0, 1]
    assert executable.execute([np.bool_(False), given])[0].tolist() == [0, -1, -2, -3]


@pytest.mark.parametrize("platform", ["cpu", "interpreter"])
def test_parameters_of_any_size_up_to_the_bound(platform: str) -> None:
    text = """HloModule m
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }
ENTRY e {
  p = (f32[<=6,2], s32[]) parameter(0)
  x = f32[<=6,2] get-tuple-element(p), index=0
  zero = f32[] constant(0)
  s = f32[2] reduce(x, zero), dimensions={0}, to_apply=add
  f = f32[<=12] reshape(x)
  ROOT r = (f32[2], f32[<=12]) tuple(s, f)
}"""
    module = verify(parse_hlo(text))
    assert str(parse_hlo(str(module))) == str(module) and "f32[<=12]" in str(module)
    executable = LocalClient(platform).compile(module)
    for size in (6, 4, 0):
        x = np.random.default_rng(1).standard_normal((size, 2)).astype(np.float32)
        total, joined = executable.execute([x, np.int32(3)])
        np.testing.assert_allclose(total, x.sum(0), rtol=1e-5)
        np.testing.assert_array_equal(joined, x.reshape(-1))
    for wrong in (np.zeros((7, 2), np.float32), np.zeros((3, 1), np.float32), np.zeros((3, 2))):
        with pytest.raises(ShapeError, match=r"argument 0 is .*, parameter 0 is f32\[<=6,2\]"):
            executable.execute([wrong, np.int32(3)])


def test_a_size_outside_is_clamped() -> None:
    b = ComputationBuilder("clamped")
    n = b.parameter(0, array("s32"))
    executable = LocalClient().compile(b.build(b.set_dimension_size(b.constant(np.arange(3)), n, 0)))
    assert [len(executable.execute([np.int32(k)])[0]) for k in (-1, 2, 9)] == [0, 2, 3]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda b, x, y: b.reshape(x, (20,)),
            "joins axis 1, .* known at run time only, to axes before it \\(dynamic_c3\\)",
        ),
        (
            lambda b, x, y: b.fft(b.complex(x, y), "FFT", (4,)),
            "the last 1 axes have sizes known when compiling \\(dynamic_c2\\)",
        ),
        (lambda b, x, y: b.top_k(x, 2), "topk: the last 1 axes"),
        (lambda b, x, y: b.isotonic_regression(x), "isotonic-regression: the last 1 axes"),
        (
            lambda b, x, y: b.bitcast_convert_type(b.convert_element_type(x, "s16"), "s64"),
            r"the last axis of .* \(dynamic_c2\)",
        ),
        (
            lambda b, x, y: b.conv_general_dilated(
                b.constant(np.ones((1, 5, 9), np.float32)), as_image(b, x), (1,), "valid"
            ),
            r"convolution: the kernel's spatial axes.*\(dynamic_c2\)",
        ),
        (
            lambda b, x, y: b.select_and_scatter(
                x, binary_predicate(), (1, 1), (1, 1), "valid", y, b.constant(0.0), ADD
            ),
            r"select-and-scatter: takes no operand of a size known at run time only, .*\(dynamic_c1\)",
        ),
    ],
)
def test_refused(build: Build, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        program(build)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_lines(count: int) -> None:
    """As many lines as is known at run time only, where each line has all its elements."""
    b = ComputationBuilder("lines")
    x, rows = b.parameter(0, array("f32", 4, 3)), b.parameter(1, array("s32"))
    b.isotonic_regression(b.set_dimension_size(x, rows, 0))
    given = np.array([[3, 1, 2], [1, 2, 3], [1, 1, 0], [np.nan] * 3], np.float32)
    fitted, segments = LocalClient().compile(b.build()).execute([given, np.int32(count)])
    np.testing.assert_array_equal(fitted, np.float32([[3, 1.5, 1.5], [2, 2, 2], [1, 1, 0]])[:count])
    np.testing.assert_array_equal(segments, np.int32([[0, 1, 1], [0, 0, 0], [0, 1, 2]])[:count])


def binary_predicate() -> Computation:
    b = ComputationBuilder("ge")
    b.ge(*(b.parameter(k, array("f32")) for k in range(2)))
    return b.build()


def test_nothing_dynamic_is_left() -> None:
    module = looped(True)
    assert is_dynamic(module)
    resolved = pad_dynamic_dimensions(module, DEFAULT_OPTIONS)
    assert not is_dynamic(verify(resolved))
    assert pad_dynamic_dimensions(resolved, DEFAULT_OPTIONS) is resolved


Step = tuple[Callable[[ComputationBuilder, Operand], Operand], Callable[[np.ndarray], np.ndarray]]
STEPS: tuple[Step, ...] = (
    (lambda b, v: b.add(v, b.mul(v, b.constant(0.5))), lambda a: a + a * np.float32(0.5)),
    (lambda b, v: b.trans(v), lambda a: a.T),
    (lambda b, v: b.concat_in_dim([v, b.neg(v)], 0), lambda a: np.concatenate([a, -a])),
    (lambda b, v: b.concat_in_dim([b.tanh(v), v], 1), lambda a: np.concatenate([np.tanh(a), a], 1)),
    (lambda b, v: b.rev(v, (0,)), lambda a: a[::-1]),
    (
        lambda b, v: b.pad(v, b.constant(-1.0), [(1, 0, 0), (0, 2, 0)]),
        lambda a: np.pad(a, ((1, 0), (0, 2)), constant_values=-1),
    ),
    (lambda b, v: b.slice(v, (1, 0), b.get_shape(v).dims, (1, 2)), lambda a: a[1:, ::2]),
    (lambda b, v: b.sort(v, None, 1), lambda a: np.sort(a, 1)),
    (lambda b, v: b.sub(v, b.reduce(v, b.constant(0.0), ADD, (0,)), (1,)), lambda a: a - a.sum(0)),
    (lambda b, v: b.dot_general(v, v, ((1,), (1,))), lambda a: a @ a.T / 1),
    (
        lambda b, v: b.reduce_window(v, b.constant(0.0), ADD, (2, 1), (1, 1), [(1, 0), (0, 0)]),
        lambda a: a + np.concatenate([np.zeros_like(a[:1]), a[:-1]]),
    ),
    (
        lambda b, v: b.dynamic_update_slice(
            v, b.constant(np.full((1, 1), 3, np.float32)), [b.constant(0), b.constant(0)]
        ),
        lambda a: np.concatenate([np.concatenate([np.full((1, 1), 3, np.float32), a[:1, 1:]], 1), a[1:]]),
    ),
)


@pytest.mark.parametrize("seed", range(12))
def test_random_chains(seed: int) -> None:
    """Chains of operations on a matrix whose two sizes are known at run time only."""
    rng = np.random.default_rng(seed)
    chosen = [STEPS[k] for k in rng.integers(0, len(STEPS), 5)]
    b = ComputationBuilder("chain")
    b.die_immediately_on_error = True
    x, rows, columns = (
        b.parameter(k, s) for k, s in enumerate([array("f32", 4, 5), array("s32"), array("s32")])
    )
    value = b.set_dimension_size(b.set_dimension_size(x, rows, 0), columns, 1)
    for build, _ in chosen:
        value = build(b, value)
    executable = LocalClient().compile(verify(Module("chain", b.build(value))))
    for sizes in ((4, 5), (3, 4), (2, 3), (4, 2)):
        given = rng.standard_normal((4, 5)).astype(np.float32)
        wanted = given[: sizes[0], : sizes[1]].copy()
        given[sizes[0] :], given[:, sizes[1] :] = np.nan, np.inf
        for _, step in chosen:
            wanted = step(wanted)
        found = executable.execute([given, *map(np.int32, sizes)])[0]
        assert found.shape == wanted.shape
        np.testing.assert_allclose(
            found, wanted, rtol=1e-3, atol=1e-3 * max(1, np.abs(wanted).max(initial=0))
        )
