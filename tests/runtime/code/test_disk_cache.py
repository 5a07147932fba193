"""The disk cache: round trip, damage, other users' directories, eviction, several processes at once."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tfbridge.runtime.code import cache_key, disk_cache, private_files, private_folder
from tfbridge.runtime.code.artifact import Artifact
from tfbridge.runtime.code.disk_cache import DiskCache


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache directory, where the key is."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "tfbridge"


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


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d[:-1],
        lambda d: b"",
        lambda d: d[:200] + b"!" + d[201:],
        lambda d: artifact("other").to_bytes(),
    ],
)
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


def test_abandoned_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of writers that are no more; where the file system has no locks, those that are old. Others stay."""
    cache = DiskCache(tmp_path)
    cache.store(artifact("x"))
    half, written, other = tmp_path / f"{1:016x}.new", tmp_path / f"{2:016x}.new", tmp_path / "mine.new"
    for file in (half, written, other):
        file.write_bytes(b"half")
        os.utime(file, (1000, 1000))
    with open(written) as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert DiskCache(tmp_path).load("x") is not None
        assert not half.exists() and written.exists() and other.exists()
    half.write_bytes(b"half")
    monkeypatch.setattr(fcntl, "flock", lambda *_: exec("raise OSError"))
    DiskCache(tmp_path).load("x")
    assert half.exists() and not written.exists() and other.exists()


def test_switched_off(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "never", enabled=False)
    assert not cache.store(artifact("x")) and cache.load("x") is None
    assert not cache.directory.exists()


def test_unusable_directory_is_an_empty_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        cache = DiskCache(directory)
        assert not cache.store(artifact("x")) and cache.load("x") is None


def mode(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o722])
def test_directory_that_others_can_write_to(
    bits: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not used, nor is one below it, and keeps its mode; the log says so once."""
    monkeypatch.setattr(private_folder, "_is_own_group", lambda group: False)
    (tmp_path / "open").mkdir()
    os.chmod(tmp_path / "open", bits)
    for directory in (tmp_path / "open", tmp_path / "open" / "below"):
        caplog.clear()
        cache = DiskCache(directory)
        assert not cache.store(artifact("x")) and cache.load("x") is None and not cache.has("x")
        assert len(caplog.messages) == 1 and f"open has mode 0{bits:o}" in caplog.text
    assert mode(tmp_path / "open") == bits and not os.listdir(tmp_path / "open")


def test_shared_directory_has_a_folder_for_each_user(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    os.chmod(tmp_path / "shared", 0o1777)
    cache = DiskCache(tmp_path / "shared")
    assert cache.store(artifact("x")) and cache.load("x") == artifact("x")
    assert cache.directory == tmp_path / "shared" / f"tfbridge-{os.geteuid()}"
    assert mode(tmp_path / "shared") == 0o1777 and mode(cache.directory) == 0o700
    assert DiskCache(tmp_path / "shared").load("x") == artifact("x")
    os.chmod(cache.directory, 0o777)
    assert cache.load("x") is None and DiskCache(tmp_path / "shared").load("x") is None


def test_directory_that_others_can_read_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o755)
    os.chmod(tmp_path / "mine", 0o755)
    cache = DiskCache(tmp_path / "mine")
    assert cache.store(artifact("x")) and cache.directory == tmp_path / "mine"
    assert mode(tmp_path / "mine") == 0o755 and mode(cache.path("x")) == 0o600


def test_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link in place of the folder is refused; one above it is followed when this user or root made it."""
    (tmp_path / "real").mkdir(mode=0o700)
    os.symlink(tmp_path / "real", tmp_path / "link")
    assert not DiskCache(tmp_path / "link").store(artifact("x"))
    os.symlink("real", tmp_path / "relative")
    for link in ("link", "relative"):
        assert DiskCache(tmp_path / link / "below").store(artifact("x"))
    assert os.listdir(tmp_path / "real") == ["below"]
    os.symlink("loop", tmp_path / "loop")
    assert not DiskCache(tmp_path / "loop" / "below").store(artifact("x"))
    monkeypatch.setattr(private_folder, "_link", lambda *_: "")
    assert not DiskCache(tmp_path / "link" / "below").store(artifact("x"))


def test_directory_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DiskCache(tmp_path).store(artifact("x"))
    user = os.stat(tmp_path).st_uid + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)
    cache = DiskCache(tmp_path)
    assert not cache.store(artifact("x")) and cache.load("x") is None
    assert {cache_file("x")} <= set(os.listdir(tmp_path)) <= {cache_file("x"), f"tfbridge-{user}"}


def test_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A user without a home has a cache where it is told to be, with the key in it, and else none."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: exec("raise RuntimeError"))
    assert disk_cache.default_directory() is None
    cache = DiskCache()
    assert not cache.store(artifact("x")) and cache.load("x") is None and cache.directory is None
    assert caplog.text.count("no home") == 1
    assert DiskCache(tmp_path).store(artifact("x")) and DiskCache(tmp_path).load("x") == artifact("x")
    assert mode(tmp_path / cache_key.NAME) == 0o600


def test_odd_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for directory in ("a\0b", "/\ud800", str(tmp_path / ("x" * 300)), "/proc/self/nowhere"):
        cache = DiskCache(directory)
        assert (
            not cache.store(artifact("x"))
            and cache.load("x") is None
            and not cache.has("x")
            and not cache.evict()
        )
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert not DiskCache("relative").store(artifact("x"))
    assert len(caplog.messages) == 5 and caplog.text.encode("utf-8")


def test_directory_that_is_removed_meanwhile(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "a")
    assert cache.store(artifact("x"))
    shutil.rmtree(tmp_path / "a")
    assert cache.load("x") is None and cache.store(artifact("x")) and cache.load("x") == artifact("x")
    os.rename(tmp_path / "a", tmp_path / "b")
    os.symlink("b", tmp_path / "a")
    assert cache.load("x") is None and not cache.store(artifact("y")) and len(os.listdir(tmp_path / "b")) == 1


# -- files that this user's processes did not write


def cache_file(fingerprint: str) -> str:
    return DiskCache("/").path(fingerprint).name


def place_link(path: Path) -> None:
    os.rename(path, path.parent / "elsewhere")
    os.symlink("elsewhere", path)


def place_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def place_socket(path: Path) -> None:
    path.unlink()
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as end:
        end.bind(path.name)


def place_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def without_mark(path: Path) -> None:
    path.write_bytes(artifact("x").to_bytes())


def with_other_mark(path: Path) -> None:
    """Only the code differs, and its checksum fits."""
    changed = dataclasses.replace(artifact("x"), object=b"other" * 200)
    path.write_bytes(changed.to_bytes() + path.read_bytes()[-32:])


@pytest.mark.parametrize(
    "plant",
    [
        place_link,
        place_fifo,
        place_socket,
        place_folder,
        without_mark,
        with_other_mark,
        lambda path: os.chmod(path, 0o666),
        lambda path: os.chmod(path, 0o620),
    ],
)
def test_planted_file_is_a_miss(plant: Callable[[Path], None], tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.store(artifact("x"))
    plant(cache.path("x"))
    assert cache.load("x") is None and not os.path.lexists(cache.path("x"))
    assert cache.store(artifact("x")) and cache.load("x") == artifact("x")


def test_file_of_another_user_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path)
    cache.store(artifact("x"))
    known = os.fstat

    def planted(file: int) -> os.stat_result:
        info = known(file)
        return info if stat.S_ISDIR(info.st_mode) else os.stat_result((*info[:4], info.st_uid + 1, *info[5:]))

    monkeypatch.setattr(os, "fstat", planted)
    assert cache.load("x") is None


def test_file_under_another_name_is_a_miss(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.store(artifact("x"))
    os.rename(cache.path("x"), cache.path("y"))
    assert cache.load("y") is None


def test_artifacts_of_another_key_are_a_miss(tmp_path: Path, home: Path) -> None:
    DiskCache(tmp_path).store(artifact("x"))
    (home / cache_key.NAME).unlink()
    assert DiskCache(tmp_path).load("x") is None and not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key: os.chmod(key, 0o644),
        lambda key: key.write_bytes(b"short"),
        lambda key: key.write_bytes(b"long" * 10),
        place_fifo,
        place_link,
    ],
)
def test_bad_key_is_replaced(spoil: Callable[[Path], None], tmp_path: Path, home: Path) -> None:
    DiskCache(tmp_path).store(artifact("x"))
    key = home / cache_key.NAME
    before = key.read_bytes()
    spoil(key)
    cache = DiskCache(tmp_path)
    assert cache.load("x") is None and cache.store(artifact("x")) and cache.load("x") == artifact("x")
    assert mode(key) == 0o600 and len(key.read_bytes()) == 32 and key.read_bytes() != before


def test_processes_make_one_key(home: Path) -> None:
    script = (
        "import sys; from tfbridge.runtime.code import cache_key as c, private_folder as f\n"
        "print(c.key_of(f.PrivateFolder(sys.argv[1])).hex())"
    )
    command = [sys.executable, "-c", script, str(home)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({process.communicate(timeout=60)[0] for process in processes}) == 1
    assert os.listdir(home) == [cache_key.NAME]


def test_folders_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of one may write above; in a container without a root, its files are nobody's."""
    above = tmp_path / "above"
    above.mkdir()
    os.chmod(above, 0o775)
    monkeypatch.setattr(private_folder, "_is_own_group", lambda group: group == os.stat(above).st_gid)
    assert DiskCache(above / "a").store(artifact("x"))
    monkeypatch.setattr(private_folder, "_is_own_group", lambda group: False)
    assert not DiskCache(above / "b").store(artifact("x"))
    os.chmod(above, 0o755)
    monkeypatch.setattr(private_folder, "_trusted_owners", lambda: (1, 2))
    assert not DiskCache(above / "c").store(artifact("x"))
    monkeypatch.setattr(private_folder, "_trusted_owners", lambda: (0, os.geteuid()))
    assert DiskCache(above / "c").store(artifact("x"))


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
    """Writers of the same names, with eviction under way; a reader sees whole artifacts or none, and at no time are
    there more bytes than the limit."""
    script = """
import os, sys
from tfbridge.runtime.code.artifact import Artifact
from tfbridge.runtime.code.disk_cache import DiskCache
cache = DiskCache(sys.argv[1], limit_bytes=200_000)
def size(entry):
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0
found = most = 0
for k in range(300):
    name = f"k{k % 20}"
    wanted = Artifact(name.encode() * 5000, "entry", (), (), fingerprint=name)
    seen = cache.load(name)
    assert seen is None or seen == wanted
    found += seen is not None
    assert cache.store(wanted)
    most = max(most, sum(map(size, os.scandir(sys.argv[1]))))
print(found, most)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found, most = zip(*(map(int, process.communicate(timeout=60)[0].split()) for process in processes))
    assert sum(found) > 0 and max(most) <= 200_000
    assert not list(tmp_path.glob("*.new"))


def test_fingerprint_is_stored(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.store(dataclasses.replace(artifact("x"), temp_bytes=7))
    assert cache.load("x").temp_bytes == 7


def test_file_that_is_taken_for_garbage_before_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process collects what is unlocked, at any moment: the writer begins anew."""
    lock, collected = private_files._lock, []

    def collect(file: int, unknown: bool = False) -> bool:
        names = list(tmp_path.glob("*.new"))
        if names and len(collected) < 3:
            collected.append(names[0].unlink())
        return lock(file, unknown)

    monkeypatch.setattr(private_files, "_lock", collect)
    cache = DiskCache(tmp_path)
    assert cache.store(artifact("x")) and cache.load("x") == artifact("x") and len(collected) == 3
    assert len(os.listdir(tmp_path)) == 1
