"""`tfbridge.jit`: a function whose TensorFlow ops are compiled together.

Tracing is tf.function's. A call from Python with no tape watching goes straight to the launch op, when all of the
function compiles. Every other call (under a tape, inside another tf.function, or when some op does not compile) goes
through the traced function, whose nodes carry a mark that the graph pass finds.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...compiler.client.platforms import native
from ...compiler.errors import UnsupportedError
from ...runtime.threads import compile_threads, forking, python_settings
from ..cluster.cluster import Cluster
from ..cluster.code_cache import bounded
from ..cluster.fingerprint import digest_of_sources
from ..cluster.strict import strict_error, strict_reason
from ..clustering import rewrite_graph
from ..dispatch import fast_call, tf_function_hook, unclustered_calls
from ..dispatch.call_plan import NO_FAST_PATH, CallPlan, FastPath, miss
from ..dispatch.dispatch_cache import MAX_ENTRIES, DispatchCache, has_arrays, with_tensors
from ..dispatch.staged_plan import staged_plan_of
from ..graph import source_location
from ..launch import kernel as launch_kernel
from ..launch import op as launch_op
from ..options.flags import FOREGROUND
from ..options.jit_options import checked, current
from ..tf_internals import symbols as tfp
from ..tf_internals.types import ConcreteFunction
from ..translate.registry import translations
from . import marking


@functools.cache
def _get_ready() -> None:
    """Starts to load, while the first function is traced, what calls need besides its own code."""
    compile_threads.submit(_load)


def _load() -> None:
    with contextlib.suppress(Exception):  # a call that needs what cannot be loaded tells why
        launch_op.ensure_registered()
        fast_call.load()


# What compiling needs is loaded now: a first call shall spend its time on compiling.
compile_threads.submit(digest_of_sources)
launch_kernel.prefetch()
fast_call.prefetch()
native().prefetch_kernel_libraries()
translations()
native().load_emitters()
tfp.prefetch_tracing()
_may_call_directly, _tensor_key = tfp.may_call_directly, tfp.tensor_key


class Jit(DispatchCache):
    """A function compiled by tfbridge. Called like the function that it was made from."""

    def __init__(self, function: Callable[..., Any], strict: bool = False, **options: Any) -> None:
        # To decorate a function is to ask for its code.
        chosen = checked({"cost_guard": False, "first_compile": FOREGROUND, **options})
        python_function = tfp.python_function(function)
        marked = marking.marked(python_function, chosen, tfp.autograph_features(function), strict)
        self._start(tfp.function_like(function, marked), python_function, strict, chosen)

    def _start(
        self, traced: Any, python_function: Callable[..., Any], strict: bool, options: dict[str, Any]
    ) -> None:
        functools.update_wrapper(self, python_function)
        self.__signature__ = inspect.signature(python_function)
        self.strict = self._keeps_varying_plans = strict
        self._options = options
        self._traced = traced
        self._bound: weakref.WeakKeyDictionary[object, Jit] = weakref.WeakKeyDictionary()
        self._clear_cache()
        self._array_fast_paths: dict[object, FastPath] = {}
        self._array_fast_path = NO_FAST_PATH  # that of the last call
        self._array_misses: dict[
            object, tuple[CallPlan, int]
        ] = {}  # without one: the plan, and its publications then
        self._concrete_plans: dict[object, CallPlan | None] = {}
        self._lock = forking.long_lock()

    @property
    def traced(self) -> Any:
        """The tf.function that traces."""
        return self._traced

    def get_concrete_function(self, *args: object, **kwargs: object) -> Any:
        """The traced function for these arguments, as tf.function gives it.

        Raises: UnsupportedError  strict, and an op does not compile.
        """
        concrete = self._traced.get_concrete_function(*args, **kwargs)
        if self.strict:
            self._plan_of(concrete)
        return concrete

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

    def __get__(self, instance: object, owner: object = None) -> Jit | functools.partial[Any]:
        if instance is None:
            return self
        bound = self._of_instance(instance)
        return functools.partial(self, instance) if bound is None else _Method(bound, instance)

    def _of_instance(self, instance: object) -> Jit | None:
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

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if not _may_call_directly():
            return self._traced_call(args, kwargs)
        if not kwargs:
            call, pack = self._fast_path
            result = call(*args)
            if result is not NotImplemented:
                return result if pack is None else pack(result)
        return self._cached_call(args, kwargs)

    def native(self, *args: Any) -> Any:
        """Calls with NumPy arrays (or what `numpy.asarray` takes) and returns NumPy arrays in the function's structure.

        >>> import numpy as np
        >>> import tfbridge
        >>> tfbridge.jit(lambda x: x * 2.0).native(np.float32([1, 2]))
        array([2., 4.], dtype=float32)

        A call costs a few microseconds besides the compiled code when all arguments are arrays in C order of types and
        dims met before and the function assigns no variables; others go through tensors.
        """
        call, pack = self._array_fast_path
        result = call(*args)
        if result is not NotImplemented:
            return result if pack is None else pack(result)
        try:
            key = tuple([(a.dtype, a.shape) for a in args])
            self._array_fast_path = call, pack = self._array_fast_paths[key]
        except (KeyError, TypeError, AttributeError):
            return self._first_native(args)
        result = call(*args)
        if result is NotImplemented:
            plan, publications = self._array_misses.get(key, (None, 0))
            if plan is not None and plan.cluster.code.publications != publications:
                return self._first_native(args)
            if call is not miss:
                self._array_fast_paths.pop(key, None)  # it may lead to code that was replaced
            return self._through_tensors(args)
        return result if pack is None else pack(result)

    def _through_tensors(self, args: tuple[object, ...]) -> Any:
        result = self(
            *[
                tf.nest.map_structure(tf.convert_to_tensor, a)
                if isinstance(a, dict | tuple)
                else tf.convert_to_tensor(a)
                for a in args
            ]
        )
        return tf.nest.map_structure(lambda r: r.numpy() if isinstance(r, tf.Tensor) else r, result)

    def _first_native(self, args: tuple[Any, ...]) -> Any:
        result = self._through_tensors(args)
        if all(type(a) is np.ndarray for a in args):
            tensors = [tf.convert_to_tensor(a) for a in args]
            entry = self._entries.get(tuple([_tensor_key(t) for t in tensors]))
            keeps_types = all(t.dtype.as_numpy_dtype == a.dtype for t, a in zip(tensors, args, strict=True))
            fast_path, key = NO_FAST_PATH, tuple([(a.dtype, a.shape) for a in args])
            if entry and keeps_types:
                publications = entry.plan.cluster.code.publications
                fast_path = entry.plan.fast_path_of_arrays(args)
                if fast_path is NO_FAST_PATH:
                    bounded(self._array_misses, MAX_ENTRIES)[key] = entry.plan, publications
            bounded(self._array_fast_paths, MAX_ENTRIES)[key] = fast_path
        return result

    def _traced_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """A call through TensorFlow's executor."""
        rewrite_graph.ensure_registered()
        if self.strict:
            self.get_concrete_function(*args, **kwargs)
        with self._strict_errors():
            return self._traced(*args, **kwargs)

    def _signature(self) -> Sequence[Any] | None:
        # The first call of a strict function with new sizes may raise what `_strict_errors` makes an error of ours.
        return None if self.strict else self._traced.input_signature

    def _first_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        _get_ready()
        with python_settings.compiling():
            concrete = self._traced.get_concrete_function(*args, **kwargs)
            plan = self._plan_of(concrete)
        if plan is None:
            tf_function_hook.run_in_tensorflow(concrete)
            self._add_traced(args, kwargs)
            return self._traced_call(args, kwargs)
        tensors = tfp.flat_arguments(self._traced, concrete, args, kwargs)
        with self._strict_errors():
            result = plan.run(tensors)
        if plan.has_failed() or plan.is_varying and not self._keeps_varying_plans:
            # The parts around what does not compile, or is compiled too often, may do better by themselves.
            self._concrete_plans[concrete] = None
            tf_function_hook.run_in_tensorflow(concrete)
        else:
            with contextlib.suppress(
                TypeError, ValueError
            ):  # where TensorFlow converts arrays to other types
                if has_arrays((args, kwargs)):
                    args, kwargs = self._with_tensors(args), with_tensors(kwargs)
                    if self._traced.get_concrete_function(*args, **kwargs) is not concrete:
                        return result
                    tensors = tfp.flat_arguments(self._traced, concrete, args, kwargs)
                self._add_entry(args, kwargs, plan, tensors)
        return result

    @contextlib.contextmanager
    def _strict_errors(self) -> Iterator[None]:
        """Raises: UnsupportedError  strict, and within, part of it was not compiled."""
        try:
            yield
        except tf.errors.InternalError as error:
            reason = strict_reason(error)
            if not reason:
                raise
            name = tfp.python_function(self._traced).__name__
            raise UnsupportedError(f"{name}: {strict_error(reason)}") from None

    def direct_cluster(self, concrete: ConcreteFunction) -> Cluster | None:
        """The cluster that a concrete function is as a whole; None when part of it must run in TensorFlow, or there are
        several.

        Raises: UnsupportedError  as a call.
        """
        plan = self._plan_of(concrete)
        return None if plan is None or plan.earlier else plan.cluster

    def direct_stages(self, concrete: ConcreteFunction) -> Sequence[Cluster]:
        """The clusters that a call of a concrete function runs one after the other, without TensorFlow's executor."""
        plan = self._plan_of(concrete)
        return () if plan is None else plan.clusters

    def _plan_of(self, concrete: ConcreteFunction) -> CallPlan | None:
        with self._lock:
            if concrete not in self._concrete_plans:
                plan = self._plan(concrete)
                bounded(self._concrete_plans, MAX_ENTRIES)[concrete] = plan
            return self._concrete_plans[concrete]

    def _plan(self, concrete: ConcreteFunction) -> CallPlan | None:
        """How to call a concrete function directly; None when part of it must run in TensorFlow.

        Raises: UnsupportedError  strict, and an op does not compile.
        """
        try:
            plan = staged_plan_of(concrete, current(self._options))
            for cluster in plan.clusters:
                cluster.is_strict |= self.strict
            if not self.strict:
                unclustered_calls.route(plan, concrete)
            return plan
        except UnsupportedError as error:
            if self.strict:
                name = tfp.python_function(self._traced).__name__
                raise UnsupportedError(source_location.strict_message(name, concrete, error)) from None
            return None


class _Method(functools.partial):
    """A function with its instance, which it keeps alive: TensorFlow's functions hold theirs weakly."""

    instance: object

    def __new__(cls, function: Jit, instance: object) -> _Method:
        method = super().__new__(cls, function)
        method.instance = instance
        return method

    __class__ = property(lambda self: type(self.func.traced))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.func, name)


def jit(function: Callable[..., Any] | None = None, *, strict: bool = False, **options: Any) -> Any:
    """Compiles a function (or a tf.function) with tfbridge; works as a decorator with or without arguments.

    The function may use variables, nested functions and TensorFlow's or AutoGraph's control flow; it may be called
    under a gradient tape and inside other tf.functions. Ops that cannot be compiled run in TensorFlow;
    `tfbridge.explain` shows which and why. `options` are those of `tfbridge.options`.

    >>> import tensorflow as tf
    >>> import tfbridge
    >>> @tfbridge.jit(threads=1)
    ... def prices(spot, strike):
    ...     return tf.nn.relu(spot - strike) * 2.0
    >>> prices(tf.constant([10.0, 20.0]), tf.constant(15.0)).numpy()
    array([ 0., 10.], dtype=float32)

    Shapes: a call with other dtypes, ranks or Python values is traced anew, as in tf.function, and so is one with other
        dims, unless an input_signature or reduce_retracing leaves them open.

    `strict` makes it an error that an op of the function, or of its gradient where one is taken, is not compiled: on a
    call, a call under a tape or in another function, and of a concrete function. What the function's own graph shows is
    told when it is called, or traced within another function, before anything has run; what shows later (a compilation
    that fails, an op of a gradient) when TensorFlow comes to run it. A loop with a gradient compiles where the tape is
    in the same compiled or traced function, not around a call of it. Still left to TensorFlow are single calls with
    compiled code for others like them: after many shapes or values that decide shapes, and where an assumption of the
    code does not hold for the data. What TensorFlow's graph optimizers do not see (they are switched off) is not told.
    Raises: TypeError, ValueError  an unknown option (the nearest name is suggested) or value.
    Raises (when called): UnsupportedError  strict, and ops cannot be compiled: names them, with the reasons; within
        TensorFlow's own run of another function or a gradient, a tf.errors.InternalError that says the same.
    """
    checked(options)
    if function is None:
        return lambda f: Jit(f, strict, **options)
    return Jit(function, strict, **options)
