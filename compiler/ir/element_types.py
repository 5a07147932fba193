"""Element types: their names in HLO text, widths, and the NumPy types that hold them."""

from __future__ import annotations

import enum

import ml_dtypes
import numpy as np


class ElementType(enum.Enum):
    """Type of one element of an array; `value` is the name in HLO text.

    s4 and u4 occupy one byte each in memory, as ml_dtypes holds them; pred is one byte, 0 or 1.
    """

    PRED = "pred"
    S4 = "s4"
    S8 = "s8"
    S16 = "s16"
    S32 = "s32"
    S64 = "s64"
    U4 = "u4"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    F8E4M3FN = "f8e4m3fn"
    F8E5M2 = "f8e5m2"
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
        """The NumPy type of one element. Raises: KeyError for tuple and token."""
        return _DTYPES[self]

    @property
    def dtype_name(self) -> str:
        """The name of the NumPy type, `float32`: NumPy itself makes it anew each time, slowly."""
        return _DTYPE_NAMES[self]

    @property
    def bits(self) -> int:
        """Value bits of one element (4 for s4 and u4, 1 for pred)."""
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
    def is_float(self) -> bool:
        """A real floating-point type."""
        return self in FLOATS

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
_DTYPES: dict[ElementType, np.dtype] = {
    t: np.dtype(d)
    for t, d in {
        _E.PRED: np.bool_,
        _E.S4: ml_dtypes.int4,
        _E.S8: np.int8,
        _E.S16: np.int16,
        _E.S32: np.int32,
        _E.S64: np.int64,
        _E.U4: ml_dtypes.uint4,
        _E.U8: np.uint8,
        _E.U16: np.uint16,
        _E.U32: np.uint32,
        _E.U64: np.uint64,
        _E.F8E4M3FN: ml_dtypes.float8_e4m3fn,
        _E.F8E5M2: ml_dtypes.float8_e5m2,
        _E.F16: np.float16,
        _E.BF16: ml_dtypes.bfloat16,
        _E.F32: np.float32,
        _E.F64: np.float64,
        _E.C64: np.complex64,
        _E.C128: np.complex128,
    }.items()
}
_BITS = {_E.PRED: 1, _E.S4: 4, _E.U4: 4}
_DTYPE_NAMES = {t: d.name for t, d in _DTYPES.items()}
_OF_DTYPE = {d: t for t, d in _DTYPES.items()}

SIGNED = frozenset({_E.S4, _E.S8, _E.S16, _E.S32, _E.S64})
UNSIGNED = frozenset({_E.U4, _E.U8, _E.U16, _E.U32, _E.U64})
INTEGERS = SIGNED | UNSIGNED
FLOATS = frozenset({_E.F8E4M3FN, _E.F8E5M2, _E.F16, _E.BF16, _E.F32, _E.F64})
COMPLEXES = frozenset({_E.C64, _E.C128})
ARRAYS = frozenset(_DTYPES)
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


def float_info(dtype: np.dtype) -> ml_dtypes.finfo:
    """The limits of a type of floats."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def integer_info(dtype: np.dtype) -> ml_dtypes.iinfo:
    """The limits of a type of integers, those of four bits among them."""
    return ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
