"""The infeed and outfeed queues of devices, and several programs that run at once."""

from __future__ import annotations

import collections
import functools
import queue
from collections.abc import Sequence

import numpy as np

from ...runtime.devices.device import Feeds
from ...runtime.devices.run_devices import run_devices
from ...runtime.errors import CommunicationError
from ...runtime.threads import forking
from ..errors import ShapeError
from ..ir.literal import Literal
from .executable import Executable

_lock = forking.lock()


class DeviceQueues:
    """The queues of a client's devices, and runs of several programs."""

    _feeds: collections.defaultdict[int, Feeds]
    _channels = 0

    def create_channel_handle(self) -> int:
        """A new channel of this client."""
        with _lock:
            self._channels += 1
            return self._channels

    def transfer_to_infeed(self, data: object, device: int = 0) -> None:
        """Puts an item into a device's infeed queue: an array, a sequence of arrays for a tuple, or a literal."""
        self._feeds[device].infeed.put(_arrays(data))

    def transfer_from_outfeed(self, device: int = 0, *, timeout: float | None = None) -> list[np.ndarray]:
        """The arrays of the next item of a device's outfeed queue, waiting for it.

        Raises: CommunicationError  there was none for `timeout` seconds.
        """
        try:
            return self._feeds[device].outfeed.get(timeout=timeout)
        except queue.Empty:
            raise CommunicationError(
                f"the outfeed queue of device {device} had no item for {timeout} s"
            ) from None

    def execute_parallel(
        self, runs: Sequence[tuple[Executable, Sequence[np.ndarray]]], *, timeout: float | None = None
    ) -> list[list[np.ndarray]]:
        """Runs several programs at once, a thread each, that send to and receive from each other: program k is
        partition k of one replica.

        Raises: as `Executable.execute_replicas`.
        """
        for executable, _ in runs:
            if (executable.num_replicas, executable.num_partitions) not in ((1, 1), (1, len(runs))):
                raise ShapeError(
                    f"execute_parallel: a program for {executable.num_replicas} replicas of "
                    f"{executable.num_partitions} partitions is one of {len(runs)}"
                )
        programs = [
            functools.partial(executable._call, executable._checked(arguments))
            for executable, arguments in runs
        ]
        return run_devices(programs, 1, len(runs), self._feeds, timeout)


def _arrays(data: object) -> list[np.ndarray]:
    if isinstance(data, Literal):
        return [part for p in data.parts for part in _arrays(p)] if data.shape.is_tuple else [data.array]
    if isinstance(data, (list, tuple)):
        return [np.array(a, order="C") for a in data]
    return [np.array(data, order="C")]
