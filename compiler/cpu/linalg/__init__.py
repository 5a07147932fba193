"""Cholesky and triangular solve."""
