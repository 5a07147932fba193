"""`tfbridge.runtime.mpi`: devices over MPI. Written in `runtime.devices.mpi`; this is its public place."""

from .devices.mpi import MpiTransport

__all__ = ["MpiTransport"]
