"""Symbols in the places of sizes that are known at run time only, and what is told of the code for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...compiler.ir.shape import Shape
from ...runtime.sizes import AnySize, Assumptions, Size, evaluate, is_symbolic, symbols_of
from .cluster import Cluster
from .code_key import Place


def with_symbols(
    shapes: Sequence[Shape | None],
    constants: Mapping[int, np.ndarray],
    names: Mapping[Place, str],
    equal: Mapping[str, AnySize],
) -> tuple[list[Shape | None], dict[int, np.ndarray]]:
    """The shapes and constants, by argument, with symbols, in assumptions of their own, in the places that are named.

    equal: what stands for symbols that are sizes of others, or numbers.
    """
    assumptions = Assumptions()

    def size_at(place: Place, hint: int) -> AnySize:
        if place not in names:
            return hint
        known = equal.get(names[place])
        if known is None:
            return assumptions.symbol(names[place], hint)
        return known if isinstance(known, int) else evaluate(known, _Symbols(assumptions, known))

    symbolic = [
        shape and shape.with_dims(size_at((k, axis), dim) for axis, dim in enumerate(shape.dims))
        for k, shape in enumerate(shapes)
    ]
    values = dict(constants)
    for k in {k for k, axis in names if axis < 0}:
        elements = [size_at((k, ~n), element) for n, element in enumerate(constants[k].ravel().tolist())]
        if is_symbolic(elements):
            values[k] = np.array(elements, object).reshape(constants[k].shape)
    return symbolic, values


def replaced(equal: Mapping[str, AnySize], sizes: Mapping[str, AnySize]) -> dict[str, AnySize]:
    """What stands for symbols, where sizes take the place of the symbols in it."""
    symbols = {a.key: Size((((a,), 1),)) for a in symbols_of(equal.values())}
    return {**sizes, **{name: evaluate(size, {**symbols, **sizes}) for name, size in equal.items()}}


class _Symbols(dict[str, AnySize]):
    """Symbols of other assumptions, with the hints that they have in a size."""

    def __init__(self, assumptions: Assumptions, size: Size) -> None:
        super().__init__((a.key, assumptions.symbol(a.key, a.hint)) for a in size.atoms() if not a.operator)


def assumptions_of(shapes: Sequence[Shape | None], constants: Mapping[int, np.ndarray]) -> Assumptions:
    """Those of the symbols in shapes and constants; without symbols, none."""
    dims = (d for shape in shapes if shape is not None for d in shape.dims)
    elements = (e for value in constants.values() if value.dtype == object for e in value.flat)
    return next((s.assumptions for s in (*dims, *elements) if isinstance(s, Size)), Assumptions())


def described_variants(cluster: Cluster) -> list[str]:
    """The code for symbolic sizes that a cluster has, as `x[s0,6] where s0 >= 2`; and why it has none for some dims."""
    names = [cluster.arguments[k].name for k in cluster.launch_arguments]
    lines: list[str] = []
    for variant in tuple(cluster.code.variants):
        symbolic = variant.code.artifact.symbolic
        assert symbolic is not None
        shown = [
            f"{name}[{','.join(map(str, dims))}]"
            for name, dims in zip(names, symbolic.parameters)
            if is_symbolic(dims)
        ]
        shown += [
            f"{names[at]} = {', '.join(map(str, value))}"
            for at, value in variant.constants.items()
            if not isinstance(value, bytes)
        ]
        lines.append(f"{', '.join(shown)} where {' and '.join(symbolic.assumptions.conditions())}")
    for dims, reasons in tuple(cluster.code.without_variant.items()):
        axes = ", ".join(
            f"{f'axis {axis}' if axis >= 0 else f'element {~axis}'} of {names[number]}"
            for number, axis in dims
        )
        lines.append(f"none for {axes}: {reasons[-1]}")
    return lines
