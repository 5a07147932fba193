"""Right operands packed before a product: constants when compiling, loop invariants before the loop."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases import computation, constant
from tfbridge.compiler.client.client import LocalClient
from tfbridge.compiler.cpu.compile import CPU_PASSES
from tfbridge.compiler.cpu.schedule import prepacking
from tfbridge.compiler.cpu.schedule.thunks import (
    KEPT_PARAMETERS,
    Launch,
    Loop,
    Schedule,
    plan_memory,
    schedule_module,
)
from tfbridge.compiler.ir.literal import Literal
from tfbridge.compiler.ir.module import Computation, Instruction, Module, make
from tfbridge.compiler.ir.shape import array
from tfbridge.compiler.ops import (
    Broadcast,
    Compare,
    Constant,
    Convolution,
    ConvolutionDims,
    Dot,
    Elementwise,
    GetTupleElement,
    Parameter,
    Tuple,
    While,
    Window,
)
from tfbridge.compiler.options import DEFAULT_OPTIONS
from tfbridge.compiler.passes.pipeline import run_pipeline
from tfbridge.runtime.llvm.ir_builder import ModuleText
from tfbridge.runtime.llvm.target import host


def scheduled(module: Module) -> Schedule:
    target = host()
    schedule = schedule_module(
        run_pipeline(module, passes=CPU_PASSES), ModuleText(target), target, DEFAULT_OPTIONS
    )
    plan_memory(schedule)
    return schedule


def packs(schedule: Schedule) -> list[Launch]:
    return [s for s in schedule.steps if isinstance(s, Launch) and s.instruction.opcode == "copy"]


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
    module = Module("m", Computation("main", make(Elementwise("abs"), product), [x]))
    a = numbers(*batch, m, k, seed=1)
    wanted = np.abs(a @ (weights.swapaxes(-1, -2) if transposed else weights))
    np.testing.assert_array_equal(run(module, a)[0], wanted)


def test_constant_takes_the_place_of_the_unpacked_one() -> None:
    weights = numbers(512, 512)
    x = make(Parameter(0, array("f32", 32, 512)), name="x")
    w = make(Constant(Literal(weights)))
    schedule = scheduled(Module("m", Computation("main", dot(x, w), [x])))
    assert weights.nbytes <= len(schedule.constants) <= weights.nbytes * 1.1
    assert weights.tobytes() not in schedule.constants
    both = scheduled(Module("m", Computation("main", make(Tuple(), dot(x, w), w), [x])))
    assert weights.tobytes() in both.constants


def test_shared_constant_is_read_both_ways() -> None:
    """One product packs it, another streams it, an elementwise op reads it."""
    weights = numbers(256, 256)
    x, y = (make(Parameter(j, array("f32", rows, 256)), name=f"p{j}") for j, rows in enumerate((64, 1)))
    w = make(Constant(Literal(weights)))
    root = make(Tuple(), dot(x, w), dot(y, w), make(Elementwise("negate"), w), dot(x, w, True))
    a, b = numbers(64, 256, seed=1), numbers(1, 256, seed=2)
    found = run(Module("m", Computation("main", root, [x, y])), a, b)
    for result, wanted in zip(found, (a @ weights, b @ weights, -weights, a @ weights.T), strict=True):
        np.testing.assert_array_equal(result, wanted)


def loop(rounds: int, state: list[Instruction], body) -> Instruction:  # noqa: ANN001
    """while i < rounds: state = body(i, *state); the state, the number first."""
    init = make(Tuple(), constant(0, "s32"), *state)

    def parts(s: Instruction) -> list[Instruction]:
        return [make(GetTupleElement(j), s) for j in range(len(state) + 1)]

    def step(s: Instruction) -> Instruction:
        number, *values = parts(s)
        return make(Tuple(), make(Elementwise("add"), number, constant(1, "s32")), *body(*values))

    test = computation(
        "more", [init.shape], lambda s: make(Compare("LT"), parts(s)[0], constant(rounds, "s32"))
    )
    return make(While(test, computation("body", [init.shape], step)), init)


def halved(x: Instruction, w: Instruction) -> Instruction:
    return make(Elementwise("sign"), dot(x, w))


def recurrence(rounds: int, m: int, n: int) -> Module:
    """x = sign(x w) again and again."""
    x, w = (make(Parameter(j, array("f32", rows, n)), name=f"p{j}") for j, rows in enumerate((m, n)))
    end = loop(rounds, [x, w], lambda x, w: [halved(x, w), w])
    return Module("m", Computation("main", make(GetTupleElement(1), end), [x, w]))


@pytest.mark.parametrize(("rounds", "m", "n"), itertools.product([0, 1, 4], [16, 40], [256, 130]))
def test_recurrence(rounds: int, m: int, n: int) -> None:
    x, w = numbers(m, n), numbers(n, n, seed=3)
    wanted = x
    for _ in range(rounds):
        wanted = np.sign(wanted @ w)
    np.testing.assert_array_equal(run(recurrence(rounds, m, n), x, w)[0], wanted)


def test_weights_of_a_recurrence_are_packed_once() -> None:
    schedule = scheduled(recurrence(5, 16, 512))
    (packed,) = packs(schedule)
    (inside,) = [s for s in schedule.steps if isinstance(s, Loop)]
    (product,) = [s for s in inside.body if isinstance(s, Launch) and packed.buffers[1] in s.buffers]
    assert packed.buffers[0] not in product.buffers


def test_nested_loops_pack_before_the_outer_one() -> None:
    x, w, v = (
        make(Parameter(j, array("f32", rows, 512)), name=f"p{j}") for j, rows in enumerate((32, 512, 512))
    )

    def outer(x: Instruction, w: Instruction, v: Instruction) -> list[Instruction]:
        inner = loop(3, [x, w, v], lambda x, w, v: [halved(x, w), w, v])
        changed = make(Elementwise("negate"), v)
        again = loop(2, [make(GetTupleElement(1), inner), changed], lambda x, v: [halved(x, v), v])
        return [make(GetTupleElement(1), again), w, changed]

    root = make(GetTupleElement(1), loop(2, [x, w, v], outer))
    module = Module("m", Computation("main", root, [x, w, v]))
    schedule = scheduled(module)
    assert len(packs(schedule)) == 1
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
    x, w = (make(Parameter(j, array("f32", *d)), name=f"p{j}") for j, d in enumerate((given, kernel)))
    return x, make(Convolution(window, dims), x, w), numbers(*given, seed=1), numbers(*kernel, seed=2)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_kernel_of_a_convolution(name: str) -> None:
    """A constant kernel is packed when compiling; one that a loop does not change before the loop."""
    x, product, a, kernel = convolution(name)
    (wanted,) = run(Module("m", Computation("main", product, [x, product.operands[1]])), a, kernel)
    constant_kernel = make(Constant(Literal(kernel)))
    root = make(Elementwise("abs"), product.with_operands((x, constant_kernel)))
    module = Module("m", Computation("main", root, [x]))
    assert kernel.tobytes() not in scheduled(module).constants
    np.testing.assert_array_equal(run(module, a)[0], np.abs(wanted))

    w = product.operands[1]
    start = make(Broadcast(product.shape.dims, ()), constant(0, "f32"))
    total = loop(
        3,
        [start, x, w],
        lambda s, x, w: [
            make(Elementwise("add"), s, product.with_operands((x, w))),
            make(Elementwise("negate"), x),
            w,
        ],
    )
    module = Module("m", Computation("main", make(GetTupleElement(1), total), [x, w]))
    assert len(packs(scheduled(module))) == 1
    np.testing.assert_array_equal(run(module, a, kernel)[0], wanted)


def test_kept_parameters_are_packed_by_the_preparation() -> None:
    """What is said to keep its value comes packed; equal layouts once, few bytes and many rows not at all."""
    x, w, small = (
        make(Parameter(j, array("f32", *d)), name=f"p{j}")
        for j, d in enumerate([(32, 512), (512, 512), (512, 8)])
    )
    y, tall = (make(Parameter(j, array("f32", rows, 512)), name=f"p{j}") for j, rows in ((3, 40), (4, 400)))
    root = make(Tuple(), dot(x, w), dot(y, w), dot(x, small), dot(tall, w), dot(x, w, True))
    module = Module("m", Computation("main", root, [x, w, small, y, tall]), {KEPT_PARAMETERS: "{1, 2}"})
    schedule = scheduled(module)
    assert [p.parameter for p in schedule.packed] == [1, 1]
    assert schedule.packed[0].layout != schedule.packed[1].layout
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
    monkeypatch.setattr(prepacking, "MOST_BYTES_KEPT", weights[0].shape.bytes * 5 // 2)
    root = make(Tuple(), *(dot(x, w) for w in weights))
    module = Module("m", Computation("main", root, [*weights, x]), {KEPT_PARAMETERS: "{0, 1, 2}"})
    assert len(scheduled(module).packed) == count
    arrays = [numbers(*p.shape.dims, seed=k) for k, p in enumerate((*weights, x))]
    for found, weight in zip(run(module, *arrays), arrays[:3], strict=True):
        np.testing.assert_array_equal(found, arrays[3] @ weight)
