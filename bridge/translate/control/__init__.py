"""Translations: control flow, variables, lists."""
