"""Artifacts: the bytes hold everything, and damage is noticed."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from typing import Any

import pytest
from tfbridge.runtime.code import artifact as artifact_module
from tfbridge.runtime.code.artifact import Artifact, BufferSpec, HostCallback, KernelRecord, Packed, Temporary
from tfbridge.runtime.errors import ArtifactError

FULL = Artifact(
    object=b"\x7fELF" + bytes(range(256)),
    entry="entry",
    parameters=(BufferSpec("float32", (2, 3), 24),),
    results=(BufferSpec("bfloat16", (), 2), BufferSpec("bool", (0, 4), 0)),
    temp_bytes=1 << 40,
    constants=b"\0\1" * 100,
    libraries=("gemm",),
    threads=6,
    fingerprint="möglich",
    packed=(Packed(0, 64, "panels"),),
    may_bail_out=True,
    split_objects=(b"one", b"", b"three" * 9),
    kernels=(KernelRecord("fusion.0", 12, 48, 3, ("model/add", "model/mul")), KernelRecord("copy", 0, 8, 1)),
    temporaries=(Temporary(0, 64, 0, 1), Temporary(64, 1 << 40, 1, 1)),
    host_callbacks=(
        HostCallback(
            "outfeed", "out.1", (BufferSpec("int8", (3,), 3),), (), {"signature": "s8[3]", "pairs": [[0, 1]]}
        ),
    ),
)


@pytest.mark.parametrize("artifact", [FULL, Artifact(b"", "entry", (), ())])
def test_round_trip(artifact: Artifact) -> None:
    assert Artifact.from_bytes(artifact.to_bytes()) == artifact
    assert pickle.loads(pickle.dumps(artifact)) == artifact


def test_every_damaged_byte_is_noticed() -> None:
    data = FULL.to_bytes()
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(damaged)


def test_every_truncation_is_noticed() -> None:
    data = FULL.to_bytes()
    for size in range(len(data)):
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(data[:size])
    with pytest.raises(ArtifactError, match="its header says"):
        Artifact.from_bytes(data + b"\0")


def test_other_version() -> None:
    data = bytearray(FULL.to_bytes())
    data[8] += 1
    with pytest.raises(ArtifactError, match="version 10, wanted b'tfbridge' version 9"):
        Artifact.from_bytes(bytes(data))


def test_object_bytes() -> None:
    assert FULL.object_bytes == 260 + 3 + 45


def with_header(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The bytes of an artifact whose header was changed, with a checksum that fits."""
    data = FULL.to_bytes()
    sizes = artifact_module._HEAD.unpack_from(data)[3:]
    end = artifact_module.HEAD_BYTES + sizes[0]
    header = json.loads(data[artifact_module.HEAD_BYTES : end])
    other = change(header)
    text = other if isinstance(other, bytes) else json.dumps(header).encode()
    new_sizes = (len(text), *sizes[1:])
    checksum = artifact_module._checksum(struct.pack("<QQQ", *new_sizes), text, data[end:])
    return (
        artifact_module._HEAD.pack(data[:8], artifact_module._VERSION, checksum, *new_sizes)
        + text
        + data[end:]
    )


VALUES = (
    None,
    True,
    -1,
    1.5,
    "text",
    [],
    [5],
    [[]],
    [["float32", [2], "8"]],
    [["float32", ["2"], 8]],
    [["float32", [2], -8]],
    {},
    {"a": 1},
)


@pytest.mark.parametrize("field", artifact_module._HEADER)
def test_odd_header_is_no_artifact(field: str) -> None:
    def damages(value: object) -> bool:
        try:
            found = Artifact.from_bytes(with_header(lambda header: header.update({field: value})))
        except ArtifactError:
            return True
        kept = getattr(found, field)
        assert kept == value or kept == tuple(value) or kept is None and not value  # of the right type
        return False

    assert sum(map(damages, VALUES)) >= len(VALUES) - 2
    with pytest.raises(ArtifactError, match="other fields"):
        Artifact.from_bytes(with_header(lambda header: header.pop(field) and None))


@pytest.mark.parametrize("text", [b"", b"xx", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, b"1" * 10_000])
def test_header_that_is_none(text: bytes) -> None:
    with pytest.raises(ArtifactError):
        Artifact.from_bytes(with_header(lambda header: text))


def test_header_that_fits_is_read() -> None:
    assert Artifact.from_bytes(with_header(lambda header: None)) == FULL


def test_mark_may_follow() -> None:
    assert Artifact.from_bytes(FULL.to_bytes() + bytes(artifact_module.MARK_BYTES)) == FULL
