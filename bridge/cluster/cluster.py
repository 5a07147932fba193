"""A cluster: part of a graph that is compiled as a whole, with what the launch op needs to run it.

Compiled code is a pure function of arrays. A variable is an argument by its value; new values of variables follow the
results. The launch op itself reads variables and updates those that the code reads, in place where it can; others are
assigned after it. Where this TensorFlow does not allow that, all are read before the launch and assigned after it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator
from typing import NoReturn

import tensorflow as tf
from tensorflow.core.framework import tensor_shape_pb2

from ..analysis.compile_time_constants import deciding_reductions
from ..analysis.repeat_bounds import repeat_bounds
from ..graph.function_library import Functions
from ..graph.graph import Graph
from ..launch import op as launch_op
from ..launch import resource_variables as launch_variables
from ..launch.compile_policy import Served
from ..launch.fallback import Original
from ..options.jit_options import DEFAULT_OPTIONS, JitOptions
from .code_cache import CodeCache
from .code_key import Place
from .compute_ops import count_ops
from .fingerprint import digest_of_sources, graph_digest

_NOT_COUNTED = frozenset({"_Arg", "NoOp", "Const"})


@dataclasses.dataclass
class Argument:
    """An argument of a cluster: its DataType number (for a variable, that of its content)."""

    name: str
    data_type: int
    is_variable: bool = False
    is_read: bool = True  # a variable that is written before it is read has no value at the start


@dataclasses.dataclass
class Cluster:
    """A graph to compile.

    constants: the numbers of the arguments that are compile-time constants. written: the numbers of the variables whose
    new values follow the results, first those that are no launch arguments. original: runs the nodes in TensorFlow.
    source: file and line of a node, by name. code: what was compiled so far. served: what TensorFlow ran
    meanwhile. is_strict: it is an error if it does not compile. slower: by shapes, measurements in which TensorFlow was
    faster. bailouts: number of runs, by the assumption of compiled code that did not hold. is_closed: no graph has it
    any more.
    """

    name: str
    graph: Graph
    functions: Functions
    arguments: list[Argument]
    constants: list[int]
    result_types: list[int]
    written: list[int]
    original: Original
    options: JitOptions = DEFAULT_OPTIONS
    source: Callable[[str], tuple[str, int]] | None = None
    is_strict: bool = False
    code: CodeCache = dataclasses.field(default_factory=CodeCache)
    served: Served = dataclasses.field(default_factory=Served)
    slower: dict[str, str] = dataclasses.field(default_factory=dict)
    bailouts: dict[str, int] = dataclasses.field(default_factory=dict)
    is_closed: bool = dataclasses.field(default=False, init=False)
    number: int = dataclasses.field(default_factory=itertools.count().__next__, init=False)

    @functools.cached_property
    def launch_arguments(self) -> list[int]:
        """Numbers of the arguments that have a value at the start."""
        return [k for k, a in enumerate(self.arguments) if a.is_read]

    @property
    def takes_handles(self) -> bool:
        """Whether the launch op reads variables, given by their handles, itself."""
        return launch_variables.available()

    @property
    def assigned(self) -> list[int]:
        """Numbers of the variables, of those written, that are assigned after the launch."""
        return [k for k in self.written if not (self.takes_handles and self.arguments[k].is_read)]

    @functools.cached_property
    def launch_types(self) -> tuple[list[tf.DType], list[tf.DType]]:
        """Types of the launch arguments and of what the launch returns."""
        arguments = [self.arguments[k] for k in self.launch_arguments]
        updated = len(self.written) - len(self.assigned)
        return (
            [
                tf.resource if a.is_variable and self.takes_handles else tf.as_dtype(a.data_type)
                for a in arguments
            ],
            [tf.as_dtype(t) for t in self.result_types[: len(self.result_types) - updated]],
        )

    @functools.cached_property
    def launch_variables(self) -> launch_op.Variables:
        """Which of the launch arguments are handles of variables, and which of those the launch updates."""
        if not self.takes_handles:
            return launch_op.NO_VARIABLES
        position = {k: position for position, k in enumerate(self.launch_arguments)}
        contents = {
            at: tf.as_dtype(self.arguments[k].data_type)
            for k, at in position.items()
            if self.arguments[k].is_variable
        }
        updated = tuple(position[k] for k in self.written if self.arguments[k].is_read)
        return launch_op.Variables(contents, updated)

    @property
    def expects_code(self) -> bool:
        """Whether calls of new shapes will soon have code, as far as is known."""
        code, has_share = self.code, self.options.background_share > 0
        is_refused = code.failures or code.not_specialized or code.without_variant
        return has_share and code.has_any and not is_refused

    @property
    def may_vary(self) -> bool:
        """Whether calls of other sizes may come: the graph lacks dims, or arguments' values decide shapes."""
        known = {k for k, shape in self._shapes() if not shape.unknown_rank}
        arrays = {k for k in self.launch_arguments if not self.arguments[k].is_variable}
        return bool(self.constants or self.unknown_dims or arrays - known)

    @functools.cached_property
    def unknown_dims(self) -> frozenset[Place]:
        """The dims of launch arguments that the graph leaves open."""
        position = {k: at for at, k in enumerate(self.launch_arguments)}
        return frozenset(
            (position[k], axis)
            for k, shape in self._shapes()
            if k in position
            for axis, dim in enumerate(shape.dim)
            if dim.size < 0
        )

    def _shapes(self) -> Iterator[tuple[int, tensor_shape_pb2.TensorShapeProto]]:
        """The shapes that the graph has for its arguments, by their numbers."""
        for k, name in enumerate(self.graph.arguments):
            value = self.graph.nodes[name].attrs.get("_output_shapes")
            if value is not None:
                yield from ((k, shape) for shape in value.list.shape)

    @functools.cached_property
    def launch_constants(self) -> list[int]:
        """Positions, among the launch arguments, of those whose value is part of the cache's key."""
        return [at for at, k in enumerate(self.launch_arguments) if k in self.constants]

    @property
    def key(self) -> str:
        """A name that no other cluster of this process has."""
        return f"{self.name}#{self.number}"

    @functools.cached_property
    def op_count(self) -> int:
        """TensorFlow ops that the cluster replaces."""
        return count_ops(self.graph.nodes.values(), self.functions, _NOT_COUNTED)

    @functools.cached_property
    def has_data_constants(self) -> bool:
        """Whether there is code for every value of some data."""
        arguments, bounds = set(self.graph.arguments), repeat_bounds(self.graph)
        return any(
            deciding_reductions(self.graph, self.functions, node, lambda n: n.name in arguments, bounds)
            for node in self.graph.nodes.values()
        )

    @functools.cached_property
    def digest(self) -> str:
        """A name for all that the module is made from besides the call's shapes and constants."""
        digest = hashlib.blake2b(digest_size=20)
        for part in (
            tf.__version__,
            digest_of_sources(),
            self.written,
            [(a.data_type, a.is_variable, a.is_read) for a in self.arguments],
        ):
            digest.update(repr(part).encode())
        digest.update(graph_digest(self.graph, self.functions, {}))
        return digest.hexdigest()

    def close(self) -> None:
        """Frees what is large when no graph has the cluster any more; a report still has its size and failures."""
        self.op_count = self.op_count  # counted while the nodes are there
        self.is_closed = True
        self.code.executables.clear()
        self.code.last_bound = None, None
        self.code.waiting.clear()
        self.graph, self.functions, self.source = Graph({}), Functions({}), None
        self.original = Original(_no_nodes)


def _no_nodes() -> NoReturn:
    raise AssertionError("a cluster that is in no graph was run")
