"""What headers and bindings say of an array: name, type, shape, layout, bytes, and what its numbers mean."""

from __future__ import annotations

from collections.abc import Iterator

from .arrays import Array, arrays_of
from .model import Model
from .names import in_comment

# Of element types that most languages have no type for.
_BITS = {
    "float16": "IEEE binary16, as bits",
    "bfloat16": "the upper half of a float32, as bits",
    "float8_e4m3fn": "8 bits, 4 of them the exponent's, as bits",
    "float8_e5m2": "8 bits, 5 of them the exponent's, as bits",
    "complex64": "real and imaginary part",
    "complex128": "real and imaginary part",
    "bool": "bytes of 0 and 1",
    "int4": "a byte for each, from -8 to 7",
    "uint4": "a byte for each, from 0 to 15",
}


def description(array: Array) -> str:
    """One line: number, type, shape, and TensorFlow's name."""
    rows = (
        ""
        if array.rows is None
        else f"; {array.prefix}result{array.rows} is how many rows it has, the others are unset"
    )
    return f"{array.which}: {array.shape}" + (f', "{in_comment(array.name)}"' if array.name else "") + rows


def listed_arrays(model: Model, line: str, item: str, quote: str = "`") -> Iterator[str]:
    """The arrays of a model by function, as lines of a comment. `line` begins each, `item` what stands for an array."""
    for entry in (*model.entries, *([None] if model.states else [])):
        if entry is None:
            yield f"{line}State, which runs read and change:"
        elif entry.name:
            yield f"{line}Function {quote}{entry.name}{quote}:"
        yield from (f"{line}{item}{description(array)}" for array in arrays_of(model, entry))


def documentation(array: Array) -> list[str]:
    """All there is to say of an array, line by line."""
    return [description(array), *_layout(array), *_elements(array)]


def _layout(array: Array) -> Iterator[str]:
    if array.is_changing:
        yield "Row-major without gaps, of the sizes of the run."
        return
    dims = array.spec.dims
    size = f"{array.elements} element{'s' if array.elements != 1 else ''}, {array.spec.bytes} bytes"
    if len(dims) < 2:
        yield f"{size}."
        return
    strides = [1]
    for dim in reversed(dims[1:]):
        strides.insert(0, strides[0] * dim)
    yield f"{size}, row-major: the next one along each axis is {', '.join(map(str, strides))} elements on."


def _elements(array: Array) -> Iterator[str]:
    if (bits := _BITS.get(array.spec.dtype)) is not None:
        yield f"Elements: {bits}."
    if array.range is not None:
        low, high = array.range
        yield (
            f"Quantised: read in 8 bits, in steps of {(high - low) / 255:.4g}; numbers below {low:.6g} or above "
            f"{high:.6g} count as these."
        )
    if array.step is not None:
        scale, zero_point = array.step
        centred = f"(q - {zero_point})" if zero_point > 0 else f"(q + {-zero_point})" if zero_point else "q"
        yield f"Quantised: an integer q stands for the number {centred} * {scale:.9g}; {zero_point} is zero."
    if array.word == "state":
        yield "Read and changed by runs."
