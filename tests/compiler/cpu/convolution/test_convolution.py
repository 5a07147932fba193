"""Convolutions of every form, type and order of axes against the op's reference."""

from __future__ import annotations

import numpy as np
import pytest
from block_kernels import TARGET, contraction_of, counting_epilogue, run_kernel, widths_of_last_panels
from guarded import guarded_copy
from tfbridge.compiler.analysis.output_view import convolution_view
from tfbridge.compiler.cpu.codegen.kernel_info import KernelInfo
from tfbridge.compiler.cpu.convolution.emit import emit_convolution
from tfbridge.compiler.cpu.objects.library_functions import build_library
from tfbridge.compiler.cpu.targets.named_target import target_for
from tfbridge.compiler.errors import UnsupportedError
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ir.module import Instruction
from tfbridge.compiler.ops.convolution import Convolution, ConvolutionDims
from tfbridge.compiler.ops.window import Window
from tfbridge.runtime.llvm.ir_builder import ModuleText
from tfbridge.runtime.llvm.target import Target

E = ElementType


def dims_of(labels: str) -> ConvolutionDims:
    """`b01f_01io->b01f` as XLA writes it."""
    inputs, rest = labels.split("_")
    kernel, output = rest.split("->")
    spatial = [str(k) for k in range(len(inputs) - 2)]
    return ConvolutionDims(
        inputs.index("b"),
        inputs.index("f"),
        tuple(inputs.index(k) for k in spatial),
        kernel.index("i"),
        kernel.index("o"),
        tuple(kernel.index(k) for k in spatial),
        output.index("b"),
        output.index("f"),
        tuple(output.index(k) for k in spatial),
    )


def raw_type(t: ElementType) -> ElementType:
    return E.F32 if t.is_float and t.bits < 32 else E.S32 if t.is_integer and t.bits < 32 else t


def emit(
    convolution: Instruction, epilogue: bool, target: Target = TARGET, embed: bool = False
) -> tuple[KernelInfo, ModuleText]:
    module = ModuleText(target, embed_libraries=embed)
    raw = convolution.shape.with_type(raw_type(convolution.shape.element_type))
    name = counting_epilogue(module, convolution_view(convolution)) if epilogue else None
    return emit_convolution(module, target, convolution, raw, name), module


def run(op: Convolution, lhs: np.ndarray, rhs: np.ndarray, **options: object) -> np.ndarray:
    """The kernel's raw result; checks that the epilogue saw every element once."""
    convolution = contraction_of(op, lhs, rhs)
    raw = raw_type(convolution.shape.element_type)
    output = guarded_copy(np.full(convolution.shape.dims, 77, raw.dtype))
    counts = np.zeros(convolution.shape.dims, np.int32)
    info, module = emit(convolution, True, **options)
    run_kernel(info, module, [guarded_copy(lhs), guarded_copy(rhs), output, counts])
    np.testing.assert_array_equal(counts, 1)
    return output


def random(rng: np.random.Generator, dims: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "c":
        return (rng.standard_normal(dims) + 1j * rng.standard_normal(dims)).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -9, 10, dims).astype(dtype)
    if dtype.name in ("int4", "uint4"):
        return rng.integers(0, 7, dims).astype(dtype)
    return rng.standard_normal(dims).astype(dtype)


def check(op: Convolution, lhs: np.ndarray, rhs: np.ndarray, **options: object) -> None:
    result, expected = run(op, lhs, rhs, **options), op.reference(lhs, rhs)
    if result.dtype.kind in "iu":
        np.testing.assert_array_equal(result.astype(expected.dtype), expected)
        return
    low = expected.dtype.itemsize < 4
    wide_type = np.complex128 if result.dtype.kind == "c" else np.float64
    tolerance = {2: 2e-2, 1: 0.3}.get(expected.dtype.itemsize, 1e-4) if low else 2e-5
    scale = max(1.0, float(np.max(np.abs(expected.astype(wide_type)), initial=0)))
    np.testing.assert_allclose(
        result.astype(wide_type), expected.astype(wide_type), rtol=tolerance, atol=tolerance * scale
    )


def random_case(seed: int) -> tuple[Convolution, np.ndarray, np.ndarray]:
    """Any convolution: rank, order of axes, window, groups and types at random."""
    rng = np.random.default_rng(seed)
    rank = int(rng.choice([0, 1, 2, 2, 2, 3]))
    pick = lambda *options: options[int(rng.integers(len(options)))]  # noqa: E731
    size = tuple(int(rng.integers(1, 5)) for _ in range(rank))
    spatial = tuple(int(rng.integers(0 if rng.random() < 0.03 else 1, 12)) for _ in range(rank))
    base = tuple(pick(1, 1, 2, 3) for _ in range(rank))
    dilation = tuple(pick(1, 1, 2, 3) for _ in range(rank))
    low = tuple(int(rng.integers(-1, 4)) if s > 2 else int(rng.integers(0, 4)) for s in spatial)
    high = tuple(int(rng.integers(-1, 4)) if s > 2 else int(rng.integers(0, 4)) for s in spatial)
    window = Window.of(
        size,
        tuple(pick(1, 1, 2, 3) for _ in range(rank)),
        low,
        high,
        base,
        dilation,
        tuple(bool(rng.random() < 0.3) for _ in range(rank)),
    )
    groups = pick((1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3))
    inputs, outputs = pick(1, 2, 3, 8, 17, 24), pick(1, 2, 5, 16, 19) * max(groups)
    batch = pick(1, 2, 3) * groups[1]
    dtype = pick(*["f32"] * 6, "f64", "bf16", "f16", "s8", "s32", "u8", "c64", "s64", "f8e5m2")
    if rng.random() < 0.3:  # depthwise
        features = pick(2, 8, 11, 24)
        groups, inputs, outputs = pick((features, 1), (1, features)), pick(1, 1, 3), features
        batch = groups[1] * pick(1, 2)
    orders = [rng.permutation(rank + 2) for _ in range(3)]
    if rng.random() < 0.5:
        orders = [np.array([0, rank + 1, *range(1, rank + 1)]), np.array([rank + 1, rank, *range(rank)])] * 2
    d = [tuple(map(int, o)) for o in orders]
    dims = ConvolutionDims(d[0][0], d[0][1], d[0][2:], d[1][1], d[1][0], d[1][2:], d[2][0], d[2][1], d[2][2:])

    def laid(order: tuple[int, ...], sizes: tuple[int, ...]) -> np.ndarray:
        placed = [0] * len(sizes)
        for axis, n in zip(order, sizes):
            placed[axis] = n
        return random(rng, tuple(placed), E(dtype).dtype)

    lhs = laid(d[0], (batch, inputs * groups[0], *spatial))
    rhs = laid(d[1], (outputs, inputs, *size))
    return Convolution(window, dims, groups[0], groups[1]), lhs, rhs


@pytest.mark.parametrize("seed", [*range(48), 1012, 1159, 1164, 1239])
def test_random(seed: int) -> None:
    check(*random_case(seed))


NHWC = "b01f_01io->b01f"

# (batch, height, width, inputs, window, outputs, stride, dilation, groups): layers as networks have them, small
# fmt: off
LAYERS = [
    (2, 14, 9, 32, 3, 40, 1, 1, 1), (2, 12, 12, 64, 1, 50, 1, 1, 1), (2, 13, 12, 32, 1, 24, 2, 1, 1),
    (2, 23, 25, 3, 7, 24, 2, 1, 1), (1, 16, 17, 3, 3, 32, 2, 1, 1), (2, 12, 12, 16, 5, 16, 1, 2, 1),
    (3, 9, 9, 64, 3, 48, 2, 1, 4), (2, 9, 10, 1, 3, 17, 1, 1, 1), (1, 5, 5, 600, 3, 20, 1, 1, 1),
    (2, 9, 11, 20, 3, 20, 1, 1, 20), (2, 19, 21, 40, 3, 40, 2, 1, 40), (1, 14, 14, 9, 5, 9, 1, 1, 9),
    (2, 12, 12, 8, 3, 16, 1, 2, 8), (1, 3, 3, 33, 3, 33, 1, 1, 33), (1, 40, 40, 24, 3, 100, 1, 1, 1),
    (1, 12, 30, 4, 11, 4, 1, 1, 4), (2, 19, 22, 48, 3, 48, 2, 1, 48),
    (2, 11, 13, 10, 3, 20, 1, 1, 10), (1, 12, 13, 5, 3, 80, 2, 1, 5), (1, 6, 6, 2, 3, 4, 1, 1, 2),
    (1, 6, 6, 3, 3, 9, 1, 1, 3), (4, 4, 4, 384, 2, 768, 2, 1, 1), (2, 16, 8, 100, 8, 20, 8, 1, 1),
]
# fmt: on


def layer(
    form: str,
    batch: int,
    height: int,
    width: int,
    inputs: int,
    window: int,
    outputs: int,
    stride: int,
    dilation: int,
    groups: int,
) -> tuple[Convolution, tuple[int, ...], tuple[int, ...]]:
    """A layer with `same` padding or one of its gradients: the op and the dims of its operands."""
    reach = (window - 1) * dilation + 1
    out = [-(-n // stride) for n in (height, width)]
    pad = [max((o - 1) * stride + reach - n, 0) for o, n in zip(out, (height, width))]
    low = [p // 2 for p in pad]
    high = [p - q for p, q in zip(pad, low)]
    image, kernel = (batch, height, width, inputs), (window, window, inputs // groups, outputs)
    gradient = (batch, *out, outputs)
    if form == "forward":
        return (
            Convolution(
                Window.of((window, window), (stride, stride), low, high, (), (dilation, dilation)),
                dims_of(NHWC),
                groups,
            ),
            image,
            kernel,
        )
    spread = [(o - 1) * stride + 1 for o in out]
    if form == "input":
        low = [reach - 1 - q for q in low]
        high = [n + reach - 1 - d - q for n, d, q in zip((height, width), spread, low)]
        return (
            Convolution(
                Window.of(
                    (window, window), (1, 1), low, high, (stride, stride), (dilation, dilation), (True, True)
                ),
                dims_of("b01f_01oi->b01f" if groups == 1 else NHWC),
                groups,
            ),
            gradient,
            kernel if groups == 1 else (window, window, outputs // groups, inputs),
        )
    high = [(window - 1) * dilation + d - n - q for n, d, q in zip((height, width), spread, low)]
    return (
        Convolution(
            Window.of(out, (dilation, dilation), low, high, (), (stride, stride)),
            dims_of("f01b_i01o->01bf"),
            1,
            groups,
        ),
        image,
        gradient,
    )


@pytest.mark.parametrize("form", ["forward", "input", "filter"])
@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_layers(number: int, form: str) -> None:
    rng = np.random.default_rng(number)
    op, lhs, rhs = layer(form, *LAYERS[number])
    dtype = np.dtype(np.float64 if number == 3 else np.float32)
    check(op, random(rng, lhs, dtype), random(rng, rhs, dtype))


@pytest.mark.parametrize(
    "labels", ["bf01_oi01->bf01", "b01f_01io->fb01", "01bf_01io->b0f1", "fb01_io01->f01b"]
)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8"])
def test_orders(labels: str, dtype: str) -> None:
    rng, d = np.random.default_rng(0), dims_of(labels)
    lhs, rhs = [0] * 4, [0] * 4
    for axis, n in zip(d.input, (3, 20, 12, 13)):
        lhs[axis] = n
    for axis, n in zip(d.kernel, (18, 20, 3, 3)):
        rhs[axis] = n
    op = Convolution(Window.of((3, 3), (2, 1), (1, 1), (1, 1)), d)
    check(op, *(random(rng, tuple(dims), E(dtype).dtype) for dims in (lhs, rhs)))


@pytest.mark.parametrize("inputs,reverse", [(1, True), (1, False), (7, True), (7, False)])
def test_window_sees_everything(inputs: int, reverse: bool) -> None:
    rng = np.random.default_rng(0)
    lhs, rhs = (random(rng, dims, np.dtype(np.float32)) for dims in ((5, 4, 6, inputs), (4, 6, inputs, 9)))
    check(Convolution(Window.of((4, 6), reversal=(reverse, reverse)), dims_of(NHWC)), lhs, rhs)


@pytest.mark.parametrize(
    "target",
    [
        Target("x86_64-unknown-linux-gnu", "x86-64", "", 16, 16, False),
        Target(TARGET.triple, TARGET.cpu, "", 4, 16, False),
    ],
)
@pytest.mark.parametrize("form", ["forward", "input", "filter"])
@pytest.mark.parametrize("number", [0, 9])
def test_embedded_in_other_targets(number: int, form: str, target: Target) -> None:
    rng = np.random.default_rng(number)
    op, lhs, rhs = layer(form, *LAYERS[number])
    check(
        op,
        random(rng, lhs, np.dtype(np.float32)),
        random(rng, rhs, np.dtype(np.float32)),
        target=target,
        embed=True,
    )


@pytest.mark.parametrize(
    "triple,cpu", [("aarch64-linux-gnu", "cortex-a53"), ("x86_64-linux-gnu", "x86-64-v4")]
)
def test_library_compiles_for_other_targets(triple: str, cpu: str) -> None:
    data, exports = build_library(target_for(triple, cpu), "conv_f32")
    assert data[:4] == b"\x7fELF"
    assert {f"tfb_{kind}_f32_{v}" for kind in ("conv", "convt") for v in (1, 2, 3)} <= set(exports)
    assert {"tfb_conv_f32_3_3x4", "tfb_convt_f32_2x1"} <= set(exports)


@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize(
    "batch,spatial,inputs,outputs", [(0, 5, 3, 4), (2, 5, 0, 4), (2, 5, 3, 0), (2, 1, 3, 4), (2, 0, 3, 4)]
)
def test_nothing(batch: int, spatial: int, inputs: int, outputs: int, window: int) -> None:
    lhs = np.ones((batch, spatial, spatial, inputs), np.float32)
    rhs = np.ones((window, window, inputs, outputs), np.float32)
    check(Convolution(Window.of((window, window)), dims_of(NHWC)), lhs, rhs)


def test_unsupported() -> None:
    lhs, rhs = np.ones((1, 3, 3, 1), np.float32), np.ones((1, 1, 1, 1), np.float32)
    convolution = contraction_of(Convolution(Window.of((1, 1)), dims_of(NHWC)), lhs, rhs)
    with pytest.raises(UnsupportedError, match="f32 with a result of s32"):
        emit_convolution(ModuleText(TARGET), TARGET, convolution, convolution.shape.with_type(E.S32), None)


@pytest.mark.parametrize("seed", range(16))
def test_small_output_channels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 2

    def pick(*options: int) -> tuple[int, ...]:
        return tuple(int(rng.choice(options)) for _ in range(rank))

    size, base, dilation = pick(1, 2, 3, 4, 5), pick(1, 1, 2, 3), pick(1, 1, 2)
    spatial, low, high = pick(5, 8, 13), pick(-1, 0, 1, 3), pick(-1, 0, 2, 4)
    window = Window.of(size, (1,) * rank, low, high, base, dilation, tuple(x == 1 for x in pick(0, 1)))
    inputs, outputs, batch = int(rng.choice([8, 17, 40])), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    order = rng.choice(["io", "oi"])
    dims = dims_of(f"b{'01'[:rank]}f_{'01'[:rank]}{order}->b{'01'[:rank]}f")
    kernel = (*size, inputs, outputs) if order == "io" else (*size, outputs, inputs)
    dtype = np.dtype(np.float64 if seed % 5 == 4 else np.float32)
    check(
        Convolution(window, dims), random(rng, (batch, *spatial, inputs), dtype), random(rng, kernel, dtype)
    )


def test_small_output_channels_in_several_tasks() -> None:
    rng = np.random.default_rng(0)
    op = Convolution(Window.of((5, 5), (1, 1), (3, 3), (3, 4), (2, 2)), dims_of(NHWC))
    lhs, rhs = (random(rng, dims, np.dtype(np.float32)) for dims in ((1, 40, 31, 64), (5, 5, 64, 3)))
    check(op, lhs, rhs)
    assert emit(contraction_of(op, lhs, rhs), False)[0].tasks > 1


@pytest.mark.parametrize(
    "batch,length,inputs,size,stride,outputs",
    [
        (3, 300, 1, 16, 2, 24),
        (1, 300, 2, 5, 1, 24),
        (2, 140, 7, 3, 1, 1),
        (2, 129, 4, 1, 1, 9),
        (5, 20, 3, 2, 2, 8),
    ],
)
def test_rows_that_overlap(
    batch: int, length: int, inputs: int, size: int, stride: int, outputs: int
) -> None:
    rng = np.random.default_rng(0)
    lhs, rhs = (
        random(rng, dims, np.dtype(np.float32)) for dims in ((batch, length, inputs), (size, inputs, outputs))
    )
    op = Convolution(Window.of((size,), (stride,)), dims_of("b0f_0io->b0f"))
    check(op, lhs, rhs)
    images = batch if batch > 1 and size != stride and (length - size) // stride >= 127 else 1
    assert convolution_view(contraction_of(op, lhs, rhs))[0] == (images if size > 1 else 1)


@pytest.mark.parametrize(
    "inputs,outputs,height,pad,dilation",
    [(300, 370, 7, (0, 0), 2), (513, 300, 5, (1, 2), 2), (256, 290, 6, (0, 3), 1), (1024, 233, 3, (2, 0), 3)],
)
def test_kernel_gradient_of_distant_rows(
    inputs: int, outputs: int, height: int, pad: tuple[int, int], dilation: int
) -> None:
    """One position, whose window elements lie far from each other: they are copied together."""
    rng = np.random.default_rng(0)
    window = Window.of((height, 7), (), (pad[0],) * 2, (pad[1],) * 2, (), (dilation,) * 2)
    seen = [(size - 1) * dilation + 1 - sum(pad) for size in (height, 7)]
    op = Convolution(window, dims_of("f01b_i01o->01bf"))
    check(
        op,
        random(rng, (3, *seen, inputs), np.dtype(np.float32)),
        random(rng, (3, height, 7, outputs), np.dtype(np.float32)),
    )


@pytest.mark.parametrize("inputs,window,stride", [(5, 1, 2), (37, 3, 1), (900, 1, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_width_of_the_last_panel(inputs: int, window: int, stride: int, dtype: object) -> None:
    """Panels of output features and a part of one, of whole vectors and of others, in one sum and in several."""
    lanes = TARGET.lanes(np.dtype(dtype).itemsize * 8)
    rng = np.random.default_rng(0)
    for outputs in widths_of_last_panels(lanes):
        op, lhs, rhs = layer("forward", 1, 7, 6, inputs, window, outputs, stride, 1, 1)
        check(op, random(rng, lhs, np.dtype(dtype)), random(rng, rhs, np.dtype(dtype)))
