"""Functions of JAX, lowered to HLO text, run on the cpu platform and compared with JAX's own results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tfbridge.compiler import LocalClient, parse_hlo

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402  after importorskip
from jax_functions import GROUPS, WIDE_GROUPS, Group  # noqa: E402


def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a weighted sum of the squares of a function's results for its first argument."""

    def weighted(leaf: Any) -> Any:
        return jnp.sum(leaf * leaf * jnp.linspace(0.5, 1, leaf.size, dtype=leaf.dtype).reshape(leaf.shape))

    def total(*arguments: Any) -> Any:
        leaves = jax.tree.leaves(function(*arguments))
        return sum(weighted(leaf) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact))

    return jax.grad(total)


def functions(group: Group) -> dict[str, Callable[..., Any]]:
    """The group's functions, and their gradients where they are wanted."""
    found = dict(group.functions)
    if group.gradient:
        found.update({f"{name}'": gradient(function) for name, function in group.functions.items()})
    return found


def check(group: Group) -> None:
    """Runs the group's module and compares every function's results."""
    table = functions(group)
    lowered = jax.jit(lambda *a: {name: f(*a) for name, f in table.items()}, keep_unused=True).lower(
        *group.arguments
    )
    module = parse_hlo(lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True))
    results = iter(LocalClient().compile(module).execute(list(map(np.asarray, group.arguments))))
    wanted = lowered.compile()(*group.arguments)
    wrong = []
    for name in sorted(wanted):
        for one in jax.tree.leaves(wanted[name]):
            other = np.asarray(one)
            problem = difference(next(results), other, group.tolerance)
            if problem:
                wrong.append(f"{name}: {problem}")
    assert next(results, None) is None
    assert not wrong, "\n".join(wrong)


_SMALL = ("indexing", "sorting", "control", "convolutions", "linear algebra", "loops")
OPTIMIZED = [g for g in GROUPS if g.name in _SMALL]


@pytest.mark.parametrize("group", OPTIMIZED, ids=lambda g: g.name.replace(" ", "_"))
def test_what_xla_made_of_them(group: Group) -> None:
    """The text after XLA's own passes: fusions, layouts of every order, bitcasts, library calls, typed operands."""
    together = jax.jit(lambda *a: {n: f(*a) for n, f in group.functions.items()}, keep_unused=True)
    executable = together.lower(*group.arguments).compile()
    module = parse_hlo(executable.as_text())
    assert str(parse_hlo(str(module))) == str(module)
    found = LocalClient().compile(module).execute(list(map(np.asarray, group.arguments)))
    wanted = list(map(np.asarray, jax.tree.leaves(executable(*group.arguments))))
    wrong = [difference(one, other, 2e-4) for one, other in zip(found, wanted, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


def difference(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> str:
    """What is wrong with a result, empty when it is near enough."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype}{found.shape} is not {wanted.dtype}{wanted.shape}"
    if found.dtype.kind in "biu":
        return "" if np.array_equal(found, wanted) else f"{found} is not {wanted}"
    a, b = found.astype(np.complex128).ravel(), wanted.astype(np.complex128).ravel()
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return f"{found} is not {wanted}"
    a, b = a[finite], b[finite]
    bound = tolerance * np.maximum(np.abs(b), np.abs(b).max(initial=0) * 0.1 + 1e-6)
    excess = float(np.max(np.abs(a - b) / bound, initial=0))
    return "" if excess <= 1 else f"{excess:.3g} times the tolerance away"


def test_there_are_enough() -> None:
    assert sum(len(g.functions) for g in (*GROUPS, *WIDE_GROUPS)) >= 400


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name.replace(" ", "_"))
def test_functions(group: Group) -> None:
    check(group)


@pytest.mark.parametrize("group", WIDE_GROUPS, ids=lambda g: g.name.replace(" ", "_"))
def test_wide_functions(group: Group) -> None:
    with jax.enable_x64(True):
        check(group)
