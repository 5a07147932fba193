"""Translations: shapes, slices, gather, scatter, sorting, sizes that depend on data."""
