"""How often users read the elements of a value, and the cost of computing elements again."""

from __future__ import annotations

import itertools
import math

from ...runtime.sizes import is_multiple, is_symbolic
from ..ir.module import Computation, Instruction
from ..ops import Broadcast, Concatenate, Reduce, ReduceWindow, Reshape
from .instruction_cost import cycles, is_expensive
from .scan_axis import cumulative_axis

_SHORT = 64  # elements that are reduced to one
_SCALAR_LOOP = 8  # elements: a loop over fewer contiguous ones has no vectors
_LONGEST_VECTOR = 16  # elements of 32 bits
_MAX_JOINED_VECTORS = 8  # of rows that are joined: all of their values are held at a time
MIN_VECTOR_ELEMENTS = 1 << 10  # of an expensive value that is worth storing its operands for


def element_count(instruction: Instruction) -> int:
    """Elements of the (first) result, at least 1."""
    shape = instruction.shape
    return max(1, (next(shape.leaves()) if shape.is_tuple else shape).elements)


def elements_read(user: Instruction, operand: Instruction) -> float:
    """Elements of the operand that are evaluated for one element of the user."""
    if user.op.is_elementwise:
        return 1.0
    if isinstance(user.op, Reduce) and operand in user.operands[: len(user.operands) // 2]:
        return element_count(operand) / element_count(user)
    if isinstance(user.op, Concatenate):
        return element_count(operand) / element_count(user)
    if isinstance(user.op, ReduceWindow) and cumulative_axis(user) is None:
        return float(math.prod(user.op.window.size))
    if isinstance(user.op, Broadcast) and _is_outer(user):
        return element_count(operand) / element_count(user)
    return 1.0


def uses_per_element(user: Instruction, operand: Instruction) -> float:
    """Elements of an inner loop that share one element of a broadcast operand; infinite where there is no such loop."""
    if isinstance(user.op, Broadcast) and element_count(user) > element_count(operand) and _is_outer(user):
        return element_count(user) / element_count(operand)
    return math.inf


def inner_run(broadcast: Instruction) -> float:
    """Elements of a broadcast's innermost axes that all belong to the operand, or all do not; infinite where no others
    exist, and where loops join some such runs to vectors."""
    if not isinstance(broadcast.op, Broadcast):
        return math.inf
    mapped = broadcast.op.dimensions
    axes = [(axis in mapped, d) for axis, d in reversed(list(enumerate(broadcast.shape.dims))) if d > 1]
    inner = list(itertools.takewhile(lambda axis: axis[0] == axes[0][0], axes))
    if len(inner) == len(axes):
        return math.inf
    run = math.prod(d for _, d in inner)
    others = itertools.takewhile(lambda axis: axis[0] != axes[0][0], axes[len(inner) :])
    return math.inf if fills_vectors(run, math.prod(d for _, d in others)) else run


def fills_vectors(row: int, rows: int) -> bool:
    """Whether loops join rows of so many elements, of which there are `rows`, to whole vectors."""
    joined = 0 if is_symbolic([row]) else rows_to_join(row, _LONGEST_VECTOR)
    return bool(joined) and is_multiple(rows, joined)


def rows_to_join(row: int, lanes: int) -> int:
    """The fewest rows of so many elements that are whole vectors together; 0 where none are, or too many vectors, and
    where rows are long or whole vectors themselves."""
    rows = lanes // math.gcd(lanes, row)
    return rows if rows > 1 and 1 < row < 2 * lanes and rows * row <= _MAX_JOINED_VECTORS * lanes else 0


def row_length(reduction: Instruction) -> float:
    """Elements of each row of a reduction of many rows; infinite for other instructions."""
    if not isinstance(reduction.op, Reduce) or element_count(reduction) < MIN_VECTOR_ELEMENTS:
        return math.inf
    dims = reduction.operands[0].shape.dims
    inner = [axis for axis, d in enumerate(dims) if d > 1][-1:]
    is_row = set(inner) <= set(reduction.op.dimensions)
    return math.prod(dims) / element_count(reduction) if is_row else math.inf


def _is_outer(broadcast: Instruction) -> bool:
    """Whether the operand's axes are the outermost ones of a broadcast's result: inner loops do not compute them."""
    assert isinstance(broadcast.op, Broadcast)
    dims = broadcast.shape.dims
    mapped = [axis for axis, d in zip(broadcast.op.dimensions, broadcast.operands[0].shape.dims) if d > 1]
    inner = [axis for axis, d in enumerate(dims) if d > 1 and axis not in mapped]
    return not mapped or not inner or max(mapped) < min(inner)


def expensive_values(computation: Computation) -> dict[Instruction, int]:
    """Cycles of the expensive operations in each large value: its own, and those of operands of its size."""
    expensive: dict[Instruction, int] = {}
    for i in computation.instructions:
        if not i.shape.is_array or i.shape.elements < MIN_VECTOR_ELEMENTS:
            continue
        before = sum(expensive.get(o, 0) for o in i.operands if o.shape.elements == i.shape.elements)
        own = cycles(i) if i.op.is_elementwise and is_expensive(i) else 0
        if own or before and (i.op.is_elementwise or isinstance(i.op, Reshape)):
            expensive[i] = own + before
    return expensive


def is_scalar_loop(instruction: Instruction) -> bool:
    """Whether a loop computes one element at a time: it interleaves arrays, or accumulates along the innermost axis."""
    dims = instruction.shape.dims if instruction.shape.is_array else ()
    if isinstance(instruction.op, Concatenate):
        axis = instruction.op.dimension
        longest = max(o.shape.dims[axis] for o in instruction.operands)
        return len(instruction.operands) > 1 and longest * math.prod(dims[axis + 1 :]) < _SCALAR_LOOP
    along = cumulative_axis(instruction)
    return along is not None and bool(dims) and math.prod(dims[along[0] + 1 :]) < _SCALAR_LOOP


def is_cheap_to_copy(instruction: Instruction) -> bool:
    """Whether computing a value twice reads no more memory than loading it twice."""
    if instruction.op.is_reduction or cycles(instruction) > 2:
        return False
    return sum(_loaded_bytes(o) for o in instruction.operands) <= instruction.shape.bytes * 1.1


def _loaded_bytes(operand: Instruction) -> int:
    """Bytes that are loaded for a value; for a broadcast, those of its operand."""
    return operand.operands[0].shape.bytes if isinstance(operand.op, Broadcast) else operand.shape.bytes


def is_short_reduction(reduction: Instruction) -> bool:
    """Whether each result combines so few elements that the reduction needs no threads of its own."""
    return reduction.operands[0].shape.elements <= _SHORT * element_count(reduction)


def reduces_other_axes(outer: Instruction, inner: Instruction) -> bool:
    """Whether two reductions of arrays with the same dims reduce different axes: fused, each result of the inner one is
    computed for every result of the outer one."""
    if not isinstance(outer.op, Reduce) or not isinstance(inner.op, Reduce):
        return False
    return outer.operands[0].shape.dims == inner.operands[0].shape.dims and not (
        set(inner.op.dimensions) <= set(outer.op.dimensions)
    )
