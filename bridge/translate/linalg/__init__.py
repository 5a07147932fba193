"""Translations: products, solvers, decompositions, Fourier transforms."""
