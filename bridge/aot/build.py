"""Compiles a TensorFlow function ahead of time: an object file, a header, and a description for other programs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from ...compiler.client.platforms import native
from ...compiler.ir.code_version import Level
from ...compiler.object_options import NUMERICS, OPTIMIZE, ObjectOptions
from ...compiler.options import DEFAULT_OPTIONS
from ...compiler.quantization.options import BLOCK_SIZE
from ...compiler.quantization.report import QuantizationReport
from ...runtime.llvm.target import Target, host
from ...runtime.threads import python_settings
from .freeze import Feeds, Frozen, freeze
from .model_code import build_model
from .quantization import Calibration, byte_form, options_for, quantize_frozen
from .writers import libraries
from .writers.export import Export
from .writers.extras import EXTRAS
from .writers.files import Compiled, write_files
from .writers.header.header import write_header
from .writers.model import PLACES_OF_CONSTANTS
from .writers.names import check, class_name, file_name


@python_settings.compiling()
def compile(
    function: object,
    *args: object,
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
    block_size: int = BLOCK_SIZE,
    optimize: str = "speed",
    numerics: str | None = None,
    debug: bool = False,
    code_section: str = "",
    constants_section: str = "",
) -> Compiled:
    """Compiles a function into NAME.o, NAME.h, NAME.json and NAME.html in `out_dir`.

    >>> import tempfile
    >>> import tensorflow as tf
    >>> import tfbridge
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     spec = tf.TensorSpec((4, 3), tf.float32, "features")
    ...     files = tfbridge.aot.compile(tf.nn.softmax, spec, name="scores", out_dir=folder)
    ...     print(files.header.name, "scores_arg_features" in files.header.read_text())
    scores.h True

    `function` is a Python function, tf.function or concrete function, with examples or TensorSpecs of its arguments in
    `args`; a Keras model or the path of its `.keras` file (`args` may be left out); or the directory of a SavedModel or
    the path of a `.tflite` file, of which `signature` is compiled. Several functions that share weights and state,
    `{name: function}` or `{name: (function, *specs)}`, or several signatures (`"*"`: all), become one object. Variables
    become constants; those that a function writes become a state in the model's memory, which a run reads and changes.
    `feeds` gives the whole shape of arguments, by name or as `arg0`, `arg1`, ...: dims are numbers or sizes that change
    from run to run: `"?"` or None, with a bound `"?<=8"`, with a name `"?n"` or `"?n<=8"`; a shape may be a text,
    `"?nx28x28x1"`.

    The target is this machine unless `target_triple` (with `target_cpu` and `target_features` as LLVM spells them) says
    otherwise: then nothing is assumed of the processor but what they promise or, where both are empty, what clang
    assumes for the triple. `cpu_levels` names levels of its architecture, `["v2", "v3", "v4"]`: the object has code for
    each, and runs take that of the highest which the processor has. `l1_bytes` and `l2_bytes` are the sizes of its
    caches. Code for more than one of `threads` runs parallel loops on a pool that the program hands over.

    `cpp_class` may have namespaces, `vision::Digits`; it is made from the name if it is not given.
    `large_constants="file"` writes the constants to NAME.bin, to be mapped, instead of into the object, and "source" to
    the C source NAME_weights.c. `extras` are further files: `test`, a C program NAME_test.c that checks the object
    against TensorFlow's results; `benchmark`, one that times it, NAME_benchmark.c; `cmake`, a CMake package and a file
    for pkg-config; `python`, a module NAME.py that runs the shared library; `rust`, `wasm`, `android` and `swift`,
    packages for these. `format`: `object`, NAME.o; `static`, a library libNAME.a; `shared`, libNAME.so, which a
    compiler for the target links.

    With `quantize="int8"` dense layers, convolutions and recurrent layers are computed in 8-bit integers; with
    `int4-weights`, `int8-weights`, `float16` and `bfloat16` weights are stored so, and computed with in f32; those of 4
    bits have a scale for each `block_size` rows and each output feature. `calibration` has samples of the arguments,
    which `int8` needs: the path of a .npz file or a mapping of arrays by name, a sample to a row, or an iterable of
    samples. `calibration_method`: how ranges follow from the values seen, `min-max`, `percentile` or `mse`.
    `keep_float`: layers that stay in f32: `first`, `last`, or names of TensorFlow nodes with `*`.

    `optimize="size"` makes code smaller, and slower. `numerics`: `tf` or `fast` (arithmetic may be rearranged); that of
    the flag if it is not given. `debug` gives functions of the object the names of the layers that they compute, with
    debug lines that are those of NAME.layers. `code_section` and `constants_section` are the names of the object's
    sections of code, and of weights and other constants.

    Raises: ShapeError  an unknown signature or feed, or unknown dimensions; UnsupportedError  ops that cannot be
    compiled, or not for sizes that change, a variable whose shape changes, or a target that LLVM does not know;
    ValueError  a name that C does not allow (see `names`; one that is not given is made from the function's), or a
    target or a dim that is none.
    """
    _check_choices(large_constants, threads, extras, format, optimize, numerics)
    check(name, "Model" if cpp_class is None else cpp_class)
    options = dataclasses.replace(DEFAULT_OPTIONS, numerics=numerics or DEFAULT_OPTIONS.numerics)
    object_options = ObjectOptions(code_section, constants_section, debug)
    targets = _targets(target_triple, target_cpu, target_features, cpu_levels, threads, l1_bytes, l2_bytes)
    _check_extras(extras, targets[0][0].triple)
    if optimize == "size":
        targets = [(dataclasses.replace(target, is_small=True), level) for target, level in targets]
    native().prepare_self_contained()
    all_targets = [target for target, _ in targets]
    frozen = freeze(function, args, signature, feeds or {}, byte_form(all_targets))
    reports: list[QuantizationReport] = []
    if quantize is not None:
        chosen = options_for(all_targets, quantize, calibration_method, keep_float, block_size)
        frozen, reports = quantize_frozen(frozen, calibration, chosen)
    name, cpp_class = _names(frozen, name, cpp_class)
    object_options = dataclasses.replace(object_options, layers_file=f"{name}.layers")
    model, data, constants = build_model(
        frozen, name, cpp_class, targets, threads, large_constants, options, object_options
    )
    target = targets[0][0]
    model = dataclasses.replace(model, library=libraries.file_name(name, format, target.triple))
    folder = Path(out_dir)
    export = Export(model, data, constants, write_header(model), target, frozen.reference, folder)
    return write_files(export, extras, reports)


def _check_choices(
    large_constants: str,
    threads: int,
    extras: Collection[str],
    format: str,
    optimize: str,
    numerics: str | None,
) -> None:
    """Raises: ValueError  one of these cannot be chosen."""
    for option, value, choices in (
        ("large_constants", large_constants, PLACES_OF_CONSTANTS),
        ("optimize", optimize, OPTIMIZE),
        ("numerics", numerics, NUMERICS),
        ("format", format, libraries.FORMATS),
    ):
        if value is not None and value not in choices:
            raise ValueError(f"{option}: {value!r} is none of {', '.join(choices)}")
    if large_constants == "source" and format == "shared":
        raise ValueError(
            "large_constants: a shared library is linked without the C source; take 'object' or 'file'"
        )
    if threads < 1:
        raise ValueError(f"threads: {threads} is not positive")
    if unknown := set(extras) - EXTRAS.keys():
        raise ValueError(f"extras: {min(unknown)!r} is none of {', '.join(sorted(EXTRAS))}")
    for extra in extras:
        if large_constants == "source" and not EXTRAS[extra].takes_source:
            raise ValueError(
                f"extras: {extra!r} does not compile the C source of weights; take 'object' or 'file'"
            )
        if (library := EXTRAS[extra].library) not in ("", format):
            raise ValueError(
                f"extras: {extra!r} runs a {library} library, so format={library!r} is wanted with it"
            )


def _check_extras(extras: Collection[str], triple: str) -> None:
    """Raises: ValueError  there are no such files for the target."""
    for extra in extras:
        if reason := EXTRAS[extra].refusal(triple):
            raise ValueError(f"extras: {extra!r} is not written for {triple}: {reason}")


def _names(frozen: Frozen, name: str | None, cpp_class: str | None) -> tuple[str, str]:
    """The name of the files and the class: those that were chosen, or made from the function's.

    Raises: ValueError  C or C++ does not allow them.
    """
    name = file_name(frozen.name) if name is None else name
    cpp_class = class_name(name) if cpp_class is None else cpp_class
    check(name, cpp_class)
    return name, cpp_class


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
        named_levels = native().named_levels(named[0], levels, threads, l1_bytes, l2_bytes)
        return [(level.target, level) for level in named_levels]
    if triple is None and not cpu and not features:
        l1_bytes, l2_bytes = l1_bytes or here.l1_bytes, l2_bytes or here.l2_bytes
        return [(dataclasses.replace(here, l1_bytes=l1_bytes, l2_bytes=l2_bytes), None)]
    return [(native().named_target(*named, threads, l1_bytes, l2_bytes), None)]
