"""Literals in HLO text: print beside parse. Exact, NaN payloads included."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from ..ir.element_types import ElementType, Specials, float_info
from ..ir.literal import Literal
from ..ir.shape import Shape
from .scanner import Malformed, integer, is_nested

_SHORT_BYTES = 256


def print_literal(literal: Literal) -> str:
    """`1`, `{1, 2}`, `{ {1, 2}, {3, 4} }`, `{}` and `{ {}, {} }` of no elements, `(1, {2, 3})` for a tuple."""
    if literal.shape.is_tuple:
        return "(" + ", ".join(map(print_literal, literal.parts)) + ")"
    if not literal.shape.elements:
        return _braces_of_nothing(literal.shape.dims)
    dims, items = literal.shape.dims, _items(literal.array.reshape(-1), literal.shape)
    for axis in range(len(dims) - 1, -1, -1):
        size, space = dims[axis], " " if axis < len(dims) - 1 else ""
        items = [
            "{" + space + ", ".join(items[i * size : (i + 1) * size]) + space + "}"
            for i in range(math.prod(dims[:axis]))
        ]
    return items[0]


def _braces_of_nothing(dims: Sequence[int]) -> str:
    """Braces around the axes before the first of size 0: `{ {}, {} }` of [2,0]; `{}` where they are many."""
    outer = dims[: list(dims).index(0)]
    text = "{}"
    for size in reversed(outer if math.prod(outer) <= _SHORT_BYTES else ()):
        text = "{ " + ", ".join([text] * size) + " }"
    return text


def digest_of_large(literal: Literal) -> str:
    """The literal's text where it is short, else one that only equal literals have."""
    return print_literal(literal) if literal.shape.bytes <= _SHORT_BYTES else literal.digest().hex()


def _items(flat: np.ndarray, shape: Shape) -> list[str]:
    kind = shape.element_type
    if kind is ElementType.PRED:
        return (
            ["true" if v else "false" for v in flat.tolist()]
            if not shape.dims
            else ["1" if v else "0" for v in flat.tolist()]
        )
    if kind.is_complex:
        parts = Shape(kind.real, shape.dims)
        return [f"({re}, {im})" for re, im in zip(_items(flat.real, parts), _items(flat.imag, parts))]
    if kind.is_integer:
        return list(map(str, flat.astype(np.int8 if kind.is_small_integer else flat.dtype).tolist()))
    wide = flat if kind is ElementType.F64 else flat.astype(np.float32)
    items = [s.removesuffix(".0") for s in wide.astype(str).tolist()]
    for i in np.flatnonzero(np.isnan(wide)):
        items[i] = _print_nan(flat[i : i + 1])
    return items


def _print_nan(value: np.ndarray) -> str:
    bits, mantissa, sign = _nan_bits(value.dtype)
    pattern = int(np.ascontiguousarray(value).view(bits)[0])
    for name in ("nan", "-nan"):
        if pattern == int(np.array([float(name)]).astype(value.dtype).view(bits)[0]):
            return name
    return f"{'-nan' if pattern & sign else 'nan'}({pattern & mantissa:#x})"


def _nan_bits(dtype: np.dtype) -> tuple[str, int, int]:
    """Unsigned type of the width, mask of the mantissa, mask of the sign."""
    return f"u{dtype.itemsize}", (1 << float_info(dtype).nmant) - 1, 1 << (8 * dtype.itemsize - 1)


def parse_literal(text: str, shape: Shape) -> Literal:
    """The literal of this shape that the text spells.

    Raises: Malformed  braces, number of elements or an element do not fit the shape.
    """
    text = re.sub(r"/\*.*?\*/", "", text) if "/*" in text else text
    if shape.is_tuple:
        parts = list(_split(text.strip()))
        if len(parts) != len(shape.tuple_shapes):
            raise Malformed(f"expected {len(shape.tuple_shapes)} parts of {shape}, got {len(parts)}")
        return Literal.tuple(parse_literal(p, s) for p, s in zip(parts, shape.tuple_shapes))
    if "..." in text:
        raise Malformed("expected values, got an elided constant `...` (print it with large constants)")
    if not shape.is_array:
        raise Malformed(f"expected an array or a tuple, not {shape}")
    if ":" in text:
        return _sparse(text, shape)
    if (shape.elements and not is_nested(re.sub(r"[^{}]+", "", text), shape.dims)) or (
        not shape.dims and "{" in text
    ):
        raise Malformed(f"expected nested braces of {shape}")
    body = text.replace("{", " ").replace("}", " ")
    kind = shape.element_type
    if kind.is_complex:
        pairs = re.findall(r"\(((?:[^(),]|\([^()]*\))+),((?:[^(),]|\([^()]*\))+)\)", body)
        real = _values([p[0].strip() for p in pairs], kind.real)
        imaginary = _values([p[1].strip() for p in pairs], kind.real)
        values = np.empty(len(pairs), kind.dtype)
        values.real, values.imag = real, imaginary
    else:
        chunks = [_values(chunk.split(), kind) for chunk in _chunks(body.replace(",", " "))]
        values = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    if values.size != shape.elements:
        raise Malformed(f"expected {shape.elements} elements of {shape}, got {values.size}")
    return Literal(values.reshape(shape.dims), kind)


_CHUNK = 1 << 20


def _chunks(text: str) -> Iterator[str]:
    """The text cut at spaces: Python's strings for all elements at once would be many times as large."""
    at = 0
    while at == 0 or at < len(text):
        end = text.find(" ", at + _CHUNK)
        end = len(text) if end < 0 else end
        yield text[at:end]
        at = max(end, 1)


_ENTRY = re.compile(r"(?:\[([\d,\s]*)\]|(\d+))\s*:\s*(\([^()]*\)|[^,{}\s]+)", re.ASCII)


def _sparse(text: str, shape: Shape) -> Literal:
    """The literal whose elements that are not zero are listed: `{[0, 1]: 5, [1, 0]: 6}`, or `{3: 5}` of a vector."""
    entries = _ENTRY.findall(text)
    inside = re.sub(r"^[^{]*", "", text.strip())
    if not (inside.startswith("{") and inside.endswith("}")) or re.sub(
        r"[{},\s]", "", _ENTRY.sub("", inside)
    ):
        raise Malformed(f"expected {{[index]: value, ...}} of {shape}, got {text[:40]!r}")
    array = np.zeros(shape.dims, shape.element_type.dtype)
    for several, one, value in entries:
        index = tuple(integer(i) for i in (several or one).split(",") if i.strip())
        if len(index) != shape.rank or not all(i < d for i, d in zip(index, shape.dims)):
            raise Malformed(f"index {list(index)} of a sparse constant is not in {shape}")
        array[index] = parse_literal(value, Shape(shape.element_type)).array
    return Literal(array, shape.element_type)


def _values(tokens: list[str], kind: ElementType) -> np.ndarray:
    if kind is ElementType.PRED:
        booleans = {"true": True, "1": True, "false": False, "0": False}
        try:
            return np.array([booleans[t] if t in booleans else int(t) != 0 for t in tokens], np.bool_)
        except ValueError:
            wrong = next(t for t in tokens if t not in booleans and not _is_number(t, kind))
            raise Malformed(f"expected true, false or an integer, got {wrong[:60]!r}") from None
    try:
        if kind is ElementType.U64 and any(t.startswith("-") for t in tokens):
            tokens = [str(int(t) % (1 << 64)) if -(1 << 63) <= int(t) < 0 else t for t in tokens]
        if kind.is_integer:
            wide = np.array(list(map(int, tokens)), np.int8 if kind.is_small_integer else kind.dtype)
            if kind.is_small_integer and (wide.astype(kind.dtype).astype(np.int8) != wide).any():
                raise OverflowError
            return wide.astype(kind.dtype)
        return _floats(tokens, kind)
    except Malformed:
        raise
    except (ValueError, OverflowError):
        wrong = next((t for t in tokens if not _is_number(t, kind)), "a value out of range")
        raise Malformed(f"expected values of {kind.value}, got {wrong[:60]}") from None


def _floats(tokens: list[str], kind: ElementType) -> np.ndarray:
    payloads = [i for i, t in enumerate(tokens) if "(" in t]
    plain = [t.partition("(")[0] for t in tokens] if payloads else tokens
    wide = np.array(list(map(float, plain)), np.float64)
    with np.errstate(over="ignore"):
        values = wide.astype(kind.dtype)
    if not np.array_equal(np.isfinite(wide), np.isfinite(values.astype(np.float64))):
        raise OverflowError
    if kind.specials is Specials.FINITE and (np.abs(wide) > float(float_info(kind.dtype).max)).any():
        raise OverflowError
    for i in payloads:
        bits, mantissa, _ = _nan_bits(kind.dtype)
        view, payload = values[i : i + 1].view(bits), int(tokens[i].partition("(")[2].rstrip(")"), 0)
        if not 0 < payload <= mantissa:
            raise Malformed(
                f"expected a payload of 1 to {mantissa:#x} for a NaN of {kind.value}, got {payload:#x}"
            )
        view[0] = int(view[0]) & ~mantissa | payload
    return values


def _is_number(token: str, kind: ElementType) -> bool:
    try:
        (float if kind.is_float else int)(token.partition("(")[0])
    except ValueError:
        return False
    return True


def _split(text: str) -> Iterator[str]:
    """The parts of a parenthesised list, at its own commas only."""
    if len(text) < 2 or text[0] != "(" or text[-1] != ")":
        raise Malformed(f"expected a tuple in parentheses, got {text[:40]!r}")
    depth, start = 0, 1
    for i in range(1, len(text) - 1):
        depth += (text[i] in "({") - (text[i] in ")}")
        if text[i] == "," and depth == 0:
            yield text[start:i]
            start = i + 1
    if text[start:-1].strip():
        yield text[start:-1]
