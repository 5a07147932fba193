"""The plain matrix product, in scalars, of every element type: for complex numbers and rare results."""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64
from ....runtime.llvm.target import Target
from ...errors import UnsupportedError
from ...ir.element_types import ElementType
from ..codegen.memory_types import memory_type
from .compute_types import if_, load_as, multiply_add, zero
from .microkernel import BLOCK_PARAMETERS, P, call_epilogue, parameter

COLUMNS = 4  # accumulated at a time


def write_simple(module: ModuleText, target: Target, element: ElementType, result: ElementType) -> str:
    """Writes the block function for these types into a module; returns its name.

    Raises: UnsupportedError  C of a type that the product cannot be accumulated in.
    """
    complex_ = element.is_complex
    if (
        complex_ != result.is_complex
        or element.is_float != result.is_float
        or (result.is_float and result.item_bytes < 4)
        or result is ElementType.PRED
    ):
        raise UnsupportedError(f"no matrix product of {element!r} with a result of {result!r}")
    name = f"simple_gemm_{element.value}_{result.value}"
    if module.has(name):
        return name
    part, type_ = element.real, memory_type(result.real)
    size, parts = result.real.item_bytes, 2 if complex_ else 1
    f = Function(module, name, BLOCK_PARAMETERS)
    p = {slot: parameter(f, slot) for slot in (P.K, P.A_ROW, P.A_K, P.B_K, P.B_COL, P.C_ROW, P.C_COL)}

    def load(at: Value) -> list[Value]:
        return [load_as(f, part, type_, f.offset(at, j * part.item_bytes), 1) for j in range(parts)]

    def accumulate(a: list[Value], b: list[Value], c: list[Value]) -> list[Value]:
        if not complex_:
            return [multiply_add(f, a[0], b[0], c[0], target)]
        negative = f.op(type_, f"fneg {a[1]}")
        return [
            multiply_add(f, negative, b[1], multiply_add(f, a[0], b[0], c[0], target), target),
            multiply_add(f, a[1], b[0], multiply_add(f, a[0], b[1], c[1], target), target),
        ]

    def row(r: Value, _: list[Value]) -> None:
        a_row, c_row = f.offset(f["A"], f.mul(r, p[P.A_ROW])), f.offset(f["C"], f.mul(r, p[P.C_ROW]))

        def columns(count: int) -> Callable[[Value, list[Value]], None]:
            def run(n: Value, _: list[Value]) -> None:
                first = f.offset(f["B"], f.mul(n, p[P.B_COL]))

                def step(k: Value, acc: list[Value]) -> list[Value]:
                    a, at = load(f.offset(a_row, f.mul(k, p[P.A_K]))), f.offset(first, f.mul(k, p[P.B_K]))
                    out: list[Value] = []
                    for j in range(count):
                        out += accumulate(a, load(at), acc[j * parts : (j + 1) * parts])
                        at = f.offset(at, p[P.B_COL])
                    return out

                acc = f.loop(0, p[P.K], 1, step, [zero(type_)] * (count * parts))
                at = f.offset(c_row, f.mul(n, p[P.C_COL]))
                for j in range(count):
                    for i in range(parts):
                        f.store(acc[j * parts + i], f.offset(at, i * size), size)
                    at = f.offset(at, p[P.C_COL])

            return run

        main = f.binary("and", f["cols"], i64(-COLUMNS))
        f.loop(0, main, COLUMNS, columns(COLUMNS))
        f.loop(main, f["cols"], 1, columns(1))

    f.loop(0, f["rows"], 1, row)
    some = f.binary("and", f.compare("icmp sgt", f["rows"], i64(0)), f.compare("icmp sgt", f["cols"], i64(0)))
    if_(f, some, lambda: call_epilogue(f, 0, f["rows"], 0, f["cols"]))
    f.ret()
    return module.add(name, f.text())
