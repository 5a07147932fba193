"""The numbers of the reference documents: every worked example of the operation semantics, of broadcasting and of the
preview document, by the names that the documents use, on every platform that is built in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tfbridge.compiler import Computation, ComputationBuilder, Layout, LocalClient, Operand, Shape, array
from tfbridge.compiler.builder.derived import binary_computation
from tfbridge.compiler.errors import ShapeError
from tfbridge.compiler.ir.element_types import ElementType

Make = Callable[[ComputationBuilder], Operand]
_E = ElementType
ADD, MULTIPLY, MINIMUM, MAXIMUM = (
    binary_computation(n, _E.F32) for n in ("add", "multiply", "minimum", "maximum")
)


def f(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def s(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def scalar_computation(name: str, types: list[str], make: Callable[..., Operand]) -> Computation:
    b = ComputationBuilder(name)
    b.die_immediately_on_error = True
    return b.Build(make(b, *(b.Parameter(k, array(t), f"p{k}") for k, t in enumerate(types))))


def argmax(b: ComputationBuilder) -> Operand:
    """The variadic Reduce of the document: the largest value and its number."""

    def larger(c: ComputationBuilder, most: Operand, at: Operand, value: Operand, index: Operand) -> Operand:
        better = c.Ge(value, most)
        return c.Tuple([c.Select(better, value, most), c.Select(better, index, at)])

    values, numbers = b.ConstantR1(f(3, 9, 2, 9, 1)), b.Iota("s32", 5)
    return b.Reduce(
        [values, numbers],
        [b.ConstantR0(f(-np.inf)[0]), b.ConstantR0(s(0)[0])],
        scalar_computation("larger", ["f32", "s32", "f32", "s32"], larger),
        (0,),
    )


def three_sorted(b: ComputationBuilder) -> Operand:
    """Three operands sorted by the first."""
    less = scalar_computation(
        "less", ["s32", "s32", "s32", "s32", "f32", "f32"], lambda c, x, y, *_: c.Lt(x, y)
    )
    return b.Sort([b.ConstantR1(s(3, 1)), b.ConstantR1(s(42, 50)), b.ConstantR1(f(-3, 1.1))], less, 0)


def thousand(b: ComputationBuilder) -> Operand:
    """The While of the document: a constant vector of ten added a thousand times."""
    state = Shape.tuple([array("s32"), array("f32", 10)])
    condition = ComputationBuilder("condition")
    condition.Lt(condition.GetTupleElement(condition.Parameter(0, state, "p"), 0), condition.ConstantR0(1000))
    body = ComputationBuilder("body")
    p = body.Parameter(0, state, "p")
    body.Tuple(
        [
            body.Add(body.GetTupleElement(p, 0), body.ConstantR0(1)),
            body.Add(body.GetTupleElement(p, 1), body.ConstantR1(np.full(10, 0.5, np.float32))),
        ]
    )
    return b.While(
        condition.Build(), body.Build(), b.Tuple([b.ConstantR0(0), b.ConstantR1(np.zeros(10, np.float32))])
    )


V = f(
    [[10, 11, 12], [15, 16, 17]],
    [[20, 21, 22], [25, 26, 27]],
    [[30, 31, 32], [35, 36, 37]],
    [[40, 41, 42], [45, 46, 47]],
)
B = np.arange(12, dtype=np.float32).reshape(4, 3)
CUBE = np.broadcast_to(f([1, 2, 3], [4, 5, 6]), (4, 2, 3))
IN_ORDER = [10, 11, 12, 15, 16, 17, 20, 21, 22, 25, 26, 27, 30, 31, 32, 35, 36, 37, 40, 41, 42, 45, 46, 47]
OUT_OF_ORDER = [
    10,
    20,
    30,
    40,
    11,
    21,
    31,
    41,
    12,
    22,
    32,
    42,
    15,
    25,
    35,
    45,
    16,
    26,
    36,
    46,
    17,
    27,
    37,
    47,
]
MATRIX, VECTOR = f([1, 2, 3], [4, 5, 6]), f(7, 8, 9)
PRED = np.array([True, False, False, True])
ONE_TO_FOUR, HUNDREDS = s(1, 2, 3, 4), s(100, 200, 300, 400)
IDENTITIES = f([[1, 0], [0, 1]], [[1, 0], [0, 1]])
PAIRS = f([[1, 2], [3, 4]], [[5, 6], [7, 8]])


def c(b: ComputationBuilder, value: Any) -> Operand:
    return b.constant(value)


def window(b: ComputationBuilder, padding: str) -> Operand:
    return b.ReduceWindow(
        c(b, f(10000, 1000, 100, 10, 1)),
        c(b, np.float32(np.finfo(np.float32).max)),
        MINIMUM,
        (3,),
        (2,),
        padding,
    )


EXAMPLES: dict[str, tuple[Make, Any]] = {
    "BitcastConvertType narrower": (
        lambda b: b.BitcastConvertType(c(b, s(0x04030201)), "s8"),
        np.array([[1, 2, 3, 4]], np.int8),
    ),
    "BitcastConvertType wider": (
        lambda b: b.BitcastConvertType(c(b, np.zeros((10, 2), np.float16)), "f32"),
        np.zeros(10, np.float32),
    ),
    "Broadcast": (lambda b: b.Broadcast(b.ConstantR0(np.float32(2)), (2, 3)), np.full((2, 3), 2, np.float32)),
    "Clamp": (lambda b: b.Clamp(b.ConstantR0(0), b.ConstantR1(s(-1, 5, 9)), b.ConstantR0(6)), s(0, 5, 6)),
    "Clamp of r1.3": (
        lambda b: b.Clamp(b.ConstantR1(s(-1, 5, 9)), b.ConstantR0(0), b.ConstantR0(6)),
        s(0, 5, 6),
    ),
    "Collapse 012": (lambda b: b.Collapse(c(b, V), (0, 1, 2)), f(*IN_ORDER)),
    "Collapse 01": (lambda b: b.Collapse(c(b, V), (0, 1)), V.reshape(8, 3)),
    "Collapse 12": (lambda b: b.Collapse(c(b, V), (1, 2)), V.reshape(4, 6)),
    "Concat 1": (
        lambda b: b.ConcatInDim([c(b, s(2, 3)), c(b, s(4, 5)), c(b, s(6, 7))], 0),
        s(2, 3, 4, 5, 6, 7),
    ),
    "Concat 2": (
        lambda b: b.Concatenate([c(b, s([1, 2], [3, 4], [5, 6])), c(b, s([7, 8]))], 0),
        s([1, 2], [3, 4], [5, 6], [7, 8]),
    ),
    "ConvertElementType": (lambda b: b.ConvertElementType(c(b, s(0, 1, 2)), "f32"), f(0, 1, 2)),
    "DotGeneral contracting": (
        lambda b: b.DotGeneral(c(b, MATRIX), c(b, f([1, 1, 1], [2, 2, 2])), ((1,), (1,))),
        f([6, 12], [15, 30]),
    ),
    "DotGeneral batch": (
        lambda b: b.DotGeneral(c(b, PAIRS), c(b, IDENTITIES), ((2,), (1,)), ((0,), (0,))),
        PAIRS,
    ),
    "Dot of scalars": (lambda b: b.Dot(c(b, np.float32(3)), c(b, np.float32(4))), np.float32(12)),
    "Dot of arrays": (
        lambda b: b.Dot(c(b, V), c(b, np.ones((5, 3, 2), np.float32))),
        np.broadcast_to(V.sum(2)[:, :, None, None], (4, 2, 5, 2)),
    ),
    "DynamicSlice 1": (lambda b: b.DynamicSlice(c(b, f(0, 1, 2, 3, 4)), c(b, s(2)), (2,)), f(2, 3)),
    "DynamicSlice 2": (lambda b: b.DynamicSlice(c(b, B), c(b, s(2, 1)), (2, 2)), f([7, 8], [10, 11])),
    "DynamicUpdateSlice 1": (
        lambda b: b.DynamicUpdateSlice(c(b, f(0, 1, 2, 3, 4)), c(b, f(5, 6)), c(b, s(2))),
        f(0, 1, 5, 6, 4),
    ),
    "DynamicUpdateSlice 2": (
        lambda b: b.DynamicUpdateSlice(c(b, B), c(b, f([12, 13], [14, 15], [16, 17])), [c(b, 1), c(b, 1)]),
        f([0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]),
    ),
    "GetTupleElement": (
        lambda b: b.GetTupleElement(b.Tuple([b.Iota("f32", 10), b.ConstantR0(5)]), 1),
        np.int32(5),
    ),
    "Iota 0": (
        lambda b: b.Iota(array("s32", 4, 8), 0),
        np.repeat(np.arange(4, dtype=np.int32)[:, None], 8, 1),
    ),
    "Iota 1": (lambda b: b.Iota(array("s32", 4, 8), 1), np.tile(np.arange(8, dtype=np.int32), (4, 1))),
    "Map": (
        lambda b: b.Map(
            [c(b, f(1, 2)), c(b, f(3, 4)), c(b, f(5, 6))],
            scalar_computation(
                "elem", ["f32"] * 4, lambda m, x, y, z, par: m.Add(m.Mul(x, y), m.Mul(z, par))
            ),
            static_operands=[b.ConstantR0(np.float32(10))],
        ),
        f(53, 68),
    ),
    "Pad": (
        lambda b: b.Pad(c(b, f([1, 2], [3, 4])), b.ConstantR0(np.float32(0)), [(1, 0, 0), (0, -1, 2)]),
        f([0, 0, 0], [1, 0, 0], [3, 0, 0]),
    ),
    "Reduce of four": (
        lambda b: b.Reduce(c(b, f(10, 11, 12, 13)), b.ConstantR0(np.float32(0)), ADD, (0,)),
        np.float32(46),
    ),
    "Reduce 0": (lambda b: b.Reduce(c(b, CUBE), c(b, np.float32(0)), ADD, (0,)), f([4, 8, 12], [16, 20, 24])),
    "Reduce 2": (lambda b: b.Reduce(c(b, CUBE), c(b, np.float32(0)), ADD, (2,)), f(*[[6, 15]] * 4)),
    "Reduce 0 and 1": (lambda b: b.Reduce(c(b, CUBE), c(b, np.float32(0)), ADD, (0, 1)), f(20, 28, 36)),
    "Reduce all": (lambda b: b.ReduceAll(c(b, CUBE), c(b, np.float32(0)), ADD), np.float32(84)),
    "Reduce variadic": (argmax, (np.float32(9), np.int32(3))),
    "ReducePrecision": (
        lambda b: b.ReducePrecision(c(b, f(1 + 2**-12, 70000, np.nan)), 5, 10),
        f(1, np.inf, np.nan),
    ),
    "ReduceWindow valid": (lambda b: window(b, "valid"), f(100, 1)),
    "ReduceWindow same": (lambda b: window(b, "same"), f(1000, 10, 1)),
    "ReduceWindow 2x3": (
        lambda b: b.ReduceWindow(
            b.Reshape(b.Iota("f32", 24), (4, 6)), c(b, np.float32(-np.inf)), MAXIMUM, (2, 3), (2, 3), "valid"
        ),
        f([8, 11], [20, 23]),
    ),
    "Reshape in order 24": (lambda b: b.Reshape(c(b, V), (0, 1, 2), (24,)), f(*IN_ORDER)),
    "Reshape in order 83": (lambda b: b.Reshape(c(b, V), (0, 1, 2), (8, 3)), f(*IN_ORDER).reshape(8, 3)),
    "Reshape out of order 24": (lambda b: b.Reshape(c(b, V), (1, 2, 0), (24,)), f(*OUT_OF_ORDER)),
    "Reshape out of order 83": (
        lambda b: b.Reshape(c(b, V), (1, 2, 0), (8, 3)),
        f(*OUT_OF_ORDER).reshape(8, 3),
    ),
    "Reshape out of order 262": (
        lambda b: b.Reshape(c(b, V), (1, 2, 0), (2, 6, 2)),
        f(*OUT_OF_ORDER).reshape(2, 6, 2),
    ),
    "Reshape to a scalar": (lambda b: b.Reshape(c(b, f([5])), (0, 1), ()), np.float32(5)),
    "Reshape of a scalar": (lambda b: b.Reshape(c(b, np.float32(5)), (), (1, 1)), f([5])),
    "Rev": (lambda b: b.Rev(c(b, MATRIX), (0, 1)), f([6, 5, 4], [3, 2, 1])),
    "Select": (lambda b: b.Select(c(b, PRED), c(b, ONE_TO_FOUR), c(b, HUNDREDS)), s(1, 200, 300, 4)),
    "Select by a scalar": (
        lambda b: b.Select(b.ConstantR0(True), c(b, ONE_TO_FOUR), c(b, HUNDREDS)),
        ONE_TO_FOUR,
    ),
    "Select of tuples": (
        lambda b: b.Select(
            b.ConstantR0(False),
            b.Tuple([c(b, MATRIX), b.Tuple([c(b, ONE_TO_FOUR)])]),
            b.Tuple([c(b, -MATRIX), b.Tuple([c(b, HUNDREDS)])]),
        ),
        (-MATRIX, HUNDREDS),
    ),
    "Sign": (lambda b: b.Sign(c(b, f(-2, -0.0, 0.0, np.nan, 3))), f(-1, -0.0, 0.0, np.nan, 1)),
    "Slice 1": (lambda b: b.Slice(c(b, f(0, 1, 2, 3, 4)), (2,), (4,)), f(2, 3)),
    "Slice 2": (lambda b: b.Slice(c(b, B), (2, 1), (4, 3)), f([7, 8], [10, 11])),
    "Slice of the class": (
        lambda b: b.Slice(b.Reshape(b.Iota("s32", 12), (3, 4)), (1, 1), (2, 3)),
        s([5, 6]),
    ),
    "Sort": (lambda b: b.Sort(c(b, f(3, 1, 2))), f(1, 2, 3)),
    "Sort of three": (three_sorted, (s(1, 3), s(50, 42), f(1.1, -3))),
    "Trans": (lambda b: b.Trans(c(b, MATRIX)), MATRIX.T),
    "Transpose": (lambda b: b.Transpose(c(b, V), (1, 2, 0)), V.transpose(1, 2, 0)),
    "While": (thousand, (np.int32(1000), np.full(10, 500, np.float32))),
    "Broadcasting a vector over rows": (
        lambda b: b.Add(c(b, MATRIX), c(b, VECTOR), (1,)),
        f([8, 10, 12], [11, 13, 15]),
    ),
    "Broadcasting a scalar": (
        lambda b: b.Add(c(b, MATRIX), c(b, np.float32(7))),
        f([8, 9, 10], [11, 12, 13]),
    ),
    "Broadcasting along 1": (lambda b: b.BroadcastInDim(c(b, VECTOR), (3, 3), (1,)), f(*[[7, 8, 9]] * 3)),
    "Broadcasting along 0": (
        lambda b: b.BroadcastInDim(c(b, VECTOR), (3, 3), (0,)),
        f([7] * 3, [8] * 3, [9] * 3),
    ),
    "Broadcasting composed": (
        lambda b: b.Add(c(b, f(1, 2, 3, 4)), c(b, f([5, 6])), (0,)),
        f([6, 7], [7, 8], [8, 9], [9, 10]),
    ),
    "Broadcasting outer": (
        lambda b: b.Mul(c(b, f([2], [3])), c(b, f([1, 10, 100]))),
        f([2, 20, 200], [3, 30, 300]),
    ),
    "Broadcasting 1x2 to 4x3x1": (
        lambda b: b.Add(c(b, np.arange(12, dtype=np.float32).reshape(4, 3, 1)), c(b, f([1, 2])), (1, 2)),
        np.arange(12, dtype=np.float32).reshape(4, 3, 1) + f([1, 2]),
    ),
    "LogicalAnd Or Not": (
        lambda b: b.Tuple(
            [
                b.LogicalAnd(c(b, PRED), c(b, ~PRED)),
                b.LogicalOr(c(b, PRED), c(b, ~PRED)),
                b.LogicalNot(c(b, PRED)),
            ]
        ),
        (PRED & ~PRED, PRED | ~PRED, ~PRED),
    ),
    "F32": (
        lambda b: b.Tuple([b.SqrtF32(c(b, f(4))), b.SquareF32(c(b, f(4))), b.ReciprocalF32(c(b, f(4)))]),
        (f(2), f(16), f(0.25)),
    ),
    "Constants": (
        lambda b: b.Tuple(
            [
                b.ConstantR1(np.float32(2.5), length=3),
                b.ConstantR2FromArray2D(MATRIX),
                b.ConstantR3FromArray3D(V),
                b.ConstantR4FromArray4D(V[None]),
            ]
        ),
        (f(2.5, 2.5, 2.5), MATRIX, V, V[None]),
    ),
}


def arrays(value: Any) -> list[np.ndarray]:
    return [np.asarray(v) for v in value] if isinstance(value, tuple) else [np.asarray(value)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_example(name: str) -> None:
    make, wanted = EXAMPLES[name]
    b = ComputationBuilder("example")
    b.SetDieImmediatelyOnError(True)
    computation = b.Build(make(b))
    for platform in ("cpu", "interpreter"):
        found = LocalClient(platform).compile(computation).execute([])
        for one, other in zip(found, arrays(wanted), strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_array_equal(one, other)
            assert one.dtype.kind != "f" or np.array_equal(
                np.signbit(one[one == 0]), np.signbit(other[other == 0])
            )


def test_batch_norm_formulas() -> None:
    """The three of the newest document, on a batch of images with the features last and first."""
    rng = np.random.default_rng(0)
    for feature in (0, 1, 3):
        x, g = (rng.standard_normal((3, 4, 5, 2)).astype(np.float32) for _ in range(2))
        count = x.shape[feature]
        gamma, beta = (rng.standard_normal(count).astype(np.float32) for _ in range(2))
        others = tuple(a for a in range(4) if a != feature)
        shape = [count if a == feature else 1 for a in range(4)]
        mean, variance = x.mean(others), x.var(others)
        b = ComputationBuilder("norm")
        ops = [b.constant(v) for v in (x, gamma, beta, mean, variance, g)]
        trained = b.BatchNormTraining(*ops[:3], 1e-3, feature)
        inferred = b.BatchNormInference(*ops[:5], 1e-3, feature)
        gradients = b.BatchNormGrad(ops[0], ops[1], ops[3], ops[4], ops[5], 1e-3, feature)
        y, m, v, again, dx, dgamma, dbeta = (
            LocalClient().compile(b.Build(b.Tuple([trained, inferred, gradients]))).execute([])
        )
        wide = [a.astype(np.float64).reshape(shape) for a in (gamma, beta, mean, variance)]
        sigma, centred = wide[3] + 1e-3, x - wide[2]
        wanted = wide[0] * centred / np.sqrt(sigma) + wide[1]
        c_l = (g * centred / sigma).mean(others, keepdims=True)
        d_l = g.mean(others, dtype=np.float64, keepdims=True)
        for found, value in (
            (y, wanted),
            (again, wanted),
            (m, mean),
            (v, variance),
            (dbeta, g.sum(others)),
            (dgamma, (g * centred / np.sqrt(sigma)).sum(others)),
            (dx, wide[0] / np.sqrt(sigma) * (g - d_l - c_l * centred)),
        ):
            np.testing.assert_allclose(found, value, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ((2, 1), (2, 3), (2, 3)),
        ((1, 2, 5), (7, 2, 5), (7, 2, 5)),
        ((7, 2, 5), (7, 1, 5), (7, 2, 5)),
        ((2, 1), (1, 3), (2, 3)),
        ((7, 2, 5), (7, 2, 6), None),
    ],
)
def test_degenerate_dimensions(
    left: tuple[int, ...], right: tuple[int, ...], wanted: tuple[int, ...] | None
) -> None:
    b = ComputationBuilder("degenerate")
    made = b.Add(b.Parameter(0, array("f32", *left), "x"), b.Parameter(1, array("f32", *right), "y"))
    if wanted is not None:
        assert b.GetShape(made).dims == wanted
        return
    with pytest.raises(ShapeError, match="broadcast_c3"):
        b.Build()


def test_a_row_is_no_column() -> None:
    """Adding a 2x3 matrix to a vector of 3 along 0 is invalid, and without saying along which axis too."""
    for axes, label in (((0,), "broadcast_c3"), (None, "broadcast_c1")):
        b = ComputationBuilder("rows")
        b.Add(b.ConstantR2(MATRIX), b.ConstantR1(VECTOR), axes)
        with pytest.raises(ShapeError, match=label):
            b.Build()


def test_total_order() -> None:
    """-NaN < -Inf < -Finite < -0 < +0 < +Finite < +Inf < +NaN, by the six comparisons."""
    negative = np.float32(np.copysign(np.nan, -1))
    values = f(negative, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan)
    numbers = np.arange(8)
    b = ComputationBuilder("order")
    x, y = b.Reshape(b.ConstantR1(values), (8, 1)), b.Reshape(b.ConstantR1(values), (1, 8))
    names = ("Eq", "Ne", "Ge", "Gt", "Le", "Lt")
    compared = [getattr(b, f"{name}TotalOrder")(x, y) for name in names]
    plain = [np.equal, np.not_equal, np.greater_equal, np.greater, np.less_equal, np.less]
    for platform in ("cpu", "interpreter"):
        found = LocalClient(platform).compile(b.Build(b.Tuple(compared))).execute([])
        for one, compare in zip(found, plain):
            np.testing.assert_array_equal(one, compare(numbers[:, None], numbers[None, :]))


def test_the_class() -> None:
    """The methods of the preview document's class that make no instruction."""
    client = LocalClient()
    b = ComputationBuilder("class", client)
    assert b.client is client and b.name == "class"
    x = b.Parameter(0, array("f32", 2, 3), "x")
    assert b.GetShape(x) == array("f32", 2, 3)
    assert b.CheckShape(x, array("f32", 2, 3)).instruction is x.instruction
    b.CheckSameShape(x, b.Neg(x))
    assert b.ComputeConstant(b.Add(b.ConstantR0(2), b.ConstantR0(3))).array == 5
    assert b.ComputeConstant(b.ConstantR2(MATRIX), Layout((0, 1))).tolist() == [1, 4, 2, 5, 3, 6]
    assert not b.IsConstant(x) and b.IsConstant(b.ConstantR0(1))
    numbers = b.CreateDefaultConvDimensionNumbers()
    assert (numbers.input_batch, numbers.input_feature, numbers.input_spatial) == (0, 1, (2, 3))
    assert (numbers.kernel_output_feature, numbers.kernel_input_feature, numbers.kernel_spatial) == (
        0,
        1,
        (2, 3),
    )
    with pytest.raises(ShapeError, match=r"of the input are not all different: \[0, 1, 1, 3\] \(conv_c1\)"):
        b.CreateConvDimensionNumbers(0, 1, 1, 3, 0, 1, 2, 3)
    with pytest.raises(ShapeError, match=r"of the kernel are not all different: \[0, 0, 2, 3\] \(conv_c1\)"):
        b.CreateConvDimensionNumbers(0, 1, 2, 3, 0, 0, 2, 3)
    child = b.CreateSubBuilder("child")
    child.Add(child.Parameter(0, array("f32"), "p"), child.Parameter(1, array("s32"), "q"))
    reducer = child.BuildAndNoteError()
    assert reducer is None
    b.Reduce(x, b.ConstantR0(np.float32(0)), reducer, (0,))
    with pytest.raises(ShapeError, match=r"add: .*\n  at .*test_documents.py:\d+, in test_the_class"):
        b.Build()


def test_the_return_value() -> None:
    b = ComputationBuilder("returns")
    x = b.Parameter(0, array("f32"), "x")
    doubled = b.Add(x, x)
    b.SetReturnValue(doubled)
    b.Neg(x)
    assert LocalClient().compile(b.Build()).execute([np.float32(4)])[0] == 8


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b: b.Parameter(0, array("f32", -1), "x"), r"f32\[-1\] has a negative size \(shape_c1\)"),
        (lambda b: b.Parameter(0, array("f32", 2**40, 2**40), "x"), r"has more than \d+ bytes \(shape_c2\)"),
        (lambda b: b.Parameter(0, Shape.tuple([array("f32", 1), array("s8", 2**62, 2)]), "x"), "shape_c2"),
        (lambda b: b.Broadcast(b.ConstantR0(1.0), (2**40, 2**40)), "shape_c2"),
        (lambda b: b.Broadcast(b.ConstantR0(1.0), (-1,)), "negative"),
        (lambda b: b.Iota(array("f64", 2**61), 0), "shape_c2"),
        (lambda b: b.Reshape(b.ConstantR1(f(1, 2)), (-1, -2)), "reshape_c2"),
        (lambda b: b.Pad(b.ConstantR1(f(1)), b.ConstantR0(1.0), [(2**62, 2**62, 0)]), "pad_c5"),
        (lambda b: b.Pad(b.ConstantR1(f(1)), b.ConstantR0(1.0), [(-3, 0, 0)]), "pad_c"),
        (lambda b: b.ConcatInDim([b.ConstantR0(1.0)], 0), "concatenate_c2"),
        (lambda b: b.Sort(b.ConstantR0(1.0)), "sort_c2"),
        (lambda b: b.TopK(b.ConstantR0(1.0), 1), "topk_c2"),
        (lambda b: b.Dot(b.ConstantR0(1.0), b.ConstantR1(f(1))), "dot_c0"),
        (lambda b: b.Cholesky(b.ConstantR1(f(1)), True), "cholesky_c"),
        (lambda b: b.Fft(b.ConstantR0(1.0), "RFFT", (4,)), "fft_c"),
        (
            lambda b: b.Select(b.ConstantR1(PRED), b.Tuple([b.ConstantR0(1)]), b.Tuple([b.ConstantR0(2)])),
            "elementwise_c5",
        ),
        (
            lambda b: b.Select(b.ConstantR0(True), b.Tuple([b.ConstantR0(1)]), b.Tuple([b.ConstantR0(2.0)])),
            "elementwise_c5",
        ),
        (
            lambda b: b.Add(b.ConstantR0(1), ComputationBuilder("other").ConstantR0(2)),
            "belongs to builder 'other'",
        ),
        (lambda b: b.CheckShape(b.ConstantR0(1), array("f32")), "check_shape_c1"),
        (lambda b: b.CheckSameShape(b.ConstantR0(1), b.ConstantR0(1.0)), "check_shape_c2"),
        (lambda b: b.Parameter(-1, array("f32"), "x"), "parameter_c1"),
        (lambda b: b.DynamicSlice(b.ConstantR1(f(1)), b.ConstantR0(1), (1,)), "dynamic_slice_c4"),
        (
            lambda b: b.ReduceWindow(b.ConstantR1(f(1)), b.ConstantR0(0.0), ADD, (1, 1), (1,), "valid"),
            r"\(window_c1\)",
        ),
        (
            lambda b: b.ReduceWindow(b.ConstantR1(f(1)), b.ConstantR0(0.0), ADD, (1,), (1,), "wide"),
            r"\(window_c2\)",
        ),
        (lambda b: b.SqrtF32(b.ConstantR0(1)), r"sqrt_f32: operand s32\[\] is not f32 \(f32_c1\)"),
        (lambda b: b.asinh(b.ConstantR0(1)), "float_c1|elementwise_c2"),
        (lambda b: b.acosh(b.ConstantR1(np.array([1j], np.complex64))), "float_c1|elementwise_c2|compare_c4"),
        (lambda b: b.RngBernoulli(b.ConstantR0(np.float32(0.5)), array("s32", 2)), r"rng_bernoulli_c1"),
        (lambda b: b.SliceInDim(b.ConstantR1(f(1)), 0, 1, 1, 1), "axis_c1"),
        (lambda b: b.Map([b.ConstantR1(f(1))], ADD, static_operands=[b.ConstantR1(f(1))]), "call_c1"),
        (
            lambda b: b.Map(
                [b.ConstantR1(f(1)), b.ConstantR0(1.0)], ADD, static_operands=[b.ConstantR1(f(1))]
            ),
            "map_c1",
        ),
    ],
)
def test_bad_input(make: Make, message: str) -> None:
    b = ComputationBuilder("bad")
    make(b)
    with pytest.raises(ShapeError, match=message):
        b.Build()


def test_large_constants_of_every_type() -> None:
    """Text that a program of more than a screenful of numbers makes is read back exactly."""
    from tfbridge.compiler import Literal, Module, parse_hlo
    from tfbridge.compiler.ir.element_types import ARRAYS
    from tfbridge.compiler.ir.module import make
    from tfbridge.compiler.ops import Constant

    rng = np.random.default_rng(0)
    for kind in ARRAYS:
        raw = rng.integers(0, 256, 4096 * kind.item_bytes).astype(np.uint8)
        if kind.bits < 8:
            value = (raw % (1 << kind.bits)).astype(np.int8)
            value = (value - 8 if kind.is_signed else value).astype(kind.dtype)
        else:
            value = raw.view(kind.dtype)
        root = make(Constant(Literal(value.reshape(64, 64), kind)))
        module = Module("large", Computation("main", root, []))
        found = parse_hlo(str(module)).entry.root.op.literal  # type: ignore[attr-defined]
        assert str(parse_hlo(str(module))) == str(module)
        assert found.array.tobytes() == value.tobytes() or kind.is_float or kind.is_complex
        np.testing.assert_array_equal(
            found.array.reshape(-1).astype(np.complex128), value.astype(np.complex128)
        )
