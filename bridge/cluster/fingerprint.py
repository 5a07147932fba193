"""A name for all that the module of a cluster is made from, for the disk cache and for clusters that never compile."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import tensorflow as tf

from ...compiler.client.platforms import native
from ..graph.function_library import Functions, named_functions
from ..graph.graph import Graph, Tensor, takes_functions

_BRIDGE = Path(__file__).resolve().parents[1]


@functools.cache
def digest_of_sources() -> str:
    """A name for the code that makes modules of clusters and compiles them."""
    return f"{native().code_fingerprint(_BRIDGE)} {native().code_fingerprint()}"


def graph_digest(graph: Graph, functions: Functions, function_digests: dict[str, bytes]) -> bytes:
    """A digest of a graph and of the functions that it calls.

    Functions stand by their contents and arguments by their number: the numbers in their names differ from one run of a
    program to the next, as some attributes do that start with an underscore, and of those none decides what is
    compiled. `function_digests` are digests of functions by name.
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
        head: list[object] = [
            numbers.get(node.name, node.name),
            "" if called else node.op,
            node.device,
            *node.control,
        ]
        values = []
        attrs = node.attrs
        for key in sorted(attrs):
            names = [f.name for f in named_functions(attrs[key]) if f.name in functions.definitions]
            called += [(key, name) for name in names]
            if not names and key[0] != "_":
                values.append(attrs[key].SerializeToString(deterministic=True))
                head.append((key, len(values[-1])))
        digest.update(repr(head).encode() + places(node.inputs) + b"".join(values))
        for key, name in called:
            if name not in function_digests:
                function_digests[name] = b""  # while it is read: a function may call itself
                function_digests[name] = graph_digest(functions[name], functions, function_digests)
            digest.update(key.encode() + function_digests[name])
    digest.update(places(graph.results))
    return digest.digest()
