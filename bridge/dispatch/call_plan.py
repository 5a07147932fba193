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
from ..analysis.constant_results import with_constant_results
from ..cluster.cluster import Cluster
from ..cluster.cluster_builder import build_cluster
from ..cluster.cluster_compiler import earlier_failure
from ..cluster.cluster_launch import prepare
from ..graph import source_location
from ..graph.function_library import Functions, by_name, calls_as_ops, function_calls_as_ops
from ..graph.graph import Graph, from_function_def, takes_functions
from ..graph.row_lengths import with_row_lengths
from ..launch import cluster_registry, fallback
from ..options.jit_options import JitOptions, current
from ..tf_internals import symbols as tfp
from ..tf_internals.types import ConcreteFunction, FunctionDef
from . import fast_call, fast_call_variables

Pack = Callable[[list[Any]], Any]
# A function that returns NotImplemented where the call does not fit, and one that its result goes through (None: none).
FastPath = tuple[Callable[..., Any], Pack | None]


def miss(*args: object) -> Any:
    """The function of a fast path that fits no call."""
    return NotImplemented


NO_FAST_PATH: FastPath = (miss, None)
_MAX_RETRIES = 8


@dataclasses.dataclass
class CallPlan:
    """How to call one concrete function without TensorFlow's executor.

    cluster: the cluster that a call runs, of several the last one. earlier: those before it. captured: the tensors that
        the function captured. inputs: per launch argument the number of the call's argument, or the captured tensor
        itself. is_plain: there is no variable to assign and no value that picks the code.
    sources: the inputs, with captured variables as they were when a call last looked for a fast path.
    """

    run: Callable[[Sequence[tf.Tensor]], Any]  # flat arguments to results
    cluster: Cluster
    captured: Sequence[tf.Tensor]
    inputs: Sequence[int | tf.Tensor]
    is_plain: bool
    pack: Pack | None
    sources: list[Any] = dataclasses.field(default_factory=list)
    earlier: Sequence[Cluster] = ()

    @property
    def clusters(self) -> Sequence[Cluster]:
        """The clusters that a call runs, in order."""
        return *self.earlier, self.cluster

    @property
    def is_varying(self) -> bool:
        """Whether there would be code for too many values."""
        return self.cluster.code.is_varying or any(c.code.is_varying for c in self.earlier)

    def has_failed(self) -> bool:
        """Whether a cluster never compiles."""
        return any(earlier_failure(cluster) for cluster in self.clusters)

    def _direct_entry(
        self, args: Sequence[tf.Tensor | np.ndarray]
    ) -> tuple[cluster_registry.DirectEntry, list[int | tf.Tensor | fast_call_variables.Captured]] | None:
        """The launch op's entry for arguments of these dims, once it has run with them, and the sources of its inputs:
        `inputs` with captured variables as such."""
        if not self.is_plain:
            return None
        try:
            sources = self._sources()
        except fast_call_variables.NoFastPath:
            return None
        entry = cluster_registry.direct_entry(
            self.cluster.key,
            *self.cluster.launch_types,
            [(args[i] if isinstance(i, int) else i).shape for i in sources],
        )
        if entry is None or any(isinstance(sources[k], fast_call_variables.Captured) for k in entry.aliases):
            return None
        return entry, sources

    def _sources(self) -> list[Any]:
        """The inputs, with captured variables as such. Raises: NoFastPath."""
        if (
            not all(isinstance(s, int | tf.Tensor) or s.is_current() for s in self.sources)
            or not self.sources
        ):
            self.sources = [
                fast_call_variables.Captured(i) if isinstance(i, tf.Tensor) and i.dtype == tf.resource else i
                for i in self.inputs
            ]
        return self.sources

    def fast_path_of_tensors(self, args: Sequence[tf.Tensor]) -> FastPath:
        """The fast path for eager tensors of these types and dims."""
        direct = self._direct_entry(args) if tfp.DIRECT not in tfp.missing() and tfp.has_only_cpus() else None
        if direct is None:
            return NO_FAST_PATH
        return fast_call.of_tensors(*direct, [a.dtype for a in args], self.pack is None), self.pack

    def fast_path_of_arrays(self, args: Sequence[np.ndarray]) -> FastPath:
        """The fast path for NumPy arrays of these types and dims."""
        direct = self._direct_entry(args)
        if direct is None or direct[0].aliases:
            return NO_FAST_PATH
        sources = [i.numpy() if isinstance(i, tf.Tensor) else i for i in direct[1]]
        return fast_call.of_arrays(direct[0], sources, [a.dtype for a in args], self.pack is None), self.pack


@dataclasses.dataclass
class DispatchEntry:
    """A call plan with the fast path for arguments of certain types and dims, and the generation of the code it calls.

    retries: how many more calls look for a fast path, should there be code later. publications: how often code had come
        from the background when that began.
    """

    plan: CallPlan
    fast_path: FastPath
    generation: int = 0
    retries: int = _MAX_RETRIES
    publications: int = 0

    def run(self, args: Sequence[tf.Tensor]) -> Any:
        """Takes the slow path; looks for a new fast path when the code of the last one was replaced."""
        result = self.plan.run(args)
        if self.publications != self.plan.cluster.code.publications:
            self.publications, self.retries = self.plan.cluster.code.publications, _MAX_RETRIES
        may_retry = self.fast_path is NO_FAST_PATH and self.retries > 0
        self.retries -= may_retry
        if may_retry or self.generation != self.plan.cluster.code.generation:
            self.generation = self.plan.cluster.code.generation
            self.fast_path = self.plan.fast_path_of_tensors(args)
        return result


def plan_of(concrete: ConcreteFunction, options: JitOptions) -> CallPlan:
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
    pack = packer(concrete, results)
    run = _runner(prepare(cluster), inputs, captured, written, results, pack or operator.itemgetter(0))
    is_plain = not (captured or cluster.written or cluster.launch_constants)
    return CallPlan(run, cluster, captured_tensors, inputs, is_plain, pack)


@dataclasses.dataclass
class WholeFunction:
    """A concrete function as the bridge sees it. content_types: DataType of the variables among the arguments, by
    number."""

    definition: FunctionDef
    library: FunctionDefLibrary
    graph: Graph
    functions: Functions
    content_types: dict[int, int]

    @classmethod
    def read(cls, concrete: ConcreteFunction, options: JitOptions) -> WholeFunction:
        """Raises: UnsupportedError  a variable is passed as an argument, or a capture is made anew."""
        if tfp.makes_captures_anew(concrete):
            raise UnsupportedError("it captures what is made at every call")
        definition = concrete.function_def
        calls = any(takes_functions(node.op) for node in definition.node_def)
        library = calls_as_ops(concrete.graph.as_graph_def().library if calls else FunctionDefLibrary())
        named = by_name(library)
        definition = function_calls_as_ops(definition, named)
        captured = concrete.captured_inputs
        own = len(concrete.inputs) - len(captured)
        content = {}
        for k, tensor in enumerate(concrete.inputs):
            if tensor.dtype == tf.resource:
                if k < own:
                    raise UnsupportedError(f"argument {k} is a variable; capture it instead")
                content[k] = tfp.variable_type(concrete.graph, tensor, captured[k - own])
        functions = Functions(named, options.deny_ops, with_constant_results)
        graph = with_constant_results(with_row_lengths(from_function_def(definition)))
        return cls(definition, library, graph, functions, content)


def cluster_of(concrete: ConcreteFunction, options: JitOptions | None = None) -> Cluster:
    """The cluster of a whole concrete function; without `options`, with those in force.

    Raises: UnsupportedError  an op does not compile, a variable is passed as an argument, or a capture is made anew.
    """
    options = options or current()
    whole = WholeFunction.read(concrete, options)
    return build_cluster(
        whole.definition.signature.name,
        whole.graph,
        whole.functions,
        fallback.of_function(whole.definition, whole.library),
        options,
        source_location.finder(concrete.graph),
        whole.content_types,
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

    `inputs` says, per launch argument, the number of the call's argument or the captured tensor itself. Plain
    arguments and nothing else have a path of their own, because every call pays for it.
    """
    if not written and not captured and all(type(i) is int and i == at for at, i in enumerate(inputs)):
        return lambda args: pack(launch(list(args[: len(inputs)])))

    def run(args: Sequence[tf.Tensor]) -> Any:
        values = [args[i] if type(i) is int else i for i in inputs]
        for position, handle, dtype in captured:
            values[position] = tfp.read_variable(handle, dtype)
        outputs = launch(values)
        for handle, value in zip(written, outputs[results:]):
            tfp.assign_variable(handle, value)
        return pack(outputs[:results])

    return run


def packer(concrete: ConcreteFunction, results: int) -> Pack | None:
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
