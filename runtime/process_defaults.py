"""What this process chooses where nothing else does; the flags set it before any other module reads it."""

from __future__ import annotations

import dataclasses

NUMERICS = ("tf", "fast", "reproducible")
SYMBOLS = ("perf", "jitdump", "gdb", "vtune")


@dataclasses.dataclass
class Defaults:
    """Choices for the whole process.

    threads: highest number of threads of one launch; 0 means those of the machine. cache_dir: empty means the user's
    cache directory. dump_dir: empty means no dumps. compile_workers: LLVM runs in processes of their own.
    compile_seconds, compile_instructions, compile_megabytes: what a compilation may take; 0 for no limit. symbols: who
    is told of compiled code, of SYMBOLS.
    Units: max_cache_bytes is the size of all files of the disk cache.
    """

    numerics: str = "tf"
    threads: int = 0
    dump_dir: str = ""
    disk_cache: bool = True
    cache_dir: str = ""
    max_cache_bytes: int = 1 << 30
    compile_workers: bool = False
    compile_seconds: int = 600
    compile_instructions: int = 1_000_000
    compile_megabytes: int = 16_384
    symbols: frozenset[str] = frozenset()


process = Defaults()
