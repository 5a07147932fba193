"""Compiles a module for a CPU: passes, schedule, memory plan, LLVM text, object."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable

from ...runtime import statistics
from ...runtime.code import disk_cache
from ...runtime.code.artifact import Artifact, BufferSpec, KernelInfo
from ...runtime.llvm.ir_builder import ModuleText
from ...runtime.llvm.target import Target, host
from ...runtime.threads import compile_threads, interrupts, python_settings
from .. import budget
from ..analysis import hlo_cost_analysis
from ..dump import Dump
from ..errors import UnsupportedError
from ..ir.module import Module
from ..ir.shape import Shape
from ..options import DEFAULT_OPTIONS, Options
from ..passes.canonicalize_dots import canonicalize_dots
from ..passes.combine_all_reduces import combine_all_reduces
from ..passes.dce import eliminate_dead
from ..passes.expand_collectives import expand_collectives
from ..passes.expand_maps import expand_maps
from ..passes.expand_rng import expand_rng
from ..passes.expand_top_k import expand_top_k
from ..passes.fuse import fuse
from ..passes.inline_calls import inline_calls
from ..passes.loop_invariant_code_motion import lift_from_loops
from ..passes.normalize_layouts import normalize_layouts
from ..passes.pad_dynamic_dimensions import resolve_dynamic_sizes
from ..passes.parallelize_loops import shard_loops
from ..passes.pipeline import PASSES, Observer, Step, run_pipeline
from ..passes.simplify import simplify
from ..passes.split_reductions import split_reductions
from .objects import kernel_libraries
from .objects.object_emitter import emit_assembly, emit_object
from .objects.parallel_codegen import ObjectParts
from .objects.source_fingerprint import code_version
from .schedule.entry_emitter import emit_entry, emit_preparation, place_constants
from .schedule.host_callbacks import registered
from .schedule.printer import memory_text, schedule_text
from .schedule.thunks import Launch, launches, plan_memory, schedule_module, sized_results

ENTRY = "tfb_entry"
_REPRODUCIBLE_THREADS = 16
CPU_PASSES = (
    normalize_layouts,
    resolve_dynamic_sizes,
    combine_all_reduces,
    expand_collectives,
    expand_maps,
    expand_rng,
    expand_top_k,
    *PASSES,
    lift_from_loops,
    eliminate_dead,
    simplify,
    inline_calls,
    shard_loops,
    canonicalize_dots,
    split_reductions,
    fuse,
    eliminate_dead,
)


def compile_module(
    module: Module,
    options: Options = DEFAULT_OPTIONS,
    target: Target | None = None,
    self_contained: bool = False,
    entry: str = ENTRY,
    embed_constants: bool = False,
    origin: str = "",
) -> Artifact:
    """Compiles a module. `origin` is the text of what it was made from, for the dump.

    A `self_contained` object holds the library kernels it calls and needs the C library alone; with `embed_constants`
    it holds its constants too, and the artifact's blob is empty.
    Raises: UnsupportedError  an op without CPU code; ShapeError  the module is ill-formed; BudgetError  it takes more
        than the options allow.
    """
    with budget.limited(options.compile_seconds, options.compile_instructions, options.compile_megabytes):
        return _compiled(
            module, options, target or machine(options), self_contained, entry, embed_constants, origin
        )


def _compiled(
    module: Module,
    options: Options,
    target: Target,
    self_contained: bool,
    entry: str,
    embed_constants: bool,
    origin: str,
) -> Artifact:
    """As `compile_module`, with the budget in force."""
    text = ModuleText(target, embed_libraries=self_contained)
    dump = Dump(options.dump_dir, module.name) if options.dump_dir else None
    if dump is not None:
        dump.write("options.txt", f"{options}\n{target}\n")
        if origin:
            dump.write("cluster.pbtxt", origin)
        dump.write("before.hlo", str(module))
    optimized = run_pipeline(
        module,
        dataclasses.replace(options, threads=target.threads, l2_bytes=target.l2_bytes),
        None if dump is None else _dump_passes(dump, module),
        CPU_PASSES,
    )
    parts = None if self_contained else ObjectParts(text, target)

    def finished(symbol: str) -> None:
        if parts is not None:
            parts.finished(symbol)
            kernel_libraries.prefetch(text.libraries)

    schedule = schedule_module(optimized, text, target, options, finished)
    if self_contained and schedule.sites:
        raise UnsupportedError(
            f"{schedule.sites[0].kind} {schedule.sites[0].name}: an object that stands alone cannot "
            "call the process that compiled it"
        )
    plan_memory(schedule)
    emit_entry(text, entry, schedule, embed_constants, options.profile)
    entries = [entry]
    if schedule.packed:
        entries.append(f"{entry}_prepare")
        emit_preparation(text, entries[-1], schedule)
    budget.check("LLVM")
    if parts is None:
        made, more = emit_object(text.text(), target), []
    else:
        jobs = parts.jobs(*entries)
        compile_threads.run((*jobs, *kernel_libraries.jobs()))
        made, *more = (budget.result(job, "LLVM") for job in jobs)
    if dump is not None:
        source = text.text()
        for name, content in (
            ("schedule.txt", schedule_text(schedule)),
            ("memory.txt", memory_text(schedule)),
            ("module.ll", source),
            ("module.s", emit_assembly(source, target)),
        ):
            dump.write(name, content)
    embedded = embed_constants and bool(schedule.constants)
    return Artifact(
        object=place_constants(made, schedule.constants) if embedded else made,
        entry=entry,
        parameters=tuple(map(_spec, schedule.arguments)),
        results=tuple(map(_spec, schedule.results)),
        temp_bytes=schedule.temp_bytes,
        constants=b"" if embedded else schedule.constants,
        libraries=tuple(text.libraries),
        threads=target.threads,
        kernels=tuple(map(_info, launches(schedule.steps))),
        parts=tuple(more),
        sites=tuple(schedule.sites),
        packed=tuple(schedule.packed),
        may_leave=schedule.may_leave,
        sizes=sized_results(module),
    )


def machine(options: Options) -> Target:
    """This machine, with the threads that kernels are planned for.

    Reproducible code is planned for a fixed number, however many run it: work is then divided in the same way, and sums
    are made in the same order, with any number of threads.
    """
    if options.numerics == "reproducible":
        return dataclasses.replace(host(), threads=_REPRODUCIBLE_THREADS)
    return host(options.threads or None)


def load_module(module: Module, options: Options = DEFAULT_OPTIONS, origin: str = "") -> Artifact:
    """The artifact of a module for this machine: from the disk cache, or compiled now and stored there.

    A compilation that is dumped is never read from the cache. `origin` as for `compile_module`.
    """
    return load_made(f"{module}{registered(module)}", lambda: module, options, origin)


def load_made(
    subject: str, make: Callable[[], Module], options: Options = DEFAULT_OPTIONS, origin: str = ""
) -> Artifact:
    """As `load_module`, for a module that is made only when the cache has no artifact for it.

    `subject` says all that the module is made from.
    """
    target = machine(options)
    name = fingerprint(subject, options, target)
    cache = disk_cache.at(options.cache_dir, options.max_cache_bytes)
    if not options.dump_dir and (artifact := cache.load(name)) is not None:
        statistics.count("disk_hits")
        return artifact
    start = time.perf_counter()
    with (
        interrupts.deferred(),
        python_settings.compiling(),
        budget.limited(options.compile_seconds, options.compile_instructions, options.compile_megabytes),
    ):
        artifact = dataclasses.replace(
            compile_module(make(), options, target, origin=origin), fingerprint=name
        )
    statistics.add_compile_seconds(time.perf_counter() - start)
    statistics.count("compiles")
    cache.store(artifact)
    return artifact


def fingerprint(subject: str, options: Options, target: Target) -> str:
    """A name for everything that the compiled object depends on."""
    parts = (subject, options.fingerprint(), repr(target), code_version())
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()


def _spec(shape: Shape) -> BufferSpec:
    return BufferSpec(shape.element_type.dtype.name, shape.dims, shape.bytes)


def _info(launch: Launch) -> KernelInfo:
    instruction, plan = launch.instruction, launch.plan
    computation = getattr(instruction.op, "computation", None)
    inner = computation.instructions if computation is not None else (instruction,)
    names = dict.fromkeys(i.metadata.op_name or i.opcode for i in inner if i.opcode != "parameter")
    moved = hlo_cost_analysis.moved_bytes(instruction)
    return KernelInfo(plan.symbol, hlo_cost_analysis.flops(instruction), moved, plan.tasks, tuple(names))


def _dump_passes(dump: Dump, module: Module) -> Observer:
    """An observer that writes the module after every pass that changed it."""
    last = module

    def write(step: Step) -> None:
        nonlocal last
        if step.module is not last:
            dump.write(f"after-{step.name}.hlo", str(step.module))
        last = step.module

    return write
