"""Kernels with loops of their own (select-and-scatter, scatter, sort, random bits): compiled code against the
ops' references, over types, shapes and attributes that choose different code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from fusion_cases import launch, load_function
from tfbridge.compiler.builder.computation_builder import ComputationBuilder
from tfbridge.compiler.client.client import LocalClient
from tfbridge.compiler.cpu.kernel_emitters import emit_kernel
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.ir.element_types import ElementType, element_type_of
from tfbridge.compiler.ir.literal import Literal
from tfbridge.compiler.ir.module import Computation, Instruction, Module, make
from tfbridge.compiler.ir.shape import Shape
from tfbridge.compiler.ops import (
    Compare,
    Conditional,
    Constant,
    Op,
    Parameter,
    RngBitGenerator,
    Scatter,
    SelectAndScatter,
    Sort,
    Tuple,
    While,
    Window,
)
from tfbridge.compiler.ops.elementwise import Elementwise
from tfbridge.compiler.options import DEFAULT_OPTIONS
from tfbridge.runtime.llvm.ir_builder import ModuleText
from tfbridge.runtime.llvm.target import host

E = ElementType


def parameters(*shapes: Shape) -> list[Instruction]:
    return [Instruction(Parameter(k, s), (), s, f"p{k}") for k, s in enumerate(shapes)]


def binary(opcode: str, element: str) -> Computation:
    """An elementwise op on two scalars."""
    given = parameters(*[Shape(E(element))] * 2)
    return Computation(opcode, make(Elementwise(opcode), *given), given)


def comparator(direction: str, *elements: str, total: bool = False) -> Computation:
    """A comparison of the first pair of scalars."""
    given = parameters(*(Shape(E(e)) for e in elements for _ in range(2)))
    return Computation("compare", make(Compare(direction, "TOTALORDER" if total else ""), *given[:2]), given)


Case = tuple[Op, Sequence[np.ndarray]]


def run(*cases: Case) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What compiled code gives for ops on operands, all in one module, and what the evaluator gives."""
    operands = [o for _, listed in cases for o in listed]
    given = parameters(*(Shape(element_type_of(o.dtype), o.shape) for o in operands))
    rest = iter(given)
    roots = [make(op, *(next(rest) for _ in listed)) for op, listed in cases]
    module = Module("test", Computation("test", make(Tuple(), *roots), given))
    wanted: list[np.ndarray] = []
    for value in evaluate(module, operands):
        wanted.extend(value if isinstance(value, tuple) else (value,))
    return LocalClient("cpu").compile(module).execute(operands), wanted


def check(*cases: Case) -> None:
    """Compiled code gives the reference's very values, NaNs aside."""
    for f, w in zip(*run(*cases), strict=True):
        assert f.dtype == w.dtype and f.shape == w.shape
        same = (f == w) | ((f != f) & (w != w))
        assert np.all(same), f"{np.sum(~same)} of {f.size} differ: {f[~same][:5]} {w[~same][:5]}"


def check_bits(*cases: Case) -> None:
    """Compiled code gives the reference's very bits."""
    for f, w in zip(*run(*cases), strict=True):
        assert f.dtype == w.dtype and f.shape == w.shape and f.tobytes() == w.tobytes()


def values(rng: np.random.Generator, dims: Sequence[int], dtype: str) -> np.ndarray:
    """Small whole numbers, so that sums are exact in any order and ties are frequent."""
    return rng.integers(0 if dtype.startswith(("u", "b")) else -4, 5, tuple(dims)).astype(E(dtype).dtype)


# -- isotonic-regression


def test_isotonic_regression_is_the_nearest_line() -> None:
    """What is necessary and sufficient: the line does not increase; within a segment what the given line has more than
    it adds up to zero, and from the segment's start to any place to no more than zero. The given lines are
    temporaries, whose memory the result may take."""
    x = np.random.default_rng(0).standard_normal((300, 90)).cumsum(-1)
    b = ComputationBuilder("test")
    b.isotonic_regression(b.neg(b.parameter(0, Shape(E.F64, x.shape))))
    fitted, segments = LocalClient("cpu").compile(b.build()).execute([-x])
    excess = np.cumsum(x - fitted, -1)
    ends = np.diff(segments, append=segments[:, -1:] + 1) == 1
    assert np.all(np.diff(fitted) <= 0) and np.all(segments[:, 0] == 0)
    assert np.all((np.diff(segments) == 0) | (np.diff(segments) == 1)) and 0 < ends.mean() < 1
    assert np.array_equal(np.diff(segments) == 0, np.diff(fitted) == 0)
    assert np.all(excess < 1e-10) and np.all(abs(excess[ends]) < 1e-10)


# -- select-and-scatter

WINDOWS = {  # name: (operand dims, window)
    "pool2": ((3, 6, 8, 19), Window.of((1, 2, 2, 1), (1, 2, 2, 1))),
    "pool2-uneven": ((2, 7, 5, 9), Window.of((1, 2, 2, 1), (1, 2, 2, 1))),
    "pool3-same": ((2, 7, 6, 11), Window.of((1, 3, 3, 1), (1, 2, 2, 1), (0, 1, 1, 0), (0, 1, 1, 0))),
    "pool3-overlap": ((1, 9, 9, 40), Window.of((1, 3, 3, 1), (1, 2, 2, 1))),
    "one-channel": ((2, 6, 6, 1), Window.of((1, 2, 3, 1), (1, 1, 2, 1))),
    "channels-first": ((2, 3, 8, 8), Window.of((1, 1, 2, 2), (1, 1, 2, 2))),
    "over-channels": ((2, 12), Window.of((1, 3), (1, 2), (0, 2), (0, 1))),
    "large": ((40, 5), Window.of((20, 1), (7, 1), (3, 0), (4, 0))),
    "numbers-beyond-a-byte": ((200, 3), Window.of((150, 1), (10, 1))),
    "dilated": (
        (1, 9, 8, 5),
        Window.of((1, 2, 3, 1), (1, 2, 1, 1), (0, 2, 1, 0), (0, 1, 2, 0), (1, 1, 2, 1), (1, 3, 1, 1)),
    ),
    "cut": ((1, 9, 8, 5), Window.of((1, 2, 2, 1), (1, 2, 2, 1), (0, -1, -2, 0), (0, -1, 0, 0))),
    "only-padding": ((3, 4), Window.of((2, 1), (2, 1), (4, 0), (4, 0))),
    "identity": ((3, 5), Window.of((1, 1))),
    "empty": ((0, 4, 4, 3), Window.of((1, 2, 2, 1), (1, 2, 2, 1))),
    "no-windows": ((2, 1, 1, 3), Window.of((1, 2, 2, 1), (1, 2, 2, 1))),
    "scalar": ((), Window.of(())),
    "parallel": ((16, 16, 16, 24), Window.of((1, 2, 2, 1), (1, 2, 2, 1))),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_select_and_scatter(name: str) -> None:
    dims, window = WINDOWS[name]
    rng = np.random.default_rng(len(name))

    def case(element: str) -> Case:
        op = SelectAndScatter(window, comparator("GE", element), binary("add", element))
        source = values(rng, window.output(dims), element)
        return op, (values(rng, dims, element), source, np.asarray(1, source.dtype))

    check(*map(case, ["f32", "s8", "bf16", "f64", "u64"]))


def test_select_and_scatter_combines_in_order() -> None:
    """The last update of several for one place remains."""
    given = parameters(*[Shape(E.F32)] * 2)
    last = Computation("last", given[1], given)
    rng = np.random.default_rng(0)
    for dims in ((1, 9, 9, 17), (1, 9, 9, 1)):
        op = SelectAndScatter(Window.of((1, 3, 3, 1)), comparator("GT", "f32"), last)
        source = rng.standard_normal((1, 7, 7, dims[-1])).astype(np.float32)
        check((op, (values(rng, dims, "f32"), source, np.float32(0))))


def test_select_and_scatter_with_nan() -> None:
    rng = np.random.default_rng(0)
    operand = values(rng, (2, 6, 6, 9), "f32")
    operand[rng.random(operand.shape) < 0.3] = np.nan
    op = SelectAndScatter(WINDOWS["pool2"][1], comparator("GE", "f32"), binary("add", "f32"))
    check((op, (operand, values(rng, (2, 3, 3, 9), "f32"), np.float32(0))))


# -- scatter


def second(element: str) -> Computation:
    """The update replaces what is there."""
    given = parameters(*[Shape(E(element))] * 2)
    return Computation("second", given[1], given)


def rows(compute: Computation, unique: bool = False) -> Scatter:
    """Updates of whole rows, as the gradient of an embedding has them."""
    return Scatter((1,), (0,), (0,), 1, compute, unique_indices=unique)


@pytest.mark.parametrize("columns", [0, 1, 3, 8, 33, 64, 200])
def test_scatter_rows(columns: int) -> None:
    rng = np.random.default_rng(columns)
    index = rng.integers(-2, 12, 25).astype(np.int32)
    check(
        *(
            (rows(binary("add", e)), (values(rng, (10, columns), e), index, values(rng, (25, columns), e)))
            for e in ["f32", "f64", "bf16", "s8", "s64", "pred", "c64"]
        )
    )


def test_scatter_index_types() -> None:
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for index_type in ("s8", "u8", "s64", "u64", "s4"):
        index = rng.integers(-8 if index_type.startswith("s") else 0, 8, (20, 2)).astype(E(index_type).dtype)
        if index_type.endswith("64"):
            index[3], index[7, 1] = np.iinfo(index.dtype).max, np.iinfo(index.dtype).min
        add, array = binary("add", "s32"), values(rng, (5, 7), "s32")
        cases.append((Scatter((), (0, 1), (1, 0), 1, add), (array, index, values(rng, (20,), "s32"))))
        cases.append((Scatter((1, 2), (), (1, 0), 1, add), (array, index, values(rng, (20, 3, 4), "s32"))))
    check(*cases)


@pytest.mark.parametrize("unique", [False, True])
def test_scatter_in_parallel(unique: bool) -> None:
    """Wide rows in blocks of columns; rows with indices that occur once, by row."""
    rng = np.random.default_rng(0)
    index = rng.permutation(900)[:300].astype(np.int32) - 100
    check(
        *(
            (rows(compute, unique), (values(rng, (700, 300), "f32"), index, values(rng, (300, 300), "f32")))
            for compute in (binary("add", "f32"), second("f32"))
        )
    )


@pytest.mark.parametrize("columns", [1, 3, 70])
def test_scatter_by_shares_of_the_places(columns: int) -> None:
    """Many updates of few bytes, several for one place: each task has places of its own and keeps their order."""
    rng = np.random.default_rng(columns)
    count, dim = 60_000 // columns, 9001
    index = rng.integers(-5, dim + 5, count)
    index[: count // 4] = 4242
    index[-1] = np.iinfo(np.int64).min
    check(
        *(
            (rows(compute), (values(rng, (dim, columns), "f32"), index, values(rng, (count, columns), "f32")))
            for compute in (binary("maximum", "f32"), second("f32"))
        )
    )


def test_scatter_replaces_in_order() -> None:
    """The last of several updates for one place remains."""
    rng = np.random.default_rng(0)
    index = rng.integers(0, 5, (4, 6)).astype(np.int32)
    update = rng.standard_normal((4, 6, 9)).astype(np.float32)
    check((Scatter((2,), (0,), (0,), 2, second("f32")), (values(rng, (5, 9), "f32"), index, update)))


@pytest.mark.parametrize("unique", [False, True])
def test_scatter_forms(unique: bool) -> None:
    """Windows in the middle, partly outside, batching axes, several axes of indices, transposed updates."""
    rng = np.random.default_rng(0)
    add = binary("add", "f32")
    operand = values(rng, (6, 9, 5), "f32")

    def case(op: Scatter, index_dims: Sequence[int], update_dims: Sequence[int]) -> Case:
        places = np.stack(np.meshgrid(*[np.arange(d) for d in index_dims], indexing="ij"), -1).sum(-1)
        index = (places if unique else rng.integers(-3, 11, tuple(index_dims))).astype(np.int64)
        return op, (operand, index, values(rng, update_dims, "f32"))

    def scatter(*fields: object) -> Scatter:
        return Scatter(*fields, unique_indices=unique)  # type: ignore[arg-type]

    check(
        case(scatter((0, 1), (1,), (1,), 1, add), (5,), (6, 5, 5)),
        case(scatter((1, 2, 3), (), (1,), 1, add), (4,), (4, 6, 3, 5)),
        case(scatter((1, 2, 3), (), (1, 2), 1, add), (4, 2), (4, 6, 3, 2)),
        case(scatter((0, 2, 4), (), (0, 1, 2), 2, add), (4, 3, 3), (2, 4, 9, 3, 5)),
        case(scatter((1,), (1,), (1,), 1, add, (0,), (0,)), (6, 1), (6, 5)),
        case(scatter((2,), (1,), (1,), 2, add, (0,), (0,)), (6, 4), (6, 4, 5)),
        case(scatter((0,), (2,), (2,), 2, add, (1,), (1,)), (3, 9), (6, 3, 9)),
        case(scatter((), (), (), 3, add, (0, 1, 2), (2, 0, 1)), (9, 5, 6, 0), (9, 5, 6)),
        case(scatter((0, 1, 2), (), (), 0, add), (0,), (6, 4, 2)),
    )


def test_scatter_of_two_arrays() -> None:
    """A computation of several values of different widths: keeps the larger value and its number."""
    shapes = [Shape(E.F32), Shape(E.S64)] * 2
    a, i, b, j = given = parameters(*shapes)
    larger = make(Compare("GT"), b, a)
    pick = make(Tuple(), make(Elementwise("select"), larger, b, a), make(Elementwise("select"), larger, j, i))
    op = Scatter((1,), (0,), (0,), 1, Computation("larger", pick, given))
    rng = np.random.default_rng(0)
    arrays, updates = ([values(rng, (n, 21), e) for e in ("f32", "s64")] for n in (4, 9))
    check((op, [*arrays, rng.integers(0, 5, 9).astype(np.int32), *updates]))


def test_scatter_leaves_its_operand_alone() -> None:
    """The array is read elsewhere as well: it is copied before it is updated."""
    given = parameters(Shape(E.F32, (4, 3)), Shape(E.S32, (2,)), Shape(E.F32, (2, 3)))
    doubled = make(Elementwise("add"), given[0], given[0])
    root = make(Tuple(), make(rows(binary("add", "f32")), doubled, *given[1:]), doubled)
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    module = Module("test", Computation("test", root, given))
    found = (
        LocalClient("cpu")
        .compile(module)
        .execute([data, np.array([1, 1], np.int32), np.ones((2, 3), np.float32)])
    )
    wanted = 2 * data
    np.testing.assert_array_equal(found[1], wanted)
    wanted[1] += 2
    np.testing.assert_array_equal(found[0], wanted)


# -- sort

SORTED = [
    "f32",
    "f64",
    "f16",
    "bf16",
    "f8e4m3fn",
    "f8e5m2",
    "s4",
    "s8",
    "s16",
    "s32",
    "s64",
    "u4",
    "u8",
    "u16",
    "u32",
    "u64",
    "pred",
]


def random_bits(rng: np.random.Generator, dims: Sequence[int], element: str) -> np.ndarray:
    """Values of all sizes, with NaNs of both signs, infinities and zeros."""
    t = E(element)
    count = int(np.prod(dims))
    data = (
        np.frombuffer(rng.bytes(count * t.item_bytes), t.dtype).copy()
        if t.bits >= 8
        else rng.integers(0, 2 if t is E.PRED else 8, count).astype(t.dtype)
    )
    if t.is_float and count > 8:
        data[:4] = np.array([0.0, -0.0, np.nan, -np.nan]).astype(t.dtype)
    return data.reshape(tuple(dims))


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("size", [2, 15, 33, 700])
def test_sort_in_total_order(size: int, direction: str) -> None:
    rng = np.random.default_rng(size)
    check_bits(
        *(
            (Sort(0, comparator(direction, e, total=E(e).is_float), True), [random_bits(rng, (size,), e)])
            for e in SORTED
        )
    )


def test_sort_of_long_lines() -> None:
    rng = np.random.default_rng(0)
    check_bits(
        *(
            (Sort(0, comparator("LT", e, total=E(e).is_float), True), [random_bits(rng, (20_000,), e)])
            for e in ("f32", "s64", "u8")
        )
    )


@pytest.mark.parametrize(
    "dims, axis",
    [
        ((0,), 0),
        ((1,), 0),
        ((3, 0), 0),
        ((0, 4), 0),
        ((5, 40), 1),
        ((40, 5), 0),
        ((2, 300, 3), 1),
        ((7, 1, 2), 1),
        ((16, 17), 1),
        ((9, 16), 1),
    ],
)
def test_sort_along_axes(dims: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(0)
    number = np.arange(int(np.prod(dims))).reshape(dims)
    check_bits(
        *(
            (
                Sort(axis, comparator("LT", e, "s64", total=E(e).is_float), True),
                [random_bits(rng, dims, e), number],
            )
            for e in ("f32", "s8")
        )
    )


@pytest.mark.parametrize("size", [20, 1000])
def test_sort_of_many_arrays(size: int) -> None:
    """The key in the middle, and payloads of all widths, moved together and stably."""
    rng = np.random.default_rng(0)
    elements = ["u8", "c128", "s32", "f16", "c64"]
    arrays = [values(rng, (3, size), e) for e in elements]
    given = parameters(*(Shape(E(e)) for e in elements for _ in range(2)))
    for first, other in ((4, 5), (5, 4)):
        order = Computation("order", make(Compare("LT"), given[first], given[other]), given)
        check_bits((Sort(1, order, True), arrays))


@pytest.mark.parametrize("size", [20, 1000])
def test_sort_with_zeros_of_both_signs(size: int) -> None:
    """-0 and +0 are equal to a comparison that is not total, and keep their order."""
    rng = np.random.default_rng(0)
    data = rng.choice(np.array([0.0, -0.0, 1.0, -1.0], np.float32), size)
    check_bits(
        *(
            (Sort(0, comparator(d, "f32", "s32"), True), (data, np.arange(size, dtype=np.int32)))
            for d in ("LT", "GT")
        )
    )


def test_sort_by_two_keys() -> None:
    """A comparator of several instructions: by the first array, then by the second one backwards."""
    a, b, i, j = given = parameters(*[Shape(E.S32)] * 4)
    tie = make(Elementwise("and"), make(Compare("EQ"), a, b), make(Compare("GT"), i, j))
    order = Computation("order", make(Elementwise("or"), make(Compare("LT"), a, b), tie), given)
    rng = np.random.default_rng(0)
    second_key = rng.permutation(2000).astype(np.int32).reshape(-1, 2)
    check_bits(
        *((Sort(0, order), (values(rng, (size, 2), "s32"), second_key[:size])) for size in (5, 17, 100, 1000))
    )


def test_sort_keeps_all_elements_of_an_inconsistent_order() -> None:
    """With NaNs a plain less-than is no order: the result is some permutation."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal(50).astype(np.float32)
    data[::3] = np.nan
    given = parameters(*[Shape(E.F32)] * 2)
    nothing = Computation("order", make(Compare("LE"), *given), given)
    found, _ = run((Sort(0, nothing), [data]))
    np.testing.assert_array_equal(np.sort(found[0]), np.sort(data))


# -- random bits


@pytest.mark.parametrize("algorithm, words", [("rng_philox", 3), ("rng_default", 2), ("rng_three_fry", 2)])
@pytest.mark.parametrize(
    "dims", [(), (0,), (5,), (1001,), (64,), (3, 5, 7), (6, 33), (3, 40, 3), (5, 7, 4), (35, 37), (33, 40000)]
)
def test_random_bits(algorithm: str, words: int, dims: tuple[int, ...]) -> None:
    state = np.array([0x0123456789ABCDEF, 2**64 - 5, 0xFEDCBA9876543210][:words], np.uint64)
    elements = ["u32"] if np.prod(dims) > 10_000 else ["s4", "u8", "s16", "u32", "u64"]
    check(*((RngBitGenerator(algorithm, Shape(E(e), dims)), [state]) for e in elements))


# -- what all share


def test_computation_with_control_flow() -> None:
    """A loop and a conditional in an update function, in vectors: each lane takes its own number of steps."""
    scalar = Shape(E.S32)
    state = parameters(scalar)
    hundred = make(Constant(Literal(np.int32(100))))
    zero = make(Constant(Literal(np.int32(0))))
    below = make(
        Elementwise("and"), make(Compare("LT"), state[0], hundred), make(Compare("GT"), state[0], zero)
    )
    doubled = Computation("doubled", make(Elementwise("add"), state[0], state[0]), state)
    negated = Computation("negated", make(Elementwise("negate"), state[0]), state)
    old, update = given = parameters(scalar, scalar)
    grown = make(While(Computation("below", below, state), doubled), make(Elementwise("add"), old, update))
    chosen = make(Conditional((doubled, negated), False), make(Compare("LT"), old, update), grown, grown)
    rng = np.random.default_rng(0)
    check(
        (
            rows(Computation("grow", chosen, given)),
            (values(rng, (6, 19), "s32"), np.arange(8, dtype=np.int32), values(rng, (8, 19), "s32")),
        )
    )


def test_tasks_in_any_order() -> None:
    """Ranges of tasks, the last one first, on another thread's scratch memory, give the same."""
    rng = np.random.default_rng(0)
    pool = SelectAndScatter(WINDOWS["pool3-same"][1], comparator("GE", "f32"), binary("add", "f32"))
    pool_dims = WINDOWS["pool3-same"][0]
    index = rng.permutation(300).astype(np.int32)
    data = values(rng, (300, 300), "f32")
    cases: list[Case] = [
        (pool, [*(values(rng, d, "f32") for d in (pool_dims, pool.window.output(pool_dims))), np.float32(0)]),
        (rows(binary("add", "f32")), [data, index, data]),
        (rows(binary("add", "f32"), unique=True), [data, index, data]),
        (Sort(0, comparator("LT", "f32", total=True), True), [data]),
        (Sort(1, comparator("LE", "f32"), True), [rng.permutation(600).astype(np.float32).reshape(20, 30)]),
        (RngBitGenerator("rng_philox", Shape(E.U16, (100_001,))), [np.array([1, 2], np.uint64)]),
        (RngBitGenerator("rng_three_fry", Shape(E.U32, (1000, 101))), [np.array([1, 2], np.uint64)]),
    ]
    target = host(threads=4)  # however many processors there are
    for op, operands in cases:
        given = parameters(*(Shape(element_type_of(o.dtype), o.shape) for o in operands))
        text = ModuleText(target)
        instruction = make(op, *given)
        plan = emit_kernel(text, target, instruction, DEFAULT_OPTIONS)
        _, wanted = run((op, operands))
        found = [np.full(w.shape, 7, w.dtype) for w in wanted]
        for output, operand in plan.must_alias:
            found[output][...] = operands[operand]
        inputs = [o for k, o in enumerate(operands) if k not in dict(plan.must_alias).values()]
        assert plan.tasks > 1
        code, address = load_function(text, plan.symbol)
        launch(plan, address, [*map(np.asarray, inputs), *found], task_ranges=5)
        for f, w in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(f, w, err_msg=op.opcode)
        del code
