"""Checks of values while a cluster runs: where one does not hold, the run ends with TensorFlow's error."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....compiler.builder.computation_builder import Operand
from ....compiler.builder.derived import binary_computation
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ..node import Node
from ..registry import translates
from ..values import Text, Value

_FLOATS = frozenset({ElementType.F16, ElementType.BF16, ElementType.F32, ElementType.F64})
_NEGATIVE_INFINITY, _POSITIVE_INFINITY, _NAN = 1, 2, 4


@translates("Assert", stateful=True)
def assert_(node: Node) -> None:
    """The message shows texts and constants; of other data the type, for compiled code does not write numbers."""
    if node.shape("condition"):
        raise ShapeError(f"In[0] should be a scalar: {list(node.shape('condition'))}")
    known = node.constant_or_none("condition")
    if known is not None and known:
        return
    shown = " ".join(f"[{_summary(node, value)}]" for value in node.inputs[1:])
    node.b.fail_if(node.b.not_(node["condition"]), f"assertion failed: {shown}")


def _summary(node: Node, value: Value) -> str:
    most = int(node.attr("summarize", 3))
    if isinstance(value, Text):
        return _listed(value.values.ravel(), most)
    if not isinstance(value, Operand):
        return ""
    known = node.translator.constant_value(value)
    return str(node.b.get_shape(value)) if known is None else _listed(known.ravel(), most)


def _listed(values: np.ndarray, most: int) -> str:
    def word(value: Any) -> str:
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if values.dtype.kind == "f":
            return f"{float(value):g}"
        return str(int(value) if values.dtype.kind == "b" else value)

    words = [word(v) for v in (values if most < 0 else values[:most])]
    return " ".join(words) + ("..." if len(words) < len(values) else "")


@translates("CheckNumerics", types={"T": _FLOATS})
def check_numerics(node: Node) -> Operand:
    infinite = _NEGATIVE_INFINITY | _POSITIVE_INFINITY
    return _checked(node, [("Inf and NaN", (_NAN, infinite)), ("Inf", (infinite,)), ("NaN", (_NAN,))])


@translates("CheckNumericsV2", types={"T": _FLOATS})
def check_numerics_v2(node: Node) -> Operand:
    """As above, with the infinities' signs."""
    names = {_NEGATIVE_INFINITY: "-Inf", _POSITIVE_INFINITY: "+Inf", _NAN: "NaN"}
    together = [tuple(bit for bit in names if bits & bit) for bits in (7, 6, 5, 3, 4, 2, 1)]
    return _checked(node, [(_joined([names[bit] for bit in bits]), bits) for bits in together])


def _joined(words: Sequence[str]) -> str:
    return " and ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])}, and {words[-1]}"


def _checked(node: Node, kinds: Sequence[tuple[str, Sequence[int]]]) -> Operand:
    """The input. The first of the kinds ends the run that it has: (name, sets of bits, of each of which it has one)."""
    b, value, dims = node.b, node[0], node.shape(0)
    zero, infinite = b.constant(0), b.full_like(value, float("inf"))
    found = b.broadcast(zero, dims)
    for test, bit in (
        (b.eq(value, -infinite), _NEGATIVE_INFINITY),
        (b.eq(value, infinite), _POSITIVE_INFINITY),
        (b.ne(value, value), _NAN),
    ):
        found = b.select(test, b.broadcast(b.constant(bit), dims), found)
    bits = b.reduce(found, zero, binary_computation("or", ElementType.S32), range(len(dims)))
    for name, wanted in kinds:
        tests = [b.ne(b.and_(bits, b.constant(set_)), zero) for set_ in wanted]
        b.fail_if(functools.reduce(b.and_, tests), f"{node.attr('message')} : Tensor had {name} values")
    return value
