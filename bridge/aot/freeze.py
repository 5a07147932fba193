"""Turns a TensorFlow function into a module of arrays: shapes become known, variables that it reads become constants,
and those that it writes a state, which the module takes and returns."""

from __future__ import annotations

import collections
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from ...compiler.errors import ShapeError, UnsupportedError
from ...compiler.ir.element_types import ElementType
from ...compiler.ir.module import Module
from ...compiler.ir.shape import Shape
from ...runtime.sizes import AnySize
from ..api.jit import Jit
from ..cluster.cluster import Argument, Cluster
from ..cluster.cluster_module import build_module
from ..dispatch.call_plan import cluster_of
from ..graph import source_location
from ..tf_internals import symbols as tfp
from ..tf_internals.dtypes import element_type
from ..tf_internals.types import ConcreteFunction
from .changing_sizes import SizedFunction
from .feeds import FedDim, Feeds, listed, merged_sizes, shapes_of, with_names
from .tflite.functions import FileFunction, Steps, functions_of
from .tflite.operation import UNSIGNED, ByteForm
from .writers.model import ChangingSize, Reference, Results
from .writers.names import identifier

# Where rounding differs from LiteRT's, an integer differs by one, of numbers that are spread over 256.
_TOLERANCE_OF_BYTES = 0.05


@dataclasses.dataclass(frozen=True)
class State:
    """A variable that a function writes: its name and its value now."""

    name: str
    value: np.ndarray


@dataclasses.dataclass(frozen=True)
class Function:
    """A function without variables, and the names of its parameters and results (empty: it has none).

    module: what it computes, or what makes it where sizes change. name: what the function is called among several
    ones, empty for the only one. state_arguments, state_results: the numbers of parameters and results, behind the
    others, that are values of the state, with its numbers there. expected: the results for arguments, of the last of a
    number of runs that begin with the present state: TensorFlow's, or LiteRT's. argument_steps, result_steps: what the
    integers of some arguments and results stand for.
    """

    name: str
    module: Module | SizedFunction
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    state_arguments: tuple[tuple[int, int], ...]
    state_results: tuple[tuple[int, int], ...]
    expected: Results
    argument_steps: Steps = ()
    result_steps: Steps = ()


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Functions of one model. `name`: what it may be called. `states`: of the variables that one of them writes.
    `sizes`: those that change. `tolerance`: how far results may be from the expected ones, in parts of a number of 1 or
    more; None: rounding alone.
    """

    name: str
    functions: tuple[Function, ...]
    states: tuple[State, ...]
    sizes: tuple[ChangingSize, ...] = ()
    tolerance: float | None = None

    @property
    def reference(self) -> Reference:
        """What the functions give in TensorFlow."""
        return Reference([function.expected for function in self.functions], self.tolerance)


@dataclasses.dataclass(frozen=True)
class _Traced:
    """A function in TensorFlow.

    title: for messages. own: how many inputs are not captured. keep: what must live. of_file: the function of a .tflite
    file that it is.
    """

    name: str
    title: str
    concrete: ConcreteFunction
    cluster: Cluster
    captured: list[tf.Tensor]
    own: int
    keep: object
    of_file: FileFunction | None


def freeze(
    function: object,
    args: Sequence[object],
    signature: str | Sequence[str],
    feeds: Feeds,
    form: ByteForm = UNSIGNED,
) -> Frozen:
    """The modules of a function, tf.function, concrete function, Keras model, SavedModel directory or .tflite file, or
    of several functions by name. form: how the target multiplies bytes best.

    Raises: ShapeError  an unknown signature or feed, or a dimension that nothing tells; UnsupportedError  an op that
    cannot be compiled (all of them are listed), or a variable whose shape changes.
    """
    of_files: Sequence[FileFunction | None] | None = None
    if isinstance(function, str | os.PathLike) and os.fspath(function).endswith(".tflite"):
        name, listed, of_files = _of_lite_file(os.fspath(function), signature, form)
    else:
        name, listed = _given(function, args, signature)
    of_files = of_files or [None] * len(listed)
    traced = [_trace(*each, of_file) for each, of_file in zip(listed, of_files)]
    numbers, states = _shared_states(traced)
    chosen = _feeds_of_each(traced, feeds)
    functions = tuple(_freeze(t, f, numbers, states) for t, f in zip(traced, chosen, strict=True))
    sizes = merged_sizes([f.module.sizes for f in functions if isinstance(f.module, SizedFunction)])
    is_quantised = any(of_file is not None and of_file.is_quantised for of_file in of_files)
    return Frozen(name, functions, tuple(states), tuple(sizes), _TOLERANCE_OF_BYTES if is_quantised else None)


def _trace(
    name: str, keep: object, concrete: ConcreteFunction, title: str, of_file: FileFunction | None
) -> _Traced:
    try:
        cluster = cluster_of(concrete)
    except UnsupportedError as error:
        raise UnsupportedError(
            "\n".join([f"{title}: these ops cannot be compiled:", *source_location.located(concrete, error)])
        ) from None
    captured = list(concrete.captured_inputs)
    return _Traced(
        name, title, concrete, cluster, captured, len(concrete.inputs) - len(captured), keep, of_file
    )


def _shared_states(traced: Sequence[_Traced]) -> tuple[dict[int, int], list[State]]:
    """(number of a state by the identity of its variable, the states) of the variables that a function writes."""
    numbers: dict[int, int] = {}
    states: list[State] = []
    seen = collections.Counter[str]()  # as the two states of an LSTM, which have one name
    for t in traced:
        for k in t.cluster.written:
            if numbers.setdefault(id(t.captured[k - t.own]), len(states)) == len(states):
                value = _value(t.captured[k - t.own], t.cluster.arguments[k])
                name = _variable_name(t.concrete, k)
                seen[name] += 1
                states.append(State(name if seen[name] == 1 else f"{name}_{seen[name] - 1}", value))
    return numbers, states


def _feeds_of_each(traced: Sequence[_Traced], feeds: Feeds) -> list[Feeds]:
    """The feeds of each function: those under its name, `decode/tokens`, and, among several, those under the name of an
    argument that it has. Raises: ShapeError  one is of no function."""
    if len(traced) == 1 and not traced[0].name:
        return [feeds]
    chosen: list[dict[str, Sequence[FedDim] | str]] = [{} for _ in traced]
    for feed, dims in feeds.items():
        function, slash, argument = feed.partition("/")
        users = [
            number
            for number, t in enumerate(traced)
            if (function == t.name if slash else feed in _argument_names(t))
        ]
        if not users:
            functions = listed([t.name for t in traced])
            raise ShapeError(f"feed {feed!r}: no function has such an argument; there are {functions}")
        for number in users:
            chosen[number][argument if slash else feed] = dims
    return list(chosen)


def _argument_names(traced: _Traced) -> list[str]:
    if traced.of_file is not None:
        return list(traced.of_file.arguments)
    return [_name_of(tensor) for tensor in traced.concrete.inputs[: traced.own]]


def _freeze(traced: _Traced, feeds: Feeds, numbers: Mapping[int, int], states: Sequence[State]) -> Function:
    """The module of a function; `numbers`: those of the states, by the identity of the variable."""
    title, concrete, cluster, of_file = traced.title, traced.concrete, traced.cluster, traced.of_file
    names = _argument_names(traced)
    if of_file is not None:  # without a feed, arguments are as large as in the interpreter
        feeds = {**dict(zip(names, of_file.dims)), **feeds}
    fed = shapes_of(names, [t.shape for t in concrete.inputs[: traced.own]], feeds)
    all_dims, sizes = with_names(traced.name, names, fed)
    types = [_element_type(title, names[k], cluster, k) for k in range(traced.own)]
    captured = _captured_arrays(traced, numbers, states)
    results = _result_names(concrete.structured_outputs) if of_file is None else list(of_file.results)
    outputs = len(concrete.outputs)
    written = [numbers[id(traced.captured[k - traced.own])] for k in cluster.written]

    def build(values: Mapping[str, AnySize]) -> Module:
        dims = [tuple(values[d] if isinstance(d, str) else d for d in each) for each in all_dims]
        module = build_module(cluster, [*map(Shape, types, dims), *captured.shapes], captured.constants)
        if module.sized_results and written:
            raise UnsupportedError(
                f"{title}: the values of its arguments decide the shape of a result, and it writes variables; only "
                "one of the two is compiled"
            )
        leaves = list(module.entry.root.shape.leaves())[outputs : outputs + len(written)]
        _check_states(title, [states[number] for number in written], leaves)
        return module

    return Function(
        traced.name,
        SizedFunction(title, sizes, build) if sizes else build({}),
        tuple(names),
        tuple(results) if len(results) == outputs else ("",) * outputs,
        tuple(captured.state_arguments),
        tuple(enumerate(written, outputs)),
        _Runs(traced, [states[number].value for number in written]) if of_file is None else of_file.run,
        () if of_file is None else of_file.argument_steps,
        () if of_file is None else of_file.result_steps,
    )


@dataclasses.dataclass
class _Captured:
    """What a function captures: shapes of states, None for the others; values of those, by number of the argument; the
    (argument, state) numbers of states."""

    shapes: list[Shape | None]
    constants: dict[int, np.ndarray]
    state_arguments: list[tuple[int, int]]


def _captured_arrays(traced: _Traced, numbers: Mapping[int, int], states: Sequence[State]) -> _Captured:
    captured = _Captured([], {}, [])
    for k, tensor in enumerate(traced.captured, traced.own):
        argument, number = traced.cluster.arguments[k], numbers.get(id(tensor))
        if argument.is_read and number is not None:
            captured.state_arguments.append((traced.own + len(captured.state_arguments), number))
            captured.shapes.append(_shape(states[number].value))
            continue
        captured.shapes.append(None)
        if argument.is_read:
            captured.constants[k] = _value(tensor, argument)
    return captured


class _Runs:
    """TensorFlow's results, of the last of several runs that begin with the first values of the variables."""

    def __init__(self, traced: _Traced, first_values: Sequence[np.ndarray]) -> None:
        self._traced, self._first_values = traced, first_values  # with the variables, which must live

    def __call__(self, arrays: Sequence[np.ndarray], runs: int) -> list[np.ndarray]:
        traced = self._traced
        tensors = [tf.constant(a, t.dtype) for a, t in zip(arrays, traced.concrete.inputs)]
        try:
            for _ in range(runs):
                results = tf.nest.flatten(tfp.call_concrete(traced.concrete, tensors, traced.captured))
        finally:
            for k, value in zip(traced.cluster.written, self._first_values):
                tfp.assign_variable(traced.captured[k - traced.own], tf.constant(value))
        return [tensor.numpy() for tensor in results]


def _element_type(title: str, name: str, cluster: Cluster, number: int) -> ElementType:
    data_type = cluster.arguments[number].data_type
    type_ = element_type(data_type)
    if type_ is None:
        dtype = tf.as_dtype(data_type).name
        raise UnsupportedError(f"{title}: argument {name} is {dtype}, not an array of numbers")
    if number in cluster.constants:
        raise UnsupportedError(
            f"{title}: argument {name} decides shapes or axes, so it must be known when "
            "compiling; compile a function in which it is a Python value"
        )
    return type_


def _check_states(title: str, states: Sequence[State], leaves: Sequence[Shape]) -> None:
    """Raises: UnsupportedError  a variable gets another shape."""
    for state, leaf in zip(states, leaves, strict=True):
        if leaf != _shape(state.value):
            raise UnsupportedError(
                f"{title}: the variable {state.name} changes from {_shape(state.value)} to {leaf}; "
                "the memory of a state is laid out when compiling"
            )


def _shape(value: np.ndarray) -> Shape:
    type_ = element_type(tf.as_dtype(value.dtype).as_datatype_enum)
    assert type_ is not None  # it is a variable of a cluster
    return Shape(type_, value.shape)


# -- what is given, to a concrete function


def _given(
    function: object, args: Sequence[object], signature: str | Sequence[str]
) -> tuple[str, list[tuple[str, object, ConcreteFunction, str]]]:
    """(what the model may be called, for every function: its name, what must stay alive, concrete function, title)."""
    if isinstance(function, str | os.PathLike):
        path = os.fspath(function)
        if not path.endswith(".keras"):
            return _of_saved_model(path, signature)
        function = keras.saving.load_model(path, compile=False)
    if not isinstance(function, Mapping):
        concrete = _concrete(function, args)
        return concrete[2], [("", *concrete)]
    if not function or args:
        raise TypeError(
            "several functions are given as {name: function} or {name: (function, *specs)}, and no more"
        )
    each = {name: one if isinstance(one, tuple) else (one,) for name, one in function.items()}
    return "model", [(_function_name(name), *_concrete(one, specs)) for name, (one, *specs) in each.items()]


def _function_name(name: str) -> str:
    """A name in a model of several functions. Raises: ValueError  it cannot be a part of one in C."""
    if not name or identifier(name) != name or name == "state":
        raise ValueError(
            f"function {name!r}: a name of letters, digits and single underscores is wanted, not 'state'"
        )
    return name


def _concrete(function: object, args: Sequence[object]) -> tuple[object, ConcreteFunction, str]:
    """(what must stay alive, concrete function, name)."""
    if isinstance(function, tf.types.experimental.ConcreteFunction):
        return function, function, re.sub(r"^__inference_|_\d+$", "", tf.compat.as_str(function.name))
    if isinstance(function, keras.Model):
        specs = args or _model_specs(function)
        traced = tfp.new_function(lambda *inputs: function(*inputs, training=False))
        return (function, traced), traced.get_concrete_function(*specs), function.name
    if isinstance(function, Jit | tf.types.experimental.PolymorphicFunction):
        return function, function.get_concrete_function(*args), getattr(function, "__name__", "function")
    if callable(function):
        traced = tfp.new_function(function)
        return (
            (function, traced),
            traced.get_concrete_function(*args),
            getattr(function, "__name__", "function"),
        )
    raise TypeError(
        f"cannot compile a {type(function).__name__}; give a function, a Keras model, the directory of a SavedModel or "
        "the path of a .keras or .tflite file"
    )


def _of_saved_model(
    directory: str, signature: str | Sequence[str]
) -> tuple[str, list[tuple[str, object, ConcreteFunction, str]]]:
    """As `_given`. Several signatures, or `*` for all, are called by their names."""
    if not tf.saved_model.contains_saved_model(directory):
        raise ShapeError(f"{directory} holds no SavedModel")
    loaded = tf.saved_model.load(directory)
    name = os.path.basename(os.path.abspath(directory))
    is_one = isinstance(signature, str) and signature != "*"
    keys = [signature] if isinstance(signature, str) else list(signature)
    if keys == ["*"]:
        keys = [key for key in loaded.signatures if not key.startswith("__")]
    for key in keys:
        if key not in loaded.signatures:
            raise ShapeError(f"{directory} has no signature {key!r}; it has {listed(loaded.signatures)}")
    return name, [
        (
            "" if is_one else _function_name(key),
            loaded,
            loaded.signatures[key],
            name if is_one else f"{name}/{key}",
        )
        for key in keys
    ]


def _of_lite_file(
    path: str, signature: str | Sequence[str], form: ByteForm
) -> tuple[str, list[tuple[str, object, ConcreteFunction, str]], list[FileFunction]]:
    """As `_given`, of a .tflite file, and its functions."""
    is_one = isinstance(signature, str) and signature != "*"
    functions = functions_of(path, [signature] if isinstance(signature, str) else list(signature), form)
    name = os.path.basename(path).removesuffix(".tflite")
    listed = [
        (
            "" if is_one or not f.key else _function_name(f.key),
            f.keep,
            f.concrete,
            name if is_one else f"{name}/{f.key}",
        )
        for f in functions
    ]
    return name, listed, functions


def _model_specs(model: keras.Model) -> tuple[tf.TypeSpec, ...]:
    try:
        inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    except (AttributeError, ValueError, TypeError):
        raise ShapeError(
            f"model {model.name} does not tell its inputs; give examples or TensorSpecs"
        ) from None
    specs = keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype, t.name), inputs)
    return (specs,)


# -- values and names


def _value(tensor: tf.Tensor, argument: Argument) -> np.ndarray:
    if argument.is_variable:
        tensor = tfp.read_variable(tensor, tf.as_dtype(argument.data_type))
    return np.asarray(tensor.numpy())


def _variable_name(concrete: ConcreteFunction, number: int) -> str:
    inner = concrete.inputs[number]
    handles = {id(v.handle): v.name for v in concrete.graph.variables}
    captured = concrete.captured_inputs[number - len(concrete.inputs) + len(concrete.captured_inputs)]
    return handles.get(id(captured), _name_of(inner)).split(":", 1)[0]


def _name_of(tensor: tf.Tensor) -> str:
    return tensor.name.split(":", 1)[0]


def _result_names(structure: object) -> list[str]:
    """The path of every tensor in a structure, in TensorFlow's order: `logits`, `heads_0`, ..."""
    paths: list[str] = []

    def walk(value: object, path: str) -> None:
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
