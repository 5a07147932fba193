"""Files of LiteRT: their results beside the interpreter's, their integers, and refusals of files that are none."""

from __future__ import annotations

import dataclasses
import functools
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from lite_files import Tensor, const, one_operator, packed
from tfbridge.bridge.aot import __main__ as command
from tfbridge.bridge.aot.freeze import Frozen, freeze
from tfbridge.bridge.aot.quantization import byte_form
from tfbridge.bridge.aot.tflite.operation import ByteForm
from tfbridge.bridge.aot.tflite.registry import TRANSLATIONS
from tfbridge.bridge.tf_internals.symbols import lite_schema
from tfbridge.compiler.client.platforms import native
from tfbridge.compiler.errors import CompilerError, ShapeError, UnsupportedError
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.options import DEFAULT_OPTIONS

RNG = np.random.default_rng(4)
KINDS = ("f32", "f16", "dynamic", "int8", "uint8", "int16")


def convert(function: Callable[..., object], specs: Sequence[tf.TensorSpec], kind: str = "f32") -> bytes:
    """A function as the content of a .tflite file, of weights or integers of a kind."""
    module = tf.Module()
    module.call = tf.function(function, input_signature=specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.call.get_concrete_function()], module)
    kinds = tf.lite.OpsSet
    converter.target_spec.supported_ops = [kinds.TFLITE_BUILTINS]
    if kind != "f32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "f16":
        converter.target_spec.supported_types = [tf.float16]
    if "int" in kind:
        samples = [
            [RNG.normal(size=[d or 1 for d in s.shape]).astype(np.float32) for s in specs] for _ in range(8)
        ]
        converter.representative_dataset = lambda: iter(samples)
    if kind == "int16":
        converter.target_spec.supported_ops = [
            kinds.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        ]
    if kind in ("int8", "uint8"):
        converter.inference_input_type = converter.inference_output_type = tf.as_dtype(kind)
    content: bytes = converter.convert()
    return content


def frozen_file(path: Path, content: bytes, form: ByteForm | None = None, **feeds: object) -> Frozen:
    path.write_bytes(content)
    here = byte_form([native().target(DEFAULT_OPTIONS)])
    return freeze(str(path), (), "serving_default", feeds, form or here)  # type: ignore[arg-type]


def results(frozen: Frozen, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """(compiled, LiteRT's) results for random arguments."""
    (function,) = frozen.functions
    random, arguments = np.random.default_rng(seed), []
    for shape in function.module.entry.parameter_shapes:
        dtype = shape.element_type.dtype
        if dtype.kind == "f":
            arguments.append(random.normal(size=shape.dims).astype(dtype))
        elif dtype.kind == "b":
            arguments.append(random.integers(0, 2, shape.dims).astype(dtype))
        elif function.argument_steps:
            (_, (scale, zero_point)), info = function.argument_steps[0], np.iinfo(dtype)
            integers = np.round(random.normal(size=shape.dims) / scale) + zero_point
            arguments.append(np.clip(integers, info.min, info.max).astype(dtype))
        else:
            arguments.append(random.integers(0, 3, shape.dims).astype(dtype))
    compiled = native().compile(function.module, DEFAULT_OPTIONS).execute(arguments)
    return [(np.array(a), b) for a, b in zip(compiled, function.expected(arguments, 1), strict=True)]


def check(frozen: Frozen, steps: int = 1, tolerance: float = 1e-5) -> None:
    for result, expected in results(frozen):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        if result.dtype.kind == "f":
            largest = max(float(np.abs(expected).max(initial=0)), 1e-3)
            np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance * largest)
        else:
            assert np.abs(result.astype(np.int64) - expected.astype(np.int64)).max(initial=0) <= steps


def weights(*dims: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(sum(dims)).normal(0, 0.4, dims).astype(np.float32))


def network(x: tf.Tensor) -> tf.Tensor:
    """Convolutions with strides, groups of one, dilations and odd numbers of features; pools, a sum, a dense layer."""
    y = tf.nn.relu6(tf.nn.conv2d(x, weights(3, 3, 3, 10), 2, "SAME") + weights(10))
    z = tf.nn.relu(tf.nn.depthwise_conv2d(y, weights(3, 3, 10, 1), [1] * 4, "SAME") + weights(10))
    z = tf.nn.conv2d(z, weights(1, 1, 10, 10), 1, "VALID") + weights(10)
    y = tf.nn.max_pool2d(tf.nn.relu(y + z), 2, 2, "SAME")
    y = tf.nn.avg_pool2d(tf.concat([y, y], -1), 2, 1, "VALID")
    y = tf.reshape(tf.nn.conv2d(y, weights(2, 2, 20, 6), 1, "VALID", dilations=1), [-1, 12])
    return tf.nn.softmax(y @ weights(12, 5) + weights(5))


IMAGES = (tf.TensorSpec((1, 13, 11, 3), tf.float32, "images"),)


@pytest.mark.parametrize("kind", KINDS)
def test_a_network(kind: str, tmp_path: Path) -> None:
    frozen = frozen_file(tmp_path / "network.tflite", convert(network, IMAGES, kind))
    # The interpreter rounds values to 8 bits where weights alone are integers; code does not.
    check(frozen, tolerance={"dynamic": 0.05, "int16": 1e-3}.get(kind, 1e-5))


@pytest.mark.parametrize("form", [ByteForm(tf.uint8), ByteForm(tf.int8), ByteForm(tf.int8, True)], ids=str)
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_products_are_of_bytes(form: ByteForm, kind: str, tmp_path: Path) -> None:
    frozen = frozen_file(tmp_path / "network.tflite", convert(network, IMAGES, kind), form)
    module = frozen.functions[0].module
    contractions = [i for i in module.entry.instructions if i.op.is_contraction]  # type: ignore[union-attr]
    types = {tuple(o.shape.element_type for o in i.operands) for i in contractions}
    bytes_ = ElementType.U8 if form.dtype == tf.uint8 else ElementType.S8
    assert len(contractions) == 5
    assert types == {(bytes_, ElementType.S8)}
    assert {i.shape.element_type for i in contractions} == {ElementType.S32}
    check(frozen)


X, Y = (tf.TensorSpec((2, 6, 4, 8), tf.float32, name) for name in "xy")
OPS: dict[str, tuple[Callable[..., object], Sequence[tf.TensorSpec]]] = {
    "gelu": (tf.nn.gelu, [X]),
    "elementwise": (
        lambda x: [
            *(f(x) for f in (tf.abs, tf.exp, tf.square, tf.negative, tf.tanh, tf.sigmoid, tf.nn.elu)),
            *(f(x) for f in (tf.floor, tf.math.ceil, tf.round, tf.sin, tf.cos, tf.nn.relu, tf.nn.relu6)),
            *(f(tf.abs(x) + 0.1) for f in (tf.sqrt, tf.math.rsqrt, tf.math.log)),
            tf.nn.leaky_relu(x, 0.3),
            tf.nn.gelu(x, approximate=True),
            x * tf.nn.relu6(x + 3) / 6,
            tf.where(x < 0, x * weights(8), x),
            tf.nn.softmax(x),
            tf.nn.log_softmax(x),
            tf.math.l2_normalize(x, -1),
        ],
        [X],
    ),
    "pairs": (
        lambda x, y: [
            *(f(x, y) for f in (tf.add, tf.subtract, tf.multiply, tf.divide, tf.maximum, tf.minimum)),
            *(f(x, y) for f in (tf.less, tf.greater_equal, tf.equal, tf.math.squared_difference)),
            tf.nn.relu(x + y),
            tf.pow(tf.abs(x), y),
            tf.where(x < y, x, y + 1),
            tf.logical_and(x < y, tf.logical_not(x < 0)),
            tf.matmul(x, y, transpose_b=True),
            x - weights(8),
        ],
        [X, Y],
    ),
    "reductions": (
        lambda x: [
            *(f(x, [1, 2]) for f in (tf.reduce_mean, tf.reduce_sum, tf.reduce_max, tf.reduce_min)),
            tf.reduce_mean(x, -1, keepdims=True),
            tf.reduce_any(x > 2, 1),
            tf.argmax(x, -1, tf.int32),
            tf.argmin(x, 1),
            *tf.math.top_k(x, 3),
            tf.cumsum(x, 1, reverse=True),
        ],
        [X],
    ),
    "moves": (
        lambda x: [
            tf.transpose(x, [0, 3, 1, 2]),
            tf.concat([x, x + 1], 2),
            *tf.split(x, 2, 3),
            *tf.split(x, [1, 3, 2], 1),
            tf.stack([x, x], 1),
            *tf.unstack(x, axis=2),
            x[:, 1:5:2, ::-1, 3],
            tf.slice(x, [0, 1, 0, 2], [2, 3, 4, -1]),
            tf.pad(x, [[0, 0], [1, 2], [0, 1], [0, 0]]),
            tf.pad(x, [[0, 0], [1, 2], [0, 1], [0, 0]], constant_values=0.5),
            tf.pad(x, [[0, 0], [1, 2], [1, 1], [0, 0]], "REFLECT"),
            tf.gather(x, [3, 0, 5], axis=1),
            tf.gather_nd(x, [[0, 5], [1, 2]]),
            tf.tile(x, [1, 2, 1, 3]),
            tf.expand_dims(x, 2),
            tf.squeeze(x[:, :1], 1),
            tf.nn.space_to_depth(x, 2),
            tf.nn.depth_to_space(x, 2),
            tf.space_to_batch(x, [2, 2], [[1, 1], [0, 2]]),
            tf.reverse(x, [1]),
            tf.shape(x),
            tf.cast(x, tf.int32),
            tf.broadcast_to(x[:, :1], [2, 6, 4, 8]),
        ],
        [X],
    ),
    "images": (
        lambda x: [
            tf.image.resize(x, [9, 7]),
            tf.image.resize(x, [3, 8], "nearest"),
            tf.compat.v1.image.resize_bilinear(x, [11, 7], align_corners=True),
            tf.nn.conv2d_transpose(x, weights(3, 3, 5, 8), [2, 12, 8, 5], 2, "SAME"),
            tf.nn.conv2d_transpose(x, weights(3, 2, 5, 8), [2, 8, 5, 5], 1, "VALID"),
            tf.nn.local_response_normalization(x, 2, 1.0, 0.2, 0.5),
        ],
        [X],
    ),
    "volumes": (
        lambda x: [
            tf.nn.relu(tf.nn.conv3d(x, weights(3, 2, 1, 2, 4), [1, 1, 2, 1, 1], "SAME") + weights(4)),
            tf.nn.conv3d(x, weights(2, 3, 3, 2, 1), [1] * 5, "VALID"),
            tf.nn.conv3d_transpose(x, weights(3, 2, 2, 5, 2), [1, 10, 6, 8, 5], [1, 2, 1, 2, 1], "SAME"),
        ],
        [tf.TensorSpec((1, 5, 6, 4, 2), tf.float32, "x")],
    ),
}


@pytest.mark.parametrize("name", OPS)
def test_operators(name: str, tmp_path: Path) -> None:
    function, specs = OPS[name]
    check(frozen_file(tmp_path / "ops.tflite", convert(function, specs)), steps=0)


ROWS, PLACES = tf.TensorSpec((5, 4), tf.float32, "x"), tf.TensorSpec((5,), tf.int32, "i")
OPS["places"] = (
    lambda x, i: [
        tf.scatter_nd(i[:, None], x, [3, 4]),
        tf.math.unsorted_segment_sum(x, i, 3),
        tf.math.unsorted_segment_max(x, i, 3),
        tf.math.unsorted_segment_min(x, i, 3),
        tf.math.unsorted_segment_prod(x, i, 3),
        tf.reverse_sequence(x, i, 1, 0),
        tf.linalg.set_diag(x[:4], x[0]),
        tf.linalg.diag(x),
        tf.one_hot(i, 4, 2.0, -1.0),
        tf.one_hot(i, 3, axis=0),
        tf.gather(x, i),
        tf.nn.embedding_lookup(weights(7, 3), i),
    ],
    [ROWS, PLACES],
)
OPS["integers"] = (
    lambda x, i: [
        *(f(i, i + 2) for f in (tf.math.floormod, tf.math.floordiv, tf.bitwise.bitwise_xor, tf.pow)),
        *(f(i - 3, 2 - i * 3) for f in (tf.maximum, tf.math.floormod, tf.multiply, tf.not_equal)),
        tf.math.floordiv(x, 0.3),
        tf.math.floormod(x, 0.3),
        tf.bitwise.right_shift(i + 9, i),
        tf.sign(x),
        tf.atan2(x, x + 1),
        tf.range(0, 9, 2) + i,
        tf.fill([2, 3], x[0, 0]),
        tf.zeros_like(x),
        tf.add_n([x, x * 2, x * 3]),
        tf.cast(i, tf.int64) - 7,
        tf.cast(i, tf.bool),
        tf.reduce_prod(x, 0),
        tf.reduce_all(x > -1, 1),
        tf.pad(x, [[1, 2], [0, 1]], "SYMMETRIC"),
        tf.clip_by_value(x, -1.0, 1.0),
        tf.clip_by_value(x, 0.0, 1.0),
        tf.cond(x[0, 0] > 0, lambda: x + 1, lambda: x * 2),
        tf.abs(tf.signal.rfft2d(tf.reshape(x, [5, 4])[:4])),
        tf.quantization.fake_quant_with_min_max_args(x, -1, 2),
        tf.batch_to_space(tf.reshape(x[:4], [4, 2, 2, 1]), [2, 2], [[0, 1], [1, 0]]),
        tf.tensor_scatter_nd_update(x, [[1], [0]], x[2:4]),
    ],
    [ROWS, PLACES],
)


FLOATS, INTS = Tensor((2, 3, 4, 5)), Tensor((2, 3), "int32")
BYTES = [Tensor((2, 3, 4, 5), kind, scale=0.03, zero_point=z) for kind, z in (("int8", -7), ("uint8", 121))]
WORDS = Tensor((2, 3, 4, 5), "int16", scale=3e-4)
WHOLE = Tensor(())
SLOPES = np.linspace(-0.6, 0.7, 5)
W = np.random.default_rng(9).integers(60, 200, (6, 3, 3, 5))
B = const(np.arange(6) * 400, "int32", 3e-4)
POOL = {"padding": 0, "strideW": 2, "strideH": 2, "filterWidth": 3, "filterHeight": 2}
case = functools.partial(functools.partial, one_operator)
ONES: list[functools.partial[bytes]] = [
    case("BITCAST", [FLOATS], [Tensor((2, 3, 4, 5), "int32")]),
    case("BROADCAST_ARGS", [const([2, 1], "int32"), const([3], "int32")], [Tensor((2,), "int32")]),
    case("EMBEDDING_LOOKUP", [Tensor((3,), "int32"), const(SLOPES[:, None])], [Tensor((3, 1))]),
    case("EXPAND_DIMS", [FLOATS, const(-2, "int32")], [Tensor((2, 3, 4, 1, 5))]),
    case("FAKE_QUANT", [FLOATS], [FLOATS], "FakeQuant", min=-1.0, max=2.0, numBits=8),
    case("L2_POOL_2D", [FLOATS], [Tensor((2, 2, 2, 5))], "Pool2D", **POOL),
    case("LESS_EQUAL", [INTS, INTS], [Tensor((2, 3), "bool")]),
    case("LOGICAL_NOT", [Tensor((2, 3), "bool")], [Tensor((2, 3), "bool")]),
    case("LOGICAL_OR", [Tensor((2, 3), "bool")] * 2, [Tensor((2, 3), "bool")]),
    case("RANGE", [const(1.0), const(3.0), const(0.5)], [Tensor((4,))]),
    case("RANK", [FLOATS], [Tensor((), "int32")]),
    case("RELU_0_TO_1", [FLOATS], [FLOATS]),
    case("SELECT_V2", [Tensor((3, 1, 1), "bool"), FLOATS, WHOLE], [FLOATS]),
    case("SHAPE", [FLOATS], [Tensor((4,), "int32")], "Shape", outType=2),
    case(
        "SPARSE_TO_DENSE",
        [const([[0, 1], [2, 0]], "int32"), const([3, 4], "int32"), Tensor((2,)), const(-1.0)],
        [Tensor((3, 4))],
    ),
    case("SQUEEZE", [Tensor((1, 3, 1))], [Tensor((3, 1))], "Squeeze", squeezeDims=[0]),
    case("ZEROS_LIKE", [INTS], [INTS]),
    *(case("PRELU", [x, const(SLOPES.reshape(1, 1, 5))], [x]) for x in (FLOATS,)),
    *(case("ADD", [x, x], [x], "Add", fusedActivationFunction=3) for x in (*BYTES, WORDS)),
    *(case("SUB", [x, x], [x], "Sub") for x in BYTES),
    *(case("MUL", [x, x], [x], "Mul", fusedActivationFunction=1) for x in (*BYTES, WORDS)),
    *(
        case(f"{kind}_POOL_2D", [x], [dataclasses.replace(x, dims=(2, 2, 2, 5))], "Pool2D", **POOL)
        for kind in ("AVERAGE", "MAX")
        for x in (*BYTES, WORDS)
    ),
    *(case("LEAKY_RELU", [x], [x], "LeakyRelu", alpha=0.3) for x in (*BYTES, WORDS)),
    *(
        case(
            "CONV_2D",
            [x, const(W, x.dtype, 0.01, zero), B],
            [dataclasses.replace(x, dims=(2, 2, 2, 6))],
            "Conv2D",
            padding=0,
            strideW=2,
            strideH=2,
        )
        for x, zero in ((BYTES[1], 128), (BYTES[1], 110))
    ),
]


@pytest.mark.parametrize("content", ONES, ids=[f"{each.args[0]}-{k}" for k, each in enumerate(ONES)])
def test_one_operator(content: Callable[[], bytes], tmp_path: Path) -> None:
    check(frozen_file(tmp_path / "one.tflite", content()))


QUANTISED: dict[str, Callable[[tf.Tensor], object]] = {
    "moves": lambda x: [
        tf.transpose(tf.pad(x, [[0, 0], [1, 0], [0, 2], [0, 0]]), [0, 3, 1, 2]),
        tf.nn.max_pool2d(x, 2, 2, "VALID"),
        tf.concat([x, x * 0.3], 3),
        tf.reshape(x, [2, -1])[:, 3:50],
        tf.compat.v1.image.resize_nearest_neighbor(x, [3, 8]),
        tf.argmax(x, -1, tf.int32),
    ],
    "numbers": lambda x: [
        tf.sigmoid(x),
        tf.tanh(x),
        tf.nn.softmax(x),
        x * weights(8),
        tf.nn.leaky_relu(x, 0.2),
        tf.reduce_mean(x, [1, 2]),
        tf.nn.avg_pool2d(x, 3, 2, "SAME"),
        tf.maximum(x, weights(8)),
        tf.image.resize(x, [9, 7]),
    ],
    "products": lambda x: [
        tf.nn.conv2d_transpose(x, weights(3, 3, 5, 8), [2, 12, 8, 5], 2, "SAME"),
        tf.nn.conv2d(x, weights(2, 3, 4, 6), 1, "SAME"),
        tf.nn.depthwise_conv2d(x, weights(3, 3, 8, 2), [1, 2, 2, 1], "SAME"),
        tf.nn.conv2d(x, weights(3, 3, 8, 7), 1, "SAME", dilations=2),
        tf.reshape(x, [48, 8]) @ weights(8, 3),
    ],
}


@pytest.mark.parametrize("name", QUANTISED)
def test_operators_on_integers(name: str, tmp_path: Path) -> None:
    check(frozen_file(tmp_path / "ops.tflite", convert(QUANTISED[name], [X], "int8")))


def test_a_loop_that_writes_rows(tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    layer = keras.layers.LSTM(6, return_sequences=True)
    layer.build((1, 5, 3))
    constants = [tf.constant(w.numpy()) for w in layer.weights]

    def cell(step: int, x: tf.Tensor, h: tf.Tensor, rows: tf.TensorArray) -> tuple[object, ...]:
        gates = tf.split(x[step] @ constants[0][:, :6] + h @ constants[1][:, :6], 2, 1)
        h = tf.tanh(tf.concat(gates, 1))
        return step + 1, x, h, rows.write(step, h)

    def unrolled(x: tf.Tensor) -> tf.Tensor:
        rows = tf.TensorArray(tf.float32, 5, element_shape=(2, 6))
        loop = (0, x, tf.zeros((2, 6)), rows)
        return tf.while_loop(lambda step, *_: step < 5, cell, loop)[3].stack()

    content = convert(unrolled, [tf.TensorSpec((5, 2, 3), tf.float32, "x")])
    assert len(tf.lite.Interpreter(model_content=content)._get_ops_details()) < 10  # the loop is one
    check(frozen_file(tmp_path / "rows.tflite", content))


# -- names, sizes, files


def _signatures(folder: Path) -> bytes:
    """A file with the signature of a SavedModel, of arguments in another order than that of their names."""
    module = tf.Module()
    specs = [tf.TensorSpec((None, 3), tf.float32, name) for name in ("width", "height")]
    module.area = tf.function(lambda width, height: {"sum": width + height, "area": width * height}, specs)
    tf.saved_model.save(module, str(folder), signatures={"measure": module.area})
    content: bytes = tf.lite.TFLiteConverter.from_saved_model(
        str(folder), signature_keys=["measure"]
    ).convert()
    return content


def test_signatures_and_sizes(tmp_path: Path) -> None:
    content = _signatures(tmp_path / "saved")
    path = tmp_path / "areas.tflite"
    frozen = frozen_file(path, content)
    (function,) = frozen.functions
    assert frozen.name == "areas"
    assert sorted(function.arguments) == ["height", "width"]
    assert sorted(function.results) == ["area", "sum"]
    assert [s.dims for s in function.module.entry.parameter_shapes] == [
        (1, 3)
    ] * 2  # as the interpreter has it
    check(frozen)
    larger = frozen_file(path, content, width=(4, 3), height=(4, 3))
    assert [a.shape for a, _ in results(larger)] == [(4, 3)] * 2
    check(larger)
    compiled = tfbridge.aot.compile(path, feeds={"width": "?nx3", "height": "?nx3"}, out_dir=tmp_path)
    assert "n" in compiled.header.read_text()
    with pytest.raises(ShapeError, match="no signature 'area'; it has 'measure'"):
        freeze(str(path), (), "area", {})
    with pytest.raises(ShapeError, match="does not fit"):
        frozen_file(path, content, width=(4, 5))


@pytest.mark.skipif(shutil.which("cc") is None, reason="the program is compiled in C")
def test_an_exported_file_of_integers(tmp_path: Path) -> None:
    path = tmp_path / "network.tflite"
    path.write_bytes(convert(network, IMAGES, "int8"))
    assert command.main([str(path), "--name", "net", "--out", str(tmp_path), "--with", "test"]) == 0
    header = (tmp_path / "net.h").read_text()
    assert "arg0: int8[1, 13, 11, 3]" in header
    assert "Quantised: an integer q stands for the number (q + 128) * 0.00390625; -128 is zero." in header
    subprocess.run(["cc", "net_test.c", "net.o", "-lm", "-o", "net"], check=True, cwd=tmp_path)
    subprocess.run([str(tmp_path / "net")], check=True)


def test_the_documented_operators_are_those_that_are_translated() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "aot.md").read_text()
    table = page.partition("| what | element types | operators |")[2].partition("\n\n")[0]
    documented = re.findall(r"[A-Z0-9_]+", " ".join(line.split("|")[3] for line in table.splitlines()[2:]))
    assert sorted(documented) == sorted(TRANSLATIONS)


# -- refusals


def test_all_unknown_operators_are_listed(tmp_path: Path) -> None:
    function = lambda x: (tf.where(x > 0), tf.unique(x[:, 0])[0])  # noqa: E731
    content = convert(function, [tf.TensorSpec((4, 4), tf.float32, "x")])
    with pytest.raises(UnsupportedError, match=r"(?s)ops\.tflite.*WHERE \(\w+.*UNIQUE \(\w+"):
        frozen_file(tmp_path / "ops.tflite", content)


def test_files_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.tflite"
    with pytest.raises(FileNotFoundError):
        freeze(str(path), (), "serving_default", {})
    for content in (b"", b"\0" * 100, b"PK\3\4 no model"):
        with pytest.raises(ShapeError, match="no .tflite file"):
            frozen_file(path, content)
    assert command.main([str(path), "--out", str(tmp_path)]) == 1
    assert "is no .tflite file" in capsys.readouterr().err


def test_damaged_files_are_refused_or_read(tmp_path: Path) -> None:
    """Bytes that are lost or changed give an error of ours, or a model: nothing else."""
    whole = convert(lambda x: tf.nn.relu(x @ weights(4, 3)), [tf.TensorSpec((1, 4), tf.float32, "x")], "int8")
    path, refused, random = tmp_path / "damaged.tflite", 0, np.random.default_rng(0)
    damaged = [whole[:length] for length in range(8, len(whole), len(whole) // 25)]
    for _ in range(120):
        content = bytearray(whole)
        for place in random.integers(8, len(whole), random.integers(1, 6)):
            content[place] = random.integers(0, 256)
        damaged.append(bytes(content))
    for content in damaged:
        try:
            frozen_file(path, content)
        except CompilerError:
            refused += 1
    assert refused > 25


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda graph: setattr(graph.operators[0], "inputs", [99]), "damaged: ValueError: tensor 99"),
        (lambda graph: setattr(graph.operators[0], "opcodeIndex", 7), "operator code 7"),
        (lambda graph: setattr(graph.tensors[1], "shape", [3, 9]), "tensor .* bytes for"),
        (lambda graph: graph.operators.clear(), "nothing computes"),
    ],
    ids=["tensor", "operator", "dims", "nothing"],
)
def test_what_is_wrong_with_a_file(change: Callable[..., object], message: str, tmp_path: Path) -> None:
    content = convert(lambda x: x @ weights(4, 3), [tf.TensorSpec((1, 4), tf.float32, "x")])
    model = lite_schema().ModelT.InitFromPackedBuf(content)
    change(model.subgraphs[0])
    with pytest.raises(CompilerError, match=message):
        frozen_file(tmp_path / "model.tflite", packed(model))


def test_a_graph_that_calls_itself(tmp_path: Path) -> None:
    content = one_operator(
        "WHILE", [Tensor((2,))], [Tensor((2,))], "While", condSubgraphIndex=0, bodySubgraphIndex=0
    )
    with pytest.raises(ShapeError, match="damaged: graph 0 calls itself"):
        frozen_file(tmp_path / "model.tflite", content)


def test_a_result_with_the_scale_zero(tmp_path: Path) -> None:
    content = one_operator("ABS", [Tensor((2,), "int8", scale=0.1)], [Tensor((2,), "int8", scale=0.0)])
    with pytest.raises(ShapeError, match=r"ABS \(result0\): the scale of result0 is zero"):
        frozen_file(tmp_path / "model.tflite", content)
