"""The kernel of self-adjoint-eig: reflections make a matrix tridiagonal, QR steps make that diagonal.

A task is a matrix: it is scaled, and reduced row after row from the last one up, as the lower triangle lies in memory.
Reflection i is I - u u^H / h with w = conj(u) in row i. Rows of the factors' adjoint are accumulated where the
reflections were; each rotation of a QR step turns two of them. Sorted and transposed they are the eigenvectors.
Source: Golub and Van Loan, Matrix Computations, 8.3; Wilkinson's shift.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ...ir.module import Instruction
from ...ops import SelfAdjointEig
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import memory_type
from ..codegen.parallel_for import KERNEL_PARAMETERS
from ..gemm.gemv import sum_of_lanes
from .multi_rhs import PanelFunctions
from .scalar_type import Number, ScalarType, along, exchange, hypot

_FLOPS_PER_US = 1000.0
_TASK_US = 20.0
_ALIGN = 64
_UNROLLED = 4  # vectors in a step along a row
_MOST_STEPS = 30  # QR steps for each eigenvalue; two are usual


def emit_self_adjoint_eig(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelInfo:
    """Writes the kernel."""
    return _Kernel(module, target, instruction).emit()


class _Kernel:
    def __init__(self, module: ModuleText, target: Target, instruction: Instruction) -> None:
        op, shape = instruction.op, instruction.operands[0].shape
        assert isinstance(op, SelfAdjointEig)
        self.module, self.type, self.real = module, shape.element_type, shape.element_type.real
        self.n, self.batch = shape.dims[-1], math.prod(shape.dims[:-2])
        self.has_vectors = op.vectors
        self.panels = PanelFunctions(module, target, self.type)
        self.lanes, self.item = self.panels.lanes, self.type.item_bytes
        self.memory = memory_type(self.real)
        self.info = np.finfo(self.real.dtype)
        self.flops = op.flops(instruction) * (4 if self.type.is_complex else 1)
        self.bytes = shape.bytes * (1 + self.has_vectors)

    def emit(self) -> KernelInfo:
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        self.scalar, self.real_scalar = ScalarType(f, self.type), ScalarType(f, self.real)
        tasks = self.batch if self.n else 0
        sizes = (self.n * self.n * self.item, *(self.n * self.item for _ in range(4)))
        starts = [sum(-(-size // _ALIGN) * _ALIGN for size in sizes[:k]) for k in range(len(sizes) + 1)]
        if tasks:
            buffers = [(f.pointer("buffers") + 8 * k).load_ptr() for k in range(3 + self.has_vectors)]
            source, values, scratch = buffers[0], buffers[1], buffers[-1]
            own = scratch + f.integer("thread") * starts[-1]
            self.a, self.row, self.beside, self.sizes, self.phases = (own + start for start in starts[:-1])
            with f.loop(f.integer("low"), f.integer("high")) as task:
                self.values = values + task.index * (self.n * self.real.item_bytes)
                matrix = task.index * (self.n * self.n * self.item)
                self._decompose(source + matrix)
                if self.has_vectors:
                    f.call(self.panels.adjoint(), "void", [self.a, buffers[2] + matrix, self.n])
        f.ret()
        grain = max(1, int(_TASK_US * _FLOPS_PER_US * self.batch / max(self.flops, 1))) if tasks else 1
        return KernelInfo(
            self.module.define("self_adjoint_eig", f),
            tasks,
            grain,
            tasks > grain,
            starts[-1] if tasks else 0,
            self.flops,
            self.bytes,
            may_alias=frozenset(
                {(1, 0)} if self.has_vectors else ()
            ),  # a matrix is read before it is written
        )

    def _decompose(self, source: Ptr) -> None:
        f = self.f
        scale = self._copy_scaled(source)
        with f.loop(0, self.n) as step:
            self._reduce(self.n - 1 - step.index)
        if self.has_vectors:
            self._accumulate()
        scale = self._diagonalize(scale.is_nan()).choose(scale.number(math.nan), scale)
        if self.has_vectors:
            with f.if_(scale.is_nan(), rare=True), f.loop(0, self.n * self.n) as element:
                self.scalar.store(self.scalar.number(math.nan), self.scalar.at(self.a, element.index))
        with f.loop(0, self.n) as value:
            self._set(self.values, value.index, self._get(self.values, value.index) * scale)
        self._sort()

    # -- access

    def _at(self, i: Int, j: Int) -> Ptr:
        return self.scalar.at(self.a, i * self.n + j)

    def _get(self, base: Ptr, i: Int) -> VectorValue:
        """A real number."""
        return base.at(i, self.memory).load(self.memory)

    def _set(self, base: Ptr, i: Int, value: VectorValue) -> None:
        base.at(i, self.memory).store(value)

    def _along(self, count: Int, body: Callable[[Int, int], None]) -> None:
        along(self.f, count, self.lanes, body, _UNROLLED)

    def _dot(
        self, x: Ptr, y: Ptr, count: Int, change: Callable[[Int, Number, int], None] | None = None
    ) -> Number:
        """The sum of conj(x[k]) y[k]. `change(k, x[k], lanes)` is called with what was loaded."""
        f, scalar, lanes = self.f, self.scalar, self.lanes
        parts = len(scalar.number(0))
        start: Int = f.i64(0)
        total = list(scalar.number(0))
        for size in sorted({_UNROLLED * lanes, lanes, 1}, reverse=True):
            end = count - (count - start) % size
            width, rounds = min(size, lanes), max(1, size // lanes)
            zeros = [part for _ in range(rounds) for part in scalar.number(0, width)]
            with f.loop(start, end, size, sums=zeros) as loop:
                sums = list(loop.sums)
                for k in range(rounds):
                    at = loop.index + k * lanes
                    left = scalar.load(scalar.at(x, at), width)
                    right = scalar.load(scalar.at(y, at), width)
                    own = slice(k * parts, (k + 1) * parts)
                    minus = tuple(-part for part in scalar.conjugate(left))
                    sums[own] = scalar.multiply_subtract(tuple(sums[own]), minus, right)
                    if change is not None:
                        change(at, left, width)
                loop.sums = sums
            for k in range(rounds):
                for part in range(parts):
                    total[part] = total[part] + sum_of_lanes(loop.sums[k * parts + part])
            start = end
        return tuple(total)

    # -- to tridiagonal

    def _copy_scaled(self, source: Ptr) -> VectorValue:
        """The lower triangle, divided by its largest part; returns that, or NaN where an element is not finite."""
        f, scalar, n = self.f, self.scalar, self.n
        zero = self.real_scalar.number(0)[0]

        with f.loop(0, n, largest=zero, bad=zero) as row:
            with f.loop(0, row.index + 1, largest=row.largest, bad=row.bad) as element:
                for part in scalar.load(scalar.at(source, row.index * n + element.index)):
                    size = abs(part)
                    element.largest = (size > element.largest).choose(size, element.largest)
                    element.bad = part.fma(zero, element.bad)
            row.largest, row.bad = element.largest, element.bad
        largest: VectorValue = row.largest
        bad: VectorValue = row.bad
        divisor = (largest > zero).choose(largest, 1)
        with f.loop(0, n) as copied, f.loop(0, copied.index + 1) as element:
            i, j = copied.index, element.index
            value = scalar.load(scalar.at(source, i * n + j))
            scalar.store(tuple(part / divisor for part in value), self._at(i, j))
        return divisor + bad

    def _reduce(self, i: Int) -> None:
        """Reflection i: makes row i zero but for the element beside the diagonal, and changes the rows before it."""
        f, scalar = self.f, self.scalar
        self._set(self.values, i, scalar.load(self._at(i, i))[0])
        w = self._at(i, f.i64(0))
        with f.if_(i > 0):
            before = i - 1
            last = scalar.load(self._at(i, before))
            rest = self._dot(w, w, before)[0]
            size = abs(last[0]) if len(last) == 1 else hypot(last[0], last[1])
            is_zero = size.equals(0)
            phase = tuple(
                is_zero.choose(one, part / is_zero.choose(1, size))
                for one, part in zip(scalar.number(1), last)
            )
            with f.if_(rest > 0) as branch:
                norm = size.fma(size, rest).sqrt()
                scalar.store(tuple(p.fma(norm, x) for p, x in zip(phase, last)), self._at(i, before))
                branch.h = norm * (norm + size)
                branch.beside = tuple(-p * norm for p in phase)
                self._reflect(w, i, branch.h)
            with branch.else_():
                branch.h = size.number(0)
                branch.beside = last
            self._set(self.sizes, i, branch.h)
            beside = branch.beside
            if self.type.is_complex:
                length = hypot(beside[0], beside[1])
                nothing = length.equals(0)
                unit = (
                    nothing.choose(one, part / nothing.choose(1, length))
                    for one, part in zip(scalar.number(1), beside)
                )
                scalar.store(tuple(unit), scalar.at(self.phases, i))
                beside = (length,)
            self._set(self.beside, before, beside[0])

    def _reflect(self, w: Ptr, i: Int, h: VectorValue) -> None:
        """The rows before i from both sides: a -= conj(w) s + conj(s) w, where s is in self.row."""
        f, scalar, item = self.f, self.scalar, self.item
        r = self.row
        f.call("memset", "ptr", [r, f.constant("i32", 0), i * item])
        with f.loop(0, i) as row:
            k = row.index
            factor = scalar.load(scalar.at(w, k))

            def add(j: Int, value: Number, lanes: int) -> None:
                minus = scalar.broadcast(tuple(-part for part in factor), lanes)
                total = scalar.load(scalar.at(r, j), lanes)
                scalar.store(scalar.multiply_subtract(total, minus, value), scalar.at(r, j), lanes)

            product = self._dot(self._at(k, f.i64(0)), w, k, add)
            diagonal = scalar.load(self._at(k, k))[0]
            own = tuple(diagonal.fma(x, t) for x, t in zip(factor, product))
            scalar.store(tuple(x + y for x, y in zip(scalar.load(scalar.at(r, k)), own)), scalar.at(r, k))
        inverse = h.number(1) / h
        share = self._dot(w, r, i)[0] * inverse * inverse * 0.5

        def combine(j: Int, lanes: int) -> None:
            x, y = scalar.load(scalar.at(r, j), lanes), scalar.load(scalar.at(w, j), lanes)
            splat, minus = (v.splat(lanes) if lanes > 1 else v for v in (inverse, -share))
            scalar.store(tuple(minus.fma(q, p * splat) for p, q in zip(x, y)), scalar.at(r, j), lanes)

        self._along(i, combine)
        with f.loop(0, i) as changed:
            k = changed.index
            left, other = (scalar.conjugate(scalar.load(scalar.at(v, k))) for v in (w, r))

            def change(j: Int, lanes: int) -> None:
                value = scalar.load(self._at(k, j), lanes)
                for by, of in ((left, r), (other, w)):
                    value = scalar.multiply_subtract(
                        value, scalar.broadcast(by, lanes), scalar.load(scalar.at(of, j), lanes)
                    )
                scalar.store(value, self._at(k, j), lanes)

            self._along(k + 1, change)

    def _accumulate(self) -> None:
        """The rows of the adjoint of all reflections' product, in place of the reflections."""
        f, scalar, n = self.f, self.scalar, self.n
        zero, one = scalar.number(0), scalar.number(1)
        with f.loop(0, n) as step:
            i = step.index
            w = self._at(i, f.i64(0))
            with f.if_(i > 0):
                h = self._get(self.sizes, i)
                with f.if_(h > 0), f.loop(0, i) as row:
                    z = self._at(row.index, f.i64(0))
                    product = tuple(part / h for part in self._dot(w, z, i))

                    def change(k: Int, lanes: int) -> None:
                        by = scalar.broadcast(product, lanes)
                        value = scalar.load(scalar.at(z, k), lanes)
                        value = scalar.multiply_subtract(value, by, scalar.load(scalar.at(w, k), lanes))
                        scalar.store(value, scalar.at(z, k), lanes)

                    self._along(i, change)
            with f.loop(0, i) as other:
                scalar.store(zero, self._at(i, other.index))
                scalar.store(zero, self._at(other.index, i))
            scalar.store(one, self._at(i, i))
        if self.type.is_complex:
            with f.loop(1, n, phase=list(one)) as turned:
                i = turned.index
                own = scalar.load(scalar.at(self.phases, i))
                minus = tuple(-part for part in own)
                phase = scalar.multiply_subtract(zero, minus, tuple(turned.phase))
                turned.phase = list(phase)
                with f.loop(0, n) as element:
                    place = self._at(i, element.index)
                    value = tuple(-part for part in scalar.load(place))
                    scalar.store(scalar.multiply_subtract(zero, value, scalar.conjugate(phase)), place)

    # -- to diagonal

    def _is_negligible(self, i: Int) -> VectorValue:
        """Whether the element beside diagonal elements i and i + 1 is zero beside them."""
        size = abs(self._get(self.beside, i))
        around = abs(self._get(self.values, i)) + abs(self._get(self.values, i + 1))
        return (size <= around * float(self.info.eps)) | (size <= float(self.info.tiny))

    def _diagonalize(self, is_bad: VectorValue) -> VectorValue:
        """QR steps on the last part that is not diagonal, until there is none; returns whether one is left, or the
        matrix is bad."""
        f = self.f
        steps = is_bad.choose(0, f.i64(_MOST_STEPS * self.n))
        with f.repeat(end=f.i64(self.n - 1), steps=steps) as loop:
            loop.while_((loop.end > 0) & (loop.steps > 0))
            before = loop.end - 1
            is_done = self._is_negligible(before)
            with f.if_(is_done):
                loop.end = before
            with f.if_(~is_done):
                with f.repeat(start=before) as part:
                    previous = (part.start - 1).maximum(0)
                    part.while_((part.start > 0) & ~self._is_negligible(previous))
                    part.start = previous
                self._qr_step(part.start, loop.end)
                loop.steps = loop.steps - 1
        end: Int = loop.end
        return is_bad | (end > 0)

    def _qr_step(self, start: Int, end: Int) -> None:
        """An implicit QR step on the elements start .. end of the diagonal."""
        f = self.f
        d, e = self.values, self.beside
        last, corner = self._get(d, end), self._get(e, end - 1)
        half = (self._get(d, end - 1) - last) * 0.5
        shift = last - corner * (corner / (half + hypot(half, corner).copysign(half)))
        with f.loop(start, end, x=self._get(d, start) - shift, z=self._get(e, start)) as step:
            k = step.index
            cosine, sine = self._rotation(step.x, step.z)
            one, beside, two = self._get(d, k), self._get(e, k), self._get(d, k + 1)
            # [x y] [c s; -s c] on both sides
            upper, lower = sine * one + cosine * beside, sine * beside + cosine * two
            self._set(d, k, cosine * (cosine * one - sine * beside) - sine * (cosine * beside - sine * two))
            self._set(d, k + 1, sine * upper + cosine * lower)
            corner = cosine * upper - sine * lower
            self._set(e, k, corner)
            with f.if_(k > start):
                self._set(e, k - 1, cosine * self._get(e, k - 1) - sine * step.z)
            step.x = corner
            with f.if_(k < end - 1):
                following = self._get(e, k + 1)
                step.z = -sine * following
                self._set(e, k + 1, cosine * following)
            if self.has_vectors:
                self._rotate(k, cosine, sine)

    def _rotation(self, x: VectorValue, z: VectorValue) -> tuple[VectorValue, VectorValue]:
        """(c, s) with s x + c z = 0."""
        is_flat = abs(x) >= abs(z)
        large, small = is_flat.choose(x, z), is_flat.choose(z, x)
        ratio = small / large.equals(0).choose(1, large)
        inverse = ratio.number(1) / ratio.fma(ratio, ratio.number(1)).sqrt().copysign(large)
        return is_flat.choose(inverse, ratio * inverse), -is_flat.choose(ratio * inverse, inverse)

    def _rotate(self, k: Int, cosine: VectorValue, sine: VectorValue) -> None:
        """Rows k and k + 1, whose parts are real numbers."""
        scalar = self.real_scalar
        count = self.n * (2 if self.type.is_complex else 1)
        first = self._at(k, self.f.i64(0))
        second = first + self.n * self.item

        def turn(j: Int, lanes: int) -> None:
            x, y = (scalar.load(scalar.at(row, j), lanes)[0] for row in (first, second))
            c, s = (v.splat(lanes) if lanes > 1 else v for v in (cosine, sine))
            scalar.store((c * x - s * y,), scalar.at(first, j), lanes)
            scalar.store((s * x + c * y,), scalar.at(second, j), lanes)

        self._along(self.f.i64(count), turn)

    def _sort(self) -> None:
        """The values in ascending order, each the least of the rest."""
        f, n = self.f, self.n
        with f.loop(0, n - 1) as place:
            i = place.index
            with f.loop(i + 1, n, least=self._get(self.values, i), at=i) as rest:
                value = self._get(self.values, rest.index)
                is_less = value < rest.least
                rest.least, rest.at = is_less.choose(value, rest.least), is_less.choose(rest.index, rest.at)
            with f.if_(rest.at.differs(i)):
                self._set(self.values, rest.at, self._get(self.values, i))
                self._set(self.values, i, rest.least)
                if self.has_vectors:
                    here, there = self._at(i, f.i64(0)), self._at(rest.at, f.i64(0))
                    exchange(self.scalar, here, there, f.i64(n), self.lanes)
