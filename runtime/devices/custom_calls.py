"""Functions of the user that programs call by name.

A Python function gets the operands as NumPy arrays of its own and returns the result's array, or a sequence of arrays
where the result is a tuple. A C function is given by its address (an int, or a ctypes function); its signature follows
from the instruction's api_version:

    API_VERSION_ORIGINAL                   void f(void* out, const void** in)
    API_VERSION_STATUS_RETURNING           void f(void* out, const void** in, struct tfbridge_status* status)
    API_VERSION_STATUS_RETURNING_UNIFIED   void f(void* out, const void** in, const char* opaque, size_t opaque_bytes,
                                                  struct tfbridge_status* status)

    struct tfbridge_status { int32_t failed; char message[508]; };

`in` has the address of each operand, `out` is the address of the result, or of an array of addresses where the result
is a tuple; arrays are dense and row-major. The status is zero before the call; a function that fails sets `failed` and
writes a zero-terminated message. A function must be registered before a program that calls it is compiled, and stay
registered while one runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ExecutionError
from ..threads import forking

STATUS_BYTES = 512
C_VERSIONS = ("API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING", "API_VERSION_STATUS_RETURNING_UNIFIED")


class Target(NamedTuple):
    """A registered function: of Python, or of C with its address."""

    function: Callable[..., object] | None
    address: int


_C_FUNCTION: Any = ctypes.CFUNCTYPE(None).__mro__[1]  # the base of all ctypes functions
_targets: dict[str, Target] = {}
_lock = forking.lock()


def register_custom_call(name: str, function: object) -> None:
    """Makes a function known as a custom-call target: a Python function, the address of a C function, or a ctypes
    function. One of the same name is replaced.

    Raises: TypeError  neither callable nor an address; ValueError  the address is 0.
    """
    if isinstance(function, (int, _C_FUNCTION)):
        address = function if isinstance(function, int) else ctypes.cast(function, ctypes.c_void_p).value or 0
        if not address:
            raise ValueError(f"custom-call target {name!r}: the address is 0")
        # A ctypes function must live as long as its address is used.
        target = Target(None if isinstance(function, int) else function, address)
    elif callable(function):
        target = Target(function, 0)
    else:
        raise TypeError(
            f"custom-call target {name!r}: {type(function).__name__} is neither a function nor an address"
        )
    with _lock:
        _targets[name] = target


def unregister_custom_call(name: str) -> None:
    """Forgets a target; nothing happens if it is not known."""
    with _lock:
        _targets.pop(name, None)


def find(name: str) -> Target | None:
    """The target of that name."""
    return _targets.get(name)


def registered_names() -> list[str]:
    """The names of all targets."""
    return sorted(_targets)


def call(
    name: str,
    api_version: str,
    opaque: bytes,
    operands: Sequence[np.ndarray],
    expected: Sequence[tuple[np.dtype, tuple[int, ...]]],
    is_tuple: bool,
) -> list[np.ndarray]:
    """Calls a target on arrays.

    Raises: ExecutionError no such target, its results have other types or dims than expected, or its status is a
        failure; anything that a Python function raises.
    """
    target = find(name)
    if target is None:
        raise ExecutionError(
            f"custom-call target {name!r} is not registered; known: {', '.join(registered_names()) or 'none'}"
        )
    if not target.address:
        assert target.function is not None
        return checked(name, target.function(*(np.array(o) for o in operands)), expected, is_tuple)
    results = [np.empty(dims, dtype) for dtype, dims in expected]
    dense = [np.ascontiguousarray(o) for o in operands]
    ins = (ctypes.c_void_p * max(1, len(dense)))(*(o.ctypes.data for o in dense))
    outs = (ctypes.c_void_p * max(1, len(results)))(*(r.ctypes.data for r in results))
    out = ctypes.cast(outs, ctypes.c_void_p) if is_tuple else ctypes.c_void_p(results[0].ctypes.data)
    status = ctypes.create_string_buffer(STATUS_BYTES)
    extra: list[object] = []
    if api_version == "API_VERSION_STATUS_RETURNING_UNIFIED":
        extra = [ctypes.c_char_p(opaque), ctypes.c_size_t(len(opaque))]
    if api_version != "API_VERSION_ORIGINAL":
        extra.append(status)
    ctypes.CFUNCTYPE(None)(target.address)(out, ins, *extra)
    raise_failure(name, status.raw)
    return results


def raise_failure(name: str, status: bytes) -> None:
    """Raises ExecutionError if a status says that the function failed."""
    if int.from_bytes(status[:4], "little"):
        message = status[4:].split(b"\0", 1)[0].decode(errors="replace") or "no message"
        raise ExecutionError(f"custom-call target {name!r} failed: {message}")


def checked(
    name: str, returned: Any, expected: Sequence[tuple[np.dtype, tuple[int, ...]]], is_tuple: bool
) -> list[np.ndarray]:
    """What a Python function returned, as arrays.

    Raises: ExecutionError  other arrays than expected.
    """
    results = [returned] if not is_tuple else [] if returned is None and not expected else list(returned)
    arrays = [np.asarray(f) for f in results]
    actual = [(a.dtype, a.shape) for a in arrays]
    if actual != [(np.dtype(d), tuple(dims)) for d, dims in expected]:
        shown = [
            ", ".join(f"{d}[{','.join(map(str, dims))}]" for d, dims in side) for side in (actual, expected)
        ]
        raise ExecutionError(f"custom-call target {name!r} returned ({shown[0]}), ({shown[1]}) is expected")
    return [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
