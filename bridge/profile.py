"""`tfbridge.bridge.profile`: profiles of functions. Written in `bridge.api.profile`; this is its public place."""

from .api.profile import profile

__all__ = ["profile"]
