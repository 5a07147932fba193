"""Writes of rows: converters write a row of a list as what is before it, the row, and what is behind it, put together.

    concatenation(slice(x, 0, [i, -1, -1]), row, slice(x, [i + 1, 0, 0], -1))
    -> dynamic_update_slice(x, row, [i + 1, 0, 0] - rows)

The sizes of both slices change from run to run of a loop; those of the update do not.
"""

from __future__ import annotations

import collections
import dataclasses

from .model_file import FileGraph, Operator


@dataclasses.dataclass(frozen=True)
class RowsBefore:
    """The option of an update that begins so many rows before the place that is given."""

    rows: int


def with_updates(graph: FileGraph) -> FileGraph:
    """The graph with updates in the place of lists that are put together, without slices that nothing else uses."""
    makers = {k: operator for operator in graph.operators for k in operator.outputs}
    updates = {
        id(operator): update
        for operator in graph.operators
        if (update := _update(graph, makers, operator)) is not None
    }
    if not updates:
        return graph
    operators = [updates.get(id(operator), operator) for operator in graph.operators]
    uses = collections.Counter(k for operator in operators for k in operator.inputs)
    uses.update(graph.outputs)
    kept = [o for o in operators if o.name != "SLICE" or any(uses[k] for k in o.outputs)]
    return dataclasses.replace(graph, operators=tuple(kept))


def _update(graph: FileGraph, makers: dict[int, Operator], operator: Operator) -> Operator | None:
    if operator.name != "CONCATENATION" or len(operator.inputs) != 3 or len(operator.outputs) != 1:
        return None
    before, after = (makers.get(operator.inputs[k]) for k in (0, 2))
    slices = [o for o in (before, after) if o is not None and o.name == "SLICE" and len(o.inputs) == 3]
    if len(slices) < 2 or getattr(operator.options, "axis", None) != 0:
        return None
    (of_first, begin, _), (of_second, place, size) = (o.inputs for o in slices)
    begins, sizes = graph.tensors[begin].value, graph.tensors[size].value
    result, row, x = (graph.tensors[k].dims for k in (operator.outputs[0], operator.inputs[1], of_first))
    # Of the same list, from its beginning and up to its end: as the result is as long, nothing is left out.
    if of_first != of_second or result != x or row[1:] != x[1:] or graph.tensors[place].value is not None:
        return None
    if begins is None or begins.any() or sizes is None or not (sizes == -1).all():
        return None
    inputs = (of_first, operator.inputs[1], place)
    return Operator("DYNAMIC_UPDATE_SLICE", inputs, operator.outputs, RowsBefore(row[0]))
