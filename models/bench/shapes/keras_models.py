"""Keras's fit and predict on batches whose sizes change, and training on RaggedTensors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...program import Array, Program
from .case import Outcome, Scale, compilations, last_of_many, percentiles, sequence
from .layers import Weights

CLASSES, VOCABULARY = 10, 1000
Batch = tuple[Array, Array]  # features, labels


class _Clock(keras.callbacks.Callback):
    """Seconds of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        self._start = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.seconds.append(time.perf_counter() - self._start)

    on_predict_batch_begin = on_train_batch_begin
    on_predict_batch_end = on_train_batch_end


def _fit_and_predict(engine: str, model: keras.Model, batches: Sequence[Batch], scale: Scale) -> Outcome:
    """Two epochs of fit, then predict. XLA is Keras's jit_compile; the flag needs nothing."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, jit_compile=engine == "xla")
    features, labels = batches[0]
    data = tf.data.Dataset.from_generator(
        lambda: iter(batches),
        output_signature=(
            tf.TensorSpec(model.input_shape, features.dtype),
            tf.TensorSpec([None], labels.dtype),
        ),
    ).apply(tf.data.experimental.assert_cardinality(len(batches)))
    fit, prediction = _Clock(), _Clock()
    losses = model.fit(data, epochs=2, shuffle=False, verbose=0, callbacks=[fit]).history["loss"]
    features_alone = data.map(lambda x, _: x)
    predicted = model.predict(features_alone, verbose=0, callbacks=[prediction])

    def fitted() -> list[float]:
        model.fit(data, shuffle=False, verbose=0, callbacks=[clock := _Clock()])
        return clock.seconds

    def predicted_again() -> list[float]:
        model.predict(features_alone, verbose=0, callbacks=[clock := _Clock()])
        return clock.seconds

    later_fit, later_prediction = last_of_many(fitted, scale), last_of_many(predicted_again, scale)
    values = (
        {"first ms": 1e3 * fit.seconds[0]}
        | percentiles(fit.seconds[1:], "fit ")
        | {"later fit p50 ms": 1e3 * float(np.median(later_fit))}
        | percentiles(prediction.seconds, "predict ")
        | {"later predict p50 ms": 1e3 * float(np.median(later_prediction))}
        | compilations(engine)
    )
    calls, results = fit.seconds + prediction.seconds, [*losses, float(np.abs(predicted).mean())]
    return Outcome(values, calls, results, later_fit + later_prediction)


def _labels(random: np.random.Generator, count: int) -> Array:
    return random.integers(0, CLASSES, count).astype(np.int32)


def ragged_batches(engine: str, scale: Scale) -> Outcome:
    """An MLP on data sets of different sizes: the last batch of each is smaller."""
    keras.utils.set_random_seed(1)
    hidden = [keras.layers.Dense(128, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((64,)), *hidden, keras.layers.Dense(CLASSES)])
    random = np.random.default_rng(1)
    batches = []
    for last in random.permutation(np.arange(1, 64))[: scale.count(24, 4)]:
        for count in (64, 64, 64, last):
            batches.append((random.standard_normal((count, 64), dtype=np.float32), _labels(random, count)))
    return _fit_and_predict(engine, model, batches, scale)


def bucketed_sentences(engine: str, scale: Scale) -> Outcome:
    """Sentences in batches of the same length: embedding, two convolutions, the mean over the words."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(VOCABULARY, 64),
            keras.layers.Conv1D(64, 3, padding="same", activation="relu"),
            keras.layers.Conv1D(64, 3, padding="same", activation="relu"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(CLASSES),
        ]
    )
    random = np.random.default_rng(1)
    batches = []
    for number in range(scale.count(96, 10)):
        count, length = random.integers(8, 33), 8 * random.integers(1, scale.count(17, 5))
        words = random.integers(0, VOCABULARY, (count if number % 2 else 32, length)).astype(np.int32)
        batches.append((words, _labels(random, len(words))))
    return _fit_and_predict(engine, model, batches, scale)


def image_sizes(engine: str, scale: Scale) -> Outcome:
    """Images of a new size in every batch, through a fully convolutional network."""
    keras.utils.set_random_seed(1)
    layers = [
        keras.layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")
        for filters in (16, 32, 64)
    ]
    model = keras.Sequential(
        [
            keras.Input((None, None, 3)),
            *layers,
            keras.layers.Conv2D(CLASSES, 1),
            keras.layers.GlobalAveragePooling2D(),
        ]
    )
    random = np.random.default_rng(1)
    batches = []
    for _ in range(scale.count(48, 5)):
        height, width = random.integers(32, scale.count(161, 65), 2)
        images = random.standard_normal((4, height, width, 3), dtype=np.float32)
        batches.append((images, _labels(random, 4)))
    return _fit_and_predict(engine, model, batches, scale)


def ragged_tensors(engine: str, scale: Scale) -> Outcome:
    """Steps of gradient descent on RaggedTensors of words: the mean of their vectors, and two layers."""
    weights = Weights()
    table, hidden, outputs = weights(VOCABULARY, 64), weights(64, 64), weights(64, CLASSES)

    def step(words: tf.RaggedTensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            vectors = tf.reduce_mean(tf.nn.embedding_lookup(table, words), axis=1)
            logits = tf.matmul(tf.nn.relu(tf.matmul(vectors, hidden)), outputs)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for variable, gradient in zip(weights.variables, tape.gradient(loss, weights.variables)):
            variable.assign_sub(0.01 * tf.convert_to_tensor(gradient))
        return loss

    def calls() -> Iterator[tuple[Any, Array]]:
        random = np.random.default_rng(1)
        for _ in range(scale.count(96, 10)):
            lengths = random.integers(1, 50, random.integers(8, 33))
            words = random.integers(0, VOCABULARY, lengths.sum()).astype(np.int32)
            yield tf.RaggedTensor.from_row_lengths(words, lengths), _labels(random, len(lengths))

    signature = [tf.RaggedTensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
    program = Program(step, (), weights.variables, weights.variables, signature)
    return sequence(engine, program, calls(), scale)
