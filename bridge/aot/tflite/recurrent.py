"""Recurrent layers as one operator, on floats. Their states are variables of the file, which outlive a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ....compiler.errors import ShapeError, UnsupportedError
from .operation import Operation, Result, constant
from .registry import translates

_EPSILON = np.float32(1e-8)  # of the variance, where gates are normalised
Step = Callable[[tf.Tensor, Sequence[tf.Tensor]], tuple[tf.Tensor, Sequence[tf.Tensor]]]


def _array(op: Operation, which: int) -> np.ndarray | None:
    """A constant operand as numbers; None: it is left out."""
    if not op.has(which):
        return None
    value = op.value(which)
    array = op.constant_of(value)
    kind = value.quantization
    return array.astype(np.float32) if kind is None else kind.numbers(array)


def _wanted(op: Operation, which: int) -> np.ndarray:
    array = _array(op, which)
    if array is None:
        raise ShapeError(f"{op.name} has no input {which}")
    return array


def _state(op: Operation, which: int) -> tf.Variable:
    """The variable of an operand. Raises: ShapeError  it is none."""
    tensor = op.value(which).tensor
    if not tensor.is_variable:
        raise ShapeError(f"{tensor.name} is no variable")
    if tensor.dtype != np.float32:
        raise UnsupportedError(f"the state {tensor.name} is of {tensor.type_name}, FLOAT32 is compiled")
    return op.variables(tensor)


def _over_time(op: Operation, projected: tf.Tensor, states: Sequence[tf.Variable], step: Step) -> tf.Tensor:
    """Runs a step for each time, and leaves the states that the last one makes in the variables.

    Shapes: projected, result [times, rows, features].
    """
    times = projected.shape[0]
    if times is None:
        raise UnsupportedError("the number of times is open; tell it by a feed")

    def body(time: tf.Tensor, rows: tf.TensorArray, *now: tf.Tensor) -> tuple[object, ...]:
        result, after = step(projected[time], now)
        return time + 1, rows.write(time, result), *after

    start = (tf.constant(0), tf.TensorArray(tf.float32, times), *(state.read_value() for state in states))
    _, rows, *last = tf.while_loop(lambda time, *_: time < times, body, start)
    for state, value in zip(states, last, strict=True):
        state.assign(value)
    return rows.stack()


def _by_time(op: Operation, is_step: bool) -> tf.Tensor:
    """The values with times first."""
    x = op.number(0)
    if is_step:
        return x[None]
    return x if op.option("timeMajor", False) else tf.transpose(x, [1, 0, 2])


def _as_given(op: Operation, x: tf.Tensor, is_step: bool) -> tf.Tensor:
    if is_step:
        return x[0]
    return x if op.option("timeMajor", False) else tf.transpose(x, [1, 0, 2])


def _clipped(op: Operation, x: tf.Tensor, option: str) -> tf.Tensor:
    limit = np.float32(op.option(option, 0.0))
    return tf.clip_by_value(x, -limit, limit) if limit > 0 else x


class _Gates:
    """The gates of an LSTM: input (left out where it is 1 - forget), forget, cell and output. Operands: values, four
    weights [cells, features], four of the state [cells, outputs], three of the cell state [cells], four biases, weights
    and bias of the projection, two states, four factors of normalised gates."""

    PROJECTION, PROJECTION_BIAS, OUTPUT_STATE, CELL_STATE = range(16, 20)

    def __init__(self, op: Operation) -> None:
        self.op = op
        self.numbers = [k for k in range(4) if k or op.has(1)]
        kernels, recurrents = ([_wanted(op, first + k) for k in self.numbers] for first in (1, 5))
        self.kernel = np.ascontiguousarray(np.concatenate(kernels).T)
        self.recurrent = np.ascontiguousarray(np.concatenate(recurrents).T)
        self.peepholes = {gate: _array(op, 9 + k) for k, gate in enumerate((0, 1, 3))}
        self.factors = {k: _array(op, 20 + k) for k in self.numbers}
        self.biases = {k: _array(op, 12 + k) for k in self.numbers}

    def project(self, x: tf.Tensor) -> tf.Tensor:
        """The part of the values in all gates, of all times. Shapes: x [times, rows, features]."""
        times, rows, features = x.shape
        product = tf.matmul(tf.reshape(x, [-1, features]), constant(self.kernel))
        biases = [self.biases[k] for k in self.numbers]
        if all(self.factors[k] is None for k in self.numbers) and all(b is not None for b in biases):
            product = product + constant(np.concatenate([b for b in biases if b is not None]))
        return tf.reshape(product, [-1 if times is None else times, rows, product.shape[1]])

    def step(self, projected: tf.Tensor, states: Sequence[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The output, and the output and the cell state after it. Shapes: [rows, features]."""
        op, (output, cell) = self.op, states
        sums = tf.split(projected + output @ constant(self.recurrent), len(self.numbers), 1)
        gates = dict(zip(self.numbers, sums))
        forget = tf.sigmoid(self._gate(1, gates[1], cell))
        enter = tf.sigmoid(self._gate(0, gates[0], cell)) if 0 in gates else 1 - forget
        cell = _clipped(op, forget * cell + enter * op.activated(self._gate(2, gates[2], cell)), "cellClip")
        result = tf.sigmoid(self._gate(3, gates[3], cell)) * op.activated(cell)
        if op.has(self.PROJECTION):
            result = result @ constant(np.ascontiguousarray(_wanted(op, self.PROJECTION).T))
            if (bias := _array(op, self.PROJECTION_BIAS)) is not None:
                result = result + constant(bias)
            result = _clipped(op, result, "projClip")
        return result, [result, cell]

    def _gate(self, which: int, x: tf.Tensor, cell: tf.Tensor) -> tf.Tensor:
        peephole, factors = self.peepholes.get(which), self.factors[which]
        if peephole is not None:
            x = x + cell * constant(peephole)
        if factors is not None:
            mean, variance = tf.nn.moments(x, [-1], keepdims=True)
            x = (x - mean) * tf.math.rsqrt(variance + _EPSILON) * constant(factors)
            bias = self.biases[which]
            x = x if bias is None else x + constant(bias)
        return x


@translates("UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM")
def lstm(op: Operation) -> Result:
    is_step = op.name == "LSTM"
    if is_step and int(op.option("kernelType", 0)):
        raise UnsupportedError("an LSTM of the basic kind is not compiled")
    states = [_state(op, k) for k in (_Gates.OUTPUT_STATE, _Gates.CELL_STATE)]
    gates = _Gates(op)
    result = _over_time(op, gates.project(_by_time(op, is_step)), states, gates.step)
    return _as_given(op, result, is_step)


@translates("UNIDIRECTIONAL_SEQUENCE_RNN", "RNN")
def rnn(op: Operation) -> Result:
    """Operands: values, weights [cells, features], of the state [cells, cells], bias, state."""
    is_step = op.name == "RNN"
    kernel, recurrent = (constant(np.ascontiguousarray(_wanted(op, k).T)) for k in (1, 2))
    projected = tf.tensordot(_by_time(op, is_step), kernel, 1) + op.number(3)

    def step(x: tf.Tensor, states: Sequence[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        result = op.activated(x + states[0] @ recurrent)
        return result, [result]

    return _as_given(op, _over_time(op, projected, [_state(op, 4)], step), is_step)


@translates("SVDF")
def svdf(op: Operation) -> Result:
    """A filter of a layer's features over time. Operands: values, weights of features [filters, features] and of times
    [filters, times], bias, state [rows, filters times]. Each `rank` filters make an output."""
    of_features, of_times = _wanted(op, 1), _wanted(op, 2)
    filters, times = of_times.shape
    rank = int(op.option("rank"))
    if rank < 1 or filters % rank:
        raise ShapeError(f"{filters} filters of the rank {rank}")
    state = _state(op, 4)
    rows = op.value(4).tensor.dims[0]
    newest = op.number(0) @ constant(np.ascontiguousarray(of_features.T))
    before = tf.reshape(state.read_value(), [rows, filters, times])
    now = tf.concat([before[:, :, 1:], newest[:, :, None]], 2)
    state.assign(tf.reshape(now, [rows, filters * times]))
    sums = tf.reduce_sum(tf.reshape(now * constant(of_times), [rows, filters // rank, rank * times]), 2)
    return op.activated(sums + op.number(3) if op.has(3) else sums)
