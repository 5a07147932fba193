"""Elementwise ops: a row each for those that are one builder operation, a function for the others."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib import complex_functions
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import COMPLEXES, FLOATS, INTEGERS, ElementType
from ....runtime.sizes import AnySize, as_size, surely_less
from ...graph.graph import GraphNode
from ...tf_internals import symbols as tfp
from ...tf_internals.dtypes import element_type
from ..control.variants import add_variants
from ..node import Node
from ..operands.dynamic_dims import size_of, with_first
from ..operands.value_ranges import check_divisor, check_not_negative, note_floored
from ..registry import every_input, first_input, translates
from ..size_evaluation import holds_sizes
from ..values import Optional, TensorList, Value
from .broadcasting import assume_same_size, broadcast, broadcast_to, with_same_size
from .float_to_integer import float_to_integer

_B = ComputationBuilder
_PRED = ElementType.PRED
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

UNARY: dict[str, Callable[[ComputationBuilder, Operand], Operand]] = {
    "Abs": _B.abs,
    "ComplexAbs": _B.abs,
    "Neg": _B.neg,
    "Sign": lambda b, x: _sign(b, x),
    "Ceil": _B.ceil,
    "Floor": _B.floor,
    "Rint": _B.round_nearest_even,
    "Round": lambda b, x: x if _is_integer(b, x) else b.round_nearest_even(x),
    "Exp": _B.exp,
    "Expm1": _B.expm1,
    "Log": _B.log,
    "Log1p": _B.log1p,
    "Sqrt": lambda b, x: complex_functions.apply(b, "Sqrt", x) if _is_complex(b, x) else b.sqrt(x),
    "Rsqrt": lambda b, x: complex_functions.apply(b, "Rsqrt", x) if _is_complex(b, x) else b.rsqrt(x),
    "Sin": _B.sin,
    "Cos": _B.cos,
    "Tan": _B.tan,
    "Tanh": _B.tanh,
    "Sigmoid": _B.logistic,
    "Erf": _B.erf,
    "IsFinite": _B.is_finite,
    "LogicalNot": _B.not_,
    "Invert": _B.not_,
    "Conj": lambda b, x: _conj(b, x),
    "Square": lambda b, x: b.mul(x, x),
    "Reciprocal": lambda b, x: b.div(_like(b, x, 1), x),
    "Inv": lambda b, x: b.div(_like(b, x, 1), x),
    "IsNan": lambda b, x: b.ne(x, x),
    "IsInf": lambda b, x: b.eq(b.abs(x), _like(b, x, math.inf)),
    "Relu": lambda b, x: b.max(x, _like(b, x, 0)),
    "Relu6": lambda b, x: b.clamp(_like(b, x, 0), x, _like(b, x, 6)),
    "Elu": lambda b, x: b.select(b.lt(x, _like(b, x, 0)), _exp_less_1(b, x), x),
    "Selu": lambda b, x: b.select(
        b.lt(x, _like(b, x, 0)),
        b.mul(_exp_less_1(b, x), _like(b, x, _SELU_SCALE * _SELU_ALPHA)),
        b.mul(x, _like(b, x, _SELU_SCALE)),
    ),
    "Softplus": lambda b, x: _softplus(b, x),
    "Softsign": lambda b, x: b.div(x, b.add(b.abs(x), _like(b, x, 1))),
    "Identity": lambda b, x: x,
    "StopGradient": lambda b, x: x,
    "PreventGradient": lambda b, x: x,
    "Snapshot": lambda b, x: x,
}

BINARY: dict[str, Callable[[ComputationBuilder, Operand, Operand], Operand]] = {
    "Add": _B.add,
    "AddV2": _B.add,
    "Sub": _B.sub,
    "Mul": _B.mul,
    "RealDiv": _B.div,
    "Pow": _B.pow,
    "Maximum": lambda b, x, y: _B.max(b, *_narrow_turned(b, x, y)),
    "Minimum": lambda b, x, y: _B.min(b, *_narrow_turned(b, x, y)),
    "Atan2": _B.atan2,
    "Complex": _B.complex,
    "LogicalAnd": _B.and_,
    "LogicalOr": _B.or_,
    "BitwiseAnd": _B.and_,
    "BitwiseOr": _B.or_,
    "BitwiseXor": _B.xor,
    "LeftShift": lambda b, x, y: b.shift_left(x, _shift(b, y)),
    "RightShift": lambda b, x, y: (
        b.shift_right_arithmetic if b.get_shape(x).element_type.is_signed else b.shift_right_logical
    )(x, _shift(b, y)),
    "Less": _B.lt,
    "LessEqual": _B.le,
    "Greater": _B.gt,
    "GreaterEqual": _B.ge,
    "Equal": _B.eq,
    "NotEqual": _B.ne,
    "Div": _B.div,
    "TruncateDiv": lambda b, x, y: _truncated(b, b.div(x, y)),
    "TruncateMod": _B.rem,
    "FloorDiv": lambda b, x, y: _floor_div(b, x, y),
    "FloorMod": lambda b, x, y: _floor_mod(b, x, y),
    "Mod": _B.rem,
    "SquaredDifference": lambda b, x, y: _squared_difference(b, x, y),
    "DivNoNan": lambda b, x, y: b.select(b.eq(y, _like(b, y, 0)), _like(b, x, 0), b.div(x, y)),
    "MulNoNan": lambda b, x, y: b.select(b.eq(y, _like(b, y, 0)), _like(b, x, 0), b.mul(x, y)),
    "Xdivy": lambda b, x, y: _own_zero(b, x, b.div(x, y)),
    "Xlogy": lambda b, x, y: _own_zero(b, x, b.mul(x, b.log(y))),
    "Xlog1py": lambda b, x, y: _own_zero(b, x, b.mul(x, b.log1p(y))),
}

# Gradients that TensorFlow has as ops of their own: (gradient operands in the op's order) -> result.
# An infinite gradient times the slope 0 is NaN; a gradient of 0 is 0 for the roots and the reciprocal, even at 0.
GRADIENTS: dict[str, Callable[[ComputationBuilder, Operand, Operand], Operand]] = {
    "ReluGrad": lambda b, dy, x: b.mul(dy, _one_where(b, dy, b.gt(x, _like(b, x, 0)))),
    "Relu6Grad": lambda b, dy, x: b.mul(
        dy, _one_where(b, dy, b.and_(b.gt(x, _like(b, x, 0)), b.lt(x, _like(b, x, 6))))
    ),
    "TanhGrad": lambda b, y, dy: b.mul(dy, b.sub(_like(b, y, 1), b.mul(y, y))),
    "SigmoidGrad": lambda b, y, dy: b.mul(b.mul(dy, y), b.sub(_like(b, y, 1), y)),
    "SqrtGrad": lambda b, y, dy: _zero_for_zero(b, dy, b.div(_half(b, dy), b.conj(y))),
    "RsqrtGrad": lambda b, y, dy: _zero_for_zero(
        b, dy, b.conj(b.mul(b.mul(b.conj(dy), b.mul(y, _like(b, y, -0.5))), b.mul(y, y)))
    ),
    "InvGrad": lambda b, y, dy: _zero_for_zero(b, dy, b.neg(b.mul(dy, _square(b, b.conj(y))))),
    "ReciprocalGrad": lambda b, y, dy: _zero_for_zero(b, dy, b.neg(b.mul(dy, _square(b, b.conj(y))))),
    "SoftplusGrad": lambda b, dy, x: b.mul(dy, b.logistic(x)),
    "SoftsignGrad": lambda b, dy, x: b.div(dy, _square(b, b.add(_like(b, x, 1), b.abs(x)))),
    "EluGrad": lambda b, dy, y: b.select(b.lt(y, _like(b, y, 0)), b.mul(dy, b.add(y, _like(b, y, 1))), dy),
    "SeluGrad": lambda b, dy, y: b.select(
        b.lt(y, _like(b, y, 0)),
        b.mul(dy, b.add(y, _like(b, y, _SELU_SCALE * _SELU_ALPHA))),
        b.mul(dy, _like(b, y, _SELU_SCALE)),
    ),
}


def _like(b: ComputationBuilder, x: Operand, value: float) -> Operand:
    """A constant of the operand's type and dims."""
    shape = b.get_shape(x)
    return b.broadcast(
        b.constant(np.asarray(value).astype(shape.element_type.dtype), shape.element_type), shape.dims
    )


def _one_where(b: ComputationBuilder, x: Operand, condition: Operand) -> Operand:
    """1 of the type of x where a condition holds, else 0."""
    return b.select(condition, _like(b, x, 1), _like(b, x, 0))


def _own_zero(b: ComputationBuilder, x: Operand, value: Operand) -> Operand:
    """A value, or x where x is 0. A denormal float32 or float64 is a zero, as TensorFlow has it there."""
    is_wide = b.get_shape(x).element_type in (ElementType.F32, ElementType.F64)
    return b.select(b.eq(x, _like(b, x, 0)), b.mul(x, _like(b, x, 0)) if is_wide else x, value)


def _zero_for_zero(b: ComputationBuilder, dy: Operand, value: Operand) -> Operand:
    return b.select(b.eq(dy, _like(b, dy, 0)), _like(b, dy, 0), value)


def _half(b: ComputationBuilder, x: Operand) -> Operand:
    """x / 2; a complex number's parts one by one, which keeps infinities."""
    if _is_complex(b, x):
        return b.complex(_half(b, b.real(x)), _half(b, b.imag(x)))
    return b.mul(x, _like(b, x, 0.5))


def _square(b: ComputationBuilder, x: Operand) -> Operand:
    return b.mul(x, x)


def _conj(b: ComputationBuilder, x: Operand) -> Operand:
    return b.conj(x) if _is_complex(b, x) else x


def _squared_difference(b: ComputationBuilder, x: Operand, y: Operand) -> Operand:
    difference = b.sub(x, y)
    return b.mul(difference, _conj(b, difference))


def _is_complex(b: ComputationBuilder, x: Operand) -> bool:
    return b.get_shape(x).element_type in COMPLEXES


def _is_integer(b: ComputationBuilder, x: Operand) -> bool:
    return b.get_shape(x).element_type in INTEGERS


def _sign(b: ComputationBuilder, x: Operand) -> Operand:
    """-1, 0 or 1; that of -0 is 0."""
    return b.select(b.eq(x, _like(b, x, 0)), _like(b, x, 0), b.sign(x))


def _exp_less_1(b: ComputationBuilder, x: Operand) -> Operand:
    """exp(x) - 1 rounded twice, as TensorFlow's activations have it."""
    return b.sub(b.exp(x), _like(b, x, 1))


def _narrow_turned(b: ComputationBuilder, x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """The operands of a maximum; those of 16 bits turned round: of 0 and -0 TensorFlow takes the first there, the
    second of wider ones."""
    return (y, x) if b.get_shape(x).element_type in (ElementType.F16, ElementType.BF16) else (x, y)


def _softplus(b: ComputationBuilder, x: Operand) -> Operand:
    """log(1 + exp(x)), without overflow: max(x, 0) + log1p(exp(-|x|))."""
    return b.add(b.max(x, _like(b, x, 0)), b.log1p(b.exp(b.neg(b.abs(x)))))


def _floor_div(b: ComputationBuilder, x: Operand, y: Operand) -> Operand:
    type_ = b.get_shape(x).element_type
    if type_.is_unsigned:
        return b.div(x, y)
    if type_ in FLOATS:
        return b.floor(b.div(x, y))
    quotient, zero = b.div(x, y), _like(b, x, 0)
    inexact = b.ne(b.rem(x, y), zero)
    negative = b.ne(b.lt(x, zero), b.lt(y, zero))
    return b.select(b.and_(negative, inexact), b.sub(quotient, _like(b, x, 1)), quotient)


def _shift(b: ComputationBuilder, places: Operand) -> Operand:
    """Places to shift by: none where they are below zero, all but one where they are more than the bits."""
    max_shift = b.get_shape(places).element_type.bits - 1
    return b.clamp(_like(b, places, 0), places, _like(b, places, max_shift))


def _truncated(b: ComputationBuilder, x: Operand) -> Operand:
    """Floats rounded towards zero."""
    if b.get_shape(x).element_type not in FLOATS:
        return x
    return b.select(b.lt(x, _like(b, x, 0)), b.ceil(x), b.floor(x))


def _floor_mod(b: ComputationBuilder, x: Operand, y: Operand) -> Operand:
    remainder = b.rem(x, y)
    if b.get_shape(x).element_type.is_unsigned:
        return remainder
    zero = _like(b, x, 0)
    wrong = b.and_(b.ne(b.lt(remainder, zero), b.lt(y, zero)), b.ne(remainder, zero))
    return b.select(wrong, b.add(remainder, y), remainder)


@translates(
    *(op for op in UNARY if op not in ("Identity", "StopGradient", "Snapshot")), takes_sizes=every_input
)
def unary(node: Node) -> Operand:
    return UNARY[node.op](node.b, node[0])


@translates(
    "Identity", "StopGradient", "Snapshot", "_EagerConst", "PlaceholderWithDefault", takes_sizes=every_input
)
def identity(node: Node) -> Value:
    return node.inputs[0]


@translates("IdentityN", "_ArrayToList", "_ListToArray", takes_sizes=every_input)
def identity_n(node: Node) -> tuple[Value, ...]:
    return tuple(node.inputs)


@translates("NoOp", "ControlTrigger")
def nothing(node: Node) -> None:
    return None


@translates(*BINARY, takes_sizes=every_input)
def binary(node: Node) -> Operand:
    x, y = broadcast(node.b, node[0], node[1])
    if node.op in _FLOORED and (sizes := _floored_sizes(node, x, y)) is not None:
        return sizes
    if node.op in _WITH_ERRORS and _is_integer(node.b, x) and node.b.get_shape(x).elements:
        _WITH_ERRORS[node.op](node, node[1])
    result = BINARY[node.op](node.b, x, y)
    if node.op in _FLOORED and _is_integer(node.b, x):
        note_floored(node, result)
    return result


_FLOORED: dict[str, Callable[[AnySize, AnySize], AnySize]] = {
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
}


def _floored_sizes(node: Node, x: Operand, y: Operand) -> Operand | None:
    """The quotients or remainders of sizes known at run time only; None where an operand is none, a type may be too
    narrow for it, or a divisor may be below 1. Tests of signs would be guards, as that nothing remains."""
    if node.element_type(0) not in (ElementType.S32, ElementType.S64):
        return None
    dividends, divisors = node.context.constant_value(x), node.context.constant_value(y)
    if dividends is None or divisors is None or not (holds_sizes(dividends) or holds_sizes(divisors)):
        return None
    pairs = [(as_size(a), as_size(b)) for a, b in zip(dividends.flat, divisors.flat)]
    if not all(surely_less(0, b) for _, b in pairs):
        return None
    values = np.empty(len(pairs), object)
    values[:] = [_FLOORED[node.op](a, b) for a, b in pairs]
    return node.b.constant(values.reshape(dividends.shape), node.b.get_shape(x).element_type)


# Of integers, by what their second operand must not be.
_WITH_ERRORS = {
    "Pow": check_not_negative,
    **dict.fromkeys(("Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"), check_divisor),
}


@translates(*GRADIENTS, takes_sizes=every_input)
def gradient(node: Node) -> Operand:
    x, y = broadcast(node.b, node[0], node[1])
    return GRADIENTS[node.op](node.b, x, y)


@translates("AddN", takes_sizes=every_input)
def add_n(node: Node) -> Value:
    if any(isinstance(term, TensorList | Optional) for term in node.inputs):
        return add_variants(node, node.inputs)
    terms = broadcast(node.b, *node.list("inputs"))
    total = terms[0]
    for term in terms[1:]:
        total = node.b.add(total, term)
    return total


@translates("AccumulateNV2", takes_sizes=every_input)
def accumulate(node: Node) -> Value:
    return add_n(node)


@translates("LeakyRelu", takes_sizes=every_input)
def leaky_relu(node: Node) -> Operand:
    x = node[0]
    return node.b.select(
        node.b.gt(x, _like(node.b, x, 0)), x, node.b.mul(x, _like(node.b, x, node.attr("alpha")))
    )


@translates("LeakyReluGrad", takes_sizes=every_input)
def leaky_relu_grad(node: Node) -> Operand:
    dy, x = broadcast(node.b, node[0], node[1])
    slope = _like(node.b, dy, node.attr("alpha"))
    return node.b.select(node.b.gt(x, _like(node.b, x, 0)), dy, node.b.mul(dy, slope))


@translates("Cast", takes_sizes=every_input)
def cast(node: Node) -> Operand:
    target, source = node.attr("DstT"), node.element_type(0)
    if node.attr(tfp.SATURATES):
        return node.b.convert_element_type(node[0], target)
    if source in FLOATS | COMPLEXES and target in INTEGERS:
        return float_to_integer(node.b, node[0], target)
    if source is ElementType.BF16 and target is _PRED:
        return _has_bits(node.b, node[0])
    x = node.b.real(node[0]) if source in COMPLEXES and target not in COMPLEXES else node[0]
    return node.b.convert_element_type(x, target)


def _has_bits(b: ComputationBuilder, x: Operand) -> Operand:
    """Whether numbers of 16 bits differ from 0 and -0: TensorFlow looks at the bits of bfloat16, denormals too."""
    bits = b.bitcast_convert_type(x, ElementType.U16)
    return b.ne(b.shift_left(bits, b.scalar_like(bits, 1)), b.scalar_like(bits, 0))


def _unsupported_complex(node: GraphNode) -> str | None:
    types = [element_type(node.attrs[name].type) for name in ("T", "type")]
    changes = types[0] is not types[1] and any(t in COMPLEXES for t in types)
    return "the bits of complex numbers are taken as another type's" if changes else None


@translates("Bitcast", unsupported=_unsupported_complex)
def bitcast(node: Node) -> Operand:
    return node.b.bitcast_convert_type(node[0], node.attr("type"))


@translates("Real", "Imag", "Angle", takes_sizes=every_input)
def complex_part(node: Node) -> Operand:
    x = node[0]
    if node.op == "Angle":
        return node.b.atan2(node.b.imag(x), node.b.real(x))
    return node.b.real(x) if node.op == "Real" else node.b.imag(x)


@translates("ClipByValue", takes_sizes=first_input, types={"T": frozenset(ElementType) - COMPLEXES})
def clip_by_value(node: Node) -> Operand:
    dims = node.shape(0)
    assume_same_size(node.b, [(node[k], 0) for k in range(3) if node.shape(k)])
    low, high = (broadcast_to(node.b, node[k], dims) for k in (1, 2))
    b, x = node.b, node[0]
    x = b.select(b.lt(high, x), high, x)  # a bound that is NaN is none
    return b.select(b.lt(x, low), low, x)


@translates("Select", "SelectV2", takes_sizes=every_input)
def select(node: Node) -> Operand:
    condition, x, y = node[0], node[1], node[2]
    if node.op == "Select":  # a vector condition picks rows
        return _select_rows(node, condition, x, y)
    return node.b.select(*broadcast(node.b, condition, x, y))


def _select_rows(node: Node, condition: Operand, x: Operand, y: Operand) -> Operand:
    b, is_scalar = node.b, not node.shape(0)
    if node.shape(1):
        places = [(o, 0) for o in ([x, y] if is_scalar else [condition, x, y])]
        *conditions, x, y = with_same_size(b, places)
        condition = conditions[0] if conditions else condition
    dims, condition_dims = b.get_shape(x).dims, b.get_shape(condition).dims
    if len(condition_dims) == 1 and condition_dims == dims[:1]:
        return b.select(b.broadcast_in_dim(condition, dims, (0,)), x, y)
    if condition_dims not in ((), dims):
        raise ShapeError(
            f"Select: the condition {list(condition_dims)} is neither a vector of rows nor as {list(dims)}"
        )
    condition = broadcast_to(b, condition, dims)
    return b.select(with_first(b, condition, [size_of(b, x, 0)]) if is_scalar and dims else condition, x, y)
