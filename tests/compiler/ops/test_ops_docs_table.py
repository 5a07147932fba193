"""docs/operations.md: its table is what the registry says, and says nothing that is not so."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from cases import CASES
from tfbridge.compiler import Computation, ComputationBuilder, LocalClient, Shape, array, evaluate, parse_hlo
from tfbridge.compiler.builder.derived import binary_computation
from tfbridge.compiler.ir.element_types import ARRAYS, ElementType
from tfbridge.compiler.ir.module import Module
from tfbridge.compiler.ops import OPS
from tfbridge.compiler.ops.docs_table import (
    METHODS,
    TYPES,
    has_reference,
    methods,
    table,
    types,
    unknown_methods,
)

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "operations.md"
SHAPELESS = frozenset(
    {
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "call",
        "fusion",
        "while",
        "concurrent",
        "conditional",
        "map",
        "opt-barrier",
        "copy",
        "get-dimension-size",
        "set-dimension-size",
        "sort",
        "reduce-window",
    }
)
"""What takes any type because it does not look at elements, or lets a computation do so: `test_any_type` has these."""
ELSEWHERE = frozenset(
    {
        "custom-call",
        "trace",
        "infeed",
        "recv",
        "rng-bit-generator",
        "send-done",
        "recv-done",
        "after-all",
        "replica-id",
        "partition-id",
    }
)
"""What is tested with a partner, or whose type is its result's."""


def test_the_document_has_the_table() -> None:
    assert table() in DOCUMENT.read_text(), (
        "python -m tfbridge.compiler.ops.docs_table prints the table of today"
    )


def test_no_hole() -> None:
    assert not unknown_methods()
    assert set(METHODS) <= set(OPS) and set(TYPES) <= set(OPS)
    assert all(map(has_reference, OPS.values()))
    assert {opcode for opcode in OPS if not methods(opcode)} == {
        "add-dependency",
        "concurrent",
        "fusion",
        "table-lookup",
    }


@pytest.mark.parametrize("opcode", sorted(set(OPS) - SHAPELESS - ELSEWHERE))
def test_every_type_has_a_case(opcode: str) -> None:
    """The generic tests run every case in the evaluator, through text and on cpu."""
    covered = set()
    for case in CASES:
        if case.op.opcode == opcode:
            shapes = [i.shape for i in case.operands[1 if opcode == "select" else 0 :][:1]]
            covered |= {leaf.element_type for s in shapes or [case.op.infer([])] for leaf in s.leaves()}
    assert types(opcode) <= covered


def identity(kind: str, *dims: int) -> Computation:
    b = ComputationBuilder("identity")
    return b.build(b.copy(b.parameter(0, array(kind, *dims))))


def everything(kind: ElementType) -> Module:
    """A vector taken through every operation that does not look at elements; each result is the vector."""
    t = kind.value
    b = ComputationBuilder("any")
    b.die_immediately_on_error = True
    x = b.parameter(0, array(t, 3))
    state = Shape.tuple([array("s32"), array(t, 3)])
    more = ComputationBuilder("more")
    more.lt(more.get_tuple_element(more.parameter(0, state), 0), more.constant(2))
    body = ComputationBuilder("body")
    p = body.parameter(0, state)
    body.tuple([body.add(body.get_tuple_element(p, 0), body.constant(1)), body.get_tuple_element(p, 1)])
    loop = b.get_tuple_element(b.while_(more.build(), body.build(), b.tuple([b.constant(0), x])), 1)
    same = identity(t, 3)
    chosen = b.conditional(b.eq(b.get_dimension_size(x, 0), b.constant(3)), x, same, b.rev(x, (0,)), same)
    mapped = b.map([x], identity(t))
    sized = b.set_dimension_size(x, b.constant(3), 0)
    constant = b.constant(np.ones(3), kind)
    first = ComputationBuilder("first")
    first.lt(
        *(
            first.convert_element_type(first.parameter(k, array(t)), "f32")
            if not kind.is_complex
            else first.real(first.parameter(k, array(t)))
            for k in range(2)
        )
    )
    ordered = b.sort(x, first.build(), 0, True)
    operation = binary_computation("multiply", kind)
    windows = b.reduce_window(x, b.constant(1, kind), operation, (1,), (1,), "valid")
    root = b.tuple(
        [
            loop,
            chosen,
            mapped,
            sized,
            b.optimization_barrier(x),
            b.copy(x),
            b.call(same, [x]),
            ordered,
            windows,
            b.select(b.constant([True, True, True]), x, constant),
        ]
    )
    return Module("any", b.build(root))


@pytest.mark.parametrize("kind", sorted(ARRAYS, key=lambda k: k.value), ids=lambda k: k.value)
def test_any_type(kind: ElementType) -> None:
    module = everything(kind)
    assert str(parse_hlo(str(module))) == str(module)
    x = np.array([0, 1, 1]).astype(kind.dtype)
    for found in (evaluate(module, [x]), LocalClient().compile(module).execute([x])):
        for one in found:
            assert one.dtype == x.dtype
            np.testing.assert_array_equal(one.astype(np.complex64), x.astype(np.complex64))


@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox", "rng_default"])
def test_random_bits_of_every_integer_type(algorithm: str) -> None:
    """The state of the size that the document gives; a state gives the same bits again, the new one others."""
    state = np.arange(1, 4 if algorithm == "rng_philox" else 3, dtype=np.uint64)
    for kind in sorted(types("rng-bit-generator"), key=lambda k: k.value):
        b = ComputationBuilder("bits")
        b.rng_bit_generator(algorithm, b.parameter(0, array("u64", len(state))), array(kind.value, 64))
        executable = LocalClient().compile(b.build())
        following, bits = executable.execute([state])
        again, other = executable.execute([state])[1], executable.execute([following])[1]
        assert bits.dtype == kind.dtype and following.shape == state.shape
        assert bits.tobytes() == again.tobytes() != other.tobytes()


def test_random_numbers_of_pred() -> None:
    b = ComputationBuilder("coins")
    no, yes = b.constant(False), b.constant(True)
    b.tuple([b.rng_uniform(no, yes, array("pred", 400)), b.rng_uniform(yes, yes, array("pred", 9))])
    tossed, fixed = LocalClient().compile(b.build()).execute([])
    assert 100 < tossed.sum() < 300 and fixed.all()
