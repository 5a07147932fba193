"""Infeed and outfeed queues, sends and receives, tokens and traces: what arrives, in which order, what is refused."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tfbridge.compiler import (
    TOKEN,
    CommunicationError,
    ComputationBuilder,
    Literal,
    LocalClient,
    Shape,
    ShapeError,
    array,
    parse_hlo,
)
from tfbridge.compiler.ir import module as ir
from tfbridge.compiler.passes import pipeline
from tfbridge.compiler.passes.pipeline import run_pipeline

platforms = pytest.mark.parametrize("platform", ["interpreter", "cpu"])


VECTOR = array("f32", 3)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def taken(client: LocalClient, count: int, device: int = 0) -> list[Any]:
    """So many items of the outfeed queue, single arrays as lists."""
    items = [client.transfer_from_outfeed(device, timeout=5) for _ in range(count)]
    return [[a.tolist() for a in item] if len(item) != 1 else item[0].tolist() for item in items]


@platforms
def test_infeed_and_outfeed(platform: str) -> None:
    client = LocalClient(platform)
    b = ComputationBuilder("main")
    pair = b.infeed(Shape.tuple([array("f32", 2), array("s32")]))
    number = b.get_tuple_element(pair, 1)
    b.outfeed(b.tuple([number, b.get_tuple_element(pair, 0)]))
    again = b.infeed(array("f32", 2))
    b.outfeed(again)
    executable = client.compile(b.build(b.add(b.get_tuple_element(pair, 0), again)))
    client.transfer_to_infeed(Literal.tuple([Literal(f32(1, 2)), Literal(np.int32(7))]))
    client.transfer_to_infeed(f32(10, 20))
    assert executable.execute([])[0].tolist() == [11, 22]
    assert taken(client, 2) == [[7, [1, 2]], [10, 20]]


def loops() -> ir.Module:
    """The documents' two loops, one after the other, that read and write in each round."""
    return parse_hlo("""HloModule m
more {
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(i, three), direction=LT
}
round {
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  sum = s32[] get-tuple-element(s), index=1
  start = token[] after-all()
  fed = (s32[], token[]) infeed(start)
  x = s32[] get-tuple-element(fed), index=0
  read = token[] get-tuple-element(fed), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = s32[] add(sum, x)
  written = token[] outfeed(y, read)
  ROOT t = (s32[], s32[]) tuple(j, y)
}
ENTRY main {
  s = (s32[], s32[]) parameter(0)
  first = (s32[], s32[]) while(s), condition=more, body=round
  sum = s32[] get-tuple-element(first), index=1
  zero = s32[] constant(0)
  t = (s32[], s32[]) tuple(zero, sum)
  ROOT second = (s32[], s32[]) while(t), condition=more, body=round
}""")


@platforms
def test_infeeds_of_two_loops(platform: str) -> None:
    client = LocalClient(platform)
    for n in range(6):
        client.transfer_to_infeed(np.int32(10**n))
    assert [int(v) for v in client.compile(loops()).execute([np.int32(0), np.int32(0)])] == [3, 111111]
    assert taken(client, 6) == [1, 11, 111, 1111, 11111, 111111]


@platforms
def test_loops_whose_values_nobody_reads(platform: str) -> None:
    """They still run, once each, in order, also when their results, or parts of them, are dead."""
    text = (
        str(loops())
        .replace("ROOT second =", "second =")
        .replace(
            "body=round\n}", "body=round\n  seven = s32[] constant(7)\n  ROOT r = s32[] negate(seven)\n}"
        )
    )
    module = parse_hlo(text)
    client = LocalClient(platform)
    for n in range(6):
        client.transfer_to_infeed(np.int32(n))
    assert int(client.compile(module).execute([np.int32(0), np.int32(0)])[0]) == -7
    assert taken(client, 6) == [0, 1, 3, 6, 10, 15]


@platforms
def test_order_of_everything(platform: str) -> None:
    """Effects of the entry, of calls, branches and loops happen in the order of the program, none twice."""
    text = """HloModule m
say {
  x = s32[] parameter(0)
  t = token[] after-all()
  o = token[] outfeed(x, t)
  ten = s32[] constant(10)
  y = s32[] add(x, ten)
  u = token[] outfeed(y, o)
  ROOT r = s32[] negate(x)
}
quiet {
  x = s32[] parameter(0)
  ROOT r = s32[] negate(x)
}
more {
  i = s32[] parameter(0)
  t = token[] after-all()
  o = token[] outfeed(i, t)
  two = s32[] constant(2)
  ROOT c = pred[] compare(i, two), direction=LT
}
next {
  i = s32[] parameter(0)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  unused = s32[] call(j), to_apply=say
  ROOT k = s32[] copy(j)
}
ENTRY main {
  p = pred[] parameter(0)
  a = s32[] constant(100)
  b = s32[] constant(200)
  zero = s32[] constant(0)
  c1 = s32[] call(b), to_apply=say
  w = s32[] while(zero), condition=more, body=next
  c2 = s32[] conditional(p, a, b), true_computation=say, false_computation=quiet
  yes = pred[] constant(true)
  c3 = s32[] conditional(yes, b, a), true_computation=say, false_computation=quiet
  c4 = s32[] call(a), to_apply=say
  c5 = s32[] call(a), to_apply=say
  ROOT r = (s32[], s32[]) tuple(c5, c1)
}"""
    wanted = [200, 210, 0, 1, 11, 1, 2, 12, 2, 100, 110, 200, 210, 100, 110, 100, 110]
    client = LocalClient(platform)
    executable = client.compile(parse_hlo(text))
    for said in (True, False):
        assert [int(v) for v in executable.execute([np.bool_(said)])] == [-100, -200]
        rest = wanted if said else wanted[:9] + wanted[11:]
        assert taken(client, len(rest)) == rest
    with pytest.raises(CommunicationError, match="outfeed queue of device 0 had no item"):
        client.transfer_from_outfeed(timeout=0.01)


def test_passes_keep_effects() -> None:
    module = run_pipeline(loops(), observer=pipeline.verify_step)
    kinds = [i.opcode for c in module.computations() for i in c.instructions if i.op.has_side_effect]
    assert kinds == ["infeed", "outfeed"]  # in the one body that both loops share
    assert sum(i.opcode == "while" for i in module.entry.instructions) == 2


@platforms
def test_waits_for_what_comes_later(platform: str) -> None:
    client = LocalClient(platform)
    b = ComputationBuilder("main")
    executable = client.compile(b.build(b.neg(b.infeed(array("f32", 2)))))
    timer = threading.Timer(0.1, client.transfer_to_infeed, [f32(1, 2)])
    timer.start()
    assert executable.execute([], timeout=20)[0].tolist() == [-1, -2]
    timer.join()


@platforms
def test_infeed_of_other_data(platform: str) -> None:
    client = LocalClient(platform)
    b = ComputationBuilder("main")
    executable = client.compile(b.build(b.infeed(array("f32", 2))))
    client.transfer_to_infeed(np.array([1, 2], np.int32))
    with pytest.raises(CommunicationError, match=r"is \(int32\[2\]\), the program wants \(float32\[2\]\)"):
        executable.execute([])
    client.transfer_to_infeed(f32(3, 4))
    assert executable.execute([])[0].tolist() == [3, 4]


@platforms
def test_infeed_timeout(platform: str) -> None:
    b = ComputationBuilder("main")
    executable = LocalClient(platform).compile(b.build(b.infeed(array("f32", 2))))
    start = time.monotonic()
    with pytest.raises(CommunicationError, match="the infeed queue had no item for 0.1 s"):
        executable.execute([], timeout=0.1)
    assert time.monotonic() - start < 5


@platforms
def test_queues_of_replicas(platform: str) -> None:
    client = LocalClient(platform)
    b = ComputationBuilder("main")
    x = b.infeed(array("s32"))
    b.outfeed(b.cross_replica_sum(x))
    b.outfeed(b.neg(x))
    executable = client.compile(b.build(x), num_replicas=3)
    for device in range(3):
        client.transfer_to_infeed(np.int32(10**device), device)
    executable.execute_replicas([[]] * 3)
    assert [taken(client, 2, device) for device in range(3)] == [[111, -1], [111, -10], [111, -100]]


# -- send and receive


def sender(channel: int, *more: Any) -> ir.Computation:
    b = ComputationBuilder("sender")
    x = b.parameter(0, array("f32", 3), "x")
    b.send(b.mul(x, x), channel)
    for write in more:
        write(b, x)
    return b.build(x)


def receiver(channel: int, shape: Shape = VECTOR) -> ir.Computation:
    b = ComputationBuilder("receiver")
    return b.build(b.neg(b.recv(shape, channel)))


def parallel(platform: str, *programs: tuple[ir.Computation, Sequence[Any]], **keywords: Any) -> list[Any]:
    client = LocalClient(platform)
    return client.execute_parallel([(client.compile(p), given) for p, given in programs], **keywords)


@platforms
def test_send_and_receive(platform: str) -> None:
    found = parallel(platform, (receiver(1), []), (sender(1), [f32(1, 2, 3)]))
    assert found[0][0].tolist() == [-1, -4, -9] and found[1][0].tolist() == [1, 2, 3]


@platforms
def test_both_directions_at_once(platform: str) -> None:
    """Each sends first and then receives: sends do not wait."""

    def program(out: int, back: int) -> ir.Computation:
        return sender(out, lambda b, x: b.outfeed(b.recv(array("f32", 3), back)))

    client = LocalClient(platform)
    client.execute_parallel(
        [(client.compile(program(1, 2)), [f32(1, 2, 3)]), (client.compile(program(2, 1)), [f32(4, 5, 6)])]
    )
    assert taken(client, 1, 0) == [[16, 25, 36]] and taken(client, 1, 1) == [[1, 4, 9]]


@platforms
def test_receive_from_nobody(platform: str) -> None:
    start = time.monotonic()
    with pytest.raises(CommunicationError, match=r"waited at recv on channel 9 \(float32\[3\]\)"):
        LocalClient(platform).compile(receiver(9)).execute([])
    with pytest.raises(CommunicationError, match="partition 0 waited at recv on channel 2"):
        parallel(platform, (receiver(2), []), (sender(1), [f32(1, 2, 3)]))
    with pytest.raises(CommunicationError, match="nobody goes on"):
        parallel(platform, (receiver(2), []), (receiver(1), []))
    assert time.monotonic() - start < 10


@platforms
def test_receive_of_another_shape(platform: str) -> None:
    with pytest.raises(CommunicationError, match=r"wants float32\[4\] on channel 1, float32\[3\] was sent"):
        parallel(platform, (receiver(1, array("f32", 4)), []), (sender(1), [f32(1, 2, 3)]))


@platforms
def test_context_and_tokens_through_a_program(platform: str) -> None:
    """The text form: a context is (data, request, token); tokens are parameters and results without arrays."""
    module = parse_hlo("""HloModule m
ENTRY main {
  before = token[] parameter(0)
  x = (f32[2], s32[]) parameter(1)
  s = ((f32[2], s32[]), u32[], token[]) send(x, before), channel_id=4
  data = (f32[2], s32[]) get-tuple-element(s), index=0
  sent = token[] send-done(s), channel_id=4
  r = ((f32[2], s32[]), u32[], token[]) recv(sent), channel_id=4
  d = ((f32[2], s32[]), token[]) recv-done(r), channel_id=4
  got = (f32[2], s32[]) get-tuple-element(d), index=0
  f = f32[2] get-tuple-element(got), index=0
  n = s32[] get-tuple-element(data), index=1
  after = token[] get-tuple-element(d), index=1
  late = f32[2] add-dependency(f, after)
  twice = f32[2] add(late, late)
  ROOT all = (f32[2], token[], s32[], token[]) tuple(twice, after, n, sent)
}""")
    assert str(parse_hlo(str(module))) == str(module)
    twice, n = LocalClient(platform).compile(module).execute([f32(1, 2), np.int32(5)])
    assert twice.tolist() == [2, 4] and n == 5


@platforms
def test_token_in_a_loop(platform: str) -> None:
    module = parse_hlo("""HloModule m
more {
  s = (s32[], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
next {
  s = (s32[], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  t = token[] get-tuple-element(s), index=1
  o = token[] outfeed(i, t)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], token[]) tuple(j, o)
}
ENTRY main {
  zero = s32[] constant(0)
  t = token[] after-all()
  s = (s32[], token[]) tuple(zero, t)
  w = (s32[], token[]) while(s), condition=more, body=next
  end = token[] get-tuple-element(w), index=1
  last = s32[] constant(9)
  ROOT o = token[] outfeed(last, end)
}""")
    client = LocalClient(platform)
    assert client.compile(module).execute([]) == []
    assert taken(client, 4) == [0, 1, 2, 9]


# -- the rest


@platforms
def test_trace(platform: str, caplog: pytest.LogCaptureFixture) -> None:
    b = ComputationBuilder("main")
    x = b.parameter(0, array("f32", 2), "x")
    b.trace("here", b.add(x, x))
    with caplog.at_level(logging.INFO, "tfbridge.trace"):
        LocalClient(platform).compile(b.build(x)).execute([f32(1, 2)])
    assert [r.getMessage() for r in caplog.records] == ["here: [2. 4.]"]


def test_builder_methods_with_tokens() -> None:
    b = ComputationBuilder("main")
    fed = b.infeed_with_token(b.create_token(), array("f32", 2), "config")
    token = b.outfeed_with_token(
        b.get_tuple_element(fed, 0), b.get_tuple_element(fed, 1), array("f32", 2), 'a "b"'
    )
    token = b.send_with_token(b.get_tuple_element(fed, 0), token, 3)
    got = b.recv_with_token(b.after_all([token, b.create_token()]), array("s32"), 4)
    assert b.get_shape(got) == Shape.tuple([array("s32"), TOKEN])
    module = ir.Module("m", b.build(got))
    text = str(module)
    assert (
        'infeed_config="config"' in text
        and 'outfeed_config="a \\"b\\""' in text
        and "outfeed_shape=f32[2]" in text
    )
    assert str(parse_hlo(text)) == text


def test_builder_refuses() -> None:
    for write in (
        lambda b: b.infeed(Shape.tuple([Shape.tuple([array("f32")])])),
        lambda b: b.send(b.constant(1), 0),
        lambda b: b.recv(array("f32"), -1),
        lambda b: b.outfeed(b.constant(1), array("f32")),
    ):
        b = ComputationBuilder("main")
        write(b)
        with pytest.raises(ShapeError, match=r"\((infeed_c2|send_c2|recv_c3|outfeed_c2)\)"):
            b.build()


def test_effects_read_values_before_they_are_overwritten() -> None:
    """A loop that updates its state in place and shows, in random order, old and new values of all of it."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        state = Shape.tuple([array("s32"), array("f32", 6), array("f32", 6), array("f32", 2, 3)])
        b = ComputationBuilder("body")
        whole = b.parameter(0, state, "state")
        number, x, y, z = (b.get_tuple_element(whole, k) for k in range(4))
        new_x = b.dynamic_update_slice(x, b.slice(y, (0,), (1,), (1,)), [number])
        new_y = b.add(y, b.reshape(z, (6,)))
        new_z = b.mul(z, b.reshape(new_x, (2, 3)))
        shown = [x, y, z, new_x, new_y, new_z, whole, b.tuple([new_x, x])]
        for k in rng.permutation(len(shown)):
            b.outfeed(shown[int(k)])
        order = (new_y, new_x) if seed % 2 else (new_x, new_y)
        body = b.build(b.tuple([b.add(number, b.constant(1)), *order, new_z]))
        c = ComputationBuilder("condition")
        condition = c.build(c.lt(c.get_tuple_element(c.parameter(0, state, "state"), 0), c.constant(5)))
        main = ComputationBuilder("main")
        program = main.build(main.while_(condition, body, main.parameter(0, state, "state")))
        given = [np.int32(0), *(rng.integers(-3, 4, dims).astype(np.float32) for dims in (6, 6, (2, 3)))]
        seen = []
        for platform in ("interpreter", "cpu"):
            client = LocalClient(platform)
            results = client.compile(program).execute(given)
            seen.append(([r.tolist() for r in results], taken(client, 40)))
        assert seen[0] == seen[1]
