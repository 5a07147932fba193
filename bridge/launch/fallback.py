"""Runs the original nodes of a cluster in TensorFlow.

They become one function, which TensorFlow's executor runs. A kernel that waits for a function holds a thread of the
pool that the function needs. If no other thread might be free, the nodes are executed eagerly, one after the other:
calls are entered, functional While, If and Case interpreted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, op_def_pb2
from tensorflow.core.protobuf import rewriter_config_pb2

from ...runtime.threads import forking
from ...runtime.threads.processors import affine_cpus
from ..graph.function_library import named_functions
from ..graph.graph import CALLS, DATAFLOW, GraphNode, input_types, output_types
from ..tf_internals import symbols as private
from ..tf_internals.dtypes import make_ndarray
from . import variable_values

Run = Callable[[list[tf.Tensor]], list[tf.Tensor]]

_OPS_FOR_XLA = ("Conv2D", "Conv3D", "Xla")
"""How ops start for which TensorFlow has no kernels for CPUs, or none for groups of features."""
_BY_XLA = "_XlaMustCompile"


class Library:
    """Functions by name: those of a library, then the eager context's. Each is planned once."""

    def __init__(self, functions: function_pb2.FunctionDefLibrary | None = None) -> None:
        self.definitions = {f.signature.name: f for f in functions.function} if functions else {}
        self._programs: dict[str, Program] = {}
        self._lock = forking.long_lock()

    def find(self, name: str) -> function_pb2.FunctionDef | None:
        """The definition of a function, or None."""
        return self.definitions.get(name) or private.function_definition(name)

    def program(self, name: str) -> Program:
        """The program of a function. Raises: NotFoundError  there is none of that name."""
        with self._lock:
            if name not in self._programs:
                definition = self.find(name)
                if definition is None:
                    raise private.error_of(tf.errors.NOT_FOUND, f"no function {name!r} in the library")
                self._programs[name] = Program.of_function(definition, self)
            return self._programs[name]

    def needs_xla(self, function: function_pb2.FunctionDef) -> bool:
        """Whether XLA must compile a function: it is marked so, and has ops that are not for TensorFlow's kernels."""
        if not (_BY_XLA in function.attr and function.attr[_BY_XLA].b):
            return False
        seen, waiting = {function.signature.name}, [function]
        while waiting:
            for node in waiting.pop().node_def:
                if node.op.startswith(_OPS_FOR_XLA):
                    return True
                called = [f.name for value in node.attr.values() for f in named_functions(value)]
                for name in {node.op, *called} & self.definitions.keys() - seen:
                    seen.add(name)
                    waiting.append(self.definitions[name])
        return False

    def add_to_context(self) -> None:
        """Makes all functions known to eager execution, for ops that call one by name."""
        for definition in self.definitions.values():
            private.add_function(definition)


@dataclasses.dataclass(frozen=True)
class _Step:
    """A node or several: their values' slots, how to run them, and the slots that nothing reads after them."""

    run: Run
    inputs: tuple[int, ...]
    outputs: Sequence[int]
    dead: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Planned:
    """A node, the slots of its inputs and outputs, and how it is run."""

    node: node_def_pb2.NodeDef
    inputs: tuple[int, ...]
    outputs: Sequence[int]
    run: Run


@dataclasses.dataclass(frozen=True)
class _Function:
    """A function of TensorFlow's eager context. types: DataTypes of its arguments. outputs: how many it has."""

    name: str
    attributes: tuple[str, bytes]
    types: tuple[int, ...]
    outputs: int

    def run(self, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        return private.execute_function(self.name, self.attributes, inputs, self.outputs)

    def prepare(self) -> None:
        """Has TensorFlow make what runs it, unless an argument is no array."""
        if not {tf.resource.as_datatype_enum, tf.variant.as_datatype_enum} & set(self.types):
            inputs = [tf.zeros([], tf.as_dtype(type_)) for type_ in self.types]
            private.prepare_function(self.name, self.attributes, inputs, self.outputs)


class Program:
    """A function or graph as a list of steps, and as one. Call it with the arguments; any number of threads may."""

    def __init__(
        self,
        nodes: Sequence[node_def_pb2.NodeDef],
        inputs: int,
        arguments: Mapping[str, int],
        results: Sequence[str],
        library: Library,
        by_value: Collection[int] = (),
        is_optimized: bool = True,
        by_xla: bool = False,
    ) -> None:
        self._by_xla = by_xla
        self._slots = self._arguments = inputs
        slot_of: dict[str, int] = dict(arguments)
        nodes, same = variable_values.on_values(nodes, arguments, by_value)
        for name, number in same.items():
            slot_of.update(dict.fromkeys((name, f"{name}:0", f"{name}:value:0"), number))
        ordered = _topological(nodes)
        planned: list[_Planned] = []
        for node in ordered:
            definition = _definition(node, library)
            sizes = [(arg.name, _length(arg, node)) for arg in definition.output_arg]
            first = self._slots
            for name, size in sizes:
                for k in range(size):
                    slot_of[f"{node.name}:{name}:{k}"] = self._slots
                    slot_of.setdefault(f"{node.name}:{self._slots - first}", self._slots)
                    self._slots += 1
            slot_of[node.name] = first
            read = tuple(slot_of[name] for name in node.input if not name.startswith("^"))
            count = sum(size for _, size in sizes)
            planned.append(_Planned(node, read, range(first, first + count), _lazily(node, count, library)))
        self._results = tuple(slot_of[name] for name in results)
        self._steps = _with_lifetimes(planned, frozenset(self._results))
        is_short = len(nodes) < _MIN_JOINED and not by_xla and all(_is_plain(n, library) for n in nodes)
        self._function, self._whole = None, list[_Step]()
        if not is_short:
            self._function, step = _function(planned, frozenset(self._results), library, is_optimized, by_xla)
            self._whole.append(step)

    @classmethod
    def of_function(cls, function: function_pb2.FunctionDef, library: Library | None = None) -> Program:
        """The program of a FunctionDef."""
        library = library or Library()
        return _Source.of_function(function, library).program(by_xla=library.needs_xla(function))

    def prepare(self) -> None:
        """Has TensorFlow make what runs it, so that no call waits for that."""
        if self._function is not None:
            self._function.prepare()

    def __call__(self, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Runs it. Raises: tf.errors.OpError  as the op that failed raised it."""
        if len(inputs) != self._arguments:
            raise private.error_of(
                tf.errors.INVALID_ARGUMENT, f"{len(inputs)} arguments for a function of {self._arguments}"
            )
        values: list[tf.Tensor | None] = [*inputs, *[None] * (self._slots - len(inputs))]
        with _may_wait() if self._whole else contextlib.nullcontext(False) as may_wait:
            for step in self._whole if may_wait or self._by_xla else self._steps:
                for slot, output in zip(step.outputs, step.run([values[slot] for slot in step.inputs])):
                    values[slot] = output
                for slot in step.dead:
                    values[slot] = None
        return [values[slot] for slot in self._results]


@dataclasses.dataclass(frozen=True)
class _Source:
    """The nodes of a program. arguments: their numbers, by the names that nodes read. is_optimized: by TensorFlow."""

    nodes: Sequence[node_def_pb2.NodeDef]
    inputs: int
    arguments: Mapping[str, int]
    results: Sequence[str]
    library: Library
    is_optimized: bool

    @classmethod
    def of_function(cls, function: function_pb2.FunctionDef, library: Library) -> _Source:
        arguments = {arg.name: number for number, arg in enumerate(function.signature.input_arg)}
        results = [function.ret[arg.name] for arg in function.signature.output_arg]
        return cls(function.node_def, len(arguments), arguments, results, library, False)

    @classmethod
    def of_graph(cls, graph: graph_pb2.GraphDef) -> _Source:
        """Of a GraphDef whose ends are `_Arg` and `_Retval` nodes."""
        ends = ("_Arg", "_DeviceArg", "_Retval", "_DeviceRetval")
        arguments = {node.name: node.attr["index"].i for node in graph.node if node.op in ends[:2]}
        returned = sorted((node.attr["index"].i, node.input[0]) for node in graph.node if node.op in ends[2:])
        nodes = [node for node in graph.node if node.op not in ends]
        names = arguments | {f"{name}:0": number for name, number in arguments.items()}
        results = [name for _, name in returned]
        return cls(nodes, len(arguments), names, results, Library(graph.library), True)

    def program(
        self,
        by_value: Collection[int] = (),
        updated: Mapping[int, int] | None = None,
        is_brief: bool = False,
        by_xla: bool = False,
    ) -> Program:
        """The program that takes these arguments, which are variables, by their value; the new values of those
        `updated` follow its results. is_brief: it is not worth TensorFlow's optimizations. by_xla: XLA compiles it."""
        nodes, names = variable_values.with_updates(self.nodes, self.arguments, updated or {})
        results = [*self.results, *names]
        is_optimized = self.is_optimized or is_brief
        return Program(
            nodes, self.inputs, self.arguments, results, self.library, by_value, is_optimized, by_xla
        )

    @property
    def updatable(self) -> frozenset[int]:
        """The arguments that may be `updated`: if all nodes become one function, those that no node passes on."""
        if not all(_is_plain(node, self.library) for node in self.nodes) or len(self.nodes) < _MIN_JOINED:
            return frozenset()
        passed_on = variable_values.passed_on(self.nodes, self.arguments)
        return (
            frozenset(self.arguments.values()) - passed_on - {self.arguments.get(r, -1) for r in self.results}
        )


class Original:
    """Runs the nodes of a function or graph on tensors. Each form of it is planned at its first call."""

    def __init__(self, make: Callable[[], _Source]) -> None:
        self._make = make
        self._source: _Source | None = None
        self._read_only = self._updatable = frozenset[int]()
        self._programs: dict[tuple[frozenset[int], tuple[int, ...], bool], Program] = {}
        self._lock = forking.long_lock()

    def __call__(
        self,
        inputs: list[tf.Tensor],
        by_value: frozenset[int] = frozenset(),
        updated: Mapping[int, int] | None = None,
        is_brief: bool = False,
    ) -> list[tf.Tensor]:
        """The results, then the new values of the variables `updated`.

        by_value: the inputs that are values of variables, of `read_only`. updated: those of `updatable` that are, with
        the DataTypes of the values. Other variables are handles. is_brief: there will be code soon, so TensorFlow's
        optimizations, which take longer than some runs, are left out.
        """
        with private.plain_eager():
            return self._program(by_value, updated or {}, is_brief)(inputs)

    def prepare(self, by_value: frozenset[int], updated: Mapping[int, int], is_brief: bool) -> None:
        """Makes the form for such calls ready."""
        with private.plain_eager():
            self._program(by_value, updated, is_brief).prepare()

    def _program(self, by_value: frozenset[int], updated: Mapping[int, int], is_brief: bool) -> Program:
        form = by_value, tuple(updated)
        program = self._programs.get((*form, False)) or is_brief and self._programs.get((*form, True))
        if program:
            return program
        with self._lock:
            key = (*form, is_brief)
            if key not in self._programs:
                self._programs[key] = self._planned().program(by_value, updated, is_brief)
            return self._programs[key]

    @property
    def read_only(self) -> frozenset[int]:
        """The numbers of the arguments that are variables which are only read, in no function that is called."""
        self._planned()
        return self._read_only

    @property
    def updatable(self) -> frozenset[int]:
        """The numbers of the arguments that, if they are variables, may be `updated`."""
        self._planned()
        return self._updatable

    def _planned(self) -> _Source:
        with self._lock:
            if self._source is None:
                source = self._make()
                self._read_only = variable_values.read_only(source.nodes, source.arguments)
                self._updatable = source.updatable
                self._source = source
            return self._source


def of_function(
    function: function_pb2.FunctionDef, library: function_pb2.FunctionDefLibrary | None = None
) -> Original:
    """What runs a FunctionDef on tensors."""
    return Original(lambda: _Source.of_function(function, Library(library)))


def of_graph(graph: graph_pb2.GraphDef) -> Original:
    """What runs a GraphDef from its `_Arg` to its `_Retval` nodes."""
    return Original(lambda: _Source.of_graph(graph))


def _node_of(name: str) -> str:
    return name.lstrip("^").split(":", 1)[0]


def _topological(nodes: Sequence[node_def_pb2.NodeDef]) -> list[node_def_pb2.NodeDef]:
    """The nodes, each after those it reads or waits for; otherwise in the order given."""
    by_name = {node.name: node for node in nodes}
    waiting: dict[str, int] = {}
    readers: dict[str, list[str]] = {name: [] for name in by_name}
    for node in nodes:
        needed = {_node_of(name) for name in node.input} & by_name.keys()
        waiting[node.name] = len(needed)
        for name in needed:
            readers[name].append(node.name)
    ready, ordered = deque(node.name for node in nodes if not waiting[node.name]), []
    while ready:
        name = ready.popleft()
        ordered.append(by_name[name])
        for reader in readers[name]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    if len(ordered) < len(nodes):
        stuck = [name for name, count in waiting.items() if count][:5]
        raise private.error_of(tf.errors.UNIMPLEMENTED, f"nodes form a cycle, among them {', '.join(stuck)}")
    return ordered


def _with_lifetimes(planned: Sequence[_Planned], results: frozenset[int]) -> list[_Step]:
    """The steps, each with the inputs that it is the last to read."""
    alive, steps = set(results), []
    for one in reversed(planned):
        dead = tuple(set(one.inputs) - alive)
        alive.update(one.inputs)
        steps.append(_Step(one.run, one.inputs, one.outputs, dead))
    return steps[::-1]


_MIN_JOINED = 3  # a call of a function costs as much as a few ops
_function_numbers = itertools.count()


def _is_plain(node: node_def_pb2.NodeDef, library: Library) -> bool:
    """Whether a node calls nothing."""
    return (
        node.op not in _SPECIAL.keys() - {"Const"}
        and node.op not in library.definitions
        and not any(value.WhichOneof("value") == "func" for value in node.attr.values())
    )


def _adopt(function: function_pb2.FunctionDef, library: Library) -> list[str]:
    """Registers copies of the functions of a library that a function calls, with names of their own: other graphs may
    have others of the same names. Returns the names."""
    prefix, own = function.signature.name, dict[str, str]()
    waiting = [function]
    while waiting:
        caller = waiting.pop()
        for node in caller.node_def:
            for key in [key for key in node.attr if key.startswith("_")]:
                del node.attr[key]
            called = library.definitions.get(node.attr["f"].func.name if node.op in CALLS else node.op)
            if called is not None and library.needs_xla(called):
                node.attr[_BY_XLA].b = True
            if node.op in _LOWERED:  # TensorFlow's executor then runs it without threads that wait
                node.attr["_lower_using_switch_merge"].b = True
            names = [(called, "name") for value in node.attr.values() for called in named_functions(value)]
            for holder, field in (*names, (node, "op")):
                name = getattr(holder, field)
                if name not in library.definitions:
                    continue
                if name not in own:
                    own[name] = f"{prefix}_{len(own)}"
                    copy = function_pb2.FunctionDef()
                    copy.CopyFrom(library.definitions[name])
                    copy.signature.name = own[name]
                    needs_xla = library.needs_xla(copy)
                    for key in [key for key in copy.attr if key.startswith("_")]:
                        del copy.attr[key]
                    if needs_xla:
                        copy.attr[_BY_XLA].b = True
                    waiting.append(copy)
                setattr(holder, field, own[name])
        if caller is not function:
            private.add_function(caller)
    return list(own.values())


_LOWERED = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})


def _function(
    nodes: Sequence[_Planned], results: Collection[int], library: Library, is_optimized: bool, by_xla: bool
) -> tuple[_Function, _Step]:
    """One step that runs all nodes, with the loops and branches among them, as a function of TensorFlow, and that
    function. TensorFlow optimizes it unless it has done so, or has XLA compile it."""
    _remove_unused()
    function = function_pb2.FunctionDef()
    function.signature.name = f"tfbridge_original_{next(_function_numbers)}"
    names: dict[int, str] = {}  # of slots, within the function
    types: dict[int, int] = {}
    arguments: list[int] = []
    node_names = {one.node.name for one in nodes}
    for one in nodes:
        for slot in one.inputs:
            if slot not in names:
                names[slot] = f"argument_{slot}"
                arguments.append(slot)
        _add_node(function, one, names, types, node_names, library)
    outputs = [slot for one in nodes for slot in one.outputs if slot in results]
    _add_signature(function, arguments, outputs, names, types)
    called = _adopt(function, library)
    if by_xla:
        function.attr[_BY_XLA].b = True
    private.add_function(function)
    name = function.signature.name
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = is_optimized
    config.graph_options.rewrite_options.use_plugin_optimizers = rewriter_config_pb2.RewriterConfig.OFF
    attributes = ("config_proto", config.SerializeToString())

    planned = _Function(name, attributes, tuple(types[slot] for slot in arguments), len(outputs))
    weakref.finalize(planned, _unused.extend, [name, *called]).atexit = False
    return planned, _Step(planned.run, tuple(arguments), outputs, ())


def _add_node(
    function: function_pb2.FunctionDef,
    one: _Planned,
    names: dict[int, str],
    types: dict[int, int],
    node_names: Collection[str],
    library: Library,
) -> None:
    """Adds a node to a function; `names` and `types` get those of its outputs. node_names: all of the function's."""
    node = function.node_def.add()
    node.CopyFrom(one.node)
    node.device = ""
    node.ClearField("experimental_debug_info")
    control = [c for c in one.node.input if c.startswith("^") and c[1:] in node_names]
    node.input[:] = [*(names[slot] for slot in one.inputs), *control]
    graph_node = GraphNode(node.name, node.op, [], [], node)
    types.update(zip(one.inputs, input_types(graph_node)))
    types.update(zip(one.outputs, output_types(graph_node)))
    names.update(zip(one.outputs, _output_names(one.node, library)))
    if _definition(one.node, library).is_stateful:
        function.signature.control_output.append(node.name)
        function.control_ret[node.name] = node.name


def _add_signature(
    function: function_pb2.FunctionDef,
    arguments: Sequence[int],
    outputs: Sequence[int],
    names: Mapping[int, str],
    types: Mapping[int, int],
) -> None:
    for slot in arguments:
        function.signature.input_arg.add(name=names[slot], type=types[slot])
    for k, slot in enumerate(outputs):
        function.signature.output_arg.add(name=f"result_{k}", type=types[slot])
        function.ret[f"result_{k}"] = names[slot]
    function.signature.is_stateful = bool(function.control_ret)


_unused: deque[str] = (
    deque()
)  # names of functions that no program calls any more; garbage may be found at any time


def _remove_unused() -> None:
    while _unused:
        private.remove_function(_unused.popleft())


@functools.cache
def _waiting_threads() -> threading.Semaphore:
    """The threads of TensorFlow's pool that may wait at a time: all but one, which must work."""
    threads = tf.config.threading.get_inter_op_parallelism_threads() or affine_cpus()
    return threading.Semaphore(threads - 1)


forking.in_child(_waiting_threads.cache_clear)  # the threads that wait are the parent's


@contextlib.contextmanager
def _may_wait() -> Iterator[bool]:
    """Whether this thread may wait for a function, within. A thread that Python started is not of TensorFlow's pool."""
    if not isinstance(threading.current_thread(), threading._DummyThread):
        yield True
        return
    is_free = _waiting_threads().acquire(blocking=False)
    try:
        yield is_free
    finally:
        if is_free:
            _waiting_threads().release()


def _output_names(node: node_def_pb2.NodeDef, library: Library) -> list[str]:
    """The names of a node's outputs within a function."""
    return [
        f"{node.name}:{arg.name}:{k}"
        for arg in _definition(node, library).output_arg
        for k in range(_length(arg, node))
    ]


def _definition(node: node_def_pb2.NodeDef, library: Library) -> op_def_pb2.OpDef:
    """The signature of a node's op or, if it calls a function by name, of that function."""
    if node.op in DATAFLOW:
        raise private.error_of(
            tf.errors.UNIMPLEMENTED, f"{node.op} node {node.name} has no meaning on its own"
        )
    function = library.definitions.get(node.op)
    definition = function.signature if function else private.op_definition(node.op)
    if definition is None:
        raise private.error_of(tf.errors.NOT_FOUND, f"no op {node.op!r} (node {node.name})")
    return definition


def _length(arg: op_def_pb2.OpDef.ArgDef, node: node_def_pb2.NodeDef) -> int:
    """The number of tensors of an output argument."""
    if arg.number_attr:
        return node.attr[arg.number_attr].i
    return len(node.attr[arg.type_list_attr].list.type) if arg.type_list_attr else 1


def _lazily(node: node_def_pb2.NodeDef, outputs: int, library: Library) -> Run:
    """As `_runner`, which is called when the node first runs: most nodes never run on their own."""
    runner = functools.cache(lambda: _runner(node, outputs, library))
    return lambda inputs: runner()(inputs)


def _runner(node: node_def_pb2.NodeDef, outputs: int, library: Library) -> Run:
    """A function that runs a node."""
    if node.op in library.definitions:
        return lambda inputs: library.program(node.op)(inputs)
    special = _SPECIAL.get(node.op)
    if special is not None:
        return special(node, library)
    if any(value.WhichOneof("value") == "func" for value in node.attr.values()):
        library.add_to_context()
    attributes = tuple(
        (name.encode(), value.SerializeToString())
        for name, value in node.attr.items()
        if not name.startswith("_")
    )
    op = node.op
    return lambda inputs: private.execute_node(op, attributes, inputs, outputs)


def _function_name(node: node_def_pb2.NodeDef, attribute: str) -> str:
    return node.attr[attribute].func.name


def _call(node: node_def_pb2.NodeDef, library: Library) -> Run:
    name = _function_name(node, "f")
    return lambda inputs: library.program(name)(inputs)


def _holds(tensor: tf.Tensor) -> bool:
    """Whether a condition holds, as If and While decide: a scalar non-zero, another tensor not empty."""
    if tensor.shape.rank:
        return tensor.shape.num_elements() > 0
    value = tensor.numpy()
    return len(value) > 0 if tensor.dtype == tf.string else bool(value)


def _while(node: node_def_pb2.NodeDef, library: Library) -> Run:
    condition, body = _function_name(node, "cond"), _function_name(node, "body")

    def run(inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        test, step, values = library.program(condition), library.program(body), inputs
        while _holds(test(values)[0]):
            values = step(values)
        return values

    return run


def _if(node: node_def_pb2.NodeDef, library: Library) -> Run:
    then, otherwise = _function_name(node, "then_branch"), _function_name(node, "else_branch")
    return lambda inputs: library.program(then if _holds(inputs[0]) else otherwise)(inputs[1:])


def _case(node: node_def_pb2.NodeDef, library: Library) -> Run:
    branches = [function.name for function in node.attr["branches"].list.func]

    def run(inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        index = int(inputs[0].numpy())
        return library.program(branches[index if 0 <= index < len(branches) else -1])(inputs[1:])

    return run


def _constant(node: node_def_pb2.NodeDef, library: Library) -> Run:
    """A constant is made once. The eager runtime caches kernels by attributes and mixes up constants of one shape."""
    with private.plain_eager():
        value = [tf.constant(make_ndarray(node.attr["value"].tensor), tf.as_dtype(node.attr["dtype"].type))]
    return lambda inputs: value


_SPECIAL: dict[str, Callable[[node_def_pb2.NodeDef, Library], Run]] = {
    "PartitionedCall": _call,
    "StatefulPartitionedCall": _call,
    "While": _while,
    "StatelessWhile": _while,
    "If": _if,
    "StatelessIf": _if,
    "Case": _case,
    "StatelessCase": _case,
    "Const": _constant,
}
