"""What an object is packed into: a static library, which is written here, or a shared one, which a compiler links."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from string import Template

from ....compiler.errors import UnsupportedError
from ....runtime.llvm.target import Target, host
from .model import Entry, Model

FORMATS = ("object", "static", "shared")
_SUFFIXES = {"static": ".a", "shared": ".so", "object": ".o"}
# Ends of triples whose linkers name libraries otherwise.
_OTHER_SUFFIXES = {
    "static": {"windows-msvc": ".lib"},
    "shared": {"windows": ".dll", "w64": ".dll", "mingw": ".dll", "apple": ".dylib"},
}
_BSD_INDEX_BYTES = 16  # of the index's name
_MEMBER = "{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n"

# The functions of the header, for programs that read none.
_EXPORTS = Template("""\
#include "$name.h"
#if defined _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
EXPORT void *${name}_shared_new(void) { return ${name}_new(); }
EXPORT void ${name}_shared_free(void *self) { ${name}_free((${name}_model *)self); }
EXPORT const char *${name}_shared_error(void *self) { return ${name}_error_message((${name}_model *)self); }
$functions""")
_FUNCTION = Template("""\
EXPORT int ${name}_shared_$call(void *self) { return ${call_name}_run((${name}_model *)self); }
""")
_ARRAY = Template("""\
EXPORT const void *${name}_shared_$array(void *self) { return ${array}((${name}_model *)self); }
""")
_STATE = Template("""\
EXPORT int ${name}_shared_reset(void *self) { return ${name}_reset((${name}_model *)self); }
EXPORT int ${name}_shared_get_state(void *self, void *to) {
    return ${name}_get_state((${name}_model *)self, to);
}
EXPORT int ${name}_shared_set_state(void *self, const void *from) {
    return ${name}_set_state((${name}_model *)self, from);
}
""")
_CONSTANTS = Template("""\
EXPORT void ${name}_shared_set_constants(void *self, const void *constants) {
    ${name}_set_constants((${name}_model *)self, constants);
}
""")


def file_name(name: str, kind: str, triple: str) -> str:
    """The name of the file of a format, for a target."""
    others = _OTHER_SUFFIXES.get(kind, {})
    suffix = next((suffix for part, suffix in others.items() if part in triple), _SUFFIXES[kind])
    return f"{'' if suffix in ('.o', '.dll', '.lib') else 'lib'}{name}{suffix}"


def pack(model: Model, data: bytes, header: bytes, target: Target) -> bytes:
    """The object, or the library of it that the model's file is.

    Raises: as `link_shared`.
    """
    suffix = Path(model.file).suffix
    if suffix == ".o":
        return data
    if suffix in (".a", ".lib"):
        return archive(f"{model.name}.o", data, model.symbols, target.triple)
    return link_shared(model, data, header, target)


def archive(member: str, data: bytes, symbols: Sequence[str], triple: str) -> bytes:
    """A static library of one object that defines these symbols: an index, then the object."""
    if "apple" in triple:  # BSD's: the index is little endian, names are prefixed, members are 8-byte aligned
        names = b"".join(b"_" + symbol.encode() + b"\0" for symbol in symbols)
        names += bytes(-len(names) % 8)
        starts, at = [], 0
        for symbol in symbols:
            starts.append(at)
            at += len(symbol) + 2
        index_bytes = 4 + 8 * len(symbols) + 4 + len(names)
        where = 8 + 60 + index_bytes
        # A name of fewer than 16 signs is read by its number of bytes alone; they come first in the contents.
        where += _BSD_INDEX_BYTES
        entries = b"".join(start.to_bytes(4, "little") + where.to_bytes(4, "little") for start in starts)
        index = (8 * len(symbols)).to_bytes(4, "little") + entries + len(names).to_bytes(4, "little") + names
        title = b"__.SYMDEF".ljust(_BSD_INDEX_BYTES, b"\0")
        parts = [(f"#1/{_BSD_INDEX_BYTES}", title + index), (member, data)]
    else:
        prefix = b"_" if _is_windows(triple) and triple.startswith(("i3", "i4", "i5", "i6")) else b""
        names = b"".join(prefix + symbol.encode() + b"\0" for symbol in symbols)
        index_bytes = 4 + 4 * len(symbols) + len(names)
        where = 8 + 60 + index_bytes + index_bytes % 2
        offsets = where.to_bytes(4, "big") * len(symbols)
        parts = [("/", len(symbols).to_bytes(4, "big") + offsets + names), (f"{member}/", data)]
    written = b"!<arch>\n"
    for name, contents in parts:
        written += _MEMBER.format(name, 0, 0, 0, 100644, len(contents)).encode("ascii") + contents
        written += b"\n" * (len(contents) % 2)
    return written


def link_shared(model: Model, data: bytes, header: bytes, target: Target) -> bytes:
    """A shared library of an object, with the header's functions for programs that read none (`NAME_shared_...`).

    Raises: UnsupportedError  there is no compiler for the target here, or it fails; sizes that change.
    """
    if model.sizes.listed:
        raise UnsupportedError(
            "format: a shared library of a model whose sizes change is not made; take 'static'"
        )
    command, library = _compiler(target), file_name(model.name, "shared", target.triple)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / f"{model.name}.o").write_bytes(data)
        (path / f"{model.name}.h").write_bytes(header)
        (path / "exports.c").write_text(_exports(model))
        (path / "exports.def").write_text("\n".join(["EXPORTS", *model.symbols, ""]))
        is_windows = _is_windows(target.triple)
        arguments = [
            "-O2",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "exports.c",
            f"{model.name}.o",
            "-o",
            library,
        ]
        linked = subprocess.run(
            [*command, *arguments, *(["exports.def"] if is_windows else [f"-Wl,-soname,{library}", "-lm"])],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if linked.returncode:
            raise UnsupportedError(
                f"format: {command[0]} does not link the library: {linked.stderr.strip()[-500:]}"
            )
        return (path / library).read_bytes()


def _is_windows(triple: str) -> bool:
    return any(part in triple for part in ("windows", "w64", "mingw"))


def _compiler(target: Target) -> list[str]:
    """A compiler for the target that is installed here."""
    arch, system = target.triple.split("-", 1)
    system = system.removeprefix("unknown-").removeprefix("pc-")
    candidates = [[f"{arch}-{system}-gcc"], [f"{arch}-{system}-clang"]]
    if system.startswith("linux-gnu"):  # other C libraries of Linux are not that of this machine
        family = "arm" if arch.startswith(("arm", "thumb")) else arch
        is_here = host().triple.split("-")[0] == arch and "linux-gnu" in host().triple
        candidates = [["cc"]] if is_here else [*candidates, [f"{family}-{system}-gcc"]]
    if "w64" in system or "windows-gnu" in system:
        candidates.append([f"{arch}-w64-mingw32-gcc"])
    command = next((c for c in candidates if c and shutil.which(c[0])), None)
    if command is None:
        names = " or ".join(c[0] for c in candidates if c)
        raise UnsupportedError(
            f"format: a shared library for {target.triple} is linked with {names}; install it"
        )
    return command


def _exports(model: Model) -> str:
    parts = []
    for entry in model.entries:
        parts.append(_FUNCTION.substitute(name=model.name, call=entry.run_name, call_name=model.call(entry)))
        for array in arrays(model, entry):
            parts.append(_ARRAY.substitute(name=model.name, array=array))
    if model.states:
        parts.append(_STATE.substitute(name=model.name))
    if model.constants_bytes:
        parts.append(_CONSTANTS.substitute(name=model.name))
    return _EXPORTS.substitute(name=model.name, functions="".join(parts))


def arrays(model: Model, entry: Entry) -> list[str]:
    """The header's functions that give the addresses of a function's arguments and results that have elements."""
    call = model.call(entry)
    return [
        f"{call}_{kind}{k}"
        for kind, specs in (("arg", entry.arguments), ("result", entry.results))
        for k, spec in enumerate(specs)
        if spec.bytes
    ]
