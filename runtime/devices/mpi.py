"""The devices of a run in several processes, on one machine or many, over MPI: rank r is device r.

    from tfbridge.runtime.devices.mpi import MpiTransport with MpiTransport() as world: executable =
    LocalClient().compile(program, num_replicas=world.size) results = world.execute(executable, arguments)

Every rank calls the same sequence of executions. Devices behave as with `rendezvous`. A rank that fails or ends tells
the others, so that no rank waits for it. Only the timeout ends ranks that wait for each other in a circle.
"""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import CommunicationError

DEFAULT_TIMEOUT_SECONDS = 600.0
_TAG = 7
_SPINS = 200  # polls for messages before the process gives its processor away
_NAP_SECONDS = 0.0002


class Runnable(Protocol):
    """What can be run over a transport: an executable."""

    def execute_over(
        self,
        transport: MpiTransport,
        device: int,
        arguments: Sequence[np.ndarray],
        *,
        timeout: float | None = None,
    ) -> list[np.ndarray]:
        """Runs as one device."""


class MpiTransport:
    """The ranks of a communicator (mpi4py; all of the program's, if none is given).

    Raises: ImportError  mpi4py is not installed.
    """

    def __init__(self, communicator: Any = None, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        from mpi4py import MPI

        self._comm = (communicator or MPI.COMM_WORLD).Dup()  # its messages meet no other ones
        self._mpi = MPI
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self.timeout = timeout
        self._run = 0
        self._arrivals: collections.Counter[frozenset[int]] = collections.Counter()
        # by run, group and number of the rendezvous: the parts of the ranks that have arrived
        self._pending: dict[
            tuple[int, frozenset[int], int], dict[int, tuple[str, str, tuple[int, ...], bytes]]
        ] = {}
        self._ended: dict[int, dict[int, str]] = collections.defaultdict(dict)
        self._sending: list[Any] = []

    def __enter__(self) -> MpiTransport:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def execute(
        self, executable: Runnable, arguments: Sequence[np.ndarray], *, timeout: float | None = None
    ) -> list[np.ndarray]:
        """Runs the executable as device `rank`, together with the other ranks.

        Raises: CommunicationError  another rank failed, ended, did something else, or did nothing for `timeout`
            seconds (the transport's, if None); whatever the execution raises here.
        """
        self._run += 1
        self._arrivals.clear()
        try:
            results = executable.execute_over(self, self.rank, arguments, timeout=timeout)
        except BaseException as error:
            self._send_all(("end", f"{type(error).__name__}: {error}"))
            raise
        self._send_all(("end", ""))
        return results

    def close(self, timeout: float = 10.0) -> None:
        """Waits until every rank closes, so that no message is lost; gives up after `timeout` seconds."""
        if self._comm is None:
            return
        self._run = -1
        self._send_all(("end", ""))
        with contextlib.suppress(CommunicationError):
            self._until(
                lambda: len(self._ended[-1]) == self.size - 1 and not self._sending, lambda: "close", timeout
            )
        self._comm = None

    # -- Transport
    def exchange(
        self,
        device: int,
        group: Sequence[int],
        what: str,
        signature: str,
        parts: Sequence[bytes],
        timeout: float | None,
    ) -> list[bytes]:
        """As Transport.exchange."""
        group, members = tuple(group), frozenset(group)
        key = (self._run, members, self._arrivals[members])
        self._arrivals[members] += 1
        for position, other in enumerate(group):
            if other != device:
                self._send_to(other, ("exchange", *key[1:], (what, signature, group, parts[position])))
        arrived = self._pending.setdefault(key, {})
        arrived[device] = (what, signature, group, parts[group.index(device)])

        def is_complete() -> bool:
            for other, (their_op, their_signature, their_group, _) in arrived.items():
                if (their_signature, their_group) != (signature, group):
                    raise CommunicationError(
                        f"rank {device} is at {what} ({signature} among ranks {group}), rank "
                        f"{other} at {their_op} ({their_signature} among ranks {their_group})"
                    )
            return len(arrived) == len(group)

        self._until(
            is_complete,
            lambda: f"{what} ({signature} among ranks {group})",
            timeout,
            lambda: [other for other in group if other not in arrived],
        )
        del self._pending[key]
        return [arrived[other][3] for other in group]

    def send(self, device: int, channel: int, signature: str, data: bytes) -> None:
        """Refused: a channel does not say which rank it leads to."""
        raise CommunicationError(f"send on channel {channel}: channels join the programs of one process")

    def receive(self, device: int, channel: int, signature: str, timeout: float | None) -> bytes:
        """Refused, as `send`."""
        raise CommunicationError(f"recv on channel {channel}: channels join the programs of one process")

    def outside(self, device: int, what: str) -> contextlib.AbstractContextManager[None]:
        """As Transport.outside."""
        return contextlib.nullcontext()

    def check(self, device: int) -> None:
        """As Transport.check."""
        self._drain()
        self._raise_failure(lambda: "its queue")

    # -- messages
    def _send_to(self, rank: int, message: tuple[object, ...]) -> None:
        self._sending.append(self._comm.isend((self._run, *message), rank, _TAG))

    def _send_all(self, message: tuple[object, ...]) -> None:
        for rank in range(self.size):
            if rank != self.rank:
                self._send_to(rank, message)

    def _drain(self) -> None:
        """Takes all messages that are there."""
        while (message := self._comm.improbe(self._mpi.ANY_SOURCE, _TAG)) is not None:
            status = self._mpi.Status()
            run, kind, *content = message.recv(status=status)
            source = status.Get_source()
            if kind == "end":
                self._ended[run][source] = content[0]
            elif run >= self._run:  # of a run that has ended here nobody reads it
                members, arrival, parts = content
                self._pending.setdefault((run, members, arrival), {})[source] = parts
        self._sending = [request for request in self._sending if not request.Test()]

    def _raise_failure(self, what: Callable[[], str]) -> None:
        for rank, error in self._ended[self._run].items():
            if error:
                raise CommunicationError(f"rank {rank} failed with {error}; rank {self.rank} was at {what()}")

    def _until(
        self,
        done: Callable[[], bool],
        what: Callable[[], str],
        timeout: float | None,
        missing: Callable[[], list[int]] = list,
    ) -> None:
        limit = self.timeout if timeout is None else timeout
        end, polls = time.monotonic() + limit, 0
        while True:
            self._drain()
            if done():
                return
            if self._run >= 0:
                self._raise_failure(what)
            ended = [rank for rank in missing() if rank in self._ended[self._run]]
            if ended:
                raise CommunicationError(
                    f"rank {self.rank} waited at {what()} for rank {ended[0]} which has ended"
                )
            if time.monotonic() > end:
                raise CommunicationError(
                    f"after {limit} s rank {self.rank} waited at {what()} for ranks {missing()}"
                )
            polls += 1
            if polls > _SPINS:
                time.sleep(_NAP_SECONDS)
