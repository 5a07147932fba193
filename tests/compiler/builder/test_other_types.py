"""Ops on element types that they do not take themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tfbridge.compiler import ComputationBuilder, LocalClient, Operand, ShapeError, array, evaluate
from tfbridge.compiler.builder.lib.functions import apply_function
from tfbridge.compiler.ir.element_types import element_type_of
from tfbridge.compiler.ir.module import Module
from tfbridge.compiler.ir.shape import Shape

RANDOM = np.random.default_rng(0)
MASK = RANDOM.integers(0, 2, (3, 4)).astype(bool)
OTHER = RANDOM.integers(0, 2, (4, 5)).astype(bool) & RANDOM.integers(0, 2, (4, 5)).astype(bool)


def computed(write: Callable[..., Operand], *arrays: Any, rtol: float = 0) -> list[np.ndarray]:
    """What compiled code makes of the arrays, which is what the evaluator makes of them."""
    given = [np.asarray(a) for a in arrays]
    b = ComputationBuilder("test")
    operands = [b.parameter(k, Shape(element_type_of(a.dtype), a.shape)) for k, a in enumerate(given)]
    module = Module("test", b.build(write(b, *operands)))
    found = LocalClient().compile(module).execute(given)
    wanted = evaluate(module, given)
    for one, other in zip(found, wanted if isinstance(wanted, tuple) else [wanted], strict=True):
        if rtol:
            kind = np.complex128 if one.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(one.astype(kind), np.asarray(other).astype(kind), rtol=rtol)
        else:
            np.testing.assert_array_equal(one, other)
    return found


def test_products_of_pred() -> None:
    (any_,) = computed(lambda b, x, y: b.dot_general(x, y, ((1,), (0,))), MASK, OTHER)
    np.testing.assert_array_equal(any_, (MASK.astype(int) @ OTHER.astype(int)) > 0)
    (counts,) = computed(
        lambda b, x, y: b.dot_general(x, y, ((1,), (0,)), preferred_element_type="s32"), MASK, OTHER
    )
    np.testing.assert_array_equal(counts, MASK.astype(int) @ OTHER.astype(int))
    x, w = MASK.reshape(1, 1, 12), np.ones((1, 1, 3), bool)
    (dilated,) = computed(lambda b, x, w: b.conv(x, w, (1,), "valid"), x, w)
    np.testing.assert_array_equal(dilated[0, 0], [x[0, 0, k : k + 3].any() for k in range(10)])


@pytest.mark.parametrize(
    ("left", "right", "preferred", "result"),
    [
        (np.int8, np.int8, "f32", np.float32),
        (np.int16, np.int32, None, np.int32),
        (np.float16, np.float32, None, np.float32),
        (np.float16, ml_dtypes.bfloat16, None, np.float32),
        (np.float64, np.float32, None, np.float64),
        (np.complex64, np.complex128, None, np.complex128),
        (bool, np.float32, "f32", np.float32),
    ],
)
def test_products_of_mixed_types(left: Any, right: Any, preferred: str | None, result: Any) -> None:
    x, y = RANDOM.integers(0, 5, (3, 4)).astype(left), RANDOM.integers(0, 5, (4, 2)).astype(right)
    (found,) = computed(
        lambda b, x, y: b.dot_general(x, y, ((1,), (0,)), preferred_element_type=preferred), x, y
    )
    assert found.dtype == result
    np.testing.assert_array_equal(found, x.astype(result) @ y.astype(result))


def test_products_of_integers_and_floats_need_a_type() -> None:
    b = ComputationBuilder("test")
    b.dot_general(b.parameter(0, array("s32", 2)), b.parameter(1, array("f32", 2)), ((0,), (0,)))
    with pytest.raises(ShapeError, match="dot_c1"):
        b.build()


def test_largest_of_pred() -> None:
    values, numbers = computed(lambda b, x: b.top_k(x, 3), MASK)
    np.testing.assert_array_equal(numbers, np.argsort(~MASK, axis=1, kind="stable")[:, :3])
    np.testing.assert_array_equal(values, np.take_along_axis(MASK, numbers, 1))


@pytest.mark.parametrize("kind", ["u8", "s8"])
def test_bits_of_pred(kind: str) -> None:
    (found,) = computed(lambda b, x: b.bitcast_convert_type(x, kind), MASK)
    np.testing.assert_array_equal(found, MASK.astype(int))
    (again,) = computed(lambda b, x: b.bitcast_convert_type(x, "pred"), found)
    np.testing.assert_array_equal(again, MASK)


def test_bits_of_pred_in_wider_numbers() -> None:
    (words,) = computed(lambda b, x: b.bitcast_convert_type(x, "s32"), MASK)
    np.testing.assert_array_equal(words, MASK.astype(np.uint8).view(np.int32)[:, 0])
    (again,) = computed(lambda b, x: b.bitcast_convert_type(x, "pred"), words)
    np.testing.assert_array_equal(again, MASK)


@pytest.mark.parametrize("packed", ["u4", "s4", "u2", "s2", "f4e2m1fn"])
@pytest.mark.parametrize("wide", [np.uint8, np.int8, np.uint16, np.float32, np.uint64])
def test_elements_that_share_a_byte(packed: str, wide: Any) -> None:
    x = RANDOM.integers(0, 256, (3, np.dtype(wide).itemsize), np.uint8).view(wide)[:, 0]
    bits = 4 if "4" in packed else 2
    count = np.dtype(wide).itemsize * 8 // bits

    def parts(b: ComputationBuilder, x: Operand) -> Operand:
        return b.convert_element_type(
            b.bitcast_convert_type(b.bitcast_convert_type(x, packed), f"u{bits}"), "u8"
        )

    (found,) = computed(parts, x)
    octets = x.view(np.uint8).reshape(3, -1)
    wanted = np.stack([octets >> bits * k & (1 << bits) - 1 for k in range(8 // bits)], -1)
    np.testing.assert_array_equal(found, wanted.reshape(3, count))
    kind = element_type_of(x.dtype)
    (again,) = computed(lambda b, x: b.bitcast_convert_type(b.bitcast_convert_type(x, packed), kind), x)
    np.testing.assert_array_equal(again.view(np.uint8), x.view(np.uint8))


def test_elements_that_share_a_byte_must_be_all_there() -> None:
    b = ComputationBuilder("test")
    b.bitcast_convert_type(b.parameter(0, array("u4", 3)), "u8")
    with pytest.raises(ShapeError, match="bitcast_convert_c3"):
        b.build()


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_factored_in_f32(kind: Any) -> None:
    lower = np.array([[2, 0], [1, 3]], kind)
    (factor,) = computed(
        lambda b, x: b.cholesky(x, True), (lower.astype(float) @ lower.T.astype(float)).astype(kind)
    )
    np.testing.assert_array_equal(factor, lower)
    (x,) = computed(
        lambda b, a, y: b.triangular_solve(a, y, True, True, False), lower, np.array([[4], [11]], kind)
    )
    np.testing.assert_array_equal(x, np.array([[2], [3]], kind))


FUNCTIONS = {
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "acosh": np.arccosh,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "cosh": np.cosh,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", [ml_dtypes.float8_e5m2, np.float16, np.float32, np.float64, np.complex64])
def test_functions_of_every_width(name: str, kind: Any) -> None:
    x = np.array([0.25, 0.5, 0.875]) + (1 if name == "acosh" else 0)
    x = x.astype(kind)
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    rtol = 4 * float(ml_dtypes.finfo(kind).eps if x.dtype.kind != "c" else 1e-6)
    (found,) = computed(lambda b, x: apply_function(b, name, x), x, rtol=rtol)
    np.testing.assert_allclose(found.astype(wide.dtype), FUNCTIONS[name](wide), rtol=rtol)


def test_functions_of_integers_are_refused() -> None:
    b = ComputationBuilder("test")
    b.die_immediately_on_error = True
    with pytest.raises(ShapeError, match="function_c1"):
        apply_function(b, "acos", b.parameter(0, array("s32", 2)))
