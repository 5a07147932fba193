"""Convolutions of images whose number, height and width are known at run time only: one compilation, bound to many
sizes, against the evaluator."""

from __future__ import annotations

import re

import numpy as np
import pytest
from guarded import guarded_copy
from tfbridge.compiler import evaluate, parse_hlo
from tfbridge.compiler.analysis.convolution_problem import convolution_problem
from tfbridge.compiler.cpu.codegen.kernel_info import Slices
from tfbridge.compiler.cpu.compile import compile_module
from tfbridge.compiler.cpu.convolution.blocking import plan_blocking, tile_sizes
from tfbridge.runtime.code.executable import Executable
from tfbridge.runtime.llvm.target import host

LAST, FIRST = "dim_labels=b01f_01io->b01f", "dim_labels=bf01_01io->bf01"
OF_INPUT, OF_KERNEL = "dim_labels=b01f_01oi->b01f", "dim_labels=f01b_i01o->01bf"
SAME = "size=3x3 pad=1_1x1_1"
LOW, HIGH = "(2*((h+1)//2)-h+1)//2", "2*((h+1)//2)-h+1-(2*((h+1)//2)-h+1)//2"
HALVED = f"size=3x3 stride=2x2 pad={LOW}_{HIGH}x{LOW.replace('h', 'w')}_{HIGH.replace('h', 'w')}"
LOW_OF_HOLES = f"2-{LOW}"
HIGH_OF_HOLES = f"h-2*((h+1)//2)+1+{LOW}"
HOLES = (
    f"size=3x3 pad={LOW_OF_HOLES}_{HIGH_OF_HOLES}x{LOW_OF_HOLES.replace('h', 'w')}_"
    f"{HIGH_OF_HOLES.replace('h', 'w')} lhs_dilate=2x2 rhs_reversal=1x1"
)
HALF = "(h+1)//2,(w+1)//2"
DILATED = f"size={HALF.replace(',', 'x')} {HALVED.split(' ', 2)[2]} rhs_dilate=2x2"
# (input, kernel, result, window and labels)
CONVOLUTIONS = {
    "images": ("b,h,w,3", "3,3,3,16", "b,h,w,16", SAME, LAST),
    "many_features": ("b,h,w,40", "3,3,40,24", "b,h,w,24", SAME, LAST),
    "no_padding": ("b,h,w,33", "2,2,33,20", "b,h-1,w-1,20", "size=2x2", LAST),
    "strides": ("b,h,w,33", "3,3,33,20", f"b,{HALF},20", HALVED, LAST),
    "strides_of_images": ("b,h,w,3", "3,3,3,16", f"b,{HALF},16", HALVED, LAST),
    "one_pixel": ("b,h,w,16", "1,1,16,40", "b,h,w,40", "size=1x1", LAST),
    "one_of_four_pixels": ("b,h,w,16", "1,1,16,40", f"b,{HALF},40", "size=1x1 stride=2x2 pad=0_0x0_0", LAST),
    "dilated_window": ("b,h,w,40", "3,3,40,24", "b,h,w,24", "size=3x3 pad=2_2x2_2 rhs_dilate=2x2", LAST),
    "features_first": ("b,8,h,w", "3,3,8,24", "b,24,h,w", SAME, FIRST),
    "heat_map": ("b,h,w,32", "3,3,32,1", "b,h,w,1", SAME, LAST),
    "upsampled_heat_map": (f"b,{HALF},32", "3,3,1,32", "b,h,w,1", HOLES, OF_INPUT),
    "sequences": ("b,h,24", "3,24,40", "b,h,40", "size=3 pad=1_1", "dim_labels=b0f_0io->b0f"),
    "groups": ("b,h,w,32", "3,3,16,32", "b,h,w,32", f"{SAME}}}, feature_group_count=2", LAST),
    "depthwise": ("b,h,w,48", "3,3,1,48", "b,h,w,48", f"{SAME}}}, feature_group_count=48", LAST),
    "depthwise_strides": (
        "b,h,w,48",
        "3,3,1,48",
        f"b,{HALF},48",
        f"{HALVED}}}, feature_group_count=48",
        LAST,
    ),
    "depthwise_wide": (
        "b,h,48",
        "9,1,48",
        "b,h,48",
        "size=9 pad=4_4}, feature_group_count=48",
        "dim_labels=b0f_0io->b0f",
    ),
    "fewer_positions_than_phases": (
        "b,h,w,8",
        "4,4,8,11",
        "b,3*h-4,3*w-4,11",
        "size=4x4 pad=1_0x1_0 lhs_dilate=3x3",
        LAST,
    ),
    "images_alone": ("b,28,28,16", "3,3,16,24", "b,28,28,24", SAME, LAST),
    "input_gradient": (f"b,{HALF},20", "3,3,33,20", "b,h,w,33", HOLES, OF_INPUT),
    "kernel_gradient": ("b,h,w,40", "b,h,w,24", "3,3,40,24", "size=hxw pad=1_1x1_1", OF_KERNEL),
    "kernel_gradient_strides": ("b,h,w,40", f"b,{HALF},24", "3,3,40,24", DILATED, OF_KERNEL),
    "kernel_gradient_images": ("b,h,w,3", f"b,{HALF},16", "3,3,3,16", DILATED, OF_KERNEL),
    "kernel_gradient_depthwise": (
        "b,h,w,48",
        "b,h,w,48",
        "3,3,1,48",
        "size=hxw pad=1_1x1_1}, batch_group_count=48",
        OF_KERNEL,
    ),
}
VALUES = [
    *[(2, 2, 2), (2, 3, 2), (3, 2, 5), (5, 4, 3), (2, 7, 11), (2, 31, 8), (3, 17, 64), (2, 100, 29)],
    *[(2, 9, 257), (13, 5, 6), (40, 3, 4)],
]


def check(text: str, parameters: list[str]) -> None:
    code = compile_module(parse_hlo(text))
    assert code.symbolic is not None
    assert not code.symbolic.assumptions.guards, str(code.symbolic.assumptions)
    executable, rng = Executable(code), np.random.default_rng(1)
    for b, h, w in VALUES:
        values = {"b": b, "h": h, "w": w}
        dims = [[eval(d, values) for d in listed.split(",")] for listed in parameters]
        arrays = [guarded_copy(rng.standard_normal(d).astype(np.float32)) for d in dims]
        bound = executable.bound(dims)
        assert not isinstance(bound, str), bound
        (result,) = bound.execute(arrays)
        expected = np.asarray(evaluate(parse_hlo(text), arrays))
        scale = max(1.0, np.abs(expected).max(initial=0))
        np.testing.assert_allclose(result, expected, 1e-5, 1e-5 * scale, err_msg=f"{b, h, w}")


def text_of(name: str, body: str, types: list[str]) -> str:
    parameters = "".join(f"  p{k} = f32[{dims}] parameter({k})\n" for k, dims in enumerate(types))
    return f"HloModule {name}, sizes={{b=4, h=40, w=36}}\nENTRY main {{\n{parameters}  {body}\n}}\n"


def convolution(name: str, kernel: str = "p1") -> str:
    _, _, result, window, labels = CONVOLUTIONS[name]
    closed = window if "}" in window else window + "}"
    return f"f32[{result}] convolution(p0, {kernel}), window={{{closed}, {labels}"


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_one_compilation_for_all_sizes(name: str) -> None:
    """Every size stands in a parameter: in one of its own where the operands have only others."""
    types = [*CONVOLUTIONS[name][:2], "b,h,w"]
    check(text_of(name, f"ROOT c = {convolution(name)}", types), types)


@pytest.mark.parametrize("name", [n for n in CONVOLUTIONS if "gradient" not in n])
def test_weights_that_are_constant_and_an_epilogue(name: str) -> None:
    operand, kernel, result, *_ = CONVOLUTIONS[name]
    features = result.split(",")[1 if name == "features_first" else -1]
    axis = 1 if name == "features_first" else result.count(",")
    rng = np.random.default_rng(2)
    numbers = np.round(rng.standard_normal([int(d) for d in kernel.split(",")]), 2)
    literal = re.sub(r"\s+", " ", str(numbers.tolist())).replace("[", "{").replace("]", "}")
    body = f"""k = f32[{kernel}] constant({literal})
  c = {convolution(name, "k")}
  biases = f32[{result}] broadcast(p1), dimensions={{{axis}}}
  zero = f32[] constant(0)
  zeros = f32[{result}] broadcast(zero), dimensions={{}}
  sum = f32[{result}] add(c, biases)
  ROOT r = f32[{result}] maximum(sum, zeros)"""
    types = [operand, features, "b,h,w"]
    check(text_of(name, body, types), types)


def test_tiles_of_all_heights_for_slices_of_a_known_size() -> None:
    """The number of slices is known at run time only, and so what the last one of them has."""
    text = """HloModule m, sizes={b=12}
ENTRY main {
  x = f32[b,8,8,16] parameter(0)
  w = f32[1,1,16,24] parameter(1)
  ROOT r = f32[b,4,4,24] convolution(x, w), window={size=1x1 stride=2x2}, dim_labels=b01f_01io->b01f
}"""
    root = parse_hlo(text).entry.root
    problem = convolution_problem(root, root.shape.element_type)
    blocking = plan_blocking(problem, host(2), slices=Slices(16 * root.shape.dims[0], at_a_time=8))
    assert blocking is not None and blocking.task_rows == blocking.rows_in_chain == 8
    heights = {height for _, height in tile_sizes(blocking, host(2))}
    assert heights == set(range(1, max(heights) + 1))
