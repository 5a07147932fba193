"""Compiled fused computations against the evaluator."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from builders import broadcast, constant, layer_norm, op, parameter, reduce, reducer, scalar, softmax
from fusion_cases import F32, Kernel, computations, launch, load_function, sample
from hypothesis import HealthCheck, given, settings
from tfbridge.compiler.client.client import LocalClient
from tfbridge.compiler.cpu.loops.emit import emit_fused
from tfbridge.compiler.cpu.loops.epilogue import emit_epilogue
from tfbridge.compiler.cpu.objects.object_emitter import emit_object
from tfbridge.compiler.cpu.targets.named_target import target_for
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ir.module import Computation, Instruction, Module, make
from tfbridge.compiler.ir.shape import Shape, array
from tfbridge.compiler.ops import (
    BitcastConvert,
    Compare,
    Concatenate,
    Convert,
    DynamicSlice,
    Gather,
    GetTupleElement,
    Iota,
    Pad,
    Parameter,
    Reduce,
    ReduceWindow,
    Reshape,
    Reverse,
    Slice,
    Transpose,
    Tuple,
    Window,
)
from tfbridge.compiler.options import DEFAULT_OPTIONS
from tfbridge.runtime.llvm.ir_builder import ModuleText
from tfbridge.runtime.llvm.target import Target, host


def check(
    root: Instruction,
    parameters: Sequence[Instruction],
    tolerance: float = 1e-5,
    arguments: Sequence[np.ndarray] | None = None,
) -> Kernel:
    """Compiles and runs; compares with the evaluator."""
    computation = Computation("fused", root, parameters)
    arguments = [sample(p.shape, k) for k, p in enumerate(parameters)] if arguments is None else arguments
    kernel = Kernel(computation)
    wanted = evaluate(computation, arguments)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    for got, want in zip(kernel(*arguments), wanted, strict=True):
        wide = np.complex128 if np.iscomplexobj(want) else np.float64
        np.testing.assert_allclose(
            got.astype(wide), np.asarray(want).astype(wide), rtol=tolerance, atol=tolerance
        )
    return kernel


DIMS = [(7, 10), (64, 100), (130, 129), (1, 5), (37, 1), (9, 3), (6, 17), (5, 8), (3, 31), (11, 2)]


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("build", [softmax, layer_norm])
def test_rows(build, dims):
    x = parameter(0, "f32", *dims)
    check(build(x), [x], 1e-4)


def test_what_is_made_of_a_dear_value_is_kept():
    x = parameter(0, "f32", 64, 1000)
    gelu = op("multiply", op("multiply", x, scalar(0.5, x)), op("erfc", op("negate", x)))
    kernel = check(softmax(gelu), [x])
    assert kernel.plan.scratch_bytes == 2 * 4032


@pytest.mark.parametrize("columns", [4096, 4099, 8191, 20011, 32768])
@pytest.mark.parametrize("type_", ["f32", "f64", "s32", "bf16"])
def test_rows_from_memory(columns, type_):
    """Parts of a long row that outgrows the caches may be read side by side: each element counts once."""
    target = dataclasses.replace(host(), l2_bytes=1 << 12)
    x = parameter(0, type_, 3, columns)
    numbers = np.random.default_rng(columns).integers(-3, 4, (3, columns)).astype(x.shape.element_type.dtype)
    (sums,) = Kernel(Computation("fused", reduce(x, [1]), [x]), target)(numbers)
    wanted = numbers.astype(np.float64).sum(1)
    np.testing.assert_array_equal(sums, wanted.astype(sums.dtype))
    if type_ in ("f32", "f64"):
        largest = Kernel(Computation("fused", reduce(x, [1], "maximum", -np.inf), [x]), target)
        for place in (0, columns // 4, columns // 2 + 1, columns - 1):
            numbers[1, place], numbers[2, place] = np.inf, np.nan
            np.testing.assert_array_equal(largest(numbers)[0], [3, np.inf, np.nan])
            numbers[1:, place] = 0


def test_row_is_kept_for_later_loops():
    x = parameter(0, "f32", 64, 1000)
    kernel = check(softmax(x), [x])
    assert kernel.plan.scratch_bytes >= 4000


def test_row_is_kept_whatever_loops_are_around():
    """Axes that are merged into one loop have quotients of its variable as indices."""
    products = set()
    for outer in [(32,), (4, 8), (2, 4, 4)]:
        x = parameter(0, "f32", *outer, 1000)
        check(softmax(x), [x])
        module = ModuleText(host())
        emit_fused(module, host(), Computation("fused", softmax(x), [x]), DEFAULT_OPTIONS)
        products.add(module.text().count("@llvm.fma."))
    assert len(products) == 1


@pytest.mark.parametrize("dims", [(4, 5), (64, 100), (9, 3)])
@pytest.mark.parametrize("column", [0, 2])
def test_one_element_of_a_kept_row(dims, column):
    """Its place in the row is the same in every row, what lies there is not."""
    x = parameter(0, "f32", *dims)
    s = softmax(x)
    one = make(Slice((0, column), (dims[0], column + 1), (1, 1)), s)
    alone = make(Pad((0, column), (0, dims[1] - column - 1), (0, 0)), one, constant(0, ElementType.F32))
    total = broadcast(reduce(op("multiply", alone, s), [1]), dims, (0,))
    check(op("add", total, alone), [x], 1e-5)


@pytest.mark.parametrize("vector_bytes", [host().vector_bytes, 64])
@pytest.mark.parametrize("type_", ["f32", "f64", "s32", "u8", "bf16", "c64", "pred"])
@pytest.mark.parametrize("row", [1, 2, 3, 4, 5, 7, 8, 12, 13, 15])
def test_short_rows(row, type_, vector_bytes):
    """Several rows make whole vectors: an operand has an element for each position in a row, one for each row, one
    for each row of a part of the axes; where the count of rows does not divide they are walked one by one."""
    target = dataclasses.replace(host(), vector_bytes=vector_bytes)
    for outer in [(2, 3, 32), (4, 8, 3), (5, 16), (48,), (5, 7)]:
        dims = (*outer, row)
        last = len(outer)
        x, y = parameter(0, type_, *dims), parameter(1, type_, *dims)
        place, each = parameter(2, type_, row), parameter(3, type_, *outer)
        part = parameter(4, type_, *outer[-1:], row)
        kind = "or" if type_ == "pred" else "add"
        other = "and" if type_ == "pred" else "multiply"
        root = op(other, op(kind, x, broadcast(place, dims, (last,))), broadcast(each, dims, range(last)))
        operands = [x, y, place, each, part]
        for result in (root, op(kind, op(kind, root, y), broadcast(part, dims, (last - 1, last)))):
            computation = Computation("fused", result, operands)
            arguments = [_small(p.shape, k) for k, p in enumerate(operands)]
            (got,) = Kernel(computation, target)(*arguments)
            np.testing.assert_array_equal(got, evaluate(computation, arguments))


@pytest.mark.parametrize("vector_bytes", [host().vector_bytes, 64])
@pytest.mark.parametrize("type_", ["f32", "f64", "s32", "u8", "bf16", "c64", "pred"])
@pytest.mark.parametrize("row", [1, 2, 3, 4, 5, 7, 8, 9])
def test_places_of_short_rows(row, type_, vector_bytes):
    """Vectors of one element of each row: sums of rows, and columns that are cut out."""
    target = dataclasses.replace(host(), vector_bytes=vector_bytes)
    for outer in [(64,), (5, 7), (67,)]:
        dims = (*outer, row)
        x = parameter(0, type_, *dims)
        kind, start = ("or", False) if type_ == "pred" else ("add", 0)
        columns = [
            make(Reshape(outer), make(Slice((*(0,) * len(outer), k), (*outer, k + 1), (1,) * len(dims)), x))
            for k in {0, row // 2, row - 1}
        ]
        for root in (reduce(x, [len(outer)], kind, start), *columns, op(kind, columns[0], columns[-1])):
            computation, argument = Computation("fused", root, [x]), _small(x.shape, row)
            (got,) = Kernel(computation, target)(argument)
            np.testing.assert_array_equal(got, evaluate(computation, [argument]))


def _small(shape: Shape, seed: int) -> np.ndarray:
    """Integers so small that every type holds sums and products of a few exactly."""
    random = np.random.default_rng(seed)
    return random.integers(0, 2, shape.dims).astype(shape.element_type.dtype)


def test_short_rows_are_whole_vectors():
    """No part of a vector is loaded or stored but that of the operand which is shorter than one."""
    dims = (8, 24, 24, 3)
    x, mean = parameter(0, "f32", *dims), parameter(1, "f32", 3)
    module, target = ModuleText(host()), host()
    root = op("subtract", x, broadcast(mean, dims, (3,)))
    emit_fused(module, target, Computation("fused", root, [x, mean]), DEFAULT_OPTIONS)
    stores = [line for line in module.text().splitlines() if " store " in line]
    assert len(stores) == 3
    assert all(f"store <{target.lanes(32)} x float>" in line for line in stores)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("kind", ["add", "maximum"])
@pytest.mark.parametrize("dims", [(5, 33, 70), (2, 3, 4), (40, 1, 9)])
def test_reduce(dims, kind, axes):
    x = parameter(0, "f32", *dims)
    check(reduce(op("negate", x), axes, kind, 0.5), [x], 1e-4)


@pytest.mark.parametrize("type_", ["f64", "bf16", "f16", "s8", "u8", "s32", "u64", "c64"])
def test_reduce_types(type_):
    x = parameter(0, type_, 19, 45)
    tolerance = 2e-2 if type_ in ("bf16", "f16") else 1e-5
    check(reduce(x, (1,)), [x], tolerance)
    check(reduce(x, (0,)), [x], tolerance)


def choice(kind: str, comparison: str, x: Instruction, axis: int) -> Instruction:
    """The chosen values along an axis and where they stand. kind "first": of equal ones the smaller place; "last":
    of equal ones the last in order, whatever the places; "nan": the first NaN, if any."""
    t = [Shape(F32), Shape(ElementType.S64)] * 2
    a, i, b, j = (Instruction(Parameter(k, s), (), s) for k, s in enumerate(t))
    beyond, equal, before = (
        make(Compare(comparison), b, a),
        make(Compare("EQ"), a, b),
        make(Compare("LT"), j, i),
    )
    if kind == "first":
        take = op("or", beyond, op("and", equal, before))
    elif kind == "last":
        take = op("or", beyond, equal)
    else:
        take = op("and", op("not", make(Compare("NE"), a, a)), op("or", beyond, make(Compare("NE"), b, b)))
    best = Computation(
        "best", make(Tuple(), op("select", take, b, a), op("select", take, j, i)), [a, i, b, j]
    )
    places = make(Iota(array("s64", *x.shape.dims), axis))
    worst = constant(-np.inf if comparison == "GT" else np.inf)
    return make(Reduce((axis,), best), x, places, worst, constant(0, ElementType.S64))


@pytest.mark.parametrize(
    "dims, axis",
    [
        ((12, 31), 1),
        ((12, 31), 0),
        ((3, 777), 1),
        ((40, 600), 1),
        ((1, 8), 1),
        ((2, 5, 530), 2),
        ((700, 3), 0),
    ],
)
@pytest.mark.parametrize("kind", ["first", "last", "nan"])
@pytest.mark.parametrize("comparison", ["GT", "LT"])
def test_choice_keeps_ties_and_nans(comparison, kind, dims, axis):
    x = parameter(0, "f32", *dims)
    values = np.rint(3 * sample(x.shape))  # few numbers, many ties
    values[np.random.default_rng(1).random(dims) < 0.05] = np.nan
    both = choice(kind, comparison, x, axis)
    wanted_value, wanted_place = np.empty((2, *values.sum(axis).shape))
    rows = np.moveaxis(values, axis, -1)
    for at in np.ndindex(*rows.shape[:-1]):
        best, place = (-np.inf if comparison == "GT" else np.inf), 0
        for k, y in enumerate(rows[at]):
            beyond = y > best if comparison == "GT" else y < best
            take = {
                "first": beyond,
                "last": beyond or y == best,
                "nan": not np.isnan(best) and (beyond or np.isnan(y)),
            }[kind]
            best, place = (y, k) if take else (best, place)
        wanted_value[at], wanted_place[at] = best, place
    value, place = Kernel(Computation("fused", both, [x]))(values)
    np.testing.assert_array_equal(value, wanted_value)
    np.testing.assert_array_equal(place, wanted_place)
    (alone,) = Kernel(Computation("fused", make(GetTupleElement(1), both), [x]))(values)
    np.testing.assert_array_equal(alone, wanted_place)


def test_pair_of_sums_starts_from_its_initial_values_once():
    t = [Shape(F32)] * 4
    a, b, c, d = (Instruction(Parameter(k, s), (), s) for k, s in enumerate(t))
    sums = Computation("sums", make(Tuple(), op("add", a, c), op("add", b, d)), [a, b, c, d])
    x, y = parameter(0, "f32", 3, 600), parameter(1, "f32", 3, 600)
    for start in (0.0, 5.0):
        check(make(Reduce((1,), sums), x, y, constant(start), constant(start)), [x, y], 1e-4)


@pytest.mark.parametrize("columns", [1, 2, 3, 5, 7, 10, 17, 31])
@pytest.mark.parametrize("type_", ["f32", "f64", "bf16", "s8", "pred", "c64"])
def test_tails_touch_nothing_behind_a_row(type_, columns):
    x, b = parameter(0, type_, 6, columns), parameter(1, type_, columns)
    kernel = Kernel(
        Computation("fused", make(Tuple(), op("add", x, broadcast(b, (6, columns), (1,)))), [x, b])
    )
    values, bias = sample(x.shape), sample(b.shape, 1)
    around = np.full(x.shape.elements + 64, 1, values.dtype)
    out = around[:-64].reshape(x.shape.dims)
    launch(kernel.plan, kernel.address, [values, bias, out])
    np.testing.assert_allclose(out.astype(np.complex128), (values + bias).astype(np.complex128), rtol=1e-2)
    assert (around[-64:] == 1).all()


WINDOWS = [
    Window.of((1, 3, 3, 1), (1, 2, 2, 1), (0, 1, 1, 0), (0, 1, 1, 0)),
    Window.of((1, 2, 2, 1), (1, 2, 2, 1)),
    Window.of((1, 4, 5, 1), (1, 1, 1, 1)),
    Window.of(
        (1, 2, 3, 1),
        (1, 1, 2, 1),
        (0, 2, 0, 0),
        (0, 1, 2, 0),
        (1, 2, 1, 1),
        (1, 1, 2, 1),
        (False, True, True, False),
    ),
]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", ["add", "maximum"])
def test_reduce_window(window, kind):
    x = parameter(0, "f32", 2, 9, 11, 10)
    check(make(ReduceWindow(window, reducer(kind, F32)), x, constant(-5.0)), [x], 1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("kind, type_", [("add", "f32"), ("maximum", "s32"), ("add", "bf16")])
def test_cumulative(kind, type_, backwards, axis):
    x = parameter(0, type_, 5, 30, 21)
    size = [x.shape.dims[a] if a == axis else 1 for a in range(3)]
    before, none = [s - 1 for s in size], [0] * 3
    window = Window.of(size, pad_low=none if backwards else before, pad_high=before if backwards else none)
    t = x.shape.element_type
    check(
        make(ReduceWindow(window, reducer(kind, t)), op("negate", x), constant(-2, t)),
        [x],
        0.2 if type_ == "bf16" else 1e-5,
    )


@pytest.mark.parametrize("type_", ["f32", "f64", "bf16", "s8", "s32", "pred", "c64"])
@pytest.mark.parametrize("dims", [(40, 37), (16, 24), (3, 50), (1, 9)])
def test_transpose(dims, type_):
    x = parameter(0, type_, *dims)
    check(make(Transpose((1, 0)), x), [x])
    y = parameter(1, type_, *dims[::-1])
    check(make(Tuple(), make(Compare("EQ"), make(Transpose((1, 0)), x), y), y), [x, y])


def test_a_transpose_of_bytes_is_little_code():
    """A line of the cache holds 64 of them; a block of 64 by 64 took LLVM ten seconds."""
    p = parameter(0, "s8", 257, 64)
    module = ModuleText(host())
    emit_fused(module, host(), Computation("fused", make(Transpose((1, 0)), p), [p]), DEFAULT_OPTIONS)
    assert module.text().count("\n") < 1000


@pytest.mark.parametrize("permutation", [(0, 3, 1, 2), (0, 2, 3, 1), (3, 2, 1, 0), (2, 0, 1, 3)])
def test_transpose_of_four_axes(permutation):
    x = parameter(0, "f32", 3, 8, 9, 17)
    y = make(Transpose(permutation), x)
    check(make(Reshape((y.shape.dims[0] * y.shape.dims[1], y.shape.dims[2] * y.shape.dims[3])), y), [x])


@pytest.mark.parametrize("dims", [(2,) * 8, (2, 3, 2, 3, 2, 3, 2, 3), (2,) * 20])
def test_reshape_of_many_axes(dims: tuple[int, ...]) -> None:
    """Each axis that a reshape makes up asks for a split of the loop, however many there are."""
    x = parameter(0, F32, *dims)
    backwards = make(Transpose(tuple(reversed(range(len(dims))))), x)
    check(op("negate", make(Reshape((x.shape.elements,)), backwards)), [x])


@pytest.mark.parametrize("dims", [(9, 70), (5, 3)])
def test_index_maps(dims):
    n, m = dims
    x, y = parameter(0, "f32", *dims), parameter(1, "f32", n, 3)
    seven = constant(7.0)
    check(make(Pad((1, 2), (0, 3), (0, 0)), x, seven), [x])
    check(make(Pad((-1, 2), (2, -2), (2, 1)), op("negate", x), seven), [x])
    check(make(Concatenate(1), x, y, op("negate", x)), [x, y])
    check(make(Slice((0, 1), (n, m), (2, 2)), x), [x])
    check(make(Reverse((0, 1)), x), [x])
    check(op("abs", make(Reshape((m, n)), x)), [x])
    check(op("add", make(Iota(array("f32", *dims), 1)), x), [x])
    check(op("add", x, broadcast(reduce(y, (1,)), dims, (0,))), [x, y])


def test_gather_and_dynamic_slice_clamp():
    x, rows = parameter(0, "f32", 50, 16), parameter(1, "s32", 7, 1)
    at = np.array([[3], [60], [-1], [4], [9], [49], [0]], np.int32)
    taken = make(Gather((1,), (0,), (0,), 1, (1, 16)), x, rows)
    check(op("negate", taken), [x, rows], arguments=[sample(x.shape), at])
    i, j = parameter(1, "s64"), parameter(2, "s64")
    check(
        make(DynamicSlice((5, 9)), x, i, j),
        [x, i, j],
        arguments=[sample(x.shape), np.array(48, np.int64), np.array(-3, np.int64)],
    )


def test_several_outputs_and_scalars():
    x = parameter(0, "f32", 40, 3)
    y = op("exponential", x)
    check(make(Tuple(), y, op("add", y, x), make(Convert(ElementType.S8), y)), [x])
    s = parameter(0, "f32")
    check(op("tanh", s), [s])


def test_empty_output_has_no_tasks():
    x = parameter(0, "f32", 0, 4)
    assert Kernel(Computation("empty", op("tanh", x), [x])).plan.tasks == 0
    check(reduce(x, (0,), "add", 3.0), [x])


def test_bitcast_to_another_width():
    x = parameter(0, "f64", 6)
    check(make(BitcastConvert(ElementType.U16), x), [x])
    y = parameter(0, "s8", 5, 4)
    check(make(BitcastConvert(ElementType.S32), y), [y])


def test_in_place_pairs_hold_when_buffers_are_shared():
    x, y = parameter(0, "f32", 300), parameter(1, "f32", 300)
    root = make(Tuple(), op("add", x, y), op("multiply", x, y))
    kernel = Kernel(Computation("fused", root, [x, y]))
    assert kernel.plan.may_alias == {(o, p) for o in (0, 1) for p in (0, 1)}
    a, b = sample(x.shape, 1), sample(y.shape, 2)
    shared = [a.copy(), b.copy()]
    launch(kernel.plan, kernel.address, [*shared, *shared])
    np.testing.assert_array_equal(shared[0], a + b)
    np.testing.assert_array_equal(shared[1], a * b)


def test_no_in_place_where_other_elements_are_read():
    x, i = parameter(0, "f32", 30, 30), parameter(1, "s64", 30)
    columns = broadcast(reduce(x, [0], "maximum", -np.inf), x.shape.dims, [1])
    total = broadcast(reduce(x, [0, 1]), x.shape.dims, [])
    of_transposed = broadcast(reduce(make(Transpose((1, 0)), x), [1]), x.shape.dims, [0])
    of_part = broadcast(reduce(make(Slice((0, 0), (30, 29), (1, 1)), x), [1]), x.shape.dims, [0])
    rows = make(Gather((1,), (0,), (0,), 1, (1, 30)), x, make(Reshape((30, 1)), i))
    for root in (
        op("add", x, make(Reverse((1,)), x)),
        make(Transpose((1, 0)), x),
        *(op("subtract", x, other) for other in (columns, total, of_transposed, of_part, rows)),
        make(Tuple(), softmax(x), make(Reverse((0,)), x)),
    ):
        parameters = [x, i] if root.opcode == "subtract" and root.operands[1] is rows else [x]
        assert not {p for p in Kernel(Computation("fused", root, parameters)).plan.may_alias if p[1] == 0}


@pytest.mark.parametrize("dims", [(37, 70), (5, 3, 64), (200, 1000), (3, 7), (1, 9), (40, 1)])
@pytest.mark.parametrize("function", [softmax, layer_norm])
def test_rows_are_overwritten_after_their_reductions(
    function: Callable[[Instruction], Instruction], dims: tuple[int, ...]
) -> None:
    x = parameter(0, "f32", *dims)
    kernel = Kernel(Computation("fused", function(x), [x]))
    shared, apart = sample(x.shape), np.empty(dims, np.float32)
    launch(kernel.plan, kernel.address, [shared.copy(), apart])
    if kernel.plan.may_alias:
        launch(kernel.plan, kernel.address, [shared, shared])
        np.testing.assert_array_equal(shared, apart)
    assert kernel.plan.may_alias or dims not in ((37, 70), (5, 3, 64), (200, 1000))


def test_tasks_in_order_compute_runs_of_the_outputs():
    """So many tasks after the other write as many elements after the other."""
    x, y = parameter(0, "f32", 6, 70, 90), parameter(0, "f32", 2, 3, 40000)
    found = []
    for p, root in (
        (x, op("tanh", x)),
        (x, softmax(x)),
        (x, op("tanh", reduce(x, [2]))),
        (x, reduce(op("tanh", x), [1])),
        (x, make(Transpose((0, 2, 1)), op("tanh", x))),
        (y, op("tanh", y)),
        (y, make(Concatenate(0), op("tanh", y), y)),
        (y, make(Concatenate(1), op("tanh", y), y)),
        (y, make(Concatenate(2), op("tanh", y), y)),
    ):
        kernel = Kernel(Computation("fused", root, [p]))
        if kernel.plan.in_order is None:
            continue
        found.append(root.opcode)
        elements, tasks = kernel.plan.in_order
        whole, first = (np.full(root.shape.dims, np.nan, np.float32) for _ in range(2))
        launch(kernel.plan, kernel.address, [sample(p.shape), whole])
        launch(dataclasses.replace(kernel.plan, tasks=3 * tasks), kernel.address, [sample(p.shape), first])
        np.testing.assert_array_equal(first.ravel()[: 3 * elements], whole.ravel()[: 3 * elements])
        assert np.isnan(first.ravel()[3 * elements :]).all()
    assert {"divide", "tanh", "concatenate"} <= set(found)


def test_large_work_is_divided():
    x = parameter(0, "f32", 300, 1111)
    assert check(op("tanh", x), [x]).plan.tasks > 2
    assert check(softmax(x), [x]).plan.tasks > 2
    assert check(make(Transpose((1, 0)), x), [x]).plan.tasks > 2


@pytest.mark.parametrize("view", [(2, 35, 13), (1, 70, 13), (2, 5, 91)])
def test_epilogue_in_blocks(view):
    dims = (2, 5, 7, 13)
    x, bias, other = parameter(0, "f32", *dims), parameter(1, "f32", 13), parameter(2, "f32", *dims)
    root = op("maximum", op("add", op("add", x, broadcast(bias, dims, (3,))), other), scalar(0.0, x))
    computation = Computation("epilogue", root, [x, bias, other])
    module = ModuleText(host())
    _code, address = load_function(module, emit_epilogue(module, host(), computation, view, [1, 2, 3], [0]))
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 5)(address)
    arguments = [sample(p.shape, k) for k, p in enumerate(computation.parameters)]
    output = np.zeros(dims, np.float32)
    buffers = (ctypes.c_void_p * 4)(*[a.ctypes.data for a in (output, *arguments)])
    middle, column = view[1] // 3, view[2] // 2
    for batch in range(view[0]):
        for low, high in ((0, middle), (middle, view[1])):
            for left, right in ((0, column), (column, view[2])):
                run(None, ctypes.addressof(buffers), batch, low, high, left, right)
    np.testing.assert_allclose(output, evaluate(computation, arguments), rtol=1e-6)


TARGETS = [
    target_for("aarch64-linux-gnu", "cortex-a72"),
    target_for("x86_64-linux-gnu"),
    target_for("x86_64-linux-gnu", "x86-64-v4"),
    target_for("wasm32-unknown-unknown"),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.architecture}-{t.cpu}")
def test_code_for_other_targets(target: Target):
    x = parameter(0, "f32", 30, 33)
    module = ModuleText(target)
    emit_fused(module, target, Computation("fused", softmax(x), [x]), DEFAULT_OPTIONS)
    assert emit_object(module.text(), target)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(computations())
def test_random_computations(computation: Computation):
    arguments = [
        np.rint(sample(p.shape, k).astype(np.float64)).astype(p.shape.element_type.dtype)
        for k, p in enumerate(computation.parameters)
    ]
    wanted = evaluate(computation, arguments)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    for got, want in zip(Kernel(computation)(*arguments), wanted, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), np.asarray(want).astype(np.float64), rtol=1e-2)


@pytest.mark.parametrize("type_", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (4, 3), (9, 8), (40, 5)])
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_beside_the_rows_they_are_of(type_: str, rows: int, columns: int, axis: int) -> None:
    """The loop over rows is cut where the sums end: it comes inside the one over columns, and is no vector loop."""
    x = parameter(0, type_, rows, columns)
    dims = (1, columns) if axis == 0 else (rows, 1)
    sums = make(Reshape(dims), reduce(x, (axis,)))
    for operands in ((sums, x), (x, sums), (sums, x, sums)):
        computation = Computation("main", make(Concatenate(axis), *operands), [x])
        values = (np.arange(rows * columns) % 5 - 2).reshape(rows, columns).astype(x.shape.element_type.dtype)
        found = LocalClient("cpu").compile(Module("m", computation)).execute([values])[0]
        np.testing.assert_array_equal(found, evaluate(computation, [values]))


@pytest.mark.parametrize("dims", [(1, 2, 2, 2, 3, 2, 2), (8, 5, 3), (2, 4, 6, 2), (16, 2, 3, 3)])
@pytest.mark.parametrize("type_", ["f32", "s32", "bf16"])
def test_numbers_of_short_rows_of_many_axes(type_: str, dims: tuple[int, ...]) -> None:
    """Rows are not joined where the axes around them are one loop, whose parts are not in order."""
    for axis in range(len(dims)):
        numbers = make(Iota(array(type_, *dims), axis))
        computation = Computation("main", numbers, [])
        found = LocalClient("cpu").compile(Module("m", computation)).execute([])[0]
        np.testing.assert_array_equal(found, evaluate(computation, []))


@pytest.mark.parametrize("dims", [(2, 1, 2, 3, 1, 1, 2), (1, 2, 2, 2, 3, 2, 2), (4, 2, 6, 2), (5, 4, 3, 3)])
def test_short_rows_of_many_axes_in_another_order(dims: tuple[int, ...]) -> None:
    x = parameter(0, "bf16", *dims)
    for axes in itertools.combinations(range(len(dims)), 2):
        check(op("negate", make(Reverse(axes), x)), [x])
