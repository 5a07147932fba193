"""What translations of all families ask of operands: axes, ranges of values, dims of sizes that depend on data."""
