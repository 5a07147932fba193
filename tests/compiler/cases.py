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
from builders import argmax, comparator, computation, constant, polynomial, reducer, unary
from tfbridge.compiler import register_custom_call
from tfbridge.compiler.ir import module as ir
from tfbridge.compiler.ir.element_types import (
    ARRAYS,
    COMPLEXES,
    FLOATS,
    FORMATS,
    INTEGERS,
    NUMBERS,
    ElementType,
)
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
    BlockScaledDot,
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
    IsotonicRegression,
    LuDecomposition,
    Map,
    Nonzero,
    Op,
    OptimizationBarrier,
    Outfeed,
    Pad,
    Parameter,
    PartitionId,
    Recv,
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
    SelfAdjointEig,
    Send,
    SendDone,
    SetDimensionSize,
    SizeConstant,
    Slice,
    Sort,
    TableLookup,
    TopK,
    Trace,
    Transpose,
    TriangularSolve,
    Tuple,
    While,
    Window,
)
from tfbridge.compiler.ops.table_lookup import BYTES


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
    `ulps` units of it. `counted`: the second result says how many rows of the first one are results."""

    name: str
    op: Op
    operands: tuple[Input, ...]
    ulps: float = 0.0
    scale: float = 0.0
    counted: bool = False


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


F32, S32, PRED, U64 = array("f32"), array("s32"), array("pred"), array("u64", 2)
ALL = sorted(ARRAYS, key=lambda t: t.value)
# Types that rows have in all pairs; the others have rows with some of them, and are compared in test_narrow_types.py.
COMBINED = {t for t in ALL if t.bits >= 8 and t not in FORMATS} | {
    ElementType(name) for name in ("pred", "s4", "u4", "f8e4m3fn", "f8e5m2", "f16", "bf16")}
WITH_EACH = {ElementType.F32, ElementType.U4, ElementType.U8}
INEXACT = {  # ulps of compiled code, for real and complex types; the rest is exact
    "sqrt": (0, 8), "rsqrt": (2, 16), "cbrt": (4, 32), "exponential": (4, 16),
    "exponential-minus-one": (4, 64),
    "log": (4, 16), "log-plus-one": (4, 64), "logistic": (8, 32), "tanh": (6, 64), "tan": (8, 64),
    "sinh": (5, 32),
    "sine": (4, 32), "cosine": (4, 32), "erf": (8, 0), "erfc": (10, 0), "power": (16, 256), "atan2": (4, 256),
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
        # test_narrow_types.py has all pairs of the others.
        for new in (t for t in ALL if {kind, t} <= COMBINED or t is kind or {kind, t} & WITH_EACH):
            if new.is_complex or not kind.is_complex:
                yield Case(f"convert-{kind.value}-{new.value}", Convert(new), (Input(array(kind, 7, 11)),))
            if _same_bits(kind, new):
                dims = (5, 3, new.bits // kind.bits) if new.bits > kind.bits else (5, 3)
                yield Case(f"bitcast-convert-{kind.value}-{new.value}", BitcastConvert(new),
                           (Input(array(kind, *dims)),))
    for kind, bits in itertools.product(("f16", "bf16", "f32", "f64"),
                                        ((5, 10), (8, 7), (8, 23), (3, 2), (1, 0), (11, 52))):
        yield Case(f"reduce-precision-{kind}-{bits}", ReducePrecision(*bits), (Input(array(kind, 7, 11)),))


    for old, new in itertools.product(BYTES, BYTES):
        table = np.random.default_rng(5).integers(0, 256, 256).astype(np.uint8).view(new.dtype)
        for dims in ((), (0, 3), (1,), (256,), (7, 11), (1009,)):
            yield Case(f"table-lookup-{old.value}-{new.value}-{dims}", TableLookup(tuple(map(int, table)), new),
                       (Input(array(old, *dims)),))


def _same_bits(old: ElementType, new: ElementType) -> bool:
    return old is new or 1 < old.bits == new.bits < 8 or all(
        t in INTEGERS | FLOATS and t.bits >= 8 for t in (old, new))


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
        if kind in INTEGERS:
            yield Case(f"size-{kind.value}", SizeConstant(1, kind), ())
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


def reduce_cases() -> Iterator[Case]:
    """reduce: of all types, of all axes, and by computations of several values."""
    for kind in ALL:
        inexact = kind in FLOATS | COMPLEXES
        for name in (n for n in ("add", "multiply", "maximum", "minimum", "and", "or") if kind in ROWS[n].types):
            start = {"multiply": 1, "and": -1, "maximum": 0, "minimum": 1}.get(name, 0)
            if kind in (ElementType.U4, ElementType.U8, ElementType.U16, ElementType.U32, ElementType.U64):
                start = abs(start)
            loose = inexact and name in ("add", "multiply")
            yield Case(f"reduce-{name}-{kind.value}", Reduce((1,), reducer(name, kind)),
                       (Input(array(kind, 5, 13), fill="unit"), Input(array(kind), start)),
                       ulps=64 if loose else 0, scale=16 if loose else 0)
    for dims, axes in (((7, 11, 3), (0, 2)), ((7, 11, 3), ()), ((131,), (0,)), ((3, 0), (1,)), ((0, 3), (1,)),
                       ((), ()), ((2, 3, 5, 7), (3, 1))):
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


WINDOWS = (  # name, window, dims
    ("plain", Window.of((2, 3), (2, 3)), (4, 6)),
    ("padded", Window.of((3, 2), (2, 1), (1, 0), (1, 1)), (5, 7)),
    ("cut", Window.of((2,), (1,), (-2,), (-1,)), (9,)),
    ("dilated", Window.of((2, 3), (1, 2), (1, 2), (0, 3), (2, 3), (3, 2)), (5, 4)),
    ("does-not-fit", Window.of((5,)), (3,)),
    ("empty-base", Window.of((2,), (1,), (1,), (1,)), (0,)),
    ("scalar", Window.of(()), ()))


def reduce_window_cases() -> Iterator[Case]:
    """reduce-window."""
    for kind in (t for t in ALL if t not in COMPLEXES):
        start = limits(kind)[0] if kind is not ElementType.PRED else 0
        yield Case(f"reduce-window-{kind.value}", ReduceWindow(Window.of((3,), (2,)), reducer("maximum", kind)),
                   (Input(array(kind, 11)), Input(array(kind), start)))
    for name, window, dims in WINDOWS:
        data = Input(array("f32", *dims), fill="unit")
        yield Case(f"reduce-window-add-{name}", ReduceWindow(window, reducer("add", "f32")),
                   (data, Input(F32, 0)), ulps=16, scale=8)
        yield Case(f"reduce-window-min-{name}", ReduceWindow(window, reducer("minimum", "f32")),
                   (data, Input(F32, np.inf)))
    yield Case("reduce-window-argmax", ReduceWindow(Window.of((3,), (1,), (1,), (1,)), argmax()),
               (Input(array("f32", 7), fill="distinct"), Input(array("s32", 7), np.arange(7)),
                Input(F32, -np.inf), Input(S32, 99)))


def select_and_scatter_cases() -> Iterator[Case]:
    """select-and-scatter."""
    for name, window, dims in (row for row in WINDOWS if row[2]):
        yield Case(f"select-and-scatter-{name}",
                   SelectAndScatter(window, comparator("GE", "f32"), reducer("add", "f32")),
                   (Input(array("f32", *dims), fill="distinct"),
                    Input(array("f32", *window.output(dims)), fill="unit"), Input(F32, 0)), ulps=8, scale=8)
    for kind in (t for t in ALL if t in INTEGERS | FLOATS):
        yield Case(f"select-and-scatter-{kind.value}",
                   SelectAndScatter(Window.of((2,), (2,)), comparator("GE", kind), reducer("add", kind)),
                   (Input(array(kind, 6), (1, 2, 3, 3, 2, 1)), Input(array(kind, 3), (1, 2, 3)),
                    Input(array(kind), 0)))


INDICES_300 = np.arange(300)
SPECIAL_300 = np.where(INDICES_300 % 11 == 3, np.nan,
                       np.where(INDICES_300 % 7 < 2, -0.0, INDICES_300 * 37 % 41 - 9))  # NaN, zeros and equal values


def sort_cases() -> Iterator[Case]:
    """sort: of all types, of one and of two operands."""
    for kind in (t for t in ALL if t not in COMPLEXES):
        yield Case(f"sort-{kind.value}", Sort(0, comparator("LT", kind), True), (Input(array(kind, 37, 2)),))
    for dims, axis in (((0,), 0), ((1,), 0), ((2,), 0), ((64,), 0), ((3, 17), 1), ((3, 5, 2), 1), ((1000,), 0)):
        yield Case(f"sort-{list(dims)}-{axis}", Sort(axis, comparator("LT", "f32")),
                   (Input(array("f32", *dims), fill="distinct"),))
    for direction in ("LT", "GT"):
        yield Case(f"sort-numbers-{direction}", Sort(1, comparator(direction, "f32", "s32"), True),
                   (Input(array("f32", 3, 100), SPECIAL_300), Input(array("s32", 3, 100), INDICES_300)))
    pairs = (Input(array("s32", 29), np.arange(29) * 7 % 5), Input(array("f32", 29), np.arange(29)))
    yield Case("sort-pairs-stable", Sort(0, comparator("GT", "s32", "f32"), True), pairs)


def topk_cases() -> Iterator[Case]:
    """topk: the largest and the smallest, in every order of equal values."""
    for kind in (t for t in ALL if t in INTEGERS | FLOATS):
        for largest in (True, False):
            yield Case(f"topk-{kind.value}-{largest}", TopK(5, largest), (Input(array(kind, 3, 97)),))
    for dims, k in (((0,), 0), ((3, 0), 0), ((5,), 0), ((1,), 1), ((0, 5), 2), ((200,), 1), ((2, 3, 40), 40),
                    ((1000,), 100), ((2, 300), 129)):
        yield Case(f"topk-{list(dims)}-{k}", TopK(k, True), (Input(array("f32", *dims)),))
    yield Case("topk-ties", TopK(20, True), (Input(array("s32", 3, 100), INDICES_300 * 7 % 5),))
    for order in ("NUMBERS", "HEAP", "HEAP_SORTED"):
        for kind in ("f64", "f32", "bf16", "f8e5m2", "u64", "s8"):
            values = SPECIAL_300 if kind[0] in "bf" else INDICES_300 * 37 % 41
            yield Case(f"topk-{order}-{kind}", TopK(20, True, order), (Input(array(kind, 3, 100), values),))
        for k, largest in ((1, True), (2, True), (50, False), (99, True), (100, False), (100, True)):
            yield Case(f"topk-{order}-{k}-{largest}", TopK(k, largest, order),
                       (Input(array("f32", 3, 100), SPECIAL_300),))
        yield Case(f"topk-{order}-150", TopK(150, True, order), (Input(array("f32", 300), SPECIAL_300),))


def nonzero_cases() -> Iterator[Case]:
    """nonzero: of random and of equal values."""
    for dims in ((0,), (1,), (7,), (8,), (97,), (1000,), (3, 0), (0, 5), (3, 41), (2, 3, 16)):
        yield Case(f"nonzero-{list(dims)}", Nonzero(), (Input(array("pred", *dims)),), counted=True)
    for value in (False, True):
        yield Case(f"nonzero-all-{value}", Nonzero(), (Input(array("pred", 83), np.full(83, value)),), counted=True)


def isotonic_regression_cases() -> Iterator[Case]:
    """isotonic-regression: of values that fall, rise, are equal, are no numbers, and of many lines."""
    op = IsotonicRegression()
    for kind in ("f16", "bf16", "f32", "f64"):
        yield Case(f"isotonic-regression-{kind}", op, (Input(array(kind, 3, 97)),))
        yield Case(f"isotonic-regression-special-{kind}", op, (Input(array(kind, 3, 100), SPECIAL_300),))
        yield Case(f"isotonic-regression-rising-{kind}", op, (Input(array(kind, 3000), np.arange(3000)),))
    for dims in ((0,), (1,), (2,), (3, 0), (0, 5), (2, 1), (2, 3, 16), (1500, 7)):
        yield Case(f"isotonic-regression-{list(dims)}", op, (Input(array("f32", *dims)),))
    yield Case("isotonic-regression-falling", op, (Input(array("f32", 83), -np.arange(83)),))
    yield Case("isotonic-regression-ties", op, (Input(array("f32", 3, 100), INDICES_300 * 7 % 5),))


def block_scaled_dot_cases() -> Iterator[Case]:
    """block-scaled-dot: one row and several, odd numbers of columns, blocks that are not whole, rows in any order."""
    for m, k, n, size in ((1, 7, 5, 3), (1, 64, 33, 32), (2, 33, 300, 8), (5, 96, 130, 64), (37, 65, 67, 65),
                          (3, 4, 1, 1), (1, 1, 2, 4), (0, 3, 4, 2), (3, 0, 4, 2), (3, 4, 0, 2), (200, 10, 40, 4)):
        blocks = max(1, -(-k // size))
        common = (Input(array("f32", m, k), fill="unit"), Input(array("s8", k, (n + 1) // 2)),
                  Input(array("f32", blocks, n), fill="unit"))
        zeros = Input(array("s8", blocks, n), fill="unit")
        numbers = Input(array("s32", k), np.arange(k) * 7 // 5 % (blocks + 2) - 1)
        for name, op, others in (
                ("", BlockScaledDot(size), ()), ("-zeros", BlockScaledDot(size, True), (zeros,)),
                ("-numbers", BlockScaledDot(), (numbers,)), ("-both", BlockScaledDot(0, True), (zeros, numbers))):
            yield Case(f"block-scaled-dot-{m}-{k}-{n}{name}", op, (*common, *others), ulps=16, scale=256)


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
    for kind, dims in itertools.product(
            ("f32", "f64", "c64", "c128"),
            ((5, 5), (0, 0), (0, 3), (3, 0), (1, 1), (2, 3, 1), (4, 3, 3), (2, 7, 5), (2, 4, 19), (3, 64, 64),
             (65, 65), (2, 70, 70), (131, 80), (80, 131))):
        for one_norm in (False, True):
            yield Case(f"lu-decomposition-{kind}-{one_norm}-{list(dims)}", LuDecomposition(one_norm),
                       (Input(array(kind, *dims), fill="unit"),), ulps=512, scale=8)
    for kind, dims in itertools.product(
            ("f32", "f64", "c64", "c128"), ((0, 0), (0, 3, 3), (1, 1), (5, 2, 2), (2, 7, 7), (40, 40))):
        yield Case(f"self-adjoint-eig-{kind}-{list(dims)}", SelfAdjointEig(),
                   (Input(array(kind, *dims), fill="unit"),), ulps=256, scale=8)
        if dims[-1] < 2:
            yield Case(f"self-adjoint-eig-vectors-{kind}-{list(dims)}", SelfAdjointEig(True),
                       (Input(array(kind, *dims), fill="unit"),), ulps=4)
    yield Case("lu-decomposition-of-zeros", LuDecomposition(), (Input(array("f32", 3, 4), np.zeros(12)),))
    yield Case("lu-decomposition-of-special", LuDecomposition(),
               (Input(array("f32", 12, 5, 5), SPECIAL_300),), ulps=512, scale=8)
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


CASES = (*elementwise_cases(), *movement_cases(), *gather_cases(), *reduce_cases(), *reduce_window_cases(),
         *select_and_scatter_cases(), *sort_cases(), *topk_cases(), *nonzero_cases(), *isotonic_regression_cases(),
         *contraction_cases(), *block_scaled_dot_cases(),
         *linear_algebra_cases(), *control_cases(), *communication_cases())
BY_OPCODE: dict[str, list[Case]] = {}
for _case in CASES:
    BY_OPCODE.setdefault(_case.op.opcode, []).append(_case)
"""The rows of each op. A test for each op, not for each of thousands of rows, saves what pytest does for every test."""
