"""The machine that code is generated for: triple, CPU, features, and what follows from them."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import sys
from collections.abc import Mapping

import llvmlite.binding as llvm

from ..threads.processors import usable_cpus

LLVM_VERSION: int = llvm.llvm_version_info[0]


@dataclasses.dataclass(frozen=True)
class Target:
    """A machine to generate code for.

    `has_fma`, `has_rounding`: fused multiply-add, and floor, ceil and rint, are instructions, for f64 where it
    `has_f64` arithmetic; `has_half`: conversions between f16 and f32 are;
    `has_scaling`: products with powers of two, and reciprocals to 14 bits (AVX-512). `abi`: LLVM's name of the calling
    convention, where the triple does not tell it. `is_static`: code lies where the linker puts it, and is not moved.
    `byte_products`: the instructions that sum products of bytes: `vnni`, `dotprod`, `i8mm`, `dsp` (SMLAD), `mve`
    (VMLADAVA, and SMLAD), `pairs` (of 16 bits, AVX2), or "". `byte_shuffles`: the instructions that look bytes up in
    registers, `vpermi2b`, `pshufb` with the bytes of a register, `tbl`, `mve` (loads by vectors of addresses), or "".
    `is_small`: code is to be small before it is fast.
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
    abi: str = ""
    pointer_bytes: int = 8
    is_static: bool = False
    has_f64: bool = True
    byte_products: str = ""
    is_small: bool = False
    byte_shuffles: str = ""

    def lanes(self, bits: int) -> int:
        """Lanes of a full vector register for elements of this many bits (at least 1)."""
        return max(1, self.vector_bytes * 8 // max(bits, 8))

    def fuses(self, bits: int) -> bool:
        """Whether floats of that many bits have an instruction for the fused multiply-add."""
        return self.has_fma and (bits < 64 or self.has_f64)

    def rounds(self, bits: int) -> bool:
        """Whether floats of that many bits have instructions for floor, ceil and rint."""
        return self.has_rounding and (bits < 64 or self.has_f64)

    @property
    def architecture(self) -> str:
        """First part of the triple: x86_64, aarch64, armv7a, riscv64, wasm32, ..."""
        return self.triple.split("-", 1)[0]

    @property
    def is_x86(self) -> bool:
        """Whether the processor is of the x86 family, of 64 or 32 bits."""
        return self.triple.startswith(("x86", "i3", "i4", "i5", "i6"))

    @property
    def counts_in_32_bits(self) -> bool:
        """Whether no index has more bits, because no address has, and counting in 64 takes several instructions."""
        return self.pointer_bytes == 4 and not self.architecture.startswith("wasm")

    @property
    def has_scaling(self) -> bool:
        return self.architecture == "x86_64" and self.vector_bytes == 64

    @property
    def streams(self) -> int:
        """Parts of an array out of cache that a core reads side by side. Cores with such long vectors wait for memory
        far longer than what one stream is read ahead makes up for."""
        return 4 if self.has_scaling else 1


def _vector_unit(architecture: str, features: frozenset[str]) -> tuple[int, int, bool]:
    """(vector bytes, vector registers, fused multiply-add) of a processor that Python runs on."""
    if architecture == "x86_64":
        if "avx512f" in features:
            return 64, 32, True
        return (32, 16, "fma" in features) if "avx" in features else (16, 16, False)
    return (16, 32, True) if architecture in ("aarch64", "arm64") else (4, 16, False)


def _instructions(architecture: str, features: frozenset[str]) -> tuple[bool, bool]:
    """(rounding to integral, f16 conversion) as instructions, scalar and vector."""
    if architecture == "x86_64":
        return bool(features & {"sse4.1", "avx"}), bool(features & {"f16c", "avx512f"})
    return (architecture in ("aarch64", "arm64"),) * 2


def _byte_products(architecture: str, features: frozenset[str]) -> str:
    """The instructions that sum products of bytes."""
    if architecture == "x86_64":
        wide = "avx512f" in features
        if ("avx512vnni" if wide else "avxvnni") in features:
            return "vnni"
        return "pairs" if "avx2" in features else ""
    return next((name for name in ("i8mm", "dotprod") if name in features), "")


_BYTE_SHUFFLES = {"avx512vbmi": "vpermi2b", "avx512bw": "pshufb64", "avx2": "pshufb32", "ssse3": "pshufb16"}


def _byte_shuffles(architecture: str, features: frozenset[str]) -> str:
    """The instructions that look bytes up in registers."""
    if architecture == "x86_64":
        return next((shuffle for feature, shuffle in _BYTE_SHUFFLES.items() if feature in features), "")
    return "tbl" if architecture in ("aarch64", "arm64") else ""


# Features of AArch64 that LLVM's list for this machine lacks, and where Linux tells of them: (entry of the auxiliary
# vector, bit in it).
_HWCAP, _HWCAP2 = 16, 26
_HARDWARE_CAPABILITIES = {"dotprod": (_HWCAP, 20), "i8mm": (_HWCAP2, 13)}


def _auxiliary_vector() -> dict[int, int]:
    """What Linux says of the processor."""
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return {entry: int(getauxval(entry)) for entry in (_HWCAP, _HWCAP2)}


def _with_capabilities(features: Mapping[str, bool], auxiliary_vector: Mapping[int, int]) -> dict[str, bool]:
    """The features of an AArch64 processor, completed with what Linux says of it."""
    told = {n: bool(auxiliary_vector[entry] >> bit & 1) for n, (entry, bit) in _HARDWARE_CAPABILITIES.items()}
    return {**told, **features}


def _host_features(architecture: str) -> dict[str, bool]:
    features = dict(llvm.get_host_cpu_features())
    if architecture == "aarch64" and sys.platform.startswith("linux"):
        return _with_capabilities(features, _auxiliary_vector())
    return features


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
    triple = llvm.get_default_triple()
    architecture = triple.split("-", 1)[0]
    features = _host_features(architecture)
    names = frozenset(name for name, on in features.items() if on)
    vector_bytes, registers, has_fma = _vector_unit(architecture, names)
    return Target(
        triple,
        llvm.get_host_cpu_name(),
        llvm.FeatureMap(features).flatten(),
        vector_bytes,
        registers,
        has_fma,
        _cache_bytes(0, 32 << 10),
        _cache_bytes(2, 512 << 10),
        _cache_bytes(3, 8 << 20),
        threads or usable_cpus(),
        *_instructions(architecture, names),
        byte_products=_byte_products(architecture, names),
        byte_shuffles=_byte_shuffles(architecture, names),
    )
