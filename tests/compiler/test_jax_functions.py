"""Functions of JAX, lowered to HLO and StableHLO text, run on the cpu platform and compared with JAX's own results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tfbridge.compiler import LocalClient, Module, parse_hlo, parse_stablehlo

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


def of_hlo(lowered: Any) -> Module:
    """The module of HLO text."""
    return parse_hlo(lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True))


def of_stablehlo(lowered: Any) -> Module:
    """The module of StableHLO text, which is the same in generic form and with locations."""
    module, located = parse_stablehlo(lowered.as_text()), parse_stablehlo(lowered.as_text(debug_info=True))
    generic = lowered.compiler_ir("stablehlo").operation.get_asm(print_generic_op_form=True)
    assert instructions(module) == instructions(located) == instructions(parse_stablehlo(generic))
    metadata = [i.metadata for c in located.computations() for i in c.instructions]
    assert any(m.op_name.startswith("jit(") and m.source_file and m.source_line for m in metadata)
    return module


def instructions(module: Module) -> list[tuple[str, str]]:
    """Opcode and shape of every instruction."""
    return sorted((i.opcode, str(i.shape)) for c in module.computations() for i in c.instructions)


def check(group: Group) -> None:
    """Runs the group's module, read from both kinds of text, and compares every function's results."""
    table = functions(group)
    lowered = jax.jit(lambda *a: {name: f(*a) for name, f in table.items()}, keep_unused=True).lower(
        *group.arguments
    )
    by_jax = lowered.compile()(*group.arguments)
    wanted = [(name, np.asarray(one)) for name in sorted(by_jax) for one in jax.tree.leaves(by_jax[name])]
    wrong = []
    for read in (of_hlo, of_stablehlo):
        module = read(lowered)
        assert str(parse_hlo(str(module))) == str(module)
        results = LocalClient().compile(module).execute(list(map(np.asarray, group.arguments)))
        for result, (name, other) in zip(results, wanted, strict=True):
            if problem := difference(result, other, group.tolerance):
                wrong.append(f"{name}, {read.__name__}: {problem}")
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
