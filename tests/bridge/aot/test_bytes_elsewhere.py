"""Products and lookups of bytes on other machines: many functions in one object, integers equal to those of the ops'
references."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from test_targets import MACHINES, Machine
from tfbridge.bridge.aot.freeze import Frozen, Function
from tfbridge.bridge.aot.model_code import build_model
from tfbridge.bridge.aot.writers.export import Export
from tfbridge.bridge.aot.writers.files import write_files
from tfbridge.bridge.aot.writers.header.header import C_TYPES, write_header
from tfbridge.bridge.aot.writers.model import Reference
from tfbridge.bridge.aot.writers.test_program import array_definition
from tfbridge.compiler.client.platforms import native
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.ir.module import Module

TYPES = list(itertools.product(("u8", "s8"), repeat=2))
# m, n, k: single ones, odd ones, whole vectors and parts of them, sums that are no whole quads.
DOTS = [
    (1, 1, 4),
    (1, 13, 64),
    (1, 6, 20),
    (2, 2, 16),
    (3, 5, 8),
    (5, 9, 52),
    (7, 4, 100),
    (4, 1, 36),
    (6, 11, 132),
    (2, 6, 7),
    (3, 3, 1),
]
# height and width, window, stride, padding, dilation of the window, input and output features.
CONVOLUTIONS = [
    (5, 6, 3, 1, 1, 1, 4, 5),
    (7, 5, 3, 2, 1, 1, 16, 3),
    (6, 6, 5, 1, 2, 1, 8, 2),
    (5, 7, 3, 1, 0, 1, 20, 7),
    (6, 7, 3, 1, 2, 2, 12, 4),
    (5, 5, 1, 2, 0, 1, 8, 3),
    (4, 3, 3, 1, 1, 1, 64, 2),
    (5, 4, 3, 1, 1, 1, 3, 4),
    (1, 9, 3, 1, 1, 1, 36, 1),
]
DEPTHWISE = [(5, 6, 3, 1, 1, 16), (7, 5, 3, 2, 1, 5), (6, 6, 5, 1, 2, 12), (3, 3, 3, 1, 1, 1)]
_Given = tuple[Module, list[np.ndarray]]


def _bytes(random: np.random.Generator, kind: str, *dims: int) -> np.ndarray:
    """Any bytes, the extreme ones often."""
    dtype = {"u8": np.uint8, "s8": np.int8}[kind]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = random.integers(low, high + 1, dims)
    return np.where(random.random(dims) < 0.3, random.choice([low, high], dims), values).astype(dtype)


def _module(result: str, parameters: Sequence[str], lines: str) -> Module:
    given = "\n".join(f"  p{k} = {shape} parameter({k})" for k, shape in enumerate(parameters))
    return parse_hlo(f"HloModule m\nENTRY e {{\n{given}\n  {lines.replace('ROOT', f'ROOT r = {result}')}\n}}")


def _given(random: np.random.Generator, module: Module) -> _Given:
    arrays = []
    for shape in module.entry.parameter_shapes:
        if shape.element_type.is_float:
            arrays.append(random.normal(size=shape.dims).astype(np.float32))
        else:
            arrays.append(_bytes(random, shape.element_type.value, *shape.dims))
    return module, arrays


def dots(a: str, b: str) -> list[Module]:
    made = [
        _module(
            f"s32[{m},{n}]",
            (f"{a}[{m},{k}]", f"{b}[{n},{k}]"),
            "ROOT dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        )
        for m, n, k in DOTS
    ]
    batched = _module(
        "s32[2,5,6]",
        (f"{a}[2,5,24]", f"{b}[2,6,24]"),
        "ROOT dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
        "rhs_contracting_dims={2}",
    )
    return [*made, batched]


def convolutions(a: str, b: str, order: str) -> list[Module]:
    """Kernels in the order of the axes of some labels: `01oi`, `o01i`."""
    made = []
    for h, w, size, stride, pad, dilation, c, o in CONVOLUTIONS:
        sizes = {"0": size, "1": size, "o": o, "i": c}
        reach = (size - 1) * dilation + 1
        dims = [(length + 2 * pad - reach) // stride + 1 for length in (h, w)]
        made.append(
            _module(
                f"s32[2,{dims[0]},{dims[1]},{o}]",
                (f"{a}[2,{h},{w},{c}]", f"{b}[{','.join(str(sizes[axis]) for axis in order)}]"),
                f"ROOT convolution(p0, p1), window={{size={size}x{size} stride={stride}x{stride} "
                f"pad={pad}_{pad}x{pad}_{pad} rhs_dilate={dilation}x{dilation}}}, dim_labels=b01f_{order}->b01f",
            )
        )
    grouped = _module(
        "s32[1,5,6,6]",
        (f"{a}[1,5,6,24]", f"{b}[3,3,6,12]"),
        "ROOT convolution(p0, p1), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01oi->b01f, "
        "feature_group_count=2",
    )
    with_holes = _module(
        "s32[1,9,7,3]",
        (f"{a}[1,4,3,8]", f"{b}[3,3,3,8]"),
        "ROOT convolution(p0, p1), window={size=3x3 pad=2_2x2_2 lhs_dilate=2x2}, dim_labels=b01f_01oi->b01f",
    )
    return [*made, grouped, with_holes]


def depthwise(a: str, b: str) -> list[Module]:
    made = []
    for h, w, size, stride, pad, c in DEPTHWISE:
        dims = [(length + 2 * pad - size) // stride + 1 for length in (h, w)]
        made.append(
            _module(
                f"s32[1,{dims[0]},{dims[1]},{c}]",
                (f"{a}[1,{h},{w},{c}]", f"{b}[{size},{size},1,{c}]"),
                f"ROOT convolution(p0, p1), window={{size={size}x{size} stride={stride}x{stride} "
                f"pad={pad}_{pad}x{pad}_{pad}}}, dim_labels=b01f_01io->b01f, feature_group_count={c}",
            )
        )
    return made


def with_epilogues(a: str, b: str) -> list[Module]:
    """The next layer's bytes are all that is kept of the sums, which then lie in a window of a few rows."""

    def ending(dims: str, result: str) -> str:
        return (
            f"f = f32[{dims}] convert(d)\n  s = f32[{dims}] broadcast(p2), dimensions={{FEATURES}}\n"
            f"  t = f32[{dims}] multiply(f, s)\n  {result}"
        )

    made = []
    for kind in ("s8", "u8"):
        for m, n, k in ((37, 6, 20), (5, 64, 16), (9, 1, 24)):
            tail = ending(f"{m},{n}", "ROOT convert(t)").replace("FEATURES", "1")
            made.append(
                _module(
                    f"{kind}[{m},{n}]",
                    (f"{a}[{m},{k}]", f"{b}[{n},{k}]", f"f32[{n}]"),
                    f"d = s32[{m},{n}] dot(p0, p1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}\n  {tail}",
                )
            )
        tail = ending("2,7,6,5", "ROOT convert(t)").replace("FEATURES", "3")
        made.append(
            _module(
                f"{kind}[2,7,6,5]",
                (f"{a}[2,7,6,8]", f"{b}[5,3,3,8]", "f32[5]"),
                "d = s32[2,7,6,5] convolution(p0, p1), window={size=3x3 pad=1_1x1_1}, "
                f"dim_labels=b01f_o01i->b01f\n  {tail}",
            )
        )
    return made


def lookups(a: str, b: str) -> list[Module]:
    """Lookups alone, of parts of vectors and of many, and between numbers of other types; functions that become
    tables."""
    entries = np.random.default_rng(7).integers(0, 256, 256) - (128 if b == "s8" else 0)
    table = f"table={{{','.join(map(str, entries))}}}"
    made = [_module(f"{b}[{n}]", (f"{a}[{n}]",), f"ROOT table-lookup(p0), {table}") for n in (1, 15, 64, 301)]
    wide = (
        f"l = {b}[67] table-lookup(p0), {table}\n  f = f32[67] convert(l)\n  m = f32[67] multiply(f, p1)\n  "
        "ROOT convert(m)"
    )
    function = (
        "x = f32[2000] convert(p0)\n  c = f32[] constant(0.25)\n  cs = f32[2000] broadcast(c), dimensions={}\n"
        "  y = f32[2000] multiply(x, cs)\n  z = f32[2000] divide(y, x)\n  s = f32[2000] sqrt(y)\n"
        "  t = f32[2000] multiply(s, s)\n  u = f32[2000] divide(t, cs)\n  v = f32[2000] divide(u, cs)\n"
        "  w = f32[2000] add(v, z)\n  ROOT convert(w)"
    )
    return [
        *made,
        _module(f"{a}[67]", (f"{a}[67]", "f32[67]"), wide),
        _module(f"{b}[2000]", (f"{a}[2000]",), function),
    ]


def program(given: Sequence[_Given]) -> str:
    """Runs all functions on their arguments; its status is the number of the first one with another result, from 1."""
    data, steps = [], []
    for number, (module, arrays) in enumerate(given):
        wanted = np.asarray(evaluate(module.entry, arrays))
        for k, array in enumerate((*arrays, wanted)):
            data.append(array_definition(C_TYPES[array.dtype.name], f"d{number}_{k}", array))
            if k < len(arrays):
                steps.append(
                    f"COPY(bytes_f{number}_arg{k}(&model), d{number}_{k}.values, sizeof d{number}_{k});"
                )
        last = f"d{number}_{len(arrays)}"
        steps.append(f"if (bytes_f{number}_run(&model)) return 255;")
        steps.append(
            f"if (differs(bytes_f{number}_result0(&model), {last}.values, sizeof {last})) return {number + 1};"
        )
    lines = "\n".join(steps)
    return f"""#include "bytes.h"
static bytes_model model;
static char memory[BYTES_MEMORY_BYTES];
static int differs(const void *a, const void *b, unsigned long n) {{
    const char *x = a, *y = b;
    while (n--) if (*x++ != *y++) return 1;
    return 0;
}}
static void COPY(void *to, const void *from, unsigned long n) {{
    char *t = to;
    const char *f = from;
    while (n--) *t++ = *f++;
}}
{chr(10).join(data)}
int main(void) {{
    bytes_init(&model, memory);
{lines}
    return 0;
}}
"""


def check(machine: Machine, modules: Sequence[Module], folder: Path, is_small: bool = False) -> None:
    random = np.random.default_rng(3)
    given = [_given(random, module) for module in modules]
    functions = tuple(
        Function(f"f{k}", m, ("",) * len(m.entry.parameters), ("",), (), (), lambda *_: [])
        for k, (m, _) in enumerate(given)
    )
    target = native().named_target(machine.triple, machine.cpu, machine.features)
    if is_small:
        target = dataclasses.replace(target, is_small=True)
    model, data, constants = build_model(
        Frozen("bytes", functions, ()), "bytes", "Bytes", [(target, None)], 1, "object"
    )
    export = Export(model, data, constants, write_header(model), target, Reference([], None), folder)
    made = write_files(export)
    (folder / "main.c").write_text(program(given))
    command = [*machine.link, "-std=gnu99", folder / "main.c", made.object_file, *machine.libraries]
    linked = subprocess.run([*command, "-o", folder / "p"], capture_output=True, text=True, check=False)
    assert linked.returncode == 0, linked.stderr[-600:]
    ran = subprocess.run(
        [*machine.run, folder / "p"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, (
        str(modules[ran.returncode - 1]) if ran.returncode <= len(modules) else ran.stderr
    )


def of_all_kinds(a: str, b: str) -> list[Module]:
    return [*dots(a, b), *convolutions(a, b, "01oi"), *depthwise(a, b), *with_epilogues(a, b)]


@pytest.mark.parametrize("name", ["cortex-m4", "cortex-m3", "wasm32-simd", "aarch64-i8mm"])
def test_same_integers(name: str, tmp_path: Path) -> None:
    machine = MACHINES[name]
    machine.skip_if_missing()
    for a in ("s8", "u8"):
        check(machine, of_all_kinds(a, "s8"), tmp_path / a)


@pytest.mark.parametrize(("a", "b"), TYPES)
def test_vectors_that_are_summed_whole(a: str, b: str, tmp_path: Path) -> None:
    machine = MACHINES["cortex-m55"]
    machine.skip_if_missing()
    check(machine, [*of_all_kinds(a, b), *convolutions(a, b, "o01i")], tmp_path)


def test_small_code_for_vectors_that_are_summed_whole(tmp_path: Path) -> None:
    machine = MACHINES["cortex-m55"]
    machine.skip_if_missing()
    check(machine, [*of_all_kinds("s8", "s8"), *convolutions("s8", "s8", "o01i")], tmp_path, is_small=True)


@pytest.mark.parametrize(
    "name",
    ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "cortex-m4", "cortex-m55", "wasm32-simd", "aarch64"],
)
def test_lookups_of_bytes(name: str, tmp_path: Path) -> None:
    machine = MACHINES[name]
    machine.skip_if_missing()
    check(machine, [module for a, b in TYPES for module in lookups(a, b)], tmp_path)
