"""The functions that a graph calls: their bodies, and calls whose op is the name of a function.

TensorFlow 1's `Defun` writes such calls, and so do the loops of `tf.nn.ctc_loss`. They become PartitionedCalls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from ...compiler.errors import UnsupportedError
from ..tf_internals import symbols as tfp
from ..tf_internals.types import AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NameAttrList, NodeDef
from .graph import CALLS, LOOPS, Graph, GraphNode, from_function_def, op_definition, takes_functions
from .specialized_functions import specialized_function


@dataclasses.dataclass
class Functions:
    """The functions of a library, each read when it is first called.

    `denied`: op types that run in TensorFlow. `simplified`: what every graph that is read goes through.
    `read`, `data_sizes`: caches of graphs and of analyses of them.
    """

    definitions: Mapping[str, FunctionDef]
    denied: Collection[str] = ()
    simplified: Callable[[Graph], Graph] | None = None
    read: dict[str, Graph] = dataclasses.field(default_factory=dict)
    data_sizes: dict[object, Any] = dataclasses.field(default_factory=dict)

    def __getitem__(self, name: str) -> Graph:
        if name not in self.read:
            if name not in self.definitions:
                raise UnsupportedError(f"function {name} is not in the graph's library")
            graph = from_function_def(self.definitions[name])
            self.read[name] = graph if self.simplified is None else self.simplified(graph)
        return self.read[name]

    def gradient(self, name: str) -> str:
        """The name of the gradient function of a function, which is added at the first request."""
        gradient = f"{name}/gradient"
        if gradient not in self.definitions and name in self.definitions:
            definition, called = tfp.gradient_function(
                self.definitions[name], list(self.definitions.values()), gradient
            )
            added = calls_as_ops(FunctionDefLibrary(function=[definition, *called])).function
            self.definitions = {f.signature.name: f for f in added} | dict(self.definitions)
        return gradient


def with_function_bodies(graph_def: GraphDef) -> GraphDef:
    """The graph with the bodies of the functions that it calls. TensorFlow hands over their signatures only.

    A function without a body in this process (as in a graph of TensorFlow 1) is not in the library; its callers cannot
    be compiled.
    """
    declared = {f.signature.name: f for f in graph_def.library.function}
    bodies: dict[str, FunctionDef] = {}
    names = list(declared)
    while names:
        name = names.pop()
        if name in bodies:
            continue
        definition = declared.get(name)
        if definition is None or not (definition.node_def or definition.ret):
            definition = tfp.function_definition(name) or specialized_function(name, definition)
        if definition is not None:
            bodies[name] = definition
            names += _called_names(definition)
    if not all(bodies.get(name) is f for name, f in declared.items()):
        graph_def = type(graph_def)(node=graph_def.node, versions=graph_def.versions)
        graph_def.library.function.extend(bodies.values())
    library = calls_as_ops(graph_def.library)
    if library is not graph_def.library:
        graph_def = type(graph_def)(node=graph_def.node, versions=graph_def.versions, library=library)
    return graph_def


def _called_names(function: FunctionDef) -> list[str]:
    """The names of all functions that the nodes of a FunctionDef name."""
    names: list[str] = []
    for node in function.node_def:
        names += [node.op] if op_definition(node.op) is None else []
        names += [f.name for value in node.attr.values() for f in named_functions(value)]
    return names


def nodes_of_functions(graph: Graph, functions: Functions) -> Iterator[GraphNode]:
    """The nodes of all functions that a graph calls."""
    names = [name for node in graph.nodes.values() for name in called_functions(node)]
    for name in names:
        if name in functions.definitions:
            names += [
                n for node in functions[name].nodes.values() for n in called_functions(node) if n not in names
            ]
            yield from functions[name].nodes.values()


def calls_as_ops(library: FunctionDefLibrary) -> FunctionDefLibrary:
    """A FunctionDefLibrary in which every call of its functions is a PartitionedCall; the same one if all are.

    s = sum_of(x, y) ... sum_of:total:0   ->   s = PartitionedCall[f=sum_of](x, y) ... s:output:0
    """
    definitions = {f.signature.name: f for f in library.function}
    if not any(_is_call(node, definitions) for f in library.function for node in f.node_def):
        return library
    rewritten = type(library)()
    rewritten.CopyFrom(library)
    for function in rewritten.function:
        function.CopyFrom(function_calls_as_ops(function, definitions))
    return rewritten


def by_name(library: FunctionDefLibrary) -> dict[str, FunctionDef]:
    """The functions of a FunctionDefLibrary by name. Where several implement one API and one of them is for CPUs, that
    one stands under the names of those for no device in particular, as TensorFlow's graph optimizer chooses."""
    for_cpu: dict[tuple[object, ...], list[FunctionDef]] = {}
    for f in library.function:
        if _text(f, _DEVICE) == b"CPU":
            for_cpu.setdefault(_api(f), []).append(f)
    functions = {}
    for f in library.function:
        others = for_cpu.get(_api(f), []) if _text(f, _API) and not _text(f, _DEVICE) else []
        functions[f.signature.name] = others[0] if len(others) == 1 else f
    return functions


_API, _DEVICE = "api_implements", "api_preferred_device"


def _text(function: FunctionDef, attribute: str) -> bytes:
    return function.attr[attribute].s if attribute in function.attr else b""


def _api(function: FunctionDef) -> tuple[object, ...]:
    """What two implementations of one API share. Those for a tape stand apart, though their results may be the same."""
    signature = function.signature
    return (
        _text(function, _API),
        signature.name.startswith("__forward_"),
        tuple(a.type for a in signature.input_arg),
        tuple(a.type for a in signature.output_arg),
    )


def function_calls_as_ops(function: FunctionDef, definitions: Mapping[str, FunctionDef]) -> FunctionDef:
    """A FunctionDef in which calls are PartitionedCalls; `definitions`: the functions that it may call, by name."""
    called = {node.name: definitions[node.op] for node in function.node_def if _is_call(node, definitions)}
    if not called:
        return function
    rewritten = type(function)()
    rewritten.CopyFrom(function)
    for node in rewritten.node_def:
        if node.name in called:
            call_as_op(node, called[node.name])
        node.input[:] = [_reference(text, called) for text in node.input]
    for name, text in function.ret.items():
        rewritten.ret[name] = _reference(text, called)
    return rewritten


def call_as_op(node: NodeDef, called: FunctionDef) -> None:
    """Makes a PartitionedCall of a node whose op is the name of the function `called`; its attributes stay."""
    attributes = dict(node.attr.items())
    node.op = "StatefulPartitionedCall" if called.signature.is_stateful else "PartitionedCall"
    function = node.attr["f"].func
    function.name = called.signature.name
    for name, arguments in (("Tin", called.signature.input_arg), ("Tout", called.signature.output_arg)):
        types = [attributes[a.type_attr].type if a.type_attr else a.type for a in arguments]
        node.attr[name].list.type[:] = types


def _is_call(node: NodeDef, definitions: Mapping[str, FunctionDef]) -> bool:
    return node.op in definitions and op_definition(node.op) is None


def _reference(text: str, called: Mapping[str, FunctionDef]) -> str:
    """A tensor's name inside a function: results of calls are numbered, no longer named."""
    name, _, output = text.partition(":")
    if name not in called or not output:
        return text
    result = output.partition(":")[0]
    names = [a.name for a in called[name].signature.output_arg]
    return f"{name}:output:{names.index(result)}"


def called_functions(node: GraphNode) -> list[str]:
    """Names of the functions that a node calls."""
    if not takes_functions(node.op):
        return []
    return [f.name for value in node.attrs.values() for f in named_functions(value)]


def named_functions(value: AttrValue) -> Sequence[NameAttrList]:
    """The functions that are in an attribute's value, each a NameAttrList."""
    kind = value.WhichOneof("value")
    if kind == "func":
        return [value.func]
    return value.list.func if kind == "list" else ()


def functions_of_inputs(node: GraphNode, functions: Functions) -> list[tuple[str, int]]:
    """The library functions that get a node's inputs, each with the number of the first input that it gets."""
    if node.op in functions.definitions:
        return [(node.op, 0)]
    attrs = node.attrs
    if node.op in CALLS:
        calls = [(attrs["f"].func.name, 0)]
    elif node.op in LOOPS:
        calls = [(attrs["cond"].func.name, 0), (attrs["body"].func.name, 0)]
    elif node.op == "SymbolicGradient":
        calls = [(functions.gradient(attrs["f"].func.name), 0)]
    elif node.op in ("If", "StatelessIf"):
        calls = [(attrs["then_branch"].func.name, 1), (attrs["else_branch"].func.name, 1)]
    elif node.op in ("Case", "StatelessCase"):
        calls = [(f.name, 1) for f in attrs["branches"].list.func]
    else:
        return []
    return [(name, shift) for name, shift in calls if name in functions.definitions]


def lacks_results(graph_def: GraphDef) -> bool:
    """Whether a graph takes a result that a call in it does not have. TensorFlow does not run it.

    TensorFlow's implementation selector makes such graphs: it puts another function with other results into a call
    whose results a gradient takes.
    """
    results = {n.name: len(n.attr["Tout"].list.type) for n in graph_def.node if n.op in CALLS}
    taken = (text.partition(":") for node in graph_def.node for text in node.input) if results else ()
    return any(int(index or 0) >= results[name] for name, _, index in taken if name in results)
