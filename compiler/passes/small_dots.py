"""Dots of few products each, one operand of which has few rows or columns, as sums.

    dot(x[i,k], y[k,j])    becomes    reduce(multiply(broadcast(x), broadcast(y)) [i,j,k], add) over k

Points are turned so, and colours mixed. Most of a matrix product's panels would be padding; a loop over the results has
whole vectors, and fuses with what comes before and after.
"""

from __future__ import annotations

import math

from ...runtime.sizes import estimate, is_symbolic
from ..analysis.element_reuse import MIN_VECTOR_ELEMENTS, fills_vectors
from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Module, make
from ..ir.shape import Shape
from ..ops import Broadcast, Constant, Dot, Elementwise, Opcode, Parameter, Reduce
from ..options import Options

_TYPES = (ElementType.F32, ElementType.F64, ElementType.S32)
_MAX_PRODUCTS = 8  # of a result; they are added one by one
_MAX_COLUMNS = 4  # of the right operand: more of them fill a panel
_MAX_ROWS = 8  # of the left operand, beside a right one of rows that are vectors
_MIN_COLUMNS = 16


def small_dots(module: Module, options: Options) -> Module:
    """The module with such dots as sums."""
    return module.map_computations(lambda c: c.rewrite(_as_sum) if c.has_op(Dot) else c)


def _as_sum(dot: Instruction) -> Instruction | None:
    op = dot.op
    if not isinstance(op, Dot) or not _is_small(op, dot):
        return None
    (left, right), dims, t = dot.operands, dot.shape.dims, dot.shape.element_type
    batch = range(len(op.lhs_batch))
    rows, columns = op.lhs_free(left.shape.rank), op.rhs_free(right.shape.rank)
    middle = len(batch) + len(rows)
    left_axes = dict(zip((*op.lhs_batch, *rows, *op.lhs_contracting), (*range(middle), len(dims))))
    right_axes = dict(
        zip((*op.rhs_batch, *columns, *op.rhs_contracting), (*batch, *range(middle, len(dims) + 1)))
    )
    factors = [
        make(Broadcast((*dims, k), tuple(axes[a] for a in range(o.shape.rank))), o, metadata=dot.metadata)
        for o, axes in ((left, left_axes), (right, right_axes))
        for k in [left.shape.dims[op.lhs_contracting[0]]]
    ]
    products = make(Elementwise(Opcode.MULTIPLY), *factors, metadata=dot.metadata)
    zero = make(Constant(Literal(0, t)))
    return make(Reduce((len(dims),), _addition(t)), products, zero, metadata=dot.metadata)


def _is_small(op: Dot, dot: Instruction) -> bool:
    """Whether a dot of one contracting axis is worth the change, as measured."""
    left, right = (o.shape for o in dot.operands)
    if (
        not left.element_type is right.element_type is dot.shape.element_type
        or left.element_type not in _TYPES
    ):
        return False
    batch = math.prod(left.dims[a] for a in op.lhs_batch)
    rows = math.prod(left.dims[a] for a in op.lhs_free(left.rank))
    columns = math.prod(right.dims[a] for a in op.rhs_free(right.rank))
    products = [left.dims[a] for a in op.lhs_contracting]
    if len(products) != 1 or is_symbolic(products) or products[0] > _MAX_PRODUCTS:
        return False
    if estimate(batch * rows * columns) < MIN_VECTOR_ELEMENTS:
        return False
    if estimate(columns) >= _MIN_COLUMNS:
        return not is_symbolic([rows]) and rows <= _MAX_ROWS
    if is_symbolic([columns]):
        return False
    if columns == 1:
        return estimate(rows) >= _MIN_COLUMNS or fills_vectors(rows, batch)
    return columns <= _MAX_COLUMNS and fills_vectors(columns, batch if estimate(rows) == 1 else rows)


def _addition(t: ElementType) -> Computation:
    parameters = [make(Parameter(number, Shape(t))) for number in range(2)]
    return Computation("add", make(Elementwise(Opcode.ADD), *parameters), parameters)
