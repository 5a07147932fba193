"""Artifacts: the bytes hold everything, and damage is noticed."""

from __future__ import annotations

import pickle

import pytest
from tfbridge.runtime.artifact import Artifact, BufferSpec, KernelInfo, Packed, Site
from tfbridge.runtime.errors import ArtifactError

FULL = Artifact(
    object=b"\x7fELF" + bytes(range(256)), entry="entry", parameters=(BufferSpec("float32", (2, 3), 24),),
    results=(BufferSpec("bfloat16", (), 2), BufferSpec("bool", (0, 4), 0)), temp_bytes=1 << 40,
    constants=b"\0\1" * 100, libraries=("gemm",), threads=6, fingerprint="möglich", packed=(Packed(0, 64, "panels"),),
    may_leave=True,
    parts=(b"one", b"", b"three" * 9),
    kernels=(KernelInfo("fusion.0", 12, 48, 3, ("model/add", "model/mul")), KernelInfo("copy", 0, 8, 1)),
    sites=(Site("outfeed", "out.1", (BufferSpec("int8", (3,), 3),), (), {"signature": "s8[3]", "pairs": [[0, 1]]}),))


@pytest.mark.parametrize("artifact", [FULL, Artifact(b"", "entry", (), ())])
def test_round_trip(artifact: Artifact) -> None:
    assert Artifact.from_bytes(artifact.to_bytes()) == artifact
    assert pickle.loads(pickle.dumps(artifact)) == artifact


def test_every_damaged_byte_is_noticed() -> None:
    data = FULL.to_bytes()
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:]
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
    with pytest.raises(ArtifactError, match="version 7, wanted b'tfbridge' version 6"):
        Artifact.from_bytes(bytes(data))


def test_object_bytes() -> None:
    assert FULL.object_bytes == 260 + 3 + 45
