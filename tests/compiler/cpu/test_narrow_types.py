"""Types of at most 8 bits, by all their encodings: compiled code against the evaluator, bit for bit but for NaN.

One module holds all ops of a type: a module of many rows takes a fraction of the time that as many modules take.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from agreement import difference, leaves
from builders import comparator, computation, op, parameter, reducer
from cases import INEXACT, limits
from narrow_values import ALL, FLOATS, NARROW, every, every_pair, number, some, wide_values
from tfbridge.compiler import LocalClient
from tfbridge.compiler.cpu.artifact_cache import load_module
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ir.literal import Literal
from tfbridge.compiler.ir.module import Computation, Instruction, Module, make
from tfbridge.compiler.ir.shape import array
from tfbridge.compiler.ops import (
    ROWS,
    BitcastConvert,
    Compare,
    Concatenate,
    Constant,
    Convert,
    Convolution,
    ConvolutionDims,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    Pad,
    Reduce,
    ReduceWindow,
    Reshape,
    Reverse,
    Rng,
    Scatter,
    SelectAndScatter,
    Slice,
    Sort,
    TopK,
    Transpose,
    Tuple,
    Window,
    numeric,
)
from tfbridge.runtime.code.executable import Executable

E = ElementType
WIDER = [t for t in ALL if t.bits > 8 and not t.is_complex]
DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
of_type = pytest.mark.parametrize("t", NARROW, ids=lambda t: t.value)
of_floats = pytest.mark.parametrize("t", FLOATS, ids=lambda t: t.value)


def inputs(values: Sequence[np.ndarray], kinds: Sequence[ElementType]) -> list[Instruction]:
    return [parameter(k, t.value, *v.shape) for k, (v, t) in enumerate(zip(values, kinds))]


def check(
    rows: Mapping[str, Instruction],
    parameters: Sequence[Instruction],
    *runs: Sequence[np.ndarray],
    ulps: Callable[[str], float] = lambda _: 0,
    has_same_bits: bool = False,
) -> None:
    """Compares every row's results, in one run for each list of arguments; with has_same_bits all bits of NaNs too."""
    module = Module("narrow", Computation("main", make(Tuple(), *rows.values()), parameters))
    executable, wrong = Executable(load_module(module)), []
    for arguments in runs:
        found = iter(executable.execute(list(arguments)))
        for name, value in zip(rows, evaluate(module, list(arguments))):
            for want in leaves(value):
                one = next(found)
                message = difference(one, want, ulps(name))
                if has_same_bits and not np.array_equal(*map(numeric.bit_pattern, (one, want))):
                    message = "other bits"
                if message:
                    wrong.append(f"{name}: {message}")
    assert not wrong, "\n" + "\n".join(wrong)


@of_type
def test_ops_of_one_operand(t: ElementType) -> None:
    values = every(t)
    (x,) = inputs([values], [t])
    rows = {name: op(name, x) for name, row in ROWS.items() if row.arity == 1 and t in row.types}
    rows |= {f"convert to {u.value}": make(Convert(u), x) for u in ALL if u is not t}
    check(rows, [x], [values], ulps=tolerance(t))


@of_type
def test_ops_of_two_operands(t: ElementType) -> None:
    values = every_pair(t)
    x, y = inputs(values, [t, t])
    rows = {name: op(name, x, y) for name, row in ROWS.items() if row.arity == 2 and t in row.types}
    for direction, order in itertools.product(DIRECTIONS, ("", "TOTALORDER") if t.is_float else ("",)):
        rows[f"compare {direction} {order}"] = make(Compare(direction, order), x, y)
    check(rows, [x, y], values, ulps=tolerance(t))


def tolerance(t: ElementType) -> Callable[[str], float]:
    """One unit for functions that are approximated: what lies between two numbers may be rounded to either."""
    return lambda name: float(t.is_float and INEXACT.get(name, (0, 0))[0] > 0)


@of_type
def test_rules_about_signs(t: ElementType) -> None:
    """Of powers of two there are no negative ones."""
    if t.is_unsigned:
        return
    values = every_pair(t)
    x, y = inputs(values, [t, t])
    minus_x, minus_y = op("negate", x), op("negate", y)
    rows = {
        "-(-x)": op("negate", minus_x),
        "|-x|": op("abs", minus_x),
        "x + -y": op("add", x, minus_y),
        "-x + y": op("add", minus_x, y),
        "x - -y": op("subtract", x, minus_y),
        "-x * -y": op("multiply", minus_x, minus_y),
        "max(x, -y)": op("maximum", x, minus_y),
    }
    check(rows, [x, y], values)


@pytest.mark.parametrize("t", WIDER, ids=lambda t: t.value)
def test_conversions_from_wider_types(t: ElementType) -> None:
    values = wide_values(t)
    (x,) = inputs([values], [t])
    check({u.value: make(Convert(u), x) for u in NARROW}, [x], [values])


@of_type
def test_bits_are_kept(t: ElementType) -> None:
    """What moves elements, or takes their bits, keeps the payloads of NaNs too."""
    values, size = every(t), 1 << t.bits
    rng = np.random.default_rng(0)
    arguments = [values, rng.integers(0, 2, size).astype(bool), rng.permutation(size).astype(np.int32)]
    x, chooser, order = inputs(arguments, [t, E.PRED, E.S32])
    back = make(Reverse((0,)), x)
    last = make(Reshape(()), make(Slice((size - 1,), (size,), (1,)), x))
    rows = {
        "reverse": back,
        "transpose": make(Transpose((1, 0)), make(Reshape((2, size // 2)), x)),
        "select": op("select", chooser, x, back),
        "gather": make(Gather((), (0,), (0,), 1, (1,)), x, order),
        "concatenate": make(Concatenate(0), x, back),
        "pad": make(Pad((3,), (2,), (1,)), x, last),
        "update": make(
            DynamicUpdateSlice(),
            x,
            make(Slice((size - 2,), (size,), (1,)), x),
            make(Constant(Literal(np.int32(1)))),
        ),
    }
    for u in ALL:
        if u.bits == t.bits:
            rows[f"bitcast to {u.value}"] = make(BitcastConvert(u), x)
        elif t.bits == 8 and u.bits > 8 and not u.is_complex:
            wide = make(BitcastConvert(u), make(Reshape((size // u.item_bytes, u.item_bytes)), x))
            rows[f"bitcast to {u.value} and back"] = make(BitcastConvert(t), wide)
    check(rows, [x, chooser, order], arguments, has_same_bits=True)


@of_floats
def test_dots(t: ElementType) -> None:
    """All products, of each two types, and with wider results."""
    values = every(t)[:, None]
    others = [every(u)[None] for u in FLOATS]
    x, *ys = inputs([values, *others], [t, *FLOATS])
    rows = {
        f"{u.value} {preferred}": make(Dot((1,), (0,), preferred_type=preferred), x, y)
        for (u, y), preferred in itertools.product(zip(FLOATS, ys), (None, E.F32, E.F64))
        if preferred is None or u in (t, FLOATS[-1])
    }
    check(rows, [x, *ys], [values, *others])


@of_floats
def test_convolutions_with_padding(t: ElementType) -> None:
    """Padding is no element: f8e8m0fnu has no zero."""
    arguments = [some(t, 1, 64, 1), number(t, 2) * np.ones((1, 1, 3), t.dtype)]
    dims = ConvolutionDims(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))
    x, weights = inputs(arguments, [t, t])
    rows = {"convolution": make(Convolution(Window.of((1,), (1,), (2,), (2,)), dims), x, weights)}
    check(rows, [x, weights], arguments)


@of_type
def test_reductions(t: ElementType) -> None:
    values = some(t, 300, 3)
    sizes = np.abs(numeric.wide(values))
    summands = np.where((sizes < 2.0**-7) & (sizes != 0), number(t, 1), values)  # whose sums are exact in f32
    places = np.random.default_rng(2).integers(-1, 301, 300).astype(np.int32)
    arguments = [values, summands, number(t, 1), places]
    x, small, init, at = inputs(arguments, [t, t, t, E.S32])
    line = make(Reshape((300,)), make(Slice((0, 0), (300, 1), (1, 1)), x))
    rows = {}
    for kind in (k for k in ("add", "multiply", "maximum", "minimum", "and", "or") if t in ROWS[k].types):
        combine, operand = reducer(kind, t), small if kind == "add" else x
        window = ReduceWindow(Window.of((3, 1), (1, 1), (1, 0), (1, 0)), combine)
        rows[f"rows {kind}"] = make(Reduce((1,), combine), operand, init)
        rows[f"window {kind}"] = make(window, operand, init)
        rows[f"scatter {kind}"] = make(
            Scatter((), (0,), (0,), 1, combine), line, at, make(Reverse((0,)), line)
        )
        if kind not in ("add", "multiply"):
            rows[f"all {kind}"] = make(Reduce((0, 1), combine), x, init)
    source = make(Slice((0, 0), (150, 3), (1, 1)), x)
    for direction in ("GE", "LE"):
        scatter = SelectAndScatter(Window.of((2, 1), (2, 1)), comparator(direction, t), reducer("add", t))
        rows[f"select-and-scatter {direction}"] = make(scatter, x, source, init)
    runs = (
        [values, summands, number(t, start), places] for start in ((0, 1) if t.is_unsigned else (0, 1, -1))
    )
    check(rows, [x, small, init, at], *runs)


# One type for each of the ways in which the encodings of floats are ordered.
ORDERED = [*{t.specials: t for t in FLOATS}.values(), *(t for t in NARROW if t.is_small_integer)]


@pytest.mark.parametrize("t", ORDERED, ids=lambda t: t.value)
def test_orders(t: ElementType) -> None:
    arguments = [some(t, 300), np.arange(300, dtype=np.int32)]
    x, numbers = inputs(arguments, [t, E.S32])
    rows = {}
    for direction, order in itertools.product(("LT", "GT"), ("", "TOTALORDER") if t.is_float else ("",)):
        scalars = [array(t), array(t), array("s32"), array("s32")]
        one, two = (
            computation("before", s, lambda a, b, *_: make(Compare(direction, order), a, b))  # noqa: B023
            for s in (scalars[:2], scalars)
        )
        rows[f"sort {direction} {order}"] = make(Sort(0, one, True), x)
        rows[f"sort with numbers {direction} {order}"] = make(Sort(0, two, True), x, numbers)
    orders = ("", "NUMBERS", "HEAP", "HEAP_SORTED") if t.is_float else ("",)
    for order, largest, k in itertools.product(orders, (True, False), (7, 200)):  # 200 are sorted
        if k == 7 or not order.startswith("HEAP"):
            rows[f"topk {order} {largest} {k}"] = make(TopK(k, largest, order), x)
    check(rows, [x, numbers], arguments)


@pytest.mark.parametrize("t", [t for t in ALL if t.is_integer], ids=lambda t: t.value)
def test_indices(t: ElementType) -> None:
    low, high = limits(t)
    (start, last, numbers, x) = inputs(
        [np.zeros(()), np.zeros(()), np.zeros(5), np.zeros((9, 4))], [t, t, t, E.F32]
    )
    part = make(Slice((0, 0), (5, 4), (1, 1)), x)
    rows = {
        "slice": make(DynamicSlice((2, 2)), x, start, last),
        "update": make(DynamicUpdateSlice(), x, make(Slice((0, 0), (2, 2), (1, 1)), x), start, last),
        "gather": make(Gather((1,), (0,), (0,), 1, (1, 4)), x, numbers),
        "scatter": make(Scatter((1,), (0,), (0,), 1, reducer("add", "f32")), x, numbers, part),
    }
    table, holder = np.arange(36, dtype=np.float32).reshape(9, 4), np.int64 if low else np.uint64
    runs = []
    for a, b in ((0, 1), (low, high), (high, low)):
        both = np.array([a, b, 0, min(high, 3), low], holder).astype(t.dtype)
        runs.append([both[0], both[1], both, table])
    check(rows, [start, last, numbers, x], *runs)


@of_floats
@pytest.mark.parametrize("platform", ["cpu", "interpreter"])
def test_random_numbers(t: ElementType, platform: str) -> None:
    """All are in the range, and most numbers of it are drawn."""
    parameters = [parameter(k, t.value) for k in range(2)]
    root = make(Rng("rng_uniform", array(t, 2000)), *parameters)
    executable = LocalClient(platform).compile(Module("rng", Computation("main", root, parameters)))
    values = numeric.wide(every(t))
    for low, high in ((1, 4), (-2, 2), (0, 1), (-3, 0), (2, 2), (3, 1)):
        bounds = [number(t, low), number(t, high)]
        a, b = map(float, map(numeric.wide, bounds))
        found = numeric.wide(executable.execute(bounds)[0])
        inside = np.unique(values[(values >= a) & (values < b)])
        if np.isnan(a) or np.isnan(b):
            assert np.isnan(found).all()
        elif inside.size:
            assert ((found >= a) & (found < b)).all() and np.unique(found).size >= min(inside.size, 50) / 2
        else:
            assert (found == a).all()
