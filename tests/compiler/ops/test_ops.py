"""Every op: the shape it infers is the shape of its reference, its `element` rule gives the reference's
elements, its constraints are checked, and the documents' worked examples come out."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tfbridge.compiler.ops as ops
from builders import argmax, comparator, computation, reducer
from cases import BY_OPCODE, CASES, NHWC, Case, Input, arguments, build
from error_cases import ERROR_CASES
from tfbridge.compiler.errors import ShapeError
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.evaluator.evaluator import apply_computation
from tfbridge.compiler.ir import module as ir
from tfbridge.compiler.ir.element_types import ElementType, element_type_of
from tfbridge.compiler.ir.shape import Shape, array
from tfbridge.compiler.ops import (
    OPS,
    Broadcast,
    Compare,
    Concatenate,
    Conditional,
    Convert,
    Convolution,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Elementwise,
    Gather,
    Iota,
    Op,
    Pad,
    Reduce,
    ReduceWindow,
    Reshape,
    RngBitGenerator,
    Scatter,
    SelectAndScatter,
    Slice,
    Sort,
    While,
    Window,
    reducer_kind,
)


def run(case: Case) -> tuple[ir.Module, list[np.ndarray], Any]:
    """The case's module, arguments and result."""
    module, values = build(case), arguments(case, np.random.default_rng(0))
    return module, values, evaluate(module, values)


def leaves(value: Any) -> Iterator[np.ndarray]:
    """The arrays of a nested tuple."""
    if isinstance(value, tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def apply(op: Op, *values: Any) -> Any:
    """The op on arrays, through its shape rule and the evaluator."""
    given = [np.asarray(v) for v in values]
    inputs = tuple(Input(Shape(element_type_of(v.dtype), v.shape), v) for v in given)
    return evaluate(build(Case("", op, inputs)), given)


def floats(*values: Any) -> np.ndarray:
    """An f32 array."""
    return np.array(values, np.float32)


def ints(*values: Any) -> np.ndarray:
    """An s32 array."""
    return np.array(values, np.int32)


def test_names_are_unique() -> None:
    assert len({c.name for c in CASES}) == len(CASES)


def test_every_op_has_a_case() -> None:
    covered = {i.opcode for c in CASES for i in build(c).entry.instructions}
    assert covered == set(OPS) - {"recv-done"}  # waits for somebody: see test_transfers


def test_every_constraint_has_an_error_case() -> None:
    folder = pathlib.Path(ops.__file__).parent
    texts = [file.read_text() for file in folder.glob("*.py")]
    labels = {label for text in texts for label in re.findall(r'"(\w+_c\d+)"', text)}
    assert labels == {e.label for e in ERROR_CASES}


def test_every_constraint_is_documented() -> None:
    for op in set(OPS.values()):
        file = pathlib.Path(ops.__file__).parent / f"{op.__module__.rpartition('.')[2]}.py"
        text = file.read_text()
        for label in re.findall(r'"(\w+_c\d+)"', text):
            assert f"{label}:" in text, f"{label} is in no docstring of {file.name}"


@pytest.mark.parametrize("case", ERROR_CASES, ids=lambda e: e.label)
def test_constraint(case: Any) -> None:
    with pytest.raises(ShapeError, match=rf"^[a-z-]+: .*\({case.label}\)$"):
        case.op.infer(case.operands)


@pytest.mark.parametrize("opcode", BY_OPCODE)
def test_inferred_shape_is_the_references(opcode: str) -> None:
    for case in BY_OPCODE[opcode]:
        check_shape(case)


def check_shape(case: Case) -> None:
    module, _, result = run(case)
    shapes = [s for s in module.entry.root.shape.leaves() if s.is_array]
    assert [(v.dtype, v.shape) for v in leaves(result)] == [(s.element_type.dtype, s.dims) for s in shapes]


class Scalars:
    """An Indexer that works on numbers, for one element of the result at a time."""

    def __init__(self, operands: Sequence[np.ndarray], dtype: np.dtype) -> None:
        self.operands, self.dtype = operands, dtype

    def index(self, value: int) -> int:
        return value

    def add(self, a: int, b: int) -> int:
        return a + b

    def multiply(self, a: int, factor: int) -> int:
        return a * factor

    def divide(self, a: int, divisor: int) -> int:
        assert a >= 0 and divisor > 0
        return a // divisor

    def remainder(self, a: int, divisor: int) -> int:
        assert a >= 0 and divisor > 0
        return a % divisor

    def less(self, a: int, b: int) -> bool:
        return a < b

    def both(self, a: bool, b: bool) -> bool:
        return a and b

    def choose(self, condition: bool, then: Any, otherwise: Any) -> Any:
        return then if condition else otherwise

    def operand(self, number: int, index: Sequence[int], condition: bool | None = None) -> Any:
        value = self.operands[number]
        if condition is False:
            return None
        assert len(index) == value.ndim and all(0 <= i < d for i, d in zip(index, value.shape))
        return value[tuple(index)]

    def index_operand(self, number: int, index: Sequence[int], limit: int) -> int:
        return min(max(int(self.operand(number, index)), 0), limit)

    def number(self, index: int) -> Any:
        return Convert(element_type_of(self.dtype)).reference(np.asarray(index))

    def constant(self, value: np.ndarray) -> Any:
        return value


@pytest.mark.parametrize("case", [c for c in CASES if hasattr(c.op, "element")], ids=lambda c: c.name)
def test_element_is_the_references(case: Case) -> None:
    _, values, result = run(case)
    shapes = [i.shape for i in case.operands]
    shape = case.op.infer(shapes)
    scalars = Scalars(values, result.dtype)
    found = np.empty(shape.dims, result.dtype)
    for index in np.ndindex(*shape.dims):
        found[index] = case.op.element(scalars, index, shapes, shape)
    assert found.tobytes() == np.ascontiguousarray(result).tobytes()


@pytest.mark.parametrize(
    "name",
    [
        "broadcast",
        "reshape",
        "transpose",
        "reverse",
        "slice",
        "pad",
        "concatenate",
        "iota",
        "dynamic-slice",
        "dynamic-update-slice",
        "gather",
    ],
)
def test_has_element_rule(name: str) -> None:
    assert hasattr(OPS[name], "element")


def test_integer_division() -> None:
    low = -(2**31)
    assert apply(Elementwise("divide"), ints(7, -7, 7, -7, 5, low), ints(2, 2, -2, -2, 0, -1)).tolist() == [
        3,
        -3,
        -3,
        3,
        -1,
        low,
    ]
    assert apply(
        Elementwise("remainder"), ints(7, -7, 7, -7, 5, low), ints(2, 2, -2, -2, 0, -1)
    ).tolist() == [1, -1, 1, -1, 5, 0]
    assert apply(Elementwise("divide"), np.uint8([200, 7]), np.uint8([3, 0])).tolist() == [66, 255]


def test_integer_power() -> None:
    assert apply(
        Elementwise("power"), ints(3, 2, 2, 1, -1, -1, 0), ints(5, 31, -1, -5, -3, -4, 0)
    ).tolist() == [243, -(2**31), 0, 1, -1, 1, 1]


def test_shifts() -> None:
    a, by = np.int8([-128, -128, 3, 3, -1]), np.int8([1, 8, 7, -1, 100])
    assert apply(Elementwise("shift-left"), a, by).tolist() == [0, 0, -128, 0, 0]
    assert apply(Elementwise("shift-right-arithmetic"), a, by).tolist() == [-64, -1, 0, 0, -1]
    assert apply(Elementwise("shift-right-logical"), a, by).tolist() == [64, 0, 0, 0, 0]


def test_float_to_integer_saturates() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1e30, -2.9, 300.0])
    assert apply(Convert(ElementType.U8), values).tolist() == [0, 255, 0, 255, 0, 255]
    assert apply(Convert(ElementType.S64), values).tolist() == [0, 2**63 - 1, -(2**63), 2**63 - 1, -2, 300]
    assert apply(Convert(ElementType.S4), values).astype(int).tolist() == [0, 7, -8, 7, -2, 7]


def test_bits() -> None:
    assert apply(Elementwise("count-leading-zeros"), np.int16([0, 1, -1, 256])).tolist() == [16, 15, 0, 7]
    assert apply(Elementwise("popcnt"), np.int16([0, 1, -1, 255])).tolist() == [0, 1, 16, 8]


def test_sign_of_zero_and_nan() -> None:
    result = apply(Elementwise("sign"), floats(-3, -0.0, 0, np.nan, np.inf))
    assert result.tolist()[:1] == [-1] and np.signbit(result[1]) and not np.signbit(result[2])
    assert np.isnan(result[3]) and result[4] == 1


def test_rounding() -> None:
    values = floats(0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997)
    assert apply(Elementwise("round-nearest-afz"), values).tolist() == [1, 2, 3, -1, -3, 0]
    assert apply(Elementwise("round-nearest-even"), values).tolist() == [0, 2, 2, 0, -2, 0]


def test_maximum_propagates_nan() -> None:
    assert np.isnan(apply(Elementwise("maximum"), floats(np.nan, 1), floats(1, np.nan))).all()


def test_total_order() -> None:
    nan = np.uint32([0x7FC00000, 0xFFC00000]).view(np.float32)
    ordered = np.concatenate([nan[1:], floats(-np.inf, -1, -0.0, 0.0, 1, np.inf), nan[:1]])
    first, second = np.meshgrid(ordered, ordered, indexing="ij")
    places = np.arange(len(ordered))
    assert np.array_equal(
        apply(Compare("LT", "TOTALORDER"), first, second), places[:, None] < places[None, :]
    )


def test_pred_arithmetic() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert apply(Elementwise("add"), a, b).tolist() == (a | b).tolist()
    assert apply(Elementwise("multiply"), a, b).tolist() == (a & b).tolist()


def test_document_clamp() -> None:
    assert apply(Elementwise("clamp"), np.int32(0), ints(-1, 5, 9), np.int32(6)).tolist() == [0, 5, 6]


def test_document_select() -> None:
    values = ints(1, 2, 3, 4), ints(100, 200, 300, 400)
    chooser = np.array([True, False, False, True])
    assert apply(Elementwise("select"), chooser, *values).tolist() == [1, 200, 300, 4]
    assert apply(Elementwise("select"), np.array(True), *values).tolist() == [1, 2, 3, 4]


def test_document_convert() -> None:
    result = apply(Convert(ElementType.F32), ints(0, 1, 2))
    assert result.dtype == np.float32 and result.tolist() == [0, 1, 2]


def test_document_broadcast() -> None:
    assert apply(Broadcast((2, 3), ()), np.float32(2)).tolist() == [[2, 2, 2], [2, 2, 2]]
    assert apply(Broadcast((2, 3), (0,)), floats(1, 2)).tolist() == [[1, 1, 1], [2, 2, 2]]


def test_document_concatenate() -> None:
    assert apply(Concatenate(0), ints(2, 3), ints(4, 5), ints(6, 7)).tolist() == [2, 3, 4, 5, 6, 7]
    assert apply(Concatenate(0), ints([1, 2], [3, 4], [5, 6]), ints([7, 8])).tolist() == [
        [1, 2],
        [3, 4],
        [5, 6],
        [7, 8],
    ]


COLLAPSED = np.array(
    [[[10 * i + j for j in row] for row in ((0, 1, 2), (5, 6, 7))] for i in range(1, 5)], np.float32
)


def test_document_reshape() -> None:
    assert apply(Reshape((24,)), COLLAPSED).tolist()[:8] == [10, 11, 12, 15, 16, 17, 20, 21]
    assert apply(Reshape((8, 3)), COLLAPSED).tolist()[1:3] == [[15, 16, 17], [20, 21, 22]]
    turned = apply(ops.Transpose((1, 2, 0)), COLLAPSED)
    assert apply(Reshape((2, 6, 2)), turned).tolist()[0] == [
        [10, 20],
        [30, 40],
        [11, 21],
        [31, 41],
        [12, 22],
        [32, 42],
    ]
    assert apply(Reshape(()), floats([5])).tolist() == 5


def test_document_iota() -> None:
    assert apply(Iota(array("s32", 4, 8), 0)).tolist() == [[i] * 8 for i in range(4)]
    assert apply(Iota(array("s32", 4, 8), 1)).tolist() == [list(range(8))] * 4


B = floats([0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11])


def test_document_slice() -> None:
    assert apply(Slice((2,), (4,), (1,)), floats(0, 1, 2, 3, 4)).tolist() == [2, 3]
    assert apply(Slice((2, 1), (4, 3), (1, 1)), B).tolist() == [[7, 8], [10, 11]]


def test_document_dynamic_slice() -> None:
    assert apply(DynamicSlice((2,)), floats(0, 1, 2, 3, 4), np.int32(2)).tolist() == [2, 3]
    assert apply(DynamicSlice((2, 2)), B, np.int32(2), np.int32(1)).tolist() == [[7, 8], [10, 11]]
    assert apply(DynamicSlice((2, 2)), B, np.int32(9), np.int32(-1)).tolist() == [[6, 7], [9, 10]]


def test_document_dynamic_update_slice() -> None:
    assert apply(DynamicUpdateSlice(), floats(0, 1, 2, 3, 4), floats(5, 6), np.int32(2)).tolist() == [
        0,
        1,
        5,
        6,
        4,
    ]
    update = floats([12, 13], [14, 15], [16, 17])
    assert apply(DynamicUpdateSlice(), B, update, np.int32(1), np.int32(1)).tolist() == [
        [0, 1, 2],
        [3, 12, 13],
        [6, 14, 15],
        [9, 16, 17],
    ]


def test_document_dot_general() -> None:
    lhs, rhs = floats([1, 2, 3], [4, 5, 6]), floats([1, 1, 1], [2, 2, 2])
    assert apply(Dot((1,), (1,)), lhs, rhs).tolist() == [[6, 12], [15, 30]]
    lhs = floats([[1, 2], [3, 4]], [[5, 6], [7, 8]])
    rhs = floats([[1, 0], [0, 1]], [[1, 0], [0, 1]])
    assert apply(Dot((2,), (1,), (0,), (0,)), lhs, rhs).tolist() == lhs.tolist()


def test_document_reduce() -> None:
    cube = np.broadcast_to(floats([1, 2, 3], [4, 5, 6]), (4, 2, 3))
    add, zero = reducer("add", "f32"), np.float32(0)
    assert apply(Reduce((0,), add), cube, zero).tolist() == [[4, 8, 12], [16, 20, 24]]
    assert apply(Reduce((2,), add), cube, zero).tolist() == [[6, 15]] * 4
    assert apply(Reduce((0, 1), add), cube, zero).tolist() == [20, 28, 36]
    assert apply(Reduce((0, 1, 2), add), cube, zero).tolist() == 84


def test_document_variadic_reduce() -> None:
    values = floats(3, 9, 2, 9, 1)
    found = apply(
        Reduce((0,), argmax()), values, np.arange(5, dtype=np.int32), np.float32(-np.inf), np.int32(0)
    )
    assert [v.tolist() for v in found] == [9, 1]


def test_document_reduce_window() -> None:
    values, start = floats(10000, 1000, 100, 10, 1), np.float32(np.inf)
    least = reducer("minimum", "f32")
    assert apply(ReduceWindow(Window.of((3,), (2,)), least), values, start).tolist() == [100, 1]
    same = Window.of((3,), (2,), (1,), (1,))
    assert apply(ReduceWindow(same, least), values, start).tolist() == [1000, 10, 1]


def test_select_and_scatter_of_overlapping_windows() -> None:
    operand = floats([7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 7, 2])
    op = SelectAndScatter(Window.of((2, 3), (2, 2)), comparator("GE", "f32"), reducer("add", "f32"))
    assert apply(op, operand, floats([2, 6], [3, 1]), np.float32(0)).tolist() == [
        [0, 0, 0, 0, 0],
        [0, 0, 8, 0, 0],
        [0, 0, 4, 0, 0],
        [0, 0, 0, 0, 0],
    ]


def test_document_sort() -> None:
    less = comparator("LT", "f32", "s32", "f32")
    found = apply(Sort(0, less), floats(3, 1), ints(42, 50), floats(-3, 1.125))
    assert [v.tolist() for v in found] == [[1, 3], [50, 42], [1.125, -3]]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 100])
def test_sort_is_stable(size: int) -> None:
    keys = np.random.default_rng(size).integers(0, 4, (size, 3)).astype(np.int32)
    numbers = np.arange(size * 3, dtype=np.int32).reshape(size, 3)
    got, order = apply(Sort(0, comparator("GT", "s32", "s32"), True), keys, numbers)
    wanted = np.argsort(-keys, axis=0, kind="stable")
    assert np.array_equal(got, np.take_along_axis(keys, wanted, 0))
    assert np.array_equal(order, np.take_along_axis(numbers, wanted, 0))


def test_document_while() -> None:
    state = Shape.tuple([array("s32"), array("f32", 10)])

    def body(value: ir.Instruction) -> ir.Instruction:
        count, vector = (ir.make(ops.GetTupleElement(n), value) for n in range(2))
        one = ir.make(ops.Constant(ops.constant.Literal(np.int32(1))))
        step = ir.make(ops.Constant(ops.constant.Literal(np.ones(10, np.float32))))
        return ir.make(
            ops.Tuple(), ir.make(Elementwise("add"), count, one), ir.make(Elementwise("add"), vector, step)
        )

    def goes_on(value: ir.Instruction) -> ir.Instruction:
        limit = ir.make(ops.Constant(ops.constant.Literal(np.int32(1000))))
        return ir.make(Compare("LT"), ir.make(ops.GetTupleElement(0), value), limit)

    op = While(computation("goes_on", [state], goes_on), computation("body", [state], body))
    case = Case("", op, (Input(state, (0, np.zeros(10))),))
    count, vector = evaluate(build(case), arguments(case, np.random.default_rng(0)))
    assert count == 1000 and vector.tolist() == [1000] * 10


@pytest.mark.parametrize("number, name", [(-1, "floor"), (0, "negate"), (1, "floor"), (2, "floor")])
def test_conditional_out_of_range_takes_the_last(number: int, name: str) -> None:
    branches = tuple(
        computation(n, [array("f32")], lambda x, n=n: ir.make(Elementwise(n), x)) for n in ("negate", "floor")
    )
    got = apply(Conditional(branches, True), np.int32(number), np.float32(1.5), np.float32(1.5))
    assert got == {"negate": -1.5, "floor": 1}[name]


def test_gather_windows_and_clamping() -> None:
    rows = apply(Gather((1,), (0,), (0,), 1, (1, 3)), B, ints([2], [-5], [99]))
    assert rows.tolist() == [B[2].tolist(), B[0].tolist(), B[3].tolist()]
    boxes = apply(Gather((1, 2), (), (0, 1), 1, (2, 2)), B, ints([3, 2], [0, 0]))
    assert boxes.tolist() == [[[7, 8], [10, 11]], [[0, 1], [3, 4]]]


def test_scatter_skips_what_is_outside() -> None:
    op = Scatter((1,), (0,), (0,), 1, reducer("add", "f32"))
    got = apply(
        op, np.zeros((3, 2), np.float32), ints(0, 0, -1, 3, 2), np.arange(10, dtype=np.float32).reshape(5, 2)
    )
    assert got.tolist() == [[2, 4], [0, 0], [8, 9]]


def test_pad_of_the_three_kinds() -> None:
    got = apply(Pad((1, -1), (0, 2), (1, 0)), ints([1, 2], [3, 4]), np.int32(0))
    assert got.tolist() == [[0, 0, 0], [2, 0, 0], [0, 0, 0], [4, 0, 0]]


@pytest.mark.parametrize(
    "op, left, right",
    [
        (c.op, c.operands[0].shape.dims, c.operands[1].shape.dims)
        for c in CASES
        if isinstance(c.op, Convolution)
        and c.name.count("-")
        and c.op.dims == NHWC
        and c.op.preferred_type is None
    ],
    ids=[
        c.name
        for c in CASES
        if isinstance(c.op, Convolution)
        and c.name.count("-")
        and c.op.dims == NHWC
        and c.op.preferred_type is None
    ],
)
def test_convolution_is_the_documents_loops(
    op: Convolution, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    image, kernel = (rng.integers(-3, 4, dims).astype(np.float32) for dims in (left, right))
    got = apply(op, image, kernel)
    w, wanted = op.window, np.zeros(got.shape)
    per_group = right[3] // op.feature_groups
    for b, oy, ox, oz in np.ndindex(*got.shape):
        batch = oz // (right[3] // op.batch_groups) * got.shape[0] + b
        first = oz // per_group * right[2]
        for ky, kx, iz in np.ndindex(*right[:3]):
            places = []
            for axis, (o, k) in enumerate(((oy, ky), (ox, kx))):
                place = o * w.stride[axis] + k * w.window_dilation[axis] - w.pad_low[axis]
                source, hole = divmod(place, w.base_dilation[axis])
                places.append(source if not hole and 0 <= source < left[axis + 1] else None)
            if None not in places:
                y, x = (size - 1 - k if back else k for k, size, back in zip((ky, kx), w.size, w.reversal))
                wanted[b, oy, ox, oz] += image[batch, places[0], places[1], first + iz] * kernel[y, x, iz, oz]
    assert np.array_equal(got, wanted)


STATE = (0x0123456789ABCDEF, 0xFFFFFFFFFFFFFFFE, 0xFEDCBA9876543210)


@pytest.mark.parametrize(
    "algorithm, words, kind, dims, state, bits",
    [
        # Of XLA, through jax.lax.rng_bit_generator.
        ("rng_philox", 2, "u32", (5,), 0, [172511636, 1103493126, 3598856174, 948282324, 1105943027]),
        ("rng_philox", 2, "u64", (3,), 0, [4739466887703318932, 4072841572553732078, 3491281334367377907]),
        ("rng_default", 2, "u8", (5,), 0, [148, 6, 238, 212, 243]),
        (
            "rng_philox",
            2,
            "u16",
            (4, 3),
            1,
            [20884, 63494, 12270, 41940, 23027, 34272, 13193, 63100, 53860, 54494, 18062, 63336],
        ),
        ("rng_three_fry", 2, "u32", (5,), 1, [2968789339, 3784990900, 188576916, 2901984476, 2862930057]),
        (
            "rng_three_fry",
            2,
            "u64",
            (3,),
            1,
            [16256412134126395739, 12463928418108273812, 7725297290937948297],
        ),
        ("rng_three_fry", 2, "u32", (), 2**64 - 1, [2968789339]),
        (
            "rng_three_fry",
            2,
            "u16",
            (4, 3),
            4,
            [8539, 29844, 55433, 24756, 50396, 50420, 10503, 58865, 6616, 34323, 32740, 56291],
        ),
        (
            "rng_three_fry",
            2,
            "u32",
            (3, 5),
            7,
            [
                2968789339,
                3784990900,
                188576916,
                2901984476,
                2862930057,
                1973758215,
                3554510355,
                902882801,
                2396094436,
                2083461592,
                3732519869,
                387185944,
                2963079838,
                2105865281,
                1822680882,
            ],
        ),
        # Of TensorFlow, tf.raw_ops.StatelessRandomUniformFullIntV2(alg=1).
        (
            "rng_philox",
            3,
            "u32",
            (7,),
            0,
            [305952336, 542608024, 2412805326, 3203611446, 413687832, 298675558, 3792220824],
        ),
        (
            "rng_philox",
            3,
            "u64",
            (7,),
            2,
            [
                2330483717933135440,
                13759406392074075342,
                1282801754138239000,
                8487230662045643416,
                5948759531109009074,
                12956432776772908325,
                16467957831586238435,
            ],
        ),
    ],
)
def test_random_bits(
    algorithm: str, words: int, kind: str, dims: tuple[int, ...], state: int, bits: list[int]
) -> None:
    new, found = apply(RngBitGenerator(algorithm, array(kind, *dims)), np.array(STATE[:words], np.uint64))
    assert found.reshape(-1).tolist() == bits
    assert new.tolist() == [STATE[0], state, STATE[2] + 1][:words]


def test_reducer_kind() -> None:
    assert [
        reducer_kind(reducer(n, "f32")) for n in ("add", "multiply", "maximum", "minimum", "subtract")
    ] == ["add", "multiply", "maximum", "minimum", None]
    scalar = array("f32")
    assert (
        reducer_kind(computation("twice", [scalar, scalar], lambda a, b: ir.make(Elementwise("add"), a, a)))
        is None
    )


def test_elementwise_application_of_a_loop() -> None:
    case = next(c for c in CASES if c.name == "map-loop")
    assert run(case)[2].tolist() == [0, 128, 128, 192, 128, 160]


def test_apply_computation_spreads_constants() -> None:
    seven = computation(
        "seven", [array("s32")], lambda x: ir.make(ops.Constant(ops.constant.Literal(np.int32(7))))
    )
    assert apply_computation(seven, ints(1, 2, 3)).tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    "values", [[], [np.zeros(2, np.float32)], [np.zeros(3, np.float64)], [np.zeros(3), 1]]
)
def test_evaluate_checks_arguments(values: list[Any]) -> None:
    module = build(Case("", Elementwise("negate"), (Input(array("f32", 3)),)))
    with pytest.raises(ShapeError):
        evaluate(module, values)


def test_evaluate_deep_graph() -> None:
    x = ir.make(ops.Parameter(0, array("s32")))
    value = x
    for _ in range(20_000):
        value = ir.make(Elementwise("add"), value, x)
    assert evaluate(ir.Computation("deep", value, [x]), [np.int32(1)]) == 20_001


def test_window_output() -> None:
    assert Window.of((3,), (2,), (1,), (1,)).output((5,)) == (3,)
    assert Window.of((2, 3), (1, 1), (0, 0), (0, 0), (2, 1), (1, 2)).output((4, 9)) == (6, 5)
    assert Window.of((4,)).output((3,)) == (0,)
