"""The machine that code is generated for: triple, CPU, features, and what follows from them."""

from __future__ import annotations

import dataclasses
import functools
import re

import llvmlite.binding as llvm

from ..threads.compile_threads import usable_cpus


@dataclasses.dataclass(frozen=True)
class Target:
    """A machine to generate code for.

    `has_rounding`: floor, ceil and rint are instructions; `has_half`: conversions between f16 and f32 are;
    `has_scaling`: products with powers of two, and reciprocals to 14 bits (AVX-512).
    Units: vector_bytes and the cache sizes are bytes; registers counts vector registers; threads is the
    highest number of threads that one launch may use (thread ids given to kernels are below it).
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    has_fma: bool
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 8 << 20
    threads: int = 1
    has_rounding: bool = False
    has_half: bool = False

    def lanes(self, bits: int) -> int:
        """Lanes of a full vector register for elements of this many bits (at least 1)."""
        return max(1, self.vector_bytes * 8 // max(bits, 8))

    @property
    def architecture(self) -> str:
        """First part of the triple: x86_64, aarch64, armv7a, riscv64, wasm32, ..."""
        return self.triple.split("-", 1)[0]

    @property
    def has_scaling(self) -> bool:
        return self.architecture == "x86_64" and self.vector_bytes == 64

    @property
    def streams(self) -> int:
        """Parts of an array out of cache that a core reads side by side. Cores with such long vectors wait for memory
        far longer than what one stream is read ahead makes up for."""
        return 4 if self.has_scaling else 1

    @property
    def pointer_bytes(self) -> int:
        """Bytes of a pointer."""
        return 8 if re.match(r"x86_64|aarch64|arm64|riscv64|wasm64|powerpc64|s390x", self.triple) else 4


def _vector_unit(triple: str, features: frozenset[str]) -> tuple[int, int, bool]:
    """(vector bytes, vector registers, fused multiply-add) of an architecture with these features."""
    arch = triple.split("-", 1)[0]
    if arch in ("x86_64", "i386", "i686"):
        registers = 16 if arch == "x86_64" else 8
        if "avx512f" in features:
            return 64, 32, True
        if "avx" in features:
            return 32, registers, "fma" in features
        return 16, registers, False
    if arch in ("aarch64", "arm64"):
        return 16, 32, True
    if arch.startswith(("arm", "thumb")):
        return (16, 16, "vfp4" in features) if "neon" in features else (4, 16, False)
    if arch.startswith("wasm"):
        return (16, 16, False) if "simd128" in features else (4, 16, False)
    if arch.startswith("riscv"):
        return (16, 32, True) if "v" in features else (4, 16, "f" in features)
    return 4, 16, False


def _instructions(triple: str, features: frozenset[str]) -> tuple[bool, bool]:
    """(rounding to integral, f16 conversion) as instructions, scalar and vector, of an architecture."""
    arch = triple.split("-", 1)[0]
    if arch in ("x86_64", "i386", "i686"):
        rounding = {"sse4.1", "sse4.2", "avx", "avx2", "avx512f"}
        return bool(features & rounding), bool(features & {"f16c", "avx512f"})
    if arch in ("aarch64", "arm64"):
        return True, True
    return arch.startswith("wasm"), False


# Features that a named CPU implies: llvmlite cannot list them.
_AVX2 = "avx,avx2,fma,f16c,bmi2"
_CPU_FEATURES = {
    "x86-64-v3": _AVX2,
    "x86-64-v4": _AVX2 + ",avx512f",
    "haswell": _AVX2,
    "skylake": _AVX2,
    "znver1": _AVX2,
    "znver2": _AVX2,
    "znver3": _AVX2,
    "znver4": _AVX2 + ",avx512f",
    "skylake-avx512": _AVX2 + ",avx512f",
    "cortex-a53": "neon,vfp4",
    "cortex-a7": "neon,vfp4",
    "cortex-a72": "neon,vfp4",
}


_SPELLINGS = {
    "triple": r"[A-Za-z0-9_][A-Za-z0-9_.+-]*",
    "CPU": r"[A-Za-z0-9_.+-]*",
    "features": r"([+-]?[A-Za-z0-9_.][A-Za-z0-9_.+-]*(,|$))*",
}
_MAX_SPELLING = 4096


def target_for(triple: str, cpu: str = "", features: str = "", threads: int = 1) -> Target:
    """A target other than this machine. `features` as LLVM writes them: `+avx2,+fma,-sse4a`.

    Raises: ValueError  a text that cannot be a triple, a CPU or a list of features. LLVM is not asked.
    """
    for (what, spelling), text in zip(_SPELLINGS.items(), (triple, cpu, features)):
        if len(text) > _MAX_SPELLING:
            raise ValueError(f"target {what}: {len(text)} characters, at most {_MAX_SPELLING} are wanted")
        if not re.fullmatch(spelling, text):
            raise ValueError(
                f"target {what}: {text[:100]!r} has other characters than letters, digits, '_', '.', '+' "
                f"and '-'{', with commas between features' if what == 'features' else ''}"
            )
    named = set(_CPU_FEATURES.get(cpu, "").split(",")) - {""}
    for item in filter(None, features.split(",")):
        named.discard(item[1:]) if item.startswith("-") else named.add(item.lstrip("+"))
    vector_bytes, registers, has_fma = _vector_unit(triple, frozenset(named))
    has_rounding, has_half = _instructions(triple, frozenset(named))
    return Target(
        triple,
        cpu,
        features,
        vector_bytes,
        registers,
        has_fma,
        threads=threads,
        has_rounding=has_rounding,
        has_half=has_half,
    )


def _cache_bytes(index: int, default: int) -> int:
    try:
        with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size") as file:
            text = file.read().strip()
    except OSError:
        return default
    return int(text[:-1]) << {"K": 10, "M": 20}[text[-1]] if text[-1] in "KM" else int(text)


@functools.cache
def host(threads: int | None = None) -> Target:
    """This machine, with `threads` threads (default: the processors this process may use)."""
    names = frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)
    triple = llvm.get_default_triple()
    vector_bytes, registers, has_fma = _vector_unit(triple, names)
    return Target(
        triple,
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        vector_bytes,
        registers,
        has_fma,
        _cache_bytes(0, 32 << 10),
        _cache_bytes(2, 512 << 10),
        _cache_bytes(3, 8 << 20),
        threads or usable_cpus(),
        *_instructions(triple, names),
    )
