"""Values that an op does not allow (indices out of range, divisors of zero) raise TensorFlow's own error; good ones are
computed by compiled code, as before and after."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.aot.freeze import freeze

F32, S32, S64 = np.float32, np.int32, np.int64
raw = tf.raw_ops


def f(*dims: int) -> np.ndarray:
    """An array of f32, no two elements alike."""
    return np.arange(1, np.prod(dims) + 1, dtype=F32).reshape(dims) / 8


def i(*values: Any, type: Any = S32) -> np.ndarray:
    """An array of integers; of one value, a scalar."""
    return np.array(values[0] if len(values) == 1 else values, type)


def loop(step: Callable[[Any, Any], Any], count: Any, first: Any) -> Any:
    """first with step(k, value so far) done for every k below a count."""
    return tf.while_loop(lambda k, s: k < count, lambda k, s: (k + 1, step(k, s)), (0, first))[1]


def array(x: Any) -> tf.TensorArray:
    return tf.TensorArray(tf.float32, 4, element_shape=[3]).unstack(x)


def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function's value and its gradient with respect to its first argument."""

    def both(x: Any, *rest: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x, *rest)
        return [y, tf.convert_to_tensor(tape.gradient(y, x))]

    return both


def crop(image: Any, boxes: Any, k: Any) -> Any:
    return tf.image.crop_and_resize(image, boxes, k, [2, 2]) * 2.0


def sparse_product(k: Any, v: Any, d: Any) -> Any:
    return tf.sparse.sparse_dense_matmul(tf.SparseTensor(k, v, [3, 4]), d) * 2.0


def cross_entropy(x: Any, k: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(k, x) * 2.0


def read_in_loop(x: Any, n: Any) -> Any:
    return loop(lambda k, s: s + array(x).read(k % 3 + n // 4), n, tf.zeros(3))


def gather_in_loop(x: Any, n: Any) -> Any:
    """The next index waits for the values: TensorFlow would else begin the gradient's loop before this one failed."""

    def step(k: Any, s: Any) -> Any:
        values = tf.gather(x, [k, 0])
        return k + tf.where(values[0] > 0.0, 1, 2), s * values

    return tf.while_loop(lambda k, s: k < n, step, (0, tf.ones(2)))[1]


def classified(x: Any, k: Any, v: Any, n: Any) -> Any:
    return raw.CTCLoss(inputs=x, labels_indices=k, labels_values=v, sequence_length=n)[0] * 2.0


BOX = np.array([[0.0, 0.0, 1.0, 1.0]], F32)
# Function, good arguments, then bad ones.
CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "gather": (
        lambda x, k: tf.gather(x, k) * 2.0,
        [
            (f(4, 3), i(3, 0)),
            (f(4, 3), i(9, 1)),
            (f(4, 3), i(-1, 1)),
            (f(4, 3), i(4)),
            (f(4, 3), i(2**40, 0, type=S64)),
        ],
    ),
    "gather of a computed index": (
        lambda x, k: tf.gather(x, k * 2 + 1) * 2.0,
        [(f(4), i(0, 1)), (f(4), i(0, 2))],
    ),
    "gather along an axis": (
        lambda x, k: tf.gather(x, k, axis=1) * 2.0,
        [(f(4, 3), i(2, 1)), (f(4, 3), i(3, 1))],
    ),
    "gather of a batch": (
        lambda x, k: tf.gather(x, k, batch_dims=1) * 2.0,
        [(f(2, 3), i([[0, 1], [2, 2]])), (f(2, 3), i([[0, 1], [2, 3]]))],
    ),
    "gather of a small type": (
        lambda x, k: tf.gather_nd(x, k) * 2.0,
        [(f(300), i([[99], [1]], type=np.int16)), (f(99), i([[99], [1]], type=np.int16))],
    ),
    "gather twice": (
        gradient(lambda x, k: tf.reduce_sum(tf.gather(x, k) * tf.gather(x, tf.reshape(k, [2, 1])) ** 2)),
        [(f(4, 3), i(3, 0))],
    ),
    "gradient of points": (gradient(lambda x, k: tf.gather_nd(x, k) * 2.0), [(f(4, 3), i([[1, 1], [3, 2]]))]),
    "points": (
        lambda x, k: tf.gather_nd(x, k) * 2.0,
        [(f(4, 3), i([[1, 1], [3, 2]])), (f(4, 3), i([[1, 1], [0, 3]])), (f(4, 3), i([[-1, 1], [0, 0]]))],
    ),
    "points of a square": (
        lambda x, k: tf.gather_nd(x, k) * 2.0,
        [(f(3, 3), i([[1, 1], [2, 2]])), (f(3, 3), i([[1, 1], [0, 3]]))],
    ),
    "scatter": (lambda k, u: tf.scatter_nd(k, u, [5]) * 2.0, [(i([[1], [4]]), f(2)), (i([[1], [5]]), f(2))]),
    "tensor scatter": (
        lambda x, k, u: tf.tensor_scatter_nd_add(x, k, u) * 2.0,
        [(f(5), i([[1], [4]]), f(2)), (f(5), i([[1], [-1]]), f(2))],
    ),
    "segments": (
        lambda x, k: tf.math.unsorted_segment_sum(x, k, 3) * 2.0,
        [(f(4, 3), i(0, -3, 1, 2)), (f(4, 3), i(0, 3, 1, 1))],
    ),
    "segment maxima": (
        lambda x, k: tf.math.unsorted_segment_max(x, k, 3) + 1.0,
        [(f(4), i(0, -3, 1, 2, type=S64)), (f(4), i(0, 3, 1, 1, type=S64))],
    ),
    "labels": (
        gradient(lambda x, k: cross_entropy(x, k)),
        [(f(4, 3), i(0, 1, 2, 2)), (f(4, 3), i(0, 3, 1, 1)), (f(4, 3), i(0, -1, 1, 1))],
    ),
    "reversed parts": (
        lambda x, k: tf.reverse_sequence(x, k, seq_axis=1) * 2.0,
        [(f(3, 4), i(0, 4, 2)), (f(3, 4), i(1, 5, 2)), (f(3, 4), i(1, -1, 2))],
    ),
    "quotient": (lambda x, y: x // y * 2, [(i(3, -4), i(1, -3)), (i(3, 4), i(1, 0))]),
    "quotient of bytes": (
        lambda x, y: x // y * 2,
        [(i(3, 4, type=np.uint8), i(1, 3, type=np.uint8)), (i(3, 4, type=np.uint8), i(1, 0, type=np.uint8))],
    ),
    "quotient by a constant": (lambda x: x // np.array([1, 0], S32) * 2, [None, (i(3, 4),)]),
    "truncated quotient": (lambda x, y: raw.Div(x=x, y=y) * 2, [(i(3, -4), i(1, -3)), (i(3, 4), i(1, 0))]),
    "remainder": (lambda x, y: x % y * 2, [(i(3, -4), i(1, -3)), (i(3, 4), i(0))]),
    "truncated remainder": (
        lambda x, y: tf.truncatemod(x, y) * 2,
        [(i(3, -4), i(1, -3)), (i(3, 4), i(1, 0))],
    ),
    "quotient of nothing": (lambda x, y: x // y * 2, [(np.zeros(0, S32), i(0)), (i(3, 4), i(0))]),
    "power": (lambda x, y: tf.pow(x, y) * 2, [(i(3, -4), i(0, 3)), (i(3, 4), i(1, -1))]),
    "stitch": (lambda x: tf.dynamic_stitch([[0, -1]], [x]) * 2, [None, (f(2),)]),
    "sparse product": (
        sparse_product,
        [
            (i([[0, 1], [2, 3]], type=S64), f(2), f(4, 2)),
            (i([[0, 1], [1, 4]], type=S64), f(2), f(4, 2)),
            (i([[0, 1], [3, 1]], type=S64), f(2), f(4, 2)),
        ],
    ),
    "dense": (
        lambda k, v: (
            raw.SparseToDense(
                sparse_indices=k,
                output_shape=[3, 4],
                sparse_values=v,
                default_value=0.0,
                validate_indices=False,
            )
            * 2.0
        ),
        [(i([[0, 1], [2, 3]]), f(2)), (i([[0, 1], [1, 4]]), f(2))],
    ),
    "dense in order": (
        lambda k, v: (
            raw.SparseToDense(sparse_indices=k, output_shape=[3, 4], sparse_values=v, default_value=0.0) * 2.0
        ),
        [(i([[0, 1], [2, 3]]), f(2)), (i([[0, 1], [0, 1]]), f(2)), (i([[1, 0], [0, 3]]), f(2))],
    ),
    "counts": (lambda k: tf.math.bincount(k, minlength=4, maxlength=4) * 2, [(i(1, 7),), (i(1, -1),)]),
    "counts of rows": (
        lambda k: tf.math.bincount(k, minlength=4, maxlength=4, axis=-1) * 2,
        [(i([[1, 7]]),), (i([[1, -1]]),)],
    ),
    "place of a number": (lambda k: tf.unravel_index(k, [2, 3]) * 2, [(i(5, 0),), (i(6, 0),)]),
    "nth element": (lambda x, k: raw.NthElement(input=x, n=k) * 2.0, [(f(2, 3), i(2)), (f(2, 3), i(3))]),
    "gradient of crops": (gradient(crop), [(f(2, 3, 3, 1), BOX, i([1]))]),
    "crops": (
        crop,
        [(f(2, 3, 3, 1), BOX, i([1])), (f(2, 3, 3, 1), BOX, i([2])), (f(2, 3, 3, 1), BOX, i([-1]))],
    ),
    "sequences": (
        classified,
        [
            (f(4, 2, 3), i([[0, 0], [0, 1], [1, 0]], type=S64), i(1, 0, 1), i(4, 2)),
            (f(4, 2, 3), i([[0, 0], [0, 1], [1, 0]], type=S64), i(1, -1, 1), i(4, 2)),
            (f(4, 2, 3), i([[0, 0], [0, 1], [1, 0]], type=S64), i(1, 0, 1), i(1, 2)),
            (f(4, 2, 3), i([[0, 0], [0, 1], [1, 0]], type=S64), i(1, 0, 1), i(5, 2)),
        ],
    ),
    "permutation": (
        lambda k: tf.math.invert_permutation(k) * 2,
        [(i(1, 0, 2),), (i(0, 0, 2),), (i(0, 5, 2),)],
    ),
    "random integers": (
        lambda a: raw.RandomUniformInt(shape=[3], minval=a, maxval=5) * 0,
        [(i(4),), (i(6),), (i(5),)],
    ),
    "stateless random integers": (
        lambda a: tf.random.stateless_uniform([3], [1, 2], minval=a, maxval=5, dtype=tf.int32) * 2,
        [(i(4),), (i(5),)],
    ),
    "band": (lambda x, k: tf.linalg.band_part(x, k, 1) * 2.0, [(f(3, 3), i(3)), (f(3, 3), i(4))]),
    "boxes": (
        lambda x, s, t: tf.image.non_max_suppression(x, s, 3, t) * 2,
        [(f(3, 4), f(3), np.array(0.5, F32)), (f(3, 4), f(3), np.array(1.5, F32))],
    ),
    "eigenvalues": (
        lambda x: tf.linalg.eigvalsh(x) * 2.0,
        [(np.eye(2, dtype=F32),), (np.full((2, 2), np.nan, F32),)],
    ),
    "padding": (lambda x, k: tf.pad(x, [[k, 0], [0, 0]]) * 2.0, [(f(4, 3), i(1)), (f(4, 3), i(-1))]),
    "diagonal": (lambda x, y: tf.linalg.set_diag(x, y) * 2.0, [(f(3, 3), f(3)), (f(3, 3), f(2))]),
    "histogram": (
        lambda x, r: tf.histogram_fixed_width(x, r, 4) * 2,
        [(f(4), f(2)), (f(4), np.array([1, 1], F32)), (np.array([1, np.nan], F32), f(2))],
    ),
    "range": (lambda n: tf.range(3, n) * 2, [(i(4),), (i(2),)]),
    "element": (lambda x, k: x[k] * 2.0, [(f(4, 3), i(-4)), (f(4, 3), i(4)), (f(4, 3), i(-5))]),
    "read": (lambda x, k: array(x).read(k) * 2.0, [(f(4, 3), i(3)), (f(4, 3), i(5)), (f(4, 3), i(-1))]),
    "write": (lambda x, k: array(x).write(k, x[0]).stack() * 2.0, [(f(4, 3), i(3)), (f(4, 3), i(4))]),
    "gather of an array": (lambda x, k: array(x).gather(k) * 2.0, [(f(4, 3), i(3, 0)), (f(4, 3), i(1, 4))]),
    "element in a loop": (
        lambda x, n: loop(lambda k, s: s + x[k] * 2.0, n, 0.0),
        [(f(4), i(4)), (f(4), i(5))],  # one that fails: TensorFlow runs several at a time
    ),
    "gather in a loop": (
        gradient(gather_in_loop),
        [(f(4), i(4)), (f(4), i(5))],
    ),
    "quotient in a loop": (
        lambda x, n: loop(lambda k, s: s + x // (3 - k), n, 0),
        [(i(9), i(3)), (i(9), i(6))],
    ),
    "read in a loop": (read_in_loop, [(f(4, 3), i(3)), (f(4, 3), i(9))]),
    "write in a loop": (
        lambda x, n: loop(lambda k, t: t.write(k, x[0]), n, array(x)).stack() * 2.0,
        [(f(4, 3), i(4)), (f(4, 3), i(5))],
    ),
    "until an element": (
        lambda x, n: tf.while_loop(lambda k: x[k] > 0, lambda k: k + n, [0])[0],
        [(np.array([1, 1, 0], F32), i(1)), (f(3), i(1)), (f(3), i(-2))],
    ),
    "branch": (
        lambda x, k: tf.cond(k > 2, lambda: tf.gather(x, [k]), lambda: x[:1]) * 2.0,
        [(f(4, 3), i(2)), (f(4, 3), i(5))],
    ),
    "constant in a branch": (
        lambda x, k: tf.cond(k > 2, lambda: tf.gather(x, [9]), lambda: x[:1]) * 2.0,
        [(f(4, 3), i(2)), (f(4, 3), i(5))],
    ),
}


def outcome(function: Callable[..., Any], given: tuple[np.ndarray, ...]) -> Any:
    """The results, or the error's type and message without the names of nodes and functions."""
    try:
        return [v.numpy() for v in tf.nest.flatten(function(*map(tf.constant, given)))]
    except tf.errors.OpError as error:
        lines = re.sub(r"\{\{.*?\}\} ?", "", error.message).split("\n\t")[0].splitlines()
        text = [line for line in lines if line.strip()][-1]
        return type(error), re.sub(r" \[Op:.*|, node name.*|Label values: .*", "", text).strip()


@pytest.mark.parametrize("way", ["jit", "flag"])
@pytest.mark.parametrize("name", CASES)
def test_error_is_tensorflows(name: str, way: str, request: pytest.FixtureRequest) -> None:
    function, (good, *bad) = CASES[name]
    calls = [good, *bad, good] if good else bad
    plain = tf.function(function)
    expected = [outcome(plain, given) for given in calls]
    assert sum(isinstance(e, tuple) for e in expected) == len(bad)
    if way == "flag":
        request.getfixturevalue("clustering")
        compiled: Any = tf.function(function)
    else:
        compiled = tfbridge.jit(function)
    tfbridge.reset_stats()
    for k, (given, wanted) in enumerate(zip(calls, expected)):
        found = outcome(compiled, given)
        if isinstance(wanted, tuple):
            assert found == wanted
        else:
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5)
        counters = tfbridge.stats()
        assert k or not good or way == "flag" or counters["clusters_compiled"] and not counters["fallbacks"]


UPDATES: dict[str, Callable[[tf.Variable, Any], Any]] = {
    "update": lambda v, k: v.scatter_nd_update(k[:, None], tf.ones([2, 3])),
    "add": lambda v, k: raw.ResourceScatterAdd(resource=v.handle, indices=k, updates=tf.ones([2, 3])),
    "after a sum": lambda v, k: (
        v.assign_add(tf.ones([4, 3])),
        v.assign_add(tf.gather(v, tf.concat([k, k], 0))),
    ),
    "in a loop": lambda v, k: loop(
        lambda n, s: s + tf.reduce_sum(v.scatter_nd_add(k[:, None] + n, tf.ones([2, 3]))), 2, 0.0
    ),
}


@pytest.mark.parametrize("name", UPDATES)
def test_variables_keep_their_value(name: str) -> None:
    """A step that fails leaves variables as they were, and the next one goes on from there."""
    contents = []
    for decorator in (tf.function, tfbridge.jit):
        v = tf.Variable(f(4, 3))

        @decorator
        def step(k: Any, v: tf.Variable = v) -> Any:
            UPDATES[name](v, k)
            return v * 2.0

        step(tf.constant([0, 2]))
        before = v.numpy()
        with pytest.raises(tf.errors.InvalidArgumentError):
            step(tf.constant([1, 9]))
        if decorator is tfbridge.jit:
            np.testing.assert_array_equal(v.numpy(), before)
        v.assign(before)
        step(tf.constant([1, 1]))
        contents.append(v.numpy())
    np.testing.assert_allclose(*contents, rtol=1e-6)


def test_known_indices_are_not_checked() -> None:
    """Loops over the elements of an array, forward and back, have no check in their steps."""

    def walk(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            a, s = array(x), tf.zeros(3)
            for k in tf.range(4):
                s = tf.tanh(s * a.read(3 - k) + x[k] + tf.gather(x, k // 2))
        return tape.gradient(s, x)

    compiled = tfbridge.jit(walk)
    np.testing.assert_allclose(
        compiled(tf.constant(f(4, 3))), tf.function(walk)(tf.constant(f(4, 3))), rtol=1e-5
    )
    assert not checks_of(walk, f(4, 3))
    assert checks_of(lambda x, k: tf.gather(x, k) + tf.gather(x, k % 4), f(4, 3), i(1, 2)) == 1


def checks_of(function: Callable[..., Any], *given: np.ndarray) -> int:
    """Checks in the module of a function."""
    specs = [tf.TensorSpec(g.shape, g.dtype) for g in given]
    module = freeze(tf.function(function), specs, "", {}).functions[0].module
    return sum(n.opcode == "custom-call" for c in module.computations() for n in c.instructions)


def test_exported_code_reports_an_index(tmp_path: Path) -> None:
    """The object stands alone, and its run ends with an error."""
    function = tf.function(
        lambda x, k: tf.gather(x, k) * 2.0,
        input_signature=[tf.TensorSpec([4], tf.float32), tf.TensorSpec([2], tf.int32)],
    )
    tfbridge.aot.compile(function, name="model", out_dir=tmp_path)
    (tmp_path / "main.c").write_text("""
#include <stdio.h>
#include "model.h"
int main(void) {
    model_model *model = model_new();
    for (int k = 3; k < 5; ++k) {
        for (int i = 0; i < 4; ++i) model_arg0(model)[i] = (float)i;
        for (int i = 0; i < 2; ++i) model_arg1(model)[i] = k;
        int status = model_run(model);
        if (status) printf("%s\\n", model_error_message(model)); else printf("%g\\n", model_result0(model)[0]);
    }
    model_free(model);
    return 0;
}
""")
    program = tmp_path / "program"
    subprocess.run(["gcc", "-o", program, tmp_path / "main.c", tmp_path / "model.o", "-lm"], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed[0] == "6"
    assert "an index is not in [0, 4)" in printed[1]
