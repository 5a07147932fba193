"""Functional control flow: calls, While, If, Case. Loops and branches become computations of their own."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.module import Computation
from ....compiler.ir.shape import Shape
from ....runtime.sizes import as_size
from ...analysis.compile_time_constants import forwarded_inputs
from ...analysis.list_lengths import is_extended
from ...analysis.trip_count import (
    Amount,
    Bound,
    appended_lists,
    bounds,
    extended_lists,
    is_forwarded,
    step_of,
    sufficient_bounds,
)
from ...graph.graph import Graph, Tensor
from ..context import TranslationContext, Trial
from ..node import Node
from ..operands.value_ranges import Range, is_integer, note, noted_range, range_of
from ..registry import every_input, translates
from ..translator import translate_call, translate_graph
from ..values import (
    Stack,
    TensorArray,
    TensorList,
    UnknownElementsError,
    Value,
    Variable,
    flatten,
    rebuild,
)
from .optionals import completed
from .tensor_array import make_gradients, zeros_for
from .tensor_list import allocate_like, longer


@translates("PartitionedCall", "StatefulPartitionedCall", stateful=True, takes_sizes=every_input)
def call(node: Node) -> Sequence[Value]:
    return translate_call(node.context, node.function("f"), node.inputs)


@translates("SymbolicGradient", takes_sizes=every_input)
def symbolic_gradient(node: Node) -> Sequence[Value]:
    return translate_call(node.context, node.context.functions.gradient(node.function("f")), node.inputs)


@translates("While", "StatelessWhile", stateful=True, takes_sizes=every_input)
def while_(node: Node) -> Sequence[Value]:
    """A loop. In a trial, one that reads lists of unknown elements is taken not to run: they are written later."""
    try:
        return _loop(node)
    except UnknownElementsError:
        if node.context.trial is None:
            raise
        node.context.trial.is_partial = True
        return node.inputs


def _loop(node: Node) -> Sequence[Value]:
    """The loop's state has the inputs that change; inputs that the body forwards stay constants if their values are
    known."""
    functions = node.context.functions
    condition, body = functions[node.function("cond")], functions[node.function("body")]
    inputs = list(node.inputs)
    fixed = {
        k: v
        for k, v in enumerate(inputs)
        if isinstance(v, Operand) and is_forwarded(body, k) and node.context.constant_value(v) is not None
    }
    unbounded = list(inputs)
    make_gradients(node, body, inputs)
    appended = [
        k for k in appended_lists(body) if isinstance(v := inputs[k], TensorList | Stack) and v.capacity < 0
    ]
    trips = _trips(node, condition, body) if appended else 0
    lengths = _extend(node, condition, body, inputs)
    inputs = _with_element_shapes(node, body, inputs, fixed, appended, trips)
    checked = appended if trips is None else []
    state = [o for k, value in enumerate(inputs) if k not in fixed for o in flatten(value)]
    shape = Shape.tuple(node.b.get_shape(o) for o in state)
    same = {
        k: noted_range(node.context, v)
        for k, v in enumerate(inputs)
        if is_integer(v) and is_forwarded(body, k)
    }
    counted = _counted(node, condition, body, inputs)
    test, _ = _computation(
        node.context, condition, inputs, fixed, shape, f"{node.name}.condition", same, is_test=True
    )
    step, after = _computation(
        node.context, body, inputs, fixed, shape, f"{node.name}.body", same | counted, checked=checked
    )
    result = node.b.while_(test, step, node.b.tuple(state))
    outputs = _unpack(node.context, result, inputs, fixed)
    for k in appended:
        outputs[k] = _with(outputs[k], is_full=True)
        stack = unbounded[k]
        if isinstance(stack, Stack):
            stack.capacity, stack.is_full, inputs[k] = _list_or_stack(inputs[k]).capacity, True, stack
    for k, end in enumerate(after):
        outputs[k] = _list_after_loop(node, inputs[k], outputs[k], end, lengths.get(k))
    for old, new, end in zip(inputs, outputs, after):
        if (
            isinstance(old, Variable)
            and isinstance(new, Variable)
            and isinstance(end, Variable)
            and end.written
        ):
            old.take(new)
    return [i if isinstance(i, Variable) else o for i, o in zip(inputs, outputs)]


def _with(value: Value, **fields: Any) -> Value:
    """A list, a stack or an array with other fields."""
    assert isinstance(value, TensorList | Variable)
    return dataclasses.replace(value, **fields)


def _list_or_stack(value: Value) -> TensorList | Stack:
    assert isinstance(value, TensorList | Stack)
    return value


def _list_after_loop(node: Node, before: Value, output: Value, end: Value, length: int | None) -> Value:
    """A list or stack after a loop, given the one before and the one at the body's end; other values are unchanged.

    length: the elements that it has after the loop, where these are known.
    """
    if length is not None:
        size = node.b.constant(length, ElementType.S32)
        output = _with(output, size=size, beyond="bail_out")
    if isinstance(end, Stack | TensorList):
        output = _note_pushed(node, before, output, end)
    if isinstance(end, TensorList) and end.varies and length is None:
        return _with(output, varies=True)
    if isinstance(end, TensorList) and isinstance(before, TensorList) and _is_full_size(node, before):
        return _with(output, size=before.size)
    return output


def _is_full_size(node: Node, values: TensorList) -> bool:
    """Whether the size of a list is its capacity; it then is after a loop that does not make the size vary."""
    size = node.context.constant_value(values.size)
    return not values.varies and size is not None and as_size(size[()]) == values.capacity


def _note_pushed(node: Node, before: Value, output: Value, end: Stack | TensorList) -> Value:
    """The stack or list after a loop, with the value that all its elements have, if it is known.

    Raises: UnsupportedError  the loop pushes other elements than before, and was translated for the earlier ones.
    """
    assert isinstance(before, Stack | TensorList) and isinstance(output, Stack | TensorList)
    if (
        before.constant_element is not None
        and not before.differs
        and (
            end.differs
            or end.constant_element is None
            or not np.array_equal(end.constant_element, before.constant_element)
        )
    ):
        raise UnsupportedError(f"{node.op}: a loop pushes other elements to a stack than were there before")
    return dataclasses.replace(output, constant_element=end.constant_element, differs=end.differs)


def _trips(node: Node, condition: Graph, body: Graph) -> int | None:
    """How often the loop runs at most; None where that is not known when compiling.

    Raises: UnsupportedError  it is not, and lists have no bounds that may turn out too small.
    """
    trips = _trips_of(node, bounds(condition, body), is_limit=True)
    if not trips and not node.context.capacity_factor:
        raise UnsupportedError(
            f"{node.op}: a list grows in a loop of which no bound is known; give it maximum_iterations"
        )
    return min(trips, default=None)


def _trips_of(node: Node, bounds: Sequence[Bound], is_limit: bool = False) -> list[int]:
    """How often a loop runs by each of its bounds, of those whose values are known when compiling; with `at_most` also
    of those whose greatest value is."""
    trips = []
    for bound in bounds:
        start, step, limit = (
            _constant_number(node, a.value) if a.is_variable else a.value
            for a in (Amount(bound.counter, True), bound.step, bound.limit)
        )
        if limit is None and is_limit and bound.sign > 0:
            largest = range_of(node.context, node[bound.limit.value])[1]
            limit = largest if largest <= _MAX_TRIPS else None
        if start is not None and step is not None and limit is not None:
            count = bound.trips(start, step, limit)
            trips += [count] if count is not None else []
    return trips


def _extend(node: Node, condition: Graph, body: Graph, inputs: list[Value]) -> dict[int, int]:
    """Extends the lists that a loop appends to by its trips; returns their lengths after the loop."""
    lengths = {}
    trips = _trips_of(node, sufficient_bounds(condition, body))
    for k, value in enumerate(inputs):
        if (
            not isinstance(value, TensorList)
            or value.capacity < 0
            or not is_extended(body, Tensor(body.arguments[k], 0), node.context.functions)
        ):
            continue
        counted, size = extended_lists(body).get(k), node.context.constant_value(value.size)
        if counted is not None and trips and size is not None:
            start = _constant_number(node, counted.counter)
            step = (
                _constant_number(node, counted.step.value) if counted.step.is_variable else counted.step.value
            )
            if start is not None and step is not None and start >= 0 and step >= 0:
                lengths[k] = max(as_size(size[()]), start + (min(trips) - 1) * step + 1 if min(trips) else 0)
                inputs[k] = dataclasses.replace(longer(node.b, value, lengths[k]), beyond="")
                continue
        more = (
            min([_MAX_CAPACITY, *_trips_of(node, bounds(condition, body), is_limit=True)])
            * node.context.capacity_factor
        )
        inputs[k] = dataclasses.replace(
            longer(node.b, value, value.capacity + more), varies=True, beyond="reallocate"
        )
    return lengths


def _counted(node: Node, condition: Graph, body: Graph, inputs: Sequence[Value]) -> dict[int, Range]:
    """What the counters of a loop can be within its body, by number."""
    trips = min(_trips_of(node, bounds(condition, body), is_limit=True), default=0)
    counted = {}
    for k, value in enumerate(inputs):
        step, start = (
            step_of(body, k),
            _constant_number(node, k) if trips and is_integer(value, rank=0) else None,
        )
        added = (
            None
            if start is None or step is None
            else _constant_number(node, step.value)
            if step.is_variable
            else step.value
        )
        if start is not None and added is not None:
            counted[k] = min(start, start + (trips - 1) * added), max(start, start + (trips - 1) * added)
    return counted


def _constant_number(node: Node, number: int) -> int | None:
    value = node.constant_or_none(number)
    return None if value is None else as_size(value[()])


def _capacity(node: Node, elements: Sequence[Shape]) -> int:
    """The first capacity of lists to which a loop appends these elements: enough for short loops over little data."""
    total = sum(leaf.bytes for element in elements for leaf in element.leaves())
    initial = min(max(_INITIAL_BYTES // max(total, 1), _MIN_CAPACITY), _MAX_CAPACITY)
    capacity = initial * node.context.capacity_factor
    if capacity * total > _MAX_BYTES:
        raise UnsupportedError(
            f"{node.op}: lists of {capacity} elements take {capacity * total} bytes, for the loop has no "
            "known bound; give it maximum_iterations"
        )
    return capacity


_MAX_TRIPS = 1024  # by a limit that depends on data: lists of longer loops are reallocated
_MIN_CAPACITY, _MAX_CAPACITY = 8, 64
_INITIAL_BYTES, _MAX_BYTES = 4 << 20, 1 << 30


def _with_element_shapes(
    node: Node,
    body: Graph,
    inputs: list[Value],
    fixed: dict[int, Operand],
    appended: Sequence[int],
    trips: int | None,
) -> list[Value]:
    """Allocates lists of unknown element shape, with the shape that the body writes: it is translated for that.

    appended: lists to which every trip of the loop appends an element. trips: their largest number, if it is known.
    """
    unknown = [
        k
        for k, v in enumerate(inputs)
        if (isinstance(v, TensorList) and not v.has_buffers)
        or (isinstance(v, TensorArray | Stack) and v.value is None)
    ]
    if not unknown:
        return inputs
    for k in appended:
        inputs[k] = _with(inputs[k], capacity=1 if trips is None else trips)
    elements, results = _elements_written(node, body, inputs, fixed, unknown)
    if trips is None:
        capacity = _capacity(node, [s for k in appended for s in elements[k]])
        for k in appended:
            inputs[k] = _with(inputs[k], capacity=capacity)
    return [
        _allocate(node.b, value, results[k], elements[k]) if k in elements else value
        for k, value in enumerate(inputs)
    ]


def _elements_written(
    node: Node, body: Graph, inputs: list[Value], fixed: dict[int, Operand], unknown: Sequence[int]
) -> tuple[dict[int, list[Shape]], list[Value]]:
    """The shapes of what an element of each unknown list consists of, and the results of the body in the last trial.

    Parts of the body that read such a list, as branches that do not run in the first trip, are left out of a trial. The
    arrays that the others write show the elements for the next one.

    Raises: UnknownElementsError  the body does not show them all.
    """
    elements: dict[int, list[Shape]] = {}
    while True:
        progress = Trial()
        trial = node.context.child(f"{node.name}.trial", progress)
        arguments = _trial_arguments(node, trial, inputs, fixed, unknown, elements)
        results = translate_graph(trial, body, arguments)
        ends = {k: results[k] if isinstance(inputs[k], TensorList) else arguments[k] for k in unknown}
        if not progress.is_partial:
            return {k: _element_shapes(node, trial, end) for k, end in ends.items()}, results
        shown = {k: end for k, end in ends.items() if k not in elements and _has_array(end)}
        if not shown:
            raise UnknownElementsError(f"{node.op}: a list is read before its element shape is known")
        elements.update((k, _element_shapes(node, trial, end)) for k, end in shown.items())


def _has_array(value: Value) -> bool:
    """Whether a list, an array or a stack has room for elements, and these are arrays."""
    content = value.buffer if isinstance(value, TensorList) else isinstance(value, Variable) and value.value
    return isinstance(content, Operand)


def _constant(b: ComputationBuilder, context: TranslationContext, value: Operand) -> Operand:
    """The constant, of one computation, in another one."""
    return b.constant(context.constant_value(value), context.builder.get_shape(value).element_type)


def _trial_arguments(
    node: Node,
    trial: TranslationContext,
    inputs: Sequence[Value],
    fixed: dict[int, Operand],
    unknown: Sequence[int],
    elements: Mapping[int, Sequence[Shape]],
) -> list[Value]:
    """The arguments of a body that is translated to learn element shapes: parameters for all that have a shape.

    elements: those that earlier trials have shown.
    """
    arguments: list[Value] = []
    number = 0
    for k, value in enumerate(inputs):
        if k in fixed:
            arguments.append(_constant(trial.builder, node.context, fixed[k]))
        elif k in unknown:
            if isinstance(value, TensorArray):
                argument: Value = dataclasses.replace(value, gradients={})
            else:
                argument = _with(value, size=trial.builder.constant(0, ElementType.S32))
            if k in elements:
                argument = _allocate(trial.builder, argument, argument, elements[k])
            arguments.append(argument)
        else:
            parts = [
                trial.builder.parameter(number + i, node.b.get_shape(o), f"p{number + i}")
                for i, o in enumerate(flatten(value))
            ]
            number += len(parts)
            arguments.append(rebuild(value, parts))
    return arguments


def _element_shapes(node: Node, trial: TranslationContext, value: Value) -> list[Shape]:
    """The shapes of the arrays that an element of a list consists of.

    Raises: UnknownElementsError  the list has no element shape.
    """
    if isinstance(value, TensorList) and value.has_buffers:
        arrays: Sequence[Operand] = value.arrays
    elif isinstance(value, Variable):
        arrays = [] if value.value is None else [value.value]
    else:
        raise UnknownElementsError(
            f"{node.op}: the element shape of a tensor list is not known before the loop, nor "
            "written in its body"
        )
    return [Shape(s.element_type, s.dims[1:]) for s in map(trial.builder.get_shape, arrays)]


def _allocate(b: ComputationBuilder, value: Value, result: Value, elements: Sequence[Shape]) -> Value:
    """A list with memory for elements of these shapes; an array or a stack gets its memory in place."""
    if isinstance(value, TensorArray | Stack):
        for shape in elements:
            value.value = zeros_for(b, value, Shape(shape.element_type, (1, *shape.dims)))
    elif isinstance(value, TensorList) and isinstance(result, TensorList):
        return allocate_like(b, value, result.element or b.constant(0), elements)
    return value


def _computation(
    outer: TranslationContext,
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
    for k, span in ranges.items():
        note(inner, arguments[k], span)
    _check_capacities(inner, outer, inputs, arguments, checked)
    results = translate_graph(inner, graph, arguments)
    if is_test:
        return inner.builder.build(_as_pred(inner, results[0])), []
    ends = [a if isinstance(a, Variable) else r for a, r in zip(arguments, results)]
    outputs = [o for k, value in enumerate(ends) if k not in fixed for o in flatten(value)]
    for k, (operand, expected) in enumerate(zip(outputs, shape.tuple_shapes, strict=True)):
        actual = inner.builder.get_shape(operand)
        if actual != expected:
            raise UnsupportedError(f"the loop changes part {k} of its state from {expected} to {actual}")
    return inner.builder.build(inner.builder.tuple(outputs)), ends


def _check_capacities(
    inner: TranslationContext,
    outer: TranslationContext,
    inputs: Sequence[Value],
    arguments: Sequence[Value],
    checked: Sequence[int],
) -> None:
    """Ends the run where a list is full. Of the lists that start empty, and so have one size, one is enough."""
    sizes: dict[int, np.ndarray | None] = {}
    for k in checked:
        size = _list_or_stack(inputs[k]).size
        sizes[k] = None if size is None else outer.constant_value(size)
    empty = [k for k, size in sizes.items() if size is not None and not size.any()]
    for k in checked:
        if k in empty[1:]:
            continue
        size, capacity = _list_or_stack(arguments[k]).size, _list_or_stack(inputs[k]).capacity
        assert size is not None
        full = inner.builder.ge(size, inner.builder.constant(capacity, ElementType.S32))
        inner.builder.overflow_if(
            full, f"{inner.builder.name}: a list outgrows its bound of {capacity} elements"
        )


def _unpack(
    context: TranslationContext,
    packed: Operand,
    like: Sequence[Value],
    fixed: dict[int, Operand],
    outer: TranslationContext | None = None,
) -> list[Value]:
    """The values of a state tuple. Fixed values are constants, made anew for the builder of a loop or branch."""
    b = context.builder
    values: list[Value] = []
    at = 0
    for k, value in enumerate(like):
        if k in fixed:
            values.append(fixed[k] if outer is None else _constant(b, outer, fixed[k]))
            continue
        count = len(flatten(value))
        values.append(rebuild(value, [b.get_tuple_element(packed, at + i) for i in range(count)]))
        at += count
    return values


def _as_pred(context: TranslationContext, value: Value) -> Operand:
    if not isinstance(value, Operand):
        raise UnsupportedError("a condition that is no array")
    b = context.builder
    shape = b.get_shape(value)
    if shape.rank:
        raise UnsupportedError(f"a condition of shape {shape}; it must be a scalar")
    if shape.element_type is ElementType.PRED:
        return value
    return b.ne(value, b.constant(0, shape.element_type))


@translates("If", "StatelessIf", stateful=True, takes_sizes=every_input)
def if_(node: Node) -> Sequence[Value]:
    names = [node.function("then_branch"), node.function("else_branch")]
    condition = node.constant_or_none(0)
    if condition is not None:
        return translate_call(node.context, names[0 if condition.all() else 1], node.inputs[1:])
    return _conditional(node, _as_pred(node.context, node[0]), names)


@translates("Case", "StatelessCase", stateful=True, takes_sizes=every_input)
def case(node: Node) -> Sequence[Value]:
    names = [f.name for f in node.definition.attr["branches"].list.func]
    index = node.constant_or_none(0)
    if index is not None:
        chosen = int(index) if 0 <= int(index) < len(names) else len(names) - 1
        return translate_call(node.context, names[chosen], node.inputs[1:])
    return _conditional(node, node[0], names)


def _conditional(node: Node, selector: Operand, names: Sequence[str]) -> Sequence[Value]:
    """One of several functions of the same arguments. In a trial, one that reads no lists of unknown elements,
    where others do: that is what runs first, before they are written."""
    try:
        return _branches(node, selector, names)
    except UnknownElementsError as error:
        if node.context.trial is not None:
            node.context.trial.is_partial = True
            for name in names:
                with contextlib.suppress(UnknownElementsError):
                    return translate_call(node.context, name, node.inputs[1:])
        raise error


def _branches(node: Node, selector: Operand, names: Sequence[str]) -> Sequence[Value]:
    """A conditional over functions of the same arguments; variables that any branch writes are results of all."""
    inputs = node.inputs[1:]
    constants = {
        k: v
        for k, v in enumerate(inputs)
        if isinstance(v, Operand) and node.context.constant_value(v) is not None
    }
    state = [o for k, value in enumerate(inputs) if k not in constants for o in flatten(value)]
    shape = Shape.tuple(node.b.get_shape(o) for o in state)
    translated = []
    for name in names:
        inner = node.context.child(name)
        arguments = _unpack(
            inner, inner.builder.parameter(0, shape, "arguments"), inputs, constants, node.context
        )
        for outside, inside in zip(inputs, arguments):
            if is_integer(outside):
                note(inner, inside, noted_range(node.context, outside))
        translated.append((inner, arguments, translate_graph(inner, node.context.functions[name], arguments)))
    for inner, _, results in translated:
        for other, _, others in translated:
            results[:] = [
                completed(inner.builder, r, o, other.builder) for r, o in zip(results, others, strict=True)
            ]
    written = [
        k
        for k, value in enumerate(inputs)
        if isinstance(value, Variable)
        and any(isinstance(argument := a[k], Variable) and argument.written for _, a, _ in translated)
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
    values = _unpack(node.context, result, like, {})
    for k, value in zip(written, values[len(values) - len(written) :]):
        if isinstance(value, Stack):
            value.differs = True  # the branches may push different elements
        assert isinstance(value, Variable)
        node.variable(k + 1).take(value)
    for at, number in forwarded_inputs(node.graph_node, node.context.functions).items():
        if isinstance(node.inputs[number], Operand):
            values[at] = node.inputs[number]
    return values[: len(values) - len(written)] if written else values
