"""Translations: random numbers."""
