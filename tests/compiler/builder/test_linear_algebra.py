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
