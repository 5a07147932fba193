"""The evaluator: the meaning of the IR, in NumPy."""
