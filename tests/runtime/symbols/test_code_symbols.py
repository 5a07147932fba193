"""Profilers and debuggers find the functions of loaded code by the names of TensorFlow's ops."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine_code import emit
from tfbridge.runtime.code import linker
from tfbridge.runtime.code.artifact import Artifact, KernelRecord
from tfbridge.runtime.code.executable import Executable
from tfbridge.runtime.process_defaults import process
from tfbridge.runtime.symbols import registry
from tfbridge.runtime.symbols.elf import Placed, machine_number, symbol_file, symbols_of

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="objects are ELF files on Linux")

CODE = """
define internal i32 @kernel.1(ptr %result) noinline {
  store i32 7, ptr %result
  ret i32 0
}
define i32 @entry(ptr %context, ptr %args, ptr %results, ptr %temp) {
  %status = call i32 @kernel.1(ptr %temp)
  ret i32 %status
}
"""
KERNELS = (KernelRecord("kernel.1", 1, 4, 1, ("model/layer_3/MatMul", "model/layer_3/Relu")),)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The map of this process, with all who can be told of code."""
    monkeypatch.setattr(process, "symbols", frozenset({"perf", "jitdump", "gdb", "vtune"}))
    monkeypatch.setattr(registry, "_consumers", {})
    monkeypatch.setattr(registry, "_loaded", {})
    monkeypatch.setenv("JITDUMPDIR", str(tmp_path))
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    yield path
    path.unlink(missing_ok=True)


def executable() -> Executable:
    return Executable(Artifact(emit(CODE), "entry", (), (), temp_bytes=64, kernels=KERNELS))


def listed(path: Path) -> dict[str, tuple[int, int]]:
    rows = (line.split(" ", 2) for line in path.read_text().splitlines())
    return {name: (int(address, 16), int(size, 16)) for address, size, name in rows}


def test_perf_map(told: Path) -> None:
    run = executable()
    functions = listed(told)
    address, size = functions["model/layer_3/MatMul [kernel.1]"]
    assert functions["entry"][0] == run.entry_address
    assert size > 4 and told.stat().st_mode & 0o777 == 0o600
    distance = {s.name: s.value for s in symbols_of(run.artifact.object)}
    assert address - run.entry_address == distance["kernel.1"] - distance["entry"]


def test_a_map_of_another_kind_is_left_alone(
    told: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "victim").write_text("as it was")
    told.symlink_to(tmp_path / "victim")
    executable().execute([])
    executable().execute([])
    assert (tmp_path / "victim").read_text() == "as it was"
    assert [m for m in caplog.messages if m.startswith("perf ")] == [caplog.messages[0]]


def test_jitdump(told: Path, tmp_path: Path) -> None:
    executable()
    dump = (tmp_path / f"jit-{os.getpid()}.dump").read_bytes()
    magic, version, at = struct.unpack_from("<III", dump)
    assert (magic, version) == (0x4A695444, 1)
    found = {}
    while at < len(dump):
        kind, size, _, pid, _, _, address, code_bytes, _ = struct.unpack_from("<IIQIIQQQQ", dump, at)
        name, _, code = dump[at + 56 : at + size].partition(b"\0")
        assert kind == 0 and pid == os.getpid() and len(code) == code_bytes
        found[name.decode()] = address, code_bytes
        at += size
    assert found == listed(told)


COLLECTOR = """
#include <stdio.h>
#include <stdlib.h>
struct method { unsigned number; char *name; void *address; unsigned bytes, lines; void *table;
                unsigned class_number; char *class_file, *source_file; };
unsigned Initialize(void) { return SAMPLING; }
unsigned NotifyEvent(unsigned event, void *data) {
  struct method *m = data;
  FILE *file = fopen(getenv("COLLECTED"), "a");
  fprintf(file, "%u %u %p %u %u %s\\n", event, m->number, m->address, m->bytes, m->lines, m->name);
  return fclose(file) == 0 && !m->class_file && !m->source_file;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="the collector is compiled in C")
@pytest.mark.parametrize("sampling", [0, 1])
def test_vtune(sampling: int, told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "collector.c").write_text(COLLECTOR)
    library, collected = tmp_path / "collector.so", tmp_path / "collected"
    options = [f"-DSAMPLING={sampling}", "-shared", "-fPIC", "-o", library]
    subprocess.run(["cc", tmp_path / "collector.c", *options], check=True)
    monkeypatch.setenv("INTEL_JIT_PROFILER64", str(library))
    monkeypatch.setenv("COLLECTED", str(collected))
    collected.touch()
    executable()
    found, numbers = {}, set()
    for line in collected.read_text().splitlines():
        event, number, address, size, lines, name = line.split(" ", 5)
        assert (event, lines) == ("13", "0") and int(number) >= 1000
        numbers.add(number)
        found[name] = int(address, 16), int(size)
    assert found == (listed(told) if sampling else {}) and len(numbers) == len(found)


@pytest.mark.parametrize(("path", "message"), [("", "is not set"), ("/nowhere/collector.so", "nowhere")])
def test_vtune_without_its_collector(
    path: str, message: str, told: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("INTEL_JIT_PROFILER64", path)
    executable().execute([])
    executable().execute([])
    (said,) = [m for m in caplog.messages if m.startswith("vtune ")]
    assert message in said


def test_a_child_has_a_map_of_its_own(told: Path) -> None:
    run = executable()
    child = os.fork()
    if not child:
        path = Path(f"/tmp/perf-{os.getpid()}.map")
        names = listed(path)
        path.unlink()
        os._exit(names["entry"][0] != run.entry_address)
    assert os.waitpid(child, 0)[1] == 0


def test_nobody_is_told_by_default() -> None:
    executable().execute([])
    assert not Path(f"/tmp/perf-{os.getpid()}.map").exists()
    assert registry.anchors([emit(CODE)]) == []


def test_machine_where_a_script_starts_the_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
    monkeypatch.setattr(sys, "executable", str(script))
    object_header = emit(CODE)[:20]
    assert machine_number() == int.from_bytes(object_header[18:20], "little")


def test_symbol_file() -> None:
    functions = [Placed("model/MatMul [dot.1]", 0x7F0000001000, 64), Placed("Grüße", 0x7F0000001040, 8)]
    symbols = symbols_of(symbol_file(functions))
    assert [(s.name, s.value, s.bytes, s.is_function) for s in symbols] == [(*f, True) for f in functions]
    assert symbols_of(b"") == symbols_of(b"not an object" * 9) == []


PROGRAM = """
import os, signal, sys
sys.path[:0] = {path!r}
from test_code_symbols import executable
from tfbridge.runtime.process_defaults import process
process.symbols = frozenset({{"gdb"}})
keep = executable()
gone = executable()
del gone
os.kill(os.getpid(), signal.SIGTRAP)
"""


@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs GDB")
def test_gdb(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(path=[str(Path(__file__).parent), str(Path(__file__).parents[1])]))
    commands = ["set debuginfod enabled off", "run", "info functions layer_3", "kill"]
    text = subprocess.run(
        [
            "gdb",
            "-q",
            "-batch",
            *(w for c in commands for w in ("-ex", c)),
            "--args",
            sys.executable,
            program,
        ],
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
    assert text.count("model/layer_3/MatMul [kernel.1]") == 1, text


def test_parts_are_placed_too(told: Path) -> None:
    entry = CODE.replace(
        "define internal i32 @kernel.1(ptr %result) noinline {", "declare i32 @kernel.1(ptr)\n;"
    )
    entry = "\n".join(line for line in entry.splitlines() if "store" not in line)
    entry = entry.replace("  ret i32 0\n}\n", "", 1)
    part = CODE.partition("define i32 @entry")[0].replace("internal ", "")
    loaded = linker.load(emit(entry), ("entry",), parts=(emit(part),), labels={"kernel.1": "op [kernel.1]"})
    assert {"entry", "op [kernel.1]"} <= listed(told).keys()
    assert listed(told)["entry"][0] == loaded.addresses["entry"]
