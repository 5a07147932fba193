"""The entry for sizes that the caller tells: what it computes, refuses and calls."""

from __future__ import annotations

import dataclasses
import functools

import pytest
from tfbridge.compiler import parse_hlo
from tfbridge.compiler.cpu.entry.sizes_entry import emit_sizes_entry
from tfbridge.compiler.cpu.objects.object_emitter import emit_object
from tfbridge.compiler.ir.sized_module import SizedModule, SizeVariant
from tfbridge.runtime.code.artifact import Artifact, BufferSpec
from tfbridge.runtime.code.executable import Executable
from tfbridge.runtime.code.symbolic_sizes import SymbolicSizes
from tfbridge.runtime.errors import ExecutionError
from tfbridge.runtime.llvm.ir_builder import ModuleText
from tfbridge.runtime.llvm.target import host
from tfbridge.runtime.size_bounds import bounds
from tfbridge.runtime.sizes import Assumptions, Size, Valuation, maximum, minimum

MODULE = parse_hlo("HloModule m ENTRY e { ROOT c = s64[] constant(0) }")
MOST = {"n": 50, "m": 12}


def sizes() -> tuple[Assumptions, list[Size]]:
    a = Assumptions()
    n, m = a.symbol("n", 37), a.symbol("m", 6, 0)
    each = [
        n,
        7 * n * m - 3,
        (n - 40) // 7,
        (n - 40) // (m + 1),
        -((m - 9) // 4) * n,
        maximum([n - 20, m, 3]),
        minimum([n, 5 * m]) // 3,
        (n * n - m) // (m - 20),
        (n - 30) % 8,
    ]
    return a, [size for size in each if isinstance(size, Size)]


# Copies the table that the context points to into the result.
COPY = """define internal i32 @{name}(ptr %context, ptr %args, ptr %results, ptr %temp) {{
  %at = getelementptr i8, ptr %context, i64 88
  %table = load ptr, ptr %at
  %to = load ptr, ptr %results
  %copied = call ptr @memcpy(ptr %to, ptr %table, i64 {bytes})
  ret i32 0
}}"""


@functools.cache
def linked() -> tuple[Executable, list[Size], Assumptions]:
    """An entry of three variants: for m == 0 nothing, for n == 1 a table of m alone, and for the others all sizes."""
    assumptions, table = sizes()
    other = Assumptions()
    alone = (other.symbol("m", 6, 2),)
    general = SizeVariant({}, SymbolicSizes((), (), 0, tuple(table), assumptions), MODULE)
    one = SizeVariant({"n": 1}, SymbolicSizes((), (), 0, alone, other), MODULE)
    none = SizeVariant({"m": 0}, SymbolicSizes((), (), 0, (), Assumptions()), None)
    module = SizedModule({"n": 1, "m": 0}, MOST, [none, general, one])
    text = ModuleText(host())
    text.declare("memcpy", "ptr", ["ptr", "ptr", "i64"])
    text.add("all", COPY.format(name="all", bytes=8 * len(table)))
    text.add("one", COPY.format(name="one", bytes=8))
    emit_sizes_entry(text, "entry", module, ["", "all", "one"])
    result = BufferSpec("int64", (len(table),), 8 * len(table))
    temp = max(v.table_bytes for v in module.variants)
    artifact = Artifact(emit_object(text.text(), host()), "entry", (), (result,), temp, sizes=(0, 0))
    return Executable(artifact), table, assumptions


def run(n: int, m: int) -> list[int]:
    code, _, _ = linked()
    artifact = dataclasses.replace(code.artifact, sizes=(m, n))
    (result,) = Executable(artifact, code=code).execute([])
    return result.tolist()


def test_sizes_are_those_of_python() -> None:
    _, table, assumptions = linked()
    intervals = {"n": (2, MOST["n"]), "m": (1, MOST["m"])}
    limits = [bounds(size, intervals) for size in table]
    for n in range(2, MOST["n"] + 1):
        for m in range(1, MOST["m"] + 1):
            values = {"n": n, "m": m}
            wanted = list(map(Valuation(values), table))
            assert all(low <= value <= high for value, (low, high) in zip(wanted, limits))
            if assumptions.hold(values):
                assert run(n, m) == wanted, values


def test_variants_are_taken_in_their_order() -> None:
    assert run(1, 7)[0] == 7
    run(5, 0), run(1, 0)  # nothing is called, nothing written


@pytest.mark.parametrize(
    "n, m, message",
    [
        (51, 3, "n is not between 0 and 50"),
        (-1, 3, "n is not between 0 and 50"),
        (3, -(2**62), "m is not between 0 and 12"),
        (0, 3, "takes no such sizes"),
        (1, 1, "takes no such sizes"),
    ],
)
def test_other_sizes_are_refused(n: int, m: int, message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        run(n, m)
