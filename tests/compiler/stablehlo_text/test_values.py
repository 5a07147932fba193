"""StableHLO text: values of operations that are written with several others, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from tfbridge.compiler import LocalClient, ParseError, evaluate, parse_stablehlo


def run(text: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """What compiled code gives, which is what the evaluator gives."""
    module = parse_stablehlo(text)
    with np.errstate(all="ignore"):
        evaluated = evaluate(module, list(arrays))
    results = LocalClient().compile(module).execute(list(arrays))
    for result, wanted in zip(
        results, evaluated if isinstance(evaluated, tuple) else [evaluated], strict=True
    ):
        np.testing.assert_array_equal(result, wanted)
    return results


def groups(axes: str, mesh: str = "@mesh") -> tuple[tuple[int, ...], ...]:
    """Those of an operation, by axes of a mesh."""
    module = parse_stablehlo(f"""
      sdy.mesh @mesh = <["a"=2, "b"=2], device_ids=[0, 1, 3, 2]>
      func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
        %0 = "stablehlo.collective_broadcast"(%x) <{{replica_groups = #stablehlo.replica_group_mesh_axes<
          mesh = {mesh}, axes = [{axes}]>}}> : (tensor<2xf32>) -> tensor<2xf32>
        return %0 : tensor<2xf32>
      }}""")
    return module.entry.root.op.replica_groups


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("direction", "wanted"),
    [
        ("EQ", [1, 1, 0, 1, 0, 1, 0, 0]),
        ("NE", [0, 0, 1, 0, 1, 0, 1, 1]),
        ("GE", [1, 1, 0, 1, 0, 1, 0, 1]),
        ("GT", [0, 0, 0, 0, 0, 0, 0, 1]),
        ("LE", [1, 1, 1, 1, 1, 1, 1, 0]),
        ("LT", [0, 0, 1, 0, 1, 0, 1, 0]),
    ],
)
def test_in_the_weak_order_all_nan_are_equal_and_last(direction: str, wanted: list[int]) -> None:
    x = np.array([-NAN, -NAN, -INF, -0.0, 1, INF, INF, NAN], np.float32)
    y = np.array([-NAN, NAN, INF, 0.0, 2, INF, -NAN, INF], np.float32)
    text = f"""
      func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xi1> {{
        %0 = stablehlo.compare {direction}, %x, %y, WEAKORDER : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
        return %0 : tensor<8xi1>
      }}"""
    np.testing.assert_array_equal(run(text, x, y)[0], np.array(wanted, np.bool_))


@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"])
def test_mulhi_is_the_upper_half_of_a_product(kind: str) -> None:
    dtype = np.dtype(("uint" if kind[0] == "u" else "int") + kind.strip("ui"))
    info = np.iinfo(dtype)
    numbers = [
        info.min,
        info.max,
        0,
        1,
        3,
        info.max // 2 + 1,
        info.max // 3,
        max(info.min, -1),
        max(info.min, -7),
    ]
    pairs = np.array([(a, b) for a in numbers for b in numbers], dtype)
    text = f"""
      func.func @f(%x: tensor<81x{kind}>, %y: tensor<81x{kind}>) -> tensor<81x{kind}> {{
        %0 = chlo.mulhi %x, %y : tensor<81x{kind}>, tensor<81x{kind}> -> tensor<81x{kind}>
        return %0 : tensor<81x{kind}>
      }}"""
    wanted = np.array([int(a) * int(b) >> info.bits for a, b in pairs], dtype)
    np.testing.assert_array_equal(run(text, pairs[:, 0].copy(), pairs[:, 1].copy())[0], wanted)


def test_a_bitcast_follows_the_layouts() -> None:
    text = """
      func.func @f(%x: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<6xf32>, tensor<3x2xf32>) {
        %0 = mhlo.bitcast %x {result_layout = dense<[1, 0]> : tensor<2xindex>, source_layout = dense<[0, 1]> : tensor<2xindex>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
        %1 = mhlo.bitcast %x {result_layout = dense<0> : tensor<1xindex>, source_layout = dense<[0, 1]> : tensor<2xindex>} : (tensor<2x3xf32>) -> tensor<6xf32>
        %2 = mhlo.bitcast %x : (tensor<2x3xf32>) -> tensor<3x2xf32>
        return %0, %1, %2 : tensor<3x2xf32>, tensor<6xf32>, tensor<3x2xf32>
      }"""  # noqa: E501
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for result, wanted in zip(run(text, x), (x.T, x.T.reshape(6), x.reshape(3, 2)), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_a_scan_begins_at_the_end_where_it_is_reversed() -> None:
    text = """
      func.func @f(%x: tensor<4xi32>) -> (tensor<4xi32>, tensor<i32>) {
        %i = stablehlo.constant dense<0> : tensor<i32>
        %0:2 = chlo.scan(%x) inits (%i) dimension=0 attributes {is_reverse = true} {
        ^bb0(%a: tensor<i32>, %b: tensor<i32>):
          %s = stablehlo.add %a, %b : tensor<i32>
          stablehlo.return %s, %s : tensor<i32>, tensor<i32>
        } : (tensor<4xi32>, tensor<i32>) -> (tensor<4xi32>, tensor<i32>)
        return %0#0, %0#1 : tensor<4xi32>, tensor<i32>
      }"""
    sums, last = run(text, np.array([1, 2, 3, 4], np.int32))
    np.testing.assert_array_equal(sums, [10, 9, 7, 4])
    assert last == 10


@pytest.mark.parametrize("formula", ["bij,jbk->kbi", "bij,jxk->bk", "bij,jbk->", "bij,jbk->bijk"])
def test_products_by_formula(formula: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, dims).astype(np.float32) for dims in ((2, 3, 4), (4, 2, 5)))
    wanted = np.einsum(formula, x, y)
    kind = "".join(f"{n}x" for n in wanted.shape)
    text = f"""
      func.func @f(%x: tensor<2x3x4xf32>, %y: tensor<4x2x5xf32>) -> tensor<{kind}f32> {{
        %0 = stablehlo.einsum %x, %y, config = "{formula}" : (tensor<2x3x4xf32>, tensor<4x2x5xf32>) -> tensor<{kind}f32>
        return %0 : tensor<{kind}f32>
      }}"""
    np.testing.assert_array_equal(run(text, x, y)[0], wanted)


def test_groups_by_axes_of_a_mesh() -> None:
    a, b = ('#stablehlo.axis_ref<name = "' + name + '">' for name in "ab")
    assert groups(b) == ((0, 1), (3, 2))
    assert groups(a) == ((0, 3), (1, 2))
    assert groups(f"{a}, {b}") == ((0, 1, 3, 2),)
    assert groups(f"{b}, {a}") == ((0, 3, 1, 2),)
    mesh = '#stablehlo.mesh<axes=[<name = "c", size = 2>, <name = "d", size = 4>]>'
    part = '#stablehlo.axis_ref<name = "d", sub_axis_info = (1)2>'
    assert groups(part, mesh) == ((0, 2), (1, 3), (4, 6), (5, 7))
    for axes, message in ((b, "mesh @other is not defined before"), ("<b>", "expected axes like")):
        with pytest.raises(ParseError, match=message):
            groups(axes, "@other" if axes == b else "@mesh")


@pytest.mark.parametrize("uplo", ["L", "U", ""])
@pytest.mark.parametrize("letter", ["d", "z"])
def test_the_vectors_that_lapack_packs_make_the_matrix_similar(letter: str, uplo: str) -> None:
    """gehrd, where there is no triangle to read, or sytrd and hetrd."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 5)) + (1j * rng.standard_normal((5, 5)) if letter == "z" else 0)
    x = (x + x.conj().T) if uplo else x
    kind = "complex<f64>" if letter == "z" else "f64"
    name = ("hetrd" if letter == "z" else "sytrd") if uplo else "gehrd"
    fields = f"uplo = {ord(uplo)} : ui8" if uplo else "high = 5 : i32, low = 1 : i32"
    lines = "tensor<5xf64>, tensor<4xf64>, " if uplo else ""
    text = f"""
      func.func @f(%x: tensor<5x5x{kind}>) -> (tensor<5x5x{kind}>, tensor<4x{kind}>) {{
        %0:{5 if uplo else 3} = stablehlo.custom_call @lapack_{letter}{name}_ffi(%x)
          {{mhlo.backend_config = {{{fields}}}}}
          : (tensor<5x5x{kind}>) -> (tensor<5x5x{kind}>, {lines}tensor<4x{kind}>, tensor<i32>)
        return %0#0, %0#{3 if uplo else 1} : tensor<5x5x{kind}>, tensor<4x{kind}>
      }}"""
    read = np.tril(x) if uplo == "L" else np.triu(x) if uplo == "U" else x
    packed, taus = LocalClient().compile(parse_stablehlo(text)).execute([read])
    if uplo == "U":  # the lower triangle of the reversed matrix
        x, packed, taus = x[::-1, ::-1], packed[::-1, ::-1], taus[::-1]
    q = np.eye(5)
    for k, tau in enumerate(taus):
        v = np.where(np.arange(5) == k + 1, 1, np.where(np.arange(5) > k + 1, packed[:, k], 0))
        q = q @ (np.eye(5) - tau * np.outer(v, v.conj()))
    wanted = np.triu(packed, -1)
    if uplo:
        wanted = np.diag(np.diag(packed)) + np.diag(np.diag(packed, -1), -1)
        wanted = wanted + np.tril(wanted, -1).conj().T
    np.testing.assert_allclose(q.conj().T @ x @ q, wanted, atol=1e-12)
