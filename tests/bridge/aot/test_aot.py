"""Ahead-of-time compilation: programs in C and C++ compute TensorFlow's numbers, here and on AArch64."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.compiler.errors import ShapeError, UnsupportedError
from tfbridge.models import digits, digits_c_program
from tfbridge.models.zoo import cnn, mlp

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
ALLOWED = {"memcpy", "memset", "memmove", "cos", "erf", "erfc", "fmod", "pow", "sin", "tan"}  # libc and libm


@dataclass(frozen=True)
class Machine:
    """A target with its C compiler, and the command that runs its programs here."""

    triple: str | None
    compiler: str
    emulator: tuple[str, ...] = ()

    def skip_if_missing(self) -> None:
        for tool in (self.compiler, *self.emulator[:1]):
            if shutil.which(tool) is None:
                pytest.skip(f"{tool} is not installed")


MACHINES = {
    "host": Machine(None, "gcc"),
    "x86-64 baseline": Machine("x86_64-linux-gnu", "gcc"),
    "aarch64": Machine(
        "aarch64-linux-gnu", "aarch64-linux-gnu-gcc", ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
    ),
}

# Reads the arguments one after the other from a file, writes the results to another.
PROGRAM = """
#include <stdio.h>
#include "model.h"

int main(int argc, char **argv) {{
    FILE *in = argc == 3 ? fopen(argv[1], "rb") : NULL;
    FILE *out = argc == 3 ? fopen(argv[2], "wb") : NULL;
    model_model *model = model_new();
    if (!in || !out || !model) return 2;
{before}
{read}
    if (model_run(model) != 0) {{
        puts(model_error_message(model));
        return 1;
    }}
{write}
    fclose(out);
    fclose(in);
    model_free(model);
    return 0;
}}
"""


@pytest.fixture(scope="module")
def perceptron() -> keras.Model:
    return mlp.build(20, 32, 5)


@pytest.fixture(scope="module")
def classifier() -> keras.Model:
    return cnn.build(8, 8)


def random(*dims: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(dims, dtype=np.float32)


def run_in_c(
    machine: Machine,
    folder: Path,
    inputs: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    before: str = "",
    flags: Sequence[str] = (),
) -> None:
    """Links model.o with a program, runs it on the inputs and compares with what is wanted."""
    text = {
        "before": before,
        "read": "\n".join(
            f"    if (fread(model_arg{k}(model), 1, MODEL_ARG{k}_BYTES, in) != MODEL_ARG{k}_BYTES) return 2;"
            for k in range(len(inputs))
        ),
        "write": "\n".join(
            f"    if (fwrite(model_result{k}(model), 1, MODEL_RESULT{k}_BYTES, out) != MODEL_RESULT{k}_BYTES) return 2;"
            for k in range(len(wanted))
        ),
    }
    (folder / "main.c").write_text(PROGRAM.format(**text))
    program = folder / "program"
    subprocess.run(
        [
            machine.compiler,
            "-std=c99",
            *STRICT,
            *flags,
            folder / "main.c",
            folder / "model.o",
            "-lm",
            "-o",
            program,
        ],
        check=True,
    )
    (folder / "in").write_bytes(b"".join(np.ascontiguousarray(i).tobytes() for i in inputs))
    finished = subprocess.run(
        [*machine.emulator, program, folder / "in", folder / "out"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    data = (folder / "out").read_bytes()
    for value in wanted:
        found = np.frombuffer(data[: value.nbytes], value.dtype).reshape(value.shape)
        np.testing.assert_allclose(
            found, value, rtol=1e-4, atol=1e-5
        )  # sums of up to 72 products, in another order
        data = data[value.nbytes :]
    assert not data


def imports(object_file: Path) -> set[str]:
    """The symbols that an object wants from elsewhere."""
    tool = shutil.which("llvm-nm") or shutil.which("nm")
    if tool is None:
        pytest.skip("nm is not installed")
    listing = subprocess.run([tool, "-u", object_file], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listing.splitlines()}


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Machine:
    found = MACHINES[request.param]
    found.skip_if_missing()
    return found


@pytest.fixture
def here() -> Machine:
    MACHINES["host"].skip_if_missing()
    return MACHINES["host"]


def test_perceptron(machine: Machine, perceptron: keras.Model, tmp_path: Path) -> None:
    x = random(4, 20)
    made = tfbridge.aot.compile(
        perceptron, feeds={"arg0": (4, 20)}, name="model", out_dir=tmp_path, target_triple=machine.triple
    )
    run_in_c(machine, tmp_path, [x], [perceptron(x).numpy()])
    assert imports(made.object_file) <= ALLOWED


def test_classifier_from_saved_model(machine: Machine, classifier: keras.Model, tmp_path: Path) -> None:
    x = random(2, 8, 8, 1)
    classifier.export(tmp_path / "saved", verbose=False)
    made = tfbridge.aot.compile(
        tmp_path / "saved",
        feeds={"arg0": x.shape},
        name="model",
        out_dir=tmp_path,
        target_triple=machine.triple,
    )
    run_in_c(machine, tmp_path, [x], [classifier(x, training=False).numpy()])
    assert imports(made.object_file) <= ALLOWED


def test_digits_program_gives_the_classes_of_keras(machine: Machine, tmp_path: Path) -> None:
    model = cnn.build(digits.SIDE)
    images = digits.load().held_out_images[:50]
    model.export(tmp_path / "saved", input_signature=[tf.TensorSpec((1, *images.shape[1:]))], verbose=False)
    program = digits_c_program.build(tmp_path / "saved", machine.compiler, tmp_path, machine.triple)
    wanted = np.argmax(model(images, training=False), -1)
    assert len(set(wanted)) > 1
    np.testing.assert_array_equal(program.classify(images, machine.emulator), wanted)


def several(x: tf.Tensor, scale: tf.Tensor, mask: tf.Tensor) -> dict[str, tf.Tensor]:
    """Arguments and results of several types, libm, a loop, a scalar."""
    total = tf.reduce_sum(tf.where(mask, x, 0.0))
    steps = tf.while_loop(lambda k, v: k < 3, lambda k, v: (k + 1, v * 2.0), (0, total))[1]
    return {
        "wave": tf.sin(tf.cast(x, tf.float64)) * scale,
        "total": steps,
        "indices": tf.argmax(x, -1),
        "above": x > 0.5,
        "half": tf.cast(x, tf.float16),
        "phase": tf.complex(x, x),
    }


SEVERAL = (tf.TensorSpec((3, 5)), tf.TensorSpec((), tf.float64), tf.TensorSpec((3, 5), tf.bool))


def test_types_and_names(machine: Machine, tmp_path: Path) -> None:
    inputs = [random(3, 5), np.float64(1.5), random(3, 5) > 0]
    made = tfbridge.aot.compile(
        several, *SEVERAL, name="model", out_dir=tmp_path, target_triple=machine.triple
    )
    wanted = several(*map(tf.constant, inputs))
    run_in_c(machine, tmp_path, inputs, [wanted[key].numpy() for key in sorted(wanted)])
    told = json.loads(made.description.read_text())
    assert [a["name"] for a in told["arguments"]] == ["x", "scale", "mask"]
    assert [(r["name"], r["dtype"], r["dims"]) for r in told["results"]][:2] == [
        ("above", "bool", [3, 5]),
        ("half", "float16", [3, 5]),
    ]
    assert imports(made.object_file) <= ALLOWED


def test_constants_in_a_file(here: Machine, perceptron: keras.Model, tmp_path: Path) -> None:
    x = random(4, 20)
    made = tfbridge.aot.compile(
        perceptron, tf.constant(x), name="model", out_dir=tmp_path, large_constants="file"
    )
    assert made.constants_file is not None
    assert made.constants_bytes == made.constants_file.stat().st_size > 4 * 32 * 32
    load = f"""
    static char room[MODEL_CONSTANTS_BYTES + 64];
    char *constants = room + (64 - (uintptr_t)room % 64) % 64;
    FILE *file = fopen("{made.constants_file}", "rb");
    if (model_run(model) == 0) return 3;
    if (!strstr(model_error_message(model), "model.bin")) return 3;
    if (!file || fread(constants, 1, MODEL_CONSTANTS_BYTES, file) != MODEL_CONSTANTS_BYTES) return 2;
    fclose(file);
    model_set_constants(model, constants);
    """
    run_in_c(here, tmp_path, [x], [perceptron(x).numpy()], before=load)


THREADS = """
#define _POSIX_C_SOURCE 200112L
#include <pthread.h>
#include "model.h"

typedef struct { tfbridge_body body; void *state; int64_t low, high, thread; } part;
static int loops = 0;

static void *work(void *given) {
    part *p = (part *)given;
    p->body(p->state, p->low, p->high, p->thread);
    return NULL;
}

static inline void pool(void *threads, int64_t tasks, int64_t grain, tfbridge_body body, void *state) {
    part parts[2];
    pthread_t helper;
    (void)grain;
    *(int *)threads += 1;
    for (int k = 0; k < 2; k++) {
        part p = {body, state, tasks * k / 2, tasks * (k + 1) / 2, k};
        parts[k] = p;
    }
    if (pthread_create(&helper, NULL, work, &parts[1])) return;
    work(&parts[0]);
    pthread_join(helper, NULL);
}
"""


def test_thread_pool(here: Machine, tmp_path: Path) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x) * tf.exp(-x * x)

    x = random(64, 4096)
    tfbridge.aot.compile(function, tf.constant(x), name="model", out_dir=tmp_path, threads=2)
    (tmp_path / "pool.h").write_text(THREADS)
    run_in_c(
        here,
        tmp_path,
        [x],
        [function(x).numpy()],
        before="    model_set_thread_pool(model, pool, &loops);",
        flags=("-pthread", "-include", str(tmp_path / "pool.h")),
    )
    checked = (tmp_path / "main.c").read_text().replace("return 0;", "return loops > 0 ? 0 : 4;")
    (tmp_path / "main.c").write_text(checked)
    subprocess.run(
        [
            "gcc",
            "-std=c99",
            "-pthread",
            "-include",
            tmp_path / "pool.h",
            tmp_path / "main.c",
            tmp_path / "model.o",
            "-lm",
            "-o",
            tmp_path / "counted",
        ],
        check=True,
    )
    subprocess.run([tmp_path / "counted", tmp_path / "in", tmp_path / "out"], check=True)


CPP = """
#include <cstdio>
#include "first.h"
#include "second.h"

static_assert(nets::deep::First::arg0_elements() == 8, "a constant expression");

int main() {
    nets::deep::First first;
    static char memory[Second::memory_bytes() + 3];
    Second second(memory + 3);
    const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    first.set_arg0(values);
    second.set_arg0_data(first.result0());
    if (!first.run() || !second.run()) return 1;
    for (std::size_t i = 0; i < 2; i++)
        for (std::size_t j = 0; j < 4; j++)
            if (first.result0(i, j) != 2 * first.arg_x(i, j)) return 2;
    std::printf("%g %s\\n", double(*second.result_sum()), second.error_message());
    return 0;
}
"""


def test_two_models_in_a_cpp_program(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    x = tf.TensorSpec((2, 4), name="x")
    tfbridge.aot.compile(lambda x: x * 2.0, x, name="first", cpp_class="nets::deep::First", out_dir=tmp_path)
    tfbridge.aot.compile(
        lambda x: {"sum": tf.reduce_sum(x) * 1.5}, x, name="second", cpp_class="Second", out_dir=tmp_path
    )
    (tmp_path / "main.cc").write_text(CPP)
    command = [
        "g++",
        "-std=c++11",
        *STRICT,
        tmp_path / "main.cc",
        tmp_path / "first.o",
        tmp_path / "second.o",
    ]
    subprocess.run([*command, "-o", tmp_path / "program"], check=True)
    assert (
        subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout == "108 \n"
    )
    (tmp_path / "main.cc").write_text(CPP.replace("values[8]", "values[7]").replace(", 7, 8}", ", 7}"))
    refused = subprocess.run(
        [*command, "-c", "-o", tmp_path / "none"], capture_output=True, text=True, check=False
    )
    assert "arg0 has 8 elements" in refused.stderr


class Doubler(keras.Model):
    """A subclassed model whose call knows nothing of training."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs * 2.0


def test_subclassed_model(here: Machine, tmp_path: Path) -> None:
    x = random(3, 2)
    tfbridge.aot.compile(Doubler(), tf.TensorSpec((3, 2)), name="model", out_dir=tmp_path)
    run_in_c(here, tmp_path, [x], [2 * x])
    with pytest.raises(ShapeError, match="does not tell its inputs"):
        tfbridge.aot.compile(Doubler(), out_dir=tmp_path)


def test_object_has_one_global_name(here: Machine, tmp_path: Path) -> None:
    made = tfbridge.aot.compile(
        lambda x: tf.matmul(x, x), tf.TensorSpec((8, 8)), name="square", out_dir=tmp_path
    )
    listing = subprocess.run(
        ["nm", "--defined-only", "--extern-only", made.object_file],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (name,) = [line.split()[-1] for line in listing.splitlines()]
    assert re.fullmatch("square_entry_[0-9a-f]{16}", name)


def test_command(classifier: keras.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tfbridge.bridge.aot.__main__ import main

    classifier.export(tmp_path / "saved", verbose=False)
    common = ["--saved-model", str(tmp_path / "saved"), "--out", str(tmp_path / "made")]
    assert main([*common, "--feed", "arg0:1,8,8,1", "--name", "digits", "--cpp-class", "a::B"]) == 0
    assert "digits.h" in capsys.readouterr().out
    assert "namespace a {" in (tmp_path / "made" / "digits.h").read_text()
    assert main(common) == 1
    assert "--feed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*common, "--feed", "images"])


def test_module_is_a_command() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tfbridge.aot", "--help"], capture_output=True, text=True, check=True
    )
    assert "--target-triple" in shown.stdout


class Counter(tf.Module):
    def __init__(self) -> None:
        self.count = tf.Variable(0.0, name="count")

    @tf.function(input_signature=[tf.TensorSpec((), tf.float32)])
    def add(self, x: tf.Tensor) -> tf.Tensor:
        return self.count.assign_add(x)


def compile_growing(out: Path) -> Any:
    rows = tf.Variable(tf.zeros((2, 3)), name="rows", shape=tf.TensorShape(None))

    def grow() -> tf.Tensor:
        return rows.assign(tf.concat([tf.ones((2, 3)), tf.ones((1, 3))], 0))

    return tfbridge.aot.compile(grow, out_dir=out)


class Times:
    def __init__(self, weights: tf.Tensor) -> None:
        self.weights = weights

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return x @ self.weights


def test_files_of_another_compilation(here: Machine, tmp_path: Path) -> None:
    """A header does not link with another object, and a model does not run on other weights."""
    for name, factor in (("new", 2.0), ("old", 3.0)):
        weights = tf.constant(np.arange(64, dtype=np.float32).reshape(8, 8) * factor)
        for large in ("object", "file"):
            tfbridge.aot.compile(
                Times(weights),
                tf.TensorSpec((2, 8)),
                name="model",
                out_dir=tmp_path / name / large,
                large_constants=large,
                extras=["test"],
            )

    def build(header: str, made: str, large: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / header / large
        command = [
            here.compiler,
            folder / "model_test.c",
            tmp_path / made / large / "model.o",
            "-o",
            tmp_path / "test",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    stale = build("new", "old", "object")
    assert stale.returncode and re.search("undefined reference to `model_entry_[0-9a-f]{16}'", stale.stderr)
    assert build("new", "new", "file").returncode == 0
    for weights_of, status, message in (("new", 0, "0 differ"), ("old", 100, "model.bin is not the one")):
        finished = subprocess.run(
            [tmp_path / "test"],
            cwd=tmp_path / weights_of / "file",
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == status and message in finished.stdout


def test_state(here: Machine, tmp_path: Path) -> None:
    """Two instances have states of their own; they are reset, saved and set."""
    counter = Counter()
    counter.count.assign(5.0)
    tfbridge.aot.compile(counter.add, name="model", out_dir=tmp_path)
    (tmp_path / "main.cc").write_text(STATE_PROGRAM)
    program = tmp_path / "program"
    flags = ("-std=c++11", *STRICT, "-Wconversion", "-Wold-style-cast", "-Wshadow")
    subprocess.run(["g++", *flags, tmp_path / "main.cc", tmp_path / "model.o", "-o", program], check=True)
    shown = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert shown == ["7", "9", "6", "5", "8", "9", "10", "4"]
    assert counter.count.numpy() == 5.0


CMAKE = """
cmake_minimum_required(VERSION 3.13)
project(app CXX C)
find_package(two_rows CONFIG REQUIRED PATHS ${CMAKE_SOURCE_DIR}/made NO_DEFAULT_PATH)
foreach(kind test benchmark)
  add_executable(${kind} made/two_rows_${kind}.c)
  target_link_libraries(${kind} two_rows)
endforeach()
add_executable(app main.cc)
target_link_libraries(app two_rows)
"""


def test_a_cmake_project_builds_the_test_and_the_benchmark(here: Machine, tmp_path: Path) -> None:
    """A Keras file, exported with all that may be beside it; the class is called after the model."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    model = keras.Sequential([keras.Input((4,), batch_size=2), keras.layers.Dense(3, "tanh")])
    model.save(tmp_path / "two rows.keras")
    made = tfbridge.aot.compile(
        tmp_path / "two rows.keras",
        name="two_rows",
        out_dir=tmp_path / "made",
        extras=["test", "benchmark", "cmake"],
        large_constants="file",
    )
    assert len(made.extra_files) == 4 and all(file.is_file() for file in made.extra_files)
    (tmp_path / "main.cc").write_text(
        '#include "two_rows.h"\nint main() { TwoRows model; return model.run() || !*model.error_message(); }\n'
    )
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    for command in (["cmake", "-S", tmp_path, "-B", tmp_path / "b"], ["cmake", "--build", tmp_path / "b"]):
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr
    for program, shown in (
        ("test", "result0: 6 elements, 0 differ"),
        ("benchmark", "us: least"),
        ("app", ""),
    ):
        ran = subprocess.run(
            [tmp_path / "b" / program], cwd=tmp_path / "made", capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0 and shown in ran.stdout, ran.stdout


def test_stateful_layers_of_keras(here: Machine, tmp_path: Path) -> None:
    layers = [
        keras.layers.LSTM(5, stateful=True, return_sequences=True),
        keras.layers.GRU(4, stateful=True),
        keras.layers.BatchNormalization(),
    ]
    model = keras.Sequential([keras.Input((3, 4), batch_size=1), *layers])
    made = tfbridge.aot.compile(model, name="model", out_dir=tmp_path, extras=["test"])
    command = [here.compiler, "-std=c99", *STRICT, tmp_path / "model_test.c", made.object_file, "-lm"]
    subprocess.run([*command, "-o", tmp_path / "test"], check=True)
    subprocess.run([tmp_path / "test"], check=True, stdout=subprocess.DEVNULL)
    names = [state["name"] for state in json.loads(made.description.read_text())["state"]]
    assert len(names) == len(set(names)) == 3 and all("rnn_state" in name for name in names)


def trained() -> Callable[..., tf.Tensor]:
    """A training step, whose weights and optimizer are the state."""
    optimizer = keras.optimizers.Adam(0.1)
    model = keras.Sequential([keras.Input((4,), batch_size=2), keras.layers.Dense(3)])
    optimizer.build(model.trainable_variables)

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    return step


GENERATOR = tf.random.Generator.from_seed(3)
ODD: dict[str, tuple[Any, tuple[tf.TensorSpec, ...]]] = {
    "no arguments": (lambda: tf.constant([1.0, 2.0]), ()),
    "an argument twice": (lambda x: (x, x), (tf.TensorSpec((3,)),)),
    "no elements": (lambda x: (x, tf.concat([x, x], 0)), (tf.TensorSpec((0, 3)),)),
    "booleans": (tf.math.logical_xor, (tf.TensorSpec((), tf.bool), tf.TensorSpec((5,), tf.bool))),
    "half": (lambda x: x * x, (tf.TensorSpec((3,), tf.bfloat16),)),
    "random numbers": (lambda x: x + GENERATOR.normal((3,)), (tf.TensorSpec((3,)),)),
    "training": (trained(), (tf.TensorSpec((2, 4)), tf.TensorSpec((2, 3)))),
}


@pytest.mark.parametrize("name", ODD)
def test_the_test_of_odd_functions(name: str, here: Machine, tmp_path: Path) -> None:
    function, specs = ODD[name]
    made = tfbridge.aot.compile(function, *specs, name="odd", out_dir=tmp_path, extras=["test", "benchmark"])
    for source in made.extra_files:
        command = [here.compiler, "-std=c99", *STRICT, source, made.object_file, "-lm", "-o", tmp_path / "p"]
        subprocess.run(command, check=True)
        ran = subprocess.run([tmp_path / "p", "0.01"], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout


class Shared(tf.Module):
    """Two functions with weights and a state in common."""

    def __init__(self) -> None:
        self.weights = tf.Variable(np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096)
        self.sum = tf.Variable(tf.zeros(64), name="sum")

    @tf.function(input_signature=[tf.TensorSpec((None, 64), name="rows")])
    def add(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        self.sum.assign_add(tf.reduce_sum(rows @ self.weights, 0))
        return {"total": tf.reduce_sum(self.sum)}

    @tf.function(input_signature=[tf.TensorSpec((), name="scale")])
    def scaled(self, scale: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"values": self.sum * scale, "row": self.weights[0] * scale}


SHARED_PROGRAM = """
#include <stdio.h>
#include "model.h"

int main(void) {
    model_model *model = model_new();
    size_t i;
    if (!model) return 2;
    for (i = 0; i < MODEL_ADD_ARG0_ELEMENTS; i++) model_add_arg_rows(model)[i] = 1;
    *model_scaled_arg_scale(model) = 2;
    if (model_add_run(model) || model_add_run(model) || model_scaled_run(model)) return 1;
    for (i = 0; i < MODEL_SCALED_RESULT0_ELEMENTS; i++) printf("%.9g\\n", (double)model_scaled_result1(model)[i]);
    model_free(model);
    return 0;
}
"""


@pytest.mark.parametrize("is_saved", [False, True])
def test_functions_of_one_object(is_saved: bool, here: Machine, tmp_path: Path) -> None:
    """They have their weights once, and one state."""
    shared = Shared()
    functions: Any = {"add": shared.add, "scaled": shared.scaled}
    if is_saved:
        tf.saved_model.save(shared, tmp_path / "saved", signatures=functions)
        functions = tmp_path / "saved"
    made = tfbridge.aot.compile(
        functions, signature="*", feeds={"rows": (3, 64)}, name="model", out_dir=tmp_path, extras=["test"]
    )
    assert made.object_file.read_bytes().count(shared.weights.numpy().tobytes()) == 1
    (tmp_path / "main.c").write_text(SHARED_PROGRAM)
    for source in ("model_test.c", "main.c"):
        command = [
            here.compiler,
            "-std=c99",
            *STRICT,
            tmp_path / source,
            made.object_file,
            "-o",
            tmp_path / "program",
        ]
        subprocess.run(command, check=True)
        shown = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
        assert shown.returncode == 0, shown.stdout
    wanted = shared.weights.numpy().sum(0) * 3 * 2 * 2
    np.testing.assert_allclose(np.array(shown.stdout.split(), float), wanted, rtol=1e-5)
    described = json.loads(made.description.read_text())
    assert list(described["functions"]) == ["add", "scaled"] and described["state_bytes"] == 256


def test_errors_of_functions_of_one_object(tmp_path: Path) -> None:
    shared = Shared()
    both = {"add": shared.add, "scaled": shared.scaled}
    with pytest.raises(ShapeError, match="rows has the shape"):
        tfbridge.aot.compile(both, out_dir=tmp_path)
    with pytest.raises(ShapeError, match="'scaled/rows'.*'rows'|no such argument"):
        tfbridge.aot.compile(both, out_dir=tmp_path, feeds={"add/rows": (3, 64), "scaled/rows": (3, 64)})
    with pytest.raises(ShapeError, match="no function has such an argument; there are 'add', 'scaled'"):
        tfbridge.aot.compile(both, out_dir=tmp_path, feeds={"other/rows": (3, 64)})
    for name in ("a b", "state", ""):
        with pytest.raises(ValueError, match="a name of letters"):
            tfbridge.aot.compile({name: shared.scaled}, out_dir=tmp_path)
    with pytest.raises(TypeError, match="several functions"):
        tfbridge.aot.compile(both, tf.TensorSpec((3, 64)), out_dir=tmp_path)
    with pytest.raises(UnsupportedError, match="argument 0 is a variable"):
        variable = tf.Variable(1.0)
        tfbridge.aot.compile(lambda v: v.assign_add(1.0), variable, out_dir=tmp_path)


STATE_PROGRAM = """
#include <cstdio>
#include "model.h"

static float run(Model &model, float x) {
    *model.arg0() = x;
    return model.run() ? *model.result0() : -1;
}

int main() {
    Model first, second;
    float saved;
    static_assert(MODEL_STATE_BYTES == 64 && MODEL_STATES == 1, "one array, in 64 bytes");
    char state[MODEL_STATE_BYTES];
    std::printf("%g ", double(run(first, 2)));
    std::printf("%g ", double(run(first, 2)));
    std::printf("%g ", double(run(second, 1)));
    if (!first.get_state(state) || !first.reset()) return 1;
    std::printf("%g ", double(*first.state_count()));
    std::printf("%g ", double(run(first, 3)));
    if (!first.set_state(state)) return 1;
    saved = *first.state0();
    std::printf("%g %g ", double(saved), double(run(first, 1)));
    *first.state0() = 1;
    std::printf("%g\\n", double(run(first, 3)));
    return 0;
}
"""


def unsupported(x: tf.Tensor) -> tf.Tensor:
    text = tf.strings.as_string(x)
    return tf.strings.to_number(text)


ERRORS: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "unknown dims": (
        lambda out: tfbridge.aot.compile(tf.nn.relu, tf.TensorSpec((None, 3), name="rows"), out_dir=out),
        ShapeError,
        r"rows has the shape \[\?,3\].*--feed rows:1,3 or feeds.*--feed .rows:\?x3",
    ),
    "unknown feed": (
        lambda out: tfbridge.aot.compile(
            tf.nn.relu, tf.TensorSpec((2,), name="rows"), out_dir=out, feeds={"row": (2,)}
        ),
        ShapeError,
        r"'row': there is no such argument.*Did you mean 'rows'",
    ),
    "feed that does not fit": (
        lambda out: tfbridge.aot.compile(
            tf.nn.relu, tf.TensorSpec((None, 3), name="rows"), out_dir=out, feeds={"rows": (2, 4)}
        ),
        ShapeError,
        r"feed rows: \[2, 4\] does not fit .*\[\?,3\]",
    ),
    "unsupported ops": (
        lambda out: tfbridge.aot.compile(unsupported, tf.TensorSpec((2,)), out_dir=out),
        UnsupportedError,
        r"(?s)AsString.*test_aot\.py:\d+.*StringToNumber",
    ),
    "variable that grows": (
        compile_growing,
        UnsupportedError,
        r"rows changes from f32\[2,3\] to f32\[3,3\]",
    ),
    "shape as argument": (
        lambda out: tfbridge.aot.compile(
            lambda x, d: tf.reshape(x, d),
            tf.TensorSpec((4,)),
            tf.TensorSpec((2,), tf.int32, name="d"),
            out_dir=out,
        ),
        UnsupportedError,
        "argument d decides shapes",
    ),
    "no SavedModel": (lambda out: tfbridge.aot.compile(out), ShapeError, "holds no SavedModel"),
    "class name": (
        lambda out: tfbridge.aot.compile(tf.nn.relu, tf.TensorSpec((2,)), out_dir=out, cpp_class="a:B"),
        ValueError,
        "'a:B' is not an identifier",
    ),
    "triple": (
        lambda out: tfbridge.aot.compile(tf.nn.relu, tf.TensorSpec((2,)), out_dir=out, target_triple="pdp11"),
        UnsupportedError,
        "pdp11",
    ),
    "CPU": (
        lambda out: tfbridge.aot.compile(tf.nn.relu, tf.TensorSpec((2,)), out_dir=out, target_cpu="vax"),
        UnsupportedError,
        "'vax' is not a recognized processor",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str, tmp_path: Path) -> None:
    call, error, message = ERRORS[case]
    with pytest.raises(error) as raised:
        call(tmp_path)
    assert re.search(message, str(raised.value)), raised.value
    assert not list(tmp_path.glob("*.o"))


def test_unknown_signature_lists_those_there_are(classifier: keras.Model, tmp_path: Path) -> None:
    classifier.export(tmp_path / "saved", verbose=False)
    with pytest.raises(ShapeError, match=r"no signature 'predict'; it has .*'serving_default'"):
        tfbridge.aot.compile(tmp_path / "saved", signature="predict", out_dir=tmp_path)
