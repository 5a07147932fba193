"""Random valid programs whose sizes are known at run time only: their code, bound to several sizes, against the
evaluator, and where the two differ against code for these very sizes."""

from __future__ import annotations

import re

import numpy as np
from agreement import difference, leaves, nested
from random_graphs import drawn_module
from random_graphs import values as arguments_of
from symbolic_programs import dims_of, symbolic
from tfbridge.compiler import LocalClient, parse_hlo
from tfbridge.compiler.cpu.symbolic_code import SymbolicCode
from tfbridge.compiler.errors import CompilerError
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.ir.module import Module
from tfbridge.compiler.ir.specialization import is_symbolic, specialized
from tfbridge.compiler.options import Options

from ..compare import TooLong, compiled_and_compared, limited, rejected
from ..part import Difference, Part

_HEADER = re.compile(r"// values: ([\w=, ;]*)\n")
_ATTEMPTS = 20
_EVALUATOR_SECONDS = 2.0
_MOST_BYTES = 256 << 20  # of all values of a program


class Symbolic(Part):
    """A case is HLO text; its first line, a comment, has the values that the symbols get."""

    suffix = ".hlo"
    quick = 20
    is_valid = True

    def make(self, seed: int) -> str:
        """A graph of exact ops, one or two sizes of its arguments symbols."""
        rng = np.random.default_rng(seed)
        for _ in range(_ATTEMPTS):
            module = drawn_module(rng)
            sizes = dims_of(module)
            if not sizes:
                continue
            count = min(len(sizes), int(rng.integers(1, 4)))
            names = dict(zip(map(int, rng.choice(sizes, count, replace=False)), "nmk"))
            if made := symbolic(module, names):
                break
        else:
            return f"// values: \n{module}"
        used = re.findall(r"(\w)=", str(made).split("sizes={")[1].split("}")[0])
        hints = {name: size for size, name in names.items() if name in used}
        chosen = [hints, *({n: _another(size, rng) for n, size in hints.items()} for _ in range(5))]
        return f"// values: {'; '.join(', '.join(f'{n}={v}' for n, v in c.items()) for c in chosen)}\n{made}"

    def check(self, text: str) -> str:
        """Every program is accepted, and native code gives the evaluator's very values for each size."""
        header = _HEADER.match(text)
        try:
            module = parse_hlo(text)
        except CompilerError as error:
            return rejected(error)
        if not header or not is_symbolic(module):
            return compiled_and_compared(module)
        try:
            executable = LocalClient("cpu").compile(module, Options(threads=2))
        except CompilerError as error:
            return rejected(error)
        code = executable._compiled
        words = {
            self.compared(module, code, dict(re.findall(r"(\w+)=(\d+)", chosen)))
            for chosen in header[1].split(";")
        }
        return next(w for w in ("inexact", "not bound", "guarded", "too long", "agreed") if w in words)

    def compared(self, module: Module, code: object, chosen: dict[str, str]) -> str:
        """Runs the code for these sizes; a word for what happened. Raises: Difference."""
        values = {name: int(value) for name, value in chosen.items()}
        try:
            concrete = specialized(module, values)
            instructions = (i for c in concrete.computations() for i in c.instructions)
            if sum(leaf.bytes for i in instructions for leaf in i.shape.leaves()) > _MOST_BYTES:
                return "too long"
            shapes = [leaf for p in concrete.entry.parameter_shapes for leaf in p.leaves() if leaf.is_array]
            rng = np.random.default_rng(0)
            arguments = [arguments_of(shape, rng) for shape in shapes]
            with limited(_EVALUATOR_SECONDS), np.errstate(all="ignore"):
                wanted = leaves(evaluate(concrete, nested(concrete.entry.parameter_shapes, arguments)))
        except TooLong:
            return "too long"
        except (CompilerError, KeyError, ValueError):
            return "guarded"
        if not isinstance(code, SymbolicCode) or code.code is None:
            return "not bound"
        bound = code.code.bound([a.shape for a in arguments])
        if isinstance(bound, str):
            return "guarded"
        for number, (f, w) in enumerate(zip(bound.execute(arguments), wanted, strict=True)):
            if message := difference(f, w, 1e-9):
                try:
                    compiled_and_compared(concrete)
                except Difference:
                    return "inexact"
                raise Difference(f"{values}: result {number} {message}")
        return "agreed"


def _another(size: int, rng: np.random.Generator) -> int:
    """Another value, mostly a smaller one: with larger ones sums may be inexact."""
    if rng.random() < 0.7:
        return int(rng.integers(2, size + 2))
    return int(rng.choice([2, 3, 5, 8, 16, 17, 31, 33, 64, 100]))


PART = Symbolic()
