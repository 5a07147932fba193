"""What happens when compiled code calls the process at a site: collectives, channels, queues, functions of the user.

Sites' attributes: name (for messages), signature; of collectives `who`, as [of, groups]; of a collective-permute
`pairs`; of sends and receives `channel_id`; of custom calls `target`, `api_version`, `opaque`, `is_tuple`; of a trace
`tag`. The sites that compiled code has are a few simple forms: all-gather concatenates the inputs' bytes, all-to-all
cuts its inputs' bytes into equal blocks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..code.artifact import BufferSpec, Site
from ..errors import CommunicationError, ExecutionError
from . import custom_calls
from .device import Device, Who, current

HOST_ERROR, NO_HOST, C_FAILED = -21, -22, -23
_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
_copy, _read = ctypes.memmove, ctypes.string_at


class HostCalls:
    """The host side of one call at a time of an artifact with these sites. `address` is for the run context."""

    def __init__(self, sites: Sequence[Site]) -> None:
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
        self._kept = []  # C functions live as long as their addresses are here
        for number, site in enumerate(sites):
            if site.attributes.get("is_c"):
                target = custom_calls.find(site.attributes["target"])
                if target is None or not target.address:
                    raise ExecutionError(
                        f"custom-call target {site.attributes['target']!r} is not registered as a C "
                        "function, as it was when the program was compiled"
                    )
                self._kept.append(target)
                self._functions[number] = target.address

    @property
    def address(self) -> int:
        """Address of what the run context's `feeds` points to."""
        return ctypes.addressof(self._fields)

    def raise_error(self) -> None:
        """Raises what a call failed of.

        Raises: ExecutionError  the status of a C function; anything that Python code raised.
        """
        error, self.error = self.error, None
        if error is not None:
            raise error
        raise ExecutionError("a site failed without an error")

    def _called(self, number: int, buffers: int) -> int:
        try:
            handler, site, who, table, inputs = self._calls[number]
            if handler is None:  # the status of a C function
                status, self._status.raw = self._status.raw, bytes(custom_calls.STATUS_BYTES)
                custom_calls.raise_failure(site.attributes["target"], status)
                return 0
            addresses = table.from_address(buffers)[:] if buffers else []
            handler(current(), site, who, addresses[:inputs], addresses[inputs:])
        except BaseException as error:  # nothing may pass through compiled code
            self.error = error
            return HOST_ERROR
        return 0


def _prepared(site: Site) -> tuple[Callable[..., Any] | None, Site, Who, Any, int]:
    """(what is called, the site, who takes part, the type of the table of addresses, how many of them are inputs)."""
    of, groups = site.attributes.get("who", ("replicas", ()))
    handler = None if site.attributes.get("is_c") else _HANDLERS[site.kind]
    count = len(site.inputs) + len(site.outputs)
    return handler, site, Who(of, tuple(map(tuple, groups))), ctypes.c_uint64 * count, len(site.inputs)


def _inputs(site: Site, addresses: Sequence[int]) -> list[np.ndarray]:
    """Copies of the inputs."""
    return [
        np.frombuffer(bytearray(_read(at, size)), np.dtype(dtype)).reshape(dims)
        if size
        else np.empty(dims, np.dtype(dtype))
        for (dtype, dims, size), at in zip(site.inputs, addresses)
    ]


def _store(array: np.ndarray, spec: BufferSpec, address: int) -> None:
    kept = np.ascontiguousarray(array)
    _copy(address, kept.ctypes.data, spec.bytes)


def _exchanged(
    device: Device, site: Site, group: Sequence[int], parts: Sequence[bytes], sizes: Sequence[int]
) -> list[bytes]:
    """What the devices of the group bring, of these sizes in bytes.

    Raises: CommunicationError  as `Device.exchange`; one brings another number of bytes.
    """
    found = device.exchange(group, site.name, site.attributes["signature"], parts)
    for place, (part, size) in enumerate(zip(found, sizes, strict=True)):
        if len(part) != size:
            raise CommunicationError(
                f"{site.name}: device {group[place]} brought {len(part)} bytes, {size} are wanted"
            )
    return found


def _require_size(site: Site, spec: BufferSpec, wanted: int, group: Sequence[int]) -> None:
    """Raises: CommunicationError  the program was compiled for a group of another size."""
    if spec.bytes != wanted:
        raise CommunicationError(
            f"{site.name}: the result has {spec.bytes} bytes, {wanted} are wanted for a group of "
            f"{len(group)} devices"
        )


def _all_gather(device: Device, site: Site, who: Who, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    group, _ = device.group(who)
    data = [_read(source, spec.bytes) for spec, source in zip(site.inputs, inputs)]
    brought = data[0] if len(data) == 1 else b"".join(data)
    found = _exchanged(device, site, group, [brought] * len(group), [len(brought)] * len(group))
    at = 0
    for spec, result, target in zip(site.inputs, site.outputs, outputs, strict=True):
        _require_size(site, result, spec.bytes * len(group), group)
        rows = found if len(data) == 1 else [part[at : at + spec.bytes] for part in found]
        _copy(target, b"".join(rows), spec.bytes * len(group))
        at += spec.bytes


def _all_to_all(device: Device, site: Site, who: Who, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    group, _ = device.group(who)
    for spec, source, target in zip(site.inputs, inputs, outputs):
        size = spec.bytes // len(group)
        _require_size(site, spec, size * len(group), group)
        parts = [_read(source + place * size, size) for place in range(len(group))]
        found = _exchanged(device, site, group, parts, [size] * len(group))
        _copy(target, b"".join(found), size * len(group))


def _permute(device: Device, site: Site, who: Who, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    group, own = device.group(who)
    targets = {target for source, target in site.attributes["pairs"] if source == own}
    sources = [source for source, target in site.attributes["pairs"] if target == own]
    for spec, source, target in zip(site.inputs, inputs, outputs):
        data = _read(source, spec.bytes)
        parts = [data if place in targets else b"" for place in range(len(group))]
        found = _exchanged(
            device, site, group, parts, [spec.bytes if place in sources else 0 for place in range(len(group))]
        )
        if sources:
            _copy(target, found[sources[0]], spec.bytes)
        else:
            ctypes.memset(target, 0, spec.bytes)


def _broadcast(device: Device, site: Site, who: Who, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    group, own = device.group(who)
    spec, source, target = site.inputs[0], inputs[0], outputs[0]
    if not group:
        ctypes.memset(target, 0, spec.bytes)
        return
    parts = [b"" if own else _read(source, spec.bytes)] * len(group)
    found = _exchanged(
        device, site, group, parts, [0 if place else spec.bytes for place in range(len(group))]
    )
    _copy(target, found[0], spec.bytes)


def _infeed(device: Device, site: Site, who: Who, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    if not site.outputs:
        return
    found = device.infeed(site.name, [(np.dtype(dtype), dims) for dtype, dims, _ in site.outputs])
    for array, spec, address in zip(found, site.outputs, outputs):
        _store(array, spec, address)


def _outfeed(device: Device, site: Site, who: Who, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    device.outfeed(_inputs(site, inputs))


def _send(device: Device, site: Site, who: Who, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    data = b"".join(_read(at, spec.bytes) for spec, at in zip(site.inputs, inputs))
    device.send(site.attributes["channel_id"], data, site.attributes["signature"])
    _clear(device, site, who, inputs, outputs)


def _clear(device: Device, site: Site, who: Who, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    for spec, address in zip(site.outputs, outputs):
        ctypes.memset(address, 0, spec.bytes)


def _recv_done(device: Device, site: Site, who: Who, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    data, at = device.receive(site.attributes["channel_id"], site.attributes["signature"]), 0
    wanted = sum(spec.bytes for spec in site.outputs)
    if len(data) != wanted:
        raise CommunicationError(f"{site.name}: {len(data)} bytes received, {wanted} are wanted")
    for spec, address in zip(site.outputs, outputs):
        _copy(address, data[at : at + spec.bytes], spec.bytes)
        at += spec.bytes


def _custom_call(device: Device, site: Site, who: Who, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    given = site.attributes
    wanted = [(np.dtype(dtype), dims) for dtype, dims, _ in site.outputs]
    found = custom_calls.call(
        given["target"],
        given["api_version"],
        given["opaque"].encode("latin-1"),
        _inputs(site, inputs),
        wanted,
        given["is_tuple"],
    )
    for array, spec, address in zip(found, site.outputs, outputs):
        _store(array, spec, address)


def _trace(device: Device, site: Site, who: Who, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    device.trace(site.attributes["tag"], _inputs(site, inputs)[0])


_HANDLERS: dict[str, Callable[[Device, Site, Who, Sequence[int], Sequence[int]], Any]] = {
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
