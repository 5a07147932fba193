"""Threads: the pool of kernels, compile threads, forks, interrupts, the interpreter's settings."""
