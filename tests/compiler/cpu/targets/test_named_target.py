"""Targets by name: triples as people write them, what clang assumes, and what LLVM says of processors."""

from __future__ import annotations

import pytest
from tfbridge.compiler.cpu.compile import compile_self_contained
from tfbridge.compiler.cpu.targets.named_target import UntestedTarget, target_for
from tfbridge.compiler.cpu.targets.triple import defaults, parse_triple
from tfbridge.compiler.errors import UnsupportedError
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.ir.code_version import CodeVersion
from tfbridge.compiler.options import Options


@pytest.mark.parametrize(
    "text, parsed",
    [
        ("thumbv7em-none-eabihf", "thumbv7em-unknown-none-eabihf"),
        ("armv7a-linux-gnueabihf", "armv7a-unknown-linux-gnueabihf"),
        ("arm-none-linux-gnueabihf", "arm-none-linux-gnueabihf"),
        ("aarch64-none-elf", "aarch64-unknown-none-elf"),
        ("x86_64-w64-mingw32", "x86_64-w64-windows-gnu"),
        ("x86_64-pc-windows-msvc", "x86_64-pc-windows-msvc"),
        ("x86_64-pc-linux-gnu", "x86_64-pc-linux-gnu"),
        ("aarch64-buildroot-linux-gnu", "aarch64-buildroot-linux-gnu"),
        ("arm64-apple-ios14.0-simulator", "arm64-apple-ios14.0-simulator"),
        ("aarch64-linux-android21", "aarch64-unknown-linux-android21"),
        ("riscv32-unknown-elf", "riscv32-unknown-unknown-elf"),
        ("x86_64-linux-gnux32", "x86_64-unknown-linux-gnux32"),
        ("wasm32-wasi", "wasm32-unknown-wasi"),
        ("wasm32-unknown-unknown", "wasm32-unknown-unknown"),
        ("x86_64", "x86_64-unknown-unknown"),
    ],
)
def test_one_spelling(text: str, parsed: str) -> None:
    assert str(parse_triple(text)) == parsed
    assert str(parse_triple(parsed)) == parsed


@pytest.mark.parametrize(
    "text", ["foo-bar", "x86_64-linux-windows", "x86_64-linux-", "x86_64-pc-linux-gnu-gnu"]
)
def test_no_triple(text: str) -> None:
    with pytest.raises(ValueError, match="target triple"):
        parse_triple(text)


def test_processors_that_run_thumb_alone() -> None:
    architectures = {
        "cortex-m0plus": "thumbv6m",
        "cortex-m3": "thumbv7m",
        "cortex-m4": "thumbv7em",
        "cortex-m33": "thumbv8m.main",
        "cortex-m35p": "thumbv8m.main",
        "cortex-m55": "thumbv8.1m.main",
        "cortex-a7": "arm",
    }
    for cpu, architecture in architectures.items():
        parsed = parse_triple("arm-none-eabihf", cpu)
        assert parsed.architecture == architecture and parsed.is_microcontroller == (cpu != "cortex-a7")


def test_what_a_triple_assumes() -> None:
    assert defaults(parse_triple("i686-linux-gnu")) == ("pentium4", "")
    assert "+d" in defaults(parse_triple("riscv64-linux-gnu"))[1]
    assert "+d" not in defaults(parse_triple("riscv64-unknown-elf"))[1]
    assert defaults(parse_triple("thumbv7em-none-eabi")) == ("", "")
    assert "vfp4" in defaults(parse_triple("thumbv7em-none-eabihf"))[1]


@pytest.mark.parametrize(
    "triple, cpu, features, vector_bytes, registers, fuses",
    [
        ("x86_64-linux-gnu", "", "", 16, 16, (False, False)),
        ("x86_64-linux-gnu", "alderlake", "", 32, 16, (True, True)),
        ("x86_64-linux-gnu", "sapphirerapids", "", 64, 32, (True, True)),
        ("x86_64-linux-gnu", "", "+avx2,+fma", 32, 16, (True, True)),
        ("i686-linux-gnu", "", "", 16, 8, (False, False)),
        ("aarch64-linux-gnu", "", "", 16, 32, (True, True)),
        ("arm-linux-gnueabihf", "cortex-a15", "", 16, 16, (True, True)),
        ("arm-none-eabi", "cortex-m0", "", 4, 16, (False, False)),
        ("arm-none-eabihf", "cortex-m4", "", 4, 16, (True, False)),
        ("arm-none-eabihf", "cortex-m55", "", 16, 8, (True, True)),
        ("riscv64-linux-gnu", "", "", 4, 32, (True, True)),
        ("riscv64-linux-gnu", "", "+m,+a,+f,+d,+c,+v", 16, 32, (True, True)),
        ("wasm32-wasi", "", "+simd128", 16, 16, (False, False)),
    ],
)
def test_what_llvm_says_of_a_processor(
    triple: str, cpu: str, features: str, vector_bytes: int, registers: int, fuses: tuple[bool, bool]
) -> None:
    target = target_for(triple, cpu, features)
    assert (target.vector_bytes, target.registers) == (vector_bytes, registers)
    assert (target.fuses(32), target.fuses(64)) == fuses


def test_products_of_bytes() -> None:
    found = {
        ("arm-none-eabihf", "cortex-m3", ""): "",
        ("arm-none-eabihf", "cortex-m7", ""): "dsp",
        ("arm-none-eabihf", "cortex-m33", ""): "dsp",
        ("arm-none-eabihf", "cortex-m55", ""): "mve",
        ("arm-none-eabihf", "cortex-m55", "-mve"): "dsp",
        ("arm-none-eabihf", "cortex-m85", ""): "mve",
        ("aarch64-linux-gnu", "", ""): "",
        ("aarch64-linux-gnu", "cortex-a76", ""): "dotprod",
        ("x86_64-linux-gnu", "x86-64-v3", ""): "pairs",
        ("x86_64-linux-gnu", "alderlake", ""): "vnni",
    }
    assert {key: target_for(*key).byte_products for key in found} == found


def test_calling_conventions_and_pointers() -> None:
    assert target_for("riscv64-linux-gnu").abi == "lp64d"
    assert target_for("riscv32-unknown-elf").abi == "ilp32"
    assert target_for("riscv32-unknown-elf", features="+m,+f,+c").abi == "ilp32f"
    assert target_for("aarch64-linux-gnu").abi == ""
    widths = {
        "aarch64-linux-gnu": 8,
        "wasm32-wasi": 4,
        "armv7-linux-gnueabihf": 4,
    }
    assert {triple: target_for(triple).pointer_bytes for triple in widths} == widths


def test_caches() -> None:
    small, usual = target_for("arm-none-eabi", "cortex-m4"), target_for("aarch64-linux-gnu")
    assert small.l1_bytes == small.l2_bytes == 16 << 10 and usual.l2_bytes == 512 << 10
    chosen = target_for("aarch64-linux-gnu", l1_bytes=64 << 10, l2_bytes=1 << 20)
    assert (chosen.l1_bytes, chosen.l2_bytes) == (64 << 10, 1 << 20)
    with pytest.raises(ValueError, match="l2_bytes"):
        target_for("aarch64-linux-gnu", l2_bytes=0)


@pytest.mark.parametrize(
    "triple, cpu, message",
    [
        ("i686-linux-gnu", "i586", "SSE2"),
        ("s390x-linux-gnu", "", "high byte"),
        ("avr", "", "pointers of 2 bytes"),
        ("amdgcn-amd-none", "", "LLVM ERROR"),
        ("x86_64-linux-gnu", "nocpu", "not a recognized processor"),
        ("thumbv7em-none-eabihf", "cortex-x99", "not a recognized processor"),
    ],
)
def test_refused(triple: str, cpu: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        target_for(triple, cpu)


def test_targets_that_nothing_runs_are_named() -> None:
    for name in ("loongarch64-linux-gnu", "arm64ec-pc-windows-msvc"):
        with pytest.warns(UntestedTarget, match=name.partition("-")[0]):
            assert target_for(name).pointer_bytes == 8
    with pytest.warns(UntestedTarget, match="arm64_32"):
        assert target_for("arm64_32-apple-watchos").pointer_bytes == 4


@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", "armv7a-linux-gnueabihf", "riscv64-linux-gnu"])
def test_conversions_of_any_number_of_elements(triple: str) -> None:
    """LLVM 22 ends the process where three numbers of 64 bits become bytes on AArch64."""
    kinds = ("s8", "s16", "s32", "s64", "f32", "f64", "f8e8m0fnu")
    rows = [(a, b, n) for a in kinds for b in kinds for n in (1, 2, 3, 5, 7) if a != b]
    text = "HloModule m\nENTRY e {\n"
    text += "".join(f"  p{k} = {a}[{n}] parameter({k})\n" for k, (a, _, n) in enumerate(rows))
    text += "".join(f"  r{k} = {b}[{n}] convert(p{k})\n" for k, (_, b, n) in enumerate(rows))
    text += f"  ROOT t = ({', '.join(f'{b}[{n}]' for _, b, n in rows)}) tuple("
    text += ", ".join(f"r{k}" for k in range(len(rows))) + ")\n}\n"
    version = CodeVersion({"rows": parse_hlo(text)}, target_for(triple))
    (artifact,) = compile_self_contained([version], Options(), True).artifacts
    assert artifact.object
