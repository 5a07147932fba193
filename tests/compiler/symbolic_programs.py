"""Programs of numbers made into programs of sizes known at run time."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tfbridge.compiler.errors import CompilerError
from tfbridge.compiler.hlo_text.attributes import attributes, implied
from tfbridge.compiler.ir.module import Computation, Instruction, Module
from tfbridge.compiler.ir.shape import Shape
from tfbridge.compiler.ir.verifier import verify
from tfbridge.compiler.ops import Constant, Convolution, Op, Parameter
from tfbridge.runtime.sizes import AnySize, Assumptions, Size, estimate

_MAX_CHOICES = 64


def dims_of(module: Module) -> list[int]:
    """The sizes above 1 of the arguments, each once."""
    leaves = [leaf for shape in module.entry.parameter_shapes for leaf in shape.leaves()]
    return sorted({d for leaf in leaves for d in leaf.dims if d > 1})


def symbolic(module: Module, names: Mapping[int, str], low: int = 2) -> Module | None:
    """The module with a symbol wherever a parameter has one of these sizes, and what follows elsewhere; None where the
    program needs the number."""
    assumptions = Assumptions()
    symbols = {number: assumptions.symbol(name, number, low) for number, name in names.items()}
    done: dict[Computation, Computation] = {}
    try:
        for computation in module.computations():
            new: dict[Instruction, Instruction] = {}
            for old in computation.instructions:
                operands = tuple(new[o] for o in old.operands)
                instruction = _changed(old, operands, symbols, done, assumptions)
                if instruction is None:
                    return None
                new[old] = instruction
            done[computation] = computation.mapped(new)
        changed = module.with_entry(done[module.entry])
        changed.attributes.pop("entry_computation_layout", None)
        verify(changed)
    except CompilerError:
        return None
    is_symbolic = any(
        isinstance(d, Size) for s in changed.entry.parameter_shapes for leaf in s.leaves() for d in leaf.dims
    )
    return None if assumptions.guards or not is_symbolic else changed


def _changed(
    old: Instruction,
    operands: tuple[Instruction, ...],
    symbols: Mapping[int, Size],
    done: Mapping[Computation, Computation],
    assumptions: Assumptions,
) -> Instruction | None:
    if isinstance(old.op, Parameter):
        shape = _shape(old.shape, symbols)
        return dataclasses.replace(old, op=Parameter(old.op.number, shape), shape=shape)
    if isinstance(old.op, Constant):
        return old
    for op in itertools.islice(_choices(old.op.with_called(done), symbols), _MAX_CHOICES):
        guards = dict(assumptions.guards)
        try:
            shape = op.infer([o.shape for o in operands])
        except CompilerError:
            shape = None
        if shape is not None and guards == assumptions.guards and _estimated(shape).compatible(old.shape):
            return dataclasses.replace(old, op=op, operands=operands, shape=_with_layout(shape, old.shape))
        assumptions.guards.clear()
        assumptions.guards.update(guards)
    return None


def _choices(op: Op, symbols: Mapping[int, Size]) -> Iterator[Op]:
    """The op with some of the sizes in its attributes replaced by symbols or multiples of them, all first."""
    kinds = {f: a.kind for a in attributes(type(op)) for f in a.fields} | dict(implied(type(op)))
    fields: list[tuple[str, Any, list[list[AnySize]]]] = []
    for name, kind in kinds.items():
        value = getattr(op, name)
        if kind in ("result_dims", "sizes") or (kind == "slices" and name != "strides"):
            fields.append((name, tuple, [_alternatives(d, symbols) for d in value]))
        elif kind == "result_shape" and value is not None:
            shape = value
            fields.append((name, shape.with_dims, [_alternatives(d, symbols) for d in shape.dims]))
        elif kind == "window" and isinstance(op, Convolution):
            window = value
            fields.append(
                (
                    name,
                    lambda size, w=window: dataclasses.replace(w, size=tuple(size)),
                    [_alternatives(d, symbols) for d in window.size],
                )
            )
    for chosen in itertools.product(*(a for _, _, alternatives in fields for a in alternatives)):
        rest = iter(chosen)
        yield dataclasses.replace(
            op, **{name: make([next(rest) for _ in alternatives]) for name, make, alternatives in fields}
        )


def _alternatives(number: int, symbols: Mapping[int, Size]) -> list[AnySize]:
    exact = [symbols[number]] if number in symbols else []
    multiples = [number // v * s for v, s in symbols.items() if number > v and number % v == 0]
    products = [
        a * b
        for (v, a), (w, b) in itertools.combinations_with_replacement(symbols.items(), 2)
        if v * w == number
    ]
    near = [s + number - v for v, s in symbols.items() if 0 < abs(number - v) <= 1 and number > 0]
    return [*exact, *products, *multiples, number, *near]


def _shape(shape: Shape, symbols: Mapping[int, Size]) -> Shape:
    if shape.is_tuple:
        return Shape.tuple(_shape(s, symbols) for s in shape.tuple_shapes)
    return dataclasses.replace(shape, dims=tuple(symbols.get(d, d) for d in shape.dims))


def _estimated(shape: Shape) -> Shape:
    if shape.is_tuple:
        return Shape.tuple(map(_estimated, shape.tuple_shapes))
    return dataclasses.replace(shape, dims=tuple(map(estimate, shape.dims)))


def _with_layout(shape: Shape, old: Shape) -> Shape:
    if shape.is_tuple:
        return Shape.tuple(map(_with_layout, shape.tuple_shapes, old.tuple_shapes))
    return dataclasses.replace(shape, layout=old.layout)
