"""The op case table: every op on the element types it allows, with odd shapes and special values; and for
every numbered constraint a row that breaks it.

`build(case)` is a module with one parameter per array operand and the op as root; `arguments(case, rng)` are
values for them. The rows are run by the evaluator, by compiled code, and through text and back.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tfbridge.compiler import register_custom_call
from tfbridge.compiler.ir import module as ir
from tfbridge.compiler.ir.element_types import ARRAYS, COMPLEXES, FLOATS, INTEGERS, NUMBERS, ElementType
from tfbridge.compiler.ir.literal import Literal
from tfbridge.compiler.ir.shape import TOKEN, Shape, array
from tfbridge.compiler.ops import (
    ROWS,
    AddDependency,
    AfterAll,
    AllGather,
    AllReduce,
    AllToAll,
    BitcastConvert,
    Broadcast,
    Call,
    Cholesky,
    CollectiveBroadcast,
    CollectivePermute,
    Compare,
    Concatenate,
    Concurrent,
    Conditional,
    Constant,
    Convert,
    Convolution,
    ConvolutionDims,
    Copy,
    CustomCall,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Elementwise,
    Fft,
    Fusion,
    Gather,
    GetDimensionSize,
    GetTupleElement,
    Infeed,
    Iota,
    Map,
    Nonzero,
    Op,
    OptimizationBarrier,
    Outfeed,
    Pad,
    Parameter,
    PartitionId,
    Recv,
    RecvDone,
    Reduce,
    ReducePrecision,
    ReduceScatter,
    ReduceWindow,
    ReplicaId,
    Reshape,
    Reverse,
    Rng,
    RngBitGenerator,
    Scatter,
    SelectAndScatter,
    Send,
    SendDone,
    SetDimensionSize,
    Slice,
    Sort,
    TopK,
    Trace,
    Transpose,
    TriangularSolve,
    Tuple,
    While,
    Window,
)
from tfbridge.compiler.ops.custom_call import FAIL_IF, LEAVE_IF


@dataclasses.dataclass(frozen=True)
class Input:
    """One operand: its shape, and its values or how they are made.

    `fill` is any (special values first, then random ones of all sizes), moderate (NaN, infinities, zeros, and
    random values up to 1e4), unit (random, -2 to 2; integers -3 to 3), or distinct (a random order of
    different values).
    """

    shape: Shape
    values: Any = None
    fill: str = "any"


@dataclasses.dataclass(frozen=True)
class Case:
    """A row: the op on operands. `ulps`: how far compiled code may be from the evaluator, in units of the
    last place of the result's type (0: equal bit for bit, NaN aside); results below the smallest normal
    number may be zero then. `scale`: the size of the summands where results may cancel: the error may be
    `ulps` units of it. `counted`: of the first result as many rows count as the second says."""

    name: str
    op: Op
    operands: tuple[Input, ...]
    ulps: float = 0.0
    scale: float = 0.0
    counted: bool = False


@dataclasses.dataclass(frozen=True)
class ErrorCase:
    """A row that breaks the constraint `label`."""

    label: str
    op: Op
    operands: tuple[Shape, ...]


def build(case: Case) -> ir.Module:
    """The row as a module; the leaves of a tuple operand are parameters of their own."""
    parameters: list[ir.Instruction] = []

    def operand(shape: Shape) -> ir.Instruction:
        if shape.is_tuple:
            return ir.make(Tuple(), *map(operand, shape.tuple_shapes))
        if shape == TOKEN:
            return ir.make(AfterAll())
        number = len(parameters)
        parameters.append(ir.make(Parameter(number, shape), name=f"p{number}"))
        return parameters[-1]

    operands = [operand(i.shape) for i in case.operands]
    root = ir.make(case.op, *operands, name="root")
    return ir.Module("case", ir.Computation("main", root, parameters))


def arguments(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    """Values for the parameters of `build(case)`."""
    result = []
    for number, operand in enumerate(case.operands):
        given = operand.values if operand.shape.is_tuple else [operand.values]
        for leaf, values in zip(operand.shape.leaves(), given or itertools.repeat(None)):
            if leaf == TOKEN:
                continue
            if values is None:
                result.append(fill(leaf, operand.fill, rng, number))
            else:
                result.append(np.asarray(values, np.float64 if leaf.element_type.bits < 16 and
                                         leaf.element_type.is_float else None)
                              .astype(leaf.element_type.dtype).reshape(leaf.dims))
    return result


def fill(shape: Shape, kind: str, rng: np.random.Generator, number: int = 0) -> np.ndarray:
    """Values of one array. With `number`, operands of one op see all pairs of special values."""
    element, count = shape.element_type, shape.elements
    if element is ElementType.PRED:
        values = rng.integers(0, 2, count)
    elif element.is_complex:
        parts = [fill(Shape(element.real, (count,)), "unit", rng) for _ in range(2)]
        return (parts[0] + 1j * parts[1]).astype(element.dtype).reshape(shape.dims)
    elif element.is_integer:
        low, high = limits(element)
        if kind == "unit":
            low, high = max(low, -3), min(high, 3)
        values = rng.integers(low, high, count, dtype=np.int64 if low < 0 else np.uint64, endpoint=True)
        if kind == "distinct":
            values = rng.permutation(count) + max(low, -count // 2)
    elif kind == "distinct":
        values = rng.permutation(count) - count / 2.0
    else:
        values = rng.uniform(-2, 2, count)
        if kind == "any":
            wide = min(np.log(float(limits(element)[1])) / 2, 40)
            values = values * np.exp(rng.uniform(-wide, wide, count))
        elif kind == "moderate":
            values = values * np.exp(rng.uniform(-5, 8, count))
    result = np.asarray(values).astype(element.dtype)
    if kind in ("any", "moderate") and element is not ElementType.PRED:
        special = special_values(element, kind == "moderate")
        places = np.arange(min(count, len(special) ** 2))
        result[places] = special[places // len(special) ** number % len(special)]
    return result.reshape(shape.dims)


def limits(element: ElementType) -> tuple[Any, Any]:
    """Lowest and highest finite value of an integer or float type."""
    if element.is_integer:
        low = -(1 << element.bits - 1) if element.is_signed else 0
        return low, (1 << element.bits - element.is_signed) - 1
    import ml_dtypes
    info = ml_dtypes.finfo(element.dtype)
    return float(info.min), float(info.max)


def special_values(element: ElementType, moderate: bool = False) -> np.ndarray:
    """Values at which ops of the type differ from the ordinary."""
    low, high = limits(element)
    if element.is_integer:
        values = [low, high, 0, 1, min(high, element.bits), low + 1] + ([-1, -2] if low else [])
        return np.array(values, np.int64 if low < 0 else np.uint64).astype(element.dtype)
    import ml_dtypes
    info = ml_dtypes.finfo(element.dtype)
    values = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -1.5, 2.5, 3.0]
    if not moderate:
        values += [high, low, float(info.tiny), -float(info.smallest_subnormal)]
    return np.array(values).astype(element.dtype)


def computation(name: str, parameters: Sequence[Shape], body: Any) -> ir.Computation:
    """A computation; `body` gets the parameters and returns the root."""
    made = [ir.make(Parameter(n, s), name=f"p{n}") for n, s in enumerate(parameters)]
    return ir.Computation(name, body(*made), made)


def reducer(name: str, kind: str | ElementType) -> ir.Computation:
    """The elementwise op on two scalars."""
    scalar = array(kind)
    return computation(name, [scalar, scalar], lambda a, b: ir.make(Elementwise(name), a, b))


def comparator(direction: str, *kinds: str | ElementType) -> ir.Computation:
    """Compares the first two of pairs of scalars: floats by total order."""
    scalars = [array(k) for k in kinds for _ in range(2)]
    order = "TOTALORDER" if scalars[0].element_type.is_float else ""
    return computation(direction.lower(), scalars, lambda a, b, *_: ir.make(Compare(direction, order), a, b))


def constant(value: Any, kind: str) -> ir.Instruction:
    """A constant array."""
    return ir.make(Constant(Literal(np.asarray(value).astype(ElementType(kind).dtype))))


def argmax(kind: str = "f32") -> ir.Computation:
    """(value, number, value, number) -> those with the larger value, of equal ones those with the smaller
    number."""
    def body(a: ir.Instruction, i: ir.Instruction, b: ir.Instruction, j: ir.Instruction) -> ir.Instruction:
        larger = ir.make(Compare("GT"), a, b)
        same = ir.make(Compare("EQ"), a, b)
        earlier = ir.make(Compare("LT"), i, j)
        first = ir.make(Elementwise("or"), larger, ir.make(Elementwise("and"), same, earlier))
        return ir.make(Tuple(), ir.make(Elementwise("select"), first, a, b),
                       ir.make(Elementwise("select"), first, i, j))
    return computation("argmax", [array(kind), array("s32")] * 2, body)


def polynomial() -> ir.Computation:
    """(x, y) -> x * x + y in f32."""
    return computation("polynomial", [array("f32")] * 2, lambda x, y: ir.make(
        Elementwise("add"), ir.make(Elementwise("multiply"), x, x), y))


LOOP = Shape.tuple([array("s32"), array("f32", 5)])


def loop(limit: int) -> While:
    """(i, v): while i < limit: (i + 1, v + v)."""
    def body(state: ir.Instruction) -> ir.Instruction:
        i, v = (ir.make(GetTupleElement(n), state) for n in range(2))
        return ir.make(Tuple(), ir.make(Elementwise("add"), i, constant(1, "s32")),
                       ir.make(Elementwise("add"), v, v))
    condition = computation("condition", [LOOP], lambda state: ir.make(
        Compare("LT"), ir.make(GetTupleElement(0), state), constant(limit, "s32")))
    return While(condition, computation("body", [LOOP], body))


def unary(name: str, *dims: int) -> ir.Computation:
    """The elementwise op on one f32 array."""
    return computation(name, [array("f32", *dims)], lambda x: ir.make(Elementwise(name), x))


F32, S32, PRED, U64 = array("f32"), array("s32"), array("pred"), array("u64", 2)
ALL = sorted(ARRAYS, key=lambda t: t.value)
INEXACT = {  # ulps of compiled code, for real and complex types; the rest is exact
    "sqrt": (0, 8), "rsqrt": (2, 16), "cbrt": (4, 0), "exponential": (4, 16),
    "exponential-minus-one": (4, 64),
    "log": (4, 16), "log-plus-one": (4, 64), "logistic": (8, 32), "tanh": (6, 64), "tan": (8, 64),
    "sine": (4, 32), "cosine": (4, 32), "erf": (8, 0), "erfc": (10, 0), "power": (16, 256), "atan2": (4, 0),
    "divide": (0, 16), "multiply": (0, 16), "abs": (0, 4), "sign": (0, 8)}
PERIODIC = {"sine", "cosine", "tan"}


def elementwise_cases() -> Iterator[Case]:
    """Every row of the table on every type; 17 x 19 elements hold all pairs of special values."""
    for name, row in ROWS.items():
        for kind in (t for t in ALL if t in row.types):
            shape = array(kind, 17, 19)
            how = "moderate" if name in PERIODIC else "any"
            operands = [Input(shape, fill=how)] * row.arity
            if name == "select":
                operands[0] = Input(array("pred", 17, 19))
            real, complex_ = INEXACT.get(name, (0, 0))
            yield Case(f"{name}-{kind.value}", Elementwise(name), tuple(operands),
                       complex_ if kind.is_complex else real,
                       scale=4.0 if kind.is_complex and real + complex_ else 0.0)
        kind = next(t for t in (ElementType.F32, ElementType.S32, ElementType.PRED) if t in row.types)
        for dims in ((), (0,), (1, 3, 1), (2, 0, 3), (131,)):
            operands = [Input(array(kind, *dims), fill="unit")] * row.arity
            if name == "select":
                operands[0] = Input(array("pred", *dims))
            yield Case(f"{name}-{list(dims)}", Elementwise(name), tuple(operands),
                       INEXACT.get(name, (0, 0))[0])
    yield Case("select-scalar", Elementwise("select"),
               (Input(PRED), Input(array("f32", 5)), Input(array("f32", 5))))
    yield Case("clamp-scalars", Elementwise("clamp"),
               (Input(S32, 0), Input(array("s32", 3), (-1, 5, 9)), Input(S32, 6)))
    for kind in ALL:
        pair = (Input(array(kind, 17, 19)),) * 2
        for direction in ("EQ", "NE") if kind.is_complex else ("EQ", "NE", "GE", "GT", "LE", "LT"):
            yield Case(f"compare-{direction}-{kind.value}", Compare(direction), pair)
            if kind.is_float:
                yield Case(f"compare-{direction}-{kind.value}-total", Compare(direction, "TOTALORDER"), pair)
        for new in ALL:
            if new.is_complex or not kind.is_complex:
                yield Case(f"convert-{kind.value}-{new.value}", Convert(new), (Input(array(kind, 7, 11)),))
            if _same_bits(kind, new):
                dims = (5, 3, new.bits // kind.bits) if new.bits > kind.bits else (5, 3)
                yield Case(f"bitcast-convert-{kind.value}-{new.value}", BitcastConvert(new),
                           (Input(array(kind, *dims)),))
    for kind, bits in itertools.product(("f16", "bf16", "f32", "f64"),
                                        ((5, 10), (8, 7), (8, 23), (3, 2), (1, 0), (11, 52))):
        yield Case(f"reduce-precision-{kind}-{bits}", ReducePrecision(*bits), (Input(array(kind, 7, 11)),))


def _same_bits(old: ElementType, new: ElementType) -> bool:
    groups = [t for t in ALL if t in INTEGERS | FLOATS and t.bits >= 8], [t for t in ALL if t.bits == 4]
    return old is new or any(old in g and new in g for g in groups)


def movement_cases() -> Iterator[Case]:
    """Ops that move elements: every type once, then odd shapes and attributes in f32."""
    for kind in ALL:
        a = Input(array(kind, 3, 5))
        yield Case(f"broadcast-{kind.value}", Broadcast((3, 2, 5), (0, 2)), (a,))
        yield Case(f"reshape-{kind.value}", Reshape((5, 3)), (a,))
        yield Case(f"transpose-{kind.value}", Transpose((1, 0)), (a,))
        yield Case(f"reverse-{kind.value}", Reverse((0, 1)), (a,))
        yield Case(f"slice-{kind.value}", Slice((1, 0), (3, 5), (1, 2)), (a,))
        yield Case(f"pad-{kind.value}", Pad((1, -1), (2, 1), (1, 2)), (a, Input(array(kind))))
        yield Case(f"concatenate-{kind.value}", Concatenate(1), (a, Input(array(kind, 3, 1)), a))
        if kind in NUMBERS:
            yield Case(f"iota-{kind.value}", Iota(array(kind, 3, 5), 1), ())
        yield Case(f"dynamic-slice-{kind.value}", DynamicSlice((2, 3)), (a, Input(S32, 1), Input(S32, 1)))
        yield Case(f"dynamic-update-slice-{kind.value}", DynamicUpdateSlice(),
                   (a, Input(array(kind, 2, 3)), Input(S32, 1), Input(S32, 1)))
        yield Case(f"gather-{kind.value}", Gather((1,), (0,), (0,), 1, (1, 5)),
                   (a, Input(array("s32", 4), (2, 0, -1, 7))))
        yield Case(f"copy-{kind.value}", Copy(), (a,))
        yield Case(f"tuple-{kind.value}", Tuple(), (a, Input(S32)))
    for name, op, shapes in (
            ("broadcast-scalar", Broadcast((2, 3), ()), [F32]),
            ("broadcast-empty", Broadcast((0, 3), (1,)), [array("f32", 3)]),
            ("broadcast-one", Broadcast((7, 4, 3), (0, 1, 2)), [array("f32", 1, 4, 1)]),
            ("broadcast-swap", Broadcast((3, 2), (1, 0)), [array("f32", 2, 3)]),
            ("reshape-scalar", Reshape(()), [array("f32", 1, 1)]),
            ("reshape-ones", Reshape((1, 7, 1, 5)), [array("f32", 7, 1, 5)]),
            ("reshape-merge", Reshape((6, 35, 2)), [array("f32", 2, 3, 5, 7, 2)]),
            ("reshape-uneven", Reshape((4, 3, 5)), [array("f32", 6, 10)]),
            ("reshape-empty", Reshape((0, 4)), [array("f32", 3, 0)]),
            ("transpose-scalar", Transpose(()), [F32]),
            ("transpose-4", Transpose((2, 0, 3, 1)), [array("f32", 2, 3, 5, 7)]),
            ("transpose-empty", Transpose((1, 0)), [array("f32", 0, 4)]),
            ("reverse-none", Reverse(()), [array("f32", 3)]),
            ("reverse-middle", Reverse((1,)), [array("f32", 2, 3, 2)]),
            ("reverse-empty", Reverse((0,)), [array("f32", 0)]),
            ("slice-empty", Slice((2,), (2,), (1,)), [array("f32", 5)]),
            ("slice-scalar", Slice((), (), ()), [F32]),
            ("slice-strides", Slice((1, 2, 0), (7, 11, 1), (3, 4, 9)), [array("f32", 7, 11, 2)]),
            ("pad-negative", Pad((-2, -1), (-1, 3), (0, 0)), [array("f32", 5, 7), F32]),
            ("pad-interior", Pad((0, 5), (0, -3), (3, 1)), [array("f32", 4, 5), F32]),
            ("pad-cut", Pad((-7,), (9,), (1,)), [array("f32", 3), F32]),
            ("pad-empty", Pad((2,), (1,), (4,)), [array("f32", 0), F32]),
            ("pad-to-empty", Pad((-1,), (-1,), (0,)), [array("f32", 2), F32]),
            ("pad-scalar", Pad((), (), ()), [F32, F32]),
            ("concatenate-one", Concatenate(0), [array("f32", 3)]),
            ("concatenate-empties", Concatenate(0),
             [array("f32", 0), array("f32", 2), array("f32", 0), array("f32", 3)]),
            ("concatenate-all-empty", Concatenate(0), [array("f32", 0), array("f32", 0)]),
            ("concatenate-middle", Concatenate(1), [array("f32", 2, 1, 3), array("f32", 2, 4, 3)]),
            ("iota-rows", Iota(array("f32", 7, 3), 0), []),
            ("iota-empty", Iota(array("s32", 0), 0), []),
            ("iota-wraps", Iota(array("s8", 300), 0), []),
            ("copy-scalar", Copy(), [F32]),
            ("tuple-empty", Tuple(), [])):
        yield Case(name, op, tuple(map(Input, shapes)))
    for starts in ((2, 1), (-5, 100), (0, 0), (3, 2)):
        numbers = tuple(Input(array("s64"), s) for s in starts)
        label = "_".join(map(str, starts))
        yield Case(f"dynamic-slice-at-{label}", DynamicSlice((2, 2)), (Input(array("f32", 4, 3)), *numbers))
        yield Case(f"dynamic-update-slice-at-{label}", DynamicUpdateSlice(),
                   (Input(array("f32", 4, 3)), Input(array("f32", 3, 2)), *numbers))
    yield Case("dynamic-slice-unsigned", DynamicSlice((2,)),
               (Input(array("f32", 4)), Input(array("u8"), 200)))
    yield Case("dynamic-slice-beyond-s64", DynamicSlice((2,)),
               (Input(array("f32", 4)), Input(array("u64"), 2**63 + 1)))
    yield Case("dynamic-slice-whole", DynamicSlice((4, 0)),
               (Input(array("f32", 4, 3)), Input(S32, 2), Input(S32, 1)))
    yield Case("dynamic-update-slice-empty", DynamicUpdateSlice(),
               (Input(array("f32", 4)), Input(array("f32", 0)), Input(S32, 1)))
    yield Case("dynamic-update-slice-scalar", DynamicUpdateSlice(), (Input(F32), Input(F32)))
    yield Case("get-tuple-element", GetTupleElement(1), (Input(LOOP),))
    yield Case("constant", Constant(Literal(np.array([[1.5, -0.0], [np.nan, np.inf]], np.float32))), ())
    yield Case("constant-tuple",
               Constant(Literal.tuple([Literal(np.int32(3)), Literal(np.ones(2, np.float32))])), ())


def gather_cases() -> Iterator[Case]:
    """Gather and scatter with the same dimension numbers, among them all positions of the index vector."""
    operand = Input(array("f32", 5, 7, 3))
    pairs = ((0, 0), (4, 6), (-1, 2), (2, 9), (3, -7), (100, 100))
    at = Input(array("s32", 2, 3, 2), np.array(pairs).reshape(2, 3, 2))
    yield Case("gather-windows", Gather((1, 3, 4), (), (0, 1), 2, (2, 3, 3)), (operand, at))
    yield Case("gather-vector-first", Gather((1,), (0, 1), (1, 0), 0, (1, 1, 3)),
               (operand, Input(array("s64", 2, 6), np.array(pairs).T)))
    yield Case("gather-implicit", Gather((0, 1), (1,), (1,), 2, (5, 1, 3)),
               (operand, Input(array("u8", 2, 2), (0, 6, 3, 255))))
    yield Case("gather-none", Gather((1, 2, 3), (), (0,), 1, (1, 7, 3)), (operand, Input(array("s32", 0, 1))))
    yield Case("gather-scalar-index", Gather((0, 1), (0,), (0,), 0, (1, 7, 3)), (operand, Input(S32, 3)))
    yield Case("gather-zero-slices", Gather((1,), (), (0,), 1, (0,)),
               (Input(array("f32", 4)), Input(array("s32", 3), (0, 1, 9))))
    yield Case("gather-no-index", Gather((1,), (), (), 1, (4,)),
               (Input(array("f32", 4)), Input(array("s32", 3, 0))))
    yield Case("gather-batched", Gather((2,), (1,), (1,), 2, (1, 1, 3), (0,), (1,)),
               (operand, Input(array("s32", 2, 5, 1), np.arange(10) - 1)))
    add = reducer("add", "f32")
    yield Case("scatter-windows", Scatter((1, 3, 4), (), (0, 1), 2, add),
               (operand, at, Input(array("f32", 2, 2, 3, 3, 3), fill="unit")), ulps=64, scale=4)
    yield Case("scatter-vector-first", Scatter((1,), (0, 1), (1, 0), 0, add),
               (Input(array("f32", 5, 7, 3), fill="unit"), Input(array("s64", 2, 6), np.array(pairs).T),
                Input(array("f32", 6, 3), fill="unit")), ulps=16, scale=4)
    yield Case("scatter-implicit", Scatter((1, 2), (1,), (1,), 1, add),
               (Input(array("f32", 5, 7, 3), fill="unit"), Input(array("u8", 4), (0, 6, 6, 255)),
                Input(array("f32", 4, 5, 3), fill="unit")), ulps=16, scale=4)
    yield Case("scatter-scalar-index",
               Scatter((0,), (0,), (0,), 0, computation("second", [F32, F32], lambda _, b: b)),
               (Input(array("f32", 4, 3)), Input(S32, 2), Input(array("f32", 3))))
    yield Case("scatter-no-updates", Scatter((1,), (0,), (0,), 1, add),
               (Input(array("f32", 4, 3)), Input(array("s32", 0)), Input(array("f32", 0, 3))))
    yield Case("scatter-batched", Scatter((2,), (1,), (1,), 2, add, (0,), (1,)),
               (Input(array("f32", 5, 7, 3), fill="unit"), Input(array("s32", 2, 5, 1), np.arange(10) - 1),
                Input(array("f32", 2, 5, 3), fill="unit")), ulps=16, scale=4)
    yield Case("scatter-two", Scatter((), (0,), (0,), 1, argmax()),
               (Input(array("f32", 4), fill="distinct"), Input(array("s32", 4), (4, 5, 6, 7)),
                Input(array("s32", 6), (3, 1, 3, 9, -1, 3)),
                Input(array("f32", 6), fill="distinct"), Input(array("s32", 6), (0, 1, 2, 3, 4, 5))))
    for kind in ALL:
        yield Case(f"scatter-{kind.value}", Scatter((1,), (0,), (0,), 1, reducer("add", kind)),
                   (Input(array(kind, 4, 3), fill="unit"), Input(array("s32", 3), (2, 2, 9)),
                    Input(array(kind, 3, 3), fill="unit")),
                   ulps=4, scale=8 if kind in FLOATS | COMPLEXES else 0)


def reduction_cases() -> Iterator[Case]:
    """reduce, reduce-window, select-and-scatter and sort."""
    for kind in ALL:
        inexact = kind in FLOATS | COMPLEXES
        for name in (n for n in ("add", "multiply", "maximum", "minimum", "and",
                                 "or") if kind in ROWS[n].types):
            start = {"multiply": 1, "and": -1, "maximum": 0, "minimum": 1}.get(name, 0)
            if kind in (ElementType.U4, ElementType.U8, ElementType.U16, ElementType.U32, ElementType.U64):
                start = abs(start)
            loose = inexact and name in ("add", "multiply")
            yield Case(f"reduce-{name}-{kind.value}", Reduce((1,), reducer(name, kind)),
                       (Input(array(kind, 5, 13), fill="unit"), Input(array(kind), start)),
                       ulps=64 if loose else 0,
                       scale=16 if loose else 0)
        if kind not in COMPLEXES:
            yield Case(f"sort-{kind.value}", Sort(0, comparator("LT", kind), True),
                       (Input(array(kind, 37, 2)),))
            yield Case(f"reduce-window-{kind.value}",
                       ReduceWindow(Window.of((3,), (2,)), reducer("maximum", kind)),
                       (Input(array(kind, 11)),
                        Input(array(kind), limits(kind)[0] if kind is not ElementType.PRED else 0)))
    for dims, axes in (((7, 11, 3), (0, 2)), ((7, 11, 3), ()), ((131,), (0,)), ((3, 0), (1,)), ((0, 3), (1,)),
                       ((), ()),
                       ((2, 3, 5, 7), (3, 1))):
        for name in ("add", "maximum"):
            yield Case(f"reduce-{name}-{list(dims)}-{axes}", Reduce(axes, reducer(name, "f32")),
                       (Input(array("f32", *dims), fill="unit"), Input(F32, 0)),
                       ulps=64 if name == "add" else 0, scale=32)
    yield Case("reduce-nan", Reduce((0,), reducer("maximum", "f32")),
               (Input(array("f32", 19)), Input(F32, -np.inf)))
    yield Case("reduce-argmax", Reduce((1,), argmax()), (Input(array("f32", 5, 13), fill="unit"),
               Input(array("s32", 5, 13), np.tile(np.arange(13), 5)), Input(F32, -np.inf), Input(S32, 0)))
    for dims, axes in (((3, 0), (0,)), ((3, 0), (1,)), ((0, 3), (0, 1))):
        yield Case(f"reduce-argmax-{list(dims)}-{axes}", Reduce(axes, argmax()),
                   (Input(array("f32", *dims)), Input(array("s32", *dims)), Input(F32, -np.inf), Input(S32, 0)))
    yield Case("reduce-general", Reduce((0,), computation("lattice", [F32, F32], lambda a, b: ir.make(
        Elementwise("maximum"), ir.make(Elementwise("abs"), a), ir.make(Elementwise("abs"), b)))),
        (Input(array("f32", 13, 3), fill="unit"), Input(F32, 0)))
    for name, window, dims in (
            ("plain", Window.of((2, 3), (2, 3)), (4, 6)),
            ("padded", Window.of((3, 2), (2, 1), (1, 0), (1, 1)), (5, 7)),
            ("cut", Window.of((2,), (1,), (-2,), (-1,)), (9,)),
            ("dilated", Window.of((2, 3), (1, 2), (1, 2), (0, 3), (2, 3), (3, 2)), (5, 4)),
            ("does-not-fit", Window.of((5,)), (3,)),
            ("empty-base", Window.of((2,), (1,), (1,), (1,)), (0,)),
            ("scalar", Window.of(()), ())):
        data = Input(array("f32", *dims), fill="unit")
        yield Case(f"reduce-window-add-{name}", ReduceWindow(window, reducer("add", "f32")),
                   (data, Input(F32, 0)), ulps=16, scale=8)
        yield Case(f"reduce-window-min-{name}", ReduceWindow(window, reducer("minimum", "f32")),
                   (data, Input(F32, np.inf)))
        if dims:
            yield Case(f"select-and-scatter-{name}",
                       SelectAndScatter(window, comparator("GE", "f32"), reducer("add", "f32")),
                       (Input(array("f32", *dims), fill="distinct"),
                        Input(array("f32", *window.output(dims)), fill="unit"),
                        Input(F32, 0)), ulps=8, scale=8)
    yield Case("reduce-window-argmax", ReduceWindow(Window.of((3,), (1,), (1,), (1,)), argmax()),
               (Input(array("f32", 7), fill="distinct"), Input(array("s32", 7), np.arange(7)),
                Input(F32, -np.inf), Input(S32, 99)))
    for kind in (t for t in ALL if t in INTEGERS | FLOATS):
        yield Case(f"select-and-scatter-{kind.value}",
                   SelectAndScatter(Window.of((2,), (2,)), comparator("GE", kind), reducer("add", kind)),
                   (Input(array(kind, 6), (1, 2, 3, 3, 2, 1)), Input(array(kind, 3), (1, 2, 3)),
                    Input(array(kind), 0)))
    for dims, axis in (((0,), 0), ((1,), 0), ((2,), 0), ((64,), 0), ((3, 17), 1), ((3, 5, 2), 1),
                       ((1000,), 0)):
        yield Case(f"sort-{list(dims)}-{axis}", Sort(axis, comparator("LT", "f32")),
                   (Input(array("f32", *dims), fill="distinct"),))
    for kind in (t for t in ALL if t in INTEGERS | FLOATS):
        for largest in (True, False):
            yield Case(f"topk-{kind.value}-{largest}", TopK(5, largest), (Input(array(kind, 3, 97)),))
    for dims, k in (((0,), 0), ((3, 0), 0), ((5,), 0), ((1,), 1), ((0, 5), 2), ((200,), 1), ((2, 3, 40), 40),
                    ((1000,), 100), ((2, 300), 129)):
        yield Case(f"topk-{list(dims)}-{k}", TopK(k, True), (Input(array("f32", *dims)),))
    yield Case("topk-ties", TopK(20, True), (Input(array("s32", 3, 100), np.arange(300) * 7 % 5),))
    number = np.arange(300)
    odd = np.where(number % 11 == 3, np.nan, np.where(number % 7 < 2, -0.0, number * 37 % 41 - 9))
    for order in ("NUMBERS", "HEAP", "HEAP_SORTED"):
        for kind in ("f64", "f32", "bf16", "f8e5m2", "u64", "s8"):
            values = odd if kind[0] in "bf" else number * 37 % 41
            yield Case(f"topk-{order}-{kind}", TopK(20, True, order), (Input(array(kind, 3, 100), values),))
        for k, largest in ((1, True), (2, True), (50, False), (99, True), (100, False), (100, True)):
            yield Case(f"topk-{order}-{k}-{largest}", TopK(k, largest, order), (Input(array("f32", 3, 100), odd),))
        yield Case(f"topk-{order}-150", TopK(150, True, order), (Input(array("f32", 300), odd),))
    for direction in ("LT", "GT"):
        yield Case(f"sort-numbers-{direction}", Sort(1, comparator(direction, "f32", "s32"), True),
                   (Input(array("f32", 3, 100), odd), Input(array("s32", 3, 100), number)))
    for dims in ((0,), (1,), (7,), (8,), (97,), (1000,), (3, 0), (0, 5), (3, 41), (2, 3, 16)):
        yield Case(f"nonzero-{list(dims)}", Nonzero(), (Input(array("pred", *dims)),), counted=True)
    for value in (False, True):
        yield Case(f"nonzero-all-{value}", Nonzero(), (Input(array("pred", 83), np.full(83, value)),), counted=True)
    pairs = (Input(array("s32", 29), np.arange(29) * 7 % 5), Input(array("f32", 29), np.arange(29)))
    yield Case("sort-pairs-stable", Sort(0, comparator("GT", "s32", "f32"), True), pairs)


def contraction_cases() -> Iterator[Case]:
    """dot and convolution."""
    for kind in (t for t in ALL if t in NUMBERS):
        scale = 8.0 if kind in FLOATS | COMPLEXES else 0.0
        pair = (Input(array(kind, 5, 7), fill="unit"), Input(array(kind, 7, 3), fill="unit"))
        yield Case(f"dot-{kind.value}", Dot((1,), (0,)), pair, ulps=8, scale=scale)
        yield Case(f"convolution-{kind.value}", Convolution(Window.of((3,), (2,), (1,), (1,)), NHC),
                   (Input(array(kind, 2, 7, 3), fill="unit"), Input(array(kind, 3, 3, 5), fill="unit")),
                   ulps=8, scale=scale)
    for name, op, left, right in (
            ("vectors", Dot((0,), (0,)), (13,), (13,)), ("scalars", Dot((), ()), (), ()),
            ("outer", Dot((), ()), (3,), (5,)),
            ("matrix-vector", Dot((1,), (0,)), (5, 7), (7,)), ("transposed", Dot((0,), (1,)), (7, 5), (3, 7)),
            ("batch", Dot((2,), (1,), (0,), (0,)), (4, 3, 5), (4, 5, 2)),
            ("batch-last", Dot((0,), (1,), (2,), (2,)), (3, 5, 4), (2, 3, 4)),
            ("two-axes", Dot((1, 3), (2, 0), (2,), (1,)), (2, 3, 5, 7), (7, 5, 3, 2)),
            ("depth-0", Dot((1,), (0,)), (3, 0), (0, 2)),
            ("rows-0", Dot((1,), (0,)), (0, 4), (4, 2)), ("one", Dot((1,), (0,)), (1, 1), (1, 1)),
            ("larger", Dot((1,), (0,)), (37, 129), (129, 67))):
        yield Case(f"dot-{name}", op,
                   (Input(array("f32", *left), fill="unit"), Input(array("f32", *right), fill="unit")),
                   ulps=16, scale=32)
    yield Case("dot-s8-s32", Dot((1,), (0,), preferred_type=ElementType.S32),
               (Input(array("s8", 5, 7)), Input(array("s8", 7, 3))))
    yield Case("dot-bf16-f32", Dot((1,), (0,), preferred_type=ElementType.F32),
               (Input(array("bf16", 5, 7), fill="unit"), Input(array("bf16", 7, 3), fill="unit")), ulps=16,
               scale=8)
    yield Case("dot-f8-mixed", Dot((1,), (0,), preferred_type=ElementType.F32),
               (Input(array("f8e4m3fn", 5, 7), fill="unit"), Input(array("f8e5m2", 7, 3), fill="unit")),
               ulps=16, scale=8)
    odd = ConvolutionDims(3, 1, (2, 0), 3, 0, (2, 1), 0, 3, (1, 2))
    for name, op, left, right in (
            ("same", Convolution(Window.of((3, 3), (1, 1), (1, 1), (1, 1)), NHWC), (2, 5, 7, 3),
             (3, 3, 3, 4)),
            ("strided", Convolution(Window.of((3, 2), (2, 3), (0, 1), (1, 1)), NHWC), (1, 9, 8, 2),
             (3, 2, 2, 3)),
            ("dilated", Convolution(Window.of((3, 2), (1, 1), (2, 1), (2, 1), (1, 1), (2, 3)), NHWC),
             (1, 7, 8, 2), (3, 2, 2, 3)),
            ("transposed", Convolution(Window.of((3, 3), (1, 1), (2, 1), (2, 2), (2, 3)), NHWC), (1, 4, 3, 2),
             (3, 3, 2, 3)),
            ("negative-padding", Convolution(Window.of((2, 2), (1, 2), (-1, -2), (0, -1)), NHWC),
             (1, 6, 8, 2), (2, 2, 2, 3)),
            ("reversed", Convolution(Window.of((2, 3), reversal=(True, True)), NHWC), (1, 4, 5, 2),
             (2, 3, 2, 3)),
            ("depthwise", Convolution(Window.of((3, 3), (1, 1), (1, 1), (1, 1)), NHWC, 4), (2, 5, 5, 4),
             (3, 3, 1, 8)),
            ("grouped", Convolution(Window.of((3, 3)), NHWC, 2), (2, 5, 5, 6), (3, 3, 3, 4)),
            ("batch-groups", Convolution(Window.of((3, 3)), NHWC, 1, 3), (6, 5, 5, 2), (3, 3, 2, 6)),
            ("odd-axes", Convolution(Window.of((2, 3)), odd), (5, 3, 4, 2), (4, 3, 2, 3)),
            ("pointwise", Convolution(Window.of((1, 1)), NHWC), (2, 3, 5, 7), (1, 1, 7, 11)),
            ("no-space", Convolution(Window.of(()), ConvolutionDims(0, 1, (), 0, 1, (), 0, 1, ())), (3, 5),
             (5, 2)),
            ("3d", Convolution(Window.of((2, 2, 2), (1, 2, 1)), NDHWC), (1, 3, 4, 3, 2), (2, 2, 2, 2, 3)),
            ("does-not-fit", Convolution(Window.of((5, 5)), NHWC), (1, 3, 3, 2), (5, 5, 2, 3)),
            ("no-features", Convolution(Window.of((1, 1)), NHWC), (1, 3, 3, 0), (1, 1, 0, 2)),
            ("empty-batch", Convolution(Window.of((1, 1)), NHWC), (0, 3, 3, 2), (1, 1, 2, 2))):
        yield Case(f"convolution-{name}", op,
                   (Input(array("f32", *left), fill="unit"), Input(array("f32", *right), fill="unit")),
                   ulps=16, scale=32)
    yield Case("convolution-f8-mixed", Convolution(Window.of((3, 3)), NHWC, preferred_type=ElementType.F32),
               (Input(array("f8e4m3fn", 1, 5, 5, 3), fill="unit"), Input(array("f8e5m2", 3, 3, 3, 2), fill="unit")),
               ulps=16, scale=32)
    yield Case("convolution-s8-s32", Convolution(Window.of((3, 3)), NHWC, preferred_type=ElementType.S32),
               (Input(array("s8", 1, 5, 5, 3)), Input(array("s8", 3, 3, 3, 2))))


def linear_algebra_cases() -> Iterator[Case]:
    """Fourier transforms, factorisation, solution."""
    for kind, dims, axes in (("FFT", (3, 16), 1), ("IFFT", (3, 16), 1), ("RFFT", (3, 16), 1),
                             ("IRFFT", (3, 16), 1)):
        for part in ("f32", "f64"):
            yield fft_case(kind, dims, axes, part)
    for kind, dims, axes in itertools.product(
            ("FFT", "IFFT", "RFFT", "IRFFT"),
            ((0,), (1,), (2,), (3,), (15,), (17,), (100,), (122,), (143,), (2, 64), (0, 5), (3, 0)), (1,)):
        yield fft_case(kind, dims, axes, "f32")
    for kind, (dims, axes) in itertools.product(
            ("FFT", "IFFT", "RFFT", "IRFFT"),
            (((5, 6), 2), ((2, 9, 7), 2), ((1, 1), 2), ((4, 0), 2), ((3, 20, 2), 3), ((2, 2, 1, 19), 3))):
        yield fft_case(kind, dims, axes, "f32")
    yield fft_case("FFT", (19683,), 1, "c128")
    yield fft_case("RFFT", (2, 65536), 1, "f32")
    yield fft_case("IRFFT", (65536,), 1, "f32")
    rng = np.random.default_rng(0)
    for kind, lower in itertools.product(("f32", "f64", "c64", "c128"), (True, False)):
        for dims in ((5, 5),) if kind == "f64" else ((0, 0), (1, 1), (3, 2, 2), (0, 3, 3), (2, 70, 70)):
            yield Case(f"cholesky-{kind}-{lower}-{list(dims)}", Cholesky(lower),
                       (Input(array(kind, *dims), positive(dims, ElementType(kind).dtype, rng)),), ulps=64, scale=2)
    yield Case("cholesky-of-none", Cholesky(True), (Input(array("f32", 1, 1), -1),))
    for left, lower, unit, transpose in itertools.product(
            (True, False), (True, False), (True, False), ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")):
        for kind, n, k in (("f32", 13, 5), ("c128", 9, 3), ("f32", 100, 41), ("c64", 100, 2)):
            a = positive((2, n, n), ElementType(kind).dtype, rng) / (8 * n if unit else 1)
            yield Case(f"triangular-solve-{kind}-{left}-{lower}-{unit}-{transpose}-{n}",
                       TriangularSolve(left, lower, unit, transpose),
                       (Input(array(kind, 2, n, n), a),
                        Input(array(kind, *((2, n, k) if left else (2, k, n))), fill="unit")), ulps=256, scale=8)
    for n, k in ((0, 3), (3, 0), (1, 1)):
        yield Case(f"triangular-solve-{n}-{k}", TriangularSolve(True, True),
                   (Input(array("f64", n, n), 2 * np.eye(n)), Input(array("f64", n, k))))


def positive(dims: Sequence[int], dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Well-conditioned positive definite matrices."""
    x = rng.uniform(-1, 1, dims) + (1j * rng.uniform(-1, 1, dims) if dtype.kind == "c" else 0)
    return (np.matmul(x, np.conj(np.swapaxes(x, -1, -2))) / max(dims[-1], 1) + np.eye(dims[-1])).astype(dtype)


def fft_case(kind: str, dims: tuple[int, ...], axes: int, part: str) -> Case:
    """A transform of the last axes of an array of these dims in the time domain."""
    element = ElementType(part)
    if not element.is_complex and kind != "RFFT":
        element = element.complex
    given = (*dims[:-1], dims[-1] // 2 + 1 if dims[-1] else 0) if kind == "IRFFT" else dims
    size = float(max(1, max(dims)))
    return Case(f"fft-{kind}-{list(dims)}-{axes}-{element.value}", Fft(kind, dims[-axes:]),
                (Input(array(element, *given), fill="unit"),), ulps=16,
                scale=4 if kind == "IRFFT" else 4 * size**0.5)


NHC = ConvolutionDims(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))
NHWC = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
NDHWC = ConvolutionDims(0, 4, (1, 2, 3), 3, 4, (0, 1, 2), 0, 4, (1, 2, 3))


def control_cases() -> Iterator[Case]:
    """Ops that call computations, and random bits."""
    for limit in (0, 1, 7):
        yield Case(f"while-{limit}", loop(limit), (Input(LOOP, (0, np.arange(5))),))
    vector = Input(array("f32", 5), fill="unit")
    two = (unary("negate", 5), unary("floor", 5))
    for value in (0, 1):
        yield Case(f"conditional-pred-{value}", Conditional(two, False), (Input(PRED, value), vector, vector))
    for value in (-1, 0, 1, 2, 3):
        yield Case(f"conditional-index-{value}", Conditional((*two, unary("abs", 5)), True),
                   (Input(S32, value), vector, vector, vector))
    yield Case("concurrent", Concurrent((*two, unary("abs", 5))), (vector, vector, vector))
    yield Case("concurrent-one", Concurrent(two[:1]), (vector,))
    yield Case("call", Call(unary("negate", 5)), (vector,))
    yield Case("call-none", Call(computation("one", [], lambda: constant(1, "f32"))), ())
    yield Case("map", Map((0, 1), polynomial()), (Input(array("f32", 5, 3), fill="unit"),) * 2, ulps=2,
               scale=4)
    yield Case("map-empty", Map((0,), polynomial()), (Input(array("f32", 0)),) * 2)
    yield Case("map-scalar", Map((), polynomial()), (Input(F32, 3), Input(F32, 4)))
    yield Case("map-type", Map((0,), comparator("LT", "s32")), (Input(array("s32", 7)),) * 2)
    yield Case("map-loop", Map((0,), computation("drawn", [S32], doubled)),
               (Input(array("s32", 6), (0, 1, 2, 3, 4, 5)),))
    yield Case("fusion", Fusion("kLoop", unary("negate", 5)), (vector,))
    yield Case("opt-barrier", OptimizationBarrier(), (vector,))
    yield Case("opt-barrier-tuple", OptimizationBarrier(), (Input(LOOP),))
    yield Case("get-dimension-size", GetDimensionSize(1), (Input(array("f32", 2, 3)),))
    for size in (3, 9):  # the bound, so that the result is of the inferred dims
        yield Case(f"set-dimension-size-{size}", SetDimensionSize(1),
                   (Input(array("f32", 2, 3)), Input(array("s32"), values=np.int32(size))))
    for kind in (t for t in ALL if t in INTEGERS | FLOATS):  # only one number is possible
        yield Case(f"rng-uniform-{kind.value}", Rng("rng_uniform", array(kind, 3, 5)),
                   (Input(array(kind), 2), Input(array(kind), 2 if kind.is_float else 3)))
        if kind.is_float:
            yield Case(f"rng-normal-{kind.value}", Rng("rng_normal", array(kind, 7)),
                       (Input(array(kind), 2), Input(array(kind), 0)))
    yield Case("rng-scalar", Rng("rng_uniform", S32), (Input(S32, -5), Input(S32, -4)))
    yield Case("rng-empty", Rng("rng_normal", array("f64", 0)), (Input(array("f64")),) * 2)
    states = {2: (0x0123456789ABCDEF, 2**64 - 2), 3: (0x0123456789ABCDEF, 2**64 - 2, 0xFEDCBA9876543210)}
    for algorithm, words in (("rng_philox", 2), ("rng_philox", 3), ("rng_default", 2), ("rng_three_fry", 2)):
        for kind, dims in itertools.product(("u4", "s4", "u8", "s16", "u32", "s32", "u64"),
                                            ((7,), (3, 2), (3, 5), (), (0, 3), (4,))):
            yield Case(f"rng-{algorithm}-{words}-{kind}-{list(dims)}",
                       RngBitGenerator(algorithm, array(kind, *dims)),
                       (Input(array("u64", words), np.array(states[words], np.uint64)),))


def doubled(x: ir.Instruction) -> ir.Instruction:
    """x doubled until it is at least 100 (0: at once), as a loop over a scalar."""
    def goes_on(v: ir.Instruction) -> ir.Instruction:
        return ir.make(Elementwise("and"), ir.make(Compare("LT"), v, constant(100, "s32")),
                       ir.make(Compare("NE"), v, constant(0, "s32")))
    return ir.make(While(computation("goes_on", [S32], goes_on),
                         computation("twice", [S32], lambda v: ir.make(Elementwise("add"), v, v))), x)


def flipped(x: np.ndarray) -> np.ndarray:
    """A custom-call target."""
    return x[::-1]


def communication_cases() -> Iterator[Case]:
    """Ops that reach beyond the program, on one device: collectives change nothing there."""
    register_custom_call("cases.flipped", flipped)
    token, request = Input(TOKEN), array("u32")
    for kind in ALL:
        shape, name = array(kind, 3, 4), kind.value
        x = (Input(shape),)
        yield Case(f"all-gather-{name}", AllGather(shape, 1, replica_groups=((0,),)), x)
        yield Case(f"all-to-all-{name}", AllToAll(split_dimension=1), x)
        yield Case(f"collective-permute-{name}", CollectivePermute(((0, 0),)), x)
        yield Case(f"collective-permute-nothing-{name}", CollectivePermute(()), x)
        yield Case(f"collective-broadcast-{name}", CollectiveBroadcast(), x)
        yield Case(f"outfeed-{name}", Outfeed(), (*x, token))
        yield Case(f"send-{name}", Send(7), (*x, token))
        yield Case(f"recv-{name}", Recv(Shape.tuple([shape, request, TOKEN]), 7), (token,))
        yield Case(f"add-dependency-{name}", AddDependency(), (*x, token))
        to_apply = reducer("or" if kind is ElementType.PRED else "add", kind)
        yield Case(f"all-reduce-{name}", AllReduce(to_apply), x)
        yield Case(f"reduce-scatter-{name}", ReduceScatter(shape, 0, to_apply), x)
        yield Case(f"custom-call-{name}", CustomCall(shape, "cases.flipped"), x)
    pair = Shape.tuple([array("f32", 2), array("s32")])
    two = (Input(array("f32", 2)), Input(array("s32")))
    yield Case("all-gather-several", AllGather(Shape.tuple([array("f32", 2), array("s8", 5)]), 0),
               (Input(array("f32", 2)), Input(array("s8", 5))))
    yield Case("all-to-all-tuple", AllToAll(), (Input(array("f32", 2)),))
    yield Case("all-reduce-empty", AllReduce(reducer("maximum", "f32"), channel_id=3), (Input(array("f32", 0, 2)),))
    yield Case("infeed-of-nothing", Infeed(Shape.tuple([Shape.tuple([]), TOKEN])), (token,))
    yield Case("outfeed-of-a-tuple", Outfeed(pair), (Input(pair), token))
    yield Case("send-of-a-tuple", Send(8), (Input(pair), token))
    yield Case("send-done", SendDone(7), (Input(Shape.tuple([pair, request, TOKEN])),))
    yield Case("after-all", AfterAll(), (token, token))
    yield Case("after-nothing", AfterAll(), ())
    yield Case("trace", Trace("here"), two[:1])
    yield Case("replica-id", ReplicaId(), ())
    yield Case("partition-id", PartitionId(), ())


CASES: tuple[Case,
             ...] = tuple(itertools.chain(elementwise_cases(), movement_cases(), gather_cases(),
                                          reduction_cases(),
                                                contraction_cases(), linear_algebra_cases(), control_cases(),
                                          communication_cases()))


def error_cases() -> Iterator[ErrorCase]:
    """At least one row for every constraint."""
    v, m, two = array("f32", 3), array("f32", 2, 3), Shape.tuple([F32, F32])
    add, less = reducer("add", "f32"), comparator("LT", "f32")
    b, index = array("pred", 3), array("s32", 4, 1)
    window = Window.of((2,))

    def rows(*given: tuple[str, Op, tuple[Shape, ...]]) -> Iterator[ErrorCase]:
        for label, op, operands in given:
            yield ErrorCase(label, op, operands)

    yield from rows(
        ("elementwise_c1", Elementwise("add"), (v,)), ("elementwise_c1", Elementwise("negate"), (two,)),
        ("elementwise_c2", Elementwise("floor"), (array("s32", 3),)),
        ("elementwise_c2", Elementwise("subtract"), (b, b)),
        ("elementwise_c3", Elementwise("add"), (v, array("f64", 3))),
        ("elementwise_c4", Elementwise("add"), (v, F32)),
        ("elementwise_c4", Elementwise("select"), (PRED, v, F32)),
        ("elementwise_c5", Elementwise("select"), (v, v, v)),
        ("elementwise_c5", Elementwise("select"), (array("pred", 2), v, v)),
        ("elementwise_c6", Elementwise("clamp"), (array("f32", 2), v, F32)),
        ("compare_c1", Compare("EQ"), (v,)), ("compare_c1", Compare("EQ"), (v, F32)),
        ("compare_c2", Compare("UP"), (v, v)),
        ("compare_c3", Compare("EQ", "SIGNED"), (v, v)),
        ("compare_c4", Compare("LT"), (array("c64"), array("c64"))),
        ("convert_c1", Convert(ElementType.F32), (two,)), ("convert_c2", Convert(ElementType.TUPLE), (v,)),
        ("convert_c3", Convert(ElementType.F32), (array("c64"),)),
        ("bitcast_convert_c1", BitcastConvert(ElementType.F32), ()),
        ("bitcast_convert_c2", BitcastConvert(ElementType.U8), (b,)),
        ("bitcast_convert_c2", BitcastConvert(ElementType.C64), (array("f64"),)),
        ("bitcast_convert_c3", BitcastConvert(ElementType.F32), (array("u8", 3),)),
        ("reduce_precision_c1", ReducePrecision(5, 10), (v, v)),
        ("reduce_precision_c2", ReducePrecision(5, 10), (S32,)),
        ("reduce_precision_c3", ReducePrecision(0, 10), (v,)),
        ("reduce_precision_c4", ReducePrecision(5, -1), (v,)),
        ("broadcast_c1", Broadcast((3,), (0,)), (two,)), ("broadcast_c2", Broadcast((3,), ()), (v,)),
        ("broadcast_c3", Broadcast((3,), (1,)), (v,)),
        ("broadcast_c3", Broadcast((3, 2), (0, 0)), (array("f32", 3, 3),)),
        ("broadcast_c4", Broadcast((4,), (0,)), (v,)), ("broadcast_c5", Broadcast((-1, 3), (1,)), (v,)),
        ("reshape_c1", Reshape((3,)), ()), ("reshape_c2", Reshape((4,)), (v,)),
        ("reshape_c2", Reshape((-1, -3)), (v,)),
        ("transpose_c1", Transpose(()), (two,)), ("transpose_c2", Transpose((0, 0)), (m,)),
        ("transpose_c2", Transpose((0,)), (m,)),
        ("reverse_c1", Reverse(()), ()), ("reverse_c2", Reverse((1,)), (v,)),
        ("reverse_c2", Reverse((0, 0)), (v,)),
        ("slice_c1", Slice((0,), (1,), (1,)), (v, v)), ("slice_c2", Slice((0,), (1,), (1,)), (m,)),
        ("slice_c3", Slice((0,), (4,), (1,)), (v,)), ("slice_c3", Slice((-1,), (2,), (1,)), (v,)),
        ("slice_c4", Slice((0,), (2,), (0,)), (v,)),
        ("pad_c1", Pad((0,), (0,), (0,)), (v,)), ("pad_c1", Pad((0,), (0,), (0,)), (v, v)),
        ("pad_c2", Pad((1,), (0, 0), (0, 0)), (m, F32)),
        ("pad_c3", Pad((0,), (0,), (-1,)), (v, F32)), ("pad_c4", Pad((-2,), (-2,), (0,)), (v, F32)),
        ("pad_c5", Pad((1 << 45,), (-(1 << 45),), (0,)), (v, F32)),
        ("concatenate_c1", Concatenate(0), ()), ("concatenate_c2", Concatenate(0), (F32, F32)),
        ("concatenate_c3", Concatenate(0), (m, array("f32", 2, 4))),
        ("concatenate_c3", Concatenate(0), (v, array("s32", 3))),
        ("iota_c1", Iota(v, 0), (v,)), ("iota_c2", Iota(b, 0), ()), ("iota_c3", Iota(v, 1), ()),
        ("constant_c1", Constant(Literal(np.float32(1))), (v,)), ("parameter_c1", Parameter(0, v), (v,)),
        ("parameter_c2", Parameter(-1, v), ()),
        ("get_tuple_element_c1", GetTupleElement(0), (v,)),
        ("get_tuple_element_c2", GetTupleElement(2), (two,)), ("copy_c1", Copy(), ()),
        ("dynamic_slice_c1", DynamicSlice((1,)), (two,)), ("dynamic_slice_c2", DynamicSlice((1,)), (v,)),
        ("dynamic_slice_c2", DynamicSlice((1,)), (v, F32)),
        ("dynamic_slice_c3", DynamicSlice((4,)), (v, S32)),
        ("dynamic_update_slice_c1", DynamicUpdateSlice(), (v,)),
        ("dynamic_update_slice_c1", DynamicUpdateSlice(), (v, b, S32)),
        ("dynamic_update_slice_c2", DynamicUpdateSlice(), (v, v)),
        ("dynamic_update_slice_c3", DynamicUpdateSlice(), (v, array("f32", 4), S32)))
    sizes = (1, 3)
    yield from rows(
        ("gather_c1", Gather((1,), (0,), (0,), 1, sizes), (m,)),
        ("gather_c2", Gather((1,), (0,), (0,), 1, sizes), (m, m)),
        ("gather_c3", Gather((1,), (0,), (0,), 3, sizes), (m, index)),
        ("gather_c4", Gather((1,), (0,), (0,), 1, (1, 4)), (m, index)),
        ("gather_c5", Gather((1,), (0,), (0, 1), 1, sizes), (m, index)),
        ("gather_c5", Gather((1,), (0,), (2,), 1, sizes), (m, index)),
        ("gather_c6", Gather((1,), (1,), (0,), 1, sizes), (m, index)),
        ("gather_c6", Gather((1,), (2,), (0,), 1, sizes), (m, index)),
        ("gather_c6", Gather((1,), (0,), (0,), 1, (0, 3)), (m, index)),
        ("gather_c7", Gather((1,), (), (0,), 1, sizes, (0,), (0,)), (m, index)),
        ("gather_c7", Gather((1,), (0,), (0,), 1, sizes, (), (0,)), (m, index)),
        ("gather_c8", Gather((0, 1), (0,), (0,), 1, sizes), (m, index)),
        ("gather_c8", Gather((2,), (0,), (0,), 1, sizes), (m, index)))
    updates = array("f32", 4, 3)
    yield from rows(
        ("scatter_c1", Scatter((1,), (0,), (0,), 1, add), (m, index)),
        ("scatter_c1", Scatter((1,), (0,), (0,), 1, add), (m, m, updates)),
        ("scatter_c2", Scatter((1,), (0,), (0,), 3, add), (m, index, updates)),
        ("scatter_c3", Scatter((0, 1), (0,), (0,), 1, add), (m, index, updates)),
        ("scatter_c3", Scatter((2,), (0,), (0,), 1, add), (m, index, updates)),
        ("scatter_c4", Scatter((1,), (2,), (0,), 1, add), (m, index, updates)),
        ("scatter_c4", Scatter((), (1, 0), (0,), 1, add), (m, index, updates)),
        ("scatter_c5", Scatter((1,), (0,), (0, 1), 1, add), (m, index, updates)),
        ("scatter_c5", Scatter((1,), (0,), (2,), 1, add), (m, index, updates)),
        ("scatter_c6", Scatter((1,), (), (0,), 1, add, (0,), (0,)), (m, index, updates)),
        ("scatter_c7", Scatter((1,), (0,), (0,), 1, add), (m, index, array("f32", 4, 4))),
        ("scatter_c7", Scatter((1,), (0,), (0,), 1, add), (m, index, array("f32", 5, 3))),
        ("scatter_c8", Scatter((1,), (0,), (0,), 1, less), (m, index, updates)),
        ("reduce_c1", Reduce((0,), add), (v,)), ("reduce_c1", Reduce((0,), add), (v, v)),
        ("reduce_c1", Reduce((0,), add), ()),
        ("reduce_c2", Reduce((1,), add), (v, F32)), ("reduce_c3", Reduce((0,), less), (v, F32)),
        ("reduce_window_c1", ReduceWindow(window, add), (v,)),
        ("reduce_window_c2", ReduceWindow(window, less), (v, F32)),
        ("reduce_window_c3", ReduceWindow(window, add), (m, F32)),
        ("reduce_window_c3", ReduceWindow(Window.of((2,), (0,)), add), (v, F32)),
        ("reduce_window_c3", ReduceWindow(Window.of((2,), pad_low=(-4,)), add), (v, F32)),
        ("reduce_window_c3", ReduceWindow(Window.of((2,), pad_low=(1 << 45,), pad_high=(-(1 << 45),)), add), (v, F32)),
        ("select_and_scatter_c1", SelectAndScatter(window, less, add), (v, v)),
        ("select_and_scatter_c1", SelectAndScatter(window, less, add), (v, S32, F32)),
        ("select_and_scatter_c2", SelectAndScatter(Window.of((0,)), less, add), (v, v, F32)),
        ("select_and_scatter_c3", SelectAndScatter(window, less, add), (v, v, F32)),
        ("select_and_scatter_c4", SelectAndScatter(window, add, add), (v, array("f32", 2), F32)),
        ("select_and_scatter_c5", SelectAndScatter(window, less, less), (v, array("f32", 2), F32)),
        ("dot_c1", Dot((0,), (0,)), (v,)), ("dot_c1", Dot((0,), (0,)), (v, array("f64", 3))),
        ("dot_c1", Dot((0,), (0,)), (b, b)),
        ("dot_c2", Dot((1,), (0,)), (v, v)), ("dot_c3", Dot((0,), (0,), (), (0,)), (v, v)),
        ("dot_c4", Dot((0,), (0,)), (v, m)),
        ("dot_c4", Dot((0,), ()), (v, v)), ("dot_c5", Dot((), (), (0,), (0,)), (v, m)),
        ("dot_c6", Dot((0,), (0,), preferred_type=ElementType.S32), (v, v)))
    image, kernel, three = array("f32", 2, 5, 5, 4), array("f32", 3, 3, 4, 8), Window.of((3, 3))
    twice = dataclasses.replace(NHWC, input_batch=1)
    yield from rows(
        ("convolution_c1", Convolution(three, NHWC), (image,)),
        ("convolution_c1", Convolution(three, NHWC), (image, array("s32", 3, 3, 4, 8))),
        ("convolution_c2", Convolution(three, twice), (image, kernel)),
        ("convolution_c2", Convolution(three, NHWC), (image, v)),
        ("convolution_c3", Convolution(dataclasses.replace(three, stride=(0, 1)), NHWC), (image, kernel)),
        ("convolution_c3", Convolution(dataclasses.replace(three, stride=(1,)), NHWC), (image, kernel)),
        ("convolution_c4", Convolution(Window.of((2, 3)), NHWC), (image, kernel)),
        ("convolution_c5", Convolution(three, NHWC, 2, 2), (image, kernel)),
        ("convolution_c5", Convolution(three, NHWC, 0), (image, kernel)),
        ("convolution_c6", Convolution(three, NHWC, 2), (image, kernel)),
        ("convolution_c7", Convolution(three, NHWC, 2), (image, array("f32", 3, 3, 2, 7))),
        ("convolution_c8", Convolution(three, NHWC, 1, 4), (image, kernel)),
        ("convolution_c9", Convolution(three, NHWC, preferred_type=ElementType.C64), (image, kernel)))
    yes = computation("yes", [F32], lambda x: ir.make(Compare("EQ"), x, x))
    negate = unary("negate")
    yield from rows(
        ("while_c1", While(yes, negate), ()), ("while_c2", While(negate, negate), (F32,)),
        ("while_c3", While(yes, yes), (F32,)),
        ("conditional_c1", Conditional((), True), (S32,)),
        ("conditional_c1", Conditional((negate, negate), False), (PRED, F32)),
        ("conditional_c2", Conditional((negate, negate), False), (S32, F32, F32)),
        ("conditional_c2", Conditional((negate,), False), (PRED, F32)),
        ("concurrent_c1", Concurrent(()), ()),
        ("concurrent_c1", Concurrent((negate, negate)), (F32,)),
        ("concurrent_c2", Concurrent((negate, negate)), (F32, v)),
        ("conditional_c3", Conditional((negate, yes), False), (PRED, F32, F32)),
        ("conditional_c3", Conditional((negate, negate), False), (PRED, F32, v)),
        ("call_c1", Call(negate), (v,)), ("map_c1", Map((), negate), ()),
        ("map_c1", Map((0,), polynomial()), (v, F32)),
        ("map_c2", Map((), negate), (v,)), ("map_c3", Map((0,), negate), (array("s32", 3),)),
        ("map_c3", Map((0,), unary("negate", 3)), (v,)),
        ("sort_c1", Sort(0, less), ()), ("sort_c1", Sort(0, less), (v, m)), ("sort_c2", Sort(1, less), (v,)),
        ("sort_c3", Sort(0, add), (v,)),
        ("rng_bit_generator_c1", RngBitGenerator("rng_other", v), (U64,)),
        ("rng_bit_generator_c2", RngBitGenerator("rng_three_fry", array("u32", 3)), (array("u64", 3),)),
        ("rng_bit_generator_c2", RngBitGenerator("rng_philox", array("u32", 3)), ()),
        ("rng_bit_generator_c3", RngBitGenerator("rng_philox", v), (U64,)),
        ("fft_c1", Fft("FFT", (3,)), ()), ("fft_c2", Fft("DCT", (3,)), (array("c64", 3),)),
        ("fft_c3", Fft("FFT", ()), (array("c64", 3),)), ("fft_c3", Fft("FFT", (2, 3)), (array("c64", 3),)),
        ("fft_c4", Fft("FFT", (3,)), (v,)), ("fft_c4", Fft("RFFT", (3,)), (array("c64", 3),)),
        ("fft_c5", Fft("RFFT", (4,)), (v,)), ("fft_c5", Fft("IRFFT", (3,)), (array("c64", 3),)),
        ("cholesky_c1", Cholesky(), ()), ("cholesky_c2", Cholesky(), (m,)), ("cholesky_c2", Cholesky(), (v,)),
        ("cholesky_c3", Cholesky(), (array("s32", 3, 3),)),
        ("triangular_solve_c1", TriangularSolve(), (m,)),
        ("triangular_solve_c1", TriangularSolve(), (array("f32", 3, 3), array("f64", 3, 3))),
        ("triangular_solve_c1", TriangularSolve(), (array("s32", 3, 3), array("s32", 3, 3))),
        ("triangular_solve_c2", TriangularSolve(), (m, m)),
        ("triangular_solve_c3", TriangularSolve(True), (array("f32", 3, 3), m)),
        ("triangular_solve_c3", TriangularSolve(), (array("f32", 2, 3, 3), m)),
        ("triangular_solve_c4", TriangularSolve(transpose_a="MAYBE"), (array("f32", 3, 3), m)),
        ("topk_c1", TopK(1), ()), ("topk_c2", TopK(4), (v,)), ("topk_c2", TopK(0), (F32,)), ("topk_c2", TopK(-1), (v,)),
        ("topk_c3", TopK(1), (b,)), ("topk_c4", TopK(1, True, "STABLE"), (v,)),
        ("nonzero_c1", Nonzero(), ()), ("nonzero_c1", Nonzero(), (v,)), ("nonzero_c2", Nonzero(), (array("pred"),)),
        ("nonzero_c2", Nonzero(), (array("pred", 2, 1 << 31),)),
        ("opt_barrier_c1", OptimizationBarrier(), ()),
        ("get_dimension_size_c1", GetDimensionSize(0), (two,)), ("get_dimension_size_c2", GetDimensionSize(1), (v,)),
        ("set_dimension_size_c1", SetDimensionSize(0), (v, v)),
        ("set_dimension_size_c2", SetDimensionSize(1), (v, array("s32"))),
        ("rng_c1", Rng("rng_uniform", v), (F32,)), ("rng_c1", Rng("rng_uniform", v), (S32, S32)),
        ("rng_c2", Rng("rng_other", v), (F32, F32)), ("rng_c3", Rng("rng_normal", array("s32", 3)), (S32, S32)),
        ("fusion_c1", Fusion("kLoop", negate), (v,)), ("copy_c1", Copy(), (v, TOKEN)))


def communication_error_cases() -> Iterator[ErrorCase]:
    """At least one row for every constraint of these ops."""
    v, m, add, less = array("f32", 3), array("f32", 2, 3), reducer("add", "f32"), comparator("LT", "f32")
    twice_one = ((0, 1), (1, 2))
    context = Shape.tuple([v, array("u32"), TOKEN])
    for label, op, operands in (
            ("all_gather_c1", AllGather(v, 0), ()), ("all_gather_c1", AllGather(v, 0), (TOKEN,)),
            ("all_gather_c2", AllGather(v, 0, 0, twice_one), (v,)), ("all_gather_c2", AllGather(v, 0, 0, ((),)), (v,)),
            ("all_gather_c2", AllGather(v, 0, 0, ((-1,),)), (v,)),
            ("all_gather_c3", AllGather(v, 1), (v,)), ("all_gather_c3", AllGather(m, 0), (v,)),
            ("all_gather_c3", AllGather(array("f32", 7), 0), (v,)),
            ("all_gather_c3", AllGather(array("s32", 6), 0), (v,)),
            ("all_gather_c3", AllGather(array("f32", 9), 0, 0, ((0, 1), (2, 3))), (v,)),
            ("all_gather_c3", AllGather(array("f32", 6), 0), (v, v)),
            ("all_reduce_c1", AllReduce(add), ()), ("all_reduce_c2", AllReduce(add, 0, twice_one), (v,)),
            ("all_reduce_c3", AllReduce(less), (v,)), ("all_reduce_c3", AllReduce(add), (v, array("s32"))),
            ("reduce_scatter_c1", ReduceScatter(v, 0, add), ()),
            ("reduce_scatter_c2", ReduceScatter(v, 0, add, 0, twice_one), (v,)),
            ("reduce_scatter_c3", ReduceScatter(v, 0, add), (array("f32", 4),)),
            ("reduce_scatter_c3", ReduceScatter(v, 1, add), (v,)),
            ("reduce_scatter_c4", ReduceScatter(v, 0, less), (v,)),
            ("all_to_all_c1", AllToAll(), ()), ("all_to_all_c1", AllToAll(), (v, m)),
            ("all_to_all_c2", AllToAll(0, twice_one), (v, v)), ("all_to_all_c2", AllToAll(0, ((0, 1),)), (v,)),
            ("all_to_all_c2", AllToAll(0, ((0, 1), (2,)), 0), (v,)),
            ("all_to_all_c3", AllToAll(0, (), 1), (v,)), ("all_to_all_c3", AllToAll(0, (), 0), (v, v)),
            ("all_to_all_c3", AllToAll(0, ((0, 1),), 0), (v,)),
            ("collective_permute_c1", CollectivePermute(()), ()),
            ("collective_permute_c2", CollectivePermute(((0, 1), (0, 2))), (v,)),
            ("collective_permute_c2", CollectivePermute(((0, 1), (2, 1))), (v,)),
            ("collective_permute_c2", CollectivePermute(((0,),)), (v,)),
            ("collective_permute_c2", CollectivePermute(((-1, 0),)), (v,)),
            ("collective_broadcast_c1", CollectiveBroadcast(), ()),
            ("collective_broadcast_c1", CollectiveBroadcast(), (v, v)),
            ("collective_broadcast_c2", CollectiveBroadcast(0, twice_one), (v,)),
            ("replica_id_c1", ReplicaId(), (v,)), ("partition_id_c1", PartitionId(), (v,)),
            ("after_all_c1", AfterAll(), (TOKEN, v)),
            ("add_dependency_c1", AddDependency(), (v,)), ("add_dependency_c1", AddDependency(), (v, v)),
            ("infeed_c1", Infeed(Shape.tuple([v, TOKEN])), (v,)), ("infeed_c2", Infeed(v), (TOKEN,)),
            ("infeed_c2", Infeed(Shape.tuple([Shape.tuple([Shape.tuple([v])]), TOKEN])), (TOKEN,)),
            ("outfeed_c1", Outfeed(), (v,)), ("outfeed_c1", Outfeed(), (TOKEN, TOKEN)),
            ("outfeed_c2", Outfeed(m), (v, TOKEN)),
            ("send_c1", Send(1), (v,)), ("send_c2", Send(0), (v, TOKEN)),
            ("send_done_c1", SendDone(1), (v,)), ("recv_c1", Recv(context, 1), (v,)),
            ("recv_c2", Recv(v, 1), (TOKEN,)), ("recv_c3", Recv(context, 0), (TOKEN,)),
            ("recv_done_c1", RecvDone(1), (v,)), ("recv_done_c2", RecvDone(0), (context,)),
            ("trace_c1", Trace("x"), ()), ("trace_c1", Trace("x"), (TOKEN,)),
            ("custom_call_c1", CustomCall(v, "f"), (Shape.tuple([v]),)),
            ("custom_call_c2", CustomCall(Shape.tuple([Shape.tuple([v])]), "f"), ()),
            ("custom_call_c3", CustomCall(v, "f", api_version="API_VERSION_NINE"), ()),
            ("custom_call_c5", CustomCall(v, "f", backend_config='"\\x"'), ()),
            ("custom_call_c4", CustomCall(v, FAIL_IF, True), (array("pred"),)),
            ("custom_call_c4", CustomCall(v, LEAVE_IF, True), (array("pred"),)),
            ("custom_call_c4", CustomCall(Shape.tuple([]), FAIL_IF, True), (v,)),
            ("custom_call_c4", CustomCall(Shape.tuple([]), FAIL_IF), (array("pred"),))):
        yield ErrorCase(label, op, operands)


ERROR_CASES: tuple[ErrorCase, ...] = (*error_cases(), *communication_error_cases())
