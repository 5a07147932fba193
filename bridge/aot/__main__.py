"""The command `tfbridge-aot`, also `python -m tfbridge.aot`: compiles a signature of a SavedModel or a .tflite file.

tfbridge-aot model.tflite
tfbridge-aot --saved-model DIR --feed images:1,8,8,1 --target-triple aarch64-linux-gnu --cpp-class vision::Digits
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ...compiler.errors import CompilerError
from ...compiler.object_options import NUMERICS, OPTIMIZE
from ...compiler.quantization.options import BLOCK_SIZE, METHODS, SCHEMES
from .feeds import parse_dims
from .writers.extras import EXTRAS
from .writers.libraries import FORMATS
from .writers.model import PLACES_OF_CONSTANTS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tfbridge-aot",
        description="Compiles a signature of a SavedModel, or of a .keras or .tflite file, into an object file and a "
        "C/C++ header.",
    )
    _add_model_options(parser)
    _add_target_options(parser)
    _add_file_options(parser)
    _add_quantization_options(parser)
    return parser


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    paths = group.add_mutually_exclusive_group(required=True)
    paths.add_argument(
        "model",
        nargs="?",
        metavar="PATH",
        help="directory of a SavedModel, or a .keras or .tflite file",
    )
    paths.add_argument("--saved-model", metavar="PATH", help="the same")
    group.add_argument(
        "--signature",
        action="append",
        metavar="KEY",
        help="default: serving_default; several, or '*' for all, become one object",
    )
    group.add_argument(
        "--feed",
        type=_feed,
        action="append",
        default=[],
        metavar="NAME:SHAPE",
        help="whole shape of an input, such as images:1,28,28,1; once for each that has unknown dimensions; sizes that "
        "change: images:?x28x28x1, of at most 8 ?<=8, the same ones ?n",
    )


def _add_target_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("target")
    group.add_argument(
        "--target-triple", metavar="T", help="such as aarch64-linux-gnu; default: this machine"
    )
    group.add_argument("--target-cpu", default="", metavar="C", help="such as cortex-a72, x86-64-v3")
    group.add_argument("--target-features", default="", metavar="F", help="such as +avx2,+fma")
    group.add_argument(
        "--cpu-levels",
        type=_names,
        default=(),
        metavar="LEVELS",
        help="code for several levels of processors in one object, such as v2,v3,v4 (AArch64: v8.0,v8.2,v8.6); runs "
        "take the highest that there is",
    )
    group.add_argument(
        "--optimize",
        default="speed",
        choices=OPTIMIZE,
        help="size: smaller code, which is slower; default: speed",
    )
    group.add_argument(
        "--numerics",
        choices=NUMERICS,
        help="fast: arithmetic may be rearranged; default: that of TFBRIDGE_NUMERICS, tf",
    )
    group.add_argument("--l1-bytes", type=int, metavar="N", help="size of the target's first data cache")
    group.add_argument("--l2-bytes", type=int, metavar="N", help="size of its second cache")
    group.add_argument(
        "--threads",
        type=int,
        default=1,
        metavar="N",
        help="most threads of a run, on the program's own pool; default: 1",
    )


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("files")
    group.add_argument(
        "--format",
        default="object",
        choices=FORMATS,
        help="what is written: NAME.o, a static library, or a shared one that a compiler for the target links; "
        "default: object",
    )
    group.add_argument(
        "--with",
        dest="extras",
        type=_names,
        default=(),
        metavar="EXTRAS",
        help="further files, with commas between them: "
        + "; ".join(f"{name}, {extra.meaning}" for name, extra in EXTRAS.items()),
    )
    group.add_argument(
        "--debug",
        action="store_true",
        help="functions bear the names of layers, for profilers and debuggers, with lines of NAME.layers",
    )
    group.add_argument("--code-section", default="", metavar="NAME", help="section of the object's functions")
    group.add_argument(
        "--constants-section", default="", metavar="NAME", help="section of weights and other constants"
    )
    group.add_argument("--cpp-class", metavar="NS::CLASS", help="the C++ class; default: made from the name")
    group.add_argument("--name", help="of the files and in the C API; default: that of the directory")
    group.add_argument("--out", default=".", metavar="DIR", help="where the files go; default: here")
    group.add_argument(
        "--large-constants",
        default="object",
        choices=PLACES_OF_CONSTANTS,
        help="where the weights go; file: NAME.bin, to be mapped; source: C, NAME_weights.c",
    )


def _add_quantization_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("quantisation")
    group.add_argument(
        "--quantize",
        choices=SCHEMES,
        help="int8: compute dense layers, convolutions and recurrent layers in integers of 8 bits, with --calibration; "
        "others: store their weights so",
    )
    group.add_argument(
        "--calibration", metavar="FILE", help="a .npz file: samples of each input, by name, a sample to a row"
    )
    group.add_argument(
        "--calibration-method",
        default="mse",
        choices=METHODS,
        help="how the ranges of values follow from the samples; default: mse, the least squared error",
    )
    group.add_argument(
        "--keep-float",
        type=_names,
        default=(),
        metavar="LAYERS",
        help="layers that stay in f32, with commas between them: first, last, or names with *",
    )
    group.add_argument(
        "--block-size",
        type=int,
        default=BLOCK_SIZE,
        metavar="N",
        help=f"rows of weights of 4 bits that share a scale; default: {BLOCK_SIZE}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0; with a message 1 when the model does not compile, 2 for a
    name or a target that cannot be chosen."""
    chosen = _parser().parse_args(arguments)
    from .build import compile  # late: it loads TensorFlow

    try:
        compiled = compile(
            chosen.model or chosen.saved_model,
            signature=_signature(chosen.signature),
            feeds=dict(chosen.feed),
            target_triple=chosen.target_triple,
            target_cpu=chosen.target_cpu,
            target_features=chosen.target_features,
            cpu_levels=chosen.cpu_levels,
            cpp_class=chosen.cpp_class,
            name=chosen.name,
            out_dir=chosen.out,
            large_constants=chosen.large_constants,
            threads=chosen.threads,
            l1_bytes=chosen.l1_bytes,
            l2_bytes=chosen.l2_bytes,
            extras=chosen.extras,
            format=chosen.format,
            quantize=chosen.quantize,
            calibration=chosen.calibration,
            calibration_method=chosen.calibration_method,
            keep_float=chosen.keep_float,
            block_size=chosen.block_size,
            optimize=chosen.optimize,
            numerics=chosen.numerics,
            debug=chosen.debug,
            code_section=chosen.code_section,
            constants_section=chosen.constants_section,
        )
    except (CompilerError, OSError) as error:
        print(f"tfbridge-aot: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"tfbridge-aot: {error}", file=sys.stderr)
        return 2
    files = (
        compiled.object_file,
        compiled.header,
        compiled.description,
        compiled.page,
        compiled.constants_file,
    )
    for file in (*files, *compiled.extra_files):
        if file is not None:
            print(f"{file}  {file.stat().st_size:,} bytes")
    for report in compiled.quantization:
        print(report)
    return 0


def _signature(keys: list[str] | None) -> str | list[str]:
    if not keys:
        return "serving_default"
    return keys[0] if len(keys) == 1 else keys


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _feed(text: str) -> tuple[str, tuple[str, ...]]:
    name, _, dims = text.rpartition(":")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no name and shape, such as images:1,28,28,1")
    try:
        return name, parse_dims(dims)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
