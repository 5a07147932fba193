"""The builder: what its methods make, its broadcasting, and its errors."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
from cases import CASES, Case
from tfbridge.compiler import ComputationBuilder, Literal, Module, Shape, array, evaluate, verify
from tfbridge.compiler.builder.derived import binary_computation
from tfbridge.compiler.errors import ShapeError
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ir.module import Computation
from tfbridge.compiler.ops import ROWS, Window
from tfbridge.compiler.ops.docs_table import METHODS

F32 = ElementType.F32
ADD = binary_computation("add", F32)
MAX = binary_computation("maximum", F32)


def built(builder: ComputationBuilder) -> Computation:
    computation = builder.build()
    verify(Module("m", computation))
    return computation


def run(make, *arrays: np.ndarray):
    """The value of `make(builder, *parameters)` on the arrays."""
    b = ComputationBuilder("f")
    shapes = [Literal(a).shape for a in arrays]
    make(b, *(b.parameter(n, s, f"x{n}") for n, s in enumerate(shapes)))
    with np.errstate(all="ignore"):
        return evaluate(built(b), arrays)


def f32(*dims: int) -> np.ndarray:
    return np.random.default_rng(len(dims)).standard_normal(dims).astype(np.float32)


def test_axpy() -> None:
    a, x, y = np.float32(2), f32(8), f32(8)
    assert np.array_equal(run(lambda b, a, x, y: b.add(b.mul(a, x), y), np.asarray(a), x, y), a * x + y)


@pytest.mark.parametrize(
    ("left", "right", "axes", "result"),
    [
        ((2, 3), (2, 3), None, (2, 3)),
        ((), (2, 3), None, (2, 3)),
        ((2, 3), (), None, (2, 3)),
        ((2, 3), (3,), (1,), (2, 3)),
        ((2,), (2, 3), (0,), (2, 3)),
        ((2, 3), (2, 1), None, (2, 3)),
        ((1, 3), (2, 1), None, (2, 3)),
        ((1,), (2, 3), (0,), (2, 3)),
        ((4, 1, 3), (1, 3), (0, 2), (4, 1, 3)),
        ((2, 3), (2, 3), (0, 1), (2, 3)),
        ((0, 3), (1, 3), None, (0, 3)),
        ((4, 3), (2, 4, 1), (1, 2), (2, 4, 3)),
    ],
)
def test_broadcasting(left, right, axes, result) -> None:
    x, y = f32(*left), f32(*right)
    value = run(lambda b, x, y: b.sub(x, y, axes), x, y)
    rank = len(result)
    if axes is not None and len(left) != len(right):
        low = x if x.ndim < y.ndim else y
        dims = [1] * rank
        for size, axis in zip(low.shape, axes):
            dims[axis] = size
        x, y = (x.reshape(dims), y) if low is x else (x, y.reshape(dims))
    assert value.shape == result and np.array_equal(value, x - y)


@pytest.mark.parametrize(
    ("left", "right", "axes", "label"),
    [
        ((2, 3), (3,), None, "broadcast_c1"),
        ((2, 3), (2, 3), (1, 0), "broadcast_c2"),
        ((2, 3), (3,), (2,), "broadcast_c2"),
        ((2, 3, 4), (3, 2), (1, 0), "broadcast_c2"),
        ((2, 3), (2,), (1,), "broadcast_c3"),
        ((2, 3), (2, 2), None, "broadcast_c3"),
    ],
)
def test_broadcasting_errors(left, right, axes, label) -> None:
    b = ComputationBuilder("f")
    b.add(b.parameter(0, array("f32", *left)), b.parameter(1, array("f32", *right)), axes)
    with pytest.raises(ShapeError, match=label):
        b.build()


def test_first_error_is_raised_by_build_with_its_line() -> None:
    b = ComputationBuilder("f")
    x = b.parameter(0, array("f32", 2, 3), "x")
    line = inspect.currentframe().f_lineno + 1
    wrong = b.transpose(x, (0, 0))
    after = b.tanh(b.add(wrong, x))
    b.reshape(x, (7,))
    assert wrong.instruction is None and after.instruction is None
    with pytest.raises(ShapeError) as raised:
        b.build()
    assert f"{__file__}:{line}, in test_first_error" in str(raised.value) and "transpose_c" in str(
        raised.value
    )
    with pytest.raises(ShapeError, match="transpose_c"):
        b.get_shape(after)


def test_error_inside_a_derived_operation_names_the_callers_line() -> None:
    b = ComputationBuilder("f")
    x = b.parameter(0, array("s32", 2), "x")
    line = inspect.currentframe().f_lineno + 1
    b.acosh(x)
    with pytest.raises(ShapeError, match=f"test_builder.py:{line}, in"):
        b.build()


def test_die_immediately() -> None:
    b = ComputationBuilder("f")
    b.die_immediately_on_error = True
    x = b.parameter(0, array("f32", 2, 3), "x")
    with pytest.raises(ShapeError, match="collapse_c1"):
        b.collapse(x, (1, 0))


def test_handles_of_another_builder_and_no_handles() -> None:
    b, other = ComputationBuilder("f"), ComputationBuilder("g")
    x = other.parameter(0, array("f32"), "x")
    b.neg(x)
    with pytest.raises(ShapeError, match="'g', not to 'f' .builder_c1"):
        b.build()
    with pytest.raises(TypeError, match="expected an operand"):
        other.add(x, 3.0)


def test_sub_builder_notes_its_error_in_the_parent() -> None:
    b = ComputationBuilder("f")
    x = b.parameter(0, array("f32", 4), "x")
    sub = b.create_sub_builder("add")
    p = sub.parameter(0, array("f32"), "p")
    sub.transpose(p, (1,))
    reducer = sub.build_and_note_error()
    assert reducer is None
    assert b.reduce(x, b.constant(0.0), reducer, (0,)).instruction is None
    with pytest.raises(ShapeError, match="transpose_c"):
        b.build()


def test_build_root_return_value_and_last() -> None:
    def fresh():
        b = ComputationBuilder("f")
        x = b.parameter(0, array("f32"), "x")
        return b, b.neg(x), b.abs(x)

    b, neg, _ = fresh()
    assert b.build().root.opcode == "abs" and b.build(neg).root.opcode == "negate"
    b, neg, _ = fresh()
    b.set_return_value(neg)
    assert b.build().root.opcode == "negate"


def test_parameters_are_numbered() -> None:
    b = ComputationBuilder("f")
    b.parameter(1, array("f32"), "x")
    with pytest.raises(ShapeError, match="build_c1"):
        b.build()
    b = ComputationBuilder("f")
    b.parameter(0, array("f32"), "x")
    b.parameter(0, array("f32"), "y")
    with pytest.raises(ShapeError, match="parameter_c1"):
        b.build()
    with pytest.raises(ShapeError, match="build_c2"):
        ComputationBuilder("f").build()


@pytest.mark.parametrize(
    ("value", "kind", "shape"),
    [
        (1.5, None, "f32[]"),
        (3, None, "s32[]"),
        (1 << 40, None, "s64[]"),
        (True, None, "pred[]"),
        (1j, None, "c64[]"),
        ([[1, 2]], None, "s32[1,2]"),
        (np.float64(1), None, "f64[]"),
        (np.zeros((2, 0), np.int8), None, "s8[2,0]"),
        (1.5, "bf16", "bf16[]"),
        ([1, 2], ElementType.U4, "u4[2]"),
    ],
)
def test_constant_types(value, kind, shape) -> None:
    b = ComputationBuilder("f")
    assert str(b.constant(value, kind).shape) == shape


def test_old_constants() -> None:
    b = ComputationBuilder("f")
    assert str(b.constant_r0(1.0).shape) == "f32[]" and str(b.constant_r2([[1]]).shape) == "s32[1,1]"
    assert str(b.constant_r1(2.0, length=5).shape) == "f32[5]"
    assert str(b.constant_literal(Literal.tuple([Literal(np.float32(1))])).shape) == "(f32[])"
    b.constant_r3([1.0])
    with pytest.raises(ShapeError, match="constant_c1"):
        b.build()


def test_compute_constant_and_is_constant() -> None:
    b = ComputationBuilder("f")
    x = b.parameter(0, array("s32", 2), "x")
    c = b.mul(b.constant([1, 2]), b.constant(3))
    assert b.is_constant(c) and not b.is_constant(b.add(c, x))
    assert b.compute_constant(c) == Literal(np.array([3, 6], np.int32))
    with pytest.raises(ShapeError, match="constant_c2"):
        b.compute_constant(x)


def test_metadata_scopes() -> None:
    b = ComputationBuilder("f")
    x = b.parameter(0, array("f32"), "x")
    with b.metadata(op_type="Relu", op_name="net/relu", source_file="a.py", source_line=3):
        inner = b.abs(x)
        with b.metadata(op_name="net/other"):
            other = b.neg(x)
    outer = b.neg(x)
    assert (inner.instruction.metadata.op_name, inner.instruction.metadata.source_line) == ("net/relu", 3)
    assert (other.instruction.metadata.op_name, other.instruction.metadata.op_type) == ("net/other", "Relu")
    assert outer.instruction.metadata.op_name == ""


def test_check_shape() -> None:
    b = ComputationBuilder("f")
    x, y = b.parameter(0, array("f32", 2), "x"), b.parameter(1, array("f32", 3), "y")
    assert b.check_shape(x, array("f32", 2)) is x
    b.check_same_shape(x, y)
    with pytest.raises(ShapeError, match="check_shape_c2"):
        b.build()


@pytest.mark.parametrize("case", [c for c in CASES if c.name.count("/") < 9][::40], ids=lambda c: c.name)
def test_apply_makes_what_the_table_says(case: Case) -> None:
    b = ComputationBuilder("f")
    operands = [b.parameter(n, i.shape) for n, i in enumerate(case.operands)]
    assert b.apply(case.op, *operands).shape == case.op.infer([i.shape for i in case.operands])


@pytest.mark.parametrize("opcode", ROWS)
def test_method_of_an_elementwise_op_makes_it(opcode: str) -> None:
    """The cases make ops without the builder's methods."""
    b, row = ComputationBuilder("f"), ROWS[opcode]
    shape = Shape(min(row.types, key=lambda t: t.value), (3,))
    operands = [b.parameter(n, shape) for n in range(row.arity)]
    if opcode == "select":
        operands[0] = b.eq(*operands[:2])
    name = METHODS.get(opcode, opcode.replace("-", "_")).split()[0]
    getattr(b, name)(*operands)
    assert built(b).root.opcode == opcode


X = np.array([-3.0, -1.0, -0.5, -1e-4, 0.0, 1e-4, 0.5, 1.0, 2.0, 30.0, 1e20, math.inf, math.nan], np.float32)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("asin", np.arcsin),
        ("acos", np.arccos),
        ("atan", np.arctan),
        ("cosh", np.cosh),
        ("asinh", np.arcsinh),
        ("acosh", np.arccosh),
        ("atanh", np.arctanh),
        ("square", np.square),
        ("reciprocal", np.reciprocal),
        ("is_nan", np.isnan),
        ("is_inf", np.isinf),
        ("is_pos_inf", np.isposinf),
        ("is_neg_inf", np.isneginf),
        ("sqrt_f32", np.sqrt),
        ("square_f32", np.square),
        ("reciprocal_f32", np.reciprocal),
    ],
)
def test_derived(name, reference) -> None:
    value = run(lambda b, x: getattr(b, name)(x), X)
    with np.errstate(all="ignore"):
        wanted = reference(X.astype(np.float64)).astype(value.dtype)
    np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-7)


def test_neg_zero_and_conj() -> None:
    assert run(lambda b, x: b.is_neg_zero(x), np.array([0.0, -0.0, 1], np.float16)).tolist() == [
        False,
        True,
        False,
    ]
    z = np.array([1 + 2j], np.complex64)
    assert run(lambda b, x: b.conj(x), z) == z.conj()


def test_shapes_of_elements() -> None:
    x = f32(2, 3, 4)
    assert run(lambda b, x: b.broadcast(x, (5,)), x).shape == (5, 2, 3, 4)
    assert np.array_equal(
        run(lambda b, x: b.broadcast_in_dim(x, (3, 4), (1,)), f32(1)), np.broadcast_to(f32(1), (3, 4))
    )
    assert np.array_equal(
        run(lambda b, x: b.reshape(x, (2, 1, 0), (6, 4)), x), x.transpose(2, 1, 0).reshape(6, 4)
    )
    assert run(lambda b, x: b.collapse(x, (1, 2)), x).shape == (2, 12)
    assert np.array_equal(run(lambda b, x: b.trans(x), f32(2, 3)), f32(2, 3).T)
    assert np.array_equal(run(lambda b, x: b.slice_in_dim(x, 1, 4, 2, 2), x), x[:, :, 1:4:2])
    padded = run(lambda b, x: b.pad_in_dim(x, b.constant(0.0), 1, 1, 2), x)
    assert np.array_equal(padded, np.pad(x, ((0, 0), (1, 2), (0, 0))))
    assert np.array_equal(
        run(lambda b, x, s: b.dynamic_slice(x, s, (1, 2, 4)), x, np.array([1, 1, 0])), x[1:2, 1:3]
    )
    assert run(lambda b: b.iota("s32", 3)).tolist() == [0, 1, 2]
    taken = run(lambda b, x, i: b.gather(x, i, (1,), (0,), (1, 3), (0,)), f32(5, 3), np.array([[4], [0]]))
    assert np.array_equal(taken, f32(5, 3)[[4, 0]])
    added = run(
        lambda b, x, i, u: b.scatter(x, i, u, ADD, 1, (1,), (0,), (0,)),
        f32(5, 3),
        np.array([[4], [4]]),
        np.ones((2, 3), np.float32),
    )
    assert np.allclose(added[4], f32(5, 3)[4] + 2)


def test_reductions_and_windows() -> None:
    x = f32(4, 6)
    assert np.allclose(run(lambda b, x: b.reduce(x, b.constant(0.0), ADD, (0,)), x), x.sum(0), atol=1e-6)
    assert np.allclose(run(lambda b, x: b.reduce_all(x, b.constant(0.0), ADD), x), x.sum(), atol=1e-5)
    pooled = run(lambda b, x: b.reduce_window(x, b.constant(-math.inf), MAX, (2, 3), (2, 3), "valid"), x)
    assert np.array_equal(pooled, x.reshape(2, 2, 2, 3).max((1, 3)))
    same = run(lambda b, x: b.reduce_window(x, b.constant(0.0), ADD, (3, 3), (1, 1), "SAME"), x)
    assert same.shape == x.shape and np.allclose(same[1, 1], x[:3, :3].sum(), atol=1e-5)
    greater = ComputationBuilder("ge")
    greater.ge(greater.parameter(0, array("f32")), greater.parameter(1, array("f32")))
    chosen = run(
        lambda b, x, s: b.select_and_scatter(
            x, greater.build(), (2, 3), (2, 3), "valid", s, b.constant(0.0), ADD
        ),
        x,
        np.ones((2, 2), np.float32),
    )
    assert chosen.sum() == 4 and set(x[chosen == 1]) == set(pooled.ravel())


def test_dots_and_convolutions() -> None:
    a, c = f32(3, 4), f32(4, 2)
    assert np.allclose(run(lambda b, x, y: b.dot(x, y), a, c), a @ c, atol=1e-5)
    batched = run(
        lambda b, x, y: b.dot_general(x, y, ((2,), (2,)), ((0,), (0,))), f32(2, 3, 4), f32(2, 5, 4)[:, :5]
    )
    assert batched.shape == (2, 3, 5)
    image, kernel = f32(1, 3, 5, 5), f32(2, 3, 3, 3)
    valid = run(lambda b, x, k: b.conv(x, k, (1, 1), "valid"), image, kernel)
    general = run(lambda b, x, k: b.conv_with_general_padding(x, k, (1, 1), [(1, 1), (1, 1)]), image, kernel)
    same = run(
        lambda b, x, k: b.conv_with_general_dimensions(
            x, k, (1, 1), "same", b.create_default_conv_dimension_numbers()
        ),
        image,
        kernel,
    )
    assert (
        valid.shape == (1, 2, 3, 3)
        and np.allclose(general, same)
        and np.allclose(valid, same[:, :, 1:-1, 1:-1])
    )
    assert np.allclose(valid[0, 1, 0, 0], (image[0, :, :3, :3] * kernel[1]).sum(), atol=1e-5)


def test_window_padding_is_tensorflows() -> None:
    b = ComputationBuilder("f")
    x = b.parameter(0, array("f32", 1, 7), "x")
    op = b.reduce_window(x, b.constant(0.0), ADD, (1, 4), (1, 2), "same").instruction.op
    assert op.window == Window.of((1, 4), (1, 2), (0, 1), (0, 2))


def test_convolution_numbers_that_conflict() -> None:
    with pytest.raises(ShapeError, match="input.*conv_c1"):
        ComputationBuilder.create_conv_dimension_numbers(0, 0, 2, 3, 0, 1, 2, 3)
    with pytest.raises(ShapeError, match="kernel.*conv_c1"):
        ComputationBuilder.create_conv_dimension_numbers(0, 1, 2, 3, 0, 1, 1, 3)


def test_batch_norm() -> None:
    x, scale, offset = f32(4, 3, 5), f32(3), f32(3) + 1
    y, mean, variance = run(lambda b, *p: b.batch_norm_training(*p, 1e-3, 1), x, scale, offset)
    assert np.allclose(mean, x.mean((0, 2)), atol=1e-6) and np.allclose(variance, x.var((0, 2)), atol=1e-6)
    again = run(lambda b, *p: b.batch_norm_inference(*p, 1e-3, 1), x, scale, offset, mean, variance)
    assert np.allclose(y, again, atol=1e-5)
    normal = (x - mean[:, None]) / np.sqrt(variance[:, None] + 1e-3)
    assert np.allclose(y, normal * scale[:, None] + offset[:, None], atol=1e-5)
    dy = f32(4, 3, 5)[::-1].copy()
    dx, dscale, doffset = run(lambda b, *p: b.batch_norm_grad(*p, 1e-3, 1), x, scale, mean, variance, dy)
    assert np.allclose(dscale, (dy * normal).sum((0, 2)), atol=1e-4) and np.allclose(
        doffset, dy.sum((0, 2)), atol=1e-5
    )
    wide = x.astype(np.float64)
    step = np.zeros_like(wide)
    step[1, 2, 3] = 1e-6

    def loss(v: np.ndarray) -> float:
        m, s = v.mean((0, 2), keepdims=True), v.var((0, 2), keepdims=True)
        return float((((v - m) / np.sqrt(s + 1e-3)) * scale[:, None] * dy).sum())

    assert np.isclose(dx[1, 2, 3], (loss(wide + step) - loss(wide - step)) / 2e-6, atol=1e-3)
    b = ComputationBuilder("f")
    b.batch_norm_training(
        b.parameter(0, array("f32", 2, 3)), *(b.parameter(n, array("f32", 2)) for n in (1, 2)), 1e-3, 1
    )
    with pytest.raises(ShapeError, match="batch_norm_c1"):
        b.build()


def test_control() -> None:
    condition = ComputationBuilder("below")
    condition.lt(condition.parameter(0, array("s32")), condition.constant(10))
    body = ComputationBuilder("body")
    x = body.parameter(0, array("s32"))
    body.add(x, x)
    double = body.build()
    assert run(lambda b, x: b.while_(condition.build(), double, x), np.asarray(np.int32(3))) == 12
    assert run(lambda b, x: b.call(double, [x]), np.asarray(np.int32(3))) == 6
    assert run(lambda b, x: b.map([x], double), np.array([1, 2], np.int32)).tolist() == [2, 4]
    identity = ComputationBuilder("identity")
    identity.parameter(0, array("s32"))
    same = identity.build()
    for flag, wanted in ((True, 6), (False, 3)):
        value = run(
            lambda b, p, x: b.conditional(p, x, double, x, same), np.asarray(flag), np.asarray(np.int32(3))
        )
        assert value == wanted
    for index, wanted in ((0, 3), (1, 6), (-1, 6), (9, 6)):
        value = run(
            lambda b, i, x: b.conditional(i, [same, double], [x, x]),
            np.asarray(np.int32(index)),
            np.asarray(np.int32(3)),
        )
        assert value == wanted
    keys, values = run(lambda b, k, v: b.sort([k, v]), np.array([3, 1, 2], np.int32), f32(3))
    assert keys.tolist() == [1, 2, 3] and np.array_equal(values, f32(3)[[1, 2, 0]])
    t = run(lambda b, x: b.get_tuple_element(b.tuple([x, b.neg(x)]), 1), np.asarray(np.int32(3)))
    assert t == -3
    state, bits = run(
        lambda b, k: b.rng_bit_generator("rng_philox", k, array("u32", 4)), np.zeros(3, np.uint64)
    )
    assert bits.shape == (4,) and state.shape == (3,)


def test_operators() -> None:
    x, y = f32(3), f32(3)[::-1].copy()
    assert np.allclose(run(lambda b, x, y: (x + y) * -x / y - x, x, y), (x + y) * -x / y - x)


def test_wrong_argument_count_of_conditional() -> None:
    b = ComputationBuilder("f")
    with pytest.raises(TypeError, match="conditional takes"):
        b.conditional(b.constant(True), b.constant(1))


def test_result_shape_is_a_shape() -> None:
    b = ComputationBuilder("f")
    assert b.zeros(array("f32", 2, 3)).shape == Shape(F32, (2, 3))
