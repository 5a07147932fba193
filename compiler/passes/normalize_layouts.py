"""Every array row-major; other layouts of the entry's parameters and results spelled as transposes.

    x = f32[2,3]{0,1} parameter(0)                          p = f32[3,2] parameter(0)    x = f32[2,3] transpose(p)
    ROOT y = f32[2,3]{0,1} negate(x)            =>          y = f32[2,3] negate(x)       ROOT r = f32[3,2] transpose(y)

Inside a module a layout is a wish: what an op computes does not depend on it. At the entry it says how the bytes lie:
a parameter of such a layout becomes one of the dims from the slowest axis to the fastest. The module's attribute
entry_computation_layout, where it is there, decides over the shapes of the parameters and the root.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ...runtime.devices import custom_calls
from ..ir.module import Computation, Instruction, Module, make
from ..ir.shape import Shape
from ..ops import CustomCall, GetTupleElement, Op, Parameter, Transpose, Tuple
from ..options import Options


def normalize_layouts(module: Module, options: Options) -> Module:
    """The module with row-major arrays only. Dims of the entry's parameters and results are as `physical` says."""
    if "entry_computation_layout" not in module.attributes and not any(
        i.shape.layout is not None
        or (i.shape.tuple_shapes and has_layout(i.shape))
        or isinstance(i.op, CustomCall)
        for c in module.computations()
        for i in c.instructions
    ):
        return module
    parameters, result = entry_shapes(module)
    plain = module.map_computations(lambda computation: computation.rewrite(_plain))
    if not any(map(has_layout, (*parameters, result))):
        return _without_attribute(module, plain.entry)
    made: list[Instruction] = []
    logical: dict[Instruction, Instruction] = {}
    for old, shape in zip(plain.entry.parameters, parameters):
        new = make(Parameter(len(made), physical(shape)), name=old.name, metadata=old.metadata)
        made.append(new)
        logical[old] = _changed(new, shape, inverse=True)
    body: dict[Instruction, Instruction] = {}
    for old in plain.entry.instructions:
        body[old] = logical.get(old) or old.with_operands(body[o] for o in old.operands)
    root = _changed(body[plain.entry.root], result, inverse=False)
    effects = [body[i] for i in plain.entry.effects()]
    return _without_attribute(module, Computation(plain.entry.name, root, made, effects))


def _without_attribute(module: Module, entry: Computation) -> Module:
    kept = {k: v for k, v in module.attributes.items() if k != "entry_computation_layout"}
    return Module(module.name, entry, kept)


def entry_shapes(module: Module) -> tuple[tuple[Shape, ...], Shape]:
    """Shapes of the entry's parameters and of its result, with the layouts that hold at the entry.

    Raises: ParseError, ShapeError  entry_computation_layout is malformed or of other shapes.
    """
    parameters, result = module.entry.parameter_shapes, module.entry.root.shape
    text = module.attributes.get("entry_computation_layout")
    if text is None:
        return parameters, result
    from ..hlo_text.scanner import parse_entry_layout

    return parse_entry_layout(text, parameters, result)


def has_layout(shape: Shape) -> bool:
    """Whether the shape, or a part of the tuple, has a layout other than row-major."""
    return any(map(has_layout, shape.tuple_shapes)) if shape.is_tuple else shape.layout is not None


def order(shape: Shape) -> tuple[int, ...]:
    """Axis numbers from the slowest to the fastest."""
    return tuple(reversed(shape.minor_to_major))


def physical(shape: Shape) -> Shape:
    """The row-major shape whose array has the bytes of an array of this shape."""
    if shape.is_tuple:
        return Shape.tuple(map(physical, shape.tuple_shapes))
    return (
        shape
        if shape.layout is None
        else Shape(shape.element_type, tuple(shape.dims[a] for a in order(shape)))
    )


def leaf_orders(shape: Shape) -> Iterator[tuple[int, ...] | None]:
    """For each array among the leaves its `order`, None where that is the default."""
    for leaf in filter(lambda leaf: leaf.is_array, shape.leaves()):
        yield None if leaf.layout is None else order(leaf)


def _changed(value: Instruction, shape: Shape, inverse: bool) -> Instruction:
    """A value taken from the physical dims of `shape` to the logical ones (`inverse`), or to the physical ones."""
    if not has_layout(shape):
        return value
    if shape.is_tuple:
        parts = (make(GetTupleElement(k), value) for k in range(len(shape.tuple_shapes)))
        return make(Tuple(), *(_changed(p, s, inverse) for p, s in zip(parts, shape.tuple_shapes)))
    permutation = order(shape)
    return make(Transpose(inverted(permutation) if inverse else permutation), value)


def inverted(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes this one."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def _plain(instruction: Instruction) -> Instruction | None:
    if (
        isinstance(instruction.op, CustomCall)
        and (called := _laid_out(instruction, instruction.op)) is not None
    ):
        return called
    op = _plain_op(instruction.op)
    if op is instruction.op and not has_layout(instruction.shape):
        return None
    return dataclasses.replace(instruction, op=op, shape=instruction.shape.without_layout())


def _laid_out(instruction: Instruction, op: CustomCall) -> Instruction | None:
    """A call of a C function, which sees bytes: operands in the order of the layouts that the call constrains them to,
    results in that of their shapes. None where all of them are row-major, and for Python functions, which see axes."""
    target = custom_calls.find(op.custom_call_target)
    wanted = operand_shapes(op.operand_layout_constraints)
    if target is None or not target.address or not any(map(has_layout, (op.shape, *wanted))):
        return None
    wanted += tuple(o.shape.static() for o in instruction.operands[len(wanted) :])
    operands = [
        o if s.layout is None else make(Transpose(order(s)), o) for o, s in zip(instruction.operands, wanted)
    ]
    bare = dataclasses.replace(op, shape=physical(op.shape), operand_layout_constraints="")
    call = make(bare, *operands, name=instruction.name, metadata=instruction.metadata)
    return _changed(call, op.shape, inverse=True)


def operand_shapes(text: str) -> tuple[Shape, ...]:
    """The shapes in `{shape, ...}`, the value of a custom-call's operand_layout_constraints.

    Raises: ParseError  malformed text.
    """
    from ..hlo_text.scanner import parse_shapes

    return parse_shapes(text) if text else ()


def _plain_op(op: Op) -> Op:
    """The op with row-major shapes among its fields."""
    shape = getattr(op, "shape", None)
    if isinstance(shape, Shape) and has_layout(shape):
        return dataclasses.replace(op, shape=shape.without_layout())  # type: ignore[call-arg]
    return op
