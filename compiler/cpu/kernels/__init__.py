"""Kernels of single ops."""
