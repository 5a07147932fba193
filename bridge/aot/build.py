"""Compiles a TensorFlow function ahead of time: an object file, a header, and a description for other programs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...compiler.builder.computation_builder import ComputationBuilder
from ...compiler.client.platforms import native
from ...compiler.ir.code_version import CodeVersion, Level
from ...compiler.ir.module import Module
from ...compiler.ir.sized_module import SizedModule
from ...compiler.options import DEFAULT_OPTIONS
from ...compiler.quantization.report import QuantizationReport
from ...runtime.code import private_files
from ...runtime.code.artifact import Artifact, BufferSpec
from ...runtime.code.linker import section_bytes
from ...runtime.llvm.target import Target, host
from .benchmark_program import write_benchmark
from .build_files import write_cmake_package, write_pkg_config
from .freeze import Feeds, Frozen, Function, freeze
from .header import write_header
from .libraries import FORMATS, archive, link_shared
from .libraries import file_name as file_name_of
from .model import Entry, Model, StateArray
from .model_page import write_page
from .names import check, class_name, file_name
from .python_module import write_python
from .quantization import Calibration, options_for, quantize_frozen
from .sized_build import (
    compiled_modules,
    described_array,
    described_arrays,
    described_sizes,
    largest,
    sizes_of,
)
from .test_program import example_runs, write_test

_NO_DIGEST = "tfbridgetfbridge"  # in names of functions, until their digest is known
_ALIGN = 64


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


def compile(
    function: Any,
    *args: Any,
    signature: str | Sequence[str] = "serving_default",
    feeds: Feeds | None = None,
    target_triple: str | None = None,
    target_cpu: str = "",
    target_features: str = "",
    cpu_levels: Sequence[str] = (),
    cpp_class: str | None = None,
    name: str | None = None,
    out_dir: str | os.PathLike[str] = ".",
    large_constants: str = "object",
    threads: int = 1,
    l1_bytes: int | None = None,
    l2_bytes: int | None = None,
    extras: Collection[str] = (),
    format: str = "object",
    quantize: str | None = None,
    calibration: Calibration | None = None,
    calibration_method: str = "mse",
    keep_float: Sequence[str] = (),
) -> Compiled:
    """Compiles a function into NAME.o, NAME.h, NAME.json and NAME.html in `out_dir`.

    `function` is a Python function, tf.function or concrete function, with examples or TensorSpecs of its arguments in
    `args`; a Keras model or the path of its `.keras` file (`args` may be left out); or the directory of a SavedModel,
    of which `signature` is compiled. Several functions that share weights and state, `{name: function}` or `{name:
    (function, *specs)}`, or several signatures (`"*"`: all), become one object. Variables become constants; those that
    a function writes become a state in the model's memory, which a run reads and changes. `feeds` gives the whole shape
    of arguments, by name or as `arg0`, `arg1`, ...: dims are numbers or sizes that change from run to run: `"?"` or
    None, with a bound `"?<=8"`, with a name `"?n"` or `"?n<=8"`; a shape may be a text, `"?nx28x28x1"`.

    The target is this machine unless `target_triple` (with `target_cpu` and `target_features` as LLVM spells them) says
    otherwise: then nothing is assumed of the processor but what they promise or, where both are empty, what clang
    assumes for the triple. `cpu_levels` names levels of its architecture, `["v2", "v3", "v4"]`: the object has code for
    each, and runs take that of the highest which the processor has. `l1_bytes` and `l2_bytes` are the sizes of its
    caches. Code for more than one of `threads`
    runs parallel loops on a pool that the program hands over.

    `cpp_class` may have namespaces, `vision::Digits`; it is made from the name if it is not given.
    `large_constants="file"` writes the constants to NAME.bin, to be mapped, instead of into the object. `extras` are
    further files: `test`, a C program NAME_test.c that checks the object against TensorFlow's results; `benchmark`, one
    that times it, NAME_benchmark.c; `cmake`, a CMake package and a file for pkg-config; `python`, a module NAME.py that
    runs the shared library. `format`: `object`, NAME.o; `static`, a library libNAME.a; `shared`, libNAME.so, which a
    compiler for the target links.

    With `quantize="int8"` dense layers and convolutions are computed in 8-bit integers; with `int8-weights`, `float16`
    and `bfloat16` weights are stored so, and computed with in f32. `calibration` has samples of the arguments, which
    `int8` needs: the path of a .npz file or a mapping of arrays by name, a sample to a row, or an iterable of samples.
    `calibration_method`: how ranges follow from the values seen, `min-max`, `percentile` or `mse`. `keep_float`: layers
    that stay in f32: `first`, `last`, or names of TensorFlow nodes with `*`.

    Raises: ShapeError  an unknown signature or feed, or unknown dimensions; UnsupportedError  ops that cannot be
    compiled, or not for sizes that change, a variable whose shape changes, or a target that LLVM does not know;
    ValueError  a name that C does not allow (see `names`; one that is not given is made from the function's), or a
    target or a dim that is none.
    """
    if large_constants not in ("object", "file"):
        raise ValueError(f"large_constants: {large_constants!r} is neither 'object' nor 'file'")
    if threads < 1:
        raise ValueError(f"threads: {threads} is not positive")
    if unknown := set(extras) - EXTRAS.keys():
        raise ValueError(f"extras: {min(unknown)!r} is none of {', '.join(sorted(EXTRAS))}")
    if format not in FORMATS:
        raise ValueError(f"format: {format!r} is none of {', '.join(FORMATS)}")
    if "python" in extras and format != "shared":
        raise ValueError("extras: 'python' runs a shared library, so format='shared' is wanted with it")
    check(name, "Model" if cpp_class is None else cpp_class)
    targets = _targets(target_triple, target_cpu, target_features, cpu_levels, threads, l1_bytes, l2_bytes)
    target = targets[0][0]
    frozen = freeze(function, args, signature, feeds or {})
    reports: list[QuantizationReport] = []
    if quantize is not None:
        chosen = options_for([each for each, _ in targets], quantize, calibration_method, keep_float)
        frozen, reports = quantize_frozen(frozen, calibration, chosen)
    if name is None:
        name = file_name(frozen.name)
    cpp_class = cpp_class if cpp_class is not None else class_name(name)
    check(name, cpp_class)
    model, data, constants = build_model(
        frozen, name, cpp_class, targets, threads, large_constants == "object"
    )
    model = dataclasses.replace(model, library=file_name_of(name, format, target.triple))
    made = write_files(Path(out_dir), model, data, constants, target, reports)
    folder = made.header.parent
    extra_files = [f for extra in sorted(extras) for f in _write_extra(folder, extra, model, frozen)]
    return dataclasses.replace(made, extra_files=tuple(extra_files), quantization=tuple(reports))


def build_model(
    frozen: Frozen,
    name: str,
    cpp_class: str,
    targets: Sequence[tuple[Target, Level | None]],
    threads: int,
    embed_constants: bool,
) -> tuple[Model, bytes, bytes]:
    """(what the header tells, the object, the constants for a file). `targets`: several for levels of processors."""
    symbols = {
        function: f"{_symbol(name, function.name)}_entry_{_NO_DIGEST}" for function in frozen.functions
    }
    reset_symbol = f"{name}_initial_state_{_NO_DIGEST}" if frozen.states else ""
    reset = {reset_symbol: _reset_module(frozen)} if frozen.states else {}
    versions = [
        CodeVersion(compiled_modules(frozen, symbols, target) | reset, target, level)
        for target, level in targets
    ]
    artifacts = native().compile_self_contained(versions, DEFAULT_OPTIONS, embed_constants)
    digest = _digest_of(artifacts)
    temp_bytes, sizes = sizes_of(frozen, [m for v in versions for m in v.modules.values()], artifacts)
    modules, target = versions[0].modules, versions[0].target
    constants = _with_digest(artifacts[0].constants, digest)
    levels = [level.name for _, level in targets if level is not None]
    model = Model(
        name,
        cpp_class,
        f"{target.triple} {target.cpu}".strip()
        if not levels
        else f"{target.triple} levels {' '.join(levels)}",
        __version__,
        [
            _entry(
                function, symbols[function].replace(_NO_DIGEST, digest), artifact, modules[symbols[function]]
            )
            for function, artifact in zip(frozen.functions, artifacts)
        ],
        temp_bytes,
        len(constants),
        threads,
        target.pointer_bytes,
        digest,
        [StateArray(state.name, _spec(state.value)) for state in frozen.states],
        reset_symbol.replace(_NO_DIGEST, digest),
        sizes,
        levels=levels,
    )
    return model, artifacts[0].object.replace(_NO_DIGEST.encode(), digest.encode()), constants


def _symbol(model: str, function: str) -> str:
    return f"{model}_{function}" if function else model


def _entry(function: Function, symbol: str, artifact: Artifact, module: Module | SizedModule) -> Entry:
    general = module.variants[0].module if isinstance(module, SizedModule) else module
    sized_results = general.sized_results if general else ()
    names = (*function.results, *(f"{function.results[k] or f'result{k}'}_rows" for k in sized_results))
    entry = Entry(
        function.name,
        symbol,
        artifact.parameters[: len(function.arguments)],
        function.arguments,
        artifact.results[: len(names)],
        names,
        function.state_arguments,
        function.state_results,
        sized_results=sized_results,
        kernels=artifact.kernels,
        temporaries=artifact.temporaries,
    )
    return largest(entry, module) if isinstance(module, SizedModule) else entry


def _spec(value: np.ndarray) -> BufferSpec:
    return BufferSpec(value.dtype.name, value.shape, value.nbytes)


def _write_extra(folder: Path, extra: str, model: Model, frozen: Frozen) -> list[Path]:
    files = []
    for name, write in EXTRAS[extra].items():
        files.append(folder / name.format(model.name))
        private_files.write_file(None, str(files[-1]), [write(model, frozen).encode("ascii")], 0o666)
    return files


def _test(model: Model, frozen: Frozen) -> str:
    times = 3 if model.states else 1
    runs = example_runs(model, [function.expected for function in frozen.functions], times)
    return write_test(model, runs, times, frozen.tolerance)


EXTRAS: dict[str, dict[str, Callable[[Model, Frozen], str]]] = {
    "test": {"{}_test.c": _test},
    "benchmark": {"{}_benchmark.c": lambda model, _: write_benchmark(model)},
    "python": {"{}.py": lambda model, _: write_python(model)},
    "cmake": {
        "{}-config.cmake": lambda model, _: write_cmake_package(model),
        "{}.pc": lambda model, _: write_pkg_config(model),
    },
}
"""Files that may be written beside the object, by name: how each is called, and its text."""


def _digest_of(artifacts: Sequence[Artifact]) -> str:
    """Of all that was compiled."""
    described = repr([(a.parameters, a.results, a.temp_bytes, a.threads) for a in artifacts])
    hash_ = hashlib.blake2b(artifacts[0].object, digest_size=len(_NO_DIGEST) // 2)
    for part in (artifacts[0].constants, described.encode()):
        hash_.update(part)
    return hash_.hexdigest()


def _with_digest(constants: bytes, digest: str) -> bytes:
    """Constants for a file: the digest at their end."""
    if not constants:
        return b""
    return constants + bytes(-len(constants) % _ALIGN) + digest.encode().ljust(_ALIGN, b"\0")


def _reset_module(frozen: Frozen) -> Module:
    """Returns the first values of the state."""
    b = ComputationBuilder("reset")
    return Module("reset", b.build(b.tuple([b.constant(state.value) for state in frozen.states])))


def _targets(
    triple: str | None,
    cpu: str,
    features: str,
    levels: Sequence[str],
    threads: int,
    l1_bytes: int | None,
    l2_bytes: int | None,
) -> list[tuple[Target, Level | None]]:
    """One target, or those of several levels."""
    here = host(threads)
    named = triple or here.triple, cpu, features
    if levels and (cpu or features):
        raise ValueError("cpu_levels: each is a CPU with its features; none may be given besides")
    if levels:
        found = native().named_levels(named[0], levels, threads, l1_bytes, l2_bytes)
        return [(level.target, level) for level in found]
    if triple is None and not cpu and not features:
        l1_bytes, l2_bytes = l1_bytes or here.l1_bytes, l2_bytes or here.l2_bytes
        return [(dataclasses.replace(here, l1_bytes=l1_bytes, l2_bytes=l2_bytes), None)]
    return [(native().named_target(*named, threads, l1_bytes, l2_bytes), None)]


def write_files(
    folder: Path,
    model: Model,
    data: bytes,
    constants: bytes,
    target: Target,
    reports: Sequence[QuantizationReport] = (),
) -> Compiled:
    object_file = folder / model.file
    header, description, page = (folder / f"{model.name}.{suffix}" for suffix in ("h", "json", "html"))
    constants_file = folder / f"{model.name}.bin" if constants else None
    header_bytes = write_header(model).encode("ascii")
    page_bytes = write_page(model, data, target, reports).encode(errors="replace")
    sections = dict(section_bytes(data))
    if object_file.suffix in (".a", ".lib"):
        symbols = [*(entry.symbol for entry in model.entries), *filter(None, [model.reset_symbol])]
        data = archive(f"{model.name}.o", data, symbols, target.triple)
    elif object_file.suffix != ".o":
        data = link_shared(model, data, header_bytes, target)
    description_data = _description(model, len(data), constants_file, target)
    description_data["sections"] = sections
    if reports:
        description_data["quantization"] = [report.to_json() for report in reports]
    described = json.dumps(description_data, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for file, contents in (
        (object_file, data),
        (header, header_bytes),
        (constants_file, constants),
        (description, described.encode("ascii")),
        (page, page_bytes),
    ):
        if file is not None:
            private_files.write_file(None, str(file), [contents], 0o666)
    return Compiled(
        object_file,
        header,
        description,
        page,
        constants_file,
        len(data),
        len(header_bytes),
        model.temp_bytes,
        len(constants),
    )


def _description(
    model: Model, object_bytes: int, constants_file: Path | None, target: Target
) -> dict[str, Any]:
    """What NAME.json has: that of the only function beside that of the model, or of several by name."""
    functions = {
        entry.name: {
            "entry": entry.symbol,
            "arguments": described_arrays(model, entry, "args"),
            "results": described_arrays(model, entry, "results"),
            "kernels": [kernel._asdict() for kernel in entry.kernels],
            "temporaries": [temporary._asdict() for temporary in entry.temporaries],
        }
        for entry in model.entries
    }
    return {
        "name": model.name,
        "cpp_class": model.cpp_class,
        "tfbridge": model.version,
        "target": {
            "triple": target.triple,
            "cpu": target.cpu,
            "features": target.features,
            **({"levels": list(model.levels)} if model.levels else {}),
            "threads": model.threads,
        },
        **functions.get("", {"functions": functions}),
        **described_sizes(model),
        "state": [described_array(s.name, s.spec, s.spec.dims, s.spec.bytes) for s in model.states],
        "state_bytes": model.state_offsets[-1],
        "temp_bytes": model.temp_bytes if model.sizes.are_bounded else None,
        "memory_bytes": model.memory_bytes if model.sizes.are_bounded else None,
        "object_bytes": object_bytes,
        "constants_file": constants_file.name if constants_file else None,
        "constants_bytes": model.constants_bytes,
    }
