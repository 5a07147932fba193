"""The ResourceApply ops: one step of an optimizer on a variable and its slots. The ResourceSparseApply ops: one on rows
of them.

A rule gets the old values of the variables, in the op's order, and its other inputs by name, and returns the new values
of the variables. Scalars (learning rates, momenta) are data.
Source: tensorflow/core/kernels/training_ops.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError
from ...analysis.trip_count import identity_source
from ...graph.graph import Graph, GraphNode, Tensor, input_range
from ..array.gather import gather_axis
from ..array.scatter_gather import scatter_rows
from ..array.sorting import sorted_with_places
from ..control.variables import assign, value_of
from ..math.reductions import reduce
from ..node import Node
from ..operands.value_ranges import check_indices
from ..registry import translates
from ..values import Variable


class _Step:
    """The other inputs of an optimizer op, by name, and arithmetic on them."""

    def __init__(self, node: Node, gradient: str = "grad") -> None:
        self.b: ComputationBuilder = node.b
        self.grad = node[gradient]
        self._node = node

    def __getattr__(self, name: str) -> Operand:
        return self._node[name]

    def flag(self, name: str) -> bool:
        """A bool attribute."""
        return bool(self._node.attr(name))

    def number(self, value: float) -> Operand:
        """A constant scalar of the variable's type."""
        return self.b.scalar_like(self.grad, value)


Rule = Callable[..., Sequence[Operand]]


def _gradient_descent(s: _Step, var: Operand) -> Sequence[Operand]:
    return (var - s.alpha * s.grad,)


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
    return (_proximal(s, var - s.grad * s.alpha, s.alpha),)


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
    "GradientDescent": _gradient_descent,
    "Momentum": _momentum,
    "KerasMomentum": _keras_momentum,
    "Adam": _adam,
    "AdamWithAmsgrad": _adam_with_amsgrad,
    "AdaMax": _ada_max,
    "Adagrad": _adagrad,
    "AdagradV2": _adagrad_v2,
    "Adadelta": _adadelta,
    "RMSProp": _rms_prop,
    "CenteredRMSProp": _centered_rms_prop,
    "Ftrl": _ftrl,
    "FtrlV2": _ftrl_v2,
    "ProximalGradientDescent": _proximal_gradient_descent,
    "ProximalAdagrad": _proximal_adagrad,
    "AdagradDA": _adagrad_da,
    "AddSign": _add_sign,
    "PowerSign": _power_sign,
}


def _slots(node: Node) -> list[int]:
    return [k for k, value in enumerate(node.inputs) if isinstance(value, Variable)]


_WITH_DELTA = ("ResourceApplyGradientDescent", "ResourceApplyProximalGradientDescent")


@translates(*(f"ResourceApply{name}" for name in RULES), stateful=True)
def apply_rule(node: Node) -> None:
    slots, rule = _slots(node), RULES[node.op.removeprefix("ResourceApply")]
    step = _Step(node, "delta" if node.op in _WITH_DELTA else "grad")
    new = rule(step, *(value_of(node, k) for k in slots))
    for k, value in zip(slots, new, strict=True):
        assign(node.variable(k), value)


_NOT_ON_ROWS = ("GradientDescent", "Adam", "AdamWithAmsgrad", "AdaMax", "AddSign", "PowerSign")
_ON_ROWS = tuple(f"ResourceSparseApply{name}" for name in RULES if name not in _NOT_ON_ROWS)


def _are_distinct(graph: Graph, indices: Tensor) -> bool:
    """Whether the graph shows that no index comes twice."""
    source = identity_source(graph, indices)
    return graph.nodes[source.node].op.startswith("Unique") and source.index == 0


def _distinct_rows(node: GraphNode, graph: Graph) -> Collection[int]:
    grad, indices = (input_range(node.definition, name)[0] for name in ("grad", "indices"))
    return (grad, indices) if _are_distinct(graph, node.inputs[indices]) else ()


@translates(*_ON_ROWS, stateful=True, takes_sizes=_distinct_rows)
def apply_rule_to_rows(node: Node) -> None:
    """One step on the rows that the indices pick. Leaves the run where an index comes twice: TensorFlow takes one step
    after the other."""
    b, slots, indices = node.b, _slots(node), node["indices"]
    old, (picked,) = [value_of(node, k) for k in slots], node.shape("indices")
    rows, *inner = b.get_shape(old[0]).dims
    if node.shape("grad") != (picked, *inner) or 0 in inner:
        raise ShapeError(
            f"{node.op}: grad {list(node.shape('grad'))} has not {picked} rows of the variable's {inner}"
        )
    check_indices(node, indices, rows)
    if picked and not _are_distinct(node.context.graph, node.graph_node.inputs[node.number("indices")]):
        ordered, _ = sorted_with_places(b, indices, 0, False)
        before, after = (b.slice_in_dim(ordered, k, picked - 1 + k, 1, 0) for k in range(2))
        node.bail_out_if(reduce(b, b.eq(before, after), "or_", [0]), "an index comes twice")
    rule = RULES[node.op.removeprefix("ResourceSparseApply")]
    new = rule(_Step(node), *(gather_axis(node, value, indices, 0, 0) for value in old)) if picked else old
    for k, value, changed in zip(slots, old, new, strict=True):
        assign(node.variable(k), scatter_rows(b, value, indices, changed, "update") if picked else value)
