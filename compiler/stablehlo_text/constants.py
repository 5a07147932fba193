"""The elements of dense constants in MLIR text: decimal numbers, the bits of floats, or all bytes in one string."""

from __future__ import annotations

import math
import re

import numpy as np

from ..hlo_text.scanner import Malformed, is_nested
from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.shape import Shape

_TOKEN = re.compile(r"[^\s,\[\]()]+")
_BRACKETS = re.compile(r"[^\[\]]+")


def one_element(text: str, kind: ElementType) -> np.ndarray:
    """The scalar of a type that a text spells, `1.5`, `true`, `0x7F800000`, `(1.0, 2.0)`. Raises: Malformed."""
    values = _values(text, kind, 1)
    if values.size != 1:
        raise Malformed(f"expected one value of {kind.value}, got {text[:60]!r}")
    return values.reshape(())


def elements_of(text: str, shape: Shape) -> Literal:
    """The literal of this shape: `[[1, 2], [3, 4]]`, `"0x01000000..."`, or nothing of no elements.

    Raises: Malformed.
    """
    kind = shape.element_type
    if text.startswith('"'):
        return _of_bytes(text[1:-1], shape)
    if not text:
        if shape.elements:
            raise Malformed(f"expected {shape.elements} elements of {shape}, got none")
        return Literal(np.zeros(shape.dims, kind.dtype), kind)
    if not is_nested("".join(_BRACKETS.sub(" ", text).split()), shape.dims, "[", "]"):
        raise Malformed(f"expected nested brackets of {shape}")
    values = _values(text, kind, shape.elements)
    if values.size != shape.elements:
        raise Malformed(f"expected {shape.elements} elements of {shape}, got {values.size}")
    return Literal(values.reshape(shape.dims), kind)


def _of_bytes(text: str, shape: Shape) -> Literal:
    """The literal of hexadecimal digits. Elements of less than a byte have one each; a predicate's are bits where they
    are too few for bytes."""
    kind = shape.element_type
    try:
        data = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise Malformed(f"expected hexadecimal digits, got {text[:60]!r}") from None
    if kind is ElementType.PRED and len(data) != shape.bytes:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        if len(data) == 1 and data[0] in (0, 1, 255):  # one value for all
            return Literal(np.full(shape.dims, bool(data[0])), kind)
        if bits.size < shape.elements:
            raise Malformed(f"expected {shape.elements} bits of {shape}, got {bits.size}")
        return Literal(bits[: shape.elements].astype(np.bool_).reshape(shape.dims), kind)
    if len(data) == kind.item_bytes and shape.elements != 1:
        value = np.frombuffer(data, kind.dtype)[0]
        return Literal(np.broadcast_to(value, shape.dims), kind)
    if len(data) != shape.bytes:
        raise Malformed(f"expected {shape.bytes} bytes of {shape}, got {len(data)}")
    return Literal(np.frombuffer(data, kind.dtype).reshape(shape.dims), kind)


def _values(text: str, kind: ElementType, count: int) -> np.ndarray:
    """The elements that a text spells, in order."""
    tokens = _TOKEN.findall(text)
    if len(tokens) != count * (2 if kind.is_complex else 1):
        raise Malformed(f"expected {count} elements of {kind.value}, got {len(tokens)} numbers")
    if kind.is_complex:
        parts = _numbers(tokens, kind.real)
        values = np.empty(count, kind.dtype)
        values.real, values.imag = parts[::2], parts[1::2]
        return values
    return _numbers(tokens, kind)


def _numbers(tokens: list[str], kind: ElementType) -> np.ndarray:
    try:
        if kind is ElementType.PRED:
            return np.array(
                [{"true": True, "false": False, "1": True, "0": False}[t] for t in tokens], np.bool_
            )
        if kind.is_integer:
            return _integers(tokens, kind)
        return _floats(tokens, kind)
    except (KeyError, ValueError, OverflowError):
        wrong = next((t for t in tokens if not _is_number(t)), "a value out of range")
        raise Malformed(f"expected values of {kind.value}, got {wrong[:60]}") from None


def _integers(tokens: list[str], kind: ElementType) -> np.ndarray:
    numbers = [int(t, 16) if "x" in t else int(t[:25]) for t in tokens]
    low, high = -(1 << kind.bits - 1), (1 << kind.bits) - 1
    if any(not low <= n <= high for n in numbers):
        raise OverflowError
    wide = np.array([n & ((1 << 64) - 1) for n in numbers], np.uint64)
    return wide.astype(np.int8).astype(kind.dtype) if kind.is_small_integer else wide.astype(kind.dtype)


def _floats(tokens: list[str], kind: ElementType) -> np.ndarray:
    hexadecimal = [i for i, t in enumerate(tokens) if "x" in t]
    plain = ["0" if "x" in t else t for t in tokens] if hexadecimal else tokens
    wide = np.array(list(map(float, plain)), np.float64)
    if not np.isfinite(wide).all():
        raise OverflowError
    with np.errstate(over="ignore"):
        values = wide.astype(kind.dtype)
    for i in hexadecimal:
        digits = int(tokens[i], 16)
        if not 0 <= digits < 1 << 8 * kind.item_bytes:
            raise OverflowError
        values[i] = np.array([digits], f"u{kind.item_bytes}").view(kind.dtype)[0]
    return values


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return math.isfinite(float(token))
