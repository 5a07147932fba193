"""Errors of the transcendental kernels against longdouble, in ulp, over the whole range of f32 and f64."""

from __future__ import annotations

import math
import re

import llvmlite.binding as llvm
import numpy as np
import pytest
from element_loop import HOST, PLAIN, Kernels, run
from tfbridge.compiler.cpu.codegen.elementwise import EXACT_FLOAT, ROUNDED_FLOAT
from tfbridge.compiler.cpu.codegen.memory_types import NARROW
from tfbridge.compiler.cpu.codegen.vector_math import ULP
from tfbridge.compiler.cpu.targets.named_target import target_for
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ops.elementwise import ROWS

LONG = np.longdouble
TARGETS = {"host": HOST, "plain": PLAIN}
if HOST.has_scaling:
    TARGETS["avx2"] = target_for(HOST.triple, "x86-64-v3")
TYPES = {"f32": np.float32, "f64": np.float64}


def _erf(x):
    return np.array([math.erf(v) for v in x.astype(np.float64)], LONG)


def _erfc(x):
    return np.array([math.erfc(v) for v in x.astype(np.float64)], LONG)


def _logistic(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, LONG(1)) / (1 + e)


UNARY = {
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": _logistic,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "erf": _erf,
    "erfc": _erfc,
    "sine": np.sin,
    "cosine": np.cos,
    "tan": np.tan,
    "cbrt": np.cbrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
BINARY = {"power": np.power, "atan2": np.arctan2}


def specials(dtype):
    """Zeros, infinities, NaN, ones, the ends of the normal and the denormal range."""
    info = np.finfo(dtype)
    positive = [0.0, np.inf, 1.0, 2.0, 3.0, 0.5, 1.5, info.tiny, info.smallest_subnormal, info.max]
    return np.array([*positive, *(-p for p in positive), np.nan], dtype)


def samples(dtype):
    """Every exponent, the specials, and dense ranges where functions bend."""
    rng = np.random.default_rng(7)
    integer = {np.float32: np.uint32, np.float64: np.uint64}[dtype]
    anywhere = rng.integers(0, np.iinfo(integer).max, 40_000, integer).view(dtype)
    ranges = [rng.uniform(-end, end, 12_000).astype(dtype) for end in (1e-3, 0.5, 1, 2, 10, 100, 1000, 1e5)]
    quadrants = (np.arange(-2000, 2000) * (math.pi / 4)).astype(dtype)
    return np.concatenate([specials(dtype), anywhere, *ranges, quadrants])


def errors(found, exact, dtype):
    """Errors in ulp; infinite where a result is finite and the exact one is not, or the other way round."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(dtype)
        spacing = np.spacing(np.abs(nearest)).astype(LONG)
        error = np.abs(found.astype(LONG) - exact) / spacing
        same = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
    return np.where(np.isfinite(nearest) & np.isfinite(found), error, np.where(same, 0, np.inf))


def check(opcode, type_name, target, arrays, reference):
    """Asserts the stated bound, and the signs of zeros."""
    dtype = TYPES[type_name]
    found = run(target, opcode, arrays, lanes=8 if type_name == "f32" else 4)
    with np.errstate(all="ignore"):
        exact = reference(*(a.astype(LONG) for a in arrays))
    error = errors(found, exact, dtype)
    worst = int(np.argmax(error))
    assert error[worst] <= ULP[opcode, type_name], (
        f"{error[worst]} ulp at {[a[worst] for a in arrays]}: {found[worst]} for {exact[worst]}"
    )
    zero = exact == 0
    assert np.array_equal(np.signbit(found[zero]), np.signbit(exact[zero]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("opcode", UNARY)
def test_unary_error(opcode, type_name, target):
    check(opcode, type_name, TARGETS[target], [samples(TYPES[type_name])], UNARY[opcode])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("opcode", BINARY)
def test_binary_error(opcode, type_name, target):
    dtype = TYPES[type_name]
    x, rng = samples(dtype), np.random.default_rng(8)
    pairs = np.array(np.meshgrid(specials(dtype), specials(dtype))).reshape(2, -1)
    near, exponents = rng.uniform(0.1, 8, 30_000).astype(dtype), rng.uniform(-40, 40, 30_000).astype(dtype)
    signed = rng.uniform(-9, 9, 9000).astype(dtype)
    integers = np.round(rng.uniform(-30, 30, 9000)).astype(dtype)
    left = np.concatenate([pairs[0], x, near, signed])
    right = np.concatenate([pairs[1], x[rng.permutation(x.size)], exponents, integers])
    check(opcode, type_name, TARGETS[target], [left, right], BINARY[opcode])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("type_name", TYPES)
def test_remainder_is_exact(type_name, target):
    dtype = TYPES[type_name]
    x = samples(dtype)
    pairs = np.array(np.meshgrid(specials(dtype), specials(dtype))).reshape(2, -1)
    left = np.concatenate([pairs[0], x])
    right = np.concatenate([pairs[1], x[np.random.default_rng(9).permutation(x.size)]])
    found = run(TARGETS[target], "remainder", [left, right], lanes=4)
    with np.errstate(all="ignore"):
        exact = np.fmod(left, right)
    np.testing.assert_array_equal(found, exact)
    zero = exact == 0
    assert np.array_equal(np.signbit(found[zero]), np.signbit(exact[zero]))


def test_one_lane_is_as_many():
    x = samples(np.float32)[:4000]
    for opcode in UNARY:
        one = run(HOST, opcode, [x], lanes=1)
        for lanes in (5, 8, 32):
            np.testing.assert_array_equal(one, run(HOST, opcode, [x], lanes=lanes), opcode)


def test_every_kernel_states_its_error():
    kernels = {name for name, rule in ROUNDED_FLOAT.items() if rule.__module__.endswith("vector_math")}
    assert kernels - {"remainder"} == {opcode for opcode, _ in ULP} == set(UNARY) | set(BINARY)


# What LLVM calls where a target lacks the instruction: all that f32, f16 and bf16 code could fall into.
LIBRARY = {
    f"{name}{end}"
    for end in ("", "f")
    for name in (
        "fma",
        "fmin",
        "fmax",
        "fminimum",
        "fmaximum",
        "floor",
        "ceil",
        "trunc",
        "rint",
        "nearbyint",
        "round",
        "roundeven",
        "sqrt",
        "fmod",
        "sin",
        "cos",
        "tan",
        "exp",
        "exp2",
        "log",
        "log2",
        "pow",
        "ldexp",
        "copysign",
    )
} | {
    "__extendhfsf2",
    "__truncsfhf2",
    "__truncdfhf2",
    "__truncsfbf2",
    "__gnu_h2f_ieee",
    "__gnu_f2h_ieee",
    "__aeabi_f2h",
    "__aeabi_h2f",
    "__fixsfdi",
    "__floatdisf",
    "__floatdidf",
    "__aeabi_l2d",
    "__aeabi_l2f",
}
MACHINES = {
    "sse2": ("x86_64-unknown-linux-gnu", "x86-64", ""),
    "avx2": ("x86_64-unknown-linux-gnu", "x86-64-v3", ""),
    "aarch64": ("aarch64-unknown-linux-gnu", "generic", ""),
    "armv7": ("armv7a-unknown-linux-gnueabihf", "cortex-a7", "+neon,+vfp4"),
    "riscv64": ("riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d"),
    "wasm": ("wasm32-unknown-unknown", "generic", "+simd128"),
    "wasm-plain": ("wasm32-unknown-unknown", "generic", ""),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_no_library_is_called(machine):
    """f32 and narrower: everything is inline on every kind of machine."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple, cpu, features = MACHINES[machine]
    kernels = Kernels(target_for(triple, cpu, features))
    for opcode in EXACT_FLOAT | ROUNDED_FLOAT:
        kernels.add(
            opcode,
            [ElementType.F32] * ROWS[opcode].arity,
            ElementType.PRED if opcode == "is-finite" else ElementType.F32,
            4,
        )
    for narrow in NARROW:
        kernels.add("add", [narrow, narrow], narrow, 4)
        kernels.add("convert", [ElementType.F64], narrow, 4)
    compiler = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=1)
    assembly = compiler.emit_assembly(llvm.parse_assembly(kernels.module.text()))
    # Behind the mnemonics, some of which are named as the functions are.
    operands = [line.split(None, 1)[1] for line in assembly.splitlines() if len(line.split()) > 1]
    assert not LIBRARY & set(re.findall(r"[A-Za-z_]\w*", " ".join(operands)))
