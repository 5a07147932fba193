"""Singular and eigenvectors: their signs are free, so the products are compared, and that they are orthogonal."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tfbridge


def _adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


def _check_orthogonal(x: np.ndarray, tolerance: float) -> None:
    gram = _adjoint(x) @ x
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(gram.shape[-1]), gram.shape), 0, tolerance)


def _matrices(dims: tuple[int, ...], type_: str) -> np.ndarray:
    random = np.random.default_rng(0)
    x = random.normal(size=dims)
    return (x + 1j * random.normal(size=dims) if type_.startswith("complex") else x).astype(type_)


@pytest.mark.parametrize("type_", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("dims", [(2, 7, 4), (4, 7), (5, 5), (1, 3), (40, 3)])
@pytest.mark.parametrize("full", [False, True])
def test_svd(type_: str, dims: tuple[int, ...], full: bool) -> None:
    tolerance = 1e-10 if type_ == "float64" else 1e-4
    x = _matrices(dims, type_)
    expected = [t.numpy() for t in tf.linalg.svd(x, full_matrices=full)]
    s, u, v = (
        t.numpy() for t in tfbridge.jit(lambda x: tf.linalg.svd(x, full_matrices=full), strict=True)(x)
    )
    assert [a.shape for a in (s, u, v)] == [a.shape for a in expected]
    np.testing.assert_allclose(s, expected[0], tolerance, tolerance)
    least = s.shape[-1]
    np.testing.assert_allclose(
        u[..., :least] * s[..., None, :] @ _adjoint(v[..., :least]), x, tolerance, tolerance
    )
    _check_orthogonal(u, tolerance)
    _check_orthogonal(v, tolerance)


@pytest.mark.parametrize("copies", [1, 5])
def test_svd_of_deficient_rank(copies: int) -> None:
    x = np.array([[1, 2, 3], [2, 4, 6], [0, 0, 0], [0, 0, 0]] * copies, np.float32)
    s, u, v = (
        t.numpy() for t in tfbridge.jit(lambda x: tf.linalg.svd(x, full_matrices=True), strict=True)(x)
    )
    np.testing.assert_allclose(u[:, :3] * s @ v.T, x, 1e-5, 1e-5)
    _check_orthogonal(u, 1e-5)
    _check_orthogonal(v, 1e-5)


@pytest.mark.parametrize("type_", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("size", [1, 2, 7, 12])
def test_eigenvectors(type_: str, size: int) -> None:
    tolerance = 1e-4 if type_ == "float32" else 1e-9
    x = _matrices((2, size, size), type_)
    x = x @ _adjoint(x)
    values, vectors = (t.numpy() for t in tfbridge.jit(tf.linalg.eigh, strict=True)(x))
    np.testing.assert_allclose(
        vectors * values[..., None, :] @ _adjoint(vectors), x, tolerance, 10 * tolerance
    )
    _check_orthogonal(vectors, tolerance)
