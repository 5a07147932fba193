"""Memory of runs: temporary arenas, pooled results, huge pages."""
