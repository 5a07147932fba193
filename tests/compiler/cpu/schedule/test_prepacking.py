"""Right operands packed before a product: constants when compiling, loop invariants before the loop."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from builders import constant, op, parameter, while_loop
from lowering import lowered
from tfbridge.compiler.client.client import LocalClient
from tfbridge.compiler.cpu.schedule import prepacking
from tfbridge.compiler.cpu.schedule.thunks import KernelThunk, ThunkProgram, WhileThunk, kernel_thunks
from tfbridge.compiler.ir.literal import Literal
from tfbridge.compiler.ir.module import Computation, Instruction, Module, make
from tfbridge.compiler.ir.shape import array
from tfbridge.compiler.ops import (
    Broadcast,
    Constant,
    Convolution,
    ConvolutionDims,
    Dot,
    Parameter,
    Tuple,
    Window,
)


def packing_thunks(program: ThunkProgram) -> list[KernelThunk]:
    """The kernels that pack operands before loops of the entry."""
    loops = [t for t in program.entry.thunks if isinstance(t, WhileThunk)]
    kernels = kernel_thunks(t for loop in loops for t in loop.preheader)
    return [t for t in kernels if t.instruction.opcode == "copy"]


def numbers(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, dims).astype(np.float32)


def dot(x: Instruction, w: Instruction, transposed: bool = False) -> Instruction:
    batch = tuple(range(len(x.shape.dims) - 2))
    last = len(x.shape.dims) - 1
    return make(Dot((last,), (last if transposed else last - 1,), batch, batch), x, w)


def run(module: Module, *arguments: np.ndarray) -> list[np.ndarray]:
    return LocalClient("cpu").compile(module).execute(list(arguments))


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        (32, 512, 512),
        (33, 300, 1031),
        (130, 64, 40),
        (16, 1, 8),
        (64, 257, 7),
        (5, 700, 1100),
        (11, 513, 777),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_constant(m: int, k: int, n: int, transposed: bool, batch: tuple[int, ...]) -> None:
    weights = numbers(*batch, *((n, k) if transposed else (k, n)), seed=n)
    x = make(Parameter(0, array("f32", *batch, m, k)), name="x")
    product = dot(x, make(Constant(Literal(weights))), transposed)
    module = Module("m", Computation("main", op("abs", product), [x]))
    a = numbers(*batch, m, k, seed=1)
    wanted = np.abs(a @ (weights.swapaxes(-1, -2) if transposed else weights))
    np.testing.assert_array_equal(run(module, a)[0], wanted)


def test_constant_takes_the_place_of_the_unpacked_one() -> None:
    weights = numbers(512, 512)
    x = make(Parameter(0, array("f32", 32, 512)), name="x")
    w = make(Constant(Literal(weights)))
    program = lowered(Module("m", Computation("main", dot(x, w), [x])))
    assert weights.nbytes <= len(program.constants) <= weights.nbytes * 1.1
    assert weights.tobytes() not in program.constants.data()
    both = lowered(Module("m", Computation("main", make(Tuple(), dot(x, w), w), [x])))
    assert weights.tobytes() in both.constants.data()


def test_shared_constant_is_read_both_ways() -> None:
    """One product packs it, another streams it, an elementwise op reads it."""
    weights = numbers(256, 256)
    x, y = (parameter(j, "f32", rows, 256) for j, rows in enumerate((64, 1)))
    w = make(Constant(Literal(weights)))
    root = make(Tuple(), dot(x, w), dot(y, w), op("negate", w), dot(x, w, True))
    a, b = numbers(64, 256, seed=1), numbers(1, 256, seed=2)
    found = run(Module("m", Computation("main", root, [x, y])), a, b)
    for result, wanted in zip(found, (a @ weights, b @ weights, -weights, a @ weights.T), strict=True):
        np.testing.assert_array_equal(result, wanted)


def halved(x: Instruction, w: Instruction) -> Instruction:
    return op("sign", dot(x, w))


def recurrence(rounds: int, m: int, n: int) -> Module:
    """x = sign(x w) again and again."""
    x, w = (parameter(j, "f32", rows, n) for j, rows in enumerate((m, n)))
    x_after, _ = while_loop(rounds, lambda _, x, w: [halved(x, w), w], x, w)
    return Module("m", Computation("main", x_after, [x, w]))


@pytest.mark.parametrize(("rounds", "m", "n"), list(itertools.product([0, 1, 4], [16, 40], [256, 130])))
def test_recurrence(rounds: int, m: int, n: int) -> None:
    x, w = numbers(m, n), numbers(n, n, seed=3)
    wanted = x
    for _ in range(rounds):
        wanted = np.sign(wanted @ w)
    np.testing.assert_array_equal(run(recurrence(rounds, m, n), x, w)[0], wanted)


def test_weights_of_a_recurrence_are_packed_once() -> None:
    program = lowered(recurrence(5, 16, 512))
    (packed,) = packing_thunks(program)
    (loop,) = [t for t in program.entry.thunks if isinstance(t, WhileThunk)]
    (product,) = [t for t in kernel_thunks(loop.body.thunks) if packed.buffers[1] in t.buffers]
    assert packed.buffers[0] not in product.buffers


def test_nested_loops_pack_before_the_outer_one() -> None:
    x, w, v = (parameter(j, "f32", rows, 512) for j, rows in enumerate((32, 512, 512)))

    def outer(_: Instruction, x: Instruction, w: Instruction, v: Instruction) -> list[Instruction]:
        inner = while_loop(3, lambda _, x, w, v: [halved(x, w), w, v], x, w, v)
        changed = op("negate", v)
        again = while_loop(2, lambda _, x, v: [halved(x, v), v], inner[0], changed)
        return [again[0], w, changed]

    root = while_loop(2, outer, x, w, v)[0]
    module = Module("m", Computation("main", root, [x, w, v]))
    program = lowered(module)
    assert len(packing_thunks(program)) == 1
    a, b, c = numbers(32, 512), numbers(512, 512, seed=5), numbers(512, 512, seed=6)
    wanted, changed = a, c
    for _ in range(2):
        changed = -changed
        for weights in [b] * 3 + [changed] * 2:
            wanted = np.sign(wanted @ weights)
    np.testing.assert_array_equal(run(module, a, b, c)[0], wanted)


NHWC = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
NHWC_OIHW = ConvolutionDims(0, 3, (1, 2), 1, 0, (2, 3), 0, 3, (1, 2))
NCHW_OIHW = ConvolutionDims(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))
SAME = Window.of((3, 3), (1, 1), (1, 1), (1, 1))
CONVOLUTIONS = {  # window, dims, input, kernel
    "same": (SAME, NHWC, (1, 7, 7, 64), (3, 3, 64, 100)),
    "deep": (SAME, NHWC, (1, 4, 5, 300), (3, 3, 300, 36)),
    "one element": (Window.of((1, 1)), NHWC, (1, 7, 7, 512), (1, 1, 512, 2048)),
    "strided": (Window.of((3, 3), (2, 2), (0, 0), (1, 1)), NHWC, (2, 14, 14, 40), (3, 3, 40, 50)),
    "stem": (Window.of((7, 7), (2, 2), (3, 3), (3, 3)), NHWC, (1, 33, 31, 3), (7, 7, 3, 33)),
    "dilated": (
        Window.of((3, 2), (1, 1), (2, 1), (2, 1), (1, 1), (2, 3)),
        NHWC,
        (2, 9, 8, 33),
        (3, 2, 33, 17),
    ),
    "reversed": (Window.of((3, 3), reversal=(True, True)), NHWC, (1, 8, 8, 33), (3, 3, 33, 40)),
    "kernel of features": (SAME, NHWC_OIHW, (1, 7, 7, 40), (50, 40, 3, 3)),
    "features first": (SAME, NCHW_OIHW, (2, 40, 7, 7), (50, 40, 3, 3)),
}


def convolution(name: str) -> tuple[Instruction, Instruction, np.ndarray, np.ndarray]:
    window, dims, given, kernel = CONVOLUTIONS[name]
    x, w = (parameter(j, "f32", *d) for j, d in enumerate((given, kernel)))
    return x, make(Convolution(window, dims), x, w), numbers(*given, seed=1), numbers(*kernel, seed=2)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_kernel_of_a_convolution(name: str) -> None:
    """A constant kernel is packed when compiling; one that a loop does not change before the loop."""
    x, product, a, kernel = convolution(name)
    (wanted,) = run(Module("m", Computation("main", product, [x, product.operands[1]])), a, kernel)
    constant_kernel = make(Constant(Literal(kernel)))
    root = op("abs", product.with_operands((x, constant_kernel)))
    module = Module("m", Computation("main", root, [x]))
    assert kernel.tobytes() not in lowered(module).constants.data()
    np.testing.assert_array_equal(run(module, a)[0], np.abs(wanted))

    w = product.operands[1]
    start = make(Broadcast(product.shape.dims, ()), constant(0, "f32"))

    def add_product(_: Instruction, total: Instruction, x: Instruction, w: Instruction) -> list[Instruction]:
        return [op("add", total, product.with_operands((x, w))), op("negate", x), w]

    total = while_loop(3, add_product, start, x, w)[0]
    module = Module("m", Computation("main", total, [x, w]))
    assert len(packing_thunks(lowered(module))) == 1
    np.testing.assert_array_equal(run(module, a, kernel)[0], wanted)


def test_invariant_parameters_are_packed_before_the_entry() -> None:
    """What is said to keep its value comes packed; equal layouts once, few bytes and many rows not at all."""
    x, w, small = (parameter(j, "f32", *d) for j, d in enumerate([(32, 512), (512, 512), (512, 8)]))
    y, tall = (parameter(j, "f32", rows, 512) for j, rows in ((3, 40), (4, 400)))
    root = make(Tuple(), dot(x, w), dot(y, w), dot(x, small), dot(tall, w), dot(x, w, True))
    module = Module("m", Computation("main", root, [x, w, small, y, tall]), invariant_parameters=(1, 2))
    program = lowered(module)
    assert [p.parameter for p in program.packed] == [1, 1]
    assert program.packed[0].layout != program.packed[1].layout
    arrays = [numbers(*p.shape.dims, seed=k) for k, p in enumerate((x, w, small, y, tall))]
    a, b, c, d, e = arrays
    for _ in range(2):
        for found, wanted in zip(run(module, *arrays), (a @ b, d @ b, a @ c, e @ b, a @ b.T), strict=True):
            np.testing.assert_array_equal(found, wanted)
        b *= 2


@pytest.mark.parametrize(("rows", "count"), [(5, 3), (64, 3), (128, 2), (300, 0)])
def test_memory_for_products_of_many_rows_is_bounded(
    rows: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of few rows have all weights kept packed, those of more rows as many as the bound allows."""
    weights = [make(Parameter(j, array("f32", 512, 512)), name=f"w{j}") for j in range(3)]
    x = make(Parameter(3, array("f32", rows, 512)), name="x")
    monkeypatch.setattr(prepacking, "MAX_PACKED_BYTES", weights[0].shape.bytes * 5 // 2)
    root = make(Tuple(), *(dot(x, w) for w in weights))
    module = Module("m", Computation("main", root, [*weights, x]), invariant_parameters=(0, 1, 2))
    assert len(lowered(module).packed) == count
    arrays = [numbers(*p.shape.dims, seed=k) for k, p in enumerate((*weights, x))]
    for found, weight in zip(run(module, *arrays), arrays[:3], strict=True):
        np.testing.assert_array_equal(found, arrays[3] @ weight)
