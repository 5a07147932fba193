"""Writes a Gradle module of an exported model for Android: a static library for each ABI that is exported, JNI in C,
and a Kotlin class."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..arrays import Array, all_arrays
from ..documentation import documentation, listed_arrays
from ..export import Export, Files
from ..libraries import archive
from ..model import Entry, Model
from . import android_templates as text

# Architectures of triples, by their beginnings: Android's names.
_ABIS = {"aarch64": "arm64-v8a", "arm64": "arm64-v8a", "arm": "armeabi-v7a", "thumb": "armeabi-v7a"}
_ABIS |= {"x86_64": "x86_64", "i": "x86", "riscv64": "riscv64"}
# NumPy dtype: (the buffer of the class java.nio that has such elements, empty for bytes).
_BUFFERS = {
    "float32": "Float",
    "complex64": "Float",
    "float64": "Double",
    "complex128": "Double",
    "int16": "Short",
    "uint16": "Short",
    "float16": "Short",
    "bfloat16": "Short",
    "int32": "Int",
    "uint32": "Int",
    "int64": "Long",
    "uint64": "Long",
}
_KEYWORDS = """
as break class continue do else false for fun if in interface is null object package return super this throw true try
typealias typeof val var when while abstract assert boolean byte case catch char const default double enum extends
final finally float goto implements import instanceof int long native new private protected public short static strictfp
switch synchronized throws transient void volatile
"""
_MIN_API = 21


def refusal(triple: str) -> str:
    """Why there is no module for a triple; empty: there is."""
    parts = triple.split("-")
    if _abi(triple) and any(part.startswith(("linux", "android")) for part in parts):
        return ""
    return "Android runs on Linux, on Arm, x86 or RISC-V: a triple such as aarch64-linux-android26 is wanted"


def _abi(triple: str) -> str:
    architecture = triple.partition("-")[0]
    return next((abi for begin, abi in _ABIS.items() if architecture.startswith(begin)), "")


def write_android(export: Export) -> Files:
    """The files of the module, in the folder NAME_android; a second export for another ABI adds to it."""
    model = export.model
    abi, triple = _abi(export.target.triple), export.target.triple
    package, class_name = _package(model), _class(model)
    common = {
        "name": model.name,
        "NAME": model.name.upper(),
        "package": package,
        "class_name": class_name,
        "prefix": f"Java_{_mangled(package)}_{_mangled(class_name)}_",
        "target": model.target,
        "version": model.version,
        "min_api": str(_MIN_API),
    }
    native = f"src/main/cpp/{abi}"
    files: dict[str, str | bytes] = {
        "build.gradle.kts": text.GRADLE.substitute(common),
        "src/main/AndroidManifest.xml": text.MANIFEST,
        "src/main/cpp/CMakeLists.txt": text.CMAKE.substitute(common),
        f"src/main/cpp/{model.name}_jni.c": _jni(model, common),
        f"src/main/kotlin/{package.replace('.', '/')}/{class_name}.kt": _kotlin(model, common),
        f"{native}/{model.name}.h": export.header,
        f"{native}/lib{model.name}.a": archive(f"{model.name}.o", export.object_bytes, model.symbols, triple),
    }
    if model.constants_file:
        # The number at its end is that of one object: each ABI has its own.
        files[f"src/main/assets/{abi}/{model.constants_file}"] = export.constants
    return {f"{model.name}_android/{name}": contents for name, contents in files.items()}


def _class(model: Model) -> str:
    return model.cpp_class.rsplit("::", 1)[-1]


def _package(model: Model) -> str:
    """The namespaces of the class, or the model's name, as a package."""
    words = model.cpp_class.lower().split("::")[:-1] or [model.name.lower()]
    return ".".join(f"{word}_" if word in _KEYWORDS.split() else word for word in words)


def _mangled(name: str) -> str:
    """A name as JNI writes it."""
    return re.sub(r"[^A-Za-z0-9._]", "", name).replace("_", "_1").replace(".", "_")


def run_name(entry: Entry) -> str:
    """The method that runs a function."""
    words = entry.name.split("_")
    return "run" + "".join(word[:1].upper() + word[1:] for word in words)


def _jni(model: Model, common: dict[str, str]) -> str:
    arrays = list(all_arrays(model))
    has_sizes, is_open = bool(model.sizes.listed), not model.sizes.are_bounded
    return text.JNI.substitute(
        common,
        create=text.CREATE_OPEN.substitute(common) if is_open else text.CREATE.substitute(common),
        buffers="".join(
            text.CASE_BUFFER.substitute(number=number, address=f"{model.name}_{a.which}(self)", bytes=_bytes(model, a))
            for number, a in enumerate(arrays)
        ),
        runs="".join(
            text.CASE_RUN.substitute(number=number, call=model.call(entry))
            for number, entry in enumerate(model.entries)
        ),
        sizes=text.JNI_SIZES.substitute(common) if has_sizes else "",
        state=text.JNI_STATE.substitute(common) if model.states else "",
        constants=text.JNI_CONSTANTS.substitute(common) if model.constants_file else "",
    )  # fmt: skip


def _bytes(model: Model, array: Array) -> str:
    if array.is_changing:
        return f"{model.name}_{array.which}_bytes(self->sizes)"
    return f"{model.name}_{array.which}_BYTES".upper()


def _kotlin(model: Model, common: dict[str, str]) -> str:
    arrays = list(all_arrays(model))
    has_sizes, is_open = bool(model.sizes.listed), not model.sizes.are_bounded
    return text.KOTLIN.substitute(
        common,
        listed="\n".join(map(_in_comment, listed_arrays(model, " * ", "- "))),
        parameters=text.OPEN_PARAMETERS if is_open else text.NO_PARAMETERS,
        most="most" if is_open else "",
        most_type="most: LongArray" if is_open else "",
        runs="".join(
            text.RUN.substitute(run=run_name(entry), number=number)
            for number, entry in enumerate(model.entries)
        ),
        sizes=text.SIZES if has_sizes else "",
        places="".join(_places(model)),
        size_natives=text.SIZE_NATIVES if has_sizes else "",
        state=text.STATE if model.states else "",
        state_natives=text.STATE_NATIVES if model.states else "",
        constants=text.CONSTANTS.substitute(file=model.constants_file) if model.constants_file else "",
        constants_natives=text.CONSTANTS_NATIVES if model.constants_file else "",
        arrays="".join(_accessors(arrays)),
    )


def _in_comment(line: str) -> str:
    """Without what Kotlin's comments take for links and ends."""
    return line.replace("[", "(").replace("]", ")").replace("/*", "/ *").replace("*/", "* /")


def _places(model: Model) -> Iterator[str]:
    for place, size in enumerate(model.sizes.listed):
        bound = "any number" if size.most is None else f"at most {size.most}"
        yield text.SIZE.substitute(
            NAME=size.name.upper(), place=place, documentation=f"{size.name}: {bound}, {size.place}."
        )


def _accessors(arrays: Sequence[Array]) -> Iterator[str]:
    for number, array in enumerate(arrays):
        kind = _BUFFERS.get(array.spec.dtype, "")
        values = {
            "which": array.which,
            "documentation": "\n     * ".join(map(_in_comment, documentation(array))),
            "type": f"{kind or 'Byte'}Buffer",
            "number": number,
            "view": f".as{kind}Buffer()" if kind else "",
        }
        yield text.ARRAY.substitute(values)
        if array.own:
            yield text.NAMED.substitute(values, own=array.own)
