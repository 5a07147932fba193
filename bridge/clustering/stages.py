"""Stages: the parts of a function that are compiled one after the other, because data decides sizes of the next one."""

from __future__ import annotations

from collections.abc import Mapping

from ..analysis.compile_time_constants import stage_cuts
from ..analysis.dynamic_size_analysis import data_sizes
from ..graph.function_library import Functions
from ..graph.graph import Graph


def stages_of(graph: Graph, functions: Functions) -> Mapping[str, int]:
    """The stage of every node of a function all of which is to be compiled. It rises along edges, from 0."""
    cuts = stage_cuts(graph, functions, lambda n: n.op == "_Arg", list(graph.nodes.values()))
    return data_sizes(graph, functions, (), cuts=cuts).stages
