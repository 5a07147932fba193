"""What all kernels are written with: elements in registers and in memory, mathematics."""
