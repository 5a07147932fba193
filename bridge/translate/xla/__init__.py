"""Translations: the Xla ops."""
