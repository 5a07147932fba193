"""Calls of a traced function: those of arguments met before go straight to their code."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..clustering.cluster import bounded
from ..tf_internals import symbols as tfp
from .call_plan import NO_WAY, Plan, Route, Way

MOST_ROUTES = 512  # of one function
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


def has_arrays(value: Any) -> bool:
    """Whether there are arrays in a structure."""
    return any(type(item) is np.ndarray for item in tf.nest.flatten(value))


def with_tensors(value: Any) -> Any:
    """An argument (or all of them) with tensors in the place of its arrays."""
    kind = type(value)
    if kind is np.ndarray:
        return tf.convert_to_tensor(value)
    if kind is dict:
        return {name: with_tensors(item) for name, item in value.items()}
    return kind(map(with_tensors, value)) if kind is tuple or kind is list else value


_tensor_key, _eager_tensor = tfp.tensor_key, tfp.eager_tensor_type()


class Calls:
    """A function's calls by what they are made with: a first one goes `_first_call`'s way, which notes a route.

    A route of None: such calls go through TensorFlow's executor. Every call tries `_way` first, which is all that most
    calls pay, then `_routed_call`.
    """

    _keeps_plans = False  # of code that is for too many values: further ones run in TensorFlow, not in parts

    def _forget_routes(self) -> None:
        self._routes: dict[Any, Route | None] = {}
        # By what `_flatten` finds: which of its tensors the function takes, in its order, and their route.
        self._structured: dict[Any, tuple[list[int], Route | None]] = {}
        self._way = NO_WAY  # that of the last call

    def _traced_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call through TensorFlow's executor."""
        raise NotImplementedError

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose arguments have no route yet."""
        raise NotImplementedError

    def _routed_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call, that no tape watches, which is not for the way of the last one."""
        if kwargs:
            return self._structured_call(args, kwargs)
        try:
            route = self._routes[tuple([_tensor_key(a) for a in args])]
        except KeyError:
            return self._first_call(args, kwargs)
        except (TypeError, AttributeError):
            return self._structured_call(args, kwargs)
        tried = self._way
        if route is not None:
            self._way = route.way
        return self._follow(route, args, kwargs, args, tried)

    def _structured_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call with keywords, arrays, Python values or nested arguments."""
        tensors: list[tf.Tensor] = []
        key: list[Any] = []
        try:
            _flatten((args, kwargs), tensors, key)
            order, route = self._structured[tuple(key)]
        except (KeyError, TypeError, ValueError):
            return self._first_call(args, kwargs)
        return self._follow(route, args, kwargs, [tensors[k] for k in order])

    def _follow(
        self,
        route: Route | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: Sequence[tf.Tensor],
        tried: Way | None = None,
    ) -> Any:
        """A call by its route, which takes these tensors of it. `tried`: the way that the call was not for."""
        if route is None:
            return self._traced_call(args, kwargs)
        if route.plan.cluster.is_varying and not self._keeps_plans:
            self._forget_routes()
            return self._first_call(args, kwargs)
        call, pack = route.way
        result = NotImplemented if route.way is tried else call(*tensors)
        if result is NotImplemented:
            return self._run(route, tensors)
        return result if pack is None else pack(result)

    def _note_traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remembers that calls like this one go through TensorFlow's executor."""
        key: list[Any] = []
        with contextlib.suppress(TypeError, ValueError):
            _flatten((args, kwargs), [], key)
            if kwargs or any(type(a) is not _eager_tensor for a in args):
                bounded(self._structured, MOST_ROUTES)[tuple(key)] = [], None
            else:
                bounded(self._routes, MOST_ROUTES)[tuple([_tensor_key(a) for a in args])] = None

    def _run(self, route: Route, tensors: Sequence[tf.Tensor]) -> Any:
        generation = route.generation
        result = route.run(tensors)
        if generation != route.generation:
            self._let_go(route.plan)
        return result

    def _let_go(self, plan: Plan) -> None:
        """Has routes made before code was dropped find theirs anew: it may be theirs."""
        for route in (*self._routes.values(), *(route for _, route in self._structured.values())):
            if route is not None and route.plan is plan and route.generation != plan.cluster.generation:
                route.way = NO_WAY

    def _note_route(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], plan: Plan, tensors: Sequence[tf.Tensor]
    ) -> bool:
        """Remembers the way of calls like this one, if its tensors, in the function's order, are found in it."""
        is_plain = not kwargs and len(tensors) == len(args) and all(a is t for a, t in zip(args, tensors))
        found: list[tf.Tensor] = []
        key: list[Any] = []
        try:
            _flatten(args if is_plain else (args, kwargs), found, key)
        except (TypeError, ValueError):
            return False
        at = {id(tensor): k for k, tensor in enumerate(found)}
        if not is_plain and (len(at) < len(found) or any(id(tensor) not in at for tensor in tensors)):
            return False
        route = Route(plan, plan.way_of_tensors(tensors), plan.cluster.generation)
        self._let_go(plan)
        if is_plain:
            bounded(self._routes, MOST_ROUTES)[tuple([_tensor_key(a) for a in args])] = route
            self._way = route.way
        else:
            bounded(self._structured, MOST_ROUTES)[tuple(key)] = [at[id(t)] for t in tensors], route
        return True
