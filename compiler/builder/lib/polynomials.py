"""Polynomials of arrays."""

from __future__ import annotations

from collections.abc import Sequence

from ..computation_builder import ComputationBuilder, Operand


def polynomial(b: ComputationBuilder, x: Operand, coefficients: Sequence[float]) -> Operand:
    """c[0] x^n + ... + c[n]."""
    total = b.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + b.scalar_like(x, c)
    return total


def chebyshev(b: ComputationBuilder, t: Operand, coefficients: Sequence[float]) -> Operand:
    """sum of c[k] T_k(t), by Clenshaw's recurrence."""
    twice = t * b.scalar_like(t, 2)
    last, before = b.full_like(t, 0), b.full_like(t, 0)
    for c in coefficients[:0:-1]:
        last, before = twice * last - before + b.scalar_like(t, c), last
    return t * last - before + b.scalar_like(t, coefficients[0])
