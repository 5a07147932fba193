"""Programs that run on several devices at once, and the queues of devices."""

from __future__ import annotations

import collections
import dataclasses
import functools
import queue
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.devices.device import Device, Feeds, Transport
from ...runtime.devices.run_devices import run_devices
from ...runtime.errors import CommunicationError
from ...runtime.threads import forking
from ..errors import ShapeError
from ..ir.literal import Literal
from ..ir.module import Module
from ..ir.module_attributes import devices
from ..options import Options

if TYPE_CHECKING:
    from .client import Executable


_lock = forking.lock()


def counted(
    module: Module, options: Options, num_replicas: int | None, num_partitions: int | None
) -> Options:
    """The options with the numbers of replicas and partitions: those given, or else those that the module's header
    says (replica_count, num_partitions), or else the options'.

    Raises: LimitError  devices.
    """

    def number(given: int | None, name: str, otherwise: int) -> int:
        return (
            given if given is not None else devices(module, name) if name in module.attributes else otherwise
        )

    replicas = number(num_replicas, "replica_count", options.num_replicas)
    partitions = number(num_partitions, "num_partitions", options.num_partitions)
    options.limits.check("devices", replicas * partitions, "replicas times partitions")
    if (replicas, partitions) == (options.num_replicas, options.num_partitions):
        return options
    return dataclasses.replace(options, num_replicas=replicas, num_partitions=partitions)


class ReplicaRuns:
    """How an executable runs as one of several devices."""

    num_replicas = 1
    num_partitions = 1
    _feeds: collections.defaultdict[int, Feeds]

    def _checked(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        raise NotImplementedError

    def _call(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        raise NotImplementedError

    def execute_replicas(
        self, arguments: Sequence[Sequence[np.ndarray]], *, timeout: float | None = None
    ) -> list[list[np.ndarray]]:
        """Runs on every device at once, a thread each: `arguments` has a list for each device, replica 0 with all its
        partitions first; the results likewise.

        Raises: ShapeError  other numbers of devices or arguments; CommunicationError  devices did not come together,
            or one waited longer than `timeout` seconds; the first error that a device raises.
        """
        count = self.num_replicas * self.num_partitions
        if len(arguments) != count:
            raise ShapeError(
                f"execute_replicas: arguments for {len(arguments)} devices, the program was compiled for "
                f"{self.num_replicas} replicas of {self.num_partitions} partitions"
            )
        programs = [functools.partial(self._call, self._checked(given)) for given in arguments]
        return run_devices(programs, self.num_replicas, self.num_partitions, self._feeds, timeout)

    def execute_over(
        self,
        transport: Transport,
        device: int,
        arguments: Sequence[np.ndarray],
        *,
        timeout: float | None = None,
    ) -> list[np.ndarray]:
        """Runs as one device of a run whose other devices are reached through the transport, in other processes.

        Raises: as `execute_replicas`.
        """
        arrays = self._checked(arguments)
        here = Device(
            transport,
            *divmod(device, self.num_partitions),
            self.num_replicas,
            self.num_partitions,
            self._feeds[device],
            timeout,
        )
        with here.entered():
            return self._call(arrays)


class DeviceQueues:
    """The queues of a client's devices, and runs of several programs."""

    _feeds: collections.defaultdict[int, Feeds]
    _channels = 0

    def create_channel_handle(self) -> int:
        """A channel that this client has given to nobody yet."""
        with _lock:
            self._channels += 1
            return self._channels

    def transfer_to_infeed(self, data: Any, device: int = 0) -> None:
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
            functools.partial(executable._call, executable._checked(given)) for executable, given in runs
        ]
        return run_devices(programs, 1, len(runs), self._feeds, timeout)


def _arrays(data: Any) -> list[np.ndarray]:
    if isinstance(data, Literal):
        return [part for p in data.parts for part in _arrays(p)] if data.shape.is_tuple else [data.array]
    if isinstance(data, (list, tuple)):
        return [np.array(a, order="C") for a in data]
    return [np.array(data, order="C")]
