"""Writes a Rust crate of an exported model: no std, no dependency, the object as a static library in it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

from .....runtime.run_context import FIELDS
from ..arrays import Array, all_arrays
from ..documentation import documentation, listed_arrays
from ..export import Export, Files
from ..libraries import archive, file_name
from ..model import ALIGN, Entry, Model, aligned
from ..size_expressions import RUST, expressions
from . import rust_templates as text
from .golden import GoldenRun, Values, golden

TYPES = {
    "bool": "bool",
    "float32": "f32",
    "float64": "f64",
    **{
        f"{sign}int{bits}": f"{short}{bits}"
        for sign, short in (("", "i"), ("u", "u"))
        for bits in (8, 16, 32, 64)
    },
    "int4": "i8",
    "uint4": "u8",
    "float16": "u16",
    "bfloat16": "u16",
    "float8_e4m3fn": "u8",
    "float8_e5m2": "u8",
    "complex64": "Complex<f32>",
    "complex128": "Complex<f64>",
}
# Names that cargo refuses for packages.
_RESERVED = """
abstract alloc as async await become box break const continue core crate do dyn else enum extern false final fn for
if impl in let loop macro match mod move mut override priv proc_macro pub ref return self static std struct super test
trait true try type typeof unsafe unsized use virtual where while yield
"""
_ARCHITECTURES = {
    "x86_64": "x86_64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
    "riscv64": "riscv64",
    "wasm32": "wasm32",
}


def write_rust(export: Export) -> Files:
    """The files of the crate, in the folder NAME_rust."""
    model, folder = export.model, f"{export.model.name}_rust"
    library = file_name(model.name, "static", export.target.triple)
    data, runs = golden(export)
    common = {
        "name": model.name,
        "crate": crate_name(model),
        "target": model.target,
        "version": model.version,
    }
    symbols = model.symbols
    files: dict[str, str | bytes] = {
        "Cargo.toml": text.CARGO.substitute(common),
        "build.rs": text.BUILD.substitute(common, architecture=_architecture(export.target.architecture)),
        "src/lib.rs": _library(model, common),
        "tests/golden.rs": _test(export, runs, common),
        "tests/golden.bin": data,
        f"native/{library}": archive(f"{model.name}.o", export.object_bytes, symbols, export.target.triple),
    }
    if model.constants_file:
        files[model.constants_file] = export.constants
    return {f"{folder}/{name}": contents for name, contents in files.items()}


def crate_name(model: Model) -> str:
    """The package's name."""
    return f"{model.name}_model" if model.name.lower() in _RESERVED.split() else model.name


def _architecture(llvm: str) -> str:
    """Rust's name of an architecture; empty: its crate is not checked."""
    if llvm.startswith(("arm", "thumb")) and not llvm.startswith("arm64"):
        return "arm"
    if llvm.startswith(("i3", "i4", "i5", "i6")):
        return "x86"
    return "riscv32" if llvm.startswith("riscv32") else _ARCHITECTURES.get(llvm, "")


def _library(model: Model, common: dict[str, str]) -> str:
    arrays = list(all_arrays(model))
    is_open, has_sizes = not model.sizes.are_bounded, bool(model.sizes.listed)
    parts = {
        "complex": text.COMPLEX if any("complex" in a.spec.dtype for a in arrays) else "",
        "sizes": _sizes(model, arrays) if has_sizes else "",
        "memory": _memory(model, arrays),
        "constants_type": text.CONSTANTS.substitute(file=model.constants_file, bytes=model.constants_bytes)
        if model.constants_file
        else "",
        "elements": "".join(
            text.ELEMENTS.substitute(NAME=a.which.upper(), elements=a.elements, title=a.which)
            for a in arrays
            if not a.is_changing
        ),
        "context": _context(),
        "externs": "".join(text.EXTERN.substitute(symbol=symbol) for symbol in model.symbols),
        "pool": text.POOL if model.threads > 1 else "",
        "fields": _fields(model),
        "most": ", most: [i64; SIZES]" if is_open else "",
        "values": _values(model),
        "bytes": "memory_bytes(&most)" if is_open else "MEMORY_BYTES",
        "placing": "".join(_placing(model, arrays)),
        "set_sizes": (text.SET_SIZES.substitute(common, most=_most(model), checks="".join(_checks(model, arrays)))
                      if has_sizes else ""),
        "set_pool": text.SET_POOL if model.threads > 1 else "",
        "set_constants": text.SET_CONSTANTS.substitute(
            common, file=model.constants_file, digest=model.digest, digest_bytes=len(model.digest)
        )
        if model.constants_file
        else "",
        "check_constants": text.CHECK_CONSTANTS.substitute(common, file=model.constants_file)
        if model.constants_file
        else "",
        "use_pool": text.USE_POOL if model.threads > 1 else "",
        "threads": str(model.threads),
        "use_sizes": text.USE_SIZES if has_sizes else "",
        "state": _state(model) if model.states else "",
        "runs": "".join(text.RUN.substitute(_run_values(model, entry)) for entry in model.entries),
        "arrays": "".join(_accessors(arrays)),
    }  # fmt: skip
    return text.LIBRARY.substitute(
        common, listed="\n".join(listed_arrays(model, "//! ", "* ")), example=_example(model), **parts
    )


def _example(model: Model) -> str:
    run = model.entries[0].run_name
    most = ", [1; SIZES]" if not model.sizes.are_bounded else ""
    memory = "memory_bytes(&[1; SIZES])" if most else "MEMORY_BYTES"
    return text.EXAMPLE.substitute(memory=memory, most=most, run=run, crate=crate_name(model))


def _run_values(model: Model, entry: Entry) -> dict[str, str]:
    return {
        "run": entry.run_name,
        "symbol": entry.symbol,
        "args": entry.member("args"),
        "results": entry.member("results"),
        "ensure_state": text.ENSURE_STATE if model.states else "",
    }


def _fields(model: Model) -> str:
    lines = [
        f"    {member}: [{kind} c_void; {slots}],\n"
        for entry in model.entries
        for member, kind, slots in _slots(entry)
    ]
    if model.states:
        lines.append("    state: *mut u8,\n    has_state: bool,\n")
    if model.sizes.listed:
        lines.append("    sizes: [i64; SIZES],\n    most: [i64; SIZES],\n")
    if model.threads > 1:
        lines.append("    pool: Option<Pool>,\n")
    return "".join(lines)


def _slots(entry: Entry) -> list[tuple[str, str, int]]:
    return [
        (entry.member("args"), "*const", max(1, len(entry.arguments) + len(entry.state_arguments))),
        (entry.member("results"), "*mut", max(1, len(entry.results) + len(entry.state_results))),
    ]


def _values(model: Model) -> str:
    null = {"*const": "core::ptr::null()", "*mut": "core::ptr::null_mut()"}
    lines = [
        f"            {member}: [{null[kind]}; {slots}],\n"
        for entry in model.entries
        for member, kind, slots in _slots(entry)
    ]
    if model.states:
        lines.append("            state: core::ptr::null_mut(),\n            has_state: false,\n")
    if model.sizes.listed:
        most = "most" if not model.sizes.are_bounded else _most(model)
        lines.append(f"            sizes: {most},\n            most: {most},\n")
    if model.threads > 1:
        lines.append("            pool: None,\n")
    return "".join(lines)


def _most(model: Model) -> str:
    """The bounds of all sizes; the largest number where there is none."""
    bounds = ("i64::MAX" if s.most is None else str(s.most) for s in model.sizes.listed)
    return f"[{', '.join(bounds)}]"


def _placing(model: Model, arrays: Sequence[Array]) -> Iterator[str]:
    """The statements that give arrays their places, the temporary memory the last."""
    for array in arrays:
        if array.word == "state" and array.number == 0:
            yield text.PLACE_STATE
        slots = [(f"{array.entry.member(f'{array.word}s')}", array.number)] if array.entry is not None else []
        if array.word == "state":
            for entry in model.entries:
                for kind, states in (("args", entry.state_arguments), ("results", entry.state_results)):
                    slots += [(entry.member(kind), slot) for slot, number in states if number == array.number]
        for member, slot in slots:
            kind = "*const" if member.endswith("args") else "*mut"
            yield text.PLACE.substitute(member=member, number=slot, kind=kind)
        size = f"{array.which}_bytes(&{_limits(model)})" if array.is_changing else str(array.spec.bytes)
        clear = text.CLEAR.substitute(bytes=size) if array.spec.dtype == "bool" else ""
        yield clear + text.ADVANCE.substitute(
            bytes=f"aligned({size})" if array.is_changing else aligned(array.spec.bytes)
        )


def _limits(model: Model) -> str:
    return "most" if not model.sizes.are_bounded else "MOST"


def _sizes(model: Model, arrays: Sequence[Array]) -> str:
    places = "".join(
        text.SIZE.substitute(
            NAME=size.name.upper(),
            place=place,
            documentation=f"{size.name}: {'any number' if size.most is None else f'at most {size.most}'}, {size.place}",
        )
        for place, size in enumerate(model.sizes.listed)
    )
    functions = "".join(
        text.DIMS.substitute(
            which=a.which,
            rank=len(a.sizes),
            dims=", ".join(f"count({e})" for e in expressions(model, a.sizes, "sizes", RUST)),
            item_bytes=a.item_bytes,
        )
        for a in arrays
        if a.is_changing
    )
    bounds = text.MOST.substitute(most=_most(model)) if model.sizes.are_bounded else ""
    return text.SIZES.substitute(
        count=len(model.sizes.listed), places=places, functions=functions, bounds=bounds,
        refused="".join(f"\n///\n/// {line}." for line in model.sizes.refused),
    )  # fmt: skip


def _memory(model: Model, arrays: Sequence[Array]) -> str:
    if model.sizes.are_bounded:
        return text.MEMORY.substitute(bytes=model.memory_bytes, temp=model.temp_bytes)
    fixed = ALIGN + sum(aligned(a.spec.bytes) for a in arrays if not a.is_changing)
    return text.OPEN_MEMORY.substitute(
        temp=model.temp_bytes,
        temps="".join(
            f"    most = larger(most, {e});\n"
            for e in expressions(model, model.sizes.temp_bytes, "sizes", RUST)
        ),
        fixed=fixed,
        arrays="".join(f" + aligned({a.which}_bytes(most))" for a in arrays if a.is_changing),
    )


def _checks(model: Model, arrays: Sequence[Array]) -> Iterator[str]:
    if not model.sizes.are_bounded:
        for array in arrays:
            if array.is_changing:
                yield text.CHECK_BYTES.substitute(function=f"{array.which}_bytes", what=array.which)
        yield text.CHECK_BYTES.substitute(function="temp_bytes", what="temporary memory")


def _context() -> str:
    types: dict[type, str] = {ctypes.c_void_p: "Slot", ctypes.c_int32: "i32", ctypes.c_int64: "i64"}
    return "".join(f"    {name}: {types[type_]},\n" for name, _, type_ in FIELDS)


def _state(model: Model) -> str:
    offsets = model.state_offsets
    return text.STATE.substitute(
        symbol=model.reset_symbol,
        slots=len(model.states),
        bytes=offsets[-1],
        places="".join(
            f"            unsafe {{ self.state.add({offset}) }} as *mut c_void,\n" for offset in offsets[:-1]
        ),
    )


def _accessors(arrays: Sequence[Array]) -> Iterator[str]:
    """The methods of arrays: by number, and by TensorFlow's names where no other method is called so."""
    names = {a.which + end for a in arrays for end in ("", "_mut")} | {
        "run",
        "reset",
        "state",
        "set_state",
        "new",
    }
    for array in arrays:
        type_ = TYPES[array.spec.dtype]
        values = {
            "which": array.which,
            "documentation": "\n    /// ".join(documentation(array)),
            "slice": f"[{type_}]" if array.is_changing else f"[{type_}; {array.elements}]",
            "address": _address(array),
            "type": type_,
            "count": f", {array.which}_elements(&self.sizes)" if array.is_changing else "",
        }
        read, write = (
            (text.CHANGING_READ, text.CHANGING_WRITE) if array.is_changing else (text.READ, text.WRITE)
        )
        is_written = array.word != "result"
        yield read.substitute(values) + (write.substitute(values) if is_written else "")
        if array.own and not {array.own, f"{array.own}_mut"} & names:
            names |= {array.own, f"{array.own}_mut"}
            yield text.NAMED_READ.substitute(values, own=array.own)
            yield text.NAMED_WRITE.substitute(values, own=array.own) if is_written else ""


def _address(array: Array) -> str:
    if array.entry is None:
        return f"self.state.add({array.offset})"
    return f"self.{array.entry.member(f'{array.word}s')}[{array.number}]"


# -- the test


def _test(export: Export, runs: Sequence[GoldenRun], common: dict[str, str]) -> str:
    model = export.model
    tests = []
    for number, run in enumerate(runs):
        most = [str(model.example_most[size.name]) for size in model.sizes.listed]
        is_open = not model.sizes.are_bounded
        steps = [
            text.FILL.substitute(which=v.array.which, offset=v.offset, bytes=v.size) for v in run.arguments
        ]
        checks = [_check(v) for v in run.results]
        tests.append(
            text.GOLDEN_RUN.substitute(
                common,
                test=f"{run.entry.name or 'run'}_{number}",
                memory=f"{common['crate']}::memory_bytes(&[{', '.join(most)}])" if is_open
                else f"{common['crate']}::MEMORY_BYTES",
                most=f", [{', '.join(most)}]" if is_open else "",
                constants=text.GOLDEN_CONSTANTS if model.constants_file else "",
                sizes=text.GOLDEN_SIZES.substitute(
                    values=", ".join(str(run.sizes[k]) for k in range(len(model.sizes.listed)))
                ) if run.sizes else "",
                fill="".join(steps),
                times=export.runs_of_example,
                run=run.entry.run_name,
                checks="".join(checks),
            )
        )  # fmt: skip
    constants = (
        text.INCLUDE_CONSTANTS.substitute(common, file=model.constants_file) if model.constants_file else ""
    )
    return text.GOLDEN.substitute(common, constants=constants, tests="\n".join(tests))


def _check(values: Values) -> str:
    kind = values.kind.capitalize()
    if values.kind == "small":
        kind = f"Small({values.small[0]}, {values.small[1]})"
    return text.CHECK.substitute(
        which=values.array.which,
        offset=values.offset,
        bytes=values.size,
        kind=kind,
        tolerance=f"{values.tolerance:e}",
    )
