"""Element types: their names in HLO text, widths, formats of floats, and the NumPy types that hold them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

import ml_dtypes
import numpy as np


class Specials(enum.Enum):
    """What the encodings of a format stand for that are no finite numbers."""

    IEEE = "infinities and NaNs where all bits of the exponent are set"
    FN = "no infinities; NaN where all bits but the sign are set"
    FNUZ = "no infinities, no negative zero, whose encoding is the one NaN"
    FINITE = "none: what is too large becomes the largest number, NaN -0.0"
    POWERS = "no sign and no zero: powers of two alone; NaN where all bits are set"


@dataclasses.dataclass(frozen=True)
class FloatFormat:
    """How a type of floats encodes its numbers: bits of exponent and mantissa, bias, and the special encodings."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: Specials = Specials.IEEE


class ElementType(enum.Enum):
    """Type of one element of an array; `value` is the name in HLO text.

    Types of two and four bits occupy one byte each in memory, as ml_dtypes holds them; pred is one byte, 0 or 1.
    """

    PRED = "pred"
    S2 = "s2"
    S4 = "s4"
    S8 = "s8"
    S16 = "s16"
    S32 = "s32"
    S64 = "s64"
    U2 = "u2"
    U4 = "u4"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    F4E2M1FN = "f4e2m1fn"
    F8E3M4 = "f8e3m4"
    F8E4M3 = "f8e4m3"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3B11FNUZ = "f8e4m3b11fnuz"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2 = "f8e5m2"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E8M0FNU = "f8e8m0fnu"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    C64 = "c64"
    C128 = "c128"
    TUPLE = "tuple"
    TOKEN = "token"

    __hash__ = object.__hash__  # enum's own hashes the name, in Python; members are compared by identity

    def __repr__(self) -> str:
        return self.value

    @property
    def dtype(self) -> np.dtype:
        """The NumPy type of one element. Raises: KeyError for tuple, token and what `ARRAYS` lacks."""
        return _DTYPES[self]

    @property
    def dtype_name(self) -> str:
        """The name of the NumPy type, `float32`: NumPy itself makes it anew each time, slowly."""
        return _DTYPE_NAMES[self]

    @property
    def bits(self) -> int:
        """Value bits of one element (2 and 4 for s2, u2, s4, u4 and f4e2m1fn, 1 for pred)."""
        return _BITS.get(self) or self.dtype.itemsize * 8

    @property
    def item_bytes(self) -> int:
        """Bytes of one element in memory."""
        return _DTYPES[self].itemsize

    @property
    def is_signed(self) -> bool:
        """A signed integer."""
        return self in SIGNED

    @property
    def is_unsigned(self) -> bool:
        """An unsigned integer (pred is not one)."""
        return self in UNSIGNED

    @property
    def is_integer(self) -> bool:
        """A signed or unsigned integer (pred is not one)."""
        return self in INTEGERS

    @property
    def is_small_integer(self) -> bool:
        """An integer narrower than the byte that holds it."""
        return self in SMALL_INTEGERS

    @property
    def is_packed(self) -> bool:
        """A type of less than a byte, of which other compilers put several into one."""
        return self in _BITS and self is not ElementType.PRED

    @property
    def is_float(self) -> bool:
        """A real floating-point type."""
        return self in FLOATS

    @property
    def specials(self) -> Specials:
        """What encodings of a type of floats stand for that are no finite numbers."""
        return FORMATS[self].specials if self in FORMATS else Specials.IEEE

    @property
    def has_infinity(self) -> bool:
        """Whether floats of this type have infinities: what overflows becomes one."""
        return self.specials is Specials.IEEE

    @property
    def has_negatives(self) -> bool:
        """Whether floats of this type have a sign: all but powers of two."""
        return self.specials is not Specials.POWERS

    @property
    def lacks_signs(self) -> bool:
        """Floats of which zero, NaN or all have no sign: negation is not exact."""
        return self.specials not in (Specials.IEEE, Specials.FN)

    @property
    def accumulator(self) -> ElementType:
        """The type that arithmetic on this one is done in: for floats narrower than f32 the one of f32 and f64 in which
        their numbers are normal."""
        if self not in FORMATS:
            return self
        return ElementType.F64 if self.specials is Specials.POWERS else ElementType.F32

    @property
    def is_complex(self) -> bool:
        """c64 or c128."""
        return self in COMPLEXES

    @property
    def real(self) -> ElementType:
        """The type of the parts of a complex type; the type itself otherwise."""
        return {ElementType.C64: ElementType.F32, ElementType.C128: ElementType.F64}.get(self, self)

    @property
    def complex(self) -> ElementType:
        """The complex type whose parts have this type (f32 or f64)."""
        return {ElementType.F32: ElementType.C64, ElementType.F64: ElementType.C128}[self]


_E = ElementType
_OF_ML_DTYPES = {
    _E.S2: "int2",
    _E.S4: "int4",
    _E.U2: "uint2",
    _E.U4: "uint4",
    _E.F4E2M1FN: "float4_e2m1fn",
    _E.F8E3M4: "float8_e3m4",
    _E.F8E4M3: "float8_e4m3",
    _E.F8E4M3FN: "float8_e4m3fn",
    _E.F8E4M3B11FNUZ: "float8_e4m3b11fnuz",
    _E.F8E4M3FNUZ: "float8_e4m3fnuz",
    _E.F8E5M2: "float8_e5m2",
    _E.F8E5M2FNUZ: "float8_e5m2fnuz",
    _E.F8E8M0FNU: "float8_e8m0fnu",
    _E.BF16: "bfloat16",
}
# The types that the installed ml_dtypes does not have are not among them.
_DTYPES: dict[ElementType, np.dtype] = {
    t: np.dtype(d)
    for t, d in {
        **{t: getattr(ml_dtypes, name) for t, name in _OF_ML_DTYPES.items() if hasattr(ml_dtypes, name)},
        _E.PRED: np.bool_,
        _E.S8: np.int8,
        _E.S16: np.int16,
        _E.S32: np.int32,
        _E.S64: np.int64,
        _E.U8: np.uint8,
        _E.U16: np.uint16,
        _E.U32: np.uint32,
        _E.U64: np.uint64,
        _E.F16: np.float16,
        _E.F32: np.float32,
        _E.F64: np.float64,
        _E.C64: np.complex64,
        _E.C128: np.complex128,
    }.items()
}
_BITS = {_E.PRED: 1, _E.S2: 2, _E.U2: 2, _E.S4: 4, _E.U4: 4, _E.F4E2M1FN: 4}
_DTYPE_NAMES = {t: d.name for t, d in _DTYPES.items()}
_OF_DTYPE = {d: t for t, d in _DTYPES.items()}

# The formats of the floats narrower than f32. Source: the OCP specifications of 8-bit floats and of microscaling
# formats, and ml_dtypes.
FORMATS = {
    t: f
    for t, f in {
        _E.F4E2M1FN: FloatFormat(2, 1, 1, Specials.FINITE),
        _E.F8E3M4: FloatFormat(3, 4, 3),
        _E.F8E4M3: FloatFormat(4, 3, 7),
        _E.F8E4M3FN: FloatFormat(4, 3, 7, Specials.FN),
        _E.F8E4M3B11FNUZ: FloatFormat(4, 3, 11, Specials.FNUZ),
        _E.F8E4M3FNUZ: FloatFormat(4, 3, 8, Specials.FNUZ),
        _E.F8E5M2: FloatFormat(5, 2, 15),
        _E.F8E5M2FNUZ: FloatFormat(5, 2, 16, Specials.FNUZ),
        _E.F8E8M0FNU: FloatFormat(8, 0, 127, Specials.POWERS),
        _E.F16: FloatFormat(5, 10, 15),
        _E.BF16: FloatFormat(8, 7, 127),
    }.items()
    if t in _DTYPES
}

ARRAYS = frozenset(_DTYPES)
SIGNED = ARRAYS & {_E.S2, _E.S4, _E.S8, _E.S16, _E.S32, _E.S64}
UNSIGNED = ARRAYS & {_E.U2, _E.U4, _E.U8, _E.U16, _E.U32, _E.U64}
INTEGERS = SIGNED | UNSIGNED
SMALL_INTEGERS = INTEGERS & {_E.S2, _E.S4, _E.U2, _E.U4}
FLOATS = frozenset(FORMATS) | {_E.F32, _E.F64}
COMPLEXES = frozenset({_E.C64, _E.C128})
NUMBERS = INTEGERS | FLOATS | COMPLEXES


def element_type_of(dtype: np.dtype | type | str) -> ElementType:
    """The element type that holds a NumPy dtype.

    Raises: TypeError  no element type holds it.
    """
    element_type = _OF_DTYPE.get(np.dtype(dtype))
    if element_type is None:
        raise TypeError(
            f"no element type holds the NumPy dtype {np.dtype(dtype)}; known: "
            + ", ".join(str(d) for d in _OF_DTYPE)
        )
    return element_type


def accumulator_of(types: Iterable[ElementType]) -> ElementType:
    """The type that arithmetic on floats of several types is done in: the widest of their accumulators."""
    return max((t.accumulator for t in types), key=lambda t: t.bits)


def float_info(dtype: np.dtype) -> ml_dtypes.finfo:
    """The limits of a type of floats."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def integer_info(dtype: np.dtype) -> ml_dtypes.iinfo:
    """The limits of a type of integers, those of four bits among them."""
    return ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
