"""LLVM's types as text (`i64`, `float`, `<8 x float>`, `ptr`), and constants of them."""

from __future__ import annotations

import ctypes
import functools
import re
import struct

import ml_dtypes
import numpy as np

from .target import LLVM_VERSION

_VECTOR = re.compile(r"<(\d+) x (.+)>")
_INTRINSIC_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}
FLOAT_BITS = {"float": 32, "double": 64}
MANTISSA_BITS = {"float": 23, "double": 52}
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64, "i1": 8}


def vector_type(element: str, lanes: int) -> str:
    """`<lanes x element>`, or the element type itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


@functools.lru_cache(1024)
def split_vector(type_: str) -> tuple[str, int]:
    """(element type, lanes); a scalar has one lane."""
    match = _VECTOR.fullmatch(type_)
    return (match[2], int(match[1])) if match else (type_, 1)


def parameters(listed: str) -> tuple[tuple[str, str], ...]:
    """(type, name) of each parameter of a function, listed as `ptr x, i64 n`."""
    return tuple((type_, name) for type_, name in (p.rsplit(" ", 1) for p in listed.split(", ")))


@functools.lru_cache(1024)
def is_float(type_: str) -> bool:
    """Whether a type is float or double, or a vector of them."""
    return split_vector(type_)[0] in FLOAT_BITS


@functools.lru_cache(1024)
def mask_type(type_: str) -> str:
    """i1 for every lane of a type."""
    return vector_type("i1", split_vector(type_)[1])


@functools.lru_cache(1024)
def element_bytes(type_: str) -> int:
    """Bytes of one lane in memory. Pointers have 8, in tables for machines with 32 bits too."""
    element = split_vector(type_)[0]
    return (_BITS.get(element) or int(element[1:])) // 8


def suffix(type_: str) -> str:
    """The part of an intrinsic's name that names a type: `v8f32`, `i64`."""
    element, lanes = split_vector(type_)
    name = _INTRINSIC_SUFFIX.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"


@functools.lru_cache(1024)
def intrinsic_name(name: str, type_: str) -> str:
    """`llvm.name.suffix` of an intrinsic for one type."""
    return f"llvm.{name}.{suffix(type_)}"


def constant_text(type_: str, number: float | int | bool) -> str:
    """A number as LLVM writes a constant of a scalar type, or of a vector type with that number in every lane."""
    element, lanes = split_vector(type_)
    if element == "float":
        text = _hexadecimal(ctypes.c_float(float(number)).value)
    elif element == "double":
        text = _hexadecimal(float(number))
    elif element == "half":
        text = f"0xH{_half_bits(number):04X}"
    elif element == "bfloat":
        text = f"0xR{_bfloat_bits(number):04X}"
    elif element == "i1":
        text = "true" if number else "false"
    else:
        text = str(int(number))
    return text if lanes == 1 else splat_text(f"{element} {text}", lanes)


def splat_text(scalar: str, lanes: int) -> str:
    """A constant with a scalar constant, given with its type, in every lane."""
    return f"splat ({scalar})" if LLVM_VERSION >= 20 else f"<{', '.join([scalar] * lanes)}>"


def _hexadecimal(number: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def _half_bits(number: float) -> int:
    with np.errstate(over="ignore"):
        return int(np.float16(number).view(np.uint16))


def _bfloat_bits(number: float) -> int:
    return int(np.asarray(number, ml_dtypes.bfloat16).view(np.uint16))
