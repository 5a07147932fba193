"""Products of f32 with weights in a narrower type, which the kernels convert when they read them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from block_kernels import TARGET, run_contraction
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
RNG = np.random.default_rng(6)
TYPES = ("float16", "bfloat16", "int8", "uint8")
DIMS = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))  # b01f_01io->b01f


def _weights(dtype: str, *dims: int) -> np.ndarray:
    if dtype.endswith("int8"):
        info = np.iinfo(dtype)
        return RNG.integers(info.min, info.max + 1, dims).astype(dtype)
    return RNG.standard_normal(dims).astype(np.float16 if dtype == "float16" else ml_dtypes.bfloat16)


def _run(op: Dot | Convolution, lhs: np.ndarray, rhs: np.ndarray, target: Target | None = None) -> None:
    """Holds the kernel against the op's reference."""
    expected = op.reference(lhs.astype(np.float64), rhs.astype(np.float64))
    result = run_contraction(op, lhs, rhs, E.F32, target)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize(
    "m, n, k", [(1, 70, 130), (1, 1000, 37), (3, 5, 7), (9, 33, 64), (40, 70, 52), (65, 1, 40), (2, 3, 1)]
)
def test_dots(dtype: str, by_columns: bool, m: int, n: int, k: int) -> None:
    lhs = RNG.standard_normal((m, k)).astype(np.float32)
    rhs = _weights(dtype, n, k) if by_columns else _weights(dtype, k, n)
    _run(Dot((1,), (1 if by_columns else 0,), (), (), E.F32), lhs, rhs)


@pytest.mark.parametrize("dtype", TYPES)
def test_other_strides(dtype: str) -> None:
    """A of one row that is strided, a batch, and a large matrix that is streamed."""
    _run(
        Dot((0,), (0,), (), (), E.F32),
        RNG.standard_normal((64, 1)).astype(np.float32),
        _weights(dtype, 64, 20),
    )
    lhs = RNG.standard_normal((3, 5, 16)).astype(np.float32)
    _run(Dot((2,), (1,), (0,), (0,), E.F32), lhs, _weights(dtype, 3, 16, 24))
    lhs = RNG.standard_normal((1, 1500)).astype(np.float32)
    _run(Dot((1,), (0,), (), (), E.F32), lhs, _weights(dtype, 1500, 1400))
    _run(Dot((1,), (1,), (), (), E.F32), lhs, _weights(dtype, 1400, 1500))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "size, stride, channels, outputs, groups",
    [
        (1, 1, 16, 40, 1),
        (3, 1, 3, 17, 1),
        (3, 2, 40, 33, 1),
        (3, 1, 24, 24, 24),
        (3, 1, 5, 5, 5),
        (3, 1, 8, 12, 2),
    ],
)
def test_convolutions(dtype: str, size: int, stride: int, channels: int, outputs: int, groups: int) -> None:
    window = Window.of((size, size), (stride, stride), (size // 2,) * 2, (size // 2,) * 2)
    lhs = RNG.standard_normal((2, 11, 9, channels)).astype(np.float32)
    rhs = _weights(dtype, size, size, channels // groups, outputs)
    _run(Convolution(window, DIMS, groups, 1, E.F32), lhs, rhs)


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3"])
def test_other_levels(level: str) -> None:
    if not TARGET.triple.startswith("x86_64"):
        pytest.skip("levels of x86-64")
    for dtype in TYPES:
        for m in (1, 20):
            lhs = RNG.standard_normal((m, 40)).astype(np.float32)
            _run(
                Dot((1,), (0,), (), (), E.F32), lhs, _weights(dtype, 40, 50), target_for(TARGET.triple, level)
            )


def test_conversions_of_weights_become_a_part_of_the_product() -> None:
    module = parse_hlo("""HloModule m
ENTRY e {
  x = f32[4,8] parameter(0)
  w = bf16[8,5] parameter(1)
  v = s32[8,5] parameter(2)
  c = f32[8,5] convert(w)
  i = f32[8,5] convert(v)
  a = f32[4,5] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[4,5] dot(x, i), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[4,5] add(a, b)
}""")
    changed = canonicalize_dots(module, DEFAULT_OPTIONS)
    types = [i.operands[1].shape.element_type for i in changed.entry.instructions if isinstance(i.op, Dot)]
    assert types == [E.BF16, E.F32]
