"""LLVM IR: the builder, vectors, external functions, the target."""
