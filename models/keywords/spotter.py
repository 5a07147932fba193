"""The network: trained on windows, run frame by frame with the last values of its layers as state."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from .words import BANDS, NAMES, stream, windows

CHANNELS, REACH, POOLED = 32, 5, 24  # of layers; frames that a convolution sees; frames that are averaged
WINDOW = 3 * (REACH - 1) + POOLED
MOST_DELAY = 14  # frames around its end in which a word is found
_PERSISTENCE = 3  # frames that a word must lead
Scores = Callable[[np.ndarray], np.ndarray]


def trained(epochs: int, examples: int) -> keras.Model:
    """The network of windows, trained on synthetic words."""
    keras.utils.set_random_seed(5)
    layers, inputs = keras.layers, keras.Input((WINDOW, BANDS))
    x = layers.Conv1D(CHANNELS, REACH, activation="relu", name="first")(inputs)
    for name in ("second", "third"):
        x = layers.DepthwiseConv1D(REACH, name=f"{name}_depthwise")(x)
        x = layers.Conv1D(CHANNELS, 1, activation="relu", name=f"{name}_pointwise")(x)
    outputs = layers.Dense(len(NAMES), name="scores")(layers.GlobalAveragePooling1D()(x))
    model = keras.Model(inputs, outputs, name="keywords")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    model.fit(*windows(examples, WINDOW, np.random.default_rng(1)), epochs=epochs, batch_size=64, verbose=0)
    return model


class StreamingSpotter(tf.Module):
    """The trained network, a frame at a time: each layer keeps the values that its next result needs."""

    def __init__(self, model: keras.Model) -> None:
        self.weights = {
            layer.name: [tf.Variable(weight) for weight in layer.weights]
            for layer in model.layers
            if layer.weights
        }
        self.frames = tf.Variable(tf.zeros((REACH, BANDS)), name="frames")
        self.values = {
            name: tf.Variable(tf.zeros((REACH, CHANNELS)), name=name) for name in ("second", "third")
        }
        self.pooled = tf.Variable(tf.zeros((POOLED, CHANNELS)), name="pooled")

    def step(self, frame: tf.Tensor) -> tf.Tensor:
        """The scores of NAMES for the window that ends with this frame. Shapes: [1, BANDS] -> [1, names]."""
        kernel, bias = self.weights["first"]
        self.frames.assign(tf.concat([self.frames[1:], frame], 0))
        flat = tf.reshape(kernel, (REACH * BANDS, CHANNELS))
        x = tf.nn.relu(tf.reshape(self.frames, (1, REACH * BANDS)) @ flat + bias)
        for name, window in self.values.items():
            (depthwise, shift), (pointwise, bias) = (
                self.weights[f"{name}_{kind}"] for kind in ("depthwise", "pointwise")
            )
            window.assign(tf.concat([window[1:], x], 0))
            image = tf.reshape(window, (1, REACH, 1, CHANNELS))
            summed = tf.nn.depthwise_conv2d(
                image, tf.reshape(depthwise, (REACH, 1, CHANNELS, 1)), [1, 1, 1, 1], "VALID"
            )
            x = tf.nn.relu((tf.reshape(summed, (1, CHANNELS)) + shift) @ pointwise[0] + bias)
        self.pooled.assign(tf.concat([self.pooled[1:], x], 0))
        kernel, bias = self.weights["scores"]
        return tf.reduce_mean(self.pooled, 0, keepdims=True) @ kernel + bias


def scores_of_windows(model: keras.Model) -> Scores:
    """Scores of every frame of a stream, from the whole window before it."""

    def scores(frames: np.ndarray) -> np.ndarray:
        padded = np.concatenate([np.zeros((WINDOW - 1, BANDS), np.float32), frames])
        views = np.lib.stride_tricks.sliding_window_view(padded, WINDOW, 0).transpose(0, 2, 1)
        return np.asarray(model.predict(views, batch_size=256, verbose=0))

    return scores


def detections(scores: np.ndarray) -> list[tuple[int, int]]:
    """(frame, number) of the words found: those that lead for some frames, once until nothing leads again."""
    words, leading, frames, is_quiet = [], 0, 0, True
    for frame, number in enumerate(scores.argmax(1)):
        frames = frames + 1 if number == leading else 1
        leading = int(number)
        if frames >= _PERSISTENCE:
            if leading and is_quiet:
                words.append((frame, leading))
            is_quiet = not leading
    return words


def accuracy(words: list[tuple[int, int]], ends: list[tuple[int, int]]) -> float:
    """The share of words that are detected rightly and near their end; each wrong detection takes one off."""
    right = sum(
        any(number == word and end - MOST_DELAY <= frame <= end + MOST_DELAY for frame, word in words)
        for end, number in ends
    )
    return max(0.0, (right - max(0, len(words) - len(ends))) / len(ends))


def calibration_stream() -> np.ndarray:
    """Frames for the ranges of values. Shapes: [frames, BANDS]."""
    return stream(40, np.random.default_rng(2))[0]
