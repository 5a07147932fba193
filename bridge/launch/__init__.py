"""The launch op."""
