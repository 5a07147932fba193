"""What LLVM makes of a target: its data layout, and the instructions that it generates for a few functions.

LLVM is asked in a process of its own: its answer to a bad target is a message on stderr, or the end of the process.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import subprocess
import sys
from collections.abc import Mapping

from ...errors import UnsupportedError

_DOT = (
    "declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)  define i32 @f(ptr %p, ptr %q) { "
    "%a = load <16 x i8>, ptr %p  %b = load <16 x i8>, ptr %q  "
    "%x = SIGN <16 x i8> %a to <16 x i32>  %y = sext <16 x i8> %b to <16 x i32>  %m = mul <16 x i32> %x, %y  "
    "%r = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %m)  ret i32 %r }"
)
_ANY_ORDER = ", ".join(f"i32 {k * 77 % 128}" for k in range(64))
# Each takes and returns what its name says; `add_vector` adds 64 bytes of f32.
_FUNCTIONS = {
    "f32_add": "define float @f(float %a, float %b) { %r = fadd float %a, %b  ret float %r }",
    "f64_add": "define double @f(double %a, double %b) { %r = fadd double %a, %b  ret double %r }",
    "add_vector": "define void @f(ptr %p) { %a = load <16 x float>, ptr %p, align 64  "
    "%r = fadd <16 x float> %a, %a  store <16 x float> %r, ptr %p, align 64  ret void }",
    "fma": "declare float @llvm.fma.f32(float, float, float)  define float @f(float %a, float %b, float %c) "
    "{ %r = call float @llvm.fma.f32(float %a, float %b, float %c)  ret float %r }",
    "floor": "declare float @llvm.floor.f32(float)  define float @f(float %a) "
    "{ %r = call float @llvm.floor.f32(float %a)  ret float %r }",
    "u8_s8": _DOT.replace("SIGN", "zext"),
    "s8_s8": _DOT.replace("SIGN", "sext"),
    "s16_s16": "define i32 @f(i16 %a, i16 %b, i32 %c) { %x = sext i16 %a to i32  %y = sext i16 %b to i32  "
    "%m = mul i32 %x, %y  %r = add i32 %m, %c  ret i32 %r }",
    "shuffle": "define void @f(ptr %p, ptr %q, ptr %r) { %a = load <64 x i8>, ptr %p  %b = load <64 x i8>, ptr %q  "
    f"%s = shufflevector <64 x i8> %a, <64 x i8> %b, <64 x i32> <{_ANY_ORDER}>  store <64 x i8> %s, ptr %r  "
    "ret void }",
    "from_half": "define void @f(ptr %p, ptr %q) { %a = load half, ptr %p  %r = fpext half %a to float  "
    "store float %r, ptr %q  ret void }",
}
# The C functions that LLVM calls where there is no instruction.
_CALLS = {
    "f32_add": r"__addsf3|__aeabi_fadd",
    "f64_add": r"__adddf3|__aeabi_dadd",
    "fma": r"\bfmaf\b|\b_fmaf\b",
    "floor": r"\bfloorf\b|\b_floorf\b",
    "from_half": r"__extendhfsf2|__gnu_h2f_ieee|__aeabi_h2f",
}
# How registers, or instructions on them, are written, and their bytes.
_VECTORS = ((r"\bzmm\d", 64), (r"\bymm\d", 32), (r"addps|\.4s\b|\bq\d+\b|\bvfadd\.v|\bf32x4\.add\b", 16))
# Instructions that sum products of bytes, where a function has them, the best first.
_BYTE_PRODUCTS = (
    ("vnni", "u8_s8", r"\bvpdpbusd\b"),
    ("pairs", "u8_s8", r"\bvpmaddwd\b.*%ymm"),
    ("i8mm", "u8_s8", r"\busdot\b"),
    ("dotprod", "s8_s8", r"\bsdot\b"),
    ("mve", "s8_s8", r"\bvmla(da)?va?\.s8\b"),
    ("dsp", "s16_s16", r"\bsmlabb\b"),
)
# Instructions that look bytes up in registers, the best first.
_BYTE_SHUFFLES = (
    ("vpermi2b", r"\bvperm[it]2b\b"),
    ("pshufb64", r"\bvpshufb\b.*%zmm"),
    ("pshufb32", r"\bvpshufb\b.*%ymm"),
    ("pshufb16", r"\bv?pshufb\b"),
    ("tbl", r"\btbl\b"),
)
_PROGRAM = """
import json, sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
triple, cpu, features, abi, functions = sys.argv[1:]
machine = llvm.Target.from_triple(triple).create_target_machine(
    cpu=cpu, features=features, abiname=abi, codemodel="small"
)
answer = {"layout": str(machine.target_data)}
for name, text in json.loads(functions).items():
    answer[name] = machine.emit_assembly(llvm.parse_assembly(f'target triple = "{triple}"  {text}'))
machine.emit_object(llvm.parse_assembly("define i64 @f(i64 %x) { ret i64 %x }"))
print(json.dumps(answer))
"""
_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Probe:
    """What LLVM generates for a target.

    layout: LLVM's data layout. vector_bytes: of the widest registers with f32 arithmetic, 4 without any. has_f32,
    has_f64: arithmetic of these types is instructions. has_fma, has_rounding, has_half: so are the fused f32
    multiply-add, floor, and conversions between f16 and f32. byte_products, byte_shuffles: as Target's.
    """

    layout: str
    vector_bytes: int
    has_f32: bool
    has_f64: bool
    has_fma: bool
    has_rounding: bool
    has_half: bool
    byte_products: str
    byte_shuffles: str

    @property
    def pointer_bytes(self) -> int:
        """Bytes of a pointer."""
        match = re.search(r"(?:^|-)p:(\d+)", self.layout)
        return int(match[1]) // 8 if match else 8

    @property
    def is_big_endian(self) -> bool:
        """Whether the high byte of a number comes first."""
        return self.layout.startswith("E")


@functools.cache
def probe(triple: str, cpu: str, features: str, abi: str = "") -> Probe:
    """Asks LLVM about a target.

    Raises: UnsupportedError  LLVM does not know the triple, the CPU or a feature, or ends; the message is its own.
    """
    command = [sys.executable, "-P", "-c", _PROGRAM, triple, cpu, features, abi, json.dumps(_FUNCTIONS)]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise UnsupportedError(f"{_described(triple, cpu, features)}: LLVM does not end") from None
    if finished.returncode or finished.stderr:
        lines = dict.fromkeys(
            line for line in finished.stderr.splitlines() if re.match(r"'|RuntimeError|LLVM ERROR", line)
        )
        reason = "; ".join(lines) or finished.stderr.strip()[:300] or f"LLVM ended: {finished.returncode}"
        raise UnsupportedError(f"{_described(triple, cpu, features)}: {reason}")
    return _read(json.loads(finished.stdout))


def _described(triple: str, cpu: str, features: str) -> str:
    return f"target {triple}, CPU {cpu or 'generic'}, features {features or 'none'}"


def _read(answer: Mapping[str, str]) -> Probe:
    has = {name: not re.search(call, answer[name]) for name, call in _CALLS.items()}
    width = next((width for pattern, width in _VECTORS if re.search(pattern, answer["add_vector"])), 4)
    products = next((n for n, function, code in _BYTE_PRODUCTS if re.search(code, answer[function])), "")
    shuffles = next((name for name, code in _BYTE_SHUFFLES if re.search(code, answer["shuffle"])), "")
    return Probe(
        answer["layout"],
        width,
        has["f32_add"],
        has["f64_add"],
        has["fma"],
        has["floor"],
        has["from_half"],
        products,
        "mve" if products == "mve" else shuffles,
    )
