"""HLO text that JAX prints: parsed, printed again, and computing what JAX computes, before and after the passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tfbridge.compiler import evaluate, parse_hlo, run_pipeline, verify
from tfbridge.compiler.passes.pipeline import verify_step

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
NHWC = ("NHWC", "HWIO", "NHWC")


def f32(*dims: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


def conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=NHWC)


def dilated_conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), [(1, 2), (0, 1)], (2, 1), (1, 2), feature_group_count=2)


def pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


ROWS = np.array([1, 6, 1], np.int32)
CASES: dict[str, tuple[Callable[..., Any], ...]] = {
    "conv": (conv, f32(1, 8, 8, 3), f32(3, 3, 3, 4)),
    "dilated_conv": (dilated_conv, f32(1, 4, 8, 8), f32(6, 2, 3, 3)),
    "conv_gradient": (
        jax.grad(lambda x, w: (conv(x, w) ** 2).sum(), (0, 1)),
        f32(2, 6, 6, 3),
        f32(3, 3, 3, 4),
    ),
    "scan": (lambda x: lax.scan(lambda c, t: (c + t, c * t), jnp.zeros(3), x), f32(5, 3)),
    "while": (
        lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.5 + 1), (0, x)),
        f32(4),
    ),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, x), f32(4)),
    "switch": (
        lambda i, x: lax.switch(i, [lambda a: a, lambda a: a * 2, lambda a: -a], x),
        np.int32(1),
        f32(4),
    ),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(x, 0)), f32(3, 7)),
    "gather": (lambda x, i: (x[i], x[i[0]], jnp.take(x, i, 1, mode="clip")), f32(7, 3), ROWS),
    "scatter": (
        lambda x, i, u: (x.at[i].add(u), x.at[i].max(1.0), x.at[i, 0].multiply(2.0)),
        f32(7, 3),
        ROWS,
        f32(3, 3),
    ),
    "dynamic": (
        lambda x, u, i: (lax.dynamic_update_slice(x, u, (i, 0)), lax.dynamic_slice(x, (i, 0), (2, 3))),
        f32(7, 3),
        f32(2, 3),
        np.int32(9),
    ),
    "pool": (pool, f32(1, 4, 4, 2)),
    "pool_gradient": (jax.grad(lambda x: pool(x).sum()), f32(1, 4, 4, 2)),
    "einsum": (
        lambda a, b: (jnp.einsum("ijk,kjl->il", a, b), jnp.einsum("bij,bkj->bik", a, a)),
        f32(2, 3, 4),
        f32(4, 3, 5),
    ),
    "random": (lambda: jax.random.normal(jax.random.PRNGKey(3), (4,)),),
    "philox": (
        lambda k: lax.rng_bit_generator(k, (4,), algorithm=lax.RandomAlgorithm.RNG_PHILOX),
        np.arange(4, dtype=np.uint32),
    ),
    "f8": (lambda x: (x.astype(jnp.float8_e4m3fn), jnp.array([1.5, np.nan], jnp.float8_e5m2)), f32(2)),
    "complex": (
        lambda x: jnp.abs(x * jnp.array([1 + 2j, 3 - 1j])) + jnp.real(x),
        (f32(2) + 1j).astype(np.complex64),
    ),
    "constants": (
        lambda: (
            np.array([np.nan, np.inf, -np.inf, -0.0], np.float32),
            np.ones((2, 1), bool),
            np.zeros((0, 3), np.int8),
        ),
    ),
    "softmax": (lambda x: (jax.nn.softmax(x), jnp.argmax(x, 1), jnp.cumsum(x, 0)), f32(3, 4)),
    "functions": (
        lambda x: (
            jax.nn.gelu(x, approximate=False)
            + jnp.tan(x)
            + jnp.sinh(x)
            + jnp.cbrt(x)
            + lax.rsqrt(x * x)
            + jnp.arctan2(x, 1 + x)
            + jnp.log1p(jnp.abs(x))
            + jnp.expm1(x)
        ),
        f32(9),
    ),
    "integers": (
        lambda x: (x // 3, x % 5, x << 2, x >> 1, lax.population_count(x), lax.clz(x), ~x),
        np.arange(-4, 5, dtype=np.int32),
    ),
    "pad": (
        lambda x: (lax.pad(x, 0.0, ((1, -1, 2), (0, 3, 0))), jnp.concatenate([x, x[:, ::-1]], 1)),
        f32(3, 4),
    ),
    "gradient": (jax.value_and_grad(lambda w, x: jnp.tanh(x @ w).mean()), f32(4, 3), f32(5, 4)),
    "bits": (
        lambda x: (lax.bitcast_convert_type(x, jnp.uint8), lax.reduce_precision(x, 5, 10), jnp.round(x)),
        f32(3),
    ),
    "map": (lambda x: lax.map(lambda r: r.sum(), x), f32(3, 4)),
    "iota": (lambda: (jnp.arange(5), jnp.eye(3), jnp.tri(3)),),
}


@pytest.mark.parametrize("name", CASES)
def test_text_of_jax(name: str) -> None:
    function, *arguments = CASES[name]
    lowered = jax.jit(function).lower(*arguments)
    text = lowered.compiler_ir("hlo").as_hlo_text()
    module = verify(parse_hlo(text))
    assert str(parse_hlo(str(module))) == str(module)
    wanted = jax.tree.leaves(lowered.compile()(*arguments))
    given = [np.asarray(a) for a in arguments][: len(module.entry.parameters)]
    for program in (module, run_pipeline(module, observer=verify_step)):
        with np.errstate(all="ignore"):
            found = jax.tree.leaves(evaluate(program, given))
        for one, other in zip(found, map(np.asarray, wanted), strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_allclose(
                one.astype(np.complex128), other.astype(np.complex128), rtol=2e-4, atol=1e-5
            )
