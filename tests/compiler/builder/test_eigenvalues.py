"""Schur form, eigenvalues and eigenvectors of general matrices: what they are defined by, on matrices of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from tfbridge.compiler import ComputationBuilder, LocalClient, array
from tfbridge.compiler.builder.lib.eig import eig, left_eigenvectors, schur

RANDOM = np.random.default_rng(0)
MATRICES = np.stack(
    [
        RANDOM.standard_normal((5, 5)),
        RANDOM.standard_normal((5, 5)) + 1j * RANDOM.standard_normal((5, 5)),
        np.roll(np.eye(5), 1, 0),  # does not move with Wilkinson's shift
        np.diag(np.ones(4), 1) + 2 * np.eye(5),  # one eigenvector
        np.zeros((5, 5)),
        np.diag([1, 1, 2, 2, 3]) + np.triu(RANDOM.standard_normal((5, 5)), 1),
        np.outer(RANDOM.standard_normal(5), RANDOM.standard_normal(5)),
        1e20 * RANDOM.standard_normal((5, 5)),
    ]
)


def decomposed(matrices: np.ndarray) -> list[np.ndarray]:
    """Eigenvalues, eigenvectors, triangular factor, Schur vectors."""
    kind = {8: "c64", 16: "c128"}[matrices.dtype.itemsize]
    b = ComputationBuilder("main")
    x = b.parameter(0, array(kind, *matrices.shape), "x")
    return LocalClient().compile(b.build(b.tuple([*eig(b, x), *schur(b, x)]))).execute([matrices])


def size(x: np.ndarray) -> np.ndarray:
    return np.linalg.norm(x, axis=(-2, -1))


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_definitions_hold(kind: type) -> None:
    x = MATRICES.astype(kind)
    values, vectors, t, q = (one.astype(np.complex128) for one in decomposed(x))
    x = x.astype(np.complex128)
    bound = 60 * np.finfo(kind).eps * size(x)
    assert np.all(size(q @ t @ q.conj().swapaxes(1, 2) - x) <= bound)
    assert np.all(size(q @ q.conj().swapaxes(1, 2) - np.eye(5)) <= 60 * np.finfo(kind).eps)
    assert not np.any(np.tril(t, -1))
    assert np.all(size(x @ vectors - vectors * values[:, None]) <= bound)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_left_eigenvectors(kind: type) -> None:
    x = np.delete(MATRICES, 3, 0).astype(
        kind
    )  # all have five eigenvectors, or eigenvalues that are far apart
    b = ComputationBuilder("main")
    given = b.parameter(0, array({8: "c64", 16: "c128"}[x.dtype.itemsize], *x.shape))
    computation = b.build(b.tuple([eig(b, given)[0], left_eigenvectors(b, given)]))
    values, left = (one.astype(np.complex128) for one in LocalClient().compile(computation).execute([x]))
    rows, x = left.conj().swapaxes(1, 2), x.astype(np.complex128)
    assert np.all(size(rows @ x - values[..., None] * rows) <= 60 * np.finfo(kind).eps * size(x))
    np.testing.assert_allclose(np.linalg.norm(left, axis=1), 1, rtol=1e-5)


def test_eigenvalues_are_numpys() -> None:
    x = MATRICES[:2]
    found, wanted = np.sort_complex(decomposed(x)[0]), np.sort_complex(np.linalg.eigvals(x))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_one_element_and_nan() -> None:
    values, vectors, t, q = decomposed(np.full((1, 1, 1), 3 + 1j))
    assert values == t == 3 + 1j and vectors == q == 1
    assert np.isnan(decomposed(np.full((1, 3, 3), np.nan + 0j))[0]).all()
