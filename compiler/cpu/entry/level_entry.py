"""Writes the entry of a program whose code is there for several levels of processors: the first run asks the processor
what it has, without the C library, and every run calls the code of the highest level that is there.

What was found is kept in a variable of the object, which threads may write at the same time, all the same number.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from ....runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, Function, ModuleText, VectorValue
from ....runtime.run_context import PROCESSOR_REFUSED
from ...ir.code_version import Level
from .entry_emitter import ENTRY_PARAMETERS, return_with_message

_FOUND, _FIND = "tfb.level", "tfb.find_level"
_OSXSAVE = 1 << 27
_EXTENDED = -(1 << 31)  # the first of the leaves beyond, in 32 bits
# Machine code, since LLVM has no intrinsics for it, and its assembler is there for the host alone.
_CPUID = bytes.fromhex(
    "53"  # push rbx
    "89F8 31C9 0FA2"  # mov eax, edi; xor ecx, ecx; cpuid
    "8906 895E04 894E08 89560C"  # mov [rsi], eax; [rsi + 4], ebx; [rsi + 8], ecx; [rsi + 12], edx
    "5B C3"  # pop rbx; ret
)
_XGETBV = bytes.fromhex("31C9 0F01D0 C3")  # xor ecx, ecx; xgetbv; ret
_REGISTERS = {  # mrs x0, ID_AA64ISAR0_EL1, ID_AA64ISAR1_EL1, ID_AA64PFR0_EL1; ret
    "instructions0": bytes.fromhex("000638D5 C0035FD6"),
    "instructions1": bytes.fromhex("200638D5 C0035FD6"),
    "processor": bytes.fromhex("000438D5 C0035FD6"),
}


def emit_level_entry(text: ModuleText, name: str, levels: Sequence[Level], entries: Sequence[str]) -> None:
    """Writes the function `name`, an entry like any other, which calls that of a level."""
    _add_search(text, levels)
    f = Function(text, name, ENTRY_PARAMETERS, "i32", DRIVER_ATTRIBUTES, linkage="")
    number_of_level = f.symbol(_FOUND).atomic_load("i32", "monotonic")
    with f.if_(number_of_level.equals(0), level=number_of_level) as search:
        search.level = f.call(_FIND, "i32", [])
    arguments = [f.pointer(parameter) for _, parameter in ENTRY_PARAMETERS]
    for number, entry in reversed(list(enumerate(entries, 2))):
        with f.if_(search.level.equals(number)):
            f.ret(f.call(entry, "i32", arguments))
    lowest = f"this processor has less than the lowest level of the code, {levels[0].name}"
    return_with_message(f, lowest.encode(), PROCESSOR_REFUSED)
    text.add(name, f.text())


def _add_search(text: ModuleText, levels: Sequence[Level]) -> None:
    """The function that finds the level and keeps it: 1 for none, 2 for the lowest."""
    if text.has(_FIND):
        return
    text.add_global(_FOUND, "internal global i32 0")
    f = Function(text, _FIND, (), "i32", DRIVER_ATTRIBUTES)
    words = (_words_of_x86 if levels[0].target.is_x86 else _words_of_aarch64)(f, levels[-1].needs)
    highest = f.constant("i32", 1)
    for number, level in enumerate(levels, 2):
        conditions = [(words[word] & bits).equals(bits) for word, bits in level.needs.items()]
        has_all = functools.reduce(lambda a, b: a & b, conditions, f.constant("i1", 1))
        highest = has_all.choose(f.constant("i32", number), highest)
    f.symbol(_FOUND).atomic_store(highest, "monotonic")
    f.ret(highest)
    text.add(_FIND, f.text())


def _add_machine_code(text: ModuleText, name: str, head: str, code: bytes) -> None:
    """A function made of this machine code; what LLVM writes after it is never reached."""
    listed = "".join(f"\\{byte:02X}" for byte in code)
    prologue = f'prologue [{len(code)} x i8] c"{listed}"'
    text.add(name, f"define internal {head} {DRIVER_ATTRIBUTES} {prologue} {{\n  unreachable\n}}")


def _words_of_x86(f: Function, needs: Mapping[str, int]) -> dict[str, VectorValue]:
    """Both functions are called as other systems than Windows call them, on Windows too."""
    _add_machine_code(
        f.module, "tfb.cpuid", "x86_64_sysvcc void @tfb.cpuid(i32 %leaf, ptr %registers)", _CPUID
    )
    _add_machine_code(f.module, "tfb.xgetbv", "x86_64_sysvcc i32 @tfb.xgetbv()", _XGETBV)
    registers, zero = f.stack_slot("[4 x i32]"), f.constant("i32", 0)

    def cpuid(leaf: int, highest: VectorValue | None = None) -> list[VectorValue]:
        """Registers a to d of a leaf; zeros where it is above the highest."""
        f.do(f"call x86_64_sysvcc void @tfb.cpuid(i32 {leaf}, ptr {registers.text})")
        words = [(registers + 4 * k).load("i32") for k in range(4)]
        return words if highest is None else [highest.below(leaf).choose(zero, word) for word in words]

    highest, highest_extended = cpuid(0)[0], cpuid(_EXTENDED)[0]
    features = cpuid(1)[2]
    _, structured, structured2, _ = cpuid(7, highest)
    extended = cpuid(_EXTENDED + 1, highest_extended)[2]
    with f.if_((features & _OSXSAVE).equals(_OSXSAVE), saved=zero) as branch:
        branch.saved = VectorValue("i32", f.assign("call x86_64_sysvcc i32 @tfb.xgetbv()"), f)
    return {
        "features": features,
        "structured": structured,
        "structured2": structured2,
        "extended": extended,
        "saved": branch.saved,
    }


def _words_of_aarch64(f: Function, needs: Mapping[str, int]) -> dict[str, VectorValue]:
    words = {}
    for word in needs:
        name = f"tfb.{word}"
        _add_machine_code(f.module, name, f"i64 @{name}()", _REGISTERS[word])
        words[word] = VectorValue("i64", f.call(name, "i64", []).text, f)
    return words
