"""Modules of symbolic sizes: which sizes arguments give the symbols, and the module with numbers in their places."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.code.symbolic_sizes import values_for
from ...runtime.sizes import AnySize, Size, evaluate
from .module import Computation, Instruction, Module
from .module_attributes import LAYOUT, entry_shapes, operand_shapes
from .shape import Shape, assumptions_of


def symbol_values(module: Module, dims: Sequence[Sequence[int]]) -> dict[str, int] | str:
    """The values of the symbols for arguments (tuples flattened) of these dims; what is wrong with them."""
    leaves = _leaves(module)
    assumptions = assumptions_of(leaves)
    if assumptions is None:
        return {}
    return values_for([leaf.dims for leaf in leaves], dims, assumptions)


def is_symbolic(module: Module) -> bool:
    """Whether sizes of the arguments are known at run time only."""
    return assumptions_of(_leaves(module)) is not None


def _leaves(module: Module) -> list[Shape]:
    return [leaf for shape in module.entry.parameter_shapes for leaf in shape.leaves() if leaf.is_array]


def specialized(module: Module, values: Mapping[str, AnySize]) -> Module:
    """The module with numbers, or other sizes, in the places of symbols; itself where it has none."""
    if not is_symbolic(module):
        return module
    done: dict[Computation, Computation] = {}
    for computation in module.computations():
        done[computation] = _specialized(computation, values, done)
    changed = module.with_entry(done[module.entry])
    if LAYOUT in module.attributes:
        parameters, result = (_replaced(shapes, values, done) for shapes in entry_shapes(module))
        changed.attributes[LAYOUT] = f"{{({', '.join(map(str, parameters))})->{result}}}"
    return changed


def _specialized(
    computation: Computation, values: Mapping[str, AnySize], done: Mapping[Computation, Computation]
) -> Computation:
    new: dict[Instruction, Instruction] = {}
    for old in computation.instructions:
        operands = [new[o] for o in old.operands]
        op = _replaced(old.op, values, done)
        if constraints := getattr(op, "operand_layout_constraints", ""):
            shapes = operand_shapes(constraints, [o.shape for o in old.operands])
            listed = ", ".join(map(str, _replaced(shapes, values, done)))
            op = dataclasses.replace(op, operand_layout_constraints=f"{{{listed}}}")
        shape = _replaced(old.shape, values, done)
        new[old] = Instruction(op, tuple(operands), shape, old.name, old.metadata)
    return computation.mapped(new)


def _replaced(value: object, values: Mapping[str, AnySize], done: Mapping[Computation, Computation]) -> Any:
    """A value with the sizes and computations in it replaced."""
    if isinstance(value, Size):
        return evaluate(value, values)
    if isinstance(value, Computation):
        return done[value]
    if type(value) is tuple:
        return tuple(_replaced(v, values, done) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value)]
        old = [getattr(value, name) for name in fields]
        new = [_replaced(v, values, done) for v in old]
        return (
            value
            if all(a is b for a, b in zip(old, new))
            else dataclasses.replace(value, **dict(zip(fields, new)))
        )
    return value
