"""A table from the shapes of a call to what was compiled for them; misses at once compile once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class ShapeCache(Generic[Entry]):
    """Entries by key; the key says shapes, types and the values of compile-time constants.

    Reading takes no lock: an entry appears in the table whole or not at all.
    """

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] = {}
        self._pending: dict[bytes, tuple[Future[Entry], int]] = {}
        self._lock = threading.Lock()

    def find(self, key: bytes) -> Entry | None:
        """The entry, or None."""
        return self._entries.get(key)

    def get(self, key: bytes, compile_entry: Callable[[], Entry]) -> Entry:
        """The entry; on a miss, that of `compile_entry`, called once however many threads miss at once.

        An error of `compile_entry` reaches all who waited for it and is not kept: the next call tries again.
        Raises: RuntimeError  `compile_entry` asks for the key that it compiles.
        """
        entry = self._entries.get(key)
        if entry is not None:
            return entry
        thread = threading.get_ident()
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                return entry
            waiting = self._pending.get(key)
            if waiting is None:
                future: Future[Entry] = Future()
                self._pending[key] = (future, thread)
        if waiting is not None:
            if waiting[1] == thread:
                raise RuntimeError(f"compiling {key!r} needs {key!r} itself")
            return waiting[0].result()
        try:
            entry = compile_entry()
        except BaseException as error:
            with self._lock:
                del self._pending[key]
            future.set_exception(error)
            raise
        with self._lock:
            self._entries[key] = entry
            del self._pending[key]
        future.set_result(entry)
        return entry

    def remove(self, key: bytes) -> Entry | None:
        """Takes an entry out of the table."""
        with self._lock:
            return self._entries.pop(key, None)

    def clear(self) -> None:
        """Takes all entries out of the table; what is being compiled still arrives."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        with self._lock:
            return iter(list(self._entries.values()))
