"""Object code: made in workers, stored, loaded, called."""
