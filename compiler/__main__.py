"""Replays HLO or StableHLO text: `python -m tfbridge.compiler FILE`.

Runs the module on random or given inputs and prints its results; with --print, the module after the passes; with
--print thunks, the instruction order, the buffers and the thunks that compiled code for this machine has. Constants
that the text leaves out, as `{...}`, are random.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from ..runtime.sizes import estimate
from .client.client import LocalClient
from .client.platforms import native
from .errors import CompilerError
from .hlo_text.parser import parse_hlo
from .ir.literal import Literal
from .ir.module import Module
from .ir.module_attributes import devices
from .ir.shape import Shape
from .options import Options
from .passes.pipeline import FORMER_NAMES, PASSES, Pass, Step, dump_step, run_pipeline, verify_step
from .stablehlo_text.parser import is_stablehlo, parse_stablehlo


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, or 1 with a message when the text does not parse, compile or
    run."""
    parser = argparse.ArgumentParser(prog="python -m tfbridge.compiler", description=__doc__)
    parser.add_argument("file", help="HLO or StableHLO text; - reads standard input")
    parser.add_argument("--platform", default="cpu", help="cpu (default) or interpreter")
    parser.add_argument(
        "--passes",
        default=None,
        metavar="NAMES",
        help="passes to run, by name with commas between; none runs none; default: all",
    )
    parser.add_argument(
        "--print",
        choices=_PRINTED,
        help="print the module after the passes (module, the default) or its thunks; do not run it",
    )
    parser.add_argument("--dump", default="", metavar="DIR", help="write the module after each pass into DIR")
    parser.add_argument(
        "--inputs", default="", metavar="FILE.npz", help="parameters arg0, arg1, ...; default: random"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs")
    parser.add_argument("--numerics", default="tf", choices=("tf", "fast", "reproducible"))
    options = parser.parse_args(_with_print_value(sys.argv[1:] if arguments is None else arguments))
    try:
        return _replay(options)
    except (CompilerError, OSError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 1


_PRINTED = ("module", "thunks")


def _with_print_value(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--print=VALUE` in place of `--print VALUE`, and of `--print` alone, which may stand before
    FILE."""
    result: list[str] = []
    for argument in arguments:
        if argument == "--print":
            argument = f"--print={_PRINTED[0]}"
        elif argument in _PRINTED and result and result[-1] == f"--print={_PRINTED[0]}":
            argument = f"--print={argument}"
            result.pop()
        result.append(argument)
    return result


def _replay(flags: argparse.Namespace) -> int:
    text = sys.stdin.read() if flags.file == "-" else _read(flags.file)
    options = Options(numerics=flags.numerics, dump_dir=flags.dump)
    module = _parsed(text, flags.seed)
    dump = dump_step(flags.dump) if flags.dump else None

    def observe(step: Step) -> None:
        verify_step(step)
        if dump is not None:
            dump(step)

    passes = _passes(flags.passes)
    module = run_pipeline(module, options, observe, passes)
    if flags.print:
        print(native().print_thunks(module, options) if flags.print == "thunks" else module, end="")
        return 0
    start = time.perf_counter()
    executable = LocalClient(flags.platform).compile(module, options)
    compiled = time.perf_counter()
    count = devices(module, "replica_count") * devices(module, "num_partitions")
    inputs = _inputs(module, flags.inputs, flags.seed)
    results = executable.execute_replicas([inputs] * count)[0] if count > 1 else executable.execute(inputs)
    done = time.perf_counter()
    for number, result in enumerate(results):
        print(f"result {number}: {result.dtype}{list(result.shape)}\n{result}")
    print(
        f"compiled in {(compiled - start) * 1e3:.1f} ms, first run in {(done - compiled) * 1e3:.1f} ms",
        file=sys.stderr,
    )
    return 0


def _parsed(text: str, seed: int) -> Module:
    """The module that a text of either kind spells. What was left out of it is told on standard error."""
    if is_stablehlo(text):
        return parse_stablehlo(text)
    random, notes, left_out = np.random.default_rng(seed), list[str](), list[str]()

    def constant(name: str, shape: Shape) -> Literal:
        left_out.append(name)
        return random_literal(shape, random)

    module = parse_hlo(text, elided=constant, notes=notes)
    if left_out:
        notes.append(
            f"random values stand for {len(left_out)} constants that the text leaves out: {left_out[0]:.80}"
        )
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return module


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _passes(names: str | None) -> list[Pass]:
    if names is None:
        return list(PASSES)
    by_name = {p.__name__: p for p in PASSES}
    requested = [FORMER_NAMES.get(n, n) for n in names.split(",") if n and n != "none"]
    for name in requested:
        if name not in by_name:
            raise CompilerError(f"no pass is named {name!r}; there are {', '.join(by_name)}")
    return [by_name[n] for n in requested]


def _inputs(module: Module, path: str, seed: int) -> list[np.ndarray]:
    leaves = [leaf for shape in module.entry.parameter_shapes for leaf in shape.leaves()]
    if path:
        with np.load(path) as file:
            return [
                file[f"arg{n}"].view(leaf.element_type.dtype)
                if file[f"arg{n}"].dtype.kind == "V"
                else file[f"arg{n}"]
                for n, leaf in enumerate(leaves)
            ]
    random = np.random.default_rng(seed)
    return [random_array(leaf, random) for leaf in leaves]


def random_literal(shape: Shape, random: np.random.Generator) -> Literal:
    """A literal of random arrays."""
    if shape.is_tuple:
        return Literal.tuple(random_literal(part, random) for part in shape.tuple_shapes)
    return Literal(random_array(shape, random), shape.element_type)


def random_array(shape: Shape, random: np.random.Generator) -> np.ndarray:
    """Random elements: floats of a normal distribution, integers below 8, pred of both kinds. Symbols have typical
    values."""
    kind, dims = shape.element_type, tuple(map(estimate, shape.dims))
    if kind.is_complex:
        return (random.standard_normal(dims) + 1j * random.standard_normal(dims)).astype(kind.dtype)
    if kind.is_float:
        return np.asarray(random.standard_normal(dims)).astype(kind.dtype)
    return np.asarray(random.integers(0, 8 if kind.is_integer else 2, dims)).astype(kind.dtype)


if __name__ == "__main__":
    sys.exit(main())
