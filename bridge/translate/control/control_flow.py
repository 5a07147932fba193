"""Functional control flow: calls, While, If, Case. Loops and branches become computations of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.module import Computation
from ....compiler.ir.shape import Shape
from ...analysis.compile_time_constants import handed_on, is_extended
from ...analysis.trip_count import Amount, Bound, bounds, extended, hands_on, only_bounds, pushed, step_of
from ...graph.graph import Graph, Tensor
from ..array.value_ranges import Range, is_integer, note, range_of
from ..node import Node
from ..registry import every_input, translates
from ..translator import Translator
from ..values import Stack, TensorArray, TensorList, Value, Variable, flatten, rebuild
from .optionals import completed
from .tensor_array import make_gradients, zeros_for
from .tensor_list import longer, made_like


@translates("PartitionedCall", "StatefulPartitionedCall", stateful=True, takes_sizes=every_input)
def call(node: Node) -> Sequence[Value]:
    return node.translator.call(node.function("f"), node.inputs)


@translates("SymbolicGradient", takes_sizes=every_input)
def symbolic_gradient(node: Node) -> Sequence[Value]:
    return node.translator.call(node.translator.functions.gradient(node.function("f")), node.inputs)


@translates("While", "StatelessWhile", stateful=True, takes_sizes=every_input)
def while_(node: Node) -> Sequence[Value]:
    """The state is what changes; inputs that the body hands on and whose values are known stay constants."""
    functions = node.translator.functions
    condition, body = functions[node.function("cond")], functions[node.function("body")]
    inputs = list(node.inputs)
    fixed = {
        k: v
        for k, v in enumerate(inputs)
        if isinstance(v, Operand) and hands_on(body, k) and node.translator.constant_value(v) is not None
    }
    unbounded = list(inputs)
    make_gradients(node, body, inputs)
    grown = [k for k in pushed(body) if isinstance(v := inputs[k], TensorList | Stack) and v.capacity < 0]
    trips = _trips(node, condition, body) if grown else 0
    lengths = _extend(node, condition, body, inputs)
    inputs = _with_element_shapes(node, body, inputs, fixed, grown, trips)
    checked = grown if trips is None else []
    moving = [k for k in range(len(inputs)) if k not in fixed]
    state = [o for k in moving for o in flatten(inputs[k])]
    shape = Shape.tuple(node.b.get_shape(o) for o in state)
    same = {
        k: range_of(node.translator, v) for k, v in enumerate(inputs) if is_integer(v) and hands_on(body, k)
    }
    counted = _counted(node, condition, body, inputs)
    test, _ = _computation(
        node.translator, condition, inputs, fixed, shape, f"{node.name}.condition", same, is_test=True
    )
    step, after = _computation(
        node.translator, body, inputs, fixed, shape, f"{node.name}.body", same | counted, checked=checked
    )
    result = node.b.while_(test, step, node.b.tuple(state))
    outputs = _unpack(node.translator, result, inputs, fixed)
    for k in grown:
        outputs[k] = dataclasses.replace(outputs[k], is_full=True)  # type: ignore[type-var]
        stack = unbounded[k]
        if isinstance(stack, Stack):
            stack.capacity, stack.is_full, inputs[k] = inputs[k].capacity, True, stack  # type: ignore[union-attr]
    for k, count in lengths.items():
        length = node.b.constant(count, ElementType.S32)
        outputs[k] = dataclasses.replace(outputs[k], size=length, beyond="leave")  # type: ignore[type-var]
    for k, end in enumerate(after):
        if isinstance(end, Stack | TensorList):
            outputs[k] = _note_pushed(node, inputs[k], outputs[k], end)
        if isinstance(end, TensorList) and end.varies and k not in lengths:
            outputs[k] = dataclasses.replace(outputs[k], varies=True)  # type: ignore[type-var]
        elif isinstance(end, TensorList) and _is_full_size(node, inputs[k]):
            outputs[k] = dataclasses.replace(outputs[k], size=inputs[k].size)  # type: ignore[type-var, union-attr]
    for old, new, end in zip(inputs, outputs, after):
        if (
            isinstance(old, Variable)
            and isinstance(new, Variable)
            and isinstance(end, Variable)
            and end.written
        ):
            old.take(new)
    return [i if isinstance(i, Variable) else o for i, o in zip(inputs, outputs)]


def _is_full_size(node: Node, values: Value) -> bool:
    """Whether a list is known to be as long as it has room, so that a loop that does not make it vary leaves it so."""
    assert isinstance(values, TensorList)
    size = node.translator.constant_value(values.size)
    return not values.varies and size is not None and int(size) == values.capacity


def _note_pushed(node: Node, before: Value, output: Value, end: Stack | TensorList) -> Value:
    """What comes out of a loop for a stack or a list, with what the loop pushed to it taken notice of.

    Raises: UnsupportedError  it may have popped it, and was translated as if it popped what was there before.
    """
    assert isinstance(before, Stack | TensorList) and isinstance(output, Stack | TensorList)
    if (
        before.known is not None
        and not before.differs
        and (end.differs or not np.array_equal(end.known, before.known))  # type: ignore[arg-type]
    ):
        raise UnsupportedError(f"{node.op}: a loop pushes other elements to a stack than were there before")
    return dataclasses.replace(output, known=end.known, differs=end.differs)


def _trips(node: Node, condition: Graph, body: Graph) -> int | None:
    """How often the loop runs at most; None where that is not known when compiling.

    Raises: UnsupportedError  it is not, and lists have no bounds that may turn out too small.
    """
    trips = _trips_of(node, bounds(condition, body), at_most=True)
    if not trips and not node.translator.growth:
        raise UnsupportedError(
            f"{node.op}: a list grows in a loop of which no bound is known; give it maximum_iterations"
        )
    return min(trips, default=None)


def _trips_of(node: Node, found: Sequence[Bound], at_most: bool = False) -> list[int]:
    """How often a loop runs by each of its bounds, of those whose values are known when compiling; with `at_most` also
    of those whose greatest value is."""
    trips = []
    for bound in found:
        start, step, limit = (
            _known(node, a.value) if a.is_variable else a.value
            for a in (Amount(bound.counter, True), bound.step, bound.limit)
        )
        if limit is None and at_most and bound.sign > 0:
            largest = range_of(node.translator, node[bound.limit.value])[1]
            limit = largest if largest <= _MOST_TRIPS else None
        if start is not None and step is not None and limit is not None:
            most = bound.trips(int(start), int(step), int(limit))
            trips += [most] if most is not None else []
    return trips


def _extend(node: Node, condition: Graph, body: Graph, inputs: list[Value]) -> dict[int, int]:
    """Gives lists that the loop makes longer room for what it writes; returns their lengths after the loop."""
    lengths = {}
    trips = _trips_of(node, only_bounds(condition, body))
    for k, given in enumerate(inputs):
        if (
            not isinstance(given, TensorList)
            or given.capacity < 0
            or not is_extended(body, Tensor(body.arguments[k], 0), node.translator.functions)
        ):
            continue
        counted, size = extended(body).get(k), node.translator.constant_value(given.size)
        if counted is not None and trips and size is not None:
            start = _known(node, counted.counter)
            step = _known(node, counted.step.value) if counted.step.is_variable else counted.step.value
            if start is not None and step is not None and start >= 0 and step >= 0:
                lengths[k] = max(int(size), start + (min(trips) - 1) * step + 1 if min(trips) else 0)
                inputs[k] = dataclasses.replace(longer(node.b, given, lengths[k]), beyond="")
                continue
        more = (
            min([_MOST_ROOM, *_trips_of(node, bounds(condition, body), at_most=True)])
            * node.translator.growth
        )
        inputs[k] = dataclasses.replace(
            longer(node.b, given, given.capacity + more), varies=True, beyond="grow"
        )
    return lengths


def _counted(node: Node, condition: Graph, body: Graph, inputs: Sequence[Value]) -> dict[int, Range]:
    """What the counters of a loop can be within its body, by number."""
    trips = min(_trips_of(node, bounds(condition, body), at_most=True), default=0)
    found = {}
    for k, value in enumerate(inputs):
        step, start = step_of(body, k), _known(node, k) if trips and is_integer(value, rank=0) else None
        added = (
            None
            if start is None or step is None
            else _known(node, step.value)
            if step.is_variable
            else step.value
        )
        if start is not None and added is not None:
            found[k] = min(start, start + (trips - 1) * added), max(start, start + (trips - 1) * added)
    return found


def _known(node: Node, number: int) -> int | None:
    value = node.constant_or_none(number)
    return None if value is None else int(value)


def _room(node: Node, elements: Sequence[Shape]) -> int:
    """A bound for lists that grow together, given an element of each: it is enough for short loops over little data."""
    total = sum(leaf.bytes for element in elements for leaf in element.leaves())
    room = min(max(_FIRST_BYTES // max(total, 1), _LEAST_ROOM), _MOST_ROOM) * node.translator.growth
    if room * total > _MOST_BYTES:
        raise UnsupportedError(
            f"{node.op}: lists of {room} elements take {room * total} bytes, for the loop has no "
            "known bound; give it maximum_iterations"
        )
    return room


_MOST_TRIPS = 1024  # by a limit that depends on data: further ones have room made as they go
_LEAST_ROOM, _MOST_ROOM = 8, 64
_FIRST_BYTES, _MOST_BYTES = 4 << 20, 1 << 30


def _with_element_shapes(
    node: Node,
    body: Graph,
    inputs: list[Value],
    fixed: dict[int, Operand],
    grown: Sequence[int],
    trips: int | None,
) -> list[Value]:
    """Gives lists whose element shape is not known yet the one that the body writes: found by translating it once.

    grown: those to which the loop appends, as often as it runs; trips: how often at most, if that is known.
    """
    unknown = [
        k
        for k, v in enumerate(inputs)
        if (isinstance(v, TensorList) and not v.is_made)
        or (isinstance(v, TensorArray | Stack) and v.value is None)
    ]
    if not unknown:
        return inputs
    for k in grown:
        inputs[k] = dataclasses.replace(inputs[k], capacity=1 if trips is None else trips)  # type: ignore[type-var]
    trial = node.translator.child(f"{node.name}.trial")
    arguments: list[Value] = []
    number = 0
    for k, value in enumerate(inputs):
        if k in fixed:
            arguments.append(trial.builder.constant(node.translator.constant_value(fixed[k])))
        elif k in unknown and isinstance(value, TensorArray):
            arguments.append(dataclasses.replace(value, gradients={}))
        elif k in unknown:
            size = trial.builder.constant(0, ElementType.S32)
            arguments.append(dataclasses.replace(value, size=size))  # type: ignore[type-var]
        else:
            parts = [
                trial.builder.parameter(number + i, node.b.get_shape(o), f"p{number + i}")
                for i, o in enumerate(flatten(value))
            ]
            number += len(parts)
            arguments.append(rebuild(value, parts))
    results = trial.graph(body, arguments)
    elements: dict[int, list[Shape]] = {}
    for k in unknown:
        made = results[k] if isinstance(inputs[k], TensorList) else arguments[k]
        if isinstance(made, TensorList) and made.is_made:
            arrays: Sequence[Operand] = made.arrays
        elif isinstance(made, Variable):
            arrays = [] if made.value is None else [made.value]
        else:
            raise UnsupportedError(
                f"{node.op}: the element shape of a tensor list is not known before the loop, nor "
                "written in its body"
            )
        shapes = map(trial.builder.get_shape, arrays)
        elements[k] = [Shape(s.element_type, s.dims[1:]) for s in shapes]
    if trips is None:
        room = _room(node, [s for k in grown for s in elements[k]])
        for k in grown:
            inputs[k] = dataclasses.replace(inputs[k], capacity=room)  # type: ignore[type-var]
    found = list(inputs)
    for k in unknown:
        made, given = results[k], inputs[k]
        if isinstance(given, TensorArray | Stack):
            for shape in elements[k]:
                given.value = zeros_for(node.b, given, Shape(shape.element_type, (1, *shape.dims)))
        elif isinstance(given, TensorList) and isinstance(made, TensorList):
            like = made.element or node.b.constant(0)
            found[k] = made_like(node.b, given, like, elements[k])
    return found


def _computation(
    outer: Translator,
    graph: Graph,
    inputs: Sequence[Value],
    fixed: dict[int, Operand],
    shape: Shape,
    name: str,
    ranges: Mapping[int, Range],
    is_test: bool = False,
    checked: Sequence[int] = (),
) -> tuple[Computation, list[Value]]:
    """A function as a computation of the state tuple; also returns its results (the arguments, for variables).

    ranges: those of arguments that are integers, where more is known than their type.
    checked: arguments that are lists to which it appends one element, whose bounds may not suffice.
    """
    inner = outer.child(name)
    parameter = inner.builder.parameter(0, shape, "state")
    arguments = _unpack(inner, parameter, inputs, fixed, outer)
    for k, found in ranges.items():
        note(inner, arguments[k], found)
    known = {k: outer.constant_value(inputs[k].size) for k in checked}  # type: ignore[union-attr]
    alike = next((k for k, size in known.items() if size is not None and not size.any()), None)
    for k in checked:
        if k == alike or known[k] is None or known[k].any():  # type: ignore[union-attr]
            size, capacity = arguments[k].size, inputs[k].capacity  # type: ignore[union-attr]
            full = inner.builder.ge(size, inner.builder.constant(capacity, ElementType.S32))
            inner.builder.grow_if(full, f"{name}: a list outgrows its bound of {capacity} elements")
    results = inner.graph(graph, arguments)
    if is_test:
        return inner.builder.build(_as_pred(inner, results[0])), []
    ends = [a if isinstance(a, Variable) else r for a, r in zip(arguments, results)]
    outputs = [o for k, value in enumerate(ends) if k not in fixed for o in flatten(value)]
    for k, (operand, wanted) in enumerate(zip(outputs, shape.tuple_shapes, strict=True)):
        got = inner.builder.get_shape(operand)
        if got != wanted:
            raise UnsupportedError(f"the loop changes part {k} of its state from {wanted} to {got}")
    return inner.builder.build(inner.builder.tuple(outputs)), ends


def _unpack(
    translator: Translator,
    packed: Operand,
    like: Sequence[Value],
    fixed: dict[int, Operand],
    outer: Translator | None = None,
) -> list[Value]:
    """The values of a state tuple. Fixed values are constants, made anew for the builder of a loop or branch."""
    b = translator.builder
    values: list[Value] = []
    at = 0
    for k, value in enumerate(like):
        if k in fixed:
            values.append(fixed[k] if outer is None else b.constant(outer.constant_value(fixed[k])))
            continue
        count = len(flatten(value))
        values.append(rebuild(value, [b.get_tuple_element(packed, at + i) for i in range(count)]))
        at += count
    return values


def _as_pred(translator: Translator, value: Value) -> Operand:
    if not isinstance(value, Operand):
        raise UnsupportedError("a condition that is no array")
    b = translator.builder
    shape = b.get_shape(value)
    if shape.rank:
        raise UnsupportedError(f"a condition of shape {shape}; it must be a scalar")
    if shape.element_type is ElementType.PRED:
        return value
    return b.ne(value, b.constant(0, shape.element_type))


@translates("If", "StatelessIf", stateful=True, takes_sizes=every_input)
def if_(node: Node) -> Sequence[Value]:
    names = [node.function("then_branch"), node.function("else_branch")]
    known = node.constant_or_none(0)
    if known is not None:
        return node.translator.call(names[0 if known.all() else 1], node.inputs[1:])
    return _branches(node, _as_pred(node.translator, node[0]), names)


@translates("Case", "StatelessCase", stateful=True, takes_sizes=every_input)
def case(node: Node) -> Sequence[Value]:
    names = [f.name for f in node.definition.attr["branches"].list.func]
    known = node.constant_or_none(0)
    if known is not None:
        chosen = int(known) if 0 <= int(known) < len(names) else len(names) - 1
        return node.translator.call(names[chosen], node.inputs[1:])
    return _branches(node, node[0], names)


def _branches(node: Node, selector: Operand, names: Sequence[str]) -> Sequence[Value]:
    """A conditional over functions of the same arguments; variables that any branch writes are results of all."""
    inputs = node.inputs[1:]
    known = {
        k: v
        for k, v in enumerate(inputs)
        if isinstance(v, Operand) and node.translator.constant_value(v) is not None
    }
    state = [o for k, value in enumerate(inputs) if k not in known for o in flatten(value)]
    shape = Shape.tuple(node.b.get_shape(o) for o in state)
    translated = []
    for name in names:
        inner = node.translator.child(name)
        arguments = _unpack(
            inner, inner.builder.parameter(0, shape, "arguments"), inputs, known, node.translator
        )
        for outside, inside in zip(inputs, arguments):
            if is_integer(outside):
                note(inner, inside, range_of(node.translator, outside))
        translated.append((inner, arguments, inner.graph(node.translator.functions[name], arguments)))
    for inner, _, results in translated:
        for other, _, others in translated:
            results[:] = [
                completed(inner.builder, r, o, other.builder) for r, o in zip(results, others, strict=True)
            ]
    written = [
        k
        for k, value in enumerate(inputs)
        if isinstance(value, Variable) and any(a[k].written for _, a, _ in translated)  # type: ignore[union-attr]
    ]
    computations, like = [], list[Value]()
    for inner, arguments, results in translated:
        like = [*results, *(arguments[k] for k in written)]
        computations.append(inner.builder.build(inner.builder.tuple([o for v in like for o in flatten(v)])))
    packed = node.b.tuple(state)
    if len(names) == 2 and node.b.get_shape(selector).element_type is ElementType.PRED:
        result = node.b.conditional(selector, packed, computations[0], packed, computations[1])
    else:
        result = node.b.conditional(selector, computations, [packed] * len(computations))
    values = _unpack(node.translator, result, like, {})
    for k, value in zip(written, values[len(values) - len(written) :]):
        if isinstance(value, Stack):
            value.differs = True  # the branches may push different elements
        node.variable(k + 1).take(value)  # type: ignore[arg-type]
    for at, number in handed_on(node.graph_node, node.translator.functions).items():
        if isinstance(node.inputs[number], Operand):
            values[at] = node.inputs[number]
    return values[: len(values) - len(written)] if written else values
