"""How the elements of a reduction are combined."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np

from ....runtime.llvm.ir_builder import Function
from ...evaluator.evaluator import apply_computation
from ...ir.element_types import ElementType
from ...ir.module import Computation, Instruction, array_of
from ...ops import Constant, Parameter, Reduce, ReduceWindow, Tuple, reducer_kind
from ...ops.reduce import neutral_number
from ..codegen.elementwise import apply
from ..codegen.memory_types import Element, constant_element, convert
from .element_emitter import Elements, Item, lanes_of

_TRIED_FLOATS, _TRIED_INTEGERS = (-1.0, 2.0, float("nan")), (0, 1, 3)


@dataclasses.dataclass(frozen=True)
class Reducer:
    """How elements are combined: a known kind, or a computation. `types` are those of the accumulators:
    narrow floats are summed in f32. `start` is neutral, and then elements may be taken in any
    order; it is None where their own order shows in the result."""

    kind: str | None
    computation: Computation
    types: tuple[ElementType, ...]
    result_types: tuple[ElementType, ...]
    start: tuple[object, ...] | None

    @staticmethod
    def of(instruction: Instruction) -> Reducer:
        """The reducer of a reduce or reduce-window."""
        assert isinstance(instruction.op, Reduce | ReduceWindow)
        computation = instruction.op.to_apply
        count = len(instruction.operands) // 2
        kind = reducer_kind(computation) if count == 1 else None
        results = tuple(o.shape.element_type for o in instruction.operands[:count])
        is_sum_or_product = kind in ("add", "multiply")
        types = tuple(t.accumulator if is_sum_or_product else t for t in results)
        start: tuple[object, ...] | None = None
        if kind is not None:
            start = (neutral_number(kind, types[0]),)
        else:
            constants = [o.op for o in instruction.operands[count:] if isinstance(o.op, Constant)]
            initial = tuple(constant.literal.array[()] for constant in constants)
            if len(initial) == count and has_any_order(computation, types, initial):
                start = initial
        return Reducer(kind, computation, types, results, start)

    def widened(self, elements: Elements, items: Sequence[Item]) -> list[Item]:
        """Elements in the accumulators' types."""
        return [_converted(elements, *x) for x in zip(items, self.result_types, self.types)]

    def narrowed(self, elements: Elements, items: Sequence[Item]) -> list[Item]:
        """Accumulators in the results' types."""
        return [_converted(elements, *x) for x in zip(items, self.types, self.result_types)]

    def combine(self, elements: Elements, a: Sequence[Item], b: Sequence[Item]) -> list[Item]:
        """One step: accumulators `a`, elements `b`."""
        if self.kind is None:
            return elements.call(self.computation, [*a, *b])
        lanes = max(lanes_of(a[0].element), lanes_of(b[0].element))
        x, y = elements.widen(a[0], lanes), elements.widen(b[0], lanes)
        depth = max(x.depth, y.depth)
        with elements.nest.at(depth) as f:
            return [Item(self.step(f, x.element, y.element), depth)]

    def step(self, f: Function, a: Element, b: Element) -> Element:
        """One step of a known kind."""
        assert self.kind is not None
        t = self.types[0]
        return apply(f, self.kind, {}, [t, t], t, [a, b])

    def neutral(self, lanes: int) -> list[Element]:
        """Accumulators that change nothing when combined, where the order is free."""
        assert self.start is not None
        return [constant_element(t, number, lanes) for t, number in zip(self.types, self.start)]


@functools.lru_cache(maxsize=64)
def has_any_order(
    computation: Computation, types: tuple[ElementType, ...], initial: tuple[object, ...]
) -> bool:
    """Whether parts of the elements may be reduced by themselves, each from the initial values, and combined.

    A reduction allows that in any case. This is for reducers that choose between equal elements, or NaNs, by
    their order: all triples of some elements, ties and NaN among them, are reduced in order and in parts.
    """
    numbers = [_TRIED_FLOATS if t.is_float or t.is_complex else _TRIED_INTEGERS for t in types]
    if len(types) > 2 or not all(
        i.op.is_elementwise or isinstance(i.op, Parameter | Constant | Tuple)
        for i in computation.instructions
    ):
        return False
    triples = np.array(list(itertools.product(itertools.product(*numbers), repeat=3)))
    a, b, c = ([triples[:, k, n].astype(t.dtype) for n, t in enumerate(types)] for k in range(3))
    start = [np.full(len(triples), number) for number in initial]

    def combined(*sides: list[np.ndarray]) -> list[np.ndarray]:
        total = sides[0]
        for side in sides[1:]:
            value = apply_computation(computation, *total, *side)
            total = list(map(array_of, value)) if isinstance(value, tuple) else [value]
        return total

    with np.errstate(all="ignore"):
        in_order = combined(start, a, b, c)
        odd, even = combined(start, b), combined(start, a, c)
        parted = [combined(even, odd), combined(odd, even), combined(start, even, odd)]
    return all(
        np.array_equal(x.astype(np.complex128), y.astype(np.complex128), equal_nan=True)
        for total in parted
        for x, y in zip(in_order, total)
    )


def _converted(elements: Elements, item: Item, source: ElementType, target: ElementType) -> Item:
    if source is target:
        return item
    with elements.nest.at(item.depth) as f:
        return Item(convert(f, item.element, source, target), item.depth)
