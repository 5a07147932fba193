"""A compiled module that can be called: an artifact in the process, and what a call needs besides."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import os
import weakref
from collections.abc import Callable, Sequence

import ml_dtypes  # noqa: F401  gives NumPy the dtypes bfloat16, float8_*, int4 by name
import numpy as np

from ..devices.device import numbers_here
from ..devices.host_callbacks import HOST_ERROR, NO_HOST, HostCallbacks
from ..errors import ExecutionError
from ..memory import result_pool, temp_arena
from ..profiler import Profile
from ..run_context import RunContext
from . import linker, support_library
from .artifact import Artifact
from .symbolic_sizes import Known

_ERROR_CAPACITY = 512
_ALIGNMENT, _HUGE_PAGE = 64, 2 << 20
_ALIGN_FROM_BYTES = 16 << 10

# The data pointer is the first field after the object head of every NumPy array (PyArrayObject_fields in
# NumPy's C API); reading it there takes a tenth of the time that `array.ctypes.data` does.
_DATA_AT = object.__basicsize__
_data = ctypes.c_size_t.from_address
_probe = np.empty(4)
if _data(id(_probe) + _DATA_AT).value != _probe.ctypes.data:
    raise ImportError(f"NumPy {np.__version__} keeps an array's data pointer not at byte {_DATA_AT}")


class Frame:
    """What one call at a time uses: its run context, argument and result pointers, error text, random state.

    Whoever makes a frame may set replica ids, feeds and the like in `context` and pass it to calls.
    """

    __slots__ = (
        "args",
        "args_at",
        "context",
        "context_at",
        "host",
        "message",
        "numbers",
        "packed",
        "results",
        "results_at",
        "rng",
    )

    def __init__(self, executable: Executable) -> None:
        native = support_library.addresses()
        parallel = executable.threads > 1 and native["parallel_for"] != 0
        self.message = ctypes.create_string_buffer(_ERROR_CAPACITY)
        self.rng = (ctypes.c_uint64 * 2)(*np.frombuffer(os.urandom(16), np.uint64).tolist())
        self.args = (ctypes.c_void_p * len(executable.artifact.parameters))()
        self.results = (ctypes.c_void_p * len(executable.artifact.results))()
        self.context = RunContext(
            parallel_for=native["parallel_for"] if parallel else None,
            pool=native["pool"] if parallel else None,
            threads=executable.threads if parallel else 1,
            num_replicas=1,
            error_message=ctypes.addressof(self.message),
            error_capacity=_ERROR_CAPACITY,
            rng_state=ctypes.addressof(self.rng),
            constants=executable.constants_address,
            recorder=executable.profile.address if executable.profile else None,
            sizes=executable.sizes_address,
        )
        self.packed = PackedMemory(executable.artifact) if executable.artifact.packed else None
        self.context.packed = self.packed.address if self.packed else None
        self.numbers = (0, 0, 1)
        self.host: HostCallbacks | None = None
        if executable.artifact.host_callbacks:
            self.host = HostCallbacks(executable.artifact.host_callbacks)
            self.context.feeds = self.host.address
        self.context_at = ctypes.addressof(self.context)
        self.args_at, self.results_at = ctypes.addressof(self.args), ctypes.addressof(self.results)


class PackedMemory:
    """Memory for an artifact's packed arguments, and the table of its addresses."""

    def __init__(self, artifact: Artifact) -> None:
        self.buffers = empty_pieces([p.bytes for p in artifact.packed])
        self.table = (ctypes.c_void_p * len(self.buffers))(*(b.ctypes.data for b in self.buffers))
        self.address = ctypes.addressof(self.table)


class Executable:
    """An artifact in memory, ready to run. Any number of threads may call it at once.

    `threads` bounds the threads of one call further than the artifact does. With `profile`, calls are counted
    in `self.profile`. Code for symbolic sizes runs where it is `bound` to dims, with the `code` of the executable that
    is bound.
    """

    def __init__(
        self,
        artifact: Artifact,
        threads: int | None = None,
        profile: bool = False,
        code: Executable | None = None,
    ) -> None:
        self.artifact, self._origin = artifact, code.origin if code else None
        self.threads = min(threads or artifact.threads, artifact.threads)
        self.profile = Profile(artifact) if profile else None
        entries = (artifact.entry, artifact.prepacking_entry) if artifact.packed else (artifact.entry,)
        self._loaded: linker.Loaded = (
            code._loaded
            if code
            else linker.load(
                artifact.object,
                entries,
                artifact.libraries,
                parts=artifact.split_objects,
                labels={kernel.name: kernel.label for kernel in artifact.kernels},
            )
        )
        self.entry_address: int = self._loaded.addresses[artifact.entry]
        self.prepacking_address: int = self._loaded.addresses[entries[-1]] if artifact.packed else 0
        self._constants: np.ndarray = code._constants if code else _aligned_copy(artifact.constants)
        self._sizes = (ctypes.c_int64 * len(artifact.sizes))(*artifact.sizes)
        self.sizes_address: int = ctypes.addressof(self._sizes)
        self.constants_address: int = self._constants.ctypes.data
        self._parameters = tuple((np.dtype(dtype), tuple(dims)) for dtype, dims, _ in artifact.parameters)
        self._results = tuple((np.dtype(dtype), tuple(dims), size) for dtype, dims, size in artifact.results)
        self._temp_bytes = artifact.temp_bytes
        self._run = support_library.run_function()
        self._frames: list[Frame] = []

    def bound(self, dims: Sequence[Sequence[int]], more: Sequence[Known] = ()) -> Executable | str:
        """The same code for arguments of these dims; the reason why it does not serve them. more: other sizes."""
        artifact = self.artifact.bound(dims, more)
        return artifact if isinstance(artifact, str) else Executable(artifact, self.threads, code=self)

    @property
    def origin(self) -> Executable:
        """The executable that was bound to dims; itself where it was not."""
        return self._origin or self

    def execute(
        self, arrays: Sequence[np.ndarray], frame: Frame | None = None, is_packed: bool = False
    ) -> list[np.ndarray]:
        """Calls the module; `is_packed` when the frame has from an earlier call what is packed of these arrays.

        Shapes: as the artifact's parameters; the results are new arrays.
        Raises: ExecutionError  number, dtype or dims of the arguments; an error that the code reports.
        """
        parameters = self._parameters
        if len(arrays) != len(parameters):
            raise ExecutionError(f"{self.artifact.entry}: {len(arrays)} arguments, wanted {len(parameters)}")
        used = frame or self._take_frame()
        pointers = used.args
        copies = []  # alive until the call is over
        for number, (dtype, dims) in enumerate(parameters):
            array = arrays[number]
            if type(array) is not np.ndarray or not array.flags.c_contiguous:
                array = np.asarray(array, order="C")
                copies.append(array)
            if array.shape != dims or array.dtype != dtype:
                raise ExecutionError(
                    f"{self.artifact.entry}: argument {number} is {_describe(array.dtype, array.shape)}, "
                    f"wanted {_describe(dtype, dims)}"
                )
            pointers[number] = _data(id(array) + _DATA_AT).value
        pointers = used.results
        results = []
        for number, (dtype, dims, size) in enumerate(self._results):
            array = _empty(dims, dtype, size)
            pointers[number] = _data(id(array) + _DATA_AT).value
            results.append(array)
        if frame is None and used.numbers != (numbers := numbers_here()):
            used.numbers = numbers
            context = used.context
            context.replica_id, context.partition_id, context.num_replicas = numbers
        self._call(used, used.args_at, used.results_at, is_packed)
        if frame is None:
            self._frames.append(used)
        return results

    def run(self, args: int, results: int, frame: Frame | None = None) -> None:
        """Calls the entry on two C arrays of data pointers, given by address; nothing is checked.

        Raises: ExecutionError  an error that the code reports.
        """
        used = frame or self._take_frame()
        self._call(used, args, results)
        if frame is None:
            self._frames.append(used)

    def prepare(self, args: int, packed: int) -> None:
        """Packs arguments into the memory that the table at `packed` names, but where it has a null. Both are addresses
        of C arrays of pointers; an entry of the former that is not packed is not looked at.

        Raises: ExecutionError  no memory.
        """
        used = self._take_frame()
        before, used.context.packed = used.context.packed, packed
        status = self._run(self.prepacking_address, used.context_at, args, used.results_at, self._temp_bytes)
        used.context.packed = before
        if status:
            self._fail(status, used)
        self._frames.append(used)

    def _call(self, frame: Frame, args: int, results: int, is_packed: bool = False) -> None:
        status = 0
        if self.prepacking_address and not is_packed:
            status = self._run(self.prepacking_address, frame.context_at, args, results, self._temp_bytes)
        if not status:
            status = self._run(self.entry_address, frame.context_at, args, results, self._temp_bytes)
        if status:
            self._fail(status, frame)

    def _take_frame(self) -> Frame:
        try:
            return self._frames.pop()
        except IndexError:
            return Frame(self)

    def _fail(self, status: int, frame: Frame) -> None:
        if status == temp_arena.OUT_OF_MEMORY:
            raise ExecutionError(f"{self.artifact.entry}: no memory for {self._temp_bytes} temporary bytes")
        if status == HOST_ERROR and frame.host is not None:
            frame.host.raise_error()
        if status == NO_HOST:
            raise ExecutionError(
                f"{self.artifact.entry}: a program that communicates was called without a host"
            )
        text = frame.message.value.decode(errors="replace") or "no message"
        raise ExecutionError(f"{self.artifact.entry}: error {status}: {text}")


def _describe(dtype: np.dtype, dims: tuple[int, ...]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


def empty_array(dims: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array for results of compiled code."""
    return _empty(dims, dtype, math.prod(dims) * dtype.itemsize)


def empty_pieces(sizes: Sequence[int]) -> list[np.ndarray]:
    """Uninitialised bytes in one piece of memory: together, many small ones lie on huge pages too."""
    starts = list(itertools.accumulate((-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes), initial=0))
    memory = _empty((starts[-1],), np.dtype(np.uint8), starts[-1])
    return [memory[start : start + size] for start, size in zip(starts, sizes)]


def _empty(dims: tuple[int, ...], dtype: np.dtype, size: int) -> np.ndarray:
    if size < _ALIGN_FROM_BYTES:
        return np.empty(dims, dtype)
    return _aligned(dims, dtype, size) if size < result_pool.MIN_BYTES else _in_block(dims, dtype, size)


def _in_block(dims: tuple[int, ...], dtype: np.dtype, size: int) -> np.ndarray:
    """An uninitialised array in memory that is used again after it."""
    take, put = _block_functions()
    address = take(size)
    if not address:
        raise MemoryError(f"no memory for a result of {size} bytes")
    memory = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(memory, put, address, 0, None).atexit = False
    return np.ndarray(dims, dtype, memoryview(memory))


@functools.cache
def _block_functions() -> tuple[Callable[[int], int | None], Callable[[int, int, None], None]]:
    native, pointer = support_library.addresses(), ctypes.c_void_p
    return (
        ctypes.CFUNCTYPE(pointer, ctypes.c_int64)(native["block_take"]),
        ctypes.CFUNCTYPE(None, pointer, ctypes.c_int64, pointer)(native["block_put"]),
    )


def _aligned(dims: tuple[int, ...], dtype: np.dtype, size: int) -> np.ndarray:
    """An uninitialised array that starts at a cache line, so that vector stores do not straddle two; a large one at a
    huge page, which NumPy asks the system for from 4 MiB on."""
    alignment = _HUGE_PAGE if size >= 2 * _HUGE_PAGE else _ALIGNMENT
    raw = np.empty(size + alignment, np.uint8)
    return np.ndarray(dims, dtype, raw, -_data(id(raw) + _DATA_AT).value % alignment)


def _aligned_copy(data: bytes) -> np.ndarray:
    copy = _aligned((len(data),), np.dtype(np.uint8), len(data))
    copy[:] = np.frombuffer(data, np.uint8)
    return copy
