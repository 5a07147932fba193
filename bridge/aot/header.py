"""Writes the header of a compiled object: a C API, and a C++ class over it.

All functions are inline; the object exports the entry alone. The types that every model shares (the run context and
the thread pool's signature) are written once per program, whichever header comes first.
"""

from __future__ import annotations

import ctypes
import dataclasses
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
    """One array of a model's state: the variable's name, and the numbers of the entry's argument with its old value
    (None: there is none) and of the result with its new one."""

    name: str
    spec: BufferSpec
    argument: int | None
    result: int


@dataclasses.dataclass(frozen=True)
class Model:
    """What a header tells. `constants_bytes` is that of a file; 0 when the constants lie in the object.

    `digest`: of all that is compiled; names of functions end in it, and the file of constants has it at its end.
    `states`: the arrays that outlive a run; `reset_entry`: the function that gives them their first values.

    Raises: ValueError  the name or the class cannot be chosen (see `names`).
    """

    name: str
    cpp_class: str
    entry: str
    target: str
    version: str
    arguments: Sequence[BufferSpec]
    argument_names: Sequence[str]
    results: Sequence[BufferSpec]
    result_names: Sequence[str]
    temp_bytes: int
    constants_bytes: int
    threads: int
    pointer_bytes: int
    digest: str
    states: Sequence[StateArray] = ()
    reset_entry: str = ""

    def __post_init__(self) -> None:
        check(self.name, self.cpp_class)

    @property
    def offsets(self) -> list[int]:
        """Where each argument, each result, each array of the state and then the temporary memory lie in a model's
        memory."""
        offsets = [0]
        for spec in (*self.arguments, *self.results, *(state.spec for state in self.states)):
            offsets.append(offsets[-1] + _aligned(spec.bytes))
        return offsets

    @property
    def memory_bytes(self) -> int:
        """Bytes of a model's memory at any alignment."""
        return self.offsets[-1] + _aligned(self.temp_bytes) + _ALIGN

    @property
    def state_bytes(self) -> int:
        """Bytes of the whole state, whose arrays lie one behind the other."""
        return self.offsets[-1] - self.offsets[len(self.arguments) + len(self.results)]


def write_header(model: Model) -> str:
    """The header's text."""
    *namespaces, class_name = model.cpp_class.split("::")
    offsets = model.offsets
    common = {"name": model.name, "NAME": model.name.upper(), "model": f"{model.name}_model"}
    buffers = list(_buffers(model))
    shared = [b | common for b in buffers]
    state = text.STATE.substitute(common, reset_entry=model.reset_entry) if model.states else ""
    read = sum(s.argument is not None for s in model.states)
    in_file = model.constants_bytes > 0
    lists = {
        kind: "\n".join(f" *   {b['description']}" for b in buffers if b["kind"] == kind) or " *   none"
        for kind in ("args", "results", "state")
    }
    return text.HEADER.substitute(
        common,
        version=model.version,
        target=in_comment(model.target),
        entry=model.entry,
        libraries=f", and have {model.name}.bin at hand" if in_file else "",
        argument_list=lists["args"],
        result_list=lists["results"],
        state_list=f"\n * State, which a run reads and changes:\n{lists['state']}" if model.states else "",
        states=len(model.states),
        state_bytes=model.state_bytes,
        declare_reset=text.DECLARE_RESET.substitute(reset_entry=model.reset_entry) if model.states else "",
        state_fields=text.STATE_FIELDS if model.states else "",
        state_functions=state,
        ensure_state=text.ENSURE_STATE.substitute(common) if model.states else "",
        reset_method=text.RESET_METHOD.substitute(common) if model.states else "",
        GUARD=f"{model.name.upper()}_H",
        runtime=text.RUNTIME.substitute(fields=_fields(model.pointer_bytes)),
        args=len(model.arguments),
        results=len(model.results),
        threads=model.threads,
        temp_bytes=model.temp_bytes,
        constants_bytes=model.constants_bytes,
        memory_bytes=model.memory_bytes,
        arg_slots=max(1, len(model.arguments) + read),
        result_slots=max(1, len(model.results) + len(model.states)),
        buffer_constants="\n".join(text.SIZES.substitute(b) for b in shared),
        placing="\n".join(_placing(model)),
        temp_at=offsets[-1],
        set_constants=text.SET_CONSTANTS.substitute(common) if in_file else "",
        set_constants_method=text.SET_CONSTANTS_METHOD.substitute(common) if in_file else "",
        check_constants=text.CHECK_CONSTANTS.substitute(
            common, digest=model.digest, digest_bytes=len(model.digest)
        )
        if in_file
        else "",
        buffer_functions="\n".join(map(_functions, shared)),
        buffer_methods="\n".join(map(_methods, shared)),
        class_name=class_name,
        namespace_open="\n".join(f"namespace {n} {{" for n in namespaces),
        namespace_close="}" * len(namespaces),
    )


def _placing(model: Model) -> Iterator[str]:
    """The statements that give arrays their places."""
    places = [f"self->args[{k}]" for k in range(len(model.arguments))]
    places += [f"self->results[{k}]" for k in range(len(model.results))]
    for state in model.states:
        old = "" if state.argument is None else f"self->args[{state.argument}] = "
        first = "self->state = " if state is model.states[0] else ""
        places.append(f"{old}{first}self->results[{state.result}]")
    for place, offset in zip(places, model.offsets):
        yield f"    {place} = at + {offset};"


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
    """What the templates say of each argument and result."""
    states = model.states
    for kind, word, specs, names in (
        ("args", "arg", model.arguments, model.argument_names),
        ("results", "result", model.results, model.result_names),
        ("state", "state", [s.spec for s in states], [s.name for s in states]),
    ):
        called = [identifier(name) if len(name) <= MAX_LENGTH else "" for name in names]
        for number, (spec, name) in enumerate(zip(specs, called, strict=True)):
            which = f"{word}{number}"
            indices = [f"i{axis}" for axis in range(len(spec.dims))]
            position = ""
            for index, dim in zip(indices, spec.dims):
                position = f"({position}) * {dim} + {index}" if position else index
            shape = f"{spec.dtype}[{', '.join(map(str, spec.dims))}]"
            yield {
                "kind": kind,
                "at": f"results[{states[number].result}]" if kind == "state" else f"{kind}[{number}]",
                "which": which,
                "WHICH": which.upper(),
                "called": f"{word}_{name}" if name and called.count(name) == 1 else "",
                "type": C_TYPES[spec.dtype],
                "pointer": f"{'const ' if word == 'arg' else ''}{C_TYPES[spec.dtype]} *",
                "elements": str(math.prod(spec.dims)),
                "bytes": str(spec.bytes),
                "indices": ", ".join(f"size_t {i}" for i in indices),
                "index_names": ", ".join(indices),
                "position": position,
                "description": f"{which}: {shape}"
                + (f', "{in_comment(names[number])}"' if names[number] else ""),
            }


def _functions(buffer: dict[str, str]) -> str:
    return text.FUNCTION.substitute(buffer) + (
        text.NAMED_FUNCTION.substitute(buffer) if buffer["called"] else ""
    )


def _methods(buffer: dict[str, str]) -> str:
    templates = [text.METHODS, *([text.SET_DATA_METHOD] if buffer["kind"] != "state" else [])]
    if buffer["kind"] == "args" and buffer["elements"] != "0":
        templates.append(text.COPY_METHOD)
    if buffer["indices"]:
        templates.append(text.ELEMENT_METHOD)
    if buffer["called"]:
        templates += [text.NAMED_METHOD, *([text.NAMED_ELEMENT_METHOD] if buffer["indices"] else [])]
    return "".join(template.substitute(buffer) for template in templates)
