"""`tfbridge.jit`: a function whose TensorFlow ops are compiled together.

Tracing is tf.function's. A call from Python with no tape watching goes straight to the launch op, when all of the
function compiles. Every other call (under a tape, inside another tf.function, or when some op does not compile) goes
through the traced function, whose nodes carry a mark that the graph pass finds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import operator
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDefLibrary

from ..compiler.cpu import libraries
from ..compiler.cpu.kernels import load_common
from ..compiler.errors import UnsupportedError
from ..runtime import background, interpreter
from . import auto, direct_call, direct_variables, fallback, launch_kernel, launch_op, source
from . import tensorflow_private as tfp
from .cluster import Cluster, bounded, digest_of_sources, from_function
from .function_calls import calls_as_ops, function_calls_as_ops
from .graph import from_function_def, takes_functions
from .options import JitOptions, checked, current
from .translate.registry import translations
from .translate.translator import Functions

Pack = Callable[[list[Any]], Any]
# A function that answers NotImplemented where the call is not for it, and what to do with its result (None: nothing).
Way = tuple[Callable[..., Any], Pack | None]


def _refuse(*args: Any) -> Any:
    return NotImplemented


_NO_WAY: Way = (_refuse, None)
_MOST_LOOKS = 8
_MOST_ROUTES = 512  # of one function


@functools.cache
def _get_ready() -> None:
    """Starts to load, while the first function is traced, what calls need besides its own code."""
    background.submit(_load)


def _load() -> None:
    with contextlib.suppress(Exception):  # a call that needs what cannot be loaded tells why
        launch_op.ensure_registered()
        direct_call.load()
        digest_of_sources()


@dataclasses.dataclass
class _Plan:
    """How to call one concrete function without TensorFlow's executor.

    `inputs` says, per launch argument, the number of the call's argument or the captured tensor itself; `is_plain`
    that nothing else is needed: no variable to assign, no value that picks the code.
    """

    run: Callable[[Sequence[tf.Tensor]], Any]  # flat arguments to results
    cluster: Cluster
    inputs: Sequence[int | tf.Tensor]
    is_plain: bool
    pack: Pack | None

    def _found(self, args: Sequence[Any]) -> tuple[launch_op.Found, list[Any]] | None:
        """The launch op's code for arguments of these dims, once it has run with them, and where its inputs come
        from: `inputs` with captured variables as such."""
        if not self.is_plain:
            return None
        try:
            sources = [direct_variables.Captured(i) if isinstance(i, tf.Tensor) and i.dtype == tf.resource else i
                       for i in self.inputs]
        except direct_variables.NotDirect:
            return None
        found = launch_op.find(self.cluster.key, *self.cluster.launch_types,
                               [(args[i] if isinstance(i, int) else i).shape for i in sources])
        if found is None or any(isinstance(sources[k], direct_variables.Captured) for k in found.aliases):
            return None
        return found, sources

    def way_of_tensors(self, args: Sequence[tf.Tensor]) -> Way:
        """The shortest way for eager tensors of these types and dims."""
        found = self._found(args) if tfp.DIRECT not in tfp.missing() and tfp.has_only_cpus() else None
        if found is None:
            return _NO_WAY
        return direct_call.of_tensors(*found, [a.dtype for a in args], self.pack is None), self.pack

    def way_of_arrays(self, args: Sequence[np.ndarray]) -> Way:
        """The shortest way for NumPy arrays of these types and dims."""
        found = self._found(args)
        if found is None or found[0].aliases:
            return _NO_WAY
        sources = [i.numpy() if isinstance(i, tf.Tensor) else i for i in found[1]]
        return direct_call.of_arrays(found[0], sources, [a.dtype for a in args], self.pack is None), self.pack


@dataclasses.dataclass
class _Route:
    """A plan, and the shortest way for arguments of certain types and dims, for a generation of the cluster's code."""

    plan: _Plan
    way: Way
    generation: int = 0
    looks: int = _MOST_LOOKS  # for a shorter way that are left, should there be code later

    def run(self, args: Sequence[tf.Tensor]) -> Any:
        """Goes the long way; finds the shortest one anew when it led to code that was replaced."""
        result = self.plan.run(args)
        may_look = self.way is _NO_WAY and self.looks > 0
        self.looks -= may_look
        if may_look or self.generation != self.plan.cluster.generation:
            self.generation = self.plan.cluster.generation
            self.way = self.plan.way_of_tensors(args)
        return result


_VALUES = frozenset({int, float, bool, complex, str, bytes, type(None)})  # what is traced by its value
_COMPOSITES = frozenset({tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices})


def _flatten(value: Any, tensors: list[tf.Tensor], key: list[Any]) -> None:
    """Adds the tensors of an argument to a list, arrays as tensors, and to another what else decides about its code.

    Raises: TypeError, ValueError  it has what TensorFlow must look at.
    """
    kind = type(value)
    if kind is _eager_tensor:
        tensors.append(value)
        key.append(_tensor_key(value))
    elif kind in _VALUES:
        key.append((kind, value))
    elif kind is np.ndarray:
        _flatten(tf.convert_to_tensor(value), tensors, key)
    elif kind is dict:
        key.append((kind, tuple(value)))
        for item in value.values():
            _flatten(item, tensors, key)
    elif kind is tuple or kind is list:
        key.append((kind, len(value)))
        for item in value:
            _flatten(item, tensors, key)
    elif kind in _COMPOSITES:
        key.append(value._type_spec)
        for item in tf.nest.flatten(value, expand_composites=True):
            _flatten(item, tensors, key)
    else:
        raise TypeError(f"a call with {kind.__name__}")


def _with_tensors(value: Any) -> Any:
    """An argument with tensors in the place of its arrays."""
    kind = type(value)
    if kind is np.ndarray:
        return tf.convert_to_tensor(value)
    if kind is dict:
        return {name: _with_tensors(item) for name, item in value.items()}
    return kind(map(_with_tensors, value)) if kind is tuple or kind is list else value


# What compiling needs is loaded now: a first call shall spend its time on compiling.
launch_kernel.prefetch()
direct_call.prefetch()
libraries.prepare()
translations()
load_common()
_may_call_directly, _tensor_key, _eager_tensor = tfp.may_call_directly, tfp.tensor_key, tfp.eager_tensor_type()


class Jit:
    """A function compiled by tfbridge. Called like the function that it was made from."""

    def __init__(self, function: Callable[..., Any], strict: bool = False, **options: Any) -> None:
        chosen = checked({"cost_guard": False, **options})  # to decorate a function is to ask for its code
        python_function = tfp.python_function(function)
        self._start(tfp.function_like(function, auto.marked(python_function, chosen)), python_function, strict, chosen)

    def _start(self, traced: Any, python_function: Callable[..., Any], strict: bool, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, python_function)
        self.__signature__ = inspect.signature(python_function)
        self.strict = strict
        self._options = options
        self._traced = traced
        self._bound: weakref.WeakKeyDictionary[Any, Jit] = weakref.WeakKeyDictionary()
        self._routes: dict[Any, _Route | None] = {}  # None: part of the function runs in TensorFlow
        # By what `_flatten` finds: which of its tensors the function takes, in its order, and their route.
        self._structured: dict[Any, tuple[list[int], _Route | None]] = {}
        self._array_ways: dict[Any, Way] = {}
        self._way = self._array_way = _NO_WAY  # those of the last call
        self._concrete_plans: dict[Any, _Plan | None] = {}
        self._lock = threading.RLock()

    @property
    def traced(self) -> Any:
        """The tf.function that traces."""
        return self._traced

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        """The traced function for these arguments, as tf.function gives it."""
        return self._traced.get_concrete_function(*args, **kwargs)

    @property
    def __class__(self) -> type:
        """TensorFlow's type of functions: what saves and tracks those does so with this one, through its traced one."""
        return type(self._traced)

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError("the class of a compiled function is fixed")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_traced":
            raise AttributeError(name)
        return getattr(self._traced, name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        bound = self._of_instance(instance)
        return functools.partial(self, instance) if bound is None else _Method(bound, instance)

    def _of_instance(self, instance: Any) -> Jit | None:
        """The function with `self` given, one per instance; None where TensorFlow takes the instance as an argument."""
        try:
            bound = self._bound.get(instance)
            if bound is not None:
                return bound
            traced = self._traced.__get__(instance, type(instance))
        except TypeError:  # it cannot be hashed, or not be referred to weakly
            return None
        if not tfp.is_function(traced):
            return None
        bound = Jit.__new__(Jit)
        bound._start(traced, traced.python_function, self.strict, self._options)
        return self._bound.setdefault(instance, bound)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _may_call_directly():
            return self._traced_call(args, kwargs)
        if kwargs:
            return self._structured_call(args, kwargs)
        call, pack = last = self._way
        result = call(*args)
        if result is not NotImplemented:
            return result if pack is None else pack(result)
        try:
            route = self._routes[tuple([_tensor_key(a) for a in args])]
        except KeyError:
            return self._first_call(args, kwargs)
        except (TypeError, AttributeError):
            return self._structured_call(args, kwargs)
        if route is None:
            return self._traced_call(args, kwargs)
        if route.plan.cluster.is_varying and not self.strict:
            self._routes.clear()
            return self._first_call(args, kwargs)
        if route.way is last:
            return route.run(args)
        self._way = call, pack = route.way
        result = call(*args)
        if result is NotImplemented:
            return route.run(args)
        return result if pack is None else pack(result)

    def native(self, *args: Any) -> Any:
        """Calls with NumPy arrays (or what `numpy.asarray` takes) and returns NumPy arrays in the function's structure.

        A call costs a few microseconds besides the compiled code when all arguments are arrays in C order of types and
        dims met before and the function assigns no variables; others go through tensors.
        """
        call, pack = self._array_way
        result = call(*args)
        if result is not NotImplemented:
            return result if pack is None else pack(result)
        try:
            key = tuple([(a.dtype, a.shape) for a in args])
            self._array_way = call, pack = self._array_ways[key]
        except (KeyError, TypeError, AttributeError):
            return self._first_native(args)
        result = call(*args)
        if result is NotImplemented:
            if call is not _refuse:
                self._array_ways.pop(key, None)  # it may lead to code that was replaced
            return self._through_tensors(args)
        return result if pack is None else pack(result)

    def _through_tensors(self, args: tuple[Any, ...]) -> Any:
        result = self(*[tf.nest.map_structure(tf.convert_to_tensor, a) if isinstance(a, dict | tuple)
                        else tf.convert_to_tensor(a) for a in args])
        return tf.nest.map_structure(lambda r: r.numpy() if isinstance(r, tf.Tensor) else r, result)

    def _first_native(self, args: tuple[Any, ...]) -> Any:
        result = self._through_tensors(args)
        if all(type(a) is np.ndarray for a in args):
            tensors = [tf.convert_to_tensor(a) for a in args]
            route = self._routes.get(tuple([_tensor_key(t) for t in tensors]))
            known = all(t.dtype.as_numpy_dtype == a.dtype for t, a in zip(tensors, args, strict=True))
            way = route.plan.way_of_arrays(args) if route and known else _NO_WAY
            bounded(self._array_ways, _MOST_ROUTES)[tuple([(a.dtype, a.shape) for a in args])] = way
        return result

    def _traced_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call through TensorFlow's executor."""
        auto.ensure_registered()
        return self._traced(*args, **kwargs)

    def _structured_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call with keywords, arrays, Python values or nested arguments."""
        tensors: list[tf.Tensor] = []
        key: list[Any] = []
        try:
            _flatten((args, kwargs), tensors, key)
            order, route = self._structured[tuple(key)]
        except (KeyError, TypeError, ValueError):
            return self._first_call(args, kwargs)
        if route is None:
            return self._traced_call(args, kwargs)
        if route.plan.cluster.is_varying and not self.strict:
            self._structured.clear()
            return self._first_call(args, kwargs)
        given = [tensors[k] for k in order]
        call, pack = route.way
        result = call(*given)
        if result is NotImplemented:
            return route.run(given)
        return result if pack is None else pack(result)

    def _note_traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remembers that calls like this one go through TensorFlow's executor."""
        key: list[Any] = []
        with contextlib.suppress(TypeError, ValueError):
            _flatten((args, kwargs), [], key)
            if kwargs or any(type(a) is not _eager_tensor for a in args):
                bounded(self._structured, _MOST_ROUTES)[tuple(key)] = [], None
            else:
                bounded(self._routes, _MOST_ROUTES)[tuple([_tensor_key(a) for a in args])] = None

    def _note_structured(self, args: tuple[Any, ...], kwargs: dict[str, Any], concrete: Any, plan: _Plan) -> None:
        """Remembers the way of calls like this one, if it is seen where the function's tensors come from."""
        found: list[tf.Tensor] = []
        key: list[Any] = []
        with contextlib.suppress(TypeError, ValueError):
            args, kwargs = _with_tensors((args, kwargs))
            _flatten((args, kwargs), found, key)
            if self._traced.get_concrete_function(*args, **kwargs) is not concrete:
                return
            tensors = tfp.flat_arguments(self._traced, concrete, args, kwargs)
            at = {id(tensor): k for k, tensor in enumerate(found)}
            if len(at) == len(found) and all(id(tensor) in at for tensor in tensors):
                route = _Route(plan, plan.way_of_tensors(tensors), plan.cluster.generation)
                bounded(self._structured, _MOST_ROUTES)[tuple(key)] = [at[id(t)] for t in tensors], route

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose arguments have no route yet, or are not all tensors."""
        _get_ready()
        with interpreter.compiling():
            concrete = self._traced.get_concrete_function(*args, **kwargs)
            plan = self._plan_of(concrete)
        if plan is None:
            self._note_traced(args, kwargs)
            return self._traced_call(args, kwargs)
        tensors = tfp.flat_arguments(self._traced, concrete, args, kwargs)
        result = plan.run(tensors)
        if plan.cluster.earlier_failure or plan.cluster.is_varying and not self.strict:
            # The parts around what does not compile, or is compiled too often, may do better by themselves.
            self._concrete_plans[concrete] = None
        elif not kwargs and len(tensors) == len(args) and all(a is t for a, t in zip(args, tensors)):
            with contextlib.suppress(AttributeError):
                key = tuple([_tensor_key(a) for a in args])
                generation = plan.cluster.generation
                route = bounded(self._routes, _MOST_ROUTES)[key] = _Route(plan, plan.way_of_tensors(args), generation)
                self._way = route.way
        else:
            self._note_structured(args, kwargs, concrete, plan)
        return result

    def direct_cluster(self, concrete: Any) -> Cluster | None:
        """The cluster that a concrete function is as a whole; None when part of it must run in TensorFlow.

        Raises: UnsupportedError  as a call.
        """
        plan = self._plan_of(concrete)
        return None if plan is None else plan.cluster

    def _plan_of(self, concrete: Any) -> _Plan | None:
        with self._lock:
            if concrete not in self._concrete_plans:
                made = self._plan(concrete)
                bounded(self._concrete_plans, _MOST_ROUTES)[concrete] = made
            return self._concrete_plans[concrete]

    def _plan(self, concrete: Any) -> _Plan | None:
        """The direct way to call a concrete function; None when part of it must run in TensorFlow.

        Raises: UnsupportedError  strict, and an op does not compile.
        """
        try:
            return self._direct_plan(concrete)
        except UnsupportedError as error:
            if self.strict:
                name = tfp.python_function(self._traced).__name__
                raise UnsupportedError(source.strict_message(name, concrete, error)) from None
            return None

    def _direct_plan(self, concrete: Any) -> _Plan:
        cluster = cluster_of(concrete, current(self._options))
        captured_tensors = list(concrete.captured_inputs)
        own = len(concrete.inputs) - len(captured_tensors)
        captured, inputs = [], []
        for position, k in enumerate(cluster.launch_arguments):
            if k < own:
                inputs.append(k)
                continue
            tensor = captured_tensors[k - own]
            inputs.append(tensor)
            if cluster.arguments[k].is_variable and not cluster.takes_handles:
                captured.append((position, tensor, tf.as_dtype(cluster.arguments[k].data_type)))
        handles = [t for t in inputs if isinstance(t, tf.Tensor) and t.dtype == tf.resource]
        if len({t.device for t in handles}) > 1:
            raise UnsupportedError("it uses variables of several devices")
        written = [captured_tensors[k - own] for k in cluster.assigned]
        results = len(cluster.result_types) - len(cluster.written)
        pack = _packer(concrete, results)
        run = _runner(cluster.prepare(), inputs, captured, written, results, pack or operator.itemgetter(0))
        is_plain = not (captured or cluster.written or cluster.launch_constants)
        return _Plan(run, cluster, inputs, is_plain, pack)


class _Method(functools.partial):
    """A function with its instance, which it keeps alive: TensorFlow's functions hold theirs weakly."""

    instance: Any

    def __new__(cls, function: Jit, instance: Any) -> _Method:
        made = super().__new__(cls, function)
        made.instance = instance
        return made

    __class__ = property(lambda self: type(self.func.traced))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.func, name)


def cluster_of(concrete: Any, options: JitOptions | None = None) -> Cluster:
    """The cluster of a whole concrete function; without `options`, with those in force.

    Raises: UnsupportedError  an op does not compile, or a variable is passed as an argument.
    """
    definition = concrete.function_def
    calls = any(takes_functions(node.op) for node in definition.node_def)
    functions = calls_as_ops(concrete.graph.as_graph_def().library if calls else FunctionDefLibrary())
    library = {f.signature.name: f for f in functions.function}
    definition = function_calls_as_ops(definition, library)
    captured = concrete.captured_inputs
    own = len(concrete.inputs) - len(captured)
    content = {}
    for k, tensor in enumerate(concrete.inputs):
        if tensor.dtype == tf.resource:
            if k < own:
                raise UnsupportedError(f"argument {k} is a variable; capture it instead")
            content[k] = tfp.variable_type(concrete.graph, tensor, captured[k - own])
    name = definition.signature.name
    options = options or current()
    return from_function(name, from_function_def(definition), Functions(library, options.deny_ops),
                         fallback.of_function(definition, functions), options, source.finder(concrete.graph), content)


def _runner(launch: Callable[[list[tf.Tensor]], list[tf.Tensor]], inputs: Sequence[int | tf.Tensor],
            captured: Sequence[tuple[int, tf.Tensor, tf.DType]], written: Sequence[tf.Tensor], results: int,
            pack: Callable[[list[tf.Tensor]], Any]) -> Callable[[Sequence[tf.Tensor]], Any]:
    """A function that runs a launch on the flat arguments of a call, reading and assigning variables around it.

    `inputs` says, per launch argument, the number of the call's argument or the captured tensor itself. The common case
    of plain arguments and nothing else has its own short way: this is what every call pays.
    """
    if not written and not captured and all(type(i) is int and i == at for at, i in enumerate(inputs)):
        return lambda args: pack(launch(list(args[:len(inputs)])))

    def run(args: Sequence[tf.Tensor]) -> Any:
        given = [args[i] if type(i) is int else i for i in inputs]
        for position, handle, dtype in captured:
            given[position] = tfp.read_variable(handle, dtype)
        outputs = launch(given)
        for handle, value in zip(written, outputs[results:]):
            tfp.assign_variable(handle, value)
        return pack(outputs[:results])

    return run


def _packer(concrete: Any, results: int) -> Pack | None:
    """A function that puts flat results into the structure that the traced function returns; None: it is one tensor."""
    structure = concrete.structured_outputs
    if isinstance(structure, tf.Tensor):
        return None
    if structure is None:
        return lambda outputs: None
    leaves = tf.nest.flatten(structure, expand_composites=True)
    present = [k for k, leaf in enumerate(leaves) if leaf is not None]
    if len(present) != results:
        raise UnsupportedError("the function returns values that are no tensors")
    if type(structure) in (list, tuple) and all(isinstance(leaf, tf.Tensor) for leaf in structure):
        return type(structure)
    with contextlib.suppress(TypeError):
        return _nested(structure, itertools.count())

    def pack(outputs: list[Any]) -> Any:
        flat: list[Any] = [None] * len(leaves)
        for k, output in zip(present, outputs):
            flat[k] = output
        return tf.nest.pack_sequence_as(structure, flat, expand_composites=True)

    return pack


def _nested(structure: Any, numbers: Iterator[int]) -> Pack:
    """What makes lists, tuples and dicts of flat results, which have these numbers in turn.

    Raises: TypeError  there is something else among them.
    """
    kind = type(structure)
    if isinstance(structure, tf.Tensor):
        return operator.itemgetter(next(numbers))
    if structure is None:
        return lambda outputs: None
    if kind is dict:
        entries = {name: _nested(structure[name], numbers) for name in sorted(structure)}
        return lambda outputs: {name: entries[name](outputs) for name in structure}
    if kind is not list and kind is not tuple:
        raise TypeError(f"a result of type {kind.__name__}")
    items = [_nested(item, numbers) for item in structure]
    return lambda outputs: kind([item(outputs) for item in items])


def jit(function: Callable[..., Any] | None = None, *, strict: bool = False, **options: Any) -> Any:
    """Compiles a function (or a tf.function) with tfbridge; works as a decorator with or without arguments.

    The function may use variables, nested functions and TensorFlow's or AutoGraph's control flow; it may be called
    under a gradient tape and inside other tf.functions. Ops that cannot be compiled run in TensorFlow;
    `tfbridge.explain` shows which and why. `strict` makes them an error. `options` are those of `tfbridge.options`.
    Raises: TypeError, ValueError  an unknown option (the nearest name is suggested) or value.
    Raises (when called): UnsupportedError  strict, and an op cannot be compiled: lists all of them.
    """
    checked(options)
    if function is None:
        return lambda f: Jit(f, strict, **options)
    return Jit(function, strict, **options)
