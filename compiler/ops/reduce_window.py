"""ReduceWindow and SelectAndScatter: reductions over a sliding window, and their way back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType
from ..ir.module import Computation, Evaluate, Instruction, Value, array_of
from ..ir.shape import Shape
from .elementwise import Opcode
from .numeric import narrow, wide
from .op import Op, attribute, collated, require, require_arrays, require_signature
from .reduce import combine_flops, reducer_kind, require_reduction, together
from .window import Window

# What is computed in a wider type, and rounded once.
_ACCUMULATED = {Opcode.ADD: np.add, Opcode.MULTIPLY: np.multiply}


@dataclasses.dataclass(frozen=True)
class ReduceWindow(Op):
    """For every position of the window, the elements that it covers combined by to_apply, starting from the
    initial values. Padding and holes are not elements.

    Operands: N arrays, then N initial scalars, as for reduce.
    Shapes: result dims floor((padded - dilated window) / stride) + 1, or 0 where the window does not fit.
    reduce_window_c1: N arrays of the same dims, then N scalars of their element types, N at least 1.
    reduce_window_c2: to_apply is (T0, .., T0, ..) -> T0 or (T0, ..), all scalars.
    reduce_window_c3: the window has one entry per axis; sizes, strides and dilations are at least 1; the
    padded dims are not negative.
    Source: operation semantics, ReduceWindow.
    """

    opcode: ClassVar[str] = "reduce-window"
    is_reduction: ClassVar[bool] = True
    window: Window = attribute("window", "window")
    to_apply: Computation = attribute("computation", "to_apply")

    def flops(self, instruction: Instruction) -> int:
        """Those of to_apply for each element of each window."""
        outputs = next(iter(instruction.shape.leaves())).elements
        return outputs * math.prod(self.window.size) * combine_flops(self.to_apply)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The window's positions."""
        arrays = require_reduction(
            "reduce-window", operands, self.to_apply, ("reduce_window_c1", "reduce_window_c2")
        )
        self.window.check("reduce-window", arrays[0].dims, "reduce_window_c3")
        return collated([a.with_dims(self.window.output(a.dims)) for a in arrays])

    def reference(self, *operands: np.ndarray, call: Evaluate) -> Value:
        """One step per element of the window, over all positions at once. Sums and products of floats are kept in
        f64."""
        count = len(operands) // 2
        arrays, inits = operands[:count], operands[count:]
        output = self.window.output(arrays[0].shape)
        inside = self.window.pad(np.ones(arrays[0].shape, bool), np.asarray(False))
        bases = [self.window.pad(a, i) for a, i in zip(arrays, inits)]
        kind, dtype = reducer_kind(self.to_apply), arrays[0].dtype
        combine = None if kind is None or dtype == np.bool_ else _ACCUMULATED.get(kind)
        if combine is not None:
            bases, inits = [wide(bases[0])], (wide(inits[0]),)
        values = tuple(np.broadcast_to(i, output) for i in inits)
        for covered, *seen in zip(
            self.window.views(inside, output), *(self.window.views(b, output) for b in bases)
        ):
            with np.errstate(all="ignore"):
                new = (
                    together(call(self.to_apply, *values, *seen))
                    if combine is None
                    else (combine(values[0], seen[0]),)
                )
            values = tuple(np.where(covered, n, v) for n, v in zip(new, values))
        if combine is not None:
            return narrow(values[0], dtype)
        return values[0] if count == 1 else values


@dataclasses.dataclass(frozen=True)
class SelectAndScatter(Op):
    """In every window over the operand one element is selected; the source's element for that window is
    combined by `scatter` into the result at the selected element's position. The result starts as the initial
    value everywhere.

    Of the elements seen in row-major order, `select(current, next)` false makes the next one current; padding
    is never selected, and a window that covers no element scatters nothing.
    Operands: operand [..], source [window positions], initial value [].
    select_and_scatter_c1: three arrays of one element type, the third a scalar.
    select_and_scatter_c2: the window has one entry per axis; sizes, strides and dilations are at least 1; the
    padded dims are not negative.
    select_and_scatter_c3: the source has the dims of the window's positions.
    select_and_scatter_c4: select is (T, T) -> pred.
    select_and_scatter_c5: scatter is (T, T) -> T.
    Source: operation semantics, SelectAndScatter.
    """

    opcode: ClassVar[str] = "select-and-scatter"
    window: Window = attribute("window", "window")
    select: Computation = attribute("computation", "select")
    scatter: Computation = attribute("computation", "scatter")

    def flops(self, instruction: Instruction) -> int:
        """One for each element of the operand."""
        return instruction.operands[0].shape.elements

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape."""
        name = "select-and-scatter"
        require_arrays(name, operands, 3, "select_and_scatter_c1")
        operand, source, init = operands
        scalar = Shape(operand.element_type)
        require(
            source.element_type is operand.element_type and init == scalar,
            f"{name}: operands are {operand}, {source}, {init}, two arrays and a scalar of one type are "
            "wanted",
            "select_and_scatter_c1",
        )
        self.window.check(name, operand.dims, "select_and_scatter_c2")
        output = self.window.output(operand.dims)
        require(
            source.dims == output,
            f"{name}: source is {source}, the window has {list(output)} positions",
            "select_and_scatter_c3",
        )
        require_signature(
            name, "select", self.select, [scalar, scalar], Shape(ElementType.PRED), "select_and_scatter_c4"
        )
        require_signature(name, "scatter", self.scatter, [scalar, scalar], scalar, "select_and_scatter_c5")
        return operand.without_layout()

    def reference(
        self, operand: np.ndarray, source: np.ndarray, init: np.ndarray, call: Evaluate
    ) -> np.ndarray:
        """The number of the selected element for every window, then one update after the other in rounds of
        windows that selected different elements."""
        output = source.shape
        inside = self.window.pad(np.ones(operand.shape, bool), np.asarray(False))
        base = self.window.pad(operand, init)
        numbers = self.window.pad(np.arange(operand.size).reshape(operand.shape), np.asarray(-1))
        best, selected = np.zeros(output, operand.dtype), np.full(output, -1)
        for covered, seen, number in zip(
            self.window.views(inside, output),
            self.window.views(base, output),
            self.window.views(numbers, output),
        ):
            take = covered & ((selected < 0) | ~array_of(call(self.select, best, seen)))
            best, selected = np.where(take, seen, best), np.where(take, number, selected)
        result = np.full(operand.size, init, operand.dtype)
        scatter_in_rounds((result,), selected.reshape(-1), (source.reshape(-1),), self.scatter, call)
        return result.reshape(operand.shape)


def scatter_in_rounds(
    results: Sequence[np.ndarray],
    targets: np.ndarray,
    updates: Sequence[np.ndarray],
    combine: Computation,
    call: Evaluate,
) -> None:
    """Combines flat updates into flat results, in place, at `targets` (negative: skipped), those for one
    target in order."""
    order = np.argsort(targets, kind="stable")
    order = order[targets[order] >= 0]
    ordered = targets[order]
    first = np.searchsorted(ordered, ordered, side="left")
    turn = np.arange(len(order)) - first
    for number in range(int(turn.max(initial=-1)) + 1):
        current = order[turn == number]
        where = targets[current]
        new = together(call(combine, *(r[where] for r in results), *(u[current] for u in updates)))
        for result, value in zip(results, new):
            result[where] = value
