"""Rows of the table of ops, compiled for other machines: many functions in one object, against the evaluator."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from agreement import difference, leaves
from cases import CASES, Case, Input, arguments, build
from narrow_values import FLOATS, every, wide_values
from test_targets import MACHINES, Machine
from tfbridge.bridge.aot.freeze import Frozen, Function
from tfbridge.bridge.aot.model_code import build_model
from tfbridge.bridge.aot.writers.export import Export
from tfbridge.bridge.aot.writers.files import write_files
from tfbridge.bridge.aot.writers.header.header import C_TYPES, write_header
from tfbridge.bridge.aot.writers.model import Model, Reference
from tfbridge.bridge.aot.writers.test_program import array_definition
from tfbridge.compiler.client.platforms import native
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.ir.element_types import ElementType, element_type_of
from tfbridge.compiler.ir.module import Module
from tfbridge.compiler.ir.shape import Shape
from tfbridge.compiler.ops import Convert, CustomCall, Rng
from tfbridge.compiler.ops.collectives import Collective
from tfbridge.compiler.ops.transfers import Infeed, Outfeed, Recv, RecvDone, Send, SendDone, Trace

_LEFT_OUT = (Collective, CustomCall, Infeed, Outfeed, Recv, RecvDone, Rng, Send, SendDone, Trace)
_OF_THE_C_LIBRARY = {"remainder-f64"}  # whose fmod does not flush denormals
_ZERO_OF_EITHER_SIGN = {"maximum", "minimum", "clamp"}  # of 0 and -0, as the processor has it
_STEP, _PER_OBJECT = 16, 40
# As the evaluator, which flushes denormals.
_FLUSHING = """
#if defined __i386__ || defined __x86_64__
#include <xmmintrin.h>
#define FLUSH _mm_setcsr(_mm_getcsr() | 0x8040)
#elif defined __arm__
#define FLUSH __asm__ volatile("vmrs r0, fpscr\\n orr r0, r0, #0x1000000\\n vmsr fpscr, r0" ::: "r0")
#else
#define FLUSH __asm__ volatile("mrs x0, fpcr\\n orr x0, x0, #0x1000000\\n msr fpcr, x0" ::: "x0")
#endif
"""
_Row = tuple[Case, Module, list[np.ndarray]]


def _without_signs_of_zero(x: np.ndarray) -> np.ndarray:
    """Numbers below the normal ones of f32, of which it is open which of two is larger, count as zero."""
    is_flushed = x.dtype in (np.float32, np.float64, ml_dtypes.bfloat16)
    return np.where(abs(x) < 2.0**-126 if is_flushed else x == 0, np.zeros((), x.dtype), x)


def rows(first: int) -> list[_Row]:
    """Every sixteenth row that is arrays alone, with arguments."""
    random = np.random.default_rng(first)
    found = []
    for case in [c for c in CASES if not isinstance(c.op, _LEFT_OUT) and not c.counted][first::_STEP]:
        module = build(case)
        shapes = [*module.entry.root.shape.leaves()]
        if case.name not in _OF_THE_C_LIBRARY and all(s.is_array and not s.is_dynamic for s in shapes):
            found.append((case, module, arguments(case, random)))
    return found


def program(model: Model, given: Sequence[_Row]) -> str:
    """Runs all functions on their arguments, and writes status and results of each."""
    data, steps = [], []
    for entry, (_, _, arrays) in zip(model.entries, given, strict=True):
        call = model.call(entry)
        for k, (spec, array) in enumerate(zip(entry.arguments, arrays, strict=True)):
            if array.size:
                data.append(array_definition(C_TYPES[spec.dtype], f"in_{call}_{k}", array))
                steps.append(f"memcpy({call}_arg{k}(model), in_{call}_{k}.values, sizeof in_{call}_{k});")
        steps.append(f"status = {call}_run(model); fwrite(&status, 4, 1, stdout);")
        steps += [
            f"fwrite({call}_result{k}(model), 1, {s.bytes}, stdout);" for k, s in enumerate(entry.results)
        ]
    lines = "\n".join(steps)
    return (
        f'#include <stdio.h>\n#include "ops.h"\n{_FLUSHING}\n' + "\n".join(data) + "\n"
        f"int main(void) {{\nint status;\nops_model *model = ops_new();\nFLUSH;\n{lines}\nreturn 0;\n}}\n"
    )


def check(machine: Machine, given: Sequence[_Row], folder: Path) -> None:
    functions = tuple(
        Function(
            f"f{k}",
            module,
            ("",) * len(module.entry.parameters),
            ("",) * len([*module.entry.root.shape.leaves()]),
            (),
            (),
            lambda *_: [],
        )
        for k, (_, module, _) in enumerate(given)
    )
    target = native().named_target(machine.triple, machine.cpu, machine.features)
    model, data, constants = build_model(
        Frozen("ops", functions, ()), "ops", "Ops", [(target, None)], 1, "object"
    )
    reference = Reference([], None)
    made = write_files(Export(model, data, constants, write_header(model), target, reference, folder))
    (folder / "main.c").write_text(program(model, given))
    sse = ["-msse2"] if machine.triple.startswith("i686") else []
    command = [*machine.link, "-std=gnu99", *sse, folder / "main.c", made.object_file, *machine.libraries]
    linked = subprocess.run([*command, "-o", folder / "p"], capture_output=True, text=True, check=False)
    assert linked.returncode == 0, linked.stderr[-600:]
    ran = subprocess.run([*machine.run, folder / "p"], capture_output=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr[-600:]
    at = 0
    for entry, (case, module, arrays) in zip(model.entries, given, strict=True):
        assert ran.stdout[at : at + 4] == bytes(4), case.name
        at += 4
        for spec, wanted in zip(entry.results, leaves(evaluate(module.entry, arrays)), strict=True):
            wanted = np.asarray(wanted)
            found = np.frombuffer(ran.stdout[at : at + spec.bytes], wanted.dtype).reshape(spec.dims)
            at += spec.bytes
            if case.op.opcode in _ZERO_OF_EITHER_SIGN:
                found, wanted = (_without_signs_of_zero(x) for x in (found, wanted))
            assert not difference(found, wanted, case.ulps, case.scale), case.name


@pytest.mark.parametrize("number, name", list(enumerate(["x86-64", "i686", "aarch64", "armv7"])))
def test_same_as_the_evaluator(number: int, name: str, tmp_path: Path) -> None:
    machine = MACHINES[name]
    machine.skip_if_missing()
    given = rows(4 * number)
    assert len(given) > 100
    for first in range(0, len(given), _PER_OBJECT):
        check(machine, given[first : first + _PER_OBJECT], tmp_path / str(first))


@pytest.mark.parametrize("name", ["aarch64", "armv7"])
def test_conversions_of_narrow_floats(name: str, tmp_path: Path) -> None:
    """All numbers of 8 bits and fewer to f32, and numbers of f32 beside those to which they are rounded."""
    machine = MACHINES[name]
    machine.skip_if_missing()
    given = []
    for t in FLOATS:
        for new, values in ((ElementType.F32, every(t)), (t, wide_values(ElementType.F32)[::5])):
            operand = Input(Shape(element_type_of(values.dtype), values.shape))
            case = Case(f"{operand.shape} to {new.value}", Convert(new), (operand,))
            given.append((case, build(case), [values]))
    check(machine, given, tmp_path)
