"""Questions about a module, which they do not change."""
