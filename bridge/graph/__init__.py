"""A graph as data."""
