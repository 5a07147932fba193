"""The benchmark: `python -m tfbridge.models.bench`."""
