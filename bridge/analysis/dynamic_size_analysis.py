"""Which tensors of a graph have a size that depends on data, and which nodes may take them.

Compiled code keeps such an array in memory for its bound, with its size as a value: `Shape` and `Size` of it are
computed at run time. Values that are computed from them may decide the first size of another array, if the op says so
(`sized_by`). They cannot be compile-time constants otherwise. Loops, branches and calls are analyzed, too.

A graph may be cut into stages that are compiled each by itself: a later one is compiled for the sizes that the earlier
ones have found. There every size is known, on whatever axis it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

import numpy as np

from ..graph.function_library import Functions, functions_of_inputs
from ..graph.graph import DT_VARIANT, LOOPS, Graph, GraphNode, Tensor, input_range, input_types, output_types
from ..translate.registry import translations
from .compile_time_constants import constant_inputs, popped_constants
from .list_lengths import has_fixed_length
from .symbolic_size import SHAPE_OPS, constant_of, folded
from .trip_count import identity_source

_SIZE_TYPES = (3, 9)  # DT_INT32, DT_INT64, which hold every size
_STITCHES = frozenset({"DynamicStitch", "ParallelDynamicStitch"})
# Inputs of these decide sizes, though they need not be constants.
_CUT = frozenset({"Range", "Slice", "StridedSlice", "StridedSliceGrad", "Pad", "PadV2", "MirrorPad"})
_COMPUTED = frozenset({"BroadcastGradientArgs"})  # of shapes, but known when compiling whatever the sizes are


@dataclasses.dataclass(frozen=True)
class ArgumentSizes:
    """The arguments of a function, by number, whose sizes depend on data.

    sized: arrays of such a size. sizes: scalars that are such a size. lists: lists of such a length.
    """

    sized: frozenset[int] = frozenset()
    sizes: frozenset[int] = frozenset()
    lists: frozenset[int] = frozenset()


@dataclasses.dataclass
class DataSizes:
    """The tensors of a graph whose sizes depend on data.

    refused: the nodes that take no such array and get one, with that as the reason. sized: such arrays. lists: lists of
    such lengths. size_lists: lists whose elements are such sizes. stages: of every node the stage that it is in; what
    stages before have made has known sizes.
    """

    refused: dict[str, str]
    sized: set[Tensor]
    lists: set[Tensor]
    size_lists: set[Tensor]
    stages: dict[str, int]


_NOTHING = ArgumentSizes()


def data_sizes(
    graph: Graph,
    functions: Functions,
    unclustered: Collection[str],
    arguments: ArgumentSizes = _NOTHING,
    cuts: Container[str] | None = None,
) -> DataSizes:
    """The tensors of a graph whose sizes depend on data.

    unclustered: nodes that TensorFlow runs for other reasons. The sizes of their results are known when a run compiles.
    cuts: the nodes whose readers are in a later stage. So are, then, nodes that would be refused; with None all nodes
    are in one stage.

    What makes a list is in the stage of what reads it, for no list goes from one stage to another.
    """
    floors: dict[str, int] = {}
    for _ in range(_MAX_RAISES):
        walk = _Walk(graph, functions, arguments)
        for node in graph.nodes.values():
            walk.look_at(node, cuts, node.name not in unclustered, floors)
        early = _makers_of_lists_before(graph, walk.stages) if cuts is not None else {}
        if not early:
            break
        floors.update(early)
    return DataSizes(walk.refused, walk.sized, walk.lists, walk.size_lists, walk.stages)


_MAX_RAISES = 16


def _makers_of_lists_before(graph: Graph, stages: Mapping[str, int]) -> dict[str, int]:
    """The nodes that make a list which is read in a later stage than theirs, with that stage."""
    early: dict[str, int] = {}
    for node in graph.nodes.values():
        late = [t.node for t in node.inputs if stages.get(t.node, 0) < stages[node.name]]
        if late and DT_VARIANT in (types := input_types(node)):
            for tensor, type_ in zip(node.inputs, types):
                if type_ == DT_VARIANT and tensor.node in late:
                    early[tensor.node] = max(early.get(tensor.node, 0), stages[node.name])
    return early


class _Walk:
    """Goes through a graph in order.

    measuring: nodes that read a size that depends on data. derived: those, and the nodes whose results are computed
    from such sizes. stages: of every node so far its stage; stage: that of the node that is looked at.
    """

    def __init__(self, graph: Graph, functions: Functions, arguments: ArgumentSizes) -> None:
        self.graph, self.functions = graph, functions
        self.refused: dict[str, str] = {}
        self.sized, self.lists = (
            {Tensor(graph.arguments[k], 0) for k in numbers} for numbers in (arguments.sized, arguments.lists)
        )
        self.size_lists: set[Tensor] = set()
        self.measuring = {graph.arguments[k] for k in arguments.sizes}
        self.derived = set(self.measuring)
        self.stages: dict[str, int] = {}
        self.stage = 0

    def look_at(
        self, node: GraphNode, cuts: Container[str] | None, is_clusterable: bool, floors: Mapping[str, int]
    ) -> None:
        """The next node. Its stage is that of what it reads or waits for, or the next one, and at least its floor."""
        others = [n for n in (*(t.node for t in node.inputs), *node.control) if n in self.stages]
        after = max((self.stages[n] + (cuts is not None and n in cuts) for n in others), default=0)
        self.stage = self.stages[node.name] = max(after, floors.get(node.name, 0))
        if is_clusterable:
            self.visit(node)
            if (
                cuts is not None
                and node.name in self.refused
                and any(self.is_here(t.node) for t in node.inputs)
            ):
                del self.refused[node.name]
                self.stage = self.stages[node.name] = self.stage + 1
                self.visit(node)
        self.note_measured(node)

    def is_here(self, name: str) -> bool:
        """Whether a node is in the stage of the node that is looked at."""
        return self.stages.get(name, self.stage) == self.stage

    def has(self, kind: Container[Tensor], tensor: Tensor) -> bool:
        """Whether a tensor that is made in this stage is of a kind."""
        return tensor in kind and self.is_here(tensor.node)

    def visit(self, node: GraphNode) -> None:
        translation = translations().get(node.op)
        called = functions_of_inputs(node, self.functions)
        sized = [k for k, t in enumerate(node.inputs) if self.has(self.sized, t)]
        takes = translation.takes_sizes if translation is not None else None
        if called:
            self.call(node, called, sized)
        elif translation is not None and (
            not sized or takes is not None and set(sized) <= set(takes(node, self.graph))
        ):
            self.compute(node, sized)
        elif sized:
            source = node.inputs[sized[0]].node
            self.refused[node.name] = (
                f"the size of an input depends on data, of {source} ({self.graph.nodes[source].op})"
            )

    def compute(self, node: GraphNode, sized: Collection[int]) -> None:
        """A node that calls no function."""
        translation = translations()[node.op]
        measured = (
            self.measured(node, constant_inputs(self.graph, node, self.functions)) if self.measuring else []
        )
        if not all(self.may_size(node, k) for k in measured):
            self.refused[node.name] = _NOT_FIRST
            return
        sizes, drops = translation.sizes, translation.drops_sizes
        numbers: Collection[int] = sizes(node, self.graph) if sizes is not None else ()
        if translation.keeps_sizes is not None:
            numbers = {*numbers, *(translation.keeps_sizes if sized else ())}
        elif (sized or measured) and sizes is None:
            numbers = (
                () if drops is not None and drops(node, self.graph, sized) else range(len(output_types(node)))
            )
        if sized and node.op in SHAPE_OPS:
            numbers = ()
            self.measuring.add(node.name)
        if node.op == "TensorListLength" and self.is_open(node.inputs[0]):
            self.measuring.add(node.name)
        if node.op == "TensorListStack" and self.is_open(node.inputs[0]):
            numbers = (0,)
        if node.op == "TensorListPushBack" and self.is_measured([node.inputs[1]]):
            self.size_lists.add(Tensor(node.name, 0))
        variants = {Tensor(node.name, k) for k, type_ in enumerate(output_types(node)) if type_ == DT_VARIANT}
        if variants and (sized or measured or any(self.has(self.lists, t) for t in node.inputs)):
            self.lists |= variants
        self.sized.update({Tensor(node.name, k) for k in numbers} - variants)

    def is_open(self, tensor: Tensor) -> bool:
        """Whether the length of a list depends on data."""
        return self.has(self.lists, tensor) or not has_fixed_length(self.graph, tensor, self.functions)

    def call(self, node: GraphNode, called: Collection[tuple[str, int]], sized: Collection[int]) -> None:
        """A loop, a branch or a call: analyzes its functions for these inputs."""
        numbers = self.measured(node, range(len(node.inputs)))
        constants = set(constant_inputs(self.graph, node, self.functions))
        sizes = {k for k in numbers if _is_scalar_size(self.graph, node.inputs[k], self.measuring)}
        if (
            constants & set(numbers) - sizes
            or sizes & {k for _, shift in called for k in range(shift)} & constants
        ):
            self.refused[node.name] = _NOT_FIRST
            return
        lists = [k for k, t in enumerate(node.inputs) if self.has(self.lists, t)]
        size_lists = {k for k, t in enumerate(node.inputs) if self.has(self.size_lists, t)}
        if node.op in LOOPS and size_lists & popped_constants(node, self.functions):
            self.refused[node.name] = (
                "it needs to know, when compiling, shapes of the loop before that depend on data"
            )
            return
        results: set[int] = set()
        for name, shift in called:
            own_arguments = ArgumentSizes(
                *(frozenset(k - shift for k in ks if k >= shift) for ks in (sized, sizes, lists))
            )
            body = self.functions[name]
            inner = _of_function(name, self.functions, own_arguments)
            if inner.refused:
                node_name, reason = next(iter(inner.refused.items()))
                self.refused[node.name] = f"{node_name} ({body.nodes[node_name].op}) within it: {reason}"
                return
            sized_results = {k for k, t in enumerate(body.results) if t in inner.sized}
            if node.op in LOOPS and name == node.attrs["body"].func.name and sized_results != set(sized):
                self.refused[node.name] = "a loop changes whether the size of an array depends on data"
                return
            results |= sized_results
            for own, inner_lists in ((self.lists, inner.lists), (self.size_lists, inner.size_lists)):
                own.update(
                    Tensor(node.name, k)
                    for k, t in enumerate(body.results)
                    if identity_source(body, t) in inner_lists
                )
        self.sized.update(Tensor(node.name, k) for k in results)

    def measured(self, node: GraphNode, numbers: Iterable[int]) -> list[int]:
        """Those of these inputs, by number, that may decide a shape and are computed from sizes that depend on data."""
        candidates = set(numbers)
        if node.op in _CUT:
            candidates.update(range(node.op != "Range", len(node.inputs) - (node.op == "StridedSliceGrad")))
        return [k for k in sorted(candidates) if k < len(node.inputs) and self.is_measured([node.inputs[k]])]

    def is_measured(self, tensors: Iterable[Tensor]) -> bool:
        """Whether one of these tensors is computed from sizes that depend on data."""
        return any(t.node in self.derived and self.is_here(t.node) for t in tensors)

    def note_measured(self, node: GraphNode) -> None:
        """Adds a node that is computed from sizes that depend on data to `derived`."""
        inputs = _stitched(self.graph, node) if node.op in _STITCHES else node.inputs
        is_derived = node.op not in SHAPE_OPS and node.op not in _COMPUTED and self.is_measured(inputs)
        is_derived = is_derived and not _is_behind_first(self.graph, node)
        if is_derived or node.name in self.measuring:
            self.derived.add(node.name)

    def may_size(self, node: GraphNode, number: int) -> bool:
        """Whether an input is one by which the op lets a size that depends on data decide its result's first size."""
        names = [
            name
            for name in translations()[node.op].sized_by
            if number in range(*input_range(node.definition, name))
        ]
        return bool(names) and self.is_first_alone(node.inputs[number])

    def is_first_alone(self, tensor: Tensor) -> bool:
        """Whether a scalar or a vector is a size that depends on data, with sizes behind it that do not."""
        stack = [tensor]
        while stack:
            following = self.following_first(stack.pop())
            if following is None:
                return False
            stack += following
        return True

    def following_first(self, tensor: Tensor) -> Sequence[Tensor] | None:
        """The tensors that are sizes, others behind them, if this one is; None where it is not."""
        graph, node = self.graph, self.graph.nodes[tensor.node]
        match node.op:
            case op if op in SHAPE_OPS or tensor.node in self.measuring:
                return ()
            case "Identity" | "ExpandDims" | "Squeeze":
                return node.inputs[:1]
            case "Cast":
                return node.inputs[:1] if node.attrs["DstT"].type in _SIZE_TYPES else None
            case "Add" | "AddV2" | "Sub":
                fixed = [constant_of(graph, t.node) is not None for t in node.inputs]
                return (
                    node.inputs[:1]
                    if fixed[1]
                    else node.inputs[1:]
                    if fixed[0] and node.op != "Sub"
                    else None
                )
            case "Reshape":  # of one number to a vector of it
                is_size = graph.nodes[node.inputs[0].node].op == "Size"
                return () if is_size and not self.is_measured(node.inputs[1:]) else None
            case "StridedSlice" | "Slice":
                is_fixed = all(folded(graph, t) is not None for t in node.inputs[1:])
                return () if graph.nodes[node.inputs[0].node].op == "Shape" and is_fixed else None
            case "ConcatV2":
                axis = constant_of(graph, node.inputs[-1].node)
                is_joined = axis is not None and not axis.any() and not self.is_measured(node.inputs[1:])
                return node.inputs[:1] if is_joined else None
            case "DynamicStitch":
                return self.following_stitched(node)
            case "Pack":
                is_joined = not node.attrs["axis"].i and not self.is_measured(node.inputs[1:])
                return node.inputs[:1] if is_joined else None
        return None

    def following_stitched(self, node: GraphNode) -> Sequence[Tensor] | None:
        """As `following_first`, of what a DynamicStitch puts together of shapes."""
        following = []
        for place, (k, n) in _last_places(self.graph, node).items():
            data = node.inputs[len(node.inputs) // 2 + k]
            if self.is_measured([data]):
                if place and not n:
                    return None
                following.append(data)
        return following


_NOT_FIRST = "a shape that depends on data decides its result, not its first size alone"


def _of_function(name: str, functions: Functions, arguments: ArgumentSizes) -> DataSizes:
    """As `data_sizes`, of a function of the library."""
    key = (name, arguments)
    if key not in functions.data_sizes:
        functions.data_sizes[key] = DataSizes(
            {}, set(), set(), set(), {}
        )  # while it is looked at: it may call itself
        functions.data_sizes[key] = data_sizes(functions[name], functions, (), arguments)
    return functions.data_sizes[key]


def _stitched(graph: Graph, node: GraphNode) -> list[Tensor]:
    """The data of a DynamicStitch but for shapes whose first size is not among what it puts together."""
    count = len(node.inputs) // 2
    return [
        data
        for k, data in enumerate(node.inputs[count:])
        if graph.nodes[data.node].op not in SHAPE_OPS or (k, 0) in _last_places(graph, node).values()
    ]


def _last_places(graph: Graph, node: GraphNode) -> dict[int, tuple[int, int]]:
    """For every row that a DynamicStitch makes, which row of which data it is; of indices that are no constants, all
    that may be."""
    last: dict[int, tuple[int, int]] = {}
    for k, tensor in enumerate(node.inputs[: len(node.inputs) // 2]):
        places = folded(graph, tensor)
        if places is None:
            last[-1 - k] = (k, 0)
        else:
            last.update((place, (k, n)) for n, place in enumerate(places.ravel().tolist()))
    return last


def _is_behind_first(graph: Graph, node: GraphNode) -> bool:
    """Whether a node takes sizes from a shape that come after the first one."""
    if node.op not in ("Slice", "StridedSlice") or graph.nodes[node.inputs[0].node].op != "Shape":
        return False
    begin = folded(graph, node.inputs[1])
    masks = node.op == "StridedSlice" and any(
        node.attrs[f"{m}_mask"].i for m in ("begin", "ellipsis", "new_axis")
    )
    steps = folded(graph, node.inputs[3]) if node.op == "StridedSlice" else np.array(1)
    return (
        begin is not None
        and steps is not None
        and bool((begin > 0).all() and (steps > 0).all())
        and begin.size == 1
        and not masks
    )


def _is_scalar_size(graph: Graph, tensor: Tensor, measuring: Collection[str]) -> bool:
    """Whether it is one number of a shape that depends on data."""
    node = graph.nodes[tensor.node]
    while node.op == "Identity" or node.op == "Cast" and node.attrs["DstT"].type in _SIZE_TYPES:
        node = graph.nodes[node.inputs[0].node]
    if node.op == "StridedSlice" and node.attrs["shrink_axis_mask"].i:
        source = graph.nodes[node.inputs[0].node]
        return source.op == "Shape" and all(constant_of(graph, t.node) is not None for t in node.inputs[1:])
    return node.name in measuring and node.op in ("_Arg", "Size", "TensorListLength")
