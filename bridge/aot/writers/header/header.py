"""Writes the header of a compiled object: a C API, and a C++ class over it.

All functions are inline; the object exports the entry alone. The types that every model shares (the run context and
the thread pool's signature) are written once per program, whichever header comes first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

from .....compiler.ir.element_types import FORMATS, SMALL_INTEGERS
from .....runtime.run_context import ABI_VERSION, FIELDS
from .....runtime.sizes import is_symbolic
from ..arrays import Array, all_arrays, arrays_of
from ..documentation import description, documentation
from ..model import Entry, Model, aligned
from ..names import in_comment
from ..size_expressions import expressions
from . import changing_sizes
from . import size_templates as sized_text
from . import templates as text

# NumPy dtype name: C type of one element in memory.
C_TYPES = {
    "bool": "bool",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{t.dtype_name: "int8_t" if t.is_signed else "uint8_t" for t in SMALL_INTEGERS},
    **{t.dtype_name: "tfbridge_float8" for t in FORMATS if t.item_bytes == 1},
    "float16": "tfbridge_float16",
    "bfloat16": "tfbridge_bfloat16",
    "complex64": "tfbridge_complex64",
    "complex128": "tfbridge_complex128",
}
_FIELD_TYPES: dict[type, str] = {
    ctypes.c_void_p: "void *",
    ctypes.c_int32: "int32_t ",
    ctypes.c_int64: "int64_t ",
}


def write_header(model: Model) -> str:
    """The header's text."""
    *namespaces, class_name = model.cpp_class.split("::")
    common = {"name": model.name, "NAME": model.name.upper(), "model": f"{model.name}_model"}
    buffers = [_buffer(model, array) for array in all_arrays(model)]
    is_outside = model.constants_bytes > 0
    entries = [_entry_values(model, entry) | common for entry in model.entries]
    state = {"reset_entry": model.reset_symbol, "state_places": _state_places(model)} | common
    return text.HEADER.substitute(
        common,
        version=model.version,
        target=in_comment(model.target),
        file=model.file,
        libraries=_weights(model),
        hash=model.digest,
        weights=text.WEIGHTS.substitute(common, symbol=model.source_symbol, words=model.constants_bytes // 8)
        if model.source_file
        else "",
        set_weights=text.SET_WEIGHTS.substitute(symbol=model.source_symbol) if model.source_file else "",
        array_lists="\n".join(_array_lists(model, buffers)),
        GUARD=f"{model.name.upper()}_H",
        runtime=text.RUNTIME.substitute(
            fields=_fields(model.pointer_bytes), abi=ABI_VERSION, name=model.name
        ),
        stack_bytes=model.stack_bytes,
        states=len(model.states),
        state_bytes=model.state_offsets[-1],
        threads=model.threads,
        constants_bytes=model.constants_bytes,
        memory_constants=text.MEMORY_CONSTANTS.substitute(
            common, temp_bytes=model.temp_bytes, memory_bytes=model.memory_bytes
        )
        if model.sizes.are_bounded
        else "",
        buffer_constants="\n".join(
            [text.COUNTS.substitute(e) for e in entries]
            + [text.SIZES.substitute(b) for b in buffers if not b["dims"] or model.sizes.are_bounded]
        ),
        **changing_sizes.parts(model, buffers),
        entries="\n".join(text.ENTRY.substitute(entry=symbol) for symbol in model.symbols),
        array_fields="\n".join(text.ARRAY_FIELDS.substitute(e) for e in entries),
        placing="\n".join(_placing(model)),
        set_constants=text.SET_CONSTANTS.substitute(common) if is_outside else "",
        set_constants_method=text.SET_CONSTANTS_METHOD.substitute(common) if is_outside else "",
        check_constants=text.CHECK_CONSTANTS.substitute(
            common,
            digest=model.digest,
            digest_bytes=len(model.digest),
            file=model.constants_file or model.source_file,
        )
        if is_outside
        else "",
        state_fields=text.STATE_FIELDS if model.states else "",
        state_functions=text.STATE.substitute(state) if model.states else "",
        reset_method=text.RESET_METHOD.substitute(common) if model.states else "",
        run_functions="\n".join(text.RUN.substitute(e) for e in entries),
        run_methods="\n".join(text.RUN_METHOD.substitute(e) for e in entries),
        buffer_functions="\n".join(_functions(b | common) for b in buffers),
        buffer_methods="\n".join(_methods(b | common) for b in buffers),
        class_name=class_name,
        namespace_open="\n".join(f"namespace {n} {{" for n in namespaces),
        namespace_close="}" * len(namespaces),
    )


def _weights(model: Model) -> str:
    """What is wanted beside the object."""
    if model.source_file:
        return f" and {model.source_file}"
    return f", and have {model.constants_file} at hand" if model.constants_file else ""


def _array_checks(model: Model, entry: Entry) -> str:
    """The statements that check the addresses of arrays before a run."""
    return "".join(
        text.CHECK_ARRAY.substitute(
            name=model.name,
            member=f"{entry.member(f'{array.word}s')}[{array.number}]",
            bytes=_part_bytes(array),
            which=array.which,
        )
        for array in arrays_of(model, entry)
        if array.elements
    )


def _part_bytes(array: Array) -> int:
    """What addresses of an array are multiples of: the bytes of a number in it."""
    return array.item_bytes // (2 if "complex" in array.spec.dtype else 1)


def _entry_values(model: Model, entry: Entry) -> dict[str, str]:
    """What the templates say of a function."""
    call, common = model.call(entry), {"name": model.name}
    return {
        "call": call,
        "CALL": call.upper(),
        "entry": entry.symbol,
        "run": f"run_{entry.name}" if entry.name else "run",
        "args": entry.member("args"),
        "results": entry.member("results"),
        "arg_count": str(len(entry.arguments)),
        "result_count": str(len(entry.results)),
        "arg_slots": str(max(1, len(entry.arguments) + len(entry.state_arguments))),
        "result_slots": str(max(1, len(entry.results) + len(entry.state_results))),
        "ensure_state": text.ENSURE_STATE.substitute(common) if model.states else "",
        "check_sizes": changing_sizes.checks(model, entry),
        "check_arrays": _array_checks(model, entry),
    }


def _array_lists(model: Model, buffers: Sequence[dict[str, str]]) -> Iterator[str]:
    """The lines of the header's first comment that list the arrays."""
    for entry in model.entries:
        if entry.name:
            yield f" * Function {entry.name}"
        for title, kind in (("Arguments", "args"), ("Results", "results")):
            yield f" * {title}:"
            listed = [b["description"] for b in buffers if b["list"] == entry.member(kind)]
            yield from (f" *   {line}" for line in listed or ["none"])
    if model.states:
        yield " * State, which runs read and change:"
        yield from (f" *   {b['description']}" for b in buffers if b["list"] == "state")


def _placing(model: Model) -> Iterator[str]:
    """The statements that give arrays their places, the temporary memory the last."""
    place = _Places(model)
    for entry in model.entries:
        for kind, specs in (("args", entry.arguments), ("results", entry.results)):
            for k, spec in enumerate(specs):
                is_changing = is_symbolic(entry.sizes(kind, k))
                yield f"    self->{entry.member(kind)}[{k}] = {place.address};"
                word = kind.removesuffix("s")
                yield from place.behind(spec.bytes, f"{model.call(entry)}_{word}{k}" if is_changing else "")
    for state, array in enumerate(model.states):
        if not state:
            yield f"    self->state = {place.address};"
        for entry in model.entries:
            for kind, slots in (("args", entry.state_arguments), ("results", entry.state_results)):
                for slot, number in slots:
                    if number == state:
                        yield f"    self->{entry.member(kind)}[{slot}] = {place.address};"
        yield from place.behind(array.spec.bytes, "")
    yield f"    self->temp = {place.address};"


class _Places:
    """Where the next array lies: at a number of bytes; where sizes have no bound, `at` moves past each array."""

    def __init__(self, model: Model) -> None:
        self._offset, self._is_bounded = 0, model.sizes.are_bounded

    @property
    def address(self) -> str:
        return f"at + {self._offset}"

    def behind(self, size: int, changing: str) -> Iterator[str]:
        """Goes past an array; `changing`: its name, where its size is known at run time only."""
        if changing and not self._is_bounded:
            yield f"    at += {self._offset} + tfbridge_aligned({changing}_bytes(self->most));"
            self._offset = 0
        else:
            self._offset += aligned(size)


def _state_places(model: Model) -> str:
    return "\n".join(
        f"    state_arrays[{k}] = TFBRIDGE_CAST(char *, self->state) + {offset};"
        for k, offset in enumerate(model.state_offsets[:-1])
    )


def _fields(pointer_bytes: int) -> str:
    """The members of the run context, from the table that fixes its layout: a pointer has 8 bytes on every target."""
    special = {
        "parallel_for": "void (*parallel_for)(tfbridge_context *context, tfbridge_kernel kernel, void *buffers, "
        "int64_t tasks,\n                         int64_t grain)",
        "constants": "const void *constants",
    }
    lines = []
    for name, _, type_ in FIELDS:
        lines.append(f"    {special.get(name, _FIELD_TYPES[type_] + name)};")
        if type_ is ctypes.c_void_p and pointer_bytes == 4:
            lines.append(f"    uint32_t after_{name};")
    return "\n".join(lines)


def _buffer(model: Model, array: Array) -> dict[str, str]:
    """What the templates say of an argument, a result or an array of the state."""
    member = f"{array.entry.member(f'{array.word}s')}[{array.number}]" if array.entry is not None else ""
    indices = [f"i{axis}" for axis in range(len(array.spec.dims))]
    position = ""
    for index, dim in zip(indices, expressions(model, array.sizes, "model_.sizes")):
        position = f"({position}) * {dim} + {index}" if position else index
    in_state = f"TFBRIDGE_CAST(void *, TFBRIDGE_CAST(char *, self->state) + {array.offset})"
    type_ = C_TYPES[array.spec.dtype]
    return {
        "list": member.partition("[")[0] or "state",
        "member": member,
        "at": f"self->{member}" if member else in_state,
        "which": array.which,
        "c_which": f"{model.name}_{array.which}",
        "C_WHICH": f"{model.name}_{array.which}".upper(),
        "called": array.own,
        "c_called": f"{model.name}_{array.own}" if array.own else "",
        "type": type_,
        "pointer": f"{'const ' if array.word == 'arg' else ''}{type_} *",
        "elements": str(array.elements),
        "bytes": str(array.spec.bytes),
        "dims": "\n".join(expressions(model, array.sizes, "sizes")) if array.is_changing else "",
        "item_bytes": str(array.item_bytes),
        "indices": ", ".join(f"{'int64_t' if array.is_changing else 'size_t'} {i}" for i in indices),
        "index_names": ", ".join(indices),
        "position": position,
        "is_argument": "yes" if array.word == "arg" else "",
        "description": description(array),
        "documentation": "\n * ".join(documentation(array)),
    }


def _functions(buffer: dict[str, str]) -> str:
    return text.FUNCTION.substitute(buffer) + (
        text.NAMED_FUNCTION.substitute(buffer) if buffer["called"] else ""
    )


def _methods(buffer: dict[str, str]) -> str:
    of_kind = sized_text if buffer["dims"] else text
    templates = [of_kind.METHODS, *([text.SET_DATA_METHOD] if buffer["member"] else [])]
    if buffer["is_argument"] and buffer["elements"] != "0":
        templates.append(of_kind.COPY_METHOD)
    if buffer["indices"]:
        templates.append(of_kind.ELEMENT_METHOD)
    if buffer["called"]:
        templates += [text.NAMED_METHOD, *([text.NAMED_ELEMENT_METHOD] if buffer["indices"] else [])]
    return "".join(template.substitute(buffer) for template in templates)
