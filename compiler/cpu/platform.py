"""The platform `cpu`: native code for this machine, and objects for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ...runtime.code.artifact import Artifact
from ...runtime.code.executable import Executable
from ...runtime.code.peak_rates import PeakRates
from ...runtime.code.symbolic_sizes import SymbolicSizes
from ...runtime.llvm.target import Target
from ..client.platforms import Compiled, NativePlatform, row_major
from ..errors import UnsupportedError
from ..ir.code_version import CodeVersion
from ..ir.module import Module
from ..ir.specialization import is_symbolic
from ..object_options import DEFAULT_OBJECT_OPTIONS, ObjectOptions, StandaloneCode
from ..options import Options
from ..passes.normalize_layouts import normalize_layouts
from . import artifact_cache, machine_peak
from . import compile as pipeline
from .kernel_emitters import load_emitters
from .objects import kernel_libraries, parallel_codegen
from .objects.source_fingerprint import code_fingerprint
from .schedule.printer import print_program
from .symbolic_code import SymbolicCode
from .targets.levels import levels_for
from .targets.named_target import target_for


class CpuPlatform(NativePlatform):
    """Native code by LLVM; artifacts come from the disk cache when they are there."""

    name = "cpu"
    device_count = 1

    def compile(self, module: Module, options: Options) -> Compiled:
        """Compiles with LLVM."""
        # Before the cache lookup: the layout of a custom call depends on the function registered for it.
        normalized = normalize_layouts(module, options)

        def compiled(module: Module) -> Executable:
            return Executable(artifact_cache.load_module(module, options), options.threads or None)

        if not is_symbolic(module):
            return row_major(module, compiled(normalized))
        try:
            code = compiled(normalized)
        except UnsupportedError:
            code = None
        return row_major(module, SymbolicCode(normalized, code, compiled))

    def load_artifact(
        self, key: str, build: Callable[[], Module], options: Options, source: str = ""
    ) -> Artifact:
        """The artifact from the disk cache, or compiled now and stored there."""
        return artifact_cache.load_artifact(key, build, options, source)

    def has_artifact(self, key: str, options: Options) -> bool:
        """Whether the disk cache has the artifact."""
        return artifact_cache.has_artifact(key, options)

    def compile_self_contained(
        self,
        versions: Sequence[CodeVersion],
        options: Options,
        embed_constants: bool,
        object_options: ObjectOptions = DEFAULT_OBJECT_OPTIONS,
    ) -> StandaloneCode:
        """One object that needs the C library alone."""
        return pipeline.compile_self_contained(versions, options, embed_constants, object_options)

    def prepare_self_contained(self) -> None:
        """Starts a process for LLVM."""
        parallel_codegen.start_worker()

    def symbolic_sizes_of(self, module: Module, options: Options, target: Target) -> SymbolicSizes:
        """What code needs and assumes of symbolic sizes."""
        return pipeline.symbolic_sizes_of(module, options, target)

    def print_thunks(self, module: Module, options: Options) -> str:
        """The thunks and where their buffers lie."""
        return print_program(*pipeline.lower_to_thunks(module, options))

    def target(self, options: Options) -> Target:
        """The machine that code is generated for."""
        return pipeline.machine(options)

    named_target = staticmethod(target_for)
    named_levels = staticmethod(levels_for)

    def peak_rates(self) -> PeakRates:
        """What a thread of this machine does at most, measured once."""
        return machine_peak.peak_rates()

    def code_fingerprint(self, folder: Path | None = None) -> str:
        """A digest of the sources in a folder and of what generates code."""
        return code_fingerprint() if folder is None else code_fingerprint(folder)

    def load_emitters(self) -> None:
        """Imports the kernel emitters that most programs need."""
        load_emitters()

    def prefetch_kernel_libraries(self) -> None:
        """Starts to compile, in one background thread, the library kernels that most programs call."""
        kernel_libraries.prepare()
