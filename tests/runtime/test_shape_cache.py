"""The shape cache: one compilation per key, errors reach all who wait, reads need no lock."""

from __future__ import annotations

import threading

import pytest
from tfbridge.runtime.shape_cache import ShapeCache


def test_compiles_once_per_key() -> None:
    cache: ShapeCache[int] = ShapeCache()
    calls: list[bytes] = []
    assert cache.find(b"a") is None
    for key, value in ((b"a", 1), (b"b", 2), (b"a", 3)):
        cache.get(key, lambda key=key, value=value: calls.append(key) or value)
    assert calls == [b"a", b"b"] and (cache.find(b"a"), cache.find(b"b")) == (1, 2)
    assert len(cache) == 2 and sorted(cache) == [1, 2]
    assert cache.remove(b"a") == 1 and cache.find(b"a") is None
    cache.clear()
    assert len(cache) == 0


def meet(cache: ShapeCache[int], compile_entry) -> list[object]:
    """Eight threads miss on one key; returns what each got."""
    got: list[object] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        try:
            got.append(cache.get(b"key", compile_entry))
        except ValueError as error:
            got.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return got


def test_simultaneous_misses_compile_once() -> None:
    cache: ShapeCache[int] = ShapeCache()
    calls: list[int] = []
    pause = threading.Event()

    def compile_entry() -> int:
        calls.append(1)
        pause.wait(0.1)
        return 42

    assert meet(cache, compile_entry) == [42] * 8
    assert calls == [1]


def test_error_reaches_all_and_is_not_kept() -> None:
    cache: ShapeCache[int] = ShapeCache()
    pause = threading.Event()

    def fail() -> int:
        pause.wait(0.1)
        raise ValueError("no")

    assert meet(cache, fail) == ["no"] * 8
    assert cache.get(b"key", lambda: 5) == 5


def test_key_that_needs_itself() -> None:
    cache: ShapeCache[int] = ShapeCache()
    with pytest.raises(RuntimeError, match="needs b'k' itself"):
        cache.get(b"k", lambda: cache.get(b"k", lambda: 1))
    assert cache.get(b"k", lambda: cache.get(b"other", lambda: 2)) == 2
