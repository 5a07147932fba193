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
import logging
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...compiler.cpu.compile import load_made
from ...compiler.cpu.objects.source_fingerprint import code_version
from ...compiler.cpu.schedule.thunks import INPUT_OUTPUT_ALIAS, KEPT_PARAMETERS, RESULT_SIZES
from ...compiler.errors import BudgetError, ShapeError, UnsupportedError
from ...compiler.ir.module import Module
from ...compiler.ir.shape import Shape
from ...compiler.passes.lower_dynamic_boundary import expose_sizes
from ...runtime import statistics
from ...runtime.code import disk_cache
from ...runtime.code.executable import Executable
from ...runtime.threads import forking
from ..analysis.compile_time_constants import (
    changing_constants,
    constant_arguments,
    data_behind,
    has_known_length,
    pushes_further,
)
from ..analysis.dynamic_size_analysis import data_sizes
from ..api.options import DEFAULT_OPTIONS, JitOptions, is_strict
from ..graph.graph import Graph, GraphNode, Tensor, input_range, output_types, takes_functions
from ..launch import op as launch_op
from ..launch import resource_variables as launch_variables
from ..tf_internals.dtypes import element_type
from ..tf_internals.symbols import ANONYMOUS
from ..translate.registry import STAYING, translations
from ..translate.translator import Functions, translate
from . import cost_guard

logger = logging.getLogger("tfbridge")
_compiles, _recompiles = logger.getChild("compiles"), logger.getChild("recompiles")
_fallbacks, _fusion = logger.getChild("fallbacks"), logger.getChild("fusion")

_READS = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"}
)
_BRANCHING = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})  # their first input is no argument
# Their variable is a generator's state; an attribute `dtype` is that of their result.
_GENERATORS = frozenset(
    {
        "RngSkip",
        "RngReadAndSkip",
        "StatefulUniform",
        "StatefulStandardNormalV2",
        "StatefulTruncatedNormal",
        "StatefulUniformInt",
        "StatefulUniformFullInt",
    }
)
_MOST_VALUES = 32  # of constant arguments, for one set of shapes: compiling costs more than it brings
_MOST_DATA_VALUES = 4  # where they depend on the elements of data, which are others in every call
_MOST_KEYS = 512  # of one cluster whose code, or the reason for none, is kept
_MOST_FAILED = 4096  # digests
_MOST_ASSUMPTIONS = 64  # of a cluster whose failures are counted
_GROWTH, _MOST_GROWTH = 4, 4**6  # of the bounds that compiled code sets for lists of unknown length
_BRIDGE = Path(__file__).resolve().parents[1]
_RESOURCE = int(tf.resource.as_datatype_enum)


_WHOLE_LISTS = frozenset({"TensorListConcat", "TensorListConcatV2", "TensorListConcatLists"})

# Reasons by digest. To run a cluster's nodes one by one costs more than to leave them in TensorFlow's graph.
_never_compiled: dict[str, str] = {}


@dataclasses.dataclass
class Argument:
    """An argument of a cluster: its DataType number (for a variable, that of its content)."""

    name: str
    data_type: int
    is_variable: bool = False
    is_read: bool = True  # a variable that is written before it is read has no value at the start


@dataclasses.dataclass
class Cluster:
    """A graph to compile, its arguments, and which of them it needs to know when compiling.

    `original` runs the nodes in TensorFlow. `launch_arguments` are the numbers of the arguments that the launch op
    takes, `written` those of the variables whose new values follow the results: first those that it does not take.
    `growth`, by key: how much larger the bounds of its lists are than at first. `generation` counts codes replaced or
    dropped.
    `is_varying`: constant arguments had so many values that further ones are not compiled for; `beyond` are those keys,
    with that reason, which are no failures. `is_strict`: what does not compile is an error. `over_budget`: why it was
    given up, when its budget was over.
    """

    name: str
    graph: Graph
    functions: Functions
    arguments: list[Argument]
    constants: list[int]
    result_types: list[int]
    written: list[int]
    original: Callable[[list[tf.Tensor]], list[tf.Tensor]]
    options: JitOptions = DEFAULT_OPTIONS
    source: Callable[[str], tuple[str, int]] | None = None
    compiled: dict[tuple[Any, ...], Executable] = dataclasses.field(default_factory=dict)
    failures: dict[tuple[Any, ...], str] = dataclasses.field(default_factory=dict)
    beyond: dict[tuple[Any, ...], str] = dataclasses.field(default_factory=dict)
    growth: dict[tuple[Any, ...], int] = dataclasses.field(default_factory=dict)
    generation: int = 0
    is_varying: bool = False
    is_strict: bool = False
    over_budget: str = ""
    slower: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # verdicts by shapes, where TensorFlow won
    left: dict[str, int] = dataclasses.field(default_factory=dict)  # runs by the assumption that did not hold
    lock: Any = dataclasses.field(default_factory=forking.long_lock)
    number: int = dataclasses.field(default_factory=itertools.count().__next__, init=False)

    @property
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

    @property
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

    @property
    def launch_variables(self) -> launch_op.Variables:
        """Which of the launch arguments are handles of variables, and which of those the launch updates."""
        if not self.takes_handles:
            return launch_op.NO_VARIABLES
        at = {k: position for position, k in enumerate(self.launch_arguments)}
        contents = {
            at[k]: tf.as_dtype(self.arguments[k].data_type) for k in at if self.arguments[k].is_variable
        }
        return launch_op.Variables(contents, tuple(at[k] for k in self.written if self.arguments[k].is_read))

    @property
    def launch_constants(self) -> list[int]:
        """Positions, among the launch arguments, of those whose value is part of the cache's key."""
        return [at for at, k in enumerate(self.launch_arguments) if k in self.constants]

    @property
    def key(self) -> str:
        """A name that no other cluster of this process has."""
        return f"{self.name}#{self.number}"

    @property
    def earlier_failure(self) -> str:
        """Why a cluster of the same nodes has never compiled so far; empty when none was tried, or one did."""
        if not _never_compiled:
            return ""
        return _never_compiled.get(self.digest, "") or _never_compiled.get(self._digest_and_budget, "")

    @property
    def _digest_and_budget(self) -> str:
        chosen = self.options
        return (
            f"{self.digest} {chosen.compile_seconds} {chosen.compile_instructions} {chosen.compile_megabytes}"
        )

    @functools.cached_property
    def op_count(self) -> int:
        """TensorFlow ops that the cluster replaces."""
        return count_ops(self.graph.nodes.values(), self.functions, frozenset({"_Arg", "NoOp", "Const"}))

    @functools.cached_property
    def has_data_constants(self) -> bool:
        """Whether there is code for every value of some data."""
        return any(data_behind(self.graph, self.functions, node) for node in self.graph.nodes.values())

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
        digest.update(_contents(self.graph, self.functions, {}))
        return digest.hexdigest()

    def register(self) -> None:
        """Makes the cluster known to the launch op."""
        names = [self.arguments[k].name for k in self.launch_arguments]
        launch_op.register_cluster(
            self.key,
            self._compile_for_launch,
            self.run_in_tensorflow,
            names,
            self._is_faster if self.options.cost_guard else None,
            self._grow_for_launch,
            self._forget,
            self._close,
            self._note_left,
        )

    def _is_faster(self, made: launch_op.CompiledEntry, inputs: list[tf.Tensor]) -> bool:
        """Whether compiled code is not slower than TensorFlow for these inputs; if it is, that is counted and told."""
        cache = disk_cache.at(self.options.cache_dir, self.options.max_cache_bytes)
        verdict = cost_guard.judge(made.keep, self.run_in_tensorflow, inputs, cache)
        if not verdict.is_slower:
            return True
        given = [(element_type(t.dtype.as_datatype_enum), tuple(t.shape)) for t in inputs]
        shapes = _listed([Shape(type_, dims) for type_, dims in given if type_ is not None])
        self.slower[shapes] = str(verdict)
        statistics.leave_out(f"TensorFlow is faster: {verdict}", self.op_count)
        _fallbacks.info("cluster %s of %s runs in TensorFlow: %s", self.name, shapes, verdict)
        return False

    def _note_left(self, reason: str) -> None:
        """Counts a run that compiled code left because an assumption does not hold; tells of each assumption once."""
        if reason not in self.left:
            bounded(self.left, _MOST_ASSUMPTIONS)[reason] = 0
            statistics.leave_out(f"left at run time: {reason}", self.op_count)
            _fallbacks.info("a run of cluster %s is left to TensorFlow: %s", self.name, reason)
        self.left[reason] += 1

    def prepare(self) -> Callable[[list[tf.Tensor]], list[tf.Tensor]]:
        """A function from the launch arguments to the results, then the new values of variables to assign."""
        self.register()
        run = launch_op.prepare(self.key, *self.launch_types, self.launch_constants, self.launch_variables)
        weakref.finalize(run, launch_op.release, self.key).atexit = False
        return run

    def _forget(self, inputs: list[launch_op.InputSpec], constants: dict[int, np.ndarray]) -> None:
        """Frees what was compiled for these, which the launch op has dropped."""
        given = [(element_type(dtype.as_datatype_enum), dims) for dtype, dims in inputs]
        key = _key([Shape(type_, dims) for type_, dims in given if type_ is not None], constants)
        self.compiled.pop(key, None)
        self.failures.pop(key, None)
        self.beyond.pop(key, None)
        self.generation += 1

    def _close(self) -> None:
        """Frees what is large when no graph has the cluster any more; a report still has its size and failures."""
        self.op_count = self.op_count  # counted while the nodes are there
        self.compiled.clear()
        self.graph, self.functions, self.source = Graph({}), Functions({}), None
        self.original = _run_nothing

    def _grow_for_launch(
        self, inputs: list[launch_op.InputSpec], constants: dict[int, np.ndarray]
    ) -> launch_op.CompiledEntry | None:
        return self._compile_for_launch(inputs, constants, True)

    def _compile_for_launch(
        self, inputs: list[launch_op.InputSpec], constants: dict[int, np.ndarray], grown: bool = False
    ) -> launch_op.CompiledEntry | None:
        shapes = []
        for dtype, dims in inputs:
            type_ = element_type(dtype.as_datatype_enum)
            if type_ is None:
                return None
            shapes.append(Shape(type_, dims))
        executable = self.grow(shapes, constants) if grown else self.compile(shapes, constants)
        if executable is None:
            return None
        updates = self.launch_variables.updates
        first = len(self.result_types) - len(updates)
        results = executable.artifact.results
        same = {
            first + k: at for k, at in enumerate(updates) if tuple(results[first + k].dims) == inputs[at][1]
        }
        return launch_op.CompiledEntry.of(
            executable,
            [tf.as_dtype(t) for t in self.result_types],
            forward=same,
            runs_before_trial=self._runs_before_trial(executable),
        )

    def _runs_before_trial(self, executable: Executable) -> int | None:
        """How often code runs before it is measured: not at all when it is known to be slower than TensorFlow; None
        when it is known not to be."""
        if not self.options.cost_guard:
            return None
        cache = disk_cache.at(self.options.cache_dir, self.options.max_cache_bytes)
        verdict = cost_guard.stored(executable, cache)
        if verdict is None:
            return cost_guard.RUNS_BEFORE_TRIAL
        return 0 if verdict.is_slower else None

    def run_in_tensorflow(self, values: Sequence[tf.Tensor | None]) -> list[tf.Tensor | None]:
        """Runs the original nodes, on variables made for this call: one for arguments that have the same tensor.

        A variable without a value is None, among `values` and, still, among the results.
        Raises: UnsupportedError  it is strict and did not compile; where shapes are wrong, TensorFlow's own error.
        """
        refusal = self._strict_refusal(values) if self.is_strict and self.failures else ""
        if refusal and not refusal.startswith(ShapeError.__name__):
            raise strict_error(refusal)
        given = iter(values)
        arguments, variables = [], []
        made: dict[int, tf.Tensor] = {}
        for argument in self.arguments:
            value = next(given) if argument.is_read else None
            if argument.is_variable and id(value) in made:
                value = made[id(value)]
            elif argument.is_variable:
                # One of a name is not there until it is assigned; of those, every thread has its own.
                is_there = value is not None or not argument.is_read
                handle = tf.raw_ops.VarHandleOp(
                    dtype=tf.as_dtype(argument.data_type),
                    shape=None,
                    container="" if is_there else f"thread {threading.get_ident()}",
                    shared_name=ANONYMOUS if is_there else argument.name,
                )
                variables.append(handle)
                if value is not None:
                    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
                    made[id(value)] = handle
                value = handle
            arguments.append(value)
        try:
            results = self.original(arguments)
            if refusal:
                raise strict_error(refusal)
            return [*results, *(_content(arguments[k], self.arguments[k]) for k in self.written)]
        finally:
            for handle in variables:
                tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)

    def _strict_refusal(self, values: Sequence[tf.Tensor | None]) -> str:
        """Why nothing was compiled for values like these; empty when that was not tried, or nothing was wrong."""
        given = [(element_type(t.dtype.as_datatype_enum), tuple(t.shape)) for t in values if t is not None]
        shapes = [Shape(type_, dims) for type_, dims in given if type_ is not None]
        constants = {k: t.numpy() for k in self.launch_constants if (t := values[k]) is not None}
        return self.failures.get(_key(shapes, constants), "")

    def grow(self, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]) -> Executable | None:
        """The executable for these shapes with larger bounds of lists in place of the one so far, as `compile`."""
        key = _key(shapes, constants)
        with self.lock:
            self.growth[key] = self.growth.get(key, 1) * _GROWTH
            self.compiled.pop(key, None)
            self.generation += 1
        return self.compile(shapes, constants)

    def compile(self, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]) -> Executable | None:
        """The executable for these shapes of the launch arguments; `constants` are values by launch position.

        None when the cluster does not compile for them: the reason is kept in `failures`, or in `beyond` when no more
        values are compiled for, and counted.
        """
        key = _key(shapes, constants)
        with self.lock:
            if key in self.compiled:
                return self.compiled[key]
            if key in self.failures or key in self.beyond:
                return None
            if reason := self._no_further_values(shapes, constants):
                self.is_varying = True
                bounded(self.beyond, _MOST_KEYS)[key] = reason
                self._note_fallback(shapes, reason)
                return None
            try:
                executable = self._compile(shapes, constants)
            except Exception as error:  # whatever it is, TensorFlow can still run the nodes
                bounded(self.failures, _MOST_KEYS)[key] = f"{type(error).__name__}: {error}"
                if not self.compiled and not isinstance(
                    error, ShapeError
                ):  # which other shapes need not have
                    is_over = isinstance(error, BudgetError)
                    self.over_budget = str(error) if is_over else ""
                    digest = self._digest_and_budget if is_over else self.digest
                    bounded(_never_compiled, _MOST_FAILED)[digest] = self.failures[key]
                self._note_fallback(shapes, self.failures[key])
                if not isinstance(error, ShapeError | UnsupportedError):
                    logger.warning(
                        "cluster %s does not compile and runs in TensorFlow; this is a bug in tfbridge",
                        self.name,
                        exc_info=error,
                    )
                return None
            statistics.count("recompiles" if self.compiled or key in self.growth else "clusters_compiled")
            if self.compiled and _recompiles.isEnabledFor(logging.INFO):
                _recompiles.info("cluster %s: %s", self.name, self._difference(key))
            elif key in self.growth and _recompiles.isEnabledFor(logging.INFO):
                _recompiles.info("cluster %s: a list outgrew its bound", self.name)
            if not self.compiled and key not in self.growth:
                statistics.count("ops_compiled", self.op_count)
            bounded(self.compiled, _MOST_KEYS)[key] = executable
            _never_compiled.pop(self.digest, None) if _never_compiled else None
            return executable

    def _note_fallback(self, shapes: Sequence[Shape], reason: str) -> None:
        statistics.count("fallbacks")
        statistics.leave_out(reason, self.op_count)
        _fallbacks.info("cluster %s of %s runs in TensorFlow: %s", self.name, _listed(shapes), reason)

    def _no_further_values(self, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]) -> str:
        """Why values that decide shapes are not compiled for: there is code for so many; empty when they are."""
        most = _MOST_DATA_VALUES if constants and self.has_data_constants else _MOST_VALUES
        if sum(key[0] == tuple(shapes) for key in tuple(self.compiled)) < most:
            return ""
        names = [self.arguments[self.launch_arguments[at]].name for at in sorted(constants)]
        return (
            f"compiled for {most} values of {', '.join(names)}, which decide shapes or axes; further values run in "
            "TensorFlow"
        )

    def _compile(self, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]) -> Executable:
        start = time.perf_counter()
        if self.over_budget and not self.compiled:  # other shapes would take as long
            raise BudgetError(self.over_budget)
        given: list[Shape | None] = [None] * len(self.arguments)
        for shape, k in zip(shapes, self.launch_arguments, strict=True):
            given[k] = shape
        values = {self.launch_arguments[at]: value for at, value in constants.items()}
        variables = {k: a.name for k, a in enumerate(self.arguments) if a.is_variable}
        growth = self.growth.get(_key(shapes, constants), 1)
        if growth > _MOST_GROWTH:
            raise UnsupportedError("a list grows further than any bound that compiled code has")

        def make() -> Module:
            module, written = translate(
                self.graph,
                self.functions,
                given,
                values,
                variables,
                self.name,
                self.source,
                bool(self.options.dump_dir),
                growth,
            )
            if written != self.written:
                raise UnsupportedError(
                    f"cluster {self.name}: variables {written} are written, expected {self.written}"
                )
            module = self._with_sizes(module)
            module.attributes[INPUT_OUTPUT_ALIAS] = self._aliases()
            module.attributes[KEPT_PARAMETERS] = self._kept()
            return module

        subject = (
            self.digest,
            self._kept(),
            given,
            growth,
            sorted((k, v.dtype.str, v.shape, v.tobytes()) for k, v in values.items()),
        )
        artifact = load_made(repr(subject), make, self.options, self._text() if self.options.dump_dir else "")
        executable = Executable(artifact)
        _compiles.info(
            "cluster %s of %s: %d ops, %d kernels, %.3f s",
            self.name,
            _listed(shapes),
            self.op_count,
            len(artifact.kernels),
            time.perf_counter() - start,
        )
        for kernel in artifact.kernels:
            _fusion.info("cluster %s, kernel %s: %s", self.name, kernel.name, ", ".join(kernel.ops))
        statistics.record(
            statistics.ClusterRecord(
                self.name,
                self.op_count,
                ", ".join(map(str, shapes)),
                len(artifact.kernels),
                time.perf_counter() - start,
                artifact.temp_bytes,
                artifact.object_bytes,
            )
        )
        return executable

    def _with_sizes(self, module: Module) -> Module:
        """The module; with the sizes of results, where those are known at run time only, as further results."""
        exposed = expose_sizes(module)
        if exposed is None:
            return module
        outputs = len(self.result_types) - len(self.written)
        if exposed.taken or any(axis or leaf >= outputs for leaf, axis in exposed.given):
            raise UnsupportedError(
                "a result has an axis, not its first, of a size that is known at run time only"
            )
        exposed.module.attributes[RESULT_SIZES] = f"{{ {', '.join(str(leaf) for leaf, _ in exposed.given)} }}"
        return exposed.module

    def _aliases(self) -> str:
        """The new values that may be made in the memory of the old ones, as HLO text says it."""
        at = {k: position for position, k in enumerate(self.launch_arguments)}
        first = len(self.result_types) - len(self.written)
        pairs = [
            f"{{{first + n}}}: ({at[k]}, {{}}, may-alias)" for n, k in enumerate(self.written) if k in at
        ]
        return f"{{ {', '.join(pairs)} }}"

    def _kept(self) -> str:
        """The variables that the launch reads and does not change, as HLO text lists numbers."""
        kept = [
            at
            for at, k in enumerate(self.launch_arguments)
            if self.takes_handles and self.arguments[k].is_variable and k not in self.written
        ]
        return f"{{ {', '.join(map(str, kept))} }}"

    def _text(self) -> str:
        """The cluster's nodes and the functions of their graph, as the text of a GraphDef."""
        graph_def = tf.compat.v1.GraphDef(node=[node.definition for node in self.graph.nodes.values()])
        graph_def.library.function.extend(self.functions.definitions.values())
        return str(graph_def)

    def failure(self, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]) -> str:
        """Why the cluster did not compile for these; empty when it did or was not asked to."""
        key = _key(shapes, constants)
        return self.failures.get(key, "") or self.beyond.get(key, "")

    def _difference(self, key: tuple[Any, ...]) -> str:
        """What sets a new key apart from the compiled one that is most like it."""

        def differing(other: tuple[Any, ...]) -> list[str]:
            names = [self.arguments[k].name for k in self.launch_arguments]
            changes = [
                f"{name} was {before}, is {after}"
                for name, before, after in zip(names, other[0], key[0])
                if before != after
            ]
            return changes + [
                f"the value of {names[at]} changed, which decides shapes or axes"
                for (at, before), (_, after) in zip(other[1], key[1])
                if before != after
            ]

        fewest: list[str] = min(map(differing, tuple(self.compiled)), key=len, default=[])
        return "; ".join(fewest)


def _content(handle: tf.Tensor, argument: Argument) -> tf.Tensor | None:
    """The value of a variable; None when it has none."""
    if not tf.raw_ops.VarIsInitializedOp(resource=handle):
        return None
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(argument.data_type))


def _key(shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]) -> tuple[Any, ...]:
    return tuple(shapes), tuple((k, v.tobytes()) for k, v in sorted(constants.items()))


@functools.cache
def digest_of_sources() -> str:
    """A name for the code that makes modules of clusters and compiles them."""
    return f"{code_version(_BRIDGE)} {code_version()}"


def bounded(table: dict[Any, Any], most: int) -> dict[Any, Any]:
    """A dict with room for one more: those that were added first go."""
    while len(table) >= most:
        table.pop(next(iter(table)), None)
    return table


def strict_error(reason: str) -> UnsupportedError:
    """The error for what a strict function asks for and is not compiled."""
    return UnsupportedError(f"{_STRICT}{reason}")


def strict_reason(error: tf.errors.OpError) -> str:
    """The reason in an error that `strict_error` became in TensorFlow; empty when it is another one."""
    return error.message.partition(f"{UnsupportedError.__name__}: {_STRICT}")[2].partition("\n\t [[")[0]


_STRICT = "strict=True, and it cannot be compiled: "


def _run_nothing(values: list[tf.Tensor]) -> list[tf.Tensor]:
    raise AssertionError("a cluster that is in no graph was run")


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(str, shapes)) or "no arguments"


def from_function(
    name: str,
    graph: Graph,
    functions: Functions,
    original: Callable[[list[tf.Tensor]], list[tf.Tensor]],
    options: JitOptions = DEFAULT_OPTIONS,
    source: Callable[[str], tuple[str, int]] | None = None,
    content_types: Mapping[int, int] | None = None,
) -> Cluster:
    """The cluster of a whole function. `content_types`: DataType of the variables among the arguments, by number.

    Raises: UnsupportedError  an op has no translation: all such ops, with the reasons, are in the message.
    """
    problems = unsupported(graph, functions)
    if problems:
        raise UnsupportedError("\n".join(f"{node.name} ({node.op}): {reason}" for node, reason in problems))
    arguments, written = [], []
    uses = _uses(graph)
    for k, argument in enumerate(graph.arguments):
        type_ = graph.nodes[argument].attrs["T"].type
        if type_ != _RESOURCE:
            arguments.append(Argument(argument, type_))
            continue
        read, changed = _use(uses[argument], functions)
        content = (
            (content_types or {}).get(k, 0)
            or content_type(graph, functions, argument)
            or attribute_content_type(graph.nodes[argument])
        )
        if not content:
            raise UnsupportedError(f"argument {k} is a resource that is no variable")
        arguments.append(Argument(argument, content, True, read))
        if changed:
            written.append(k)
    results = []
    for tensor in graph.results:
        node = graph.nodes[tensor.node]
        results.append(node.attrs["T"].type if node.op == "_Arg" else output_types(node)[tensor.index])
    if any(element_type(t) is None for t in results):
        raise UnsupportedError("a result of the function is no array (a string, resource or variant)")
    written.sort(key=lambda k: arguments[k].is_read)
    results += [arguments[k].data_type for k in written]
    return Cluster(
        name,
        graph,
        functions,
        arguments,
        constant_arguments(graph, functions),
        results,
        written,
        original,
        options,
        source,
        is_strict=any(
            is_strict(node.definition.attr) for node in (*graph.nodes.values(), *_inner(graph, functions))
        ),
    )


def _inner(graph: Graph, functions: Functions) -> Iterator[GraphNode]:
    """The nodes of all functions that a graph calls."""
    names = [name for node in graph.nodes.values() for name in called_functions(node)]
    for name in names:
        if name in functions.definitions:
            names += [
                n for node in functions[name].nodes.values() for n in called_functions(node) if n not in names
            ]
            yield from functions[name].nodes.values()


def _uses(graph: Graph) -> dict[str, list[tuple[GraphNode, int]]]:
    """For every argument the nodes that take it or a copy of it, in order, each with the number of that input."""
    uses: dict[str, list[tuple[GraphNode, int]]] = {argument: [] for argument in graph.arguments}
    copy_of = {argument: argument for argument in graph.arguments}
    for node in graph.nodes.values():
        if node.op == "Identity" and node.inputs[0].node in copy_of:
            copy_of[node.name] = copy_of[node.inputs[0].node]
            continue
        for position, tensor in enumerate(node.inputs):
            if tensor.node in copy_of:
                uses[copy_of[tensor.node]].append((node, position))
    return uses


def _use(uses: Iterable[tuple[GraphNode, int]], functions: Functions) -> tuple[bool, bool]:
    """(read before it is written, written) of a variable argument. Calls and loops count as they are found inside."""
    read_first, written = False, False
    for node, position in uses:
        inner_read, inner_written = node_use(node, position, functions)
        read_first |= inner_read and not written
        written |= inner_written
    return read_first, written


def content_type(graph: Graph, functions: Functions, argument: str) -> int:
    """DataType of the content of a variable argument, told by the nodes that use it; 0 when none does."""
    same = [argument]  # and its copies, as they are met
    for name in same:
        for node in graph.nodes.values():
            for position, tensor in enumerate(node.inputs):
                if tensor.node != name:
                    continue
                called = [f for f in called_functions(node) if f in functions.definitions]
                shift = 1 if node.op in _BRANCHING else 0
                found = 0
                if called and position >= shift:
                    each = (
                        content_type(functions[f], functions, functions[f].arguments[position - shift])
                        for f in called
                    )
                    found = next(filter(None, each), 0)
                elif node.op == "Identity":
                    same.append(node.name)
                else:
                    found = attribute_content_type(node)
                if found and found != _RESOURCE:
                    return found
    return 0


def attribute_content_type(node: GraphNode) -> int:
    """DataType of the content of the variable that a node uses or is, told by its attributes; 0 when they do not."""
    if node.op in _GENERATORS:
        return int(tf.int64.as_datatype_enum)
    types = [
        int(node.attrs[name].type)
        for name in ("dtype", "T")
        if name in node.attrs and node.attrs[name].WhichOneof("value") == "type"
    ]
    if "_handle_dtypes" in node.attrs:
        types += node.attrs["_handle_dtypes"].list.type
    return next((type_ for type_ in types if type_ != _RESOURCE), 0)


def node_use(node: GraphNode, position: int, functions: Functions) -> tuple[bool, bool]:
    """(read before it is written, written): what a node does with a variable that it takes as that input."""
    called = called_functions(node)
    if called:
        shift = 1 if node.op in _BRANCHING else 0
        uses = [
            _use(_uses(functions[f])[functions[f].arguments[position - shift]], functions)
            for f in called
            if position >= shift
        ]
        # A branch that is not taken leaves the variable as it was, so its value is needed.
        partial = len(called) > 1 and any(w for _, w in uses)
        return any(r for r, _ in uses) or partial, any(w for _, w in uses)
    if node.op in _READS:
        return True, False
    if node.op == "AssignVariableOp":
        return False, True
    return True, True


def called_functions(node: GraphNode) -> list[str]:
    """Names of the functions that a node calls."""
    if not takes_functions(node.op):
        return []
    return [name for value in node.attrs.values() for name in named_functions(value)]


def named_functions(value: Any) -> Sequence[str]:
    """Names of the functions that are in an attribute's value."""
    kind = value.WhichOneof("value")
    if kind == "func":
        return [value.func.name]
    return [f.name for f in value.list.func] if kind == "list" else ()


def count_ops(nodes: Iterable[GraphNode], functions: Functions, trivial: Collection[str]) -> int:
    """How many nodes are not trivial; for a call, a loop or a branch, those in its functions count, and for a fused op
    what was fused."""
    total = 0
    for node in nodes:
        called = [f for f in called_functions(node) if f in functions.definitions]
        if called:
            total += sum(count_ops(functions[f].nodes.values(), functions, trivial) for f in called)
        else:
            total += node.op not in trivial
            if node.op.startswith("_") and "fused_ops" in node.attrs:
                total += len(node.attrs["fused_ops"].list.s)
    return total


def unsupported(
    graph: Graph, functions: Functions, seen: set[str] | None = None
) -> list[tuple[GraphNode, str]]:
    """The nodes, called functions' included, that cannot be compiled, each with the reason."""
    seen = seen if seen is not None else set()
    found = []
    for node in graph.nodes.values():
        reason = refusal(node, functions, graph)
        if reason is not None:
            found.append((node, reason))
            continue
        for name in [*called_functions(node), *([node.op] if node.op in functions.definitions else [])]:
            if name not in seen and name in functions.definitions:
                seen.add(name)
                found.extend(unsupported(functions[name], functions, seen))
    sizes = data_sizes(graph, functions, {node.name for node, _ in found})
    return found + [(graph.nodes[name], reason) for name, reason in sizes.refused.items()]


def refusal(node: GraphNode, functions: Functions, graph: Graph) -> str | None:
    """Why a node of the graph is not to be compiled; None when it can be."""
    if node.op == "_Arg":
        return None
    if functions.denied:
        joined = [name.decode() for name in node.attrs["op_names"].list.s] if "op_names" in node.attrs else []
        if any(op in functions.denied for op in (node.op, *joined)):  # graph optimizers join some ops to one
            return "the option deny_ops names it"
    translation = translations().get(node.op)
    if translation is None:
        return (
            None
            if node.op in functions.definitions
            else STAYING.get(node.op, "there is no translation of this op")
        )
    if not all(name in functions.definitions for name in called_functions(node)):
        return "the body of a function that it calls is not known"
    if changing_constants(graph, node, functions):
        return "its body needs to know, when compiling, a value that changes in the loop"
    if pushes_further(node, functions):
        return "a loop within the loop appends to a stack from outside of both, of which no bound is known"
    if node.op in _WHOLE_LISTS and not has_known_length(graph, node.inputs[0], functions):
        return "the length of the list depends on data"
    for name in translation.fixed:
        source = graph.nodes.get(node.inputs[input_range(node.definition, name)[0]].node)
        if source is None or source.op != "Const":
            return f"{name} decides its result's shape and is no constant"
    for attr, allowed in translation.types.items():
        type_ = element_type(node.attrs[attr].type)
        if type_ not in allowed:
            name = "a type that is no array's" if type_ is None else type_.value
            return f"{attr} is {name}; it is compiled for {', '.join(sorted(t.value for t in allowed))}"
    return translation.refuse(node) if translation.refuse is not None else None


def _contents(graph: Graph, functions: Functions, known: dict[str, bytes]) -> bytes:
    """A digest of a graph and of the functions that it calls.

    Functions stand by their contents and arguments by their number: the numbers in their names differ from one run of a
    program to the next, as some attributes do that start with an underscore, and of those none decides what is
    compiled. `known` are digests of functions by name.
    """
    digest = hashlib.blake2b(digest_size=20)
    numbers = {name: k for k, name in enumerate(graph.arguments)}

    def places(tensors: Iterable[Tensor]) -> bytes:
        return repr([(numbers.get(t.node, t.node), t.index) for t in tensors]).encode()

    bare = tf.compat.v1.NodeDef()
    for node in graph.nodes.values():
        if node.op not in functions.definitions and not takes_functions(node.op):
            bare.CopyFrom(node.definition)
            bare.ClearField("input")
            bare.ClearField("experimental_debug_info")
            if node.name in numbers:
                bare.name = f"argument {numbers[node.name]}"
            for key in [key for key in bare.attr if key[0] == "_"]:
                del bare.attr[key]
            content = bare.SerializeToString(deterministic=True)
            digest.update(
                f"{len(content)} {node.op} {node.control} ".encode() + places(node.inputs) + content
            )
            continue
        called = [("", node.op)] if node.op in functions.definitions else []
        head: list[Any] = [
            numbers.get(node.name, node.name),
            "" if called else node.op,
            node.device,
            *node.control,
        ]
        values = []
        attrs = node.attrs
        for key in sorted(attrs):
            names = [n for n in named_functions(attrs[key]) if n in functions.definitions]
            called += [(key, name) for name in names]
            if not names and key[0] != "_":
                values.append(attrs[key].SerializeToString(deterministic=True))
                head.append((key, len(values[-1])))
        digest.update(repr(head).encode() + places(node.inputs) + b"".join(values))
        for key, name in called:
            if name not in known:
                known[name] = b""  # while it is read: a function may call itself
                known[name] = _contents(functions[name], functions, known)
            digest.update(key.encode() + known[name])
    digest.update(places(graph.results))
    return digest.digest()
