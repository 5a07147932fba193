"""tfbridge compiles TensorFlow graphs to native CPU code."""

from __future__ import annotations

__version__ = "0.1.0"
