"""Elements in registers and in memory: register forms, loads, stores, conversions.

The register form of pred is i1, of an integer iN (s4 and u4: i8 holding the value), of f32 and f64 float and
double, of f16, bf16 and the f8 types a float whose value the type can represent. A complex element is a pair
(real, imaginary) of float or double values. A value has `lanes` lanes; one lane is an LLVM scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....runtime.llvm.ir_builder import Function, Value, constant, i64, split_vector, vector_type
from ....runtime.llvm.vector_value import Lanes
from ...errors import InternalError
from ...ir.element_types import ElementType

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Element = Value | tuple[Value, Value]

_E = ElementType
_REGISTER = {
    _E.PRED: "i1",
    _E.S4: "i8",
    _E.U4: "i8",
    _E.S8: "i8",
    _E.U8: "i8",
    _E.S16: "i16",
    _E.U16: "i16",
    _E.S32: "i32",
    _E.U32: "i32",
    _E.S64: "i64",
    _E.U64: "i64",
    _E.F8E4M3FN: "float",
    _E.F8E5M2: "float",
    _E.F16: "float",
    _E.BF16: "float",
    _E.F32: "float",
    _E.F64: "double",
    _E.C64: "float",
    _E.C128: "double",
}
_MEMORY = {t: {"i1": "i8"}.get(r, r) for t, r in _REGISTER.items()} | {
    _E.F8E4M3FN: "i8",
    _E.F8E5M2: "i8",
    _E.F16: "i16",
    _E.BF16: "i16",
}

# (exponent bits, mantissa bits, has infinities) of the types narrower than f32.
NARROW = {_E.F8E4M3FN: (4, 3, False), _E.F8E5M2: (5, 2, True), _E.F16: (5, 10, True), _E.BF16: (8, 7, True)}


def register_type(t: ElementType, lanes: int) -> str:
    """The LLVM type of an element's register form (of one part, for complex)."""
    return vector_type(_REGISTER[t], lanes)


def memory_type(t: ElementType) -> str:
    """The LLVM type of one element in memory (of one part, for complex): what offsets count in."""
    return _MEMORY[t]


def parts(element: Element) -> tuple[Value, ...]:
    """The LLVM values of an element: one, or two of a complex one."""
    return element if isinstance(element, tuple) and not isinstance(element, Value) else (element,)


def is_pair(element: Element) -> TypeIs[tuple[Value, Value]]:
    """A complex element."""
    return not isinstance(element, Value)


def single(element: Element) -> Value:
    """The value of a real element."""
    assert not is_pair(element)
    return element


def constant_element(t: ElementType, number: object, lanes: int) -> Element:
    """A constant (a Python or NumPy scalar) in every lane, rounded to the type."""
    with np.errstate(over="ignore", invalid="ignore"):
        held = np.asarray(number).astype(t.dtype)[()]
    if t.is_complex:
        register = register_type(t, lanes)
        return constant(register, float(held.real)), constant(register, float(held.imag))
    convert_number = float if t.is_float else bool if t is _E.PRED else int
    return constant(register_type(t, lanes), convert_number(held))


def map_parts(function: Callable[..., Value], *elements: Element) -> Element:
    """Applies a function to the parts of elements, one by one."""
    if not is_pair(elements[0]):
        return function(*elements)
    real, imaginary = (function(*(e[k] for e in elements)) for k in (0, 1))
    return real, imaginary


def splat(f: Function, element: Element, lanes: int) -> Element:
    """One lane spread over all."""
    return map_parts(lambda part: f.splat(part, lanes), element)


def select_element(f: Function, condition: Value, a: Element, b: Element) -> Element:
    """`a` where the condition holds, else `b`."""
    return map_parts(lambda x, y: f.select(condition, x, y), a, b)


# -- memory


def _shuffle(f: Function, a: Value, b: Value | None, order: Sequence[int]) -> Value:
    element, _ = split_vector(a.type)
    index = ", ".join(f"i32 {k}" for k in order)
    return f.op(
        vector_type(element, len(order)),
        f"shufflevector {a}, {a.type} {b.text if b else 'poison'}, <{len(order)} x i32> <{index}>",
    )


def _zero(type_: str) -> Value:
    return Value(type_, "zeroinitializer") if type_.startswith("<") else constant(type_, 0)


def _load_raw(f: Function, type_: str, pointer: Value, mask: Value | None, align: int, note: str) -> Value:
    if mask is None:
        return f.load(type_, pointer, align, note)
    if split_vector(type_)[1] == 1:
        before, zero = f.block, _zero(type_)
        yes, end = f.fresh("then"), f.fresh("end")
        f.do(f"br {mask}, label %{yes}, label %{end}")
        f.start_block(yes)
        loaded = f.load(type_, pointer, align, note)
        f.do(f"br label %{end}")
        f.start_block(end)
        return f.op(type_, f"phi {type_} [{loaded.text}, %{yes}], [{zero.text}, %{before}]")
    name = f"llvm.masked.load.{_suffix(type_)}.p0"
    f.module.declare(name, type_, ["ptr", mask.type, type_])
    return f.op(type_, f"call {type_} @{name}(ptr align {align} {pointer.text}, {mask}, {_zero(type_)})")


def _store_raw(
    f: Function, value: Value, pointer: Value, mask: Value | None, align: int, nontemporal: bool
) -> None:
    if mask is None:
        f.store(value, pointer, align, nontemporal)
    elif split_vector(value.type)[1] == 1:
        f.branch(mask, lambda: f.store(value, pointer, align, nontemporal))
    else:
        name = f"llvm.masked.store.{_suffix(value.type)}.p0"
        f.module.declare(name, "void", [value.type, "ptr", mask.type])
        f.do(f"call void @{name}({value}, ptr align {align} {pointer.text}, {mask})")


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
    mask: Value | None = None,
    align: int | None = None,
    invariant: bool = False,
) -> Element:
    """Loads contiguous elements; lanes that are masked off are not touched and read as zero.

    Units: align is bytes; by default that of one element (of one part, for complex).
    """
    memory = _MEMORY[t]
    align = align or max(1, t.item_bytes // (2 if t.is_complex else 1))
    note = "!invariant.load !{}" if invariant else ""
    if not t.is_complex:
        return _from_memory(f, t, _load_raw(f, vector_type(memory, lanes), pointer, mask, align, note))
    if lanes == 1:
        second = f.offset(pointer, 1, memory)
        part_align = t.item_bytes // 2
        return (
            _load_raw(f, memory, pointer, mask, align, note),
            _load_raw(f, memory, second, mask, part_align, note),
        )
    if mask is not None:
        mask = _shuffle(f, mask, None, [k // 2 for k in range(2 * lanes)])
    both = _load_raw(f, vector_type(memory, 2 * lanes), pointer, mask, align, note)
    return _shuffle(f, both, None, range(0, 2 * lanes, 2)), _shuffle(f, both, None, range(1, 2 * lanes, 2))


def store(
    f: Function,
    t: ElementType,
    value: Element,
    pointer: Value,
    lanes: int,
    *,
    mask: Value | None = None,
    align: int | None = None,
    nontemporal: bool = False,
) -> None:
    """Stores contiguous elements; lanes that are masked off are not touched.

    Units: align is bytes; by default that of one element (of one part, for complex).
    """
    memory = _MEMORY[t]
    align = align or max(1, t.item_bytes // (2 if t.is_complex else 1))
    if not is_pair(value):
        _store_raw(f, _to_memory(f, t, value), pointer, mask, align, nontemporal)
    elif lanes == 1:
        second = f.offset(pointer, 1, memory)
        _store_raw(f, value[0], pointer, mask, align, nontemporal)
        _store_raw(f, value[1], second, mask, t.item_bytes // 2, nontemporal)
    else:
        order = [k // 2 + lanes * (k % 2) for k in range(2 * lanes)]
        if mask is not None:
            mask = _shuffle(f, mask, None, [k // 2 for k in range(2 * lanes)])
        _store_raw(f, _shuffle(f, value[0], value[1], order), pointer, mask, align, nontemporal)


def load_strided(
    f: Function, t: ElementType, pointer: Value, stride: Value | int, lanes: int, mask: Value | None = None
) -> Element:
    """Loads lanes `stride` elements apart (any sign); masked-off lanes are not touched and read as zero."""
    if lanes == 1 or (isinstance(stride, int) and stride == 1):
        return load(f, t, pointer, lanes, mask=mask)
    if mask is not None:
        steps = Value(f"<{lanes} x i64>", "<" + ", ".join(f"i64 {k}" for k in range(lanes)) + ">")
        return gather(f, t, pointer, f.binary("mul", steps, f.splat(i64(stride), lanes)), lanes, mask)
    if isinstance(stride, int) and stride == 0:
        return splat(f, load(f, t, pointer, 1), lanes)
    if isinstance(stride, int) and stride == -1 and not t.is_complex:
        first = f.offset(pointer, 1 - lanes, _MEMORY[t])
        return _reversed(f, load(f, t, first, lanes))
    if isinstance(stride, int) and stride == 2 and not t.is_complex:
        return _load_every_second(f, t, pointer, lanes)
    scale = 2 if t.is_complex else 1
    memory = _MEMORY[t]
    align = t.item_bytes // scale
    columns: list[Value] = [Value(vector_type(memory, lanes), "poison")] * scale
    for lane in range(lanes):
        at = f.offset(pointer, f.mul(stride, lane * scale), memory)
        for part in range(scale):
            one = f.load(memory, f.offset(at, part, memory), align)
            columns[part] = f.op(columns[part].type, f"insertelement {columns[part]}, {one}, i64 {lane}")
    return (columns[0], columns[1]) if t.is_complex else _from_memory(f, t, columns[0])


def _reversed(f: Function, value: Element) -> Element:
    return map_parts(lambda v: _shuffle(f, v, None, range(split_vector(v.type)[1] - 1, -1, -1)), value)


def _load_every_second(f: Function, t: ElementType, pointer: Value, lanes: int) -> Element:
    """Two overlapping loads and a shuffle: touches nothing behind the last lane's element."""
    memory, align = _MEMORY[t], t.item_bytes
    wide = vector_type(memory, lanes)
    low = f.load(wide, pointer, align)
    high = f.load(wide, f.offset(pointer, lanes - 1, memory), align)
    order = [2 * k if 2 * k < lanes else 2 * k - (lanes - 1) + lanes for k in range(lanes)]
    return _from_memory(f, t, _shuffle(f, low, high, order))


def gather(
    f: Function, t: ElementType, base: Value, indices: Value, lanes: int, mask: Value | None = None
) -> Element:
    """Loads elements at `base + indices` (i64 lanes); masked-off ones are not touched and read as zero."""
    memory = _MEMORY[t]
    if t.is_complex:
        indices = f.binary("shl", indices, constant(indices.type, 1))
    align = t.item_bytes // (2 if t.is_complex else 1)

    def part(at: Value) -> Value:
        if lanes == 1:
            return _load_raw(f, memory, f.offset(at, indices, memory), mask, align, "")
        pointers = f.op(f"<{lanes} x ptr>", f"getelementptr inbounds {memory}, {at}, {indices}")
        type_ = vector_type(memory, lanes)
        name = f"llvm.masked.gather.{_suffix(type_)}.v{lanes}p0"
        chosen = mask or constant(f"<{lanes} x i1>", True)
        f.module.declare(name, type_, [pointers.type, chosen.type, type_])
        return f.op(
            type_,
            f"call {type_} @{name}({pointers.type} align {align} {pointers.text}, {chosen}, "
            f"{_zero(type_) if mask else Value(type_, 'poison')})",
        )

    if t.is_complex:
        return part(base), part(f.offset(base, 1, memory))
    return _from_memory(f, t, part(base))


def _from_memory(f: Function, t: ElementType, raw: Value) -> Value:
    if t is _E.PRED:
        return f.compare("icmp ne", raw, _zero(raw.type))
    # The high half of a byte that holds four bits is not defined: ml_dtypes leaves what its conversion made.
    return from_bits(f, t, raw) if t in NARROW else wrap(f, t, raw)


def _to_memory(f: Function, t: ElementType, value: Value) -> Value:
    if t is _E.PRED:
        return f.cast("zext", value, vector_type("i8", split_vector(value.type)[1]))
    return to_bits(f, t, value) if t in NARROW else value


# -- narrow floats


def _has_half(f: Function) -> bool:
    return f.module.target is not None and f.module.target.has_half


def from_bits(f: Function, t: ElementType, raw: Value) -> Value:
    """The register form of a real element with these bits (integers as wide as the type)."""
    if t not in NARROW:
        return Lanes(f, raw).cast("bitcast", _REGISTER[t]).value if t.is_float else raw
    if t is _E.F16 and _has_half(f):
        return Lanes(f, raw).cast("bitcast", "half").cast("fpext", "float").value
    bits = Lanes(f, raw).cast("zext", "i32")
    if t is _E.BF16:
        return (bits << 16).as_float().value
    exponent_bits, mantissa_bits, has_infinity = NARROW[t]
    bias, shift = (1 << (exponent_bits - 1)) - 1, 23 - mantissa_bits
    sign_bit = 1 << (exponent_bits + mantissa_bits)
    size = bits & (sign_bit - 1)
    sign = (bits & sign_bit) << (31 - exponent_bits - mantissa_bits)
    normal = ((size << shift) + ((127 - bias) << 23)).as_float()
    tiny = size.cast("sitofp", "float") * 2.0 ** (1 - bias - mantissa_bits)
    found = (size < (1 << mantissa_bits)).choose(tiny, normal).as_bits()
    special = (size << shift) | 0x7F800000
    top = ((1 << exponent_bits) - 1) << mantissa_bits if has_infinity else sign_bit - 1
    return ((size >= top).choose(special, found) | sign).as_float().value


def to_bits(f: Function, t: ElementType, value: Value) -> Value:
    """The bits of a real element, as integers as wide as the type."""
    if t not in NARROW:
        return Lanes(f, value).as_bits().value if t.is_float else value
    x = Lanes(f, value)
    if t is _E.F16 and _has_half(f):
        return x.cast("fptrunc", "half").cast("bitcast", "i16").value
    bits, width = x.as_bits(), f"i{t.bits}"
    if t is _E.BF16:
        return bits.shift_right(16).cast("trunc", width).value
    exponent_bits, mantissa_bits, has_infinity = NARROW[t]
    bias, shift = (1 << (exponent_bits - 1)) - 1, 23 - mantissa_bits
    size = bits & 0x7FFFFFFF
    sign = bits.shift_right(31 - exponent_bits - mantissa_bits) & (1 << (exponent_bits + mantissa_bits))
    normal = size.shift_right(shift) - ((127 - bias) << mantissa_bits)
    # Products of larger numbers would not fit an i32, which is undefined: those lanes get 0 first.
    is_tiny = size < ((128 - bias) << 23)
    tiny = is_tiny.choose(size, size.number(0)).as_float() * 2.0 ** (bias - 1 + mantissa_bits)
    tiny = tiny.cast("fptosi", "i32")
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    quiet = 1 << (mantissa_bits - 1)
    nan = (size.shift_right(shift) & ((1 << mantissa_bits) - 1)) | (infinity | quiet)
    special = (
        (size > 0x7F800000).choose(nan, size.number(infinity))
        if has_infinity
        else size.number((1 << (exponent_bits + mantissa_bits)) - 1)
    )
    found = (size >= 0x7F800000).choose(special, is_tiny.choose(tiny, normal)) | sign
    return found.cast("trunc", width).value


def round_to(f: Function, t: ElementType, value: Value) -> Value:
    """A float rounded to the nearest value (ties to even) of the type; f32 and f64 as they are.

    What is too large becomes infinity, in f8e4m3fn NaN.
    """
    if t not in NARROW:
        return value
    x = Lanes(f, value)
    if t is _E.F16 and _has_half(f):
        return x.cast("fptrunc", "half").cast("fpext", "float").value
    exponent_bits, mantissa_bits, has_infinity = NARROW[t]
    rounded = round_mantissa(x, mantissa_bits)
    if t is _E.BF16:
        return x.is_nan().choose(x, rounded).value
    bias = (1 << (exponent_bits - 1)) - 1
    size = abs(x)
    # Below the smallest normal number the steps are even: adding a power of two rounds to them.
    magic = 2.0 ** (1 - bias - mantissa_bits + 23)
    tiny = (size + magic) - magic
    size = (size < 2.0 ** (1 - bias)).choose(tiny, abs(rounded))
    largest = float(_finfo_max(t))
    over = float("inf") if has_infinity else float("nan")
    size = (size > largest).choose(size.number(over), size)
    return x.is_nan().choose(x, size.copysign(x)).value


def round_mantissa(x: Lanes, mantissa_bits: int) -> Lanes:
    """Floats with their mantissa rounded to fewer bits, ties to even; NaNs not minded."""
    bits = x.as_bits()
    drop = (23 if x.bits == 32 else 52) - mantissa_bits
    if drop <= 0:
        return x
    odd = bits.shift_right(drop) & 1
    return ((bits + (odd + ((1 << (drop - 1)) - 1))) & -(1 << drop)).as_float()


def _finfo_max(t: ElementType) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(t.dtype).max)


def wrap(f: Function, t: ElementType, value: Value) -> Value:
    """An i8 with its low four bits extended, for s4 and u4; other integers as they are."""
    if t is _E.S4:
        return ((Lanes(f, value) << 4) >> 4).value
    return (Lanes(f, value) & 15).value if t is _E.U4 else value


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
            real, imaginary = (Lanes(f, part).differs(0.0) for part in value)
            return (real | imaginary).value
        value, source = value[0], source.real
    x = Lanes(f, value)
    if target is _E.PRED:
        return x.differs(0).value
    if target.is_float:
        return _convert_to_float(f, x, source, target)
    register = _REGISTER[target]
    if source.is_float:
        return _float_to_integer(f, x, target)
    if x.bits > int(register[1:]):
        return wrap(f, target, x.cast("trunc", register).value)
    wide = x.cast("sext" if source.is_signed else "zext", register).value
    return wrap(f, target, wide) if source is not _E.PRED else wide


def _convert_to_complex(f: Function, value: Element, source: ElementType, target: ElementType) -> Element:
    if is_pair(value):
        real, imaginary = (single(convert(f, part, source.real, target.real)) for part in value)
        return real, imaginary
    real = single(convert(f, value, source, target.real))
    return real, constant(real.type, 0.0)


def _convert_to_float(f: Function, x: Lanes, source: ElementType, target: ElementType) -> Value:
    if not source.is_float:
        number = x.cast("sitofp" if source.is_signed else "uitofp", _REGISTER[target])
        return round_to(f, target, number.value)
    if target is _E.F64:
        return x.widen().value
    if source is not _E.F64:
        return round_to(f, target, x.value)
    # As NumPy and ml_dtypes do: f64 becomes f16 at once, bf16 and the f8 types by way of f32.
    return round_to(f, target, (_narrow_to_odd(x) if target is _E.F16 else x.narrow()).value)


def _narrow_to_odd(x: Lanes) -> Lanes:
    """double as float, rounded to odd: a second rounding to fewer bits then gives what one rounding would."""
    near = x.narrow()
    back, bits = near.widen(), near.as_bits()
    odd = (abs(x) > abs(back)).choose(bits + 1, bits - 1)
    inexact = (x > back) | (x < back)
    return (inexact & (bits & 1).equals(0)).choose(odd, bits).as_float()


def _float_to_integer(f: Function, x: Lanes, target: ElementType) -> Value:
    register = vector_type(_REGISTER[target], x.lanes)
    name = "fptosi.sat" if target.is_signed else "fptoui.sat"
    if target.bits != 4:
        return f.intrinsic(name, register, [x.value], (register, x.type))
    whole = Lanes(f, f.intrinsic("fptosi.sat", register, [x.value], (register, x.type)))
    low, high = (-8, 7) if target is _E.S4 else (0, 15)
    return whole.call("smax", low).call("smin", high).value


def bitcast(f: Function, value: Element, source: ElementType, target: ElementType) -> Element:
    """The same bits as another type of the same width.

    Raises: InternalError  the widths differ.
    """
    if source is target:
        return value
    if source.item_bytes != target.item_bytes or (source.bits == 4) != (target.bits == 4):
        raise InternalError(f"bitcast: {source!r} and {target!r} have different widths")
    if is_pair(value):
        low, high = (Lanes(f, part).as_bits().cast("zext", f"i{source.bits}") for part in value)
        bits = low | (high << (source.bits // 2))
    elif source is _E.PRED:
        bits = Lanes(f, value).cast("zext", "i8")
    else:
        bits = Lanes(f, to_bits(f, source, value))
    if target.is_complex:
        half = f"i{target.bits // 2}"
        parts_ = (bits.cast("trunc", half), bits.shift_right(target.bits // 2).cast("trunc", half))
        return parts_[0].as_float().value, parts_[1].as_float().value
    if target is _E.PRED:
        return bits.differs(0).value
    return from_bits(f, target, wrap(f, target, bits.value))
