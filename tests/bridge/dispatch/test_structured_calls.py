"""Calls with keywords, Python values, arrays and nested arguments: as TensorFlow answers them, again and again."""

from __future__ import annotations

import collections
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.api.jit import Jit

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Point = collections.namedtuple("Point", "x y")
MODULE = tf.Module("scale")
MODULE.factor = tf.Variable(3.0)


def both(function: Any, *calls: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    """Every call three times, in turn, gives what it does in TensorFlow: values, types and structure."""
    compiled, plain = tfbridge.jit(function, strict=True), tf.function(function)
    for args, kwargs in [call for _ in range(3) for call in calls]:
        wanted, found = plain(*args, **kwargs), compiled(*args, **kwargs)
        tf.nest.assert_same_structure(wanted, found, check_types=True, expand_composites=True)
        for a, b in zip(
            tf.nest.flatten(wanted, expand_composites=True),
            tf.nest.flatten(found, expand_composites=True),
            strict=True,
        ):
            assert a is b is None or (a.dtype, a.shape) == (b.dtype, b.shape)
            assert a is None or np.allclose(a, b)


def call(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def power(x: Any, k: Any = 3, scale: Any = 1.0) -> Any:
    return tf.nn.relu(x * scale) ** k


def test_keywords_and_python_values() -> None:
    t = tf.constant(X)
    both(
        power,
        call(t),
        call(x=t),
        call(t, 2),
        call(t, scale=0.5),
        call(t, scale=0.5, k=2),
        call(k=2, x=t, scale=4.0),
        call(t, tf.constant(2.0)),
        call(t, scale=True),
        call(t, scale=1),
        call(t[:1], scale=0.5),
    )


def test_arrays() -> None:
    both(
        power,
        call(X),
        call(X.T),
        call(X[:, ::2], k=2),
        call(X[:0]),
        call(np.float32(3.0)),
        call(X.astype("f8")),
        call(tf.constant(X)),
    )
    compiled = tfbridge.jit(power)
    array = X.copy()
    compiled(array)
    array[0, 1] = 9.0
    assert float(compiled(array)[0, 1]) == 9.0**3


@pytest.mark.parametrize(
    ("signature", "args"),
    [
        (None, (X,)),
        (None, (X.astype("f8"), 2)),
        (None, (tf.constant(X), np.int64(3))),
        (None, (np.float32(2.0), np.float32(3.0))),
        (None, ({"x": X, "k": np.float32(2.0)},)),
        (None, (collections.OrderedDict(x=X, k=np.float32(2.0)),)),
        (None, (X, tf.nn.relu)),
        (None, (X, tf.float64)),
        (None, (X, MODULE)),
        (None, (Point(X, np.float32(2.0)),)),
        (None, (Point(tf.constant(X), tf.constant(2.0)),)),
        ([tf.TensorSpec([None, 3]), tf.TensorSpec([])], (X, np.float32(2.0))),
        ([tf.TensorSpec([None, 3]), tf.TensorSpec([])], (X.astype("f8"), np.float64(2.0))),
        ([tf.TensorSpec([None, 3]), tf.TensorSpec([])], (X.astype("i4"), tf.constant(2.0))),
    ],
)
def test_calls_with_arrays_are_found_again(
    signature: Any, args: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow is asked for the function of arrays like these once, whatever types it gives them."""
    firsts: list[object] = []
    first_call = Jit._first_call
    monkeypatch.setattr(Jit, "_first_call", lambda *a: firsts.append(a) or first_call(*a))

    def function(x: Any, k: Any = 2) -> Any:
        if isinstance(k, tf.DType):
            return tf.cast(x, k) * 2
        if callable(k) or isinstance(k, tf.Module):
            return k(x) if callable(k) else x * k.factor
        if isinstance(x, Point):
            return x.x**x.y
        return x["x"] ** x["k"] if isinstance(x, dict) else x ** tf.cast(k, x.dtype)

    plain = tf.function(function, input_signature=signature)
    compiled = tfbridge.jit(plain)
    for _ in range(4):
        wanted, found = plain(*args), compiled(*args)
        assert wanted.dtype == found.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert len(firsts) == 1


def test_objects_are_told_apart_and_not_kept() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

    compiled = tfbridge.jit(lambda x, scale: x * scale.factor)
    two, three = Scale(2.0), Scale(3.0)
    for _ in range(3):
        for scale in (two, three):
            np.testing.assert_array_equal(compiled(X, scale), X * scale.factor)
    kept = weakref.ref(two)
    del two, scale
    gc.collect()
    assert kept() is None
    for factor in range(4, 8):  # perhaps where another one was
        np.testing.assert_array_equal(compiled(X, Scale(float(factor))), X * factor)


class Pair(tf.experimental.ExtensionType):
    first: tf.Tensor
    power: int


def test_variables_extension_types_and_variants_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call of each kind alone asks TensorFlow for the function; others of the kind are told apart."""
    firsts = []
    first_call = Jit._first_call
    monkeypatch.setattr(Jit, "_first_call", lambda *a: firsts.append(a) or first_call(*a))

    def function(x: Any, y: Any) -> Any:
        if isinstance(x, Pair):
            return Pair(x.first**x.power * y, x.power)
        if isinstance(x, list):
            x[0].assign_add(y)
            return x[0] * x[1]
        return x.get_value() * y if isinstance(x, tf.experimental.Optional) else x * y

    y = tf.constant(X)

    def arguments(factor: float) -> list[Any]:
        variables = [tf.Variable(factor * X), tf.Variable(factor)]
        optional = tf.experimental.Optional.from_value(factor * y)
        return [variables[0], variables, optional, Pair(factor * y, 2), Pair(factor * y[0], 3)]

    compiled, plain = tfbridge.jit(function), tf.function(function)
    for number, factor in enumerate((1.0, 2.0, 3.0)):
        for given, same in zip(arguments(factor), arguments(factor)):
            for _ in range(2):
                wanted, found = plain(same, y), compiled(given, y)
                tf.nest.assert_same_structure(wanted, found, check_types=True, expand_composites=True)
                for a, b in zip(*(tf.nest.flatten(v, expand_composites=True) for v in (wanted, found))):
                    np.testing.assert_allclose(a, b, rtol=1e-5)
        if number == 0:
            first_count = len(firsts)
    assert len(firsts) == first_count <= len(arguments(1.0))


def test_arrays_that_tensorflow_refuses() -> None:
    compiled = tfbridge.jit(tf.function(lambda x: x + 1.0, input_signature=[tf.TensorSpec([3])]))
    for wrong in (X, np.array(["a", "b", "c"])):
        for _ in range(2):
            with pytest.raises((TypeError, ValueError)):
                compiled(wrong)
    assert compiled(np.zeros(3)).numpy().tolist() == [1.0, 1.0, 1.0]


def test_nested_arguments_and_results() -> None:
    def function(d: Any, items: Any, point: Any = None) -> Any:
        total = d["b"] @ d["a"] + items[0] * (2.0 if isinstance(items, list) else 3.0)
        extra = total if point is None else total + point.x - point.y
        return {"z": (total, [extra, None]), "a": {"only": total * 2.0}, "list": [], "rest": tuple(items)}

    a, b, c, d = (
        tf.constant(X.T),
        tf.constant(X),
        tf.constant(np.eye(2, dtype=np.float32)),
        tf.constant(5.0),
    )
    both(
        function,
        call({"a": a, "b": b}, [c, d]),
        call({"b": b, "a": a}, (c, d)),
        call({"b": X, "a": X.T}, [c]),
        call({"a": a, "b": b}, [c, d], Point(c, d)),
        call(d={"a": a, "b": b}, items=[c, d], point=None),
    )


def test_a_text_that_is_not_used() -> None:
    compiled = tfbridge.jit(lambda name, x: tf.nn.relu(x) * 2.0)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(tf.constant("name"), tf.constant(X)), X * 2.0)


def test_the_same_tensor_twice_first() -> None:
    def difference(x: Any, y: Any, z: Any = 0) -> Any:
        return x - 2.0 * y

    t = tf.constant(X)
    both(difference, call(x=t, y=t), call(y=t * 2.0, x=t), call(x=t, y=t + 1.0), call(x=t, y=t))


def test_ragged_and_sparse_tensors() -> None:
    def lengths(r: Any, factor: Any = 1.0) -> Any:
        return r.with_values(r.values * factor), r.row_lengths()

    both(
        lengths,
        call(tf.ragged.constant([[1.0, 2.0], [3.0]])),
        call(tf.ragged.constant([[1.0], [3.0, 4.0]]), factor=2.0),
    )

    def product(s: Any, x: Any) -> Any:
        return tf.sparse.sparse_dense_matmul(s, x) * 2.0, s.dense_shape

    x = tf.constant(np.arange(12, dtype=np.float32).reshape(3, 4))
    both(
        product,
        call(tf.sparse.from_dense([[0.0, 1.0, 2.0]]), x),
        call(tf.sparse.from_dense([[3.0, 0.0, 4.0]]), x),
        call(tf.sparse.from_dense([[0.0, 0.0, 4.0]]), x),
        call(tf.sparse.from_dense([[0.0, 1.0, 2.0]] * 2), x),
    )

    def scattered(slices: Any) -> Any:
        return tf.convert_to_tensor(slices) * 2.0

    for k in range(3):
        both(
            scattered,
            call(tf.IndexedSlices(tf.fill([2, 3], 1.0 + k), tf.constant([3, k]), tf.constant([4, 3]))),
        )


def test_a_signature_casts_as_tensorflow_does() -> None:
    traced = tf.function(
        lambda x, y: x + y, input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec([])]
    )
    compiled = tfbridge.jit(traced)
    for _ in range(3):
        for x, y in (([1.0, 2.0], 3), (np.ones(2, np.float32), 2.0), (tf.ones(3), tf.constant(1.0))):
            np.testing.assert_array_equal(compiled(x, y=y), traced(x, y=y))
        with pytest.raises(TypeError):
            compiled(tf.ones([2, 2]), y=1.0)


def test_methods_and_assigned_variables() -> None:
    class Counter:
        def __init__(self) -> None:
            self.total = tf.Variable(0.0)

        @tfbridge.jit
        def add(self, amounts: Any, *, weight: Any = 1.0) -> Any:
            return self.total.assign_add(weight * tf.add_n(amounts["of"]))

    one, other = Counter(), Counter()
    for k in range(1, 4):
        assert float(one.add({"of": [tf.constant(1.0), tf.constant(2.0)]}, weight=2.0)) == 6.0 * k
        assert float(other.add({"of": [tf.constant(1.0)]})) == k


def test_under_a_tape() -> None:
    compiled = tfbridge.jit(power)
    x = tf.constant(X)
    for _ in range(2):
        compiled(x, scale=2.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = compiled(x, scale=2.0)
        np.testing.assert_allclose(tape.gradient(y, x), 24.0 * X**2)


def test_functions_of_which_a_part_stays_in_tensorflow() -> None:
    def function(text: Any, x: Any, scale: Any = 1.0) -> Any:
        return tf.strings.as_string(x * scale), tf.strings.length(text)

    compiled, plain = tfbridge.jit(function), tf.function(function)
    for k in range(3):
        for args, kwargs in (
            call(tf.constant(["ab", "c"]), tf.constant([1.5 + k])),
            call(tf.constant("abc"), X + k),
            call(tf.constant(["ab"]), tf.constant([1.5 + k]), scale=2.0 + k),
        ):
            for wanted, found in zip(plain(*args, **kwargs), compiled(*args, **kwargs), strict=True):
                np.testing.assert_array_equal(found, wanted)
    with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
        compiled(tf.constant("a"), tf.constant("b"))
