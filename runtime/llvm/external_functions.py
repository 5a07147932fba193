"""The external functions that generated code may call, with their LLVM signatures: C's memory and libm.

f64 functions without a vector kernel, and f64 arguments beyond a kernel's range, are called lane by lane.
32-bit targets call their compiler's run-time library besides, for 64-bit integers (`__divdi3` and the like).
"""

MEMORY = {
    "memcpy": ("ptr", ("ptr", "ptr", "i64")),
    "memmove": ("ptr", ("ptr", "ptr", "i64")),
    "memset": ("ptr", ("ptr", "i32", "i64")),
}

LIBM = {
    name: ("double", ("double",) * arity)
    for name, arity in {
        "cos": 1,
        "erf": 1,
        "erfc": 1,
        "fmod": 2,
        "pow": 2,
        "sin": 1,
        "tan": 1,
    }.items()
}
