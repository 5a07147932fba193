"""Translations: neural networks, optimizers, quantization."""
