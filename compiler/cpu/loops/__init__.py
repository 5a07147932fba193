"""Loop fusion: analysis of indices, and loops."""
