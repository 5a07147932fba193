"""Switch and Merge back to While and If."""
