"""Program: a TensorFlow function with example inputs and the variables that it updates."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Array = np.ndarray[Any, Any]


class Program(tf.Module):
    """A plain Python function over tensors, ready to be called, wrapped by an engine, or saved."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Array],
        captured: Sequence[tf.Variable] = (),
        updated: Sequence[tf.Variable] = (),
        signature: Sequence[tf.TypeSpec] | None = None,
    ) -> None:
        """`captured` are all variables that `function` reads, `updated` those that it writes.

        signature: what the function takes, where it is more than tensors of the shapes of `inputs`.
        """
        super().__init__(name="program")
        self.function = function
        self.inputs = tuple(tf.constant(value) for value in inputs)
        self.captured = list(captured)
        self.updated = list(updated)
        self.signature = signature
        self.numpy_function: Callable[..., Any] | None = None  # the same in NumPy, where somebody wrote it

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The inputs as NumPy arrays."""
        return tuple(np.asarray(value.numpy()) for value in self.inputs)

    @property
    def specs(self) -> Sequence[tf.TypeSpec]:
        """The signature, or the types and shapes of the inputs."""
        return self.signature or [tf.TensorSpec(value.shape, value.dtype) for value in self.inputs]

    def run(
        self, function: Callable[..., Any] | None = None, calls: int = 1, inputs: Sequence[Any] | None = None
    ) -> list[Array]:
        """The outputs of the last of `calls` calls, then the updated variables, as arrays."""
        called = self.function if function is None else function
        for _ in range(calls):
            outputs = called(*(self.inputs if inputs is None else inputs))
        values = (*tf.nest.flatten(outputs), *self.updated)
        return [np.array(value.numpy() if hasattr(value, "numpy") else value) for value in values]

    def state(self) -> list[Array]:
        """The values of all captured variables."""
        return [np.array(variable.numpy()) for variable in self.captured]

    def restore(self, state: Sequence[Array]) -> None:
        """Sets all captured variables to values that `state` returned."""
        for variable, value in zip(self.captured, state, strict=True):
            variable.assign(value)

    def save(self, folder: str | os.PathLike[str], function: Callable[..., Any] | None = None) -> None:
        """Writes a SavedModel whose `call` runs the function on inputs of the example's shapes."""
        called = self.function if function is None else function
        self.call = tf.function(called, input_signature=self.specs)
        tf.saved_model.save(self, os.fspath(folder))


def of_model(model: keras.Model, inputs: Sequence[Array]) -> Program:
    """The model's inference."""
    return Program(lambda *values: model(*values, training=False), inputs, tensors(model.variables))


def of_training(model: keras.Model, inputs: Array, labels: Array) -> Program:
    """One step of Adam on a batch; returns the loss (softmax cross-entropy of the model's logits).

    Adam divides a gradient by its own magnitude, so with its usual epsilon a gradient of pure rounding noise
    moves a weight as far as a real one does. The epsilon here lies above that noise: engines can be compared.
    """
    optimizer = keras.optimizers.Adam(1e-3, epsilon=1e-5)
    optimizer.build(model.trainable_variables)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(features: tf.Tensor, classes: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = cross_entropy(classes, model(features, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
        return loss

    variables = tensors([*model.variables, *optimizer.variables])
    return Program(step, (inputs, labels), variables, variables)


def tensors(variables: Sequence[keras.Variable | tf.Variable]) -> list[tf.Variable]:
    """TensorFlow's own variables under Keras's."""
    return [variable.value for variable in variables]
