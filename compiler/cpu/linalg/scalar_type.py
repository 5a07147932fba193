"""Real and complex numbers in registers alike: the arithmetic of matrix code that is written once for both."""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, Index, Int, Ptr, VectorValue
from ...ir.element_types import ElementType
from ..codegen.memory_types import Element, constant_element, load, memory_type, parts, splat, store

Number = tuple[VectorValue, ...]
"""One value of a real type, or the two of a complex one; each has all lanes."""


class ScalarType:
    """Numbers of f32, f64, c64 or c128 in the code of a function."""

    def __init__(self, f: Function, element_type: ElementType) -> None:
        self.f, self.type = f, element_type

    def at(self, base: Ptr, index: Index) -> Ptr:
        """Address of an element."""
        scale = 2 if self.type.is_complex else 1
        return base.at(index * scale, memory_type(self.type))

    def load(self, pointer: Ptr, lanes: int = 1) -> Number:
        """Contiguous elements."""
        return self.of(load(self.f, self.type, pointer, lanes))

    def store(self, value: Number, pointer: Ptr, lanes: int = 1) -> None:
        """Contiguous elements."""
        store(self.f, self.type, self.element(value), pointer, lanes)

    def broadcast(self, value: Number, lanes: int) -> Number:
        """A single element in every lane."""
        return self.of(splat(self.f, self.element(value), lanes))

    def number(self, value: float, lanes: int = 1) -> Number:
        """A constant."""
        return self.of(constant_element(self.type, value, lanes))

    def of(self, element: Element) -> Number:
        """From the form that loads and stores have."""
        return tuple(VectorValue.of(self.f, part) for part in parts(element))

    def element(self, value: Number) -> Element:
        """To the form that loads and stores have."""
        return value[0] if len(value) == 1 else (value[0], value[1])

    def conjugate(self, a: Number) -> Number:
        """The complex conjugate; a real number itself."""
        return (a[0], -a[1]) if len(a) == 2 else a

    def subtract(self, a: Number, b: Number) -> Number:
        """a - b."""
        return tuple(x - y for x, y in zip(a, b))

    def multiply_subtract(self, a: Number, b: Number, c: Number) -> Number:
        """a - b * c."""
        if len(a) == 1:
            return ((-b[0]).fma(c[0], a[0]),)
        return b[1].fma(c[1], (-b[0]).fma(c[0], a[0])), (-b[1]).fma(c[0], (-b[0]).fma(c[1], a[1]))

    def divide(self, a: Number, b: Number) -> Number:
        """a / b; the complex quotient through both scaled by the larger part of b (Smith)."""
        if len(a) == 1:
            return (a[0] / b[0],)
        is_steep = abs(b[0]) < abs(b[1])
        large, small = is_steep.choose(b[1], b[0]), is_steep.choose(b[0], b[1])
        ratio = small / large
        scale = small.fma(ratio, large)
        re = is_steep.choose(a[0].fma(ratio, a[1]), a[1].fma(ratio, a[0])) / scale
        im = is_steep.choose(a[1].fma(ratio, -a[0]), a[1] - a[0] * ratio) / scale
        return re, im


def hypot(a: VectorValue, b: VectorValue) -> VectorValue:
    """The root of a^2 + b^2, whose squares may overflow."""
    is_steep = abs(a) < abs(b)
    large, small = abs(is_steep.choose(b, a)), abs(is_steep.choose(a, b))
    ratio = small / large.equals(0).choose(1, large)
    return large * ratio.fma(ratio, ratio.number(1)).sqrt()


def along(f: Function, count: Int, lanes: int, body: Callable[[Int, int], None], unrolled: int = 1) -> None:
    """body(index, lanes) for whole vectors, `unrolled` of them at a time, then for single elements."""
    start: Int = f.i64(0)
    for size in sorted({unrolled * lanes, lanes, 1}, reverse=True):
        end = count - (count - start) % size
        with f.loop(start, end, size) as part:
            for k in range(0, size, lanes):
                body(part.index + k, min(size, lanes))
        start = end


def exchange(scalar: ScalarType, one: Ptr, other: Ptr, count: Int, lanes: int) -> None:
    """Exchanges the elements from two addresses on."""

    def step(k: Int, width: int) -> None:
        here, there = scalar.at(one, k), scalar.at(other, k)
        values = scalar.load(here, width), scalar.load(there, width)
        scalar.store(values[1], here, width)
        scalar.store(values[0], there, width)

    along(scalar.f, count, lanes, step)
