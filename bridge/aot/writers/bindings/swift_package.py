"""Writes a Swift package of an exported model for Apple's systems: an XCFramework with a module map, and a class."""

from __future__ import annotations

import plistlib
from pathlib import Path
from typing import Any

from ..arrays import Array, all_arrays
from ..documentation import documentation, listed_arrays
from ..export import Export, Files
from ..libraries import archive
from ..model import Model
from . import swift_templates as text

_TYPES = {
    "bool": "Bool",
    "float32": "Float",
    "float64": "Double",
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
    "int4": "Int8",
    "uint4": "UInt8",
    "float16": "UInt16",
    "bfloat16": "UInt16",
    "float8_e4m3fn": "UInt8",
    "float8_e5m2": "UInt8",
    "complex64": "tfbridge_complex64",
    "complex128": "tfbridge_complex128",
}
# Systems of triples, by their beginnings: those of frameworks.
_PLATFORMS = {
    "ios": "ios",
    "macos": "macos",
    "darwin": "macos",
    "tvos": "tvos",
    "watchos": "watchos",
    "xros": "xros",
}
_VARIANTS = {"simulator": "simulator", "macabi": "maccatalyst"}


def refusal(triple: str) -> str:
    """Why there is no package for a triple; empty: there is."""
    return (
        ""
        if _platform(triple)
        else "Swift packages are for Apple's systems: a triple such as arm64-apple-ios17"
    )


def _platform(triple: str) -> tuple[str, str, str] | None:
    """(architecture, system, variant) as frameworks call them; None: it is not one of Apple's systems."""
    architecture, *parts = triple.split("-")
    system = next((s for part in parts for begin, s in _PLATFORMS.items() if part.startswith(begin)), "")
    variant = next((v for part in parts for begin, v in _VARIANTS.items() if part.startswith(begin)), "")
    return ({"aarch64": "arm64"}.get(architecture, architecture), system, variant) if system else None


def write_swift(export: Export) -> Files:
    """The files of the package, in the folder NAME_swift; a second export for another system adds to it."""
    model, triple = export.model, export.target.triple
    platform = _platform(triple)
    assert platform is not None  # refused before
    identifier = "-".join(filter(None, (platform[1], platform[0], platform[2])))
    folder, class_name = f"{model.name}_swift", model.cpp_class.rsplit("::", 1)[-1]
    common = {
        "name": model.name,
        "NAME": model.name.upper(),
        "class_name": class_name,
        "module": f"C{class_name}",
        "target": model.target,
        "version": model.version,
    }
    framework = f"C{class_name}.xcframework"
    library = {
        "LibraryIdentifier": identifier,
        "LibraryPath": f"lib{model.name}.a",
        "HeadersPath": "Headers",
        "SupportedArchitectures": [platform[0]],
        "SupportedPlatform": platform[1],
        **({"SupportedPlatformVariant": platform[2]} if platform[2] else {}),
    }
    headers = f"{framework}/{identifier}/Headers/{model.name}"
    files: dict[str, str | bytes] = {
        "Package.swift": text.PACKAGE.substitute(common),
        f"Sources/{class_name}/{class_name}.swift": _class(model, common),
        f"{framework}/Info.plist": _information(export.folder / folder / framework, library),
        f"{framework}/{identifier}/lib{model.name}.a": archive(
            f"{model.name}.o", export.object_bytes, model.symbols, triple
        ),
        # In folders of their own: Xcode puts the headers of all frameworks into one.
        f"{headers}/{model.name}.h": export.header,
        f"{headers}/module.modulemap": text.MODULE_MAP.substitute(common),
    }
    if model.constants_file:
        files[f"{identifier}/{model.constants_file}"] = export.constants
    return {f"{folder}/{name}": contents for name, contents in files.items()}


def _information(framework: Path, library: dict[str, Any]) -> bytes:
    """The list of the libraries in a framework, with those that are there."""
    libraries = [library]
    try:
        listed = plistlib.loads((framework / "Info.plist").read_bytes())["AvailableLibraries"]
    except (OSError, KeyError, TypeError, ValueError, plistlib.InvalidFileException):
        listed = []
    libraries += [
        other
        for other in listed
        if other["LibraryIdentifier"] != library["LibraryIdentifier"]
        and (framework / other["LibraryIdentifier"] / other["LibraryPath"]).is_file()
    ]
    return plistlib.dumps(
        {
            "AvailableLibraries": sorted(libraries, key=lambda each: each["LibraryIdentifier"]),
            "CFBundlePackageType": "XFWK",
            "XCFrameworkFormatVersion": "1.0",
        }
    )


def _class(model: Model, common: dict[str, str]) -> str:
    arrays = list(all_arrays(model))
    has_sizes, is_open = bool(model.sizes.listed), not model.sizes.are_bounded
    return text.CLASS.substitute(
        common,
        listed="\n".join(listed_arrays(model, "/// ", "- ")),
        parameters="most: [Int64]" if is_open else "",
        most="most" if is_open else "",
        runs="".join(
            text.RUN.substitute(common, run=entry.run_name, call=model.call(entry)) for entry in model.entries
        ),
        sizes=text.SIZES.substitute(
            common,
            places="".join(
                f"    public static let size_{size.name} = {place}\n"
                for place, size in enumerate(model.sizes.listed)
            ),
        )
        if has_sizes
        else "",
        state=text.STATE.substitute(common, bytes=model.state_offsets[-1]) if model.states else "",
        constants=text.CONSTANTS.substitute(common, file=model.constants_file)
        if model.constants_file
        else "",
        arrays="".join(_accessor(model, array) for array in arrays),
    )


def _accessor(model: Model, array: Array) -> str:
    function = f"{model.name}_{array.which}"
    values = {
        "which": array.which,
        "documentation": "\n    /// ".join(documentation(array)),
        "type": _TYPES[array.spec.dtype],
        "address": f"{function}(model)",
        "count": f"withSizes {{ {function}_elements($0) }}" if array.is_changing else str(array.elements),
    }
    return text.ARRAY.substitute(values) + (text.NAMED.substitute(values, own=array.own) if array.own else "")
