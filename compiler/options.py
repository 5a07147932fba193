"""Options of a compilation."""

from __future__ import annotations

import dataclasses

from ..runtime.process_defaults import NUMERICS, process
from .limits import DEFAULT_LIMITS, Limits


@dataclasses.dataclass(frozen=True)
class Options:
    """Choices of one compilation. Fields that do not change the code (the directories) are not compared.

    numerics: "tf" (default), "fast" (rules of class fast_math too), "reproducible" (fixed reduction trees).
    threads: highest number of threads of one launch; 0 means those of the target.
    disabled_passes: names of passes that do not run.
    num_replicas, num_partitions: devices that run the program together, each a replica's partition.
    dump_dir: directory for numbered dumps of every stage; empty means none.
    cache_dir, max_cache_bytes: the disk cache; empty and 0 mean that of the process.
    compile_seconds, compile_instructions, compile_megabytes: the budget, beyond which compilation ends with a
        BudgetError; 0 for none.
    l2_bytes: the cache of a core, of the target that is compiled for. lookup_cycles: what looking bytes up in tables of
        256 costs there, for as many as a vector register holds of f32; looks_up_registers: whether that is of whole
        registers of bytes alone. summed_bytes: of neighbouring features whose products one instruction sums.
    limits: of the modules that a client compiles.
    Raises: ValueError  numerics is none of these; a negative number.
    """

    numerics: str = "tf"
    threads: int = 0
    disabled_passes: frozenset[str] = frozenset()
    num_replicas: int = 1
    num_partitions: int = 1
    dump_dir: str = dataclasses.field(default="", compare=False)
    cache_dir: str = dataclasses.field(default="", compare=False)
    max_cache_bytes: int = dataclasses.field(default=0, compare=False)
    compile_seconds: int = dataclasses.field(default=process.compile_seconds, compare=False)
    compile_instructions: int = dataclasses.field(default=process.compile_instructions, compare=False)
    compile_megabytes: int = dataclasses.field(default=process.compile_megabytes, compare=False)
    l2_bytes: int = dataclasses.field(default=512 << 10, compare=False)
    lookup_cycles: int = dataclasses.field(default=12, compare=False)
    looks_up_registers: bool = dataclasses.field(default=True, compare=False)
    summed_bytes: int = dataclasses.field(default=4, compare=False)
    limits: Limits = dataclasses.field(default=DEFAULT_LIMITS, compare=False)

    def __post_init__(self) -> None:
        if self.numerics not in NUMERICS:
            raise ValueError(f"numerics: {self.numerics!r} is none of {', '.join(NUMERICS)}")
        for name in ("num_replicas", "num_partitions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is less than 1")
        for name in (
            "threads",
            "max_cache_bytes",
            "compile_seconds",
            "compile_instructions",
            "compile_megabytes",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is negative")

    def fingerprint(self) -> str:
        """The text of the fields on which compiled code depends: those that are compared."""
        return ", ".join(
            f"{field.name}={sorted(value) if isinstance(value, frozenset) else value!r}"
            for field in dataclasses.fields(Options)
            if field.compare
            for value in [getattr(self, field.name)]
        )


DEFAULT_OPTIONS = Options(process.numerics, process.threads, dump_dir=process.dump_dir)
