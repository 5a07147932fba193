"""Translations: images."""
