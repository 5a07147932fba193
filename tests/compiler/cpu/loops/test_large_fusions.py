"""Kernels for arrays larger than caches, and concatenations of many operands, at sizes that a test can afford."""

from __future__ import annotations

import numpy as np
import pytest
import test_loop_fusion
from builders import broadcast, op, parameter, reduce, scalar, softmax
from fusion_cases import Kernel, launch, load_function, sample
from test_loop_fusion import check
from tfbridge.compiler.cpu.loops import column_reduction, loop_fusion
from tfbridge.compiler.cpu.loops.emit import emit_fused
from tfbridge.compiler.cpu.targets.named_target import target_for
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.ir.module import Computation, Instruction, make
from tfbridge.compiler.ir.shape import array
from tfbridge.compiler.ops import Concatenate, Gather, Iota, Reshape, Slice, Transpose, Tuple
from tfbridge.compiler.options import DEFAULT_OPTIONS
from tfbridge.compiler.passes.fusion_plan import decide
from tfbridge.runtime.llvm.ir_builder import ModuleText
from tfbridge.runtime.llvm.target import host


@pytest.fixture
def all_arrays_are_large(monkeypatch):
    monkeypatch.setattr(column_reduction, "_MIN_BYTES", 0)
    monkeypatch.setattr(loop_fusion, "_MIN_NONTEMPORAL_BYTES", 0)


def is_by_columns(kernel: Kernel) -> bool:
    """A total of each column lies in scratch memory."""
    return kernel.plan.scratch_bytes >= 128


@pytest.mark.usefixtures("all_arrays_are_large")
@pytest.mark.parametrize("dims", [(1, 16, 128), (3, 33, 130), (2, 19, 4200), (1, 50, 1029), (1, 257, 300)])
@pytest.mark.parametrize("kind", ["add", "maximum", "minimum", "multiply"])
def test_columns(kind, dims):
    x = parameter(0, "f32", *dims)
    assert is_by_columns(check(reduce(op("tanh", x), (1,), kind, 0.5), [x], 1e-4))


@pytest.mark.usefixtures("all_arrays_are_large")
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 15])
def test_few_rows_are_taken_in_registers(rows):
    x = parameter(0, "f32", 3, rows, 400)
    assert not is_by_columns(check(reduce(x, (1,)), [x]))


@pytest.mark.usefixtures("all_arrays_are_large")
@pytest.mark.parametrize("type_", ["f64", "bf16", "f16", "s8", "u64", "c64"])
def test_columns_of_a_type(type_):
    x = parameter(0, type_, 21, 300)
    assert is_by_columns(check(reduce(x, (0,)), [x], 2e-2 if type_ in ("bf16", "f16") else 1e-5))


@pytest.mark.usefixtures("all_arrays_are_large")
@pytest.mark.parametrize(
    "axes, dims", [((0, 1), (5, 7, 200)), ((0, 2), (4, 3, 5, 140)), ((1, 2), (3, 4, 9, 129))]
)
def test_rows_of_several_axes(axes, dims):
    x = parameter(0, "f32", *dims)
    check(reduce(x, axes), [x], 1e-4)


@pytest.mark.usefixtures("all_arrays_are_large")
@pytest.mark.parametrize("columns", [128, 300, 5000])
def test_variance_of_columns_with_what_follows(columns):
    x, scale = parameter(0, "f32", 37, columns), parameter(1, "f32", columns)
    mean = op("divide", reduce(x, (0,)), scalar(37, scale))
    centred = op("subtract", x, broadcast(mean, (37, columns), (1,)))
    variance = reduce(op("multiply", centred, centred), (0,))
    root = make(Tuple(), op("multiply", variance, scale), mean, reduce(x, (0,), "maximum", -np.inf))
    assert is_by_columns(check(root, [x, scale], 1e-4))


@pytest.mark.usefixtures("all_arrays_are_large")
@pytest.mark.parametrize("kind", ["first", "last", "nan"])
def test_choice_down_columns(kind):
    test_loop_fusion.test_choice_keeps_ties_and_nans("GT", kind, (43, 150), 0)


def concatenation(parts: list[Instruction], axis: int) -> Instruction:
    return make(Concatenate(axis), *parts)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(1,) * 9, (3, 1, 5, 2, 16, 4), (1, 40, 7)])
def test_many_operands(sizes, axis):
    dims = [5, 11, 19]
    parts = [parameter(k, "f32", *dims[:axis], size, *dims[axis + 1 :]) for k, size in enumerate(sizes)]
    changed = [op("negate", p) if k % 2 else p for k, p in enumerate(parts)]
    check(concatenation(changed, axis), parts)


@pytest.mark.parametrize("axis", [0, 1])
def test_many_operands_on_several_threads(axis):
    parts = [parameter(k, "f32", *((7 + k, 3000) if axis == 0 else (120, 300 + k))) for k in range(9)]
    kernel = check(op("exponential", concatenation(parts, axis)), parts)
    assert kernel.plan.tasks > 2


def test_operands_of_one_axis_in_blocks():
    parts = [parameter(k, "f32", size) for k, size in enumerate((100_003, 1, 77_777, 65_536, 50))]
    assert check(op("tanh", concatenation(parts, 0)), parts).plan.tasks > 2


def test_operands_that_are_reductions_and_gathers():
    table, numbers = parameter(0, "f32", 50, 16), parameter(1, "s32", 20, 6, 4)
    parts = []
    for k in range(6):
        column = make(Reshape((20, 4, 1)), make(Slice((0, k, 0), (20, k + 1, 4), (1, 1, 1)), numbers))
        rows = make(
            Gather(
                offset_dims=(2,),
                collapsed_slice_dims=(0,),
                start_index_map=(0,),
                index_vector_dim=2,
                slice_sizes=(1, 16),
            ),
            table,
            column,
        )
        parts.append(make(Reshape((20, 1, 16)), reduce(rows, (1,))))
    data = [sample(table.shape), np.random.default_rng(3).integers(-5, 60, (20, 6, 4)).astype(np.int32)]
    check(concatenation(parts, 1), [table, numbers], 1e-4, data)


def test_transposes_and_indices_among_operands():
    x, y = parameter(0, "f32", 33, 20), parameter(1, "f32", 20, 33)
    index = make(Iota(array("f32", 20, 33), 1))
    check(concatenation([make(Transpose((1, 0)), x), y, index, y, make(Transpose((1, 0)), x), y], 0), [x, y])


def test_short_reductions_are_computed_in_their_concatenation():
    text = """
    add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
    ENTRY main { x = f32[64,4,32] parameter(0)  y = f32[64,900,32] parameter(1)  zero = f32[] constant(0)
      short = f32[64,32] reduce(x, zero), dimensions={1}, to_apply=add
      long = f32[64,32] reduce(y, zero), dimensions={1}, to_apply=add
      ROOT both = f32[64,64] concatenate(short, long), dimensions={1} }"""
    plan = decide(parse_hlo("HloModule m\n" + text.replace("  ", "\n")).entry)
    inside = {root.name: [m.name for m in members] for root, members in plan.groups.items()}
    assert inside == {"long": ["long"], "both": ["short", "both"]}


@pytest.mark.usefixtures("all_arrays_are_large")
@pytest.mark.parametrize("shift", [0, 4, 32])
@pytest.mark.parametrize(
    "build",
    [
        lambda x: op("negate", x),
        softmax,
        lambda x: make(Transpose((1, 0)), x),
        lambda x: op("add", x, scalar(1.0, x)),
    ],
)
@pytest.mark.parametrize("dims", [(64, 256), (33, 40), (50, 333), (7, 3)])
def test_stores_past_the_caches(dims, build, shift):
    x = parameter(0, "f32", *dims)
    computation = Computation("fused", build(x), [x])
    module = ModuleText(host())
    plan = emit_fused(module, host(), computation, DEFAULT_OPTIONS)
    _code, address = load_function(module, plan.symbol)
    data = sample(x.shape)
    room = np.full(data.nbytes + 256, 77, np.uint8)
    start = -room.ctypes.data % 64 + shift
    output = room[start : start + data.nbytes].view(np.float32).reshape(computation.root.shape.dims)
    launch(plan, address, [data, output])
    np.testing.assert_allclose(output, evaluate(computation, [data]), rtol=1e-5, atol=1e-6)
    assert (room[:start] == 77).all() and (room[start + data.nbytes :] == 77).all()


def test_which_stores_go_past_the_caches():
    def text(dims, target):
        x = parameter(0, "f32", *dims)
        module = ModuleText(target)
        emit_fused(module, target, Computation("fused", op("negate", x), [x]), DEFAULT_OPTIONS)
        return module.text()

    x86 = target_for("x86_64-linux-gnu", "x86-64-v3")
    assert "!nontemporal" in text((8192, 1024), x86)
    assert "!nontemporal" not in text((512, 1024), x86)
    assert "!nontemporal" not in text((8192, 1024), target_for("aarch64-linux-gnu", "cortex-a72"))


@pytest.mark.parametrize("permutation, inside", [("0,2,1", False), ("1,0,2", True)])
def test_rows_are_not_reduced_anew_along_an_axis_that_moved_outwards(permutation, inside):
    dims = [(40, 50, 60)[int(axis)] for axis in permutation.split(",")]
    text = f"""HloModule m
    max {{
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] maximum(a, b)
    }}
    ENTRY main {{
      x = f32[40,50,60] parameter(0)
      low = f32[] constant(-inf)
      top = f32[40,50] reduce(x, low), dimensions={{2}}, to_apply=max
      spread = f32[40,50,60] broadcast(top), dimensions={{0,1}}
      less = f32[40,50,60] subtract(x, spread)
      ROOT turned = f32[{",".join(map(str, dims))}] transpose(less), dimensions={{{permutation}}}
    }}"""
    plan = decide(parse_hlo(text).entry)
    last = [m.name for root, members in plan.groups.items() if root.name == "turned" for m in members]
    assert ("top" in last) is inside
