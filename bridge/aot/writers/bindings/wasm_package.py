"""Writes an npm package of a model that was compiled for WebAssembly: an ES module, its types, and the code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from .....compiler.errors import UnsupportedError
from .....runtime.run_context import CONTEXT_BYTES, OFFSETS
from ..arrays import Array, all_arrays
from ..documentation import documentation, listed_arrays
from ..export import Export, Files
from ..model import Entry, Model, aligned
from ..size_expressions import JAVASCRIPT, expressions
from . import wasm_templates as text
from .golden import GoldenRun, Values, golden
from .wasm_module import WasmModule, module_of

# NumPy dtype: JavaScript's array of such elements, and how many there are in one of ours.
VIEWS = {
    "bool": ("Uint8Array", 1),
    "float32": ("Float32Array", 1),
    "float64": ("Float64Array", 1),
    **{f"int{bits}": (f"Int{bits}Array", 1) for bits in (8, 16, 32)},
    **{f"uint{bits}": (f"Uint{bits}Array", 1) for bits in (8, 16, 32)},
    "int64": ("BigInt64Array", 1),
    "uint64": ("BigUint64Array", 1),
    "int4": ("Int8Array", 1),
    "uint4": ("Uint8Array", 1),
    "float16": ("Uint16Array", 1),
    "bfloat16": ("Uint16Array", 1),
    "float8_e4m3fn": ("Uint8Array", 1),
    "float8_e5m2": ("Uint8Array", 1),
    "complex64": ("Float32Array", 2),
    "complex128": ("Float64Array", 2),
}
_STACK_BYTES = 1 << 16


def refusal(triple: str) -> str:
    """Why there is no such package for a triple; empty: there is."""
    return "" if triple.startswith("wasm32") else "only objects for wasm32 run in browsers and Node"


def write_wasm(export: Export) -> Files:
    """The files of the package, in the folder NAME_wasm.

    Raises: UnsupportedError  the code calls functions that JavaScript does not have.
    """
    model, name = export.model, export.model.name
    module = module_of(export.object_bytes, model.symbols, bool(model.layers))
    check_functions(module)
    data, runs = golden(export)
    files: dict[str, str | bytes] = {
        "package.json": _manifest(model),
        f"{name}.mjs": _script(model, module),
        f"{name}.d.mts": _types(model),
        f"{name}.wasm": module.contents,
        "golden.mjs": _test(export, runs),
        "golden.bin": data,
    }
    if model.constants_file:
        files[model.constants_file] = export.constants
    return {f"{name}_wasm/{file}": contents for file, contents in files.items()}


def check_functions(module: WasmModule) -> None:
    """Raises: UnsupportedError  the code calls functions that JavaScript does not have."""
    missing = set(module.functions) - text.FUNCTIONS.keys()
    if missing:
        raise UnsupportedError(f"wasm: JavaScript has no {', '.join(sorted(missing))}, which the code calls")


def _class(model: Model) -> str:
    return model.cpp_class.rsplit("::", 1)[-1]


def _manifest(model: Model) -> str:
    files = [f"{model.name}.{end}" for end in ("mjs", "d.mts", "wasm")]
    if model.constants_file:
        files.append(model.constants_file)
    manifest = {
        "name": model.name.lower(),
        "version": "0.1.0",
        "description": f"A model compiled by tfbridge {model.version} for {model.target}",
        "type": "module",
        "exports": {
            ".": {"types": f"./{model.name}.d.mts", "default": f"./{model.name}.mjs"},
            **{f"./{file}": f"./{file}" for file in files[2:]},
        },
        "files": files,
        "scripts": {"test": "node golden.mjs"},
    }
    return json.dumps(manifest, indent=2) + "\n"


def _script(model: Model, module: WasmModule) -> str:
    arrays = list(all_arrays(model))
    is_open, has_sizes = not model.sizes.are_bounded, bool(model.sizes.listed)
    return text.SCRIPT.substitute(
        _common(model),
        listed="\n".join(listed_arrays(model, " * ", "  ", quote="")),
        run=model.entries[0].run_name,
        result=next((a.which for a in arrays if a.word == "result"), "result0"),
        data_bytes=aligned(module.data_bytes),
        stack_bytes=aligned(_STACK_BYTES),
        context_bytes=aligned(CONTEXT_BYTES),
        least_bytes=module.memory or 0,
        table=(module.table or 0) + 1,
        functions="".join(f"  {name}: {text.FUNCTIONS[name]},\n" for name in module.functions),
        erf=text.ERF if {"erf", "erfc"} & set(module.functions) else "",
        sizes=_sizes(model, arrays) if has_sizes else "",
        temp_bytes="temporary(most)" if is_open else aligned(model.temp_bytes),
        set_most=text.SET_MOST.substitute(most=_most(model)) if is_open else
        (text.FIX_MOST.substitute(most=_most(model)) if has_sizes else ""),
        places="".join(_places(model, arrays)),
        constants=text.PLACE_CONSTANTS.substitute(
            bytes=model.constants_bytes, file=model.constants_file, digest=model.digest
        ) if model.constants_file else "",
        load_constants=text.LOAD_CONSTANTS.substitute(file=model.constants_file) if model.constants_file else "",
        fill_constants=text.FILL_CONSTANTS if model.constants_file else "",
        context="".join(_context(model)),
        slots="".join(_slots(model)),
        runs="".join(text.RUN.substitute(_run_values(model, e)) for e in model.entries),
        state=text.STATE.substitute(symbol=model.reset_symbol, bytes=model.state_offsets[-1], slots=len(model.states))
        if model.states else "",
        size_methods=_size_methods(model, arrays) if has_sizes else "",
        arrays="".join(_accessor(a) for a in arrays),
    )  # fmt: skip


def _common(model: Model) -> dict[str, str]:
    return {
        "name": model.name,
        "class_name": _class(model),
        "target": model.target,
        "version": model.version,
    }


def _run_values(model: Model, entry: Entry) -> dict[str, str]:
    return {
        "run": entry.run_name,
        "symbol": entry.symbol,
        "args": entry.member("args"),
        "results": entry.member("results"),
        "ensure_state": "    if (!this.#hasState) this.reset();\n" if model.states else "",
    }


def _most(model: Model) -> str:
    bounds = ("Infinity" if s.most is None else str(s.most) for s in model.sizes.listed)
    return f"[{', '.join(bounds)}]"


def _sizes(model: Model, arrays: Sequence[Array]) -> str:
    dims = "".join(
        f"  {a.which}: (sizes) => [{', '.join(expressions(model, a.sizes, 'sizes', JAVASCRIPT))}],\n"
        for a in arrays
        if a.is_changing
    )
    temps = expressions(model, model.sizes.temp_bytes, "sizes", JAVASCRIPT)
    return text.SIZES.substitute(
        names=json.dumps([size.name for size in model.sizes.listed]),
        dims=dims,
        temps=", ".join([str(model.temp_bytes), *temps]),
    )


def _places(model: Model, arrays: Sequence[Array]) -> Iterator[str]:
    """The statements that give arrays their addresses."""
    for array in arrays:
        dims = f"product(DIMS.{array.which}(most))"
        size = f"{dims} * {array.item_bytes}" if array.is_changing else str(aligned(array.spec.bytes))
        yield text.PLACE.substitute(which=array.which, bytes=size)


def _context(model: Model) -> Iterator[str]:
    """The statements that write the run context."""
    fields = {
        "threads": "1",
        "num_replicas": "1",
        "error_message": "error",
        "error_capacity": "ERROR_BYTES",
        "rng_state": "random",
    }
    if model.constants_file:
        fields["constants"] = "weights"
    if model.sizes.listed:
        fields["sizes"] = "this.#sizeTable"
    for field, value in fields.items():
        yield text.SET_INTEGER.substitute(offset=OFFSETS[field], value=value)


def _slots(model: Model) -> Iterator[str]:
    """The statements that write the lists of addresses that functions take."""
    states = [f"at.state{k}" for k in range(len(model.states))]
    for entry in model.entries:
        prefix = f"{entry.name}_" if entry.name else ""
        arguments = [f"at.{prefix}arg{k}" for k in range(len(entry.arguments))]
        results = [f"at.{prefix}result{k}" for k in range(len(entry.results))]
        for slots, own in ((entry.state_arguments, arguments), (entry.state_results, results)):
            own.extend(states[number] for _, number in sorted(slots))
        for kind, listed in (("args", arguments), ("results", results)):
            yield text.SLOTS.substitute(member=entry.member(kind), listed=", ".join(listed))
    if model.states:
        yield text.SLOTS.substitute(member="states", listed=", ".join(states))


def _size_methods(model: Model, arrays: Sequence[Array]) -> str:
    is_open = not model.sizes.are_bounded
    return text.SIZE_METHODS.substitute(
        dims="".join(text.DIMS.substitute(which=a.which) for a in arrays if a.is_changing),
        check=text.CHECK_MEMORY if is_open else "",
    )


def _accessor(array: Array) -> str:
    view, parts = VIEWS[array.spec.dtype]
    count = f"product(DIMS.{array.which}(this.#sizes))" if array.is_changing else str(array.elements)
    values = {
        "which": array.which,
        "documentation": "\n   * ".join(documentation(array)),
        "view": view,
        "count": f"{count} * {parts}" if parts > 1 else count,
    }
    named = text.NAMED.substitute(values, own=array.own) if array.own else ""
    return text.ARRAY.substitute(values) + named


def _types(model: Model) -> str:
    arrays = list(all_arrays(model))
    fields = []
    for array in arrays:
        view, _ = VIEWS[array.spec.dtype]
        lines = "\n   * ".join(documentation(array))
        fields.append(f"  /** {lines} */\n  readonly {array.which}: {view};\n")
        if array.own:
            fields.append(f"  readonly {array.own}: {view};\n")
        if array.is_changing:
            fields.append(f"  readonly {array.which}_dims: number[];\n")
    names = ", ".join(f"{size.name}?: number" for size in model.sizes.listed)
    return text.TYPES.substitute(
        _common(model),
        fields="".join(fields),
        runs="".join(text.RUN_TYPE.substitute(run=entry.run_name) for entry in model.entries),
        state=text.STATE_TYPES if model.states else "",
        sizes=text.SIZE_TYPES.substitute(names=names) if model.sizes.listed else "",
        options=(
            ("\n  /** What Digits.bin has; read from beside the module where it is not given. */\n  constants?: "
             "ArrayBuffer | Uint8Array;".replace("Digits", model.name) if model.constants_file else "")
            + (f"\n  /** The largest sizes that there is memory for. */\n  most?: {{ {names} }};"
               if not model.sizes.are_bounded else "")
        ),
    )  # fmt: skip


# -- the test


def _test(export: Export, runs: Sequence[GoldenRun]) -> str:
    model = export.model
    names = [size.name for size in model.sizes.listed]
    most = ", ".join(f"{name}: {model.example_most[name]}" for name in names)
    tests = "".join(
        text.GOLDEN_RUN.substitute(
            _common(model),
            options=f"{{ most: {{ {most} }} }}" if not model.sizes.are_bounded else "",
            sizes="  model.setSizes({ " + ", ".join(f"{n}: {run.sizes[k]}" for k, n in enumerate(names)) + " });\n"
            if names else "",
            fill="".join(
                text.FILL.substitute(which=v.array.which, offset=v.offset, bytes=v.size) for v in run.arguments
            ),
            times=export.runs_of_example,
            run=run.entry.run_name,
            checks="".join(map(_check, run.results)),
        )
        for run in runs
    )  # fmt: skip
    return text.GOLDEN.substitute(_common(model), tests=tests)


def _check(values: Values) -> str:
    return text.CHECK.substitute(
        which=values.array.which,
        offset=values.offset,
        bytes=values.size,
        kind=values.kind,
        small=json.dumps(values.small),
        tolerance=values.tolerance,
    )
