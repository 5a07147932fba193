"""Products of bytes, signed and unsigned, in quads and without, on every level of instructions, against NumPy."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from block_kernels import TARGET, contraction_of, run_contraction
from tfbridge.compiler.analysis.convolution_problem import convolution_problem
from tfbridge.compiler.analysis.gemm_problem import gemm_problem
from tfbridge.compiler.cpu.targets.named_target import target_for
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ops import Convolution, Dot
from tfbridge.compiler.ops.convolution import ConvolutionDims
from tfbridge.compiler.ops.window import Window
from tfbridge.compiler.options import DEFAULT_OPTIONS
from tfbridge.compiler.passes.canonicalize_dots import canonicalize_dots
from tfbridge.runtime.llvm.target import Target

E = ElementType
RNG = np.random.default_rng(5)
TYPES = list(itertools.product(("uint8", "int8"), repeat=2))
LEVELS = [
    pytest.param(level, marks=pytest.mark.skipif(not TARGET.triple.startswith("x86_64"), reason="x86"))
    for level in ("x86-64", "x86-64-v3", "x86-64-v4")
]
DIMS = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))  # b01f_01io->b01f
BY_OUTPUT = ConvolutionDims(0, 3, (1, 2), 3, 2, (0, 1), 0, 3, (1, 2))  # b01f_01oi->b01f


def _bytes(dtype: str, *dims: int) -> np.ndarray:
    """Any bytes, the extreme ones often."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = RNG.integers(low, high + 1, dims)
    return np.where(RNG.random(dims) < 0.2, RNG.choice([low, high], dims), values).astype(dtype)


def _run(op: Dot | Convolution, lhs: np.ndarray, rhs: np.ndarray, target: Target | None = None) -> None:
    """Holds the kernel against the op's reference."""
    np.testing.assert_array_equal(run_contraction(op, lhs, rhs, E.S32, target), op.reference(lhs, rhs))


def _by_columns(batch: int = 0) -> Dot:
    """[b, m, k] times [b, n, k]."""
    axes = tuple(range(batch))
    return Dot((batch + 1,), (batch + 1,), axes, axes, E.S32)


@pytest.mark.parametrize(("a", "b"), TYPES)
@pytest.mark.parametrize(
    "m, n, k", [(1, 1, 4), (1, 67, 128), (3, 5, 8), (13, 70, 52), (64, 33, 1028), (5, 1, 40)]
)
def test_dots_of_quads(a: str, b: str, m: int, n: int, k: int) -> None:
    assert gemm_problem(contraction_of(_by_columns(), _bytes(a, m, k), _bytes(b, n, k)), E.S32).quads
    _run(_by_columns(), _bytes(a, m, k), _bytes(b, n, k))


@pytest.mark.parametrize("m, n, k", [(2, 3, 0), (0, 3, 4), (2, 0, 4), (3, 5, 7)])
def test_dots_of_other_sizes(m: int, n: int, k: int) -> None:
    _run(_by_columns(), _bytes("int8", m, k), _bytes("int8", n, k))


def test_batches() -> None:
    _run(_by_columns(1), _bytes("uint8", 3, 9, 12), _bytes("int8", 3, 17, 12))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("a", "b"), TYPES)
def test_every_level(level: str, a: str, b: str) -> None:
    target = target_for(TARGET.triple, level)
    for m, n, k in ((1, 67, 128), (13, 70, 52), (3, 3, 4)):
        _run(_by_columns(), _bytes(a, m, k), _bytes(b, n, k), target)
    _run(_convolution(3, 1, 1), _bytes(a, 1, 7, 7, 8), _bytes(b, 3, 3, 20, 8), target)
    _run(_depthwise(3, 2, 1, 24), _bytes(a, 1, 9, 9, 24), _bytes(b, 3, 3, 1, 24), target)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("m, n, k", [(1, 67, 128), (13, 70, 52), (64, 33, 1028), (5, 1, 40), (3, 3, 4)])
def test_small_weights(level: str, m: int, n: int, k: int) -> None:
    """With bytes of 64 at most, of which the largest are often there, 16 bits hold the sums of two products."""
    target = target_for(TARGET.triple, level)
    op = dataclasses.replace(_by_columns(), has_small_rhs=True)
    lhs, rhs = _bytes("uint8", m, k), np.clip(_bytes("int8", n, k), -64, 64)
    assert gemm_problem(contraction_of(op, lhs, rhs), E.S32).quads == "u8s7"
    _run(op, lhs, rhs, target)
    window = dataclasses.replace(_convolution(3, 1, 1), has_small_rhs=True)
    kernel = np.clip(_bytes("int8", 3, 3, 20, 8), -64, 64)
    _run(window, _bytes("uint8", 1, 7, 7, 8), kernel, target)


def test_weights_are_small_where_their_values_say_so() -> None:
    text = """HloModule m
ENTRY e {
  x = u8[2,4] parameter(0)
  w = s8[1,4] constant({ {1, -64, 3, LAST} })
  ROOT d = s32[2,1] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}FLAG
}"""

    def is_small(text: str) -> bool:
        changed = canonicalize_dots(parse_hlo(text), DEFAULT_OPTIONS)
        assert str(parse_hlo(str(changed))) == str(changed)
        return changed.entry.root.op.has_small_rhs

    for flag in ("", ", has_small_rhs=true"):
        for last, wanted in ((64, True), (65, False), (-128, False)):
            assert is_small(text.replace("LAST", str(last)).replace("FLAG", flag)) is wanted
        of_argument = text.replace("constant({ {1, -64, 3, LAST} })", "parameter(1)").replace("FLAG", flag)
        assert not is_small(of_argument)


def _convolution(
    size: int, stride: int, pad: int, dims: ConvolutionDims = BY_OUTPUT, groups: int = 1
) -> Convolution:
    window = Window.of((size, size), (stride, stride), (pad, pad), (pad, pad))
    return Convolution(window, dims, groups, 1, E.S32)


def _depthwise(size: int, stride: int, pad: int, channels: int) -> Convolution:
    return _convolution(size, stride, pad, DIMS, channels)


@pytest.mark.parametrize(("a", "b"), TYPES)
@pytest.mark.parametrize("size, stride, pad, channels, outputs", [
    (1, 1, 0, 16, 40), (3, 1, 1, 4, 17), (3, 2, 1, 64, 33), (5, 1, 2, 40, 64), (1, 2, 0, 8, 3), (3, 1, 1, 12, 2),
])  # fmt: skip
def test_convolutions_of_quads(
    a: str, b: str, size: int, stride: int, pad: int, channels: int, outputs: int
) -> None:
    lhs, rhs = _bytes(a, 2, 11, 9, channels), _bytes(b, size, size, outputs, channels)
    op = _convolution(size, stride, pad)
    assert convolution_problem(contraction_of(op, lhs, rhs), E.S32).quads
    _run(op, lhs, rhs)


@pytest.mark.parametrize("channels, groups", [(3, 1), (8, 2), (6, 2), (16, 4)])
def test_other_convolutions(channels: int, groups: int) -> None:
    lhs, rhs = _bytes("int8", 1, 8, 8, channels), _bytes("int8", 3, 3, 8, channels // groups)
    _run(_convolution(3, 1, 1, groups=groups), lhs, rhs)


@pytest.mark.parametrize(("a", "b"), TYPES)
@pytest.mark.parametrize(
    "size, stride, channels", [(3, 1, 16), (3, 2, 72), (5, 1, 96), (3, 1, 5), (9, 1, 48), (1, 1, 32)]
)
def test_depthwise(a: str, b: str, size: int, stride: int, channels: int) -> None:
    lhs, rhs = _bytes(a, 2, 12, 10, channels), _bytes(b, size, size, 1, channels)
    _run(_depthwise(size, stride, size // 2, channels), lhs, rhs)
