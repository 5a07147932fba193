"""Runs the original nodes of a cluster in TensorFlow, one after the other on the calling thread.

A kernel must not wait for another thread of the pool that runs it, so no function is handed to an executor:
calls are entered, functional While, If and Case are interpreted, and every other node is executed eagerly.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, op_def_pb2

from . import tensorflow_private as private

Run = Callable[[list[tf.Tensor]], list[tf.Tensor]]

_DATAFLOW_ONLY = frozenset({"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond",
                            "RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration", "_SwitchN"})


class Library:
    """Functions by name: those given, then the eager context's. Programs are made once per function."""

    def __init__(self, functions: function_pb2.FunctionDefLibrary | None = None) -> None:
        self.definitions = {f.signature.name: f for f in functions.function} if functions else {}
        self._programs: dict[str, Program] = {}
        self._lock = threading.RLock()

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

    def add_to_context(self) -> None:
        """Makes all functions known to eager execution, for ops that call one by name."""
        for definition in self.definitions.values():
            private.add_function(definition)


@dataclasses.dataclass(frozen=True)
class _Step:
    """A node: its values' slots, how to run it, and the slots that nothing reads after it."""

    name: str
    run: Run
    inputs: tuple[int, ...]
    first_output: int
    dead: tuple[int, ...]


class Program:
    """A function or graph as a list of steps. Call it with the arguments; any number of threads may."""

    def __init__(self, nodes: Sequence[node_def_pb2.NodeDef], inputs: int, arguments: Mapping[str, int],
                 results: Sequence[str], library: Library) -> None:
        self._slots = self._arguments = inputs
        slot_of: dict[str, int] = dict(arguments)
        ordered = _topological(nodes)
        planned: list[tuple[node_def_pb2.NodeDef, tuple[int, ...], int, Run]] = []
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
            planned.append((node, read, first, _runner(node, sum(size for _, size in sizes), library)))
        self._results = tuple(slot_of[name] for name in results)
        self._steps = _with_lifetimes(planned, frozenset(self._results))

    @classmethod
    def of_function(cls, function: function_pb2.FunctionDef, library: Library | None = None) -> Program:
        """The program of a FunctionDef."""
        arguments = {arg.name: number for number, arg in enumerate(function.signature.input_arg)}
        results = [function.ret[arg.name] for arg in function.signature.output_arg]
        return cls(function.node_def, len(arguments), arguments, results, library or Library())

    @classmethod
    def of_graph(cls, graph: graph_pb2.GraphDef) -> Program:
        """The program of a GraphDef whose ends are `_Arg` and `_Retval` nodes."""
        ends = ("_Arg", "_DeviceArg", "_Retval", "_DeviceRetval")
        arguments = {node.name: node.attr["index"].i for node in graph.node if node.op in ends[:2]}
        returned = sorted((node.attr["index"].i, node.input[0]) for node in graph.node if node.op in ends[2:])
        nodes = [node for node in graph.node if node.op not in ends]
        names = arguments | {f"{name}:0": number for name, number in arguments.items()}
        return cls(nodes, len(arguments), names, [name for _, name in returned], Library(graph.library))

    def __call__(self, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Runs it. Raises: tf.errors.OpError  as the op that failed raised it."""
        if len(inputs) != self._arguments:
            raise private.error_of(tf.errors.INVALID_ARGUMENT,
                                   f"{len(inputs)} arguments for a function of {self._arguments}")
        values: list[tf.Tensor | None] = [*inputs, *[None] * (self._slots - len(inputs))]
        for step in self._steps:
            outputs = step.run([values[slot] for slot in step.inputs])
            values[step.first_output:step.first_output + len(outputs)] = outputs
            for slot in step.dead:
                values[slot] = None
        return [values[slot] for slot in self._results]


def of_function(function: function_pb2.FunctionDef,
                library: function_pb2.FunctionDefLibrary | None = None) -> Run:
    """What runs a FunctionDef: tensors in, tensors out. The program is made at the first call."""
    return _lazily(lambda: Program.of_function(function, Library(library)))


def of_graph(graph: graph_pb2.GraphDef) -> Run:
    """What runs a GraphDef between its `_Arg` and `_Retval` nodes. The program is made at the first call."""
    return _lazily(lambda: Program.of_graph(graph))


def _lazily(make: Callable[[], Program]) -> Run:
    made: list[Program] = []

    def run(inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        with private.plain_eager():
            if not made:
                made.append(make())
            return made[0](inputs)

    return run


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


def _with_lifetimes(planned: Sequence[tuple[node_def_pb2.NodeDef, tuple[int, ...], int, Run]],
                    results: frozenset[int]) -> list[_Step]:
    """The steps, each with the inputs that it is the last to read."""
    alive, steps = set(results), []
    for node, inputs, first, run in reversed(planned):
        dead = tuple(set(inputs) - alive)
        alive.update(inputs)
        steps.append(_Step(node.name, run, inputs, first, dead))
    return steps[::-1]


def _definition(node: node_def_pb2.NodeDef, library: Library) -> op_def_pb2.OpDef:
    """The signature of a node's op or, if it calls a function by name, of that function."""
    if node.op in _DATAFLOW_ONLY:
        raise private.error_of(tf.errors.UNIMPLEMENTED,
                               f"{node.op} node {node.name} has no meaning on its own")
    function = library.definitions.get(node.op)
    found = function.signature if function else private.op_definition(node.op)
    if found is None:
        raise private.error_of(tf.errors.NOT_FOUND, f"no op {node.op!r} (node {node.name})")
    return found


def _length(arg: op_def_pb2.OpDef.ArgDef, node: node_def_pb2.NodeDef) -> int:
    """How many tensors an output of a node is."""
    if arg.number_attr:
        return node.attr[arg.number_attr].i
    return len(node.attr[arg.type_list_attr].list.type) if arg.type_list_attr else 1


def _runner(node: node_def_pb2.NodeDef, outputs: int, library: Library) -> Run:
    """How a node is run."""
    if node.op in library.definitions:
        return lambda inputs: library.program(node.op)(inputs)
    special = _SPECIAL.get(node.op)
    if special is not None:
        return special(node, library)
    if any(value.WhichOneof("value") == "func" for value in node.attr.values()):
        library.add_to_context()
    attributes = tuple((name.encode(), value.SerializeToString()) for name, value in node.attr.items()
                       if not name.startswith("_"))
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
        value = [tf.constant(tf.make_ndarray(node.attr["value"].tensor), tf.as_dtype(node.attr["dtype"].type))]
    return lambda inputs: value


_SPECIAL: dict[str, Callable[[node_def_pb2.NodeDef, Library], Run]] = {
    "PartitionedCall": _call, "StatefulPartitionedCall": _call,
    "While": _while, "StatelessWhile": _while,
    "If": _if, "StatelessIf": _if,
    "Case": _case, "StatelessCase": _case,
    "Const": _constant,
}
