"""Elements in registers and in memory: register forms, loads, stores, conversions.

The register form of pred is i1, of an integer iN (narrower than a byte: i8 holding the value), of f32 and f64
float and double, of narrower floats a float (of f8e8m0fnu a double) whose value the type can represent. A complex
element is a pair (real, imaginary) of float or double values. A value has `lanes` lanes; one lane is an LLVM scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ....runtime.llvm.ir_builder import (
    Function,
    Index,
    Int,
    Ptr,
    Value,
    VectorValue,
    constant,
    split_vector,
    vector_type,
)
from ....runtime.llvm.target import LLVM_VERSION
from ....runtime.llvm.types import MANTISSA_BITS, element_bytes
from ...errors import InternalError
from ...ir.element_types import FORMATS, SMALL_INTEGERS, ElementType, Specials, float_info, integer_info
from ...ops import numeric

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Element = Value | tuple[Value, Value]
Loaded = VectorValue | tuple[VectorValue, VectorValue]

V = TypeVar("V", bound=Value)

_E = ElementType
NARROW = FORMATS  # the types narrower than f32
_REGISTER = {
    _E.PRED: "i1",
    _E.S8: "i8",
    _E.U8: "i8",
    _E.S16: "i16",
    _E.U16: "i16",
    _E.S32: "i32",
    _E.U32: "i32",
    _E.S64: "i64",
    _E.U64: "i64",
    _E.F32: "float",
    _E.F64: "double",
    _E.C64: "float",
    _E.C128: "double",
    **dict.fromkeys(SMALL_INTEGERS, "i8"),
    **{t: "double" if t.accumulator is _E.F64 else "float" for t in NARROW},
}
_MEMORY = {t: {"i1": "i8"}.get(r, r) for t, r in _REGISTER.items()}
_MEMORY |= {t: f"i{8 * t.item_bytes}" for t in NARROW}

_PART_BYTES = {t: t.item_bytes // (2 if t.is_complex else 1) for t in _MEMORY}


def register_type(t: ElementType, lanes: int) -> str:
    """The LLVM type of an element's register form (of one part, for complex)."""
    return vector_type(_REGISTER[t], lanes)


def memory_type(t: ElementType) -> str:
    """The LLVM type of one element in memory (of one part, for complex): what offsets count in."""
    return _MEMORY[t]


def parts(element: Element) -> tuple[Value, ...]:
    """The LLVM values of an element: one, or two of a complex one."""
    return (element,) if isinstance(element, Value) else element


def is_pair(element: Element) -> TypeIs[tuple[Value, Value]]:
    """A complex element."""
    return not isinstance(element, Value)


def single(element: V | tuple[V, V]) -> V:
    """The value of a real element."""
    assert not isinstance(element, tuple)
    return element


def constant_element(t: ElementType, number: object, lanes: int) -> Element:
    """A constant (a Python or NumPy scalar) in every lane, rounded to the type."""
    with np.errstate(over="ignore", invalid="ignore"):
        scalar = numeric.wide(numeric.narrow(np.asarray(number), t.dtype))[()]
    if t.is_complex:
        register = register_type(t, lanes)
        return constant(register, float(scalar.real)), constant(register, float(scalar.imag))
    convert_number = float if t.is_float else bool if t is _E.PRED else int
    return constant(register_type(t, lanes), convert_number(scalar))


def map_parts(function: Callable[..., Value], *elements: Element) -> Element:
    """Applies a function to the parts of elements, one by one."""
    if not is_pair(elements[0]):
        return function(*elements)
    real, imaginary = (function(*(parts(e)[k] for e in elements)) for k in (0, 1))
    return real, imaginary


def splat(f: Function, element: Element, lanes: int) -> Element:
    """One lane spread over all."""
    return map_parts(lambda part: VectorValue.of(f, part).splat(lanes), element)


def select_element(f: Function, condition: Value, a: Element, b: Element) -> Element:
    """`a` where the condition holds, else `b`."""
    return map_parts(VectorValue.of(f, condition).choose, a, b)


# -- memory


def _load_raw(
    f: Function, type_: str, pointer: Ptr, mask: VectorValue | None, align: int, note: str
) -> VectorValue:
    if mask is None:
        return pointer.load(type_, align, note)
    zero = f.zero(type_)
    if split_vector(type_)[1] == 1:
        with f.if_(mask, loaded=zero) as branch:
            branch.loaded = pointer.load(type_, align, note)
        loaded: VectorValue = branch.loaded
        return loaded
    name = f"llvm.masked.load.{_suffix(type_)}.p0"
    return zero.write(_masked_access(f, name, type_, [], pointer, align, [mask, zero]))


def _store_raw(
    f: Function, value: Value, pointer: Ptr, mask: VectorValue | None, align: int, nontemporal: bool
) -> None:
    if mask is None:
        pointer.store(value, align, nontemporal)
    elif split_vector(value.type)[1] == 1:
        with f.if_(mask):
            pointer.store(value, align, nontemporal)
    else:
        name = f"llvm.masked.store.{_suffix(value.type)}.p0"
        f.do(_masked_access(f, name, "void", [value], pointer, align, [mask]))


def _masked_access(
    f: Function,
    name: str,
    result: str,
    before: Sequence[Value],
    address: Value,
    align: int,
    behind: Sequence[Value],
) -> str:
    """A call of LLVM's function of that name; the alignment of its address is an attribute from LLVM 22 on."""
    if LLVM_VERSION >= 22:
        types, written = [address.type], f"{address.type} align {align} {address.text}"
    else:
        types, written = [address.type, "i32"], f"{address}, i32 {align}"
    f.module.declare(name, result, [*(v.type for v in before), *types, *(v.type for v in behind)])
    return f"call {result} @{name}({', '.join([*map(str, before), written, *map(str, behind)])})"


def _each_twice(mask: VectorValue, lanes: int) -> VectorValue:
    """The mask of complex elements as that of their parts."""
    return mask.shuffle([k // 2 for k in range(2 * lanes)])


def _suffix(type_: str) -> str:
    element, lanes = split_vector(type_)
    name = {"float": "f32", "double": "f64"}.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"


def load(
    f: Function,
    t: ElementType,
    pointer: Value,
    lanes: int,
    *,
    mask: VectorValue | None = None,
    align: int | None = None,
    invariant: bool = False,
) -> Loaded:
    """Loads contiguous elements; lanes that are masked off are not touched and read as zero.

    Units: align is bytes; by default that of one element (of one part, for complex).
    """
    pointer, memory = Ptr.of(f, pointer), _MEMORY[t]
    align = align or _PART_BYTES[t]
    note = "!invariant.load !{}" if invariant else ""
    if not t.is_complex:
        return _from_memory(f, t, _load_raw(f, vector_type(memory, lanes), pointer, mask, align, note))
    if lanes == 1:
        second = pointer.at(1, memory)
        return (
            _load_raw(f, memory, pointer, mask, align, note),
            _load_raw(f, memory, second, mask, _PART_BYTES[t], note),
        )
    if mask is not None:
        mask = _each_twice(mask, lanes)
    both = _load_raw(f, vector_type(memory, 2 * lanes), pointer, mask, align, note)
    return both.shuffle(range(0, 2 * lanes, 2)), both.shuffle(range(1, 2 * lanes, 2))


def store(
    f: Function,
    t: ElementType,
    value: Element,
    pointer: Value,
    lanes: int,
    *,
    mask: VectorValue | None = None,
    align: int | None = None,
    nontemporal: bool = False,
) -> None:
    """Stores contiguous elements; lanes that are masked off are not touched.

    Units: align is bytes; by default that of one element (of one part, for complex).
    """
    pointer, memory = Ptr.of(f, pointer), _MEMORY[t]
    align = align or _PART_BYTES[t]
    if not is_pair(value):
        _store_raw(f, _to_memory(f, t, value), pointer, mask, align, nontemporal)
    elif lanes == 1:
        second = pointer.at(1, memory)
        _store_raw(f, value[0], pointer, mask, align, nontemporal)
        _store_raw(f, value[1], second, mask, _PART_BYTES[t], nontemporal)
    else:
        order = [k // 2 + lanes * (k % 2) for k in range(2 * lanes)]
        if mask is not None:
            mask = _each_twice(mask, lanes)
        both = VectorValue.of(f, value[0]).shuffle(order, value[1])
        _store_raw(f, both, pointer, mask, align, nontemporal)


def load_strided(
    f: Function, t: ElementType, pointer: Value, stride: Index, lanes: int, mask: VectorValue | None = None
) -> Loaded:
    """Loads lanes `stride` elements apart (any sign); masked-off lanes are not touched and read as zero."""
    if lanes == 1 or (isinstance(stride, int) and stride == 1):
        return load(f, t, pointer, lanes, mask=mask)
    pointer, memory = Ptr.of(f, pointer), _MEMORY[t]
    if mask is not None:
        steps = VectorValue(f"<{lanes} x i64>", "<" + ", ".join(f"i64 {k}" for k in range(lanes)) + ">", f)
        stride_lanes = VectorValue.of(f, Int.of(f, stride)).splat(lanes)
        return gather(f, t, pointer, steps * stride_lanes, lanes, mask)
    if isinstance(stride, int) and stride == 0:
        one = load(f, t, pointer, 1)
        return (one[0].splat(lanes), one[1].splat(lanes)) if isinstance(one, tuple) else one.splat(lanes)
    if isinstance(stride, int) and stride == -1 and not t.is_complex:
        backwards = single(load(f, t, pointer.at(1 - lanes, memory), lanes))
        return backwards.shuffle(range(lanes - 1, -1, -1))
    if isinstance(stride, int) and stride == 2 and not t.is_complex:
        return _load_every_second(f, t, pointer, lanes)
    scale, align = 2 if t.is_complex else 1, _PART_BYTES[t]
    columns = [f.poison(vector_type(memory, lanes))] * scale
    for lane in range(lanes):
        at = pointer.at(stride * (lane * scale), memory)
        for part in range(scale):
            columns[part] = columns[part].insert(at.at(part, memory).load(memory, align), lane)
    return (columns[0], columns[1]) if t.is_complex else _from_memory(f, t, columns[0])


def _load_every_second(f: Function, t: ElementType, pointer: Ptr, lanes: int) -> Loaded:
    """Two overlapping loads and a shuffle: touches nothing behind the last lane's element."""
    memory, align = _MEMORY[t], t.item_bytes
    wide = vector_type(memory, lanes)
    low = pointer.load(wide, align)
    high = pointer.at(lanes - 1, memory).load(wide, align)
    order = [2 * k if 2 * k < lanes else 2 * k - (lanes - 1) + lanes for k in range(lanes)]
    return _from_memory(f, t, low.shuffle(order, high))


def gather(
    f: Function, t: ElementType, base: Value, indices: Value, lanes: int, mask: VectorValue | None = None
) -> Loaded:
    """Loads elements at `base + indices` (i64 lanes); masked-off ones are not touched and read as zero."""
    base, memory = Ptr.of(f, base), _MEMORY[t]
    if t.is_complex:
        indices = VectorValue.of(f, indices) << 1
    align = _PART_BYTES[t]

    def part(at: Ptr) -> VectorValue:
        if lanes == 1:
            return _load_raw(f, memory, at.at(Int.of(f, indices), memory), mask, align, "")
        addresses = f.op(f"<{lanes} x ptr>", f"getelementptr inbounds {memory}, {at}, {indices}")
        type_ = vector_type(memory, lanes)
        name = f"llvm.masked.gather.{_suffix(type_)}.v{lanes}p0"
        chosen = mask or f.constant(f"<{lanes} x i1>", True)
        other = f.zero(type_) if mask else f.poison(type_)
        return other.write(_masked_access(f, name, type_, [], addresses, align, [chosen, other]))

    if t.is_complex:
        return part(base), part(base.at(1, memory))
    return _from_memory(f, t, part(base))


def _from_memory(f: Function, t: ElementType, raw: VectorValue) -> VectorValue:
    if t is _E.PRED:
        return raw.compare("icmp ne", f.zero(raw.type))
    # The high bits of a byte that holds fewer are not defined: ml_dtypes leaves what its conversion made.
    return from_bits(f, t, raw) if t in NARROW else wrap(f, t, raw)


def _to_memory(f: Function, t: ElementType, value: Value) -> Value:
    if t is _E.PRED:
        return VectorValue.of(f, value).cast("zext", "i8")
    return to_bits(f, t, value) if t in NARROW else value


# -- narrow floats

_NAN = 0x7FC00000  # the bits of a NaN in f32
_F64_NAN, _F64_BIAS = 0x7FF8 << 48, 1023


def order_bits(t: ElementType) -> int:
    """Bits of what `load_order` returns."""
    return 8 * (element_bytes(_REGISTER[t]) if t.lacks_signs else t.item_bytes)


def load_order(f: Function, t: ElementType, pointer: Ptr, lanes: int) -> VectorValue:
    """Elements of floats as a sign and a size, as integers: in memory, where the type has its sign in front."""
    if t.lacks_signs:
        return single(load(f, t, pointer, lanes)).as_bits()
    return pointer.load(vector_type(f"i{order_bits(t)}", lanes), t.item_bytes)


def _has_half(f: Function) -> bool:
    return f.module.target is not None and f.module.target.has_half


def from_bits(f: Function, t: ElementType, raw: Value) -> VectorValue:
    """The register form of a real element with these bits (integers as wide as the type)."""
    raw = VectorValue.of(f, raw)
    if t not in NARROW:
        return raw.cast("bitcast", _REGISTER[t]) if t.is_float else raw
    if t is _E.F16 and _has_half(f):
        return raw.cast("bitcast", "half").cast("fpext", "float")
    kind = NARROW[t]
    if kind.specials is Specials.POWERS:
        exponent = raw.cast("zext", "i64")
        power = (exponent + (_F64_BIAS - kind.bias)) << 52
        return exponent.equals(255).choose(power.number(_F64_NAN), power).as_float()
    bits = raw.cast("zext", "i32")
    if t is _E.BF16:
        return (bits << 16).as_float()
    shift, sign_bit = 23 - kind.mantissa_bits, 1 << (kind.exponent_bits + kind.mantissa_bits)
    size = bits & (sign_bit - 1)
    sign = (bits & sign_bit) << (31 - kind.exponent_bits - kind.mantissa_bits)
    normal = ((size << shift) + ((127 - kind.bias) << 23)).as_float()
    tiny = size.cast("sitofp", "float") * 2.0 ** (1 - kind.bias - kind.mantissa_bits)
    magnitude = (size < (1 << kind.mantissa_bits)).choose(tiny, normal).as_bits()
    special = (size << shift) | 0x7F800000
    if kind.specials is Specials.IEEE:
        magnitude = (size >= ((1 << kind.exponent_bits) - 1) << kind.mantissa_bits).choose(special, magnitude)
    elif kind.specials is Specials.FN:
        magnitude = size.equals(sign_bit - 1).choose(special, magnitude)
    number = magnitude | sign
    if kind.specials is Specials.FNUZ:
        number = (bits & (2 * sign_bit - 1)).equals(sign_bit).choose(bits.number(_NAN), number)
    return number.as_float()


def to_bits(f: Function, t: ElementType, value: Value) -> VectorValue:
    """The bits of a real element, as integers as wide as the type."""
    x = VectorValue.of(f, value)
    if t not in NARROW:
        return x.as_bits() if t.is_float else x
    if t is _E.F16 and _has_half(f):
        return x.cast("fptrunc", "half").cast("bitcast", "i16")
    bits, width = x.as_bits(), _MEMORY[t]
    if t is _E.BF16:
        return bits.shift_right(16).cast("trunc", width)
    kind = NARROW[t]
    if kind.specials is Specials.POWERS:
        return (
            (bits.shift_right(52) - (_F64_BIAS - kind.bias)).at_most(255).cast("trunc", width)
        )  # 255: of NaN
    size = bits & 0x7FFFFFFF
    exponent_bits, mantissa_bits, bias = kind.exponent_bits, kind.mantissa_bits, kind.bias
    shift = 23 - mantissa_bits
    sign = bits.shift_right(31 - exponent_bits - mantissa_bits) & (1 << (exponent_bits + mantissa_bits))
    normal = size.shift_right(shift) - ((127 - bias) << mantissa_bits)
    # Products of larger numbers would not fit an i32, which is undefined: those lanes get 0 first.
    is_tiny = size < ((128 - bias) << 23)
    tiny = is_tiny.choose(size, size.number(0)).as_float() * 2.0 ** (bias - 1 + mantissa_bits)
    tiny = tiny.cast("fptosi", "i32")
    finite, is_special = is_tiny.choose(tiny, normal), size >= 0x7F800000
    sign_bit = 1 << (exponent_bits + mantissa_bits)
    if kind.specials is Specials.FNUZ:  # sign alone would be NaN
        sign = finite.equals(0).choose(finite, sign)
        return is_special.choose(size.number(sign_bit), finite | sign).cast("trunc", width)
    if kind.specials is Specials.FN:
        finite = is_special.choose(size.number(sign_bit - 1), finite)
    elif kind.specials is Specials.IEEE:
        infinity = ((1 << exponent_bits) - 1) << mantissa_bits
        payload = size.shift_right(shift) & ((1 << mantissa_bits) - 1)  # kept: of bits that are only moved
        nan = payload.equals(0).choose(payload.number(1 << (mantissa_bits - 1)), payload) | infinity
        special = (size > 0x7F800000).choose(nan, size.number(infinity))
        finite = is_special.choose(special, finite)
    return (finite | sign).cast("trunc", width)


def round_to(f: Function, t: ElementType, x: VectorValue) -> VectorValue:
    """A float rounded to the nearest value (ties to even) of the type; f32 and f64 as they are.

    What is too large becomes infinity; in types without it NaN, or the largest number in those without NaN, where NaN
    becomes -0.0.
    """
    if t not in NARROW:
        return x
    if t is _E.F16 and _has_half(f):
        return x.cast("fptrunc", "half").cast("fpext", "float")
    kind = NARROW[t]
    if kind.specials is Specials.POWERS:
        return _round_to_power(x)
    rounded = round_mantissa(x, kind.mantissa_bits)
    if t is _E.BF16:
        return x.is_nan().choose(x, rounded)
    size = abs(x)
    # Below the smallest normal number the steps are even: adding a power of two rounds to them.
    magic = 2.0 ** (1 - kind.bias - kind.mantissa_bits + 23)
    tiny = (size + magic) - magic
    size = (size < 2.0 ** (1 - kind.bias)).choose(tiny, abs(rounded))
    largest = float(float_info(t.dtype).max)
    if kind.specials is Specials.FINITE:
        return x.is_nan().choose(x.number(-0.0), size.at_most(largest).copysign(x))
    over = float("inf") if kind.specials is Specials.IEEE else float("nan")
    size = (size > largest).choose(size.number(over), size)
    number = size.copysign(x)
    if kind.specials is Specials.FNUZ:
        number = size.equals(0.0).choose(size, number)
    return x.is_nan().choose(x, number)


def _round_to_power(x: VectorValue) -> VectorValue:
    """The nearest power of two of f8e8m0fnu, of two the higher, of doubles: the lowest one for smaller numbers; NaN for
    larger ones, and those not above zero."""
    bits = x.as_bits()
    power = ((bits + (1 << 51)) & -(1 << 52)).at_least((_F64_BIAS - 127) << 52)
    return ((x > 0.0) & (x < 1.5 * 2.0**127)).choose(power, power.number(_F64_NAN)).as_float()


def round_mantissa(x: VectorValue, mantissa_bits: int) -> VectorValue:
    """Floats with their mantissa rounded to fewer bits, ties to even; NaNs not minded."""
    bits = x.as_bits()
    drop = (23 if x.bits == 32 else 52) - mantissa_bits
    if drop <= 0:
        return x
    odd = bits.shift_right(drop) & 1
    return ((bits + (odd + ((1 << (drop - 1)) - 1))) & -(1 << drop)).as_float()


def wrap(f: Function, t: ElementType, x: VectorValue) -> VectorValue:
    """An i8 with its low bits extended, for integers narrower than that; others as they are."""
    if t.is_small_integer and t.is_signed:
        return (x << 8 - t.bits) >> 8 - t.bits
    return low_bits(t, x)


def low_bits(t: ElementType, x: VectorValue) -> VectorValue:
    """The register form of an integer with the bits that the type lacks cleared."""
    return x & (1 << t.bits) - 1 if t.is_small_integer else x


def own_bits(t: ElementType) -> tuple[int, int]:
    """Bits of the exponent and of the mantissa of a type of floats."""
    if t in NARROW:
        return NARROW[t].exponent_bits, NARROW[t].mantissa_bits
    return {_E.F32: (8, 23), _E.F64: (11, 52)}[t]


# -- conversions


def convert(f: Function, value: Element, source: ElementType, target: ElementType) -> Element:
    """Conversion by value.

    Floats become integers by truncation, saturated, NaN as 0; integers wrap; both become floats by rounding
    to nearest even; a complex value drops its imaginary part; pred is `x != 0`.
    """
    if source is target:
        return value
    if target.is_complex:
        return _convert_to_complex(f, value, source, target)
    if is_pair(value):
        if target is _E.PRED:
            real, imaginary = (VectorValue.of(f, part).differs(0.0) for part in value)
            return real | imaginary
        value, source = value[0], source.real
    x = VectorValue.of(f, value)
    if target is _E.PRED:
        return x.differs(0)
    if target.is_float:
        return _convert_to_float(f, x, source, target)
    register = _REGISTER[target]
    if source.is_float:
        return _float_to_integer(f, x, target)
    if x.bits > int(register[1:]):
        return wrap(f, target, x.cast("trunc", register))
    wide = x.cast("sext" if source.is_signed else "zext", register)
    return wrap(f, target, wide) if source is not _E.PRED else wide


def _convert_to_complex(f: Function, value: Element, source: ElementType, target: ElementType) -> Element:
    if is_pair(value):
        real, imaginary = (single(convert(f, part, source.real, target.real)) for part in value)
        return real, imaginary
    real = single(convert(f, value, source, target.real))
    return real, constant(real.type, 0.0)


def _convert_to_float(f: Function, x: VectorValue, source: ElementType, target: ElementType) -> VectorValue:
    register = _REGISTER[target]
    if not source.is_float:
        return round_to(f, target, x.cast("sitofp" if source.is_signed else "uitofp", register))
    if register == "double":
        return round_to(f, target, x.widen() if x.bits == 32 else x)
    if x.bits == 32:
        return round_to(f, target, x)
    # As NumPy and ml_dtypes do: f64 becomes f16 at once, bf16 and the f8 types by way of f32.
    return round_to(f, target, (_narrow_to_odd(x) if target is _E.F16 else x.narrow()))


def _narrow_to_odd(x: VectorValue) -> VectorValue:
    """double as float, rounded to odd: a second rounding to fewer bits then gives what one rounding would."""
    as_f32 = x.narrow()
    back, bits = as_f32.widen(), as_f32.as_bits()
    odd = (abs(x) > abs(back)).choose(bits + 1, bits - 1)
    inexact = (x > back) | (x < back)
    return (inexact & (bits & 1).equals(0)).choose(odd, bits).as_float()


def _float_to_integer(f: Function, x: VectorValue, target: ElementType) -> VectorValue:
    machine = f.module.target
    if x.lanes > 1 and machine is not None and machine.is_x86:
        return _clamped_to_integer(x, target)
    # Instructions saturate at 32 bits, where they do.
    is_short = target.bits < 32 and machine is not None and not machine.is_x86
    is_clamped = is_short or target.is_small_integer
    register = vector_type("i32" if is_short else _REGISTER[target], x.lanes)
    name = "fptosi.sat" if target.is_signed or is_clamped else "fptoui.sat"
    whole = VectorValue.of(f, f.intrinsic(name, register, [x], (register, x.type)))
    if not is_clamped:
        return whole
    bounds = integer_info(target.dtype)
    whole = whole.call("smax", int(bounds.min)).call("smin", int(bounds.max))
    return whole.cast("trunc", _REGISTER[target]) if is_short else whole


def _clamped_to_integer(x: VectorValue, target: ElementType) -> VectorValue:
    """As the saturating conversion, which LLVM makes of vectors lane by lane on x86: NaN is 0, and what does not fit is
    the nearest that does."""
    bounds, digits = integer_info(target.dtype), target.bits - target.is_signed
    largest = 2**digits - 2 ** max(0, digits - MANTISSA_BITS[x.element] - 1)  # that is a float
    if bounds.min:
        number = x.is_nan().choose(x.number(0.0), x).at_least(float(bounds.min))
    else:  # NaN, which is not above it, is zero too
        number = (x > 0.0).choose(x, x.number(0.0))
    is_wide = target.bits >= 32
    opcode = "fptoui" if is_wide and not target.is_signed else "fptosi"
    whole = number.at_most(float(largest)).cast(opcode, _REGISTER[target] if is_wide else "i32")
    if largest < bounds.max:
        whole = (number > float(largest)).choose(whole.number(int(bounds.max)), whole)
    return whole.cast("trunc", _REGISTER[target])


def bitcast(f: Function, value: Element, source: ElementType, target: ElementType) -> Element:
    """The same bits as another type of the same width.

    Raises: InternalError  the widths differ.
    """
    if source is target:
        return value
    if source.item_bytes != target.item_bytes or (source.bits != target.bits and source is not _E.PRED):
        raise InternalError(f"bitcast: {source!r} and {target!r} have different widths")
    if is_pair(value):
        low, high = (VectorValue.of(f, part).as_bits().cast("zext", f"i{source.bits}") for part in value)
        bits = low | (high << (source.bits // 2))
    elif source is _E.PRED:
        bits = VectorValue.of(f, value).cast("zext", "i8")
    else:
        bits = to_bits(f, source, value)
    if target.is_complex:
        half = f"i{target.bits // 2}"
        parts_ = (bits.cast("trunc", half), bits.shift_right(target.bits // 2).cast("trunc", half))
        return parts_[0].as_float(), parts_[1].as_float()
    if target is _E.PRED:
        return bits.differs(0)
    return from_bits(f, target, wrap(f, target, bits))
