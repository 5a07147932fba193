"""Writes the files of an exported model: the object or library, its constants, the header, the descriptions, extras."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path

from ....compiler.quantization.report import QuantizationReport
from ....runtime.code import private_files
from ....runtime.llvm.target import Target
from .description import write_description
from .extras import EXTRAS
from .header.header import write_header
from .libraries import pack
from .model import Model, Reference
from .model_page import write_page


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The files of a compiled function. `constants_file` is None when the constants lie in the object; `extra_files`
    are those that were asked for; `quantization` says of every function what its quantisation changed. `temp_bytes` is
    without that of code for sizes that have no bound.

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
    folder: Path,
    model: Model,
    object_bytes: bytes,
    constants: bytes,
    target: Target,
    reports: Sequence[QuantizationReport] = (),
) -> Compiled:
    """The files that every model has, of its object and of its constants where these do not lie in the object.

    Raises: UnsupportedError  there is no such library of the model (see `libraries`).
    """
    header = write_header(model).encode("ascii")
    page = write_page(model, object_bytes, target, reports).encode(errors="replace")
    library = pack(model, object_bytes, header, target)
    description = write_description(model, len(library), object_bytes, target, reports).encode("ascii")
    folder.mkdir(parents=True, exist_ok=True)
    constants_file = None
    if model.constants_file:
        constants_file = _write(folder, model.constants_file, constants)
    return Compiled(
        object_file=_write(folder, model.file, library),
        header=_write(folder, f"{model.name}.h", header),
        description=_write(folder, f"{model.name}.json", description),
        page=_write(folder, f"{model.name}.html", page),
        constants_file=constants_file,
        object_bytes=len(library),
        header_bytes=len(header),
        temp_bytes=model.temp_bytes,
        constants_bytes=len(constants),
    )


def write_extras(
    folder: Path, extras: Collection[str], model: Model, reference: Reference
) -> tuple[Path, ...]:
    """The files of these rows of EXTRAS. Raises: UnsupportedError  a writer cannot describe the model."""
    return tuple(
        _write(folder, name.format(model.name), write(model, reference).encode("ascii"))
        for extra in sorted(extras)
        for name, write in EXTRAS[extra].files.items()
    )


def _write(folder: Path, name: str, contents: bytes) -> Path:
    private_files.write_file(None, str(folder / name), [contents], 0o666)
    return folder / name
