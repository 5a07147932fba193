"""Text fixtures of the passes: `[case name]`, HLO text, `[out]`, the text expected after the pass.

A case's text is the lines of the entry, or whole computations with ENTRY. UPDATE_FIXTURES=1 writes what
comes out now.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib

import numpy as np
from cases import fill
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.ir.module import Module

FOLDER = pathlib.Path(__file__).parent / "passes"
UPDATE = bool(os.environ.get("UPDATE_FIXTURES"))


@dataclasses.dataclass
class Fixture:
    """One case of a file."""

    file: pathlib.Path
    name: str
    text: str
    out: str

    def module(self) -> Module:
        """The case's text as a module."""
        body = self.text if "ENTRY" in self.text else "ENTRY main {\n" + self.text + "\n}"
        return parse_hlo("HloModule case\n\n" + body)

    def check(self, module: Module) -> None:
        """Fails where the module's text, header aside, is not the expected one."""
        found = str(module).partition("\n")[2].strip()
        if UPDATE and found != self.out:
            whole = self.file.read_text()
            old = f"[case {self.name}]\n{self.text}\n[out]\n{self.out}".rstrip("\n")
            assert old in whole
            self.file.write_text(whole.replace(old, f"[case {self.name}]\n{self.text}\n[out]\n{found}", 1))
            self.out = found
        assert found == self.out


def read(name: str) -> list[Fixture]:
    """The cases of passes/`name`.txt."""
    file = FOLDER / f"{name}.txt"
    cases = file.read_text().removeprefix("[case ").split("\n[case ")
    found = [(*case.partition("]\n")[::2],) for case in cases]
    return [
        Fixture(file, title, *(part.strip("\n") for part in body.split("\n[out]"))) for title, body in found
    ]


def inputs(module: Module, seed: int = 0) -> list[np.ndarray]:
    """Values for the parameters: special ones first (NaN, infinities, zeros, limits), then random ones."""
    rng = np.random.default_rng(seed)
    return [fill(shape, "any", rng, number) for number, shape in enumerate(module.entry.parameter_shapes)]
