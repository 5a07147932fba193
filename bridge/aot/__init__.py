"""Ahead-of-time compilation: a TensorFlow function becomes an object file and a header, for programs without TensorFlow."""

from __future__ import annotations

from .compile import Compiled, compile

__all__ = ["Compiled", "compile"]
