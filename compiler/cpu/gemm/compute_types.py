"""The types that matrix products are computed in, and how elements of other types get there.

A compute type is `f32`, `f64`, `i32` or `i64`: that of the accumulators, and of A and B when they are packed; or one of
QUADS, where elements of A and B are quads of bytes (byte_products.py), and sums are i32.
"""

from __future__ import annotations

from ....runtime.llvm.addressing import Index, Int, Ptr
from ....runtime.llvm.ir_builder import Function, Value, vector_type
from ....runtime.llvm.lane_control import function_of
from ....runtime.llvm.target import Target
from ....runtime.llvm.value import InstructionWriter
from ....runtime.llvm.vector_value import VectorValue
from ...ir.element_types import ElementType
from ..codegen.memory_types import load, memory_type, single, store
from .byte_products import add_products

E = ElementType
QUADS = ("u8s8", "s8s8", "u8u8", "s8u8", "u8s7", "s7u8")
COMPUTE_TYPES = {"f32": "float", "f64": "double", "i32": "i32", "i64": "i64", **dict.fromkeys(QUADS, "i32")}
CACHE_LINE = 64  # bytes
SIZES = {"float": 4, "double": 8, "i32": 4, "i64": 8}
# Of C, and of A and B when they are packed.
STORED = {"f32": E.F32, "f64": E.F64, "i32": E.S32, "i64": E.S64, **dict.fromkeys(QUADS, E.S32)}
_STORED = {"float": E.F32, "double": E.F64, "i32": E.S32, "i64": E.S64, "i16": E.S16, "i8": E.S8}


def line_vectors(target: Target) -> bool:
    """Whether a vector is a whole cache line: as many lines come and go as there are loads and stores, and a tile is
    done so soon that its lines of C are asked for ahead."""
    return target.vector_bytes >= CACHE_LINE


def sources(compute: str) -> tuple[ElementType, ...]:
    """Element types that the packing functions of a compute type read."""
    if compute in QUADS:
        return (E.S32,)
    if compute == "f64":
        return (E.F64,)
    if compute == "f32":
        return (E.F32, E.BF16, E.F16)
    up_to_32_bits = (E.PRED, *(t for t in E if t.is_small_integer), E.S8, E.S16, E.S32, E.U8, E.U16, E.U32)
    return up_to_32_bits if compute == "i32" else (*up_to_32_bits, E.S64, E.U64)


def packed_sources(compute: str) -> tuple[ElementType, ...]:
    """Element types of B that the packing functions of a compute type read: bytes beside those of A, for f32."""
    return (*sources(compute), E.S8, E.U8) if compute == "f32" else sources(compute)


def compute_of(element: ElementType, result: ElementType, quads: str = "") -> str | None:
    """The compute type of the blocked driver for these element types, or for quads; None where it has none."""
    if quads:
        return quads
    if result in (E.S32, E.U32) and element in sources("i32"):
        return "i32"
    if result in (E.S64, E.U64) and element in sources("i64"):
        return "i64"
    name: str = result.value
    return name if result in (E.F32, E.F64) and element in sources(name) else None


def lanes_of(target: Target, compute: str) -> int:
    """Lanes of one vector of a compute type."""
    return target.lanes(SIZES[COMPUTE_TYPES[compute]] * 8)


class Compute:
    """A compute type on a target: `type` is its LLVM type, `vector` a register of `lanes` of them.

    Units: bytes of one number, vector_bytes of a register.
    """

    def __init__(self, target: Target, name: str) -> None:
        self.target, self.name = target, name
        self.type = COMPUTE_TYPES[name]
        self.bytes, self.lanes = SIZES[self.type], lanes_of(target, name)
        self.vector, self.vector_bytes = vector_type(self.type, self.lanes), self.lanes * self.bytes
        self._is_fused = name.startswith("f") and target.fuses(8 * self.bytes)

    def multiply_add(self, a: VectorValue, b: VectorValue, c: VectorValue) -> VectorValue:
        """a * b + c, fused where the target can; of quads, c and the products of all their bytes."""
        if self.name in QUADS:
            return add_products(self.target, self.name, a, b, c)
        return a.call("fma", b, c) if self._is_fused else c + a * b

    def broadcast(self, scalar: VectorValue) -> VectorValue:
        """A number in all lanes of a register."""
        return scalar.splat(self.lanes)

    def load(self, pointer: Ptr, element: ElementType, lanes: int) -> VectorValue:
        """Elements of any type, converted."""
        if memory_type(element) == self.type:
            return pointer.load(vector_type(self.type, lanes))
        return load_as(pointer.f, element, self.type, pointer, lanes)

    def load_masked(self, pointer: Ptr, count: Index, first: int = 0) -> VectorValue:
        """Lanes first, first + 1, ... below `count` of a register; the others are zero, their memory is not touched."""
        return load_masked(pointer.f, self.type, self.lanes, pointer, Int.of(pointer.f, count), first)

    def store_masked(self, value: VectorValue, pointer: Ptr, count: Index) -> None:
        """Stores the lanes below `count`."""
        store_masked(pointer.f, value, self.type, self.lanes, pointer, Int.of(pointer.f, count))

    def is_stored_as(self, element: ElementType) -> bool:
        """Whether elements lie in memory as they are computed."""
        return memory_type(element) == self.type


def load_as(
    f: InstructionWriter, element: ElementType, type_: str, pointer: Value, lanes: int
) -> VectorValue:
    """Loads `lanes` real elements and converts them to the LLVM type `type_`."""
    value = single(load(function_of(f), element, pointer, lanes))
    if element.is_float:
        return value.cast("fpext" if type_ == "double" else "fptrunc", type_)
    if type_ == "float":  # of integers that it holds
        return value.cast("sext" if element.is_signed else "zext", "i32").cast("sitofp", type_)
    if value.bits > int(type_[1:]):
        return value.cast("trunc", type_)
    return value.cast("sext" if element.is_signed else "zext", type_)


def multiply_add(f: Function, a: Value, b: Value, c: Value, target: Target) -> VectorValue:
    """a * b + c of floats or integers, fused where the target can."""
    x, y, z = (VectorValue.of(f, v) for v in (a, b, c))
    return x.call("fma", y, z) if x.is_float and target.fuses(x.bits) else z + x * y


def lane_mask(f: InstructionWriter, count: Value, first: int, lanes: int) -> VectorValue:
    """i1 per lane: lane index + first < count."""
    length = Int.of(f, count)
    if lanes == 1:
        return length > first
    numbers = "<" + ", ".join(f"i32 {first + j}" for j in range(lanes)) + ">"
    index = VectorValue(vector_type("i32", lanes), numbers, f)
    return index < length.truncate("i32").splat(lanes)


def load_masked(
    f: InstructionWriter, type_: str, lanes: int, pointer: Value, count: Value, first: int = 0
) -> VectorValue:
    """Lanes first, first + 1, ... below `count`; the others are zero and their memory is not touched."""
    mask = lane_mask(f, count, first, lanes)
    return single(load(function_of(f), _STORED[type_], pointer, lanes, mask=mask))


def store_masked(
    f: InstructionWriter, value: Value, type_: str, lanes: int, pointer: Value, count: Value, first: int = 0
) -> None:
    """Stores the lanes whose index + first is below `count`."""
    store(function_of(f), _STORED[type_], value, pointer, lanes, mask=lane_mask(f, count, first, lanes))
