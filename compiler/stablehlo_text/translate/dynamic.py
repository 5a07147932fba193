"""Operations whose result has sizes that operands say: compiled where the result's type, or constants, say them too."""

from __future__ import annotations

from ...errors import ShapeError, UnsupportedError
from ...ir.module import topological
from ...ops import Iota, Reshape, Slice
from ..translation import Context, Results, refuses, translates
from .arrays import broadcast_to, gather_slices
from .contractions import convolved

_MAX_INSTRUCTIONS = 200
_MAX_ELEMENTS = 64


def known(c: Context, number: int) -> tuple[int, ...]:
    """The whole numbers of an operand that follows from constants by a few operations on small arrays.

    Raises: UnsupportedError  it does not.
    """
    instruction = c.b.take(c.operand(number))
    needed = topological([instruction])
    is_small = len(needed) <= _MAX_INSTRUCTIONS and all(
        i.shape.is_array and i.shape.elements <= _MAX_ELEMENTS and not i.op.calling for i in needed
    )
    if (
        not is_small
        or not c.b.is_constant(c.operand(number))
        or not instruction.shape.element_type.is_integer
    ):
        raise UnsupportedError(
            f"{c.op.name} is not compiled: operand {number} says sizes, and is known at run time only"
        )
    array = c.b.compute_constant(c.operand(number)).array
    return tuple(map(int, array.reshape(-1).tolist()))


@translates("dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(c: Context) -> Results:
    targets = c.op.integers("dims" if c.op.has("dims") else "broadcast_dimensions")
    return broadcast_to(c, c.operand(), c.result().dims, targets)


@translates("dynamic_reshape")
def dynamic_reshape(c: Context) -> Results:
    return c.b.apply(Reshape(c.result().dims), c.operand())


@translates("dynamic_iota")
def dynamic_iota(c: Context) -> Results:
    return c.b.apply(Iota(c.result(), c.op.integer("dim" if c.op.has("dim") else "iota_dimension")))


@translates("real_dynamic_slice")
def real_dynamic_slice(c: Context) -> Results:
    return c.b.apply(Slice(known(c, 1), known(c, 2), known(c, 3)), c.operand())


@translates("dynamic_pad")
def dynamic_pad(c: Context) -> Results:
    low, high, interior = (known(c, k) for k in (2, 3, 4))
    if not len(low) == len(high) == len(interior):
        raise ShapeError(f"{c.op.name}: low, high and interior have different lengths")
    return c.b.pad(c.operand(0), c.operand(1), list(zip(low, high, interior)))


@translates("dynamic_gather")
def dynamic_gather(c: Context) -> Results:
    return gather_slices(c, known(c, 2))


@translates("dynamic_conv")
def dynamic_conv(c: Context) -> Results:
    c.all_operands(3)
    padding = known(c, 2)
    return convolved(c, [list(pair) for pair in zip(padding[::2], padding[1::2])])


refuses("sizes are known when compiling here, and are no values", "compute_reshape_shape", "cstr_reshapable")
