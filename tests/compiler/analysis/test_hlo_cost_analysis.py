"""Flops and bytes of instructions, counted by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tfbridge.compiler import ComputationBuilder
from tfbridge.compiler.analysis.hlo_cost_analysis import flops, moved_bytes
from tfbridge.compiler.cpu.compile import compile_module
from tfbridge.compiler.ir.module import Computation, Module
from tfbridge.compiler.ir.shape import array
from tfbridge.compiler.ops import ConvolutionDims

CHANNELS_LAST = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
Build = Callable[[ComputationBuilder], object]


def built(build: Build) -> Computation:
    b = ComputationBuilder("counted")
    build(b)
    return b.build()


def f32(b: ComputationBuilder, number: int, *dims: int) -> object:
    return b.parameter(number, array("f32", *dims), f"p{number}")


def s32(b: ComputationBuilder, number: int, *dims: int) -> object:
    return b.parameter(number, array("s32", *dims), f"p{number}")


def summed(b: ComputationBuilder) -> object:
    adder = ComputationBuilder("add")
    adder.add(f32(adder, 0), f32(adder, 1))
    return b.reduce(f32(b, 0, 6, 50), b.constant(np.float32(0)), adder.build(), (1,))


CASES: dict[str, tuple[Build, int, int]] = {
    "add": (lambda b: b.add(f32(b, 0, 3, 5), f32(b, 1, 3, 5)), 15, 3 * 60),
    "transpose": (lambda b: b.transpose(f32(b, 0, 3, 5), (1, 0)), 0, 2 * 60),
    "dot": (lambda b: b.dot(f32(b, 0, 4, 6), f32(b, 1, 6, 5)), 2 * 4 * 6 * 5, 4 * (24 + 30 + 20)),
    "convolution": (
        lambda b: b.conv_general_dilated(
            f32(b, 0, 1, 8, 8, 3), f32(b, 1, 3, 3, 3, 7), (1, 1), ((1, 1), (1, 1)), (), (), CHANNELS_LAST
        ),
        2 * 64 * 7 * 27,
        4 * (192 + 189 + 448),
    ),
    "reduce": (summed, 300, 4 * (300 + 1 + 6)),
    "slice": (lambda b: b.slice(f32(b, 0, 100), (10,), (14,), (1,)), 0, 16 + 16),
    "dynamic slice": (lambda b: b.dynamic_slice(f32(b, 0, 100), (s32(b, 1),), (7,)), 0, 28 + 4 + 28),
    "dynamic update": (
        lambda b: b.dynamic_update_slice(f32(b, 0, 100), f32(b, 1, 7), (s32(b, 2),)),
        0,
        28 + 4 + 28,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_counts(name: str) -> None:
    build, operations, moved = CASES[name]
    root = built(build).root
    assert (flops(root), moved_bytes(root)) == (operations, moved)


def test_a_fusion_counts_what_is_inside_and_its_ends() -> None:
    def build(b: ComputationBuilder) -> object:
        return b.tanh(b.add(b.dot(f32(b, 0, 4, 6), f32(b, 1, 6, 5)), f32(b, 2, 4, 5)))

    kernels = compile_module(Module("counted", built(build))).kernels
    assert sum(k.flops for k in kernels) == 2 * 4 * 6 * 5 + 2 * 20
    assert sum(k.bytes for k in kernels) == 4 * (24 + 30 + 20 + 20)
