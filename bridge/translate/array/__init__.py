"""Translations: shapes, slices, gather, scatter, sorting, results whose sizes depend on data, checks."""
