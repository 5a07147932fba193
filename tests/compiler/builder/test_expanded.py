"""Operations that are written with others: scans, ragged and scaled products, stochastic rounding, rows exchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tfbridge.compiler import (
    Computation,
    ComputationBuilder,
    LocalClient,
    Operand,
    ShapeError,
    UnsupportedError,
    array,
    evaluate,
)
from tfbridge.compiler.ir.element_types import element_type_of
from tfbridge.compiler.ir.module import Module
from tfbridge.compiler.ir.shape import Shape

RANDOM = np.random.default_rng(0)
Write = Callable[..., Operand]


def computed(write: Write, *arrays: Any) -> list[np.ndarray]:
    """What compiled code makes of the arrays, which is what the evaluator makes of them."""
    given = [np.asarray(a) for a in arrays]
    b = ComputationBuilder("test")
    operands = [b.parameter(k, Shape(element_type_of(a.dtype), a.shape)) for k, a in enumerate(given)]
    module = Module("test", b.build(write(b, *operands)))
    wanted = evaluate(module, given)
    found = LocalClient().compile(module).execute(given)
    for one, other in zip(found, wanted if isinstance(wanted, tuple) else [wanted], strict=True):
        np.testing.assert_allclose(
            one.astype(np.float64), np.asarray(other, np.float64), rtol=1e-5, atol=1e-5
        )
    return found


def body(*shapes: Shape, write: Callable[..., Operand]) -> Computation:
    b = ComputationBuilder("body")
    return b.build(write(b, *(b.parameter(k, s) for k, s in enumerate(shapes))))


# -- scan


def total(b: ComputationBuilder, x: Operand, carry: Operand) -> Operand:
    """A running sum."""
    after = b.add(x, carry)
    return b.tuple([after, after])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_a_running_sum(axis: int, reverse: bool) -> None:
    x = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
    one = array("f32", *(d for a, d in enumerate(x.shape) if a != axis))
    sums, last = computed(
        lambda b, x, c: b.scan([x], [c], body(one, one, write=total), axis, reverse),
        x,
        np.ones(one.dims, np.float32),
    )
    ordered = np.flip(x, axis) if reverse else x
    wanted = np.cumsum(ordered, axis) + 1
    np.testing.assert_allclose(last, np.take(wanted, -1, axis), rtol=1e-5)
    np.testing.assert_allclose(sums, np.flip(wanted, axis) if reverse else wanted, rtol=1e-5)


def test_scan_of_several_inputs_and_outputs_of_other_shapes() -> None:
    x, y = RANDOM.normal(size=(4, 3)).astype(np.float32), np.arange(4, dtype=np.int32)
    row, number = array("f32", 3), array("s32")

    def write(b: ComputationBuilder, x: Operand, y: Operand, carry: Operand) -> Operand:
        return b.tuple(
            [b.neg(y), b.mul(x, b.broadcast(b.convert_element_type(y, "f32"), (3,))), b.add(carry, y)]
        )

    negative, products, count = computed(
        lambda b, x, y, c: b.scan([x, y], [c], body(row, number, number, write=write)), x, y, np.int32(7)
    )
    np.testing.assert_array_equal(negative, -y)
    np.testing.assert_allclose(products, x * y[:, None])
    assert count == 7 + 6


def test_scan_without_carries_without_outputs_and_without_slices() -> None:
    one = array("f32")
    x = np.arange(4, dtype=np.float32)
    (squares,) = computed(lambda b, x: b.scan([x], [], body(one, write=lambda b, x: b.mul(x, x))), x)
    np.testing.assert_array_equal(squares, x * x)
    added = body(one, one, write=lambda b, x, c: b.add(x, c))
    (summed,) = computed(lambda b, x, c: b.scan([x], [c], added), x, np.float32(1))
    assert summed == 7
    sums, last = computed(lambda b, x, c: b.scan([x], [c], body(one, one, write=total)), x[:0], np.float32(3))
    assert sums.shape == (0,) and last == 3


# -- products


def ragged_rows(lhs: np.ndarray, rhs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    result, start = np.zeros((lhs.shape[0], rhs.shape[2])), 0
    for part, size in zip(rhs, sizes):
        result[start : start + size] = lhs[start : start + size] @ part
        start += size
    return result


@pytest.mark.parametrize("sizes", [[4, 0, 5], [3, 3, 5], [0, 0, 0], [11, 0, 0], [9, 9, 9]])
def test_ragged_rows(sizes: Sequence[int]) -> None:
    lhs, rhs = (
        RANDOM.normal(size=(11, 5)).astype(np.float32),
        RANDOM.normal(size=(3, 5, 7)).astype(np.float32),
    )
    counts = np.array(sizes, np.int32)
    (found,) = computed(
        lambda b, x, y, s: b.ragged_dot(
            x, y, s, ((1,), (1,)), lhs_ragged_dimension=0, rhs_group_dimensions=(0,)
        ),
        lhs,
        rhs,
        counts,
    )
    np.testing.assert_allclose(found, ragged_rows(lhs, rhs, counts), rtol=1e-4, atol=1e-5)


def test_ragged_rows_of_a_batch_with_sizes_for_each() -> None:
    lhs, rhs = RANDOM.normal(size=(2, 6, 5)), RANDOM.normal(size=(5, 3, 2, 4))
    sizes = np.array([[1, 2, 3], [4, 0, 1]])
    (found,) = computed(
        lambda b, x, y, s: b.ragged_dot(x, y, s, ((2,), (0,)), ((0,), (2,)), 1, (1,)), lhs, rhs, sizes
    )
    wanted = [ragged_rows(lhs[k], rhs[:, :, k].transpose(1, 0, 2), sizes[k]) for k in range(2)]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_ragged_contraction_keeps_other_groups_infinities_out() -> None:
    lhs, rhs = RANDOM.normal(size=(5, 7)), RANDOM.normal(size=(7, 3))
    lhs[:, 6], sizes = np.inf, np.array([2, 4], np.uint32)
    (found,) = computed(
        lambda b, x, y, s: b.ragged_dot(x, y, s, ((1,), (0,)), lhs_ragged_dimension=1), lhs, rhs, sizes
    )
    np.testing.assert_allclose(found, [lhs[:, :2] @ rhs[:2], lhs[:, 2:6] @ rhs[2:6]])


def test_ragged_batch_is_a_product_of_all() -> None:
    lhs, rhs = RANDOM.normal(size=(4, 2, 3)), RANDOM.normal(size=(4, 3, 2))
    (found,) = computed(
        lambda b, x, y, s: b.ragged_dot(x, y, s, ((2,), (1,)), ((0,), (0,)), 0, preferred_element_type="f32"),
        lhs,
        rhs,
        np.array([1, 3]),
    )
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, lhs @ rhs, rtol=1e-5)


@pytest.mark.parametrize("scales", [((4, 2), (2, 6)), ((4, 64), (64, 6)), ((), ()), ((2, 1), (1, 1))])
def test_scaled_dot(scales: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    lhs, rhs = (RANDOM.normal(size=d).astype(ml_dtypes.float8_e4m3fn) for d in ((4, 64), (64, 6)))
    left, right = (np.exp2(RANDOM.integers(-3, 3, d)).astype(ml_dtypes.float8_e8m0fnu) for d in scales)
    (found,) = computed(
        lambda b, *o: b.scaled_dot(*o, ((1,), (0,)), preferred_element_type="f32"), lhs, rhs, left, right
    )

    def scaled(x: np.ndarray, by: np.ndarray) -> np.ndarray:
        by = by.astype(np.float64)
        for axis in range(by.ndim):
            by = np.repeat(by, x.shape[axis] // by.shape[axis], axis)
        return x.astype(np.float64) * by

    np.testing.assert_allclose(found, scaled(lhs, left) @ scaled(rhs, right), rtol=1e-4, atol=1e-5)


# -- types and shapes


@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        (np.float16, np.uint16),
        (ml_dtypes.bfloat16, np.uint16),
        (np.float32, np.uint32),
        (np.float64, np.uint64),
    ],
)
def test_stochastic_rounding(kind: Any, bits: Any) -> None:
    x = np.array([1.5, -1.5, 2.25, -2.25, 2.25, 3, -3, 300, -300, np.inf, -np.inf, np.nan, -0.0], kind)
    half = 1 << np.dtype(bits).itemsize * 8 - 1
    random = np.array([half - 1, half - 1, half // 2, half // 2 - 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], bits)
    (found,) = computed(lambda b, x, r: b.stochastic_convert(x, r, "s8"), x, random)
    np.testing.assert_array_equal(found, [2, -2, 2, -3, 3, 3, -3, 127, -128, 127, -128, 0, 0])


def test_stochastic_rounding_is_right_on_average() -> None:
    x = np.full(1 << 14, 2.3, np.float32)
    random = RANDOM.integers(0, 1 << 32, x.shape, np.uint32)
    (found,) = computed(lambda b, x, r: b.stochastic_convert(x, r, "s32"), x, random)
    assert set(found.tolist()) == {2, 3} and abs(found.mean() - 2.3) < 0.02


@pytest.mark.parametrize("count", [1, 2, 3])
def test_dynamic_reshape_leaves_out_what_is_not_there(count: int) -> None:
    number = array("f32")
    added = body(number, number, write=lambda b, x, y: b.add(x, y))

    def write(b: ComputationBuilder, x: Operand, n: Operand) -> Operand:
        cut = b.set_dimension_size(x, n, 1)
        flat = b.dynamic_reshape(
            cut, [b.mul(n, b.constant(2))], Shape(x.shape.element_type, (6,), dynamic=(0,))
        )
        weighted = b.mul(flat, b.iota(array("f32", 6), 0))
        return b.tuple([b.reduce(o, b.constant(0.0), added, (0,)) for o in (flat, weighted)])

    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    b = ComputationBuilder("test")
    operands = [b.parameter(0, array("f32", 2, 3)), b.parameter(1, array("s32"))]
    found = LocalClient().compile(b.build(write(b, *operands))).execute([x, np.int32(count)])
    kept = x[:, :count].ravel()
    assert found == [kept.sum(), (kept * np.arange(kept.size)).sum()]


def test_dynamic_reshape_of_an_array_without_dynamic_axes() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = computed(
        lambda b, x: b.dynamic_reshape(x, [b.constant(3), b.constant(2)], array("f32", 3, 2)), x
    )
    np.testing.assert_array_equal(found, x.reshape(3, 2))
    (found,) = computed(
        lambda b, x: b.get_dimension_size(
            b.dynamic_reshape(x, [b.constant(4)], Shape(x.shape.element_type, (6,), dynamic=(0,))), 0
        ),
        x,
    )
    assert found == 4


# -- other devices


def on_devices(write: Write, arguments: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """The results of every replica, of compiled code and of the evaluator."""
    b = ComputationBuilder("test")
    operands = [b.parameter(k, Shape(element_type_of(a.dtype), a.shape)) for k, a in enumerate(arguments[0])]
    module = Module("test", b.build(write(b, *operands)), {"replica_count": str(len(arguments))})
    found, wanted = (
        LocalClient(platform).compile(module).execute_replicas(arguments)
        for platform in ("cpu", "interpreter")
    )
    for one, other in zip(found, wanted, strict=True):
        for x, y in zip(one, other, strict=True):
            np.testing.assert_array_equal(x, y)
    return found


@pytest.mark.parametrize("updates", [0, 2])
def test_rows_are_exchanged(updates: int) -> None:
    """Device k has rows 10 k, 10 k + 1, ...; it sends the first to device 0, the next two to device 1."""
    offsets, sizes, places = [[0, 1], [0, 1]], [[1, 2], [1, 2]], [[0, 0], [1, 2]]
    arguments = []
    for k in range(2):
        numbers = [np.array(n[k]) for n in (offsets, sizes, places)]
        if updates:  # the second update of each device sends nothing
            numbers = [np.stack([n, 0 * n], 1) for n in numbers]
        rows = (10 * k + np.arange(4, dtype=np.float32))[:, None] * np.ones((1, 3), np.float32)
        arguments.append([rows, -np.ones((5, 3), np.float32), *numbers, numbers[1]])
    found = on_devices(lambda b, *o: b.ragged_all_to_all(*o), arguments)
    assert [r[0][:, 0].tolist() for r in found] == [[0, 10, -1, -1, -1], [1, 2, 11, 12, -1]]


def test_collective_reduce() -> None:
    added = body(array("f32"), array("f32"), write=lambda b, x, y: b.add(x, y))
    found = on_devices(lambda b, x: b.collective_reduce(x, added), [[np.float32(k)] for k in (1, 2)])
    assert [r[0] for r in found] == [3, 3]


# -- what is refused

F, S = array("f32"), array("s32")
SUM = body(F, F, write=total)


def parameters(b: ComputationBuilder, *shapes: Shape) -> list[Operand]:
    return [b.parameter(k, s) for k, s in enumerate(shapes)]


@pytest.mark.parametrize(
    ("label", "shapes", "write"),
    [
        ("scan_c1", (), lambda b: b.scan([], [], SUM)),
        ("scan_c1", (F, F), lambda b, x, c: b.scan([x], [c], SUM)),
        ("scan_c1", (array("f32", 2), array("f32", 3), F), lambda b, x, y, c: b.scan([x, y], [c], SUM)),
        ("scan_c2", (array("f32", 2), S), lambda b, x, c: b.scan([x], [c], SUM)),
        ("scan_c3", (array("f32", 2),), lambda b, x: b.scan([x], [x], wrong_carry(array("f32", 2)))),
        (
            "scan_c3",
            (array("f32", 2, 2),),
            lambda b, x: b.scan([x], [], body(array("f32", 2), write=lambda b, x: b.constant(1.0)), 1),
        ),
        ("scaled_dot_c1", (array("s32", 2, 2), F), lambda b, x, s: b.scaled_dot(x, x, s, s, ((1,), (0,)))),
        (
            "scaled_dot_c2",
            (array("f32", 4, 4), array("f32", 4, 3)),
            lambda b, x, s: b.scaled_dot(x, x, s, s, ((1,), (0,))),
        ),
        (
            "ragged_dot_c1",
            (array("f32", 2, 2), array("s32", 1)),
            lambda b, x, s: b.ragged_dot(x, x, s, ((1,), (0,)), lhs_ragged_dimension=2),
        ),
        (
            "ragged_dot_c2",
            (array("f32", 2, 2), array("s32", 1)),
            lambda b, x, s: b.ragged_dot(x, x, s, ((1,), (0,)), lhs_ragged_dimension=0),
        ),
        (
            "ragged_dot_c3",
            (array("f32", 2, 2), array("f32", 1)),
            lambda b, x, s: b.ragged_dot(x, x, s, ((1,), (0,)), lhs_ragged_dimension=1),
        ),
        (
            "dot_c4",
            (array("f32", 2, 2), array("s32", 1)),
            lambda b, x, s: b.ragged_dot(x, x, s, ((1,), ()), lhs_ragged_dimension=1),
        ),
        (
            "stochastic_convert_c1",
            (array("s32", 2), array("u32", 2)),
            lambda b, x, r: b.stochastic_convert(x, r, "s8"),
        ),
        (
            "stochastic_convert_c2",
            (array("f32", 2), array("u16", 2)),
            lambda b, x, r: b.stochastic_convert(x, r, "s8"),
        ),
        ("dynamic_reshape_c1", (array("f32", 2),), lambda b, x: b.dynamic_reshape(x, [], array("f32", 2))),
        (
            "ragged_all_to_all_c1",
            (array("f32", 2, 3), array("f32", 2, 4), array("s32", 2)),
            lambda b, x, y, n: b.ragged_all_to_all(x, y, n, n, n, n),
        ),
        (
            "ragged_all_to_all_c2",
            (array("f32", 2), array("f32", 2)),
            lambda b, x, n: b.ragged_all_to_all(x, x, n, n, n, n),
        ),
        (
            "ragged_all_to_all_c3",
            (array("f32", 2), array("s32", 3)),
            lambda b, x, n: b.ragged_all_to_all(x, x, n, n, n, n, [[0, 1]]),
        ),
    ],
)
def test_constraints(label: str, shapes: Sequence[Shape], write: Write) -> None:
    b = ComputationBuilder("test")
    with pytest.raises(ShapeError, match=rf"\({label}\)"):
        b.build(write(b, *parameters(b, *shapes)))


def wrong_carry(carry: Shape) -> Computation:
    """A computation that gives another carry than it takes."""
    return body(F, carry, write=lambda b, x, c: b.tuple([x, x]))


def test_stochastic_rounding_to_floats_is_refused() -> None:
    b = ComputationBuilder("test")
    b.stochastic_convert(*parameters(b, array("f32", 2), array("u32", 2)), "bf16")
    with pytest.raises(UnsupportedError, match="to signed integers it is"):
        b.build()
