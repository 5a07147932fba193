"""Which sizes of a cluster's calls are known at run time only: those dims of arguments, and integers that decide
shapes, that differ from call to call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...compiler.ir.shape import Shape
from ...runtime.sizes import AnySize, Assumptions, Size, evaluate, is_symbolic
from .cluster import Cluster
from .code_cache import Key, Place, integers

_MAX_ELEMENTS = 8  # of a constant whose elements are sizes; larger ones are data


def varying_sizes(key: Key, earlier: Iterable[Key]) -> dict[Place, str]:
    """Names of symbols by place: of the sizes that are others than in earlier calls of the same ranks and constants.

    Sizes that are equal in every call have one name. A size of 0 or 1 is no symbol's: other code serves it.
    """
    sizes = _sizes(key)
    calls = [_sizes(other) for other in earlier if _is_alike(key, other)]
    names: dict[tuple[int, ...], str] = {}
    symbols: dict[Place, str] = {}
    for place, size in sizes.items():
        others = tuple(call[place] for call in calls)
        if size > 1 and any(other != size for other in others):
            symbols[place] = names.setdefault((size, *others), f"s{len(names)}")
    return symbols


def _sizes(key: Key) -> dict[Place, int]:
    """What may be sizes: dims, but of constants the elements."""
    shapes, constants = key
    numbers = {at for at, _ in constants}
    dims = {(k, a): dim for k, s in enumerate(shapes) if k not in numbers for a, dim in enumerate(s.dims)}
    elements = {
        (at, ~n): element
        for at, value in constants
        if _are_sizes(shapes[at])
        for n, element in enumerate(integers(shapes[at], value))
    }
    return dims | elements


def _are_sizes(shape: Shape) -> bool:
    return shape.element_type.is_integer and shape.elements <= _MAX_ELEMENTS


def _is_alike(key: Key, other: Key) -> bool:
    """Whether calls differ in dims and sizes alone. Two integers below 2 are not sizes that differ."""
    pairs = list(zip(key[0], other[0], strict=True))
    if any(a.rank != b.rank or a.element_type != b.element_type for a, b in pairs):
        return False
    return all(
        a == b
        or pairs[at][0].dims == pairs[at][1].dims
        and _are_sizes(pairs[at][0])
        and all(
            x == y or x > 1 for x, y in zip(integers(pairs[at][0], a), integers(pairs[at][1], b), strict=True)
        )
        for (at, a), (_, b) in zip(key[1], other[1], strict=True)
    )


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
