"""How objects are written: small or fast, sections, names of layers, and what runs take of the stack."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from test_targets import MACHINES, OPTIONS, PROGRAMS, STRICT, run_test
from tfbridge.compiler.errors import UnsupportedError

layers = keras.layers


def network() -> keras.Model:
    inputs = keras.Input((12, 12, 3), batch_size=1, name="images")
    x = layers.Conv2D(8, 3, activation="relu", name="first")(inputs)
    x = layers.Conv2D(8, 3, activation="relu", padding="same", name="second")(x)
    x = layers.Conv2D(8, 3, activation="relu", padding="same", name="third")(x)
    x = layers.Flatten()(layers.DepthwiseConv2D(3, name="depth")(x))
    return keras.Model(inputs, layers.Dense(4, activation="softmax", name="scores")(x), name="net")


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return network()


def needs(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def link_test(folder: Path, *more: str | Path) -> Path:
    """The test program of `net`."""
    needs("cc")
    command = [
        "cc",
        "-std=c99",
        *STRICT,
        "-Wconversion",
        folder / "net_test.c",
        *more,
        folder / "net.o",
        "-lm",
    ]
    subprocess.run([*command, "-o", folder / "test"], check=True)
    return folder / "test"


def code_bytes(files: tfbridge.aot.Compiled) -> int:
    sections = json.loads(files.description.read_text())["sections"]
    return sum(size for name, size in sections.items() if "text" in name)


def test_small_code(model: keras.Model, tmp_path: Path) -> None:
    files = {
        kind: tfbridge.aot.compile(model, out_dir=tmp_path / kind, optimize=kind, extras=["test"])
        for kind in ("speed", "size")
    }
    assert code_bytes(files["size"]) < 0.9 * code_bytes(files["speed"])
    for folder in files:
        subprocess.run([link_test(tmp_path / folder)], check=True)


@pytest.mark.parametrize(
    "machine, name",
    [
        ("cortex-m4", "network"),
        ("cortex-m4", "classifier"),
        ("aarch64", "varying"),
        ("wasm32-simd", "classifier"),
        ("x86-64-levels", "network"),
    ],
)
def test_small_code_elsewhere(machine: str, name: str, tmp_path: Path) -> None:
    MACHINES[machine].skip_if_missing()
    run_test(
        MACHINES[machine], tmp_path, *PROGRAMS[name], **OPTIONS.get(name, {}), optimize="size", debug=True
    )


def test_sections(model: keras.Model, tmp_path: Path) -> None:
    files = tfbridge.aot.compile(
        model,
        out_dir=tmp_path,
        code_section=".flash.code",
        constants_section=".flash.weights",
        extras=["test"],
    )
    sections = json.loads(files.description.read_text())["sections"]
    weights = 4 * sum(int(np.prod(v.shape)) for v in model.variables)
    assert sections[".flash.weights"] > weights and ".flash.code" in sections
    assert ".text" not in sections and sections.get(".rodata", 0) < 1024  # what LLVM makes for instructions
    subprocess.run([link_test(tmp_path)], check=True)
    for options, message in (
        ({"code_section": "a b"}, "letters, digits"),
        ({"code_section": ".x", "constants_section": ".x"}, "one of their own each"),
    ):
        with pytest.raises(ValueError, match=message):
            tfbridge.aot.compile(model, out_dir=tmp_path, **options)


def test_names_of_layers(model: keras.Model, tmp_path: Path) -> None:
    """Debug lines are those of a file that lists the layers, and functions are called after them."""
    needs("llvm-dwarfdump", "nm")
    files = tfbridge.aot.compile(model, out_dir=tmp_path, debug=True, extras=["test"])
    lines = (tmp_path / "net.layers").read_text().splitlines()
    kernels = json.loads(files.description.read_text())["kernels"]
    assert len(lines) == len(kernels) and all(k["name"] in line for k, line in zip(kernels, lines))
    symbols = subprocess.run(["nm", files.object_file], capture_output=True, text=True, check=True).stdout
    for layer in ("first", "second", "depth", "scores"):
        assert re.search(rf" t net\S*/{layer}\S*/\w+[+.]", symbols), layer
    dwarf = subprocess.run(
        ["llvm-dwarfdump", "--verify", files.object_file], capture_output=True, text=True, check=False
    )
    assert dwarf.returncode == 0, dwarf.stdout
    program = link_test(tmp_path)
    table = subprocess.run(
        ["llvm-dwarfdump", "--debug-line", program], capture_output=True, text=True, check=True
    ).stdout
    rows = {int(row) for row in re.findall(r"^0x[0-9a-f]+ +(\d+) ", table, re.MULTILINE)}
    assert rows >= set(range(1, len(lines) + 1)) and "net.layers" in table
    subprocess.run([program], check=True)


def test_names_of_layers_in_wasm(model: keras.Model, tmp_path: Path) -> None:
    options = {
        "target_triple": "wasm32-unknown-unknown",
        "extras": ["wasm"],
        "out_dir": tmp_path,
        "debug": True,
    }
    tfbridge.aot.compile(model, **options)
    assert b"/second" in (tmp_path / "net_wasm" / "net.wasm").read_bytes()
    needs("node")
    subprocess.run(["node", "golden.mjs"], cwd=tmp_path / "net_wasm", check=True)


# Runs the model on a stack of its own, and tells how much of it was written.
STACK_PROGRAM = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "net.h"

enum { STACK = 1 << 20 };
static net_model *model;
static int failed;

static void *empty(void *argument) { return argument; }
static void *run(void *argument) { failed = net_run(model); return argument; }

static long used(void *(*body)(void *)) {
    char *stack = aligned_alloc(4096, STACK);
    pthread_attr_t attributes;
    pthread_t thread;
    long k = 0;
    memset(stack, 0x5a, STACK);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, STACK);
    if (pthread_create(&thread, &attributes, body, NULL)) return -1;
    pthread_join(thread, NULL);
    while (k < STACK && stack[k] == 0x5a) k++;
    free(stack);
    return STACK - k;
}

int main(void) {
    long nothing;
    model = net_new();
    nothing = used(empty);
    printf("%ld %lu\\n", used(run) - nothing, (unsigned long)NET_STACK_BYTES);
    return failed;
}
"""


@pytest.mark.parametrize("cpu", ["", "x86-64", "x86-64-v3"])
@pytest.mark.parametrize("name", ["network", "classifier", "elements", "streaming"])
def test_stack_of_a_run(name: str, cpu: str, tmp_path: Path) -> None:
    """A run takes at most what is description, but for its own frame in the header, and not much less."""
    needs("cc")
    if cpu == "x86-64-v3":
        MACHINES["x86-64-v3"].skip_if_missing()
    function, specs = PROGRAMS[name]
    if isinstance(function, dict):
        function = function["step"][0]
        specs = (tf.TensorSpec((1, 3)),)
    options: dict[str, Any] = OPTIONS.get(name, {})
    triple = "x86_64-linux-gnu" if cpu else None
    files = tfbridge.aot.compile(
        function, *specs, name="net", out_dir=tmp_path, target_cpu=cpu, target_triple=triple, **options
    )
    (tmp_path / "main.c").write_text(STACK_PROGRAM)
    # Symbols are bound at the start: the first call of a library's function would take kilobytes.
    options = ["-O1", "-pthread", "-Wl,-z,now", "-lm", "-o", tmp_path / "p"]
    command = ["cc", tmp_path / "main.c", files.object_file, *options]
    subprocess.run(command, check=True)
    output = subprocess.run([tmp_path / "p"], capture_output=True, text=True, check=True).stdout
    measured, bound = map(int, output.split())
    assert bound == json.loads(files.description.read_text())["stack_bytes"] > 0
    assert bound / 4 < measured <= bound + 512, (measured, bound)


def test_choices_that_are_none(tmp_path: Path) -> None:
    for options, message in (
        ({"optimize": "beauty"}, "'beauty' is none of speed, size"),
        ({"numerics": "reproducible"}, "numerics: 'reproducible' is none of tf, fast"),
        ({"large_constants": "tape"}, "'tape' is none of object, file, source"),
    ):
        with pytest.raises(ValueError, match=message):
            tfbridge.aot.compile(tf.tanh, tf.TensorSpec((2,)), out_dir=tmp_path, **options)


def test_fast_numerics(tmp_path: Path) -> None:
    """The rules of fast arithmetic are at work."""
    function = tf.function(lambda x: (x * 3.0) / 3.0)
    files = {
        numerics: tfbridge.aot.compile(
            function, tf.TensorSpec((1024,)), name="m", out_dir=tmp_path / numerics, numerics=numerics
        )
        for numerics in ("tf", "fast")
    }
    objects = {
        numerics: re.sub(rb"[0-9a-f]{16}", b"", c.object_file.read_bytes()) for numerics, c in files.items()
    }
    assert objects["tf"] != objects["fast"]


def test_sections_that_llvm_refuses(tmp_path: Path) -> None:
    """Where LLVM ends, it is in a process of its own, and nothing is written."""
    options = {"target_triple": "arm64-apple-ios17", "code_section": "nosegment"}
    with pytest.raises(UnsupportedError, match="arm64-apple-ios17"):
        tfbridge.aot.compile(tf.tanh, tf.TensorSpec((2,)), name="m", out_dir=tmp_path, **options)
    assert not list(tmp_path.iterdir())
