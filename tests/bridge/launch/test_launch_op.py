"""The launch op on hand-written entries: hits, misses, fallbacks, errors, memory, threads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import launch_entries as entries
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from in_threads import in_threads
from tfbridge.bridge.launch import cluster_registry, entry_table
from tfbridge.bridge.launch import op as launch_op
from tfbridge.bridge.launch.compiled_code import CompiledCode

F32 = tf.float32
_serial = itertools.count()


def unreachable(*_: object) -> list[tf.Tensor]:
    raise AssertionError("the fallback ran")


def cluster(compile: Callable, fallback: Callable = unreachable) -> str:
    key = f"test_launch_op/{next(_serial)}"
    launch_op.register_cluster(key, compile, fallback)
    return key


def double_plus_one(specs: list, values: dict) -> CompiledCode:
    dims = specs[0][1]
    return CompiledCode(entries.affine(math.prod(dims), 2.0, 1.0), ((F32, dims),))


def launched(
    key: str, inputs: list, outputs: list[tf.DType] | None = None, constants: tuple[int, ...] = ()
) -> list:
    tensors = [tf.convert_to_tensor(x) for x in inputs]
    return launch_op.prepare(key, [t.dtype for t in tensors], outputs or [F32], constants)(tensors)


@pytest.mark.parametrize("dims", [(8,), (2, 3), (), (0,), (3, 0, 2), (1, 1, 1, 5)])
def test_compiles_once_per_shape(dims):
    met = []

    def compile(specs, values):
        met.append(specs)
        return double_plus_one(specs, values)

    key = cluster(compile)
    for step in range(3):
        x = np.full(dims, step, np.float32)
        result = launched(key, [x])[0]
        assert result.shape == dims
        np.testing.assert_array_equal(result.numpy(), x * 2 + 1)
    assert met == [[(F32, dims)]]
    assert cluster_registry.counters(key) == entry_table.Counters(runs=3, compiles=1)


def test_shapes_of_one_cluster_keep_apart():
    key = cluster(double_plus_one)
    for size in [*range(1, 200), *range(1, 200)]:
        assert launched(key, [np.ones(size, np.float32)])[0].shape == (size,)
    assert cluster_registry.counters(key) == entry_table.Counters(runs=398, compiles=199)


def test_constants_are_part_of_the_key():
    met = []

    def compile(specs, values):
        met.append(values[1].tolist())
        dims = tuple(values[1].tolist())
        return CompiledCode(entries.copy(specs[0][0].size * math.prod(dims)), ((F32, dims),))

    key = cluster(compile)
    x = np.arange(6, dtype=np.float32)
    for dims in ([2, 3], [3, 2], [2, 3], [6, 1]):
        result = launched(key, [x, np.array(dims, np.int32)], constants=(1,))[0]
        np.testing.assert_array_equal(result.numpy(), x.reshape(dims))
    assert met == [[2, 3], [3, 2], [6, 1]]


@pytest.mark.parametrize(
    "value",
    [np.zeros(0, np.int64), np.array(True), np.arange(5, dtype=np.int8), np.arange(9000, dtype=np.float32)],
)
def test_constant_of_any_size(value):
    met = []

    def compile(specs, values):
        met.append(values[0])
        return CompiledCode(entries.copy(4), ((F32, ()),))

    key = cluster(compile)
    for _ in range(2):
        assert launched(key, [value, np.float32(7)], constants=(0,))
    assert len(met) == 1
    np.testing.assert_array_equal(met[0], value)
    assert met[0].dtype == value.dtype


@pytest.mark.parametrize("refuse", [lambda specs, values: None, lambda specs, values: 1 / 0])
def test_refused_key_runs_in_tensorflow(refuse):
    reported = []
    cluster_registry.on_compile_failure(lambda key, error: reported.append((key, type(error))))
    key = cluster(refuse, lambda inputs: [tf.nn.relu(inputs[0]), inputs[0]])
    x = np.array([[-1.0, 2.0]], np.float32)
    for _ in range(2):
        first, second = launched(key, [x], [F32, F32])
        np.testing.assert_array_equal(first.numpy(), [[0.0, 2.0]])
        np.testing.assert_array_equal(second.numpy(), x)
    assert cluster_registry.counters(key) == entry_table.Counters(fallback_runs=2, uncompiled=1)
    assert [k for k, _ in reported] == [key]


def test_result_types_are_checked_before_they_are_run():
    wrong = CompiledCode(entries.copy(8), ((tf.float64, ()),))
    key = cluster(lambda specs, values: wrong, lambda inputs: [inputs[0] + 1])
    assert launched(key, [np.float32(1)])[0].numpy() == 2.0
    assert cluster_registry.counters(key).uncompiled == 1


@pytest.mark.parametrize(
    "error", [tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, tf.errors.NotFoundError]
)
def test_fallback_error_keeps_its_type(error):
    def fallback(inputs):
        raise error(None, None, "what was wrong")

    key = cluster(lambda specs, values: None, fallback)
    with pytest.raises(error, match="what was wrong"):
        launched(key, [np.float32(1)])


def test_error_of_an_op_in_the_fallback_keeps_its_type():
    key = cluster(lambda specs, values: None, lambda inputs: [tf.raw_ops.MatMul(a=inputs[0], b=inputs[0])])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Matrix size-incompatible"):
        launched(key, [np.ones((2, 3), np.float32)])


def test_other_exception_in_the_fallback_is_internal():
    key = cluster(lambda specs, values: None, unreachable)
    with pytest.raises(tf.errors.InternalError, match="AssertionError: the fallback ran"):
        launched(key, [np.float32(1)])


@pytest.mark.parametrize(
    "code, error",
    [
        (1, tf.errors.InvalidArgumentError),
        (3, tf.errors.InvalidArgumentError),
        (11, tf.errors.OutOfRangeError),
        (-12, tf.errors.ResourceExhaustedError),
        (99, tf.errors.InvalidArgumentError),
    ],
)
def test_entry_error_becomes_a_status(code, error):
    made = CompiledCode(entries.fail(code, "index 7 is too big"), ((F32, ()),))
    key = cluster(lambda specs, values: made)
    with pytest.raises(error, match="index 7 is too big"):
        launched(key, [np.float32(1)])


def test_alias_passes_the_input_on():
    made = CompiledCode(entries.affine(3, 1.0, 1.0), ((F32, (3,)), (F32, (3,))), alias={1: 0})
    key = cluster(lambda specs, values: made)
    first, second = launched(key, [np.arange(3, dtype=np.float32)], [F32, F32])
    np.testing.assert_array_equal(first.numpy(), [1, 2, 3])
    np.testing.assert_array_equal(second.numpy(), [0, 1, 2])


def test_forward_leaves_an_input_that_others_hold():
    made = CompiledCode(entries.affine(3, 1.0, 1.0), ((F32, (3,)),), forward={0: 0})
    key = cluster(lambda specs, values: made)
    x = tf.constant([0.0, 1.0, 2.0])
    np.testing.assert_array_equal(launched(key, [x])[0].numpy(), [1, 2, 3])
    np.testing.assert_array_equal(x.numpy(), [0, 1, 2])


def test_temp_and_constants_reach_the_entry():
    x = np.arange(5000, dtype=np.float32)
    through = CompiledCode(entries.copy(x.nbytes, through_temp=True), ((F32, x.shape),), temp_bytes=x.nbytes)
    np.testing.assert_array_equal(launched(cluster(lambda *_: through), [x])[0].numpy(), x)
    code = entries.copy_constants(x.nbytes)
    given = CompiledCode(code, ((F32, x.shape),), constants=x.ctypes.data, owner=x)
    np.testing.assert_array_equal(launched(cluster(lambda *_: given), [np.float32(0)])[0].numpy(), x)


@pytest.mark.parametrize(
    "dtype",
    [
        np.bool_,
        np.int8,
        np.uint8,
        np.int16,
        np.uint16,
        np.int32,
        np.uint32,
        np.int64,
        np.uint64,
        np.float16,
        ml_dtypes.bfloat16,
        np.float64,
        np.complex64,
        np.complex128,
        ml_dtypes.int4,
        ml_dtypes.float8_e4m3fn,
    ],
)
def test_every_plain_type(dtype):
    x = np.array([[1, 0, 3]]).astype(dtype)
    tensor = tf.constant(x)
    key = cluster(lambda specs, values: CompiledCode(entries.copy(x.nbytes), (specs[0],)))
    result = launched(key, [tensor], [tensor.dtype])[0]
    assert result.dtype == tensor.dtype
    assert result.numpy().tobytes() == x.tobytes()


def test_many_inputs_and_none():
    inputs = [np.full((2, 2), k, np.float32) for k in range(700)]
    made = CompiledCode(entries.copy(16), ((F32, (2, 2)),))
    assert launched(cluster(lambda *_: made), inputs)[0].numpy().tolist() == inputs[0].tolist()
    blob = np.arange(2, dtype=np.float32)
    made_of_nothing = CompiledCode(
        entries.copy_constants(8), ((F32, (2,)),), constants=blob.ctypes.data, owner=blob
    )
    assert launched(cluster(lambda *_: made_of_nothing), [])[0].numpy().tolist() == [0, 1]


def test_dropped_cluster_runs_in_tensorflow():
    key = cluster(double_plus_one, lambda inputs: [inputs[0] * 0])
    assert launched(key, [np.float32(1)])[0].numpy() == 3
    cluster_registry.drop_code(key)
    assert launched(key, [np.float32(1)])[0].numpy() == 0


def test_types_that_are_not_plain_are_refused():
    with pytest.raises(TypeError, match="string"):
        launch_op.prepare("any", [tf.string], [F32])
    with pytest.raises(TypeError, match="variant"):
        launch_op.node_def("n", "any", ["x"], [F32], [tf.variant])


def test_unknown_cluster_is_an_error():
    with pytest.raises(tf.errors.NotFoundError, match="no cluster 'nowhere' in this process"):
        launched("nowhere", [np.float32(1)])


def test_compile_sees_no_tape_and_no_graph():
    def compile(specs, values):
        assert tf.executing_eagerly()
        assert float(tf.reduce_sum(tf.ones(3))) == 3.0
        return double_plus_one(specs, values)

    key = cluster(compile)
    attributes = dict(launch_op.node_def("n", key, [], [F32], [F32]).attr)

    @tf.function
    def in_graph(x):
        return (
            tf.compat.v1.get_default_graph().create_op(launch_op.OP, [x], [F32], attrs=attributes).outputs[0]
        )

    np.testing.assert_array_equal(in_graph(tf.ones(4)).numpy(), np.full(4, 3.0))
    assert cluster_registry.counters(key) == entry_table.Counters(runs=1, compiles=1)


def test_eight_threads_on_one_cluster_with_changing_shapes():
    compiled = []

    def compile(specs, values):
        compiled.append(specs[0][1])
        return double_plus_one(specs, values) if specs[0][1][0] % 3 else None

    key = cluster(compile, lambda inputs: [inputs[0] * 2.0 + 1.0])
    run = launch_op.prepare(key, [F32], [F32])

    def work(seed: int) -> None:
        sizes = np.random.default_rng(seed).integers(1, 12, 150)
        for size in sizes:
            x = np.random.default_rng(size).random(size, np.float32)
            np.testing.assert_allclose(run([tf.constant(x)])[0], x * 2 + 1, rtol=1e-5)

    in_threads(8, work)
    assert len(compiled) == len(set(compiled)) == 11
    total = cluster_registry.counters(key)
    assert total.runs + total.fallback_runs == 8 * 150


def test_a_launch_that_another_cluster_had_counts_from_zero():
    for _ in range(3):
        key = cluster(double_plus_one)
        for _ in range(3):
            launched(key, [np.ones(7, np.float32)])
        assert cluster_registry.counters(key) == entry_table.Counters(runs=3, compiles=1)
        cluster_registry.release(key)
        cluster_registry.drop_unused()
        assert not cluster_registry.is_registered(key)
        assert cluster_registry.counters(key) == entry_table.Counters(runs=3, compiles=1)
