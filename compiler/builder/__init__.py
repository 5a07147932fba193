"""ComputationBuilder, a family of operations per file."""
