"""The entries of a launch: native code finds them without a lock while others are added and taken out.

An entry that was taken out is freed when no call can have it any more. Every call is counted in one of two words while
it is on its way (`Launch.active`). A call that has the entry began before it was taken out: once both words were seen
at zero since, such calls are over. They may have left the entry as that of the last hit, so that is cleared then, and
both words must be seen at zero once more. New calls are sent to the word that need not become zero next, so that the
other does.
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
from typing import Any

from ...runtime.code.executable import Executable
from . import kernel, prepacked_weights, weight_pages

MOST_ENTRIES = 512  # of one launch
MOST_BYTES = 256 << 20  # of code and its constants, of one launch


@dataclasses.dataclass
class Counters:
    """What happened to a cluster: runs of compiled code, runs in TensorFlow, keys compiled, keys refused, and how many
    of the runs of compiled code were left, so that TensorFlow ran them, too."""

    runs: int = 0
    fallback_runs: int = 0
    compiles: int = 0
    refused: int = 0
    left: int = 0

    def add(self, entry: kernel.Entry) -> None:
        """Adds what happened to one entry."""
        self.left += entry.left
        if entry.code:
            self.compiles += 1
            self.runs += entry.runs
        else:
            self.refused += 1
            self.fallback_runs += entry.runs


class Held:
    """An entry and all that its words point to; `made` is what it runs, None where that is TensorFlow."""

    def __init__(self, key: bytes, hash_: int, made: Any, buffers: list[Any]) -> None:
        self.key, self.made, self.buffers = key, made, buffers
        self.text = ctypes.create_string_buffer(key, len(key))
        self.entry = kernel.Entry(hash=hash_, key_bytes=len(key), key=ctypes.addressof(self.text))
        self.address: int = ctypes.addressof(self.entry)
        self.runs_seen = 0

    def __del__(self) -> None:
        prepacked_weights.forget(self.address)
        weight_pages.forget(self.address)

    @property
    def bytes(self) -> int:
        """Bytes of the code and of its constants."""
        keep = getattr(self.made, "keep", None)
        return (
            keep.artifact.object_bytes + len(keep.artifact.constants) if isinstance(keep, Executable) else 0
        )

    def is_dead(self) -> bool:
        """Whether the code was taken out for good: it was left in most runs."""
        return self.made is not None and not self.entry.code and self.entry.left >= kernel.LEFT_RUNS


class _Grave:
    """What is freed when no call can have it any more."""

    def __init__(self, content: Any, address: int) -> None:
        self.content, self.address = content, address
        self.rounds = 0
        self.seen = [False, False]


class Table:
    """The entries of one launch by key, those that were not used for long first. The caller locks."""

    def __init__(self, launch: kernel.Launch, native: kernel.Native) -> None:
        self._launch, self._native = launch, native
        self._at = ctypes.addressof(launch)
        self.held: collections.OrderedDict[bytes, Held] = collections.OrderedDict()
        self.past = Counters()
        self._graves: list[_Grave] = []

    def add(self, held: Held) -> list[Held]:
        """Publishes an entry; returns those that had to go for it, or whose code is gone."""
        if held.key in self.held:
            self.remove(self.held[held.key])
        bucket = self._bucket(held.entry)
        held.entry.next = ctypes.c_void_p.from_address(bucket).value
        self._native.publish(bucket, held.address)
        self.held[held.key] = held
        gone = []
        total = sum(one.bytes for one in self.held.values())
        while len(self.held) > 1 and (len(self.held) > MOST_ENTRIES or total > MOST_BYTES):
            gone.append(self._least_used(held))
            total -= gone[-1].bytes
            self.remove(gone[-1])
        dead = [one for one in self.held.values() if one.is_dead()]
        for one in dead:
            self._bury(one.made, 0)
            one.made = None
        self.reclaim()
        return gone + dead

    def _least_used(self, newest: Held) -> Held:
        """The entry that was added or seen used the longest time ago; one used since it was seen gets another turn."""
        for _ in range(2 * len(self.held)):
            held = next(iter(self.held.values()))
            if held is not newest and held.entry.runs == held.runs_seen:
                return held
            held.runs_seen = held.entry.runs
            self.held.move_to_end(held.key)
        return next(held for held in self.held.values() if held is not newest)

    def remove(self, held: Held) -> None:
        """Takes an entry out; it is freed later."""
        del self.held[held.key]
        slot = self._bucket(held.entry)
        while (at := ctypes.c_void_p.from_address(slot).value) != held.address:
            assert at is not None
            slot = at + kernel.Entry.next.offset
        self._native.publish(slot, held.entry.next or 0)
        self.past.add(held.entry)
        self._bury(held, held.address)

    def clear(self) -> list[Held]:
        """Takes all entries out; returns them."""
        gone = list(self.held.values())
        for held in gone:
            self.remove(held)
        for _ in range(3):  # most often nothing is on its way
            self.reclaim()
        return gone

    def _bury(self, content: Any, address: int) -> None:
        self._graves.append(_Grave(content, address))

    def reclaim(self) -> None:
        """Frees what no call can have any more."""
        for which in (0, 1):
            if self._graves and not self._native.count(self._word(which), 0):
                for grave in self._graves:
                    grave.seen[which] = True
        last = ctypes.c_void_p.from_address(self._at + kernel.Launch.last.offset).value
        for grave in self._graves:
            if all(grave.seen):
                grave.rounds, grave.seen = grave.rounds + 1, [False, False]
                if last and last == grave.address:
                    self._native.publish(self._at + kernel.Launch.last.offset, 0)
                    grave.rounds = 1
        self._graves = [grave for grave in self._graves if grave.rounds < 2]
        if self._graves:
            self._native.publish(
                self._at + kernel.Launch.turn.offset, 1 if not self._graves[0].seen[0] else 0
            )

    @property
    def has_graves(self) -> bool:
        """Whether something waits to be freed."""
        return bool(self._graves)

    @property
    def is_idle(self) -> bool:
        """Whether no call is on its way."""
        return not any(self._native.count(self._word(which), 0) for which in (0, 1))

    def counters(self, total: Counters) -> None:
        """Adds what happened so far."""
        for name, value in dataclasses.asdict(self.past).items():
            setattr(total, name, getattr(total, name) + value)
        for held in tuple(self.held.values()):
            total.add(held.entry)

    def _bucket(self, entry: kernel.Entry) -> int:
        return self._at + kernel.Launch.buckets.offset + 8 * (entry.hash % kernel.BUCKETS)

    def _word(self, which: int) -> int:
        return self._at + kernel.Launch.active.offset + 8 * which
