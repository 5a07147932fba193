"""A corpus of texts: files of `[case name] mark, mark: value`, each followed by the text of a program.

Marks: `notes`  reading it leaves something out, of which a note tells. `refused: words`  reading or compiling it raises
UnsupportedError with these words. `devices: n`  it runs on so many devices. `not by XLA: why`  XLA does not run it.
`only here`  XLA reads what is printed, not the text. `open: what`  results depend on an order that is not specified.
`steps: n`  units of the last place that a result may be away from the evaluator's. `scale: n`  the size of terms whose
sums cancel: units of its last place count.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Mapping

import numpy as np
from agreement import difference, leaves, nested
from random_graphs import values
from tfbridge.compiler import LocalClient, Module, evaluate
from tfbridge.compiler.errors import CompilerError

_CASE = re.compile(r"^\[case (\w+)\]([^\n]*)\n", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Case:
    """One text."""

    file: str
    name: str
    marks: Mapping[str, str]
    text: str

    def __str__(self) -> str:
        return f"{self.file}-{self.name}"


def read(folder: pathlib.Path) -> list[Case]:
    """The cases of all files in a folder."""
    cases = []
    for path in sorted(folder.glob("*.txt")):
        parts = _CASE.split(path.read_text())[1:]
        for name, marks, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            pairs = (mark.partition(": ") for mark in marks.strip().split(", ") if mark)
            cases.append(Case(path.stem, name, {key: value for key, _, value in pairs}, text))
    return cases


def arguments(module: Module) -> list[np.ndarray]:
    """Small whole numbers for all arrays among the parameters."""
    rng = np.random.default_rng(0)
    return [values(s, rng) for p in module.entry.parameter_shapes for s in p.leaves() if s.is_array]


def differences(case: Case, results: list[np.ndarray], wanted: list[np.ndarray], steps: float = 2**6) -> str:
    """What differs between the results, up to a rounding of sums in another order: 64 units of the last place."""
    assert len(results) == len(wanted)
    if "open" in case.marks:
        return ""
    steps, scale = float(case.marks.get("steps", steps)), float(case.marks.get("scale", 0))
    return "\n".join(filter(None, (difference(r, w, steps, scale) for r, w in zip(results, wanted))))


def check(case: Case, module: Module) -> None:
    """Compiled code computes what the evaluator computes."""
    if "devices" in case.marks:
        return _check_on_devices(case, module)
    inputs = arguments(module)
    with np.errstate(all="ignore"):
        wanted = leaves(evaluate(module, nested(module.entry.parameter_shapes, inputs)))
    assert not differences(case, LocalClient().compile(module).execute(inputs), wanted)
    return None


def _check_on_devices(case: Case, module: Module) -> None:
    inputs = [
        [a + np.asarray(k, a.dtype) for a in arguments(module)] for k in range(int(case.marks["devices"]))
    ]
    with np.errstate(all="ignore"):
        compiled, evaluated = (
            LocalClient(platform).compile(module).execute_replicas(inputs)
            for platform in ("cpu", "interpreter")
        )
    for results, wanted in zip(compiled, evaluated, strict=True):
        assert not differences(case, results, wanted)


def check_beginnings(case: Case, parse: Callable[[str], Module]) -> None:
    """Text that ends early is an error with a place, or a shorter program."""
    for end in range(0, len(case.text), max(len(case.text) // 12, 1)):
        try:
            module = parse(case.text[:end])
        except CompilerError as error:
            assert error.line > 0 and error.column > 0
        else:
            assert module.entry.instructions
