"""Where the devices of one run in one process, each a thread, meet: collectives and channels between them.

The devices of a group meet as often as each of them comes; the n-th meeting of a group needs the n-th coming of all of
its devices. What a device brings is copied when it comes, so that nobody waits for the others to read it. A run fails
as a whole: when a device raises an error, ends while others wait for it, brings something else than the others, or when
all that are left wait for each other.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence

from ..errors import CommunicationError

_RUNNING, _ENDED, _OUTSIDE, _WAITING = "is running", "has ended", "waits outside", "waits"


class _Meeting:
    """One meeting of a group: what each device brought."""

    __slots__ = ("brought", "first", "is_complete", "subject")

    def __init__(self, first: int, subject: tuple[str, tuple[int, ...]]) -> None:
        self.brought: dict[int, Sequence[bytes]] = {}
        self.first, self.subject = first, subject
        self.is_complete = False


class Rendezvous:
    """The devices of a run: `replicas` times `partitions`, device r * partitions + p being partition p of replica r.

    A device that waits sleeps on a lock of its own, which whoever has what it waits for releases, once.
    """

    def __init__(self, replicas: int, partitions: int) -> None:
        count = replicas * partitions
        self.names = [
            f"replica {d // partitions}" + (f" partition {d % partitions}" if partitions > 1 else "")
            for d in range(count)
        ]
        self._lock = threading.Lock()
        self._meetings: dict[tuple[frozenset[int], int], _Meeting] = {}
        self._turns: list[collections.Counter[frozenset[int]]] = [collections.Counter() for _ in range(count)]
        self._channels: dict[int, collections.deque[tuple[str, bytes]]] = collections.defaultdict(
            collections.deque
        )
        self._state = [_RUNNING] * count
        self._doing: list[str | tuple[str, str, tuple[int, ...]]] = [""] * count
        self._awaited: list[int | None] = [None] * count  # the channel that a device waits for
        self._asleep = [threading.Lock() for _ in range(count)]
        for lock in self._asleep:
            lock.acquire()
        self._error: BaseException | None = None

    @property
    def error(self) -> BaseException | None:
        """What the run failed of; None while it has not."""
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
        members, place = _members(tuple(group), device)
        subject = (signature, tuple(group))
        with self._lock:
            self._raise()
            key = (members, self._turns[device][members])
            self._turns[device][members] += 1
            meeting = self._meetings.get(key)
            if meeting is None:
                meeting = self._meetings[key] = _Meeting(device, subject)
            self._doing[device] = (what, *subject)
            if meeting.subject != subject:
                self._fail(
                    CommunicationError(
                        f"{self.names[device]} came with {self._place(device)}, "
                        f"{self.names[meeting.first]} waited at {self._place(meeting.first)}"
                    )
                )
                self._raise()
            meeting.brought[device] = parts
            if len(meeting.brought) == len(members):
                del self._meetings[key]
                meeting.is_complete = True
                for other in members:
                    self._wake(other)
            else:
                self._fall_asleep(device)
        if not meeting.is_complete:
            self._sleep(device, timeout)
            if not meeting.is_complete:
                with self._lock:
                    self._raise()
        return [meeting.brought[other][place] for other in group]

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
                self._doing[device] = f"recv on channel {channel} ({signature})"
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
            self._state[device], self._doing[device] = _OUTSIDE, what
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
                    error.add_note(f"raised in {self.names[device]}" + (f"; {waiting}" if waiting else ""))
                self._fail(error)
            else:
                self._check_stuck()

    def fail(self, error: BaseException) -> None:
        """Ends the run from outside: every device that waits, or comes later, gets a CommunicationError."""
        with self._lock:
            self._fail(error)

    def _sleep(self, device: int, timeout: float | None) -> None:
        """Sleeps until somebody wakes the device."""
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
        """Fails when a device waits for one that has ended, or when nobody is left who could bring what is waited
        for."""
        if self._error is not None or _WAITING not in self._state:
            return
        if _ENDED in self._state and any(
            self._state[d] == _ENDED
            for (members, _), m in self._meetings.items()
            for d in members - m.brought.keys()
        ):
            self._fail(CommunicationError(self._waiting()))
        elif _RUNNING not in self._state and _OUTSIDE not in self._state:
            self._fail(CommunicationError(f"nobody goes on: {self._waiting()}"))

    def _waiting(self) -> str:
        """Who waits where, for whom."""
        texts = []
        for device, state in enumerate(self._state):
            if state == _OUTSIDE:
                texts.append(f"{self.names[device]} waited at {self._place(device)}")
            if state != _WAITING:
                continue
            missing: list[int] = []
            for (members, _), meeting in self._meetings.items():
                if device in meeting.brought:
                    missing = sorted(members - meeting.brought.keys())
            text = f"{self.names[device]} waited at {self._place(device)}"
            if missing:
                text += " for " + ", ".join(
                    self.names[m] + (f" which {self._state[m]}" if self._state[m] != _WAITING else "")
                    for m in missing
                )
            texts.append(text)
        return "; ".join(texts)

    def _place(self, device: int) -> str:
        """What the device does."""
        doing = self._doing[device]
        if isinstance(doing, str):
            return doing
        what, signature, group = doing
        return f"{what} ({signature} among {{{', '.join(self.names[d] for d in group)}}})"

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
    """(the group as a set, the device's place in it)."""
    return frozenset(group), group.index(device)
