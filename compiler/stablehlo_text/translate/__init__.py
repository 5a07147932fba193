"""Translations of operations, a file per family; importing them fills `translation.TRANSLATIONS`."""

from . import (
    arrays,
    chlo,
    collectives,
    contractions,
    control,
    custom_calls,
    dynamic,
    einsum,
    elementwise,
    reductions,
)

__all__ = [
    "arrays",
    "chlo",
    "collectives",
    "contractions",
    "control",
    "custom_calls",
    "dynamic",
    "einsum",
    "elementwise",
    "reductions",
]
