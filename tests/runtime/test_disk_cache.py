"""The disk cache: round trip, damage, other users' directories, eviction, several processes at once."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tfbridge.runtime import disk_cache
from tfbridge.runtime.artifact import Artifact
from tfbridge.runtime.disk_cache import DiskCache


def artifact(fingerprint: str, size: int = 1000) -> Artifact:
    return Artifact(bytes([len(fingerprint) % 251]) * size, "entry", (), (), fingerprint=fingerprint)


def test_round_trip(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "a" / "b")
    assert cache.load("x") is None
    assert cache.store(artifact("x"))
    assert cache.load("x") == artifact("x")
    assert DiskCache(tmp_path / "a" / "b").load("x") == artifact("x")
    assert cache.load("y") is None
    assert stat.S_IMODE(os.stat(cache.directory).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(cache.path("x")).st_mode) == 0o600
    cache.clear()
    assert cache.load("x") is None


def test_odd_fingerprints(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    names = ["../../escape", "", "a/b\0c", "ü" * 500]
    for name in names:
        assert cache.store(artifact(name))
    assert [cache.load(name) for name in names] == [artifact(name) for name in names]
    assert len(os.listdir(tmp_path)) == len(names)


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: b"", lambda d: d[:200] + b"!" + d[201:],
                                    lambda d: artifact("other").to_bytes()])
def test_damaged_file_is_removed(tmp_path: Path, damage) -> None:
    cache = DiskCache(tmp_path)
    cache.store(artifact("x"))
    cache.path("x").write_bytes(damage(cache.path("x").read_bytes()))
    assert cache.load("x") is None
    assert not cache.path("x").exists()
    assert cache.store(artifact("x")) and cache.load("x") == artifact("x")


def test_evicts_what_was_not_used(tmp_path: Path) -> None:
    DiskCache(tmp_path).store(artifact("k0"))
    limit = 10 * DiskCache(tmp_path).path("k0").stat().st_size
    cache = DiskCache(tmp_path, limit_bytes=limit)
    for k in range(8):
        cache.store(artifact(f"k{k}"))
        os.utime(cache.path(f"k{k}"), (1000 + k, 1000 + k))
    assert cache.load("k0") is not None  # used just now
    for k in range(8, 12):
        cache.store(artifact(f"k{k}"))
    cache.evict()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= limit
    assert cache.load("k0") and cache.load("k11")
    assert cache.load("k1") is None
    assert not cache.store(artifact("big", 2 * limit))


def test_abandoned_files_are_removed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    (tmp_path / "old.new").write_bytes(b"half")
    os.utime(tmp_path / "old.new", (1000, 1000))
    (tmp_path / "fresh.new").write_bytes(b"half")
    cache.store(artifact("x"))
    cache.evict()
    assert not (tmp_path / "old.new").exists() and (tmp_path / "fresh.new").exists()


def test_switched_off(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "never", enabled=False)
    assert not cache.store(artifact("x")) and cache.load("x") is None
    assert not cache.directory.exists()


def test_unusable_directory_is_an_empty_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        cache = DiskCache(directory)
        assert not cache.store(artifact("x")) and cache.load("x") is None


def test_directory_that_others_may_use(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    os.chmod(tmp_path / "open", 0o777)
    assert DiskCache(tmp_path / "open").store(artifact("x"))
    assert stat.S_IMODE(os.stat(tmp_path / "open").st_mode) == 0o700
    os.symlink(tmp_path / "open", tmp_path / "link")
    assert not DiskCache(tmp_path / "link").store(artifact("x"))


def test_directory_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    assert not DiskCache(tmp_path).store(artifact("x"))


def test_default_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert disk_cache.default_directory() == tmp_path / "tfbridge"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert disk_cache.default_directory() == tmp_path / ".cache" / "tfbridge"


def test_configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "_process", disk_cache.default())
    assert disk_cache.configure(tmp_path, enabled=False) is disk_cache.default()


def test_several_processes(tmp_path: Path) -> None:
    """Writers of the same names, with eviction under way; a reader sees whole artifacts or none."""
    script = """
import sys
from tfbridge.runtime.artifact import Artifact
from tfbridge.runtime.disk_cache import DiskCache
cache = DiskCache(sys.argv[1], limit_bytes=200_000)
found = 0
for k in range(300):
    name = f"k{k % 20}"
    wanted = Artifact(name.encode() * 5000, "entry", (), (), fingerprint=name)
    seen = cache.load(name)
    assert seen is None or seen == wanted
    found += seen is not None
    assert cache.store(wanted)
print(found)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(found) > 0
    assert not list(tmp_path.glob("*.new"))
    cache = DiskCache(tmp_path, limit_bytes=200_000)
    cache.evict()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 200_000


def test_fingerprint_is_stored(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.store(dataclasses.replace(artifact("x"), temp_bytes=7))
    assert cache.load("x").temp_bytes == 7
