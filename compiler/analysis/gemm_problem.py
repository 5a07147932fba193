"""A matrix product as a problem of sizes, strides and types, and the dots that are one."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from ...runtime.sizes import estimate, is_symbolic
from ..errors import UnsupportedError
from ..ir.element_types import ElementType
from ..ir.module import Instruction
from ..ir.shape import Shape
from ..ops import Dot
from .quads import QUAD, are_whole_quads, quad_type, swapped


@dataclasses.dataclass(frozen=True)
class GemmProblem:
    """C[b, m, n] = sum_k A[b, m, k] * B[b, k, n] with the element types of A and B, and of C.

    `weights_type`: the elements of B where they are narrower than those of A, and are converted to these.
    `quads`: where elements of A and B are quads of bytes, the name of their type (quads.py); else "".
    Units: strides in elements, any, 0 and negative included: batch strides, then (m, k), (k, n) and (m, n).
    """

    element_type: ElementType
    result_type: ElementType
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a_strides: tuple[int, ...]
    b_strides: tuple[int, ...]
    c_strides: tuple[int, ...]
    quads: str = ""
    weights_type: ElementType | None = None

    @property
    def b_type(self) -> ElementType:
        """The element type of B."""
        return self.weights_type or self.element_type

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        of_each = 4 if self.element_type.is_complex else QUAD if self.quads else 1
        return 2 * math.prod(self.batch) * self.m * self.n * self.k * of_each

    @property
    def bytes(self) -> int:
        """Bytes of A, B and C, each counted once."""
        return math.prod(self.batch) * (
            self.k * (self.element_type.item_bytes * self.m + self.b_type.item_bytes * self.n)
            + self.result_type.item_bytes * self.m * self.n
        )

    @property
    def is_symbolic(self) -> bool:
        """Whether a size is known at run time only."""
        return is_symbolic((*self.batch, self.m, self.n, self.k))

    @functools.cached_property
    def typical(self) -> GemmProblem:
        """The product for typical values of sizes that are known at run time only."""
        if not self.is_symbolic:
            return self
        return dataclasses.replace(
            self,
            batch=tuple(map(estimate, self.batch)),
            m=estimate(self.m),
            n=estimate(self.n),
            k=estimate(self.k),
            a_strides=tuple(map(estimate, self.a_strides)),
            b_strides=tuple(map(estimate, self.b_strides)),
            c_strides=tuple(map(estimate, self.c_strides)),
        )

    def transposed(self) -> GemmProblem:
        """The same product as C' = B' A'."""

        def swap(strides: tuple[int, ...]) -> tuple[int, ...]:
            return (*strides[:-2], strides[-1], strides[-2])

        return dataclasses.replace(
            self,
            m=self.n,
            n=self.m,
            a_strides=swap(self.b_strides),
            b_strides=swap(self.a_strides),
            c_strides=swap(self.c_strides),
            quads=swapped(self.quads),
        )

    def in_quads(self, rhs_type: ElementType, has_small_rhs: bool = False) -> GemmProblem:
        """The product with quads for elements, where it is one of bytes that lie so; else the same."""
        quads = quad_type(self.element_type, rhs_type, self.result_type, has_small_rhs)
        a, b = self.a_strides, self.b_strides
        is_run = a[-1] == 1 and b[-2] == 1
        steps = zip((*self.batch, *self.batch, self.m, self.n), (*a[:-2], *b[:-2], a[-2], b[-1]))
        if not quads or not is_run or not are_whole_quads((self.k, *(s for size, s in steps if size != 1))):
            return self
        return dataclasses.replace(
            self,
            element_type=ElementType.S32,
            k=self.k // QUAD,
            a_strides=(*(s // QUAD for s in a[:-1]), 1),
            b_strides=(*(s // QUAD for s in b[:-2]), 1, b[-1] // QUAD),
            quads=quads,
        )


def gemm_problem(
    contraction: Instruction, result_type: ElementType, result_strides: Sequence[int] | None = None
) -> GemmProblem:
    """A dot as a problem of rows and columns, whose result is stored row by row, or with other strides.

    Free axes of the left operand that are not one run in memory become batch axes, which the right operand does
    not have.
    Raises: UnsupportedError  contracting axes, or free axes of the right operand, that are no single run; operands of
    different types that are no quads; columns of the result that are not one run of single steps.
    """
    op, (lhs, rhs) = contraction.op, (o.shape for o in contraction.operands)
    assert isinstance(op, Dot)
    left, right = lhs.strides, rhs.strides
    out = result_strides or Shape(ElementType.F32, contraction.shape.dims).strides
    k = contracting_run(op, lhs, rhs)
    free_columns = op.rhs_free(rhs.rank)
    columns = _run([(rhs.dims[a], right[a]) for a in free_columns])
    out_columns = _run([(rhs.dims[a], s) for a, s in zip(free_columns, out[len(out) - len(free_columns) :])])
    if out_columns is None or out_columns[1] != 1:
        raise UnsupportedError(f"dot: the columns of {contraction.shape} are stored with strides {out}")
    if k is None or columns is None:
        raise UnsupportedError(
            f"dot: axes of {lhs} and {rhs} do not collapse; canonicalize_dots must come first"
        )
    batch = [
        (lhs.dims[x], left[x], right[y], out[i]) for i, (x, y) in enumerate(zip(op.lhs_batch, op.rhs_batch))
    ]
    free = op.lhs_free(lhs.rank)
    rows = [(lhs.dims[a], left[a], out[len(batch) + i]) for i, a in enumerate(free)]
    free_rows = list(rows)
    while True:
        run, out_rows = _run([(n, s) for n, s, _ in free_rows]), _run([(n, o) for n, _, o in free_rows])
        if run is not None and out_rows is not None:
            break
        n, s, o = free_rows.pop(0)
        batch.append((n, s, 0, o))
    problem = GemmProblem(
        lhs.element_type,
        result_type,
        tuple(b[0] for b in batch),
        run[0],
        columns[0],
        k[0],
        (*(b[1] for b in batch), run[1], k[1]),
        (*(b[2] for b in batch), k[2], columns[1]),
        (*(b[3] for b in batch), out_rows[1], 1),
    ).in_quads(rhs.element_type, op.has_small_rhs)
    if are_converted(lhs.element_type, rhs.element_type, result_type):
        return dataclasses.replace(problem, weights_type=rhs.element_type)
    if rhs.element_type is not lhs.element_type and not problem.quads:
        raise UnsupportedError(
            f"dot: {lhs} and {rhs} have different types; canonicalize_dots must come first"
        )
    return problem


def are_converted(values: ElementType, weights: ElementType, result: ElementType) -> bool:
    """Whether kernels read a right operand in a narrower type than the left one, and convert what they read."""
    narrow = (ElementType.F16, ElementType.BF16, ElementType.S8, ElementType.U8)
    return values is result is ElementType.F32 and weights in narrow


def contracting_run(op: Dot, lhs: Shape, rhs: Shape) -> tuple[int, int, int] | None:
    """(size, left stride, right stride) of all contracting axes as one; None when they are no single run in both."""
    axes = [
        (lhs.dims[x], lhs.strides[x], rhs.strides[y]) for x, y in zip(op.lhs_contracting, op.rhs_contracting)
    ]
    for by in (1, 2):
        ordered = sorted(axes, key=lambda a: -a[by])
        left, right = _run([(n, s) for n, s, _ in ordered]), _run([(n, s) for n, _, s in ordered])
        if left is not None and right is not None:
            return left[0], left[1], right[1]
    return None


def columns_run(op: Dot, rhs: Shape) -> tuple[int, int] | None:
    """(size, stride) of the right operand's free axes as one; None when they are no single run."""
    return _run([(rhs.dims[a], rhs.strides[a]) for a in op.rhs_free(rhs.rank)])


def _run(axes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """(size, stride) of axes taken as one, slowest first; None when they are not contiguous in that order."""
    if any(n == 0 for n, _ in axes):
        return 0, 1
    size, stride = 1, 1
    for n, step in reversed([a for a in axes if a[0] != 1]):
        if size == 1:
            size, stride = n, step
        elif step == stride * size:
            size *= n
        else:
            return None
    return size, stride
