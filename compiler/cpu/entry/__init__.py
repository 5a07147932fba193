"""Entry functions: they run the thunks of a program, after picking the code for a processor or for sizes."""
