"""The operations of ComputationBuilder, a family per file."""
