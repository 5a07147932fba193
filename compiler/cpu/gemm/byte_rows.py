"""Products of bytes summed over whole vectors, into scalars.

Arm's M profile has no instruction that adds the products of each quad to its lane, but one that adds those of all the
bytes of two vectors to a scalar (VMLADAVA). With it a tile of C is the dot products of some rows of A and some columns
of B, which are read as they lie: the quads of a sum are side by side in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....runtime.llvm.addressing import Index, Int, Ptr
from ....runtime.llvm.ir_builder import Function, ModuleText
from ....runtime.llvm.lane_control import function_of
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import vector_type
from ....runtime.llvm.vector_value import VectorValue
from ....runtime.sizes import Size, is_symbolic
from ...analysis.gemm_problem import GemmProblem
from ...analysis.quads import QUAD, signs_of
from .compute_types import QUADS, Compute
from .driver import BLOCK_PARAMETERS, P, call_epilogue, parameter

ROWS, COLUMNS = 2, 2  # of a tile: as many loads as products
COLUMNS_OF_ONE_ROW = 4
_INLINE_VECTORS = 4  # of a run whose length is known: a loop would cost as much as one of them
_QUAD_OF_128, _QUAD_OF_64 = 0x80808080 - (1 << 32), 0x40404040


def sums_across(target: Target, compute: str) -> bool:
    """Whether products of a compute type are summed over whole vectors."""
    return compute in QUADS and target.byte_products == "mve" and target.vector_bytes == 4 * QUAD


def add_runs(
    compute: Compute,
    rows: Sequence[Ptr],
    columns: Sequence[Ptr],
    quads: Index,
    sums: Sequence[VectorValue],
) -> list[VectorValue]:
    """The sums plus the products of so many quads of each row with those of each column.

    Shapes: the sum of row i and column j is number i * len(columns) + j.
    """
    f, lanes = function_of(rows[0].f), compute.lanes
    whole = quads // lanes * lanes

    def loaded(sources: Sequence[Ptr], at: int) -> list[VectorValue]:
        return [p.at(at, compute.type).load(compute.vector) for p in sources]

    def moved(sources: Sequence[Ptr], quads: int) -> list[Ptr]:
        return [p.at(quads, compute.type) for p in sources]

    if isinstance(whole, int) and whole <= lanes * (1 if compute.target.is_small else _INLINE_VECTORS):
        for at in range(0, whole, lanes):
            sums = _add_products(compute.name, loaded(rows, at), loaded(columns, at), sums)
        return _add_rest(compute, moved(rows, whole), moved(columns, whole), quads - whole, sums)
    with f.loop(0, whole, lanes, rows=rows, columns=columns, sums=sums) as step:
        step.sums = _add_products(compute.name, loaded(step.rows, 0), loaded(step.columns, 0), step.sums)
        step.rows, step.columns = moved(step.rows, lanes), moved(step.columns, lanes)
    return _add_rest(compute, step.rows, step.columns, quads - whole, step.sums)


def _add_rest(
    compute: Compute, rows: Sequence[Ptr], columns: Sequence[Ptr], rest: Index, sums: Sequence[VectorValue]
) -> list[VectorValue]:
    """The quads behind the last whole vector: fewer than its lanes."""

    def added() -> list[VectorValue]:
        a, b = ([compute.load_masked(p, rest) for p in sources] for sources in (rows, columns))
        return _add_products(compute.name, a, b, sums)

    if isinstance(rest, int):
        return added() if rest else list(sums)
    with function_of(rows[0].f).if_(rest > 0, sums=sums) as some:
        some.sums = added()
    result: list[VectorValue] = some.sums
    return result


def _add_products(
    compute: str, a: Sequence[VectorValue], b: Sequence[VectorValue], sums: Sequence[VectorValue]
) -> list[VectorValue]:
    """The sums plus the products of all bytes of each vector of A with those of each vector of B."""
    a_signed, b_signed = signs_of(compute)
    if a_signed == b_signed:
        return _sums(a_signed, a, b, sums)
    # The instruction wants like signs: an unsigned x is (x - 128) + 128, and 128 is twice 64.
    halves = [function_of(a[0].f).constant(a[0].type, _QUAD_OF_64)]
    shifted = [v ^ _QUAD_OF_128 for v in (b if a_signed else a)]
    if a_signed:
        for _ in range(2):
            sums = _sums(True, a, halves * len(b), sums)
        return _sums(True, a, shifted, sums)
    for _ in range(2):
        sums = _sums(True, halves * len(a), b, sums)
    return _sums(True, shifted, b, sums)


def _sums(
    is_signed: bool, a: Sequence[VectorValue], b: Sequence[VectorValue], sums: Sequence[VectorValue]
) -> list[VectorValue]:
    pairs = ((x, y) for x in a for y in b)
    return [_sum(is_signed, x, y, c) for (x, y), c in zip(pairs, sums, strict=True)]


def _sum(is_signed: bool, a: VectorValue, b: VectorValue, c: VectorValue) -> VectorValue:
    """c + the products of all bytes."""
    f, type_ = function_of(c.f), vector_type("i8", a.lanes * QUAD)
    x, y = (v.write(f"bitcast {v} to {type_}", type_) for v in (a, b))
    flags = [f.constant("i32", flag) for flag in (int(not is_signed), 0, 0)]  # unsigned, subtract, exchange
    return c.write(f.call_text("llvm.arm.mve.vmldava.v16i8", "i32", [*flags, c, x, y]))


def write_byte_rows(
    module: ModuleText, target: Target, problem: GemmProblem, parameters: Mapping[P, int], task_rows: int
) -> str:
    """Writes the function that computes blocks of C for a problem, all columns of so many rows, into a module; returns
    its name. `parameters` are those of its plan."""
    f = Function(module, "SELF", BLOCK_PARAMETERS)
    _ByteRows(f, Compute(target, problem.quads), problem, parameters, task_rows).write()
    return module.define("byte_rows", f)


class _ByteRows:
    """The block function under construction: pairs of rows, the columns outside; then the last row of an odd number.
    Sizes and strides are numbers in the code where they are known."""

    def __init__(
        self,
        f: Function,
        compute: Compute,
        problem: GemmProblem,
        parameters: Mapping[P, int],
        task_rows: int,
    ) -> None:
        self.f, self.compute = f, compute

        def known(slot: P) -> Int:
            size = parameters[slot]
            return parameter(f, slot) if isinstance(size, Size) else f.i64(size)

        self.k, self.a_row, self.b_column = known(P.K), known(P.A_ROW), known(P.B_COL)
        self.c_row, self.c_column = known(P.C_ROW), known(P.C_COL)
        self.rows, self.cols = f.integers("rows", "cols")
        if not is_symbolic([problem.m, task_rows]) and problem.m % max(task_rows, 1) == 0:
            self.rows = f.i64(task_rows)
        if not is_symbolic([problem.n]):
            self.cols = f.i64(problem.n)
        self.has_odd_rows = is_symbolic([problem.m]) or problem.m % ROWS != 0

    def write(self) -> None:
        """All columns for all rows of A."""
        f = self.f
        paired, wide, widest = (
            count - count % multiple
            for count, multiple in ((self.rows, ROWS), (self.cols, COLUMNS), (self.cols, COLUMNS_OF_ONE_ROW))
        )
        self._tiles((f.i64(0), paired, ROWS), (0, wide, COLUMNS))
        self._tiles((f.i64(0), paired, ROWS), (wide, self.cols, 1))
        if self.has_odd_rows:
            self._tiles((paired, self.rows, 1), (0, widest, COLUMNS_OF_ONE_ROW))
            self._tiles((paired, self.rows, 1), (widest, self.cols, 1))
        with f.if_((self.cols > 0) & (self.rows > 0)):
            call_epilogue(f, 0, self.rows, 0, self.cols)
        f.ret()

    def _tiles(self, rows: tuple[Int, Int, int], columns: tuple[Index, Index, int]) -> None:
        """The tiles of rows and columns [low, high), so many of each."""
        f, (first, end, height), (_, _, width) = self.f, rows, columns
        with f.loop(*columns) as column:
            b = f.pointer("B") + column.index * self.b_column
            c = f.pointer("C") + column.index * self.c_column + self.c_row * first
            with f.loop(first, end, height, a=f.pointer("A") + self.a_row * first, c=c) as row:
                self._tile(row.a, b, row.c, height, width)
                row.a, row.c = row.a + self.a_row * height, row.c + self.c_row * height

    def _tile(self, a: Ptr, b: Ptr, c: Ptr, height: int, width: int) -> None:
        rows = [a + self.a_row * i for i in range(height)]
        columns = [b + self.b_column * j for j in range(width)]
        zeros = [self.f.zero("i32")] * (height * width)
        k = self.k.number
        sums = add_runs(self.compute, rows, columns, self.k if k is None else k, zeros)
        for number, value in enumerate(sums):
            at = self.c_row * (number // width) + self.c_column * (number % width)
            (c + at).store(value)
