"""Targets other than this machine: their triples, what compilers assume of them, and what LLVM generates for them."""
