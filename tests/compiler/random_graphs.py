"""Random modules whose values are whole numbers small enough that every order of computing them is exact.

`RandomGraph(choose, ...)` takes all its decisions from `choose(n)`, a number below n, so that hypothesis can shrink
what it finds. Floats carry a bound on their size; where an op could pass what the type holds exactly, a clamp follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from builders import argmax, comparator, constant, reducer
from tfbridge.compiler.ir import module as ir
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ir.literal import Literal
from tfbridge.compiler.ir.module import Instruction, make
from tfbridge.compiler.ir.shape import Shape, array
from tfbridge.compiler.ops import (
    Broadcast,
    Call,
    Compare,
    Concatenate,
    Conditional,
    Constant,
    Convert,
    Convolution,
    ConvolutionDims,
    Copy,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Elementwise,
    Gather,
    GetTupleElement,
    Iota,
    Map,
    Op,
    Pad,
    Parameter,
    Reduce,
    ReduceWindow,
    Reshape,
    Reverse,
    Scatter,
    Slice,
    Sort,
    Transpose,
    Tuple,
    While,
    Window,
)

Choose = Callable[[int], int]

SIZES = (3, 1, 2, 5, 7, 4, 17, 31, 8, 13, 3, 16, 2, 5, 9, 33, 1, 0)
FEW, MANY_AXES = (2, 3, 2, 1), 9  # sizes of arrays of many axes
TYPES = (
    "f32",
    "s32",
    "f32",
    "pred",
    "bf16",
    "f32",
    "s8",
    "f16",
    "u8",
    "f64",
    "s64",
    "u16",
    "c64",
    "u64",
    "s4",
    "u4",
    "f8e4m3fn",
    "f8e5m2fnuz",
    "f4e2m1fn",
    "s2",
)
EXACT = {
    "f32": 2**20,
    "f64": 2**40,
    "bf16": 2**7,
    "f16": 2**10,
    "c64": 2**18,
    "f8e4m3fn": 2**4,
    "f8e5m2fnuz": 2**3,
    "f4e2m1fn": 2**2,
}
SMALL = 4  # size of the numbers in parameters and constants
BINARY = {
    "float": ("add", "subtract", "multiply", "maximum", "minimum"),
    "int": ("add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "divide", "remainder"),
    "pred": ("and", "or", "xor", "maximum"),
    "complex": ("add", "subtract"),
}
UNARY = {
    "float": ("negate", "abs", "sign", "floor"),
    "int": ("negate", "not", "sign", "popcnt"),
    "pred": ("not",),
    "complex": ("negate",),
}
NHC = ConvolutionDims(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))


def kind_of(t: ElementType) -> str:
    """float, int, pred or complex."""
    if t is ElementType.PRED:
        return "pred"
    return "float" if t.is_float else "complex" if t.is_complex else "int"


def values(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Small whole numbers."""
    low = 0 if shape.element_type.is_unsigned or shape.element_type is ElementType.PRED else -SMALL
    high = 2 if shape.element_type is ElementType.PRED else SMALL + 1
    made = rng.integers(low, high, shape.dims)
    if shape.element_type.is_complex:
        made = made + 1j * rng.integers(low, high, shape.dims)
    return np.asarray(made).astype(shape.element_type.dtype)


class RandomGraph:
    """Values of one computation, grown op by op."""

    def __init__(
        self, choose: Choose, depth: int = 0, largest: int = 4000, sizes: Sequence[int] = SIZES
    ) -> None:
        self.choose, self.depth, self.largest, self.sizes = choose, depth, largest, sizes
        self.values: list[Instruction] = []
        self.bounds: dict[Instruction, float] = {}

    # -- choices
    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.choose(len(options))]

    def some(self, wanted: Callable[[Shape], bool] = lambda _: True) -> Instruction | None:
        """A value of a wanted shape, mostly a late one."""
        found = [v for v in reversed(self.values) if wanted(v.shape)]
        return self.pick(found) if found else None

    def shape(self, types: Sequence[str] = TYPES, most_axes: int = 3) -> Shape:
        sizes, most = (FEW, MANY_AXES) if most_axes == 3 and self.choose(8) == 0 else (self.sizes, most_axes)
        dims = [self.pick(sizes) for _ in range(self.choose(most + 1))]
        while math.prod(dims) > self.largest:
            dims.pop()
        return array(self.pick(types), *dims)

    # -- values
    def keep(self, value: Instruction, bound: float = SMALL) -> Instruction:
        """Adds a value; clamps it where its type would not hold it exactly."""
        t = value.shape.element_type
        limit = EXACT.get(t.value)
        if limit is not None and bound > limit:
            assert not t.is_complex
            value, bound = self.clamped(value, 8), 8
        if value not in self.bounds:
            self.values.append(value)
            self.bounds[value] = bound
        return value

    def clamped(self, value: Instruction, size: int) -> Instruction:
        t = value.shape.element_type
        low = 0 if t.is_unsigned else -size
        return make(Elementwise("clamp"), constant(low, t.value), value, constant(size, t.value))

    def bound(self, *operands: Instruction) -> float:
        return max((self.bounds.get(o, SMALL) for o in operands), default=SMALL)

    def apply(self, op: Op, *operands: Instruction, bound: float | None = None) -> Instruction:
        return self.keep(make(op, *operands), self.bound(*operands) if bound is None else bound)

    def parameter(self, number: int, shape: Shape) -> Instruction:
        made = make(Parameter(number, shape), name=f"p{number}")
        for leaf in self.parts(made):
            self.keep(leaf)
        return made

    def parts(self, value: Instruction) -> list[Instruction]:
        """The arrays of a tuple."""
        if not value.shape.is_tuple:
            return [value]
        return [
            p
            for k in range(len(value.shape.tuple_shapes))
            for p in self.parts(make(GetTupleElement(k), value))
        ]

    def constant(self, shape: Shape) -> Instruction:
        seed = np.random.default_rng(self.choose(4))
        return self.keep(make(Constant(Literal(values(shape, seed)))))

    def filled(self, shape: Shape) -> Instruction:
        """A value of that very shape: one that exists, or a new one."""
        found = self.some(lambda s: s == shape)
        if found is not None and self.choose(8):
            return found
        same_dims = self.some(lambda s: s.dims == shape.dims and not s.element_type.is_complex)
        if same_dims is not None and self.choose(2):
            return self.convert(same_dims, shape.element_type)
        scalar = self.some(lambda s: s.is_scalar and s.element_type is shape.element_type)
        if scalar is not None and self.choose(2):
            return self.apply(Broadcast(shape.dims, ()), scalar)
        if (
            shape.dims
            and shape.element_type is not ElementType.PRED
            and self.choose(2)
            and max(shape.dims) <= SMALL + 1
        ):
            return self.apply(Iota(shape, self.choose(shape.rank)))
        return self.constant(shape)

    def convert(self, value: Instruction, t: ElementType) -> Instruction:
        if value.shape.element_type in (t, ElementType.PRED):
            return value if value.shape.element_type is t else self.apply(Convert(t), value, bound=1)
        if kind_of(value.shape.element_type) == "int" or self.bound(value) > EXACT.get(t.value, 2**60):
            value = self.keep(self.clamped(value, 7), 7)
        return self.apply(Convert(t), value)

    def index(self) -> Instruction:
        found = self.some(lambda s: s.is_scalar and s.element_type.value in ("s32", "s64"))
        if found is None or not self.choose(3):
            return self.constant(array("s32"))
        return self.convert(found, ElementType.S32)

    # -- steps
    def step(self) -> None:
        """One more op, if the chosen one fits what is there."""
        getattr(self, self.pick(STEPS))()

    def unary(self) -> None:
        x = self.some()
        self.apply(
            Elementwise(self.pick(UNARY[kind_of(x.shape.element_type)])), x, bound=max(self.bound(x), 1)
        )

    def binary(self) -> None:
        x = self.some()
        y = self.filled(x.shape)
        name = self.pick(BINARY[kind_of(x.shape.element_type)])
        a, b = self.bound(x), self.bound(y)
        if x.shape.element_type.is_complex and a + b > EXACT["c64"]:
            return
        self.apply(Elementwise(name), x, y, bound=a * b if name == "multiply" else a + b)

    def compare(self) -> None:
        x = self.some(lambda s: not s.element_type.is_complex)
        if x is not None:
            self.apply(Compare(self.pick(("LT", "EQ", "GE", "NE"))), x, self.filled(x.shape), bound=1)

    def select(self) -> None:
        x = self.some()
        y = self.filled(x.shape)
        p = self.filled(array("pred")) if self.choose(3) == 0 else self.filled(array("pred", *x.shape.dims))
        self.apply(Elementwise("select"), p, x, y, bound=self.bound(x, y))

    def to_type(self) -> None:
        x = self.some(lambda s: not s.element_type.is_complex)
        if x is not None:
            self.convert(x, ElementType(self.pick(TYPES)))

    def copy(self) -> None:
        self.apply(Copy(), self.some())

    def broadcast(self) -> None:
        x = self.some(lambda s: s.rank < 4) or self.constant(array("f32"))
        at, size = self.choose(x.shape.rank + 1), self.pick(self.sizes)
        dims = (*x.shape.dims[:at], size, *x.shape.dims[at:])
        if math.prod(dims) <= self.largest:
            self.apply(Broadcast(dims, tuple(a for a in range(len(dims)) if a != at)), x)

    def reshape(self) -> None:
        x = self.some()
        count, dims = x.shape.elements, []
        sizes, most = (FEW, MANY_AXES) if self.choose(4) == 0 else (self.sizes, 3)
        for size in (self.pick(sizes) for _ in range(most)):
            if size and count % size == 0 and count:
                dims.append(size)
                count //= size
        self.apply(Reshape((*dims, count)), x)

    def transpose(self) -> None:
        x = self.some(lambda s: s.rank > 1) or self.some()
        axes = list(range(x.shape.rank))
        order = tuple(axes.pop(self.choose(len(axes))) for _ in range(len(axes)))
        self.apply(Transpose(order), x)

    def reverse(self) -> None:
        x = self.some()
        self.apply(Reverse(tuple(a for a in range(x.shape.rank) if self.choose(2))), x)

    def slice(self) -> None:
        x = self.some()
        starts = [self.choose(d + 1) for d in x.shape.dims]
        limits = [s + self.choose(d - s + 1) for s, d in zip(starts, x.shape.dims)]
        self.apply(Slice(tuple(starts), tuple(limits), tuple(1 + self.choose(3) for _ in starts)), x)

    def pad(self) -> None:
        x = self.some()
        low, high, inner = ([self.choose(4) - edge for _ in x.shape.dims] for edge in (1, 1, 0))
        inner = [max(0, i - 1) for i in inner]
        dims = [d + (d - 1) * i * (d > 0) + a + b for d, i, a, b in zip(x.shape.dims, inner, low, high)]
        if min(dims, default=0) >= 0 and math.prod(dims) <= self.largest:
            value = self.filled(Shape(x.shape.element_type))
            self.apply(Pad(tuple(low), tuple(high), tuple(inner)), x, value, bound=self.bound(x, value))

    def concatenate(self) -> None:
        x = self.some(lambda s: s.rank > 0)
        if x is None:
            return
        axis = self.choose(x.shape.rank)

        def fits(s: Shape) -> bool:
            return (
                s.element_type is x.shape.element_type
                and s.rank == x.shape.rank
                and all(a == axis or s.dims[a] == d for a, d in enumerate(x.shape.dims))
            )

        parts = [x, *(self.some(fits) for _ in range(1 + self.choose(5)))]
        if sum(p.shape.elements for p in parts) <= self.largest:
            self.apply(Concatenate(axis), *parts, bound=self.bound(*parts))

    def iota(self) -> None:
        shape = self.shape()
        if shape.rank and shape.element_type in (ElementType.S32, ElementType.F32, ElementType.U8):
            self.keep(make(Iota(shape, self.choose(shape.rank))), max(shape.dims))

    def fresh(self) -> None:
        self.constant(self.shape())

    def dynamic_slice(self) -> None:
        x = self.some()
        sizes = tuple(self.choose(d + 1) for d in x.shape.dims)
        self.apply(DynamicSlice(sizes), x, *(self.index() for _ in sizes), bound=self.bound(x))

    def dynamic_update_slice(self) -> None:
        x = self.some()
        update = self.filled(Shape(x.shape.element_type, tuple(self.choose(d + 1) for d in x.shape.dims)))
        self.apply(
            DynamicUpdateSlice(),
            x,
            update,
            *(self.index() for _ in x.shape.dims),
            bound=self.bound(x, update),
        )

    def gather(self) -> None:
        x = self.some(lambda s: s.rank > 0 and s.elements > 0)
        if x is not None:
            count = self.pick(self.sizes)
            rest = x.shape.dims[1:]
            if count * math.prod(rest) <= self.largest:
                op = Gather(tuple(range(1, x.shape.rank)), (0,), (0,), 1, (1, *rest))
                self.apply(op, x, self.filled(array("s32", count)), bound=self.bound(x))

    def scatter(self) -> None:
        x = self.some(lambda s: s.rank > 0 and s.element_type in (ElementType.F32, ElementType.S32))
        if x is not None:
            count = self.pick(self.sizes)
            rest = x.shape.dims[1:]
            if count * math.prod(rest) <= self.largest:
                updates = self.filled(Shape(x.shape.element_type, (count, *rest)))
                op = Scatter(
                    tuple(range(1, x.shape.rank)), (0,), (0,), 1, reducer("add", x.shape.element_type)
                )
                self.apply(
                    op,
                    x,
                    self.filled(array("s32", count)),
                    updates,
                    bound=self.bound(x) + count * self.bound(updates),
                )

    def reduce(self) -> None:
        x = self.some(lambda s: not s.element_type.is_complex)
        if x is None:
            return
        axes = tuple(a for a in range(x.shape.rank) if self.choose(2))
        count = math.prod(x.shape.dims[a] for a in axes)
        kind = "or" if x.shape.element_type is ElementType.PRED else self.pick(("add", "maximum", "minimum"))
        init = self.filled(Shape(x.shape.element_type))
        self.apply(
            Reduce(axes, reducer(kind, x.shape.element_type)),
            x,
            init,
            bound=self.bound(x, init) * (count + 1 if kind == "add" else 1),
        )

    def reduce_pair(self) -> None:
        x = self.some(lambda s: s.element_type is ElementType.F32 and s.rank > 0)
        if x is not None:
            axis = self.choose(x.shape.rank)
            places = self.keep(make(Iota(x.shape.with_type(ElementType.S32), axis)), max(x.shape.dims))
            pair = make(Reduce((axis,), argmax()), x, places, constant(-(2**20), "f32"), constant(0, "s32"))
            for part, bound in zip(self.parts(pair), (EXACT["f32"], max(x.shape.dims))):
                self.keep(part, bound)

    def reduce_window(self) -> None:
        x = self.some(lambda s: s.rank > 0 and s.element_type in (ElementType.F32, ElementType.S32))
        if x is None:
            return
        size = [1 + self.choose(3) for _ in x.shape.dims]
        window = Window.of(
            size,
            [1 + self.choose(2) for _ in size],
            [self.choose(2) for _ in size],
            [self.choose(2) for _ in size],
        )
        if self.choose(4) == 0:  # a running sum or maximum
            axis = self.choose(x.shape.rank)
            n = x.shape.dims[axis]
            if not n:
                return
            size = [n if a == axis else 1 for a in range(x.shape.rank)]
            window = Window.of(size, pad_low=[s - 1 for s in size])
        kind = self.pick(("add", "maximum"))
        self.apply(
            ReduceWindow(window, reducer(kind, x.shape.element_type)),
            x,
            self.filled(Shape(x.shape.element_type)),
            bound=self.bound(x, *self.values) * math.prod(size) * 2,
        )

    def dot(self) -> None:
        x = self.some(lambda s: s.rank > 0 and s.element_type.value in ("f32", "f64", "bf16", "s32", "s8"))
        if x is None:
            return
        t, axis = x.shape.element_type, self.choose(x.shape.rank)
        depth = x.shape.dims[axis]
        y = self.some(lambda s: s.element_type is t and depth in s.dims) or self.constant(
            Shape(t, (depth, self.pick(self.sizes)))
        )
        other = self.pick([a for a, d in enumerate(y.shape.dims) if d == depth])
        batch: tuple[tuple[int, ...], tuple[int, ...]] = (), ()
        for a, d in enumerate(x.shape.dims):
            for b, e in enumerate(y.shape.dims):
                if d == e and a != axis and b != other and not batch[0] and self.choose(2):
                    batch = (a,), (b,)
        op = Dot((axis,), (other,), *batch)
        if op.infer([x.shape, y.shape]).elements <= self.largest:
            size = self.bound(x) * self.bound(y) * max(depth, 1)
            if t.is_integer or size < EXACT["f32" if t.bits < 32 else t.value]:
                product = make(op, x, y)
                self.keep(self.clamped(product, 8) if t.is_float else product, 8)

    def convolution(self) -> None:
        x = self.some(lambda s: s.rank == 3 and s.element_type is ElementType.F32)
        if x is None or self.bound(x) > 2**8:
            return
        kernel = self.filled(array("f32", 1 + self.choose(3), x.shape.dims[2], self.pick(self.sizes)))
        op = Convolution(
            Window.of(kernel.shape.dims[:1], (1 + self.choose(2),), (self.choose(2),), (1,)), NHC
        )
        if op.infer([x.shape, kernel.shape]).elements <= self.largest and self.bound(kernel) < 2**6:
            self.keep(self.clamped(make(op, x, kernel), 8), 8)

    def sort(self) -> None:
        x = self.some(lambda s: s.rank > 0 and not s.element_type.is_complex)
        if x is None:
            return
        axis = self.choose(x.shape.rank)
        if self.choose(2):
            self.apply(Sort(axis, comparator("LT", x.shape.element_type), True), x)
            return
        y = self.some(lambda s: s.dims == x.shape.dims)
        pair = make(Sort(axis, comparator("GT", x.shape.element_type, y.shape.element_type), True), x, y)
        for part, source in zip(self.parts(pair), (x, y)):
            self.keep(part, self.bound(source))

    def map(self) -> None:
        x = self.some(lambda s: s.element_type is ElementType.S32)
        if x is not None:
            inner = RandomGraph(self.choose, self.depth + 1, 1, (1,))
            p = inner.parameter(0, array("s32"))
            yes, no = inner.apply(Elementwise("not"), p), inner.apply(Elementwise("popcnt"), p)
            root = make(
                Elementwise("select"), make(Compare("LT"), p, constant(self.choose(3), "s32")), yes, no
            )
            self.apply(Map(tuple(range(x.shape.rank)), ir.Computation("scalars", root, [p])), x)

    # -- control flow
    def grown(self, steps: int, shape: Shape, name: str) -> tuple[RandomGraph, Instruction]:
        """A graph for a computation with one parameter, and the parameter."""
        inner = RandomGraph(self.choose, self.depth + 1, self.largest, self.sizes)
        parameter = inner.parameter(0, shape)
        for _ in range(self.choose(steps + 1)):
            inner.step()
        return inner, parameter

    def limited(self, value: Instruction) -> Instruction:
        """The value, held in what a parameter's numbers may be."""
        t = value.shape.element_type
        if kind_of(t) != "float" or self.bound(value) <= SMALL:
            return value
        return self.keep(self.clamped(value, SMALL), SMALL)

    def state(self, most: int) -> list[Instruction]:
        """Values to carry, some of them twice."""
        carried = [
            self.limited(self.some(lambda s: not s.element_type.is_complex) or self.constant(array("f32", 3)))
            for _ in range(1 + self.choose(most))
        ]
        if self.choose(3) == 0:
            carried.append(self.pick(carried))
        if self.choose(3) == 0:
            carried.append(self.filled_small(self.pick(carried).shape))
        return carried

    def filled_small(self, shape: Shape) -> Instruction:
        return self.limited(self.filled(shape))

    def loop(self) -> None:
        if self.depth >= 2:
            return
        carried = self.state(4)
        init = make(Tuple(), constant(0, "s32"), *carried)
        body, state = self.grown(5, init.shape, "body")
        i, *old = body.parts(state)
        new = []
        for value in old:
            how = self.choose(4)
            same = [o for o in old if o.shape == value.shape]
            if how == 0:
                new.append(value)
            elif how == 1:
                new.append(same[(same.index(value) + 1) % len(same)])  # a rotation of equal shapes
            else:
                new.append(body.filled_small(value.shape))
        root = make(Tuple(), make(Elementwise("add"), i, constant(1, "s32")), *new)
        q = make(Parameter(0, init.shape), name="q")
        test = make(Compare("LT"), make(GetTupleElement(0), q), constant(self.choose(5), "s32"))
        op = While(ir.Computation("condition", test, [q]), ir.Computation("body", root, [state]))
        for part in self.parts(make(op, init))[1 if self.choose(2) else 0 :]:
            self.keep(part)

    def branch(self) -> None:
        if self.depth >= 2:
            return
        by_index = bool(self.choose(2))
        count = 1 + self.choose(3) if by_index else 2
        carried = [self.state(3) for _ in range(count)]
        results = [self.pick(carried[0]).shape for _ in range(1 + self.choose(2))]
        branches, operands = [], []
        for number, given in enumerate(carried):
            operand = given[0] if len(given) == 1 else make(Tuple(), *given)
            inner, parameter = self.grown(3, operand.shape, f"branch{number}")
            made = [inner.filled_small(s) for s in results]
            root = made[0] if len(results) == 1 else make(Tuple(), *made)
            branches.append(ir.Computation(f"branch{number}", root, [parameter]))
            operands.append(operand)
        if by_index:
            selector = self.index()
        else:
            selector = self.filled(array("pred"))
        for part in self.parts(make(Conditional(tuple(branches), by_index), selector, *operands)):
            self.keep(part)

    def call(self) -> None:
        if self.depth >= 2:
            return
        x = self.limited(self.some(lambda s: not s.element_type.is_complex) or self.constant(array("f32", 3)))
        inner, parameter = self.grown(3, x.shape, "callee")
        root = inner.limited(inner.some(lambda s: not s.element_type.is_complex))
        self.keep(make(Call(ir.Computation("callee", root, [parameter])), x))


STEPS = (
    "unary",
    "binary",
    "binary",
    "binary",
    "compare",
    "select",
    "to_type",
    "copy",
    "broadcast",
    "broadcast",
    "reshape",
    "transpose",
    "reverse",
    "slice",
    "pad",
    "concatenate",
    "iota",
    "fresh",
    "dynamic_slice",
    "dynamic_update_slice",
    "dynamic_update_slice",
    "gather",
    "scatter",
    "reduce",
    "reduce",
    "reduce_pair",
    "reduce_window",
    "dot",
    "convolution",
    "sort",
    "map",
    "loop",
    "loop",
    "branch",
    "branch",
    "call",
)


def random_module(choose: Choose, largest: int = 4000, sizes: Sequence[int] = SIZES) -> ir.Module:
    """A module of 1 to 30 steps that returns an array, or a tuple of some of its values, also parameters and constants,
    also twice, also nested."""
    graph = RandomGraph(choose, 0, largest, sizes)
    parameters = [graph.parameter(k, graph.shape()) for k in range(1 + choose(4))]
    if choose(4) == 0:
        shape = Shape.tuple([graph.shape(("f32", "s32")), graph.shape()])
        parameters.append(graph.parameter(len(parameters), shape))
    for _ in range(1 + choose(30)):
        graph.step()
    results = [graph.values[-1], *(graph.some() for _ in range(choose(6)))]
    if choose(3):  # all that nothing else reads
        read = {o for v in ir.topological(graph.values) for o in v.operands}
        results += [v for v in graph.values if v not in read and v not in results]
    if choose(3) == 0:
        results.append(graph.pick(graph.values))
    root = results[0] if len(results) == 1 else make(Tuple(), *results)
    if choose(6) == 0:
        root = make(Tuple(), root, results[-1])
    return ir.Module("random", ir.Computation("main", root, parameters))


def drawn_module(rng: np.random.Generator) -> ir.Module:
    """A random module, three times in ten one of large arrays."""
    large = {"largest": 30_000, "sizes": (*SIZES, 64, 257, 100)} if rng.random() < 0.3 else {}
    return random_module(lambda n: int(rng.integers(n)), **large)
