"""Target triples: one spelling of each, and what clang assumes where a triple comes without a CPU or features."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

_NAMES = {
    "vendor": re.compile(
        r"(amd|apple|csr|esp|espressif|fsl|ibm|img|intel|mesa|mti|nvidia|oe|pc|scei|sie|sifive|suse|w64)$"
    ),
    "system": re.compile(
        r"(aix|cygwin|darwin|dragonfly|emscripten|freebsd|fuchsia|haiku|hurd|illumos|ios|kfreebsd|linux|macosx?|mingw32"
        r"|netbsd|none|openbsd|rtems|serenity|solaris|tvos|uefi|visionos|wasi|wasip[12]|watchos|win32|windows|xros"
        r"|zephyr)[\d.]*$"
    ),
    "environment": re.compile(
        r"(android(eabi)?|cygnus|eabi(hf)?|gnu(abi64|eabi(hf)?|f32|sf|x32)?|itanium|macabi|msvc|musl(eabi(hf)?)?|newlib"
        r"|ohos|simulator|uclibc(eabi(hf)?)?|threads|elf|macho|coff)[\d.]*$"
    ),
}
# Systems that stand for a system and an environment.
_ALIASES = {"mingw32": ("windows", "gnu"), "win32": ("windows", "msvc"), "cygwin": ("windows", "cygnus")}
# Processors that run Thumb code alone, by the beginning of their names, the longest first: their architecture.
_THUMB_ONLY = {
    "cortex-m0": "thumbv6m",
    "cortex-m1": "thumbv6m",
    "sc000": "thumbv6m",
    "cortex-m3": "thumbv7m",
    "sc300": "thumbv7m",
    "cortex-m4": "thumbv7em",
    "cortex-m7": "thumbv7em",
    "cortex-m23": "thumbv8m.base",
    "cortex-m33": "thumbv8m.main",
    "cortex-m35p": "thumbv8m.main",
    "star-mc1": "thumbv8m.main",
    "cortex-m52": "thumbv8.1m.main",
    "cortex-m55": "thumbv8.1m.main",
    "cortex-m85": "thumbv8.1m.main",
}


@dataclasses.dataclass(frozen=True)
class Triple:
    """The four parts of a triple; `unknown` where it says nothing."""

    architecture: str
    vendor: str
    system: str
    environment: str

    def __str__(self) -> str:
        return "-".join(dataclasses.astuple(self)).removesuffix("-unknown")

    @property
    def is_bare_metal(self) -> bool:
        """Whether programs run without an operating system."""
        return self.system in ("none", "unknown") and not self.architecture.startswith("wasm")

    @property
    def is_microcontroller(self) -> bool:
        """Whether the architecture is one of processors with a few hundred kilobytes of memory."""
        return bool(re.match(r"(thumb|arm)v(6s?|7e?|8(\.1)?)-?m", self.architecture)) or (
            self.architecture.startswith("riscv32") and self.is_bare_metal
        )

    @property
    def has_hard_float_abi(self) -> bool:
        """Whether the environment's name says that functions take floats in registers."""
        return self.environment.endswith("eabihf")


def parse_triple(text: str, cpu: str = "") -> Triple:
    """The parts of a triple, which may leave out vendor or system. A processor without Arm code makes `arm` `thumb`.

    Raises: ValueError  a part has no meaning where it stands, or stands twice.
    """
    architecture, *rest = text.split("-")
    parts: dict[str, str] = {}
    for number, part in enumerate(rest):
        kind = _kind(part)
        if part == "none" and any(_kind(other) == "system" for other in rest[number + 1 :]):
            kind = "vendor"
        elif part == "unknown":
            kind = next((k for k in _NAMES if k not in parts), None)
        elif kind is None and number == 0 and len(rest) > 1:
            kind = "vendor"  # of which there are many
        if kind is None or kind in parts:
            raise ValueError(
                f"target triple {text!r}: {part!r} is no {' or '.join(k for k in _NAMES if k not in parts)}"
            )
        if part in _ALIASES:
            parts["system"], parts["environment"] = _ALIASES[part]
        else:
            parts[kind] = part
    thumb = next((a for p, a in sorted(_THUMB_ONLY.items(), reverse=True) if cpu.startswith(p)), "")
    if thumb and re.match(r"(arm|thumb)(v[678][.\w]*)?$", architecture):
        architecture = thumb
    return Triple(architecture, *(parts.get(k, "unknown") for k in _NAMES))


def _kind(part: str) -> str | None:
    """Which part of a triple a text is; a number behind systems and environments is their version."""
    return next((kind for kind, names in _NAMES.items() if names.match(part)), None)


@dataclasses.dataclass(frozen=True)
class _Default:
    """cpu, features: what triples that `fits` have, where neither is given."""

    fits: Callable[[Triple], bool]
    cpu: str = ""
    features: str = ""


_DEFAULTS = (
    _Default(lambda t: bool(re.fullmatch(r"i[3-9]86|x86", t.architecture)), "pentium4"),
    _Default(lambda t: t.architecture.startswith("x86_64"), "x86-64"),
    _Default(
        lambda t: t.architecture.startswith("riscv") and not t.is_bare_metal,
        "",
        "+m,+a,+f,+d,+c,+zicsr,+zifencei",
    ),
    _Default(lambda t: t.architecture.startswith("riscv"), "", "+m,+a,+c"),
    # The least processor that a plain `arm` with floats in registers can be.
    _Default(lambda t: t.architecture == "arm" and t.has_hard_float_abi, "arm1176jzf-s"),
    _Default(lambda t: t.architecture == "thumbv7em" and t.has_hard_float_abi, "", "+vfp4d16sp"),
    _Default(lambda t: t.architecture.startswith("thumbv8") and t.has_hard_float_abi, "", "+fp-armv8d16sp"),
)


def defaults(triple: Triple) -> tuple[str, str]:
    """(CPU, features) of a triple that comes with neither."""
    return next(((d.cpu, d.features) for d in _DEFAULTS if d.fits(triple)), ("", ""))
