"""Groups of devices in MLIR text that the axes of a mesh say."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..hlo_text.groups import Groups, read_groups
from ..hlo_text.scanner import Malformed

_GROUPS = re.compile(
    r"mesh\s*=\s*(?:@([\w$.\-]+|\"[^\"]*\")|(.*?))\s*,\s*axes\s*=\s*\[([^\[\]]*)\]", re.DOTALL
)
_PART = re.compile(r'name\s*=\s*"([^"\']*)"(?:\s*,\s*sub_axis_info\s*=\s*\((\d+)\)\s*(\d+))?\s*>')
_NAMED_AXIS = re.compile(r'"([^"\']*)"\s*=\s*(\d+)')
_AXIS = re.compile(r'name\s*=\s*"([^"\']*)"\s*,\s*size\s*=\s*(\d+)')
_IDS = re.compile(r"device_ids\s*=\s*(?:dense<)?\[([\d,\s]*)\]")


def mesh_groups(text: str, meshes: Mapping[str, str]) -> Groups:
    """The groups of `mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x", sub_axis_info = (1)2>]`. The mesh may be
    written out, `#stablehlo.mesh<axes = [<name = "x", size = 4>]>`; `meshes` has those with a name, `["x"=4]`.

    Raises: Malformed.
    """
    match = _GROUPS.fullmatch(text)
    if match is None:
        raise Malformed(f"expected mesh = ..., axes = [...], got {text!r:.60}")
    if match[1] is not None and match[1].strip('"') not in meshes:
        raise Malformed(f"mesh @{match[1]} is not defined before")
    mesh = match[2] if match[1] is None else meshes[match[1].strip('"')]
    axes = _AXIS.findall(mesh) if match[1] is None else _NAMED_AXIS.findall(mesh)
    parts = _PART.findall(match[3])
    if len(parts) != match[3].count("<"):
        raise Malformed(f'expected axes like #stablehlo.axis_ref<name = "x">, got {match[3]!r:.60}')
    ids = _IDS.search(mesh)
    sizes = ",".join(f"'{name}'={size}" for name, size in axes)
    chosen = ",".join(f"'{name}'" + (f":({before}){size}" if size else "") for name, before, size in parts)
    return read_groups(f"mesh[{sizes}]{f',device_ids=({ids[1]})' if ids else ''}{{{chosen}}}")
