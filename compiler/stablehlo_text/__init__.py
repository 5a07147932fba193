"""StableHLO text: MLIR modules of the dialects stablehlo, chlo and func, as JAX prints them."""
