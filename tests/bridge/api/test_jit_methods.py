"""Methods compiled by `tfbridge.jit`: one function per instance, saved and tracked as TensorFlow's functions are."""

from __future__ import annotations

import gc
import inspect
import weakref
from pathlib import Path

import numpy as np
import tensorflow as tf
import tfbridge


class _Scale(tf.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = tf.Variable(factor)
        self.sum = tfbridge.jit(lambda x: tf.reduce_sum(x * self.factor))

    @tfbridge.jit
    def scaled(self, x: tf.Tensor, offset: float = 1.0) -> tf.Tensor:
        return tf.nn.relu(x * self.factor) + offset

    @tfbridge.jit
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def step(self, x: tf.Tensor) -> tf.Tensor:
        self.factor.assign_add(tf.reduce_mean(x))
        return tf.exp(x) * self.factor


_X = tf.constant([1.0, -2.0, 3.0])


def test_instances_do_not_meet() -> None:
    one, other = _Scale(2.0), _Scale(5.0)
    for _ in range(3):
        np.testing.assert_allclose(one.scaled(_X), [3, 1, 7])
        np.testing.assert_allclose(other.scaled(_X, offset=0.0), [5, 0, 15])
    np.testing.assert_allclose(_Scale.scaled(other, _X), [6, 1, 16])
    assert list(inspect.signature(one.scaled).parameters) == ["x", "offset"]


def test_argument_names() -> None:
    assert inspect.getfullargspec(_Scale.scaled).args == ["self", "x", "offset"]
    assert inspect.getfullargspec(_Scale(1.0).sum).args == ["x"]
    np.testing.assert_allclose(tf.keras.layers.Lambda(tfbridge.jit(lambda x: x * 2))(_X), _X * 2)


def test_method_has_what_a_function_has() -> None:
    module = _Scale(2.0)
    np.testing.assert_allclose(module.scaled.native(_X.numpy()), [3, 1, 7])
    assert module.scaled.get_concrete_function(_X).structured_outputs.shape == [3]
    assert "1 cluster" in str(tfbridge.explain(module.scaled, _X))
    assert isinstance(module.scaled, tf.types.experimental.PolymorphicFunction)


def test_signature_of_a_method() -> None:
    module = _Scale(2.0)
    np.testing.assert_allclose(module.step(_X), np.exp(_X) * (2 + 2 / 3), rtol=1e-6)
    assert module.step(_X[:2]).shape == [2]
    assert module.step.experimental_get_tracing_count() == 1


def test_method_keeps_its_instance_alive_and_no_longer() -> None:
    scaled = _Scale(2.0).scaled
    gc.collect()
    np.testing.assert_allclose(scaled(_X), [3, 1, 7])
    np.testing.assert_allclose(scaled(_X[:2]), [3, 1])
    module = _Scale(3.0)
    module.scaled(_X)
    seen = weakref.ref(module)
    del module
    gc.collect()
    assert seen() is None


def test_saved_model(tmp_path: Path) -> None:
    module = _Scale(2.0)
    module.scaled(_X)
    module.sum(_X)
    tf.saved_model.save(module, str(tmp_path), signatures=module.step)
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(loaded.scaled(_X), [3, 1, 7])
    np.testing.assert_allclose(loaded.sum(_X), 4)
    np.testing.assert_allclose(loaded.step(_X), module.step(_X), rtol=1e-6)
    served = list(loaded.signatures["serving_default"](x=_X).values())
    np.testing.assert_allclose(served[0], module.step(_X), rtol=1e-6)


def test_checkpoint(tmp_path: Path) -> None:
    module, other = _Scale(2.0), _Scale(7.0)
    path = tf.train.Checkpoint(module=module).save(str(tmp_path / "state"))
    tf.train.Checkpoint(module=other).restore(path).assert_consumed()
    np.testing.assert_allclose(other.scaled(_X), [3, 1, 7])
