"""What other languages run exported models with, built and run by their tools; Swift and Gradle by their form."""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from test_targets import OPTIONS, PROGRAMS
from tfbridge.bridge.aot.writers.bindings.wasm_templates import FUNCTIONS
from tfbridge.compiler.errors import UnsupportedError

RNG = np.random.default_rng(6)
WEIGHTS = tf.constant(RNG.normal(size=(5, 3)).astype(np.float32))
OPEN = {"feeds": {"arg0": "?x8x8x2", "arg1": "?n"}}
# name: (program, options). A state and several functions; elements of all kinds; integers; sizes with and without
# bounds.
EXPORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "streaming": ("streaming", {"large_constants": "file"}),
    "elements": ("elements", {}),
    "classifier": ("classifier", {}),
    "varying": ("varying", {}),
    "open": ("varying", {**OPEN, "large_constants": "file"}),
}


def needs(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def run_tool(command: Sequence[str | Path], folder: Path, **variables: str) -> str:
    """What a command prints in a folder, which it ends without an error."""
    process = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    return process.stdout + process.stderr


def export(name: str, folder: Path, extra: str, **options: Any) -> Path:
    """The folder of the files that a binding has."""
    program, own = EXPORTS[name]
    function, specs = PROGRAMS[program]
    all_options = OPTIONS.get(program, {}) | own | options
    files = tfbridge.aot.compile(function, *specs, name=name, out_dir=folder, extras=[extra], **all_options)
    assert files.extra_files and all(file.is_file() for file in files.extra_files)
    return folder / f"{name}_{extra}"


# -- Rust


@pytest.mark.parametrize("name", EXPORTS)
def test_rust_crate(name: str, tmp_path: Path) -> None:
    needs("cargo")
    crate = export(name, tmp_path, "rust")
    command = ["cargo", "test", "--offline", "--quiet", "--all-features"]
    output = run_tool(command, crate, CARGO_TARGET_DIR=str(tmp_path / "target"))
    assert "test result: ok" in output and "warning" not in output, output


RUST_PROGRAM = """
use words::{Model, MEMORY_BYTES};

fn main() {
    let mut memory = vec![0u8; MEMORY_BYTES + 3];
    assert!(Model::new(&mut memory[..MEMORY_BYTES - 1]).is_err());
    let mut model = Model::new(&mut memory[3..]).unwrap();
    model.arg_x_mut().copy_from_slice(&[1.0, 2.0, 3.0]);
    model.run().unwrap();
    let state = *model.state().unwrap();
    model.run().unwrap();
    let twice = model.result0()[0];
    model.set_state(&state);
    model.run().unwrap();
    assert_eq!(model.result0()[0], twice);
    model.reset().unwrap();
    model.run().unwrap();
    println!("{} {} {}", twice, model.result0()[2], model.state_sum()[0]);
}
"""


class Sum(tf.Module):
    def __init__(self) -> None:
        self.sum = tf.Variable(tf.zeros(3), name="sum")

    def add(self, x: tf.Tensor) -> tf.Tensor:
        return self.sum.assign_add(x) * 2.0


def test_a_program_in_rust(tmp_path: Path) -> None:
    needs("cargo")
    tfbridge.aot.compile(
        Sum().add, tf.TensorSpec((3,), name="x"), name="words", out_dir=tmp_path, extras=["rust"]
    )
    (tmp_path / "app" / "src").mkdir(parents=True)
    (tmp_path / "app" / "src" / "main.rs").write_text(RUST_PROGRAM)
    (tmp_path / "app" / "Cargo.toml").write_text(
        '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n'
        '[dependencies]\nwords = { path = "../words_rust" }\n'
    )
    command = ["cargo", "run", "--offline", "--quiet"]
    assert run_tool(command, tmp_path / "app", CARGO_TARGET_DIR=str(tmp_path / "target")) == "4 6 1\n"


def test_crates_of_other_targets(tmp_path: Path) -> None:
    """A crate says what it was compiled for; names that cargo refuses are changed."""
    files = tfbridge.aot.compile(
        lambda x: x + 1.0,
        tf.TensorSpec((3,)),
        name="core",
        out_dir=tmp_path,
        extras=["rust"],
        target_triple="thumbv7em-none-eabihf",
    )
    manifest = (tmp_path / "core_rust" / "Cargo.toml").read_text()
    assert 'name = "core_model"' in manifest and files.extra_files
    needs("cargo")
    process = subprocess.run(
        ["cargo", "build", "--offline"],
        cwd=tmp_path / "core_rust",
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode and "core was compiled for thumbv7em-" in process.stderr


# -- WebAssembly


@pytest.mark.parametrize("name, features", [*((name, "+simd128") for name in EXPORTS), ("varying", "")])
def test_wasm_package(name: str, features: str, tmp_path: Path) -> None:
    """Node runs it; no linker has been at work."""
    needs("node")
    options = {"target_triple": "wasm32-unknown-unknown", "target_features": features}
    package = export(name, tmp_path, "wasm", **options)
    output = run_tool(["node", "golden.mjs"], package)
    assert output.count(" 0 differ") == len(output.splitlines()) > 0
    manifest = json.loads((package / "package.json").read_text())
    assert all((package / file).is_file() for file in manifest["files"])


def test_types_of_wasm_packages(tmp_path: Path) -> None:
    """TypeScript takes them; it needs seconds for a start, so all packages are in one."""
    needs("tsc")
    for name in EXPORTS:
        export(name, tmp_path, "wasm", target_triple="wasm32-unknown-unknown")
    command = ["tsc", "--noEmit", "--strict", "--target", "es2022", "--module", "node16"]
    types = [f"{name}_wasm/{name}.d.mts" for name in EXPORTS]
    run_tool([*command, "--moduleResolution", "node16", *types], tmp_path)


NODE_PROGRAM = """
import { readFileSync } from "node:fs";
import { Sum } from "./sum_wasm/sum.mjs";
const model = await Sum.create(), other = await Sum.create();
model.arg_x.set([1, 2, 3]);
other.arg_x.set([5, 5, 5]);
model.run();
other.run();
const state = model.getState();
model.run();
const twice = model.result0[0];
model.setState(state);
model.run();
if (model.result0[0] !== twice) throw new Error("the state is another one");
model.reset();
model.run();
let refusal = "";
try { model.setState(state.subarray(1)); } catch (error) { refusal = error.message; }
console.log(twice, model.result0[2], other.state_sum[0], refusal);
"""


def test_a_program_for_node(tmp_path: Path) -> None:
    needs("node")
    options = {"extras": ["wasm"], "target_triple": "wasm32-unknown-unknown"}
    tfbridge.aot.compile(Sum().add, tf.TensorSpec((3,), name="x"), name="sum", out_dir=tmp_path, **options)
    (tmp_path / "program.mjs").write_text(NODE_PROGRAM)
    expected = "4 6 5 a state has 64 bytes, not 63\n"
    assert run_tool(["node", "program.mjs"], tmp_path) == expected


OPEN_NODE_PROGRAM = """
import { Rows } from "./rows_wasm/rows.mjs";
const messages = [];
const attempt = async (run) => { try { await run(); } catch (error) { messages.push(error.message); } };
await attempt(() => Rows.create());
const model = await Rows.create({ most: { n: 4 } });
await attempt(() => model.setSizes({ n: 5 }));
await attempt(() => model.setSizes({ m: 5 }));
model.setSizes({ n: 2 });
model.arg0.fill(1.5);
model.run();
console.log(JSON.stringify([model.sizes, model.arg0_dims, model.arg0.length, [...model.result0], messages]));
"""


def test_sizes_in_node(tmp_path: Path) -> None:
    needs("node")
    options = {"extras": ["wasm"], "target_triple": "wasm32-unknown-unknown", "feeds": {"x": "?nx3"}}
    spec = tf.TensorSpec((None, 3), name="x")
    tfbridge.aot.compile(lambda x: tf.reduce_sum(x, 1), spec, name="rows", out_dir=tmp_path, **options)
    (tmp_path / "program.mjs").write_text(OPEN_NODE_PROGRAM)
    sizes, dims, elements, result, messages = json.loads(run_tool(["node", "program.mjs"], tmp_path))
    assert (sizes, dims, elements, result) == ({"n": 2}, [2, 3], 6, [4.5, 4.5])
    assert messages == [
        "most: tell the largest n",
        "n is 5, and not between 0 and 4",
        "there is no size m, but n",
    ]


def test_functions_that_javascript_lacks(tmp_path: Path) -> None:
    """The error function is written in JavaScript, and near that of C."""
    needs("node")
    x = np.linspace(-6, 6, 301)
    options = {"extras": ["wasm"], "target_triple": "wasm32-unknown-unknown"}
    tfbridge.aot.compile(
        lambda x: (tf.math.erf(x), tf.math.erfc(x)),
        tf.TensorSpec((301,), tf.float64),
        name="errors",
        out_dir=tmp_path,
        **options,
    )
    x.tofile(tmp_path / "x.bin")
    (tmp_path / "program.mjs").write_text("""
import { readFileSync, writeFileSync } from "node:fs";
import { Errors } from "./errors_wasm/errors.mjs";
const model = await Errors.create();
model.arg0.set(new Float64Array(new Uint8Array(readFileSync("x.bin")).buffer));
model.run();
writeFileSync("y.bin", Buffer.concat([model.result0, model.result1].map((a) => Buffer.from(a.slice().buffer))));
""")
    run_tool(["node", "program.mjs"], tmp_path)
    erf, erfc = np.fromfile(tmp_path / "y.bin").reshape(2, -1)
    np.testing.assert_allclose(erf, tf.math.erf(x), rtol=2e-15, atol=1e-15)
    np.testing.assert_allclose(erfc, tf.math.erfc(x), rtol=2e-14)


def test_what_a_wasm_module_cannot_call() -> None:
    from tfbridge.bridge.aot.writers.bindings import wasm_package
    from tfbridge.bridge.aot.writers.bindings.wasm_module import WasmModule

    assert {"memcpy", "sin", "erf", "powf"} <= FUNCTIONS.keys() and "__multi3" not in FUNCTIONS
    module = WasmModule(b"", ("sin", "__multi3"), None, None, True, 0)
    with pytest.raises(UnsupportedError, match="JavaScript has no __multi3"):
        wasm_package.check_functions(module)


# -- Android


def java_home() -> Path:
    needs("javac", "java", "cmake", "cc")
    home = Path(os.path.realpath(shutil.which("javac") or "")).parent.parent
    if not (home / "include" / "jni.h").is_file():
        pytest.skip("the JDK has no jni.h")
    return home


def native_library(module: Path, folder: Path) -> None:
    """Builds the JNI part of a module for this machine, as Gradle does for Android."""
    home = java_home()
    headers = f"-I{home}/include -I{home}/include/linux"
    abi = next(path.name for path in (module / "src/main/cpp").iterdir() if path.is_dir())
    flags = f"{headers} -Wall -Wextra -Werror -Wpedantic -Wconversion"
    run_tool(["cmake", "-S", module / "src/main/cpp", "-B", folder, f"-DANDROID_ABI={abi}", f"-DCMAKE_C_FLAGS={flags}"],
        folder.parent)  # fmt: skip
    run_tool(["cmake", "--build", folder], folder.parent)


def in_java(tmp_path: Path, package: str, name: str, main: str, library: str) -> str:
    """What a class prints that has the methods of JNI which the Kotlin class has."""
    home = java_home()
    source = tmp_path / "java" / package.replace(".", "/") / f"{name}.java"
    source.parent.mkdir(parents=True)
    source.write_text(f"""
package {package};
import java.nio.*;
public class {name} {{
    static {{ System.loadLibrary("{library}"); }}
    static native long create();
    static native long create(long[] most);
    static native void destroy(long model);
    static native ByteBuffer buffer(long model, int array);
    static native void compute(long model, int function);
    static native void size(long model, int place, long value);
    static native void reset(long model);
    static native byte[] getState(long model);
    static native void setState(long model, byte[] state);
    static native void setConstants(long model, ByteBuffer constants);
    static native long address(ByteBuffer buffer);
    static FloatBuffer floats(long model, int array) {{
        return buffer(model, array).order(ByteOrder.nativeOrder()).asFloatBuffer();
    }}
    public static void main(String[] arguments) throws Exception {{
{main}
    }}
}}
""".replace("    static native long create();\n", "" if "create(new" in main else "    static native long create();\n")
    .replace("    static native long create(long[] most);\n",
             "    static native long create(long[] most);\n" if "create(new" in main else ""))  # fmt: skip
    run_tool([home / "bin/javac", "-d", tmp_path / "classes", source], tmp_path)
    command = [
        home / "bin/java",
        "-Xcheck:jni",
        f"-Djava.library.path={tmp_path / 'native'}",
        "-cp",
        "classes",
    ]
    return run_tool([*command, f"{package}.{name}"], tmp_path)


def test_android_module_under_a_jvm(tmp_path: Path) -> None:
    total = Sum()
    functions = {
        "add": (total.add, tf.TensorSpec((3,), name="x")),
        "layer": (lambda x: tf.tanh(x @ WEIGHTS), tf.TensorSpec((2, 5))),
    }
    options = {"cpp_class": "my_nets::Total_Sum", "large_constants": "file", "extras": ["android"]}
    files = tfbridge.aot.compile(functions, name="total", out_dir=tmp_path, **options)
    module = tmp_path / "total_android"
    native_library(module, tmp_path / "native")
    x = RNG.normal(size=(2, 5)).astype(np.float32)
    numbers = ", ".join(f"{v}f" for v in x.ravel())
    output = in_java(
        tmp_path,
        "my_nets",
        "Total_Sum",
        f"""
        long model = create();
        try {{ compute(model, 0); }} catch (IllegalStateException e) {{ System.out.println(e.getMessage()); }}
        byte[] file = java.nio.file.Files.readAllBytes(java.nio.file.Path.of("{files.constants_file}"));
        ByteBuffer room = ByteBuffer.allocateDirect(file.length + 64);
        room.position((int) ((64 - address(room) % 64) % 64));
        setConstants(model, room.slice().put(file).rewind());
        floats(model, 0).put(new float[] {{1, 2, 3}});
        compute(model, 0);
        byte[] state = getState(model);
        compute(model, 0);
        float twice = floats(model, 1).get(0);
        setState(model, state);
        compute(model, 0);
        if (floats(model, 1).get(0) != twice) System.exit(3);
        try {{ setState(model, new byte[3]); }}
        catch (IllegalArgumentException e) {{ System.out.println(e.getMessage()); }}
        reset(model);
        floats(model, 2).put(new float[] {{{numbers}}});
        compute(model, 1);
        FloatBuffer result = floats(model, 3);
        System.out.println(twice + " " + buffer(model, 0).capacity() + " " + floats(model, 4).get(0));
        while (result.hasRemaining()) System.out.print(result.get() + " ");
        destroy(model);""",
        "total_jni",
    )
    message, refusal, numbers, values = output.splitlines()
    assert "total.bin, are not set" in message and "no state of the model" in refusal
    assert numbers == "4.0 12 0.0"
    np.testing.assert_allclose(
        np.array(values.split(), float), np.ravel(np.tanh(x @ WEIGHTS.numpy())), rtol=1e-5
    )


def test_sizes_under_a_jvm(tmp_path: Path) -> None:
    spec = tf.TensorSpec((None, 3), name="x")
    tfbridge.aot.compile(
        lambda x: tf.reduce_sum(x, 1),
        spec,
        name="rows",
        out_dir=tmp_path,
        feeds={"x": "?nx3"},
        extras=["android"],
    )
    native_library(tmp_path / "rows_android", tmp_path / "native")
    output = in_java(
        tmp_path,
        "rows",
        "Rows",
        """
        long model = create(new long[] {4});
        size(model, 0, 2);
        floats(model, 0).put(new float[] {1, 2, 3, 4, 5, 6});
        compute(model, 0);
        System.out.println(floats(model, 1).get(1) + " " + buffer(model, 1).capacity());
        size(model, 0, 5);
        try { compute(model, 0); } catch (IllegalStateException e) { System.out.println(e.getMessage()); }
        destroy(model);""",
        "rows_jni",
    )
    assert output.splitlines()[0] == "15.0 8" and "n is not between 0" in output


def test_form_of_android_modules(tmp_path: Path) -> None:
    """Two ABIs in one module, each with its own header."""
    for triple in ("aarch64-linux-android26", "armv7a-linux-androideabi26"):
        module = export("streaming", tmp_path, "android", target_triple=triple)
    abis = {path.name for path in (module / "src/main/cpp").iterdir() if path.is_dir()}
    assert abis == {"arm64-v8a", "armeabi-v7a"}
    headers = {(module / "src/main/cpp" / abi / "streaming.h").read_text() for abi in abis}
    assert len(headers) == 2
    source = module / "src/main/kotlin/streaming/Streaming.kt"
    text = source.read_text()
    assert (
        text.startswith("package streaming\n")
        and "fun runStep()" in text
        and text.count("{") == text.count("}")
    )
    natives = {
        line.split("external fun ")[1].split("(")[0] for line in text.splitlines() if "external" in line
    }
    jni = (module / "src/main/cpp/streaming_jni.c").read_text()
    assert natives and all(f"Java_streaming_Streaming_{name}(" in jni for name in natives)
    gradle = (module / "build.gradle.kts").read_text()
    assert 'namespace = "streaming"' in gradle and gradle.count("{") == gradle.count("}")
    if shutil.which("kotlinc"):
        run_tool(["kotlinc", "-d", tmp_path / "classes", source], tmp_path)


# -- Swift


def test_form_of_swift_packages(tmp_path: Path) -> None:
    """An XCFramework of two systems; clang reads the module of each."""
    triples = {"ios-arm64": "arm64-apple-ios17.0", "macos-x86_64": "x86_64-apple-macosx13"}
    for triple in triples.values():
        package = export("streaming", tmp_path, "swift", target_triple=triple)
    framework = package / "CStreaming.xcframework"
    libraries = plistlib.loads((framework / "Info.plist").read_bytes())["AvailableLibraries"]
    assert [library["LibraryIdentifier"] for library in libraries] == list(triples)
    for library in libraries:
        folder = framework / library["LibraryIdentifier"]
        assert (folder / library["LibraryPath"]).read_bytes().startswith(b"!<arch>\n#1/16")
    text = (package / "Sources/Streaming/Streaming.swift").read_text()
    assert (
        "import CStreaming" in text
        and "func run_step() throws" in text
        and text.count("{") == text.count("}")
    )
    assert '"CStreaming.xcframework"' in (package / "Package.swift").read_text()
    needs("clang")
    (tmp_path / "m.m").write_text(
        "@import CStreaming;\nint f(streaming_model *m) { return streaming_step_run(m); }\n"
    )
    for identifier, triple in triples.items():
        command = [
            "clang",
            "-target",
            triple,
            "-ffreestanding",
            "-fmodules",
            "-fsyntax-only",
            "-Wall",
            "-Werror",
        ]
        cache = f"-fmodules-cache-path={tmp_path / 'cache'}"
        run_tool([*command, cache, "-I", framework / identifier / "Headers", "m.m"], tmp_path)


# -- refusals


def test_targets_that_a_binding_has_not(tmp_path: Path) -> None:
    for extra, triple, match in (
        ("wasm", "x86_64-linux-gnu", "only objects for wasm32 run"),
        ("android", "x86_64-w64-mingw32", "Android runs on Linux"),
        ("android", "wasm32-unknown-unknown", "Android runs on Linux"),
        ("swift", "x86_64-linux-gnu", "for Apple's systems"),
    ):
        with pytest.raises(ValueError, match=match):
            tfbridge.aot.compile(
                tf.tanh, tf.TensorSpec((2,)), name="m", out_dir=tmp_path, extras=[extra], target_triple=triple
            )
    assert not list(tmp_path.iterdir())
