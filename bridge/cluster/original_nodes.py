"""Runs the original nodes of a cluster in TensorFlow, where compiled code cannot: on variables made for the call."""

from __future__ import annotations

import collections
import threading
from collections.abc import Sequence

import tensorflow as tf

from ...compiler.errors import ShapeError
from ...compiler.ir.shape import Shape
from ..tf_internals.dtypes import element_type
from ..tf_internals.symbols import ANONYMOUS
from .cluster import Argument, Cluster
from .code_key import code_key
from .strict import strict_error


def run_in_tensorflow(cluster: Cluster, values: Sequence[tf.Tensor | None]) -> list[tf.Tensor | None]:
    """The results of the original nodes, then the new values of the variables that they write.

    values: of the launch arguments; of a variable its content, None for one without a value, as among the results.
    Arguments that have the same tensor are one variable.
    Raises: UnsupportedError  it is strict and did not compile; where shapes are wrong, TensorFlow's own error.
    """
    failure = _failure_for(cluster, values) if cluster.is_strict and cluster.code.failures else ""
    if failure and not failure.startswith(ShapeError.__name__):
        raise strict_error(failure)
    launch_values = iter(values)
    arguments = [next(launch_values) if argument.is_read else None for argument in cluster.arguments]
    by_value, updated = _by_value(cluster, arguments)
    variables: list[tf.Tensor] = []
    handles: dict[int, tf.Tensor] = {}  # by id of the value
    for k, (argument, value) in enumerate(zip(cluster.arguments, arguments, strict=True)):
        if not argument.is_variable or k in by_value or k in updated:
            continue
        if value is None or id(value) not in handles:
            variables.append(_new_variable(argument, value))
            handles[id(value)] = variables[-1]
        arguments[k] = handles[id(value)] if value is not None else variables[-1]
    try:
        results = cluster.original(arguments, by_value, updated, cluster.expects_code)
        if failure:
            raise strict_error(failure)
        count = len(results) - len(updated)
        new = dict(zip(updated, results[count:]))
        for k in cluster.written:
            if k not in new:
                new[k] = _content(arguments[k], cluster.arguments[k])
        return [*results[:count], *(new[k] for k in cluster.written)]
    finally:
        for handle in variables:
            tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


def prepare(cluster: Cluster) -> None:
    """Makes the run ready for calls whose code is compiled meanwhile."""
    cluster.original.prepare(cluster.original.read_only, _updated(cluster), cluster.expects_code)


def _updated(cluster: Cluster) -> dict[int, int]:
    """The DataTypes of the variables that the nodes get by their values, and update."""
    return {
        k: cluster.arguments[k].data_type
        for k in cluster.written
        if k in cluster.original.updatable and cluster.arguments[k].is_read
    }


def _by_value(
    cluster: Cluster, arguments: Sequence[tf.Tensor | None]
) -> tuple[frozenset[int], dict[int, int]]:
    """The variables that the nodes get by their values: those that are only read, and, with their DataTypes, those that
    are updated.

    There are none if one of them has no value, or if a variable that is not only read is two arguments.
    """
    original = cluster.original
    variables = [k for k, argument in enumerate(cluster.arguments) if argument.is_variable]
    updated = _updated(cluster)
    uses = collections.Counter(id(arguments[k]) for k in variables if arguments[k] is not None)
    is_twice = any(uses[id(arguments[k])] > 1 for k in variables if k not in original.read_only)
    if is_twice or any(arguments[k] is None for k in (*original.read_only, *updated)):
        return frozenset(), {}
    return original.read_only, updated


def _new_variable(argument: Argument, value: tf.Tensor | None) -> tf.Tensor:
    """The handle of a new variable with this value.

    A variable without a value, which the nodes read, must not exist until they assign it. TensorFlow makes such a
    variable by name only, so every thread has its own container.
    """
    exists = value is not None or not argument.is_read
    handle = tf.raw_ops.VarHandleOp(
        dtype=tf.as_dtype(argument.data_type),
        shape=None,
        container="" if exists else f"thread {threading.get_ident()}",
        shared_name=ANONYMOUS if exists else argument.name,
    )
    if value is not None:
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return handle


def _content(handle: tf.Tensor, argument: Argument) -> tf.Tensor | None:
    """The value of a variable; None when it has none."""
    if not tf.raw_ops.VarIsInitializedOp(resource=handle):
        return None
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(argument.data_type))


def _failure_for(cluster: Cluster, values: Sequence[tf.Tensor | None]) -> str:
    """Why nothing was compiled for values like these; empty when that was not tried, or nothing was wrong."""
    types = [(element_type(t.dtype.as_datatype_enum), tuple(t.shape)) for t in values if t is not None]
    shapes = [Shape(type_, dims) for type_, dims in types if type_ is not None]
    constants = {k: t.numpy() for k in cluster.launch_constants if (t := values[k]) is not None}
    return cluster.code.failures.get(code_key(shapes, constants), "")
