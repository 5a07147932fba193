"""The types that matrix products are computed in, and how elements of other types get there.

A compute type is `f32`, `f64`, `i32` or `i64`: that of the accumulators, and of A and B when they are packed.
"""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, Value, constant, split_vector, vector_type
from ....runtime.llvm.target import Target
from ...ir.element_types import ElementType
from ..codegen.memory_types import load, store

E = ElementType
COMPUTE_TYPES = {"f32": "float", "f64": "double", "i32": "i32", "i64": "i64"}
CACHE_LINE = 64  # bytes
SIZES = {"float": 4, "double": 8, "i32": 4, "i64": 8}
_HELD_BY = {"float": E.F32, "double": E.F64, "i32": E.S32, "i64": E.S64, "i16": E.S16, "i8": E.S8}


def line_vectors(target: Target) -> bool:
    """Whether a vector is a whole cache line: as many lines come and go as there are loads and stores, and a tile is
    done so soon that its lines of C are asked for ahead."""
    return target.vector_bytes >= CACHE_LINE


def sources(compute: str) -> tuple[ElementType, ...]:
    """Element types that the packing functions of a compute type (`f32`, `f64`, `i32`, `i64`) read."""
    if compute == "f64":
        return (E.F64,)
    if compute == "f32":
        return (E.F32, E.BF16, E.F16)
    narrow = (E.PRED, E.S4, E.S8, E.S16, E.S32, E.U4, E.U8, E.U16, E.U32)
    return narrow if compute == "i32" else (*narrow, E.S64, E.U64)


def compute_of(element: ElementType, result: ElementType) -> str | None:
    """The compute type of the blocked driver for these element types; None where it has none."""
    if result in (E.S32, E.U32) and element in sources("i32"):
        return "i32"
    if result in (E.S64, E.U64) and element in sources("i64"):
        return "i64"
    if result in (E.F32, E.F64) and element in sources(result.value):
        return result.value
    return None


def lanes_of(target: Target, compute: str) -> int:
    """Lanes of one vector of a compute type."""
    return target.lanes(SIZES[COMPUTE_TYPES[compute]] * 8)


def load_as(f: Function, element: ElementType, type_: str, pointer: Value, lanes: int) -> Value:
    """Loads `lanes` real elements and converts them to the LLVM type `type_`."""
    value = load(f, element, pointer, lanes)
    assert isinstance(value, Value)
    wanted, held = vector_type(type_, lanes), split_vector(value.type)[0]
    if element.is_float:
        return f.cast("fpext" if type_ == "double" else "fptrunc", value, wanted)
    if int(held[1:]) > int(type_[1:]):
        return f.cast("trunc", value, wanted)
    return f.cast("sext" if element.is_signed else "zext", value, wanted)


def multiply_add(f: Function, a: Value, b: Value, c: Value, target: Target) -> Value:
    """a * b + c of floats or integers, fused where the target can."""
    if "float" in a.type or "double" in a.type:
        if target.has_fma:
            return f.intrinsic("fma", a.type, [a, b, c])
        return f.binary("fadd", c, f.binary("fmul", a, b))
    return f.binary("add", c, f.binary("mul", a, b))


def zero(type_: str) -> Value:
    """Zero of any type."""
    return constant(type_, 0) if "<" not in type_ else Value(type_, "zeroinitializer")


def lane_mask(f: Function, count: Value, first: int, lanes: int) -> Value:
    """i1 per lane: lane index + first < count."""
    if lanes == 1:
        return f.compare("icmp sgt", count, Value("i64", str(first)))
    ints = vector_type("i32", lanes)
    index = Value(ints, "<" + ", ".join(f"i32 {first + j}" for j in range(lanes)) + ">")
    return f.compare("icmp slt", index, f.splat(f.cast("trunc", count, "i32"), lanes))


def load_masked(f: Function, type_: str, lanes: int, pointer: Value, count: Value, first: int = 0) -> Value:
    """Lanes first, first + 1, ... below `count`; the others are zero and their memory is not touched."""
    value = load(f, _HELD_BY[type_], pointer, lanes, mask=lane_mask(f, count, first, lanes))
    assert isinstance(value, Value)
    return value


def store_masked(
    f: Function, value: Value, type_: str, lanes: int, pointer: Value, count: Value, first: int = 0
) -> None:
    """Stores the lanes whose index + first is below `count`."""
    store(f, _HELD_BY[type_], value, pointer, lanes, mask=lane_mask(f, count, first, lanes))


def if_(f: Function, condition: Value, then: Callable[[], object]) -> None:
    """if condition: then()."""

    def run() -> None:
        then()

    f.branch(condition, run)
