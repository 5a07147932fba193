"""The meeting of devices: who gets what, and that whatever goes wrong ends everybody with an error that says who waited
for what."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest
from tfbridge.runtime.devices.device import Device, Feeds, ReplicaGroups, current, group_of
from tfbridge.runtime.devices.rendezvous import Rendezvous
from tfbridge.runtime.devices.run_devices import run_devices
from tfbridge.runtime.errors import CommunicationError


def run(
    *programs: Callable[[], object], replicas: int = 0, partitions: int = 1, timeout: float | None = None
) -> list[object]:
    return run_devices(
        programs, replicas or len(programs) // partitions, partitions, defaultdict(Feeds), timeout
    )


def meet(group: Sequence[int], what: str = "op", signature: str = "f32") -> list[bytes]:
    """An exchange of this thread's device; to place k goes `number>k`."""
    device = current()
    return device.exchange(
        tuple(group), what, signature, [b"%d>%d" % (device.number, k) for k in range(len(group))]
    )


def test_exchange() -> None:
    found = run(*[lambda: meet((2, 0, 1))] * 3)
    assert found == [[b"2>1", b"0>1", b"1>1"], [b"2>2", b"0>2", b"1>2"], [b"2>0", b"0>0", b"1>0"]]


def test_groups_do_not_wait_for_each_other() -> None:
    gate = threading.Event()

    def late() -> None:
        gate.wait(10)
        meet((0, 1))

    def early() -> None:
        meet((2, 3))
        gate.set()

    run(late, late, early, early)


def test_alone() -> None:
    assert run(lambda: meet((0,))) == [[b"0>0"]]
    assert meet((0,)) == [b"0>0"]  # outside of a run


@pytest.mark.parametrize(
    ("participants", "expected"),
    [  # of replica 1, partition 0, of 3 x 2 devices
        (ReplicaGroups("replicas"), ((0, 2, 4), 1)),
        (ReplicaGroups("replicas", ((2, 1), (0,))), ((4, 2), 1)),
        (ReplicaGroups("partitions"), ((2, 3), 0)),
        (ReplicaGroups("partitions", ((1, 0),)), ((3, 2), 1)),
        (ReplicaGroups("replicas and partitions"), ((0, 1, 2, 3, 4, 5), 2)),
        (ReplicaGroups("replicas and partitions", ((0, 1), (2,))), ((0, 1, 2, 3), 2)),
        (ReplicaGroups("devices"), ((0, 1, 2, 3, 4, 5), 2)),
        (ReplicaGroups("devices", ((0, 1), (5, 2), (3, 4))), ((5, 2), 1)),
        (ReplicaGroups("devices", ((0, 1),)), ((), -1)),
        (ReplicaGroups("replicas", ((0, 2),)), ((), -1)),
    ],
)
def test_group_of(participants: ReplicaGroups, expected: object) -> None:
    assert group_of(participants, 1, 0, 3, 2) == expected


def test_many_meetings_of_random_groups() -> None:
    plan = random.Random(0)
    steps = [(tuple(plan.sample(range(6), plan.randint(2, 6))), plan.randint(1, 3)) for _ in range(400)]

    def program() -> int:
        device, total = current(), 0
        for group, times in steps:
            for n in range(times):
                if device.number in group:
                    data = [b"%d" % (device.number * 10 + n)] * len(group)
                    found = device.exchange(group, "sum", str(n), data)
                    assert found == [b"%d" % (d * 10 + n) for d in group]
                    total += 1
        return total

    totals = run(*[program] * 6)
    assert sum(totals) == sum(len(g) * n for g, n in steps)  # type: ignore[arg-type]


def fails(
    pattern: str,
    *programs: Callable[[], object],
    error: type[BaseException] = CommunicationError,
    within: float = 5.0,
    **keywords: object,
) -> BaseException:
    """The run fails with this message, soon, and leaves no thread behind."""
    start, before = time.monotonic(), threading.active_count()
    with pytest.raises(error) as raised:
        run(*programs, **keywords)  # type: ignore[arg-type]
    assert time.monotonic() - start < within
    assert threading.active_count() <= before
    assert re.search(pattern, str(raised.value) + "\n".join(getattr(raised.value, "__notes__", []))), (
        raised.value
    )
    return raised.value


def test_missing_device() -> None:
    fails(
        r"^replica 0 waited at sum \(f32 among \{replica 0, replica 1\}\) for replica 1 which has ended$",
        lambda: meet((0, 1), "sum"),
        lambda: None,
    )


def test_device_that_there_is_not() -> None:
    fails(
        r"^replica 0 waited at sum \(f32 among \{replica 0, device 2\}\) for device 2 which does not take part$",
        lambda: meet((0, 2), "sum"),
        lambda: None,
    )


def test_device_that_ends_later() -> None:
    fails(
        "for replica 2 which has ended",
        lambda: meet((0, 1, 2)),
        lambda: meet((0, 1, 2)),
        lambda: time.sleep(0.05),
    )


def test_other_ops() -> None:
    error = fails(
        "came with", lambda: meet((0, 1), "all-reduce.1", "f32[4]"), lambda: meet((0, 1), "sum.2", "f32[5]")
    )
    assert all(
        part in str(error) for part in ("replica 0", "replica 1", "all-reduce.1", "sum.2", "f32[4]", "f32[5]")
    )


def test_other_order_of_the_group() -> None:
    fails("came with", lambda: meet((0, 1)), lambda: meet((1, 0)))


def test_once_more_than_the_others() -> None:
    def often(times: int) -> Callable[[], None]:
        return lambda: [meet((0, 1, 2)) for _ in range(times)] and None

    fails("replica 1 waited at op .* for .* which has ended", often(3), often(4), often(3))


def test_circle() -> None:
    error = fails("^nobody goes on: ", lambda: meet((0, 1)), lambda: meet((1, 2)), lambda: meet((2, 0)))
    for waits, waited in ((0, 1), (1, 2), (2, 0)):
        assert re.search(rf"replica {waits} waited at op \([^)]*\) for replica {waited}", str(error))


def test_a_device_raises() -> None:
    def broken() -> None:
        time.sleep(0.05)
        raise KeyError("mine")

    error = fails("mine", lambda: meet((0, 1, 2)), broken, lambda: meet((0, 1, 2)), error=KeyError)
    (note,) = error.__notes__
    assert note.startswith("raised in replica 1; replica 0 waited at op") and "replica 2 waited at op" in note


def test_who_comes_after_the_failure() -> None:
    seen = []

    def late() -> None:
        time.sleep(0.1)
        try:
            meet((0, 1))
        except CommunicationError as error:
            seen.append(str(error))
            raise

    def broken() -> None:
        raise ValueError("first")

    fails("first", broken, late, error=ValueError)
    assert seen == ["the run was ended: ValueError: first"]


def test_timeout() -> None:
    fails(
        r"^after 0.1 s replica 0 waited at op .* for replica 1 which is running$",
        lambda: meet((0, 1)),
        lambda: time.sleep(0.3),
        timeout=0.1,
    )


def test_partitions_have_names() -> None:
    fails(
        "replica 1 partition 0 waited at op .* for replica 0 partition 1 which has ended",
        lambda: None,
        lambda: None,
        lambda: meet((2, 1)),
        lambda: None,
        partitions=2,
    )


def test_channels() -> None:
    def sender() -> None:
        for n in range(3):
            current().send(5, b"%d" % n, "u8[1]")
        current().send(6, b"x", "u8[1]")

    def receiver() -> list[bytes]:
        return [current().receive(6, "u8[1]"), *(current().receive(5, "u8[1]") for _ in range(3))]

    assert run(receiver, sender)[0] == [b"x", b"0", b"1", b"2"]


def test_channel_without_sender() -> None:
    fails(
        r"replica 0 waited at recv on channel 3 \(u8\[1\]\)",
        lambda: current().receive(3, "u8[1]"),
        lambda: None,
    )


def test_channel_of_other_data() -> None:
    fails(
        r"replica 1 wants u8\[2\] on channel 3, u8\[1\] was sent",
        lambda: current().send(3, b"x", "u8[1]"),
        lambda: current().receive(3, "u8[2]"),
    )


def test_two_receivers_and_one_item() -> None:
    fails(
        "recv on channel 1",
        lambda: current().receive(1, "a"),
        lambda: current().receive(1, "a"),
        lambda: current().send(1, b"", "a"),
    )


def test_queue_that_stays_empty_ends_with_the_others() -> None:
    def broken() -> None:
        time.sleep(0.05)
        raise ValueError("other")

    error = fails("other", lambda: current().infeed("feed", []), broken, error=ValueError)
    assert "replica 0 waited at feed: the infeed queue is empty" in error.__notes__[0]


def test_interrupt_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is raised in the thread that waits for the devices."""
    ended = []

    def wait() -> None:
        try:
            current().infeed("feed", [])
        except CommunicationError:
            ended.append(1)
            raise

    joined = threading.Thread.join
    calls = []

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        calls.append(thread)
        if len(calls) == 1:
            raise KeyboardInterrupt
        joined(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", join)
    with pytest.raises(KeyboardInterrupt):
        run(wait, wait)
    threads = [t for t in threading.enumerate() if t.name.startswith("tfbridge replica")]
    for thread in threads:
        joined(thread, 2)
    assert len(ended) == 2


def test_number_of_programs() -> None:
    with pytest.raises(ValueError, match="1 programs for 2 x 1 devices"):
        run(lambda: None, replicas=2)


def test_parts_for_each() -> None:
    device = Device(Rendezvous(2, 1), replicas=2)
    with pytest.raises(CommunicationError, match="1 parts for 2 devices"):
        device.exchange((0, 1), "op", "f32", [b""])
