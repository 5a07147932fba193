"""Matrix products of every shape class, type and stride against NumPy."""

from __future__ import annotations

import dataclasses
import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from block_kernels import TARGET, counting_epilogue, run_kernel, widths_of_last_panels
from guarded import guarded_copy
from tfbridge.compiler.analysis.gemm_problem import GemmProblem
from tfbridge.compiler.cpu.gemm.blocking import SHORTEST_STREAM_BYTES, plan_gemm
from tfbridge.compiler.cpu.gemm.driver import P
from tfbridge.compiler.cpu.gemm.emit import (
    KernelInfo,
    emit_gemm,
    ends_in_tiles,
    pack_b_reference,
    packed_b_layout,
)
from tfbridge.compiler.cpu.gemm.microkernel import tile_heights
from tfbridge.compiler.cpu.gemm.tasks import PARALLEL_US, microseconds_of
from tfbridge.compiler.cpu.gemm.tile_end import NONE, TileEnd
from tfbridge.compiler.cpu.gemm.uses import Part
from tfbridge.compiler.cpu.objects.library_functions import build_library, emit_library
from tfbridge.compiler.cpu.objects.object_emitter import emit_object
from tfbridge.compiler.cpu.targets.named_target import target_for
from tfbridge.compiler.errors import UnsupportedError
from tfbridge.compiler.ir.element_types import ElementType, element_type_of
from tfbridge.runtime.llvm.addressing import Int, Ptr
from tfbridge.runtime.llvm.ir_builder import ModuleText
from tfbridge.runtime.llvm.target import Target

E = ElementType


def problem_of(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> GemmProblem:
    """The problem of views a (batch..., m, k), b (batch..., k, n), c (batch..., m, n) of one batch rank."""

    def strides(x: np.ndarray) -> tuple[int, ...]:
        return tuple(s // x.itemsize for s in x.strides)

    return GemmProblem(
        element_type_of(a.dtype),
        element_type_of(c.dtype),
        c.shape[:-2],
        c.shape[-2],
        c.shape[-1],
        a.shape[-1],
        strides(a),
        strides(b),
        strides(c),
    )


def multiply(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, target: Target = TARGET, **options: object
) -> KernelInfo:
    module = ModuleText(target)
    info = emit_gemm(module, target, problem_of(a, b, c), **options)
    run_kernel(info, module, [a, b, c])
    return info


def random(shape: tuple[int, ...], dtype: object = np.float32, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng([seed, *shape])
    dtype = np.dtype(dtype)
    if dtype.kind in "iub":
        return generator.integers(0 if dtype.kind != "i" else -9, 10, shape).astype(dtype)
    if dtype.kind == "c":
        return (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def laid_out(x: np.ndarray, order: str) -> np.ndarray:
    """x in other memory: `n` row-major, `t` transposed, `s` every second element, `r` reversed rows."""
    if order == "t":
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if order == "s":
        wide = np.zeros((*x.shape[:-1], x.shape[-1] * 2), x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    if order == "r":
        return np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :]
    return np.ascontiguousarray(x)


def check(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    wide = {"c": np.complex128, "i": np.int64, "u": np.int64, "b": np.int64}.get(a.dtype.kind, np.float64)
    exact = a.astype(wide) @ b.astype(wide)
    if c.dtype.kind in "iu":
        np.testing.assert_array_equal(c, exact.astype(c.dtype))
        return
    # Rounding of a sum of k products, each of the magnitude of the sum of absolute values.
    scale = np.abs(a.astype(wide)) @ np.abs(b.astype(wide)) + 1e-30
    eps = np.finfo(c.dtype).eps
    assert np.all(np.abs(c - exact) <= scale * eps * (4 + math.sqrt(a.shape[-1])))


SHAPES = [
    (1, 1, 1),
    (5, 7, 3),
    (16, 16, 16),
    (6, 16, 1),
    (13, 24, 144),
    (49, 65, 31),
    (3, 10, 512),
    (31, 1, 77),
    (1, 77, 31),
    (97, 101, 103),
    (128, 128, 64),
    (7, 17, 2000),
    (130, 300, 1030),
    (1, 1000, 700),
    (300, 1, 129),
    (27, 27, 32),
    (33, 50, 16),
]


@pytest.mark.parametrize("m,n,k", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shapes(m: int, n: int, k: int, dtype: object) -> None:
    a, b, c = random((m, k), dtype), random((k, n), dtype, 1), np.full((m, n), np.nan, dtype)
    multiply(a, b, c)
    check(c, a, b)


@pytest.mark.parametrize(
    "order",
    [
        "nnn",
        "ntn",
        "tnn",
        "ttn",
        "snn",
        "nsn",
        "rnn",
        "nrn",
        "nnt",
        "tnt",
        "ntt",
        "nns",
        "sts",
        "trt",
        "srt",
        "rts",
    ],
)
@pytest.mark.parametrize("m,n,k", [(37, 45, 29), (1, 45, 29), (37, 1, 29)])
def test_strides(order: str, m: int, n: int, k: int) -> None:
    a, b, c = (
        laid_out(random((m, k)), order[0]),
        laid_out(random((k, n), seed=1), order[1]),
        laid_out(np.full((m, n), np.nan, np.float32), order[2]),
    )
    multiply(a, b, c)
    check(c, a, b)


def test_batch_broadcast() -> None:
    a, b = random((3, 1, 20, 33)), random((1, 4, 33, 18), seed=1)
    views = np.broadcast_to(a, (3, 4, 20, 33)), np.broadcast_to(b, (3, 4, 33, 18))
    c = np.full((3, 4, 20, 18), np.nan, np.float32)
    multiply(*views, c)
    check(c, *views)


@pytest.mark.parametrize(
    "m,n,k,batch", [(33, 40, 0, ()), (0, 4, 4, ()), (4, 0, 4, ()), (4, 4, 4, (0,)), (1, 9, 0, (2,))]
)
def test_empty(m: int, n: int, k: int, batch: tuple[int, ...]) -> None:
    c = np.full((*batch, m, n), np.nan, np.float32)
    info = multiply(random((*batch, m, k)), random((*batch, k, n)), c)
    assert np.all(c == 0)
    assert info.tasks == 0 or c.size


@pytest.mark.parametrize(
    "dtype,result",
    [
        (np.float16, "f32"),
        (np.int8, "s32"),
        (np.uint8, "s32"),
        (np.int32, "s32"),
        (np.uint16, "u32"),
        (np.int64, "s64"),
        (np.int8, "s8"),
        (np.complex64, "c64"),
        (np.complex128, "c128"),
        (np.bool_, "s32"),
        (np.float32, "f64"),
        (np.int16, "s64"),
    ],
)
@pytest.mark.parametrize("m,n,k", [(19, 21, 40), (1, 21, 40), (40, 130, 600)])
def test_types(dtype: object, result: str, m: int, n: int, k: int) -> None:
    for order in "nt":
        a, b = laid_out(random((m, k), dtype), order), laid_out(random((k, n), dtype, 1), order)
        c = np.zeros((m, n), ElementType(result).dtype)
        multiply(a, b, c)
        check(c, a, b)


@pytest.mark.parametrize(
    "name,result",
    [
        ("bfloat16", "f32"),
        ("float8_e4m3fn", "f32"),
        ("float8_e5m2", "f64"),
        ("int4", "s32"),
        ("uint4", "u64"),
    ],
)
@pytest.mark.parametrize("m,n,k", [(19, 21, 40), (1, 21, 40)])
def test_narrow_types(name: str, result: str, m: int, n: int, k: int) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    wide = np.int64 if "int" in name else np.float64
    low = 0 if name == "uint4" else -8
    generator = np.random.default_rng(0)
    for order in "nt":
        a, b = (
            laid_out(generator.integers(low, 8, shape).astype(dtype), order) for shape in ((m, k), (k, n))
        )
        c = np.zeros((m, n), ElementType(result).dtype)
        multiply(a, b, c)
        np.testing.assert_array_equal(c, (a.astype(wide) @ b.astype(wide)).astype(c.dtype))


def bias_relu(buffers: Ptr, element: Int, column: Int) -> None:
    """C = max(C + bias, 0): the bias is in buffer 5."""
    c, bias = (buffers.at(number, "ptr").load_ptr() for number in (2, 5))
    x = c.at(element, "float").load("float") + bias.at(column, "float").load("float")
    c.at(element, "float").store((x > 0).choose(x, 0))


@pytest.mark.parametrize(
    "m,n,k,batch",
    [
        (50, 70, 30, 2),
        (1, 200, 900, 1),
        (130, 1, 50, 1),
        (200, 700, 1100, 1),
        (300, 260, 64, 1),
        (3, 5, 0, 1),
        (1000, 40, 400, 1),
        (1, 1021, 700, 1),
        (3, 509, 900, 1),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_epilogue_runs_once_per_element(m: int, n: int, k: int, batch: int, packed: bool) -> None:
    a, b, bias = random((batch, m, k)), random((batch, k, n), seed=1), random((n,), seed=2)
    c, counts = np.full((batch, m, n), np.nan, np.float32), np.zeros((batch, m, n), np.int32)
    module, problem = ModuleText(TARGET), problem_of(a, b, c)
    layout = packed_b_layout(problem, TARGET) if packed else None
    operand = b
    if layout:
        operand = pack_b_reference(b, layout)
        assert operand.shape == layout.shape
    epilogue = counting_epilogue(module, (batch, m, n), bias_relu)
    info = emit_gemm(module, TARGET, problem, epilogue, b_packed=layout is not None)
    run_kernel(info, module, [a, operand, c, counts, bias])
    assert np.all(counts == 1)
    np.testing.assert_allclose(c, np.maximum(a.astype(np.float64) @ b + bias, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("m,n,k", [(1, 9, 700), (9, 1, 700), (1, 1, 300), (5, 7, 3), (70, 131, 1500)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.complex64])
def test_sums_up_to_a_size_known_at_run_time(m: int, n: int, k: int, dtype: object) -> None:
    """The size is the largest of several; what lies behind it is not read, even where all of it would be one stream."""
    for orders in itertools.product("nt", repeat=2):
        for sizes in ((0, 0), (1, 0), (k // 2, k // 3), (k - 1, k), (-3, k + 5)):
            a, b = (
                laid_out(random(d, dtype, s), o) for s, (d, o) in enumerate(zip(((m, k), (k, n)), orders))
            )
            depth = min(max(0, *sizes), k)
            a[:, depth:] = b[depth:] = np.nan
            c = np.full((m, n), np.nan, np.float32 if dtype == np.float16 else dtype)
            counts = [np.array(size, np.int32) for size in sizes]
            module, problem = ModuleText(TARGET), problem_of(a, b, c)
            info = emit_gemm(module, TARGET, problem, depth_sizes=(4, 5))
            run_kernel(info, module, [a, b, c, *counts])
            check(c, a[:, :depth], b[:depth])


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize(
    "m,n,k", [(1, 13, 7), (13, 1, 7), (7, 13, 9), (65, 61, 131), (2, 100, 33), (5, 24, 8)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.float16])
def test_guard_pages(at_end: bool, m: int, n: int, k: int, dtype: object) -> None:
    kind = {"float32": np.float32, "float64": np.float64, "int16": np.int32, "float16": np.float32}[
        np.dtype(dtype).name
    ]
    for transposed in range(4):
        a, b = (
            random((k, m) if transposed & 1 else (m, k), dtype),
            random((n, k) if transposed & 2 else (k, n), dtype, 1),
        )
        a, b, c = (guarded_copy(x, at_end) for x in (a, b, np.zeros((m, n), kind)))
        a, b = a.T if transposed & 1 else a, b.T if transposed & 2 else b
        multiply(a, b, c)
        check(c, a, b)


@pytest.mark.parametrize(
    "target",
    [
        Target("x86_64-unknown-linux-gnu", "x86-64", "", 16, 16, False),
        Target(TARGET.triple, TARGET.cpu, "", 4, 16, False),
    ],
)
@pytest.mark.parametrize("m,n,k", [(23, 29, 31), (1, 29, 31), (29, 1, 31)])
def test_embedded_in_other_targets(target: Target, m: int, n: int, k: int) -> None:
    for order in "nt":
        a, b, c = random((m, k)), laid_out(random((k, n), seed=1), order), np.full((m, n), np.nan, np.float32)
        module = ModuleText(target, embed_libraries=True)
        info = emit_gemm(module, target, problem_of(a, b, c))
        module.finish()
        assert not module.libraries
        run_kernel(info, module, [a, b, c])
        check(c, a, b)


@pytest.mark.parametrize("shapes", [*([shape] for shape in SHAPES), SHAPES], ids=str)
def test_embedded_functions_have_what_their_products_use(shapes: list[tuple[int, int, int]]) -> None:
    module, products = ModuleText(TARGET, embed_libraries=True), []
    for m, n, k in shapes:
        a, b, c = random((m, k)), random((k, n), seed=1), np.full((m, n), np.nan, np.float32)
        products.append((emit_gemm(module, TARGET, problem_of(a, b, c)), [a, b, c]))
    for info, (a, b, c) in products:
        run_kernel(info, module, [a, b, c])
        check(c, a, b)


def test_embedded_functions_have_no_more() -> None:
    def size_of(n: int, k: int, *others: int) -> int:
        module = ModuleText(target_for("x86_64-linux-gnu", "x86-64-v3"), embed_libraries=True)
        for columns in (n, *others):
            a, b, c = random((24, k)), random((k, columns)), np.zeros((24, columns), np.float32)
            emit_gemm(module, module.target, problem_of(a, b, c))
        assert ("@tfb_copy_f32(" in module.text()) == any(columns % 8 for columns in (n, *others))
        return len(emit_object(module.text().replace("define internal", "define"), module.target))

    small = size_of(96, 64)
    assert small < size_of(96, 63) < size_of(97, 63) and small < size_of(96, 4000)
    assert size_of(97, 63) <= size_of(97, 63, 96)


def test_unsupported_result() -> None:
    a = np.zeros((2, 2), np.float32)
    with pytest.raises(UnsupportedError, match="f32 with a result of s32"):
        emit_gemm(ModuleText(TARGET), TARGET, problem_of(a, a, np.zeros((2, 2), np.int32)))


@pytest.mark.parametrize("mr", [1, 4, 6, 12])
def test_tile_heights(mr: int) -> None:
    for count in range(1, 60):
        tiles = -(-count // mr)
        heights = {count // tiles + (number < count % tiles) for number in range(tiles)}
        assert tile_heights((0, count), mr) == heights and max(heights) <= mr


@pytest.mark.parametrize("triple,cpu", [("x86_64-linux-gnu", "x86-64-v3"), ("x86_64-linux-gnu", "x86-64-v4")])
def test_only_the_micro_kernels_of_a_shape_are_used(triple: str, cpu: str) -> None:
    target = target_for(triple, cpu)
    problem = GemmProblem(E.F32, E.F32, (), 32, 512, 300, (300, 1), (512, 1), (512, 1))
    for packed in (False, True):
        module, packs = ModuleText(target), Part.PACK_B in plan_gemm(problem, target, packed).parts
        info = emit_gemm(module, target, problem, b_packed=packed)
        microkernels = [name for name in module.libraries if "x" in name.rpartition("_")[2]]
        assert 1 <= len(microkernels) <= 4 and info.flops
        assert len(module.libraries) == len(microkernels) + 1 + packs
        assert all(name in module.text() for name in microkernels)


def test_library_name() -> None:
    with pytest.raises(UnsupportedError, match="no kernel library 'gemm_x'"):
        emit_library(TARGET, "gemm_x")


@pytest.mark.parametrize(
    "triple,cpu,features",
    [
        ("aarch64-linux-gnu", "cortex-a53", ""),
        ("riscv64-linux-gnu", "", "+m,+f,+d"),
    ],
)
def test_library_compiles_for_other_targets(triple: str, cpu: str, features: str) -> None:
    target = target_for(triple, cpu, features)
    data, exports = build_library(target, "gemm_f32")
    assert data[:4] == b"\x7fELF"
    assert {
        "tfb_gemm_f32_1",
        "tfb_gemv_f32_t",
        "tfb_copy_f32",
        "tfb_rows_bf16_f32",
        "tfb_panels_f32_f32_2",
        "tfb_columns_f32_f32_2",
    } <= set(exports)


@pytest.mark.parametrize("m,n,k", [(3, 3, 3), (4, 4, 4), (1, 7, 5), (6, 1, 9), (2, 11, 1), (5, 5, 5)])
@pytest.mark.parametrize("order_a,order_b,order_c", ["nnn", "ttn", "snt", "ntr", "rss"])
def test_tiny(m: int, n: int, k: int, order_a: str, order_b: str, order_c: str) -> None:
    for number, dtype in enumerate((np.float32, np.float64, np.int8, ml_dtypes.bfloat16)):
        result = {2: np.int32, 3: np.float32}.get(number, dtype)
        a = laid_out(random((2, 5, m, k), dtype), order_a)
        b = laid_out(random((2, 5, k, n), dtype, 1), order_b)
        c = laid_out(np.zeros((2, 5, m, n), result), order_c)
        info = multiply(a, b, c)
        assert info.tasks == 10
        check(c, a, b)


@pytest.mark.parametrize("m,n,k", [(1, 70, 133), (1, 5, 3000), (1, 1000, 17)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("order_b", ["n", "t"])
def test_one_row_of_another_type(m: int, n: int, k: int, dtype: object, order_b: str) -> None:
    result = np.int32 if np.dtype(dtype).kind in "iu" else np.float32
    a, b = random((m, k), dtype), laid_out(random((k, n), dtype, 1), order_b)
    c = np.zeros((m, n), result)
    module = ModuleText(TARGET)
    info = emit_gemm(module, TARGET, problem_of(a, b, c))
    assert [name for name in module.libraries if name.startswith("tfb_gemv_")]
    run_kernel(info, module, [a, b, c])
    check(c, a, b)


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("n,k", [(67, 131), (131, 67), (300, 20), (64, 333), (600, 3), (3, 600)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, ml_dtypes.bfloat16])
def test_matrix_from_memory(at_end: bool, n: int, k: int, dtype: object) -> None:
    """A matrix without gaps that outgrows the caches is read row by row, or column by column."""
    target = dataclasses.replace(TARGET, threads=1, l2_bytes=1 << 12)
    result = np.float32 if dtype is ml_dtypes.bfloat16 else dtype
    for transposed in (False, True):
        a, b, c = (
            guarded_copy(x, at_end)
            for x in (
                random((1, k), dtype),
                random((n, k) if transposed else (k, n), dtype, 1),
                np.zeros((1, n), result),
            )
        )
        b = b.T if transposed else b
        blocking = plan_gemm(problem_of(a, b, c), target, False)
        length = (k if transposed else n) * b.itemsize
        assert blocking.parameters[P.KC] == (length >= SHORTEST_STREAM_BYTES)
        multiply(a, b, c, target)
        check(c, a, b)


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.parametrize(
    "m,n,k", [(1, 1021, 499), (1, 128, 2049), (1, 70, 6001), (3, 67, 5001), (2, 515, 300)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, ml_dtypes.bfloat16])
def test_rows_times_matrix_divided_by_depth(
    at_end: bool, threads: int, m: int, n: int, k: int, dtype: object
) -> None:
    """Each thread sums some rows of the matrix."""
    target = dataclasses.replace(TARGET, threads=threads, l2_bytes=1 << 12)
    a, b, c = (
        guarded_copy(x, at_end)
        for x in (
            random((m, k), dtype),
            random((k, n), dtype, 1),
            np.zeros((m, n), np.float32 if dtype is ml_dtypes.bfloat16 else dtype),
        )
    )
    problem = problem_of(a, b, c)
    blocking = plan_gemm(problem, target, False)
    if not blocking.task_depth:
        assert microseconds_of(problem, target) < PARALLEL_US or m > 1 and dtype is ml_dtypes.bfloat16
        return
    module = ModuleText(target)
    info = emit_gemm(module, target, problem)
    assert info.scratch_bytes * threads >= (math.ceil(k / blocking.task_depth) - 1) * c.nbytes
    run_kernel(info, module, [a, b, c], threads)
    check(c, a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_every_width_of_the_last_panel(dtype: object) -> None:
    """One panel and a part of one, in a single sum and in several that are added up."""
    lanes = TARGET.lanes(np.dtype(dtype).itemsize * 8)
    for n in (*range(1, 3 * lanes + 2), 5 * lanes + 3):
        for k, transposed in ((9, False), (32, True), (1100, False)):
            b = random((n, k) if transposed else (k, n), dtype, 1)
            a, b, c = (guarded_copy(x, True) for x in (random((5, k), dtype), b, np.zeros((5, n), dtype)))
            b = b.T if transposed else b
            multiply(a, b, c)
            check(c, a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m,k", [(5, 9), (37, 9), (19, 2200)])
def test_every_width_of_the_last_packed_panel(m: int, k: int, dtype: object) -> None:
    """B packed beforehand: whole panels and a part of one, of whole vectors and of others, in one sum and in several
    that are added up; nothing is read or written beyond A, B and C."""
    lanes = TARGET.lanes(np.dtype(dtype).itemsize * 8)
    for n in sorted({4, *widths_of_last_panels(lanes), 7 * lanes}):
        if n < 4:  # two lanes: too few columns to pack
            continue
        a, b = random((m, k), dtype), random((k, n), dtype, 1)
        problem = problem_of(a, b, np.zeros((m, n), dtype))
        layout = packed_b_layout(problem, TARGET)
        assert layout is not None
        arrays = [
            guarded_copy(x, True) for x in (a, pack_b_reference(b, layout), np.full((m, n), np.nan, dtype))
        ]
        module = ModuleText(TARGET)
        run_kernel(emit_gemm(module, TARGET, problem, b_packed=True), module, arrays)
        check(arrays[2], a, b)


@pytest.mark.parametrize("has_factors", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_end_of_tiles(dtype: object, packed: bool, has_factors: bool) -> None:
    """A row of factors, one that is added, and limits: in one sum and in several that are added up, for columns that
    fill panels and others; a NaN stays, and no row is read beyond its end."""
    lanes = TARGET.lanes(np.dtype(dtype).itemsize * 8)
    sizes = itertools.product((2, 61), (7, 2200), (2 * lanes, *widths_of_last_panels(lanes), 7 * lanes + 1))
    seen = 0
    for number, (m, k, n) in enumerate(sizes):
        a, b = random((2, m, k), dtype), random((1, k, n), dtype, 1)
        a[0, 0, 0] = np.nan
        shared = np.broadcast_to(b, (2, k, n))
        c, plain = (guarded_copy(np.full((2, m, n), np.nan, dtype), True) for _ in range(2))
        problem = problem_of(a, shared, c)
        layout = packed_b_layout(problem, TARGET) if packed else None
        if not ends_in_tiles(TARGET, problem, layout is not None, False):
            continue
        seen += 1
        operand = pack_b_reference(b, layout) if layout else shared
        low, high = ((0.0, math.inf), (-math.inf, math.inf), (-0.5, 0.75))[number % 3]
        end = TileEnd(5 if has_factors else NONE, 4, low, high)
        factors, added = (guarded_copy(random((n,), dtype, 2 + s), True) for s in range(2))
        for result, options, more in ((c, {"end": end}, [added, factors]), (plain, {}, [])):
            module = ModuleText(TARGET)
            info = emit_gemm(module, TARGET, problem, b_packed=layout is not None, **options)
            run_kernel(info, module, [a, operand, result, *more])
        expected = (plain * factors if has_factors else plain) + added
        np.testing.assert_array_equal(c, np.minimum(np.maximum(expected, low), high).astype(dtype))
    assert seen > 8


def test_no_columns_are_copied() -> None:
    """A copy of none would write before its destination. Of two products that share the driver one has a narrow panel,
    and all end their tiles."""

    def operands(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return random((24, 16)), random((16, n), seed=1), np.full((24, n), np.nan, np.float32)

    lanes = TARGET.lanes(32)
    plans = {n: plan_gemm(problem_of(*operands(n)), TARGET, True) for n in range(lanes + 1, 16 * lanes)}
    wide, narrow = next(
        (n, m)
        for n, m in itertools.product(plans, plans)
        if plans[n].function == plans[m].function and Part.TAIL in plans[m].parts - plans[n].parts
    )
    least, module, products = np.full(1, 1000, np.int64), ModuleText(TARGET, embed_libraries=True), []
    for n in (wide, narrow):
        a, b, c = operands(n)
        problem, end = problem_of(a, b, c), TileEnd(NONE, 4, -math.inf, math.inf)
        layout = packed_b_layout(problem, TARGET)
        assert layout is not None
        info = emit_gemm(module, TARGET, problem, b_packed=True, end=end)
        products.append((info, [a, pack_b_reference(b, layout), c, np.ones(n, np.float32)], a @ b + 1))
    module.finish()
    head, body = module.functions["tfb_copy_f32"].split("entry:\n")
    address = f"ptr inttoptr (i64 {least.ctypes.data} to ptr)"
    noted = f"%old = load i64, {address}\n%least = call i64 @llvm.smin.i64(i64 %old, i64 %width)\n"
    module.functions["tfb_copy_f32"] = f"{head}entry:\n{noted}store i64 %least, {address}\n{body}"
    module.declare("llvm.smin.i64", "i64", ["i64", "i64"])
    for info, arrays, expected in products:
        run_kernel(info, module, arrays)
        np.testing.assert_allclose(arrays[2], expected, rtol=1e-5, atol=1e-5)
    assert 0 < least[0] < narrow
