"""Compiles modules in a process of its own: calls of the program do not wait for the interpreter's lock meanwhile.

The process is started by the first module. Where none can be started, or the first one dies, callers compile
themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pickle
import struct
import sys
from typing import Any

from ...runtime import process_defaults
from ...runtime.code.artifact import Artifact
from ...runtime.code.worker_pool import CompileWorkers, ProcessWorkers
from ...runtime.errors import CompileCrash
from ...runtime.llvm.target import Target
from ...runtime.threads import background, cpu_clock
from ..ir.module import Computation, Instruction, Module
from ..options import Options
from .compile import compile_module

_NICENESS = 5  # of code in the place of other code. The share bounds what all code takes.
_SECONDS = struct.Struct("<d")

_process_workers = ProcessWorkers(lambda: CompileWorkers(1))
_has_answered = _is_broken = False


def is_available() -> bool:
    """Whether there is a worker, or one may be started: a program that embeds Python cannot be started as one."""
    return not _is_broken and "python" in os.path.basename(sys.executable or "").lower()


def compile(module: Module, options: Options, target: Target) -> Artifact | None:
    """The artifact of a module, without fingerprint; None when no worker starts.

    Raises: what `compile_module` raises; CompileCrash  a worker that has served before died. SystemExit  the
        interpreter ends, and its workers with it.
    """
    global _has_answered, _is_broken
    workers = _process_workers.get()
    plain = Options(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Options)})
    niceness = 0 if background.is_urgent_here() else _NICENESS  # a busy machine would get its first code late
    if sys.platform == "linux":
        niceness += os.getpriority(os.PRIO_PROCESS, 0)
    job = workers.submit(__name__, compile_bytes.__name__, module_bytes(module), plain, target, niceness)
    try:
        answer = job.result()
    except CompileCrash:
        if workers.is_closed:
            raise SystemExit from None
        _is_broken = not _has_answered
        if _is_broken:
            return None
        raise
    _has_answered = True
    cpu_clock.add(*_SECONDS.unpack_from(answer))
    return Artifact.from_bytes(answer[_SECONDS.size :])


def compile_bytes(data: bytes, options: Options, target: Target, niceness: int) -> bytes:
    """In the worker: the CPU seconds of a compilation, and the bytes of its artifact."""
    process_defaults.process.compile_workers = False
    _set_niceness(niceness)
    before = os.times()
    artifact = compile_module(module_of_bytes(data), options, target)
    after = os.times()
    return _SECONDS.pack(after.user + after.system - before.user - before.system) + artifact.to_bytes()


def _set_niceness(niceness: int) -> None:
    """Sets the priority of this process's threads, on Linux. Without the right to raise it a lower one stays."""
    if sys.platform == "linux":
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, int(thread), niceness)


# -- a module as bytes: a pickle of lists, for graphs are deeper than pickle's recursion


class _Pickler(pickle.Pickler):
    """Writes one computation after another; those that ops call by number."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.numbers: dict[Computation, int] = {}

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Computation):
            return _Called, (self.numbers[value],)
        return NotImplemented


class _Called:
    """In the place of a computation that an op calls."""

    def __init__(self, number: int) -> None:
        self.number = number


def module_bytes(module: Module) -> bytes:
    """A module for `module_of_bytes` of a process of the same sources."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    computations = module.computations()
    pickler.dump(len(computations))
    for number, computation in enumerate(computations):
        position = {instruction: k for k, instruction in enumerate(computation.instructions)}
        rows = [
            (i.op, [position[o] for o in i.operands], i.shape, i.name, i.metadata)
            for i in computation.instructions
        ]
        ends = [[position[i] for i in group] for group in (computation.parameters, computation.effects())]
        pickler.dump((computation.name, rows, position[computation.root], *ends))
        pickler.numbers[computation] = number
    pickler.dump(
        (
            module.name,
            module.attributes,
            module.input_output_aliases,
            module.invariant_parameters,
            module.sized_results,
        )
    )
    return file.getvalue()


def module_of_bytes(data: bytes) -> Module:
    """The module that `module_bytes` wrote."""
    unpickler = pickle.Unpickler(io.BytesIO(data))
    computations: list[Computation] = []
    for _ in range(unpickler.load()):
        name, rows, root, parameters, effects = unpickler.load()
        instructions: list[Instruction] = []
        for op, operands, *rest in rows:
            called = {
                field: [computations[c.number] for c in value] if is_list else computations[value.number]
                for field, is_list in op.calling.items()
                if (value := getattr(op, field)) is not None
            }
            if called:
                op = dataclasses.replace(
                    op, **{k: tuple(v) if isinstance(v, list) else v for k, v in called.items()}
                )
            instructions.append(Instruction(op, tuple(instructions[k] for k in operands), *rest))
        computations.append(
            Computation(
                name,
                instructions[root],
                [instructions[k] for k in parameters],
                [instructions[k] for k in effects],
            )
        )
    name, attributes, aliases, invariant, sized = unpickler.load()
    return Module(
        name,
        computations[-1],
        attributes,
        input_output_aliases=aliases,
        invariant_parameters=invariant,
        sized_results=sized,
    )
