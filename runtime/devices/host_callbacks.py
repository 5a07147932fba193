"""Host callbacks: calls of compiled code to the process, for collectives, channels, queues and custom calls.

Attributes of a call site: name (for messages), signature; of collectives `who`, the ReplicaGroups as [of, groups]; of a
collective-permute `pairs`; of sends and receives `channel_id`; of custom calls `target`, `api_version`, `opaque`,
`is_tuple`; of a trace `tag`. Compiled code has sites of a few simple forms: all-gather concatenates the inputs' bytes,
all-to-all splits its inputs' bytes into equal blocks.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from ..code.artifact import BufferSpec, HostCallback
from ..errors import CommunicationError, ExecutionError
from . import custom_calls
from .device import Device, ReplicaGroups, current

HOST_ERROR, NO_HOST, C_FAILED = -21, -22, -23
_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
_copy, _read = ctypes.memmove, ctypes.string_at


class HostCallbacks:
    """The host side of an artifact with these sites, for one call at a time. `address` is for the run context."""

    def __init__(self, sites: Sequence[HostCallback]) -> None:
        self.error: BaseException | None = None
        self._sites = sites
        self._calls = [_prepared(site) for site in sites]
        self._callback = _CALL(self._called)
        self._functions = (ctypes.c_void_p * len(sites))()
        self._status = ctypes.create_string_buffer(custom_calls.STATUS_BYTES)
        self._fields = (ctypes.c_void_p * 3)(
            ctypes.cast(self._callback, ctypes.c_void_p).value,
            ctypes.addressof(self._functions),
            ctypes.addressof(self._status),
        )
        self._targets = []  # C functions live as long as their addresses are here
        for number, site in enumerate(sites):
            if site.attributes.get("is_c"):
                target = custom_calls.find(site.attributes["target"])
                if target is None or not target.address:
                    raise ExecutionError(
                        f"custom-call target {site.attributes['target']!r} is not registered as a C "
                        "function, as it was when the program was compiled"
                    )
                self._targets.append(target)
                self._functions[number] = target.address

    @property
    def address(self) -> int:
        """The value of the run context's field `feeds`."""
        return ctypes.addressof(self._fields)

    def raise_error(self) -> None:
        """Raises the error of the call that failed.

        Raises: ExecutionError  the status of a C function; anything that Python code raised.
        """
        error, self.error = self.error, None
        if error is not None:
            raise error
        raise ExecutionError("a site failed without an error")

    def _called(self, number: int, buffers: int) -> int:
        try:
            handler, site, participants, table, inputs = self._calls[number]
            if handler is None:  # the status of a C function
                status, self._status.raw = self._status.raw, bytes(custom_calls.STATUS_BYTES)
                custom_calls.raise_failure(site.attributes["target"], status)
                return 0
            addresses = table.from_address(buffers)[:] if buffers else []
            handler(_Call(current(), site, participants, addresses[:inputs], addresses[inputs:]))
        except BaseException as error:  # nothing may pass through compiled code
            self.error = error
            return HOST_ERROR
        return 0


@dataclasses.dataclass(frozen=True)
class _Call:
    """A call of a site: the device that calls, and the addresses of the site's inputs and outputs."""

    device: Device
    site: HostCallback
    participants: ReplicaGroups
    inputs: Sequence[int]
    outputs: Sequence[int]

    def group(self) -> tuple[tuple[int, ...], int]:
        """The devices of the group, and the position of this one."""
        return self.device.group(self.participants)

    def input_arrays(self) -> list[np.ndarray]:
        """Copies of the inputs."""
        return [
            np.frombuffer(bytearray(_read(address, size)), np.dtype(dtype)).reshape(dims)
            if size
            else np.empty(dims, np.dtype(dtype))
            for (dtype, dims, size), address in zip(self.site.inputs, self.inputs)
        ]

    def output_types(self) -> list[tuple[np.dtype, tuple[int, ...]]]:
        """Type and dims of the outputs."""
        return [(np.dtype(dtype), dims) for dtype, dims, _ in self.site.outputs]

    def store(self, arrays: Sequence[np.ndarray]) -> None:
        """Copies arrays to the outputs."""
        for array, spec, address in zip(arrays, self.site.outputs, self.outputs):
            dense = np.ascontiguousarray(array)
            _copy(address, dense.ctypes.data, spec.bytes)

    def exchange(self, group: Sequence[int], parts: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]:
        """Sends parts[k] to the k-th device; returns the parts that came, of these sizes in bytes.

        Raises: CommunicationError  as `Device.exchange`; a part has another size.
        """
        received = self.device.exchange(group, self.site.name, self.site.attributes["signature"], parts)
        for device, part, size in zip(group, received, sizes, strict=True):
            if len(part) != size:
                raise CommunicationError(
                    f"{self.site.name}: device {device} sent {len(part)} bytes, {size} are expected"
                )
        return received

    def require_size(self, spec: BufferSpec, size: int, group: Sequence[int]) -> None:
        """Raises: CommunicationError  the program was compiled for a group of another size."""
        if spec.bytes != size:
            raise CommunicationError(
                f"{self.site.name}: the result has {spec.bytes} bytes, {size} are expected for a group of "
                f"{len(group)} devices"
            )


def _prepared(
    site: HostCallback,
) -> tuple[
    Callable[[_Call], object] | None, HostCallback, ReplicaGroups, type[ctypes.Array[ctypes.c_uint64]], int
]:
    """(handler, site, participants, type of the table of addresses, number of inputs); a C function has no handler."""
    of, groups = site.attributes.get("who", ("replicas", ()))
    handler = None if site.attributes.get("is_c") else _HANDLERS[site.kind]
    table = ctypes.c_uint64 * (len(site.inputs) + len(site.outputs))
    return handler, site, ReplicaGroups(of, tuple(map(tuple, groups))), table, len(site.inputs)


def _all_gather(call: _Call) -> None:
    group, _ = call.group()
    data = [_read(address, spec.bytes) for spec, address in zip(call.site.inputs, call.inputs)]
    own = data[0] if len(data) == 1 else b"".join(data)
    received = call.exchange(group, [own] * len(group), [len(own)] * len(group))
    offset = 0
    for spec, result, address in zip(call.site.inputs, call.site.outputs, call.outputs, strict=True):
        call.require_size(result, spec.bytes * len(group), group)
        rows = received if len(data) == 1 else [part[offset : offset + spec.bytes] for part in received]
        _copy(address, b"".join(rows), spec.bytes * len(group))
        offset += spec.bytes


def _all_to_all(call: _Call) -> None:
    group, _ = call.group()
    for spec, source, target in zip(call.site.inputs, call.inputs, call.outputs):
        size = spec.bytes // len(group)
        call.require_size(spec, size * len(group), group)
        parts = [_read(source + k * size, size) for k in range(len(group))]
        _copy(target, b"".join(call.exchange(group, parts, [size] * len(group))), size * len(group))


def _permute(call: _Call) -> None:
    group, own = call.group()
    pairs = call.site.attributes["pairs"]
    targets = {target for source, target in pairs if source == own}
    sources = [source for source, target in pairs if target == own]
    for spec, source, target in zip(call.site.inputs, call.inputs, call.outputs):
        data = _read(source, spec.bytes)
        parts = [data if k in targets else b"" for k in range(len(group))]
        sizes = [spec.bytes if k in sources else 0 for k in range(len(group))]
        received = call.exchange(group, parts, sizes)
        if sources:
            _copy(target, received[sources[0]], spec.bytes)
        else:
            ctypes.memset(target, 0, spec.bytes)


def _broadcast(call: _Call) -> None:
    group, own = call.group()
    spec, source, target = call.site.inputs[0], call.inputs[0], call.outputs[0]
    if not group:
        ctypes.memset(target, 0, spec.bytes)
        return
    parts = [b"" if own else _read(source, spec.bytes)] * len(group)
    received = call.exchange(group, parts, [0 if k else spec.bytes for k in range(len(group))])
    _copy(target, received[0], spec.bytes)


def _infeed(call: _Call) -> None:
    if call.site.outputs:
        call.store(call.device.infeed(call.site.name, call.output_types()))


def _outfeed(call: _Call) -> None:
    call.device.outfeed(call.input_arrays())


def _send(call: _Call) -> None:
    data = b"".join(_read(address, spec.bytes) for spec, address in zip(call.site.inputs, call.inputs))
    call.device.send(call.site.attributes["channel_id"], data, call.site.attributes["signature"])
    _clear(call)


def _clear(call: _Call) -> None:
    for spec, address in zip(call.site.outputs, call.outputs):
        ctypes.memset(address, 0, spec.bytes)


def _recv_done(call: _Call) -> None:
    attributes = call.site.attributes
    data, offset = call.device.receive(attributes["channel_id"], attributes["signature"]), 0
    size = sum(spec.bytes for spec in call.site.outputs)
    if len(data) != size:
        raise CommunicationError(f"{call.site.name}: {len(data)} bytes received, {size} are expected")
    for spec, address in zip(call.site.outputs, call.outputs):
        _copy(address, data[offset : offset + spec.bytes], spec.bytes)
        offset += spec.bytes


def _custom_call(call: _Call) -> None:
    attributes = call.site.attributes
    call.store(
        custom_calls.call(
            attributes["target"],
            attributes["api_version"],
            attributes["opaque"].encode("latin-1"),
            call.input_arrays(),
            call.output_types(),
            attributes["is_tuple"],
        )
    )


def _trace(call: _Call) -> None:
    call.device.trace(call.site.attributes["tag"], call.input_arrays()[0])


_HANDLERS: dict[str, Callable[[_Call], object]] = {
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "collective-permute": _permute,
    "collective-broadcast": _broadcast,
    "infeed": _infeed,
    "outfeed": _outfeed,
    "send": _send,
    "recv": _clear,
    "recv-done": _recv_done,
    "custom-call": _custom_call,
    "trace": _trace,
}
