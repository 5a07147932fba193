"""Turns a TensorFlow function into a module of arrays: shapes become known, variables that it reads become constants,
and those that it writes a state, which the module takes and returns."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...compiler.errors import ShapeError, UnsupportedError
from ...compiler.ir.module import Module
from ...compiler.ir.shape import Shape
from ..api.jit import Jit
from ..cluster.cluster import Argument, Cluster
from ..cluster.cluster_module import build_module
from ..dispatch.call_plan import cluster_of
from ..graph import source_location
from ..tf_internals import symbols as tfp
from ..tf_internals.dtypes import element_type

Feeds = Mapping[str, Sequence[int]]


@dataclasses.dataclass(frozen=True)
class State:
    """A variable that the function writes: its name, its value now, and the number of the parameter with its value
    (None: it is written before it is read). Its new value is one of the module's last results."""

    name: str
    value: np.ndarray
    parameter: int | None


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A module without variables, and the names of its parameters and results (empty: it has none).

    states: of the variables that it writes, in the order of its last results. in_tensorflow: TensorFlow's results for
    arguments, of the last of a number of runs that begin with the present state.
    """

    module: Module
    name: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    states: tuple[State, ...]
    in_tensorflow: Callable[[Sequence[np.ndarray], int], list[np.ndarray]]


def freeze(function: Any, args: Sequence[Any], signature: str, feeds: Feeds) -> Frozen:
    """The module of a function, tf.function, concrete function, Keras model or SavedModel directory.

    Raises: ShapeError  an unknown signature or feed, or a dimension that nothing tells; UnsupportedError  an op that
    cannot be compiled (all of them are listed), or a variable whose shape changes.
    """
    keep, concrete, name = _concrete(function, args, signature)
    try:
        cluster = cluster_of(concrete)
    except UnsupportedError as error:
        raise UnsupportedError(
            "\n".join([f"{name}: these ops cannot be compiled:", *source_location.located(concrete, error)])
        ) from None
    captured = list(concrete.captured_inputs)
    own = len(concrete.inputs) - len(captured)
    names = [_name_of(tensor) for tensor in concrete.inputs[:own]]
    all_dims = _shapes(names, [t.shape for t in concrete.inputs[:own]], feeds)
    shapes: list[Shape | None] = []
    for k, (dims, argument) in enumerate(zip(all_dims, cluster.arguments)):
        type_ = element_type(argument.data_type)
        if type_ is None:
            dtype = tf.as_dtype(argument.data_type).name
            raise UnsupportedError(f"{name}: argument {names[k]} is {dtype}, not an array of numbers")
        if k in cluster.constants:
            raise UnsupportedError(
                f"{name}: argument {names[k]} decides shapes or axes, so it must be known when "
                "compiling; compile a function in which it is a Python value"
            )
        shapes.append(Shape(type_, dims))
    values = {
        own + k: _value(tensor, cluster.arguments[own + k])
        for k, tensor in enumerate(captured)
        if cluster.arguments[own + k].is_read or own + k in cluster.written
    }
    shapes += [
        _shape(values[k]) if k in cluster.written and cluster.arguments[k].is_read else None
        for k in range(own, len(concrete.inputs))
    ]
    constants = {k: value for k, value in values.items() if k not in cluster.written}
    module = build_module(cluster, shapes, constants)
    states = _states(name, module, cluster, values, lambda k: _variable_name(concrete, k), shapes)
    if module.sized_results:
        raise UnsupportedError(
            f"{name}: the values of its arguments decide the shape of a result; its memory is laid "
            "out when compiling"
        )
    results = _result_names(concrete.structured_outputs)

    def in_tensorflow(arrays: Sequence[np.ndarray], runs: int) -> list[np.ndarray]:
        assert keep is not None  # its variables live as long
        tensors = [tf.constant(a, t.dtype) for a, t in zip(arrays, concrete.inputs)]
        try:
            for _ in range(runs):
                found = tf.nest.flatten(tfp.call_concrete(concrete, tensors, captured))
        finally:
            for k in cluster.written:
                tfp.assign_variable(captured[k - own], tf.constant(values[k]))
        return [tensor.numpy() for tensor in found]

    return Frozen(
        module,
        name,
        tuple(names),
        tuple(results) if len(results) == len(concrete.outputs) else ("",) * len(concrete.outputs),
        states,
        in_tensorflow,
    )


def _shape(value: np.ndarray) -> Shape:
    type_ = element_type(tf.as_dtype(value.dtype).as_datatype_enum)
    assert type_ is not None  # it is a variable of a cluster
    return Shape(type_, value.shape)


def _states(
    name: str,
    module: Module,
    cluster: Cluster,
    values: Mapping[int, np.ndarray],
    name_of: Callable[[int], str],
    shapes: Sequence[Shape | None],
) -> tuple[State, ...]:
    """The state of each variable that is written. Raises: UnsupportedError  its shape changes, or nobody holds it."""
    leaves = list(module.entry.root.shape.leaves())[-len(cluster.written) :] if cluster.written else []
    states = []
    for k, leaf in zip(cluster.written, leaves, strict=True):
        if k not in values:
            raise UnsupportedError(
                f"{name}: a variable that it writes is an argument; let it be one of the function"
            )
        if leaf != _shape(values[k]):
            raise UnsupportedError(
                f"{name}: the variable {name_of(k)} changes from {_shape(values[k])} to {leaf}; the memory of a "
                "state is laid out when compiling"
            )
        parameter = None if shapes[k] is None else sum(shape is not None for shape in shapes[:k])
        states.append(State(name_of(k), values[k], parameter))
    return tuple(states)


# -- what is given, to a concrete function


def _concrete(function: Any, args: Sequence[Any], signature: str) -> tuple[Any, Any, str]:
    """(what must stay alive, concrete function, name)."""
    if isinstance(function, str | os.PathLike):
        return _of_saved_model(os.fspath(function), signature)
    if isinstance(function, tf.types.experimental.ConcreteFunction):
        return function, function, re.sub(r"^__inference_|_\d+$", "", tf.compat.as_str(function.name))
    if isinstance(function, keras.Model):
        specs = args or _model_specs(function)
        traced = tfp.new_function(lambda *inputs: function(*inputs, training=False))
        return traced, traced.get_concrete_function(*specs), function.name
    if isinstance(function, Jit | tf.types.experimental.PolymorphicFunction):
        return function, function.get_concrete_function(*args), getattr(function, "__name__", "function")
    if callable(function):
        traced = tfp.new_function(function)
        return traced, traced.get_concrete_function(*args), getattr(function, "__name__", "function")
    raise TypeError(
        f"cannot compile a {type(function).__name__}; give a function, a Keras model or the directory of a "
        "SavedModel"
    )


def _of_saved_model(directory: str, signature: str) -> tuple[Any, Any, str]:
    if not tf.saved_model.contains_saved_model(directory):
        raise ShapeError(f"{directory} holds no SavedModel")
    loaded = tf.saved_model.load(directory)
    if signature not in loaded.signatures:
        raise ShapeError(f"{directory} has no signature {signature!r}; it has {_listed(loaded.signatures)}")
    return loaded, loaded.signatures[signature], os.path.basename(os.path.abspath(directory))


def _model_specs(model: keras.Model) -> tuple[Any, ...]:
    try:
        inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    except (AttributeError, ValueError, TypeError):
        raise ShapeError(
            f"model {model.name} does not tell its inputs; give examples or TensorSpecs"
        ) from None
    specs = keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype, t.name), inputs)
    return (specs,)


# -- shapes


def _shapes(names: Sequence[str], traced: Sequence[tf.TensorShape], feeds: Feeds) -> list[tuple[int, ...]]:
    """The dims of every argument, from what the trace knows and the feeds."""
    fed: dict[int, tuple[int, ...]] = {}
    by_name = {f"arg{k}": k for k in range(len(names))} | {name: k for k, name in enumerate(names)}
    for feed, dims_of_feed in feeds.items():
        if feed not in by_name:
            similar = difflib.get_close_matches(feed, names, 1)
            raise ShapeError(
                f"feed {feed!r}: there is no such argument; there are {_listed(names)}"
                + (f". Did you mean {similar[0]!r}?" if similar else "")
            )
        fed[by_name[feed]] = tuple(map(int, dims_of_feed))
    shapes: list[tuple[int, ...]] = []
    for k, (name, shape) in enumerate(zip(names, traced)):
        dims = fed.get(k)
        if dims is None and not shape.is_fully_defined():
            example = "1" if shape.rank is None else ",".join(str(d or 1) for d in shape.as_list())
            raise ShapeError(
                f"argument {name} has the shape {_dims_text(shape)}, but compiled code has fixed shapes; "
                f"tell it with feeds={{{name!r}: ({example},)}} or --feed {name}:{example}"
            )
        if dims is not None and (any(d < 0 for d in dims) or not shape.is_compatible_with(dims)):
            raise ShapeError(
                f"feed {name}: {list(dims)} does not fit the argument's shape {_dims_text(shape)}"
            )
        shapes.append(tuple(shape.as_list()) if dims is None else dims)
    return shapes


def _dims_text(shape: tf.TensorShape) -> str:
    return (
        "unknown" if shape.rank is None else "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"
    )


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"


# -- values and names


def _value(tensor: tf.Tensor, argument: Argument) -> np.ndarray:
    if argument.is_variable:
        tensor = tfp.read_variable(tensor, tf.as_dtype(argument.data_type))
    return np.asarray(tensor.numpy())


def _variable_name(concrete: Any, number: int) -> str:
    inner = concrete.inputs[number]
    handles = {id(v.handle): v.name for v in concrete.graph.variables}
    captured = concrete.captured_inputs[number - len(concrete.inputs) + len(concrete.captured_inputs)]
    return handles.get(id(captured), _name_of(inner)).split(":", 1)[0]


def _name_of(tensor: tf.Tensor) -> str:
    return tensor.name.split(":", 1)[0]


def _result_names(structure: Any) -> list[str]:
    """The path of every tensor in a structure, in TensorFlow's order: `logits`, `heads_0`, ..."""
    paths: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, Mapping):
            for key in sorted(value):
                walk(value[key], f"{path}_{key}".lstrip("_"))
        elif isinstance(value, list | tuple):
            fields = getattr(value, "_fields", range(len(value)))
            for field, item in zip(fields, value):
                walk(item, f"{path}_{field}".lstrip("_") if path or isinstance(field, str) else "")
        elif value is not None:
            paths.append(path)

    walk(structure, "")
    return paths
