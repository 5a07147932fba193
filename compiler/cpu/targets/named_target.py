"""Targets by name: a triple, a CPU and features, checked and completed with what LLVM says of them."""

from __future__ import annotations

import re
import warnings

from ....runtime.llvm.target import Target
from ...errors import UnsupportedError
from .probe import Probe, probe
from .triple import Triple, defaults, parse_triple

_SPELLINGS = {
    "triple": r"[A-Za-z0-9_][A-Za-z0-9_.+-]*",
    "CPU": r"[A-Za-z0-9_.+-]*",
    "features": r"([+-]?[A-Za-z0-9_.][A-Za-z0-9_.+-]*(,|$))*",
}
_MAX_SPELLING = 4096
# Architectures that the tests link and run: see docs/aot.md.
_TESTED = re.compile(r"x86_64|i[3-6]86|aarch64|arm64|(arm|thumb)(v[678][\w.]*)?|riscv(32|64)|wasm32")
# (L1, L2, L3) bytes of processors with little memory, of WebAssembly, where they are not known, and of others.
_SMALL_CACHES = 16 << 10, 16 << 10, 16 << 10
_UNKNOWN_CACHES = 32 << 10, 256 << 10, 4 << 20
_CACHES = 32 << 10, 512 << 10, 8 << 20


class UntestedTarget(UserWarning):
    """Code for a target that LLVM knows and that none of tfbridge's tests runs."""


def target_for(
    triple: str,
    cpu: str = "",
    features: str = "",
    threads: int = 1,
    l1_bytes: int | None = None,
    l2_bytes: int | None = None,
) -> Target:
    """A target other than this machine. `features` as LLVM writes them: `+avx2,+fma,-sse4a`.

    Where neither CPU nor features are given, they are those that clang takes for the triple. What LLVM says of them
    decides the rest; caches are those of usual processors, unless their bytes are given.

    Raises: ValueError  a text that cannot be a triple, a CPU or a list of features, or bytes that are none;
    UnsupportedError  LLVM does not know the target, or it computes in a way that would give other numbers. Warns:
    UntestedTarget.
    """
    for (what, spelling), text in zip(_SPELLINGS.items(), (triple, cpu, features)):
        if len(text) > _MAX_SPELLING:
            raise ValueError(f"target {what}: {len(text)} characters, at most {_MAX_SPELLING} are wanted")
        if not re.fullmatch(spelling, text):
            raise ValueError(
                f"target {what}: {text[:100]!r} has other characters than letters, digits, '_', '.', '+' "
                f"and '-'{', with commas between features' if what == 'features' else ''}"
            )
    for what, size in (("l1_bytes", l1_bytes), ("l2_bytes", l2_bytes)):
        if size is not None and size < 1:
            raise ValueError(f"{what}: {size} is not positive")
    parsed = parse_triple(triple, cpu)
    if not cpu and not features:
        cpu, features = defaults(parsed)
    abi = _float_abi(parsed, probe(str(parsed), cpu, features))
    capabilities = probe(str(parsed), cpu, features, abi)
    _check(parsed, cpu, capabilities)
    l1, l2, l3 = _caches(parsed)
    l2 = l2_bytes or max(l2, l1_bytes or 0)
    return Target(
        str(parsed),
        cpu,
        features,
        capabilities.vector_bytes,
        _registers(parsed, capabilities),
        capabilities.has_fma,
        l1_bytes or min(l1, l2),
        l2,
        max(l2, l3),
        threads,
        capabilities.has_rounding,
        capabilities.has_half,
        abi,
        capabilities.pointer_bytes,
        parsed.is_bare_metal or parsed.architecture.startswith("wasm"),
        capabilities.has_f64,
        capabilities.byte_products,
        byte_shuffles=capabilities.byte_shuffles,
    )


def _float_abi(triple: Triple, capabilities: Probe) -> str:
    """The name of the calling convention, where the triple does not tell it: RISC-V's has the floats in registers that
    the processor has arithmetic for."""
    if not triple.architecture.startswith("riscv"):
        return ""
    integers = "lp64" if capabilities.pointer_bytes == 8 else "ilp32"
    return integers + ("d" if capabilities.has_f64 else "f" if capabilities.has_f32 else "")


def _check(triple: Triple, cpu: str, capabilities: Probe) -> None:
    if capabilities.is_big_endian:
        raise UnsupportedError(
            f"target {triple} keeps the high byte of a number first; constants are written low byte first"
        )
    if capabilities.pointer_bytes not in (4, 8):
        raise UnsupportedError(
            f"target {triple} has pointers of {capabilities.pointer_bytes} bytes; 4 or 8 are wanted"
        )
    if re.match(r"i[3-9]86|x86", triple.architecture) and capabilities.vector_bytes < 16:
        raise UnsupportedError(
            f"target {triple}, CPU {cpu or 'generic'}: its floats have more digits than f32 and f64, so that results "
            "would differ; a CPU with SSE2 is wanted, such as pentium4"
        )
    if not _TESTED.fullmatch(triple.architecture):
        warnings.warn(
            f"{triple.architecture} is an architecture that no test of tfbridge runs",
            UntestedTarget,
            stacklevel=4,
        )


def _registers(triple: Triple, capabilities: Probe) -> int:
    """How many vector registers there are, or scalar ones of floats where there are no vectors."""
    if re.match(r"i[3-9]86|x86$", triple.architecture):
        return 8
    if triple.architecture.startswith("x86_64"):
        return 32 if capabilities.vector_bytes == 64 else 16
    if (
        triple.is_microcontroller
        and triple.architecture.startswith("thumb")
        and capabilities.vector_bytes > 4
    ):
        return 8  # of the M profile's vectors
    return 32 if re.match(r"aarch64|arm64|riscv|loongarch|powerpc64", triple.architecture) else 16


def _caches(triple: Triple) -> tuple[int, int, int]:
    if triple.is_microcontroller:
        return _SMALL_CACHES
    return _UNKNOWN_CACHES if triple.architecture.startswith("wasm") else _CACHES
