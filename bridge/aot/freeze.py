"""Turns a TensorFlow function into a module of arrays: variables become constants, shapes become known."""

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
from ..cluster.cluster import Argument
from ..cluster.cluster_module import build_module
from ..dispatch.call_plan import cluster_of
from ..graph import source_location
from ..tf_internals import symbols as tfp
from ..tf_internals.dtypes import element_type

Feeds = Mapping[str, Sequence[int]]


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A module without variables, and the names of its parameters and results (empty: it has none).

    in_tensorflow: the results of TensorFlow for arguments.
    """

    module: Module
    name: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    in_tensorflow: Callable[[Sequence[np.ndarray]], list[np.ndarray]]


def freeze(function: Any, args: Sequence[Any], signature: str, feeds: Feeds) -> Frozen:
    """The module of a function, tf.function, concrete function, Keras model or SavedModel directory.

    Raises: ShapeError  an unknown signature or feed, or a dimension that nothing tells; UnsupportedError  an op that
    cannot be compiled (all of them are listed), or a variable that the function writes.
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
    if cluster.written:
        written = ", ".join(_variable_name(concrete, k) for k in cluster.written)
        raise UnsupportedError(
            f"{name}: writes the variables {written}; compiled code has no variables, they are "
            "frozen into constants. Compile a function that returns the new values instead"
        )
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
    constants = {
        own + k: _value(tensor, cluster.arguments[own + k])
        for k, tensor in enumerate(captured)
        if cluster.arguments[own + k].is_read
    }
    module = build_module(cluster, [*shapes, *[None] * len(captured)], constants)
    if module.sized_results:
        raise UnsupportedError(
            f"{name}: the values of its arguments decide the shape of a result; its memory is laid "
            "out when compiling"
        )
    results = _result_names(concrete.structured_outputs)

    def in_tensorflow(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        assert keep is not None  # its variables live as long
        tensors = [tf.constant(a, t.dtype) for a, t in zip(arrays, concrete.inputs)]
        found = tfp.call_concrete(concrete, tensors, captured)
        return [tensor.numpy() for tensor in tf.nest.flatten(found)]

    return Frozen(
        module,
        name,
        tuple(names),
        tuple(results) if len(results) == len(concrete.outputs) else ("",) * len(concrete.outputs),
        in_tensorflow,
    )


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
