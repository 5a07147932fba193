"""`tfbridge.flags`: the environment variables. The table is written in `bridge.flags`; this is its public place."""

from __future__ import annotations

from ..bridge.flags import FLAGS, Flag, FlagError, read

__all__ = ["FLAGS", "Flag", "FlagError", "read"]
