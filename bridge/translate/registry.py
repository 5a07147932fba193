"""The registry of translations: one registration per TensorFlow op says all that the bridge must know of it."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from ...compiler.ir.element_types import ElementType
from ..graph.graph import Graph, GraphNode
from .node import Node
from .values import Value

Translate = Callable[[Node], Value | Sequence[Value] | None]
T = TypeVar("T", bound=Translate)


@dataclasses.dataclass(frozen=True)
class Translation:
    """How an op is translated.

    constants: names of input arguments whose values must be known when compiling (shapes, axes, paddings).
    types: allowed element types by type attribute; an attribute that is not listed may be any array type.
    function: `Node` in; the outputs: one value, or a sequence of them (None or () for an op without outputs).
    stateful: the op reads or writes variables; it keeps its place among others on the same one.
    unsupported: the reason, from the node's attributes, why it cannot be compiled; None when it can.
    more_constants: tells from the node and its graph which inputs must be known as well.
    fixed: names of inputs that must be constants of the graph: their values decide the result's shape.
    sizes: tells from the node and its graph which outputs, by number, have a first axis whose size depends on data.
    takes_sizes: tells from the node and its graph which inputs, by number, may have such an axis; the results have it.
    drops_sizes: tells from the node, its graph and the inputs that have it whether the results do not.
    keeps_sizes: the outputs, by number, that have such an axis where an input has it, beside those of `sizes`;
        without it all have it.
    sized_by: names of constants whose first number may be a size that depends on data: the result then has it.
    """

    op: str
    function: Translate
    constants: tuple[str, ...] = ()
    types: Mapping[str, frozenset[ElementType]] = dataclasses.field(default_factory=dict)
    stateful: bool = False
    unsupported: Callable[[GraphNode], str | None] | None = None
    more_constants: Callable[[GraphNode, Graph], Sequence[str]] | None = None
    fixed: tuple[str, ...] = ()
    sizes: Callable[[GraphNode, Graph], Collection[int]] | None = None
    takes_sizes: Callable[[GraphNode, Graph], Collection[int]] | None = None
    drops_sizes: Callable[[GraphNode, Graph, Collection[int]], bool] | None = None
    sized_by: tuple[str, ...] = ()
    keeps_sizes: tuple[int, ...] | None = None


def every_input(node: GraphNode, graph: Graph) -> Collection[int]:
    """The numbers of all inputs of a node."""
    return range(len(node.inputs))


def first_output(node: object, graph: object) -> Collection[int]:
    """The number of the first output."""
    return (0,)


def first_input(node: object, graph: object) -> Collection[int]:
    """The number of the first input."""
    return (0,)


TRANSLATIONS: dict[str, Translation] = {}
ENDS = {"_Arg": "an argument of compiled code", "_Retval": "a result of compiled code"}
"""Ops that are an end of a graph, and what becomes of them."""


def translates(
    *ops: str,
    constants: Sequence[str] = (),
    types: Mapping[str, frozenset[ElementType]] | None = None,
    stateful: bool = False,
    unsupported: Callable[[GraphNode], str | None] | None = None,
    more_constants: Callable[[GraphNode, Graph], Sequence[str]] | None = None,
    fixed: Sequence[str] = (),
    sizes: Callable[[GraphNode, Graph], Collection[int]] | None = None,
    takes_sizes: Callable[[GraphNode, Graph], Collection[int]] | None = None,
    drops_sizes: Callable[[GraphNode, Graph, Collection[int]], bool] | None = None,
    sized_by: Sequence[str] = (),
    keeps_sizes: Sequence[int] | None = None,
) -> Callable[[T], T]:
    """Registers a function as the translation of these ops."""

    def register(function: T) -> T:
        for op in ops:
            if op in TRANSLATIONS:
                raise ValueError(
                    f"{op} has two translations: {TRANSLATIONS[op].function.__module__} and "
                    f"{function.__module__}"
                )
            TRANSLATIONS[op] = Translation(
                op,
                function,
                (*constants, *fixed),
                dict(types or {}),
                stateful,
                unsupported,
                more_constants,
                tuple(fixed),
                sizes,
                takes_sizes,
                drops_sizes,
                tuple(sized_by),
                None if keeps_sizes is None else tuple(keeps_sizes),
            )
        return function

    return register


@functools.cache
def translations() -> Mapping[str, Translation]:
    """All translations: every module of this package and of those in it is loaded at the first call."""
    package = importlib.import_module(__package__ or "")
    for module in pkgutil.walk_packages(package.__path__, f"{__package__}."):
        importlib.import_module(module.name)
    return TRANSLATIONS
