"""Lookups of bytes in tables: code for processors with and without each kind of shuffle, and the tables that
`tabulate` makes, bit for bit against the evaluator and against the code without tables."""

from __future__ import annotations

import dataclasses
import itertools

import llvmlite.binding as llvm
import numpy as np
import pytest
from tfbridge.compiler.cpu.codegen.table_lookup import lookup_cycles
from tfbridge.compiler.cpu.compile import compile_module
from tfbridge.compiler.cpu.targets.named_target import target_for
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.ir.module import Module
from tfbridge.compiler.options import Options
from tfbridge.compiler.passes.pipeline import CPU_PASSES, run_pipeline
from tfbridge.runtime.code.executable import Executable
from tfbridge.runtime.llvm.target import Target, host

TYPES = list(itertools.product(("u8", "s8"), repeat=2))
# By level of x86-64: what looks bytes up, and a feature that code for it needs.
LEVELS = {
    "x86-64": ("", "sse2"),
    "x86-64-v2": ("pshufb16", "ssse3"),
    "x86-64-v3": ("pshufb32", "avx2"),
    "skylake-avx512": ("pshufb64", "avx512bw"),
    "icelake-client": ("vpermi2b", "avx512vbmi"),
}
SIZES = (0, 1, 7, 16, 31, 64, 127, 256, 1009)
WITH = Options(threads=1)
WITHOUT = Options(threads=1, disabled_passes=frozenset({"tabulate"}))


def target_of(level: str) -> Target:
    """A level of x86-64 with the calling convention of this process; skips where its code does not run here."""
    if not host().triple.startswith("x86_64"):
        pytest.skip("this processor is no x86-64")
    if not llvm.get_host_cpu_features().get(LEVELS[level][1]):
        pytest.skip(f"this processor has no {LEVELS[level][1]}")
    return dataclasses.replace(target_for(host().triple, level), threads=1)


def run(module: Module, target: Target, *given: np.ndarray, options: Options = WITH) -> list:
    result = Executable(compile_module(module, options, target)).execute(list(given))
    return [np.asarray(r) for r in result] if isinstance(result, (list, tuple)) else [np.asarray(result)]


def every_byte(kind: str, size: int) -> np.ndarray:
    """All bytes in some order, repeated."""
    numbers = np.random.default_rng(0).permutation(256).astype(np.uint8)
    return np.resize(numbers, size).view({"u8": np.uint8, "s8": np.int8}[kind])


def lookup(old: str, new: str, size: int) -> Module:
    """The lookup alone, and one between f32."""
    table = np.random.default_rng(1).integers(0, 256, 256).astype(np.uint8)
    entries = ",".join(map(str, table.view({"u8": np.uint8, "s8": np.int8}[new])))
    return parse_hlo(f"""HloModule m
ENTRY e {{
  q = {old}[{size}] parameter(0)
  x = f32[{size}] parameter(1)
  a = {new}[{size}] table-lookup(q), table={{{entries}}}
  b = {old}[{size}] convert(x)
  c = {new}[{size}] table-lookup(b), table={{{entries}}}
  d = f32[{size}] convert(c)
  f = f32[{size}] multiply(d, x)
  ROOT t = ({new}[{size}], f32[{size}]) tuple(a, f)
}}""")


def swish(old: str, new: str, size: str, name: str = "logistic", hints: str = "") -> Module:
    """What quantisation makes of x * f(x), where nothing is negative rounded by a half, else to even."""
    rounded = (
        f"h = f32[] constant(7.5)\n hs = f32[{size}] broadcast(h), dimensions={{}}\n r = f32[{size}] add(k, hs)"
        if new == "u8"
        else f"r = f32[{size}] round-nearest-even(k)"
    )
    return parse_hlo(f"""HloModule m{hints}
ENTRY e {{
 q = {old}[{size}] parameter(0)
 z = f32[] constant({90 if old == "u8" else -7})
 zs = f32[{size}] broadcast(z), dimensions={{}}
 s = f32[] constant(0.0497)
 ss = f32[{size}] broadcast(s), dimensions={{}}
 x = f32[{size}] convert(q)
 y = f32[{size}] subtract(x, zs)
 v = f32[{size}] multiply(y, ss)
 w = f32[{size}] {name}(v)
 t = f32[{size}] multiply(v, w)
 o = f32[] constant(25.37)
 os = f32[{size}] broadcast(o), dimensions={{}}
 k = f32[{size}] multiply(t, os)
 {rounded}
 ROOT u = {new}[{size}] convert(r)
}}""")


def test_what_a_target_has() -> None:
    for level, (shuffles, _) in LEVELS.items():
        assert target_for("x86_64-linux-gnu", level).byte_shuffles == shuffles
    assert target_for("aarch64-linux-gnu").byte_shuffles == "tbl"
    assert target_for("thumbv8.1m.main-none-eabihf", "cortex-m55").byte_shuffles == "mve"
    assert target_for("thumbv7em-none-eabihf", "cortex-m4").byte_shuffles == ""
    assert host().byte_shuffles == target_for(host().triple, host().cpu, host().features).byte_shuffles
    fast, slow = (target_for("x86_64-linux-gnu", level) for level in ("icelake-client", "x86-64-v3"))
    assert lookup_cycles(fast) < lookup_cycles(slow)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("old", "new"), TYPES)
def test_lookups(level: str, old: str, new: str) -> None:
    target = target_of(level)
    for size in SIZES:
        module, q = lookup(old, new, size), every_byte(old, size)
        x = q.astype(np.float32) * np.float32(1.01)
        for found, wanted in zip(run(module, target, q, x), evaluate(module, [q, x]), strict=True):
            np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("old", "new"), TYPES)
def test_tables_are_what_they_replace(level: str, old: str, new: str) -> None:
    target = target_of(level)
    for size in (1, 256, 1009):
        for name in ("logistic", "tanh"):
            module, q = swish(old, new, str(size), name), every_byte(old, size)
            (found,), (without,) = run(module, target, q), run(module, target, q, options=WITHOUT)
            np.testing.assert_array_equal(found, np.asarray(evaluate(module, [q])), strict=True)
            np.testing.assert_array_equal(found, without, strict=True)
            assert size == 1 or np.unique(found).size > 20


def test_unaligned_arguments() -> None:
    target, module = host(1), lookup("u8", "s8", 127)
    for shift in (1, 3, 17):
        q = every_byte("u8", 127 + shift)[shift:]
        x = np.zeros(127, np.float32)
        np.testing.assert_array_equal(run(module, target, q, x)[0], evaluate(module, [q, x])[0])


def test_special_values_inside() -> None:
    """A quotient by zero, logarithms of what is negative: NaN and infinity become integers as conversions say."""
    for new in ("u8", "s8"):
        module = parse_hlo(f"""HloModule m
ENTRY e {{
  q = s8[300] parameter(0)
  x = f32[300] convert(q)
  l = f32[300] log(x)
  d = f32[300] divide(x, l)
  p = f32[300] power(x, d)
  a = f32[300] divide(p, x)
  ROOT r = {new}[300] convert(a)
}}""")
        q = every_byte("s8", 300)
        with np.errstate(all="ignore"):
            wanted = np.asarray(evaluate(module, [q]))
        np.testing.assert_array_equal(run(module, host(1), q)[0], wanted)
        np.testing.assert_array_equal(run(module, host(1), q, options=WITHOUT)[0], wanted)


@pytest.mark.parametrize("level", ["x86-64-v3", "icelake-client"])
def test_sizes_that_change(level: str) -> None:
    target = target_of(level)
    module = swish("u8", "s8", "n", hints=", sizes={n=300}")
    assert "table-lookup" in str(run_pipeline(module, Options(), passes=CPU_PASSES))
    code = compile_module(module, WITH, target)
    assert code.symbolic is not None and not code.symbolic.assumptions.guards
    executable = Executable(code)
    for size in (2, 3, 31, 64, 127, 256, 1009):
        q = every_byte("u8", size)
        bound = executable.bound([q.shape])
        assert not isinstance(bound, str), bound
        (found,) = bound.execute([q])
        np.testing.assert_array_equal(found, np.asarray(evaluate(module, [q])), strict=True)
