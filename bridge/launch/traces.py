"""TensorFlow's recorder of traces: its functions for native code, and what runs and kernels are called there."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence

from ...runtime.code.executable import Executable
from ..tf_internals import symbols as private
from .compiled_code import InputSpec
from .native.trace import STRING_BYTES

_FUNCTIONS = {
    "trace_level": private.TRACE_LEVEL,
    "trace_clock": private.TRACE_CLOCK,
    "record_trace": private.RECORD_TRACE,
    "new_string": private.NEW_STRING,
    "assign_string": private.ASSIGN_STRING,
    "delete_string": private.DELETE_STRING,
}
_MAX_SHAPES = 16
_GUARD = b"\xa5"


def imports() -> dict[str, int]:
    """Addresses of the functions, by the symbols that native code calls."""
    return {f"tfbridge_{name}": private.address(symbol) for name, symbol in _FUNCTIONS.items()}


@functools.cache
def available() -> bool:
    """Whether this TensorFlow has a recorder, and strings of the size that native code expects."""
    if private.TRACES in private.missing():
        return False
    memory = ctypes.create_string_buffer(_GUARD * 2 * STRING_BYTES, 2 * STRING_BYTES)
    text = b"longer than the room that a string has in itself"
    private.function(private.NEW_STRING)(ctypes.addressof(memory))
    private.function(private.ASSIGN_STRING)(ctypes.addressof(memory), text)
    data, size = (ctypes.c_uint64.from_buffer(memory, at).value for at in (0, 8))
    is_as_expected = (
        size == len(text)
        and ctypes.string_at(data, size) == text
        and memory.raw[STRING_BYTES:] == _GUARD * STRING_BYTES
    )
    private.function(private.DELETE_STRING)(ctypes.addressof(memory))
    return is_as_expected


def trace_name(cluster: str, inputs: Sequence[InputSpec]) -> bytes:
    """What a run is called: the name of its cluster, as an op, and the shapes as metadata of the event.

    Names of ops do not begin with `_`, which the names of TensorFlow's functions do.
    """
    shapes = [f"{dtype.name}[{','.join(map(str, dims))}]" for dtype, dims in inputs[:_MAX_SHAPES]]
    more = ["..."] if len(inputs) > _MAX_SHAPES else []
    return f"{cluster.lstrip('_')}:TfbridgeCluster#shapes=({' '.join(shapes + more)})#".encode(
        errors="replace"
    )


class KernelNames:
    """What the kernels of an executable are called: their op of most arithmetic, as an op, with their own name as
    metadata of the event. `address` is that of an array of zero-terminated texts."""

    def __init__(self, executable: Executable) -> None:
        names = [
            f"{(kernel.ops or (kernel.name,))[0]}:TfbridgeKernel#kernel={kernel.name}#"
            for kernel in executable.artifact.kernels
        ]
        self._texts = [name.encode(errors="replace") for name in names]
        self._table = (ctypes.c_char_p * max(1, len(names)))(*self._texts)
        self.address: int = ctypes.addressof(self._table)


_kernel_names: weakref.WeakKeyDictionary[Executable, KernelNames] = weakref.WeakKeyDictionary()


def kernel_names(executable: Executable) -> KernelNames:
    """The names of an executable's kernels, the same for all dims that it is bound to."""
    names = _kernel_names.get(executable.origin)
    if names is None:
        names = _kernel_names[executable.origin] = KernelNames(executable.origin)
    return names
