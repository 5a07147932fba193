"""Calls from Python that go straight to the code."""
