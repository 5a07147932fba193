"""The command `tfbridge-aot`, also `python -m tfbridge.aot`: compiles a signature of a SavedModel.

tfbridge-aot --saved-model DIR --feed images:1,8,8,1 --target-triple aarch64-linux-gnu --cpp-class vision::Digits
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ...compiler.errors import CompilerError
from .feeds import parse_dims


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tfbridge-aot",
        description="Compiles a signature of a SavedModel into an object file and a C/C++ header.",
    )
    parser.add_argument(
        "--saved-model", required=True, metavar="PATH", help="directory of a SavedModel, or a .keras file"
    )
    parser.add_argument(
        "--signature",
        action="append",
        metavar="KEY",
        help="default: serving_default; several, or '*' for all, become one object",
    )
    parser.add_argument(
        "--feed",
        type=_feed,
        action="append",
        default=[],
        metavar="NAME:SHAPE",
        help="whole shape of an input, such as images:1,28,28,1; once for each that has unknown dimensions; sizes that "
        "change: images:?x28x28x1, of at most 8 ?<=8, the same ones ?n",
    )
    parser.add_argument(
        "--target-triple", metavar="T", help="such as aarch64-linux-gnu; default: this machine"
    )
    parser.add_argument("--target-cpu", default="", metavar="C", help="such as cortex-a72, x86-64-v3")
    parser.add_argument("--target-features", default="", metavar="F", help="such as +avx2,+fma")
    parser.add_argument(
        "--cpu-levels",
        default="",
        metavar="LEVELS",
        help="code for several levels of processors in one object, such as v2,v3,v4 (AArch64: v8.0,v8.2,v8.6); runs "
        "take the highest that there is",
    )
    parser.add_argument(
        "--with",
        dest="extras",
        default="",
        metavar="EXTRAS",
        help="further files, with commas between them: test, which checks the object; benchmark, which times it; "
        "cmake; python, a module that runs the shared library",
    )
    parser.add_argument(
        "--format",
        default="object",
        choices=("object", "static", "shared"),
        help="what is written: NAME.o, a static library, or a shared one that a compiler for the target links; "
        "default: object",
    )
    parser.add_argument(
        "--quantize",
        choices=("int8", "int8-weights", "float16", "bfloat16"),
        help="int8: compute dense layers and convolutions in integers of 8 bits, with --calibration; others: store "
        "their weights so",
    )
    parser.add_argument(
        "--calibration", metavar="FILE", help="a .npz file: samples of each input, by name, a sample to a row"
    )
    parser.add_argument(
        "--calibration-method",
        default="mse",
        choices=("min-max", "percentile", "mse"),
        help="how the ranges of values follow from the samples; default: mse, the least squared error",
    )
    parser.add_argument(
        "--keep-float",
        default="",
        metavar="LAYERS",
        help="layers that stay in f32, with commas between them: first, last, or names with *",
    )
    parser.add_argument("--l1-bytes", type=int, metavar="N", help="size of the target's first data cache")
    parser.add_argument("--l2-bytes", type=int, metavar="N", help="size of its second cache")
    parser.add_argument("--cpp-class", metavar="NS::CLASS", help="the C++ class; default: made from the name")
    parser.add_argument("--name", help="of the files and in the C API; default: that of the directory")
    parser.add_argument("--out", default=".", metavar="DIR", help="where the files go; default: here")
    parser.add_argument(
        "--large-constants",
        default="object",
        choices=("object", "file"),
        help="where the weights go; file: NAME.bin, to be mapped",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        metavar="N",
        help="most threads of a run, on the program's own pool; default: 1",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0; with a message 1 when the model does not compile, 2 for a
    name or a target that cannot be chosen."""
    chosen = _parser().parse_args(arguments)
    from .build import compile

    try:
        compiled = compile(
            chosen.saved_model,
            signature=_signature(chosen.signature),
            feeds=dict(chosen.feed),
            target_triple=chosen.target_triple,
            target_cpu=chosen.target_cpu,
            target_features=chosen.target_features,
            cpu_levels=[level for level in chosen.cpu_levels.split(",") if level],
            cpp_class=chosen.cpp_class,
            name=chosen.name,
            out_dir=chosen.out,
            large_constants=chosen.large_constants,
            threads=chosen.threads,
            l1_bytes=chosen.l1_bytes,
            l2_bytes=chosen.l2_bytes,
            extras=[extra for extra in chosen.extras.split(",") if extra],
            format=chosen.format,
            quantize=chosen.quantize,
            calibration=chosen.calibration,
            calibration_method=chosen.calibration_method,
            keep_float=[layer for layer in chosen.keep_float.split(",") if layer],
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
