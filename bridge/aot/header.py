"""Writes the header of a compiled object: a C API, and a C++ class over it.

All functions are inline; the object exports the entry alone. The types that every model shares (the run context and
the thread pool's signature) are written once per program, whichever header comes first.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from ...runtime.code.artifact import BufferSpec
from ...runtime.run_context import FIELDS
from . import header_text as text
from .names import MAX_LENGTH, check, identifier, in_comment

_ALIGN = 64

# NumPy dtype name: C type of one element in memory.
C_TYPES = {
    "bool": "bool",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "int4": "int8_t",
    "uint4": "uint8_t",
    "float16": "tfbridge_float16",
    "bfloat16": "tfbridge_bfloat16",
    "float8_e4m3fn": "tfbridge_float8",
    "float8_e5m2": "tfbridge_float8",
    "complex64": "tfbridge_complex64",
    "complex128": "tfbridge_complex128",
}
_FIELD_TYPES: dict[type, str] = {
    ctypes.c_void_p: "void *",
    ctypes.c_int32: "int32_t ",
    ctypes.c_int64: "int64_t ",
}


@dataclasses.dataclass(frozen=True)
class StateArray:
    """An array of a model's state: the variable's name, and what it is."""

    name: str
    spec: BufferSpec


@dataclasses.dataclass(frozen=True)
class Entry:
    """A function of a model; `name` is empty for the only one.

    The state's arrays are further arguments and results: `state_arguments` and `state_results` are their numbers there,
    behind the others, and in the state.
    """

    name: str
    symbol: str
    arguments: Sequence[BufferSpec]
    argument_names: Sequence[str]
    results: Sequence[BufferSpec]
    result_names: Sequence[str]
    state_arguments: Sequence[tuple[int, int]] = ()
    state_results: Sequence[tuple[int, int]] = ()

    def member(self, kind: str) -> str:
        """The model's member with the addresses of its `args` or `results`."""
        return f"{self.name}_{kind}" if self.name else kind


@dataclasses.dataclass(frozen=True)
class Model:
    """What a header tells. `constants_bytes` is that of a file; 0 when the constants lie in the object.

    `digest`: of all that is compiled; names of functions end in it, and the file of constants has it at its end.
    `states`: the arrays that outlive a run; `reset_symbol`: the function that gives them their first values.
    Raises: ValueError  the name or the class cannot be chosen (see `names`).
    """

    name: str
    cpp_class: str
    target: str
    version: str
    entries: Sequence[Entry]
    temp_bytes: int
    constants_bytes: int
    threads: int
    pointer_bytes: int
    digest: str
    states: Sequence[StateArray] = ()
    reset_symbol: str = ""

    def __post_init__(self) -> None:
        check(self.name, self.cpp_class)

    def call(self, entry: Entry) -> str:
        """What the names of a function begin with in C."""
        return f"{self.name}_{entry.name}" if entry.name else self.name

    @property
    def _arrays(self) -> list[BufferSpec]:
        specs = [spec for entry in self.entries for spec in (*entry.arguments, *entry.results)]
        return [*specs, *(state.spec for state in self.states)]

    @property
    def offsets(self) -> list[int]:
        """Where arguments and results, function by function, the arrays of the state and then the temporary memory lie
        in a model's memory."""
        return [0, *itertools.accumulate(_aligned(spec.bytes) for spec in self._arrays)]

    @property
    def memory_bytes(self) -> int:
        """Bytes of a model's memory at any alignment."""
        return self.offsets[-1] + _aligned(self.temp_bytes) + _ALIGN

    @property
    def state_offsets(self) -> list[int]:
        """Where the arrays of the state lie in its memory, and its bytes."""
        first = len(self._arrays) - len(self.states)
        return [offset - self.offsets[first] for offset in self.offsets[first:]]


def write_header(model: Model) -> str:
    """The header's text."""
    *namespaces, class_name = model.cpp_class.split("::")
    common = {"name": model.name, "NAME": model.name.upper(), "model": f"{model.name}_model"}
    buffers = list(_buffers(model))
    in_file = model.constants_bytes > 0
    entries = [_entry_values(model, entry) | common for entry in model.entries]
    state = {"reset_entry": model.reset_symbol, "state_places": _state_places(model)} | common
    return text.HEADER.substitute(
        common,
        version=model.version,
        target=in_comment(model.target),
        libraries=f", and have {model.name}.bin at hand" if in_file else "",
        array_lists="\n".join(_array_lists(model, buffers)),
        GUARD=f"{model.name.upper()}_H",
        runtime=text.RUNTIME.substitute(fields=_fields(model.pointer_bytes)),
        states=len(model.states),
        state_bytes=model.state_offsets[-1],
        threads=model.threads,
        temp_bytes=model.temp_bytes,
        constants_bytes=model.constants_bytes,
        memory_bytes=model.memory_bytes,
        buffer_constants="\n".join(
            [text.COUNTS.substitute(e) for e in entries] + [text.SIZES.substitute(b) for b in buffers]
        ),
        entries="\n".join(
            text.ENTRY.substitute(entry=symbol)
            for symbol in (*(e.symbol for e in model.entries), *filter(None, [model.reset_symbol]))
        ),
        array_fields="\n".join(text.ARRAY_FIELDS.substitute(e) for e in entries),
        placing="\n".join(_placing(model)),
        temp_at=model.offsets[-1],
        set_constants=text.SET_CONSTANTS.substitute(common) if in_file else "",
        set_constants_method=text.SET_CONSTANTS_METHOD.substitute(common) if in_file else "",
        check_constants=text.CHECK_CONSTANTS.substitute(
            common, digest=model.digest, digest_bytes=len(model.digest)
        )
        if in_file
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
    """The statements that give arrays their places."""
    offsets = iter(model.offsets)
    for entry in model.entries:
        for kind, specs in (("args", entry.arguments), ("results", entry.results)):
            for k in range(len(specs)):
                yield f"    self->{entry.member(kind)}[{k}] = at + {next(offsets)};"
    for state, offset in zip(range(len(model.states)), offsets):
        if not state:
            yield f"    self->state = at + {offset};"
        for entry in model.entries:
            for kind, slots in (("args", entry.state_arguments), ("results", entry.state_results)):
                for slot, number in slots:
                    if number == state:
                        yield f"    self->{entry.member(kind)}[{slot}] = at + {offset};"


def _state_places(model: Model) -> str:
    return "\n".join(
        f"    state_arrays[{k}] = TFBRIDGE_CAST(char *, self->state) + {offset};"
        for k, offset in enumerate(model.state_offsets[:-1])
    )


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


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


def _buffers(model: Model) -> Iterator[dict[str, str]]:
    """What the templates say of each argument, result and array of the state."""
    for entry in model.entries:
        for word, kind, specs, names in (
            ("arg", "args", entry.arguments, entry.argument_names),
            ("result", "results", entry.results, entry.result_names),
        ):
            member = entry.member(kind)
            places = [f"{member}[{k}]" for k in range(len(specs))]
            prefix = f"{entry.name}_" if entry.name else ""
            yield from _of_kind(model, member, prefix, word, specs, names, places)
    states = model.states
    specs, names = [state.spec for state in states], [state.name for state in states]
    yield from _of_kind(model, "state", "", "state", specs, names, [""] * len(states))


def _of_kind(
    model: Model,
    list_: str,
    prefix: str,
    word: str,
    specs: Sequence[BufferSpec],
    names: Sequence[str],
    places: Sequence[str],
) -> Iterator[dict[str, str]]:
    """The arrays of one list. `places`: the members that have their addresses; empty for those of the state."""
    called = [identifier(name) if len(name) <= MAX_LENGTH else "" for name in names]
    for number, (spec, name, member) in enumerate(zip(specs, called, places, strict=True)):
        which, own = f"{prefix}{word}{number}", f"{prefix}{word}_{name}"
        is_called = bool(name) and called.count(name) == 1
        indices = [f"i{axis}" for axis in range(len(spec.dims))]
        position = ""
        for index, dim in zip(indices, spec.dims):
            position = f"({position}) * {dim} + {index}" if position else index
        shape = f"{spec.dtype}[{', '.join(map(str, spec.dims))}]"
        offset = 0 if member else model.state_offsets[number]
        in_state = f"TFBRIDGE_CAST(void *, TFBRIDGE_CAST(char *, self->state) + {offset})"
        yield {
            "list": list_,
            "member": member,
            "at": f"self->{member}" if member else in_state,
            "which": which,
            "c_which": f"{model.name}_{which}",
            "C_WHICH": f"{model.name}_{which}".upper(),
            "called": own if is_called else "",
            "c_called": f"{model.name}_{own}" if is_called else "",
            "type": C_TYPES[spec.dtype],
            "pointer": f"{'const ' if word == 'arg' else ''}{C_TYPES[spec.dtype]} *",
            "elements": str(math.prod(spec.dims)),
            "bytes": str(spec.bytes),
            "indices": ", ".join(f"size_t {i}" for i in indices),
            "index_names": ", ".join(indices),
            "position": position,
            "is_argument": "yes" if word == "arg" else "",
            "description": f"{which}: {shape}"
            + (f', "{in_comment(names[number])}"' if names[number] else ""),
        }


def _functions(buffer: dict[str, str]) -> str:
    return text.FUNCTION.substitute(buffer) + (
        text.NAMED_FUNCTION.substitute(buffer) if buffer["called"] else ""
    )


def _methods(buffer: dict[str, str]) -> str:
    templates = [text.METHODS, *([text.SET_DATA_METHOD] if buffer["member"] else [])]
    if buffer["is_argument"] and buffer["elements"] != "0":
        templates.append(text.COPY_METHOD)
    if buffer["indices"]:
        templates.append(text.ELEMENT_METHOD)
    if buffer["called"]:
        templates += [text.NAMED_METHOD, *([text.NAMED_ELEMENT_METHOD] if buffer["indices"] else [])]
    return "".join(template.substitute(buffer) for template in templates)
