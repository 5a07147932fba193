"""The ResourceApply ops: one step of an optimizer on a variable and its slots.

A rule gets the old values of the variables, in the op's order, and its other inputs by name, and returns the new values
of the variables. Scalars (learning rates, momenta) are data.
Source: tensorflow/core/kernels/training_ops.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ..control.variables import assign, value_of
from ..node import Node
from ..registry import translates
from ..values import Variable


class _Step:
    """The other inputs of an optimizer op, by name, and arithmetic on them."""

    def __init__(self, node: Node) -> None:
        self.b: ComputationBuilder = node.b
        self._node = node

    def __getattr__(self, name: str) -> Operand:
        return self._node[name]

    def flag(self, name: str) -> bool:
        """A bool attribute."""
        return bool(self._node.attr(name))

    def number(self, value: float) -> Operand:
        """A constant scalar of the variable's type."""
        return self.b.scalar_like(self._node["grad"], value)


Rule = Callable[..., Sequence[Operand]]


def _gradient_descent(s: _Step, var: Operand) -> Sequence[Operand]:
    return (var - s._node["alpha"] * s._node["delta"],)


def _momentum(s: _Step, var: Operand, accum: Operand) -> Sequence[Operand]:
    accum = accum * s.momentum + s.grad
    step = s.grad * s.lr + accum * s.momentum * s.lr if s.flag("use_nesterov") else accum * s.lr
    return var - step, accum


def _keras_momentum(s: _Step, var: Operand, accum: Operand) -> Sequence[Operand]:
    accum = accum * s.momentum - s.grad * s.lr
    return var + (accum * s.momentum - s.grad * s.lr if s.flag("use_nesterov") else accum), accum


def _adam(s: _Step, var: Operand, m: Operand, v: Operand) -> Sequence[Operand]:
    one = s.number(1)
    rate = s.lr * s.b.sqrt(one - s.beta2_power) / (one - s.beta1_power)
    m = m + (s.grad - m) * (one - s.beta1)
    v = v + (s.grad * s.grad - v) * (one - s.beta2)
    top = m * s.beta1 + s.grad * (one - s.beta1) if s.flag("use_nesterov") else m
    return var - top * rate / (s.b.sqrt(v) + s.epsilon), m, v


def _adam_with_amsgrad(s: _Step, var: Operand, m: Operand, v: Operand, vhat: Operand) -> Sequence[Operand]:
    one = s.number(1)
    rate = s.lr * s.b.sqrt(one - s.beta2_power) / (one - s.beta1_power)
    m = m + (s.grad - m) * (one - s.beta1)
    v = v + (s.grad * s.grad - v) * (one - s.beta2)
    vhat = s.b.max(vhat, v)
    return var - m * rate / (s.b.sqrt(vhat) + s.epsilon), m, v, vhat


def _ada_max(s: _Step, var: Operand, m: Operand, v: Operand) -> Sequence[Operand]:
    one = s.number(1)
    m = m + (s.grad - m) * (one - s.beta1)
    v = s.b.max(v * s.beta2, s.b.abs(s.grad))
    return var - (s.lr / (one - s.beta1_power)) * (m / (v + s.epsilon)), m, v


def _adagrad(s: _Step, var: Operand, accum: Operand) -> Sequence[Operand]:
    if s.flag("update_slots"):
        accum = accum + s.grad * s.grad
    return var - s.grad * s.lr * s.b.rsqrt(accum), accum


def _adagrad_v2(s: _Step, var: Operand, accum: Operand) -> Sequence[Operand]:
    if s.flag("update_slots"):
        accum = accum + s.grad * s.grad
    return var - s.grad * s.lr / (s.b.sqrt(accum) + s.epsilon), accum


def _adadelta(s: _Step, var: Operand, accum: Operand, accum_update: Operand) -> Sequence[Operand]:
    rest = s.number(1) - s.rho
    accum = accum * s.rho + s.grad * s.grad * rest
    update = s.b.sqrt(accum_update + s.epsilon) * s.b.rsqrt(accum + s.epsilon) * s.grad
    return var - update * s.lr, accum, accum_update * s.rho + update * update * rest


def _rms_prop(s: _Step, var: Operand, ms: Operand, mom: Operand) -> Sequence[Operand]:
    ms = ms + (s.grad * s.grad - ms) * (s.number(1) - s.rho)
    mom = mom * s.momentum + s.grad * s.lr * s.b.rsqrt(ms + s.epsilon)
    return var - mom, ms, mom


def _centered_rms_prop(s: _Step, var: Operand, mg: Operand, ms: Operand, mom: Operand) -> Sequence[Operand]:
    rest = s.number(1) - s.rho
    ms = ms + (s.grad * s.grad - ms) * rest
    mg = mg + (s.grad - mg) * rest
    mom = mom * s.momentum + s.grad * s.lr / s.b.sqrt(ms - mg * mg + s.epsilon)
    return var - mom, mg, ms, mom


def _ftrl(
    s: _Step, var: Operand, accum: Operand, linear: Operand, shrinkage: Operand | None = None
) -> Sequence[Operand]:
    b, power = s.b, -s.lr_power
    two = s.number(2)
    shrunk = s.grad if shrinkage is None else s.grad + two * shrinkage * var
    new_accum = accum + s.grad * s.grad
    old_power, new_power = b.pow(accum, power), b.pow(new_accum, power)
    rates_in_linear = s.flag("multiply_linear_by_lr")
    if rates_in_linear:
        linear = linear + shrunk * s.lr - (new_power - old_power) * var
        limit = s.l1 * s.lr
        quadratic = new_power + two * s.l2 * s.lr
    else:
        linear = linear + shrunk - (new_power - old_power) / s.lr * var
        limit = s.l1
        quadratic = new_power / s.lr + two * s.l2
    top = b.clamp(-limit, linear, limit) - linear
    return top / quadratic, new_accum, linear


def _ftrl_v2(s: _Step, var: Operand, accum: Operand, linear: Operand) -> Sequence[Operand]:
    return _ftrl(s, var, accum, linear, s.l2_shrinkage)


def _proximal(s: _Step, var: Operand, rate: Operand) -> Operand:
    """var shrunk towards zero by l1, divided by 1 + l2 rate."""
    b, zero = s.b, s.b.scalar_like(var, 0)
    shrunk = b.sign(var) * b.max(b.abs(var) - rate * b.max(s.l1, zero), zero)
    return shrunk / (s.b.scalar_like(var, 1) + s.l2 * rate)


def _proximal_gradient_descent(s: _Step, var: Operand) -> Sequence[Operand]:
    alpha = s._node["alpha"]
    return (_proximal(s, var - s._node["delta"] * alpha, alpha),)


def _proximal_adagrad(s: _Step, var: Operand, accum: Operand) -> Sequence[Operand]:
    accum = accum + s.grad * s.grad
    rate = s.b.rsqrt(accum) * s.lr
    return _proximal(s, var - s.grad * rate, rate), accum


def _adagrad_da(s: _Step, var: Operand, gradients: Operand, squares: Operand) -> Sequence[Operand]:
    b = s.b
    gradients, squares = gradients + s.grad, squares + s.grad * s.grad
    steps = b.convert_element_type(s.global_step, b.get_shape(var).element_type)
    zero = s.number(0)
    shrunk = b.sign(gradients) * b.max(b.abs(gradients) - s.l1 * steps, zero)
    top = b.select(b.gt(b.broadcast(s.l1, b.get_shape(var).dims), b.scalar_like(var, 0)), shrunk, gradients)
    return -(top * s.lr) / (s.l2 * steps * s.lr + b.sqrt(squares)), gradients, squares


def _sign_rule(s: _Step, var: Operand, m: Operand, scale: Callable[[Operand], Operand]) -> Sequence[Operand]:
    m = m * s.beta + s.grad * (s.number(1) - s.beta)
    agree = s.sign_decay * s.b.sign(s.grad) * s.b.sign(m)
    return var - s.lr * scale(agree) * s.grad, m


def _add_sign(s: _Step, var: Operand, m: Operand) -> Sequence[Operand]:
    return _sign_rule(s, var, m, lambda agree: s.alpha + agree)


def _power_sign(s: _Step, var: Operand, m: Operand) -> Sequence[Operand]:
    return _sign_rule(s, var, m, lambda agree: s.b.exp(s.logbase * agree))


RULES: dict[str, Rule] = {
    "ResourceApplyGradientDescent": _gradient_descent,
    "ResourceApplyMomentum": _momentum,
    "ResourceApplyKerasMomentum": _keras_momentum,
    "ResourceApplyAdam": _adam,
    "ResourceApplyAdamWithAmsgrad": _adam_with_amsgrad,
    "ResourceApplyAdaMax": _ada_max,
    "ResourceApplyAdagrad": _adagrad,
    "ResourceApplyAdagradV2": _adagrad_v2,
    "ResourceApplyAdadelta": _adadelta,
    "ResourceApplyRMSProp": _rms_prop,
    "ResourceApplyCenteredRMSProp": _centered_rms_prop,
    "ResourceApplyFtrl": _ftrl,
    "ResourceApplyFtrlV2": _ftrl_v2,
    "ResourceApplyProximalGradientDescent": _proximal_gradient_descent,
    "ResourceApplyProximalAdagrad": _proximal_adagrad,
    "ResourceApplyAdagradDA": _adagrad_da,
    "ResourceApplyAddSign": _add_sign,
    "ResourceApplyPowerSign": _power_sign,
}


@translates(*RULES, stateful=True)
def apply_rule(node: Node) -> None:
    slots = [k for k, value in enumerate(node.inputs) if isinstance(value, Variable)]
    new = RULES[node.op](_Step(node), *(value_of(node, k) for k in slots))
    for k, value in zip(slots, new, strict=True):
        assign(node.variable(k), value)
