"""How to call one concrete function without TensorFlow's executor, when all of it compiles as one cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDefLibrary

from ...compiler.errors import UnsupportedError
from ..api import source_location
from ..api.options import JitOptions, current
from ..clustering.cluster import Cluster, from_function
from ..graph.function_library import by_name, calls_as_ops, function_calls_as_ops
from ..graph.graph import from_function_def, takes_functions
from ..launch import fallback
from ..launch import op as launch_op
from ..tf_internals import symbols as tfp
from ..translate.translator import Functions
from . import fast_call, fast_call_variables

Pack = Callable[[list[Any]], Any]
# A function that answers NotImplemented where the call is not for it, and what to do with its result (None: nothing).
Way = tuple[Callable[..., Any], Pack | None]


def refuse(*args: Any) -> Any:
    """Answers that no call is for it."""
    return NotImplemented


NO_WAY: Way = (refuse, None)
_MOST_LOOKS = 8


@dataclasses.dataclass
class Plan:
    """How to call one concrete function without TensorFlow's executor.

    `captured` are the tensors that the function captured; `inputs` says, per launch argument, the number of the call's
    argument or the captured tensor itself; `is_plain` that nothing else is needed: no variable to assign, no value that
    picks the code.
    """

    run: Callable[[Sequence[tf.Tensor]], Any]  # flat arguments to results
    cluster: Cluster
    captured: Sequence[tf.Tensor]
    inputs: Sequence[int | tf.Tensor]
    is_plain: bool
    pack: Pack | None

    def _found(self, args: Sequence[Any]) -> tuple[launch_op.Found, list[Any]] | None:
        """The launch op's code for arguments of these dims, once it has run with them, and where its inputs come
        from: `inputs` with captured variables as such."""
        if not self.is_plain:
            return None
        try:
            sources = [
                fast_call_variables.Captured(i) if isinstance(i, tf.Tensor) and i.dtype == tf.resource else i
                for i in self.inputs
            ]
        except fast_call_variables.NotDirect:
            return None
        found = launch_op.find(
            self.cluster.key,
            *self.cluster.launch_types,
            [(args[i] if isinstance(i, int) else i).shape for i in sources],
        )
        if found is None or any(isinstance(sources[k], fast_call_variables.Captured) for k in found.aliases):
            return None
        return found, sources

    def way_of_tensors(self, args: Sequence[tf.Tensor]) -> Way:
        """The shortest way for eager tensors of these types and dims."""
        found = self._found(args) if tfp.DIRECT not in tfp.missing() and tfp.has_only_cpus() else None
        if found is None:
            return NO_WAY
        return fast_call.of_tensors(*found, [a.dtype for a in args], self.pack is None), self.pack

    def way_of_arrays(self, args: Sequence[np.ndarray]) -> Way:
        """The shortest way for NumPy arrays of these types and dims."""
        found = self._found(args)
        if found is None or found[0].aliases:
            return NO_WAY
        sources = [i.numpy() if isinstance(i, tf.Tensor) else i for i in found[1]]
        return fast_call.of_arrays(found[0], sources, [a.dtype for a in args], self.pack is None), self.pack


@dataclasses.dataclass
class Route:
    """A plan, and the shortest way for arguments of certain types and dims, for a generation of the cluster's code."""

    plan: Plan
    way: Way
    generation: int = 0
    looks: int = _MOST_LOOKS  # for a shorter way that are left, should there be code later

    def run(self, args: Sequence[tf.Tensor]) -> Any:
        """Goes the long way; finds the shortest one anew when it led to code that was replaced."""
        result = self.plan.run(args)
        may_look = self.way is NO_WAY and self.looks > 0
        self.looks -= may_look
        if may_look or self.generation != self.plan.cluster.generation:
            self.generation = self.plan.cluster.generation
            self.way = self.plan.way_of_tensors(args)
        return result


def plan_of(concrete: Any, options: JitOptions) -> Plan:
    """The plan of a concrete function.

    Raises: UnsupportedError  part of it must run in TensorFlow.
    """
    cluster = cluster_of(concrete, options)
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
    return Plan(run, cluster, captured_tensors, inputs, is_plain, pack)


def cluster_of(concrete: Any, options: JitOptions | None = None) -> Cluster:
    """The cluster of a whole concrete function; without `options`, with those in force.

    Raises: UnsupportedError  an op does not compile, a variable is passed as an argument, or a capture is made anew.
    """
    if tfp.makes_captures_anew(concrete):
        raise UnsupportedError("it captures what is made at every call")
    definition = concrete.function_def
    calls = any(takes_functions(node.op) for node in definition.node_def)
    functions = calls_as_ops(concrete.graph.as_graph_def().library if calls else FunctionDefLibrary())
    library = by_name(functions)
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
    return from_function(
        name,
        from_function_def(definition),
        Functions(library, options.deny_ops),
        fallback.of_function(definition, functions),
        options,
        source_location.finder(concrete.graph),
        content,
    )


def _runner(
    launch: Callable[[list[tf.Tensor]], list[tf.Tensor]],
    inputs: Sequence[int | tf.Tensor],
    captured: Sequence[tuple[int, tf.Tensor, tf.DType]],
    written: Sequence[tf.Tensor],
    results: int,
    pack: Callable[[list[tf.Tensor]], Any],
) -> Callable[[Sequence[tf.Tensor]], Any]:
    """A function that runs a launch on the flat arguments of a call, reading and assigning variables around it.

    `inputs` says, per launch argument, the number of the call's argument or the captured tensor itself. The common case
    of plain arguments and nothing else has its own short way: this is what every call pays.
    """
    if not written and not captured and all(type(i) is int and i == at for at, i in enumerate(inputs)):
        return lambda args: pack(launch(list(args[: len(inputs)])))

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
