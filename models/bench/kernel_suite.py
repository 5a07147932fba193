"""The suite `kernels`: compiled kernels alone, as a share of what the machine can do.

Products of cubes and ResNet50's convolutions as a share of the peak of multiply-adds; elementwise operations and
reductions on arrays far larger than the caches as a share of the bandwidth of copies. The compiled code is called on
memory that is ready: neither TensorFlow nor the allocation of results counts.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ...compiler.analysis import hlo_cost_analysis
from ...compiler.builder.computation_builder import ComputationBuilder
from ...compiler.cpu import machine_peak as peak
from ...compiler.cpu.compile import compile_module
from ...compiler.ir.module import Module
from ...compiler.ir.shape import Shape, array
from ...compiler.ops import ConvolutionDims
from ...compiler.options import Options
from ...runtime.code.executable import Executable
from .output import publish
from .worker import limit_threads

SAMPLE_SECONDS = 0.5
Build = Callable[[ComputationBuilder], object]

# (spatial size, input features, output features, kernel, stride): ResNet50's distinct convolutions but for its stem.
_CONVOLUTIONS = (
    (56, 64, 64, 1, 1),
    (56, 64, 256, 1, 1),
    (56, 256, 64, 1, 1),
    (56, 64, 64, 3, 1),
    (56, 256, 128, 1, 2),
    (56, 256, 512, 1, 2),
    (28, 128, 512, 1, 1),
    (28, 512, 128, 1, 1),
    (28, 128, 128, 3, 1),
    (28, 512, 256, 1, 2),
    (28, 512, 1024, 1, 2),
    (14, 256, 1024, 1, 1),
    (14, 1024, 256, 1, 1),
    (14, 256, 256, 3, 1),
    (14, 1024, 512, 1, 2),
    (14, 1024, 2048, 1, 2),
    (7, 512, 2048, 1, 1),
    (7, 2048, 512, 1, 1),
    (7, 512, 512, 3, 1),
)
_CHANNELS_LAST = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
_CUBES = (256, 384, 512, 768, 1024, 1536, 2048)
_LARGE = (8192, 8192)  # 256 MiB of f32


def _f32(*dims: int) -> Shape:
    return array("f32", *dims)


def _cube(n: int, b: ComputationBuilder) -> None:
    b.dot(b.parameter(0, _f32(n, n), "a"), b.parameter(1, _f32(n, n), "b"))


def _convolution(
    size: int, inputs: int, outputs: int, kernel: int, stride: int, b: ComputationBuilder
) -> None:
    low, high = (kernel - 1) // 2, kernel // 2
    image = b.parameter(0, _f32(1, size, size, inputs), "image")
    weights = b.parameter(1, _f32(kernel, kernel, inputs, outputs), "weights")
    b.conv_general_dilated(
        image, weights, (stride, stride), ((low, high), (low, high)), (1, 1), (1, 1), _CHANNELS_LAST
    )


def _elementwise(b: ComputationBuilder) -> None:
    x = b.parameter(0, _f32(*_LARGE), "x")
    b.max(b.add(b.mul(x, b.constant(np.float32(2))), b.constant(np.float32(1))), b.constant(np.float32(0)))


def _sum_of_two(b: ComputationBuilder) -> None:
    b.add(b.parameter(0, _f32(*_LARGE), "x"), b.parameter(1, _f32(*_LARGE), "y"))


def _reduce(axes: tuple[int, ...], b: ComputationBuilder) -> None:
    adder = ComputationBuilder("add")
    adder.add(adder.parameter(0, _f32(), "a"), adder.parameter(1, _f32(), "b"))
    b.reduce(b.parameter(0, _f32(*_LARGE), "x"), b.constant(np.float32(0)), adder.build(), axes)


@dataclasses.dataclass(frozen=True)
class Row:
    """A kernel, what limits it, and the group whose mean it counts in."""

    name: str
    group: str
    build: Build
    by_bytes: bool = False


def rows() -> Iterator[Row]:
    """All kernels of the suite."""
    for n in _CUBES:
        yield Row(f"product {n} x {n} x {n}", "products", partial(_cube, n))
    for size, inputs, outputs, kernel, stride in _CONVOLUTIONS:
        yield Row(
            f"convolution {kernel}x{kernel} {size}x{size} {inputs} -> {outputs} / {stride}",
            f"convolutions {kernel}x{kernel}",
            partial(_convolution, size, inputs, outputs, kernel, stride),
        )
    for name, build in (
        ("relu(2 x + 1)", _elementwise),
        ("x + y", _sum_of_two),
        ("sum of all", partial(_reduce, (0, 1))),
        ("sum over axis 0", partial(_reduce, (0,))),
        ("sum over axis 1", partial(_reduce, (1,))),
    ):
        yield Row(f"{name}, 8192 x 8192", "out of cache", build, by_bytes=True)


@dataclasses.dataclass(frozen=True)
class Result:
    """Units: seconds of the fastest call; flops or bytes per second of it, and of the machine's peak."""

    name: str
    group: str
    threads: int
    seconds: float
    speed: float
    peak: float

    @property
    def share(self) -> float:
        return self.speed / self.peak


def measure(threads: int) -> list[Result]:
    """Every kernel on `threads` threads, with the peaks measured in between, the highest of them counting."""
    limit_threads(threads)
    flops = bandwidth = 0.0
    times: list[tuple[Row, float, int]] = []
    for row in rows():
        if row.by_bytes:
            bandwidth = max(bandwidth, peak.copied_bytes_per_second(1 << 29, threads, samples=3))
        else:
            flops = max(flops, peak.flops_per_second(threads))
        times.append((row, *time_of(row, threads)))
    return [
        Result(row.name, row.group, threads, seconds, work / seconds, bandwidth if row.by_bytes else flops)
        for row, seconds, work in times
    ]


def time_of(row: Row, threads: int, sample_seconds: float = SAMPLE_SECONDS) -> tuple[float, int]:
    """Seconds of the fastest call, and the work of one in flops or bytes."""
    b = ComputationBuilder("kernel")
    row.build(b)
    module = Module("kernel", b.build())
    executable = Executable(compile_module(module, Options(threads=threads)), threads)
    random = np.random.default_rng(1)
    arguments = [
        random.standard_normal(spec.dims, dtype=np.float32) for spec in executable.artifact.parameters
    ]
    results = executable.execute(arguments)
    call = _caller(executable, arguments, results)
    seconds, end = np.inf, time.perf_counter() + sample_seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        seconds = min(seconds, time.perf_counter() - start)
    if row.by_bytes:
        return seconds, sum(a.nbytes for a in (*arguments, *results))
    return seconds, hlo_cost_analysis.flops(module.entry.root)


def _caller(
    executable: Executable, arguments: list[np.ndarray], results: list[np.ndarray]
) -> Callable[[], None]:
    """A call of the code on this memory."""

    def addresses(arrays: list[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
        return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))

    argument_addresses, result_addresses = addresses(arguments), addresses(results)
    return lambda: executable.run(ctypes.addressof(argument_addresses), ctypes.addressof(result_addresses))


def main(threads: int, as_json: bool, save: Path | None) -> int:
    """Measures on one thread and on `threads`, each in a process of its own, and prints."""
    results = [result for count in dict.fromkeys((1, threads)) for result in _in_process(count)]
    shares: dict[tuple[str, int], list[float]] = {}
    for result in results:
        shares.setdefault((result.group, result.threads), []).append(result.share)
    means = {key: statistics.mean(values) for key, values in shares.items()}
    report = {
        "kernels": [dataclasses.asdict(result) | {"share": result.share} for result in results],
        "means": [
            {"group": group, "threads": count, "share": mean} for (group, count), mean in means.items()
        ],
    }
    publish(report, lambda: _print_table(results, means), as_json, save)
    return 0


def _print_table(results: list[Result], means: dict[tuple[str, int], float]) -> None:
    counts = list(dict.fromkeys(result.threads for result in results))
    table = Table(
        "kernel",
        *(title for count in counts for title in (f"{count} threads\nG/s", "of peak")),
        title="kernels by themselves",
    )
    lines: dict[str, list[str]] = {}
    for result in results:
        lines.setdefault(result.name, []).extend((f"{result.speed / 1e9:.1f}", f"{result.share:.0%}"))
    for name, cells in lines.items():
        table.add_row(name, *cells)
    table.add_section()
    for group in dict.fromkeys(result.group for result in results):
        table.add_row(
            f"mean of {group}", *(cell for count in counts for cell in ("", f"{means[group, count]:.0%}"))
        )
    console = Console()
    console.width = max(console.width, 100)
    console.print(table)
    console.print(
        "G/s: 10^9 floating-point operations per second, out of cache: bytes read and written per second"
    )


def _in_process(threads: int) -> list[Result]:
    command = [sys.executable, "-m", "tfbridge.models.bench.kernel_suite", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [Result(**values) for values in json.loads(done.stdout.splitlines()[-1])]


if __name__ == "__main__":
    print(json.dumps([dataclasses.asdict(result) for result in measure(int(sys.argv[1]))]))
