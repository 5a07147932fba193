"""Devices of a run, collectives between them, calls of the host."""
