"""Functional control flow: calls, While, If, Case. Loops and branches become computations of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ...compiler.builder import Operand
from ...compiler.errors import UnsupportedError
from ...compiler.ir import Computation
from ...compiler.shape import Shape
from ...compiler.types import ElementType
from ..graph import Graph
from ..trip_count import Amount, bounds, hands_on, pushed
from .node import Node
from .registry import translates
from .tensor_array import make_gradients, zeros_for
from .tensor_list import initialized
from .translator import Translator
from .values import Stack, TensorArray, TensorList, Value, Variable, flatten, rebuild


@translates("PartitionedCall", "StatefulPartitionedCall", stateful=True)
def call(node: Node) -> Sequence[Value]:
    return node.translator.call(node.function("f"), node.inputs)


@translates("While", "StatelessWhile", stateful=True)
def while_(node: Node) -> Sequence[Value]:
    """The state is what changes; inputs that the body hands on and whose values are known stay constants."""
    functions = node.translator.functions
    condition, body = functions[node.function("cond")], functions[node.function("body")]
    inputs = list(node.inputs)
    fixed = {k: v for k, v in enumerate(inputs)
             if isinstance(v, Operand) and hands_on(body, k) and node.translator.constant_value(v) is not None}
    unbounded = inputs
    make_gradients(node, body, inputs)
    inputs = _with_bounds(node, condition, body, inputs)
    grown = [k for k, (old, new) in enumerate(zip(unbounded, inputs)) if old is not new]
    inputs = _with_element_shapes(node, body, inputs, fixed)
    moving = [k for k in range(len(inputs)) if k not in fixed]
    state = [o for k in moving for o in flatten(inputs[k])]
    shape = Shape.tuple(node.b.get_shape(o) for o in state)
    test, _ = _computation(node.translator, condition, inputs, fixed, shape, f"{node.name}.condition", is_test=True)
    step, after = _computation(node.translator, body, inputs, fixed, shape, f"{node.name}.body")
    result = node.b.while_(test, step, node.b.tuple(state))
    outputs = _unpack(node.translator, result, inputs, fixed)
    for k in grown:
        outputs[k] = dataclasses.replace(outputs[k], is_full=True)  # type: ignore[type-var]
        stack = unbounded[k]
        if isinstance(stack, Stack):
            stack.capacity, stack.is_full, inputs[k] = inputs[k].capacity, True, stack  # type: ignore[union-attr]
    for old, new, end in zip(inputs, outputs, after):
        if isinstance(old, Variable) and isinstance(new, Variable) and isinstance(end, Variable) and end.written:
            old.take(new)
    return [i if isinstance(i, Variable) else o for i, o in zip(inputs, outputs)]


def _with_bounds(node: Node, condition: Graph, body: Graph, inputs: list[Value]) -> list[Value]:
    """Gives lists that grow in the loop, without a bound of their own, the bound that the loop's condition sets."""
    growing = [k for k in pushed(body) if isinstance(v := inputs[k], TensorList | Stack) and v.capacity < 0]
    if not growing:
        return inputs
    trips = []
    for bound in bounds(condition, body):
        start, step, limit = (
            node.constant_or_none(a.value) if a.is_variable else a.value
            for a in (Amount(bound.counter, True), bound.step, bound.limit))
        if start is not None and step is not None and limit is not None:
            most = bound.trips(int(start), int(step), int(limit))
            trips += [most] if most is not None else []
    if not trips:
        raise UnsupportedError(f"{node.op}: a list grows in a loop of which no bound is known; give it "
                               "maximum_iterations")
    result = list(inputs)
    for k in growing:
        result[k] = dataclasses.replace(inputs[k], capacity=min(trips))  # type: ignore[type-var]
    return result


def _with_element_shapes(node: Node, body: Graph, inputs: list[Value], fixed: dict[int, Operand]) -> list[Value]:
    """Gives lists whose element shape is not known yet the one that the body writes: found by translating it once."""
    unknown = [k for k, v in enumerate(inputs) if (isinstance(v, TensorList) and v.buffer is None)
               or (isinstance(v, TensorArray | Stack) and v.value is None)]
    if not unknown:
        return inputs
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
            parts = [trial.builder.parameter(number + i, node.b.get_shape(o), f"p{number + i}")
                     for i, o in enumerate(flatten(value))]
            number += len(parts)
            arguments.append(rebuild(value, parts))
    results = trial.graph(body, arguments)
    found = list(inputs)
    for k in unknown:
        made, given = results[k], inputs[k]
        if isinstance(given, TensorArray | Stack):
            written = arguments[k]
            assert isinstance(written, Variable)
            if written.value is not None:
                given.value = zeros_for(node.b, given, trial.builder.get_shape(written.value))
            continue
        if not isinstance(made, TensorList) or made.buffer is None or not isinstance(given, TensorList):
            raise UnsupportedError(f"{node.op}: the element shape of a tensor list is not known before the loop, nor "
                                   "written in its body")
        shape = trial.builder.get_shape(made.buffer)
        found[k] = initialized(node.b, given, shape.element_type, shape.dims[1:])
    return found


def _computation(outer: Translator, graph: Graph, inputs: Sequence[Value], fixed: dict[int, Operand], shape: Shape,
                 name: str, is_test: bool = False) -> tuple[Computation, list[Value]]:
    """A function as a computation of the state tuple; also returns its results (the arguments, for variables)."""
    inner = outer.child(name)
    parameter = inner.builder.parameter(0, shape, "state")
    arguments = _unpack(inner, parameter, inputs, fixed, outer)
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


def _unpack(translator: Translator, packed: Operand, like: Sequence[Value], fixed: dict[int, Operand],
            outer: Translator | None = None) -> list[Value]:
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


@translates("If", "StatelessIf", stateful=True)
def if_(node: Node) -> Sequence[Value]:
    names = [node.function("then_branch"), node.function("else_branch")]
    known = node.constant_or_none(0)
    if known is not None:
        return node.translator.call(names[0 if known.all() else 1], node.inputs[1:])
    return _branches(node, _as_pred(node.translator, node[0]), names)


@translates("Case", "StatelessCase", stateful=True)
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
    known = {k: v for k, v in enumerate(inputs)
             if isinstance(v, Operand) and node.translator.constant_value(v) is not None}
    state = [o for k, value in enumerate(inputs) if k not in known for o in flatten(value)]
    shape = Shape.tuple(node.b.get_shape(o) for o in state)
    translated = []
    for name in names:
        inner = node.translator.child(name)
        arguments = _unpack(inner, inner.builder.parameter(0, shape, "arguments"), inputs, known, node.translator)
        translated.append((inner, arguments, inner.graph(node.translator.functions[name], arguments)))
    written = [k for k, value in enumerate(inputs) if isinstance(value, Variable)
               and any(a[k].written for _, a, _ in translated)]  # type: ignore[union-attr]
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
    for k, value in zip(written, values[len(values) - len(written):]):
        node.variable(k + 1).take(value)  # type: ignore[arg-type]
    return values[:len(values) - len(written)] if written else values
