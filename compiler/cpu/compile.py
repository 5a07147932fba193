"""Compiles a module for a CPU: passes, thunks and kernels, buffer assignment, entry code, LLVM, artifact."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from ...runtime.code.artifact import Artifact, BufferSpec, KernelRecord, prepacking_entry
from ...runtime.code.symbolic_sizes import SymbolicSizes
from ...runtime.llvm.ir_builder import ModuleText
from ...runtime.llvm.target import Target, host
from ...runtime.sizes import AnySize, Assumptions, Size, estimate, heuristic, maximum
from .. import budget
from ..analysis import hlo_cost_analysis
from ..analysis.quads import QUAD
from ..dump import Dump
from ..errors import InternalError, UnsupportedError
from ..ir.code_version import CodeVersion
from ..ir.module import Instruction, Module
from ..ir.shape import Shape
from ..ir.sized_module import SizedModule
from ..object_options import DEFAULT_OBJECT_OPTIONS, ObjectOptions, StandaloneCode
from ..ops import Parameter
from ..options import DEFAULT_OPTIONS, Options
from ..passes.pipeline import CPU_PASSES, Observer, Step, run_pipeline
from .codegen.table_lookup import lookup_cycles
from .entry.entry_emitter import (
    DECLARED_CONSTANTS,
    add_constants,
    emit_entry,
    emit_prepacking,
    place_constants,
)
from .entry.level_entry import emit_level_entry
from .entry.sizes_entry import emit_sizes_entry
from .gemm.byte_rows import sums_across
from .gemm.compute_types import QUADS
from .objects.decoration import Layer
from .objects.object_emitter import emit_assembly
from .objects.parallel_codegen import ParallelCodegen, WholeObject
from .schedule.buffer import Constants
from .schedule.buffer_assignment import BufferAssignment, assign_buffers, temporaries
from .schedule.lowering import lower_module
from .schedule.printer import print_program
from .schedule.thunks import KernelThunk, ThunkProgram, launched_kernels

ENTRY = "tfb_entry"
_REPRODUCIBLE_THREADS = 16


def compile_module(
    module: Module,
    options: Options = DEFAULT_OPTIONS,
    target: Target | None = None,
    source: str = "",
) -> Artifact:
    """Compiles a module. `source` is the text that it was translated from, for the dump.

    Raises: UnsupportedError  an op without CPU code; ShapeError  the module is ill-formed; BudgetError  it takes more
        than the options allow.
    """
    target = target or machine(options)
    dump = _Dump(module, options, target, source)
    with budget.limited(options.compile_seconds, options.compile_instructions, options.compile_megabytes):
        optimized = run_pipeline(module, _pass_options(options, target), dump.observer, CPU_PASSES)
        text = ModuleText(target)
        objects = ParallelCodegen(text, target)
        program = lower_module(optimized, text, target, options, objects.kernel_written)
        assignment = assign_buffers(program.entry)
        entries = [ENTRY]
        temp_bytes = emit_entry(text, ENTRY, program, assignment, has_recorder=True)
        if program.packed:
            entries.append(prepacking_entry(ENTRY))
            temp_bytes = maximum([temp_bytes, emit_prepacking(text, entries[-1], program)])
        budget.check("LLVM")
        entry_object, *other_objects = objects.emit(entries)
    dump.code(program, assignment, text)
    return dataclasses.replace(
        _artifact(program, assignment, text, ENTRY, temp_bytes, entry_object, program.constants.data()),
        libraries=tuple(text.libraries),
        split_objects=tuple(other_objects),
        sized_results=module.sized_results,
        symbolic=_symbolic_sizes(program, temp_bytes, text),
    )


def compile_self_contained(
    versions: Sequence[CodeVersion],
    options: Options,
    embed_constants: bool,
    object_options: ObjectOptions = DEFAULT_OBJECT_OPTIONS,
) -> StandaloneCode:
    """Compiles modules, by the names of their entries, into one object that needs the C library alone; its artifacts
    are in order of the versions.

    The object has what kernels and constants they share once, and the library kernels that they call. Of several
    versions for levels of processors, the lowest first, a run takes the highest that the processor has. With
    `embed_constants` the object holds the constants, and the artifacts have none; else each has those of all. The entry
    of a module for changing sizes reads them from the run context. Raises: as `compile_module`.
    """
    target = versions[0].target
    text, pool = ModuleText(target, embed_libraries=True), Constants()
    written: list[tuple[str, _Written]] = []
    layers = Layers()
    with budget.limited(options.compile_seconds, options.compile_instructions, options.compile_megabytes):
        for version in versions:
            if version.level is None:
                written += _write_version(text, pool, version, options, embed_constants, layers)
            else:
                part = ModuleText(version.target, embed_libraries=True)
                layers.suffix = f".{version.level.name}"
                written += _write_version(part, pool, version, options, embed_constants, layers)
                text.include(part, layers.suffix)
        text.finish()
        entries = list(versions[0].modules)
        levels = [version.level for version in versions if version.level is not None]
        for entry in entries if levels else ():
            emit_level_entry(text, entry, levels, [f"{entry}.{level.name}" for level in levels])
        constants = pool.data()
        if is_embedded := embed_constants and bool(constants):
            add_constants(text, constants)
        budget.check("LLVM")
        object_code, stack_bytes = WholeObject(text, object_options).emit(
            entries, layers.by_number, layers.of_kernels
        )
    if is_embedded:
        object_code = place_constants(object_code, constants)
    artifacts = [
        _artifact(
            each.program,
            each.assignment,
            text,
            entry,
            each.temp_bytes,
            object_code,
            b"" if is_embedded else constants,
        )
        for entry, each in written
    ]
    return StandaloneCode(artifacts, stack_bytes, [layer.text for layer in layers.by_number.values()])


class Layers:
    """The layers of an object: launches of kernels, numbered from 1. suffix: what names of functions are to end in."""

    def __init__(self) -> None:
        self.by_number: dict[int, Layer] = {}
        self.of_kernels: dict[str, list[int]] = {}
        self.suffix = ""

    def add(self, entry: str, program: ThunkProgram) -> dict[Instruction, int]:
        """The numbers of a program's layers, by the instructions that they compute."""
        numbers = {}
        for thunk in launched_kernels(program.entry.thunks):
            record, number = _record(thunk), len(self.by_number) + 1
            what = f"{record.name}{self.suffix}, {record.flops:,} flops, {record.bytes:,} bytes"
            self.by_number[number] = Layer(
                record.ops[0] if record.ops else record.name, f"{', '.join(record.ops)} ({entry}: {what})"
            )
            self.of_kernels.setdefault(f"{record.name}{self.suffix}", []).append(number)
            numbers[thunk.instruction] = number
        return numbers


def _write_version(
    text: ModuleText,
    pool: Constants,
    version: CodeVersion,
    options: Options,
    embed_constants: bool,
    layers: Layers,
) -> Iterator[tuple[str, _Written]]:
    """Writes the entries of a version; those of a level are called in its object alone."""
    linkage = "" if version.level is None else "internal"
    for entry, module in version.modules.items():
        if isinstance(module, SizedModule):
            yield entry, _write_sized(text, pool, entry, module, options, embed_constants, layers, linkage)
        else:
            yield entry, _write(text, pool, entry, module, options, embed_constants, layers, linkage)


@dataclasses.dataclass(frozen=True)
class _Written:
    """A module whose entry and kernels are written."""

    program: ThunkProgram
    assignment: BufferAssignment
    temp_bytes: AnySize
    sizes: SymbolicSizes


def _write(
    text: ModuleText,
    pool: Constants,
    entry: str,
    module: Module,
    options: Options,
    embed_constants: bool,
    layers: Layers,
    linkage: str = "",
) -> _Written:
    """Writes the code of a module for an object that stands alone."""
    target = text.target or machine(options)
    dump = _Dump(module, options, target, "")
    text.sizes = {}
    optimized = run_pipeline(module, _pass_options(options, target), dump.observer, CPU_PASSES)
    program = lower_module(optimized, text, target, options, constants=pool)
    _refuse_host_callbacks(program)
    assignment = assign_buffers(program.entry)
    temp_bytes = emit_entry(
        text,
        entry,
        program,
        assignment,
        embed_constants,
        linkage=linkage,
        layers=layers.add(entry, program),
    )
    dump.code(program, assignment, text, DECLARED_CONSTANTS if embed_constants else "")
    sizes = _symbolic_sizes(program, temp_bytes, text) or _known_sizes(program, temp_bytes)
    return _Written(program, assignment, temp_bytes, sizes)


def _known_sizes(program: ThunkProgram, temp_bytes: AnySize) -> SymbolicSizes:
    shapes = program.arguments, program.results
    parameters, results = (tuple(shape.dims for shape in each) for each in shapes)
    return SymbolicSizes(parameters, results, temp_bytes, (), Assumptions())


def _write_sized(
    text: ModuleText,
    pool: Constants,
    entry: str,
    module: SizedModule,
    options: Options,
    embed_constants: bool,
    layers: Layers,
    linkage: str = "",
) -> _Written:
    """Writes the code of all variants of a module, and the entry that calls them."""
    entries: list[str] = []
    written: list[_Written] = []
    for number, variant in enumerate(module.variants):
        if variant.module is None:
            entries.append("")
            continue
        entries.append(f"{entry}.{number}")
        written.append(
            _write(text, pool, entries[-1], variant.module, options, embed_constants, layers, "internal")
        )
        written_sizes, planned = written[-1].sizes, variant.symbolic
        if (written_sizes.table, written_sizes.temp_bytes) != (planned.table, planned.temp_bytes):
            raise InternalError(f"{entry}: code that is written twice reads other sizes")
    emit_sizes_entry(text, entry, module, entries, linkage)
    return written[0]


def symbolic_sizes_of(module: Module, options: Options, target: Target) -> SymbolicSizes:
    """What a call of a module's code needs and assumes, without compiling it.

    Raises: as `compile_module`.
    """
    text = ModuleText(target, embed_libraries=True)
    with budget.limited(options.compile_seconds, options.compile_instructions, options.compile_megabytes):
        return _write(text, Constants(), ENTRY, module, options, True, Layers()).sizes


def _artifact(
    program: ThunkProgram,
    assignment: BufferAssignment,
    text: ModuleText,
    entry: str,
    temp_bytes: AnySize,
    object_code: bytes,
    constants: bytes,
) -> Artifact:
    assert text.target is not None
    return Artifact(
        object=object_code,
        entry=entry,
        parameters=tuple(map(_spec, program.arguments)),
        results=tuple(map(_spec, program.results)),
        temp_bytes=estimate(temp_bytes),
        constants=constants,
        threads=text.target.threads,
        kernels=tuple(map(_record, launched_kernels(program.entry.thunks))),
        temporaries=temporaries(program.entry, assignment),
        host_callbacks=program.host_callbacks,
        packed=program.packed,
        may_bail_out=program.may_bail_out,
    )


def _symbolic_sizes(program: ThunkProgram, temp_bytes: AnySize, text: ModuleText) -> SymbolicSizes | None:
    """What a call of code for symbolic sizes needs; None: there are none."""
    dims = [d for shape in (*program.arguments, *program.results) for d in shape.dims]
    symbol = next((d for d in (*dims, temp_bytes, *text.sizes) if isinstance(d, Size)), None)
    if symbol is None:
        return None
    return SymbolicSizes(
        tuple(shape.dims for shape in program.arguments),
        tuple(shape.dims for shape in program.results),
        temp_bytes,
        tuple(text.sizes),
        symbol.assumptions,
    )


def machine(options: Options) -> Target:
    """This machine, with the threads that kernels are planned for.

    Reproducible code is planned for a fixed number, however many run it: work is then divided in the same way, and sums
    are made in the same order, with any number of threads.
    """
    if options.numerics == "reproducible":
        return dataclasses.replace(host(), threads=_REPRODUCIBLE_THREADS)
    return host(options.threads or None)


def lower_to_thunks(
    module: Module, options: Options = DEFAULT_OPTIONS
) -> tuple[ThunkProgram, BufferAssignment]:
    """The thunks of a module for this machine, and where their temporary buffers lie."""
    target = machine(options)
    optimized = run_pipeline(module, _pass_options(options, target), passes=CPU_PASSES)
    program = lower_module(optimized, ModuleText(target), target, options)
    return program, assign_buffers(program.entry)


def _pass_options(options: Options, target: Target) -> Options:
    return dataclasses.replace(
        options,
        threads=target.threads,
        l2_bytes=target.l2_bytes,
        lookup_cycles=lookup_cycles(target),
        looks_up_registers=target.vector_bytes > 4 and target.byte_shuffles != "vpermi2b",
        summed_bytes=target.vector_bytes if sums_across(target, QUADS[0]) else QUAD,
    )


def _refuse_host_callbacks(program: ThunkProgram) -> None:
    """Raises UnsupportedError for a program that calls the process that compiled it."""
    for callback in program.host_callbacks:
        raise UnsupportedError(
            f"{callback.kind} {callback.name}: an object that stands alone cannot call the process that compiled it"
        )


def _spec(shape: Shape) -> BufferSpec:
    dims = tuple(map(estimate, shape.dims))
    return BufferSpec(shape.element_type.dtype_name, dims, estimate(shape.bytes))


@heuristic()
def _record(thunk: KernelThunk) -> KernelRecord:
    instruction, info = thunk.instruction, thunk.kernel
    computation = getattr(instruction.op, "computation", None)
    fused = computation.instructions if computation is not None else (instruction,)
    listed = [i for i in fused if not isinstance(i.op, Parameter)]
    listed = [max(reversed(listed), key=lambda i: i.op.flops(i)), *listed] if listed else []
    names = dict.fromkeys(i.metadata.op_name or i.opcode for i in listed)
    moved_bytes = hlo_cost_analysis.moved_bytes(instruction)
    flops, size, tasks = map(estimate, (hlo_cost_analysis.flops(instruction), moved_bytes, info.tasks))
    return KernelRecord(info.symbol, flops, size, tasks, tuple(names))


class _Dump:
    """The stages of a compilation as files, if the options name a directory."""

    def __init__(self, module: Module, options: Options, target: Target, source: str) -> None:
        self._dump = Dump(options.dump_dir, module.name) if options.dump_dir else None
        self._last, self._target = module, target
        if self._dump is not None:
            self._dump.write("options.txt", f"{options}\n{target}\n")
            if source:
                self._dump.write("cluster.pbtxt", source)
            self._dump.write("before.hlo", str(module))

    @property
    def observer(self) -> Observer | None:
        """Called after each pass; None without a directory."""
        return None if self._dump is None else self._after_pass

    def _after_pass(self, step: Step) -> None:
        """Writes the module after a pass that changed it."""
        if self._dump is not None and step.module is not self._last:
            self._dump.write(f"after-{step.name}.hlo", str(step.module))
        self._last = step.module

    def code(
        self, program: ThunkProgram, assignment: BufferAssignment, text: ModuleText, declarations: str = ""
    ) -> None:
        """Writes what follows the passes. `declarations` of what the text uses and gets later."""
        if self._dump is not None:
            self._dump.write("thunks.txt", print_program(program, assignment))
            source = text.text() + declarations
            self._dump.write("module.ll", source)
            self._dump.write("module.s", emit_assembly(source, self._target))
