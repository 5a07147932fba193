"""StableHLO modules in TensorFlow's graphs, as JAX exports them, and custom calls of registered functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tfbridge.compiler.errors import UnsupportedError

jax = pytest.importorskip("jax")
jax2tf = pytest.importorskip("jax.experimental.jax2tf")

import jax.numpy as jnp  # noqa: E402  after importorskip

RANDOM = np.random.default_rng(5)
TYPES = ("float32", "float64", "float16", "complex64", "int8", "bool")
TABLES = [RANDOM.uniform(-2, 2, (30, 3)).astype(t) for t in TYPES]
TABLES.append(jnp.asarray(TABLES[0], jnp.bfloat16))


def with_tables(x: Any, y: Any) -> Any:
    """Constants of all kinds that the module's text leaves out."""
    return [jnp.real(jnp.asarray(t)).astype(jnp.float32) @ x.T for t in TABLES]


def layers(x: Any, y: Any) -> Any:
    hidden = jax.nn.gelu(x @ y)
    return jax.nn.softmax(hidden), jnp.argsort(hidden, 1), hidden.mean(0)


def loops(x: Any, y: Any) -> Any:
    last, kept = jax.lax.scan(lambda carry, row: (carry * 0.5 + row, carry.sum()), jnp.zeros_like(x[0]), x)
    chosen = jax.lax.cond(last.sum() > 0, lambda: last, lambda: -last)
    return chosen, kept, jax.lax.fori_loop(0, 5, lambda i, c: c + y, y)


def converted(function: Callable[..., Any], polymorphic: bool = False) -> Any:
    shapes = ["(b, 3)", None] if polymorphic else None
    return tf.function(jax2tf.convert(function, polymorphic_shapes=shapes), autograph=False)


def inputs(rows: int) -> tuple[tf.Tensor, tf.Tensor]:
    return (
        tf.constant(RANDOM.standard_normal((rows, 3)), tf.float32),
        tf.constant(RANDOM.standard_normal((3, 5)), tf.float32),
    )


def compare(found: Any, wanted: Any) -> None:
    for f, w in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        assert (f.dtype, f.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(f, w, 1e-5, 1e-5)


@pytest.mark.parametrize("function", [with_tables, layers, loops])
def test_a_function_of_jax(function: Callable[..., Any]) -> None:
    for polymorphic in (False, True):
        plain = converted(function, polymorphic)
        compiled = tfbridge.jit(plain, strict=True)
        for rows in (4, 7) if polymorphic else (4,):
            given = inputs(rows)
            tfbridge.reset_stats()
            compare(compiled(*given), plain(*given))
            assert not tfbridge.stats()["fallbacks"]


def test_gradient() -> None:
    plain = converted(layers)

    def loss(x: tf.Tensor, y: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            total = tf.reduce_sum(plain(x, y)[0][:, 0] ** 2)
        return tape.gradient(total, [x, y])

    given = inputs(4)
    tfbridge.reset_stats()
    compare(tfbridge.jit(loss, strict=True)(*given), loss(*given))
    assert not tfbridge.stats()["fallbacks"]


def test_a_saved_model(tmp_path: Path) -> None:
    module = tf.Module()
    module.f = tf.function(
        jax2tf.convert(layers, polymorphic_shapes=["(b, 3)", None]),
        autograph=False,
        input_signature=[tf.TensorSpec((None, 3)), tf.TensorSpec((3, 5))],
    )
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    given = inputs(6)
    compare(tfbridge.jit(loaded.f, strict=True)(*given), module.f(*given))


def first_version(name: str, x: tf.Tensor) -> tf.Tensor:
    return gen_xla_ops.xla_custom_call(
        [x], target_name=name, backend_config="", dtype=tf.float32, shape=x.shape
    )


def second_version(name: str, x: tf.Tensor) -> tf.Tensor:
    return gen_xla_ops.xla_custom_call_v2(
        [x],
        call_target_name=name,
        backend_config="",
        has_side_effect=False,
        result_dtypes=[tf.float32, tf.int32],
        result_shapes=[[4, 3]] * 2,
    )[1]


def test_custom_call() -> None:
    x = tf.constant(RANDOM.standard_normal((4, 9)), tf.float32)
    compiled = tfbridge.jit(
        lambda x: (first_version("Sharding", x) * 2.0, second_version("TopK", -x)), strict=True
    )
    tfbridge.reset_stats()
    doubled, places = compiled(x)
    np.testing.assert_array_equal(doubled, 2 * x)
    np.testing.assert_array_equal(places, tf.math.top_k(-x, 3).indices)
    assert not tfbridge.stats()["fallbacks"]


@pytest.mark.parametrize("version", [first_version, second_version])
def test_custom_call_of_nothing(version: Callable[..., tf.Tensor]) -> None:
    with pytest.raises(UnsupportedError, match="its target unheard_of is no function of a library"):
        tfbridge.jit(lambda x: version("unheard_of", x), strict=True)(tf.ones(4))
