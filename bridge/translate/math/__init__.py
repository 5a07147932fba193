"""Translations: elementwise ops, reductions, special functions."""
