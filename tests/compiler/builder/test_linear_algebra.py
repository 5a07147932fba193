"""Fourier transforms, factorisation and solution in compiled code: properties and sizes that choose other code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tfbridge.compiler.builder.computation_builder import ComputationBuilder, Operand
from tfbridge.compiler.client.client import LocalClient
from tfbridge.compiler.cpu.fft.plan import halves, radices_of, smooth_length
from tfbridge.compiler.ir.element_types import element_type_of
from tfbridge.compiler.ir.shape import Shape


def builder(*arrays: np.ndarray) -> tuple[ComputationBuilder, list[Operand]]:
    """A builder with a parameter for each array."""
    b = ComputationBuilder("test")
    return b, [b.parameter(k, Shape(element_type_of(x.dtype), x.shape)) for k, x in enumerate(arrays)]


def run(b: ComputationBuilder, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What compiled code makes of the arrays."""
    return LocalClient("cpu").compile(b.build()).execute(list(arrays))


# -- Fourier transforms


def test_radices() -> None:
    for n in range(1, 3000):
        radices = radices_of(n)
        largest = max(
            (p for p in range(2, n + 1) if n % p == 0 and all(p % q for q in range(2, p))), default=1
        )
        assert (radices is None) == (largest > 13)
        assert radices is None or np.prod(radices, initial=1) == n
        assert smooth_length(n) >= n and radices_of(smooth_length(n)) is not None
        a, b = halves(n)
        assert a <= b and a * b == n


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 17, 48, 49, 53, 101, 128, 243, 750, 1009, 2310, 6562])
def test_fft(n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.standard_normal((3, n)) + 1j * rng.standard_normal((3, n))
    b, (given,) = builder(x)
    spectrum = b.fft(given, "FFT", (n,))
    half = b.fft(b.real(given), "RFFT", (n,))
    b.tuple([spectrum, b.fft(spectrum, "IFFT", (n,)), half, b.fft(half, "IRFFT", (n,))])
    spectrum_, again, half_, real = run(b, [x])
    size = np.abs(np.fft.fft(x)).max()
    np.testing.assert_allclose(spectrum_, np.fft.fft(x), atol=4e-15 * size)
    np.testing.assert_allclose(half_, np.fft.rfft(x.real), atol=4e-15 * size)
    np.testing.assert_allclose(again, x, atol=4e-14)
    np.testing.assert_allclose(real, x.real, atol=4e-14)


def test_irfft_does_not_read_what_an_rfft_gives_as_real() -> None:
    for n in (7, 8):
        x = np.ones(n // 2 + 1, np.complex64)
        other = x.copy()
        other[0] += 3j
        if n % 2 == 0:
            other[-1] += 5j
        b, (given,) = builder(x)
        b.fft(given, "IRFFT", (n,))
        np.testing.assert_array_equal(run(b, [x])[0], run(b, [other])[0])


# -- matrices


def definite(rng: np.random.Generator, n: int, dtype: str) -> np.ndarray:
    """A positive definite matrix."""
    x = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if dtype.startswith("complex") else 0)
    return (x @ x.conj().T / n + np.eye(n)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("n", [3, 64, 65, 131, 200])
def test_cholesky_and_solution_with_it(dtype: str, n: int) -> None:
    rng = np.random.default_rng(n)
    a, right = definite(rng, n, dtype), rng.standard_normal((n, 7)).astype(dtype)
    b, (matrix, sides) = builder(a, right)
    lower = b.cholesky(matrix, True)
    upper = b.cholesky(matrix, False)
    half = b.triangular_solve(lower, sides, True, True, False)
    b.tuple([lower, upper, b.triangular_solve(lower, half, True, True, False, "ADJOINT")])
    lower_, upper_, solution = run(b, [a, right])
    bound = 100 * np.finfo(dtype).eps
    assert not np.triu(lower_, 1).any() and not np.tril(upper_, -1).any()
    np.testing.assert_allclose(lower_ @ lower_.conj().T, a, atol=bound)
    np.testing.assert_allclose(upper_.conj().T @ upper_, a, atol=bound)
    np.testing.assert_allclose(a @ solution, right, atol=10 * bound)


def test_only_one_triangle_is_read() -> None:
    rng = np.random.default_rng(0)
    a = definite(rng, 100, "float64")
    right = rng.standard_normal((100, 3))
    for lower in (True, False):
        keep = np.tril if lower else np.triu
        other = np.where(keep(np.ones_like(a)) > 0, a, np.nan)
        unit = np.where(np.eye(100) > 0, np.nan, other)
        for given, is_unit in ((other, False), (unit, True)):
            b, (matrix, sides) = builder(given, right)
            b.tuple(
                [b.triangular_solve(matrix, sides, True, lower, is_unit)]
                + ([] if is_unit else [b.cholesky(matrix, lower)])
            )
            for found in run(b, [given, right]):
                assert np.isfinite(found).all()


def test_cholesky_of_what_is_not_definite_is_not_finite() -> None:
    a = np.eye(80, dtype=np.float32)
    a[70, 70] = -1
    b, (matrix,) = builder(a)
    b.cholesky(matrix, True)
    assert np.isnan(run(b, [a])[0]).any()


# -- LU decompositions, eigenvalues


def general(rng: np.random.Generator, dims: Sequence[int], dtype: str) -> np.ndarray:
    x = rng.standard_normal(dims)
    return (x + 1j * rng.standard_normal(dims) if np.dtype(dtype).kind == "c" else x).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(
    "dims", [(1, 1), (3, 5, 5), (2, 64, 64), (65, 65), (2, 150, 90), (90, 150), (7, 300)]
)
def test_factors_are_the_matrix_with_exchanged_rows(dtype: str, dims: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(dims))
    a = general(rng, dims, dtype)
    b, (matrix,) = builder(a)
    b.lu_decomposition(matrix)
    lu, pivots, permutation = run(b, [a])
    rank = min(dims[-2:])
    lower = np.tril(lu, -1)[..., :rank] + np.eye(dims[-2], rank, dtype=dtype)
    upper = np.triu(lu)[..., :rank, :]
    exchanged = np.take_along_axis(a, permutation[..., None], -2)
    np.testing.assert_allclose(lower @ upper, exchanged, atol=100 * dims[-1] * np.finfo(dtype).eps)
    assert (abs(lower) <= 1 + 1e-5).all()
    for index in np.ndindex(*dims[:-2]):
        order = np.arange(dims[-2])
        for k, row in enumerate(pivots[index]):
            order[[k, row]] = order[[row, k]]
        assert (order == permutation[index]).all()


def test_a_row_with_nan_keeps_its_finite_factors() -> None:
    """Of the row the columns before the NaN; and the rows that come before it."""
    a = np.array([[4, 1, 2, 1], [2, 5, 1, 1], [1, np.nan, 3, 1], [1, 1, 1, 9]], "f")
    b, (matrix,) = builder(a)
    b.lu_decomposition(matrix)
    lu = run(b, [a])[0]
    assert np.isfinite(lu[:2]).all() and lu[2, 0] == 0.25 and np.isnan(lu[2, 1:]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("dims", [(1, 1), (5, 2, 2), (4, 3, 3), (3, 17, 17), (64, 64), (2, 101, 101)])
def test_eigenvectors_are_unitary_and_belong_to_the_values(dtype: str, dims: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(dims))
    a = general(rng, dims, dtype)
    a = a + a.conj().swapaxes(-1, -2)
    upper = np.triu(np.full(dims, np.nan), 1).astype(dtype)  # is not read
    b, (matrix,) = builder(a)
    both, alone = b.self_adjoint_eig(matrix), b.self_adjoint_eig(matrix, vectors=False)
    b.tuple([b.get_tuple_element(both, 0), b.get_tuple_element(both, 1), b.get_tuple_element(alone, 0)])
    values, vectors, alone_ = run(b, [np.where(np.isnan(upper), upper, a)])
    wanted = np.linalg.eigvalsh(a.astype("c16" if a.dtype.kind == "c" else "f8"))
    bound = 20 * dims[-1] * np.finfo(dtype).eps
    for found in (values, alone_):
        np.testing.assert_allclose(found, wanted, atol=bound * max(1, abs(wanted).max()))
        assert (np.diff(found) >= 0).all()
    adjoint = vectors.conj().swapaxes(-1, -2)
    np.testing.assert_allclose(adjoint @ vectors, np.broadcast_to(np.eye(dims[-1]), dims), atol=bound)
    np.testing.assert_allclose(a @ vectors, vectors * values[..., None, :], atol=bound * 4)


def eigenvalues_of(a: np.ndarray) -> np.ndarray:
    b, (matrix,) = builder(a)
    b.self_adjoint_eig(matrix)
    values, vectors = run(b, [a])
    if np.isfinite(values).all():
        np.testing.assert_allclose(vectors @ vectors.conj().T, np.eye(len(a)), atol=1e-4)
    return values


@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1.0, 1e20, 1e37])
def test_eigenvalues_of_any_size(scale: float) -> None:
    a = np.array([[2, 1, 0], [1, 2, 1], [0, 1, 2]], "f") * np.float32(scale)
    np.testing.assert_allclose(eigenvalues_of(a) / scale, [2 - 2**0.5, 2, 2 + 2**0.5], rtol=1e-5)


def test_eigenvalues_of_special_matrices() -> None:
    assert (eigenvalues_of(np.zeros((5, 5), "f")) == 0).all()
    assert (eigenvalues_of(np.diag([3, -1, 2, 2]).astype("f")) == [-1, 2, 2, 3]).all()
    np.testing.assert_allclose(eigenvalues_of(np.ones((40, 40), "f")), [0] * 39 + [40], atol=1e-4)
    graded = np.diag(10.0 ** -np.arange(8)).astype("f") + np.float32(1e-30)
    np.testing.assert_allclose(eigenvalues_of(graded), np.sort(np.diag(graded)), atol=1e-6)
    for bad in (np.nan, np.inf):
        a = np.eye(6, dtype="f")
        a[4, 2] = bad
        assert np.isnan(eigenvalues_of(a)).all()
