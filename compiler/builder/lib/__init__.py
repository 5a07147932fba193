"""Algorithms written with the builder."""
