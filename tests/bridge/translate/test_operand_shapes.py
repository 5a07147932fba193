"""What ops demand of the shapes of their operands: the patterns, the table, and nodes that are left to TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.graph.graph import op_definition
from tfbridge.bridge.translate.operand_shapes import OPS_BY_SHAPES, PATTERNS
from tfbridge.bridge.translate.registry import translations
from tfbridge.bridge.translate.shape_patterns import match, patterns
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ir.shape import Shape

F32, S32 = np.float32, np.int32
raw = tf.raw_ops


@pytest.mark.parametrize(
    ("text", "dims", "wanted"),
    [
        ("[] [2]", [(), (2,)], None),
        ("[] [2]", [(), (3,)], 1),
        ("[] [2]", [(1,), (2,)], 0),
        ("[n _] [n]", [(3, 4), (3,)], None),
        ("[n _] [n]", [(3, 4), (4,)], 1),
        ("[*s 3] [*s 3]", [(5, 2, 3), (5, 2, 3)], None),
        ("[*s 3] [*s 3]", [(5, 2, 3), (2, 3)], 1),
        ("[*s 3] [*s 3]", [(3,), (3,)], None),
        ("[*s 3] [*s 3]", [(5, 2), (5, 2)], 0),
        ("[... _ n] [n]", [(2, 3), (3,)], None),
        ("[... _ n] [n]", [(3,), (3,)], 0),
        ("? [# 2]", [(5, 3), (2, 2)], None),
        ("? [# 2]", [(5, 3), (3, 2)], 1),
        ("? [#]", [(), (0,)], None),
        ("[c] [c]|[0]", [(3,), (0,)], None),
        ("[c] [c]|[0]", [(3,), (1,)], 1),
        ("[]|[*s] [*s]", [(), (2, 3)], None),
        ("[+ _]", [(1, 0)], None),
        ("[+ _]", [(0, 1)], 0),
        ("[u] [_ 4u]", [(3,), (7, 12)], None),
        ("[u] [_ 4u]", [(3,), (7, 3)], 1),
    ],
)
def test_pattern(text: str, dims: list[tuple[int, ...]], wanted: int | None) -> None:
    assert match(patterns(text), [[Shape(ElementType.F32, d)] for d in dims]) == wanted


def test_sizes_that_depend_on_data_match_any() -> None:
    vector = Shape(ElementType.F32, (9,), dynamic=frozenset({0}))
    assert match(patterns("[n 2] [n]"), [[Shape(ElementType.F32, (3, 2))], [vector]]) is None


def test_table_names_ops_and_their_arguments() -> None:
    assert sum(len(ops.split()) for _, ops in OPS_BY_SHAPES) == len(PATTERNS)
    assert PATTERNS.keys() <= translations().keys()
    for op, wanted in PATTERNS.items():
        definition = op_definition(op)
        assert definition is not None
        assert len(wanted) == len(definition.input_arg), op


def f(*dims: int) -> np.ndarray:
    """An array of f32."""
    return np.arange(1, np.prod(dims) + 1, dtype=F32).reshape(dims)


def i(values: Any) -> np.ndarray:
    """An array of int32."""
    return np.array(values, S32)


# Functions, good arguments, bad ones.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "cumsum": (lambda x, a: tf.cumsum(x, a), (f(3), i(0)), (f(3), i([0]))),
    "cumsum of a scalar": (lambda x, a: tf.cumsum(x, a), (f(3), i(0)), (f(), i(0))),
    "top_k": (lambda x, k: tf.math.top_k(x, k)[0], (f(3), i(2)), (f(3), i([2]))),
    "one_hot": (lambda x, k: tf.one_hot(x, k), (i([1]), i(2)), (i([1]), i([2]))),
    "arg_max": (lambda x, a: raw.ArgMax(input=x, dimension=a), (f(3, 2), i(0)), (f(3, 2), i([0, 1]))),
    "tanh_grad": (lambda y, g: raw.TanhGrad(y=y, dy=g), (f(3, 2), f(3, 2)), (f(3, 2), f(2))),
    "add_n": (lambda x, y: tf.add_n([x, y]), (f(3, 2), f(3, 2)), (f(3, 2), f(3, 1))),
    "seed": (lambda s: tf.random.stateless_uniform([3], s), (i([1, 2]),), (i([1]),)),
    "shape of random numbers": (
        lambda s: raw.StatelessRandomUniform(shape=s, seed=[1, 2]),
        (i([2]),),
        (i(2),),
    ),
    "scatter": (lambda k, s: tf.scatter_nd(k, f(2), s), (i([[0], [1]]), i([3])), (i([[0], [1]]), i([[3]]))),
    "paddings": (lambda x, p: tf.pad(x, p), (f(3), i([[1, 0]])), (f(3), i([1, 0]))),
    "roll": (lambda x, s: tf.roll(x, s, [0]), (f(3, 2), i([1])), (f(3, 2), i([[1]]))),
    "cross": (tf.linalg.cross, (f(2, 3), f(2, 3)), (f(2, 3), f(1, 3))),
    "betainc": (tf.math.betainc, (f(3), f(3), f(3)), (f(3), f(3), f(1))),
    "size of images": (
        lambda x, s: raw.ResizeBilinear(images=x, size=s),
        (f(1, 2, 2, 1), i([3, 3])),
        (f(1, 2, 2, 1), i([3, 0])),
    ),
    "diagonals": (lambda x, k: tf.linalg.diag(x, k=k), (f(2, 3), i([0, 1])), (f(2, 3), i([-1, 1]))),
    "offsets": (
        lambda x: raw.ConcatOffset(concat_dim=0, shape=[x, i([2, 3])])[1],
        (i([4, 3]),),
        (i([4, 2]),),
    ),
    "filter's depth": (
        lambda x, k: tf.nn.depthwise_conv2d(x, k, [1, 1, 1, 1], "SAME"),
        (f(1, 3, 3, 2), f(2, 2, 2, 1)),
        (f(1, 3, 3, 2), f(2, 2, 1, 1)),
    ),
    "pool's gradient": (
        lambda x, y: raw.MaxPoolGrad(
            orig_input=x, orig_output=y, grad=y, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"
        ),
        (f(1, 4, 4, 1), f(1, 2, 2, 1)),
        (f(1, 4, 4, 1), f(1, 2, 1, 1)),
    ),
    "norm": (
        lambda x, s: tf.compat.v1.nn.fused_batch_norm(x, s, s)[0],
        (f(1, 2, 2, 3), f(3)),
        (f(1, 2, 2, 3), f(1)),
    ),
    "segments": (lambda x, n: tf.math.unsorted_segment_sum(x, i([0, 1]), n), (f(2), i(3)), (f(2), i([3]))),
    "linspace": (lambda a, n: tf.raw_ops.LinSpace(start=a, stop=2.0, num=n), (f(), i(3)), (f(1), i(3))),
    "nothing to gather": (tf.gather_nd, (f(3, 2), i([[0]])), (f(3, 0), i([[0]]))),
    "filter of nothing": (
        lambda x, k: raw.Conv2D(input=x, filter=k, strides=[1, 1, 1, 1], padding="SAME"),
        (f(1, 3, 3, 2), f(2, 2, 2, 1)),
        (f(1, 3, 3, 2), f(0, 2, 2, 1)),
    ),
    "sizes of parts": (
        lambda x, k: raw.SplitV(value=x, size_splits=k, axis=0, num_split=2)[0],
        (f(3), i([1, 2])),
        (f(3), i([3])),
    ),
    "scale": (
        lambda x, s: raw.UniformDequantize(
            input=tf.bitcast(x, tf.qint32),
            scales=s,
            zero_points=0,
            quantization_min_val=-9,
            quantization_max_val=9,
            Tout=tf.float32,
        ),
        (i([1, 2]), f()),
        (i([1, 2]), f() - f()),
    ),
    "quantized range": (
        lambda x, low: tf.quantization.quantize_and_dequantize_v2(x, low, 1.0, range_given=True),
        (f(3), f() - 2),
        (f(3), f() + 2),
    ),
}


def outcome(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """The result, or the type of the error."""
    try:
        return function(*map(tf.constant, given)).numpy()
    except (tf.errors.OpError, ValueError) as error:
        return type(error)


def _with(function: Callable[..., Any], given: tuple[Any, ...]) -> Callable[..., Any]:
    return lambda *arguments: function(*given)


@pytest.mark.parametrize("are_known", [False, True], ids=["given", "constant"])
@pytest.mark.parametrize("name", CASES)
def test_error_is_tensorflows(name: str, are_known: bool) -> None:
    """Operands of unknown shape, or constants, of which no folding makes a value."""
    function, *calls = CASES[name]
    specs = [tf.TensorSpec(None, a.dtype) for a in calls[0]]
    for given, is_bad in zip(calls, (False, True)):
        called = _with(function, given) if are_known else function
        found, wanted = (
            outcome(decorator(tf.function(called, input_signature=specs, autograph=False)), given)
            for decorator in (tfbridge.jit, lambda plain: plain)
        )
        assert isinstance(wanted, type) == is_bad
        if is_bad:
            assert found is wanted
        else:
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "stride of features": lambda x: raw.Conv2D(
        input=x, filter=f(2, 2, 3, 1), strides=[1, 1, 1, 2], padding="SAME"
    ),
    "stride of images": lambda x: raw.AvgPool(
        value=x, ksize=[1, 2, 2, 1], strides=[2, 1, 1, 1], padding="SAME"
    ),
    "too many strides": lambda x: raw.MaxPool(input=x, ksize=[1, 2, 2, 1], strides=[1] * 5, padding="SAME"),
    "rate of features": lambda x: raw.ExtractImagePatches(
        images=x, ksizes=[1, 2, 2, 1], strides=[1, 1, 1, 1], rates=[1, 1, 1, 2], padding="SAME"
    ),
    "bits": lambda x: raw.FakeQuantWithMinMaxArgs(inputs=x, num_bits=17),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_of_axes_without_space(name: str) -> None:
    specs = [tf.TensorSpec(None, tf.float32)]
    plain = tf.function(ATTRIBUTES[name], input_signature=specs)
    wanted = outcome(plain, (f(1, 4, 4, 3),))
    assert isinstance(wanted, type)
    assert outcome(tfbridge.jit(plain), (f(1, 4, 4, 3),)) is wanted
