"""The dispatch cache of a traced function: calls with the arguments of an earlier one go straight to their code."""

from __future__ import annotations

import collections
import contextlib
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..cluster.code_cache import bounded
from ..tf_internals import symbols as tfp
from .call_plan import NO_FAST_PATH, CallPlan, DispatchEntry, FastPath

MAX_ENTRIES = 2048
"""Of one function. More than a launch has: of too many that are called in turns, none would be found."""
# Arguments traced by value.
_VALUES = frozenset({int, float, bool, complex, str, bytes, type(None), tf.DType})
# Attributes of those that TensorFlow traces neither by value nor by identity.
_PROTOCOLS = ("__tf_tracing_type__", "__array__", "__attrs_attrs__", "__dataclass_fields__", "__wrapped__")
_ARRAYS = frozenset({np.ndarray, *(np.dtype(code).type for code in "?bhilqBHILQefdFD")})  # traced as tensors
_tensor_key, _eager_tensor = tfp.tensor_key, tfp.eager_tensor_type()
_composite_tensor = tfp.composite_tensor_type()
_DICTS = frozenset({dict, collections.OrderedDict})


def _flatten(value: Any, tensors: list[tf.Tensor], key: list[object]) -> None:
    """Adds the tensors of an argument to a list, arrays as tensors, and to another the other parts of its key.

    Raises: TypeError, ValueError  TensorFlow must handle the argument.
    """
    kind = type(value)
    if kind is _eager_tensor:
        tensors.append(value)
        key.append(_tensor_key(value))
    elif kind in _VALUES:
        key.append((kind, value))
    elif kind in _ARRAYS:
        _flatten(tf.convert_to_tensor(value), tensors, key)
    elif kind in _DICTS:
        key.append((kind, tuple(value)))
        for item in value.values():
            _flatten(item, tensors, key)
    elif kind is tuple or kind is list or _is_named(kind):
        key.append((kind, len(value)))
        for item in value:
            _flatten(item, tensors, key)
    elif kind is tf.RaggedTensor and (parts := _ragged_parts(value)):
        key.append((kind, len(parts)))
        for part in parts:
            _flatten(part, tensors, key)
    elif isinstance(value, tf.Variable):
        key.append(kind)  # no function that takes variables is compiled as a whole
    elif isinstance(value, _composite_tensor):
        key.append(tf.type_spec_from_value(value))
        for item in tf.nest.flatten(value, expand_composites=True):
            _flatten(item, tensors, key)
    else:
        key.append((kind, _reference(value)))


def _reference(value: object) -> object:
    """What is equal for the same object, which it does not keep alive: a function, a module, a model. TensorFlow traces
    those so.

    Raises: TypeError  it traces the object in another way.
    """
    if isinstance(value, Iterable | Mapping) or any(hasattr(value, name) for name in _PROTOCOLS):
        raise TypeError(f"a call with {type(value).__name__}")
    return weakref.ref(value)


def _is_named(kind: type) -> bool:
    """Whether a type is that of tuples with named fields."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _ragged_parts(ragged: tf.RaggedTensor) -> list[tf.Tensor]:
    """The tensors of a ragged one, whose types and dims tell its type: to compute that takes longer than a call. None
    where a length of rows is part of the type, or the values are no tensor."""
    parts, values = [], ragged
    while type(values) is tf.RaggedTensor:
        if values.uniform_row_length is not None:
            return []
        parts.append(values.row_splits)
        values = values.values
    return [values, *parts] if type(values) is _eager_tensor else []


def has_arrays(value: object) -> bool:
    """Whether there are arrays, or NumPy's scalars, in a structure."""
    return any(type(item) in _ARRAYS for item in tf.nest.flatten(value))


def with_tensors(value: Any) -> Any:
    """An argument (or all of them) with tensors in the place of its arrays."""
    kind = type(value)
    if kind in _ARRAYS:
        return tf.convert_to_tensor(value)
    if kind in _DICTS:
        return kind((name, with_tensors(item)) for name, item in value.items())
    if _is_named(kind):
        return kind(*map(with_tensors, value))
    return kind(map(with_tensors, value)) if kind is tuple or kind is list else value


def as_given_by(spec: Any, value: Any) -> Any:
    """An argument with tensors in the place of its arrays; an array as a tensor of the spec's type, if it has one."""
    if type(value) in _ARRAYS and type(spec) is tf.TensorSpec:
        return tf.convert_to_tensor(value, spec.dtype)
    return with_tensors(value)


TensorKey = tuple[int, tuple[int, ...]]  # dtype and dims


def fit_signature(key: tuple[TensorKey, ...], specs: Sequence[Any] | None) -> bool:
    """Whether tensors with these keys are those of a signature, if there is one."""
    return (
        specs is not None
        and len(specs) == len(key)
        and all(type(spec) is tf.TensorSpec and _fits(spec, *one) for spec, one in zip(specs, key))
    )


def _fits(spec: tf.TensorSpec, dtype: int, dims: tuple[int, ...]) -> bool:
    """Whether a tensor is one of a spec."""
    if spec.dtype.as_datatype_enum != dtype:
        return False
    if spec.shape.rank is None:
        return True
    return len(dims) == spec.shape.rank and all(
        size in (None, dim) for size, dim in zip(spec.shape.as_list(), dims)
    )


class DispatchCache:
    """The calls of a function by their arguments. `_first_call` makes a call without an entry, and adds one.

    An entry of None: such calls go through TensorFlow's executor. Every call tries `_fast_path` first, which is all
    that most calls pay, then `_cached_call`.
    """

    _keeps_varying_plans = (
        False  # whether code for too many values stays; else the function is compiled in parts
    )

    def _clear_cache(self) -> None:
        self._checked: tuple[CallPlan | None, int] = None, 0  # a plan without fast paths of older generations
        self._plan_of_signature: CallPlan | None = None  # that of every call which fits the signature
        self._entries: dict[object, DispatchEntry | None] = {}
        # By the key of `_flatten`: which of its tensors the function takes, in its order, and the entry.
        self._structured_entries: dict[object, tuple[list[int], DispatchEntry | None]] = {}
        self._fast_path = NO_FAST_PATH  # of the last call

    def _traced_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """A call through TensorFlow's executor."""
        raise NotImplementedError

    def _first_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """A call whose arguments have no entry yet."""
        raise NotImplementedError

    def _cached_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """A call that no tape watches and that missed the last fast path."""
        if kwargs:
            return self._structured_call(args, kwargs)
        missed, tensors = self._fast_path, args
        try:
            key = tuple([_tensor_key(a) for a in args])
        except (TypeError, AttributeError):
            if not all(type(a) is _eager_tensor or type(a) in _ARRAYS for a in args):
                return self._structured_call(args, kwargs)
            try:
                missed, tensors = NO_FAST_PATH, self._with_tensors(args)  # which no fast path has seen
            except (TypeError, ValueError):
                return self._first_call(args, kwargs)
            key = tuple([_tensor_key(t) for t in tensors])
        try:
            entry = self._entries[key]
        except KeyError:
            if not self._fits_signature(key):
                return self._first_call(args, kwargs)
            entry = self._new_entry(key)
        if entry is not None:
            self._fast_path = entry.fast_path
        return self._dispatch(entry, args, kwargs, tensors, missed)

    def _signature(self) -> Sequence[Any] | None:
        """The input signature, for a function of which one trace serves all calls that fit it."""
        return None

    def _with_tensors(self, args: tuple[object, ...]) -> tuple[Any, ...]:
        """Arguments with tensors in the place of their arrays, of the types that the signature gives them.

        Raises: TypeError, ValueError  TensorFlow must tell what is wrong with an argument.
        """
        specs = self._signature()
        if specs is None or len(specs) != len(args):
            return tuple(map(with_tensors, args))
        return tuple(map(as_given_by, specs, args))

    def _fits_signature(self, key: tuple[TensorKey, ...]) -> bool:
        """Whether TensorFlow would find the trace of earlier calls for tensors with these keys."""
        return self._plan_of_signature is not None and fit_signature(key, self._signature())

    def _new_entry(self, key: tuple[TensorKey, ...]) -> DispatchEntry:
        plan = self._plan_of_signature
        assert plan is not None
        entry = DispatchEntry(plan, NO_FAST_PATH, plan.cluster.code.generation)
        bounded(self._entries, MAX_ENTRIES)[key] = entry
        return entry

    def _structured_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """A call with keywords, arrays, Python values or nested arguments."""
        tensors: list[tf.Tensor] = []
        key: list[object] = []
        try:
            _flatten((args, kwargs), tensors, key)
            order, entry = self._structured_entries[tuple(key)]
        except (KeyError, TypeError, ValueError):
            return self._first_call(args, kwargs)
        return self._dispatch(entry, args, kwargs, [tensors[k] for k in order])

    def _dispatch(
        self,
        entry: DispatchEntry | None,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        tensors: Sequence[tf.Tensor],
        missed: FastPath | None = None,
    ) -> Any:
        """A call by its entry, with these tensors. `missed`: the fast path that the call has missed."""
        if entry is None:
            return self._traced_call(args, kwargs)
        if entry.plan.is_varying and not self._keeps_varying_plans:
            self._clear_cache()
            return self._first_call(args, kwargs)
        call, pack = entry.fast_path
        result = NotImplemented if entry.fast_path is missed else call(*tensors)
        if result is NotImplemented:
            return self._run(entry, tensors)
        return result if pack is None else pack(result)

    def _add_traced(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Adds an entry: calls like this one go through TensorFlow's executor."""
        key: list[object] = []
        with contextlib.suppress(TypeError, ValueError):
            args = self._with_tensors(args)
            _flatten((args, kwargs), [], key)
            if kwargs or any(type(a) is not _eager_tensor for a in args):
                bounded(self._structured_entries, MAX_ENTRIES)[tuple(key)] = [], None
            else:
                bounded(self._entries, MAX_ENTRIES)[tuple([_tensor_key(a) for a in args])] = None

    def _run(self, entry: DispatchEntry, tensors: Sequence[tf.Tensor]) -> Any:
        generation = entry.generation
        result = entry.run(tensors)
        if generation != entry.generation:
            self._invalidate(entry.plan)
        if entry.plan.has_failed():  # in the background: the next call is a first one, which finds out
            self._clear_cache()
        return result

    def _invalidate(self, plan: CallPlan) -> None:
        """Drops the fast paths of a plan's older generations: their code may be gone."""
        checked, generation = self._checked
        if checked is plan and generation == plan.cluster.code.generation:
            return
        self._checked = plan, plan.cluster.code.generation
        for entry in (*self._entries.values(), *(entry for _, entry in self._structured_entries.values())):
            if entry is not None and entry.plan is plan and entry.generation != plan.cluster.code.generation:
                entry.fast_path = NO_FAST_PATH

    def _add_entry(
        self,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        plan: CallPlan,
        tensors: Sequence[tf.Tensor],
    ) -> bool:
        """Adds an entry for calls like this one; false if its arguments do not have all of the function's tensors."""
        is_plain = not kwargs and len(tensors) == len(args) and all(a is t for a, t in zip(args, tensors))
        call_tensors: list[tf.Tensor] = []
        key: list[object] = []
        try:
            _flatten(args if is_plain else (args, kwargs), call_tensors, key)
        except (TypeError, ValueError):
            return False
        position = {id(tensor): k for k, tensor in enumerate(call_tensors)}
        if not is_plain and (
            len(position) < len(call_tensors) or any(id(tensor) not in position for tensor in tensors)
        ):
            return False
        entry = DispatchEntry(plan, plan.fast_path_of_tensors(tensors), plan.cluster.code.generation)
        self._invalidate(plan)
        if is_plain:
            self._plan_of_signature = plan
            bounded(self._entries, MAX_ENTRIES)[tuple([_tensor_key(a) for a in args])] = entry
            self._fast_path = entry.fast_path
        else:
            bounded(self._structured_entries, MAX_ENTRIES)[tuple(key)] = (
                [position[id(t)] for t in tensors],
                entry,
            )
        return True
