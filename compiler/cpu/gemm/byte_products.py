"""Products of bytes: sums of four of them in each lane of i32, in which their operands lie side by side.

The compute types `u8s8`, `s8s8`, `u8u8` and `s8u8` have quads for elements: four neighbouring steps of the sum over k,
in the bits of an i32. A product of two quads is the sum of the four products of their bytes; the name says which
operand, A or B, has signed ones, and with `s7` which has small ones.
"""

from __future__ import annotations

from ....runtime.llvm.target import Target
from ....runtime.llvm.types import vector_type
from ....runtime.llvm.vector_value import VectorValue
from ...analysis.quads import QUAD, signs_of

# The function of LLVM that adds the sums of four products, for the signs of its operands. VNNI and I8MM have unsigned
# bytes first.
_NATIVE = {
    "vnni": {(False, True): "x86.avx512.vpdpbusd.{bits}"},
    "dotprod": {(True, True): "aarch64.neon.sdot.{c}.{a}", (False, False): "aarch64.neon.udot.{c}.{a}"},
}
_NATIVE["i8mm"] = {**_NATIVE["dotprod"], (False, True): "aarch64.neon.usdot.{c}.{a}"}

# LLVM's functions for the sums of two products of 16 bits, by the lanes of the sums.
_AVX2_LANES = 8
_PAIRS_OF_WASM = "llvm.wasm.dot"  # of four lanes, with SIMD
_PAIRS = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd"}


def is_native(target: Target, compute: str) -> bool:
    """Whether one instruction adds the sums of four products."""
    signs = signs_of(compute)
    return bool({signs, signs[::-1]} & _NATIVE.get(target.byte_products, {}).keys())


def extra_registers(target: Target, compute: str) -> int:
    """Registers that a product takes besides the sums, B and an element of A."""
    if is_native(target, compute):
        return 0
    return 2 if _is_small(target, compute) else 4


def add_products(target: Target, compute: str, a: VectorValue, b: VectorValue, c: VectorValue) -> VectorValue:
    """c + the sum of the four products of bytes, in every lane."""
    signs = signs_of(compute)
    if is_native(target, compute) and c.lanes * 4 >= 16:
        natives = _NATIVE[target.byte_products]
        if signs not in natives:
            a, b, signs = b, a, signs[::-1]
        return _native(natives[signs], target.byte_products == "vnni", a, b, c)
    if _is_small(target, compute) and c.lanes == _AVX2_LANES:
        return _with_small(*((a, b) if signs[1] else (b, a)), c)
    if target.architecture.startswith("thumb") and target.byte_products in ("dsp", "mve") and c.lanes == 1:
        return _dsp(signs, a, b, c)
    if c.lanes > 1 and (target.is_x86 or _is_wasm(target)):
        name = _sum_of_two(target, c.lanes)
        for x, y in zip(_pairs(a, signs[0]), _pairs(b, signs[1])):
            c = c + (c.write(c.f.call_text(name, c.type, [x, y])) if name else _sum_of_pairs(x, y))
        return c
    for number in range(QUAD):
        c = c + _byte(a, signs[0], number) * _byte(b, signs[1], number)
    return c


def _is_wasm(target: Target) -> bool:
    return target.architecture.startswith("wasm")


def _sum_of_two(target: Target, lanes: int) -> str:
    """LLVM's function for the sums of two products of 16 bits, "" where there is none."""
    if _is_wasm(target):
        return _PAIRS_OF_WASM if lanes == 4 else ""
    return _PAIRS.get(lanes, "") if lanes == 4 or target.byte_products in ("pairs", "vnni") else ""


def _native(name: str, takes_quads: bool, a: VectorValue, b: VectorValue, c: VectorValue) -> VectorValue:
    lanes = c.lanes
    if not takes_quads:
        a, b = (_as(value, "i8", QUAD) for value in (a, b))
    full = name.format(bits=lanes * 32, c=f"v{lanes}i32", a=f"v{lanes * QUAD}i8")
    return c.write(c.f.call_text(f"llvm.{full}", c.type, [c, a, b]))


def _is_small(target: Target, compute: str) -> bool:
    """Whether sums of two products are made in 16 bits, which hold those with small bytes."""
    return "7" in compute and target.byte_products == "pairs"


def _with_small(unsigned: VectorValue, small: VectorValue, c: VectorValue) -> VectorValue:
    """Sums of two products in 16 bits, and of two such sums in 32."""
    a, b = (_as(value, "i8", QUAD) for value in (unsigned, small))
    halves = vector_type("i16", c.lanes * 2)
    sums = c.write(c.f.call_text("llvm.x86.avx2.pmadd.ub.sw", halves, [a, b]), halves)
    return c + c.write(c.f.call_text(_PAIRS[c.lanes], c.type, [sums, sums.number(1)]))


def _as(quads: VectorValue, element: str, parts: int) -> VectorValue:
    type_ = vector_type(element, quads.lanes * parts)
    return quads.write(f"bitcast {quads} to {type_}", type_)


def _pairs(quads: VectorValue, is_signed: bool) -> tuple[VectorValue, VectorValue]:
    """The even and the odd bytes of quads, as i16."""
    halves = _as(quads, "i16", 2)
    if is_signed:
        return (halves << 8) >> 8, halves >> 8
    return halves & 0xFF, halves.shift_right(8)


def _sum_of_pairs(a: VectorValue, b: VectorValue) -> VectorValue:
    """The sums of the products of neighbours: LLVM finds one instruction for them (pmaddwd) where the target has it."""
    orders = [range(start, a.lanes, 2) for start in (0, 1)]
    even, odd = (
        a.shuffle(order).cast("sext", "i32") * b.shuffle(order).cast("sext", "i32") for order in orders
    )
    return even + odd


def _dsp(signs: tuple[bool, bool], a: VectorValue, b: VectorValue, c: VectorValue) -> VectorValue:
    """Two pairs of products with SMLAD."""

    def extended(quad: VectorValue, is_signed: bool) -> VectorValue:
        name = f"llvm.arm.{'s' if is_signed else 'u'}xtb16"
        return quad.write(quad.f.call_text(name, "i32", [quad]))

    for rotates in (False, True):
        x, y = (
            extended(value.call("fshr", value, 8) if rotates else value, is_signed)
            for value, is_signed in zip((a, b), signs)
        )
        c = c.write(c.f.call_text("llvm.arm.smlad", "i32", [x, y, c]))
    return c


def _byte(quads: VectorValue, is_signed: bool, number: int) -> VectorValue:
    """A byte of each quad, as i32."""
    up, down = 8 * (QUAD - 1 - number), 8 * (QUAD - 1)
    shifted = quads << up if up else quads
    return shifted >> down if is_signed else shifted.shift_right(down)
