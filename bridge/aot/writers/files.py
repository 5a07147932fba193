"""Writes the files of an exported model: the object or library, its constants, the header, the descriptions, extras."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path

from ....compiler.quantization.report import QuantizationReport
from ....runtime.code import private_files
from .description import write_description
from .export import Export, Files
from .extras import EXTRAS
from .libraries import pack
from .model_page import write_page
from .weights_source import write_weights


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The files of a compiled function. `constants_file` has the constants, as they are or as C source; it is None when
    they lie in the object. `extra_files` are those that were asked for; `quantization` says of every function what its
    quantisation changed. `temp_bytes` is without that of code for sizes that have no bound.

    Units: bytes.
    """

    object_file: Path
    header: Path
    description: Path
    page: Path
    constants_file: Path | None
    object_bytes: int
    header_bytes: int
    temp_bytes: int
    constants_bytes: int
    extra_files: tuple[Path, ...] = ()
    quantization: tuple[QuantizationReport, ...] = ()


def write_files(
    export: Export,
    extras: Collection[str] = (),
    reports: Sequence[QuantizationReport] = (),
) -> Compiled:
    """The files that every model has, of its object and of its constants where these do not lie in the object, and
    those of some rows of EXTRAS. Nothing is written before the contents of all are there.

    Raises: UnsupportedError  there is no such library of the model (see `libraries`), or a writer of extras cannot
    describe it.
    """
    model = export.model
    header = export.header.encode("ascii")
    library = pack(model, export.object_bytes, header, export.target)
    contents: dict[str, str | bytes] = {
        model.file: library,
        f"{model.name}.h": header,
        f"{model.name}.json": write_description(export, len(library), reports),
        f"{model.name}.html": write_page(export, reports),
    }
    if model.layers:
        contents[f"{model.name}.layers"] = "\n".join([*model.layers, ""])
    if model.constants_file:
        contents[model.constants_file] = export.constants
    if model.source_file:
        contents[model.source_file] = write_weights(export)
    further: dict[str, str | bytes] = {}
    for extra in sorted(extras):
        further |= EXTRAS[extra].write(export)
    paths = _write(export.folder, contents | further)
    return Compiled(
        object_file=paths[model.file],
        header=paths[f"{model.name}.h"],
        description=paths[f"{model.name}.json"],
        page=paths[f"{model.name}.html"],
        constants_file=paths[model.constants_file or model.source_file] if model.constants_bytes else None,
        object_bytes=len(library),
        header_bytes=len(header),
        temp_bytes=model.temp_bytes,
        constants_bytes=len(export.constants),
        extra_files=tuple(paths[name] for name in further),
        quantization=tuple(reports),
    )


def _write(folder: Path, contents: Files) -> dict[str, Path]:
    """The paths of files, written, by their names in the folder. Texts are UTF-8."""
    paths = {}
    for name, text in contents.items():
        paths[name] = folder / name
        paths[name].parent.mkdir(parents=True, exist_ok=True)
        data = text if isinstance(text, bytes) else text.encode(errors="replace")
        private_files.write_file(None, str(paths[name]), [data], 0o666)
    return paths
