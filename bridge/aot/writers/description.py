"""Writes NAME.json: an exported model for other programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ....compiler.quantization.report import QuantizationReport
from ....runtime.code.artifact import BufferSpec
from ....runtime.code.linker import section_bytes
from ....runtime.run_context import ABI_VERSION
from ....runtime.sizes import AnySize, Size, is_symbolic
from .export import Export
from .model import Entry, Model


def write_description(export: Export, library_bytes: int, reports: Sequence[QuantizationReport]) -> str:
    """The text of NAME.json. Facts of the only function stand beside those of the model, facts of several functions by
    name."""
    model, target = export.model, export.target
    functions = {
        entry.name: {
            "entry": entry.symbol,
            "arguments": _arrays(model, entry, "args"),
            "results": _arrays(model, entry, "results"),
            "kernels": [kernel._asdict() for kernel in entry.kernels],
            "temporaries": [temporary._asdict() for temporary in entry.temporaries],
        }
        for entry in model.entries
    }
    description = {
        "name": model.name,
        "cpp_class": model.cpp_class,
        "tfbridge": model.version,
        "abi": ABI_VERSION,
        "hash": model.digest,
        "target": {
            "triple": target.triple,
            "cpu": target.cpu,
            "features": target.features,
            **({"levels": list(model.levels)} if model.levels else {}),
            "threads": model.threads,
        },
        **functions.get("", {"functions": functions}),
        **_sizes(model),
        "state": [_array(s.name, s.spec, s.spec.dims, s.spec.bytes) for s in model.states],
        "state_bytes": model.state_offsets[-1],
        "temp_bytes": model.temp_bytes if model.sizes.are_bounded else None,
        "stack_bytes": model.stack_bytes,
        "memory_bytes": model.memory_bytes if model.sizes.are_bounded else None,
        "object_bytes": library_bytes,
        "constants_file": model.constants_file or None,
        "constants_bytes": model.constants_bytes,
        "sections": dict(section_bytes(export.object_bytes)),
    }
    if reports:
        description["quantization"] = [report.to_json() for report in reports]
    return json.dumps(description, indent=2) + "\n"


def _sizes(model: Model) -> dict[str, object]:
    listed = [{"name": s.name, "most": s.most, "place": s.place} for s in model.sizes.listed]
    return {"sizes": listed, "refused": list(model.sizes.refused)} if listed else {}


def _arrays(model: Model, entry: Entry, kind: str) -> list[dict[str, object]]:
    """Arguments or results: dims that change are expressions, bytes those of the largest."""
    is_args = kind == "args"
    names, specs = (entry.argument_names, entry.arguments) if is_args else (entry.result_names, entry.results)
    described = [
        _array(
            name,
            spec,
            sizes := entry.sizes(kind, k),
            None if is_symbolic(sizes) and not model.sizes.are_bounded else spec.bytes,
        )
        for k, (name, spec) in enumerate(zip(names, specs, strict=True))
    ]
    for k, array in enumerate(described):
        if not is_args and (rows := entry.rows_of(k)) is not None:
            array["rows_in_result"] = rows
        if (step := entry.step(kind.removesuffix("s"), k)) is not None:
            array["scale"], array["zero_point"] = step
    return described


def _array(name: str, spec: BufferSpec, sizes: Sequence[AnySize], bytes_: int | None) -> dict[str, object]:
    dims = [str(size) if isinstance(size, Size) else size for size in sizes]
    return {"name": name, "dtype": spec.dtype, "dims": dims, "bytes": bytes_}
