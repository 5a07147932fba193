"""Reductions, windows and sorts: operations with a computation of scalars."""

from __future__ import annotations

from ...builder.computation_builder import Operand
from ...builder.derived import binary_computation
from ...errors import UnsupportedError
from ...ir.module import Computation
from ...ops import Reduce, ReduceWindow, SelectAndScatter, Sort, Window
from ..translation import Context, Results, translates
from .arrays import promoted

_REDUCERS = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
"""Operations whose names may stand in the place of a region."""


@translates("reduce")
def reduce(c: Context) -> Results:
    reducer = _reducer(c)
    return c.parts(c.b.apply(Reduce(c.op.integers("dimensions"), reducer), *_promoted(c, reducer)))


def _promoted(c: Context, reducer: Computation) -> list[Operand]:
    """Operands and initial values in the types that the computation takes."""
    shapes = reducer.parameter_shapes
    return promoted(c, c.operands, shapes if len(shapes) == len(c.operands) else ())


def _reducer(c: Context) -> Computation:
    """The region's computation, or the one operation that is named in its place."""
    name = c.op.string("applies")
    if not name:
        return c.computation()
    dialect, _, reducer = name.partition(".")
    if dialect not in ("stablehlo", "mhlo") or reducer not in _REDUCERS:
        raise UnsupportedError(f"{c.op.name}: a reduction by {name} alone is not compiled")
    return binary_computation(reducer, c.shape().element_type)


def _window(c: Context) -> Window:
    size = c.op.integers("window_dimensions")
    ones = (1,) * len(size)
    pads = c.op.rows("padding") if c.op.has("padding") else ((0, 0),) * len(size)
    lists = [c.op.integers(n, ones) for n in ("window_strides", "base_dilations", "window_dilations")]
    if any(len(row) != 2 for row in pads) or {len(pads), *map(len, lists)} != {len(size)}:
        raise UnsupportedError(f"{c.op.name}: the window has not {len(size)} entries everywhere")
    return Window.of(size, lists[0], [p[0] for p in pads], [p[1] for p in pads], lists[1], lists[2])


@translates("reduce_window")
def reduce_window(c: Context) -> Results:
    return c.parts(c.b.apply(ReduceWindow(_window(c), c.computation()), *_promoted(c, c.computation())))


@translates("select_and_scatter")
def select_and_scatter(c: Context) -> Results:
    op = SelectAndScatter(_window(c), c.computation(0), c.computation(1))
    return c.b.apply(op, *c.operands)


@translates("sort")
def sort(c: Context) -> Results:
    axis = c.op.integer("dimension", -1)
    axis += c.shape().rank if axis < 0 else 0
    return c.parts(c.b.apply(Sort(axis, c.computation(), c.op.boolean("is_stable")), *c.operands))
