"""Collectives and channels between the devices of one run in one process, each of them a thread.

The n-th rendezvous of a group completes when each of its devices has arrived n times. A device's parts are copied when
it arrives, so that it need not wait until the others have read them. A run fails as a whole: when a device raises an
error, ends while others wait for it, runs another op than the others of its group, or when all running devices wait for
each other.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence

from ..errors import CommunicationError, add_note

_RUNNING, _ENDED, _OUTSIDE, _WAITING, _ABSENT = (
    "is running",
    "has ended",
    "waits outside",
    "waits",
    "does not take part",
)


class _RendezvousState:
    """One rendezvous of a group: the parts of each device that has arrived."""

    __slots__ = ("first_device", "is_complete", "parts", "subject")

    def __init__(self, first: int, subject: tuple[str, tuple[int, ...]]) -> None:
        self.parts: dict[int, Sequence[bytes]] = {}
        self.first_device, self.subject = first, subject
        self.is_complete = False


class Rendezvous:
    """The devices of a run: `replicas` times `partitions`, device r * partitions + p being partition p of replica r.

    A device that waits sleeps on a lock of its own, which the device that ends the wait releases, once.
    """

    def __init__(self, replicas: int, partitions: int) -> None:
        count = replicas * partitions
        self.names = [
            f"replica {d // partitions}" + (f" partition {d % partitions}" if partitions > 1 else "")
            for d in range(count)
        ]
        self._lock = threading.Lock()
        self._pending: dict[tuple[frozenset[int], int], _RendezvousState] = {}
        self._arrivals: list[collections.Counter[frozenset[int]]] = [
            collections.Counter() for _ in range(count)
        ]
        self._channels: dict[int, collections.deque[tuple[str, bytes]]] = collections.defaultdict(
            collections.deque
        )
        self._state = [_RUNNING] * count
        self._ops: list[str | tuple[str, str, tuple[int, ...]]] = [""] * count
        self._awaited: list[int | None] = [None] * count  # the channel that a device waits for
        self._asleep = [threading.Lock() for _ in range(count)]
        for lock in self._asleep:
            lock.acquire()
        self._error: BaseException | None = None

    @property
    def error(self) -> BaseException | None:
        """The error that ended the run, if one did."""
        return self._error

    def exchange(
        self,
        device: int,
        group: Sequence[int],
        what: str,
        signature: str,
        parts: Sequence[bytes],
        timeout: float | None,
    ) -> list[bytes]:
        """As Transport.exchange."""
        if len(group) == 1:
            return list(parts)
        members, position = _members(tuple(group), device)
        subject = (signature, tuple(group))
        with self._lock:
            self._raise()
            key = (members, self._arrivals[device][members])
            self._arrivals[device][members] += 1
            rendezvous = self._pending.get(key)
            if rendezvous is None:
                rendezvous = self._pending[key] = _RendezvousState(device, subject)
            self._ops[device] = (what, *subject)
            if rendezvous.subject != subject:
                self._fail(
                    CommunicationError(
                        f"{self.names[device]} came with {self._op(device)}, "
                        f"{self.names[rendezvous.first_device]} waited at {self._op(rendezvous.first_device)}"
                    )
                )
                self._raise()
            rendezvous.parts[device] = parts
            if len(rendezvous.parts) == len(members):
                del self._pending[key]
                rendezvous.is_complete = True
                for other in members:
                    self._wake(other)
            else:
                self._fall_asleep(device)
        if not rendezvous.is_complete:
            self._sleep(device, timeout)
            if not rendezvous.is_complete:
                with self._lock:
                    self._raise()
        return [rendezvous.parts[other][position] for other in group]

    def send(self, device: int, channel: int, signature: str, data: bytes) -> None:
        """As Transport.send."""
        with self._lock:
            self._raise()
            self._channels[channel].append((signature, data))
            for other, awaited in enumerate(self._awaited):
                if awaited == channel:
                    self._wake(other)

    def receive(self, device: int, channel: int, signature: str, timeout: float | None) -> bytes:
        """As Transport.receive."""
        arrived = self._channels[channel]
        while True:
            with self._lock:
                self._raise()
                if arrived:
                    sent, data = arrived.popleft()
                    break
                self._ops[device] = f"recv on channel {channel} ({signature})"
                self._awaited[device] = channel
                self._fall_asleep(device)
            try:
                self._sleep(device, timeout)
            finally:
                self._awaited[device] = None
        if sent != signature:
            self.fail(
                CommunicationError(
                    f"{self.names[device]} wants {signature} on channel {channel}, {sent} was sent"
                )
            )
            self.check(device)
        return data

    @contextlib.contextmanager
    def outside(self, device: int, what: str) -> Iterator[None]:
        """As Transport.outside."""
        with self._lock:
            self._raise()
            self._state[device], self._ops[device] = _OUTSIDE, what
        try:
            yield
        finally:
            with self._lock:
                self._state[device] = _RUNNING

    def check(self, device: int) -> None:
        """As Transport.check."""
        with self._lock:
            self._raise()

    def end(self, device: int, error: BaseException | None = None) -> None:
        """The device's program has ended, or failed."""
        with self._lock:
            self._state[device] = _ENDED
            if error is not None:
                if self._error is None:
                    waiting = self._waiting()
                    add_note(error, f"raised in {self.names[device]}" + (f"; {waiting}" if waiting else ""))
                self._fail(error)
            else:
                self._check_stuck()

    def fail(self, error: BaseException) -> None:
        """Ends the run from outside: every device that waits, or comes later, gets a CommunicationError."""
        with self._lock:
            self._fail(error)

    def _sleep(self, device: int, timeout: float | None) -> None:
        """Sleeps until another device wakes this one."""
        if self._asleep[device].acquire(timeout=-1 if timeout is None else timeout):
            return
        with self._lock:
            if self._state[device] == _WAITING:
                self._fail(CommunicationError(f"after {timeout} s {self._waiting()}"))
        self._asleep[device].acquire()  # it has been woken, by the failure if by nobody else

    # -- with the lock held
    def _fall_asleep(self, device: int) -> None:
        """The device is about to sleep."""
        self._state[device] = _WAITING
        self._check_stuck()

    def _wake(self, device: int) -> None:
        if self._state[device] == _WAITING:
            self._state[device] = _RUNNING
            self._asleep[device].release()

    def _check_stuck(self) -> None:
        """Fails when a device waits for one that has ended, or when every running device waits."""
        if self._error is not None or _WAITING not in self._state:
            return
        if any(
            self._state_of(d) in (_ENDED, _ABSENT)
            for (members, _), m in self._pending.items()
            for d in members - m.parts.keys()
        ):
            self._fail(CommunicationError(self._waiting()))
        elif _RUNNING not in self._state and _OUTSIDE not in self._state:
            self._fail(CommunicationError(f"nobody goes on: {self._waiting()}"))

    def _waiting(self) -> str:
        """The devices that wait, where, and for which others."""
        texts = []
        for device, state in enumerate(self._state):
            if state == _OUTSIDE:
                texts.append(f"{self.names[device]} waited at {self._op(device)}")
            if state != _WAITING:
                continue
            missing: list[int] = []
            for (members, _), rendezvous in self._pending.items():
                if device in rendezvous.parts:
                    missing = sorted(members - rendezvous.parts.keys())
            text = f"{self.names[device]} waited at {self._op(device)}"
            if missing:
                text += " for " + ", ".join(
                    self._name(m) + (f" which {self._state_of(m)}" if self._state_of(m) != _WAITING else "")
                    for m in missing
                )
            texts.append(text)
        return "; ".join(texts)

    def _op(self, device: int) -> str:
        """The op of a device, for messages."""
        op = self._ops[device]
        if isinstance(op, str):
            return op
        what, signature, group = op
        return f"{what} ({signature} among {{{', '.join(map(self._name, group))}}})"

    def _name(self, device: int) -> str:
        """The name of a device, also of one that a group has and the run has not."""
        return self.names[device] if device < len(self.names) else f"device {device}"

    def _state_of(self, device: int) -> str:
        """The state of a device."""
        return self._state[device] if device < len(self._state) else _ABSENT

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        for device in range(len(self._state)):
            self._wake(device)

    def _raise(self) -> None:
        if self._error is not None:
            if isinstance(self._error, CommunicationError):
                raise CommunicationError(str(self._error)) from None
            raise CommunicationError(f"the run was ended: {type(self._error).__name__}: {self._error}")


@functools.lru_cache(maxsize=4096)
def _members(group: tuple[int, ...], device: int) -> tuple[frozenset[int], int]:
    """(the group as a set, the device's position in it)."""
    return frozenset(group), group.index(device)
