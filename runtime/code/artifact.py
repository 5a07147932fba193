"""What the compiler hands to the runtime: an object file with its entry, buffers, constants and kernels."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import ml_dtypes  # noqa: F401  gives NumPy the dtypes bfloat16, float8_*, int4 by name
import numpy as np

from ..errors import ArtifactError
from .symbolic_sizes import MAX_SIZE, Known, SymbolicSizes

_MAGIC = b"tfbridge"
_VERSION = 9
_HEAD = struct.Struct("<8sI32sQQQ")  # magic, version, SHA-256 of the rest, bytes of header, object, constants
HEAD_BYTES = _HEAD.size  # at the start; the digest in them covers the rest
MARK_BYTES = 32  # of a mark that may follow the artifact, made with a key (see disk_cache)


class BufferSpec(NamedTuple):
    """A parameter or a result: NumPy dtype name (`float32`, `bfloat16`, `int4`), dims, bytes in memory."""

    dtype: str
    dims: tuple[int, ...]
    bytes: int


class KernelRecord(NamedTuple):
    """One kernel launch of the schedule, for reports. `ops`: the names of the ops in it, first that of most arithmetic.

    Units: flops and bytes of memory traffic per call of the entry; tasks is the length of its parallel
    dimension.
    """

    name: str
    flops: int
    bytes: int
    tasks: int
    ops: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What people call it: `model/MatMul [dot.3]`."""
        return f"{self.ops[0]} [{self.name}]" if self.ops else self.name


class Temporary(NamedTuple):
    """A buffer in the arena, for reports: it holds values from the kernel `first` to the kernel `last` of the schedule.

    Units: offset and bytes are bytes.
    """

    offset: int
    bytes: int
    first: int
    last: int


class HostCallback(NamedTuple):
    """A call of the process that the entry runs in: an op that other devices or the user take part in.

    `kind` is the op's name in HLO text, `attributes` those of its attributes that the call needs (see host_callbacks).
    The call gets the addresses of the inputs, then of the outputs.
    """

    kind: str
    name: str
    inputs: tuple[BufferSpec, ...]
    outputs: tuple[BufferSpec, ...]
    attributes: dict[str, Any]


class Packed(NamedTuple):
    """A parameter that the entry reads from packed memory, in a layout: equal layouts are packed alike."""

    parameter: int
    bytes: int
    layout: str


def prepacking_entry(entry: str) -> str:
    """Name of the function beside an entry that packs its arguments."""
    return f"{entry}_prepack"


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A compiled module. The JIT loads `object`, AOT writes it, the disk cache stores it.

    `split_objects` are further objects, whose functions `object` calls.
    Units: temp_bytes are bytes of the arena that the entry wants.
    `threads` is the highest number of threads of a call: per-thread memory is sized by it. `constants` is the
    blob that the entry finds through the run context; `libraries` names the kernel libraries whose functions
    `object` calls. With `packed` there is a second function, `prepacking_entry`, that takes the same arguments and
    fills the packed memory whose addresses the run context has, but where such an address is null; the entry reads that
    memory.
    The entry of one that `may_bail_out` has the status ASSUMPTION_FAILED for arguments that are not as was assumed. The
    first dim of the results numbered in `sized_results` is a bound: the last results are the s32 sizes in its place.
    Of code for `symbolic` sizes, dims and bytes are typical ones: `bound` gives those for the dims of a call's
    arguments, and `sizes`, the table that the code finds through the run context.
    """

    object: bytes
    entry: str
    parameters: tuple[BufferSpec, ...]
    results: tuple[BufferSpec, ...]
    temp_bytes: int = 0
    constants: bytes = b""
    libraries: tuple[str, ...] = ()
    threads: int = 1
    kernels: tuple[KernelRecord, ...] = ()
    temporaries: tuple[Temporary, ...] = ()
    fingerprint: str = ""
    split_objects: tuple[bytes, ...] = ()
    host_callbacks: tuple[HostCallback, ...] = ()
    packed: tuple[Packed, ...] = ()
    may_bail_out: bool = False
    sized_results: tuple[int, ...] = ()
    symbolic: SymbolicSizes | None = None
    sizes: tuple[int, ...] = ()

    def bound(self, dims: Sequence[Sequence[int]], more: Sequence[Known] = ()) -> Artifact | str:
        """The same code for arguments of these dims; the reason why it does not serve them. more: other sizes."""
        if self.symbolic is None:
            own = tuple(tuple(d) for d in dims)
            return self if own == tuple(p.dims for p in self.parameters) else "the dims are others"
        symbolic, values = self.symbolic, self.symbolic.values_for(dims, more)
        if isinstance(values, str):
            return values
        sizes = symbolic.evaluated(values)
        bound = dataclasses.replace(
            self,
            parameters=_bound_specs(self.parameters, sizes.parameters),
            results=_bound_specs(self.results, sizes.results),
            temp_bytes=sizes.temp_bytes,
            sizes=sizes.table,
        )
        numbers = [bound.temp_bytes, *bound.sizes, *(b.bytes for b in (*bound.parameters, *bound.results))]
        return bound if max(map(abs, numbers)) < MAX_SIZE else "its sizes do not fit into 64 bits"

    @property
    def prepacking_entry(self) -> str:
        """Name of the function that packs arguments, if some are packed."""
        return prepacking_entry(self.entry)

    @property
    def object_bytes(self) -> int:
        """Bytes of all objects."""
        return len(self.object) + sum(map(len, self.split_objects))

    def to_bytes(self) -> bytes:
        """The artifact as bytes, versioned and with a checksum."""
        header = json.dumps(
            {
                "entry": self.entry,
                "parameters": self.parameters,
                "results": self.results,
                "temp_bytes": self.temp_bytes,
                "libraries": self.libraries,
                "threads": self.threads,
                "kernels": self.kernels,
                "temporaries": self.temporaries,
                "host_callbacks": self.host_callbacks,
                "packed": self.packed,
                "may_bail_out": self.may_bail_out,
                "sized_results": self.sized_results,
                "symbolic": self.symbolic.to_json() if self.symbolic else {},
                "fingerprint": self.fingerprint,
                "objects": [len(o) for o in (self.object, *self.split_objects)],
            }
        ).encode()
        parts = (header, b"".join((self.object, *self.split_objects)), self.constants)
        sizes = struct.pack("<QQQ", *map(len, parts))
        return b"".join((_HEAD.pack(_MAGIC, _VERSION, _checksum(sizes, *parts), *map(len, parts)), *parts))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Artifact:
        """The artifact that `to_bytes` wrote. A mark may follow; it is not verified here.

        Raises: ArtifactError  another format or version, damaged bytes, or a malformed header.
        """
        if len(data) < _HEAD.size:
            raise ArtifactError(f"artifact: {len(data)} bytes, a header has {_HEAD.size}")
        magic, version, checksum, *sizes = _HEAD.unpack_from(data)
        if magic != _MAGIC or version != _VERSION:
            raise ArtifactError(
                f"artifact: starts with {magic!r} version {version}, wanted {_MAGIC!r} version {_VERSION}"
            )
        end = _HEAD.size + sum(sizes)
        if len(data) not in (end, end + MARK_BYTES):
            raise ArtifactError(f"artifact: {len(data)} bytes, its header says {end}")
        view = memoryview(data)[:end]
        if _checksum(struct.pack("<QQQ", *sizes), view[_HEAD.size :]) != checksum:
            raise ArtifactError("artifact: the checksum does not fit the contents")
        object_at, constants_at = _HEAD.size + sizes[0], _HEAD.size + sizes[0] + sizes[1]
        header = _header(bytes(view[_HEAD.size : object_at]))
        ends = list(itertools.accumulate(header["objects"], initial=object_at))
        if ends[-1] != constants_at or len(ends) < 2:
            raise ArtifactError(f"artifact: objects of {header['objects']} bytes, wanted {sizes[1]} in all")
        first, *split_objects = (bytes(view[start:end]) for start, end in itertools.pairwise(ends))
        return cls(
            object=first,
            split_objects=tuple(split_objects),
            constants=bytes(view[constants_at:]),
            entry=header["entry"],
            temp_bytes=header["temp_bytes"],
            fingerprint=header["fingerprint"],
            threads=header["threads"],
            libraries=tuple(header["libraries"]),
            parameters=_specs(header["parameters"]),
            results=_specs(header["results"]),
            kernels=tuple(
                KernelRecord(name, flops, size, tasks, tuple(ops))
                for name, flops, size, tasks, ops in header["kernels"]
            ),
            temporaries=tuple(Temporary(*row) for row in header["temporaries"]),
            host_callbacks=tuple(
                HostCallback(kind, name, _specs(inputs), _specs(outputs), attributes)
                for kind, name, inputs, outputs, attributes in header["host_callbacks"]
            ),
            packed=tuple(Packed(*packed) for packed in header["packed"]),
            may_bail_out=header["may_bail_out"],
            sized_results=tuple(header["sized_results"]),
            symbolic=_symbolic_sizes(header["symbolic"]),
        )


# What a header holds, by JSON's types: a tuple is a list with these items, a list has any number of one kind.
_Form = type | tuple["_Form", ...] | list["_Form"] | dict[str, "_Form"]
_BUFFER: _Form = (str, [int], int)
_HEADER: dict[str, _Form] = {
    "entry": str,
    "parameters": [_BUFFER],
    "results": [_BUFFER],
    "temp_bytes": int,
    "libraries": [str],
    "threads": int,
    "kernels": [(str, int, int, int, [str])],
    "temporaries": [(int, int, int, int)],
    "host_callbacks": [(str, str, [_BUFFER], [_BUFFER], dict)],
    "packed": [(int, int, str)],
    "may_bail_out": bool,
    "sized_results": [int],
    "symbolic": dict,
    "fingerprint": str,
    "objects": [int],
}


def _header(text: bytes) -> dict[str, Any]:
    """The header's fields.

    Raises: ArtifactError  it is not JSON, or a field is missing or of another type.
    """
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"artifact: the header is not JSON: {error}") from None
    if not _has_form(header, _HEADER):
        raise ArtifactError(f"artifact: the header has other fields or types than {', '.join(_HEADER)}")
    return cast("dict[str, Any]", header)


def _has_form(value: object, form: _Form) -> bool:
    """Whether a value of JSON has a form. Whole numbers are sizes and counts, never negative."""
    if isinstance(form, dict):
        return (
            isinstance(value, dict)
            and value.keys() == form.keys()
            and all(_has_form(value[name], inner) for name, inner in form.items())
        )
    if isinstance(form, tuple):
        return isinstance(value, list) and len(value) == len(form) and all(map(_has_form, value, form))
    if isinstance(form, list):
        return isinstance(value, list) and all(_has_form(item, form[0]) for item in value)
    return type(value) is form and not (form is int and cast("int", value) < 0)


def _specs(listed: Iterable[tuple[str, list[int], int]]) -> tuple[BufferSpec, ...]:
    return tuple(BufferSpec(dtype, tuple(dims), size) for dtype, dims, size in listed)


def _symbolic_sizes(data: dict[str, Any]) -> SymbolicSizes | None:
    """Raises: ArtifactError  they are malformed."""
    try:
        return SymbolicSizes.of_json(data) if data else None
    except (ArithmeticError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
        raise ArtifactError("artifact: its symbolic sizes are malformed") from None


def _bound_specs(specs: Sequence[BufferSpec], dims: Mapping[int, tuple[int, ...]]) -> tuple[BufferSpec, ...]:
    """Buffers of which some have other dims, of the same types."""
    bound = list(specs)
    for number, now in dims.items():
        dtype = specs[number].dtype
        bound[number] = BufferSpec(dtype, now, np.dtype(dtype).itemsize * math.prod(now))
    return tuple(bound)


def _checksum(*parts: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()
