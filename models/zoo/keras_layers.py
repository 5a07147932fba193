"""Every layer class of keras.layers that computes, as rows of a layer and its inputs.

A row is run as one function: the layer, a weighted sum of what it gives, and the gradients of that with respect to its
inputs and weights. `keras_layers_table` runs all of them and says what is compiled.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..program import Array, tensors

L = keras.layers

# Classes without a kernel of their own, and why they have no row.
EXCLUDED: dict[str, str] = {
    "FlaxLayer": "runs a Flax module, on Keras's JAX backend",
    "InputLayer": "names an input; computes nothing",
    "InputSpec": "describes an input; no layer",
    "JaxLayer": "runs a JAX function through jax2tf",
    "Layer": "the class that others are made from",
    "MaxNumBoundingBoxes": "pads boxes of a dataset's elements",
    "TFSMLayer": "calls a SavedModel: its ops are those of the model",
    "TorchModuleWrapper": "runs a PyTorch module, on Keras's PyTorch backend",
    "Wrapper": "the class that wrappers are made from",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One layer with example inputs.

    `name` starts with its class. `make` builds it. `inputs` are NumPy arrays; `joined`: they are handed over as one
    list. `training` is what the layer is called with (None: it takes no such argument). `tolerance` is relative and
    absolute. `slow`: compiling it takes seconds, and no test runs it.
    """

    name: str
    make: Callable[..., Any]
    inputs: tuple[Array, ...]
    joined: bool = False
    training: bool | None = None
    tolerance: float = 1e-5
    keywords: tuple[tuple[str, object], ...] = ()
    slow: bool = False

    @property
    def layer_class(self) -> str:
        """Name of the class: the row's, up to the first blank."""
        return self.name.partition(" ")[0]


class Step:
    """A row's function over tensors, with the variables that it reads and writes."""

    def __init__(self, row: Row) -> None:
        keras.utils.set_random_seed(7)
        self.row = row
        self.layer = row.make()
        self.inputs = [tf.constant(value) for value in row.inputs]
        self._call(self.inputs)  # makes the weights
        noise = np.random.default_rng(3)
        for weight in self.layer.trainable_weights:  # no zeros: a wrong bias or scale must show
            weight.assign(weight + 0.1 * noise.standard_normal(weight.shape))
        states = keras.tree.flatten(getattr(self.layer, "states", None))  # of a stateful RNN
        self.variables = tensors(
            [*self.layer.variables, *(v for v in states if isinstance(v, keras.Variable))]
        )
        self._initial = [np.array(variable.numpy()) for variable in self.variables]
        self.trainable = tensors(self.layer.trainable_weights)

    def _call(self, inputs: list[tf.Tensor]) -> Any:
        keywords = dict(self.row.keywords)
        if self.row.training is not None:
            keywords["training"] = self.row.training
        random.seed(5)  # some layers draw in Python, when they are traced
        return self.layer(inputs, **keywords) if self.row.joined else self.layer(*inputs, **keywords)

    def function(self, *inputs: tf.Tensor) -> Any:
        """What the layer gives, and the gradients of its weighted sum."""
        watched = [value for value in inputs if value.dtype.is_floating] + self.trainable
        with tf.GradientTape() as tape:
            tape.watch([value for value in inputs if value.dtype.is_floating])
            outputs = tf.nest.flatten(self._call(list(inputs)), expand_composites=True)
            total = tf.add_n([_weighted(o) for o in outputs if o.dtype.is_floating] or [tf.zeros(())])
        return outputs, [g for g in tape.gradient(total, watched) if g is not None] if watched else []

    def run(self, function: Callable[..., Any]) -> list[Array]:
        """Results of the function from the initial variables, then the variables, as arrays."""
        for variable, value in zip(self.variables, self._initial, strict=True):
            variable.assign(value)
        results = tf.nest.flatten(function(*self.inputs), expand_composites=True)
        return [np.array(value.numpy()) for value in (*results, *self.variables)]


def _weighted(value: tf.Tensor) -> tf.Tensor:
    """A sum in which every element counts differently."""
    count = tf.cast(tf.size(value), tf.float32)
    weights = tf.cos(tf.range(count) * 1.7 + 0.3)
    return tf.reduce_sum(tf.cast(tf.reshape(value, [-1]), tf.float32) * weights)


_random = np.random.default_rng(11)


def f(*shape: int) -> Array:
    """Normal numbers."""
    return _random.standard_normal(shape).astype("f4")


def u(*shape: int) -> Array:
    """Numbers of an image: 0 to 255."""
    return _random.uniform(0, 255, shape).astype("f4")


def i(high: int, *shape: int) -> Array:
    """Whole numbers below `high`."""
    return _random.integers(0, high, shape).astype("i4")


def s(*texts: str) -> Array:
    """Texts, one to a row."""
    return np.array([[text] for text in texts])


def b(*shape: int) -> Array:
    """Truth values, the first of every row true."""
    values = _random.uniform(size=shape) < 0.6
    values[..., 0] = True
    return values


def _convolutions() -> Iterator[Row]:
    spatial = {1: (2, 11, 3), 2: (2, 9, 7, 3), 3: (1, 5, 6, 4, 2)}
    for n, shape in spatial.items():
        conv, transposed = getattr(L, f"Conv{n}D"), getattr(L, f"Conv{n}DTranspose")
        yield Row(f"Conv{n}D same", lambda c=conv: c(5, 3, padding="same", activation="relu"), (f(*shape),))
        yield Row(f"Conv{n}D stride 2", lambda c=conv: c(4, 2, strides=2, use_bias=False), (f(*shape),))
        yield Row(f"Conv{n}D dilated", lambda c=conv: c(4, 2, dilation_rate=2, padding="same"), (f(*shape),))
        yield Row(f"Conv{n}DTranspose", lambda c=transposed: c(3, 3, activation="tanh"), (f(*shape),))
        yield Row(
            f"Conv{n}DTranspose stride 2",
            lambda c=transposed: c(3, 2, strides=2, padding="same"),
            (f(*shape),),
        )
        if n < 3:
            depthwise, separable = getattr(L, f"DepthwiseConv{n}D"), getattr(L, f"SeparableConv{n}D")
            yield Row(
                f"DepthwiseConv{n}D",
                lambda c=depthwise: c(3, depth_multiplier=2, padding="same"),
                (f(*shape),),
            )
            yield Row(f"DepthwiseConv{n}D stride 2", lambda c=depthwise: c(3, strides=2), (f(*shape),))
            yield Row(f"DepthwiseConv{n}D dilated", lambda c=depthwise: c(2, dilation_rate=2), (f(*shape),))
            yield Row(f"SeparableConv{n}D", lambda c=separable: c(5, 3, depth_multiplier=2), (f(*shape),))
            yield Row(
                f"SeparableConv{n}D stride 2",
                lambda c=separable: c(5, 3, strides=2, padding="same"),
                (f(*shape),),
            )
    yield Row("Conv1D causal", lambda: L.Conv1D(4, 3, padding="causal", dilation_rate=2), (f(2, 7, 3),))
    yield Row("Conv2D groups", lambda: L.Conv2D(6, 3, groups=2, padding="same"), (f(2, 5, 7, 4),))
    yield Row(
        "Conv2D bfloat16", lambda: L.Conv2D(4, 3, dtype="mixed_bfloat16"), (f(2, 6, 5, 3),), tolerance=0.05
    )
    yield Row(
        "Conv2DTranspose output padding",
        lambda: L.Conv2DTranspose(3, 3, strides=2, output_padding=1),
        (f(1, 4, 5, 2),),
    )


def _pooling() -> Iterator[Row]:
    spatial = {1: (2, 11, 3), 2: (2, 9, 7, 3), 3: (1, 5, 6, 7, 2)}
    for n, shape in spatial.items():
        for kind in ("Max", "Average"):
            pool = getattr(L, f"{kind}Pooling{n}D")
            yield Row(f"{kind}Pooling{n}D", lambda c=pool: c(2), (f(*shape),))
            yield Row(f"{kind}Pooling{n}D same", lambda c=pool: c(3, strides=2, padding="same"), (f(*shape),))
            whole, adaptive = getattr(L, f"Global{kind}Pooling{n}D"), getattr(L, f"Adaptive{kind}Pooling{n}D")
            yield Row(f"Global{kind}Pooling{n}D", lambda c=whole: c(), (f(*shape),))
            yield Row(f"Global{kind}Pooling{n}D keepdims", lambda c=whole: c(keepdims=True), (f(*shape),))
            yield Row(f"Adaptive{kind}Pooling{n}D", lambda c=adaptive: c(3), (f(*shape),))
            yield Row(
                f"Adaptive{kind}Pooling{n}D even", lambda c=adaptive, n=n: c((2,) * n), (f(2, *(4,) * n, 3),)
            )


def _shaping() -> Iterator[Row]:
    spatial = {1: (2, 7, 3), 2: (2, 5, 7, 3), 3: (1, 5, 4, 6, 2)}
    for n, shape in spatial.items():
        crop, pad, up = (getattr(L, f"{kind}{n}D") for kind in ("Cropping", "ZeroPadding", "UpSampling"))
        pairs = tuple((1, 2) for _ in range(n)) if n > 1 else (1, 2)
        yield Row(f"Cropping{n}D", lambda c=crop, p=pairs: c(p), (f(*shape),))
        yield Row(f"ZeroPadding{n}D", lambda c=pad, p=pairs: c(p), (f(*shape),))
        yield Row(f"UpSampling{n}D", lambda c=up: c(2), (f(*shape),))
    for how in ("bilinear", "bicubic", "lanczos3", "lanczos5"):
        yield Row(
            f"UpSampling2D {how}", lambda how=how: L.UpSampling2D(2, interpolation=how), (f(1, 4, 5, 2),)
        )
    yield Row("Reshape", lambda: L.Reshape((-1, 2)), (f(3, 4, 5),))
    yield Row("Flatten", lambda: L.Flatten(), (f(3, 2, 5),))
    yield Row("Flatten channels_first", lambda: L.Flatten("channels_first"), (f(3, 2, 5, 4),))
    yield Row("Permute", lambda: L.Permute((3, 1, 2)), (f(2, 3, 4, 5),))
    yield Row("RepeatVector", lambda: L.RepeatVector(3), (f(2, 5),))
    yield Row("Identity", lambda: L.Identity(), (f(2, 5),))
    yield Row("Masking", lambda: L.Masking(0.0), (f(2, 5, 3) * b(2, 5, 1),))
    yield Row("Lambda", lambda: L.Lambda(lambda x: x * x + 1), (f(2, 5),))


def _merging() -> Iterator[Row]:
    for name in ("Add", "Average", "Maximum", "Minimum", "Multiply"):
        yield Row(name, getattr(L, name), (f(3, 5, 7), f(3, 5, 7), f(3, 1, 7)), joined=True)
    yield Row("Subtract", L.Subtract, (f(3, 5), f(3, 5)), joined=True)
    yield Row("Concatenate", lambda: L.Concatenate(1), (f(3, 2, 5), f(3, 1, 5), f(3, 4, 5)), joined=True)
    yield Row("Dot", lambda: L.Dot((2, 1)), (f(3, 2, 5), f(3, 5, 4)), joined=True)
    yield Row("Dot normalize", lambda: L.Dot(1, normalize=True), (f(3, 7), f(3, 7)), joined=True)


_ACTIVATIONS = (
    "celu",
    "elu",
    "exponential",
    "gelu",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_tanh",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "soft_shrink",
    "softplus",
    "softsign",
    "sparse_plus",
    "sparse_sigmoid",
    "sparsemax",
    "squareplus",
    "tanh",
    "tanh_shrink",
)


def _activations() -> Iterator[Row]:
    for name in _ACTIVATIONS:
        yield Row(f"Activation {name}", lambda name=name: L.Activation(name), (3 * f(3, 8),))
    yield Row("ELU", lambda: L.ELU(0.7), (f(3, 7),))
    yield Row("LeakyReLU", lambda: L.LeakyReLU(0.2), (f(3, 7),))
    yield Row("PReLU", lambda: L.PReLU(shared_axes=[1]), (f(2, 3, 5),))
    yield Row("ReLU", lambda: L.ReLU(max_value=1.0, negative_slope=0.1, threshold=0.2), (f(3, 7),))
    yield Row("Softmax", lambda: L.Softmax(axis=1), (f(2, 5, 3),))
    yield Row("Softmax mask", lambda: L.Softmax(), (f(2, 5), b(2, 5)))
    yield Row("ActivityRegularization", lambda: L.ActivityRegularization(0.1, 0.2), (f(3, 5),))


def _normalizations() -> Iterator[Row]:
    for training in (True, False):
        yield Row(
            f"BatchNormalization training={training}",
            L.BatchNormalization,
            (f(3, 5, 7, 2),),
            training=training,
        )
        yield Row(
            f"BatchNormalization of rows training={training}",
            L.BatchNormalization,
            (f(7, 5),),
            training=training,
        )
    yield Row("BatchNormalization axis 1", lambda: L.BatchNormalization(axis=1), (f(3, 5, 7),), training=True)
    yield Row("LayerNormalization", L.LayerNormalization, (f(3, 5, 7),))
    yield Row("LayerNormalization 2 axes", lambda: L.LayerNormalization(axis=[1, 2]), (f(3, 5, 7),))
    yield Row("RMSNormalization", L.RMSNormalization, (f(3, 5, 7),))
    yield Row("GroupNormalization", lambda: L.GroupNormalization(2), (f(3, 5, 6),))
    yield Row("GroupNormalization instance", lambda: L.GroupNormalization(-1), (f(2, 5, 3, 4),))
    yield Row("UnitNormalization", L.UnitNormalization, (f(3, 5),))
    yield Row("SpectralNormalization", lambda: L.SpectralNormalization(L.Dense(4)), (f(3, 5),), training=True)
    yield Row(
        "SpectralNormalization convolution",
        lambda: L.SpectralNormalization(L.Conv2D(4, 3), 2),
        (f(2, 5, 5, 2),),
        training=True,
    )


def _recurrent() -> Iterator[Row]:
    for name in ("LSTM", "GRU", "SimpleRNN"):
        layer, cell = getattr(L, name), getattr(L, f"{name}Cell")
        yield Row(name, lambda c=layer: c(5), (f(3, 6, 4),))
        yield Row(
            f"{name} sequences state",
            lambda c=layer: c(5, return_sequences=True, return_state=True),
            (f(2, 5, 3),),
        )
        yield Row(
            f"{name} backwards", lambda c=layer: c(3, go_backwards=True, return_sequences=True), (f(2, 5, 3),)
        )
        yield Row(f"{name} unrolled", lambda c=layer: c(4, unroll=True), (f(2, 3, 3),))
        yield Row(f"{name} masked", lambda c=layer: c(4), (f(3, 6, 2),), keywords=(("mask", b(3, 6)),))
        yield Row(f"{name} stateful", lambda c=layer: c(4, stateful=True), (f(3, 4, 2),))
        yield Row(
            f"{name} dropout",
            lambda c=layer: c(4, dropout=0.3, recurrent_dropout=0.2),
            (f(3, 4, 5),),
            training=True,
        )
        yield Row(f"RNN {name}Cell", lambda c=cell: L.RNN(c(4), return_sequences=True), (f(2, 5, 3),))
        yield Row(
            f"Bidirectional {name}",
            lambda c=layer: L.Bidirectional(c(3, return_sequences=True)),
            (f(2, 5, 3),),
        )
    yield Row("LSTMCell", lambda: L.LSTMCell(4), (f(3, 5),), keywords=(("states", [f(3, 4), f(3, 4)]),))
    yield Row("GRUCell", lambda: L.GRUCell(4), (f(3, 5), f(3, 4)))
    yield Row("SimpleRNNCell", lambda: L.SimpleRNNCell(4), (f(3, 5), f(3, 4)))
    yield Row("GRU reset before", lambda: L.GRU(4, reset_after=False), (f(3, 6, 5),))
    yield Row(
        "StackedRNNCells", lambda: L.RNN(L.StackedRNNCells([L.LSTMCell(3), L.GRUCell(4)])), (f(2, 5, 3),)
    )
    yield Row("Bidirectional sum", lambda: L.Bidirectional(L.LSTM(3), merge_mode="sum"), (f(2, 5, 3),))
    for n, shape in {1: (2, 3, 7, 2), 2: (1, 3, 5, 4, 2), 3: (1, 2, 4, 3, 3, 2)}.items():
        layer = getattr(L, f"ConvLSTM{n}D")
        yield Row(
            f"ConvLSTM{n}D", lambda c=layer: c(3, 2, padding="same", return_sequences=True), (f(*shape),)
        )
    yield Row("TimeDistributed", lambda: L.TimeDistributed(L.Dense(4, activation="tanh")), (f(2, 5, 3),))
    yield Row("TimeDistributed convolution", lambda: L.TimeDistributed(L.Conv1D(4, 2)), (f(2, 3, 5, 3),))


def _attention() -> Iterator[Row]:
    for training in (True, False):
        yield Row(
            f"MultiHeadAttention training={training}",
            lambda: L.MultiHeadAttention(2, 3, dropout=0.3),
            (f(2, 5, 4), f(2, 3, 4)),
            training=training,
        )
    yield Row(
        "MultiHeadAttention causal",
        lambda: L.MultiHeadAttention(2, 3),
        (f(2, 5, 4), f(2, 5, 4)),
        keywords=(("use_causal_mask", True),),
    )
    yield Row(
        "MultiHeadAttention mask scores",
        lambda: L.MultiHeadAttention(3, 2, value_dim=5),
        (f(2, 3, 4), f(2, 5, 4)),
        keywords=(("attention_mask", b(2, 3, 5)), ("return_attention_scores", True)),
    )
    yield Row(
        "MultiHeadAttention 2 axes",
        lambda: L.MultiHeadAttention(2, 3, attention_axes=(1, 2)),
        (f(2, 3, 2, 4), f(2, 3, 2, 4)),
    )
    yield Row("GroupQueryAttention", lambda: L.GroupQueryAttention(3, 4, 2), (f(2, 5, 6), f(2, 7, 6)))
    yield Row(
        "GroupQueryAttention causal",
        lambda: L.GroupQueryAttention(3, 4, 2),
        (f(2, 5, 6), f(2, 5, 6)),
        keywords=(("use_causal_mask", True),),
    )
    yield Row(
        "Attention",
        lambda: L.Attention(use_scale=True, dropout=0.2),
        (f(2, 3, 4), f(2, 5, 4)),
        joined=True,
        training=True,
    )
    yield Row(
        "Attention concat", lambda: L.Attention(score_mode="concat"), (f(2, 3, 4), f(2, 5, 4)), joined=True
    )
    yield Row(
        "Attention causal",
        lambda: L.Attention(),
        (f(2, 5, 4), f(2, 5, 4)),
        joined=True,
        keywords=(("use_causal_mask", True),),
    )
    yield Row("AdditiveAttention", L.AdditiveAttention, (f(2, 3, 4), f(2, 5, 4)), joined=True)


def _dense() -> Iterator[Row]:
    yield Row("Dense", lambda: L.Dense(5, activation="relu"), (f(7, 3),))
    yield Row("Dense 3 axes", lambda: L.Dense(5, use_bias=False), (f(2, 5, 3),))
    yield Row(
        "Dense regularized",
        lambda: L.Dense(5, kernel_regularizer="l2", kernel_constraint="max_norm"),
        (f(7, 3),),
    )
    yield Row("Dense float16", lambda: L.Dense(5, dtype="mixed_float16"), (f(7, 3),), tolerance=5e-3)
    yield Row("Dense float64", lambda: L.Dense(5, dtype="float64"), (f(7, 3).astype("f8"),))
    yield Row("Dense lora", lambda: L.Dense(5, lora_rank=2), (f(7, 3),))
    yield Row("Dense empty batch", lambda: L.Dense(5), (f(0, 3),))
    yield Row(
        "EinsumDense", lambda: L.EinsumDense("abc,cde->abde", (None, 3, 2), bias_axes="de"), (f(2, 5, 4),)
    )
    yield Row("EinsumDense dots", lambda: L.EinsumDense("...x,xy->...y", 3, activation="gelu"), (f(2, 3, 4),))
    yield Row("Embedding", lambda: L.Embedding(11, 3), (i(11, 2, 5),))
    yield Row("Embedding mask", lambda: L.Embedding(7, 3, mask_zero=True), (i(7, 2, 5),))
    yield Row("ReversibleEmbedding", lambda: L.ReversibleEmbedding(11, 3), (i(11, 2, 5),))
    yield Row(
        "ReversibleEmbedding reverse",
        lambda: _built(L.ReversibleEmbedding(11, 3, tie_weights=False), (2, 5)),
        (f(2, 5, 3),),
        keywords=(("reverse", True),),
    )


def _built(layer: keras.Layer, shape: tuple[int, ...]) -> Any:
    layer.build(shape)
    return layer


def _regularization() -> Iterator[Row]:
    for name, argument, shape in (
        ("Dropout", 0.4, (5, 7)),
        ("AlphaDropout", 0.3, (5, 7)),
        ("GaussianDropout", 0.3, (5, 7)),
        ("GaussianNoise", 0.5, (5, 7)),
        ("SpatialDropout1D", 0.4, (3, 5, 7)),
        ("SpatialDropout2D", 0.4, (2, 3, 4, 7)),
        ("SpatialDropout3D", 0.4, (2, 3, 2, 2, 7)),
    ):
        layer = getattr(L, name)
        for training in (True, False):
            yield Row(
                f"{name} training={training}",
                lambda c=layer, a=argument: c(a, seed=5),
                (f(*shape),),
                training=training,
            )
    yield Row(
        "Dropout noise shape", lambda: L.Dropout(0.4, noise_shape=(None, 1, 7)), (f(3, 5, 7),), training=True
    )


def _features() -> Iterator[Row]:
    words = s("red", "blue", "green", "pink")
    yield Row(
        "Normalization", lambda: L.Normalization(mean=[1.0, 2.0, 3.0], variance=[0.5, 2.0, 1.0]), (f(5, 3),)
    )
    yield Row(
        "Normalization invert",
        lambda: L.Normalization(mean=1.5, variance=2.0, axis=None, invert=True),
        (f(5, 3),),
    )
    yield Row("Rescaling", lambda: L.Rescaling(1 / 127.5, -1.0), (u(2, 3, 5),))
    for mode in ("int", "one_hot", "multi_hot", "count"):
        yield Row(
            f"Discretization {mode}",
            lambda m=mode: L.Discretization([-1.0, 0.0, 0.7], output_mode=m),
            (f(5, 1),),
        )
        yield Row(f"Hashing {mode}", lambda m=mode: L.Hashing(5, output_mode=m), (words,))
        yield Row(
            f"IntegerLookup {mode}",
            lambda m=mode: L.IntegerLookup(vocabulary=[3, 5, 8], output_mode=m),
            (i(9, 4, 1).astype("i8"),),
        )
        yield Row(
            f"StringLookup {mode}",
            lambda m=mode: L.StringLookup(vocabulary=["red", "blue"], output_mode=m),
            (words,),
        )
        if mode != "int":
            yield Row(f"CategoryEncoding {mode}", lambda m=mode: L.CategoryEncoding(6, m), (i(6, 4, 1),))
    yield Row(
        "CategoryEncoding weights",
        lambda: L.CategoryEncoding(6, "count"),
        (i(6, 4, 3),),
        keywords=(("count_weights", np.array([[1, 2, 3]] * 4, "f4")),),
    )
    yield Row("Hashing numbers", lambda: L.Hashing(5), (i(90, 4, 1),))
    yield Row(
        "HashedCrossing", lambda: L.HashedCrossing(7, output_mode="one_hot"), (words, i(9, 4, 1)), joined=True
    )
    yield Row(
        "StringLookup inverse", lambda: L.StringLookup(vocabulary=["red", "blue"], invert=True), (i(3, 4, 1),)
    )
    for mode in ("int", "multi_hot", "count"):
        yield Row(
            f"TextVectorization {mode}",
            lambda m=mode: L.TextVectorization(vocabulary=["red", "blue", "sky"], output_mode=m),
            (s("a red, red sky", "Blue!", ""),),
        )
    yield Row(
        "TextVectorization tf_idf",
        lambda: L.TextVectorization(vocabulary=["red", "blue"], idf_weights=[0.5, 0.7], output_mode="tf_idf"),
        (s("a red, red sky", "Blue!"),),
    )


def _images() -> Iterator[Row]:
    for how in ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"):
        yield Row(f"Resizing {how}", lambda how=how: L.Resizing(5, 9, interpolation=how), (u(2, 7, 6, 3),))
    yield Row("Resizing antialias", lambda: L.Resizing(3, 4, antialias=True), (u(2, 7, 6, 3),))
    yield Row("Resizing crop", lambda: L.Resizing(4, 4, crop_to_aspect_ratio=True), (u(2, 7, 6, 3),))
    yield Row("Resizing pad", lambda: L.Resizing(4, 4, pad_to_aspect_ratio=True), (u(2, 7, 6, 3),))
    yield Row("CenterCrop", lambda: L.CenterCrop(3, 4), (u(2, 7, 6, 3),))
    yield Row("CenterCrop resized", lambda: L.CenterCrop(8, 4), (u(2, 7, 6, 3),))
    yield Row("AutoContrast", L.AutoContrast, (u(2, 5, 6, 3),))
    yield Row("Equalization", L.Equalization, (u(2, 5, 6, 3),))
    yield Row(
        "ContrastLimitedAdaptiveHistogramEqualization",
        lambda: L.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2)),
        (u(1, 8, 6, 3),),
    )
    yield Row("Solarization", lambda: L.Solarization(0.2, 0.4), (u(2, 5, 6, 3),), training=True)
    yield Row(
        "MelSpectrogram",
        lambda: L.MelSpectrogram(fft_length=32, sequence_stride=8, num_mel_bins=5),
        (f(2, 97),),
        tolerance=1e-4,
    )
    for mode in ("log", "magnitude", "psd", "real", "imag", "stft"):
        yield Row(
            f"STFTSpectrogram {mode}",
            lambda m=mode: L.STFTSpectrogram(m, 16, 8),
            (f(2, 61, 1),),
            tolerance=1e-4,
        )
    augmenting: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("AugMix", lambda: L.AugMix(seed=3)),
        ("CutMix", lambda: L.CutMix(seed=3)),
        ("MixUp", lambda: L.MixUp(seed=3)),
        ("RandAugment", lambda: L.RandAugment(seed=3)),
        ("RandomBrightness", lambda: L.RandomBrightness(0.3, seed=3)),
        ("RandomColorDegeneration", lambda: L.RandomColorDegeneration(0.5, seed=3)),
        ("RandomColorJitter", lambda: L.RandomColorJitter((0, 255), 0.3, 0.3, 0.3, 0.3, seed=3)),
        ("RandomContrast", lambda: L.RandomContrast(0.4, seed=3)),
        ("RandomCrop", lambda: L.RandomCrop(4, 3, seed=3)),
        ("RandomElasticTransform", lambda: L.RandomElasticTransform(seed=3)),
        ("RandomErasing", lambda: L.RandomErasing(seed=3)),
        ("RandomFlip", lambda: L.RandomFlip(seed=3)),
        ("RandomGaussianBlur", lambda: L.RandomGaussianBlur(seed=3)),
        ("RandomGrayscale", lambda: L.RandomGrayscale(seed=3)),
        ("RandomHue", lambda: L.RandomHue(0.3, seed=3)),
        ("RandomInvert", lambda: L.RandomInvert(seed=3)),
        ("RandomPerspective", lambda: L.RandomPerspective(seed=3)),
        ("RandomPosterization", lambda: L.RandomPosterization(4, seed=3)),
        ("RandomRotation", lambda: L.RandomRotation(0.3, seed=3)),
        ("RandomSaturation", lambda: L.RandomSaturation(0.3, seed=3)),
        ("RandomSharpness", lambda: L.RandomSharpness(0.5, seed=3)),
        ("RandomShear", lambda: L.RandomShear(0.3, 0.2, seed=3)),
        ("RandomTranslation", lambda: L.RandomTranslation(0.3, 0.2, seed=3)),
        ("RandomZoom", lambda: L.RandomZoom(0.3, seed=3)),
        ("Pipeline", lambda: L.Pipeline([L.RandomFlip(seed=1), L.Rescaling(0.1)])),
    )
    for name, make in augmenting:
        yield Row(
            name,
            make,
            (u(2, 6, 5, 3),),
            training=True,
            tolerance=1e-3,  # of values up to 255
            slow=name in ("AugMix", "RandAugment", "RandomElasticTransform"),
        )


def _rows() -> tuple[Row, ...]:
    families = (
        _dense,
        _convolutions,
        _pooling,
        _shaping,
        _merging,
        _activations,
        _normalizations,
        _recurrent,
        _attention,
        _regularization,
        _features,
        _images,
    )
    return tuple(row for family in families for row in family())


ROWS = _rows()
