"""Finds the contractions that can be computed in integers, and the weights and factors that belong to them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from ...runtime.sizes import is_symbolic
from ..evaluator.evaluator import evaluate_computation
from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, make, topological
from ..ops import (
    Compare,
    Constant,
    Convolution,
    Dot,
    DynamicSlice,
    Gather,
    GetTupleElement,
    Iota,
    Opcode,
    Pad,
    Parameter,
    ReduceWindow,
    Reshape,
    Slice,
    Transpose,
    While,
    Window,
    is_op,
    reducer_kind,
)
from ..passes.rules.rule import is_splat, splat
from ..passes.scale_weights import per_feature
from .loops import body_of, is_counted

_LONGEST_SUM = 60_000  # products of u8 and s8 whose sum s32 holds


@dataclasses.dataclass(frozen=True)
class Layer:
    """A contraction with constant weights in f32, or a gather of rows of a constant table,
    of which `source` is the numbers.

    name: of its TensorFlow node. source: what is quantised; `moves`, the last one first, bring it to the contraction.
    weights: in the operand's order, multiplied by the factors that follow; bias: what is added then, a number for each
    output feature. The result is that of `result`, the last of these instructions. channel_axis, feature_axis: of the
    output features in the weights and in the result.
    """

    name: str
    contraction: Instruction
    source: Instruction
    moves: tuple[Instruction, ...]
    weights: np.ndarray
    bias: np.ndarray
    channel_axis: int
    feature_axis: int
    result: Instruction

    @property
    def kind(self) -> str:
        """For reports."""
        op = self.contraction.op
        if isinstance(op, Dot):
            return "dense"
        if isinstance(op, Gather | DynamicSlice):
            return "embedding"
        assert isinstance(op, Convolution)
        return "depthwise" if op.feature_groups > 1 else "convolution"

    @property
    def is_matrix_product(self) -> bool:
        """Whether each row of the operand times the weights is a row of the result, in the same order."""
        op = self.contraction.op
        if isinstance(op, Dot):
            return True
        assert isinstance(op, Convolution)
        d, window = op.dims, op.window
        return (
            op.feature_groups == 1
            and window == Window.of((1,) * window.rank, window_dilation=window.window_dilation)
            and (d.input_batch, d.input_spatial) == (d.output_batch, d.output_spatial)
        )


def find_layers(computation: Computation, has_tables: bool) -> list[Layer]:
    """The contractions that can be computed in integers, in order, and the gathers from tables where these are layers;
    those of its loops too."""
    values: dict[Instruction, np.ndarray | None] = {}
    layers: list[Layer] = []
    for instruction in computation.instructions:
        if instruction.op.is_contraction:
            layer = _layer(instruction, computation, values)
            layers += [] if layer is None else [layer]
        elif has_tables and isinstance(instruction.op, Gather | DynamicSlice):
            layer = _table(instruction, values)
            layers += [] if layer is None else [layer]
        elif is_counted(instruction):
            layers += find_layers(body_of(instruction), has_tables)
    return layers


def stored_results(computation: Computation, layers: list[Layer]) -> list[Instruction]:
    """Results of layers that meet the result of another one in an elementwise op: the kernel of one of the two ends
    with it, and the other result is stored for it."""
    results = {layer.result for layer in layers}
    meetings = (
        [o for o in instruction.operands if o in results]
        for instruction in computation.instructions
        if instruction.op.is_elementwise and len(set(instruction.operands)) > 1
    )
    return [earlier for meeting in meetings if len(set(meeting)) > 1 for earlier in meeting[:-1]]


def _layer(
    contraction: Instruction, computation: Computation, values: dict[Instruction, np.ndarray | None]
) -> Layer | None:
    types = {contraction.shape.element_type, *(o.shape.element_type for o in contraction.operands)}
    if types != {ElementType.F32} or not contraction.shape.elements:
        return None
    op = contraction.op
    if isinstance(op, Dot):
        axes = _axes_of_dot(op, contraction)
    else:
        assert isinstance(op, Convolution)
        axes = _axes_of_convolution(op, contraction)
    left, right = contraction.operands
    if axes is None or is_symbolic(left.shape.dims) or _constant(left, values) is not None:
        return None
    weights = _constant(right, values)
    if weights is None or not np.isfinite(weights).all():
        return None
    channel_axis, feature_axis = axes
    source, moves = _source(left)
    after = _Following(computation, feature_axis, values)
    result = after.fold(contraction)
    shape = [1] * weights.ndim
    shape[channel_axis] = -1
    features = weights.shape[channel_axis]
    factor, bias = (np.broadcast_to(n, [features]) for n in (after.factor, after.bias))
    return Layer(
        contraction.metadata.op_name or contraction.name,
        contraction,
        source,
        moves,
        weights * factor.reshape(shape),
        bias,
        channel_axis,
        feature_axis,
        result,
    )


def _table(gather: Instruction, values: dict[Instruction, np.ndarray | None]) -> Layer | None:
    """A gather of whole rows, or of one row by a dynamic slice."""
    op, (operand, numbers, *_) = gather.op, gather.operands
    dims = operand.shape.dims
    if operand.shape.element_type is not ElementType.F32 or len(dims) != 2 or not gather.shape.elements:
        return None
    if isinstance(op, Gather):
        takes_rows = op.takes_rows(operand.shape, numbers.shape)
    else:
        takes_rows = gather.shape.dims == (1, dims[1])
    if not takes_rows:
        return None
    table = _constant(operand, values)
    if table is None or not np.isfinite(table).all():
        return None
    name, none = gather.metadata.op_name or gather.name, np.zeros(dims[:1], np.float32)
    return Layer(name, gather, numbers, (), table, none, 0, gather.shape.rank - 1, gather)


def _axes_of_dot(op: Dot, dot: Instruction) -> tuple[int, int] | None:
    """(axis of the output features in the weights, in the result); None where no integer kernel computes the dot."""
    lhs, rhs = (o.shape for o in dot.operands)
    free = op.rhs_free(rhs.rank)
    if op.rhs_batch or len(free) != 1 or op.lhs_contracting != (lhs.rank - 1,):
        return None
    return (free[0], dot.shape.rank - 1) if 0 < lhs.dims[-1] <= _LONGEST_SUM else None


def _axes_of_convolution(op: Convolution, convolution: Instruction) -> tuple[int, int] | None:
    d, last = op.dims, convolution.shape.rank - 1
    kernel = convolution.operands[1].shape.dims
    features = kernel[d.kernel_input_feature]
    if (d.input_feature, d.output_feature) != (last, last) or op.batch_groups > 1 or any(op.window.reversal):
        return None
    if op.feature_groups > 1 and features != 1 and features % 4:
        return None
    if op.feature_groups > 1 and features == 1 and kernel[-2:] != (1, kernel[d.kernel_output_feature]):
        return None
    if not 0 < features * math.prod(op.window.size) <= _LONGEST_SUM:
        return None
    return d.kernel_output_feature, last


def _source(value: Instruction) -> tuple[Instruction, tuple[Instruction, ...]]:
    """What a value consists of, and the instructions that only move it or take the largest of some elements, the last
    one first: rounding may come before them."""
    moves = []
    while (
        isinstance(value.op, Reshape | Transpose | Slice)
        or (isinstance(value.op, Pad) and is_splat(value.operands[1], 0.0))
        or _is_max_pool(value)
    ):
        moves.append(value)
        value = value.operands[0]
    return value, tuple(moves)


def _is_max_pool(value: Instruction) -> bool:
    if not isinstance(value.op, ReduceWindow) or len(value.operands) != 2:
        return False
    return _takes_larger(value.op.to_apply) and splat(value.operands[1]) is not None


def _takes_larger(computation: Computation) -> bool:
    """Whether a computation returns the larger one of two numbers, whatever it does with NaN."""
    if reducer_kind(computation) is Opcode.MAXIMUM:
        return True
    root = computation.root
    if not is_op(root, Opcode.SELECT):
        return False
    chooser, yes, no = root.operands
    compare, compared = chooser.op, chooser.operands
    if (
        not isinstance(compare, Compare)
        or {yes, no} != set(computation.parameters)
        or set(compared) != {yes, no}
    ):
        return False
    return compare.direction in (("GT", "GE") if compared == (yes, no) else ("LT", "LE"))


class _Following:
    """The products with constants that follow a result, and sums, a number for each feature, as one product and one
    sum."""

    def __init__(
        self, computation: Computation, axis: int, values: dict[Instruction, np.ndarray | None]
    ) -> None:
        self.computation, self.axis, self.values = computation, axis, values
        self.factor, self.bias = np.ones((), np.float32), np.zeros((), np.float32)

    def fold(self, value: Instruction) -> Instruction:
        """The last instruction that is a part of them."""
        while value is not self.computation.root and len(users := self.computation.users[value]) == 1:
            (user,) = users
            if not is_op(user, Opcode.MULTIPLY, Opcode.ADD, Opcode.SUBTRACT) or not self._take(user, value):
                break
            value = user
        return value

    def _take(self, user: Instruction, value: Instruction) -> bool:
        left, right = user.operands
        if left is right or (is_op(user, Opcode.SUBTRACT) and right is value):
            return False
        number = _per_feature(right if left is value else left, self.axis, self.values)
        if number is None or not np.isfinite(number).all():
            return False
        if is_op(user, Opcode.MULTIPLY):
            self.factor, self.bias = self.factor * number, self.bias * number
        else:
            self.bias = self.bias + (-number if is_op(user, Opcode.SUBTRACT) else number)
        return True


def _per_feature(
    value: Instruction, axis: int, values: dict[Instruction, np.ndarray | None]
) -> np.ndarray | None:
    """A constant that is one number for each feature, or one for all."""
    numbers = per_feature(value, axis)
    constant = None if numbers is None else _constant(numbers, values)
    return None if constant is None else constant.reshape(-1 if constant.size > 1 else ())


def _constant(value: Instruction, values: dict[Instruction, np.ndarray | None]) -> np.ndarray | None:
    """The value of an instruction that needs no argument; None for others."""
    for each in topological([value]):
        if each in values:
            continue
        values[each] = None
        if isinstance(each.op, Constant) and each.shape.is_array:
            values[each] = each.op.literal.array
        elif (
            each.operands
            and each.shape.is_array
            and not isinstance(each.op, Parameter | While | Iota | GetTupleElement)
            and not each.has_side_effect
            and all(values[o] is not None for o in each.operands)
        ):
            values[each] = _evaluated(each, values)
    return values[value]


def _evaluated(value: Instruction, values: Mapping[Instruction, np.ndarray | None]) -> np.ndarray | None:
    operands = [make(Constant(Literal(values[o], o.shape.element_type))) for o in value.operands]
    result = evaluate_computation(Computation("constant", value.with_operands(operands), []))
    return np.asarray(result)
