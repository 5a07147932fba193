"""Which dims of a cluster's arguments are known at run time only: those that differ from call to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...compiler.ir.shape import Shape
from ...runtime.sizes import AnySize, Assumptions, Size, evaluate, is_symbolic
from .cluster import Cluster

Shapes = Sequence[Shape]


def varying_dims(shapes: Shapes, earlier: Sequence[Shapes]) -> dict[tuple[int, int], str]:
    """Names of symbols by (argument, axis): of the dims that are others than in earlier calls of the same ranks.

    Dims that are equal in every call have one name. A size of 0 or 1 is no symbol's: other code serves it.
    """
    calls = [shapes, *(e for e in earlier if _same_ranks(e, shapes))]
    names: dict[tuple[int, ...], str] = {}
    found: dict[tuple[int, int], str] = {}
    for number, shape in enumerate(shapes):
        for axis, dim in enumerate(shape.dims):
            sizes = tuple(call[number].dims[axis] for call in calls)
            if dim > 1 and any(size != dim for size in sizes):
                found[number, axis] = names.setdefault(sizes, f"s{len(names)}")
    return found


def _same_ranks(one: Shapes, other: Shapes) -> bool:
    return all(a.rank == b.rank and a.element_type == b.element_type for a, b in zip(one, other, strict=True))


def with_symbols(
    shapes: Sequence[Shape | None],
    names: Mapping[tuple[int, int], str],
    equal: Mapping[str, AnySize],
) -> list[Shape | None]:
    """The shapes with symbols, in assumptions of their own, in the place of the dims that are named.

    equal: what stands for symbols that are sizes of others, or numbers.
    """
    assumptions = Assumptions()

    def size_of(name: str, hint: int) -> AnySize:
        known = equal.get(name)
        if known is None:
            return assumptions.symbol(name, hint)
        return known if isinstance(known, int) else evaluate(known, _Symbols(assumptions, known))

    return [
        shape
        and shape.with_dims(
            size_of(names[k, axis], dim) if (k, axis) in names else dim for axis, dim in enumerate(shape.dims)
        )
        for k, shape in enumerate(shapes)
    ]


class _Symbols(dict[str, AnySize]):
    """Symbols of other assumptions, with the hints that they have in a size."""

    def __init__(self, assumptions: Assumptions, size: Size) -> None:
        super().__init__((a.key, assumptions.symbol(a.key, a.hint)) for a in size.atoms() if not a.operator)


def assumptions_of(shapes: Sequence[Shape | None]) -> Assumptions:
    """Those of the symbols in shapes; without symbols, none."""
    sizes = (d for shape in shapes if shape is not None for d in shape.dims if isinstance(d, Size))
    return next((size.assumptions for size in sizes), Assumptions())


def described_variants(cluster: Cluster) -> list[str]:
    """The code for symbolic sizes that a cluster has, as `x[s0,6] where s0 >= 2`; and why it has none for some dims."""
    names = [cluster.arguments[k].name for k in cluster.launch_arguments]
    lines: list[str] = []
    for variant in (v for variants in tuple(cluster.code.variants.values()) for v in tuple(variants)):
        symbolic = variant.artifact.symbolic
        assert symbolic is not None
        shown = [
            f"{name}[{','.join(map(str, dims))}]"
            for name, dims in zip(names, symbolic.parameters)
            if is_symbolic(dims)
        ]
        lines.append(f"{', '.join(shown)} where {' and '.join(symbolic.assumptions.conditions())}")
    for dims, reasons in tuple(cluster.code.without_variant.items()):
        axes = ", ".join(f"axis {axis} of {names[number]}" for number, axis in dims)
        lines.append(f"none for {axes}: {reasons[-1]}")
    return lines
