"""A module as thunks with buffers."""
