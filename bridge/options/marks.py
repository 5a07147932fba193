"""The mark of a node that is to be compiled: a node attribute, which carries the options of its function as text.

The attribute's value is one word and options: "function" (the whole graph of the node is to be compiled), "strict" (and
an op that is not compiled is an error) or, without options, "scope" (this node is to be compiled).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..tf_internals.types import AttrValue, ConcreteFunction, NodeDef
from .jit_options import from_text, to_text

MARK = "_tfbridge"
SCOPE = b"scope"
_FUNCTION_WORDS = ("function", "strict")


def function_mark(options: Mapping[str, object], is_strict: bool) -> bytes:
    """The mark of the nodes of a function that is to be compiled with these options."""
    return f"{_FUNCTION_WORDS[is_strict]} {to_text(options)}".rstrip().encode()


def marks_of(nodes: Iterable[NodeDef]) -> set[bytes]:
    """The marks of NodeDefs."""
    return {node.attr[MARK].s for node in nodes if MARK in node.attr}


def is_marked(concrete: ConcreteFunction) -> bool:
    """Whether a node of a concrete function, or of a function in its library, has a mark."""
    graph = concrete.graph.as_graph_def()
    return any(
        MARK in n.attr for nodes in (graph.node, *(f.node_def for f in graph.library.function)) for n in nodes
    )


def function_options(marks: Iterable[bytes]) -> list[dict[str, object]]:
    """The options of the functions whose marks are among these, in a fixed order."""
    parts = (mark.decode().partition(" ") for mark in sorted(marks))
    return [from_text(text) for word, _, text in parts if word in _FUNCTION_WORDS]


def is_in_scope(attributes: Mapping[str, AttrValue]) -> bool:
    """Whether a node with these attributes was created in a `jit_scope`."""
    return MARK in attributes and attributes[MARK].s == SCOPE


def is_strict(attributes: Mapping[str, AttrValue]) -> bool:
    """Whether a node with these attributes is of a function whose ops must be compiled."""
    return MARK in attributes and attributes[MARK].s.startswith(b"strict")
