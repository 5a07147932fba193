"""Functions whose loops and branches are Python's are traced without AutoGraph; others, and results, are as with it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.dispatch import autograph_bypass
from tfbridge.bridge.tf_internals import symbols

pytestmark = pytest.mark.skipif(
    symbols.AUTOGRAPH in symbols.missing(), reason="every function goes through AutoGraph"
)

X = tf.constant([1.0, -2.0, 3.0])
WEIGHTS = [tf.constant(2.0), tf.constant(3.0)]
FLAG = tf.constant(True)


class Settings:
    negate = False

    def __init__(self) -> None:
        self.steps, self.weights = 3, {"a": tf.constant(2.0)}


SETTINGS = Settings()


def helper(x: tf.Tensor) -> tf.Tensor:
    return tf.exp(x) + math.sqrt(4.0)


def absolute(x: tf.Tensor) -> tf.Tensor:
    if tf.reduce_sum(x) > 0:
        return x
    return -x


def straight(x: tf.Tensor) -> tf.Tensor:
    return helper(x * 2.0) - helper(x)


def over_list(x: tf.Tensor, weights: list[tf.Tensor] = WEIGHTS) -> tf.Tensor:
    for k, w in enumerate(weights[1:]):
        if k % 2 == 0:
            x = x * w
    return x


def over_settings(x: tf.Tensor) -> tf.Tensor:
    for _ in range(SETTINGS.steps):
        x = x + 1.0
    for _, w in SETTINGS.weights.items():
        x *= w
    return -x if SETTINGS.negate else x


def over_pairs(x: tf.Tensor, *more: tf.Tensor) -> list[tf.Tensor]:
    results = []
    for w, y in zip(WEIGHTS, more):
        results += [x * w + y]
    i = 0
    while i < len(results) and not i > 5:
        results[i] = results[i] + float(i)
        i += 1
    return [r + 1.0 for r in results if r is not None]


def with_none(x: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
    if not (mask is None or isinstance(mask, tf.Tensor)):
        raise TypeError
    try:
        return x if mask is None else x * mask
    finally:
        print("done")


def with_inner(x: tf.Tensor) -> tf.Tensor:
    size = 2.0

    def step(n: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return n + 1, helper(y) / size

    return tf.while_loop(lambda n, y: n < 3, step, (0, x))[1] + (lambda y: y * size)(x)


def with_tape(x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(helper(x))
    return tape.gradient(y, x)


def calls_absolute(x: tf.Tensor) -> tf.Tensor:
    return absolute(x) + functools.partial(absolute)(-x)


def prints(x: tf.Tensor) -> tf.Tensor:
    print(x)
    return x + len([1, 2])


PYTHON: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        straight,
        over_list,
        over_settings,
        over_pairs,
        with_none,
        with_inner,
        with_tape,
        calls_absolute,
        prints,
    )
}
PYTHON |= {
    "lambda": lambda x: tf.nn.relu(x * 2.0) - (0.5),
    "nested_lambda": (lambda w: lambda x, *y: x * w)(3.0),
}


def over_tensor(x: tf.Tensor) -> tf.Tensor:
    total = tf.constant(0.0)
    for value in x:
        total += value
    return total


def over_tensors_of(x: tf.Tensor) -> tf.Tensor:
    rows = [x, x]
    for row in rows:
        for value in row:
            x = x + value
    return x


def while_tensor(x: tf.Tensor) -> tf.Tensor:
    while tf.reduce_sum(x) < 100.0:
        x = x * 2.0
    return x


def range_of_tensor(x: tf.Tensor) -> tf.Tensor:
    for _ in range(tf.size(x)):
        x = x + 1.0
    return x


def grown(x: tf.Tensor) -> tf.Tensor:
    n = 0
    for _ in tf.range(3):
        n += 1
    return x + tf.cast(n, tf.float32)


def turned(x: tf.Tensor) -> tf.Tensor:
    n = 0
    n = n + x[0]
    return x if n > 0 else -x


def both(x: tf.Tensor) -> tf.Tensor:
    good = x[0] > 0 and x[1] > 0
    return tf.cast(not good, tf.float32)


def by_flag(x: tf.Tensor) -> tf.Tensor:
    return x if FLAG else -x


def inner_branch(x: tf.Tensor) -> tf.Tensor:
    def choose(y: tf.Tensor) -> tf.Tensor:
        if y[0] > 0:
            return y
        return -y

    return choose(x)


def shadowed(x: tf.Tensor) -> tf.Tensor:
    range = tf.range  # noqa: A001
    for k in range(3):
        x = x + tf.cast(k, tf.float32)
    return x


def over_data(x: tf.Tensor) -> tf.Tensor:
    for row in tf.data.Dataset.range(3):
        x = x + tf.cast(row, tf.float32)
    return x


AUTOGRAPHS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        absolute,
        over_tensor,
        over_tensors_of,
        while_tensor,
        range_of_tensor,
        grown,
        turned,
        both,
        by_flag,
        inner_branch,
        shadowed,
        over_data,
    )
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the functions that were made ready without AutoGraph."""
    names: list[str] = []
    original = autograph_bypass.converted

    def converted(function: Any, *args: Any) -> Any:
        result = original(function, *args)
        if result is not None:
            names.append(result.__name__)
        return result

    monkeypatch.setattr(autograph_bypass, "converted", converted)
    return names


def _arguments(function: Callable[..., Any]) -> list[tf.Tensor]:
    return [X, X + 1.0, X * 2.0] if function is over_pairs else [X]


def _same(function: Callable[..., Any], *args: Any) -> None:
    wanted, got = tf.function(function)(*args), tfbridge.jit(function)(*args)
    for a, b in zip(tf.nest.flatten(wanted), tf.nest.flatten(got), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5)


@pytest.mark.parametrize("name", PYTHON)
def test_python_flow_needs_no_autograph(name: str, made: list[str]) -> None:
    function = PYTHON[name]
    _same(function, *_arguments(function))
    assert function.__name__ in made
    assert "absolute" not in made


@pytest.mark.parametrize("name", AUTOGRAPHS)
def test_flow_on_tensors_is_autographs(name: str, made: list[str]) -> None:
    function = AUTOGRAPHS[name]
    _same(function, X)
    _same(function, -X)
    assert name not in made


def test_what_an_argument_is_decides(made: list[str]) -> None:
    def function(x: tf.Tensor, flag: Any) -> tf.Tensor:
        return x if flag else -x

    _same(function, X, False)
    assert made == ["function"]
    del made[:]
    _same(function, X, tf.constant(False))
    assert made == []


def test_helpers_are_converted_too(made: list[str]) -> None:
    _same(straight, X)
    assert made == ["straight", "helper", "helper"]


def test_methods_and_their_attributes(made: list[str]) -> None:
    class Layers(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = [tf.Variable(2.0), tf.Variable(3.0)]
            self.training = False

        @property
        def looks(self) -> tf.Tensor:
            return FLAG

        @tfbridge.jit
        def run(self, x: tf.Tensor) -> tf.Tensor:
            for w in self.weights:
                x = x * w
            return x + 1.0 if self.training else x

        @tfbridge.jit
        def computed(self, x: tf.Tensor) -> tf.Tensor:
            return x if self.looks else -x

        @tfbridge.jit
        def changed(self, x: tf.Tensor) -> tf.Tensor:
            self.training = x[0] > 0
            return x if self.training else -x

    layers = Layers()
    np.testing.assert_allclose(layers.run(X), X * 6.0)
    assert made == ["run"]
    np.testing.assert_allclose(layers.computed(X), X)
    np.testing.assert_allclose(layers.changed(-X), X)
    assert made == ["run"]


def test_instances_that_are_called(made: list[str]) -> None:
    class Scaled(tf.Module):
        def __init__(self, by: list[float]) -> None:
            super().__init__()
            self.by = by

        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            for factor in self.by:
                x = x * factor
            return x

    class Chosen(tf.Module):
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return absolute(x) if x[0] > 0 else x

    scaled, chosen = Scaled([2.0, 3.0]), Chosen()
    _same(lambda x: scaled(x) + chosen(x), X)
    assert made == ["<lambda>", "__call__"]
    np.testing.assert_allclose(tfbridge.jit(scaled)(X), X * 6.0)


def test_changed_closures_and_defaults() -> None:
    def outer(scale: float) -> Callable[..., Any]:
        def function(x: tf.Tensor, shift: float = scale, *, more: float = 2 * scale) -> tf.Tensor:
            return helper(x) * scale + shift + more

        return function

    for scale in (1.0, 2.0):
        _same(outer(scale), X)
        np.testing.assert_allclose(
            tfbridge.jit(outer(scale))(X, more=0.0), outer(scale)(X, more=0.0), rtol=1e-5
        )


def test_functions_that_were_made_from_other_text(tmp_path: Any, made: list[str]) -> None:
    """The text of the file is not that of the function any more."""
    path = tmp_path / "changing.py"
    path.write_text("def function(x):\n    return abs(x) + 1.0\n")
    space: dict[str, Any] = {"__name__": "changing"}
    exec(compile(path.read_text(), str(path), "exec"), space)
    path.write_text("def function(x):\n    return abs(x) - 1.0\n")
    assert autograph_bypass.converted(space["function"], (X,), {}, True) is None
    assert made == []


def test_what_is_not_to_be_converted_is_not(made: list[str]) -> None:
    plain = tf.autograph.experimental.do_not_convert(helper)
    _same(plain, X)
    _same(tf.function(helper, autograph=False), X)
    assert made == []


def test_an_error_is_that_of_the_function() -> None:
    class OwnError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(one, two)

    def function(x: tf.Tensor) -> tf.Tensor:
        raise OwnError(1, 2)

    with pytest.raises(OwnError):
        tfbridge.jit(function)(X)
