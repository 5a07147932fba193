"""Collectives on several devices: what arrives, on both platforms, as the documents' examples say; order and presence
of side effects; programs whose devices do not come together; groups that do not fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from builders import computation, reducer
from fixtures import Fixture, inputs, read
from tfbridge.compiler import (
    CommunicationError,
    ComputationBuilder,
    LocalClient,
    ShapeError,
    evaluate,
    parse_hlo,
)
from tfbridge.compiler.ir import module as ir
from tfbridge.compiler.ir.element_types import ARRAYS, ElementType, element_type_of
from tfbridge.compiler.ir.shape import Shape, array
from tfbridge.compiler.ir.verifier import verify
from tfbridge.compiler.ops import Compare, Elementwise
from tfbridge.compiler.ops.numeric import bit_pattern
from tfbridge.compiler.options import Options
from tfbridge.compiler.passes import pipeline
from tfbridge.compiler.passes.combine_all_reduces import combine_all_reduces
from tfbridge.compiler.passes.expand_collectives import expand_collectives

PLATFORMS = ["interpreter", "cpu"]
platforms = pytest.mark.parametrize("platform", PLATFORMS)


def built(shape: Any, write: Callable[[ComputationBuilder, Any], Any]) -> ir.Computation:
    """A computation of one parameter."""
    b = ComputationBuilder("main")
    return b.build(write(b, b.parameter(0, shape, "x")))


def run(platform: str, program: Any, given: Sequence[Any], partitions: int = 1, **keywords: Any) -> list[Any]:
    """The results of a program of one parameter (several: a tuple) on as many devices as there are values."""
    executable = LocalClient(platform).compile(
        program, num_replicas=len(given) // partitions, num_partitions=partitions
    )
    arguments = [list(v) if isinstance(v, tuple) else [v] for v in given]
    found = executable.execute_replicas(arguments, **keywords)
    return [f[0] if len(f) == 1 else tuple(f) for f in found]


def both(program: Any, given: Sequence[Any], partitions: int = 1) -> list[Any]:
    """The results, equal on both platforms."""
    wanted, found = (run(p, program, given, partitions) for p in PLATFORMS)
    for w, f in zip(wanted, found, strict=True):
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (w, f)), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and stored(a) == stored(b)
    return found


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


# -- the documents' examples


def test_all_gather_of_the_document() -> None:
    program = built(array("f32", 2), lambda b, x: b.all_gather(x, 0, 2))
    for found in both(program, [f32(1, 2.5), f32(3, 5.25)]):
        assert found.tolist() == [1, 2.5, 3, 5.25]


def test_all_reduce_of_the_document() -> None:
    program = built(array("f32", 2), lambda b, x: b.all_reduce(x, reducer("add", "f32")))
    for found in both(program, [f32(1, 2.5), f32(3, 5.25)]):
        assert found.tolist() == [4, 7.75]


def test_cross_replica_sum_of_the_document() -> None:
    program = built(array("f32", 2), lambda b, x: b.cross_replica_sum(x))
    for found in both(program, [f32(1, 2.5), f32(3, 5.1)]):
        np.testing.assert_allclose(found, [4, 7.6], rtol=1e-6)


def test_reduce_scatter_of_the_document() -> None:
    program = built(array("f32", 2), lambda b, x: b.reduce_scatter(x, reducer("add", "f32"), 0, 2))
    assert [f.tolist() for f in both(program, [f32(1, 2.25), f32(3, 5.25)])] == [[4], [7.5]]


def test_all_to_all_of_the_document() -> None:
    given = [np.arange(64, dtype=np.float32).reshape(4, 16) + 100 * k for k in range(4)]
    for k, found in enumerate(both(built(array("f32", 4, 16), lambda b, x: b.all_to_all(x, 1, 0, 4)), given)):
        assert found.shape == (16, 4)
        np.testing.assert_array_equal(found, np.concatenate([g[:, 4 * k : 4 * k + 4] for g in given]))


def test_groups_of_the_document() -> None:
    """{1,2,3} and {4,5,0}: the blocks are concatenated in that order."""
    groups = [[1, 2, 3], [4, 5, 0]]
    given = [np.arange(3, dtype=np.int32) + 10 * k for k in range(6)]
    found = both(built(array("s32", 3), lambda b, x: b.all_to_all(x, 0, 0, 3, groups)), given)
    for group in groups:
        for place, device in enumerate(group):
            assert found[device].tolist() == [10 * other + place for other in group]


# -- every type


@pytest.mark.parametrize("kind", sorted(ARRAYS, key=str), ids=lambda k: k.value)
def test_types(kind: ElementType) -> None:
    given = [(np.arange(12).reshape(2, 6) % 5 % (k + 2)).astype(kind.dtype) for k in range(3)]
    name = "or" if kind is ElementType.PRED else "add"

    def write(b: ComputationBuilder, x: Any) -> Any:
        to_apply = reducer(name, kind)
        return b.tuple(
            [
                b.all_gather(x, 1, 3),
                b.all_reduce(x, to_apply),
                b.all_to_all(x, 1, 0, 3),
                b.reduce_scatter(x, to_apply, 1, 3),
                b.collective_permute(x, [(0, 2), (2, 1)]),
                b.collective_broadcast(x, [[1, 0], [2]]),
            ]
        )

    found = both(built(array(kind, 2, 6), write), given)
    for device, (gathered, _, exchanged, _, permuted, broadcast) in enumerate(found):
        assert stored(gathered) == stored(np.concatenate(given, 1))
        assert stored(exchanged) == stored(np.concatenate([g[:, 2 * device : 2 * device + 2] for g in given]))
        source = {2: 0, 1: 2}.get(device)
        assert stored(permuted) == stored(given[source] if source is not None else np.zeros_like(given[0]))
        assert stored(broadcast) == stored(given[2 if device == 2 else 1])


def stored(x: np.ndarray) -> bytes:
    """The bytes of an array, without the bits that its type does not use."""
    return (bit_pattern(x) if element_type_of(x.dtype).is_small_integer else x).tobytes()


@pytest.mark.parametrize("dims", [(), (1,), (0,), (2, 0, 3), (7,), (3, 5, 2), (20_011,), (128, 257)])
@pytest.mark.parametrize("name", ["add", "maximum", "multiply"])
def test_all_reduce_sizes(dims: tuple[int, ...], name: str) -> None:
    """Small ones are gathered whole, large ones are reduced in parts."""
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, dims).astype(np.float32) for _ in range(3)]
    ufunc = {"add": np.add, "maximum": np.maximum, "multiply": np.multiply}[name]
    for found in both(built(array("f32", *dims), lambda b, x: b.all_reduce(x, reducer(name, "f32"))), given):
        np.testing.assert_array_equal(found, ufunc.reduce(given))


def test_all_reduce_in_the_order_of_the_group() -> None:
    """A computation that is not commutative, and one that branches."""
    first = computation("first", [array("f32")] * 2, lambda a, b: ir.make(Elementwise("subtract"), a, b))
    program = built(array("f32", 3), lambda b, x: b.all_reduce(x, first, [[2, 0, 1]]))
    for found in both(program, [f32(1, 2, 3), f32(10, 20, 30), f32(100, 200, 300)]):
        assert found.tolist() == [89, 178, 267]
    larger = computation(
        "larger",
        [array("f32")] * 2,
        lambda a, b: ir.make(Elementwise("select"), ir.make(Compare("GT"), a, b), a, b),
    )
    program = built(array("f32", 2), lambda b, x: b.all_reduce(x, larger))
    for found in both(program, [f32(1, 5), f32(4, 2)]):
        assert found.tolist() == [4, 5]


def test_all_reduce_of_unequal_groups() -> None:
    given = [f32(1, 10) * 2**k for k in range(4)]
    for found, wanted in zip(
        both(
            built(array("f32", 2), lambda b, x: b.all_reduce(x, reducer("add", "f32"), [[3], [2, 0, 1]])),
            given,
        ),
        [7, 7, 7, 8],
    ):
        assert found.tolist() == [wanted, 10 * wanted]


def test_tuples() -> None:
    b = ComputationBuilder("main")
    x, y = b.parameter(0, array("f32", 2), "x"), b.parameter(1, array("f32", 9_000), "y")
    pair = b.tuple([x, y])
    program = b.build(
        b.tuple(
            [
                b.all_reduce(pair, reducer("add", "f32")),
                b.all_gather(pair, 0, 2),
                b.collective_permute(pair, [(0, 1), (1, 0)]),
                b.all_to_all_tuple([x, b.neg(x)]),
            ]
        )
    )
    given = [(f32(1, 2), np.full(9_000, 3, np.float32)), (f32(5, 6), np.full(9_000, 4, np.float32))]
    for device, found in enumerate(both(program, given)):
        assert found[0].tolist() == [6, 8] and set(found[1].tolist()) == {7}
        assert found[2].tolist() == [1, 2, 5, 6] and found[3].tolist() == [3] * 9_000 + [4] * 9_000
        assert found[4].tolist() == given[1 - device][0].tolist()
        sign = -1 if device else 1
        assert found[6].tolist() == [sign * 1, sign * 2] and found[7].tolist() == [sign * 5, sign * 6]


# -- who takes part


@pytest.mark.parametrize(
    ("attributes", "groups"),
    [
        ("", [[0, 2, 4], [1, 3, 5]]),
        ("replica_groups={{2,0},{1}}, ", [[4, 0], [5, 1], [2], [3]]),
        ("channel_id=1, ", [[0, 1, 2, 3, 4, 5]]),
        ("channel_id=1, replica_groups={{0,1},{2}}, ", [[0, 1, 2, 3], [4, 5]]),
        (
            "channel_id=1, replica_groups={{0,5},{1,2,3,4}}, use_global_device_ids=true, ",
            [[0, 5], [1, 2, 3, 4]],
        ),
        (
            "channel_id=1, replica_groups=[2,3]<=[3,2]T(1,0), use_global_device_ids=true, ",
            [[0, 2, 4], [1, 3, 5]],
        ),
    ],
)
def test_modes(attributes: str, groups: list[list[int]]) -> None:
    """Three replicas of two partitions: device numbers of those that are summed."""
    text = f"""HloModule m, replica_count=3, num_partitions=2
add {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}}
ENTRY main {{
  x = s32[] parameter(0)
  ROOT r = s32[] all-reduce(x), {attributes}to_apply=add
}}"""
    module = parse_hlo(text)
    assert str(parse_hlo(str(module))) == str(module)
    for platform in PLATFORMS:
        found = LocalClient(platform).compile(module).execute_replicas([[np.int32(10**k)] for k in range(6)])
        for group in groups:
            assert [int(found[d][0]) for d in group] == [sum(10**k for k in group)] * len(group)


def test_permute_of_partitions_and_numbers() -> None:
    b = ComputationBuilder("main")
    number = b.convert_element_type(
        b.add(b.mul(b.replica_id(), b.constant(np.uint32(10))), b.partition_id()), "s32"
    )
    program = b.build(
        b.tuple(
            [
                number,
                b.collective_permute(number, [(0, 1), (1, 0)], 7),
                b.collective_permute(number, [(0, 1)]),
            ]
        )
    )
    for platform in PLATFORMS:
        found = (
            LocalClient(platform)
            .compile(program, num_replicas=2, num_partitions=2)
            .execute_replicas([[]] * 4)
        )
        assert [[int(v) for v in f] for f in found] == [[0, 1, 0], [1, 0, 0], [10, 11, 0], [11, 10, 1]]


@platforms
def test_numbers_of_one_device(platform: str) -> None:
    b = ComputationBuilder("main")
    executable = LocalClient(platform).compile(b.build(b.tuple([b.replica_id(), b.partition_id()])))
    assert [int(v) for v in executable.execute([])] == [0, 0]
    assert not b.is_constant(b.replica_id())


# -- side effects


COUNT = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
body {
  s = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[3] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  r = f32[3] all-reduce(x), to_apply=add
  half = f32[] constant(0.5)
  halves = f32[3] broadcast(half), dimensions={}
  y = f32[3] multiply(r, halves)
  ROOT t = (s32[], f32[3]) tuple(j, y)
}
cond {
  s = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] parameter_n
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[3] parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[3]) tuple(zero, x)
  ROOT w = (s32[], f32[3]) while(s), condition=cond, body=body
}"""


def loop(rounds: str) -> ir.Module:
    text = COUNT.replace("  n = s32[] parameter_n\n", f"  n = s32[] constant({rounds})\n")
    return parse_hlo(text.replace("  n = s32[] parameter(1)\n", ""))


def test_in_a_loop() -> None:
    for _, found in both(loop("17"), [f32(1, 2, 3), f32(3, 4, 5)]):
        assert found.tolist() == [2, 3, 4]


@platforms
def test_one_replica_loops_longer(platform: str) -> None:
    """The loop's condition depends on data that is not the same for all."""
    text = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
body {
  s = (s32[], f32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  n = s32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  r = f32[] all-reduce(x), to_apply=add
  ROOT t = (s32[], f32[], s32[]) tuple(j, r, n)
}
cond {
  s = (s32[], f32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=2
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY main {
  s = (s32[], f32[], s32[]) parameter(0)
  ROOT w = (s32[], f32[], s32[]) while(s), condition=cond, body=body
}"""
    start = [(np.int32(0), np.float32(1), np.int32(n)) for n in (3, 3, 4)]
    begin = time.monotonic()
    with pytest.raises(CommunicationError, match="replica 2 waited at .*all-.* for .*which has ended"):
        run(platform, parse_hlo(text), start)
    assert time.monotonic() - begin < 10


BRANCHES = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
inner {
  x = f32[2] parameter(0)
  ROOT r = f32[2] all-reduce(x), to_apply=add, replica_groups=GROUPS
}
meets {
  x = f32[2] parameter(0)
  unused = f32[2] call(x), to_apply=inner
  ROOT r = f32[2] call(x), to_apply=inner
}
goes {
  x = f32[2] parameter(0)
  ROOT r = f32[2] negate(x)
}
ENTRY main {
  p = pred[] parameter(0)
  x = f32[2] parameter(1)
  ROOT r = f32[2] conditional(p, x, x), true_computation=meets, false_computation=goes
}"""


def test_in_a_branch_and_a_call() -> None:
    module = parse_hlo(BRANCHES.replace("GROUPS", "{{0,1},{2}}"))
    given = [(np.bool_(True), f32(1, 2)), (np.bool_(True), f32(3, 4)), (np.bool_(False), f32(5, 6))]
    module = parse_hlo(BRANCHES.replace("GROUPS", "{{0,1},{2,3}}"))
    found = both(module, [*given, (np.bool_(False), f32(7, 8))])
    assert [f.tolist() for f in found] == [[4, 6], [4, 6], [-5, -6], [-7, -8]]


@platforms
def test_devices_take_different_branches(platform: str) -> None:
    module = parse_hlo(BRANCHES.replace("GROUPS", "{}"))
    with pytest.raises(CommunicationError, match="replica 0 waited at .* for replica 1"):
        run(platform, module, [(np.bool_(True), f32(1, 2)), (np.bool_(False), f32(3, 4))])


def test_what_is_not_used_still_happens() -> None:
    """Neither left out nor shared: three meetings in each device, whatever the passes do."""
    b = ComputationBuilder("main")
    x = b.parameter(0, array("f32", 2), "x")
    b.all_reduce(x, reducer("add", "f32"))
    b.all_reduce(x, reducer("add", "f32"))
    b.all_gather(b.constant(f32(1)), 0, 2)
    program = b.build(b.neg(x))
    options = Options(num_replicas=2)
    module = pipeline.run_pipeline(
        ir.Module("m", program), options, pipeline.verify_step, (expand_collectives, *pipeline.PASSES)
    )
    opcodes = [i.opcode for i in module.entry.instructions if i.has_side_effect]
    assert opcodes == ["all-gather"] * 3
    assert [f.tolist() for f in both(program, [f32(1, 2), f32(3, 4)])] == [[-1, -2], [-3, -4]]


# -- what goes wrong


@platforms
@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b, x: b.all_reduce(x, reducer("add", "f32"), [[0, 1]]), r"\[2\] missing \(collective_c1\)"),
        (
            lambda b, x: b.all_reduce(x, reducer("add", "f32"), [[0, 1, 2, 3]]),
            r"3 is among .* 3 \(collective_c2\)",
        ),
        (lambda b, x: b.all_gather(x, 0, 2), r"does not fit groups of 3 devices \(collective_c3\)"),
        (lambda b, x: b.reduce_scatter(x, reducer("add", "f32"), 0, 2), r"\(collective_c3\)"),
        (lambda b, x: b.all_to_all(x, 0, 0, 2), r"\(collective_c3\)"),
        (lambda b, x: b.all_to_all_tuple([x, x]), r"\(collective_c3\)"),
        (lambda b, x: b.collective_permute(x, [(0, 3)]), r"3 is among .* \(collective_c2\)"),
    ],
)
def test_groups_that_do_not_fit(platform: str, write: Callable[..., Any], message: str) -> None:
    program = built(array("f32", 4), write)
    with pytest.raises(ShapeError, match=message):
        LocalClient(platform).compile(program, num_replicas=3)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b, x: b.all_reduce(x, reducer("add", "f32"), [[0, 1]]), r"of 1 devices \(collective_c2\)"),
        (lambda b, x: b.all_gather(x, 0, 2, [[1, 2]]), r"device 0 of 1 is in no group \(collective_c1\)"),
        (lambda b, x: b.all_to_all(x, 0, 0, 2, [[1, 2]]), r"in no group \(collective_c1\)"),
        (lambda b, x: b.reduce_scatter(x, reducer("add", "f32"), 0, 2, [[2, 0]]), r"\(collective_c2\)"),
    ],
)
def test_one_device_of_a_group_alone(write: Callable[..., Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        evaluate(built(array("f32", 4), write), [f32(1, 2, 3, 4)])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b, x: b.all_to_all(x, 0, 0, 3), "all_to_all_c4"),
        (lambda b, x: b.all_to_all(x, 1, 0, 2), "all_to_all_c4"),
        (lambda b, x: b.all_to_all(x, 0, 0, 2, [[0, 1, 2]]), "all_to_all_c2"),
        (lambda b, x: b.all_gather(x, 1, 2), "all_gather_c3"),
        (lambda b, x: b.all_gather(x, 0, 0), "shard_count_c1"),
        (lambda b, x: b.all_gather(x, 0, 2, [[0, 1, 2]]), "all_gather_c3"),
        (lambda b, x: b.reduce_scatter(x, reducer("add", "f32"), 0, 3), "reduce_scatter_c3"),
        (lambda b, x: b.cross_replica_sum(b.tuple([x, b.constant(1)])), "cross_replica_sum_c1"),
    ],
)
def test_builder_refuses(write: Callable[..., Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        built(array("f32", 4), write)


@platforms
def test_arguments_for_each_device(platform: str) -> None:
    executable = LocalClient(platform).compile(
        built(array("f32", 2), lambda b, x: b.cross_replica_sum(x)), num_replicas=2
    )
    with pytest.raises(ShapeError, match="arguments for 1 devices, the program was compiled for 2 replicas"):
        executable.execute([f32(1, 2)])
    with pytest.raises(ShapeError, match="argument 0 is"):
        executable.execute_replicas([[f32(1, 2)], [f32(1)]])


def test_replicas_without_communication() -> None:
    assert [
        f.tolist() for f in both(built(array("f32", 2), lambda b, x: b.neg(x)), [f32(1, 2), f32(3, 4)])
    ] == [[-1, -2], [-3, -4]]


def test_expansion_is_verified() -> None:
    """Every form, for devices of several partitions, gives well-formed modules of collectives that only move bytes."""

    def write(b: ComputationBuilder, x: Any) -> Any:
        add = reducer("add", "f32")
        return b.tuple(
            [
                b.all_reduce(x, add, [[0], [1, 2]]),
                b.all_gather(x, 1, 3),
                b.reduce_scatter(x, add, 1, 3),
                b.all_to_all(x, 1, 0, 3),
                b.all_reduce(x, add, (), 4),
                b.all_to_all(x, 0, 1, 2, (), 3),
            ]
        )

    module = ir.Module("m", built(array("f32", 6, 3), write))
    module = verify(expand_collectives(module, Options(num_replicas=3, num_partitions=2)))
    kinds = {i.opcode for c in module.computations() for i in c.instructions if i.op.has_side_effect}
    assert kinds == {"all-gather", "all-to-all"}
    assert expand_collectives(module, Options(num_replicas=3, num_partitions=2)) is module


SIZES = (1, 7, 1000, 12_345)  # the last one is reduced in parts


def test_ten_thousand_all_reduces_of_mixed_sizes() -> None:
    """No hang and no wrong sum: x becomes 3 * sum(x) + replica + round, modulo 2^32, for four arrays at once."""
    replicas, rounds = 8, 2500
    state = Shape.tuple([array("u32"), *(array("u32", n) for n in SIZES)])
    b = ComputationBuilder("body")
    values = b.parameter(0, state, "state")
    number = b.get_tuple_element(values, 0)
    offset = b.add(b.replica_id(), number)
    add = reducer("add", "u32")
    sums = [
        b.all_reduce(b.get_tuple_element(values, k + 1), add, (), 1) for k in range(len(SIZES))
    ]  # 1: not combined
    new = [b.add(b.mul(total, b.constant(np.uint32(3))), offset) for total in sums]
    body = b.build(b.tuple([b.add(number, b.constant(np.uint32(1))), *new]))
    c = ComputationBuilder("condition")
    condition = c.build(
        c.lt(c.get_tuple_element(c.parameter(0, state, "state"), 0), c.constant(np.uint32(rounds)))
    )
    main = ComputationBuilder("main")
    program = main.build(main.while_(condition, body, main.parameter(0, state, "state")))
    executable = LocalClient("cpu").compile(program, num_replicas=replicas)
    rng = np.random.default_rng(0)
    start = [[rng.integers(0, 2**32, n, np.uint32) for n in SIZES] for _ in range(replicas)]
    found = executable.execute_replicas([[np.uint32(0), *own] for own in start])
    for k in range(len(SIZES)):
        x = np.stack([own[k] for own in start])
        for turn in range(rounds):
            x = (
                np.repeat(x.sum(0, np.uint32, keepdims=True) * np.uint32(3), replicas, 0)
                + np.arange(turn, turn + replicas, dtype=np.uint32)[:, None]
            )
        for replica in range(replicas):
            np.testing.assert_array_equal(found[replica][k + 1], x[replica])


def test_text_of_scheduled_programs() -> None:
    """Asynchronous forms, as XLA prints them after scheduling, are read as the ops that they start."""
    module = parse_hlo("""HloModule m, is_scheduled=true, replica_count=2
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
swap {
  x = f32[4]{0} parameter(0)
  ROOT y = f32[4]{0} all-to-all(x), replica_groups={{0,1}}, dimensions={0}
}, execution_thread="main"
ENTRY main {
  %x = f32[4]{0} parameter(0)
  %r = f32[4]{0} all-reduce-start(f32[4]{0} %x), channel_id=1, replica_groups={{0,1}}, \
use_global_device_ids=true, to_apply=%add, backend_config={"a":"b"}
  %g = (f32[4]{0}, f32[8]{0}) all-gather-start(%x), replica_groups=[1,2]<=[2], dimensions={0}
  %p = (f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(%x), source_target_pairs={{0,1}}
  %s = ((f32[4]{0}), f32[4]{0}, s32[]) async-start(%x), calls=%swap, async_execution_thread="main"
  %u = ((f32[4]{0}), f32[4]{0}, s32[]) async-update(%s)
  %c = (f32[4]{0}, f32[4]{0}, u32[]) copy-start(%x)
  %rd = f32[4]{0} all-reduce-done(%r)
  %gd = f32[8]{0} all-gather-done((f32[4]{0}, f32[8]{0}) %g)
  %pd = f32[4]{0} collective-permute-done(%p)
  %sd = f32[4]{0} async-done(%u), metadata={op_name="swap"}
  %cd = f32[4]{0} copy-done(%c)
  ROOT %t = (f32[4], f32[8], f32[4], f32[4], f32[4]) tuple(%rd, %gd, %pd, %sd, %cd)
}""")
    assert str(parse_hlo(str(module))) == str(module)
    for device, found in enumerate(both(module, [f32(1, 2, 3, 4), f32(10, 20, 30, 40)])):
        assert found[0].tolist() == [11, 22, 33, 44] and found[1].tolist() == [1, 2, 3, 4, 10, 20, 30, 40]
        assert found[2].tolist() == ([1, 2, 3, 4] if device else [0, 0, 0, 0])
        assert found[3].tolist() == ([3, 4, 30, 40] if device else [1, 2, 10, 20])
        assert found[4].tolist() == ([10, 20, 30, 40] if device else [1, 2, 3, 4])


@platforms
def test_other_programs_for_other_devices(platform: str) -> None:
    """Two programs that meet, and two that bring other shapes, or another op."""

    def summed(*dims: int, op: str = "all_reduce") -> ir.Computation:
        def write(b: ComputationBuilder, x: Any) -> Any:
            y = (
                b.all_reduce(x, reducer("add", "f32"), (), 1)
                if op == "all_reduce"
                else b.all_gather(x, 0, 2, (), 1)
            )
            return b.neg(y)

        return built(array("f32", *dims), write)

    client = LocalClient(platform)

    def together(first: ir.Computation, second: ir.Computation, *values: np.ndarray) -> Any:
        return client.execute_parallel(
            [(client.compile(p, num_partitions=2), [v]) for p, v in zip((first, second), values, strict=True)]
        )

    assert together(
        summed(2),
        built(array("f32", 2), lambda b, x: b.all_reduce(x, reducer("add", "f32"), (), 1)),
        f32(1, 2),
        f32(3, 4),
    )[0][0].tolist() == [-4, -6]
    largest = built(array("f32", 2), lambda b, x: b.all_reduce(x, reducer("maximum", "f32"), (), 1))
    for second, value in (
        (summed(3), f32(1, 2, 3)),
        (summed(2, op="all_gather"), f32(1, 2)),
        (largest, f32(1, 2)),
    ):
        with pytest.raises(CommunicationError, match="partition . came with .* partition . waited at"):
            together(summed(2), second, f32(1, 2), value)


@pytest.mark.parametrize("fixture", read("expand_collectives"), ids=lambda f: f.name)
def test_fixtures(fixture: Fixture) -> None:
    """What the pass makes for two devices, and that it does the same."""
    before = verify(fixture.module())
    after = verify(expand_collectives(before, Options(num_replicas=2)))
    fixture.check(after)
    given = [inputs(before, seed) for seed in range(2)]
    wanted, found = (
        LocalClient("interpreter").compile(m, num_replicas=2).execute_replicas(given) for m in (before, after)
    )
    assert [[a.tobytes() for a in one] for one in found] == [[a.tobytes() for a in one] for one in wanted]


def test_all_reduces_meet_once() -> None:
    """Combined, and still right: what each device gets, and which all-reduces are together."""

    def write(b: ComputationBuilder, x: Any) -> Any:
        sums = [b.cross_replica_sum(b.mul(x, b.constant(np.float32(k)))) for k in range(3)]
        return b.tuple([*sums, b.cross_replica_sum(sums[0]), b.cross_replica_sum(sums[2])])

    program = built(array("f32", 2), write)
    module = combine_all_reduces(ir.Module("m", program), Options(num_replicas=2))
    assert [len(i.operands) for i in verify(module).entry.instructions if i.has_side_effect] == [3, 2]
    for found in both(program, [f32(1, 2), f32(3, 4)]):
        assert [f.tolist() for f in found] == [[0, 0], [4, 6], [8, 12], [0, 0], [16, 24]]


def test_program_for_a_smaller_group_than_it_meets() -> None:
    """A program for one device that meets two is told so: its result has no room for both."""
    text = (
        "HloModule m\nENTRY e { x = f32[4] parameter(0)\n ROOT g = f32[4] all-gather(x), dimensions={0}, "
        "channel_id=1, use_global_device_ids=true }"
    )
    executables = [LocalClient().compile(parse_hlo(text)) for _ in range(2)]
    with pytest.raises(CommunicationError, match="group of 2"):
        LocalClient().execute_parallel([(e, [f32(1, 2, 3, 4)]) for e in executables])
