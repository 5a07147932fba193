"""Where an instruction comes from, in HLO text: `metadata={...}`, stack frames, and attributes that are only kept."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from ..ir.module import Metadata
from .scanner import STRING

ATTRIBUTES_OF_ANY_OP = frozenset(
    {
        "sharding",
        "frontend_attributes",
        "backend_config",
        "statistics",
        "origin",
        "original_value",
        "control-predecessors",
        "parameter_replication",
    }
)
STORED_ATTRIBUTES = ATTRIBUTES_OF_ANY_OP | {
    "operand_precision",
    "result_accuracy",
    "outer_dimension_partitions",
    "is_composite",
    "algorithm",
    "execution_thread",
    "constrain_layout",
}
"""Attributes of instructions that are stored in Metadata.extra as text: they do not change what is
computed."""
TABLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)\n((?:\d+ [^\n]*\n?)*)", re.ASCII)
"""The tables that stand before the computations."""

_FIELD = re.compile(rf"([\w\-]+)=({STRING}|\{{[^{{}}]*\}}|[^\s}}]+)")
_DIGITS = re.compile(r"[0-9]{1,18}")
_ESCAPES: dict[str, str] = {"n": "\n", "t": "\t"}


def parse_metadata(
    text: str, frames: dict[int, tuple[str, int]], extra: list[tuple[str, str]]
) -> dict[str, Any]:
    """The fields of Metadata that `{op_name="..." ...}` sets; `extra` gets the others."""
    values: dict[str, Any] = {}
    for name, value in _FIELD.findall(text[1:-1]):
        if name in ("op_type", "op_name", "source_file"):
            values[name] = _unescaped(value)
        elif name == "source_line" and _DIGITS.fullmatch(value):
            values[name] = int(value)
        elif name == "stack_frame_id" and _DIGITS.fullmatch(value) and int(value) in frames:
            values["source_file"], values["source_line"] = frames[int(value)]
        else:
            extra.append((f"metadata.{name}", value))
    return values


def as_another_op(metadata: Metadata) -> Metadata:
    """The metadata of an instruction that is read as another op: what any op may have."""
    extra = tuple(
        row for row in metadata.extra if row[0] in ATTRIBUTES_OF_ANY_OP or row[0].startswith("metadata.")
    )
    return metadata if extra == metadata.extra else dataclasses.replace(metadata, extra=extra)


def stack_frames(tables: dict[str, str]) -> dict[int, tuple[str, int]]:
    """File and line by stack frame number, from the tables by name."""

    def rows(table: str) -> dict[int, str]:
        lines = (line.partition(" ") for line in tables.get(table, "").splitlines())
        return {int(number): rest for number, _, rest in lines if _DIGITS.fullmatch(number)}

    def number(name: str, row: str) -> int:
        match = re.search(rf"\b{name}=([0-9]{{1,18}})\b", row)
        return int(match[1]) if match else 0

    files = {n: _unescaped(r) for n, r in rows("FileNames").items()}
    locations = {
        n: (files.get(number("file_name_id", r), ""), number("line", r))
        for n, r in rows("FileLocations").items()
    }
    return {n: locations.get(number("file_location_id", r), ("", 0)) for n, r in rows("StackFrames").items()}


def _unescaped(text: str) -> str:
    inner = text[1:-1] if text[:1] in ('"', "'") else text
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), inner)
