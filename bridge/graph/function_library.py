"""Functions that are called as if they were ops: nodes whose op is a function's name become PartitionedCalls.

TensorFlow 1's `Defun` makes them, and the loops of `tf.nn.ctc_loss` do to this day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .graph import op_definition


def calls_as_ops(library: Any) -> Any:
    """A FunctionDefLibrary in which every call of its functions is a PartitionedCall; the same one if all are.

    s = sum_of(x, y) ... sum_of:total:0   ->   s = PartitionedCall[f=sum_of](x, y) ... s:output:0
    """
    definitions = {f.signature.name: f for f in library.function}
    if not any(_is_call(node, definitions) for f in library.function for node in f.node_def):
        return library
    made = type(library)()
    made.CopyFrom(library)
    for function in made.function:
        function.CopyFrom(function_calls_as_ops(function, definitions))
    return made


def by_name(library: Any) -> dict[str, Any]:
    """The functions of a FunctionDefLibrary by name. Where several implement one API and one of them is for CPUs, that
    one stands under the names of those for no device in particular, as TensorFlow's graph optimizer chooses."""
    for_cpu: dict[Any, list[Any]] = {}
    for f in library.function:
        if _text(f, _DEVICE) == b"CPU":
            for_cpu.setdefault(_api(f), []).append(f)
    found = {}
    for f in library.function:
        others = for_cpu.get(_api(f), []) if _text(f, _API) and not _text(f, _DEVICE) else []
        found[f.signature.name] = others[0] if len(others) == 1 else f
    return found


_API, _DEVICE = "api_implements", "api_preferred_device"


def _text(function: Any, attribute: str) -> bytes:
    return function.attr[attribute].s if attribute in function.attr else b""


def _api(function: Any) -> tuple[Any, ...]:
    """What two implementations of one API share. Those for a tape stand apart, though their results may be the same."""
    signature = function.signature
    return (
        _text(function, _API),
        signature.name.startswith("__forward_"),
        tuple(a.type for a in signature.input_arg),
        tuple(a.type for a in signature.output_arg),
    )


def function_calls_as_ops(function: Any, definitions: Mapping[str, Any]) -> Any:
    """One FunctionDef, likewise; `definitions` are the functions that it may call, by name."""
    called = {node.name: definitions[node.op] for node in function.node_def if _is_call(node, definitions)}
    if not called:
        return function
    made = type(function)()
    made.CopyFrom(function)
    for node in made.node_def:
        if node.name in called:
            call_as_op(node, called[node.name])
        node.input[:] = [_reference(text, called) for text in node.input]
    for name, text in function.ret.items():
        made.ret[name] = _reference(text, called)
    return made


def call_as_op(node: Any, called: Any) -> None:
    """Makes a PartitionedCall of a node whose op is the name of the function `called`; its attributes stay."""
    attributes = dict(node.attr.items())
    node.op = "StatefulPartitionedCall" if called.signature.is_stateful else "PartitionedCall"
    function = node.attr["f"].func
    function.name = called.signature.name
    for name, arguments in (("Tin", called.signature.input_arg), ("Tout", called.signature.output_arg)):
        types = [attributes[a.type_attr].type if a.type_attr else a.type for a in arguments]
        node.attr[name].list.type[:] = types


def _is_call(node: Any, definitions: Mapping[str, Any]) -> bool:
    return node.op in definitions and op_definition(node.op) is None


def _reference(text: str, called: Mapping[str, Any]) -> str:
    """A tensor's name inside a function: results of calls are numbered, no longer named."""
    name, _, output = text.partition(":")
    if name not in called or not output:
        return text
    result = output.partition(":")[0]
    names = [a.name for a in called[name].signature.output_arg]
    return f"{name}:output:{names.index(result)}"
