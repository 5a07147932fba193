"""Runs a program for each device of a run, one thread each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ..errors import CommunicationError
from .device import Device, Feeds
from .rendezvous import Rendezvous

T = TypeVar("T")


def run_devices(
    programs: Sequence[Callable[[], T]],
    replicas: int,
    partitions: int,
    feeds: Mapping[int, Feeds],
    timeout: float | None = None,
) -> list[T]:
    """The results of the programs, each called in a thread that runs for its device; device r * partitions + p is
    partition p of replica r.

    Raises: the first error of any device, once all have ended; CommunicationError  they did not come together, or one
        waited longer than `timeout` seconds.
    """
    if len(programs) != replicas * partitions:
        raise ValueError(f"{len(programs)} programs for {replicas} x {partitions} devices")
    rendezvous = Rendezvous(replicas, partitions)
    results: dict[int, T] = {}

    def work(number: int) -> None:
        device = Device(rendezvous, *divmod(number, partitions), replicas, partitions, feeds[number], timeout)
        try:
            with device.entered():
                results[number] = programs[number]()
        except BaseException as error:
            rendezvous.end(number, error)
        else:
            rendezvous.end(number)

    if len(programs) == 1:
        work(0)
    else:
        threads = [
            threading.Thread(
                target=work, args=(number,), name=f"tfbridge {rendezvous.names[number]}", daemon=True
            )
            for number in range(len(programs))
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            rendezvous.fail(CommunicationError("the run was interrupted"))
            raise
    if rendezvous.error is not None:
        raise rendezvous.error
    return [results[number] for number in range(len(programs))]
