"""The device that a thread runs a program for: its numbers, its queues, and its transport to the other devices."""

from __future__ import annotations

import contextlib
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from ..errors import CommunicationError
from .rendezvous import Rendezvous

Item = TypeVar("Item")
_POLL_SECONDS = 0.05
_here = threading.local()
_log = logging.getLogger("tfbridge.trace")


class Transport(Protocol):
    """How the devices of a run reach each other. Devices are numbered from 0.

    `what` is the op of a device, for messages; all participants must have the same signature.
    """

    def exchange(
        self,
        device: int,
        group: Sequence[int],
        what: str,
        signature: str,
        parts: Sequence[bytes],
        timeout: float | None,
    ) -> list[bytes]:
        """Sends parts[k] to the k-th device of the group, which has this one; returns the parts that came from each.

        Raises: CommunicationError  a device failed, ended, or runs another op; all devices wait; timeout seconds are
            over.
        """

    def send(self, device: int, channel: int, signature: str, data: bytes) -> None:
        """Puts data into a channel; does not wait."""

    def receive(self, device: int, channel: int, signature: str, timeout: float | None) -> bytes:
        """Takes data from a channel, waiting for it.

        Raises: CommunicationError  as `exchange`.
        """

    def outside(self, device: int, what: str) -> AbstractContextManager[None]:
        """Within, the device waits for something other than devices."""

    def check(self, device: int) -> None:
        """Raises CommunicationError if the run has failed."""


class ReplicaGroups(NamedTuple):
    """The devices that take part in a collective: groups of numbers, and the kind of things that are numbered."""

    of: str  # replicas | partitions | replicas and partitions | devices
    groups: tuple[tuple[int, ...], ...] = ()


@functools.lru_cache(maxsize=4096)
def group_of(
    participants: ReplicaGroups, replica: int, partition: int, replicas: int, partitions: int
) -> tuple[tuple[int, ...], int]:
    """(devices of this one's group, its position there); ((), -1) if it is in no group."""
    kind, groups = participants
    count, own_number = {
        "replicas": (replicas, replica),
        "partitions": (partitions, partition),
        "replicas and partitions": (replicas, replica),
        "devices": (replicas * partitions, replica * partitions + partition),
    }[kind]
    group = next((g for g in groups if own_number in g), ()) if groups else tuple(range(count))
    if kind == "replicas":
        devices = tuple(r * partitions + partition for r in group)
    elif kind == "partitions":
        devices = tuple(replica * partitions + p for p in group)
    elif kind == "devices":
        devices = group
    else:
        devices = tuple(r * partitions + p for r in group for p in range(partitions))
    own_device = replica * partitions + partition
    return devices, devices.index(own_device) if own_device in devices else -1


class Feeds:
    """The infeed and the outfeed queue of a device. An item is the list of its arrays."""

    def __init__(self) -> None:
        self.infeed: queue.SimpleQueue[list[np.ndarray]] = queue.SimpleQueue()
        self.outfeed: queue.SimpleQueue[list[np.ndarray]] = queue.SimpleQueue()


class Device:
    """One device of a run. `timeout` (seconds; None: none) bounds each wait."""

    def __init__(
        self,
        transport: Transport,
        replica: int = 0,
        partition: int = 0,
        replicas: int = 1,
        partitions: int = 1,
        feeds: Feeds | None = None,
        timeout: float | None = None,
    ) -> None:
        self.transport = transport
        self.replica, self.partition = replica, partition
        self.replicas, self.partitions = replicas, partitions
        self.numbers = (replica, partition, replicas)
        self.feeds = feeds or Feeds()
        self.timeout = timeout

    @property
    def number(self) -> int:
        """The device's number in the run."""
        return self.replica * self.partitions + self.partition

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Within, this thread runs for the device."""
        before = getattr(_here, "device", None)
        _here.device = self
        try:
            yield
        finally:
            _here.device = before

    def group(self, participants: ReplicaGroups) -> tuple[tuple[int, ...], int]:
        """As `group_of`, of this device."""
        return group_of(participants, self.replica, self.partition, self.replicas, self.partitions)

    def exchange(
        self, group: Sequence[int], name: str, signature: str, parts: Sequence[bytes]
    ) -> list[bytes]:
        """As Transport.exchange, from this device.

        Raises: CommunicationError  as there; there are not as many parts as devices in the group.
        """
        if len(parts) != len(group):
            raise CommunicationError(f"{name} ({signature}): {len(parts)} parts for {len(group)} devices")
        if len(group) == 1:
            return list(parts)
        return self.transport.exchange(self.number, group, name, signature, parts, self.timeout)

    def send(self, channel: int, data: bytes, signature: str) -> None:
        """As Transport.send."""
        self.transport.send(self.number, channel, signature, data)

    def receive(self, channel: int, signature: str) -> bytes:
        """As Transport.receive."""
        return self.transport.receive(self.number, channel, signature, self.timeout)

    def infeed(self, name: str, expected: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> list[np.ndarray]:
        """The next item of the infeed queue, waiting for it.

        Raises: CommunicationError  another device failed; the timeout is over; the item has other arrays than expected.
        """
        with self.transport.outside(self.number, f"{name}: the infeed queue is empty"):
            item: list[np.ndarray] = self._wait_for(
                lambda: self.feeds.infeed.get(timeout=_POLL_SECONDS), f"{name}: the infeed queue"
            )
        arrays = [(a.dtype, a.shape) for a in item]
        if arrays != [(d, tuple(dims)) for d, dims in expected]:
            raise CommunicationError(
                f"{name}: the item in the infeed queue is {_listed(arrays)}, the program wants "
                f"{_listed(expected)}"
            )
        return item

    def outfeed(self, arrays: Sequence[np.ndarray]) -> None:
        """Puts a copy of the arrays into the outfeed queue."""
        self.feeds.outfeed.put([np.array(a, order="C") for a in arrays])

    def trace(self, tag: str, array: np.ndarray) -> None:
        """Logs a value."""
        _log.info("%s: %s", tag, array)

    def _wait_for(self, get: Callable[[], Item], what: str) -> Item:
        end = None if self.timeout is None else time.monotonic() + self.timeout
        while True:
            try:
                return get()
            except queue.Empty:
                self.transport.check(self.number)
                if end is not None and time.monotonic() > end:
                    raise CommunicationError(f"{what} had no item for {self.timeout} s") from None


def numbers_here() -> tuple[int, int, int]:
    """Replica, partition and number of replicas of this thread's device."""
    device = getattr(_here, "device", None)
    return device.numbers if device is not None else (0, 0, 1)


def _listed(arrays: Sequence[tuple[np.dtype, Sequence[int]]]) -> str:
    return "(" + ", ".join(f"{d}[{','.join(map(str, dims))}]" for d, dims in arrays) + ")"


def current() -> Device:
    """The device of this thread; outside of a run, one that is alone, with queues of the thread."""
    device = getattr(_here, "device", None)
    if device is None:
        device = getattr(_here, "alone", None)
        if device is None:
            device = _here.alone = Device(Rendezvous(1, 1))
    return device
