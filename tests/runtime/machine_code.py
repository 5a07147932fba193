"""Machine code for the runtime's tests, written by hand as LLVM IR."""

from __future__ import annotations

import llvmlite.binding as llvm
from tfbridge.runtime.code.artifact import Artifact, BufferSpec

VECTOR = BufferSpec("float32", (8,), 32)

# Two arguments, one result: expf of the sum's first lane times constant 0 for all lanes; keeps the sum in
# temp memory.
ADD = """
declare float @expf(float)
define i32 @entry(ptr %context, ptr %args, ptr %results, ptr %temp) {
  %a_at = load ptr, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  %b_at = load ptr, ptr %second
  %a = load <8 x float>, ptr %a_at, align 4
  %b = load <8 x float>, ptr %b_at, align 4
  %sum = fadd <8 x float> %a, %b
  store <8 x float> %sum, ptr %temp, align 32
  %kept = load <8 x float>, ptr %temp, align 32
  %constants_at = getelementptr i8, ptr %context, i64 72
  %constants = load ptr, ptr %constants_at
  %c = load <8 x float>, ptr %constants, align 32
  %scaled = fmul <8 x float> %kept, %c
  %first = extractelement <8 x float> %scaled, i32 0
  %e = call float @expf(float %first)
  %out = insertelement <8 x float> %scaled, float %e, i32 0
  %r_at = load ptr, ptr %results
  store <8 x float> %out, ptr %r_at, align 4
  ret i32 0
}
"""

# Writes a message and reports error 3.
FAIL = """
@text = private constant [8 x i8] c"no luck\\00"
declare ptr @memcpy(ptr, ptr, i64)
define i32 @entry(ptr %context, ptr %args, ptr %results, ptr %temp) {
  %message_at = getelementptr i8, ptr %context, i64 32
  %message = load ptr, ptr %message_at
  %copied = call ptr @memcpy(ptr %message, ptr @text, i64 8)
  ret i32 3
}
"""

# One argument i64[n], one result i64[n]: out[i] += in[i] + 1 under a launch, and tids[i] = tid + 1 in the
# second result.
PARALLEL = """
define internal void @kernel(ptr %context, ptr %buffers, i64 %low, i64 %high, i64 %tid) {
entry:
  %in = load ptr, ptr %buffers
  %out_at = getelementptr ptr, ptr %buffers, i64 1
  %out = load ptr, ptr %out_at
  %tids_at = getelementptr ptr, ptr %buffers, i64 2
  %tids = load ptr, ptr %tids_at
  br label %next
next:
  %i = phi i64 [%low, %entry], [%i1, %body]
  %more = icmp slt i64 %i, %high
  br i1 %more, label %body, label %done
body:
  %x_at = getelementptr i64, ptr %in, i64 %i
  %x = load i64, ptr %x_at
  %y_at = getelementptr i64, ptr %out, i64 %i
  %y = load i64, ptr %y_at
  %sum = add i64 %x, %y
  %sum1 = add i64 %sum, 1
  store i64 %sum1, ptr %y_at
  %t_at = getelementptr i64, ptr %tids, i64 %i
  %t = add i64 %tid, 1
  store i64 %t, ptr %t_at
  %i1 = add i64 %i, 1
  br label %next
done:
  ret void
}
define i32 @entry(ptr %context, ptr %args, ptr %results, ptr %temp) {
entry:
  %buffers = alloca [3 x ptr]
  %in = load ptr, ptr %args
  store ptr %in, ptr %buffers
  %out = load ptr, ptr %results
  %b1 = getelementptr ptr, ptr %buffers, i64 1
  store ptr %out, ptr %b1
  %r1 = getelementptr ptr, ptr %results, i64 1
  %tids = load ptr, ptr %r1
  %b2 = getelementptr ptr, ptr %buffers, i64 2
  store ptr %tids, ptr %b2
  call void @llvm.memset.p0.i64(ptr %out, i8 0, i64 BYTES, i1 false)
  %launch = load ptr, ptr %context
  %serial = icmp eq ptr %launch, null
  br i1 %serial, label %alone, label %together
alone:
  call void @kernel(ptr %context, ptr %buffers, i64 0, i64 TASKS, i64 0)
  ret i32 0
together:
  call void %launch(ptr %context, ptr @kernel, ptr %buffers, i64 TASKS, i64 GRAIN)
  ret i32 0
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def emit(text: str) -> bytes:
    """The object of a module's text for this machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="jitdefault")
    with llvm.parse_assembly(text) as module:
        return machine.emit_object(module)


def parallel_artifact(tasks: int, grain: int = 1) -> Artifact:
    """PARALLEL for this many tasks."""
    spec = BufferSpec("int64", (tasks,), tasks * 8)
    text = PARALLEL.replace("BYTES", str(tasks * 8)).replace("TASKS", str(tasks)).replace("GRAIN", str(grain))
    return Artifact(emit(text), "entry", (spec,), (spec, spec), threads=8)


def add_artifact() -> Artifact:
    """ADD with eight constants 2.0."""
    return Artifact(
        emit(ADD),
        "entry",
        (VECTOR, VECTOR),
        (VECTOR,),
        temp_bytes=4096,
        constants=b"\x00\x00\x00\x40" * 8,
        fingerprint="add",
    )
