"""The models."""
