"""LLVM IR to object code."""
