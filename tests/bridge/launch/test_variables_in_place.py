"""Variables that compiled code updates: in their own memory where nobody else holds it, with TensorFlow's semantics."""

from __future__ import annotations

import ctypes
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from in_threads import in_threads
from tfbridge.bridge.clustering.reports import recent_reports
from tfbridge.bridge.dispatch import fast_call_variables
from tfbridge.bridge.launch import cluster_registry, resource_variables
from tfbridge.bridge.tf_internals import symbols as private

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_this_tensorflow_has_what_it_needs():
    assert resource_variables.available()


def address(variable: tf.Variable) -> int:
    return private.data_of(variable.read_value())


def agree(build, calls: int = 3, *inputs) -> None:  # noqa: ANN001
    """`build()` gives a function and its variables; compiled or not, results and variables are the same."""
    found = []
    for wrap in (tf.function, tfbridge.jit):
        function, variables = build()
        wrapped = wrap(function)
        results = [tf.nest.flatten(wrapped(*inputs)) for _ in range(calls)]
        found.append(
            [t.numpy() for r in results for t in r if t is not None] + [v.numpy() for v in variables]
        )
    for wanted, made in zip(*found, strict=True):
        np.testing.assert_allclose(made.astype(np.float64), wanted.astype(np.float64), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "dtype",
    [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.int32, tf.int64, tf.uint8, tf.complex64],
)
@pytest.mark.parametrize("dims", [(3, 4), (), (1,), (257,)])
def test_update_keeps_the_memory(dtype, dims):
    v = tf.Variable(tf.cast(tf.ones(dims), dtype))

    @tfbridge.jit(strict=True)
    def step(x):
        v.assign(v * x + x)

    x, before = tf.cast(tf.fill(dims, 2), dtype), address(v)
    step(x)
    step(x)
    assert address(v) == before
    np.testing.assert_array_equal(v.numpy(), np.full(dims, 10, dtype.as_numpy_dtype))


def test_bool_and_empty():
    flag, none = tf.Variable([True, False]), tf.Variable(tf.zeros([0, 3]))

    @tfbridge.jit(strict=True)
    def step():
        flag.assign(tf.logical_not(flag))
        none.assign(none + 1.0)

    step()
    assert flag.numpy().tolist() == [False, True]
    assert none.shape == (0, 3)


def test_held_values_never_change():
    v = tf.Variable(X)
    step = tfbridge.jit(lambda: v.assign_add(v), strict=True)
    held = v.read_value()
    array = held.numpy()
    returned = step()
    second = v.value()
    step()
    np.testing.assert_array_equal(held, X)
    np.testing.assert_array_equal(array, X)
    np.testing.assert_array_equal(returned, X * 2)
    np.testing.assert_array_equal(second, X * 2)
    np.testing.assert_array_equal(v, X * 4)


def test_old_value_is_a_result():
    def build():
        v, w = tf.Variable(X), tf.Variable(X + 1)

        def function():
            old = v.read_value()
            v.assign(w * 2)
            w.assign(tf.transpose(tf.transpose(old) + 1))
            return old, v.read_value() + old, w

        return function, (v, w)

    agree(build)


def test_swap_and_rotation():
    def build():
        variables = [tf.Variable(X + k) for k in range(3)]

        def function():
            a, b, c = (v.read_value() for v in variables)
            for variable, value in zip(variables, (b, c, a), strict=True):
                variable.assign(value)

        return function, variables

    agree(build, 4)


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.assign(tf.transpose(v)),
        lambda v: v.assign(v[::-1]),
        lambda v: v.assign(tf.matmul(v, v)),
        lambda v: v.assign(tf.cumsum(v, axis=0)),
        lambda v: v.assign(tf.sort(v, axis=1)),
        lambda v: v.assign(v - tf.reduce_mean(v)),
        lambda v: v.assign(tf.roll(v, 1, 0) + v),
        lambda v: v[1].assign(v[0] * 2),
        lambda v: v.scatter_add(tf.IndexedSlices(v[:2], [2, 0])),
        lambda v: v.assign(tf.concat([v[2:], v[:2]], 0)),
        lambda v: v.assign(tf.nn.softmax(v)),
    ],
)
def test_new_value_from_other_places_of_the_old(change):
    def build():
        v = tf.Variable(np.linspace(0.1, 0.9, 16, dtype=np.float32).reshape(4, 4))

        def function():
            change(v)
            return v.read_value()

        return function, [v]

    agree(build)


def test_read_and_written_many_times():
    def build():
        v, w = tf.Variable(X), tf.Variable(1.0)

        def function(x):
            first = tf.reduce_sum(v)
            v.assign(v * 2)
            second = tf.reduce_sum(v)
            v.assign_sub(x)
            w.assign_add(second)
            v.assign(v * w)
            return first, second, v + w

        return function, (v, w)

    agree(build, 3, tf.constant(X))


def test_loops_and_branches():
    def build():
        v, w = tf.Variable(X), tf.Variable(X)

        def function(x):
            for _ in tf.range(3):
                v.assign_add(x)
                if tf.reduce_sum(v) > 100.0:
                    w.assign(w + v)
            if tf.reduce_sum(w) > 1000.0:
                w.assign(w * 0.5)
            else:
                v.assign(v * 0.5 + w)
            return tf.reduce_sum(w)

        return function, (v, w)

    agree(build, 5, tf.constant(X))


def test_written_before_it_is_read():
    def build():
        v = tf.Variable(X)

        def function(x):
            v.assign(x)
            v.assign_add(v)

        return function, [v]

    agree(build, 2, tf.constant(X))


def test_shape_changes():
    v = tf.Variable(X, shape=tf.TensorShape(None))

    @tfbridge.jit
    def grow():
        v.assign(tf.concat([v, v], 0))

    grow()
    grow()
    np.testing.assert_array_equal(v, np.concatenate([X] * 4))


def test_one_variable_by_two_handles():
    v = tf.Variable(X)

    @tfbridge.jit
    def outer(a, b):
        a.assign_add(b * 2)
        b.assign_add(a)
        return a + b

    def clustered(a, b):
        return tf.function(outer)(a, b)

    result = clustered(v, v)
    np.testing.assert_allclose(v, X * 6)
    np.testing.assert_allclose(result, X * 12)


def test_deleted_variable_is_tensorflows_error():
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3], shared_name=private.ANONYMOUS)

    @tfbridge.jit
    def step():
        value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        tf.raw_ops.AssignVariableOp(resource=handle, value=value * 2)

    with pytest.raises(tf.errors.FailedPreconditionError):
        step()
    tf.raw_ops.AssignVariableOp(resource=handle, value=tf.ones(3))
    step()
    np.testing.assert_array_equal(
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32), np.full(3, 2.0)
    )


def test_uninitialized_in_a_session():
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    try:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            v = tf.compat.v1.Variable(X, use_resource=True)
            step = v.assign(tf.tanh(v * 2 + 1))
            with pytest.raises(tf.errors.FailedPreconditionError):
                session.run(step)
            session.run(v.initializer)
            session.run(step)
            np.testing.assert_allclose(session.run(v), np.tanh(X * 2 + 1), rtol=1e-5)
    finally:
        tfbridge.disable_auto_clustering()


def test_fallback_updates_too():
    """Code that does not compile for a shape: the nodes run in TensorFlow, the variables get their new values."""
    v = tf.Variable(X)

    @tfbridge.jit
    def step():
        v.assign(tf.reshape(tf.reshape(v, [-1]) + 1, [3, 4]))
        return v * 2

    step()
    cluster = step.direct_cluster(step.get_concrete_function())
    cluster_registry.drop_code(cluster.key)
    np.testing.assert_array_equal(step(), (X + 2) * 2)
    np.testing.assert_array_equal(v, X + 2)
    assert cluster_registry.counters(cluster.key).fallback_runs > 0


def test_no_update_is_lost_while_tensorflow_runs_the_nodes():
    v = tf.Variable(tf.zeros([1 << 12]))

    @tfbridge.jit
    def step():
        return tf.reduce_max(v.assign_add(tf.ones_like(v)))

    step()
    cluster = step.direct_cluster(step.get_concrete_function())
    cluster_registry.drop_code(cluster.key)
    results: list[float] = []
    in_threads(8, lambda _: results.extend(float(step()) for _ in range(20)))
    assert sorted(results) == [*range(2, 162)]
    assert cluster_registry.counters(cluster.key).fallback_runs >= 160
    np.testing.assert_array_equal(v, np.full(1 << 12, 161, np.float32))


def test_sparse_access_copies_on_read():
    """After a sparse op of TensorFlow's the variable's tensor must never be shared."""
    v = tf.Variable(X)
    v.scatter_add(tf.IndexedSlices(tf.ones([1, 4]), [0]))

    @tfbridge.jit(strict=True)
    def read():
        return v * 1.0

    step = tfbridge.jit(lambda: v.assign_add(v), strict=True)
    first, held = read(), v.read_value()
    step()
    wanted = X + np.array([[1], [0], [0]], np.float32)
    np.testing.assert_array_equal(first, wanted)
    np.testing.assert_array_equal(held, wanted)
    np.testing.assert_array_equal(read(), wanted * 2)


def test_a_variable_that_another_op_has_is_copied():
    """An op that may be about to write in place has a reference to the variable."""
    v = tf.Variable(X)
    v.scatter_add(tf.IndexedSlices(tf.ones([1, 4]), [0]))
    variable = fast_call_variables.Captured(v.handle).object
    references = ctypes.c_int64.from_address(variable + resource_variables.REFERENCES)
    copies = ctypes.c_uint8.from_address(variable + resource_variables.COPIES_ON_READ)
    read = tfbridge.jit(lambda: (v, v * 2.0), strict=True)
    for others in (1, 0):
        references.value += others
        value, doubled = read()
        references.value -= others
        np.testing.assert_array_equal(value, v)
        np.testing.assert_array_equal(doubled, v * 2.0)
        assert copies.value == others
        v.scatter_add(tf.IndexedSlices(tf.ones([1, 4]), [1]))
        np.testing.assert_array_equal(v - value, [[0] * 4, [1] * 4, [0] * 4])


def test_sparse_updates_never_change_a_value_that_was_read():
    v = tf.Variable(tf.zeros([256, 64]))
    read = tfbridge.jit(lambda x: tf.reduce_max(v + x), strict=True)
    rows, ones, done = tf.range(256), tf.ones([256, 64]), threading.Event()
    read(tf.zeros([]))

    def write():
        for _ in range(400):
            tf.raw_ops.ResourceScatterAdd(resource=v.handle, indices=rows, updates=ones)
        done.set()

    def hold():
        while not done.is_set():
            value = v.read_value()
            before = np.array(value)
            read(tf.zeros([]))
            time.sleep(1e-3)
            np.testing.assert_array_equal(value, before)

    def call():
        while not done.is_set():
            assert 0 <= float(read(tf.zeros([]))) <= 400

    in_threads(4, lambda k: (write, hold, call, call)[k]())
    assert float(read(tf.zeros([]))) == 400.0


def test_gradient_tape_and_optimizer_state():
    def build():
        w, m = tf.Variable(X / 10), tf.Variable(tf.zeros_like(X))

        def function(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.tanh(tf.matmul(x, w, transpose_b=True)) ** 2)
            gradient = tape.gradient(loss, w)
            m.assign(0.9 * m + gradient)
            w.assign_sub(0.1 * m)
            return loss

        return function, (w, m)

    agree(build, 4, tf.constant(X))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop", "adagrad", "nadam"])
def test_keras_optimizers(optimizer):
    found = []
    for compiled in (False, True):
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [
                keras.layers.Dense(5, activation="tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(2),
            ]
        )
        model.compile(optimizer, "mse", metrics=["mae"], jit_compile=False)
        x = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
        if compiled:
            tfbridge.enable_auto_clustering(min_cluster_size=1)
        try:
            history = model.fit(x, x[:, :2], batch_size=8, epochs=2, verbose=0, shuffle=False).history
        finally:
            tfbridge.disable_auto_clustering()
        state = [np.array(v) for v in (*model.variables, *model.optimizer.variables)]
        found.append(state + [np.array(v) for v in history.values()])
    for wanted, made in zip(*found, strict=True):
        np.testing.assert_allclose(
            made, wanted, rtol=2e-4, atol=1e-5
        )  # sums in another order, over six steps


def test_readers_never_see_half_an_update():
    """All elements of the variable are equal before and after every step; another thread looks on."""
    v = tf.Variable(tf.zeros([1 << 16]))
    step = tfbridge.jit(lambda: v.assign(v + 1.0), strict=True)
    step()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            value = v.read_value().numpy()
            assert value.min() == value.max()

    def update() -> None:
        try:
            for _ in range(300):
                step()
        finally:
            done.set()

    in_threads(2, lambda number: (read, update)[number]())
    assert float(v[0]) == 301.0


def test_two_threads_update_the_same_variables():
    a, b = tf.Variable(tf.zeros([1000])), tf.Variable(tf.zeros([1000]))

    def forward():
        a.assign_add(tf.ones([1000]))
        b.assign_add(tf.ones([1000]))

    def backward():
        b.assign_add(tf.ones([1000]))
        a.assign_add(tf.ones([1000]))

    steps = [tfbridge.jit(f, strict=True) for f in (forward, backward)]

    def run(number: int) -> None:
        for _ in range(200):
            steps[number]()

    in_threads(2, run)
    np.testing.assert_array_equal(a, np.full(1000, 400.0))
    np.testing.assert_array_equal(b, np.full(1000, 400.0))


def test_without_private_names_variables_are_read_and_assigned_around(monkeypatch):
    monkeypatch.setattr(resource_variables, "available", lambda: False)
    test_read_and_written_many_times()
    test_held_values_never_change()


def test_a_hundred_steps_make_no_new_memory_for_variables():
    weights = [tf.Variable(tf.zeros([1 << 16])) for _ in range(3)]

    @tfbridge.jit(strict=True)
    def step(x):
        for v in weights:
            v.assign(v * 0.5 + x)

    places = [address(v) for v in weights]
    for _ in range(100):
        step(tf.constant(1.0))
        assert [address(v) for v in weights] == places
    np.testing.assert_allclose(weights[2][:3], [2, 2, 2])


def test_reads_of_a_function_are_no_results(clustering):
    """A function's reads of variables are preserved, but nobody takes what they read: a launch need not return it."""
    v, w = tf.Variable(X), tf.Variable(X + 1)

    @tf.function
    def step(x):
        old = v + w
        v.assign_add(x)
        w.assign(v * 0.5 + w)
        return tf.reduce_sum(old), v.read_value()

    totals, seen = [], recent_reports()
    step(X)
    assert [len(c.result_types) - len(c.written) for r in recent_reports(seen) for c in r.clusters] == [2]
    for _ in range(3):
        total, value = step(X)
        totals.append(float(total))
        np.testing.assert_array_equal(value, v)
    a, b, wanted = X * 2, X * 2 + 1, []
    for _ in range(3):
        wanted.append((a + b).sum())
        a = a + X
        b = a * 0.5 + b
    np.testing.assert_allclose(totals, wanted, rtol=1e-6)
    np.testing.assert_allclose(w, b, rtol=1e-6)


@pytest.mark.parametrize("is_taken", [False, True])
def test_variable_that_no_function_uses(is_taken: bool) -> None:
    """It is an argument of a loop or a branch, and no node reads its value."""
    unused, v = tf.Variable(tf.ones(4)), tf.Variable(tf.ones(4))

    def body(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        tf.identity(unused.handle)
        v.assign_add(x)
        return i + 1, x * 2.0

    def branch() -> tf.Tensor:
        tf.identity(unused.handle)
        return tf.ones(4)

    @tfbridge.jit(strict=True)
    def f(x: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        x = tf.cond(p, branch, lambda: x * 3.0)
        return tf.while_loop(lambda i, x: i < 5, body, [0, x])[1]

    start = 1.0 if is_taken else 3.0
    np.testing.assert_array_equal(f(tf.ones(4), tf.constant(is_taken)), np.full(4, 32 * start, "f4"))
    np.testing.assert_array_equal(v, np.full(4, 1 + 31 * start, "f4"))
