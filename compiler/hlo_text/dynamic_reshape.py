"""`reshape` in HLO text of an array with sizes known at run time only, where elements move: `inferred_dimension`, or
the result's shape, says which axis of the result has such a size.

    y = s32[2,<=3,2] reshape(s32[<=12] x), inferred_dimension=1    =>    n = get-dimension-size(x), y's size is n / 4
"""

from __future__ import annotations

import math

from ...runtime.sizes import is_symbolic
from ..analysis.dynamic_dimension_inference import infer_shape
from ..builder.computation_builder import ComputationBuilder
from ..errors import ShapeError
from ..ir.module import Computation, Metadata
from ..ir.shape import Shape
from ..ops import Reshape
from .scanner import integer

_MOST = (1 << 31) - 1
"""Sizes are s32."""


def moving_reshape(
    op: Reshape, operand: Shape, declared: Shape | None, metadata: Metadata
) -> Computation | None:
    """The computation that the reshape is a call of; None where no element moves, or it is not said along which axis.

    Raises: Malformed  inferred_dimension is no number.
    """
    dims = (*operand.dims, *op.result_dims)
    if not operand.dynamic or is_symbolic(dims) or not math.prod(op.result_dims) == operand.elements <= _MOST:
        return None
    marks = declared.dynamic if declared is not None else ()
    said = dict(metadata.extra).get("inferred_dimension")
    axes = marks if said is None else (integer(said),)
    if said is None and not marks and len(op.result_dims) == 1:
        axes = (0,)
    try:
        is_in_place = set(axes) <= set(infer_shape(op, [operand]).dynamic)
    except ShapeError:
        is_in_place = False
    if is_in_place or len(axes) != 1 or axes[0] not in range(len(op.result_dims)) or set(marks) - set(axes):
        return None
    axis = axes[0]
    others = math.prod(d for k, d in enumerate(op.result_dims) if k != axis)
    if others == 0:
        return None
    b = ComputationBuilder("reshape")
    b.die_immediately_on_error = True
    x = b.parameter(0, operand)
    total = b.constant(math.prod(d for k, d in enumerate(operand.dims) if k not in operand.dynamic))
    for k in operand.dynamic:
        total = b.mul(total, b.get_dimension_size(x, k))
    sizes = [
        b.div(total, b.constant(others)) if k == axis else b.constant(d) for k, d in enumerate(op.result_dims)
    ]
    shape = Shape(operand.element_type, op.result_dims, dynamic=(axis,))
    return b.build(b.dynamic_reshape(x, sizes, shape))
