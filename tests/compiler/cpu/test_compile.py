"""Compiling a module: kernels in parts made by threads, library functions one by one, the disk cache in front."""

from __future__ import annotations

import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest
from tfbridge.compiler import ComputationBuilder
from tfbridge.compiler.cpu import artifact_cache
from tfbridge.compiler.cpu import compile as compiling
from tfbridge.compiler.cpu.objects import kernel_libraries
from tfbridge.compiler.cpu.objects.library_functions import (
    LIBRARIES,
    common_functions,
    emit_function,
    emit_library,
    library_of,
)
from tfbridge.compiler.cpu.objects.object_emitter import emit_assembly, emit_object
from tfbridge.compiler.cpu.objects.parallel_codegen import ParallelCodegen
from tfbridge.compiler.cpu.objects.split_module import references, split_module
from tfbridge.compiler.cpu.targets.named_target import target_for
from tfbridge.compiler.dump import Dump
from tfbridge.compiler.errors import InternalError
from tfbridge.compiler.ir.code_version import CodeVersion
from tfbridge.compiler.ir.module import Module
from tfbridge.compiler.ir.shape import array
from tfbridge.compiler.options import Options
from tfbridge.runtime import process_defaults
from tfbridge.runtime.code import disk_cache, worker_pool
from tfbridge.runtime.code.executable import Executable
from tfbridge.runtime.errors import CompileCrash
from tfbridge.runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, ModuleText
from tfbridge.runtime.llvm.target import Target, host
from tfbridge.runtime.threads import compile_threads, processors

X = np.linspace(-2, 2, 24 * 24, dtype=np.float32).reshape(24, 24)


def layers(count: int, name: str = "layers") -> Module:
    """x := tanh(x @ x + k) for every k below `count`; the products are library calls, each sum is a kernel."""
    builder = ComputationBuilder(name)
    x = builder.parameter(0, array("f32", 24, 24), "x")
    for k in range(count):
        x = builder.tanh(builder.add(builder.dot(x, x), builder.constant(np.float32(k) / 8)))
    return Module(name, builder.build(builder.tuple([x])))


def expected(count: int) -> np.ndarray:
    x = X.astype(np.float64)
    for k in range(count):
        x = np.tanh(x @ x + k / 8)
    return x


@pytest.mark.parametrize("split_bytes", [1, 20_000])
def test_split_modules(monkeypatch: pytest.MonkeyPatch, split_bytes: int) -> None:
    monkeypatch.setattr(
        compiling, "ParallelCodegen", functools.partial(ParallelCodegen, split_bytes=split_bytes)
    )
    apart = Options(disabled_passes=frozenset({"share_kernels"}))
    artifact = compiling.compile_module(layers(5), apart)
    assert len(artifact.split_objects) >= (5 if split_bytes == 1 else 1)
    (result,) = Executable(artifact).execute([X])
    np.testing.assert_allclose(result, expected(5), rtol=1e-4, atol=1e-5)
    assert compiling.compile_module(layers(5), apart) == artifact


def test_workers_make_the_same_objects_and_their_death_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = compiling.compile_module(layers(3))
    monkeypatch.setattr(process_defaults.process, "compile_workers", True)
    assert compiling.compile_module(layers(3)) == artifact
    workers = worker_pool.CompileWorkers(1)
    monkeypatch.setattr(worker_pool, "submit", lambda *job, seconds: workers.submit("os", "_exit", 7))
    with pytest.raises(CompileCrash, match="status 7"):
        compiling.compile_module(layers(3))
    workers.close()


def test_self_contained_is_one_object() -> None:
    code = compiling.compile_self_contained([CodeVersion({"m": layers(2)}, host())], Options(), False)
    assert not code.artifacts[0].split_objects and code.stack_bytes["m"] > 0


def test_references_and_split_module() -> None:
    text = ModuleText(host())
    text.add_global("table", "internal constant [1 x i64] [i64 7]")
    text.add_global("unused", "internal constant [1 x i64] [i64 8]")
    text.declare("erf", "double", ["double"])
    text.add("shared", "define internal i64 @shared() {\n %v = load i64, ptr @table\n ret i64 %v\n}")
    for name in "ab":
        text.add(name, f"define internal i64 @{name}() {{\n %v = call i64 @shared()\n ret i64 %v\n}}")
    assert references(text, ["a"]) == ["a", "shared", "table"]
    assert references(text, ["a"], ["shared"]) == ["a", "shared"]
    made = split_module(text, ["a"])
    assert "define i64 @a()" in made and "define internal i64 @shared()" in made
    assert "@b" not in made and "@unused" not in made and "@erf" not in made
    assert emit_object(made, host())
    assert "declare i64 @shared(" in split_module(text, ["a"], ["shared"])


def test_refused_text_in_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ModuleText(host())
    text.add("broken", "define internal void @broken() { nonsense }")
    text.add("entry", "define void @entry() {\n ret void\n}")
    codegen = ParallelCodegen(text, host(), split_bytes=1)
    codegen.kernel_written("broken")
    with pytest.raises(InternalError, match="LLVM refuses"):
        [job.result() for job in codegen.jobs("entry")]


def test_objects_from_many_threads() -> None:
    texts = [emit_function(host(1), f"tfb_rows_{e}_f32")[0] for e in ("f32", "bf16", "f16")]
    wanted = [emit_object(text, host(1)) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda k: emit_object(texts[k % 3], host(1)), range(12))) == wanted * 4
    assert "tfb_rows_f32_f32:" in emit_assembly(texts[0], host(1))
    with pytest.raises(InternalError, match="expected"):
        emit_object("define void @f() { ret", host())


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_library_function_by_itself(name: str) -> None:
    for function, text in emit_library(host(1), name).functions.items():
        if not text.startswith("define internal"):
            assert library_of(function) == name
            assert f"define void @{function}(" in emit_function(host(1), function)[0]


@pytest.mark.parametrize(
    "target",
    [
        host(1),
        target_for("x86_64-linux-gnu", "haswell"),
        target_for("aarch64-linux-gnu"),
        target_for("armv7-linux-gnueabihf"),
    ],
)
def test_common_functions_are_in_the_libraries(target: Target) -> None:
    for function in common_functions(target):
        assert f"define void @{function}(" in emit_function(target, function)[0]


def test_common_functions_are_compiled_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_libraries, "_jobs", {})
    monkeypatch.setattr(processors, "usable_cpus", lambda: 2)
    monkeypatch.setattr(compile_threads, "_executor", ThreadPoolExecutor(1))
    cache = disk_cache.DiskCache(tmp_path)
    monkeypatch.setattr(disk_cache, "_process", cache)
    names = ["tfb_copy_f64", "tfb_gemm_f64_1"]
    monkeypatch.setattr(kernel_libraries, "common_functions", lambda target: iter(names))
    kernel_libraries.prepare()
    for name in names:
        assert kernel_libraries.library_object(name)[0]
    files = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(files) == 2
    monkeypatch.setattr(kernel_libraries, "_jobs", {})
    kernel_libraries.prepare()  # the cache has them
    wait([compile_threads.submit(int)])
    assert not kernel_libraries.jobs()
    cache.enabled = False
    names.append("tfb_copy_i32")
    kernel_libraries.prepare()
    wait([compile_threads.submit(int)])
    assert not kernel_libraries.jobs()


@pytest.mark.parametrize(
    "name", ["tfb_gemm_f32_9", "tfb_rows_c64_f32", "gemm_f32", "tfb_entry", "tfb_gemv_u64_f32_n"]
)
def test_no_such_library_function(name: str) -> None:
    with pytest.raises(KeyError):
        kernel_libraries.library_object(name)


def test_cache_is_asked_before_the_module_is_made(tmp_path: Path) -> None:
    made = []

    def make() -> Module:
        made.append(threading.get_ident())
        return layers(1)

    options = Options(cache_dir=str(tmp_path))
    first = artifact_cache.load_artifact("one layer", make, options)
    second = artifact_cache.load_artifact("one layer", make, options)
    assert first == second and len(made) == 1
    assert (
        artifact_cache.load_artifact("another", make, options).fingerprint != first.fingerprint
        and len(made) == 2
    )


def test_many_threads_compile_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "ParallelCodegen", functools.partial(ParallelCodegen, split_bytes=1))

    def run(count: int) -> np.ndarray:
        return Executable(compiling.compile_module(layers(count))).execute([X])[0]

    with ThreadPoolExecutor(4) as threads:
        for count, result in zip((1, 2, 3, 4), threads.map(run, (1, 2, 3, 4)), strict=True):
            np.testing.assert_allclose(result, expected(count), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("cpus", "pieces"), [(1, 1), (2, 2), (5, 3)])
def test_what_is_left_is_divided_among_cpus(monkeypatch: pytest.MonkeyPatch, cpus: int, pieces: int) -> None:
    monkeypatch.setattr(processors, "usable_cpus", lambda: cpus)
    text = ModuleText(host())
    codegen = ParallelCodegen(text, host())
    for name in "abc":
        body = (
            f"define internal i64 @{name}(i64 %x) {{\n"
            + "".join(f" %v{k + 1} = mul i64 %{f'v{k}' if k else 'x'}, {k}\n" for k in range(200))
            + " ret i64 %v200\n}"
        )
        text.add(name, body)
        codegen.kernel_written(name)
    text.add(
        "entry", f"define i64 @entry() {DRIVER_ATTRIBUTES} {{\n %v = call i64 @a(i64 1)\n ret i64 %v\n}}"
    )
    jobs = codegen.jobs("entry")
    assert len(jobs) == 1 + pieces
    assert all(job.result() for job in jobs)


def test_dump_of_an_object_with_constants(tmp_path: Path) -> None:
    """The constants are placed last; the stages before are complete texts."""
    builder = ComputationBuilder("sum")
    root = builder.add(builder.parameter(0, array("f32", 24, 24), "x"), builder.constant(X))
    version = CodeVersion({"m": Module("sum", builder.build(root))}, host())
    compiling.compile_self_contained([version], Options(dump_dir=str(tmp_path)), True)
    (assembly,) = tmp_path.rglob("*module.s")
    assert "tfb.constants" in assembly.read_text()


def test_dump_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The compilation goes on; a dump that can be is for this user alone, and follows no link."""
    (tmp_path / "file").write_text("")
    Dump(str(tmp_path / "file" / "below"), "m").write("a.txt", "text")
    assert "no dump of m" in caplog.text
    dump = Dump(str(tmp_path / "dumps"), "m\ud800")
    assert os.stat(dump.folder).st_mode & 0o777 == 0o700
    os.symlink(tmp_path / "victim", os.path.join(dump.folder, "00-a.txt"))
    dump.write("a.txt", "text")
    dump.write("b.txt", "text\ud800")
    assert not (tmp_path / "victim").exists() and "is incomplete" in caplog.text
    assert sorted(os.listdir(dump.folder)) == ["00-a.txt", "01-b.txt"]
