"""Arenas: aligned, big enough, never given out twice at once, reused, freed."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from in_threads import in_threads
from tfbridge.runtime.code import support_library
from tfbridge.runtime.threads import admission

take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(support_library.addresses()["arena_take"])
put = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(support_library.addresses()["arena_put"])


@pytest.fixture(autouse=True)
def no_arenas() -> None:
    support_library.trim_arenas()


@pytest.mark.parametrize("size", [1, 64, 65_536, 1_000_000, 2 << 20, (2 << 20) - 64, 5_000_001])
def test_memory_is_aligned_and_writable(size: int) -> None:
    memory = take(size)
    assert memory % 64 == 0
    ctypes.memset(memory, 7, size)
    assert ctypes.string_at(memory + size - 1, 1) == b"\7"
    put(memory)


def test_reused() -> None:
    first = take(1000)
    put(first)
    assert take(50_000) == first  # arenas have at least 64 KiB less their header
    second = take(10)
    assert second != first
    put(first)
    put(second)
    assert {take(10), take(10)} == {first, second}
    put(first)
    put(second)


def test_smallest_that_fits() -> None:
    small, large = take(1000), take(3_000_000)
    put(small)
    put(large)
    assert take(100) == small
    assert take(2_000_000) == large
    put(small)
    put(large)


def test_grows_when_all_are_too_small() -> None:
    small = take(1000)
    put(small)
    large = take(10_000_000)
    ctypes.memset(large, 1, 10_000_000)
    put(large)
    assert take(9_000_000) == large
    put(large)


def test_out_of_memory_is_null() -> None:
    assert take(1 << 60) is None
    put(None)


def test_never_given_out_twice() -> None:
    def work(number: int) -> None:
        mark = number + 1
        random = np.random.default_rng(mark)
        for size in random.integers(8, 200_000, 300).tolist():
            memory = take(size)
            ctypes.memset(memory, mark, size)
            assert not ctypes.string_at(memory, size).strip(bytes([mark]))
            put(memory)

    in_threads(6, work)


def test_large_arenas_are_for_large_runs() -> None:
    """A large run finds the arena of the one before, whatever small ones run meanwhile; each kind grows by itself."""
    large = take(12 << 20)
    put(large)
    small = take(1000)
    assert small != large and take(12 << 20) == large
    put(small)
    put(large)
    larger = take(40 << 20)
    put(larger)
    assert take(1000) == small and take(12 << 20) == larger
    put(small)
    put(larger)
    assert take(admission.MIN_BYTES - 1) != larger  # the small one is freed
    assert take(12 << 20) == larger
