"""Kernels with loops of their own (select-and-scatter, scatter, sort, random bits): compiled code against the ops'
references, over types, shapes and attributes that choose different code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tfbridge.compiler.client import LocalClient
from tfbridge.compiler.evaluator import evaluate
from tfbridge.compiler.ir import Computation, Instruction, Module, make
from tfbridge.compiler.ops import (
    Compare,
    GetTupleElement,
    Op,
    Parameter,
    SelectAndScatter,
    Tuple,
    Window,
)
from tfbridge.compiler.ops.elementwise import Elementwise
from tfbridge.compiler.shape import Shape
from tfbridge.compiler.types import ElementType

E = ElementType


def parameters(*shapes: Shape) -> list[Instruction]:
    return [Instruction(Parameter(k, s), (), s, f"p{k}") for k, s in enumerate(shapes)]


def binary(opcode: str, element: str) -> Computation:
    """An elementwise op on two scalars."""
    given = parameters(*[Shape(E(element))] * 2)
    return Computation(opcode, make(Elementwise(opcode), *given), given)


def comparator(direction: str, *elements: str, total: bool = False) -> Computation:
    """A comparison of the first pair of scalars."""
    given = parameters(*(Shape(E(e)) for e in elements for _ in range(2)))
    return Computation("compare", make(Compare(direction, "TOTALORDER" if total else ""), *given[:2]), given)


def check(op: Op, *operands: np.ndarray) -> None:
    """Compiled code gives the reference's very values."""
    from tfbridge.compiler.types import element_type_of
    given = parameters(*(Shape(element_type_of(o.dtype), o.shape) for o in operands))
    module = Module("test", Computation("test", make(op, *given), given))
    found = LocalClient("cpu").compile(module).execute(operands)
    wanted = evaluate(module, operands)
    for f, w in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert f.dtype == w.dtype and f.shape == w.shape
        same = (f == w) | ((f != f) & (w != w))
        assert np.all(same), f"{np.sum(~same)} of {f.size} differ: {f[~same][:5]} {w[~same][:5]}"


def values(rng: np.random.Generator, dims: Sequence[int], dtype: str) -> np.ndarray:
    """Small whole numbers, so that sums are exact in any order and ties are frequent."""
    return rng.integers(0 if dtype.startswith(("u", "b")) else -4, 5, tuple(dims)).astype(E(dtype).dtype)


# -- select-and-scatter

WINDOWS = {  # name: (operand dims, window)
    "pool2": ((3, 6, 8, 19), Window.of((1, 2, 2, 1), (1, 2, 2, 1))),
    "pool2-uneven": ((2, 7, 5, 9), Window.of((1, 2, 2, 1), (1, 2, 2, 1))),
    "pool3-same": ((2, 7, 6, 11), Window.of((1, 3, 3, 1), (1, 2, 2, 1), (0, 1, 1, 0), (0, 1, 1, 0))),
    "pool3-overlap": ((1, 9, 9, 40), Window.of((1, 3, 3, 1), (1, 2, 2, 1))),
    "one-channel": ((2, 6, 6, 1), Window.of((1, 2, 3, 1), (1, 1, 2, 1))),
    "channels-first": ((2, 3, 8, 8), Window.of((1, 1, 2, 2), (1, 1, 2, 2))),
    "over-channels": ((2, 12), Window.of((1, 3), (1, 2), (0, 2), (0, 1))),
    "large": ((40, 5), Window.of((20, 1), (7, 1), (3, 0), (4, 0))),
    "numbers-beyond-a-byte": ((200, 3), Window.of((150, 1), (10, 1))),
    "dilated": ((1, 9, 8, 5), Window.of((1, 2, 3, 1), (1, 2, 1, 1), (0, 2, 1, 0), (0, 1, 2, 0), (1, 1, 2, 1),
                                        (1, 3, 1, 1))),
    "cut": ((1, 9, 8, 5), Window.of((1, 2, 2, 1), (1, 2, 2, 1), (0, -1, -2, 0), (0, -1, 0, 0))),
    "only-padding": ((3, 4), Window.of((2, 1), (2, 1), (4, 0), (4, 0))),
    "identity": ((3, 5), Window.of((1, 1))),
    "empty": ((0, 4, 4, 3), Window.of((1, 2, 2, 1), (1, 2, 2, 1))),
    "no-windows": ((2, 1, 1, 3), Window.of((1, 2, 2, 1), (1, 2, 2, 1))),
    "scalar": ((), Window.of(())),
    "parallel": ((16, 16, 16, 24), Window.of((1, 2, 2, 1), (1, 2, 2, 1))),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("element", ["f32", "s8", "bf16", "f64", "u64"])
def test_select_and_scatter(name: str, element: str) -> None:
    dims, window = WINDOWS[name]
    rng = np.random.default_rng(len(name))
    op = SelectAndScatter(window, comparator("GE", element), binary("add", element))
    source = values(rng, window.output(dims), element)
    check(op, values(rng, dims, element), source, np.asarray(1, source.dtype))


def test_select_and_scatter_combines_in_order() -> None:
    """The last update of several for one place remains."""
    given = parameters(*[Shape(E.F32)] * 2)
    last = Computation("last", given[1], given)
    rng = np.random.default_rng(0)
    for dims in ((1, 9, 9, 17), (1, 9, 9, 1)):
        op = SelectAndScatter(Window.of((1, 3, 3, 1)), comparator("GT", "f32"), last)
        check(op, values(rng, dims, "f32"), rng.standard_normal((1, 7, 7, dims[-1])).astype(np.float32),
              np.float32(0))


def test_select_and_scatter_with_nan() -> None:
    rng = np.random.default_rng(0)
    operand = values(rng, (2, 6, 6, 9), "f32")
    operand[rng.random(operand.shape) < 0.3] = np.nan
    op = SelectAndScatter(Window.of((1, 2, 2, 1), (1, 2, 2, 1)), comparator("GE", "f32"), binary("add", "f32"))
    check(op, operand, values(rng, (2, 3, 3, 9), "f32"), np.float32(0))
