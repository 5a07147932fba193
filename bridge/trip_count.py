"""How often a loop runs at most, read off a counter that its condition compares with a limit."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from .graph import Graph, Tensor


@dataclasses.dataclass(frozen=True)
class Bound:
    """The loop goes on only while variable `counter`, raised by `step` each time, is below `limit`.

    limit: a variable that does not change (an argument's number), or a number if `is_number`. inclusive: also at it.
    """

    counter: int
    step: int
    limit: int
    is_number: bool
    inclusive: bool

    def trips(self, start: int, limit: int) -> int:
        """Iterations from a start to a limit."""
        return max(0, -((start - limit - self.inclusive) // self.step))


def bounds(condition: Graph, body: Graph) -> list[Bound]:
    """Every bound that the condition holds the loop to."""
    found = []
    stack = [condition.results[0]]
    while stack:
        node = condition.nodes[behind_identity(condition, stack.pop()).node]
        if node.op == "LogicalAnd":
            stack += node.inputs
        elif node.op in _COMPARISONS:
            inputs = node.inputs if node.op.startswith("Less") else node.inputs[::-1]
            bound = _bound(condition, body, *inputs, node.op.endswith("Equal"))
            found += [bound] if bound is not None else []
    return found


_COMPARISONS = frozenset({"Less", "LessEqual", "Greater", "GreaterEqual"})


def pushed(body: Graph) -> list[int]:
    """Numbers of the loop variables that are lists to which the body appends."""
    numbers = {name: k for k, name in enumerate(body.arguments)}
    sources = (behind_identity(body, n.inputs[0]).node for n in body.nodes.values() if n.op == "TensorListPushBack")
    return sorted({numbers[s] for s in sources if s in numbers})


def behind_identity(graph: Graph, tensor: Tensor) -> Tensor:
    """The tensor of which this one is a copy."""
    while graph.nodes[tensor.node].op == "Identity":
        tensor = graph.nodes[tensor.node].inputs[0]
    return tensor


def hands_on(body: Graph, argument: int) -> bool:
    """Whether a loop's body returns an argument as it came."""
    return behind_identity(body, body.results[argument]) == Tensor(body.arguments[argument], 0)


def _bound(condition: Graph, body: Graph, counter: Tensor, limit: Tensor, inclusive: bool) -> Bound | None:
    number = _argument(condition, counter)
    step = None if number is None else _step(body, number)
    if number is None or step is None:
        return None
    value = _integer(condition, limit)
    if value is not None:
        return Bound(number, step, value, True, inclusive)
    unchanged = _argument(condition, limit)
    if unchanged is None or not hands_on(body, unchanged):
        return None
    return Bound(number, step, unchanged, False, inclusive)


def _argument(graph: Graph, tensor: Tensor) -> int | None:
    name = behind_identity(graph, tensor).node
    return graph.arguments.index(name) if name in graph.arguments else None


def _step(body: Graph, counter: int) -> int | None:
    node = body.nodes[behind_identity(body, body.results[counter]).node]
    if node.op in ("Add", "AddV2"):
        for value, step in (node.inputs, node.inputs[::-1]):
            amount = _integer(body, step)
            if _argument(body, value) == counter and amount is not None and amount > 0:
                return amount
    return None


def _integer(graph: Graph, tensor: Tensor) -> int | None:
    node = graph.nodes[behind_identity(graph, tensor).node]
    if node.op != "Const":
        return None
    value = tf.make_ndarray(node.attrs["value"].tensor)
    return int(value) if value.ndim == 0 and value.dtype.kind in "iu" else None
