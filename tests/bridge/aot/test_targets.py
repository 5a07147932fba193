"""Objects for every supported target are linked and run, and compute TensorFlow's numbers."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
import tensorflow as tf
import tfbridge

BARE_METAL = Path(__file__).parent / "bare_metal"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
_FREESTANDING = (
    "-ffreestanding",
    "-nostdlib",
    "-fno-builtin",
    "-O1",
    "-Dmain=test_main",
    BARE_METAL / "start.c",
)


@dataclasses.dataclass(frozen=True)
class Machine:
    """A target, the command that links a test for it, and the command that runs the program here.

    needs: a feature of this machine's processor, without which the program is not run.
    """

    triple: str
    cpu: str = ""
    features: str = ""
    link: Sequence[str | Path] = ("gcc",)
    run: Sequence[str | Path] = ()
    needs: str = ""
    libraries: Sequence[str] = ("-lm",)
    levels: Sequence[str] = ()

    def skip_if_missing(self) -> None:
        for tool in (self.link[0], *self.run[:1]):
            if shutil.which(tool) is None:
                pytest.skip(f"{tool} is not installed")
        if self.needs and not llvm.get_host_cpu_features().get(self.needs):
            pytest.skip(f"this processor has no {self.needs}")


def linux(
    triple: str, compiler: str, emulator: str, cpu: str = "", features: str = "", model: str = ""
) -> Machine:
    """A Linux target with a C library; `model` is what the emulator is to be."""
    run = (f"qemu-{emulator}", *(("-cpu", model) if model else ()))
    return Machine(triple, cpu, features, (f"{compiler}-gcc", "-static"), run)


def cortex(
    cpu: str, board: str, flash: int, ram: int, ram_kilobytes: int, triple: str, flags: str
) -> Machine:
    """A microcontroller without an operating system."""
    link = (
        "arm-none-eabi-gcc",
        *flags.split(),
        "-mthumb",
        *_FREESTANDING,
        "-T",
        BARE_METAL / "cortex_m.ld",
        f"-Wl,--defsym=FLASH={flash},--defsym=RAM={ram},--defsym=RAM_BYTES={ram_kilobytes << 10}",
    )
    run = (
        "qemu-system-arm",
        "-M",
        board,
        "-semihosting",
        "-nographic",
        "-monitor",
        "none",
        "-serial",
        "null",
        "-kernel",
    )
    return Machine(triple, cpu, "", link, run, libraries=("-lgcc",))


def wasm(features: str) -> Machine:
    link = (
        "clang",
        "--target=wasm32",
        *_FREESTANDING,
        "-Wl,--no-entry,--export=test_main,-z,stack-size=65536",
    )
    return Machine(
        "wasm32-unknown-unknown",
        "",
        features,
        link,
        ("node", BARE_METAL / "run_wasm.mjs"),
        libraries=(),
    )


ARM_LINUX = "arm-linux-gnueabihf"
M4, M7 = "-mcpu=cortex-m4 -mfloat-abi=", "-mcpu=cortex-m7 -mfloat-abi="
MACHINES = {
    "x86-64": Machine("x86_64-linux-gnu"),
    "x86-64-v2": Machine("x86_64-linux-gnu", "x86-64-v2", needs="sse4.2"),
    "x86-64-v3": Machine("x86_64-linux-gnu", "x86-64-v3", needs="avx2"),
    "alderlake": Machine("x86_64-linux-gnu", "alderlake", needs="avxvnni"),
    "x86-64-v4": Machine("x86_64-linux-gnu", "x86-64-v4", needs="avx512f"),
    "i686": linux("i686-linux-gnu", "i686-linux-gnu", "i386"),
    "aarch64": linux("aarch64-linux-gnu", "aarch64-linux-gnu", "aarch64"),
    "aarch64-i8mm": linux(
        "aarch64-linux-gnu", "aarch64-linux-gnu", "aarch64", "", "+dotprod,+i8mm,+fullfp16,+bf16", "max"
    ),
    "aarch64-sve": linux("aarch64-linux-gnu", "aarch64-linux-gnu", "aarch64", "neoverse-v1", "", "max"),
    "armv6": linux(ARM_LINUX, ARM_LINUX, "arm"),
    "armv7": linux("armv7a-linux-gnueabihf", ARM_LINUX, "arm"),
    "cortex-a15": linux(ARM_LINUX, ARM_LINUX, "arm", "cortex-a15"),
    "cortex-a53-32": linux(ARM_LINUX, ARM_LINUX, "arm", "cortex-a53", "", "max"),
    "cortex-m0": cortex("cortex-m0", "microbit", 0, 0x20000000, 16, "arm-none-eabi", "-mcpu=cortex-m0"),
    "cortex-m3": cortex("cortex-m3", "mps2-an385", 0, 0x20000000, 4096, "arm-none-eabi", "-mcpu=cortex-m3"),
    "cortex-m4": cortex("cortex-m4", "mps2-an386", 0, 0x20000000, 4096, "arm-none-eabi", M4 + "softfp"),
    "thumbv7em-hard": cortex("", "mps2-an386", 0, 0x20000000, 4096, "thumbv7em-none-eabihf", M4 + "hard"),
    "cortex-m7": cortex("cortex-m7", "mps2-an500", 0, 0x20000000, 4096, "arm-none-eabihf", M7 + "hard"),
    "cortex-m33": cortex(
        "cortex-m33",
        "mps2-an505",
        0x10000000,
        0x38000000,
        4096,
        "arm-none-eabihf",
        "-mcpu=cortex-m33 -mfloat-abi=hard",
    ),
    "cortex-m55": cortex(
        "cortex-m55", "mps3-an547", 0, 0x20000000, 512, "arm-none-eabihf", "-mcpu=cortex-m55 -mfloat-abi=hard"
    ),
    "riscv64": linux("riscv64-linux-gnu", "riscv64-linux-gnu", "riscv64"),
    "riscv64-v": linux(
        "riscv64-linux-gnu",
        "riscv64-linux-gnu",
        "riscv64",
        "",
        "+m,+a,+f,+d,+c,+v",
        "rv64,v=true,vlen=128,vext_spec=v1.0",
    ),
    "riscv32imc": Machine(
        "riscv32-unknown-elf",
        "",
        "+m,+c",
        ("riscv64-unknown-elf-gcc", "-march=rv32imc", "-mabi=ilp32", *_FREESTANDING),
        ("qemu-riscv32",),
        libraries=("-lgcc",),
    ),
    "wasm32": wasm(""),
    "wasm32-simd": wasm("+simd128"),
    "windows": Machine("x86_64-w64-mingw32", link=("x86_64-w64-mingw32-gcc",), run=("/usr/lib/wine/wine64",)),
    "x86-64-levels": Machine("x86_64-linux-gnu", levels=("v4-vnni", "v4", "v3", "v1")),
    "x86-64-levels-old": Machine(
        "x86_64-linux-gnu", run=("qemu-x86_64", "-cpu", "Nehalem"), levels=("v2", "v3")
    ),
    "aarch64-levels": dataclasses.replace(
        linux("aarch64-linux-gnu", "aarch64-linux-gnu", "aarch64", model="max"),
        levels=("v8.0", "v8.2", "v8.6"),
    ),
    "windows-levels": Machine(
        "x86_64-w64-mingw32",
        link=("x86_64-w64-mingw32-gcc",),
        run=("/usr/lib/wine/wine64",),
        levels=("v1", "v2", "v3", "v4"),
    ),
}


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Machine:
    found = MACHINES[request.param]
    found.skip_if_missing()
    return found


RANDOM = np.random.default_rng(7)


def weights(*dims: int) -> tf.Tensor:
    return tf.constant(RANDOM.normal(size=dims) / np.sqrt(np.prod(dims[:-1])), tf.float32)


KERNEL, DEPTHWISE, DENSE, RECURRENT = (
    weights(3, 3, 2, 5),
    weights(3, 3, 5, 1),
    weights(80, 7),
    weights(14, 28),
)
TABLE = weights(11, 7)


def network(images: tf.Tensor, words: tf.Tensor) -> Any:
    """A convolution, a depthwise one, pooling, a dense layer, an LSTM step over embedded words, attention."""
    x = tf.nn.relu(tf.nn.conv2d(images, KERNEL, 1, "SAME") + 0.1)
    x = tf.nn.relu6(tf.nn.depthwise_conv2d(x, DEPTHWISE, [1, 1, 1, 1], "SAME"))
    x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), [1, -1])
    classes = tf.nn.softmax(x @ DENSE)
    embedded = tf.gather(TABLE, words)
    h = c = tf.zeros([1, 7])
    for k in range(3):
        i, f, g, o = tf.split(tf.concat([embedded[:, k], h], 1) @ RECURRENT, 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
    rows = embedded[0]
    attended = tf.nn.softmax(tf.matmul(rows, rows, transpose_b=True) * 0.37) @ rows
    return classes, tf.argmax(classes, 1), h, attended


MIXING, SEPARATE, LAST = weights(1, 1, 5, 12), weights(3, 3, 12, 1), weights(192, 6)


def classifier(images: tf.Tensor) -> tf.Tensor:
    """Convolutions of all kinds, a residual sum, pooling and a dense layer, to be quantised."""
    x = tf.nn.relu(tf.nn.conv2d(images, KERNEL, 1, "SAME") + 0.1)
    x = tf.nn.relu6(tf.nn.conv2d(x, MIXING, 1, "SAME") - 0.2)
    x = tf.nn.depthwise_conv2d(x, SEPARATE, [1, 1, 1, 1], "SAME") + x
    x = tf.nn.max_pool2d(tf.nn.tanh(x), 2, 2, "VALID")
    return tf.reshape(x, [2, -1]) @ LAST


def recurrent(frames: tf.Tensor) -> tf.Tensor:
    """An LSTM in a loop, and a dense layer."""
    first = tf.zeros([1, 7])

    def step(number: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, ...]:
        i, f, g, o = tf.split(tf.concat([frames[number], h], 1) @ RECURRENT, 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return number + 1, tf.sigmoid(o) * tf.tanh(c), c

    _, h, c = tf.while_loop(lambda number, *_: number < 6, step, (0, first, first))
    return tf.concat([h, c], 1) @ RECURRENT


def elements(x: tf.Tensor, d: tf.Tensor, n: tf.Tensor, m: tf.Tensor, h: tf.Tensor) -> Any:
    """Functions of one element, types, sorting, integers with and without a sign."""
    return (
        tf.exp(x) + tf.math.log1p(tf.abs(x)) + tf.sqrt(tf.abs(x)) + tf.math.rsqrt(tf.abs(x) + 0.5),
        tf.tanh(x)
        + tf.nn.gelu(x)
        + tf.math.erf(x)
        + tf.round(x * 3.0)
        + tf.floor(x * 5.0)
        + tf.math.floormod(x, 0.7),
        tf.cast(x * 100.0, tf.int8),
        tf.cast(x, tf.bfloat16) * tf.cast(3.0, tf.bfloat16),
        d * d + tf.exp(d) / (tf.abs(d) + 0.25),
        n * 1_000_003 // (n + 3) + tf.bitwise.left_shift(n, n) - n % 7,
        tf.cast(m, tf.float32) * x[: m.shape[0]],
        h * h + tf.cast(1.5, tf.float16),
        tf.sort(x),
        tf.math.top_k(x, 3).indices,
        tf.reduce_sum(x),
        tf.cumsum(d),
        tf.complex(x, x * 2.0) * tf.complex(x, 1.0 - x),
        x > 0.0,
    )


class Streaming(tf.Module):
    """A recurrent cell, a cache of its last results, a counter, and a variable that is written before it is read."""

    def __init__(self) -> None:
        self.hidden = tf.Variable(weights(1, 7), name="hidden")
        self.cache = tf.Variable(tf.zeros((5, 7)), name="cache")
        self.last = tf.Variable(tf.zeros((1, 3)), name="last")
        self.steps = tf.Variable(0, dtype=tf.int64, name="steps")
        self.weights = tf.Variable(weights(10, 7))

    def step(self, x: tf.Tensor) -> Any:
        self.last.assign(x * 2.0)
        hidden = tf.tanh(tf.concat([x, self.hidden], 1) @ self.weights)
        self.hidden.assign(hidden)
        self.cache.assign(tf.concat([self.cache[1:], hidden], 0))
        self.steps.assign_add(1)
        if self.steps % 2 == 0:
            self.last.assign(self.last * 0.5)
        attended = tf.nn.softmax(self.cache @ tf.transpose(hidden), 0) * self.cache
        return hidden, self.steps.read_value(), tf.reduce_sum(attended, 0), self.last + 1.0

    @tf.function(input_signature=[])
    def newest(self) -> Any:
        return self.cache[-1] + self.hidden, self.steps + 1


STREAMING = Streaming()


def varying(images: tf.Tensor, words: tf.Tensor) -> Any:
    """Images of a batch that changes, and attention over a number of words that does."""
    x = tf.nn.relu(tf.nn.conv2d(images, KERNEL, 1, "SAME") + 0.1)
    classes = tf.nn.softmax(tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), [-1, 80]) @ DENSE)
    rows = tf.gather(TABLE, words)
    attended = tf.nn.softmax(tf.matmul(rows, rows, transpose_b=True) * 0.37) @ rows
    return classes, attended, tf.cumsum(rows), tf.sort(rows, 0)


PROGRAMS = {
    "streaming": ({"step": (STREAMING.step, tf.TensorSpec((1, 3))), "newest": STREAMING.newest}, ()),
    "classifier": (
        classifier,
        (tf.TensorSpec((2, 8, 8, 2)),),
    ),
    "recurrent": (recurrent, (tf.TensorSpec((6, 1, 7), tf.float32, "frames"),)),
    "weights-of-4-bits": (
        lambda x, y: (classifier(x), recurrent(y)),
        (tf.TensorSpec((2, 8, 8, 2)), tf.TensorSpec((6, 1, 7))),
    ),
    "network": (network, (tf.TensorSpec((1, 8, 8, 2)), tf.TensorSpec((1, 3), tf.int32))),
    "varying": (varying, (tf.TensorSpec((None, 8, 8, 2)), tf.TensorSpec((None,), tf.int32))),
    "elements": (
        elements,
        (
            tf.TensorSpec((13,)),
            tf.TensorSpec((5,), tf.float64),
            tf.TensorSpec((6,), tf.int64),
            tf.TensorSpec((9,), tf.uint8),
            tf.TensorSpec((7,), tf.float16),
        ),
    ),
}


OPTIONS = {
    "varying": {"feeds": {"arg0": "?<=2x8x8x2", "arg1": "?<=5"}},
    "classifier": {
        "quantize": "int8",
        "calibration": {"images": RANDOM.normal(size=(64, 8, 8, 2)).astype(np.float32)},
    },
    "recurrent": {
        "quantize": "int8",
        "calibration": {"frames": RANDOM.normal(size=(60, 1, 7)).astype(np.float32)},
    },
    "weights-of-4-bits": {"quantize": "int4-weights", "block_size": 32},
}


def run_test(
    machine: Machine, folder: Path, function: Any, specs: Sequence[tf.TensorSpec], **options: Any
) -> None:
    """Compiles a function for a machine, links it with its test, and runs that."""
    made = tfbridge.aot.compile(
        function,
        *specs,
        name="model",
        out_dir=folder,
        target_triple=machine.triple,
        target_cpu=machine.cpu,
        target_features=machine.features,
        cpu_levels=machine.levels,
        extras=["test"],
        **options,
    )
    program = folder / "program.exe"
    command = [*machine.link, *STRICT, *made.extra_files, made.object_file, *machine.libraries, "-o", program]
    linked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert linked.returncode == 0, linked.stderr[-600:]
    finished = subprocess.run(
        [*machine.run, program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"WINEPREFIX": str(folder.parent / "wine"), "WINEDEBUG": "-all"},
    )
    if "decode_save_opc" in finished.stderr:
        pytest.skip("this emulator ends at an instruction of RISC-V's vectors: vfcvt.rtz")
    assert finished.returncode == 0, (finished.returncode, finished.stdout, finished.stderr)


@pytest.mark.parametrize(
    "triple, compiler, emulator, old, levels",
    [
        ("x86_64-linux-gnu", "gcc", "x86_64", "Nehalem", ["v3", "v4"]),
        ("aarch64-linux-gnu", "aarch64-linux-gnu-gcc", "aarch64", "cortex-a53", ["v8.2"]),
    ],
)
def test_processors_below_all_levels(
    triple: str, compiler: str, emulator: str, old: str, levels: list[str], tmp_path: Path
) -> None:
    """Runs are refused with a message, before an instruction that the processor lacks."""
    Machine(triple, link=(compiler,), run=(f"qemu-{emulator}",)).skip_if_missing()
    made = tfbridge.aot.compile(
        lambda x: x @ DENSE,
        tf.TensorSpec((3, 80)),
        name="model",
        out_dir=tmp_path,
        target_triple=triple,
        cpu_levels=levels,
        extras=["test"],
    )
    program = tmp_path / "program"
    command = [compiler, "-static", *made.extra_files, made.object_file, "-lm", "-o", program]
    subprocess.run(command, check=True)
    emulated = [f"qemu-{emulator}", "-cpu", old, program]
    finished = subprocess.run(emulated, capture_output=True, text=True, check=False)
    assert f"less than the lowest level of the code, {levels[0]}" in finished.stdout
    assert finished.returncode > 0  # not a signal


def test_levels_that_cannot_be(tmp_path: Path) -> None:
    for expected, options in {
        "armv7a has none; x86_64, ": {"target_triple": "armv7a-linux-gnueabihf", "cpu_levels": ["v2"]},
        "'v9' is none of v1, v2, v3, v4, v4-vnni": {
            "target_triple": "x86_64-linux-gnu",
            "cpu_levels": ["v9"],
        },
        "one or several different ones": {"target_triple": "x86_64-linux-gnu", "cpu_levels": ["v2", "v2"]},
        "cannot ask the processor": {"target_triple": "arm64-apple-ios17", "cpu_levels": ["v8.0"]},
        "each is a CPU with its features": {"target_cpu": "haswell", "cpu_levels": ["v2"]},
    }.items():
        with pytest.raises(ValueError, match=expected):
            tfbridge.aot.compile(lambda x: x * 2, tf.TensorSpec((3,)), name="m", out_dir=tmp_path, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_numbers(machine: Machine, name: str, tmp_path: Path) -> None:
    run_test(machine, tmp_path, *PROGRAMS[name], **OPTIONS.get(name, {}))


@pytest.mark.parametrize(
    "triple, begins",
    [
        ("arm64-apple-ios17.0", b"\xcf\xfa\xed\xfe"),
        ("x86_64-apple-macosx13", b"\xcf\xfa\xed\xfe"),
        ("arm64_32-apple-watchos", b"\xce\xfa\xed\xfe"),
        ("aarch64-linux-android26", b"\x7fELF"),
        ("armv7a-linux-androideabi26", b"\x7fELF"),
        ("aarch64-pc-windows-msvc", b"\x64\xaa"),
        ("wasm32-wasi", b"\0asm"),
    ],
)
def test_form_of_objects_that_nothing_here_runs(triple: str, begins: bytes, tmp_path: Path) -> None:
    function, specs = PROGRAMS["network"]
    made = tfbridge.aot.compile(function, *specs, name="model", out_dir=tmp_path, target_triple=triple)
    data = made.object_file.read_bytes()
    assert data.startswith(begins)
    opened = llvm.ObjectFileRef.from_data(data)
    assert any(DENSE.numpy().tobytes() in section.data() for section in opened.sections())
