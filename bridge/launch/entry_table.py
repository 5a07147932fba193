"""The cache entries of a launch: native code looks them up without a lock while others are added and removed.

A removed entry is freed when no call can use it any more: epoch-based reclamation with two words of active calls
(`LaunchState.active_calls`). A call that uses the entry began before the removal, so once both words have been seen at
zero since then, such calls are over. They may have left the entry as the last hit, so `last_hit` is cleared then, and
both words must be seen at zero a second time. New calls are counted in the word that was already seen at zero, so that
the other one becomes zero.
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses

from . import weight_pages
from .compiled_code import CompiledCode
from .structs import BUCKETS, MIN_BAILOUTS, CacheEntry, LaunchState, Native

MAX_ENTRIES = 1024  # of one launch
MAX_BYTES = 256 << 20  # of code and its constants, of one launch


@dataclasses.dataclass
class Counters:
    """What happened to a cluster.

    runs: of compiled code. fallback_runs: in TensorFlow. compiles: keys that have code. uncompiled: keys that have
        none.
    bailouts: runs of compiled code that bailed out, so that TensorFlow ran them as well.
    """

    runs: int = 0
    fallback_runs: int = 0
    compiles: int = 0
    uncompiled: int = 0
    bailouts: int = 0

    def add(self, entry: CacheEntry) -> None:
        """Adds what happened to one entry."""
        self.runs += entry.runs
        self.fallback_runs += entry.fallback_runs
        self.bailouts += entry.bailouts
        if entry.code:
            self.compiles += 1
        else:
            self.uncompiled += 1


class EntryOwner:
    """An entry and all that its words point to. code: None where TensorFlow runs the key. bytes: of its own code."""

    def __init__(self, key: bytes, hash_: int, code: CompiledCode | None) -> None:
        self.key, self.code = key, code
        self.buffers: list[object] = []
        self.bytes = code.own_bytes if code is not None else 0
        self._key = ctypes.create_string_buffer(key, len(key))
        self.entry = CacheEntry(hash=hash_, key_bytes=len(key), key=ctypes.addressof(self._key))
        self.address: int = ctypes.addressof(self.entry)
        self.calls_at_last_scan = 0

    def __del__(self) -> None:
        weight_pages.forget(self.address)

    def has_bailed_out(self) -> bool:
        """Whether the code was removed because most of its runs bailed out."""
        return self.code is not None and not self.entry.code and self.entry.bailouts >= MIN_BAILOUTS


@dataclasses.dataclass
class _Retired:
    """An object, or None in the place of one with an address, that is freed when no call can use it any more.

    epochs: how often both words of active calls have been seen at zero; seen_idle: which of them, since the last time.
    """

    owner: object
    address: int
    epochs: int = 0
    seen_idle: list[bool] = dataclasses.field(default_factory=lambda: [False, False])


class EntryTable:
    """The entries of one launch by key, least recently used first. The caller holds the launch's lock."""

    def __init__(self, state: LaunchState, native: Native) -> None:
        self._state, self._native = state, native
        self._address = ctypes.addressof(state)
        self.entries: collections.OrderedDict[bytes, EntryOwner] = collections.OrderedDict()
        self.removed = Counters()  # of entries that were removed
        self._bytes = 0  # of all entries
        self._unsure: set[EntryOwner] = set()  # whose code may bail out, and be freed then
        self._retired: list[_Retired] = []

    def add(self, new: EntryOwner) -> list[EntryOwner]:
        """Publishes an entry; returns the entries that were evicted for it, and those that lost their code."""
        if new.key in self.entries:
            self.remove(self.entries[new.key])
        bucket = self._bucket(new.entry)
        new.entry.next = ctypes.c_void_p.from_address(bucket).value
        self._native.publish(bucket, new.address)
        self.entries[new.key] = new
        self._bytes += new.bytes
        if new.code is not None and new.code.may_bail_out and new.bytes:
            self._unsure.add(new)
        evicted = []
        while len(self.entries) > 1 and (len(self.entries) > MAX_ENTRIES or self._bytes > MAX_BYTES):
            evicted.append(self._least_recently_used(new))
            self.remove(evicted[-1])
        bailed_out = [owner for owner in self._unsure if owner.has_bailed_out()]
        for owner in bailed_out:
            self._retired.append(_Retired(owner.code, 0))
            self._forget_code(owner)
            owner.code = None
        self.reclaim()
        return evicted + bailed_out

    def _least_recently_used(self, newest: EntryOwner) -> EntryOwner:
        """The entry that comes first and has not run since the last scan; the clock algorithm."""
        for _ in range(2 * len(self.entries)):
            owner = next(iter(self.entries.values()))
            calls = owner.entry.runs + owner.entry.fallback_runs
            if owner is not newest and calls == owner.calls_at_last_scan:
                return owner
            owner.calls_at_last_scan = calls
            self.entries.move_to_end(owner.key)
        return next(owner for owner in self.entries.values() if owner is not newest)

    def remove(self, owner: EntryOwner) -> None:
        """Removes an entry; it is freed later."""
        del self.entries[owner.key]
        self._forget_code(owner)
        slot = self._bucket(owner.entry)
        while (address := ctypes.c_void_p.from_address(slot).value) != owner.address:
            assert address is not None
            slot = address + CacheEntry.next.offset
        self._native.publish(slot, owner.entry.next or 0)
        self.removed.add(owner.entry)
        self._retired.append(_Retired(owner, owner.address))

    def _forget_code(self, owner: EntryOwner) -> None:
        self._unsure.discard(owner)
        self._bytes -= owner.bytes
        owner.bytes = 0

    def clear(self) -> list[EntryOwner]:
        """Removes all entries; returns them."""
        owners = list(self.entries.values())
        for owner in owners:
            self.remove(owner)
        for _ in range(3):  # mostly no call is active, and these free all
            self.reclaim()
        return owners

    def reclaim(self) -> None:
        """Frees what no call can use any more."""
        for which in (0, 1):
            if self._retired and not self._active_calls(which):
                for retired in self._retired:
                    retired.seen_idle[which] = True
        last_hit = ctypes.c_void_p.from_address(self._address + LaunchState.last_hit.offset).value
        for retired in self._retired:
            if all(retired.seen_idle):
                retired.epochs, retired.seen_idle = retired.epochs + 1, [False, False]
                if last_hit and last_hit == retired.address:
                    self._native.publish(self._address + LaunchState.last_hit.offset, 0)
                    retired.epochs = 1
        self._retired = [retired for retired in self._retired if retired.epochs < 2]
        if self._retired:
            epoch = 0 if self._retired[0].seen_idle[0] else 1
            self._native.publish(self._address + LaunchState.epoch.offset, epoch)

    @property
    def has_retired(self) -> bool:
        """Whether something waits to be freed."""
        return bool(self._retired)

    @property
    def is_idle(self) -> bool:
        """Whether no call is active."""
        return not any(self._active_calls(which) for which in (0, 1))

    def add_counters(self, total: Counters) -> None:
        """Adds what happened to all entries so far."""
        for name, value in dataclasses.asdict(self.removed).items():
            setattr(total, name, getattr(total, name) + value)
        for owner in tuple(self.entries.values()):
            total.add(owner.entry)

    def _bucket(self, entry: CacheEntry) -> int:
        return self._address + LaunchState.buckets.offset + 8 * (entry.hash % BUCKETS)

    def _active_calls(self, which: int) -> int:
        return self._native.count(self._address + LaunchState.active_calls.offset + 8 * which, 0)
