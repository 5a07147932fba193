"""Maxima of repeats: how often the row that `tf.repeat` repeats most is there.

`tf.repeat(x, repeats)` repeats every row as often as the maximum says, and a mask of as many columns picks those that
are wanted. Any larger number gives the same result, and the same gradient. So compiled code takes a bound in its
place, and leaves the run where a row is repeated more often.

    bound = max(repeats)                      rows = reshape(tile(expand_dims(x, 1), [1, bound, 1]), [n * bound, ...])
    mask = range(bound) < repeats[:, None]    result = gather(rows, where(reshape(mask, [-1]))[:, 0])
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container

from ..graph.graph import Graph, GraphNode, Tensor
from .symbolic_size import constant_of, folded

_SAME = frozenset({"Identity", "Cast"})
_WIDE = frozenset({3, 9})  # DT_INT32, DT_INT64: a conversion between them keeps the numbers
_OF_SHAPES = frozenset(
    {"StridedSlice", "Prod", "ExpandDims", "ConcatV2", "Pack", "Reshape", "Squeeze", "Transpose", "Shape"}
)


def repeat_bounds(graph: Graph, others: Container[str] = ()) -> frozenset[str]:
    """The names of the nodes whose value may be a larger number. others: nodes that are not compiled with them."""
    candidates = [node for node in graph.nodes.values() if _is_candidate(node)]
    if not candidates:
        return frozenset()
    users: defaultdict[Tensor, list[tuple[GraphNode, int]]] = defaultdict(list)
    for node in graph.nodes.values():
        for k, tensor in enumerate(node.inputs):
            users[tensor].append((node, k))
    results = set(graph.results)
    return frozenset(node.name for node in candidates if _Walk(graph, users, results, others).is_hidden(node))


def _is_candidate(node: GraphNode) -> bool:
    return node.op == "Max" and node.attrs["T"].type in _WIDE and not node.attrs["keep_dims"].b


class _Walk:
    """Follows a maximum to everything that is computed from it.

    Every tensor that differs with the bound has a role. The walk ends at tensors that are the same for every bound; at
    a use of another one that it does not know, the maximum is not hidden.
    """

    def __init__(
        self,
        graph: Graph,
        users: defaultdict[Tensor, list[tuple[GraphNode, int]]],
        results: Container[Tensor],
        others: Container[str],
    ) -> None:
        self.graph, self.users, self.results, self.others = graph, users, results, others
        self.repeats = Tensor("", 0)
        self.roles: dict[Tensor, str] = {}

    def is_hidden(self, maximum: GraphNode) -> bool:
        """Whether nothing depends on the maximum but what a larger number leaves as it is."""
        axes = folded(self.graph, maximum.inputs[1])
        self.repeats = self.repeats_of(maximum.inputs[0])
        if axes is None or axes.tolist() not in (0, [0]):
            return False
        stack = [(Tensor(maximum.name, 0), "maximum")]
        uses: list[tuple[GraphNode, int]] = []
        while stack:
            tensor, role = stack.pop()
            if self.roles.get(tensor, role) != role or tensor in self.results:
                return False
            if tensor in self.roles:
                continue
            self.roles[tensor] = role
            for node, number in self.users[tensor]:
                if node.name in self.others:
                    return False
                uses.append((node, number))
                following = self.role(node, number, role)
                if following is None:
                    return False
                if following:
                    stack.append((Tensor(node.name, 0), following))
        return all(self.is_complete(node) for node, _ in uses)

    def source(self, tensor: Tensor) -> Tensor:
        """The integers before identities and conversions that keep them."""
        node = self.graph.nodes[tensor.node]
        while (
            node.op == "Identity"
            or node.op == "Cast"
            and {node.attrs[a].type for a in ("SrcT", "DstT")} <= _WIDE
        ):
            tensor = node.inputs[0]
            node = self.graph.nodes[tensor.node]
        return tensor

    def role(self, node: GraphNode, number: int, role: str) -> str | None:
        """The role of a node's result, of which this input has a role; empty where it has none, None where it may have
        another one."""
        op = node.op
        if op in _SAME and role in ("maximum", "bound", "columns", "shape"):
            return role if op == "Identity" or node.attrs["DstT"].type in _WIDE else None
        match role, op:
            case (("maximum" | "bound"), "Maximum"):  # with 0: TensorFlow has an error for negative sizes
                other = constant_of(self.graph, node.inputs[1 - number].node)
                return "bound" if other is not None and other == 0 else None
            case "bound", "Range":
                ends = [constant_of(self.graph, node.inputs[k].node) for k in (0, 2)]
                return "columns" if number == 1 and ends == [0, 1] else None
            case "bound", "Pack":
                return "multiples"
            case "columns", "Less":
                return "mask" if number == 0 and self.is_of_repeats(node.inputs[1]) else None
            case "mask", "Reshape":
                flat = constant_of(self.graph, node.inputs[1].node)
                return "flat" if number == 0 and flat is not None and flat.tolist() == [-1] else None
            case "flat", "Where":
                return "points"
            case "points", "Squeeze":
                return "places"
            case "multiples", "Tile":
                return "tiled" if number == 1 else None
            case "multiples", "Pack":
                return "split" if number == 0 and len(node.inputs) == 2 else None
            case "split", "Transpose":
                return "split" if number == 0 else None
            case "split", "Reshape":
                return "split" if number == 0 else self.role_of_reshaped(node)
            case ("tiled", "Shape") | ("rows", "Shape"):
                return "shape"
            case "tiled", "Reshape":
                return "rows" if number == 0 else None
            case "shape", "Reshape" if number == 1:
                return self.role_of_reshaped(node)
            case "shape", "StridedSlice" if self.is_behind(node):
                return ""
            case "shape", "UnsortedSegmentSum":
                return "sums" if number == 2 else None
            case "shape", op if op in _OF_SHAPES:
                return "shape"
            case (("rows" | "places"), "GatherV2"):
                return "" if number < 2 and not node.attrs["batch_dims"].i else None
            case "places", "Size" | "Shape":
                return ""
            case "places", "UnsortedSegmentSum":
                return "sums" if number == 1 else None
            case "places", "Reshape":
                return "places" if number == 0 else None
            case "sums", "Reshape":
                return self.role_of_reshaped(node) if number == 0 else None
            case "parts", "Sum":
                return ""
        return None

    def role_of_reshaped(self, node: GraphNode) -> str:
        """The role of what a Reshape makes of sums, or of an array of as many elements as its shape says."""
        data, shape = (self.graph.nodes[t.node] for t in node.inputs)
        if data.op == "Tile":
            return "rows"
        return "parts" if shape.op == "Reshape" and self.is_split(shape) else "sums"

    def repeats_of(self, tensor: Tensor) -> Tensor:
        """The vector of repeats, before it is stretched to one for every row."""
        source = self.source(tensor)
        node = self.graph.nodes[source.node]
        return self.source(node.inputs[0]) if node.op == "BroadcastTo" else source

    def is_of_repeats(self, tensor: Tensor) -> bool:
        """Whether it is a column of the repeats."""
        node = self.graph.nodes[self.source(tensor).node]
        if node.op != "ExpandDims":
            return False
        if self.repeats_of(node.inputs[0]) != self.repeats:
            return False
        axis = constant_of(self.graph, node.inputs[1].node)
        return axis is not None and axis.size == 1 and axis.item() in (-1, 1)

    def is_complete(self, node: GraphNode) -> bool:
        """Whether a node has such inputs only as it has in a repeat, and in its gradient."""
        roles = [self.roles.get(t) for t in node.inputs]
        match node.op:
            case "Pack" if "bound" in roles:
                ones = [constant_of(self.graph, t.node) for t in node.inputs]
                return (
                    roles[0] is None
                    and roles[1] == "bound"
                    and all(k == 1 or one is not None and one == 1 for k, one in enumerate(ones))
                )
            case "Tile":
                return self.is_column(node.inputs[0])
            case "Reshape":
                return self.is_complete_reshape(node, roles)
            case "GatherV2":
                axis = constant_of(self.graph, node.inputs[2].node)
                return roles[:2] == ["rows", "places"] and axis is not None and axis == 0
            case "UnsortedSegmentSum":
                return roles == [None, "places", "shape"] and self.is_first_of_rows(node.inputs[2])
            case "Sum":
                axes = folded(self.graph, node.inputs[1])
                return axes is not None and 2 in axes.ravel()
        return True

    def is_complete_reshape(self, node: GraphNode, roles: list[str | None]) -> bool:
        """As `is_complete`. Reshapes keep the order of elements, so that rows and sums need only be cut right once."""
        match roles:
            case ["tiled", _]:
                return self.is_of_rows(node.inputs[1])
            case ["sums", _] | [("mask" | "split" | "places" | "shape"), None] | [None, None]:
                return True
        return False

    def is_column(self, tensor: Tensor) -> bool:
        """Whether the second axis of an array has one element."""
        node, constant = self.graph.nodes[tensor.node], constant_of(self.graph, tensor.node)
        if constant is not None:
            return constant.ndim > 1 and constant.shape[1] == 1
        axis = constant_of(self.graph, node.inputs[1].node) if node.op == "ExpandDims" else None
        return axis is not None and axis.size == 1 and axis.item() == 1

    def is_behind(self, node: GraphNode) -> bool:
        """Whether a slice of a shape is of axes behind that of the bound."""
        shape = self.graph.nodes[self.source(node.inputs[0]).node]
        begin, step = (constant_of(self.graph, node.inputs[k].node) for k in (1, 3))
        if shape.op != "Shape" or begin is None or step is None or step.tolist() != [1]:
            return False
        first = {"rows": 1, "tiled": 2}.get(self.roles.get(shape.inputs[0], ""), 0)
        return first > 0 and begin.tolist()[0] >= first and not node.attrs["begin_mask"].i

    def is_of_rows(self, tensor: Tensor) -> bool:
        """Whether a shape begins with the product of the first two sizes of a tile."""
        join = self.graph.nodes[tensor.node]
        axis = constant_of(self.graph, join.inputs[-1].node) if join.op == "ConcatV2" else None
        parts = [] if axis is None or axis != 0 else [t for t in join.inputs[:-1] if not self.is_empty(t)]
        if not parts:
            return False
        node = self.graph.nodes[parts[0].node]
        while node.op in ("ExpandDims", "Reshape", "Pack", "Identity", "Cast"):
            if node.op == "Pack" and len(node.inputs) > 1:
                return False
            node = self.graph.nodes[node.inputs[0].node]
        return node.op == "Prod" and self.sliced(node.inputs[0]) == (0, 2)

    def is_empty(self, tensor: Tensor) -> bool:
        constant = constant_of(self.graph, tensor.node)
        return self.sliced(tensor) == (0, 0) if constant is None else not constant.size

    def sliced(self, tensor: Tensor) -> tuple[int, int] | None:
        """The first axis and the end of the sizes of a tile that a slice takes; None for another tensor."""
        node = self.graph.nodes[tensor.node]
        if node.op != "StridedSlice":
            return None
        shape = self.graph.nodes[self.source(node.inputs[0]).node]
        begin, end, step = (constant_of(self.graph, t.node) for t in node.inputs[1:])
        others = [node.attrs[f"{m}_mask"].i for m in ("end", "ellipsis", "new_axis", "shrink_axis")]
        if begin is None or end is None or step is None or step.tolist() != [1] or any(others):
            return None
        is_tile = shape.op == "Shape" and self.roles.get(shape.inputs[0]) == "tiled"
        return (0 if node.attrs["begin_mask"].i else int(begin[0]), int(end[0])) if is_tile else None

    def is_first_of_rows(self, tensor: Tensor) -> bool:
        """Whether it is the number of the rows that are gathered from."""
        node = self.graph.nodes[self.source(tensor).node]
        if node.op != "StridedSlice" or not node.attrs["shrink_axis_mask"].i:
            return False
        begin = constant_of(self.graph, node.inputs[1].node)
        shape = self.graph.nodes[self.source(node.inputs[0]).node]
        is_shape = shape.op == "Shape" and self.roles.get(shape.inputs[0]) == "rows"
        return is_shape and begin is not None and begin.tolist() == [0]

    def is_split(self, shape: GraphNode) -> bool:
        """Whether a vector is made of the multiples of a tile and of the dims of what is tiled, one after the other."""
        flat = constant_of(self.graph, shape.inputs[1].node)
        turned = self.graph.nodes[shape.inputs[0].node]
        if flat is None or flat.tolist() != [-1] or turned.op != "Transpose":
            return False
        pair = self.graph.nodes[turned.inputs[0].node]
        return pair.op == "Pack" and not pair.attrs["axis"].i and self.is_like_tiled(pair.inputs[1])

    def is_like_tiled(self, tensor: Tensor) -> bool:
        """Whether these are the dims of an array whose second axis has one element."""
        constant, node = constant_of(self.graph, tensor.node), self.graph.nodes[tensor.node]
        if constant is not None:
            return constant.size > 1 and constant[1] == 1
        return node.op == "Shape" and self.is_column(node.inputs[0])
