"""A module as thunks with buffers, and the entry function that runs them."""
