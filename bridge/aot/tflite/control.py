"""Loops and branches, whose bodies are graphs of the file."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from .model_file import Operator
from .operation import Operation, Result
from .registry import translates

_CALLED = {
    "WHILE": ("condSubgraphIndex", "bodySubgraphIndex"),
    "IF": ("thenSubgraphIndex", "elseSubgraphIndex"),
}


def called_graphs(operator: Operator) -> list[int]:
    """The numbers of the graphs that an operator calls."""
    return [int(getattr(operator.options, name, -1)) for name in _CALLED.get(operator.name, ())]


@translates("WHILE", stores=True)
def while_(op: Operation) -> Result:
    condition, body = called_graphs(op.operator)
    values = [op.stored(k) for k in range(len(op.operands))]

    def goes_on(*now: tf.Tensor) -> tf.Tensor:
        return tf.reshape(op.call(condition, now)[0], [])

    def step(*now: tf.Tensor) -> Sequence[tf.Tensor]:
        after = op.call(body, now)
        for value, old in zip(after, now, strict=True):
            value.set_shape(old.shape)
        return after

    return tf.while_loop(goes_on, step, values)


@translates("IF", stores=True)
def if_(op: Operation) -> Result:
    then, otherwise = called_graphs(op.operator)
    values = [op.stored(k) for k in range(1, len(op.operands))]
    condition = tf.reshape(op.number(0), [])
    results = tf.cond(condition, lambda: op.call(then, values), lambda: op.call(otherwise, values))
    return [results] if tf.is_tensor(results) else results
