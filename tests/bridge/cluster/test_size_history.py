"""Which sizes get symbols: those that were others in earlier calls, or that the graph leaves open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tfbridge.bridge.cluster.code_key import Key, code_key
from tfbridge.bridge.cluster.size_history import SizeHistory
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ir.shape import Shape


def call(*dims: Sequence[int], **constants: Sequence[int]) -> Key:
    """The key of a call on arrays of these dims, and integers."""
    values = [np.array(value, np.int32) for value in constants.values()]
    shapes = [Shape(ElementType.F32, tuple(d)) for d in dims]
    shapes += [Shape(ElementType.S32, value.shape) for value in values]
    return code_key(shapes, dict(enumerate(values, len(dims))))


def history(*calls: Key) -> SizeHistory:
    result = SizeHistory()
    for key in calls:
        result.note(key)
    return result


def test_sizes_that_vary() -> None:
    assert history(call((3, 7))).symbols(call((3, 7))) == {}
    assert history(call((3, 7))).symbols(call((4, 7))) == {(0, 0): "s0"}
    assert history(call((3, 7)), call((4, 7))).symbols(call((4, 9))) == {(0, 0): "s0", (0, 1): "s1"}


def test_sizes_that_are_equal_in_every_call_have_one_name() -> None:
    same = history(call((3, 7), (3, 7)), call((4, 9), (4, 9)))
    assert same.symbols(call((5, 5), (5, 5))) == {(0, 0): "s0", (0, 1): "s1", (1, 0): "s0", (1, 1): "s1"}
    assert same.symbols(call((5, 6), (5, 8)))[1, 1] == "s2"


def test_a_size_below_two_has_no_symbol() -> None:
    assert history(call((3, 7))).symbols(call((1, 8))) == {(0, 1): "s0"}
    assert history(call((1, 7))).symbols(call((2, 0))) == {(0, 0): "s0"}


def test_sizes_that_the_graph_leaves_open() -> None:
    unknown = {(0, 0), (0, 1), (1, 1)}
    assert history().symbols(call((3, 7), (4, 7)), unknown) == {(0, 0): "s0", (0, 1): "s1", (1, 1): "s2"}
    varied = history(call((3, 7), (4, 7)), call((3, 8), (4, 8)))
    assert varied.symbols(call((3, 9), (4, 9)), unknown) == {(0, 0): "s0", (0, 1): "s1", (1, 1): "s1"}


def test_integers_that_decide_shapes() -> None:
    earlier = history(call((8,), n=5), call((8,), n=6))
    assert earlier.symbols(call((8,), n=7)) == {(1, -1): "s0"}
    assert earlier.symbols(call((8,), n=-1)) == {}
    assert history(call((8,), n=range(20))).symbols(call((8,), n=range(1, 21))) == {}, "that is data"


def test_calls_of_other_ranks_tell_nothing() -> None:
    assert history(call((3, 7))).symbols(call((3, 8, 1))) == {}


def test_what_is_kept_does_not_grow() -> None:
    many = history(*(call((n, n + 1)) for n in range(2, 1000)))
    assert len(many._calls) == 1
    for n in range(1000):
        many.note(call((8,), n=[-n] * 3))
        many.note(call((8,), n=range(n, n + 9)))
    assert len(many._calls) <= 64
