"""The bodies of functions that TensorFlow's graph optimizer has made of others for one call.

It leaves out the results that the call does not use, and puts arguments that are constants into the body. So it does
with functions that are not inlined, as the recurrent layers of Keras 2. The graph pass gets their signature alone, with
the names of arguments and results as they were.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..tf_internals import symbols as tfp
from ..tf_internals.types import FunctionDef, NodeDef

_FOR, _AT = "_specialized_for_", "_at_"  # function, _FOR, node of the call, _AT, function that calls


def specialized_function(name: str, stub: FunctionDef | None) -> FunctionDef | None:
    """The function of that name, whose signature `stub` has; None where it is not known how it was made."""
    original, found, place = name.partition(_FOR)
    definition = tfp.function_definition(original) if found else None
    if definition is None or stub is None:
        return None
    if set(stub.signature.control_output) != set(definition.control_ret):
        return None
    names = [a.name for a in definition.signature.input_arg]
    kept = [a.name for a in stub.signature.input_arg]
    results = {a.name: a.type for a in definition.signature.output_arg}
    if not set(kept) <= set(names) or any(results.get(r.name) != r.type for r in stub.signature.output_arg):
        return None
    constants: dict[str, NodeDef] = {}
    if len(kept) < len(names):
        node, _, caller = place.rpartition(_AT)
        passed = _constants_of_call(caller, node, original)
        if not all(k in passed for k, n in enumerate(names) if n not in kept):
            return None
        constants = {n: passed[k] for k, n in enumerate(names) if n not in kept}
    return _with_constants(definition, stub, constants)


def _with_constants(
    definition: FunctionDef, stub: FunctionDef, constants: Mapping[str, NodeDef]
) -> FunctionDef:
    """A function with the signature of `stub`, and constants in the place of the other arguments."""
    made = type(definition)()
    made.CopyFrom(definition)
    made.signature.CopyFrom(stub.signature)
    for attributes in (made.arg_attr, made.resource_arg_unique_id):
        attributes.clear()
    kept = [a.name for a in stub.signature.input_arg]
    for k, argument in enumerate(definition.signature.input_arg):
        if argument.name in kept and k in definition.arg_attr:
            made.arg_attr[kept.index(argument.name)].CopyFrom(definition.arg_attr[k])

    def renamed(text: str) -> str:
        return f"{text}:output:0" if text in constants else text

    for node in made.node_def:
        node.input[:] = [renamed(text) for text in node.input]
    made.ret.clear()
    for result in stub.signature.output_arg:
        made.ret[result.name] = renamed(definition.ret[result.name])
    for name, constant in constants.items():
        node = made.node_def.add(name=name, op="Const")
        for key in ("dtype", "value"):
            node.attr[key].CopyFrom(constant.attr[key])
    return made


def _constants_of_call(caller: str, node: str, called: str) -> dict[int, NodeDef]:
    """The arguments, by number, that are constants in a call; node: its name, with _ for /, in the function `caller`.

    It may lie in a function that was inlined, under the name of that call.
    """
    definition = tfp.function_definition(caller)
    if definition is None:
        return {}
    nodes = {n.name: n for n in definition.node_def}
    for candidate in definition.node_def:
        flat, function = candidate.name.replace("/", "_"), candidate.attr["f"].func.name
        if flat == node and called in (function, candidate.op):
            sources = [nodes.get(text.partition(":")[0]) for text in candidate.input if text[0] != "^"]
            return {k: n for k, n in enumerate(sources) if n is not None and n.op == "Const"}
        if (
            function
            and node.startswith(f"{flat}_")
            and (inner := _constants_of_call(function, node[len(flat) + 1 :], called))
        ):
            return inner
    return {}
