"""Cells of LSTM and GRU networks as one op, and a whole LSTM over time.

Source: tensorflow/core/kernels/rnn/lstm_ops.cc, gru_ops.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.loops import repeated
from ....compiler.builder.lib.matrices import line, with_line
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ..math.reductions import reduce
from ..node import Node
from ..registry import translates

_S32, _S64 = ElementType.S32, ElementType.S64


def _row(b: ComputationBuilder, vector: Operand, dims: Sequence[int]) -> Operand:
    return b.broadcast_in_dim(vector, dims, [1])


def _lstm_step(
    b: ComputationBuilder,
    node: Node,
    x: Operand,
    cs_prev: Operand,
    h_prev: Operand,
    w: Operand,
    peepholes: Sequence[Operand],
    bias: Operand,
    forget_bias: float,
    clip: float,
) -> list[Operand]:
    """(i, cs, f, o, ci, co, h) of one step. The kernel's columns are the input gate, the new input, forget and output
    gates; of the V2 op new input and forget change places."""
    dims = b.get_shape(cs_prev).dims
    cells = dims[1]
    gates = b.dot_general(b.concat_in_dim([x, h_prev], 1), w, ([1], [0]), ([], []))
    gates = gates + _row(b, bias, b.get_shape(gates).dims)
    columns = [b.slice_in_dim(gates, k * cells, (k + 1) * cells, 1, 1) for k in range(4)]
    i, ci, f, o = columns if not node.op.endswith("V2") else (columns[0], columns[2], columns[1], columns[3])
    uses_peephole = bool(node.attr("use_peephole"))
    wci, wcf, wco = (_row(b, v, dims) for v in peepholes)
    if uses_peephole:
        i, f = i + cs_prev * wci, f + cs_prev * wcf
    i, f = b.logistic(i), b.logistic(f + b.full_like(f, forget_bias))
    ci = b.tanh(ci)
    cs = ci * i + cs_prev * f
    if clip > 0:
        cs = b.clamp(b.scalar_like(cs, -clip), cs, b.scalar_like(cs, clip))
    if uses_peephole:
        o = o + cs * wco
    o = b.logistic(o)
    co = b.tanh(cs)
    return [i, cs, f, o, ci, co, co * o]


def _checked(node: Node, cells: int, inputs: int) -> None:
    expected = (inputs + cells, 4 * cells)
    if node.shape("w") != expected or node.shape("b") != (4 * cells,):
        raise ShapeError(
            f"{node.op}: w is {list(node.shape('w'))} and b {list(node.shape('b'))}, wanted are "
            f"{list(expected)} and [{4 * cells}]"
        )


@translates("LSTMBlockCell")
def lstm_cell(node: Node) -> Sequence[Operand]:
    _checked(node, node.shape("cs_prev")[1], node.shape("x")[1])
    return _lstm_step(
        node.b,
        node,
        node["x"],
        node["cs_prev"],
        node["h_prev"],
        node["w"],
        [node[k] for k in ("wci", "wcf", "wco")],
        node["b"],
        node.attr("forget_bias"),
        node.attr("cell_clip"),
    )


def _gate_gradients(
    b: ComputationBuilder,
    uses_peephole: bool,
    gates: Sequence[Operand],
    cs_prev: Operand,
    dcs: Operand,
    dh: Operand,
    peepholes: Sequence[Operand],
) -> tuple[Operand, list[Operand]]:
    """(gradient of the state before, of i, ci, f and o before their functions). `gates`: i, f, o, ci, co."""
    (i, f, o, ci, co), one = gates, b.full_like(gates[0], 1)
    wci, wcf, wco = (_row(b, v, b.get_shape(i).dims) for v in peepholes)
    do = o * (one - o) * dh * co
    dcs = (one - co * co) * dh * o + dcs
    if uses_peephole:
        dcs = dcs + do * wco
    dci = (one - ci * ci) * dcs * i
    df = f * (one - f) * dcs * cs_prev
    di = i * (one - i) * dcs * ci
    before = dcs * f
    if uses_peephole:
        before = before + di * wci + df * wcf
    return before, [di, dci, df, do]


@translates("LSTMBlockCellGrad")
def lstm_cell_grad(node: Node) -> Sequence[Operand]:
    """(gradient of the state before, of the gates before their functions, of the three peepholes)."""
    b, cs, cs_prev, uses_peephole = node.b, node["cs"], node["cs_prev"], bool(node.attr("use_peephole"))
    before, gates = _gate_gradients(
        b,
        uses_peephole,
        [node[k] for k in ("i", "f", "o", "ci", "co")],
        cs_prev,
        node["cs_grad"],
        node["h_grad"],
        [node[k] for k in ("wci", "wcf", "wco")],
    )
    di, _, df, do = gates
    peepholes = [
        reduce(b, d * c, "add", [0]) if uses_peephole else b.full_like(node["wci"], 0)
        for d, c in ((di, cs_prev), (df, cs_prev), (do, cs))
    ]
    return before, b.concat_in_dim(gates, 1), *peepholes


@translates("BlockLSTM", "BlockLSTMV2")
def block_lstm(node: Node) -> Sequence[Operand]:
    """All steps up to seq_len_max; the others are zeros."""
    b, (steps, batch, inputs), cells = node.b, node.shape("x"), node.shape("cs_prev")[1]
    _checked(node, cells, inputs)
    forget_bias = node.attr("forget_bias") if node.op == "BlockLSTM" else 0.0
    clip = node.attr("cell_clip")
    fixed = [
        node["x"],
        node["w"],
        *(node[k] for k in ("wci", "wcf", "wco")),
        node["b"],
        b.convert_element_type(b.reshape(node["seq_len_max"], ()), _S64),
    ]
    zeros = b.broadcast(b.scalar_like(node["x"], 0), (steps, batch, cells))

    def step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        x, w, wci, wcf, wco, bias, length, cs, h, *outputs = values
        now = b.reshape(line(b, x, number, 0), (batch, inputs))
        states = _lstm_step(b, node, now, cs, h, w, [wci, wcf, wco], bias, forget_bias, clip)
        inside = b.broadcast(b.lt(b.convert_element_type(number, _S64), length), (batch, cells))
        states = [b.select(inside, m, b.full_like(m, 0)) for m in states]
        outputs = [
            with_line(b, all_, b.reshape(m, (1, batch, cells)), number, 0) for all_, m in zip(outputs, states)
        ]
        return x, w, wci, wcf, wco, bias, length, states[1], states[6], *outputs

    values = repeated(b, steps, [*fixed, node["cs_prev"], node["h_prev"], *[zeros] * 7], step)
    return values[9:]


class _StepInputs(NamedTuple):
    """What the steps backwards read: values of all steps but for the weights and the number of steps."""

    x: Operand
    w: Operand
    wci: Operand
    wcf: Operand
    wco: Operand
    length: Operand
    cs_grad: Operand
    h_grad: Operand
    i: Operand
    f: Operand
    o: Operand
    ci: Operand
    co: Operand
    cs: Operand
    cs_prev: Operand
    h_prev: Operand


class _Gradients(NamedTuple):
    """What the steps backwards add to: gradients of the state, the output, x, the weights, the peepholes, the bias."""

    cs: Operand
    h: Operand
    x: Operand
    w: Operand
    wci: Operand
    wcf: Operand
    wco: Operand
    b: Operand


def _backward_step(
    b: ComputationBuilder, node: Node, at: Operand, inputs: _StepInputs, gradients: _Gradients
) -> _Gradients:
    """The gradients after the step of that number."""

    def now(x: Operand) -> Operand:
        return b.reshape(line(b, x, at, 0), b.get_shape(x).dims[1:])

    def inside(x: Operand, outside: Operand) -> Operand:
        """x in the steps up to seq_len_max."""
        return b.select(b.broadcast(is_inside, b.get_shape(x).dims), x, outside)

    i, f, o, ci, co, cs, cs_prev, h_prev = map(now, inputs[8:])
    is_inside = b.lt(b.convert_element_type(at, _S64), inputs.length)
    before, gates = _gate_gradients(
        b,
        bool(node.attr("use_peephole")),
        [i, f, o, ci, co],
        cs_prev,
        now(inputs.cs_grad) + gradients.cs,
        now(inputs.h_grad) + gradients.h,
        [inputs.wci, inputs.wcf, inputs.wco],
    )
    di, dci, df, do = gates
    columns = b.concat_in_dim([di, df, dci, do] if node.op.endswith("V2") else gates, 1)
    columns = inside(columns, b.full_like(columns, 0))
    through = b.dot_general(columns, inputs.w, ([1], [1]), ([], []))
    batch, width = b.get_shape(inputs.x).dims[1:]
    cells = b.get_shape(cs).dims[1]
    row = b.reshape(b.slice_in_dim(through, 0, width, 1, 1), (1, batch, width))
    x_and_h = b.concat_in_dim([now(inputs.x), h_prev], 1)
    peepholes = [d * c for d, c in ((di, cs_prev), (df, cs_prev), (do, cs))]
    peepholes = [inside(p, b.full_like(p, 0)) for p in peepholes]
    dwci, dwcf, dwco, db = (
        total + reduce(b, p, "add", [0]) for total, p in zip(gradients[4:], [*peepholes, columns])
    )
    return _Gradients(
        inside(before, gradients.cs),
        b.slice_in_dim(through, width, width + cells, 1, 1),
        with_line(b, gradients.x, row, at, 0),
        gradients.w + b.dot_general(x_and_h, columns, ([0], [0]), ([], [])),
        dwci,
        dwcf,
        dwco,
        db,
    )


@translates("BlockLSTMGrad", "BlockLSTMGradV2")
def block_lstm_grad(node: Node) -> Sequence[Operand]:
    """Gradients of x, the first state and output, the weights, the peepholes and the bias: the steps backwards."""
    b, (steps, batch, inputs), cells = node.b, node.shape("x"), node.shape("cs_prev")[1]

    def values_before(values: str, first: str) -> Operand:
        """Those of each step's predecessor."""
        first_step = b.reshape(node[first], (1, batch, cells))
        return b.concat_in_dim([first_step, b.slice_in_dim(node[values], 0, steps - 1, 1, 0)], 0)

    def zeros(*dims: int) -> Operand:
        return b.broadcast(b.constant(0, node.element_type("x")), dims)

    def step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        count = len(_StepInputs._fields)
        step_inputs, gradients = _StepInputs(*values[:count]), _Gradients(*values[count:])
        at = b.constant(steps - 1, _S32) - number
        return *step_inputs, *_backward_step(b, node, at, step_inputs, gradients)

    computed = {
        "length": b.convert_element_type(b.reshape(node["seq_len_max"], ()), _S64),
        "cs_prev": values_before("cs", "cs_prev"),
        "h_prev": values_before("h", "h_prev"),
    }
    step_inputs = _StepInputs(*(computed[k] if k in computed else node[k] for k in _StepInputs._fields))
    states, outputs = zeros(batch, cells), zeros(batch, cells)
    sequence, weights, peephole = zeros(steps, batch, inputs), zeros(*node.shape("w")), zeros(cells)
    gradients = _Gradients(states, outputs, sequence, weights, peephole, peephole, peephole, zeros(4 * cells))
    values = repeated(b, steps, [*step_inputs, *gradients], step)
    gradients = _Gradients(*values[len(step_inputs) :])
    if not node.attr("use_peephole"):
        none = zeros(cells)
        gradients = gradients._replace(wci=none, wcf=none, wco=none)
    return gradients.x, gradients.cs, gradients.h, *gradients[3:]


@translates("GRUBlockCell")
def gru_cell(node: Node) -> Sequence[Operand]:
    """(reset gate, update gate, new state before the mix, state)."""
    b, x, h_prev, cells = node.b, node["x"], node["h_prev"], node.shape("h_prev")[1]
    gates = b.dot_general(b.concat_in_dim([x, h_prev], 1), node["w_ru"], ([1], [0]), ([], []))
    gates = b.logistic(gates + _row(b, node["b_ru"], b.get_shape(gates).dims))
    r, u = (b.slice_in_dim(gates, k * cells, (k + 1) * cells, 1, 1) for k in range(2))
    new = b.dot_general(b.concat_in_dim([x, r * h_prev], 1), node["w_c"], ([1], [0]), ([], []))
    c = b.tanh(new + _row(b, node["b_c"], b.get_shape(new).dims))
    return r, u, c, u * h_prev + (b.full_like(u, 1) - u) * c


@translates("GRUBlockCellGrad")
def gru_cell_grad(node: Node) -> Sequence[Operand]:
    """(gradients of x, of the state before, of the new state before its function, of both gates before theirs)."""
    b, inputs, cells = node.b, node.shape("x")[1], node.shape("h_prev")[1]
    for weights in ("w_ru", "w_c"):
        if node.shape(weights)[0] != inputs + cells:
            raise ShapeError(f"{weights}.dim_size(0) != input_size + cell_size: {node.shape(weights)[0]}")
    r, u, c, h_prev, dh = (node[k] for k in ("r", "u", "c", "h_prev", "d_h"))
    one = b.full_like(u, 1)
    dc = dh * (one - u) * (one - c * c)
    du = dh * (h_prev - c) * u * (one - u)
    through_c = b.dot_general(dc, node["w_c"], ([1], [1]), ([], []))
    dx_c = b.slice_in_dim(through_c, 0, inputs, 1, 1)
    d_reset = b.slice_in_dim(through_c, inputs, inputs + cells, 1, 1)
    dr = d_reset * h_prev * r * (one - r)
    both = b.concat_in_dim([dr, du], 1)
    through_ru = b.dot_general(both, node["w_ru"], ([1], [1]), ([], []))
    dx = dx_c + b.slice_in_dim(through_ru, 0, inputs, 1, 1)
    d_before = dh * u + d_reset * r + b.slice_in_dim(through_ru, inputs, inputs + cells, 1, 1)
    return dx, d_before, dc, both
